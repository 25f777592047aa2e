"""How a benchmark is searched: H+ and H- under one condition, at one lambda, measured.

One ``Condition`` names everything that can differ between two curves; one function retrieves for
it. Nothing here needs an LLM: a benchmark brings its hypotheses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.data.benchmark import Benchmark
from lib.search import contrast
from lib.search.forms import LinearForms, rerank_pool, search_forms
from lib.search.vectors import encode_small
from lib.stats import measure

__all__ = ["Condition", "Study", "prepare", "retrieve", "measured"]

FORMS = ("single", "mean", "max", "margin", "question", "random")


@dataclass(frozen=True)
class Condition:
    """What is searched with, apart from lambda.

    ``mimic`` names how H- was chosen; ``form`` how it enters: ``single`` (CHR), ``mean`` or ``max``
    over the several nearest mimics, ``margin`` (L4), ``question`` (the question alone, no
    hypotheses) or ``random`` (random passages). ``rotation`` replaces h- by the matched rotation;
    ``pool`` re-ranks the top n by h+; ``question_weight`` adds the question.
    """

    mimic: str = "nearest"
    form: str = "single"
    rotation: bool = False
    pool: int = 0
    question_weight: float = 0.0

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"no form {self.form!r}; there are: {', '.join(FORMS)}")


@dataclass(frozen=True)
class Study:
    """A benchmark with the vectors of its texts, and the index it is run on."""

    benchmark: Benchmark
    index: object
    question: np.ndarray
    h_plus: np.ndarray
    h_minus: Mapping[str, np.ndarray]
    encoder: str
    several: np.ndarray

    def rows(self, keep: Sequence[str]) -> np.ndarray:
        """Row numbers of the question ids in ``keep``, in benchmark order."""
        wanted = set(keep)
        return np.array([i for i, q in enumerate(self.benchmark.qids) if q in wanted], dtype=int)

    def c(self, mimic: str = "nearest") -> np.ndarray:
        """cos(h+, h-) of every question, shape (n,)."""
        return contrast.cosine(self.h_plus, self.h_minus[mimic])


def prepare(benchmark: Benchmark, index, encoder) -> Study:
    """Encode questions and hypotheses (each text once, cached) and put them beside the index."""
    b = benchmark
    lists = [b.h_plus, *b.h_minus.values(), *b.several]
    texts = sorted({text for texts in lists for text in texts})
    known = dict(zip(texts, encode_small(texts, encoder, "article"), strict=True))

    def of(some: Sequence[str]) -> np.ndarray:
        return np.array([known[text] for text in some])

    return Study(
        benchmark=b,
        index=index,
        question=encode_small(b.questions, encoder, "query"),
        h_plus=of(b.h_plus),
        h_minus={distance: of(some) for distance, some in b.h_minus.items()},
        encoder=encoder.fingerprint,
        several=np.array([of(some) for some in b.several]),
    )


def _vectors(study: Study, condition: Condition, lam, rows: np.ndarray, seed: int) -> np.ndarray:
    """What each question is searched with, (n, m, d): the least of m inner products counts."""
    plus, question = study.h_plus[rows], study.question[rows]
    mimic = study.h_minus[condition.mimic]
    if condition.form == "question":
        return question[:, None]
    if condition.form == "max":
        return contrast.max_mimic_forms(plus, study.several[rows], lam)
    if condition.form == "margin":
        forms, _ = contrast.margin_forms(plus, mimic[rows], lam)  # margin 0: no offsets
        return forms
    if condition.form == "mean":
        minus = study.several[rows].mean(axis=1)
    elif condition.rotation:
        other = mimic[_strangers(study.h_plus, mimic, seed)]
        minus = contrast.matched_rotation(plus, mimic[rows], other[rows])
    else:
        minus = mimic[rows]
    query = contrast.shifted_query(plus, minus, lam)
    return (query + np.float32(condition.question_weight) * question)[:, None]


def _strangers(h_plus: np.ndarray, mimic: np.ndarray, seed: int) -> np.ndarray:
    """For each question another one whose mimic is neither its own H+ nor its own H-.

    A neighbour's mimic often is the question's own answer, so a draw is moved on until it is not.
    """
    n = len(h_plus)
    other = (np.arange(n) + np.random.default_rng(seed).integers(1, n, size=n)) % n
    for _ in range(n):
        own = (contrast.cosine(h_plus, mimic[other]), contrast.cosine(mimic, mimic[other]))
        same = np.maximum(*own) > 0.999
        if not same.any():
            return other
        other[same] = (other[same] + 1) % n
    raise ValueError("all mimics are the same text: there is no other one to rotate towards")


def retrieve(
    study: Study,
    condition: Condition,
    lam: float | np.ndarray,
    rows: np.ndarray,
    *,
    depth: int = 10,
    seed: int = 0,
) -> tuple[dict[str, list[str]], int]:
    """Passage ids of each question, best first, and how many queries were degenerate.

    ``lam`` is one number or one per row of ``rows``. A degenerate query retrieves nothing.
    """
    qids = [study.benchmark.qids[i] for i in rows]
    if condition.form == "random":
        rng, found = np.random.default_rng(seed), study.index.ids[study.index.kept]
        n = min(depth, len(found))
        return {q: rng.choice(found, n, replace=False).tolist() for q in qids}, 0
    vectors = _vectors(study, condition, lam, rows, seed)
    good = np.flatnonzero(~contrast.is_degenerate(vectors).any(axis=1))
    if not len(good):
        return {}, len(rows)
    if condition.pool:
        pool = study.h_plus[rows[good]]
        hits = rerank_pool(study.index, pool, vectors[good, 0], condition.pool, depth)
    elif vectors.shape[1] == 1:
        hits = study.index.search(vectors[good, 0], depth)
    else:
        forms = [LinearForms(v, np.zeros(len(v))) for v in vectors[good]]
        hits = search_forms(study.index, forms, depth)
    found = {qids[i]: ids.tolist() for i, ids in zip(good, hits.ids, strict=True)}
    return found, len(rows) - len(good)


def measured(
    study: Study, condition: Condition, lam: float | np.ndarray, rows: np.ndarray, k: int = 5
) -> tuple[pd.DataFrame, int]:
    """Per-question metrics (``lib.stats.METRICS``) of one condition at one lambda.

    Mimic passages are those of the nearest mimic, whatever was searched with: at lambda 0 all
    conditions are one search, and measure the same.
    """
    found, degenerate = retrieve(study, condition, lam, rows, depth=max(k, 10))
    b = study.benchmark
    targets = {b.qids[i]: b.targets[b.qids[i]] for i in rows}
    return measure(found, targets, b.mimics, k), degenerate
