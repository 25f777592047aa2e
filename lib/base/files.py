"""Whole files or none: atomic writes, hashes, JSON Lines, and the manifest beside each product.

A file is complete when its manifest says so, never because it exists. A manifest holds the row
count, the sha256 of the bytes and the settings that made them.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import os
import re
import shlex
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any

from lib.base.bundled import known_by

_FRESH_S = 60
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)
"""What the system says of a disk that is full or may not be written to."""

LONG_WAIT_S = 5
"""How long another process is waited for before it is said."""


class StaleInput(RuntimeError):
    """A file's manifest is missing or was made with other settings than the caller asks for."""


def sha256_bytes(data: bytes) -> str:
    """Hex sha256 of bytes in memory."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file, read in blocks so that memory stays flat."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text, so it can be hashed."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def atomic_write(path: Path, content: bytes | str | Callable[[Path], None]) -> Path:
    """Write to a temporary name in the same folder, fsync, rename; a kill leaves the old file.

    ``content`` is the bytes or text, or a function that is given the temporary path to fill. What
    a killed writer of the same file left under a temporary name is removed first. OSError, with the
    file and what to do, where it cannot be written; the old file is then as it was.
    """
    try:
        return _write_and_rename(path, content)
    except OSError as error:
        if error.errno not in _NO_ROOM:  # of something that is read, not of this file
            raise
        raise OSError(
            error.errno,
            f"{error.strerror}. Nothing of it was kept: make room, or name another folder "
            "(CHR_OUT or CHR_CACHE), and run it again",
            str(path),
        ) from error


def _write_and_rename(path: Path, content: bytes | str | Callable[[Path], None]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    temporary = Path(name)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # who holds it lives; see _sweep
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        with open(temporary, "rb+") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)
    return path


def _sweep(path: Path) -> None:
    """Remove temporary files of ``path`` whose writer is gone: nobody holds their lock.

    One that was touched within the last minute stays, because its writer may be about to lock it.
    """
    temporary = re.compile(rf"\.{re.escape(path.name)}\.\w{{8}}{re.escape(path.suffix)}")
    for entry in os.scandir(path.parent):
        if not temporary.fullmatch(entry.name):
            continue
        with suppress(OSError):  # it is locked, or another process has swept it
            if time.time() - entry.stat().st_mtime > _FRESH_S:
                with open(entry.path, "rb") as leftover:
                    fcntl.flock(leftover, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process or thread holds the lock of ``path``, then hold it.

    The lock is on an empty file beside it, ``.<name>.lock``: ``path`` itself may be replaced while
    the lock is held. The system takes a lock back from a process that dies. The empty file stays,
    because removing it would let two processes lock two different files. A wait of some seconds is
    said, since who holds the lock may be stopped.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    place = path.with_name(f".{path.name}.lock")
    with open(place, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            timer = Timer(LONG_WAIT_S, say_waiting, [place])
            timer.daemon = True
            timer.start()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            finally:
                timer.cancel()
        try:
            yield
        finally:
            # Said, not left to closing: a process forked meanwhile holds the same open file.
            fcntl.flock(lock, fcntl.LOCK_UN)


def say_waiting(place: Path) -> None:
    """Say on stderr that another process is waited for: it may be stopped, and then for ever."""
    command = f"fuser {shlex.quote(str(place))}"
    line = f"waiting for another process, which uses {place}; to see which: {command}"
    print(line, file=sys.stderr, flush=True)


def row_digest(row: dict) -> str:
    """64 bits of a hash of a row's values, but for ``digest``, where it is kept, and ``again``."""
    hashed = {name: value for name, value in row.items() if name not in ("digest", "again")}
    return sha256_bytes(canonical_json(hashed).encode())[:16]


def read_jsonl(path: Path) -> Iterator[dict]:
    """Rows of a JSON Lines file, one at a time; a broken line is named with its number.

    A file whose name ends in ".gz" is read as gzip. The ``digest`` of a row that has one is checked
    and left out. ValueError for a line that is not UTF-8, not JSON, or edited since; for a field
    that stands twice or holds NaN; for an id that only looks like another one; and for a row of a
    bundled file that says again, or otherwise, what another row says (``lib.base.bundled``).
    """
    fields = known_by(path)
    line_of: dict[tuple, int] = {}
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                text = line.decode("utf-8").strip()
                row = _parsed(text) if text else None
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}, line {number}: not UTF-8 ({error})") from error
            except (ValueError, RecursionError) as error:  # not JSON, or what _parsed refuses
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
            if not text:
                continue
            if problem := _looks_alike(row):
                raise ValueError(f"{path}, line {number}: {problem}")
            if isinstance(row, dict) and "digest" in row and row.pop("digest") != row_digest(row):
                raise ValueError(f"{path}, line {number}: edited since it was recorded")
            if fields:
                if not isinstance(row, dict):
                    raise ValueError(f"{path}, line {number}: not an object")
                known = tuple(repr(row.get(field)) for field in fields)
                if (first := line_of.setdefault(known, number)) != number:
                    told = ", ".join(f"{f} {v}" for f, v in zip(fields, known, strict=True))
                    raise ValueError(
                        f"{path}, line {number}: {told} stands in line {first} too: keep one"
                    )
            yield row


