"""Candidates of an exact search: products of queries with shards, by one backend each.

``lib.search.index`` scores what they propose once more, exactly, and asks for more until nothing
can be missing. So every backend gives the same answer, and a new one is a class here.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lib.search.blocks import Best, Device, as_tensor, blocks_of

Searched = list[tuple[int, np.ndarray | None]]
"""Shards by number, each with its rows that can be found; None for all of them."""


class Faiss:
    """Candidates from faiss.knn: one call per shard, read from where it is mapped."""

    spare = 16
    """How many more than k are asked for at first."""

    def __init__(self, shards: list[np.ndarray], devices: list[str]):
        if devices != ["cpu"]:
            raise ValueError(f"backend faiss runs on the CPU, not {devices}: use backend='torch'")
        self._shards = shards

    def top(
        self, queries: np.ndarray, searched: Searched, depth: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each searched shard, its best float32 scores and where they are, each (n, depth).

        A score may be more than the product, for what is not known, and never less but by float32
        rounding: a passage that is not given then has a product below the worst score given.
        ``searched`` pairs a shard's number with its rows that can be found, None for all; a
        position counts among those rows. A shard with fewer rows than ``depth`` gives all of them.
        """
        import faiss

        found = []
        for i, rows in searched:
            shard = self._shards[i]
            count = len(shard) if rows is None else len(rows)
            # Whole, where nothing has to be converted or picked; else a little at a time.
            step = count if rows is None and shard.dtype == np.float32 else _FAISS_ROWS
            scores, places = [], []
            for start in range(0, count, step):
                part = slice(start, start + step)
                block = np.ascontiguousarray(
                    shard[part if rows is None else rows[part]], np.float32
                )
                k = min(depth, len(block))
                best, here = faiss.knn(queries, block, k, metric=faiss.METRIC_INNER_PRODUCT)
                scores.append(best)
                places.append(here + start)
            found.append(best_of(np.concatenate(scores, 1), np.concatenate(places, 1), depth))
        return found


_FAISS_ROWS = 4096
"""Rows that are made float32 at a time, so that they stay near the processor."""


