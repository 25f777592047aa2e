"""Encoders and re-rankers against independent computations, and vectors that outlive a kill."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import embed
from lib.base.files import read_manifest, sha256_file
from lib.base.paths import ROOT
from lib.embed import HashEncoder, load_encoder, sources
from lib.embed_pool import encode_chunks
from lib.llm.chat import LLMError
from lib.model_files import minilm_folder
from lib.search.rerank import PairScorer
from lib.search.vectors import encode_cached, encode_small
from tests.fault_server import FaultServer, embedded
from tests.killed import TEXTS as MANY
from tests.killed import interrupted, killed
from tests.tiny_models import WORDS as KNOWN
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
DESCRIBED = {
    "minilm": "minilm: 384 dimensions, vectors of length 1; mean pooling, reads 256 tokens",
    "medcpt": "medcpt: 32 dimensions, vectors of length 1; query tower query: cls pooling, reads "
    "512 tokens; article tower article: cls pooling, reads 512 tokens",
    "st": "32 dimensions, vectors of length 1; mean pooling, reads 512 tokens",
    "hash": "hash: 256 dimensions, vectors of length 1; counts words, reads any length",
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
    assert encoder.describe().endswith(DESCRIBED[encoder.name.split(":")[0]])
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


def pooled(folder, text: str, pooling: str) -> np.ndarray:
    """The vector of one text as the model gives it, computed with transformers alone."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.inference_mode():
        rows = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state[0].numpy()
    return rows[0] if pooling == "cls" else rows.mean(axis=0)


READ_AS = {
    "bge-small": ("cls", "Represent this sentence for searching relevant passages: ", "a dose"),
    "contriever": ("mean", "", "fever. a dose"),
    "specter": ("cls", "", "fever[SEP]a dose"),
}
"""Pooling, what stands before a query, and how (fever, a dose) is read as an article."""


@pytest.mark.parametrize("name", READ_AS)
def test_encoders_of_the_hub_have_their_own_pooling_and_metric(name, towers, own_folders):
    pooling, prompt, article = READ_AS[name]
    encoder = load_encoder(name, model=towers[0], device="cpu")
    wanted = {
        "query": [pooled(towers[0], prompt + "sign of pain", pooling)],
        "article": [pooled(towers[0], article, pooling), pooled(towers[0], "a dose", pooling)],
    }
    items = {"query": ["sign of pain"], "article": [("fever", "a dose"), ("", "a dose")]}
    for tower, rows in wanted.items():
        rows = np.stack(rows)
        assert not np.allclose(np.linalg.norm(rows, axis=1), 1, atol=0.1)
        if encoder.metric == "cosine":
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        got = encoder.encode(items[tower], tower, progress=False)
        assert np.allclose(got, rows, atol=1e-5)
        kept = encode_small(items[tower], encoder, tower)
        assert np.allclose(kept, got / np.linalg.norm(got, axis=1, keepdims=True)), "for cosines"
    assert encoder.metric == {"contriever": "dot", "specter": "l2"}.get(name, "cosine")
    assert load_encoder(f"{name}={towers[0]}", device="cpu").fingerprint == encoder.fingerprint
    # The same weights under another metric: by cosine every row has length 1.
    unit = load_encoder(name, model=towers[0], device="cpu", metric="cosine")
    assert np.allclose(np.linalg.norm(unit.encode(["a dose"], "article"), axis=1), 1, atol=1e-6)
    assert (unit.fingerprint == encoder.fingerprint) == (encoder.metric == "cosine")
    with pytest.raises(ValueError, match="no pooling 'max' with metric"):
        load_encoder(name, model=towers[0], pooling="max")


def test_where_the_weights_of_an_encoder_are_from():
    assert sources("specter", {}) == ["allenai/specter"]
    assert sources("bge-small", {"model": "/m"}) == sources("bge-small=/m", {}) == ["/m"]
    assert sources("minilm", {}) == sources("hash", {}) == sources("openai:m@http://x", {}) == []
    assert sources("medcpt", {"query_model": "/q"}) == ["/q", "ncbi/MedCPT-Article-Encoder"]
    assert sources("st:a/b+c", {"article": "d"}) == ["a/b", "d"]
    assert sources("minilm", {}) == sources("hash", {}) == sources("", {}) == []


