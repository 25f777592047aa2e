"""Filters: models that say whether a passage helps to answer a question (RAG2, section 3.2).

A filter scores (question, passage) pairs, higher is more helpful, and keeps a passage whose score
is at or above its threshold. RAG2 takes the likelier of two labels: probability .5. Where few
passages were labelled helpful, that keeps next to nothing, so each filter also has the threshold
that keeps a given share of the pairs it was trained on.

Questions are read as they are shown, with their options where they have some; passages without
their titles, as a step after the search gives them. ``tools.train_filters`` trains what
is loaded here, ``lib.studies.rag2.seq2seq`` has the paper's own model.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lib.base.files import canonical_json, sha256_bytes, sha256_file
from lib.base.parameters import refuse_unknown
from lib.base.paths import DATA
from lib.embed import Encoder, load_encoder
from lib.model_files import ADAPTERS, CARD, adapter_folder, base_folder
from lib.search.bm25 import words
from lib.search.rerank import PairScorer
from lib.search.vectors import encode_small
from lib.studies.rag2.seq2seq import Seq2SeqFilter

Pairs = Sequence[tuple[str, str]]
"""(question as it is shown, passage text)."""

BASELINES = ("cosine", "bm25")
"""Filters that nobody trained: how near, and how many words in common."""

HEADS = (
    "head-ppl-25",
    "head-log-25",
    "head-ppl-05",
    "head-log-05",
    "head-own",
    "head-own-questions",
    "head-right",
    "head-turned",
    "head-shuffled",
)
"""Logistic regressions on MiniLM's vectors; ``lib.studies.rag2.labels.RECIPES`` says what on."""

CROSSES = ("cross-ppl-25", "cross-shuffled")
"""MiniLM as a cross-encoder with a LoRA adapter; ``cross-ppl-25`` is RAG2's recipe."""

PASSAGE_TOKENS = 128
"""A cross-encoder reads the first tokens of a passage, in training and after: all of half of the
open corpus. A question is read whole."""

_FOLDER = DATA / "rag2-filters"
_EVEN = 0.5


class Filter(Protocol):
    """What every filter offers.

    ``fingerprint`` names all that moves a score. A passage is kept when its score is at or above
    ``threshold``.
    """

    name: str
    fingerprint: str
    threshold: float

    def scores(self, pairs: Pairs) -> np.ndarray:
        """How helpful each passage is to its question: float64 (n,), higher is more."""
        ...


def load_filter(
    name: str,
    share: float | None = None,
    *,
    encoder: Encoder | None = None,
    texts: Sequence[str] = (),
) -> Filter:
    """The filter called ``name``: of ``BASELINES``, ``HEADS`` or ``CROSSES``, or the paper's own in
    a folder, "seq2seq:<folder>" (``lib.studies.rag2.seq2seq``), which has the line of .5 alone.

    Without ``share`` it keeps what is more likely helpful than not (.5), as RAG2 does; with one of
    ``labels.FRACTIONS``, what scores as high as that share of the training pairs. The baselines
    give no probability, so they need a share. ``encoder`` (default: MiniLM in float32) is that of
    cosine and the heads, ``texts`` are all passages of the corpus whose word counts BM25 takes.
    """
    if name.startswith("seq2seq:") and share is None:
        return Seq2SeqFilter(Path(name.removeprefix("seq2seq:")))
    refuse_unknown("no filter", [name], (*BASELINES, *HEADS, *CROSSES))
    threshold = _threshold(name, share)
    if name == "bm25":
        return Bm25Filter(texts, threshold)
    if name in CROSSES:
        return CrossFilter(name, threshold)
    encoder = encoder or load_encoder("minilm", precision="float32")
    if name == "cosine":
        return CosineFilter(encoder, threshold)
    return HeadFilter(name, encoder, threshold)


def card_of(name: str) -> dict[str, Any]:
    """What is written down about a filter: what it was trained on, its cost and its thresholds."""
    file = card_file(name)
    if not file.is_file():
        raise FileNotFoundError(
            f"{file.name} of the filter {name} is missing; "
            f"run: python -m tools.train_filters {name}"
        )
    return tomllib.loads(file.read_text(encoding="utf-8"))


def card_file(name: str) -> Path:
    """Where the card of a filter is, or is to be."""
    return ADAPTERS / f"rag2-{name}" / CARD if name in CROSSES else _FOLDER / f"{name}.toml"


def head_file(name: str) -> Path:
    """The weights of a head."""
    return _FOLDER / f"{name}.npz"


def threshold_key(share: float, dataset: str = "") -> str:
    """How a card calls the threshold of a share: "threshold_25" for .25.

    With ``dataset`` (bioasq, medmcqa), over its training pairs alone: "threshold_25_bioasq".
    """
    key = f"threshold_{round(100 * share):02d}"
    return f"{key}_{dataset}" if dataset else key


def _threshold(name: str, share: float | None) -> float:
    if share is not None:
        card = card_of(name)
        there = [key for key in card if key.startswith("threshold_")]
        refuse_unknown(f"the card of {name} has no", [threshold_key(share)], there)
        return card[threshold_key(share)]
    if name in BASELINES:
        raise ValueError(f"{name} gives no probability, so .5 means nothing: pass share=.25")
    return _EVEN


