"""The tables of the lambda study: curves over lambda, adaptive rules, and paired claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from lib.adaptive import (
    Rule,
    attenuated,
    attenuated_linear,
    choose,
    drift_budget,
    fixed,
    orthogonal,
)
from lib.benchmarks.study import CURVE_COLUMNS, Condition, Study, curve, measured
from lib.contrast import spectrum
from lib.evaluate import CLASSES, class_of, holm, paired
from lib.provenance import result

__all__ = [
    "adaptive_table", "all_curves", "best_lambda", "claims_table", "spectrum_table",
    "study_results",
]  # fmt: skip

SEVERAL = 5


def _conditions(study: Study) -> Iterator[tuple[str, str, Condition, Sequence[str]]]:
    """(hypotheses, mode, condition, question ids) of every curve this benchmark can show."""
    b = study.benchmark
    test = b.test
    for mimic in b.h_minus:
        yield mimic, "full search", Condition(mimic=mimic), test
    yield "nearest", "matched rotation", Condition(rotation=True), test
    yield "nearest", "pool of 100 by H+", Condition(pool=100), test
    yield "nearest", "question added, weight 1", Condition(question_weight=1.0), test
    yield "nearest", "margin per passage (L4)", Condition(form="margin"), test
    if b.several:
        yield f"{SEVERAL} nearest", "mean over mimics", Condition(form="mean"), test
        yield f"{SEVERAL} nearest", "maximum over mimics", Condition(form="max"), test
    for label, left_out in (("copied text", b.copied), ("shared documents", b.shared)):
        if left_out:
            kept = [q for q in test if q not in left_out]
            yield f"nearest, {label} left out", "full search", Condition(), kept


def all_curves(study: Study, lambdas: Sequence[float], k: int = 5) -> pd.DataFrame:
    """Every curve of the benchmark on its test questions, columns ``CURVE_COLUMNS``.

    Two rows without hypotheses come first, at lambda 0: the question alone (Standard RAG) and
    random passages.
    """
    rows = study.rows(study.benchmark.test)
    parts = [
        curve(study, Condition(form="question"), [0.0], rows, hypotheses="none",
              mode="question alone", k=k),
        curve(study, Condition(form="random"), [0.0], rows, hypotheses="none",
              mode="random passages", k=k),
    ]  # fmt: skip
    for hypotheses, mode, condition, qids in _conditions(study):
        some = study.rows(qids)
        parts.append(curve(study, condition, lambdas, some, hypotheses=hypotheses, mode=mode, k=k))
    return pd.concat(parts, ignore_index=True)[list(CURVE_COLUMNS)]


def _families(study: Study, rows: np.ndarray) -> dict[str, list[Rule]]:
    """Each rule with the parameters it may be given; c's distribution is that of ``rows``."""
    c = study.c()[rows]
    grid = (0.4, 0.6, 0.8, 1.0)
    return {
        "fixed": [fixed(x) for x in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)],
        "L1": [attenuated(m, g, c) for m in grid for g in (0.5, 1.0, 2.0)],
        "L1 linear": [attenuated_linear(m, g, c) for m in grid for g in (0.5, 1.0, 2.0)],
        "L2": [orthogonal(x) for x in grid],
        "L3": [drift_budget(1.0, r) for r in (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)],
    }


def _p_at_k(study: Study, rule: Rule, rows: np.ndarray, k: int) -> pd.Series:
    table, _ = measured(study, Condition(), rule(study.c()[rows]), rows, k)
    return table["p_at_5"]


def adaptive_table(study: Study, k: int = 5) -> pd.DataFrame:
    """Rules with parameters chosen on dev, measured once on test against lambda = 0.

    Columns ``rule, chosen_on, p_at_5, difference, low, high, p, p_holm, n``; without dev questions
    each rule is shown as it stands in METHODS (``chosen_on`` = "not tuned"). The paper's lambda = 1
    is always a row.
    """
    b = study.benchmark
    dev, test = study.rows(sorted(b.dev)), study.rows(b.test)
    if len(dev):
        families = _families(study, dev)
        rules = [
            choose(f, lambda r: _p_at_k(study, r, dev, k).mean())[0] for f in families.values()
        ]
    else:
        rules = [fixed(0.4), orthogonal(1.0), drift_budget(1.0, 0.9)]
    rules.append(fixed(1.0))
    base = _p_at_k(study, fixed(0.0), test, k)
    out = []
    for rule in rules:
        here = _p_at_k(study, rule, test, k)
        how = "paper" if rule is rules[-1] else f"{len(dev)} dev" if len(dev) else "not tuned"
        out.append(
            {"rule": rule.label, "chosen_on": how, "p_at_5": here.mean()} | paired(here, base)
        )
    table = pd.DataFrame(out)
    table.insert(7, "p_holm", holm(table["p"]))
    return table


