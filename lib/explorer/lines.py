"""Every passage is a line in lambda: what the explorer's columns say under each form and mimic.

All forms that are offered score a passage as height - lambda * slope, so a few numbers a passage
hold every order at every lambda, without an encoder or an index.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from lib.query_spec import SearchSpec
from lib.search.contrast import spectrum

COLUMNS = ("plus", "own", "question", "random", "several")
"""Of a score row: cosines of the passage with H+, with the question's own H-, with the question,
with another question's mimic, and the largest with several mimics. NaN where there is no text."""

LAM_MAX = 2.0
"""Lambda goes from 0 to here."""

Form = Literal["one mimic", "several mimics", "question added"]
Mimic = Literal["own", "random", "rotation"]

NEEDS: dict[tuple[Form, Mimic], tuple[str, ...]] = {
    ("one mimic", "own"): ("plus", "own"),
    ("one mimic", "random"): ("plus", "own", "random"),
    ("one mimic", "rotation"): ("plus", "own", "random"),
    ("question added", "own"): ("plus", "own", "question"),
    ("question added", "random"): ("plus", "own", "random", "question"),
    ("question added", "rotation"): ("plus", "own", "random", "question"),
    ("several mimics", "own"): ("plus", "several"),
}
"""The pairs of form and mimic that are offered, with the columns that each is made of: several
mimics are always the question's own."""

CHOICES = tuple(NEEDS)

_STEPS = 1e5
"""Scores are compared in steps of 1e-5, as ``lib.search.index`` does."""

SEVERAL = "several"
"""The kind of mimic text that a differential has."""


def way_of(form: Form, mimic: Mimic, lam: float) -> SearchSpec:
    """How lib/ searches for the same: another question's mimic is the first that was drawn."""
    if form == "several mimics":
        return SearchSpec(form="max", mimic=SEVERAL, lam=lam)
    return SearchSpec(
        lam=lam,
        mimic="stranger" if mimic == "random" else "",
        rotation=mimic == "rotation",
        question_weight=1.0 if form == "question added" else 0.0,
    )


def lines_of(
    scores: np.ndarray, form: Form, mimic: Mimic, c_own: np.ndarray, c_random: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Height and slope of every passage, each (..., passages), float64.

    ``scores`` (..., passages, 5) has ``COLUMNS``. ``c_own`` and ``c_random`` (...) are the cosines
    of H+ with the question's own mimic and with another question's: the matched rotation follows
    from them, because it lies in the plane of h+ and that other mimic
    (``lib.search.contrast.matched_rotation``). ValueError for a pair that is not offered.
    """
    if (form, mimic) not in CHOICES:
        raise ValueError(f"{form!r} with the mimic {mimic!r}; there are: {CHOICES}")
    plus, own, question, random, several = np.moveaxis(np.asarray(scores, np.float64), -1, 0)
    height = plus + question if form == "question added" else plus
    if form == "several mimics":
        return height, several
    if mimic == "own":
        return height, own
    if mimic == "random":
        return height, random
    c, x = (np.asarray(value, np.float64)[..., None] for value in (c_own, c_random))
    residual = (random - x * plus) / np.sqrt(1 - x * x)
    return height, c * plus + np.sqrt(1 - c * c) * residual


def order_at(
    height: np.ndarray, slope: np.ndarray, lam: float, k: int, ranks: np.ndarray
) -> np.ndarray:
    """Positions of the k best at a lambda, best first, (..., k): by score in steps of 1e-5, ties by
    ``ranks``, the place of each passage's id in sorted order. A passage without a line (NaN) comes
    after all others.
    """
    score = np.rint((height - lam * slope) * _STEPS)
    score = np.where(np.isnan(score), -np.inf, score)
    return np.lexsort((np.broadcast_to(ranks, score.shape), -score), axis=-1)[..., :k]


def breakpoints(height: np.ndarray, slope: np.ndarray, k: int) -> list[float]:
    """Every lambda in (0, LAM_MAX) at which the set of the k best changes, exactly, in order."""
    found = spectrum(height, slope, k, LAM_MAX)
    return [segment.start for segment in found[1:]]


def candidates(
    height: np.ndarray,
    slope: np.ndarray,
    k: int,
    *,
    lam_max: float = LAM_MAX,
    steps: int = 20,
    slack: float = 2e-5,
) -> np.ndarray:
    """Positions of a few passages that hold the k best at every lambda in [0, lam_max], sorted.

    Between two steps the k best of the first step score, all of them, at least as much as the
    straight line from their worst score there to their worst score at the next step: the least of
    straight lines never runs below its chord. A passage below that chord at both ends is below it
    in between, so it is among the k best nowhere. ``spectrum`` of what is left is exact.
    ``slack`` keeps what rounding might tie. NaN stays out.
    """
    stops = np.linspace(0, lam_max, steps + 1)
    height = np.where(np.isnan(height), -np.inf, height)
    slope = np.nan_to_num(slope)
    k = min(k, int(np.isfinite(height).sum()))
    kept = np.zeros(len(height), dtype=bool)
    here = height
    for lam in stops[1:]:
        there = height - lam * slope
        best = np.argpartition(-here, k - 1)[:k]
        kept |= (here >= here[best].min() - slack) | (there >= there[best].min() - slack)
        here = there
    rows = np.flatnonzero(kept)
    height, slope = height[rows], slope[rows]
    inside = np.zeros(len(rows), dtype=bool)
    for segment in spectrum(height, slope, k, lam_max):
        members = list(segment.rows)
        for lam in (segment.start, segment.end):
            score = height - lam * slope
            # The members, and whatever rounding could put in the place of the worst of them.
            inside |= score >= score[members].min() - slack
    return rows[inside]
