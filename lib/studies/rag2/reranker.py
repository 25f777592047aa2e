"""A re-ranker for laptops: it learnt from which snippets BioASQ's experts gave for a question.

RAG2 re-ranks with MedCPT's cross-encoder (``lib.search.rerank``), which needs the hub. What stands
in for it here weighs three things that a pair shows: the cosine of question and passage, BM25, and
which share of the question's words the passage has. A LoRA cross-encoder on MiniLM was trained
first: it ranked at chance, and a regression on both vectors, trained on near misses, ranked worse
than the cosine alone; neither is shipped.

Training: what the question finds among BioASQ's snippets, for BioASQ's other questions (not yes/no,
no document of a test question). Beside it stands the same trained on labels in disorder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lib.base.paths import DATA
from lib.embed import Encoder
from lib.methods.postprocess import Scorer
from lib.search.bm25 import words
from lib.studies.rag2.filters import Bm25Filter, CosineFilter

SHUFFLED = "reranker-shuffled"
RERANKERS = ("reranker", SHUFFLED)

FEATURES = ("cosine", "bm25", "words in common")

_FOLDER = DATA / "rag2-filters"


def card_file(name: str) -> Path:
    """The card of a re-ranker: its weights are on it."""
    return _FOLDER / f"{name}.toml"


def card_of(name: str) -> dict[str, Any]:
    """What a re-ranker was trained on and what that cost."""
    card = card_file(name)
    if not card.is_file():
        raise FileNotFoundError(
            f"{card.name} is missing; run: python -m tools.train_filters {name}"
        )
    return tomllib.loads(card.read_text(encoding="utf-8"))


class PairFeatures:
    """``FEATURES`` of (query, passage) pairs, float64 (n, 3); each pair is read once.

    ``texts`` are all passages that are searched: how rare a word is, BM25 takes from them.
    """

    def __init__(self, encoder: Encoder, texts: Sequence[str]):
        self._cosine = CosineFilter(encoder, threshold=0.0)
        self._bm25 = Bm25Filter(texts, threshold=0.0)
        self._known: dict[tuple[str, str], np.ndarray] = {}

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if new:
            self._known |= dict(zip(new, self._read(new), strict=True))
        return np.array([self._known[pair] for pair in pairs]).reshape(-1, len(FEATURES))

    def _read(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        shared = []
        for query, passage in pairs:
            asked = set(words(query))
            shared.append(len(asked & set(words(passage))) / max(len(asked), 1))
        return np.column_stack([self._cosine.scores(pairs), self._bm25.scores(pairs), shared])


class Reranker:
    """Scores of (query, passage) pairs, float64 (n,): the logit of "an expert would give it".

    ``texts`` are all passages that are searched. ValueError where the card is of another encoder.
    """

    def __init__(self, name: str, encoder: Encoder, texts: Sequence[str]):
        self.name = name
        (self._weights,) = _weights_of(name, encoder)
        self._features = PairFeatures(encoder, texts)

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """See ``lib.methods.postprocess.Scorer``."""
        return self._features(pairs) @ self._weights


def shuffled_rerankers(encoder: Encoder, texts: Sequence[str]) -> list[Scorer]:
    """``SHUFFLED``, one for each of its draws. One draw alone may rank well, or backwards."""
    features = PairFeatures(encoder, texts)

    def scorer(weights: np.ndarray) -> Scorer:
        return lambda pairs: features(pairs) @ weights

    return [scorer(weights) for weights in _weights_of(SHUFFLED, encoder)]


def _weights_of(name: str, encoder: Encoder) -> np.ndarray:
    """The weights on a card, float64 (draws, 3)."""
    card = card_of(name)
    if card["encoder"] != encoder.fingerprint:
        raise ValueError(f"{name} was trained on {card['encoder']}, not {encoder.fingerprint}")
    return np.atleast_2d(np.array(card["weights"], dtype=float))
