"""A cache of small values in one SQLite file, where every row is checked before it is used.

Each value is stored with a hash of its key and itself. A row that does not match its hash counts as
missing, a file that SQLite cannot read is set aside: both are said, and the values are made again.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from lib.base.files import LONG_WAIT_S, locked, say_waiting

T = TypeVar("T")

_DIGEST_BYTES = 8
_BUSY_S = 600
_GLANCE_S = 1
"""How long SQLite itself waits for another process: Ctrl-C is heard between two such waits."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""What SQLite says of a file that is none of its own, or whose pages or schema make no sense."""


class CheckedRows:
    """Values (bytes) by key (bytes) in ``file``, which is made when it is first used.

    Any number of processes may read and write at once; each waits up to ten minutes for another.
    ``short``: values of less than 200 bytes, for which another form of table is half the size.
    OSError, with what to do, when the file cannot be opened or written.
    """

    def __init__(self, file: Path, *, short: bool = False):
        self.file = file
        self._form = " WITHOUT ROWID" if short else ""

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The stored values of these keys; those that are missing or damaged are left out."""
        wanted = list(dict.fromkeys(keys))

        def read(store: sqlite3.Connection) -> dict[bytes, bytes]:
            found = {}
            for key in wanted:
                row = store.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    found[key] = row[0]
            return found

        stored = self._do(read)
        sound = {key: value for key, row in stored.items() if (value := _unsealed(key, row))}
        if damaged := len(stored) - len(sound):
            rows = "1 row is" if damaged == 1 else f"{damaged} rows are"
            print(f"{self.file}: {rows} damaged, made again", file=sys.stderr, flush=True)
        return sound

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Store values, none of them empty, all or none; what was stored under a key is replaced.

        They are on the disk when this returns, so that a run that is killed later keeps them.
        """
        if not all(values.values()):
            raise ValueError(f"{self.file}: an empty value cannot be stored")
        rows = [(key, value + _seal(key, value)) for key, value in values.items()]

        def write(store: sqlite3.Connection) -> None:
            store.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
            store.commit()

        self._do(write)

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """What an action gives on the open file; a damaged one is set aside, and a new one used."""
        started, said, mended = time.monotonic(), False, False
        while True:
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                opened = self.file.stat().st_ino if self.file.exists() else None
                with closing(sqlite3.connect(self.file, timeout=_GLANCE_S)) as store:
                    columns = "(key BLOB PRIMARY KEY, value BLOB NOT NULL)"
                    store.execute(f"CREATE TABLE IF NOT EXISTS kept {columns}{self._form}")
                    return action(store)
            except sqlite3.DatabaseError as error:
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
                waited = time.monotonic() - started
                if code == sqlite3.SQLITE_BUSY and waited < _BUSY_S:
                    if waited > LONG_WAIT_S and not said:
                        say_waiting(self.file)
                        said = True
                    continue
                if mended or code not in _DAMAGED:
                    raise OSError(
                        f"{self.file}: {error}. If its disk is full or may not be written to, "
                        "name another folder: CHR_CACHE=folder"
                    ) from error
                self._set_aside(opened, str(error))
                mended = True

    def _set_aside(self, opened: int | None, problem: str) -> None:
        """Move the file away, unless another process has done so since it was opened."""
        with locked(self.file), suppress(FileNotFoundError):
            if self.file.stat().st_ino != opened:
                return
            aside = self.file.with_name(f"{self.file.name}.damaged")
            os.replace(self.file, aside)
            for end in ("-journal", "-wal", "-shm"):  # they belong to it, not to the next one
                self.file.with_name(self.file.name + end).unlink(missing_ok=True)
            print(
                f"{self.file} is damaged ({problem}): set aside as {aside.name}, made again",
                file=sys.stderr,
                flush=True,
            )


def _seal(key: bytes, value: bytes) -> bytes:
    return sha256(key + value).digest()[:_DIGEST_BYTES]


def _unsealed(key: bytes, row: object) -> bytes:
    """The value of a stored row; empty where it is not what was stored."""
    if not isinstance(row, bytes):
        return b""
    value, seal = row[:-_DIGEST_BYTES], row[-_DIGEST_BYTES:]
    return value if seal == _seal(key, value) else b""
