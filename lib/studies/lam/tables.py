"""The tables of the lambda study: curves over lambda, adaptive rules, and paired claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pandas as pd

from lib.base.provenance import result
from lib.data.benchmark import Benchmark
from lib.search.adaptive import Rule, attenuated, attenuated_linear, drift_budget, fixed, orthogonal
from lib.search.contrast import spectrum
from lib.stats import CLASSES, class_of, holm, judged, paired, summary
from lib.studies.lam.study import Condition, Study, measured

__all__ = [
    "CURVE_COLUMNS",
    "adaptive_table",
    "all_curves",
    "best_lambda",
    "claims_table",
    "spectrum_table",
    "study_results",
]

CURVE_COLUMNS = (
    "hypotheses",
    "mode",
    "lambda",
    "p_at_5",
    "p_at_5_low",
    "p_at_5_high",
    "hit_at_5",
    "ndcg_at_10",
    "mrr",
    "recall_at_10",
    "contamination_at_5",
    "contamination_ratio",
    "target_at_5",
    "both_at_5",
    "mimic_at_5",
    "neither_at_5",
    "degenerate",
    "n",
    "k",
)
"""Columns of every lambda curve. ``degenerate`` counts questions whose query was zero or tiny: they
retrieve nothing and score 0. The 5 of the column names is ``k``."""


def _curves(b: Benchmark) -> Iterator[tuple[str, str, Condition, Sequence[str]]]:
    """(hypotheses, mode, condition, question ids) of every curve this benchmark can show."""
    yield "none", "question alone", Condition(form="question"), b.test
    yield "none", "random passages", Condition(form="random"), b.test
    for mimic in b.h_minus:
        yield mimic, "full search", Condition(mimic=mimic), b.test
    yield "nearest", "matched rotation", Condition(rotation=True), b.test
    yield "nearest", "pool of 100 by H+", Condition(pool=100), b.test
    yield "nearest", "question added, weight 1", Condition(question_weight=1.0), b.test
    yield "nearest", "margin per passage (L4)", Condition(form="margin"), b.test
    if b.several:
        yield "5 nearest", "mean over mimics", Condition(form="mean"), b.test
        yield "5 nearest", "maximum over mimics", Condition(form="max"), b.test
    for label, left_out in (("copied text", b.copied), ("shared documents", b.shared)):
        if left_out:
            kept = [q for q in b.test if q not in left_out]
            yield f"nearest, {label} left out", "full search", Condition(), kept


def all_curves(study: Study, lambdas: Sequence[float], k: int = 5) -> pd.DataFrame:
    """Every curve of the benchmark on its test questions, columns ``CURVE_COLUMNS``.

    Two rows without hypotheses come first, at lambda 0: the question alone (Standard RAG) and
    random passages.
    """
    out = []
    for hypotheses, mode, condition, qids in _curves(study.benchmark):
        for lam in [0.0] if hypotheses == "none" else lambdas:
            table, degenerate = measured(study, condition, lam, study.rows(qids), k)
            label = {"hypotheses": hypotheses, "mode": mode, "lambda": lam}
            out.append(label | summary(table) | {"degenerate": degenerate, "k": k})
    return pd.DataFrame(out, columns=list(CURVE_COLUMNS))


def _families(c: np.ndarray) -> list[list[Rule]]:
    """Each rule with the parameters it may be given, for dev questions with these cosines."""
    grid = (0.4, 0.6, 0.8, 1.0)
    return [
        [fixed(x) for x in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)],
        [attenuated(m, g, c) for m in grid for g in (0.5, 1.0, 2.0)],
        [attenuated_linear(m, g, c) for m in grid for g in (0.5, 1.0, 2.0)],
        [orthogonal(x) for x in grid],
        [drift_budget(1.0, r) for r in (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)],
    ]


def _p_at_k(study: Study, rule: Rule, rows: np.ndarray, k: int) -> pd.Series:
    return measured(study, Condition(), rule(study.c()[rows]), rows, k)[0]["p_at_5"]


def _best(study: Study, rules: Sequence[Rule], k: int) -> Rule:
    """The rule with the best mean P@k on dev questions, the first of equals."""
    dev = study.rows(study.benchmark.dev)
    return max(rules, key=lambda rule: _p_at_k(study, rule, dev, k).mean())


def adaptive_table(study: Study, k: int = 5) -> pd.DataFrame:
    """Rules with parameters chosen on dev, measured once on test against lambda = 0.

    Columns ``rule, chosen_on, p_at_5, difference, low, high, p, p_holm, n, least``; without dev
    questions each rule is shown as it stands in METHODS (``chosen_on`` = "not tuned"). The paper's
    lambda = 1 is always a row.
    """
    dev, test = study.rows(study.benchmark.dev), study.rows(study.benchmark.test)
    if len(dev):
        rules = [_best(study, family, k) for family in _families(study.c()[dev])]
    else:
        rules = [fixed(0.4), orthogonal(1.0), drift_budget(1.0, 0.9)]
    chosen = [f"{len(dev)} dev" if len(dev) else "not tuned"] * len(rules)
    base = _p_at_k(study, fixed(0.0), test, k)
    out = []
    for rule, how in zip([*rules, fixed(1.0)], [*chosen, "paper"], strict=True):
        here = _p_at_k(study, rule, test, k)
        row = {"rule": rule.label, "chosen_on": how, "p_at_5": here.mean()}
        out.append(row | paired(here, base))
    table = pd.DataFrame(out)
    table.insert(7, "p_holm", holm(table["p"]))
    return table


def best_lambda(study: Study, lambdas: Sequence[float], k: int = 5) -> float:
    """The fixed lambda with the best mean P@k on dev questions (0.4 where there are none)."""
    if not study.benchmark.dev:
        return 0.4
    return float(_best(study, [fixed(x) for x in lambdas], k).parameters["lambda"])


def claims_table(study: Study, lambdas: Sequence[float], k: int = 5) -> pd.DataFrame:
    """Each directional statement as one paired test on the test questions, Holm over the family.

    Columns ``claim, metric, a, b, difference, low, high, p, p_holm, least, n, verdict`` (see
    ``judged``). Where dev chose lambda 0 there is no contrast to test at the lambda it chose.
    """
    b, rows = study.benchmark, study.rows(study.benchmark.test)
    at = cache(lambda condition, lam: measured(study, condition, lam, rows, k)[0])
    out = []
    for claim, metric, sign, first, second in _claims(b, best_lambda(study, lambdas, k)):
        one, other = at(*first)[metric], at(*second)[metric]
        values = {"claim": claim, "metric": metric, "a": one.mean(), "b": other.mean()}
        out.append(values | paired(one, other) | {"sign": sign})
    table = pd.DataFrame(out)
    table.insert(8, "p_holm", holm(table["p"]))
    return table.assign(verdict=judged(table, table.pop("sign")))


def _claims(benchmark: Benchmark, star: float) -> Iterator[tuple]:
    """(claim, metric, expected sign, (condition, lambda), (condition, lambda))."""
    at = f"λ = {star:g}"
    here, zero, one = (Condition(), star), (Condition(), 0.0), (Condition(), 1.0)
    turned, asked = Condition(rotation=True), Condition(question_weight=1.0)
    several = (Condition(form="max"), 0.5)
    yield "contrast at λ = 1 beats H+ alone", "p_at_5", 1, one, zero
    yield "contrast at λ = 1 lowers the off-topic share", "neither_at_5", -1, one, zero
    yield "the mimic beats the matched rotation at λ = 1", "p_at_5", 1, one, (turned, 1.0)
    yield "the question added to H+ alone helps", "p_at_5", 1, (asked, 0.0), zero
    if benchmark.several:
        yield "the maximum over 5 mimics at λ = 0.5 beats H+ alone", "p_at_5", 1, several, zero
    if star == 0:
        return
    yield f"contrast at {at} beats H+ alone", "p_at_5", 1, here, zero
    yield f"contrast at {at} lowers the mimic share", "mimic_at_5", -1, here, zero
    if star != 1:
        yield f"the mimic beats the matched rotation at {at}", "p_at_5", 1, here, (turned, star)
    for mimic in benchmark.h_minus:
        if mimic != "nearest":
            other = (Condition(mimic=mimic), star)
            yield f"the nearest mimic beats one {mimic} at {at}", "p_at_5", 1, here, other
    yield f"the question added helps at {at}", "p_at_5", 1, (asked, star), here
    both = f"contrast at {at} helps with the question added"
    yield both, "p_at_5", 1, (asked, star), (asked, 0.0)
    if benchmark.several:
        yield f"the maximum over 5 mimics at λ = 0.5 beats one at {at}", "p_at_5", 1, several, here


def study_results(study: Study, profile, k: int = 5) -> dict[str, pd.DataFrame]:
    """All three tables of a benchmark, kept as ``<benchmark>_lambda|adaptive|claims.csv``.

    A stored one is reused while the code, data and settings behind it are the same; computing them
    takes minutes for the real benchmarks, seconds for the bundled one.
    """
    b, lambdas = study.benchmark, profile.lambdas
    makers = {
        "lambda": lambda: all_curves(study, lambdas, k),
        "adaptive": lambda: adaptive_table(study, k),
        "claims": lambda: claims_table(study, lambdas, k),
    }
    settings = {
        "k": k,
        "lambdas": list(lambdas),
        "encoder": study.encoder,
        "limit": profile.limit,
        "counts": dict(b.counts),
        "code": ["lib.studies.lam", "lib.studies.lam.tables", "lib.search.corpus_index"],
    }
    stem = b.name.replace("-", "_")
    return {
        kind: result(make, f"{stem}_{kind}", profile.name, data=b.files, **settings)
        for kind, make in makers.items()
    }


def spectrum_table(study: Study, qids: Sequence[str], k: int, lam_max: float) -> pd.DataFrame:
    """The lambda spectrum of chosen questions: ``question, start, end`` and a count per class."""
    b, index, out = study.benchmark, study.index, []
    order = np.argsort(index.ranks)
    order = order[index.kept[order]]
    for qid in qids:
        i = b.qids.index(qid)
        pair = np.stack([study.h_plus[i], study.h_minus["nearest"][i]])
        s_plus, s_minus = index.score(pair, order)
        for segment in spectrum(s_plus, s_minus, k, lam_max):
            pids = index.ids[order[list(segment.rows)]]
            counts = Counter(class_of(p, b.targets[qid], b.mimics[qid]) for p in pids)
            row = {"question": qid, "start": segment.start, "end": segment.end}
            out.append(row | {name: counts[name] for name in CLASSES})
    return pd.DataFrame(out)
