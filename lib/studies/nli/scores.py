"""Scores of sentence pairs, kept on disk; and what many of them will cost."""

from __future__ import annotations

import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lib.base import paths
from lib.base.files import CheckedRows, canonical_json, sha256_bytes
from lib.embed import Encoder
from lib.studies.nli.models import Backend, Pairs

DIRECTIONS = ("max", "mean", "forward")
"""Which order of a pair counts: the larger or the mean of P(a, b) and P(b, a), or P(a, b) alone
(``forward``, as in the paper)."""

BLOCK = 1000
"""Couples of texts whose sentence pairs are in memory at a time."""

_CHUNK = 1024  # pairs scored between two commits: at most so many are lost when a run is killed
_LOOKUP = 65_536  # pairs looked up at a time
_SCORE = struct.Struct("<d")  # how a score is stored


def score_pairs(
    pairs: Pairs, backend: Backend, *, direction: str = "max", cache_dir: Path | None = None
) -> np.ndarray:
    """P(contradiction) of each pair, float64, shape (n,); ``direction`` is one of DIRECTIONS.

    A pair is scored once and stored in one SQLite file under its texts and the model's fingerprint:
    a run that was killed goes on where it stopped. ValueError for another direction, or when the
    model gives something that is no probability.
    """
    if direction not in DIRECTIONS:
        raise ValueError(f"no direction {direction!r}; there are: {', '.join(DIRECTIONS)}")
    file = (cache_dir or paths.cache("nli")) / "pairs.sqlite"
    forward = _scores_one_way(pairs, backend, file)
    if direction == "forward" or backend.symmetric:
        return forward
    backward = _scores_one_way([(b, a) for a, b in pairs], backend, file)
    if direction == "max":
        return np.maximum(forward, backward)
    return (forward + backward) / 2


def _scores_one_way(pairs: Pairs, backend: Backend, file: Path) -> np.ndarray:
    """P(contradiction) of each pair in the order given, from the file or made and stored there."""
    kept = CheckedRows(file, short=True)
    parts = [np.zeros(0)]
    for start in range(0, len(pairs), _LOOKUP):
        parts.append(_look_up_or_score(pairs[start : start + _LOOKUP], backend, kept))
    return np.concatenate(parts)


def _look_up_or_score(pairs: Pairs, backend: Backend, kept: CheckedRows) -> np.ndarray:
    keys = [_key(pair, backend) for pair in pairs]
    values = {key: _SCORE.unpack(row)[0] for key, row in kept.get(keys).items()}
    missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in values}
    # Pairs of one length together: a batch is as slow as its longest pair.
    to_score = sorted(missing.items(), key=lambda item: (len("".join(item[1])), item))
    for start in range(0, len(to_score), _CHUNK):
        chunk = to_score[start : start + _CHUNK]
        scores = backend.contradiction([pair for _, pair in chunk])
        if not ((scores >= 0) & (scores <= 1)).all():  # NaN fails too
            raise ValueError(f"{backend.name} gave a probability that is not in [0, 1]")
        new = {key: float(score) for (key, _), score in zip(chunk, scores, strict=True)}
        kept.put({key: _SCORE.pack(score) for key, score in new.items()})
        values.update(new)
    return np.array([values[key] for key in keys], dtype=np.float64)


def _key(pair: tuple[str, str], backend: Backend) -> bytes:
    """What a score is stored under: 128 bits of a hash of the model and both texts."""
    text = canonical_json([backend.fingerprint, *pair])
    return bytes.fromhex(sha256_bytes(text.encode())[:32])


def rates(backend: Backend, encoder: Encoder, pairs: Pairs) -> tuple[float, float]:
    """Scores and newly encoded sentences a second, measured on different ``pairs``.

    Scoring is timed as a run does it, by ``score_pairs``, in a cache of its own; what the model
    itself has to encode is encoded before, since that is counted as sentences.
    """
    different = list(dict.fromkeys(pairs))
    texts = list(dict.fromkeys(text for pair in different for text in pair))
    with TemporaryDirectory() as folder:
        score_pairs(different, backend, direction="forward", cache_dir=Path(folder) / "warm")
        start = time.perf_counter()
        score_pairs(different, backend, direction="forward", cache_dir=Path(folder) / "timed")
        scoring_s = time.perf_counter() - start
    encoder.encode(texts[:2], "article", progress=False)  # the first call loads what it needs
    start = time.perf_counter()
    encoder.encode(texts, "article", progress=False)
    encoding_s = time.perf_counter() - start
    return len(different) / scoring_s, len(texts) / encoding_s


@dataclass(frozen=True)
class Plan:
    """What a run costs at most.

    ``scores`` made and ``sentences`` encoded; ``memory_bytes`` beside the model and the abstracts;
    ``disk_bytes`` of the caches of scores and of vectors together.
    """

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
    sentence pairs that is scored, ``dim`` the size of a sentence vector. Pairs that queries share
    are scored once, so it is the most it can be. Memory is that of the vectors and scores of one
    block, and of all pairs' results; bytes a score or a result were measured, not derived.
    """
    scores_per_s, sentences_per_s = rates
    couples = n_queries * docs_per_query * (docs_per_query - 1) / 2
    scores_per_couple = sentences_per_doc**2 * pass_rate * directions
    scores = couples * scores_per_couple
    sentences = (documents or n_queries * docs_per_query) * sentences_per_doc
    share_in_block = min(1, BLOCK / couples)
    block_sentences = share_in_block * n_queries * docs_per_query * sentences_per_doc
    vectors_bytes = block_sentences * dim * 4 * 3  # float32; three copies while cosines are taken
    block_scores_bytes = min(BLOCK, couples) * scores_per_couple * 350
    made = Plan(
        scores=round(scores),
        sentences=round(sentences),
        seconds=scores / scores_per_s + sentences / sentences_per_s,
        memory_bytes=round(vectors_bytes + block_scores_bytes + couples * 600),
        disk_bytes=round(sentences * (dim * 4 + 100) + scores * 40),
    )
    print(
        f"{n_queries:,} queries x {docs_per_query:g} documents x {sentences_per_doc:g} sentences:"
        f" {made.scores:,} scores at {scores_per_s:,.0f}/s and {made.sentences:,} sentences to"
        f" encode at {sentences_per_s:,.0f}/s: {made.seconds / 3600:.2f} h,"
        f" {made.memory_bytes / 1e6:,.0f} MB of memory, {made.disk_bytes / 1e9:.2f} GB of cache",
        file=sys.stderr,
        flush=True,
    )
    return made
