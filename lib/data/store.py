"""Passages in one SQLite file: row number = row of the vectors, an index on the passage id.

Five passages of a million take less than a millisecond and memory stays flat. Several threads may
read at once; a file is written once, whole, and never changed.
"""

from __future__ import annotations

import errno
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Self
from urllib.parse import quote

import numpy as np
import pandas as pd

from lib.base.files import StaleInput, atomic_write, canonical_json, read_manifest, write_manifest
from lib.data.passages import Passage
from lib.search.ids import Ids

_FIELDS = "pid, title, text, source, meta"
_SELECT = f"SELECT {_FIELDS} FROM passage"
_IDS = "SELECT pid FROM passage ORDER BY row"


class PassageStore:
    """Read access to stored passages, from ``build`` or ``open``; iterating goes in row order.

    ``content`` is a hash of all passages as they were read, made while they were written.
    """

    def __init__(self, path: Path, content: str) -> None:
        self.path, self.content = Path(path), content
        self._ids: Ids | None = None

    @classmethod
    def build(cls, path: Path, passages: Iterable[Passage], settings: dict | None = None) -> Self:
        """Write the passages in their order, row 0 first; ValueError when two pids are equal."""
        contents = []
        atomic_write(path, lambda temporary: contents.append(_write(temporary, passages)))
        store = cls(path, contents[0])
        settings = (settings or {}) | {"content": store.content}
        write_manifest(path, rows=len(store), settings=settings)
        return store

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a finished store; StaleInput when it is missing or not what its manifest says."""
        manifest = read_manifest(path, verify=False)
        if manifest is None:
            raise StaleInput(f"{path} is missing or incomplete; run: make data PROFILE=open")
        return cls(path, manifest["settings"]["content"])

    def __len__(self) -> int:
        return self._connect().execute("SELECT ifnull(max(row) + 1, 0) FROM passage").fetchone()[0]

    def __iter__(self) -> Iterator[Passage]:
        return map(_passage, self._connect().execute(f"{_SELECT} ORDER BY row"))

    def between(self, start: int, stop: int) -> Iterator[Passage]:
        """The passages of rows from ``start`` to before ``stop``, in order."""
        select = f"{_SELECT} WHERE row >= ? AND row < ? ORDER BY row"
        return map(_passage, self._connect().execute(select, (start, stop)))

    def ids(self) -> Ids:
        """All passage ids in row order, from files beside the passages, which are written once."""
        if self._ids is None:
            self._ids = self._mapped_ids()
        return self._ids

    def _mapped_ids(self) -> Ids:
        names = ("texts", "order", "ranks")
        files = [self.path.with_name(f"{self.path.name}.{name}.npy") for name in names]
        if not all(self._is_of(file) for file in files):
            try:
                _write_ids(self._connect(), files, len(self), self.content)
            except PermissionError:  # a folder to be read alone: in memory then
                return Ids.of(p for (p,) in self._connect().execute(_IDS))
        return Ids(*(np.load(file, mmap_mode="r") for file in files))

    def _is_of(self, file: Path) -> bool:
        manifest = read_manifest(file, verify=False)
        return manifest is not None and manifest["settings"]["content"] == self.content

    def sources(self) -> pd.Categorical:
        """The source of every passage in row order, one byte a passage."""
        file = self._connect()
        names = [name for (name,) in file.execute("SELECT DISTINCT source FROM passage")]
        code_of = {name: code for code, name in enumerate(names)}
        rows = file.execute("SELECT source FROM passage ORDER BY row")
        codes = np.fromiter((code_of[name] for (name,) in rows), np.int16, len(self))
        return pd.Categorical.from_codes(codes, names)

    def lengths(self) -> Counter[tuple[str, int]]:
        """How many passages have each source and number of characters, in the order in which the
        first of them stands."""
        rows = self._connect().execute("SELECT source, text FROM passage ORDER BY row")
        return Counter((source, len(text)) for source, text in rows)

    def get(self, pid: str) -> Passage:
        """One passage by id; KeyError when it is not here."""
        return self.get_many([pid])[0]

    def get_many(self, pids: Sequence[str]) -> list[Passage]:
        """Passages by id, in the order asked; KeyError names the first unknown id."""
        file = self._connect()
        passages = {}
        for pid in pids:
            for fields in file.execute(f"{_SELECT} WHERE pid = ?", (pid,)):
                passages[pid] = _passage(fields)
        return [passages[pid] for pid in pids]

    def _connect(self) -> sqlite3.Connection:
        """Read-only, and new for every call: threads must not share a connection. Not mapped: a
        pass through a mapped file counts it all as this process's memory."""
        address = f"file:{quote(str(self.path.resolve()))}?mode=ro&immutable=1"
        return sqlite3.connect(address, uri=True)


