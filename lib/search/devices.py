"""Exact search on any number of devices: each holds some shards and multiplies at the same time."""

from __future__ import annotations

import itertools
import warnings

import numpy as np

__all__ = ["TorchSearch"]


class TorchSearch:
    """Candidates from matrix products, for ``lib.search.index.DenseIndex(backend="torch")``."""

    def __init__(self, shards: list[np.ndarray], devices: list[str]):
        import torch

        with warnings.catch_warnings():  # a mapped shard is read-only, and only read
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            pairs = zip(shards, itertools.cycle(devices), strict=False)
            self._blocks = [torch.from_numpy(shard).to(device) for shard, device in pairs]

    def top(self, queries, picks, depth):
        import torch

        places = {self._blocks[i].device for i, _ in picks}
        moved = {place: torch.from_numpy(queries).to(place) for place in places}
        found = []
        for i, local in picks:
            block = self._blocks[i]
            if len(local) < len(block):
                block = block[torch.from_numpy(local).to(block.device)]
            products = moved[block.device] @ block.float().T
            found.append(torch.topk(products, min(depth, len(block)), dim=1, sorted=False))
        return [(scores.cpu().numpy(), rows.cpu().numpy()) for scores, rows in found]
