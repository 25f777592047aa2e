"""Vectors of many texts, encoded once: content-addressed files that survive a kill.

A block of up to 65,536 texts is one ``.npy`` file, which is mapped into memory. While it is in the
making its vectors are kept in parts of 4,096, so that a run that was killed goes on where it
stopped; the whole block is written from its parts, which are then removed. A file is named by the
hash of its texts, the tower, the encoder's fingerprint for it and the storage type, with a manifest
beside it: processes and machines may share a folder, or their files may be copied together.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from lib.base import paths
from lib.base.files import (
    LONG_WAIT_S,
    CheckedRows,
    atomic_write,
    canonical_json,
    manifest_path,
    read_manifest,
    say_waiting,
    sha256_bytes,
    write_manifest,
)
from lib.base.paths import say_once
from lib.embed import Encoder, Item, Tower, for_search, metric_of, unread_line

PART_ROWS = 4096
"""Texts whose vectors are lost at most when a run is killed."""

BLOCK_ROWS = 16 * PART_ROWS
"""Texts of one file of vectors; one handle each while an index is open."""

_CHUNK = 512  # texts between two movements of the progress bar, unless the encoder says otherwise

_OTHER_HANDLES = 256
"""Open files that everything but vectors may need at once, generously."""


@dataclass(frozen=True)
class _Part:
    """A file of vectors, or what will be one: of these rows."""

    file: Path
    rows: range


@dataclass(frozen=True)
class _Block(_Part):
    """A file that stays; one of a single part is that part."""

    parts: tuple[_Part, ...]


def encode_cached(
    items: Sequence[Item],
    encoder: Encoder,
    tower: Tower,
    *,
    starts: Sequence[int] = (0,),
    shard: tuple[int, int] = (1, 1),
    cache_dir: Path | None = None,
    block_rows: int = BLOCK_ROWS,
    part_rows: int = PART_ROWS,
    dtype: str = "float32",
    label: str = "texts",
    progress: bool = True,
    count_unread: bool = False,
) -> list[np.memmap]:
    """Memory-mapped blocks, each (at most block_rows, dim), stored as float32 or float16, as an
    index holds them (``lib.embed.for_search``).

    ``items`` is sliced, never copied as a whole. A block also begins at each of ``starts``, where
    what comes before is to keep its files whatever follows. Of ``shard`` (i, n) only every n-th
    block is encoded and opened, from the i-th on. Any number of processes may do the same work:
    each takes blocks that no other has.

    How many texts are missing and their size is printed before encoding, with what the encoder is
    and, for ``count_unread``, how much of the texts it leaves unread; a bar says how long all of it
    will take. Nothing if ``progress`` is False. OSError where a disk is full, or where the system
    allows fewer open files than there are blocks.
    """
    from tqdm.auto import tqdm

    encoder = for_search(encoder)
    if dtype not in ("float32", "float16"):
        raise ValueError(f"vectors are stored as float32 or float16, not {dtype!r}")
    folder = cache_dir or paths.cache("vectors")
    name = partial(_key, encoder=encoder, tower=tower, dtype=dtype)
    places = _places(len(items), starts, block_rows)[shard[0] - 1 :: shard[1]]
    blocks = [_block(items, rows, folder, name, part_rows) for rows in places]
    missing = [block for block in blocks if not _is_whole(block)]
    elsewhere = _parts_of_blocks(folder) if missing else {}
    parts = [part for block in missing for part in block.parts]
    total = sum(len(p.rows) for p in parts if p.file.stem not in elsewhere and not _kept(p))
    if missing and progress:
        gigabytes = total * encoder.dim * np.dtype(dtype).itemsize / 1e9 if total else 0
        files = f"{len(missing)} of {len(blocks)} files to write"
        print(f"{label}: {total:,} texts to encode, {gigabytes:.3f} GB, {files}", file=sys.stderr)
    if total and progress:
        say_once(encoder.describe())
    if total and progress and count_unread:
        unread = [encoder.unread(items[b.rows.start : b.rows.stop], tower) for b in missing]
        print(unread_line(label, encoder, np.concatenate(unread)), file=sys.stderr, flush=True)
    with tqdm(total=total, desc=label, unit="text", disable=not (progress and total)) as bar:
        work = _Work(items, encoder, tower, dtype, label, elsewhere, bar.update)
        # What another process is at is left to it, and looked at again at the end.
        for block in work.through(missing):
            work.through([block], wait=True)
    return open_vectors([block.file for block in blocks])


def open_vectors(files: Sequence[Path]) -> list[np.memmap]:
    """Files of vectors, mapped into memory; OSError where the system allows too few open files."""
    _allow_open(len(files))
    return [np.load(file, mmap_mode="r") for file in files]


def encode_small(
    texts: Sequence[Item],
    encoder: Encoder,
    tower: Tower,
    *,
    cache_dir: Path | None = None,
    as_searched: bool = False,
) -> np.ndarray:
    """float32 (n, dim) of a few thousand texts; each is encoded once and kept in one SQLite file.

    A text has its own key, so any other selection of the same texts costs nothing. Rows have length
    1, as cosines need it; ``as_searched`` they are what an index holds, by the encoder's metric.
    """
    encoder = for_search(encoder) if as_searched else encoder
    cache = CheckedRows((cache_dir or paths.cache("vectors")) / "texts.sqlite")
    keys = [bytes.fromhex(_key([text], encoder, tower, "float32")) for text in texts]
    text_of = dict(zip(keys, texts, strict=True))
    vector_of = {key: np.frombuffer(row, np.float32) for key, row in cache.get(text_of).items()}
    missing = [key for key in text_of if key not in vector_of]
    # A chunk at a time, so that a run that is killed keeps what it has.
    for start in range(0, len(missing), _CHUNK):
        chunk = missing[start : start + _CHUNK]
        rows = encoder.encode([text_of[key] for key in chunk], tower, progress=False)
        vectors = _checked(rows, encoder, "texts", range(start, start + len(chunk)))
        vector_of.update(zip(chunk, vectors, strict=True))
        cache.put({key: vector_of[key].tobytes() for key in chunk})
    if not keys:
        return np.zeros((0, encoder.dim), np.float32)
    rows = np.stack([vector_of[key] for key in keys])
    if as_searched or metric_of(encoder) == "cosine":
        return rows
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# which files there are, and are to be ------------------------------------------------------------


def _places(count: int, starts: Sequence[int], block_rows: int) -> list[range]:
    """The rows of each block, in order."""
    ends = [*sorted({0, *starts}), count]
    firsts = [(row, end) for start, end in pairwise(ends) for row in range(start, end, block_rows)]
    return [range(row, min(row + block_rows, end)) for row, end in firsts]


def _block(
    items: Sequence[Item],
    rows: range,
    folder: Path,
    name: Callable[[Sequence[Item]], str],
    part_rows: int,
) -> _Block:
    """The block of these rows, its files named by what the texts are."""
    texts = items[rows.start : rows.stop]
    names, parts = [], []
    for start in range(0, len(rows), part_rows):
        names.append(name(texts[start : start + part_rows]))
        parts.append(_Part(folder / f"{names[-1]}.npy", rows[start : start + part_rows]))
    whole = names[0] if len(names) == 1 else sha256_bytes(canonical_json(names).encode())
    return _Block(folder / f"{whole}.npy", rows, tuple(parts))


def _key(block: Sequence[Item], encoder: Encoder, tower: Tower, dtype: str) -> str:
    """A hash of everything that decides the stored bytes of these texts' vectors."""
    made_by = encoder.fingerprints[tower]
    return sha256_bytes(canonical_json([list(block), tower, made_by, dtype]).encode())