def best_of(scores: np.ndarray, places: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``depth`` greatest of scores (n, m) and what stands beside them, in no order."""
    if scores.shape[1] <= depth:
        return scores, places
    best = np.argpartition(-scores, depth - 1, axis=1)[:, :depth]
    return np.take_along_axis(scores, best, axis=1), np.take_along_axis(places, best, axis=1)


class Torch:
    """Candidates from matrix products on any number of devices, which multiply at the same time.

    Shards are cut into blocks, block i for ``devices[i % len(devices)]`` (``lib.search.blocks``).
    Vectors stay float32 or float16, as they are stored; what does not fit on the cards is read from
    the mapped files at each search. Products are those of float32, or of float16 summed in
    float32 with queries of 22 bits, so scores are off by less than DenseIndex allows for.
    ``room`` (bytes of each device) and ``halves`` are as ``Device`` has them.
    """

    spare = 16

    def __init__(
        self,
        shards: list[np.ndarray],
        devices: list[str],
        *,
        room: int | None = None,
        halves: bool | None = None,
    ):
        self.devices = [Device(name, room, halves) for name in devices]
        bytes_a_row = shards[0].shape[1] * shards[0].itemsize
        rows = min(device.rows(bytes_a_row) for device in self.devices)
        turns = itertools.cycle(self.devices)
        for block, device in zip(blocks_of(shards, rows), turns, strict=False):
            device.take(block)

    def top(
        self, queries: np.ndarray, searched: Searched, depth: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """As ``Faiss.top``. ValueError where torch is set to products rougher than float32."""
        kept = dict(searched)

        def search(device: Device) -> dict:
            return device.top(queries, kept, depth)

        # A thread each: while one waits for its file, the others multiply.
        if len(self.devices) == 1:
            parts = [search(self.devices[0])]
        else:
            with ThreadPoolExecutor(len(self.devices)) as pool:
                parts = list(pool.map(search, self.devices))
        best: dict[int, Best] = defaultdict(lambda: Best(depth))
        for number, (scores, positions) in itertools.chain(*(part.items() for part in parts)):
            best[number].join(scores.cpu(), positions.cpu())
        return [tuple(found.numpy() for found in best[i].found()) for i, _ in searched]


class Int8:
    """Candidates from products of 8-bit integers, with a bound on how far each may be off.

    A row x is s n + r: whole numbers n of -127 to 127, its own scale s, a residual r; a query q is
    t m + e. Then x . q = s t (n . m) + r . q + s n . e, and by Cauchy-Schwarz the last two are at
    most |r| |q| + |s n| |e|. That is added, so what ``top`` gives is never below the product, and
    the search stays exact. The rows take d + 8 bytes each, on ``devices`` as for ``Torch``.
    """

    spare = 48

    def __init__(self, shards: list[np.ndarray], devices: list[str]):
        for device in devices:
            if not multiplies_int8(device):
                raise ValueError(
                    f"backend int8 needs a processor with VNNI or AMX, or CUDA; {device} has none. "
                    "Next: backend = 'torch', which gives the same results"
                )
        self._blocks = [
            _in_8_bits(shard, device)
            for shard, device in zip(shards, itertools.cycle(devices), strict=False)
        ]

    def top(
        self, queries: np.ndarray, searched: Searched, depth: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """As ``Faiss.top``, but with the most that each product can be in place of the product."""
        import torch

        asked: dict = {}
        found = []
        for i, rows in searched:
            bounds, positions = [], []
            for number, block in enumerate(self._blocks[i]):
                start = number * len(self._blocks[i][0])  # all but the last are of one length
                first, last, kept = start, start + len(block), None
                if rows is not None:
                    first, last = np.searchsorted(rows, [start, start + len(block)])
                    kept = None if last - first == len(block) else rows[first:last] - start
                if first == last:
                    continue
                if block.device not in asked:
                    asked[block.device] = _Asked(queries, block.device)
                best, places = block.top(asked[block.device], kept, depth)
                bounds.append(best)
                positions.append(places + int(first))
            most, place = torch.cat(bounds, dim=1), torch.cat(positions, dim=1)
            if most.shape[1] > depth:
                most, chosen = torch.topk(most, depth, dim=1, sorted=False)
                place = torch.gather(place, 1, chosen)
            found.append((most, place))
        return [(most.cpu().numpy(), place.cpu().numpy()) for most, place in found]


_INT8_ROWS = {"cpu": 2**14, "cuda": 2**17}
"""Rows multiplied at a time: few, so that products stay near a processor, or many for a card."""


def multiplies_int8(device: str) -> bool:
    """Whether 8-bit products are exact and quick there: VNNI or AMX of a processor, or CUDA."""
    import torch

    if device.partition(":")[0] == "cuda":
        return True
    known = ("_is_vnni_supported", "_is_amx_tile_supported")
    return device == "cpu" and any(getattr(torch.cpu, name, bool)() for name in known)


def _rounded(rows: Any) -> tuple[Any, Any, Any]:
    """Rows (n, d) as int8, the scale of each (n,), and the residuals (n, d)."""
    import torch

    scale = rows.abs().amax(dim=1).clamp_min(1e-30) / 127
    whole = (rows / scale[:, None]).round_()
    return whole.to(torch.int8), scale, rows - whole * scale[:, None]


class _Asked:
    """Queries in 8 bits on a device, and what bounds a product with them."""

    def __init__(self, queries: np.ndarray, device: Any):
        import torch

        rows = torch.from_numpy(queries).to(device)
        self.n = len(rows)
        most = _INT8_ROWS[rows.device.type]
        # CUDA takes integer products of 17 rows and more alone; a processor is slowed by them.
        more = max(0, 32 - self.n) if rows.is_cuda else 0
        padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % 8, 0, more))
        self.whole, self.scale, rest = _rounded(padded)
        self.norm, self.rest_norm = padded.norm(dim=1), rest.norm(dim=1)
        # Written to for every block: fresh memory each time would take as long as the products.
        self._products = torch.empty(len(padded) * most, dtype=torch.int32, device=device)
        self._floats = torch.empty(len(padded) * most, device=device)

    def times(self, whole: Any) -> Any:
        """Products (n, m) with rows in 8 bits, as float32, which the next call writes over."""
        import torch

        shape = (len(self.whole), len(whole))
        size = shape[0] * shape[1]
        products = self._products[:size].view(shape)
        torch._int_mm(self.whole, whole.T, out=products)
        return self._floats[:size].view(shape).copy_(products)


def _in_8_bits(shard: np.ndarray, device: str) -> list[_Rounded]:
    """The blocks of a shard, all but the last of one length."""
    rows = _INT8_ROWS[device.partition(":")[0]]
    return [_Rounded(shard[start : start + rows], device) for start in range(0, len(shard), rows)]


class _Rounded:
    """A block of rows in 8 bits on a device."""

    def __init__(self, rows: np.ndarray, device: str):
        import torch

        floats = as_tensor(rows).to(device).float()
        self._n = len(floats)
        floats = torch.nn.functional.pad(floats, (0, -floats.shape[1] % 8, 0, -self._n % 8))
        self._whole, self._scale, rest = _rounded(floats)
        self._rest_norm = rest.norm(dim=1)
        self._longest = float((floats - rest).norm(dim=1).amax())
        self.device = self._whole.device

    def __len__(self) -> int:
        return self._n

    def top(self, asked: _Asked, kept: np.ndarray | None, depth: int) -> tuple[Any, Any]:
        """The ``depth`` greatest bounds among the ``kept`` rows (None: all), and where they are
        among these, each (n, depth)."""
        import torch

        most = asked.times(self._whole).mul_(self._scale)
        most.addr_(asked.norm / asked.scale, self._rest_norm)
        most = most[: asked.n, : self._n] if kept is None else most[: asked.n, kept]
        bounds, places = torch.topk(most, min(depth, most.shape[1]), dim=1, sorted=False)
        offset = self._longest * asked.rest_norm[: asked.n]
        return bounds * asked.scale[: asked.n, None] + offset[:, None], places


BACKENDS: Mapping[str, type] = {"faiss": Faiss, "torch": Torch, "int8": Int8}
"""What multiplies, by the name that a profile's ``backend`` has."""
