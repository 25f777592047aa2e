"""Scores of sentence pairs, kept on disk; and what many of them will cost."""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lib.base import paths
from lib.base.files import canonical_json, sha256_bytes
from lib.search.embed import Encoder
from lib.studies.nli.models import Backend, Pairs

__all__ = ["BLOCK", "DIRECTIONS", "Plan", "plan", "rates", "score_pairs"]

DIRECTIONS = ("max", "mean", "forward")
"""C7: the larger or the mean of P(a, b) and P(b, a); forward is the paper's P(a, b) alone."""

BLOCK = 1000
"""Couples of texts whose sentence pairs are in memory at a time."""

_CHUNK, _LOOKUP = 1024, 65_536  # pairs between two commits; pairs looked up at a time


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
    parts = [pairs[start : start + _LOOKUP] for start in range(0, len(pairs), _LOOKUP)]
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


def rates(backend: Backend, encoder: Encoder, pairs: Pairs) -> tuple[float, float]:
    """Scores and newly encoded sentences a second, measured on different ``pairs``.

    Scoring is timed as a run does it, by ``score_pairs``, in a cache of its own; what the model
    itself has to encode is encoded before, since that is counted as sentences.
    """
    some = list(dict.fromkeys(pairs))
    texts = list(dict.fromkeys(text for pair in some for text in pair))
    with TemporaryDirectory() as folder:
        score_pairs(some, backend, direction="forward", cache_dir=Path(folder) / "warm")
        start = time.perf_counter()
        score_pairs(some, backend, direction="forward", cache_dir=Path(folder) / "timed")
        scored = time.perf_counter() - start
    encoder.encode(texts[:2], "article", progress=False)
    start = time.perf_counter()
    encoder.encode(texts, "article", progress=False)
    return len(some) / scored, len(texts) / (time.perf_counter() - start)


@dataclass(frozen=True)
class Plan:
    """What a run costs at most: ``scores`` made, ``sentences`` encoded, time, memory beside the
    model and the abstracts, and both caches."""

    scores: int
    sentences: int
    seconds: float
    memory_bytes: int
    disk_bytes: int


def plan(
    n_queries: int,
    docs_per_query: float,
    sentences_per_doc: float,
    rates: tuple[float, float],
    *,
    documents: int = 0,
    pass_rate: float = 1.0,
    directions: int = 2,
    dim: int = 384,
) -> Plan:
    """Say, before a run starts, its time and memory from the measured ``rates`` (see there).

    ``documents`` are the different ones (0: no two queries share any), ``pass_rate`` the share of
    sentence pairs that is scored. Pairs that queries share are scored once, so it is the most it
    can be. Memory is that of the vectors and scores of one block, and of all pairs' results.
    """
    couples = n_queries * docs_per_query * (docs_per_query - 1) / 2
    per_couple = sentences_per_doc**2 * pass_rate * directions
    texts = (documents or n_queries * docs_per_query) * sentences_per_doc
    block = min(1, BLOCK / couples) * n_queries * docs_per_query * sentences_per_doc
    memory = block * dim * 4 * 3 + min(BLOCK, couples) * per_couple * 350 + couples * 600
    made = Plan(
        round(couples * per_couple),
        round(texts),
        couples * per_couple / rates[0] + texts / rates[1],
        round(memory),
        round(texts * (dim * 4 + 100) + couples * per_couple * 40),
    )
    print(
        f"{n_queries:,} queries x {docs_per_query:g} documents x {sentences_per_doc:g} sentences:"
        f" {made.scores:,} scores at {rates[0]:,.0f}/s and {made.sentences:,} sentences to encode"
        f" at {rates[1]:,.0f}/s: {made.seconds / 3600:.2f} h, {made.memory_bytes / 1e6:,.0f} MB "
        f"of memory, {made.disk_bytes / 1e9:.2f} GB of cache",
        file=sys.stderr,
        flush=True,
    )
    return made
