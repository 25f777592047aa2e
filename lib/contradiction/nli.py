"""How likely one sentence contradicts another: models behind one contract, their scores kept.

NLI cross-encoders of the hub, such as the paper's PubMedBERT-MNLI-MedNLI, and for laptops
``lib.contradiction.head``. ``lib.contradiction.labelled.quality`` says how good each is.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lib import paths
from lib.contradiction.head import FeatureBackend
from lib.embed import _digest, _folder
from lib.files import canonical_json, sha256_bytes

__all__ = [
    "Backend", "DIRECTIONS", "HubBackend", "Pairs", "Plan", "load_backend", "plan", "score_pairs",
    "sentences", "throughput",
]  # fmt: skip

Pairs = Sequence[tuple[str, str]]
DIRECTIONS = ("max", "mean", "forward")
"""C7: the larger or the mean of P(a, b) and P(b, a); forward is the paper's P(a, b) alone."""

_PUBMEDBERT = "pritamdeka/PubMedBERT-MNLI-MedNLI"
_PROBE = (("The drug lowers blood pressure.", "The drug does not lower blood pressure."),
          ("The drug lowers blood pressure.", "The drug lowers blood pressure."))  # fmt: skip
_CHUNK, _BLOCK = 1024, 65_536  # pairs between two commits; pairs looked up at a time


class Backend(Protocol):
    """An NLI model. ``fingerprint`` names all that moves a score; ``symmetric`` says that the order
    of a pair does not. ``contradiction``: (premise, hypothesis) -> P in [0, 1], float64 (n,)."""

    name: str
    fingerprint: str
    symmetric: bool

    def contradiction(self, pairs: Pairs) -> np.ndarray: ...


def sentences(text: str) -> list[str]:
    """The sentences of a text in order, with single spaces; the library segtok finds their ends."""
    from segtok.segmenter import split_single

    return [s for part in split_single(" ".join(text.split())) if (s := part.strip())]


def load_backend(name: str, **options: Any) -> Backend:
    """``pubmedbert`` (the paper's), ``hub:<name or folder>``, ``head``, ``cosine`` or ``cues``."""
    if name == "pubmedbert" or name.startswith("hub:"):
        model = _PUBMEDBERT if name == "pubmedbert" else name.removeprefix("hub:")
        return HubBackend(name, model, **options)
    return FeatureBackend(name, **options)


class HubBackend:
    """A sequence classifier of the hub, or of a folder, that has a label "contradiction".

    Which column that is comes from the config (``column`` where the config has no names) and is
    then tried on a contradiction and an entailment: ValueError when the model does not agree.
    """

    symmetric = False

    def __init__(
        self, name: str, model: str | Path, *, column: int | None = None, max_tokens: int = 256,
        batch_size: int = 32, device: str | None = None,
    ):  # fmt: skip
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        folder, self.name, self._batch = _folder(model), name, batch_size
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        net = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
        self._net = net.to(self._device).eval()
        self._read = AutoTokenizer.from_pretrained(folder, model_max_length=max_tokens)
        labels = {int(i): str(label).lower() for i, label in net.config.id2label.items()}
        named = [i for i, label in labels.items() if label.startswith("contradict")]
        if column is None and len(named) != 1:
            raise ValueError(f"{model}: its config has the labels {labels}; see its model card and "
                             "pass column=<the number of contradiction>")  # fmt: skip
        self._column = named[0] if column is None else column
        self.fingerprint = f"{_digest(folder)}|column {self._column}|{max_tokens} tokens|float32"
        says = self._probabilities(_PROBE).argmax(axis=1).tolist()
        if says[0] != self._column or says[1] == self._column:
            raise ValueError(
                f"{model}: column {self._column} of {labels} should be contradiction, but for "
                f"{_PROBE} the likeliest are {says}: the labels are in another order, or this is "
                "no NLI model; see its model card, then pass column=<number> or another model"
            )

    def contradiction(self, pairs: Pairs) -> np.ndarray:
        """See Backend; of a pair that is too long the longer sentence loses its end."""
        return self._probabilities(pairs)[:, self._column]

    def _probabilities(self, pairs: Pairs) -> np.ndarray:
        import torch

        out = [np.zeros((0, self._net.config.num_labels))]
        for start in range(0, len(pairs), self._batch):
            a, b = map(list, zip(*pairs[start : start + self._batch], strict=True))
            read = self._read(a, b, truncation="longest_first", padding=True, return_tensors="pt")
            with torch.no_grad():
                logits = self._net(**read.to(self._device)).logits
            out.append(logits.double().softmax(dim=1).cpu().numpy())
        return np.concatenate(out)


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
