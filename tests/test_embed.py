"""Encoders and re-rankers against independent computations, and vectors that outlive a kill."""

from __future__ import annotations

import random
import signal
import socket
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import embed
from lib.base.files import read_manifest, sha256_file
from lib.embed import HashEncoder, load_encoder
from lib.model_files import minilm_folder
from lib.search.rerank import PairScorer
from lib.search.vectors import encode_cached, encode_small
from tests.killed import TEXTS as MANY
from tests.killed import interrupted, killed
from tests.tiny_models import save_bert, save_sentence_model

TEXTS = [
    "acute pain in the heart",
    "fever",
    "the dose of a drug " * 60,
    "chronic kidney test",
    "fever",  # a text that comes twice is read once
    "treat the fever and the pain",
]


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("towers")
    return save_bert(folder / "query", seed=1), save_bert(folder / "article", seed=2)


@pytest.fixture(scope="module")
def minilm():
    return load_encoder("minilm", device="cpu")


def medcpt(towers, **options):
    query, article = towers
    options = {"device": "cpu", **options}
    return load_encoder("medcpt", query_model=query, article_model=article, **options)


def sentence_model(folder: Path, towers, query: str = "") -> Path:
    return save_sentence_model(folder, towers[0], {"query": query, "document": ""})


FINGERPRINTS = {
    "minilm": "minilm|<files>|own pooling|256 tokens|unit|float32",
    "medcpt": "medcpt|<files>|cls pooling|512 tokens|unit|float32",
    "st": "st|<files>|own pooling|512 tokens|unit|float32",
    "hash": "hash|crc32 of words and word pairs|256|unit length",
}
"""Byte for byte: caches of vectors are found by them."""


@pytest.fixture(params=FINGERPRINTS)
def encoder(request, towers, tmp_path):
    if request.param == "st":
        return load_encoder(f"st:{sentence_model(tmp_path / 'model', towers)}", device="cpu")
    return medcpt(towers) if request.param == "medcpt" else load_encoder(request.param)


def test_every_encoder_gives_unit_rows_in_order_and_is_known_by_its_fingerprint(encoder, capfd):
    for tower in ("query", "article"):
        rows = encoder.encode(TEXTS, tower, progress=False)
        assert rows.shape == (len(TEXTS), encoder.dim) and rows.dtype == np.float32
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
        alone = np.concatenate([encoder.encode([t], tower, progress=False) for t in TEXTS])
        assert np.allclose(rows, alone, atol=1e-5)
        assert encoder.encode([], tower, progress=False).shape == (0, encoder.dim)
        pairs = [("fever", "a test of the heart"), ("kidney", "a test of the kidney")]
        one, other = encoder.encode(pairs, tower, progress=False)
        assert not np.allclose(one, other, atol=1e-2)
        print_ = encoder.fingerprints[tower]
        wanted = FINGERPRINTS[encoder.name.split(":")[0]]
        assert print_ == wanted.replace("<files>", print_.split("|")[1])
        assert print_ in encoder.fingerprint
    assert capfd.readouterr() == ("", "")  # quiet means nothing on any stream


# MiniLM ------------------------------------------------------------------------------------------


def test_minilm_is_sentence_transformers_own_encode_of_256_tokens_without_titles(minilm):
    from sentence_transformers import SentenceTransformer

    own = SentenceTransformer(str(minilm_folder()), device="cpu").encode(TEXTS)
    assert np.abs(minilm.encode(TEXTS, "article", progress=False) - own).max() < 1e-5
    long = "fever " * 254  # and [CLS], [SEP]
    items = [long, long + "kidney", long[:-6], ("Kidney", "fever"), "fever"]
    rows = minilm.encode(items, "article", progress=False)
    assert np.allclose(rows[0], rows[1], atol=1e-5) and np.allclose(rows[3], rows[4], atol=1e-6)
    assert not np.allclose(rows[0], rows[2], atol=1e-5)
    values = "K 4.1 mmol/L (3.5-5.1); Na 139 mmol/L (136-145); " * 20
    unread = minilm.unread(["pain", ("title", "pain"), values, ("title", values), long, "a " * 300])
    assert unread.tolist() == [0, 0, unread[2], unread[2], 0, 46] and unread[2] > 256
    half = load_encoder("minilm", device="cpu", precision="bfloat16")
    cosines = (half.encode(TEXTS, progress=False) * minilm.encode(TEXTS, progress=False)).sum(1)
    assert cosines.min() > 0.999 and half.fingerprint != minilm.fingerprint


