"""Hits, which every search returns, and several of them merged into one.

A merge goes query by query. Passages are identified by id and appear once in a merged list. Merged
Hits carry no rows (-1), because the lists may come from different indexes. Ties break by id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Hits:
    """Results of n queries, best first.

    ``scores`` (n, k) float32; ``rows`` (n, k) int64, the rows in the index, -1 in a merged list;
    ``ids`` (n, k) str. Where a query has fewer results than another, its row ends with padding:
    score -inf, row -1, id "". A single query's ``hits[i]`` has none.
    """

    scores: np.ndarray
    rows: np.ndarray
    ids: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, i: int) -> Hits:
        """Query i alone, as a Hits with one row and without padding."""
        found = self.ids[i] != ""
        return Hits(
            scores=self.scores[i, found][None],
            rows=self.rows[i, found][None],
            ids=self.ids[i, found][None],
        )

    @classmethod
    def stack(cls, parts: Sequence[Hits]) -> Hits:
        """The queries of one or more parts below each other, padded to the longest list."""
        longest = max(part.ids.shape[1] for part in parts)

        def stacked(arrays: Sequence[np.ndarray], filler: float | str) -> np.ndarray:
            padded = []
            for array in arrays:
                gap = longest - array.shape[1]
                padded.append(np.pad(array, ((0, 0), (0, gap)), constant_values=filler))
            return np.concatenate(padded)

        return cls(
            scores=stacked([part.scores for part in parts], -np.inf),
            rows=stacked([part.rows for part in parts], -1),
            ids=stacked([part.ids for part in parts], ""),
        )


def merge_rrf(parts: Sequence[Hits], k: int, rrf_k: int = 60) -> Hits:
    """Reciprocal rank fusion: score = sum over lists of 1 / (rrf_k + rank), ranks from 1.

    Cormack et al. 2009, with their constant 60 as MedRAG uses it.
    """
    return _merged(parts, k, lambda rank, source: 1 / (rrf_k + rank), sum)


def merge_balanced(parts: Sequence[Hits], k: int) -> Hits:
    """Round robin over the sources, in the order of ``parts``: first ranks, second ranks, ...

    RAG2's balanced retrieval: with k = m x len(parts) and disjoint sources each gives its best m; a
    source that runs out leaves its turns to the others. Scores are minus the turn, so they fall.
    """
    return _merged(parts, k, lambda rank, source: -(rank * len(parts) + source), max)


def _merged(parts: Sequence[Hits], k: int, points: Callable, joined: Callable) -> Hits:
    """The k passages of each query that have the best merged score.

    A passage gets ``points(rank, source)`` from every list it is in, ranks from 1 and lists from 0;
    ``joined`` makes one score of them, such as their maximum or sum.
    """
    if k < 1 or not parts or len({len(p) for p in parts}) != 1:
        raise ValueError(f"cannot merge lists of {[len(p) for p in parts]} queries to k = {k}")
    merged = []
    for lists_of_query in zip(*parts, strict=True):
        points_of = defaultdict(list)
        for source, hits in enumerate(lists_of_query):
            for rank, pid in enumerate(hits.ids[0].tolist(), 1):
                points_of[pid].append(points(rank, source))
        # Twelve digits: the order in which equal terms were added must not decide.
        score_of = {pid: round(joined(given), 12) for pid, given in points_of.items()}
        best = sorted(score_of, key=lambda pid: (-score_of[pid], pid))[:k]
        ids = np.array([best], dtype=str)
        scores = np.array([[score_of[pid] for pid in best]], dtype=np.float32)
        merged.append(Hits(scores, np.full(ids.shape, -1), ids))
    return Hits.stack(merged)