def test_prompts_of_a_model_are_used_per_tower_and_its_folder_is_no_fingerprint(towers, tmp_path):
    a, b = (
        load_encoder(f"st:{sentence_model(tmp_path / name, towers, 'sign of ')}", device="cpu")
        for name in "ab"
    )
    query = a.encode(["fever"], "query", progress=False)
    article = a.encode(["sign of fever"], "article", progress=False)
    assert np.allclose(query, article, atol=1e-6)
    assert a.fingerprint == b.fingerprint and str(tmp_path) not in a.fingerprint


def test_prompts_that_are_given_replace_the_models_and_alone_change_a_fingerprint(towers, tmp_path):
    folder = sentence_model(tmp_path / "own", towers, "sign of ")
    own = load_encoder(f"st:{folder}", device="cpu")
    given = load_encoder(f"st:{folder}", device="cpu", query_prompt="", passage_prompt="test the ")
    query = given.encode(["sign of fever"], "query", progress=False)
    assert np.allclose(query, own.encode(["fever"], "query", progress=False), atol=1e-6)
    article = given.encode([("a title", "fever")], "article", progress=False)
    assert np.allclose(article, own.encode(["test the fever"], "article", False), atol=1e-6)
    assert given.fingerprints == {
        tower: f"{own.fingerprints[tower]}|prompt {prompt!r}"
        for tower, prompt in (("query", ""), ("article", "test the "))
    }
    half = load_encoder(f"st:{folder}", device="cpu", query_prompt="a ")
    assert half.fingerprints["article"] == own.fingerprints["article"]
    assert "article prompt 'test the '" in given.describe() and "query" not in given.describe()
    long = "fever " * 510  # with [CLS] and [SEP] it just fits
    assert own.unread([long]).tolist() == [0] and given.unread([long]).tolist() == [2]
    assert own.unread([long], "query").tolist() == [2]
    with pytest.raises(ValueError, match="no prompts"):
        medcpt(towers, query_prompt="query: ")


def test_a_prompt_that_a_model_defines_for_passages_is_used_under_any_of_its_names(
    towers, tmp_path
):
    folder = sentence_model(tmp_path / "model", towers)
    plain = load_encoder(f"st:{folder}", device="cpu")
    want = plain.encode(["test the fever"], "article", progress=False)
    for name in ("document", "passage", "corpus"):
        prompts = {"query": "sign of ", name: "test the "}
        _settings(
            folder, "config_sentence_transformers.json", lambda c, p=prompts: c | {"prompts": p}
        )
        encoder = load_encoder(f"st:{folder}", device="cpu")
        assert np.allclose(encoder.encode(["fever"], "article", False), want, atol=1e-6), name
        assert "article prompt 'test the '" in encoder.describe()


def test_two_towers_from_outside_read_queries_and_passages_and_have_one_dimension(towers, tmp_path):
    one, other = (
        save_sentence_model(tmp_path / bert.name, bert, {"query": "", "document": ""})
        for bert in towers
    )
    both = load_encoder(f"st:{one}", article=other, device="cpu")
    for tower, folder in (("query", one), ("article", other)):
        alone = load_encoder(f"st:{folder}", device="cpu")
        rows = both.encode(TEXTS, tower, progress=False)
        assert np.allclose(rows, alone.encode(TEXTS, tower, progress=False), atol=1e-6)
        assert both.fingerprints[tower] == alone.fingerprints[tower]
    assert "query tower query: mean" in both.describe() and "article tower" in both.describe()
    wide = save_bert(tmp_path / "wide", seed=3, size=64)
    with pytest.raises(ValueError, match="32 and 64 dimensions.*trained together"):
        load_encoder(f"st:{one}", article=wide, device="cpu").encode(["fever"], "article")


