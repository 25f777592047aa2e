"""CNT: how far two abstracts contradict each other, and one abstract all others (METHODS 10).

Equations 10 to 12 of seed 004: of the sentence pairs near enough in meaning, the highest
P(contradiction); an abstract's CNT is its mean over the other abstracts of the same question.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.embed import Encoder
from lib.nli.models import Backend, Pairs, sentences
from lib.nli.scores import score_pairs
from lib.vectors import encode_small

__all__ = ["FILTERS", "PairScore", "cnt", "document_cnt", "length_matched_null", "pair_scores"]

FILTERS = ("theta", "percentile", "none")


@dataclass(frozen=True)
class PairScore:
    """CNT of two texts and the two sentences that carry it, "" when no pair ``passed`` (C6).

    ``pairs`` counts the sentence pairs there are, ``passed`` those that the filter let through.
    """

    value: float
    sentence_a: str
    sentence_b: str
    pairs: int
    passed: int


def cnt(a: str, b: str, backend: Backend, encoder: Encoder, **switches: Any) -> PairScore:
    """CNT of two texts; switches as for ``pair_scores``."""
    return pair_scores([(a, b)], backend, encoder, progress=False, **switches)[0]


def pair_scores(
    couples: Pairs, backend: Backend, encoder: Encoder, *, sentence_filter: str = "theta",
    theta: float = 0.75, percentile: float = 90, direction: str = "max", top: int = 1,
    progress: bool = True,
) -> list[PairScore]:  # fmt: skip
    """CNT of each couple of texts, in order; the share of sentence pairs that passed is printed.

    C5, ``sentence_filter``: ``theta`` passes cosines of at least ``theta`` (the paper's 0.75 is for
    SPECTER, whose cosines are higher than those of other encoders), ``percentile`` those at or
    above that percentile of all cosines of the call, ``none`` passes all. C7, ``direction``: max |
    mean | forward (the paper's). C8, ``top``: the mean of the ``top`` highest (the paper: 1).
    """
    passing, totals = _passing(couples, encoder, sentence_filter, theta, percentile)
    if progress:
        passed, met = sum(map(len, passing)), sum(totals)
        empty = sum(not pairs for pairs in passing)
        print(f"{sentence_filter} passed {passed:,} of {met:,} sentence pairs "
              f"({passed / max(met, 1):.1%}); {empty:,} of {len(couples):,} document pairs have "
              "none and score 0", file=sys.stderr, flush=True)  # fmt: skip
    scores = score_pairs([p for pairs in passing for p in pairs], backend, direction=direction)
    parts = np.split(scores, np.cumsum([len(pairs) for pairs in passing])[:-1])
    return [_collapse(*row, top) for row in zip(passing, parts, totals, strict=False)]


def _passing(
    couples: Pairs, encoder: Encoder, sentence_filter: str = "theta", theta: float = 0.75,
    percentile: float = 90,
) -> tuple[list[list[tuple[str, str]]], list[int]]:  # fmt: skip
    """Per couple the sentence pairs that pass, in the order of the texts, and how many there are.

    Cosines are rounded to 6 decimals, so that they are the same whatever is computed together.
    """
    if sentence_filter not in FILTERS:
        raise ValueError(f"no filter {sentence_filter!r}; there are: {', '.join(FILTERS)}")
    cut = {text: sentences(text) for text in dict.fromkeys(t for couple in couples for t in couple)}
    place = {s: i for i, s in enumerate(dict.fromkeys(s for part in cut.values() for s in part))}
    rows = encode_small(list(place), encoder, "article")
    vectors = {text: rows[[place[s] for s in part]] for text, part in cut.items()}
    cosines = [np.round(vectors[a] @ vectors[b].T, 6) for a, b in couples]
    if sentence_filter == "percentile" and sum(c.size for c in cosines):
        theta = np.percentile(np.concatenate([c.ravel() for c in cosines]), percentile)
    elif sentence_filter == "none":
        theta = -np.inf
    found = [
        [(cut[a][i], cut[b][j]) for i, j in np.argwhere(c >= theta)]
        for (a, b), c in zip(couples, cosines, strict=True)
    ]
    return found, [c.size for c in cosines]


def _collapse(pairs: Pairs, scores: np.ndarray, total: int, top: int) -> PairScore:
    """Ties break by the place of the sentences, first text first."""
    if not len(pairs):
        return PairScore(0.0, "", "", total, 0)
    order = np.argsort(-scores, kind="stable")[:top]
    return PairScore(float(scores[order].mean()), *pairs[order[0]], total, len(pairs))


def document_cnt(values: Mapping[tuple[str, str], float], ids: Sequence[str]) -> dict[str, float]:
    """CNT(d) of every id: the mean of CNT(d, d') over the others; 0 for a document alone.

    ``values`` has CNT by (a, b); where only (b, a) is there that is used, right unless forward.
    """

    def one(a: str, b: str) -> float:
        return values[a, b] if (a, b) in values else values[b, a]

    return {a: float(np.mean([one(a, b) for b in ids if b != a] or [0.0])) for a in ids}


def length_matched_null(
    couples: Pairs, backend: Backend, encoder: Encoder, *, draws: int = 20, bins: int = 10,
    seed: int = 0, top: int = 1, direction: str = "max", **filters: Any,
) -> np.ndarray:  # fmt: skip
    """CNT that couples would have by their numbers and lengths of sentences alone, (draws, n) (C8).

    The scores of all sentence pairs that pass are shuffled among those of about the same length
    (``bins`` equal parts by the words of both), so a couple keeps how many pairs it has and how
    long they are, but not what they say. ``filters`` as for ``pair_scores``.
    """
    passing, _ = _passing(couples, encoder, **filters)
    flat = [pair for pairs in passing for pair in pairs]
    scores = score_pairs(flat, backend, direction=direction)
    words = np.array([len(a.split()) + len(b.split()) for a, b in flat])
    parts = np.array_split(np.argsort(words, kind="stable"), bins)
    ends, rng = np.cumsum([len(pairs) for pairs in passing])[:-1], np.random.default_rng(seed)
    out = np.zeros((draws, len(passing)))
    for row in out:
        shuffled = scores.copy()
        for part in parts:
            shuffled[part] = scores[rng.permutation(part)]
        row[:] = [np.sort(own)[::-1][:top].mean() if len(own) else 0.0
                  for own in np.split(shuffled, ends)[: len(passing)]]  # fmt: skip
    return out
