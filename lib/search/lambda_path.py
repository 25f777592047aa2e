"""Every lambda at once: a few searches, and the proof that they miss no passage in between.

A passage's score by h+ - lambda h- is a straight line in lambda. Two lambdas, the *anchors*, are
searched ``DEPTH`` passages deep. What neither list has scores at each anchor at most what its list
ends with, and between them at most the straight line between these two numbers. Where the k-th best
of the lists lies above it, nothing is missing; where it does not, a lambda in the middle becomes an
anchor, and where no lambda is left, the anchor is searched four times as deep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import compress

import numpy as np

from lib.search.index import DenseIndex, Hits, top_rows

DEPTH = 250
"""Passages in the list of an anchor."""

FEWEST = 8
"""Queries on one line from which on anchors are quicker than one search for each, of some 20,000
passages; of fewer, neither takes long."""

_STOPS = 41
"""Lambdas at which a whole stretch is proved; what lies between follows from them."""

_BLOCK = 2**17
"""Passages whose vectors are in memory at a time."""

_LINES = 256
"""Lines that are searched together: memory does not grow with the questions."""


def search_path(
    index: DenseIndex, queries: np.ndarray, line: np.ndarray, lam: np.ndarray, k: int
) -> Hits:
    """What ``index.search`` gives for these queries (n, d), the same to the last bit.

    Queries of one ``line`` (n,) are h+ - ``lam`` h- of the same two vectors, at lambdas (n,). Fewer
    than ``FEWEST``, and those that are off their line, are searched one by one. So are all of an
    approximate index: of passages that it has not looked at, it proves nothing. Raises as
    ``index.search`` does.
    """
    queries = index.checked(queries, k)
    k = min(k, len(index))
    scores = np.empty((len(queries), k), dtype=np.float32)
    rows = np.empty((len(queries), k), dtype=np.int64)
    alone = np.ones(len(queries), dtype=bool)
    for members, held, _ in certified(index, queries, line, lam, k):
        # In double precision, as ``index.search`` scores what it has found.
        best = top_rows(index.score(queries[members], held), held, index, k)
        scores[members], rows[members], alone[members] = best.scores, best.rows, False
    if alone.any():
        found = index.search(queries[alone], k)
        scores[alone], rows[alone] = found.scores, found.rows
    return Hits(scores, rows, index.ids[rows])


def certified(
    index: DenseIndex, queries: np.ndarray, line: np.ndarray, lam: np.ndarray, k: int
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Of each line that ``search_path`` need not search query by query: the numbers of its queries,
    the rows among which the k best of each are certain to be, and how many searches that took."""
    for some in _parts([] if index.approximate else _by_line(line, lam)):
        paths = [_Path(queries[members], lam[members]) for members in some]
        straight = [path.is_straight for path in paths]
        paths, some = list(compress(paths, straight)), list(compress(some, straight))
        _search(index, paths, k, between=False)
        yield from (
            (members, path.held, path.searches) for members, path in zip(some, paths, strict=True)
        )


def rows_on_path(
    index: DenseIndex, starts: np.ndarray, slopes: np.ndarray, k: int, lam_max: float = 2.0
) -> list[np.ndarray]:
    """Of each line ``starts`` - lambda ``slopes``, both (n, d), the rows that hold the k best at
    every lambda in [0, lam_max], and those that rounding to 1e-5 might put among them, in order.
    ``lib.search.contrast.spectrum`` of these few is that of the whole corpus.

    Every index is exact here: anchors are searched in the vectors, not in their codes.
    """
    index, stops = index.exact(), np.linspace(0, lam_max, _STOPS)
    found = []
    for some in _parts(list(zip(starts, slopes, strict=True))):
        paths = [_Path(start - stops[:, None] * slope, stops) for start, slope in some]
        _search(index, paths, min(k, len(index)), between=True)
        found += [path.held for path in paths]
    return found