def test_a_static_model_of_sentence_transformers_is_an_encoder_like_any_other(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(save_bert(tmp_path / "bert", seed=1))
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)])
    model.save(str(tmp_path / "static"))
    encoder = load_encoder(f"st:{tmp_path / 'static'}", device="cpu")
    rows = encoder.encode(TEXTS, "article", progress=False)
    assert rows.shape == (len(TEXTS), 16) and not encoder.unread(TEXTS).any()
    assert "reads any length" in encoder.describe()


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


def _weights(folder: Path, change) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def _settings(folder: Path, name: str, change) -> None:
    file = folder / name
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


BROKEN = {
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        "no model.safetensors.*whole folder",
    ),
    "a part of the weights": (
        lambda f: (f / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "model-00002-of-00002.safetensors"}}'
        ),
        "no model-00002-of-00002.safetensors.*whole folder",
    ),
    "half a file": (
        lambda f: (f / "model.safetensors").write_bytes(
            (f / "model.safetensors").read_bytes()[:5000]
        ),
        "cannot be opened.*whole folder again",
    ),
    "a pointer": (
        lambda f: (f / "model.safetensors").write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
        ),
        "model.safetensors is a Git LFS pointer.*git lfs pull",
    ),
    "a layer that is new": (
        lambda f: _weights(f, lambda w: {k: v for k, v in w.items() if "layer.1." not in k}),
        "16 of its weights are missing and would be random.*encoder.layer.1.*whole folder again",
    ),
    "other names of weights": (
        lambda f: _weights(f, lambda w: {f"x.{k}": v for k, v in w.items()}),
        "weights are missing and would be random",
    ),
    "other sizes": (
        lambda f: _settings(f, "config.json", lambda c: c | {"intermediate_size": 48}),
        "other sizes than its config.json",
    ),
    "code in the model": (
        lambda f: _settings(
            f, "config.json", lambda c: c | {"auto_map": {"AutoModel": "code.Model"}}
        ),
        "needs code of its own.*AutoModel.*openai:",
    ),
    "code in a module": (
        lambda f: _settings(
            f, "modules.json", lambda m: [*m, {"idx": 9, "path": "", "type": "custom_st.Head"}]
        ),
        "needs code of its own.*custom_st.Head.*openai:",
    ),
    "no settings": (lambda f: (f / "config.json").unlink(), "cannot be opened.*whole folder"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_folder_that_would_give_vectors_without_meaning_is_refused(how, towers, tmp_path, capfd):
    folder = sentence_model(tmp_path / "copy", towers)
    breaks, says = BROKEN[how]
    breaks(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=f"(?s)copy.*{says}"):
        load_encoder(f"st:{folder}", device="cpu").encode(["gout", "sepsis"], progress=False)
    assert "MISSING" not in "".join(capfd.readouterr())  # transformers' table is not shown


def test_a_layer_for_classification_may_be_missing_where_it_is_not_read(towers, tmp_path, capfd):
    folder = sentence_model(tmp_path / "copy", towers)
    whole = load_encoder(f"st:{folder}", device="cpu").encode(TEXTS, progress=False)
    _weights(folder, lambda w: {k: v for k, v in w.items() if "pooler." not in k})
    without = load_encoder(f"st:{folder}", device="cpu").encode(TEXTS, progress=False)
    assert np.allclose(whole, without, atol=1e-6)
    assert capfd.readouterr() == ("", "")


# passages longer than the window -----------------------------------------------------------------


@pytest.fixture(scope="module")
def cutters(towers, tmp_path_factory):
    """Encoders that add nothing but marks, a prompt that may join a word, and a title."""
    folder = sentence_model(tmp_path_factory.mktemp("cutter") / "model", towers)
    plain = load_encoder(f"st:{folder}", device="cpu")
    prompted = load_encoder(f"st:{folder}", device="cpu", passage_prompt="sign of")
    return plain, prompted, medcpt(towers)


WORDS = st.sampled_from(
    ["fever", "kidneys", "x9", "the", "Ärger", "日本", "𝛼", "e\u0301", "qqqqqqqq"]
)
GAPS = st.sampled_from([" ", "\n\n", ". ", "", "\t", ", "])


@given(
    text=st.lists(st.tuples(WORDS, GAPS), max_size=120).map(lambda p: "".join(sum(p, ()))),
    tokens=st.integers(16, 60),
    which=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_every_character_is_in_one_piece_and_no_piece_is_longer_than_asked(
    cutters, text, tokens, which
):
    encoder, title = cutters[which], "sign of a fever"
    pieces = encoder.pieces((title, text), tokens)
    assert "".join(pieces) == text
    if len(pieces) > 1:
        short = load_as_short(encoder, tokens)
        assert not short.unread([(title, piece) for piece in pieces]).any()
        assert short.unread([(title, text)]).all()


def load_as_short(encoder, tokens: int):
    """The same encoder, reading only so many tokens."""
    folder = encoder._folder_and_tokens["article"][0]
    if encoder.pairs:
        return medcpt((folder, folder), query_tokens=tokens, article_tokens=tokens)
    prompt = encoder._given_prompts["article"]
    return load_encoder(f"st:{folder}", device="cpu", passage_prompt=prompt, max_tokens=tokens)


@given(count=st.integers(60, 200), tokens=st.integers(24, 64), overlap=st.integers(0, 16))
@settings(max_examples=40, deadline=None)
def test_pieces_overlap_by_as_many_tokens_as_are_asked_for(cutters, count, tokens, overlap):
    plain, *_ = cutters
    # Every word is one token, and words are told apart by the letters before them.
    words = [f"{'abcdefghij'[i % 10]} {'abcdefghij'[i // 10 % 10]}" for i in range(count)]
    text = " ".join(words) + " kidney"
    pieces = plain.pieces(("", text), tokens, overlap)
    end = len(pieces[0].split())
    for before, piece in zip(pieces, pieces[1:], strict=False):
        shared = overlap
        assert before.split()[len(before.split()) - shared :] == piece.split()[:shared]
        assert len(piece.split()) <= tokens - 2
        end += len(piece.split()) - shared
    assert end == len(text.split())


def test_what_cannot_be_cut_so_is_refused(cutters):
    plain, _, pairs = cutters
    long = "fever " * 600
    for encoder, tokens, overlap, says in (
        (plain, 513, 0, "reads 512 tokens, not 513"),
        (plain, 0, 0, "reads 512 tokens, not 0"),
        (plain, 30, 28, "too few.*less overlap"),
        (pairs, 6, 0, "too few.*more tokens"),
    ):
        with pytest.raises(ValueError, match=says):
            encoder.pieces(("sign of a fever", long), tokens, overlap)
    assert plain.pieces(("", "fever"), 30) == ["fever"]


def test_letters_of_several_tokens_are_counted_as_unread(minilm):
    text = "한국 " * 60  # each syllable is read as two or three tokens
    (tokens,) = [len(ids) for ids in minilm._model("article").tokenizer([text])["input_ids"]]
    assert tokens > 256 > len(text) - 3, "or it would be counted anyway"
    assert minilm.unread([text])[0] > 0


# a server ----------------------------------------------------------------------------------------


def vector(text: str) -> list[float]:
    """A direction of a text, not of length 1."""
    return [float(code) for code in text.encode()[:4].ljust(4)]


def served(server: FaultServer, **options):
    options = {"timeout_s": 5, "dim": 4, **options}
    return load_encoder(f"openai:some/m@{server.url}", **options)


def test_a_server_embeds_in_batches_in_order_each_text_once(monkeypatch, tmp_path):
    monkeypatch.setenv("CHR_LLM_KEY", "sk-planted-0123456789")
    with FaultServer(vector=vector) as server:
        encoder = load_encoder(f"openai:some/m@{server.url}", batch_size=2, passage_prompt="p: ")
        assert server.bodies[0]["input"] == ["gout", "sepsis"] and encoder.dim == 4
        items = [("title", "acute"), ("", "fever"), ("", "acute"), ("", "pain")]
        rows = encoder.encode(items, "article", progress=False)
        assert [body["input"] for body in server.bodies[1:]] == [
            ["p: acute", "p: fever"],
            ["p: pain"],
        ]
        want = np.array([vector(f"p: {text}") for _, text in items], dtype=np.float32)
        assert np.allclose(rows, want / np.linalg.norm(want, axis=1, keepdims=True))
        assert server.headers[0]["authorization"] == "Bearer sk-planted-0123456789"
        kept = encode_cached(items, encoder, "article", cache_dir=tmp_path, progress=False)
        encode_small(["a query"], encoder, "query", cache_dir=tmp_path)
        asked = len(server.bodies)
        again = served(server, passage_prompt="p: ")
        for _ in range(2):
            found = encode_cached(items, again, "article", cache_dir=tmp_path, progress=False)
            assert np.array_equal(found, kept) and len(server.bodies) == asked
        address = server.url
    made_by = f"openai|some/m|{address}|4 dimensions|unit"
    assert again.fingerprints == {"query": made_by, "article": f"{made_by}|prompt 'p: '"}
    assert encoder.encode([], "query").shape == (0, 4)
    assert encoder.unread(items).tolist() == [-1] * 4
    shown = encoder.describe()
    assert address in shown and "4 dimensions" in shown and "not known" in shown
    everything = shown + encoder.fingerprint + repr(vars(encoder))
    everything += "".join(file.read_bytes().decode("latin1") for file in tmp_path.iterdir())
    assert "sk-planted" not in everything


def test_a_server_that_is_busy_or_breaks_off_is_asked_again(capsys):
    with FaultServer("429", "500", "drop", vector=vector) as server:
        rows = served(server).encode(["fever"], progress=False)
    assert rows.shape == (1, 4) and len(server.bodies) == 4
    assert "before try 4 of 6" in capsys.readouterr().err


def _entries(change):
    """An answer whose list of vectors is changed."""
    return lambda body: (lambda said: said | {"data": change(said["data"])})(
        embedded(body["input"], vector)
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data[:1], "1 vectors for 2 texts"),
        (lambda data: [*data, data[0]], "3 vectors for 2 texts"),
        (lambda data: [entry | {"index": 0} for entry in data], "2 vectors for 2 texts"),
        (lambda data: [entry | {"embedding": [1.0] * 5} for entry in data], "5 dim.*not 4"),
        (lambda data: [data[0] | {"embedding": [1.0]}, data[1]], "cannot be used"),
        (lambda data: [data[0] | {"embedding": [0.0] * 4}, data[1]], "zero or not finite"),
        (lambda data: [data[0] | {"embedding": [math.nan] * 4}, data[1]], "zero or not finite"),
        (lambda data: [data[0] | {"embedding": "AAAA"}, data[1]], "cannot be used"),
        (lambda data: ["no entry"], "cannot be used"),
    ],
)
def test_what_is_no_answer_of_vectors_is_refused_and_never_stored(change, says, tmp_path):
    with FaultServer(answer=_entries(change)) as server:
        encoder = served(server, max_retries=0)
        with pytest.raises((ValueError, LLMError), match=f"some/m at {server.url}.*{says}"):
            encode_cached(["fever", "pain"], encoder, "query", cache_dir=tmp_path, progress=False)
    assert not list(tmp_path.glob("*.npy"))


