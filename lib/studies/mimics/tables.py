"""The paper's Tables 4 and 5, and what stands behind them: tiers, proxies, collapse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import comb, prod, sqrt

import numpy as np
import pandas as pd

from lib.base.provenance import write_result
from lib.benchmarks.ddx_mini import read
from lib.report import reported, verdict
from lib.stats import holm, mean_interval
from lib.studies.main_tables.experiment import CHOSEN, Experiment
from lib.studies.mimics.items import CASES, TIERS, printed

PHYSICIAN = "the paper's physician"
_BOTH = "both agree"
_ARMS = {"one": "chr", "chosen": CHOSEN, "hplus": "hplus"}
"""The grid's arms, by suffix of the columns of ``items``."""
_ACCURACY = "accuracy, "


def save(experiment: Experiment, table: pd.DataFrame, name: str, **settings) -> pd.DataFrame:
    """Keep a table as ``<results>/<name>.csv`` with all that it depends on; returns it."""
    settings |= {**experiment.behind, "k": experiment.k, "lam": experiment.lam}
    data = [*experiment.data, CASES, "ddx-mini/mimic_grades.jsonl"]
    code = ["lib.studies.mimics"]
    write_result(table, name, experiment.profile.name, code=code, data=data, **settings)
    return table


def graders(judged: pd.DataFrame, name: str) -> dict[str, pd.Series]:
    """Grades by question id of whoever graded these questions: ddx-mini's two graders, "first" and
    "second", and both where they agree; the judge ``name``, last."""
    of_judge = judged.set_index("qid")["grade"]
    rows = pd.DataFrame(read("mimic_grades")).set_index("qid")
    if not rows.index.isin(of_judge.index).any():
        return {name: of_judge}
    both = rows["first"].where(rows["first"] == rows["second"], "")
    return {"first": rows["first"], "second": rows["second"], _BOTH: both, name: of_judge}


def independent(grades: Mapping[str, pd.Series]) -> list[str]:
    """The graders that are no summary of others."""
    return [grader for grader in grades if grader != _BOTH]


def outcomes(items: pd.DataFrame, answers: pd.DataFrame, k: int) -> pd.DataFrame:
    """Outcomes of the hypotheses: measure, method, qid, value, for H+ only and both lambdas.

    A right answer (1 or 0) of every reader to exam questions only, as in the paper's Table 4; then
    P@k of questions whose relevance is known.
    """
    exam = items.loc[items["exam"], "qid"]
    read = answers[answers["method"].isin(_ARMS.values()) & answers["qid"].isin(exam)]
    right = read["letter"] == read["gold"]
    parts = [read.assign(measure=_ACCURACY + read["reader"], value=right)]
    for suffix, method in _ARMS.items():
        precision = items[f"p_{suffix}"]
        parts.append(items.assign(measure=f"P@{k}", method=method, value=precision))
    parts = [part[["measure", "method", "qid", "value"]].dropna() for part in parts]
    return pd.concat(parts, ignore_index=True).astype({"value": float})


# Table 4: tiers -----------------------------------------------------------------------------------


