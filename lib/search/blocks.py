"""Blocks of stored vectors on a processor or a card: their products with queries, and the best.

What fits in a card's memory stays there; the rest is read from the mapped files at each search,
through two buffers, so that one is filled while the products with the other are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.model_files import pack, packed_product

STAYING, WORKING = 0.7, 0.2
"""Shares of a card's free memory: for vectors that stay on it, and for buffers and products."""

_ROWS = {"cpu": 2**14, "cuda": 2**17}
"""Rows of a block at most: of 768 float16 each 25 MB, 200 MB on a card."""

_LOWER = 2.0**11
"""A float16 has 11 significant bits: so much smaller is what rounding to it leaves over."""

Found = tuple[np.ndarray, np.ndarray]
"""Scores and positions, both (n, depth)."""


@dataclass(frozen=True)
class Block:
    """Rows ``start`` to ``stop`` of shard number ``shard``; ``stored`` are they, mapped or not."""

    shard: int
    start: int
    stop: int
    stored: np.ndarray


def blocks_of(shards: Sequence[np.ndarray], rows: int) -> Iterator[Block]:
    """The shards cut into blocks of at most so many rows, none over the end of a shard."""
    for number, shard in enumerate(shards):
        for start in range(0, len(shard), rows):
            stop = min(start + rows, len(shard))
            yield Block(number, start, stop, shard[start:stop])


# products -----------------------------------------------------------------------------------------


def in_two_halves(queries: Any) -> tuple[Any, Any]:
    """Float32 queries (n, d) as float16 (2n, d), and the power of two (n, 1) to multiply by.

    A query is 2^e (upper + lower / 2^11), with 22 significant bits of its 24: off by less than
    2.4e-7 of each number. So float16 products lose nothing that float32 ones would keep.
    """
    import torch

    largest = queries.abs().amax(dim=1, keepdim=True)
    scale = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent)
    scaled = queries / scale  # exact: a power of two
    upper = scaled.half()
    lower = ((scaled - upper.float()) * _LOWER).half()
    return torch.cat([upper, lower]), scale


def float16_products(halves: Any, scale: Any, block: Any) -> Any:
    """Inner products, float32 (n, m), of ``in_two_halves`` with float16 vectors (m, d).

    Two float16 multiply exactly in float32, and sums are kept in float32: on a card torch.mm is
    told so (``out_dtype``), whatever its settings for reduced precision are.
    """
    import torch

    if block.device.type == "cuda":
        products = torch.mm(halves, block.T, out_dtype=torch.float32)
    else:
        products = halves.float() @ block.float().T
    n = len(scale)
    return products[:n].add_(products[n:], alpha=1 / _LOWER).mul_(scale)


def refuse_rough_products(on_card: bool) -> None:
    """ValueError where torch may round float32 products to fewer bits (TF32, bfloat16)."""
    import torch

    backends = torch.backends.cuda if on_card else torch.backends.mkldnn
    if backends.matmul.fp32_precision not in ("none", "ieee"):
        raise ValueError(
            "exact search needs products in float32, and torch is set to rougher ones. "
            'Next: torch.set_float32_matmul_precision("highest")'
        )


class Best:
    """The ``depth`` best of a growing number of passages for each query, in no order."""

    def __init__(self, depth: int):
        self._depth = depth
        self._scores: list[Any] = []
        self._positions: list[Any] = []

    def add(self, products: Any, first: int) -> None:
        """Products (n, m) with the next m passages, at positions from ``first`` on."""
        self._keep(*self._top(products, lambda at: at + first))

    def join(self, scores: Any, positions: Any) -> None:
        """The best of other passages, both (n, k)."""
        self._keep(scores, positions)

    def _keep(self, scores: Any, positions: Any) -> None:
        import torch

        self._scores.append(scores)
        self._positions.append(positions)
        if len(self._scores) > 1:
            found, places = torch.cat(self._scores, dim=1), torch.cat(self._positions, dim=1)
            scores, positions = self._top(found, lambda at: places.gather(1, at))
            self._scores, self._positions = [scores], [positions]

    def _top(self, scores: Any, positions: Any) -> tuple[Any, Any]:
        import torch

        best, at = torch.topk(scores, min(self._depth, scores.shape[1]), dim=1, sorted=False)
        return best, positions(at)

    def found(self) -> tuple[Any, Any]:
        """Scores and positions, on the device where they were found."""
        return self._scores[0], self._positions[0]


# a device -----------------------------------------------------------------------------------------


