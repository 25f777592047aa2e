"""What the devices are asked to do: exact search on any number of them, and a fast CPU's products.

Each device holds some shards, and all multiply at the same time.
"""

from __future__ import annotations

import itertools
import warnings
from functools import partial
from typing import Any

import numpy as np

_LINEAR = "_linear_pointwise"
"""The operator that torch's own compiler puts in place of a linear layer on a CPU."""


class TorchSearch:
    """Candidates from matrix products, for ``lib.search.index.DenseIndex(backend="torch")``.

    Shard i lives on ``devices[i % len(devices)]``, as float32 or float16, as it is stored. On a CPU
    a float32 shard is packed for oneDNN (see ``pack_linear_layers``), which takes it into memory.
    """

    def __init__(self, shards: list[np.ndarray], devices: list[str]):
        import torch

        with warnings.catch_warnings():  # a mapped shard is read-only, and only read
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            self._shards = [
                torch.from_numpy(shard).to(device)
                for shard, device in zip(shards, itertools.cycle(devices), strict=False)
            ]
        self._packed = [_packed(shard) for shard in self._shards]

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
            shard, packed = self._shards[i], self._packed[i]
            if len(rows) < len(shard):
                shard, packed = shard[torch.from_numpy(rows).to(shard.device)], None
            on_device = queries_on[shard.device]
            products = on_device @ shard.float().T if packed is None else _linear(on_device, packed)
            found.append(torch.topk(products, min(depth, len(shard)), dim=1, sorted=False))
        # Only now are results fetched: until then all devices multiply at the same time.
        return [(scores.cpu().numpy(), positions.cpu().numpy()) for scores, positions in found]


def pack_linear_layers(model: Any) -> None:
    """Multiply a float32 model's linear layers by oneDNN, weights packed once; for a CPU only.

    torch gives float32 products to MKL, which leaves half of some processors idle: on one with
    AVX-512 that MKL did not know, MiniLM read 1.8 times as many texts a second this way, and no
    component of a vector moved by more than 3e-7. Builds of torch without oneDNN keep their own
    product.
    """
    import torch

    for layer in model.modules():
        if type(layer) is torch.nn.Linear:
            packed = _packed(layer.weight.detach())
            if packed is not None:
                layer.forward = partial(_linear, weight=packed, bias=layer.bias)


def _packed(weight: Any) -> Any | None:
    """A float32 matrix on a CPU as oneDNN packs it; None where it cannot be, or is empty."""
    import torch

    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not len(weight):
        return None
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, _LINEAR):
        return None
    return torch.ops.mkldnn._reorder_linear_weight(weight)


def _linear(inputs: Any, weight: Any, bias: Any = None) -> Any:
    """``inputs @ weight.T + bias`` for a weight that is packed."""
    import torch

    return getattr(torch.ops.mkldnn, _LINEAR)(inputs, weight, bias, "none", [], "")
