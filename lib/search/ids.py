"""The ids of passages by row, and rows by id, without a dictionary.

Ids are bytes of one width, and beside them stand the rows in the order of the ids and the place of
each row in that order. Of 54 million passages these are 1.7 GB, which a store keeps as files and
maps: a search touches the few pages that it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import overload

import numpy as np

_BLOCK = 2**16


class Ids(Collection[str]):
    """Unique ids of n passages in the order of their rows.

    ``texts`` (n,) UTF-8 bytes; ``order`` (n,) the rows sorted by id; ``ranks`` (n,) the place of
    each row in that order, by which equal scores are ranked.
    """

    def __init__(self, texts: np.ndarray, order: np.ndarray, ranks: np.ndarray):
        self.texts, self.order, self.ranks = texts, order, ranks

    @classmethod
    def of(cls, ids: Iterable[str]) -> Ids:
        """Ids in memory; those of a store are taken as they are. ValueError if two are equal."""
        if isinstance(ids, Ids):
            return ids
        texts = np.array([str(pid).encode() for pid in ids], dtype=bytes)
        order = np.argsort(texts, kind="stable")
        in_order = texts[order]
        repeated = in_order[1:][in_order[1:] == in_order[:-1]]
        if len(repeated):
            raise ValueError(f"passage id {repeated[0].decode()!r} occurs twice")
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        return cls(texts, order, ranks)

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, rows: int) -> str: ...
    @overload
    def __getitem__(self, rows: slice | Sequence[int] | np.ndarray) -> np.ndarray: ...
    def __getitem__(self, rows):
        """One id, or those of several rows as an array of texts of the same shape."""
        if isinstance(rows, (int, np.integer)):
            return self.texts[rows].decode()
        return np.strings.decode(self.texts[rows], "utf-8")

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self[start : start + _BLOCK].tolist()

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)

    def tolist(self) -> list[str]:
        """All ids as a list."""
        return self[:].tolist()

    def find(self, pids: Sequence[str]) -> np.ndarray:
        """The rows (m,) of some ids, -1 where there is none."""
        if not len(self):
            return np.full(len(pids), -1)
        wanted = np.array([pid.encode() for pid in pids], dtype=bytes)
        low = np.zeros(len(wanted), dtype=np.int64)
        high = np.full(len(wanted), len(self))
        while (low < high).any():  # all searches are halved at once
            middle = (low + high) // 2
            below = self.texts[self.order[np.minimum(middle, len(self) - 1)]] < wanted
            below &= low < high
            low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
        rows = np.asarray(self.order[np.minimum(low, len(self) - 1)], dtype=np.int64)
        return np.where(self.texts[rows] == wanted, rows, -1)

    def __contains__(self, pid: object) -> bool:
        return isinstance(pid, str) and self.find([pid])[0] >= 0

    def rows_of(self, pids: Sequence[str]) -> np.ndarray:
        """The rows (m,) of some ids. ValueError that names one that is not here."""
        rows = self.find(pids)
        for place in np.flatnonzero(rows < 0):
            raise ValueError(f"no passage {pids[place]!r} in this index of {len(self):,}")
        return rows

    def starting_with(self, prefixes: Sequence[str]) -> np.ndarray:
        """Which ids begin with one of some texts, bool (n,)."""
        found = np.zeros(len(self), dtype=bool)
        for prefix in prefixes:
            found |= np.strings.startswith(self.texts, prefix.encode())
        return found
