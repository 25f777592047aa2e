"""Work that is kept as it is done: small values in one SQLite file, pieces of long work as lines.

Stopped or killed, and started again, a run goes on where it was.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from lib.base import paths
from lib.base.files import LONG_WAIT_S, canonical_json, say_waiting, sha256_bytes

T = TypeVar("T")

_DIGEST_BYTES = 8
_BUSY_S = 600
_GLANCE_S = 1
"""How long SQLite itself waits for another process: Ctrl-C is heard between two such waits."""


class CheckedRows:
    """Values (bytes) by key (bytes) in ``file``, which is made when it is first used.

    Each is stored with a hash of its key and itself: a row that does not match it counts as
    missing. Any number of processes may read and write at once; each waits up to ten minutes for
    another. ``short``: values of less than 200 bytes, for which another form of table is half the
    size. OSError, with what to do, when the file cannot be read or written.
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
                value, seal = _parted(row)
                if seal == _seal(key, value):
                    found[key] = value
            return found

        return self._do(read)

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Store values, all or none; what was stored under a key is replaced.

        They are on the disk when this returns, so that a run that is killed later keeps them.
        """
        rows = [(key, value + _seal(key, value)) for key, value in values.items()]

        def write(store: sqlite3.Connection) -> None:
            store.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
            store.commit()

        self._do(write)

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """What an action gives on the open file. A wait of some seconds for another is said."""
        started, waited_aloud = time.monotonic(), False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                with closing(sqlite3.connect(self.file, timeout=_GLANCE_S)) as store:
                    columns = "(key BLOB PRIMARY KEY, value BLOB NOT NULL)"
                    store.execute(f"CREATE TABLE IF NOT EXISTS kept {columns}{self._form}")
                    return action(store)
            except sqlite3.DatabaseError as error:
                waited = time.monotonic() - started
                busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or waited > _BUSY_S:
                    raise OSError(
                        f"{self.file}: {error}. If its disk is full or may not be written to, name "
                        "another folder: CHR_CACHE=folder. If the file is damaged, delete it: it "
                        "is a cache, and made again"
                    ) from error
                if waited > LONG_WAIT_S and not waited_aloud:
                    say_waiting(self.file)
                    waited_aloud = True


def _parted(row: tuple[bytes] | None) -> tuple[bytes, bytes]:
    """A stored row as its value and its hash, both empty where there is none."""
    stored = row[0] if row else b""
    return stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]


def _seal(key: bytes, value: bytes) -> bytes:
    return sha256(key + value).digest()[:_DIGEST_BYTES]


class Unfinished:
    """The finished pieces of one piece of work, by name, in one file of the cache.

    ``behind`` is all that the pieces depend on; whoever has other settings begins anew.
    """

    def __init__(self, work: str, **behind: Any) -> None:
        digest = sha256_bytes(canonical_json([work, behind]).encode())[:16]
        self._path = paths.cache("unfinished") / f"{digest}.jsonl"
        self._pieces = dict(self._read())

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make()`` gives (anything that JSON can hold), made once for a name."""
        if name not in self._pieces:
            line = json.dumps([name, make()])
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "ab") as stream:
                # What a kill tore off ends before this line, and is passed over.
                stream.write(f"\n{line}\n".encode())
            self._pieces[name] = json.loads(line)[1]
        return self._pieces[name]

    def end(self) -> None:
        """All of it is kept elsewhere by now: forget the pieces."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> list[list]:
        pieces = []
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            try:
                pieces.append(json.loads(line))
            except ValueError:  # torn, or empty
                continue
        return pieces
