"""The mathematics of contrast: S(d) = cos(d, H+) - lambda * cos(d, H-), and what follows from it.

CHR (eq. 1) is linear in the passage, so eq. 2 holds: one inner-product search with the *shifted
query* h+ - lambda h- ranks the whole corpus exactly. Here are that query, the angle by which it
turns, the exact lambdas at which a top-k changes, the matched-rotation control, and the forms that
are no longer linear (several mimics by their maximum, a margin per passage), which are the minimum
of linear forms and are searched with a certificate.

All vectors are unit rows, float32, shape (n, d); ``lam`` is a number or an array of shape (n,).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.index import Hits, top_rows

__all__ = [
    "TINY", "LinearForms", "Segment", "cosine", "is_degenerate", "margin_forms", "matched_rotation",
    "max_mimic_forms", "rerank_pool", "rotation", "search_forms", "shifted_query", "spectrum",
]  # fmt: skip

TINY = 1e-3
"""Norm below which h+ - lambda h- is noise: encoders agree to about 1e-6 between processors, so a
shorter vector's direction is not the texts' any more."""

WHOLE = 200_000
"""Corpora up to this size are scored whole where a score is not linear: certifying costs more."""


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row-wise inner product of unit rows, c = cos(a, b), shape (n,), kept inside [-1, 1]."""
    return np.clip(np.einsum("ij,ij->i", a, b, dtype=np.float64), -1.0, 1.0)


def _column(lam: float | np.ndarray) -> np.ndarray:
    return np.atleast_1d(np.asarray(lam, dtype=np.float32))[:, None]


def shifted_query(
    h_plus: np.ndarray,
    h_minus: np.ndarray,
    lam: float | np.ndarray,
    question: np.ndarray | None = None,
    question_weight: float = 0.0,
) -> np.ndarray:
    """h+ - lambda h- (+ w q), shape (n, d), *not* re-normalised: length does not change a ranking.

    ``h_minus`` of shape (n, m, d) is a differential of m mimics; their mean is subtracted, which is
    S = cos(d, H+) - lambda * mean_j cos(d, H_j-). CHR eq. 2 has w = 0.
    """
    mimic = h_minus.mean(axis=1) if h_minus.ndim == 3 else h_minus
    query = h_plus - _column(lam) * mimic
    if question_weight:
        query = query + np.float32(question_weight) * question
    return query.astype(np.float32)


def is_degenerate(query: np.ndarray) -> np.ndarray:
    """Which rows are too short to have a direction (norm < TINY), shape (n,)."""
    return np.linalg.norm(query, axis=1) < TINY


def rotation(c: np.ndarray, lam: float | np.ndarray) -> np.ndarray:
    """Degrees by which the shifted query turns away from h+, given c = cos(h+, h-).

    atan2(lambda sqrt(1 - c^2), 1 - lambda c): 60 at c = 0.5, lambda = 1, past 90 once lambda c > 1.
    """
    c = np.asarray(c, dtype=np.float64)
    return np.degrees(np.arctan2(lam * np.sqrt(np.clip(1 - c * c, 0, None)), 1 - lam * c))