def test_texts_whose_vectors_are_kept_need_no_model_and_none_the_network(
    minilm, tmp_path, monkeypatch
):
    def refuse(*args, **kwargs):
        raise AssertionError("was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    kept = encode_small(TEXTS, load_encoder("minilm", device="cpu"), "query", cache_dir=tmp_path)
    monkeypatch.setattr(embed, "_open", refuse)
    again = load_encoder("minilm", device="cpu")
    assert again.fingerprints == minilm.fingerprints
    assert np.array_equal(encode_small(TEXTS[::-1], again, "query", cache_dir=tmp_path), kept[::-1])
    for use in (lambda: again.encode(["a new text"]), lambda: again.dim):
        with pytest.raises(AssertionError, match="was touched"):
            use()


# MedCPT ------------------------------------------------------------------------------------------


def cls(folder, *texts, truncation=True, **options):
    """The unit CLS vector, computed with transformers alone."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(*texts, truncation=truncation, return_tensors="pt", **options)
    with torch.inference_mode():
        row = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state[0, 0].numpy()
    return row / np.linalg.norm(row)


def test_medcpt_is_the_cls_vector_of_each_tower_with_titles_as_segments(towers):
    query, article = towers
    encoder = medcpt(towers)
    got = encoder.encode([("fever", "test the heart"), "a dose"], "article", False)
    assert np.allclose(got[0], cls(article, "fever", "test the heart"), atol=1e-5)
    assert np.allclose(got[1], cls(article, "", "a dose"), atol=1e-5)
    got = encoder.encode(["test the heart"], "query", progress=False)[0]
    assert np.allclose(got, cls(query, "test the heart"), atol=1e-5)
    # Another query length does not make the vectors of a whole corpus stale.
    short = medcpt(towers, query_tokens=64)
    assert short.fingerprints["article"] == encoder.fingerprints["article"]
    prints = {short.fingerprints["query"], *encoder.fingerprints.values()}
    assert len(prints) == 3
    fits = "fever " * 62
    rows = short.encode([fits, fits + "kidney", fits[:-6]], "query", progress=False)
    assert np.allclose(rows[0], rows[1], atol=1e-6) and not np.allclose(rows[0], rows[2], atol=1e-6)
    # A long document never eats the question.
    question, document = "sign of " * 20, "the kidney dose " * 50
    got = short.encode([(question, document)], "query", progress=False)[0]
    cut = {"truncation": "only_second", "max_length": 64}
    assert np.allclose(got, cls(query, question, document, **cut), atol=1e-5)


# other models ------------------------------------------------------------------------------------


def test_prompts_of_a_model_are_used_per_tower_and_its_folder_is_no_fingerprint(towers, tmp_path):
    a, b = (
        load_encoder(f"st:{sentence_model(tmp_path / name, towers, 'sign of ')}", device="cpu")
        for name in "ab"
    )
    query = a.encode(["fever"], "query", progress=False)
    article = a.encode(["sign of fever"], "article", progress=False)
    assert np.allclose(query, article, atol=1e-6)
    assert a.fingerprint == b.fingerprint and str(tmp_path) not in a.fingerprint


@pytest.mark.parametrize("left", ["nothing", "its settings", "an empty vocabulary"])
def test_a_tokenizer_that_knows_no_word_is_refused(left, towers, tmp_path):
    folder = sentence_model(tmp_path / "copy", towers)
    for file in folder.iterdir():
        kept = left == "its settings" and file.name.endswith("_config.json")
        if file.name.startswith(("tokenizer", "vocab", "special")) and not kept:
            file.unlink()
    if left == "an empty vocabulary":
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(ValueError, match="copy: its tokenizer knows no word.*whole folder"):
        load_encoder(f"st:{folder}", device="cpu")


def test_names_that_are_none_are_refused_and_an_unreachable_hub_is_named(monkeypatch):
    import huggingface_hub

    def unreachable(*args, **kwargs):
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(FileNotFoundError, match="some/model.*pass the folder"):
        load_encoder("st:some/model", device="cpu")
    with pytest.raises(ValueError, match="use minilm, mpnet, medcpt"):
        load_encoder("minilm-l6")
    with pytest.raises(ValueError, match="unknown precision"):
        load_encoder("minilm", precision="int8")
    with pytest.raises(FileNotFoundError, match="no adapter 'nobody'"):
        load_encoder("minilm+nobody")


def test_hashing_is_signed_buckets_of_words_and_refuses_a_text_without_any():
    code = zlib.crc32(b"fever")
    row = load_encoder("hash", dim=64).encode(["Fever!"])[0]
    assert row[code % 64] == (1 if code >> 31 else -1) and np.abs(row).sum() == 1
    for empty in ("", "?!", ("a title", "")):
        with pytest.raises(ValueError, match="item 1 "):
            load_encoder("hash").encode(["fever", empty], "article")


# re-rankers --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1, 2], ids=["one logit", "two labels"])
def scorer(request, tmp_path_factory) -> PairScorer:
    """A tiny cross-encoder as the hub would store it, with one score or two labels."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    folder = save_bert(tmp_path_factory.mktemp("bert"), seed=1)
    config = BertConfig.from_pretrained(folder, num_labels=request.param)
    torch.manual_seed(2)
    net = BertForSequenceClassification(config)
    net.classifier.weight.data *= 2  # or all scores would be nearly the same
    tokenizer = AutoTokenizer.from_pretrained(folder)
    net.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return PairScorer("tiny", folder, max_tokens=32)


PAIRS = [
    ("fever of the kidney", "treat the kidney"),
    ("fever", "a drug " * 40),
    ("test the heart", "pain"),
    ("pain " * 60, "dose of a drug"),
    ("fever of the kidney", "treat the kidney"),
    ("", "a sign"),
]


def test_a_score_depends_on_its_own_pair_alone(scorer):
    together = scorer(PAIRS)
    assert together.shape == (6,)
    assert together[0] == together[4]
    assert len(set(np.round(together, 6))) > 2, "a scorer that says the same of all tells nothing"
    alone = np.array([scorer([pair])[0] for pair in PAIRS])
    assert together == pytest.approx(alone, abs=1e-5)
    assert scorer(PAIRS[::-1])[::-1] == pytest.approx(together, abs=1e-5)
    assert scorer([]).shape == (0,)


def test_the_scores_are_those_of_the_model_itself(scorer):
    import torch

    tokens = scorer._tokenizer(*PAIRS[0], return_tensors="pt")
    with torch.no_grad():
        logits = scorer._net(**tokens).logits[0].double()
    want = logits[0] if len(logits) == 1 else logits.softmax(dim=0)[-1]
    assert scorer(PAIRS[:1])[0] == pytest.approx(float(want), abs=1e-5)


# vectors that are kept ---------------------------------------------------------------------------


class Own(HashEncoder):
    """The hash encoder, counting its texts; a reader's own, where its vectors come out changed."""

    def __init__(self, change=lambda rows: rows):
        super().__init__(8)
        self.change, self.asked = change, 0

    def encode(self, items, tower="query", progress=True):
        self.asked += len(items)
        return self.change(super().encode(items, tower, progress))


def files(folder: Path) -> dict[str, str]:
    return {p.name: sha256_file(p) for p in sorted(folder.iterdir()) if not p.name.startswith(".")}


def cached(items, encoder, folder, tower="article", **options) -> list[np.memmap]:
    return encode_cached(items, encoder, tower, cache_dir=folder, progress=False, **options)


@given(n=st.integers(0, 40), shard_rows=st.integers(1, 45), float16=st.booleans())
@settings(max_examples=25)
def test_shards_together_are_what_the_encoder_gives(tmp_path_factory, n, shard_rows, float16):
    folder, encoder = tmp_path_factory.mktemp("cache"), Own()
    items = [("a title", text) for text in MANY[:n]]
    options = {"shard_rows": shard_rows, "dtype": "float16" if float16 else "float32"}
    shards = cached(items, encoder, folder, **options)
    assert all(isinstance(shard, np.memmap) and len(shard) <= shard_rows for shard in shards)
    together = np.concatenate([np.zeros((0, 8), np.float16), *shards])
    assert np.array_equal(together, encoder.encode(items, "article").astype(options["dtype"]))
    encoder.asked = 0
    cached(items, encoder, folder, **options)
    assert encoder.asked == 0


def test_anything_that_moves_a_number_makes_another_file(tmp_path):
    def names(items, encoder, tower="article", **options):
        shards = cached(items, encoder, tmp_path, tower, **options)
        return str([Path(s.filename).name for s in shards])

    some = MANY[:8]
    base = names(some, HashEncoder(32))
    assert base == names(tuple(some), HashEncoder(32))
    others = [
        names(some[::-1], HashEncoder(32)),
        names([("title", t) for t in some], HashEncoder(32)),
        names(some, HashEncoder(64)),
        names(some, HashEncoder(32), "query"),
        names(some, HashEncoder(32), dtype="float16"),
    ]
    assert len({base, *others}) == 6
    with pytest.raises(ValueError, match="float32 or float16"):
        cached(some, HashEncoder(32), tmp_path, dtype="int8")


@pytest.mark.parametrize("left", ["no manifest", "half a file"])
def test_an_unfinished_shard_is_encoded_again(tmp_path, left):
    encoder = Own()
    victim = Path(cached(MANY[:8], encoder, tmp_path, shard_rows=4)[1].filename)
    before = files(tmp_path)
    if left == "no manifest":
        victim.with_name(f"{victim.name}.manifest.json").unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-10])
    encoder.asked = 0
    cached(MANY[:8], encoder, tmp_path, shard_rows=4)
    assert encoder.asked == 4 and files(tmp_path) == before