def best_lambda(study: Study, lambdas: Sequence[float], k: int = 5, **condition) -> float:
    """The fixed lambda with the best mean P@k on dev questions (0.4 where there are none)."""
    dev = study.rows(sorted(study.benchmark.dev))
    if not len(dev):
        return 0.4
    means = [
        measured(study, Condition(**condition), x, dev, k)[0]["p_at_5"].mean() for x in lambdas
    ]
    return float(lambdas[int(np.argmax(means))])


def claims_table(study: Study, lambdas: Sequence[float], k: int = 5) -> pd.DataFrame:
    """Each directional statement as one paired test on the test questions, Holm over the family.

    Columns ``claim, metric, a, b, difference, low, high, p, p_holm, least, n, verdict``; verdict is
    SUPPORTED, AGAINST or INCONCLUSIVE at 5 % after Holm, the same in both directions.
    """
    b, rows = study.benchmark, study.rows(study.benchmark.test)
    star = best_lambda(study, lambdas, k)
    out = []
    for claim, metric, sign, (cond_a, lam_a), (cond_b, lam_b) in _claims(b, star):
        a = measured(study, cond_a, lam_a, rows, k)[0][metric]
        base = measured(study, cond_b, lam_b, rows, k)[0][metric]
        values = {"claim": claim, "metric": metric, "a": a.mean(), "b": base.mean()}
        out.append(values | paired(a, base) | {"sign": sign})
    table = pd.DataFrame(out)
    table.insert(8, "p_holm", holm(table["p"]))
    clear = table["p_holm"] < 0.05
    right = np.sign(table["difference"]) == table.pop("sign")
    table["verdict"] = np.where(~clear, "INCONCLUSIVE", np.where(right, "SUPPORTED", "AGAINST"))
    return table


def _claims(benchmark, star: float):
    """(claim, metric, expected sign, (condition, lambda), (condition, lambda))."""
    at = f"λ = {star:g}"
    here, zero, one = (Condition(), star), (Condition(), 0.0), (Condition(), 1.0)
    turned = (Condition(rotation=True), star)
    asked, only_asked = (
        (Condition(question_weight=1.0), star),
        (Condition(question_weight=1.0), 0.0),
    )
    yield f"contrast at {at} beats H+ alone", "p_at_5", 1, here, zero
    yield f"contrast at {at} lowers the mimic share", "mimic_at_5", -1, here, zero
    yield "contrast at λ = 1 beats H+ alone", "p_at_5", 1, one, zero
    yield "contrast at λ = 1 keeps to the topic", "neither_at_5", -1, one, zero
    yield f"the mimic beats the matched rotation at {at}", "p_at_5", 1, here, turned
    for mimic in benchmark.h_minus:
        if mimic != "nearest":
            other = (Condition(mimic=mimic), star)
            yield f"the nearest mimic beats one {mimic} at {at}", "p_at_5", 1, here, other
    yield "the question added helps under contrast", "p_at_5", 1, asked, here
    yield "contrast helps with the question added", "p_at_5", 1, asked, only_asked
    if benchmark.several:
        several = (Condition(form="max"), 0.5)
        yield "the maximum over 5 mimics at λ = 0.5 beats one mimic", "p_at_5", 1, several, here


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
        "k": k, "lambdas": list(lambdas), "encoder": study.encoder, "limit": profile.limit,
        "counts": dict(b.counts), "code": ["lib.benchmarks.tables", "lib.corpus_index"],
    }  # fmt: skip
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
            counts = dict.fromkeys(CLASSES, 0)
            for pid in index.ids[order[list(segment.rows)]]:
                on = pid in b.targets[qid], pid in b.mimics["nearest"][qid]
                counts[class_of(*on)] += 1
            out.append({"question": qid, "start": segment.start, "end": segment.end} | counts)
    return pd.DataFrame(out)