def holding(
    scores: np.ndarray, k: int, slack: float | np.ndarray, between: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Of passages' scores (stops, m) at rising lambdas, straight lines: a bound (stops,) that the
    k-th best is never below, and which passages (m,) can be among the k best, ``slack`` given.

    Between two stops the lowest score of the k that are best at the first never falls below the
    straight line between its values at both: nor does the k-th best, and a passage below that line
    at both stops is below it in between. Without ``between`` only the stops themselves count.
    """
    best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    lowest = np.take_along_axis(scores, best, axis=1).min(axis=1)
    if between:
        there = np.take_along_axis(scores[1:], best[:-1], axis=1).min(axis=1)
        lowest[1:] = np.minimum(lowest[1:], there)
    return lowest, (scores >= np.reshape(lowest - slack, (-1, 1))).any(axis=0)


class _Path:
    """One line: its queries (stops, d) at rising lambdas, its anchors, and the passages seen there.

    ``held`` are the rows that can be among the k best, once ``missing`` names no stop any more.
    """

    def __init__(self, queries: np.ndarray, lam: np.ndarray):
        self.queries = np.asarray(queries, dtype=np.float32)
        self._share = ((lam - lam[0]) / ((lam[-1] - lam[0]) or 1))[:, None]
        norms = np.linalg.norm(self.queries, axis=1)
        # How far a float32 product can be off, generously, twice, and half a step twice.
        self._slack = 2e-5 * np.maximum(1, norms) + 1e-5
        self._rows = self.held = np.empty(0, dtype=np.int64)
        self._ends = np.empty((2, 0))
        self._depths: dict[int, int] = {}
        self._most: dict[int, float] = {}
        self.searches = 0

    def _between_ends(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        return (1 - self._share) * first + self._share * last

    @property
    def is_straight(self) -> bool:
        """Whether the queries are on one line, but for rounding."""
        share = self._share.astype(np.float32)
        line = (1 - share) * self.queries[0] + share * self.queries[-1]
        return bool((np.linalg.norm(self.queries - line, axis=1) <= 0.1 * self._slack).all())

    def see(self, index: DenseIndex, rows: np.ndarray) -> None:
        """Score these passages at both ends, but for those that were seen before."""
        new = np.setdiff1d(rows, self._rows)
        starts = range(0, len(new), _BLOCK)  # where texts are nearly the same it may be all of them
        some = (index.vectors(new[start : start + _BLOCK]) for start in starts)
        products = [self.queries[[0, -1]] @ vectors.T for vectors in some]
        self._rows = np.concatenate([self._rows, new])
        self._ends = np.concatenate([self._ends, *products], axis=1)

    def anchor(self, stop: int, depth: int, worst: float) -> None:
        """The list of a stop is so deep, and ends with this score: a passage that is in no list
        scores there at most that."""
        self._depths[stop] = depth
        self._most[stop] = worst + self._slack[stop]
        self.searches += 1

    def missing(self, k: int, between: bool, passages: int) -> list[tuple[int, int]]:
        """The stops to search, and how deep, before no passage of so many can be missing; none at
        last, and at first both ends."""
        if not self._most:
            depth = min(max(DEPTH, 4 * k), passages)
            return [(0, depth), (len(self.queries) - 1, depth)]
        scores = self._between_ends(*self._ends)
        lowest, can_be = holding(scores, k, self._slack, between)
        self.held = np.sort(self._rows[can_be])
        if len(self._rows) == passages:
            return []
        anchors = sorted(self._most)
        at = self._share[:, 0]
        most = np.interp(at, at[anchors], [self._most[stop] for stop in anchors])
        unsure = np.flatnonzero(most >= lowest)
        new = np.setdiff1d(unsure, anchors)
        if not len(new):
            return [(stop, min(4 * self._depths[stop], passages)) for stop in unsure.tolist()]
        gaps = np.split(new, np.searchsorted(new, anchors))
        return [(int(gap[len(gap) // 2]), min(self._depths.values())) for gap in gaps if len(gap)]


def _search(index: DenseIndex, paths: Sequence[_Path], k: int, between: bool) -> None:
    """Search the anchors of all paths, each round together, until every path is certified."""
    passages, todo = len(index), list(paths)
    while todo:
        asked = defaultdict(list)
        for path in todo:
            for stop, depth in path.missing(k, between, passages):
                asked[depth].append((path, stop))
        for depth, stops in asked.items():
            if depth == passages:
                rows = [np.flatnonzero(index.kept)] * len(stops)
                worst = np.full(len(stops), -np.inf)
            else:
                queries = np.stack([path.queries[stop] for path, stop in stops])
                rows, worst = index.longlist(queries, depth)
            for (path, stop), found, last in zip(stops, rows, worst, strict=True):
                path.see(index, found)
                path.anchor(stop, depth, last)
        todo = list(dict.fromkeys(path for stops in asked.values() for path, _ in stops))


def _by_line(line: np.ndarray, lam: np.ndarray) -> list[np.ndarray]:
    """The queries of each line that has enough, in the order of their lambdas."""
    order = np.lexsort((lam, line))
    groups = np.split(order, np.flatnonzero(np.diff(line[order])) + 1)
    return [members for members in groups if len(members) >= FEWEST]


def _parts(things: Sequence) -> Iterator[list]:
    for start in range(0, len(things), _LINES):
        yield list(things[start : start + _LINES])