def _parsed(text: str) -> Any:
    """A line of JSON; ValueError for what ``_STRICT`` refuses too."""
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a BOM: save it as UTF-8 without one")
    return _STRICT.decode(text)


def _each_once(pairs: list[tuple[str, Any]]) -> dict:
    """An object; Python would take the last of two fields of one name, and say nothing."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(n for n in names if names.count(n) > 1)!r} stands twice")
    return row


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


# Made once: json.loads would make one a line, which takes as long as the reading.
_STRICT = json.JSONDecoder(object_pairs_hook=_each_once, parse_constant=_no_number)


def _looks_alike(row: Any) -> str:
    """What is wrong with an id that looks like another one and is not equal to it; else empty."""
    for name in ("qid", "pid"):
        text = row.get(name, "") if isinstance(row, dict) else ""
        if not isinstance(text, str):
            return f"{name} is {text!r}, not a text"
        if text != text.strip():
            return f"{name} is {text!r}: take away the white space around it"
        if not unicodedata.is_normalized("NFC", text):
            return f"{name} is {ascii(text)}: write each accented letter as one character (NFC)"
    return ""


def write_jsonl_gz(path: Path, rows: Iterable[dict]) -> None:
    """Write rows as gzipped JSON Lines, in their order: the same rows give the same bytes."""
    lines = "".join(canonical_json(row) + "\n" for row in rows)
    atomic_write(path, gzip.compress(lines.encode(), mtime=0))


def _manifest_path(path: Path) -> Path:
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
    atomic_write(_manifest_path(path), text + "\n")


def remove_with_manifest(path: Path) -> None:
    """Delete a file and its manifest, if they are there.

    The manifest goes first, so that a kill in between leaves no file that counts as complete.
    """
    _manifest_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def read_manifest(path: Path, *, verify: bool = True) -> dict | None:
    """The manifest of a file, or None when it is missing, broken, or not about these bytes.

    ``verify=False`` is for files too large to hash at every start: such a file is hashed once, and
    again when its size or time of change is another, or once a process where ``CHR_VERIFY`` is set.
    That such a file is damaged is said, since most who ask then make it again.
    """
    try:
        manifest = json.loads(_manifest_path(path).read_text(encoding="utf-8"))
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


def is_sound(
    path: Path, sha256: str, record: Path, find_sha256: Callable[[Path], str] = sha256_file
) -> bool:
    """Whether a file has this sha256. It is not hashed where ``record`` says that it had before.

    ``find_sha256`` hashes it; what it hashes may be a part of the file.
    The record holds of the file what changes with it: place, size, time of change. Where
    ``CHR_VERIFY`` is set, a record of another process does not count. OSError without the file.
    """
    state = _state(path, sha256)
    if state in _VERIFIED_HERE:
        return True
    if not os.environ.get("CHR_VERIFY"):
        with suppress(OSError, ValueError):
            if record.read_text(encoding="utf-8") == state:
                return True
    # The state from before the hashing: a change meanwhile gives another one.
    if find_sha256(path) != sha256:
        return False
    _VERIFIED_HERE.add(state)
    with suppress(OSError):  # a place that cannot be written to: hashed again by the next process
        atomic_write(record, state)
    return True


_VERIFIED_HERE: set[str] = set()


def _state(path: Path, sha256: str) -> str:
    stat = path.stat()
    return canonical_json([str(path), stat.st_size, stat.st_mtime_ns, sha256])


def finished_bytes(path: Path) -> int | None:
    """How many bytes a file starts with that its manifest vouches for; more may follow them.

    None where there is no manifest, 0 where the manifest is broken or about other bytes.
    """
    try:
        manifest = json.loads(_manifest_path(path).read_text(encoding="utf-8"))
        with open(path, "rb") as stream:
            start = stream.read(manifest["bytes"])
        return len(start) if sha256_bytes(start) == manifest["sha256"] else 0
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return 0
