"""Vectors of many texts, encoded once: content-addressed shards that survive a kill.

A shard is one ``.npy`` file for one block of items, named by the hash of the block, the tower, the
encoder's fingerprint for it and the storage type, with a manifest beside it. So a run that was
killed goes on where it stopped, processes may share a cache, and nothing is ever stale.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from lib.base import paths
from lib.base.files import (
    CheckedRows,
    atomic_write,
    canonical_json,
    read_manifest,
    sha256_bytes,
    write_manifest,
)
from lib.base.paths import say_once
from lib.embed import Encoder, Item, Tower, unread_line

_CHUNK = 512  # rows between two movements of the progress bar


def encode_cached(
    items: Sequence[Item],
    encoder: Encoder,
    tower: Tower,
    *,
    cache_dir: Path | None = None,
    shard_rows: int = 4096,
    dtype: str = "float32",
    label: str = "texts",
    progress: bool = True,
    count_unread: bool = False,
) -> list[np.memmap]:
    """Memory-mapped shards, each (at most shard_rows, dim), stored as float32 or float16.

    ``items`` is sliced, never copied as a whole. How many shards are missing and their size is
    printed before encoding, with what the encoder is and, for ``count_unread``, how much of the
    texts it leaves unread; a bar says how long it will take. Nothing if ``progress`` is False.
    """
    from tqdm.auto import tqdm

    if dtype not in ("float32", "float16"):
        raise ValueError(f"vectors are stored as float32 or float16, not {dtype!r}")
    folder = cache_dir or paths.cache("vectors")
    files: list[Path] = []
    missing: dict[Path, range] = {}
    for start in range(0, len(items), shard_rows):
        block = items[start : start + shard_rows]
        file = folder / f"{_key(block, encoder, tower, dtype)}.npy"
        files.append(file)
        if read_manifest(file) is None:
            missing[file] = range(start, start + len(block))
    total = sum(map(len, missing.values()))
    if missing and progress:
        gigabytes = total * encoder.dim * np.dtype(dtype).itemsize / 1e9
        what = f"{label}: {len(missing)} of {len(files)} shards missing"
        print(f"{what}, {total:,} texts, {gigabytes:.3f} GB", file=sys.stderr, flush=True)
        say_once(encoder.describe())
        if count_unread:
            asked = [items[row] for row in chain(*missing.values())]
            print(unread_line(label, encoder, asked), file=sys.stderr, flush=True)
    with tqdm(total=total, desc=label, unit="text", disable=not (progress and missing)) as bar:
        for file, rows in missing.items():
            parts = []
            for start in range(rows.start, rows.stop, _CHUNK):
                chunk = items[start : min(start + _CHUNK, rows.stop)]
                parts.append(_encoded(chunk, encoder, tower, label, start))
                bar.update(len(chunk))
            _write(file, np.concatenate(parts).astype(dtype), encoder, tower)
    return [np.load(file, mmap_mode="r") for file in files]


def encode_small(
    texts: Sequence[Item], encoder: Encoder, tower: Tower, *, cache_dir: Path | None = None
) -> np.ndarray:
    """float32 (n, dim) of a few thousand texts; each is encoded once and kept in one SQLite file.

    A text has its own key, so any other selection of the same texts costs nothing.
    """
    cache = CheckedRows((cache_dir or paths.cache("vectors")) / "texts.sqlite")
    keys = [bytes.fromhex(_key([text], encoder, tower, "float32")) for text in texts]
    text_of = dict(zip(keys, texts, strict=True))
    vector_of = {key: np.frombuffer(row, np.float32) for key, row in cache.get(text_of).items()}
    missing = [key for key in text_of if key not in vector_of]
    # A chunk at a time, so that a run that is killed keeps what it has.
    for start in range(0, len(missing), _CHUNK):
        chunk = missing[start : start + _CHUNK]
        vectors = _encoded([text_of[key] for key in chunk], encoder, tower, "texts", start)
        vector_of.update(zip(chunk, vectors, strict=True))
        cache.put({key: vector_of[key].tobytes() for key in chunk})
    if not keys:
        return np.zeros((0, encoder.dim), np.float32)
    return np.stack([vector_of[key] for key in keys])


def _encoded(
    items: Sequence[Item], encoder: Encoder, tower: Tower, label: str, first: int
) -> np.ndarray:
    """What the encoder gives for these texts, as float32; ``first`` is the row of the first.

    Whatever it gives would be stored for good, so ValueError for anything but a row of length 1
    for each text.
    """
    rows = np.asarray(encoder.encode(items, tower, progress=False), dtype=np.float32)
    if rows.shape != (len(items), encoder.dim):
        raise ValueError(
            f"{encoder.name} on {label}: its vectors have the shape {rows.shape}, "
            f"not {(len(items), encoder.dim)}: a row for each text; nothing of them was stored"
        )
    # A NaN is not close either, so it is found too.
    unit_length = np.abs(np.linalg.norm(rows, axis=1) - 1) < 2e-3
    if not unit_length.all():
        bad = first + np.flatnonzero(~unit_length)[0]
        raise ValueError(f"{encoder.name} on {label}: row {bad} is not of length 1")
    return rows


def _key(block: Sequence[Item], encoder: Encoder, tower: Tower, dtype: str) -> str:
    """A hash of everything that decides the stored bytes of these texts' vectors."""
    made_by = encoder.fingerprints[tower]
    return sha256_bytes(canonical_json([list(block), tower, made_by, dtype]).encode())


def _write(file: Path, shard: np.ndarray, encoder: Encoder, tower: Tower) -> None:
    """One shard, with its manifest."""
    content = io.BytesIO()  # on a full disk np.save to a file would not say that it is full
    np.save(content, shard)
    atomic_write(file, content.getvalue())
    made_by, dtype = encoder.fingerprints[tower], shard.dtype.name
    settings = {"encoder": made_by, "tower": tower, "dtype": dtype, "dim": encoder.dim}
    write_manifest(file, rows=len(shard), settings=settings)
