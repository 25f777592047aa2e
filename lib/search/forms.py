"""Search for scores that are not one inner product: a minimum of linear forms, and a pool's best.

Both are exact. A small corpus is scored whole, block by block; a large one by candidate sets that
prove nothing is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.search.index import DenseIndex, Hits, top_rows

__all__ = ["LinearForms", "rerank_pool", "search_certified", "search_forms"]

BLOCK, WHOLE = 4096, 200_000
"""Passages scored at a time where a score is not linear, and how many are scored whole at all."""


@dataclass(frozen=True)
class LinearForms:
    """S(d) = min_j (v_j . d + b_j) for one question: ``vectors`` (m, d), ``offsets`` (m,)."""

    vectors: np.ndarray
    offsets: np.ndarray


def search_forms(index, forms: Sequence[LinearForms], k: int) -> Hits:
    """Exact top k of a minimum of linear forms, one per question.

    Every passage is scored, block by block, so that memory stays flat; beyond ``WHOLE`` passages
    certified candidate sets are cheaper (``search_certified``), and as exact.
    """
    if len(index) > WHOLE:
        return search_certified(index, forms, k)
    vectors = np.concatenate([form.vectors for form in forms])
    offsets = np.concatenate([form.offsets for form in forms])[:, None]
    firsts = np.cumsum([0, *(len(form.vectors) for form in forms[:-1])])
    rows, parts = np.flatnonzero(index.kept), []
    for block in np.split(rows, range(BLOCK, len(rows), BLOCK)):
        scores = np.minimum.reduceat(index.score(vectors, block) + offsets, firsts)
        parts.append(top_rows(scores, block, index, k))
    scores = np.concatenate([part.scores for part in parts], axis=1)
    return top_rows(scores, np.concatenate([part.rows for part in parts], axis=1), index, k)


def search_certified(
    index: DenseIndex, forms: Sequence[LinearForms], k: int, candidates: int = 100
) -> Hits:
    """Exact top k of a minimum of linear forms, one per question, from certified candidates.

    Each form is searched for its ``candidates`` best. A passage in none of a question's lists
    scores at most the least of their last scores, so once the k-th candidate is above that, nothing
    is missing; else that question is searched four times as deep.
    """
    best: list[Hits | None] = [None] * len(forms)
    todo, n = list(range(len(forms))), min(max(candidates, k), len(index))
    while todo:
        hits = index.search(np.concatenate([forms[i].vectors for i in todo]), n)
        ends = np.cumsum([len(forms[i].vectors) for i in todo])
        unsure = []
        for i, end in zip(todo, ends, strict=True):
            form, part = forms[i], slice(end - len(forms[i].vectors), end)
            rows = np.unique(hits.rows[part])
            exact = (index.score(form.vectors, rows) + form.offsets[:, None]).min(axis=0)
            best[i] = top_rows(exact[None], rows, index, min(k, len(rows)))
            # The margin keeps rounding of scores (1e-5) from certifying a tie.
            unseen = float((hits.scores[part, -1] + form.offsets).min()) + 2e-5
            if best[i].scores[0, -1] <= unseen and n < len(index):
                unsure.append(i)
        todo, n = unsure, min(4 * n, len(index))
    return Hits.stack(best)


def rerank_pool(index, pool: np.ndarray, query: np.ndarray, n: int, k: int) -> Hits:
    """Top k by ``query`` among the top n by ``pool`` (both (q, d)): CHR read as re-ranking.

    This is another ranking than the full search, not an approximation of it (ambiguity A3).
    """
    first = index.search(pool, min(n, len(index)))
    parts = [
        top_rows(index.score(query[i : i + 1], rows), rows, index, k)
        for i, rows in enumerate(first.rows)
    ]
    return Hits.stack(parts)
