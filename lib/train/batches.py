"""Which examples are read together: those of about one length, in an order that a seed fixes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sentence_transformers.base.sampler import DefaultBatchSampler

_WINDOW = 50


class ByLength(DefaultBatchSampler):
    """Batches of examples of about one length: a batch costs what its longest text costs.

    The examples are shuffled, every ``_WINDOW`` batches of them are sorted by length and cut, and
    the batches are shuffled again. The order depends on the seed and the epoch alone, so that a run
    that goes on after it was killed sees the batches that it had not seen.
    """

    def __init__(self, dataset: Any, batch_size: int, drop_last: bool, seed: int = 0, **_: Any):
        self.batch_size, self.drop_last, self.seed, self.epoch = batch_size, drop_last, seed, 0
        texts = [name for name in dataset.column_names if name != "label"]
        self._lengths = [
            sum(map(len, row)) for row in zip(*(dataset[t] for t in texts), strict=True)
        ]

    def __len__(self) -> int:
        return -(-len(self._lengths) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        import torch

        random = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self._lengths), generator=random).tolist()
        batches = []
        for start in range(0, len(order), self.batch_size * _WINDOW):
            window = order[start : start + self.batch_size * _WINDOW]
            window.sort(key=self._lengths.__getitem__)
            for first in range(0, len(window), self.batch_size):
                batches.append(window[first : first + self.batch_size])
        for i in torch.randperm(len(batches), generator=random).tolist():
            yield batches[i]