def test_a_server_is_refused_that_knows_no_word_or_has_no_address(monkeypatch):
    monkeypatch.delenv("CHR_LLM_URL", raising=False)
    same = pytest.raises(ValueError, match="gives gout and sepsis the same vector")
    with FaultServer(vector=lambda text: [1.0, 2.0]) as server, same:
        load_encoder(f"openai:m@{server.url}")
    for spec in ("openai:", "openai:m", f"openai:@{server.url}"):
        with pytest.raises(ValueError, match="openai:<model>@<address>"):
            load_encoder(spec)
    with FaultServer(forever="echo 401") as server, pytest.raises(LLMError, match="CHR_LLM_KEY"):
        load_encoder(f"openai:m@{server.url}")
    monkeypatch.setenv("CHR_LLM_URL", f"{server.url}/embeddings")
    assert load_encoder("openai:m", dim=3).fingerprint == f"openai|m|{server.url}|3 dimensions|unit"


def test_names_that_are_none_are_refused_and_an_unreachable_hub_is_named(monkeypatch):
    import huggingface_hub

    def unreachable(*args, **kwargs):
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(FileNotFoundError, match="some/model.*Next: connect"):
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


@given(
    n=st.integers(0, 40),
    part_rows=st.integers(1, 12),
    parts=st.integers(1, 4),
    starts=st.lists(st.integers(0, 39), max_size=2),
    float16=st.booleans(),
)
@settings(max_examples=25)
def test_blocks_together_are_what_the_encoder_gives(
    tmp_path_factory, n, part_rows, parts, starts, float16
):
    folder, encoder = tmp_path_factory.mktemp("cache"), Own()
    items = [("a title", text) for text in MANY[:n]]
    rows = {"part_rows": part_rows, "block_rows": part_rows * parts}
    starts = [start for start in starts if start < n]
    options = {"dtype": "float16" if float16 else "float32", "starts": starts, **rows}
    blocks = cached(items, encoder, folder, **options)
    assert all(isinstance(b, np.memmap) and len(b) <= rows["block_rows"] for b in blocks)
    assert set(starts) <= set(np.cumsum([0, *map(len, blocks)]).tolist())
    assert len(list(folder.glob("[!.]*"))) == 2 * len(blocks), "no part stays"
    together = np.concatenate([np.zeros((0, 8), np.float16), *blocks])
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
    victim = Path(cached(MANY[:8], encoder, tmp_path, block_rows=4)[1].filename)
    before = files(tmp_path)
    if left == "no manifest":
        victim.with_name(f"{victim.name}.manifest.json").unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-10])
    encoder.asked = 0
    cached(MANY[:8], encoder, tmp_path, block_rows=4)
    assert encoder.asked == 4 and files(tmp_path) == before