class Device:
    """A processor or a card, and the blocks that it searches.

    ``room`` is how many bytes of its memory may be filled: what is free on a card; None, on a
    processor, leaves vectors where they are mapped, and packs float32 ones, which takes them into
    memory. ``halves`` multiplies float16 vectors as they are (``in_two_halves``): on cards, which
    have units for it.
    """

    def __init__(self, name: str, room: int | None = None, halves: bool | None = None):
        import torch

        self.device = torch.device(name)
        self.on_card = self.device.type == "cuda"
        self._given = room
        self.room = self._free()
        self.halves = self.on_card if halves is None else halves
        self._staying: list[tuple[Block, Any, Any]] = []
        self._passing: list[Block] = []
        self._filled = 0

    def _free(self) -> int | None:
        """Bytes that may be filled now."""
        import torch

        if self._given is None and self.on_card:
            return torch.cuda.mem_get_info(self.device)[0]
        return self._given

    def rows(self, bytes_a_row: int) -> int:
        """Rows of a block: its two buffers fill half of the working share, products the rest."""
        most = _ROWS.get(self.device.type, _ROWS["cuda"])
        if self.room is None:
            return most
        return max(1, min(most, int(WORKING * self.room / 4 / bytes_a_row)))

    def take(self, block: Block) -> None:
        """Search this block too: it stays on the device if there is room, or passes through."""
        size = block.stored.nbytes
        if self.room is not None and self._filled + size > STAYING * self.room:
            self._passing.append(block)
            return
        self._filled += size
        stored = as_tensor(block.stored).to(self.device)
        self._staying.append((block, stored, pack(stored)))

    @property
    def streamed(self) -> int:
        """Bytes that are read anew at each search."""
        return sum(block.stored.nbytes for block in self._passing)

    def top(self, queries: np.ndarray, kept: Mapping[int, np.ndarray | None], depth: int) -> dict:
        """The best of this device's blocks by shard number, (scores, positions) on the device.

        ``kept`` has the rows that can be found of each searched shard, None for all; positions are
        among those.
        """
        import torch

        refuse_rough_products(self.on_card)
        with torch.cuda.device(self.device) if self.on_card else nullcontext():
            asked = torch.from_numpy(queries).to(self.device)
            halves = in_two_halves(asked) if self.halves else None
            step = self._step(len(queries))
            best: dict[int, Best] = {}
            for block, stored, packed in self._searched(kept):
                first, rows = _kept_rows(block, kept[block.shard])
                if rows is not None:
                    stored, packed = stored[torch.from_numpy(rows).to(self.device)], None
                running = best.setdefault(block.shard, Best(depth))
                if packed is not None:
                    running.add(packed_product(asked, packed), first)
                    continue
                for start in range(0, len(stored), step):
                    products = self._products(asked, halves, stored[start : start + step])
                    running.add(products, first + start)
            return {number: running.found() for number, running in best.items()}

    def _products(self, asked: Any, halves: tuple[Any, Any] | None, block: Any) -> Any:
        import torch

        if halves and block.dtype == torch.float16:
            return float16_products(*halves, block)
        return asked @ block.float().T

    def _step(self, queries: int) -> int:
        """Rows whose products fit in memory: each takes three numbers of four bytes a query, two
        for the halves and one to choose from."""
        free = self._free()
        return _ROWS["cuda"] if free is None else max(1, int(WORKING * free / 2 / (12 * queries)))

    def _searched(self, kept: Mapping[int, np.ndarray | None]) -> Iterator[tuple[Block, Any, Any]]:
        """Blocks with a row that can be found, each on the device, and packed where it is."""
        wanted = [entry for entry in self._staying if _has_rows(entry[0], kept)]
        yield from wanted
        passing = [block for block in self._passing if _has_rows(block, kept)]
        if passing:
            for block, stored in self._through_buffers(passing):
                yield block, stored, None

    def _through_buffers(self, blocks: Sequence[Block]) -> Iterator[tuple[Block, Any]]:
        import torch

        copying = torch.cuda.Stream(self.device) if self.on_card else None
        largest = max(blocks, key=lambda block: len(block.stored)).stored
        buffers = [_Buffer(largest, self.device, copying) for _ in range(min(2, len(blocks)))]
        for turn, block in enumerate(blocks):
            buffer = buffers[turn % len(buffers)]
            yield block, buffer.filled(block.stored)
            buffer.was_read()


class _Buffer:
    """Room for one block in pinned memory and on the device; a copy runs beside the products."""

    def __init__(self, like: np.ndarray, device: Any, copying: Any | None):
        import torch

        self._copying = copying
        dtype = as_tensor(like[:1]).dtype
        self._there = torch.empty(like.shape, dtype=dtype, device=device)
        if copying is not None:
            self._here = torch.empty(like.shape, dtype=dtype, pin_memory=True)
            self._copied, self._read = torch.cuda.Event(), torch.cuda.Event()
            # What had this memory before may still be in use: the first copy waits for it, too.
            self._read.record()

    def filled(self, stored: np.ndarray) -> Any:
        """The block on the device. While this reads the file, a card multiplies the one before."""
        import torch

        there = self._there[: len(stored)]
        if self._copying is None:
            return there.copy_(as_tensor(stored))
        self._copied.synchronize()  # the copy before this one has left the pinned memory
        here = self._here[: len(stored)]
        here.copy_(as_tensor(stored))  # by all threads: one alone is slower than the card's bus
        with torch.cuda.stream(self._copying):
            self._copying.wait_event(self._read)
            there.copy_(here, non_blocking=True)
            self._copied.record()
        torch.cuda.current_stream().wait_event(self._copied)
        return there

    def was_read(self) -> None:
        """All products with the block have been asked for: once they are done it may be filled."""
        if self._copying is not None:
            self._read.record()


def as_tensor(stored: np.ndarray) -> Any:
    """The same memory as a tensor. A mapped shard is read-only, and is only read."""
    import warnings

    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(stored)


def _span(block: Block, rows: np.ndarray | None) -> tuple[int, int]:
    """From which to which of a shard's ``rows``, in order, this block has; None is all rows."""
    if rows is None:
        return block.start, block.stop
    first, last = np.searchsorted(rows, (block.start, block.stop))
    return int(first), int(last)


def _has_rows(block: Block, kept: Mapping[int, np.ndarray | None]) -> bool:
    if block.shard not in kept:
        return False
    first, last = _span(block, kept[block.shard])
    return last > first


def _kept_rows(block: Block, rows: np.ndarray | None) -> tuple[int, np.ndarray | None]:
    """The position of the block's first row among ``rows``, and which rows of the block are among
    them: None for all."""
    first, last = _span(block, rows)
    if rows is None or last - first == block.stop - block.start:
        return first, None
    return first, rows[first:last] - block.start
