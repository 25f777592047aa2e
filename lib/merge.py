"""Hits, which every search returns, and several of them merged into one.

A merge takes Hits of the same queries and goes query by query. A passage is its id: one that is in
several lists is there once. Merged Hits carry no rows (-1), because the lists may come from
different indexes. Ties break by passage id.
"""

from __future__ import annotations

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
        width = max(part.scores.shape[1] for part in parts)
        gaps = [((0, 0), (0, width - part.scores.shape[1])) for part in parts]
        columns = []
        for name, filler in (("scores", -np.inf), ("rows", -1), ("ids", "")):
            pairs = zip((getattr(part, name) for part in parts), gaps, strict=True)
            columns.append(np.concatenate([np.pad(c, g, constant_values=filler) for c, g in pairs]))
        return cls(*columns)


_Ranked = list[tuple[str, float]]  # (passage id, score), best first


def merge_scores(parts: Sequence[Hits], k: int) -> Hits:
    """The k best by raw score; a passage in several lists keeps its best score.

    Only for scores on one scale: shards or sources searched with one encoder.
    """

    def merged(lists: list[_Ranked]) -> _Ranked:
        best: dict[str, float] = {}
        for pid, score in (hit for ranked in lists for hit in ranked):
            best[pid] = max(score, best.get(pid, score))
        return _sorted(best)

    return _each_query(parts, k, merged)


def merge_rrf(parts: Sequence[Hits], k: int, rrf_k: int = 60) -> Hits:
    """Reciprocal rank fusion: score = sum over lists of 1 / (rrf_k + rank), ranks from 1.

    Cormack et al. 2009, with their constant 60 as MedRAG uses it.
    """

    def merged(lists: list[_Ranked]) -> _Ranked:
        total: dict[str, float] = {}
        for ranked in lists:
            for rank, (pid, _) in enumerate(ranked, 1):
                total[pid] = total.get(pid, 0.0) + 1.0 / (rrf_k + rank)
        return _sorted(total)

    return _each_query(parts, k, merged)


def merge_balanced(parts: Sequence[Hits], k: int) -> Hits:
    """Round robin over the sources, in the order of ``parts``: first ranks, second ranks, ...

    RAG2's balanced retrieval: with k = m x len(parts) and disjoint sources each gives its best m.
    A source that runs out leaves its turns to the others. Scores stay what each source gave, so
    they do not fall along the list; re-rank, or go by rank.
    """

    def merged(lists: list[_Ranked]) -> _Ranked:
        depth = max((len(ranked) for ranked in lists), default=0)
        turns = (ranked[i] for i in range(depth) for ranked in lists if i < len(ranked))
        chosen: dict[str, float] = {}
        for pid, score in turns:
            chosen.setdefault(pid, score)
        return list(chosen.items())

    return _each_query(parts, k, merged)


def _sorted(scores: dict[str, float]) -> _Ranked:
    # Twelve digits: the order in which equal terms were added must not decide.
    return sorted(scores.items(), key=lambda item: (-round(item[1], 12), item[0]))


def _each_query(parts: Sequence[Hits], k: int, merged: Callable[[list[_Ranked]], _Ranked]) -> Hits:
    if k < 1 or not parts or len({len(p) for p in parts}) != 1:
        raise ValueError(f"cannot merge lists of {[len(p) for p in parts]} queries to k = {k}")
    rows = []
    for i in range(len(parts[0])):
        alone = [p[i] for p in parts]
        lists = [list(zip(h.ids[0].tolist(), h.scores[0].tolist(), strict=True)) for h in alone]
        best = merged(lists)[:k]
        ids = np.array([[pid for pid, _ in best]], dtype=str)
        scores = np.array([[score for _, score in best]], dtype=np.float32)
        rows.append(Hits(scores, np.full(ids.shape, -1), ids))
    return Hits.stack(rows)
