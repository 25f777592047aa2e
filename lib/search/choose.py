"""Which index a corpus is searched by: what the profile's ``backend`` names, or what fits."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from lib.base.parameters import refuse_unknown
from lib.base.paths import say_once
from lib.search.candidates import BACKENDS, multiplies_int8
from lib.search.compressed import CompressedIndex
from lib.search.index import DenseIndex

NAMES = (*BACKENDS, "compressed", "auto")
"""What a profile's ``backend`` may be: the exact ones, this one, and the one that fits."""

SMALL = 200_000
"""Passages up to which ``compressed`` is exact: codes gain little, and the benchmarks' own corpora
are searched by scores that need every passage."""

_ENOUGH_S = 0.1
"""Seconds that an exact search may take before ``auto`` prefers codes."""

_READ = {"exact": 10e9, "codes": 20e9, "cuda": 1e12}
"""Bytes that one search reads in a second, roughly, on two cores or a card."""


def open_dense(
    shards: Sequence[np.ndarray],
    ids: Sequence[str],
    *,
    backend: str = "faiss",
    devices: Sequence[str] = (),
) -> DenseIndex:
    """The index of these vectors that a profile's ``backend`` names; ``auto`` says what it takes.

    ValueError for a backend that there is not, or that this machine cannot run.
    """
    refuse_unknown("no backend", [backend], NAMES)
    name, why = chosen(backend, len(ids), shards[0].shape[1], devices)
    if why:
        say_once(why)
    if name == "compressed":
        return CompressedIndex(shards, ids)
    return DenseIndex(shards, ids, backend=name, devices=devices)


def chosen(backend: str, rows: int, dim: int, devices: Sequence[str] = ()) -> tuple[str, str]:
    """The index that a profile's ``backend`` will be, and a line that says why it is another."""
    if backend == "auto":
        return fitting(rows, dim, memory(), cards(devices))
    if backend == "compressed" and rows <= SMALL:
        return "torch", f"index: torch (exact: codes gain little of {rows:,} passages)"
    return backend, ""


def fitting(rows: int, dim: int, memory: int, card_memory: int = 0) -> tuple[str, str]:
    """The backend for so many vectors, and a line that says what, why, how long and how large.

    Exact search where float32 vectors fit in four fifths of the memory of the cards; else where
    they fit in half of the processor's and one search takes at most a tenth of a second, by int8
    where the processor multiplies 8-bit numbers, and by torch where not; else codes.
    """
    floats = _size("torch", rows, dim)
    if floats <= 0.8 * card_memory:
        return "torch", _line("torch", floats, "cuda", "exact, as the cards hold it")
    name = "int8" if multiplies_int8("cpu") else "torch"
    size = _size(name, rows, dim)
    if size <= memory / 2 and size / _READ["exact"] <= _ENOUGH_S:
        return name, _line(name, size, "exact", "exact, as it fits and is quick enough")
    why = f"approximate: an exact search would read {size / 1e9:.1f} GB"
    return "compressed", _line("compressed", _size("compressed", rows, dim), "codes", why)


def _size(name: str, rows: int, dim: int) -> int:
    """Bytes that a search by so many vectors reads: codes, 8-bit numbers, or float32."""
    return rows * {"compressed": math.ceil(dim / 8), "int8": dim + 8}.get(name, 4 * dim)


def memory_of(
    backend: str, rows: int, dim: int, dtype: str, devices: Sequence[str] = ()
) -> tuple[str, int]:
    """The index that a profile's ``backend`` will be, and the bytes of memory that it keeps.

    None for vectors that are read where they are mapped (faiss; float16 by torch), or that are on
    ``devices``, the cards that search.
    """
    name, _ = chosen(backend, rows, dim, devices)
    on_cards = bool(devices) and name in ("torch", "int8")
    mapped = name == "faiss" or (name == "torch" and dtype == "float16")
    return name, 0 if on_cards or mapped else _size(name, rows, dim)


def _line(name: str, size: float, kind: str, why: str) -> str:
    milliseconds = 1000 * size / _READ[kind]
    return f"index: {name} ({why}); {size / 1e9:.2f} GB, about {milliseconds:.1f} ms a search"


def memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cards(devices: Sequence[str]) -> int:
    """Bytes of memory of these devices that are CUDA cards, all together."""
    import torch

    named = [device for device in devices if device.startswith("cuda")]
    return sum(torch.cuda.get_device_properties(device).total_memory for device in named)
