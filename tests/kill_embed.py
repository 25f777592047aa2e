"""Encode slowly into a cache folder, one text at a time: the child that test_embed.py kills.

Usage: python tests/kill_embed.py FOLDER SECONDS_PER_TEXT
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tqdm.auto  # noqa: E402, F401  (its import must not take the time before a kill)

from lib.embed import HashEncoder  # noqa: E402
from lib.search.vectors import encode_cached  # noqa: E402

TEXTS = [f"passage {i} on disease {i % 17}" for i in range(900)]


class SlowHash(HashEncoder):
    """The hash encoder, with a pause per text."""

    def __init__(self, pause: float):
        super().__init__(dim=32)
        self.pause = pause

    def encode(self, items, tower="query", progress=True):
        time.sleep(self.pause * len(items))
        return super().encode(items, tower, progress)


if __name__ == "__main__":
    print("started", flush=True)
    folder, pause = Path(sys.argv[1]), float(sys.argv[2])
    encode_cached(TEXTS, SlowHash(pause), "article", cache_dir=folder, shard_rows=4, progress=False)
