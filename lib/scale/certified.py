"""Exact search with a minimum of linear forms in a corpus too large to score whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lib.contrast import LinearForms
from lib.index import DenseIndex, Hits, top_rows

__all__ = ["search_certified"]


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
