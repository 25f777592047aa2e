"""Candidates of an exact search: float32 products of queries with shards, by one backend each.

``lib.search.index`` scores what they propose once more, exactly, and asks for more until nothing
can be missing. So every backend gives the same answer, and a new one is a class here.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping

import numpy as np

from lib.model_files import pack, packed_product

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

    Shard i lives on ``devices[i % len(devices)]``, as float32 or float16, as it is stored. On a CPU
    a float32 shard is packed (``lib.model_files.pack_linear_layers``), which takes it into memory.
    """

    def __init__(self, shards: list[np.ndarray], devices: list[str]):
        import torch

        with warnings.catch_warnings():  # a mapped shard is read-only, and only read
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            self._shards = [
                torch.from_numpy(shard).to(device)
                for shard, device in zip(shards, itertools.cycle(devices), strict=False)
            ]
        self._packed = [pack(shard) for shard in self._shards]

    def top(
        self, queries: np.ndarray, searched: Searched, depth: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """As ``Faiss.top``."""
        import torch

        devices = {self._shards[i].device for i, _ in searched}
        queries_on = {device: torch.from_numpy(queries).to(device) for device in devices}
        found = []
        for i, rows in searched:
            shard, packed = self._shards[i], self._packed[i]
            if rows is not None:
                shard, packed = shard[torch.from_numpy(rows).to(shard.device)], None
            on_device = queries_on[shard.device]
            if packed is None:
                products = on_device @ shard.float().T
            else:
                products = packed_product(on_device, packed)
            found.append(torch.topk(products, min(depth, len(shard)), dim=1, sorted=False))
        # Only now are results fetched: until then all devices multiply at the same time.
        return [(scores.cpu().numpy(), positions.cpu().numpy()) for scores, positions in found]


BACKENDS: Mapping[str, type] = {"faiss": Faiss, "torch": Torch}
"""What multiplies, by the name that a profile's ``backend`` has."""
