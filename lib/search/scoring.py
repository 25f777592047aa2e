"""Search for scores that are not one inner product: minima, log-sum-exps, penalties, pools.

A linear form is an inner product with the passage plus a constant; CHR's score is one. The scores
here combine several. All searches are exact: a corpus is scored whole, block by block, so that
memory stays flat; for a minimum of linear forms, a large one is searched by candidate lists that
are long enough to prove that nothing is missing.

An index that is approximate (``lib.search.compressed``) cannot prove it, and finds no passage that
a score of other parts puts first: it is searched for a minimum of forms, whose best are the best of
the forms' candidates, and refused for every other score here but ``rerank_pool``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lib.base.paths import say_once
from lib.search.index import DenseIndex, Hits, refuse_approximate, top_rows

BLOCK = 4096
"""Passages scored at a time, at most."""

WHOLE = 200_000
"""A minimum of forms scores every passage up to this many; beyond, only candidates."""

PRODUCTS = 2**24
"""Inner products in memory at a time (128 MiB): many vectors make the blocks smaller."""

Combine = Callable[[np.ndarray], np.ndarray]
"""Inner products (n, m, b) of n questions' m vectors with b passages to scores (n, b)."""


def search_scored(index: DenseIndex, vectors: np.ndarray, combine: Combine, k: int) -> Hits:
    """Exact top k of any score made of inner products, ``vectors`` (n, m, d): m per question.

    ``combine`` gets float64 products (n, m, b) of one block of passages, and gives scores (n, b). A
    score may depend on the question, by position, and on nothing outside its passage. Every
    passage is scored: the time grows with n x m x passages. Raises ValueError for other shapes.
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    if vectors.ndim != 3 or vectors.shape[2] != index.dim:
        raise ValueError(f"vectors {vectors.shape}: wanted (questions, vectors each, {index.dim})")
    n, m, dim = vectors.shape
    stacked = vectors.reshape(n * m, dim)

    def scores(rows: np.ndarray) -> np.ndarray:
        products = index.score(stacked, rows)
        return combine(products.reshape(n, m, len(rows)))

    return _best_of_blocks(index, scores, n * m, k)


def search_forms(index: DenseIndex, vectors: np.ndarray, offsets: np.ndarray, k: int) -> Hits:
    """Exact top k of S(d) = min_j (v_j . d + b_j), ``vectors`` (n, m, d) and ``offsets`` (n, m).

    Every passage is scored; beyond ``WHOLE`` passages certified candidate sets are cheaper
    (``search_certified``), and as exact. An approximate index gives the best of its candidates.
    """
    if index.approximate or len(index) > WHOLE:
        return search_certified(index, vectors, offsets, k)
    offsets = offsets[:, :, None]

    def least(products: np.ndarray) -> np.ndarray:
        return (products + offsets).min(axis=1)

    return search_scored(index, vectors, least, k)


def search_certified(
    index: DenseIndex, vectors: np.ndarray, offsets: np.ndarray, k: int, candidates: int = 100
) -> Hits:
    """As ``search_forms``, from candidates that are certified to miss nothing.

    Each form is searched for its ``candidates`` best. A passage in none of a question's lists
    scores at most the least of their last scores, so once the k-th candidate is above that, nothing
    is missing; else that question is searched four times as deep. Nothing is certified by an
    approximate index: there the best of all forms' candidates are given, and a line says so.
    """
    if index.approximate:
        candidates = index.candidates
        say_once("approximate search: a minimum of forms is the best of each form's candidates")
    n, m, dim = vectors.shape
    best: list[Hits | None] = [None] * n
    todo = list(range(n))
    depth = min(max(candidates, k), len(index))
    while todo:
        # One search for the forms of all questions: each question has m rows of the hits.
        hits = index.search(vectors[todo].reshape(len(todo) * m, dim), depth)
        rows_of_each = hits.rows.reshape(len(todo), m * depth)
        last_scores = hits.scores[:, -1].reshape(len(todo), m) + offsets[todo]
        # The most an unseen passage can score; the margin keeps rounding of scores (1e-5)
        # from certifying a tie.
        most_unseen = last_scores.min(axis=1) + 2e-5
        unsure = []
        for i, rows, unseen in zip(todo, rows_of_each, most_unseen, strict=True):
            rows = np.unique(rows)
            exact = (index.score(vectors[i], rows) + offsets[i][:, None]).min(axis=0)
            best[i] = top_rows(exact[None], rows, index, min(k, len(rows)))
            certified = best[i].scores[0, -1] > unseen or depth == len(index)
            if not certified and not index.approximate:
                unsure.append(i)
        todo = unsure
        depth = min(4 * depth, len(index))
    return Hits.stack(best)


def log_sum_exp(lam: float | np.ndarray, tau: float) -> Combine:
    """S = cos(d, H+) - lambda tau log mean_j exp(cos(d, H_j-) / tau), for ``search_scored``.

    A soft maximum over many mimics: tau -> 0 is the maximum over them, tau -> infinity their mean;
    in between, every mimic that is near counts. Of the m vectors H+ is the first, the mimics
    follow. ``lam`` is a number or one per question, of any sign; ``tau`` is on the scale of
    cosines. Raises ValueError for a tau that is not positive and finite, or when there is no mimic.
    """
    if not 0 < tau < np.inf:
        raise ValueError(f"tau is {tau}: it must be positive and finite")
    lam = np.reshape(np.asarray(lam, dtype=np.float64), (-1, 1))

    def combine(products: np.ndarray) -> np.ndarray:
        if products.shape[1] < 2:
            raise ValueError("log-sum-exp needs H+ and at least one mimic per question")
        plus, minus = products[:, 0], products[:, 1:]
        nearest = minus.max(axis=1)
        # From the nearest mimic on, by log1p and expm1: exact for the least and largest tau too,
        # where log(sum(exp)) - log(m) would lose the digits that tau multiplies.
        mean_shortfall = np.expm1((minus - nearest[:, None]) / tau).mean(axis=1)
        return plus - lam * (nearest + tau * np.log1p(mean_shortfall))

    return combine


def hubness(index: DenseIndex, vectors: np.ndarray, neighbours: int = 10) -> np.ndarray:
    """r(d), float64 (rows,): mean of a passage's cosines with its nearest among ``vectors``.

    ``vectors`` (n, d) are all questions' H+. A passage that is near to many of them is a hub, and
    found for every question; CSLS (Conneau et al. 2018, *Word translation without parallel data*)
    takes that away. Rows that cannot be found are NaN. Raises ValueError unless there are at least
    ``neighbours`` >= 1 vectors.
    """
    n = len(vectors)
    if not 1 <= neighbours <= n:
        raise ValueError(f"{neighbours} neighbours among {n} vectors: ask for 1 to {n}")
    mean_cosine = np.full(len(index.kept), np.nan)
    for rows in _blocks(index, n):
        cosines = index.score(vectors, rows)
        nearest = np.partition(cosines, n - neighbours, axis=0)[n - neighbours :]
        mean_cosine[rows] = nearest.mean(axis=0)
    return mean_cosine


def search_with_penalty(
    index: DenseIndex,
    vectors: np.ndarray,
    penalty: np.ndarray,
    lam: float | np.ndarray,
    k: int,
) -> Hits:
    """Exact top k of S = cos(d, h) - lambda r(d), with one ``penalty`` r per row of the index.

    ``vectors`` (n, d) are the queries, ``lam`` a number or one each. With ``hubness`` as penalty,
    lambda = 1/2 ranks as CSLS does: 2 cos(d, h) - r(d), but for a constant of the question. Raises
    ValueError when a passage that can be found has no finite penalty.
    """
    penalty = np.asarray(penalty, dtype=np.float64)
    if penalty.shape != index.kept.shape or not np.isfinite(penalty[index.kept]).all():
        raise ValueError(
            f"penalty {penalty.shape}: wanted one finite number for each of {len(index.kept)} rows;"
            " compute it on this index, or on one that this is a subset of"
        )
    vectors = np.asarray(vectors, dtype=np.float64)
    lam = np.reshape(np.asarray(lam, dtype=np.float64), (-1, 1))

    def scores(rows: np.ndarray) -> np.ndarray:
        return index.score(vectors, rows) - lam * penalty[rows]

    return _best_of_blocks(index, scores, len(vectors), k)


def rerank_pool(
    index: DenseIndex,
    pool: np.ndarray,
    query: np.ndarray,
    n: int,
    k: int,
    excluded: Sequence[frozenset[str]] = (),
) -> Hits:
    """Top k by ``query`` among the top n by ``pool`` (both (q, d)): CHR read as re-ranking.

    This is another ranking than the full search, not an approximation of it: the paper calls CHR
    both one search and a re-ranking, and does not say of how many passages. ``excluded`` are ids,
    a set a query, that the pool of that query leaves out.
    """
    excluded = excluded or [frozenset()] * len(pool)
    spare = max(map(len, excluded))
    candidates = index.search(pool, min(n + spare, len(index)))
    parts = []
    for i, rows in enumerate(candidates.rows):
        allowed = [pid not in excluded[i] for pid in candidates.ids[i].tolist()]
        rows = rows[allowed][:n]
        scores = index.score(query[i : i + 1], rows)
        parts.append(top_rows(scores, rows, index, k))
    return Hits.stack(parts)


def _blocks(index: DenseIndex, vectors: int) -> list[np.ndarray]:
    """Rows that can be found, in blocks whose products with that many vectors fit in memory."""
    refuse_approximate(index, "this score is of every passage")
    rows = np.flatnonzero(index.kept)
    size = max(1, min(BLOCK, PRODUCTS // max(vectors, 1)))
    return np.split(rows, range(size, len(rows), size))


def _best_of_blocks(
    index: DenseIndex, scores: Callable[[np.ndarray], np.ndarray], vectors: int, k: int
) -> Hits:
    """The k best by ``scores(rows)``, (n, len(rows)): the best of each block's k best."""
    if k < 1:
        raise ValueError(f"k is {k}: ask for at least one passage")
    parts = [top_rows(scores(rows), rows, index, k) for rows in _blocks(index, vectors)]
    best_scores = np.concatenate([part.scores for part in parts], axis=1)
    best_rows = np.concatenate([part.rows for part in parts], axis=1)
    return top_rows(best_scores, best_rows, index, k)
