"""Scores of sentence pairs, kept on disk; and what many of them will cost."""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib import paths
from lib.files import canonical_json, sha256_bytes
from lib.nli.models import Backend, Pairs

__all__ = ["DIRECTIONS", "Plan", "plan", "score_pairs", "throughput"]

DIRECTIONS = ("max", "mean", "forward")
"""C7: the larger or the mean of P(a, b) and P(b, a); forward is the paper's P(a, b) alone."""

_CHUNK, _BLOCK = 1024, 65_536  # pairs between two commits; pairs looked up at a time


def score_pairs(
    pairs: Pairs, backend: Backend, *, direction: str = "max", cache_dir: Path | None = None
) -> np.ndarray:
    """P(contradiction) of each pair, float64 (n,); see DIRECTIONS.

    A pair is scored once and kept in one SQLite file by its texts and the model's fingerprint: a
    run that was killed goes on where it stopped.
    """
    if direction not in DIRECTIONS:
        raise ValueError(f"no direction {direction!r}; there are: {', '.join(DIRECTIONS)}")
    file = (cache_dir or paths.cache("nli")) / "pairs.sqlite"
    there = _kept(pairs, backend, file)
    if direction == "forward" or backend.symmetric:
        return there
    back = _kept([(b, a) for a, b in pairs], backend, file)
    return np.maximum(there, back) if direction == "max" else (there + back) / 2


def _kept(pairs: Pairs, backend: Backend, file: Path) -> np.ndarray:
    file.parent.mkdir(parents=True, exist_ok=True)
    parts = [pairs[start : start + _BLOCK] for start in range(0, len(pairs), _BLOCK)]
    with closing(sqlite3.connect(file, timeout=600)) as store:
        table = "score (key BLOB PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID"
        store.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        return np.concatenate([np.zeros(0), *(_block(part, backend, store) for part in parts)])


def _block(pairs: Pairs, backend: Backend, store: sqlite3.Connection) -> np.ndarray:
    made_by, find = backend.fingerprint, "SELECT value FROM score WHERE key = ?"
    keys = [bytes.fromhex(sha256_bytes(canonical_json([made_by, *p]).encode())[:32]) for p in pairs]
    found = {k: v for k in dict.fromkeys(keys) for (v,) in store.execute(find, (k,))}
    missing = {k: p for k, p in zip(keys, pairs, strict=True) if k not in found}
    # Pairs of one length together: a batch is as slow as its longest pair.
    todo = sorted(missing.items(), key=lambda item: (len("".join(item[1])), item))
    for start in range(0, len(todo), _CHUNK):
        part = todo[start : start + _CHUNK]
        scores = backend.contradiction([pair for _, pair in part])
        if not ((scores >= 0) & (scores <= 1)).all():  # NaN fails too
            raise ValueError(f"{backend.name} gave a probability that is not in [0, 1]")
        rows = [(k, float(s)) for (k, _), s in zip(part, scores, strict=True)]
        store.executemany("INSERT OR REPLACE INTO score VALUES (?, ?)", rows)
        store.commit()
        found |= dict(rows)
    return np.array([found[key] for key in keys], dtype=np.float64)


def throughput(backend: Backend, pairs: Pairs) -> float:
    """Pairs a second on ``pairs``, scores not kept; sentences are encoded if they are new."""
    backend.contradiction(pairs[:2])  # to warm up
    start = time.perf_counter()
    return len(backend.contradiction(pairs)) / (time.perf_counter() - start)


@dataclass(frozen=True)
class Plan:
    """What a run costs at most: ``pairs`` scored, time, memory beside the model, both caches."""

    pairs: int
    seconds: float
    memory_bytes: int
    disk_bytes: int


def plan(
    n_queries: int, docs_per_query: int, sentences_per_doc: float, throughput: float, *,
    pass_rate: float = 1.0, directions: int = 2, dim: int = 384,
) -> Plan:  # fmt: skip
    """Say, before a run starts, its time and memory from the measured ``throughput`` (pairs/s).

    ``pass_rate`` is the share of sentence pairs that passes the filter. Queries share documents,
    which are scored once, so this is the most it can be. Memory is that of one query at a time.
    """
    rows = docs_per_query * sentences_per_doc
    scores = (docs_per_query - 1) / 2 * rows * sentences_per_doc * pass_rate * directions
    memory, disk = rows * dim * 4 + scores * 350, n_queries * (rows * dim * 4 + scores * 40)
    total = round(n_queries * scores)
    made = Plan(total, total / throughput, round(memory), round(disk))
    print(f"{n_queries:,} queries x {docs_per_query} documents x {sentences_per_doc:g} sentences: "
          f"{made.pairs:,} scores, {made.seconds / 3600:.2f} h at {throughput:,.0f} pairs/s, "
          f"{made.memory_bytes / 1e6:,.0f} MB of memory, {made.disk_bytes / 1e9:.2f} GB of cache",
          file=sys.stderr, flush=True)  # fmt: skip
    return made
