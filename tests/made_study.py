"""A benchmark whose geometry is known: what contrast does to it can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lib.benchmarks.base import Benchmark
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.studies.lambda_sweep.arms import OpenBenchmark
from lib.studies.lambda_sweep.study import open_benchmark

N, DEV, DIM = 24, 8, 48
QIDS = tuple(f"q{i:02d}" for i in range(N))
_WORDS = ("fever", "rash", "cough", "pain", "swelling", "fatigue", "nausea", "tremor")


class Given:
    """An encoder that looks its vectors up: by text, the same for both towers."""

    def __init__(self, vectors: Mapping[str, np.ndarray], seed: int):
        self.vectors, self.dim = vectors, DIM
        self.name = self.fingerprint = f"given {seed}"
        self.fingerprints = dict.fromkeys(("query", "article"), self.fingerprint)

    def encode(self, items: Sequence, tower: str = "query", progress: bool = True) -> np.ndarray:
        return np.stack([self.vectors[item] for item in items])


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length 1, float32."""
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def made(folder: Path, seed: int = 0, k: int = 5) -> OpenBenchmark:
    """Five targets near h+, five mimic passages between h+ and h-, and 150 of anything.

    cos(h+, h-) is about 0.5, a little more from question to question, and a mimic passage is nearer
    to h+ than a target is: H+ alone retrieves mimic passages, a little contrast repairs that, and
    far too much leaves the topic. Every third question is dev.
    """
    rng = np.random.default_rng(seed)
    plus, other = unit(rng.normal(size=(N, DIM))), rng.normal(size=(N, DIM))
    across = unit(other - np.sum(other * plus, axis=1, keepdims=True) * plus)
    c = np.linspace(0.45, 0.55, N)[rng.permutation(N), None]
    minus = unit(c * plus + np.sqrt(1 - c * c) * across)
    asked = unit(plus + 0.8 * unit(rng.normal(size=(N, DIM))))
    further = unit(rng.normal(size=(N, DIM)))
    documents = {f"z{j:03d}": v for j, v in enumerate(unit(rng.normal(size=(150, DIM))))}
    targets, mimics = {}, {}
    for i, qid in enumerate(QIDS):
        for j in range(5):
            noise = 0.5 * unit(rng.normal(size=(2, DIM)))
            documents[f"{qid}-t{j}"] = unit(plus[i] - 0.15 * across[i] + noise[0])
            documents[f"{qid}-m{j}"] = unit(plus[i] + 0.45 * across[i] + 0.6 * noise[1])
        targets[qid] = frozenset(f"{qid}-t{j}" for j in range(5))
        mimics[qid] = frozenset(f"{qid}-m{j}" for j in range(4)) | {f"{qid}-t0"}
    turn = np.roll(np.arange(N), 5)
    text = {
        name: tuple(f"{name} of {qid}: {_WORDS[i % 8]} {_WORDS[3 * i % 8]}" for i, qid in pairs)
        for name, pairs in ((n, enumerate(QIDS)) for n in ("question", "plus", "minus", "further"))
    }
    columns = {"question": asked, "plus": plus, "minus": minus, "further": further}
    vectors = {
        words: row
        for name, rows in columns.items()
        for words, row in zip(text[name], rows, strict=True)
    }
    turned = tuple(text["minus"][j] for j in turn)
    benchmark = Benchmark(
        name="made-up",
        title="made up",
        corpora=("ddx-mini",),
        qids=QIDS,
        questions=text["question"],
        h_plus=text["plus"],
        h_minus={"nearest": text["minus"], "middle": turned},
        targets=targets,
        mimics=mimics,
        several=tuple(zip(text["minus"], turned, text["further"], strict=True)),
        dev=frozenset(QIDS[::3]),
        copied=frozenset(QIDS[:5]),
        shared=frozenset(QIDS[20:]),
        doubtful=frozenset(QIDS[4:9]),
        errata=frozenset(QIDS[10:12]),
        files=("ddx-mini/qrels.jsonl",),
    )
    names = sorted(documents)
    index = DenseIndex([np.stack([documents[name] for name in names])], names)
    told = {
        pid: f"passage {pid} {_WORDS[i % 8]} {_WORDS[5 * i % 8]}" for i, pid in enumerate(names)
    }
    passages = [Passage(pid, "", told[pid], "made up", {}) for pid in names]
    store = PassageStore.build(folder / f"made-{seed}.sqlite", passages)
    vectors |= {told[pid]: documents[pid] for pid in names}
    bm25 = BM25Index.build([told[pid] for pid in names], names)
    return open_benchmark(benchmark, Retriever(index, Given(vectors, seed), store, bm25), k)


def vectors_of(bench: OpenBenchmark, texts: Sequence[str]) -> np.ndarray:
    """Vectors of these texts, (n, d), float64."""
    return bench.retriever.encoder.encode(texts).astype(np.float64)


def relabelled(bench: OpenBenchmark, qids) -> OpenBenchmark:
    """The same searches, with targets and mimic passages exchanged for some questions."""
    b, chosen = bench.benchmark, set(qids)
    targets = {q: b.mimics[q] if q in chosen else b.targets[q] for q in b.qids}
    mimics = {q: b.targets[q] if q in chosen else b.mimics[q] for q in b.qids}
    return replace(bench, benchmark=replace(b, targets=targets, mimics=mimics))
