"""What was stated of ddx-real before this project measured it, each statement as a paired test.

The numbers come from a prototype of another construction (365 diseases, one institute against one
other, no dev half), so what is compared is the direction and size of a difference in P@5.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from lib.base.provenance import result
from lib.search.adaptive import Rule, drift_budget, fixed, orthogonal
from lib.stats import holm, judged, paired
from lib.studies.lam.study import Condition, Study, measured

__all__ = ["results", "statements_table"]


def _stated() -> Iterator[tuple]:
    """(statement, stated difference in P@5, condition and rule for λ, the same of the other)."""
    near, asked, zero = Condition(), Condition(question_weight=1.0), (Condition(), fixed(0.0))
    yield "contrast at λ = 0.4 > H+ alone", 0.038, (near, fixed(0.4)), zero
    yield "contrast at λ = 1 > H+ alone", -0.135, (near, fixed(1.0)), zero
    for name, stated in (("middle", 0.008), ("random", 0.001)):
        yield f"a {name} mimic at 0.4 > H+ alone", stated, (Condition(mimic=name), fixed(0.4)), zero
    turned = (Condition(rotation=True), fixed(0.4))
    yield "the matched rotation at 0.4 > H+ alone", 0.006, turned, zero
    for rho, stated in ((0.8, 0.037), (0.9, 0.037), (0.98, 0.025)):
        yield f"L3, ρ = {rho} > H+ alone", stated, (near, drift_budget(1.0, rho)), zero
    yield "L2, λ = 1 > H+ alone", 0.022, (near, orthogonal(1.0)), zero
    yield "L2, λ = 1 > plain λ = 1", 0.157, (near, orthogonal(1.0)), (near, fixed(1.0))
    yield "maximum over 5 at 0.5 > H+ alone", 0.060, (Condition(form="max"), fixed(0.5)), zero
    both, plain = (asked, fixed(0.4)), (asked, fixed(0.0))
    yield "question added, contrast at 0.4 > question added", 0.019, both, plain
    alone = (Condition(form="question"), fixed(0.0))
    yield "question added, contrast at 0.4 > question alone", 0.034, both, alone


def statements_table(study: Study, k: int = 5) -> pd.DataFrame:
    """statement, stated, difference, low, high, p, p_holm, n, least, verdict (see ``judged``), and
    whether the stated difference lies inside the interval; on the test questions."""
    b = study.benchmark
    rows, out = study.rows(b.test), []

    def p_at_k(condition: Condition, rule: Rule) -> pd.Series:
        return measured(study, condition, rule(study.c()[rows]), rows, k)[0]["p_at_5"]

    for statement, stated, first, second in _stated():
        if first[0].mimic in b.h_minus and (first[0].form != "max" or b.several):
            row = {"statement": statement, "stated": stated}
            out.append(row | paired(p_at_k(*first), p_at_k(*second)))
    table = pd.DataFrame(out)
    table.insert(table.columns.get_loc("p") + 1, "p_holm", holm(table["p"]))
    inside = table["stated"].between(table["low"], table["high"])
    return table.assign(verdict=judged(table), stated_inside=inside.map({True: "yes", False: "no"}))


def results(study: Study, profile, k: int = 5) -> pd.DataFrame:
    """The table, kept as ``ddx_real_statements`` and computed when what is behind it changed."""
    stem = study.benchmark.name.replace("-", "_")
    return result(
        lambda: statements_table(study, k),
        f"{stem}_statements",
        profile.name,
        k=k,
        encoder=study.encoder,
        limit=profile.limit,
        data=study.benchmark.files,
        code=["lib.studies.lam", "lib.studies.lam.statements", "lib.search.corpus_index"],
    )