SMALL = {"part_rows": 4, "block_rows": 12}


def test_a_cache_of_parts_alone_opens_without_encoding_and_becomes_blocks(tmp_path):
    """The layout of before: every file 4,096 rows. Its names, by what the texts are, stay."""
    (only,) = cached(["fever", ("title", "pain")], HashEncoder(8), tmp_path / "names")
    assert (
        Path(only.filename).stem
        == "b1b9a24b786572b0b7c5d00a9493397fac5f7fbb339bd59781ad09a03088dd7a"
    )
    encoder = Own()
    before = np.concatenate(cached(MANY[:50], encoder, tmp_path, block_rows=4, part_rows=4))
    encoder.asked = 0
    blocks = cached(MANY[:50], encoder, tmp_path, **SMALL)
    assert encoder.asked == 0 and np.array_equal(np.concatenate(blocks), before)
    assert [len(block) for block in blocks] == [12, 12, 12, 12, 2]
    assert len(list(tmp_path.glob("*.npy"))) == 5


@pytest.mark.parametrize("at", ["the block's file", "its manifest", "the first part that goes"])
def test_a_join_that_is_stopped_is_resumed_without_encoding(at, tmp_path, monkeypatch):
    right, broken, encoder = tmp_path / "right", tmp_path / "broken", Own()
    cached(MANY[:12], encoder, right, **SMALL)
    (whole,) = right.glob("*.npy")
    target = {"the block's file": whole.name, "its manifest": f"{whole.name}.manifest.json"}.get(at)
    replace, unlink = os.replace, Path.unlink

    def stopped(source, to):
        if Path(to).name == target:
            raise KeyboardInterrupt
        replace(source, to)

    def stopped_unlink(path, missing_ok=False):
        part = path.suffix == ".npy" and not path.name.startswith(".")
        if target is None and part:
            raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", stopped)
        patched.setattr(Path, "unlink", stopped_unlink)
        with pytest.raises(KeyboardInterrupt):
            cached(MANY[:12], encoder, broken, **SMALL)
    assert len(list(broken.glob("[!.]*.npy"))) > 1
    encoder.asked = 0
    cached(MANY[:12], encoder, broken, **SMALL)
    assert encoder.asked == 0 and files(broken) == files(right)


