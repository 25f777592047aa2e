"""Hits, which every search returns, and several of them merged into one.

A merge goes query by query. A passage is its id: one that is in several lists is there once. Merged
Hits carry no rows (-1), because the lists may come from different indexes. Ties break by id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Hits", "merge_balanced", "merge_rrf", "merge_scores"]


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
        return Hits(*(column[i][found][None] for column in (self.scores, self.rows, self.ids)))

    @classmethod
    def stack(cls, parts: Sequence[Hits]) -> Hits:
        """The queries of one or more parts below each other, padded to the longest list."""
        gaps = [max(p.ids.shape[1] for p in parts) - p.ids.shape[1] for p in parts]

        def column(name: str, filler: float | str) -> np.ndarray:
            padded = (
                np.pad(getattr(part, name), ((0, 0), (0, gap)), constant_values=filler)
                for part, gap in zip(parts, gaps, strict=True)
            )
            return np.concatenate(list(padded))

        return cls(column("scores", -np.inf), column("rows", -1), column("ids", ""))


def merge_scores(parts: Sequence[Hits], k: int) -> Hits:
    """The k best by raw score; a passage in several lists keeps its best score.

    Only for scores on one scale: shards or sources searched with one encoder.
    """
    return _merged(parts, k, lambda rank, score: score, max)


def merge_rrf(parts: Sequence[Hits], k: int, rrf_k: int = 60) -> Hits:
    """Reciprocal rank fusion: score = sum over lists of 1 / (rrf_k + rank), ranks from 1.

    Cormack et al. 2009, with their constant 60 as MedRAG uses it.
    """
    return _merged(parts, k, lambda rank, score: 1 / (rrf_k + rank), sum)


def merge_balanced(parts: Sequence[Hits], k: int) -> Hits:
    """Round robin over the sources, in the order of ``parts``: first ranks, second ranks, ...

    RAG2's balanced retrieval: with k = m x len(parts) and disjoint sources each gives its best m; a
    source that runs out leaves its turns to the others. Scores are minus the turn, so they fall.
    """
    sources = [
        Hits(np.full(p.scores.shape, i, np.float32), p.rows, p.ids) for i, p in enumerate(parts)
    ]
    return _merged(sources, k, lambda rank, source: -(rank * len(parts) + source), max)


def _merged(parts: Sequence[Hits], k: int, points: Callable, joined: Callable) -> Hits:
    """``points(rank, score)`` of a passage in each list it is in, ``joined`` to its one score."""
    if k < 1 or not parts or len({len(p) for p in parts}) != 1:
        raise ValueError(f"cannot merge lists of {[len(p) for p in parts]} queries to k = {k}")
    rows = []
    for lists in zip(*parts, strict=True):
        given = defaultdict(list)
        for own in lists:
            pairs = zip(own.ids[0].tolist(), own.scores[0].tolist(), strict=True)
            for rank, (pid, score) in enumerate(pairs, 1):
                given[pid].append(points(rank, score))
        # Twelve digits: the order in which equal terms were added must not decide.
        found = [(round(joined(some), 12), pid) for pid, some in given.items()]
        best = sorted(found, key=lambda item: (-item[0], item[1]))[:k]
        ids = np.array([[pid for _, pid in best]], dtype=str)
        scores = np.array([[score for score, _ in best]], dtype=np.float32)
        rows.append(Hits(scores, np.full(ids.shape, -1), ids))
    return Hits.stack(rows)
