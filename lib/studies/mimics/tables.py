"""The paper's Tables 4 and 5, and what stands behind them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.base.provenance import write_result
from lib.benchmarks.ddx_mini import read
from lib.report import reported, verdict
from lib.stats import mean_interval
from lib.studies.main_tables.experiment import CHOSEN, Experiment
from lib.studies.mimics import tier_statistics
from lib.studies.mimics.cases import CASES, printed
from lib.studies.mimics.tier_statistics import TIERS

PHYSICIAN = "the paper's physician"
_BOTH = "both agree"
_ARMS = {"one": "chr", "chosen": CHOSEN, "hplus": "hplus"}
"""The grid's arms, by suffix of the columns of ``items``."""
_ACCURACY = "accuracy, "


def save(experiment: Experiment, table: pd.DataFrame, name: str, **settings) -> pd.DataFrame:
    """Keep a table as ``<results>/<name>.csv`` with all that it depends on; returns it."""
    grid, code = experiment.grid, ["lib.studies.mimics"]
    settings |= {**grid.behind, "k": grid.k, "lam": experiment.lam}
    data = [*grid.data, CASES, "ddx-mini/mimic_grades.jsonl"]
    write_result(table, name, grid.profile, code=code, data=data, **settings)
    return table


def graders(judged: pd.DataFrame, name: str) -> dict[str, pd.Series]:
    """Grades by question id of whoever graded these questions: ddx-mini's two graders, "first" and
    "second", and both where they agree; the judge ``name``, last."""
    told = judged.set_index("qid")["grade"]
    rows = pd.DataFrame(read("mimic_grades")).set_index("qid")
    if not rows.index.isin(told.index).any():
        return {name: told}
    both = rows["first"].where(rows["first"] == rows["second"], "")
    return {"first": rows["first"], "second": rows["second"], _BOTH: both, name: told}


def independent(grades: Mapping[str, pd.Series]) -> list[str]:
    """The graders that are no summary of others."""
    return [grader for grader in grades if grader != _BOTH]


def outcomes(items: pd.DataFrame, answers: pd.DataFrame, k: int) -> pd.DataFrame:
    """What hypotheses are good for: measure, method, qid, value, for H+ only and both lambdas.

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
        rows.append(label | {"tier": tier} | tier_statistics.exact_share(correct, n))
    for grader, grade in grades.items():
        for (measure, method), of_method in outcomes.groupby(["measure", "method"], sort=False):
            for tier in TIERS:
                values = of_method.loc[of_method["qid"].map(grade) == tier, "value"]
                row = {"grader": grader, "measure": measure, "method": method, "tier": tier}
                if measure.startswith(_ACCURACY):
                    row |= tier_statistics.exact_share(int(values.sum()), len(values))
                    if method == "chr":
                        row["reported"] = paper.at[tier, "accuracy"] / 100
                else:
                    row |= _mean(values)
                half_width = (row["high"] - row["low"]) / 2
                row["verdict"] = verdict(row["value"], half_width, row.get("reported"), False)
                rows.append(row)
    columns = [*label, "tier", "n", "hits", "value", "low", "high", "reported", "verdict"]
    return pd.DataFrame(rows, columns=columns)


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
        by_tier = rows.set_index("tier")
        hits = by_tier["hits"].astype(int).to_dict()
        n = by_tier["n"].astype(int).to_dict()
        tests = tier_statistics.tier_tests(hits, n)
        parts.append(tests.assign(**dict(zip(names, label, strict=True))))
    found = pd.concat(parts, ignore_index=True)
    found.loc[found["grader"] != PHYSICIAN, ["p", "p_holm"]] = np.nan
    others = [column for column in found if column not in names]
    return found[[*names, *others]]


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

    rows = []
    for outcome, outcome_values in wanted.items():
        for proxy, proxy_values in tried.items():
            correlation = tier_statistics.rank_correlation(proxy_values, outcome_values)
            rows.append({"outcome": outcome, "proxy": proxy} | correlation)
    return pd.DataFrame(rows)


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
        method = _ARMS[suffix]
        of_method = first_reader[first_reader["method"] == method]
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
            wrong = _share_hit(is_hit[answer == 0])
            right = _share_hit(is_hit[answer == 1])
            rows.append(
                {
                    "criterion": criterion,
                    "method": method,
                    "items": len(items),
                    "hits": int(is_hit.sum()),
                    "wrong_n": wrong["n"],
                    "wrong_value": wrong["value"],
                    "wrong_low": wrong["low"],
                    "wrong_high": wrong["high"],
                    "right_n": right["n"],
                    "right_value": right["value"],
                    "right_low": right["low"],
                    "right_high": right["high"],
                }
            )
    return pd.DataFrame(rows)


def _share_hit(is_hit: pd.Series) -> dict[str, float]:
    """The share of some answers that a criterion hits, with its exact interval."""
    return tier_statistics.exact_share(int(is_hit.sum()), len(is_hit))


def table5(experiment: Experiment, ranks: pd.DataFrame, case: str) -> pd.DataFrame:
    """Table 5 in long form: source, pair, method, rank, class, passage, right.

    Measured: the top k of H+ only, of CHR at both lambdas and of HyDE. The paper's: its excerpts,
    "target" where one names it; titles and the other classes are not known.
    """
    names = {0.0: "hplus", experiment.lam: CHOSEN, 1.0: "chr"}
    method = ranks["lambda"].map(names).where(ranks["lambda"].notna(), "hyde")
    rows = ranks.assign(source="measured", method=method).dropna(subset="method")
    rows = pd.concat([rows[rows["rank"] <= experiment.grid.k], printed()])
    columns = ["source", "pair", "method", "rank", "class", "passage", "right"]
    return rows.loc[rows["case"] == case, columns].reset_index(drop=True)
