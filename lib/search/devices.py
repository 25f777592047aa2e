"""Exact search on any number of devices: each holds some shards and multiplies at the same time."""

from __future__ import annotations

import itertools
import warnings

import numpy as np

__all__ = ["TorchSearch"]


class TorchSearch:
    """Candidates from matrix products, for ``lib.search.index.DenseIndex(backend="torch")``.

    Shard i lives on ``devices[i % len(devices)]``, as float32 or float16, as it is stored.
    """

    def __init__(self, shards: list[np.ndarray], devices: list[str]):
        import torch

        with warnings.catch_warnings():  # a mapped shard is read-only, and only read
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            self._shards = [
                torch.from_numpy(shard).to(device)
                for shard, device in zip(shards, itertools.cycle(devices), strict=False)
            ]

    def top(
        self, queries: np.ndarray, searched: list[tuple[int, np.ndarray]], depth: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each searched shard, its best float32 scores and where they are, each (n, depth).

        ``searched`` pairs a shard's number with its rows that can be found; a position counts
        among those rows. A shard with fewer rows than ``depth`` gives all of them.
        """
        import torch

        devices = {self._shards[i].device for i, _ in searched}
        queries_on = {device: torch.from_numpy(queries).to(device) for device in devices}
        found = []
        for i, rows in searched:
            shard = self._shards[i]
            if len(rows) < len(shard):
                shard = shard[torch.from_numpy(rows).to(shard.device)]
            products = queries_on[shard.device] @ shard.float().T
            found.append(torch.topk(products, min(depth, len(shard)), dim=1, sorted=False))
        # Only now are results fetched: until then all devices multiply at the same time.
        return [(scores.cpu().numpy(), positions.cpu().numpy()) for scores, positions in found]
