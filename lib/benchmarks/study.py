"""How retrieval moves with lambda: curves, controls, adaptive rules and paired claims.

One ``Condition`` names everything that can differ between two curves; one function retrieves for
it. Nothing here needs an LLM: a benchmark brings its hypotheses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lib.benchmarks.base import Benchmark
from lib.contrast import (
    cosine,
    is_degenerate,
    margin_forms,
    matched_rotation,
    max_mimic_forms,
    rerank_pool,
    search_forms,
    shifted_query,
)
from lib.evaluate import measure, summary
from lib.vectors import encode_small

__all__ = ["Condition", "Study", "prepare", "retrieve", "curve", "CURVE_COLUMNS"]

CURVE_COLUMNS = (
    "hypotheses", "mode", "lambda", "p_at_5", "p_at_5_low", "p_at_5_high", "hit_at_5",
    "ndcg_at_10", "mrr", "recall_at_10", "contamination_at_5", "contamination_ratio",
    "target_at_5", "both_at_5", "mimic_at_5", "neither_at_5", "degenerate", "n", "k",
)  # fmt: skip
"""Columns of every lambda curve. ``degenerate`` counts questions whose query was zero or tiny: they
retrieve nothing and score 0. The 5 of the column names is ``k``."""
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
    margin: float = 0.0

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
    encoder: str = ""
    several: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0)))

    def rows(self, keep: Sequence[str]) -> np.ndarray:
        """Row numbers of the question ids in ``keep``, in benchmark order."""
        wanted = set(keep)
        return np.array([i for i, q in enumerate(self.benchmark.qids) if q in wanted], dtype=int)

    def c(self, mimic: str = "nearest") -> np.ndarray:
        """cos(h+, h-) of every question, shape (n,)."""
        return cosine(self.h_plus, self.h_minus[mimic])


def prepare(benchmark: Benchmark, index, encoder) -> Study:
    """Encode questions and hypotheses (each text once, cached) and put them beside the index."""
    b = benchmark
    lists = [b.h_plus, *b.h_minus.values(), *b.several]
    texts = sorted({text for texts in lists for text in texts})
    row = {text: i for i, text in enumerate(texts)}
    vectors = encode_small(texts, encoder, "article")

    def of(some: Sequence[str]) -> np.ndarray:
        return vectors[[row[text] for text in some]]

    return Study(
        benchmark=b,
        index=index,
        question=encode_small(b.questions, encoder, "query"),
        h_plus=of(b.h_plus),
        h_minus={distance: of(some) for distance, some in b.h_minus.items()},
        encoder=encoder.fingerprint,
        several=np.stack([of(some) for some in b.several]) if b.several else np.zeros((0, 0, 0)),
    )


def _mimic_vectors(study: Study, condition: Condition, rows: np.ndarray, seed: int) -> np.ndarray:
    if condition.form == "mean":
        return study.several[rows]
    mimic = study.h_minus[condition.mimic]
    if not condition.rotation:
        return mimic[rows]
    other = _strangers(study.h_plus, mimic, seed)
    return matched_rotation(study.h_plus, mimic, mimic[other])[rows]


def _strangers(h_plus: np.ndarray, mimic: np.ndarray, seed: int) -> np.ndarray:
    """For each question another one whose mimic is neither its own H+ nor its own H-.

    A neighbour's mimic often is the question's own answer, so a draw is moved on until it is not.
    """
    n = len(h_plus)
    other = (np.arange(n) + np.random.default_rng(seed).integers(1, n, size=n)) % n
    for _ in range(n):
        drawn = mimic[other]
        same = np.maximum(cosine(h_plus, drawn), cosine(mimic, drawn)) > 0.999
        if not same.any():
            return other
        other[same] = (other[same] + 1) % n
    raise ValueError("all mimics are the same text: there is no other one to rotate towards")


def retrieve(
    study: Study, condition: Condition, lam: float | np.ndarray, rows: np.ndarray,
    *, depth: int = 10, seed: int = 0,
) -> tuple[dict[str, list[str]], int]:  # fmt: skip
    """Passage ids of each question, best first, and how many queries were degenerate.

    ``lam`` is one number or one per row of ``rows``. A degenerate query retrieves nothing.
    """
    qids = [study.benchmark.qids[i] for i in rows]
    if condition.form == "random":
        rng, found = np.random.default_rng(seed), study.index.ids[study.index.kept]
        n = min(depth, len(found))
        return {q: rng.choice(found, n, replace=False).tolist() for q in qids}, 0
    if condition.form in ("max", "margin"):
        return _by_forms(study, condition, lam, rows, depth)
    if condition.form == "question":
        query = study.question[rows]
    else:
        mimic = _mimic_vectors(study, condition, rows, seed)
        query = shifted_query(
            study.h_plus[rows], mimic, lam, study.question[rows], condition.question_weight
        )
    good = np.flatnonzero(~is_degenerate(query))
    if not len(good):
        return {}, len(rows)
    if condition.pool:
        pool = study.h_plus[rows][good]
        hits = rerank_pool(study.index, pool, query[good], condition.pool, depth)
    else:
        hits = study.index.search(query[good], depth)
    found = {qids[i]: ids.tolist() for i, ids in zip(good, hits.ids, strict=True)}
    return found, len(rows) - len(good)


def _by_forms(study: Study, condition: Condition, lam, rows, depth: int):
    lams = np.broadcast_to(np.asarray(lam, dtype=float), (len(rows),))
    mimic, forms = study.h_minus[condition.mimic], []
    for i, one in zip(rows, lams, strict=True):
        if condition.form == "max":
            forms.append(max_mimic_forms(study.h_plus[i], study.several[i], one))
        else:
            forms.append(margin_forms(study.h_plus[i], mimic[i], one, condition.margin))
    good = [x for x, form in enumerate(forms) if not is_degenerate(form.vectors).any()]
    if not good:
        return {}, len(rows)
    hits = search_forms(study.index, [forms[x] for x in good], depth)
    found = {
        study.benchmark.qids[rows[x]]: ids.tolist() for x, ids in zip(good, hits.ids, strict=True)
    }
    return found, len(rows) - len(good)


def measured(
    study: Study, condition: Condition, lam: float | np.ndarray, rows: np.ndarray, k: int = 5
) -> tuple[pd.DataFrame, int]:
    """Per-question metrics (``lib.evaluate.METRICS``) of one condition at one lambda."""
    found, degenerate = retrieve(study, condition, lam, rows, depth=max(k, 10))
    benchmark = study.benchmark
    qids = [benchmark.qids[i] for i in rows]
    mimics = benchmark.mimics[condition.mimic]
    targets = {q: benchmark.targets[q] for q in qids}
    return measure(found, targets, mimics, k), degenerate


def curve(
    study: Study, condition: Condition, lambdas: Sequence[float], rows: np.ndarray,
    *, hypotheses: str, mode: str, k: int = 5,
) -> pd.DataFrame:  # fmt: skip
    """One row per lambda, columns ``CURVE_COLUMNS``; ``hypotheses`` and ``mode`` are labels."""
    out = []
    for lam in lambdas:
        table, degenerate = measured(study, condition, lam, rows, k)
        label = {"hypotheses": hypotheses, "mode": mode, "lambda": lam}
        out.append(label | summary(table) | {"degenerate": degenerate, "k": k})
    return pd.DataFrame(out, columns=list(CURVE_COLUMNS))
