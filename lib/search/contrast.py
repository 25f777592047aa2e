"""The mathematics of contrast: S(d) = cos(d, H+) - lambda * cos(d, H-), and what follows from it.

CHR (eq. 1) is linear in the passage, so eq. 2 holds: one inner-product search with the *shifted
query* h+ - lambda h- ranks the whole corpus exactly. Two forms are no longer linear (several mimics
by their maximum, a margin per passage) but the minimum of linear forms, and are scored as such.

All vectors are unit rows, float32, shape (n, d); ``lam`` is a number or an array of shape (n,).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

TINY = 1e-3
"""Norm below which h+ - lambda h- is noise: encoders agree to about 1e-6 between processors, so a
shorter vector's direction is not the texts' any more."""


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row-wise inner product of unit rows, c = cos(a, b), shape (n,), kept inside [-1, 1]."""
    return np.clip(np.einsum("ij,ij->i", a, b, dtype=np.float64), -1.0, 1.0)


def shifted_query(h_plus: np.ndarray, h_minus: np.ndarray, lam: float | np.ndarray) -> np.ndarray:
    """h+ - lambda h- (CHR eq. 2), shape (n, d), *not* re-normalised: length changes no ranking.

    One h+ (1, d) with m mimics (m, d) gives the m forms of S = cos(d, H+) - lambda max_j cos(d,
    H_j-): the least of them judges a passage by the mimic nearest to it.
    """
    lam = np.reshape(np.asarray(lam, np.float32), (-1, 1))
    return h_plus - lam * h_minus


def is_degenerate(query: np.ndarray) -> np.ndarray:
    """Which queries (..., d) are too short to have a direction (norm < TINY), shape (...)."""
    return np.linalg.norm(query, axis=-1) < TINY


def rotation(c: np.ndarray, lam: float | np.ndarray) -> np.ndarray:
    """Degrees by which the shifted query turns away from h+, given c = cos(h+, h-).

    atan2(lambda sqrt(1 - c^2), 1 - lambda c): 60 at c = 0.5, lambda = 1, past 90 once lambda c > 1.
    """
    c = np.asarray(c, dtype=np.float64)
    return np.degrees(np.arctan2(lam * np.sqrt(np.clip(1 - c * c, 0, None)), 1 - lam * c))


def matched_rotation(h_plus: np.ndarray, h_minus: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The control mimic c h+ + sqrt(1 - c^2) r: the same angle to h+ as h-, but the wrong mimic.

    r is the unit residual of ``other`` (another question's mimic, real text) orthogonal to h+.
    Any effect of subtracting it comes from the rotation, not from what the mimic says. Raises
    ValueError when ``other`` is parallel to h+.
    """
    c = cosine(h_plus, h_minus)[:, None]
    residual = other - cosine(h_plus, other)[:, None] * h_plus
    norm = np.linalg.norm(residual, axis=1, keepdims=True)
    if (norm < TINY).any():
        raise ValueError("the other question's mimic is parallel to h+: choose another one")
    return (c * h_plus + np.sqrt(1 - c * c) * residual / norm).astype(np.float32)


@dataclass(frozen=True)
class Segment:
    """One stretch of lambda with one top-k set: ``start <= lambda <= end``, rows sorted."""

    start: float
    end: float
    rows: tuple[int, ...]


def spectrum(
    s_plus: np.ndarray, s_minus: np.ndarray, k: int, lam_max: float = 2.0
) -> list[Segment]:
    """Every top-k set over lambda in [0, lam_max], exactly: the lambda spectrum of one question.

    ``s_plus`` and ``s_minus``, shape (passages,), are cos(d, H+) and cos(d, H-) in passage-id
    order. Each passage is a line in lambda; the set changes only where a line from outside crosses
    one inside, so the next change is the least of k x n crossings. Every swap raises the sum of
    slopes inside, so the walk ends. At a breakpoint itself the two passages tie.
    """
    height = np.asarray(s_plus, np.float64)
    slope = -np.asarray(s_minus, np.float64)
    inside = np.lexsort((np.arange(len(height)), -height))[:k]
    lam = 0.0
    segments = []
    while True:
        # Where each line catches up with each line inside, from the present lambda on.
        catches_up = slope[None, :] - slope[inside, None]
        gap = height[inside, None] - height[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = np.where(catches_up > 0, np.maximum(gap / catches_up, lam), np.inf)
        crossing[:, inside] = np.inf
        leaving, entering = np.unravel_index(np.argmin(crossing), crossing.shape)
        next_change = float(crossing[leaving, entering])
        end = min(next_change, lam_max)
        if end > lam or not segments:
            segments.append(Segment(lam, end, tuple(sorted(inside.tolist()))))
        if next_change >= lam_max:
            with_length = [segment for segment in segments if segment.end > segment.start]
            return with_length or segments
        lam = end
        inside[leaving] = entering


def margin_forms(h_plus: np.ndarray, h_minus: np.ndarray, lam: float | np.ndarray) -> np.ndarray:
    """Rule L4: S = cos(d, H+) - lambda max(0, cos(d, H-) - cos(d, H+) + margin).

    Only passages closer to the mimic than to the target lose score (or nearly so, with a margin
    above 0). S is the lower of h+ . d and ((1 + lambda) h+ - lambda h-) . d - lambda margin, so the
    whole corpus can be searched exactly, no first list of candidates is needed. Returns the two
    forms (n, 2, d); ``margin_offsets`` has their constants. Raises ValueError for a lambda below 0,
    which would make S the higher of the two.
    """
    lam = np.reshape(np.asarray(lam, np.float64), (-1, 1))
    if (lam < 0).any():
        raise ValueError(f"lambda is {lam.min()}: the margin rule needs lambda >= 0")
    contrasted = (1 + lam) * h_plus - lam * h_minus
    return np.stack([h_plus, contrasted.astype(np.float32)], axis=1)


def margin_offsets(lam: np.ndarray, margin: float) -> np.ndarray:
    """The constants (n, 2) of the two forms of ``margin_forms``: 0 and -lambda margin."""
    offsets = np.zeros((len(lam), 2))
    offsets[:, 1] = -lam * margin
    return offsets


def hardest_tenth(c: np.ndarray) -> np.ndarray:
    """The tenth of questions whose mimic is most like the target: bool (n,), True for those.

    ``c`` (n,) is cos(h+, h-). ceil(n / 10) questions, those with the highest c; ties by position.
    This is where contrast collapses first, so rules for lambda are judged on it. Raises ValueError
    for a c that is not finite.
    """
    c = np.asarray(c, dtype=np.float64)
    if not np.isfinite(c).all():
        raise ValueError("c must be finite: a question without a mimic has no place among them")
    hardest = np.argsort(-c, kind="stable")[: math.ceil(len(c) / 10)]
    chosen = np.zeros(len(c), dtype=bool)
    chosen[hardest] = True
    return chosen
