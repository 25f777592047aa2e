"""Exact inner-product search over memory-mapped shards, with the same answer from every backend.

A backend proposes candidates in float32; their scores are then computed in float64 from the stored
vectors and rounded to 1e-5, and ties break by passage id. The candidate list grows until no passage
outside it can belong to the top k, so the answer depends on no backend, batch size or processor.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Self

import numpy as np

from lib.base.parameters import one_of
from lib.search.candidates import BACKENDS, best_of
from lib.search.ids import Ids
from lib.search.merge import Hits

_STEPS = 1e5
"""Scores are compared in steps of 1e-5."""

_TOGETHER = 16
"""Shards whose candidates are merged at once: memory does not grow with the corpus."""

_LARGEST = 2.0**62
"""Above this, a score and a rank do not fit together into one 64-bit integer."""


class PassageIndex:
    """What every index has: unique passage ids by row (``Ids``), and views of a subset.

    ``kept`` (n,) bool, the rows that can be found.
    """

    def __init__(self, ids: Iterable[str]):
        self.ids = Ids.of(ids)
        self.kept = np.ones(len(self.ids), dtype=bool)
        self._length = len(self.ids)

    @property
    def ranks(self) -> np.ndarray:
        """The place (n,) of each id in sorted order, by which ties break."""
        return self.ids.ranks

    def rows_of(self, pids: Sequence[str]) -> np.ndarray:
        """The rows (m,) of some passages. ValueError that names one that is not here."""
        return self.ids.rows_of(pids)

    def in_order(self) -> np.ndarray:
        """The rows that can be found, sorted by id."""
        order = self.ids.order
        return order if self.kept.all() else order[self.kept[order]]

    def __len__(self) -> int:
        """How many passages can be found: all, or those a subset keeps."""
        return self._length

    def subset(self, keep: np.ndarray) -> Self:
        """A view that finds only rows where ``keep`` is True; rows, ids and scores stay."""
        keep = np.asarray(keep)
        if keep.dtype != bool or keep.shape != self.kept.shape or not (self.kept & keep).any():
            raise ValueError(f"keep must be {len(self.kept)} booleans that leave some row")
        view = copy.copy(self)
        view.kept = self.kept & keep
        view._length = int(np.count_nonzero(view.kept))
        return view


def top_rows(scores: np.ndarray, rows: np.ndarray, index: PassageIndex, k: int) -> Hits:
    """The k best by scores (n, m) of rows (m,) or (n, m), rounded to 1e-5, ties by passage id."""
    steps = np.rint(np.asarray(scores, dtype=np.float64) * _STEPS)
    rows = np.broadcast_to(rows, steps.shape)
    order = _best_first(steps, index.ranks[rows], k)
    best = np.take_along_axis(rows, order, axis=1)
    found = np.take_along_axis(steps, order, axis=1) / _STEPS + 0.0  # -0.0 becomes 0.0
    return Hits(found.astype(np.float32), best, index.ids[best])


def _best_first(steps: np.ndarray, ranks: np.ndarray, k: int) -> np.ndarray:
    """Positions (n, k) of the largest ``steps``, whole numbers, ties by the smaller rank."""
    ranked = int(ranks.max(initial=0)) + 1
    if np.abs(steps).max(initial=0.0) * ranked > _LARGEST:
        return np.lexsort((ranks, -steps), axis=-1)[:, :k]
    # Score and rank as one whole number, the best least, so that what is not among the k best is
    # never sorted: up to seventeen times faster on a block of passages.
    keys = ranks - steps.astype(np.int64) * ranked
    if k >= keys.shape[1]:
        return np.argsort(keys, axis=1)
    best = np.argpartition(keys, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(keys, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1)


def refuse_approximate(index: DenseIndex, why: str) -> None:
    """ValueError, with ``why`` every passage is needed, for an index that gives only candidates."""
    if index.approximate:
        raise ValueError(
            f"{why}, and a {index.backend} index gives candidates only. "
            'Next: backend = "torch" in the profile, or another form'
        )


class DenseIndex(PassageIndex):
    """Exact search; ``backend`` says what multiplies (``lib.search.candidates``): ``faiss`` on the
    CPU, ``torch`` or ``int8`` on the CPU or any number of devices.

    ``shards`` are float32 or float16 arrays (m_i, d), memory-mapped or not; ``ids`` are the passage
    ids in the same order.
    """

    candidates = 0
    """How many passages an approximate index scores for a query; 0: it is exact."""

    @property
    def approximate(self) -> bool:
        """Whether ``search`` may miss a passage: only where a class says so by its name."""
        return False

    def __init__(
        self,
        shards: Sequence[np.ndarray],
        ids: Sequence[str],
        *,
        backend: str = "faiss",
        devices: Sequence[str] = (),
    ):
        super().__init__(ids)
        self._shards = [np.asarray(shard) for shard in shards]
        self._starts = np.cumsum([0, *map(len, self._shards)])
        if self._starts[-1] != len(self.ids) or not len(self.ids):
            raise ValueError(f"{self._starts[-1]} vectors and {len(self.ids)} passage ids")
        search = one_of("no backend", backend, BACKENDS)
        self.backend, self.devices = backend, list(devices) or ["cpu"]
        self._search = search(self._shards, self.devices)
        self.dim = self._shards[0].shape[1]

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """The stored vectors of some rows, float32 (m, d)."""
        rows = np.asarray(rows, dtype=np.int64)
        found = np.empty((len(rows), self.dim), dtype=np.float32)
        shard_of = np.searchsorted(self._starts, rows, side="right") - 1
        for i in np.unique(shard_of):
            here = shard_of == i
            found[here] = self._shards[i][rows[here] - self._starts[i]]
        return found

    def score(self, vectors: np.ndarray, which: Sequence[str] | np.ndarray) -> np.ndarray:
        """Inner products, float64 (n, m), with the passages ``which``: row numbers or ids."""
        rows = np.asarray(which)
        if rows.dtype.kind in "UO":  # texts: ids, not row numbers
            rows = self.rows_of(rows.tolist())
        return np.asarray(vectors, np.float64) @ self.vectors(rows).T.astype(np.float64)

    def search(self, vectors: np.ndarray, k: int, *, batch: int = 1024) -> Hits:
        """The k best passages of each query vector, (n, d). A k beyond the index gives all of it.

        Raises ValueError for a zero or not finite query: nothing is ranked by noise.
        """
        queries = self.checked(vectors, k)
        starts = range(0, max(len(queries), 1), batch)
        return Hits.stack([self._exact_top(queries[i : i + batch], k) for i in starts])

    def checked(self, vectors: np.ndarray, k: int) -> np.ndarray:
        """The queries as float32 (n, d); raises as ``search`` does."""
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dim or k < 1:
            raise ValueError(f"queries {queries.shape}, k = {k}; wanted (n, {self.dim}), k >= 1")
        norms = np.linalg.norm(queries, axis=1)
        bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 1e-6)))
        if len(bad):
            raise ValueError(f"query row {bad[0]} is zero or not finite: it has no direction")
        return queries

    def _exact_top(self, queries: np.ndarray, k: int) -> Hits:
        """The exact top k: the candidates grow until no passage outside can be among them."""
        k = min(k, len(self))
        scores = np.empty((len(queries), k), dtype=np.float32)
        rows = np.empty((len(queries), k), dtype=np.int64)
        # How far a float32 product can be off, generously, and half a step of rounding twice.
        slack = 1e-5 * np.maximum(1, np.linalg.norm(queries, axis=1)) + 1e-5
        todo = np.arange(len(queries))
        depth = min(k + self._search.spare, len(self))
        while len(todo):
            candidates, worst_score = self.longlist(queries[todo], depth)
            exact = self._score_each(queries[todo], candidates)
            best = top_rows(exact, candidates, self, k)
            scores[todo] = best.scores
            rows[todo] = best.rows
            # A passage outside scores at most as much as the worst candidate, and the slack.
            unsure = (worst_score + slack[todo] >= best.scores[:, -1]) & (depth < len(self))
            todo = todo[unsure]
            depth = min(4 * depth, len(self))
        return Hits(scores, rows, self.ids[rows])

    def _score_each(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Inner products, float64 (n, m), of each query (n, d) with rows of its own (n, m)."""
        exact = np.empty(rows.shape)
        for start in range(0, len(queries), 64):  # some at a time: vectors take n x m x d x 8 bytes
            part = slice(start, start + 64)
            found = self.vectors(rows[part].ravel()).reshape(*rows[part].shape, self.dim)
            products = found.astype(np.float64) @ queries[part, :, None].astype(np.float64)
            exact[part] = products[..., 0]
        return exact

    def exact(self) -> Self:
        """The same passages, searched exactly: this index, unless it is approximate."""
        return self

    def longlist(self, queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows (n, depth) of the best float32 scores over all shards, and the worst of these
        scores (n,)."""
        scores = np.empty((len(queries), 0), dtype=np.float32)
        rows = np.empty((len(queries), 0), dtype=np.int64)
        searched = list(self._kept_by_shard())
        for start in range(0, len(searched), _TOGETHER):
            some = searched[start : start + _TOGETHER]
            found = self._search.top(queries, some, depth)
            for (i, kept_rows), (best_scores, positions) in zip(some, found, strict=True):
                here = positions if kept_rows is None else kept_rows[positions]
                scores = np.concatenate([scores, best_scores], axis=1)
                rows = np.concatenate([rows, self._starts[i] + here], axis=1)
            scores, rows = best_of(scores, rows, depth)
        return rows, scores.min(axis=1)

    def _kept_by_shard(self) -> Iterator[tuple[int, np.ndarray | None]]:
        """Each shard that has rows that can be found: its number, and these rows; None for all."""
        for i, (start, stop) in enumerate(pairwise(self._starts)):
            here = self.kept[start:stop]
            if here.any():
                yield i, None if here.all() else np.flatnonzero(here)