def _kept(part: _Part) -> bool:
    """Whether the file is there, whole."""
    return part.file.exists() and read_manifest(part.file, verify=False) is not None


def _is_whole(block: _Block) -> bool:
    """Whether the block's file is there. Parts that a kill left beside it are removed."""
    if not _kept(block):
        return False
    if len(block.parts) > 1 and any(part.file.exists() for part in block.parts):
        _remove_parts(block)
    return True


def _remove_parts(block: _Block) -> None:
    """Remove the parts of a block whose own file is there."""
    for part in block.parts:
        # The manifest first: without it the file counts as unfinished.
        manifest_path(part.file).unlink(missing_ok=True)
        part.file.with_name(f".{part.file.name}.verified").unlink(missing_ok=True)
        part.file.unlink(missing_ok=True)


def _allow_open(files: int) -> None:
    """Raise this process's limit of open files for so many more, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = len(os.listdir("/dev/fd")) + files
    top = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    if least >= top:
        raise OSError(
            f"{files:,} files of vectors are to be open at once, and this system allows {hard:,} "
            f"open files. Next: sudo prlimit --pid $$ --nofile={least + _OTHER_HANDLES}, then the "
            "same command in that shell"
        )
    if soft != resource.RLIM_INFINITY and soft < least + _OTHER_HANDLES:
        wanted = max(soft, min(least + _OTHER_HANDLES, top))
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# encoding what is missing ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """Rows whose vectors come next, the part that they belong to, and what they complete."""

    rows: range
    part: _Part
    done: _Block | None


class _Work:
    """Blocks that are encoded, part by part; ``moved`` is told how many texts are done."""

    def __init__(
        self,
        items: Sequence[Item],
        encoder: Encoder,
        tower: Tower,
        dtype: str,
        label: str,
        elsewhere: dict[str, tuple[Path, int]],
        moved: Callable[[int], object],
    ):
        self._items, self._encoder, self._tower = items, encoder, tower
        self._dtype, self._label, self._moved = dtype, label, moved
        self._elsewhere = elsewhere
        self._locks: dict[_Block, FileLock] = {}

    def through(self, blocks: Iterable[_Block], wait: bool = False) -> list[_Block]:
        """Encode the blocks that no other process is at; those that one is at, unless ``wait``.

        The encoder is given texts of the parts ahead while the vectors of one come back.
        """
        busy: list[_Block] = []
        steps: deque[_Step] = deque()

        def chunks() -> Iterator[Sequence[Item]]:
            for step in self._steps(blocks, busy, wait):
                steps.append(step)
                yield self._items[step.rows.start : step.rows.stop]

        found: list[np.ndarray] = []
        try:
            for rows in _encoded(chunks(), self._encoder, self._tower):
                step = steps.popleft()
                checked = _checked(rows, self._encoder, self._label, step.rows)
                found.append(checked.astype(self._dtype))
                self._moved(len(checked))
                if step.rows.stop == step.part.rows.stop:
                    self._write(step.part, np.concatenate(found))
                    found = []
                if step.done:
                    self._join(step.done)
        finally:
            self._release()
        return busy

    def _steps(self, blocks: Iterable[_Block], busy: list[_Block], wait: bool) -> Iterator[_Step]:
        """What is to be encoded of the blocks that can be had; the others are added to ``busy``."""
        size = getattr(self._encoder, "chunk", _CHUNK)
        for block in blocks:
            if not self._take(block, wait):
                busy.append(block)
                continue
            missing = [] if _is_whole(block) else self._missing(block)
            if not missing:
                self._join(block)
            for part in missing:
                for start in range(part.rows.start, part.rows.stop, size):
                    rows = range(start, min(start + size, part.rows.stop))
                    last = part is missing[-1] and rows.stop == part.rows.stop
                    yield _Step(rows, part, block if last else None)

    def _missing(self, block: _Block) -> list[_Part]:
        """The parts that are to be encoded. One whose vectors are in another block, from before
        texts were added or taken away behind it, is copied from there."""
        missing = []
        for part in block.parts:
            if _kept(part):
                continue
            file, first = self._elsewhere.get(part.file.stem, (None, 0))
            if file not in (None, block.file) and read_manifest(file, verify=False):
                rows = np.load(file, mmap_mode="r")
                self._write(part, rows[first : first + len(part.rows)])
            else:
                missing.append(part)
        return missing

    def _take(self, block: _Block, wait: bool) -> bool:
        """Whether the block is now this process's; no other has it until it is whole."""
        lock = FileLock(block.file.with_name(f".{block.file.name}.lock"))
        try:
            lock.acquire(timeout=LONG_WAIT_S if wait else 0)
        except Timeout:
            if not wait:
                return False
            say_waiting(Path(lock.lock_file))
            lock.acquire()
        self._locks[block] = lock
        return True

    def _release(self) -> None:
        """Leave what was begun and not finished to others."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    def _write(self, part: _Part, rows: np.ndarray) -> None:
        content = io.BytesIO()  # on a full disk np.save to a file would not say that it is full
        np.save(content, rows)
        atomic_write(part.file, content.getvalue())
        write_manifest(part.file, rows=len(rows), settings=self._settings(rows.shape[1]))

    def _join(self, block: _Block) -> None:
        """Write a block's file from its parts, one at a time, and remove them."""
        if not _is_whole(block):
            atomic_write(block.file, partial(_joined, block=block))
            dim = np.load(block.file, mmap_mode="r").shape[1]
            parts = [part.file.stem for part in block.parts]
            made_of = {"parts": parts, "part_rows": len(block.parts[0].rows)}
            write_manifest(block.file, rows=len(block.rows), settings=self._settings(dim) | made_of)
            _remove_parts(block)
        lock = self._locks.pop(block)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)  # nobody needs it: the block is there

    def _settings(self, dim: int) -> dict:
        made_by = self._encoder.fingerprints[self._tower]
        return {"encoder": made_by, "tower": self._tower, "dtype": self._dtype, "dim": dim}