def table4(outcomes: pd.DataFrame, grades: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Table 4 in long form from ``outcomes``: grader, measure, method, tier, n, hits, value, ...

    low and high are exact for accuracy, a bootstrap's for P@k (from n = 10 on). ``reported`` and
    ``verdict`` stand beside CHR's accuracy; the paper's own rows come first.
    """
    paper = reported("table4_mimic_quality")
    paper = paper.pivot(index="quality", columns="metric", values="value")
    label = {"grader": PHYSICIAN, "measure": "accuracy", "method": "chr"}
    rows = []
    for tier in TIERS:
        correct, n = int(paper.at[tier, "correct"]), int(paper.at[tier, "n"])
        rows.append(label | {"tier": tier} | exact_share(correct, n))
    by_measure = outcomes.groupby(["measure", "method"], sort=False)
    for (grader, grade), (key, of_method) in product(grades.items(), by_measure):
        measure, method = key
        for tier in TIERS:
            values = of_method.loc[of_method["qid"].map(grade) == tier, "value"]
            row = {"grader": grader, "measure": measure, "method": method, "tier": tier}
            if measure.startswith(_ACCURACY):
                row |= exact_share(int(values.sum()), len(values))
                if method == "chr":
                    row["reported"] = paper.at[tier, "accuracy"] / 100
            else:
                row |= _mean(values)
            half_width = (row["high"] - row["low"]) / 2
            row["verdict"] = verdict(row["value"], half_width, row.get("reported"), False)
            rows.append(row)
    columns = [*label, "tier", "n", "hits", "value", "low", "high", "reported", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def exact_share(hits: int, n: int) -> dict[str, float]:
    """n, hits, value (their share), low, high: Clopper and Pearson's 95 %; missing for n = 0."""
    from scipy.stats import binomtest

    low, high = binomtest(hits, n).proportion_ci() if n else (np.nan, np.nan)
    return {"n": n, "hits": hits, "value": hits / n if n else np.nan, "low": low, "high": high}


def _mean(values: pd.Series) -> dict[str, float]:
    """n, value, low, high; no interval for fewer than ten values."""
    if len(values) < 10:
        value, low, high = values.mean(), np.nan, np.nan
    else:
        value, low, high = mean_interval(values)
    return {"n": len(values), "value": value, "low": low, "high": high}


def tier_claims(table: pd.DataFrame) -> pd.DataFrame:
    """Differences between the tiers of every accuracy in Table 4, the paper's among them.

    The paper's counts are tested (Fisher). What is measured here was not declared: it has intervals
    and no p.
    """
    names = ["grader", "measure", "method"]
    parts = []
    accuracy = table[table["measure"].str.startswith("accuracy")]
    for label, rows in accuracy.groupby(names, sort=False):
        counts = rows.set_index("tier")[["hits", "n"]].astype(int)
        tests = tier_tests(counts["hits"].to_dict(), counts["n"].to_dict())
        parts.append(tests.assign(**dict(zip(names, label, strict=True))))
    found = pd.concat(parts, ignore_index=True)
    found.loc[found["grader"] != PHYSICIAN, ["p", "p_holm"]] = np.nan
    return found[[*names, *found.columns.drop(names)]]


def tier_tests(hits: Mapping[str, int], n: Mapping[str, int]) -> pd.DataFrame:
    """Any difference, then each pair: test, difference, low, high, p, p_holm, least, n.

    Holm is over the three pairs, ``low`` and ``high`` are Newcombe's interval, ``least`` is the
    smallest difference that n would have shown with 80 % power (2.8 standard errors). A pair with
    an empty tier is NOT RUN.
    """
    from statsmodels.stats.proportion import confint_proportions_2indep

    h = [hits.get(tier, 0) for tier in TIERS]
    m = [n.get(tier, 0) for tier in TIERS]
    rows = [{"test": "any difference", "p": freeman_halton(h, m), "n": sum(m)}]
    for a, b in ((0, 1), (1, 2), (0, 2)):
        row = {"test": f"{TIERS[a]} > {TIERS[b]}", "n": m[a] + m[b]}
        if m[a] and m[b]:
            low, high = confint_proportions_2indep(h[a], m[a], h[b], m[b], method="newcomb")
            share = (h[a] + h[b]) / row["n"]
            error = sqrt(share * (1 - share) * (1 / m[a] + 1 / m[b]))
            row |= {"difference": h[a] / m[a] - h[b] / m[b], "low": low, "high": high}
            row |= {"p": freeman_halton([h[a], h[b]], [m[a], m[b]]), "mde": 2.8 * error}
        rows.append(row)
    columns = ["test", "difference", "low", "high", "p", "p_holm", "mde", "n"]
    table = pd.DataFrame(rows, columns=columns)
    table["p_holm"] = table["p"]
    pairs = table["p"].notna() & (table.index > 0)
    if pairs.any():
        table.loc[pairs, "p_holm"] = holm(table.loc[pairs, "p"])
    return table


def freeman_halton(hits: Sequence[int], n: Sequence[int]) -> float:
    """Fisher's exact test over any number of groups, ``hits`` of ``n`` each; two-sided p.

    The probability, in whole numbers, of all tables with these margins that are no likelier than
    the one seen. NaN with fewer than two groups that have any question.
    """
    groups = [(h, m) for h, m in zip(hits, n, strict=True) if m]
    if len(groups) < 2:
        return np.nan
    sizes = [m for _, m in groups]

    def weight(table: Sequence[int]) -> int:
        return prod(comb(m, x) for m, x in zip(sizes, table, strict=True))

    seen = weight([h for h, _ in groups])
    total, unlikely = 0, 0
    for first in product(*(range(m + 1) for m in sizes[:-1])):
        last = sum(h for h, _ in groups) - sum(first)  # the margins leave it no choice
        if 0 <= last <= sizes[-1]:
            this = weight([*first, last])
            total += this
            unlikely += this if this <= seen else 0
    return unlikely / total


def agreement(a: pd.Series, b: pd.Series) -> dict[str, float]:
    """Two graders on what both graded: n, agree (a share), Cohen's kappa, low, high (asymptotic).

    A grader who always gives the same grade agrees at chance level: kappa 0, no interval. None at
    all without questions, or when both give one and the same grade to all of them.
    """
    from statsmodels.stats.inter_rater import cohens_kappa

    a, b = a.align(b, join="inner")
    both = a.isin(TIERS) & b.isin(TIERS)
    a, b = a[both], b[both]
    out = {"n": len(a), "agree": float((a == b).mean())}
    if min(a.nunique(), b.nunique()) < 2:
        return out | {"kappa": 0.0 if len({*a, *b}) > 1 else np.nan, "low": np.nan, "high": np.nan}
    found = cohens_kappa([[((a == x) & (b == y)).sum() for y in TIERS] for x in TIERS])
    return out | {"kappa": found.kappa, "low": found.kappa_low, "high": min(found.kappa_upp, 1.0)}


# proxies and collapse -----------------------------------------------------------------------------


def proxies(
    items: pd.DataFrame, outcomes: pd.DataFrame, grades: Mapping[str, pd.Series]
) -> pd.DataFrame:
    """Rank correlation of each proxy with what it should predict.

    Outcomes: the graders' tiers (2, 1 or 0, their mean), and what contrast gains over H+ only in
    P@k and in the first reader's right answers.
    """
    if outcomes.empty:
        return pd.DataFrame(columns=["outcome", "proxy"])
    qids = items["qid"]
    points = {"Excellent": 2, "Good": 1, "Poor": 0}
    # Two people's grades where there are any, else the judge's.
    people = [grader for grader in ("first", "second") if grader in grades] or [*grades][-1:]
    tiers = pd.concat([qids.map(grades[grader]).map(points) for grader in people], axis=1)
    wanted = {"tier": tiers.mean(axis=1, skipna=False)}

    wide = outcomes.pivot(index="qid", columns=["measure", "method"], values="value")
    measures = list(dict.fromkeys(outcomes["measure"]))
    # P@k is the last measure, and the first reader's answers are the first; they may be the same.
    for measure in dict.fromkeys((measures[-1], measures[0])):
        for method, lam in ((CHOSEN, "given λ"), ("chr", "λ = 1")):
            gain = wide[measure, method] - wide[measure, "hplus"]
            wanted[f"Δ {measure.partition(',')[0]}, {lam}"] = qids.map(gain)

    tried = {column: items[column] for column in ("c", "shared", "copied")}
    for side, sign in (("plus", "+"), ("minus", "−")):
        names_one = items[f"{side}_option"] != ""
        tried[f"H{sign} names an option"] = names_one.where(items["exam"])
    rows = [
        {"outcome": outcome, "proxy": proxy} | rank_correlation(values, outcome_values)
        for outcome, outcome_values in wanted.items()
        for proxy, values in tried.items()
    ]
    return pd.DataFrame(rows)


def rank_correlation(x: Sequence, y: Sequence) -> dict[str, float]:
    """Spearman's rho with Bonett and Wright's 95 % interval: rho, low, high, n.

    Missing values are left out; fewer than four, or a constant, correlate with nothing (NaN).
    """
    from scipy.stats import spearmanr

    both = pd.DataFrame({"x": x, "y": y}).dropna().astype(float)
    n = len(both)
    if n < 4 or (both.nunique() < 2).any():
        return dict.fromkeys(("rho", "low", "high"), np.nan) | {"n": n}
    rho = float(spearmanr(both["x"], both["y"]).statistic)
    ends = np.arctanh(rho) + np.array([-1.96, 1.96]) * np.sqrt((1 + rho**2 / 2) / (n - 3))
    return {"rho": rho, "low": np.tanh(ends[0]), "high": np.tanh(ends[1]), "n": n}


def collapse(items: pd.DataFrame, outcomes: pd.DataFrame) -> pd.DataFrame:
    """Does collapse tell the first reader's wrong answers from its right ones? By criterion.

    criterion, method, items, hits, wrong_n, wrong_value (the share of wrong answers that it hits),
    wrong_low, wrong_high (exact), right_n, right_value, right_low, right_high.
    """
    rows = []
    alike = items["c"] > items["c"].quantile(0.9)
    far_from_question = items["near_standard"].quantile(0.1)
    first_reader = outcomes[outcomes["measure"].isin(outcomes["measure"].head(1))]
    for suffix in ("chosen", "one"):
        of_method = first_reader[first_reader["method"] == _ARMS[suffix]]
        answer = items["qid"].map(of_method.set_index("qid")["value"])
        lost = items[f"kept_{suffix}"] < 0.5
        far = items[f"near_{suffix}"] < far_from_question
        criteria = {
            "shared > 1/2, kept < 1/2": items[f"collapsed_{suffix}"],
            "shared > 1/4, kept < 1/2": (items["shared"] > 0.25) & lost,
            "kept < 1/2, whatever is shared": lost,
            "c in the top tenth, far from the question": alike & far,
        }
        for criterion, is_hit in criteria.items():
            row = {"criterion": criterion, "method": _ARMS[suffix]}
            row |= {"items": len(items), "hits": int(is_hit.sum())}
            for kind, of_kind in (("wrong", is_hit[answer == 0]), ("right", is_hit[answer == 1])):
                share = exact_share(int(of_kind.sum()), len(of_kind))
                row |= {f"{kind}_{name}": share[name] for name in ("n", "value", "low", "high")}
            rows.append(row)
    return pd.DataFrame(rows)


# Table 5: the last of the worked cases ------------------------------------------------------------


def table5(experiment: Experiment, ranks: pd.DataFrame, case: str) -> pd.DataFrame:
    """Table 5 in long form: source, pair, method, rank, class, passage, right.

    Measured: the top k of H+ only, of CHR at both lambdas and of HyDE. The paper's: its excerpts,
    "target" where one names it; titles and the other classes are not known.
    """
    names = {0.0: "hplus", experiment.lam: CHOSEN, 1.0: "chr"}
    method = ranks["lambda"].map(names).where(ranks["lambda"].notna(), "hyde")
    rows = ranks.assign(source="measured", method=method).dropna(subset="method")
    rows = pd.concat([rows[rows["rank"] <= experiment.k], printed()])
    columns = ["source", "pair", "method", "rank", "class", "passage", "right"]
    return rows.loc[rows["case"] == case, columns].reset_index(drop=True)