class CosineFilter:
    """The cosine of question and passage."""

    name = "cosine"

    def __init__(self, encoder: Encoder, threshold: float):
        self._encoder = encoder
        self.threshold = threshold
        self.fingerprint = f"cosine|{encoder.fingerprint}"

    def scores(self, pairs: Pairs) -> np.ndarray:
        """See Filter."""
        question, passage = _vectors(pairs, self._encoder)
        return (question * passage).sum(axis=1).astype(float)


class Bm25Filter:
    """Lucene's BM25 of the passage for the question, as ``lib.search.bm25`` computes it.

    How rare a word is, and how long a passage usually is, are those of ``texts``. The passage that
    is scored need not be among them.
    """

    name = "bm25"

    def __init__(self, texts: Sequence[str], threshold: float, k1: float = 0.9, b: float = 0.4):
        if not texts:
            raise ValueError("BM25 needs the passages of the corpus: pass texts=[...]")
        self.threshold = threshold
        self._k1, self._b = k1, b
        self._n = len(texts)
        self._passages_with: Counter[str] = Counter()
        length = 0
        for text in texts:
            own = words(text)
            length += len(own)
            self._passages_with.update(set(own))
        self._mean_length = length / self._n
        counted = [k1, b, self._n, length, sorted(self._passages_with.items())]
        self.fingerprint = f"bm25|{sha256_bytes(canonical_json(counted).encode())[:16]}"

    def scores(self, pairs: Pairs) -> np.ndarray:
        """See Filter; a word that the question repeats counts each time."""
        return np.array([self._score(question, passage) for question, passage in pairs], float)

    def _score(self, question: str, passage: str) -> float:
        said = Counter(words(passage))
        length = said.total() / self._mean_length
        score = 0.0
        for word, times in Counter(words(question)).items():
            count = said[word]
            weight = count / (count + self._k1 * (1 - self._b + self._b * length))
            score += times * self._rarity(word) * weight
        return score

    def _rarity(self, word: str) -> float:
        there = self._passages_with[word]
        return math.log(1 + (self._n - there + 0.5) / (there + 0.5))


class HeadFilter:
    """A logistic regression on ``features``: the probability of "helpful".

    ValueError where its weights are of another encoder, or not those of its card.
    """

    def __init__(self, name: str, encoder: Encoder, threshold: float = _EVEN):
        self.name = name
        self.threshold = threshold
        self._encoder = encoder
        file = head_file(name)
        card = card_of(name)
        if sha256_file(file) != card["sha256"]:
            raise ValueError(f"{file.name} is not what its card says (its sha256 differs)")
        if card["encoder"] != encoder.fingerprint:
            raise ValueError(
                f"{name} was trained on {card['encoder']}, not on {encoder.fingerprint}; "
                f"run: python -m tools.train_filters {name}"
            )
        with np.load(file, allow_pickle=False) as saved:
            self._weight = saved["weight"].astype(float)
            self._bias = float(saved["bias"])
        self.fingerprint = f"{name}|{encoder.fingerprint}|{card['sha256'][:16]}"

    def scores(self, pairs: Pairs) -> np.ndarray:
        """See Filter."""
        logits = features(pairs, self._encoder).astype(float) @ self._weight + self._bias
        return 1 / (1 + np.exp(-logits))


def features(pairs: Pairs, encoder: Encoder) -> np.ndarray:
    """What a head sees of each pair: float32 (n, 2 dim + 1).

    With u and v the unit vectors of question and passage, the dim products of u and v, the dim
    differences abs(u - v), and their cosine.
    """
    u, v = _vectors(pairs, encoder)
    cosine = (u * v).sum(axis=1, keepdims=True)
    return np.hstack([u * v, np.abs(u - v), cosine])


def _vectors(pairs: Pairs, encoder: Encoder) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of the questions and of the passages, each (n, dim)."""
    questions = encode_small([question for question, _ in pairs], encoder, "query")
    passages = encode_small([passage for _, passage in pairs], encoder, "article")
    return questions, passages


class CrossFilter:
    """MiniLM as a cross-encoder, with an adapter: the probability of "helpful".

    The base is what the adapter's card names.
    """

    def __init__(self, name: str, threshold: float = _EVEN):
        self.name = name
        self.threshold = threshold
        base = base_folder(card_of(name)["base"])
        adapter = adapter_folder(str(card_file(name).parent))
        self._model = PairScorer(name, base, adapter=adapter)
        self._clip = PassageStart(base)
        self.fingerprint = f"{name}|{self._model.fingerprint}|passage {PASSAGE_TOKENS} tokens"

    def scores(self, pairs: Pairs) -> np.ndarray:
        """See Filter."""
        return self._model([(question, self._clip(passage)) for question, passage in pairs])


class PassageStart:
    """The start of a passage that fills ``PASSAGE_TOKENS`` tokens of a model's tokenizer."""

    def __init__(self, folder: Path, tokens: int = PASSAGE_TOKENS):
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._tokens = tokens

    def __call__(self, passage: str) -> str:
        """The passage, cut behind its last whole token that is read."""
        options = {"truncation": True, "max_length": self._tokens}
        read = self._tokenizer(
            passage, add_special_tokens=False, return_offsets_mapping=True, **options
        )
        ends = [end for _, end in read["offset_mapping"]]
        return passage[: ends[-1]] if ends else ""