def matched_rotation(h_plus: np.ndarray, h_minus: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The control mimic c h+ + sqrt(1 - c^2) r: the same angle to h+ as h-, but the wrong mimic.

    r is the unit residual of ``other`` (another question's mimic, real text) orthogonal to h+.
    Whatever subtracting it does is the turn's doing, not the mimic's. Raises ValueError when
    ``other`` is parallel to h+.
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
    height, slope = np.asarray(s_plus, np.float64), -np.asarray(s_minus, np.float64)
    inside = np.lexsort((np.arange(len(height)), -height))[:k]
    lam, segments = 0.0, []
    while True:
        rise = slope[None, :] - slope[inside, None]
        gap = height[inside, None] - height[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = np.where(rise > 0, np.maximum(gap / rise, lam), np.inf)
        crossing[:, inside] = np.inf
        out, new = np.unravel_index(np.argmin(crossing), crossing.shape)
        end = min(float(crossing[out, new]), lam_max)
        if end > lam or not segments:
            segments.append(Segment(lam, end, tuple(sorted(inside.tolist()))))
        if crossing[out, new] >= lam_max:
            return [s for s in segments if s.end > s.start] or segments
        lam = end
        inside[out] = new


@dataclass(frozen=True)
class LinearForms:
    """S(d) = min_j (v_j . d + b_j) for one question: ``vectors`` (m, d), ``offsets`` (m,)."""

    vectors: np.ndarray
    offsets: np.ndarray


def max_mimic_forms(h_plus: np.ndarray, mimics: np.ndarray, lam: float) -> LinearForms:
    """S = cos(d, H+) - lambda max_j cos(d, H_j-), as the minimum over j of CHR with each mimic.

    ``h_plus`` (d,), ``mimics`` (m, d); a passage is judged by the mimic it resembles most.
    """
    vectors = h_plus[None, :] - np.float32(lam) * mimics
    return LinearForms(vectors.astype(np.float32), np.zeros(len(mimics)))


def margin_forms(
    h_plus: np.ndarray, h_minus: np.ndarray, lam: float, margin: float = 0.0
) -> LinearForms:
    """Rule L4: S = cos(d, H+) - lambda max(0, cos(d, H-) - cos(d, H+) + m).

    Only passages closer to the mimic than to the target (by the margin) pay. It is the lower of
    h+ . d and ((1 + lambda) h+ - lambda h-) . d - lambda m, so it needs no pool.
    """
    steep = (1 + lam) * h_plus - lam * h_minus
    vectors = np.stack([h_plus, steep]).astype(np.float32)
    return LinearForms(vectors, np.array([0.0, -lam * margin]))


def search_forms(
    index, forms: Sequence[LinearForms], k: int, candidates: int = 100, whole: int = WHOLE
) -> Hits:
    """Exact top k of a minimum of linear forms, one per question.

    Up to ``whole`` passages all are scored. Beyond, by certified candidate sets: a passage in none
    of a question's lists scores at most the least of their N-th scores, so once the k-th candidate
    is above that, nothing is missing; else N grows fourfold for that question.
    """
    if len(index.ids) <= whole:
        return _search_all(index, forms, k)
    best: list[Hits | None] = [None] * len(forms)
    open_, n = list(range(len(forms))), min(max(candidates, k), len(index))
    while open_:
        hits = index.search(np.concatenate([forms[i].vectors for i in open_]), n)
        ends = np.cumsum([len(forms[i].vectors) for i in open_])
        left = []
        for i, end in zip(open_, ends, strict=True):
            part = slice(end - len(forms[i].vectors), end)
            best[i] = _best_of(index, forms[i], np.unique(hits.rows[part]), k)
            # The margin keeps rounding of scores (1e-5) from certifying a tie.
            unseen = float((hits.scores[part, -1] + forms[i].offsets).min()) + 2e-5
            if best[i].scores[0, -1] <= unseen:
                left.append(i)
        open_, n = ([], n) if n == len(index) else (left, min(4 * n, len(index)))
    return Hits.stack(best)


def _best_of(index, form: LinearForms, rows: np.ndarray, k: int) -> Hits:
    exact = (index.score(form.vectors, rows) + form.offsets[:, None]).min(axis=0)
    return top_rows(exact[None], rows, index, min(k, len(rows)))


def _search_all(index, forms: Sequence[LinearForms], k: int, batch: int = 32) -> Hits:
    """Every passage scored in float32, the best few again in float64, as the index itself does."""
    parts, k = [], min(k, len(index))
    for start in range(0, len(forms), batch):
        some = forms[start : start + batch]
        firsts = np.cumsum([0, *(len(form.vectors) for form in some[:-1])])
        scores = index.products(np.concatenate([form.vectors for form in some]))
        scores += np.concatenate([form.offsets for form in some]).astype(np.float32)[:, None]
        lowest = np.minimum.reduceat(scores, firsts, axis=0)
        kth = np.partition(lowest, -k, axis=1)[:, -k]
        for form, row, least in zip(some, lowest, kth, strict=True):
            # float32 products are off by less than this, so no passage of the top k is lost.
            parts.append(_best_of(index, form, np.flatnonzero(row >= least - 1e-4), k))
    return Hits.stack(parts)


def rerank_pool(index, pool: np.ndarray, query: np.ndarray, n: int, k: int) -> Hits:
    """Top k by ``query`` among the top n by ``pool`` (both (q, d)): CHR read as re-ranking.

    This is another ranking than the full search, not an approximation of it (ambiguity A3).
    """
    first = index.search(pool, min(n, len(index)))
    parts = [
        top_rows(index.score(query[i : i + 1], rows), rows, index, min(k, len(rows)))
        for i, rows in enumerate(first.rows)
    ]
    return Hits.stack(parts)