@pytest.mark.fault(
    "numbers",
    "An encoder gives NaN, too few rows, or vectors not of length 1",
    "the encoder, and the row or the shape",
)
@pytest.mark.parametrize("encode", [encode_small, encode_cached])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows * np.nan, "texts: row 0 is not of length 1"),
        (lambda rows: rows * np.float32([[1], [1], [0], [1]]), "texts: row 2 is not of length 1"),
        (lambda rows: rows * np.float32(2), "texts: row 0 is not of length 1"),
        (lambda rows: (rows * 127).astype(np.int8), "texts: row 0 is not of length 1"),
        (lambda rows: rows[:-1], r"the shape \(3, 8\), not \(4, 8\)"),
        (lambda rows: rows[:, :5], r"the shape \(4, 5\), not \(4, 8\)"),
        (lambda rows: rows[0], r"the shape \(8,\), not \(4, 8\)"),
    ],
)
def test_what_is_no_vector_of_length_1_is_never_stored(encode, change, says, tmp_path):
    for _ in range(2):  # a second time it is not read back from the cache
        with pytest.raises(ValueError, match=f"hash on .*{says}"):
            encode(MANY[:4], Own(change), "article", cache_dir=tmp_path)
    assert not list(tmp_path.glob("*.npy"))


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(12, marks=pytest.mark.fault("numbers", "A run that embeds is killed")),
        pytest.param(
            8, marks=pytest.mark.fault("numbers", "A writer of files with manifests is killed")
        ),
    ],
)
def test_a_run_killed_at_any_moment_ends_with_the_same_files(kills, fault, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    killed("embed", whole, 0)
    told = killed("embed", broken, kills)
    right, found = files(whole), files(broken)
    lost = len(right.keys() - found.keys())
    wrong = told["wrong"] + sum(right.get(name) != digest for name, digest in found.items())
    fault.came(tries=told["hit"], lost=lost, wrong=wrong, said="nothing: the next run goes on")


INTERRUPTED = """
import sys
from pathlib import Path
import lib.base  # as every command does; it sets up how one ends
from tests.killed import TEXTS, SlowHash, encode_cached
print("started", flush=True)
encode_cached(TEXTS, SlowHash(0.001), "article", cache_dir=Path(sys.argv[1]), shard_rows=8)
"""


@pytest.mark.fault("waiting", "Ctrl-C at a random moment of embedding")
def test_ctrl_c_ends_an_embedding_within_seconds_and_keeps_every_shard(fault, tmp_path):
    moments, kept = random.Random(3), set()
    for _ in fault.tries(20):
        ended = interrupted(INTERRUPTED, tmp_path, moments.uniform(0, 0.35))
        # Once all is made, Python has no handler any more, and the signal ends the process itself.
        assert ended.status in (0, 130, -signal.SIGINT) and "Traceback" not in ended.said
        whole = {path.name for path in tmp_path.glob("*.npy") if read_manifest(path)}
        said = ended.said.rpartition("]")[2]
        fault.came(lost=len(kept - whole), wrong=ended.seconds > 10, said=said)
        kept = whole
    assert len(kept) > 3, "some were made before"
