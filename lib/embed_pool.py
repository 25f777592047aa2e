"""Texts in chunks to vectors by several processes, each with a model of its own on one device."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

_AHEAD = 3
"""Chunks handed out for each process, so that none waits for the next."""


def encode_chunks(
    chunks: Iterable[Sequence[Any]], encoders: Sequence[Any], tower: str
) -> Iterator[np.ndarray]:
    """The vectors of each chunk, in order; one process for each encoder, until the last chunk.

    An encoder is sent to its process, so it can be pickled, and opens its model there. Few chunks
    are in memory at a time. RuntimeError where a process was killed.
    """
    spawned = multiprocessing.get_context("spawn")  # CUDA cannot be used after a fork
    started = spawned.Value("i", 0)
    pool = ProcessPoolExecutor(len(encoders), spawned, _start, (encoders, started))
    waiting: deque = deque()
    try:
        for chunk in chunks:
            waiting.append(pool.submit(_encode, chunk, tower))
            if len(waiting) == _AHEAD * len(encoders):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a process that encodes was killed, perhaps because memory was short. What is stored "
            "stays. Next: the same command, with fewer devices, or processes=1"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_ENCODER: Any = None
"""The encoder of this process."""


def _start(encoders: Sequence[Any], started: Any) -> None:
    """Make ready a process that encodes: it ends with its parent, which alone hears Ctrl-C."""
    global _ENCODER
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with started.get_lock():
        _ENCODER = encoders[started.value]
        started.value += 1
    if _ENCODER.devices[0] == "cpu":
        import torch

        torch.set_num_threads(max(1, torch.get_num_threads() // len(encoders)))
    else:  # the processor has nothing to do but to read words for the card
        os.environ["TOKENIZERS_PARALLELISM"] = "true"


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(chunk: Sequence[Any], tower: str) -> np.ndarray:
    return _ENCODER.encode(chunk, tower, progress=False)
