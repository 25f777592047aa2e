"""Vectors of many texts, encoded once: content-addressed shards that survive a kill.

A shard is one ``.npy`` file for one block of items, named by the hash of the block, the tower, the
encoder's fingerprint for it and the storage type, with a manifest beside it. So a run that was
killed goes on where it stopped, processes may share a cache, and nothing is ever stale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lib import paths
from lib.embed import Encoder, Item, Tower, measure_rate
from lib.files import (
    StaleInput,
    atomic_write,
    canonical_json,
    read_manifest,
    sha256_bytes,
    write_manifest,
)  # fmt: skip

__all__ = ["encode_cached", "encode_small", "open_shard"]

_CHUNK = 512  # rows between two movements of the progress bar


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def encode_cached(
    items: Sequence[Item], encoder: Encoder, tower: Tower, *, cache_dir: Path | None = None,
    shard_rows: int = 4096, dtype: str = "float32", label: str = "texts", verify: bool = True,
    progress: bool = True, say: Callable[[str], None] = _to_stderr,
) -> list[np.memmap]:  # fmt: skip
    """Memory-mapped shards, each (at most shard_rows, dim), stored as float32 or float16.

    ``items`` is sliced, never copied as a whole. Before encoding, ``say`` is told how many shards
    are missing, their size and the time expected; ``progress=False`` leaves out that and the bar.
    ``verify=False`` compares the sizes of finished shards instead of hashing them (for tens of GB).
    """
    if dtype not in ("float32", "float16"):
        raise ValueError(f"vectors are stored as float32 or float16, not {dtype!r}")
    folder = Path(cache_dir) if cache_dir else paths.cache("vectors")
    starts = range(0, len(items), shard_rows)
    keys = [_key(items[s : s + shard_rows], encoder, tower, dtype) for s in starts]
    files = [folder / f"{key}.npy" for key in keys]
    missing = [
        (file, range(start, min(start + shard_rows, len(items))))
        for file, start in zip(files, starts, strict=True)
        if not _ready(file, verify, say)
    ]
    if missing and progress:
        size = sum(len(rows) for _, rows in missing) * encoder.dim * np.dtype(dtype).itemsize
        found = f"{label}: {len(missing)} of {len(files)} shards missing, {size / 1e9:.3f} GB"
        say(found + _expected_time([rows for _, rows in missing], items, encoder, tower))
    _encode_missing(missing, items, encoder, tower, dtype, label, progress)
    return [open_shard(file, verify=False) for file in files]


def encode_small(
    texts: Sequence[Item], encoder: Encoder, tower: Tower, *, cache_dir: Path | None = None
) -> np.ndarray:
    """float32 (n, dim) of a few thousand texts, in memory, through the same cache, quietly."""
    shards = encode_cached(texts, encoder, tower, cache_dir=cache_dir, progress=False)
    return np.concatenate([np.zeros((0, encoder.dim), dtype=np.float32), *shards])


def open_shard(path: Path, *, verify: bool = True) -> np.memmap:
    """A finished shard, memory-mapped; StaleInput when it is not what its manifest says."""
    manifest = read_manifest(path, verify=verify)
    if manifest is None:
        raise StaleInput(f"{path} is missing, incomplete or changed; encode its texts again")
    shard = np.load(path, mmap_mode="r")
    if shard.shape != (manifest["rows"], manifest["settings"]["dim"]):
        raise StaleInput(f"{path} has the shape {shard.shape}, which its manifest does not say")
    if verify and (odd := _odd_row(shard)):
        raise StaleInput(f"{path}: {odd}")
    return shard


def _key(block: Sequence[Item], encoder: Encoder, tower: Tower, dtype: str) -> str:
    made_by = encoder.fingerprints[tower]
    return sha256_bytes(canonical_json([list(block), tower, made_by, dtype]).encode())


def _ready(file: Path, verify: bool, say: Callable[[str], None]) -> bool:
    """Is the shard there and whole? A broken one is deleted, and that is said."""
    if not file.exists():
        return False
    try:
        open_shard(file, verify=verify)
        return True
    except (StaleInput, ValueError) as error:
        say(f"deleting a broken shard, to encode it again: {error}")
        file.unlink()
        return False


def _odd_row(rows: np.ndarray) -> str:
    """Which row is not of unit length, in words; empty when all are."""
    norms = np.linalg.norm(rows.astype(np.float32), axis=1)
    bad = np.flatnonzero(~(np.abs(norms - 1) < 2e-3))  # float16 keeps three digits; NaN fails too
    return f"row {bad[0]} has the length {norms[bad[0]]}, not 1" if len(bad) else ""


def _expected_time(
    missing: list[range], items: Sequence[Item], encoder: Encoder, tower: Tower
) -> str:
    """Measured on up to 64 items spread over the missing ones; nothing is said of a short job."""
    total = sum(map(len, missing))
    if total < 500:
        return ""
    picks = np.linspace(0, total - 1, 64).astype(int)
    size = len(missing[0])  # only the very last shard can be shorter
    sample = [items[int(missing[p // size][p % size])] for p in picks]
    minutes = total / measure_rate(encoder, sample, tower) / 60
    return f", {total:,} texts, about {max(minutes, 0.1):.1f} min"


def _encode_missing(missing, items, encoder, tower, dtype, label, progress) -> None:
    from tqdm.auto import tqdm

    total = sum(len(rows) for _, rows in missing)
    with tqdm(total=total, desc=label, unit="text", disable=not (progress and missing)) as bar:
        for file, rows in missing:
            parts = []
            for start in range(rows.start, rows.stop, _CHUNK):
                chunk = items[start : min(start + _CHUNK, rows.stop)]
                parts.append(encoder.encode(chunk, tower, progress=False))
                bar.update(len(chunk))
            shard = np.concatenate(parts).astype(dtype)
            if odd := _odd_row(shard):
                raise ValueError(f"{encoder.name} on {label} from {rows.start}: {odd}")
            atomic_write(file, lambda temporary, shard=shard: np.save(temporary, shard))
            settings = {
                "encoder": encoder.fingerprints[tower], "tower": tower, "dtype": dtype,
                "dim": encoder.dim,
            }  # fmt: skip
            write_manifest(file, rows=len(shard), settings=settings)
