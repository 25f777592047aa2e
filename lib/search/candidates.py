"""Candidates of an exact search: float32 products of queries with shards, by one backend each.

``lib.search.index`` scores what they propose once more, exactly, and asks for more until nothing
can be missing. So every backend gives the same answer, and a new one is a class here.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from lib.search.blocks import Best, Device, blocks_of

Searched = list[tuple[int, np.ndarray | None]]
"""Shards by number, each with its rows that can be found; None for all of them."""


class Faiss:
    """Candidates from faiss.knn: one call per shard, read from where it is mapped."""

    def __init__(self, shards: list[np.ndarray], devices: list[str]):
        if devices != ["cpu"]:
            raise ValueError(f"backend faiss runs on the CPU, not {devices}: use backend='torch'")
        self._shards = shards

    def top(
        self, queries: np.ndarray, searched: Searched, depth: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each searched shard, its best float32 scores and where they are, each (n, depth).

        ``searched`` pairs a shard's number with its rows that can be found, None for all; a
        position counts among those rows. A shard with fewer rows than ``depth`` gives all of them.
        """
        import faiss

        found = []
        for i, rows in searched:
            shard = self._shards[i]
            if rows is not None:
                shard = shard[rows]
            shard = np.ascontiguousarray(shard, dtype=np.float32)
            k = min(depth, len(shard))
            found.append(faiss.knn(queries, shard, k, metric=faiss.METRIC_INNER_PRODUCT))
        return found


class Torch:
    """Candidates from matrix products on any number of devices, which multiply at the same time.

    Shards are cut into blocks, block i for ``devices[i % len(devices)]`` (``lib.search.blocks``).
    Vectors stay float32 or float16, as they are stored; what does not fit on the cards is read from
    the mapped files at each search. Products are those of float32, or of float16 summed in
    float32 with queries of 22 bits, so scores are off by less than DenseIndex allows for.
    ``room`` (bytes of each device) and ``halves`` are as ``Device`` has them.
    """

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


BACKENDS: Mapping[str, type] = {"faiss": Faiss, "torch": Torch}
"""What multiplies, by the name that a profile's ``backend`` has."""
