"""Whole files or none: atomic writes, hashes, JSON Lines, and the manifest beside each product.

A file is complete when its manifest says so, never because it exists. A manifest holds the row
count, the sha256 of the bytes and the settings that made them. Long work is stored piece by piece
(``CheckedRows``, ``Unfinished``), so that a run that was stopped or killed continues where it was.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shlex
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lib.base import paths
from lib.base.command import FORBIDDEN, FULL

_LEFT_S = 86_400

LONG_WAIT_S = 5
"""Seconds of waiting for another process before a message says so."""


class StaleInput(RuntimeError):
    """A file's manifest is missing or was made with other settings than the caller asks for."""


def sha256_bytes(data: bytes) -> str:
    """Hex sha256 of bytes in memory."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file, read in blocks so that memory stays flat."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of(path: Path) -> str:
    """Hex sha256 of what stands at a path: of a file's bytes, or of a folder's files with their
    places in it; hidden ones do not count. What the path is called does not matter."""
    if path.is_file():
        return sha256_file(path)
    inside = [file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()]
    seen = [place for place in inside if not any(part.startswith(".") for part in place.parts)]
    hashes = [[place.as_posix(), sha256_file(path / place)] for place in seen]
    return sha256_bytes(canonical_json(hashes).encode())


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text, so it can be hashed."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def atomic_write(path: Path, content: bytes | str | Callable[[Path], None]) -> Path:
    """Write to a temporary name in the same folder, fsync, rename; a kill leaves the old file.

    ``content`` is the bytes or text, or a function that is given the temporary path to fill.
    OSError, with the file and what to do, where it cannot be written; the old file is then as it
    was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        with open(temporary, "rb+") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno not in (*FULL, *FORBIDDEN):  # not an error of writing this file
            raise
        raise OSError(
            error.errno,
            f"{error.strerror}. Nothing of it was kept: make room, or name another folder "
            "(CHR_OUT or CHR_CACHE), and run it again",
            str(path),
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _sweep(path: Path) -> None:
    """Remove temporary files of ``path`` that a killed writer left more than a day ago."""
    temporary = re.compile(rf"\.{re.escape(path.name)}\.\w{{8}}{re.escape(path.suffix)}")
    for entry in path.parent.iterdir():
        if temporary.fullmatch(entry.name):
            with suppress(FileNotFoundError):  # another process has swept it
                if time.time() - entry.stat().st_mtime > _LEFT_S:
                    entry.unlink()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process or thread holds the lock of ``path``, then hold it.

    The lock is on an empty file beside it, ``.<name>.lock``: ``path`` itself may be replaced while
    the lock is held. The system releases the lock of a process that dies. A wait of some seconds
    is reported, since the process that holds the lock may be suspended.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        held = lock.acquire(timeout=LONG_WAIT_S)
    except Timeout:
        say_waiting(Path(lock.lock_file))
        held = lock.acquire()
    with held:
        yield


def say_waiting(place: Path) -> None:
    """Report on stderr a wait for another process, endless if that process is suspended."""
    command = f"fuser {shlex.quote(str(place))}"
    line = f"waiting for another process, which uses {place}; to see which: {command}"
    print(line, file=sys.stderr, flush=True)


def row_digest(row: dict) -> str:
    """64 bits of a hash of a row's values, without ``digest`` (its own field) and ``again``."""
    hashed = {name: value for name, value in row.items() if name not in ("digest", "again")}
    return sha256_bytes(canonical_json(hashed).encode())[:16]


def read_jsonl(path: Path) -> Iterator[dict]:
    """Rows of a JSON Lines file, one at a time; a broken line is named with its number.

    A file whose name ends in ".gz" is read as gzip. The ``digest`` of a row that has one is checked
    and left out. ValueError for a line that is not JSON in UTF-8, or edited since it was recorded,
    and for a ``qid`` or ``pid`` that is no text or has white space around it: no other file's id
    would match it.
    """
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                what = "UTF-8" if isinstance(error, UnicodeDecodeError) else "JSON"
                raise ValueError(f"{path}, line {number}: not {what} ({error})") from error
            if isinstance(row, dict):
                if "digest" in row and row.pop("digest") != row_digest(row):
                    raise ValueError(f"{path}, line {number}: edited since it was recorded")
                for name in ("qid", "pid"):
                    if name in row and not _is_id(row[name]):
                        raise ValueError(
                            f"{path}, line {number}: {name} is {row[name]!r}, not a text without "
                            "white space around it"
                        )
            yield row


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and value == value.strip()


def write_jsonl_gz(path: Path, rows: Iterable[dict]) -> None:
    """Write rows as gzipped JSON Lines, in their order: the same rows give the same bytes."""
    lines = "".join(canonical_json(row) + "\n" for row in rows)
    atomic_write(path, gzip.compress(lines.encode(), mtime=0))


def manifest_path(path: Path) -> Path:
    """Where the manifest of a file is: beside it."""
    return path.with_name(path.name + ".manifest.json")


def write_manifest(path: Path, *, rows: int, settings: dict, content: bytes | None = None) -> None:
    """Record rows, bytes, sha256 and settings of a finished file beside it.

    ``content`` is what was written, where it is at hand: another process may have replaced it.
    """
    manifest = {
        "rows": rows,
        "bytes": path.stat().st_size if content is None else len(content),
        "sha256": sha256_file(path) if content is None else sha256_bytes(content),
        "settings": settings,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False)
    atomic_write(manifest_path(path), text + "\n")


def read_manifest(path: Path, *, verify: bool = True) -> dict | None:
    """The manifest of a file, or None when it is missing, broken, or not about these bytes.

    ``verify=False`` is for files too large to hash at every start: such a file is hashed once, and
    again when its size or modification time changes, or once per process if ``CHR_VERIFY`` is set.
    A damaged one is reported, since most callers then make it again.
    """
    try:
        manifest = json.loads(manifest_path(path).read_text(encoding="utf-8"))
        if not {"rows", "settings"} <= set(manifest):
            return None
        if manifest["bytes"] == path.stat().st_size:
            if verify:
                sound = manifest["sha256"] == sha256_file(path)
            else:
                record = path.with_name(f".{path.name}.verified")
                sound = is_sound(path, manifest["sha256"], record)
            if sound:
                return manifest
        if not verify:
            print(f"{path} is damaged: it is not read", file=sys.stderr, flush=True)
        return None
    # Missing, not JSON, without a field, or JSON that is no object.
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def is_sound(path: Path, sha256: str, record: Path) -> bool:
    """Whether a file has this sha256. It is not hashed if ``record`` says that it was verified.

    The record holds the path, size, modification time and sha256 of the verified file. Where
    ``CHR_VERIFY`` is set, a record of another process does not count. OSError without the file.
    """
    stat = path.stat()
    state = canonical_json([str(path), stat.st_size, stat.st_mtime_ns, sha256])
    if state in _VERIFIED_HERE:
        return True
    if not os.environ.get("CHR_VERIFY"):
        with suppress(OSError, ValueError):
            if record.read_text(encoding="utf-8") == state:
                return True
    # The state was read before hashing: a file that changes meanwhile does not match its record.
    if sha256_file(path) != sha256:
        return False
    _VERIFIED_HERE.add(state)
    with suppress(OSError):  # a place that cannot be written to: hashed again by the next process
        atomic_write(record, state)
    return True


_VERIFIED_HERE: set[str] = set()


# work that is kept as it is done -----------------------------------------------------------------

_DIGEST_BYTES = 8


class CheckedRows:
    """Values (bytes) by key (bytes) in ``file``, which is made when it is first used.

    Each is stored with a hash of its key and itself: a row that does not match it counts as
    missing. Any number of processes may read and write, one at a time. ``short``: values of less
    than 200 bytes, for which another form of table is half the size. OSError, with what to do, when
    the file cannot be read or written.
    """

    def __init__(self, file: Path, *, short: bool = False):
        self.file = file
        self._form = " WITHOUT ROWID" if short else ""

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The stored values of these keys; those that are missing or damaged are left out."""
        found = {}
        with self._open() as store:
            for key in dict.fromkeys(keys):
                row = store.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
                stored = row[0] if row else b""
                value, seal = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
                if seal == _seal(key, value):
                    found[key] = value
        return found

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Store values, all or none; what was stored under a key is replaced.

        They are on the disk when this returns, so that a run that is killed later keeps them.
        """
        rows = [(key, value + _seal(key, value)) for key, value in values.items()]
        with self._open() as store:
            store.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
            store.commit()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with locked(self.file), closing(sqlite3.connect(self.file)) as store:
                columns = "(key BLOB PRIMARY KEY, value BLOB NOT NULL)"
                store.execute(f"CREATE TABLE IF NOT EXISTS kept {columns}{self._form}")
                yield store
        except sqlite3.DatabaseError as error:
            raise OSError(
                f"{self.file}: {error}. If its disk is full or may not be written to, name another "
                "folder: CHR_CACHE=folder. If the file is damaged, delete it: it is a cache, and "
                "made again"
            ) from error


def _seal(key: bytes, value: bytes) -> bytes:
    return hashlib.sha256(key + value).digest()[:_DIGEST_BYTES]


class Unfinished:
    """The finished pieces of one computation, by name, in one file of ``folder`` or the cache.

    ``behind`` is all that the pieces depend on; with other settings the work starts anew.
    """

    def __init__(self, work: str, folder: Path | None = None, **behind: Any) -> None:
        digest = sha256_bytes(canonical_json([work, behind]).encode())[:16]
        self._path = (folder or paths.cache("unfinished")) / f"{digest}.jsonl"
        self._path.touch()
        self._pieces: dict[str, Any] = {}
        for line in self._path.read_bytes().splitlines():
            with suppress(ValueError, TypeError):  # torn, or empty
                self._pieces |= [json.loads(line)]

    def __contains__(self, name: str) -> bool:
        return name in self._pieces

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make()`` gives (anything that JSON can hold), made once for a name."""
        if name not in self._pieces:
            line = json.dumps([name, make()])
            with open(self._path, "ab") as stream:
                # The line break first: a line that a kill cut off is then skipped when read.
                stream.write(f"\n{line}\n".encode())
            self._pieces[name] = json.loads(line)[1]
        return self._pieces[name]

    def end(self) -> None:
        """Delete the pieces: the whole result is stored elsewhere by now."""
        self._path.unlink(missing_ok=True)