class PassagesInMemory:
    """Passages that are written nowhere, by the same names as a ``PassageStore``."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._by_pid = {passage.pid: passage for passage in passages}
        hashed = sha256()
        for passage in self:
            hashed.update(canonical_json(_fields(passage)).encode())
        self.content = hashed.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._by_pid)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._by_pid.values())

    def between(self, start: int, stop: int) -> Iterator[Passage]:
        """The passages of rows from ``start`` to before ``stop``, in order."""
        return islice(self, start, stop)

    def ids(self) -> Ids:
        """All passage ids in their order."""
        return Ids.of(self._by_pid)

    def sources(self) -> pd.Categorical:
        """The source of every passage in their order."""
        return pd.Categorical([passage.source for passage in self])

    def get(self, pid: str) -> Passage:
        """One passage by id; KeyError when it is not here."""
        return self._by_pid[pid]

    def get_many(self, pids: Sequence[str]) -> list[Passage]:
        """Passages by id, in the order asked; KeyError names the first unknown id."""
        return [self._by_pid[pid] for pid in pids]


def _fields(passage: Passage) -> tuple[str, str, str, str, str]:
    """What is stored, and hashed, of a passage."""
    meta = json.dumps(passage.meta, ensure_ascii=False)
    return (passage.pid, passage.title, passage.text, passage.source, meta)


def _passage(fields: Sequence) -> Passage:
    """A passage from one selected row."""
    pid, title, text, source, meta = fields
    return Passage(pid, title, text, source, json.loads(meta))


def _write_ids(file: sqlite3.Connection, paths: Sequence[Path], n: int, content: str) -> None:
    """The three arrays of ``Ids``, by SQLite's own index of ids: no list of texts is made."""
    width = file.execute("SELECT max(length(CAST(pid AS BLOB))) FROM passage").fetchone()[0] or 1
    whole = np.int32 if n < 2**31 else np.int64

    def array(values: Iterable, dtype: object) -> np.ndarray:
        return np.fromiter((value for (value,) in values), dtype, n)

    def saved(path: Path, values: np.ndarray) -> None:
        atomic_write(path, lambda temporary: _save(temporary, values))
        write_manifest(path, rows=n, settings={"content": content})

    texts = file.execute("SELECT CAST(pid AS BLOB) FROM passage ORDER BY row")
    saved(paths[0], array(texts, f"S{width}"))
    order = array(file.execute("SELECT row FROM passage ORDER BY pid"), whole)
    saved(paths[1], order)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(n, dtype=whole)
    saved(paths[2], ranks)


def _save(path: Path, values: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, values)


def _write(path: Path, passages: Iterable[Passage]) -> str:
    """Write the whole file; a hash of all passages in their order.

    No journal is needed, because a file that is half written is lost. A full disk is an OSError, as
    in every other file.
    """
    content = sha256()

    def rows() -> Iterator[tuple]:
        for i, passage in enumerate(passages):
            fields = _fields(passage)
            if "\0" in passage.pid:  # bytes of one width cannot keep it
                raise ValueError(f"the id {passage.pid!r} has a NUL character; nothing was written")
            content.update(canonical_json(fields).encode())
            yield (i, *fields)

    try:
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA journal_mode = OFF")
            file.execute(f"CREATE TABLE passage (row INTEGER PRIMARY KEY, {_FIELDS})")
            file.executemany("INSERT INTO passage VALUES (?, ?, ?, ?, ?, ?)", rows())
            repeated = "SELECT pid FROM passage GROUP BY pid HAVING count(*) > 1 LIMIT 1"
            row = file.execute(repeated).fetchone()
            if row is not None:
                raise ValueError(f"two passages have the id {row[0]!r}; nothing was written")
            file.execute("CREATE UNIQUE INDEX by_pid ON passage (pid)")
            file.commit()
    except sqlite3.OperationalError as error:
        raise OSError(errno.ENOSPC, str(error)) from error
    return content.hexdigest()[:16]