def _joined(temporary: Path, block: _Block) -> None:
    """Fill the file with the vectors of all parts, in the form that numpy gives an array."""
    first = np.load(block.parts[0].file, mmap_mode="r")
    head = np.lib.format.header_data_from_array_1_0(first)
    with open(temporary, "wb") as stream:
        shape = (len(block.rows), first.shape[1])
        np.lib.format.write_array_header_1_0(stream, head | {"shape": shape})
        for part in block.parts:
            stream.write(np.load(part.file).data)


def _parts_of_blocks(folder: Path) -> dict[str, tuple[Path, int]]:
    """The block and the first row in it of each part that the blocks of a folder were made of."""
    found = {}
    for path in folder.glob("*.npy.manifest.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):  # gone, or none of ours
            said = json.loads(path.read_text(encoding="utf-8"))["settings"]
            file = path.with_name(path.name.removesuffix(".manifest.json"))
            for number, name in enumerate(said.get("parts", ())):
                found[name] = (file, number * said["part_rows"])
    return found


def _encoded(
    chunks: Iterator[Sequence[Item]], encoder: Encoder, tower: Tower
) -> Iterator[np.ndarray]:
    """The vectors of each chunk, in order; an encoder of several processes reads ahead."""
    several = getattr(encoder, "encode_many", None)
    if several:
        yield from several(chunks, tower)
    else:
        yield from (encoder.encode(chunk, tower, progress=False) for chunk in chunks)


def _checked(rows: np.ndarray, encoder: Encoder, label: str, asked: range) -> np.ndarray:
    """What the encoder gave for the texts of these rows, as float32.

    Whatever it gives would be stored for good, so ValueError for anything but a row of length 1
    for each text (a finite one, where the encoder's metric is not the cosine).
    """
    rows = np.asarray(rows, dtype=np.float32)
    if rows.shape != (len(asked), encoder.dim):
        raise ValueError(
            f"{encoder.name} on {label}: its vectors have the shape {rows.shape}, "
            f"not {(len(asked), encoder.dim)}: a row for each text; nothing of them was stored"
        )
    # A NaN is not close either, so it is found too.
    lengths, is_unit = np.linalg.norm(rows, axis=1), metric_of(encoder) == "cosine"
    good = np.abs(lengths - 1) < 2e-3 if is_unit else np.isfinite(lengths)
    if not good.all():
        bad = asked[np.flatnonzero(~good)[0]]
        what = "of length 1" if is_unit else "finite"
        raise ValueError(f"{encoder.name} on {label}: row {bad} is not {what}")
    return rows