def test_a_disk_that_is_full_when_a_block_is_written_is_said_and_no_part_is_lost(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    encoder, rows = Own(), {"part_rows": 64, "block_rows": 640}
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        with pytest.raises(OSError, match="make room, or name another folder"):
            cached(MANY, encoder, tmp_path, **rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    encoder.asked = 0
    cached(MANY, encoder, tmp_path, **rows)
    assert encoder.asked == len(MANY) - 640


def test_texts_that_are_added_behind_leave_the_vectors_of_what_was_there(tmp_path):
    encoder = Own()
    cached(MANY[:10], encoder, tmp_path, **SMALL)
    encoder.asked = 0
    more = cached(MANY[:11], encoder, tmp_path, **SMALL)
    assert encoder.asked == 3, "the last part, of which there were two"
    assert np.array_equal(np.concatenate(more), encoder.encode(MANY[:11], "article"))


def test_more_files_are_opened_than_the_soft_limit_of_handles(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        blocks = cached(MANY[:200], HashEncoder(2), tmp_path, part_rows=1, block_rows=2)
        assert len(blocks) == 100 and sum(map(len, blocks)) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


FEW_HANDLES = """
import resource, sys
from pathlib import Path
import lib.base
from tests.killed import TEXTS, HashEncoder, encode_cached
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
options = {"part_rows": 1, "block_rows": 2, "progress": False}
encode_cached(TEXTS[:200], HashEncoder(2), "article", cache_dir=Path(sys.argv[1]), **options)
"""


def test_too_low_a_hard_limit_of_handles_is_named_with_what_to_do(tmp_path):
    command = [sys.executable, "-c", FEW_HANDLES, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    said = done.stderr.strip().splitlines()[-1]
    assert "100 files of vectors" in said and "allows 64" in said and "prlimit" in said


# several processes -------------------------------------------------------------------------------

WORKER = """
import sys
from pathlib import Path
from lib.search.vectors import encode_cached
from tests.killed import TEXTS, SlowHash
folder, place, count, pause = Path(sys.argv[1]), *map(float, sys.argv[2:])
asked = []
class Counting(SlowHash):
    def encode(self, items, *rest, **options):
        asked.extend(items)
        return super().encode(items, *rest, **options)
rows = {"part_rows": 4, "block_rows": 12, "shard": (int(place), int(count)), "progress": False}
encode_cached(TEXTS, Counting(pause), "article", cache_dir=folder, **rows)
print(len(asked))
"""


def worker(folder: Path, place: int, count: int, pause: float = 0) -> subprocess.Popen:
    command = [sys.executable, "-c", WORKER, str(folder), str(place), str(count), str(pause)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_two_workers_of_which_one_is_killed_make_the_files_that_one_process_makes(tmp_path):
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    shared.mkdir()
    assert worker(alone, 1, 1).communicate(timeout=60)[0] == f"{len(MANY)}\n"
    one, other = worker(shared, 1, 2), worker(shared, 2, 2, pause=0.01)
    assert one.wait(60) == 0
    while len(list(shared.glob("*.npy"))) < 45:  # 38 blocks are the first worker's
        assert other.poll() is None
        time.sleep(0.01)
    other.send_signal(signal.SIGKILL)
    assert other.wait(60) == -signal.SIGKILL and files(shared) != files(alone)
    again = worker(shared, 2, 2)
    asked = int(again.communicate(timeout=60)[0])
    assert 0 < asked <= 37 * 12 - 5 * 4, "what was whole is not encoded again"
    assert files(shared) == files(alone)


def test_workers_at_the_same_texts_share_them_out(tmp_path):
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    worker(alone, 1, 1).communicate(timeout=60)
    asked = [worker(shared, 1, 1, pause=0.002) for _ in range(2)]
    counts = [int(one.communicate(timeout=60)[0]) for one in asked]
    assert sum(counts) == len(MANY)
    assert files(shared) == files(alone)


def test_two_devices_make_the_files_that_one_makes(tmp_path, towers):
    chosen = random.Random(5)
    texts = [" ".join(chosen.choices(KNOWN, k=chosen.randrange(1, 30))) for _ in range(1500)]
    for devices in (["cpu"], ["cpu", "cpu"]):
        encoder = medcpt(towers, device=devices)
        cached(texts, encoder, tmp_path / str(len(devices)), part_rows=700, block_rows=1400)
    assert files(tmp_path / "1") == files(tmp_path / "2")


class Elsewhere(HashEncoder):
    """A hash encoder that says it is on a card; a text ends its process."""

    devices = ("cuda:0",)

    def encode(self, items, tower="query", progress=True):
        if "end" in items:
            os._exit(1)
        return super().encode(items, tower, progress)


def test_chunks_come_back_in_order_and_a_process_that_ends_is_named():
    chunks = [[f"text {i}"] * (1 + i % 3) for i in range(40)]
    found = list(encode_chunks(iter(chunks), [Elsewhere(8), Elsewhere(8)], "query"))
    assert all(
        np.array_equal(a, HashEncoder(8).encode(b)) for a, b in zip(found, chunks, strict=True)
    )
    with pytest.raises(RuntimeError, match="a process that encodes was killed.*Next: the same"):
        list(encode_chunks([["a"], ["end"]], [Elsewhere(8)], "query"))


def test_what_sixteen_bits_cannot_hold_is_encoded_again_in_float32(tmp_path, towers):
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "large"
    shutil.copytree(towers[0], folder)
    weights = load_file(folder / "model.safetensors")
    fever = (folder / "vocab.txt").read_text().split().index("fever")
    weights["embeddings.word_embeddings.weight"][fever] *= 1e6
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    texts = ["pain of the heart", "fever", "a dose", "the fever"]
    exact, half = (
        load_encoder("medcpt", query_model=folder, article_model=folder, device="cpu", precision=p)
        for p in ("float32", "float16")
    )
    rows, want = half.encode(texts), exact.encode(texts)
    assert np.allclose(rows[[1, 3]], want[[1, 3]], atol=1e-6), "these are float32's"
    assert 0 < np.abs(rows[[0, 2]] - want[[0, 2]]).max() < 0.02, "these are float16's"
    weights["embeddings.word_embeddings.weight"][fever] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    broken = load_encoder(
        "medcpt", query_model=folder, article_model=folder, device="cpu", precision="float16"
    )
    with pytest.raises(ValueError, match="item 1 has a zero or not finite vector"):
        cached(texts, broken, tmp_path / "none")
    assert not list((tmp_path / "none").glob("*.npy"))


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
encode_cached(TEXTS, SlowHash(0.001), "article", cache_dir=Path(sys.argv[1]), block_rows=8)
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


@pytest.mark.parametrize("name", ["minilm", "hash"])
def test_titles_are_read_on_request_and_are_part_of_the_fingerprint(name):
    alone, titled = load_encoder(name), load_encoder(name, titles=True)
    item, plain = ("Gout", "Urate crystals."), ("", "Urate crystals.")
    assert np.allclose(alone.encode([item], "article"), alone.encode([plain], "article"))
    joined = alone.encode([("", "Gout. Urate crystals.")], "article")
    assert np.allclose(titled.encode([item], "article"), joined, atol=1e-6)
    assert np.allclose(titled.encode([plain], "article"), alone.encode([plain], "article"))
    assert titled.fingerprint != alone.fingerprint and titled.titles and not alone.titles


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("minilm", {"query_promt": "x"}, "query_promt.*query_prompt"),
        ("minilm", {"max_tokens": 1000}, "reads at most 512 tokens, not 1000"),
        ("st:", {}, "unknown encoder 'st:'"),
    ],
)
def test_an_option_that_means_nothing_is_refused(name, options, says):
    with pytest.raises(ValueError, match=says):
        load_encoder(name, **options).encode(["gout"])
