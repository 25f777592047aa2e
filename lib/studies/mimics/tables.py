"""The paper's Tables 4 and 5, and what stands behind them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.base.provenance import write_result
from lib.data.ddx_mini import read
from lib.report import reported, verdict
from lib.stats import holm, mean_interval
from lib.studies.grid.experiment import CHOSEN, Experiment
from lib.studies.mimics import judge, tier_statistics
from lib.studies.mimics.cases import CASES, printed

__all__ = [
    "PHYSICIAN",
    "collapse",
    "graders",
    "outcomes",
    "proxies",
    "save",
    "table4",
    "table5",
    "tier_claims",
]

PHYSICIAN = "the paper's physician"
_ARMS = {"one": "chr", "chosen": CHOSEN, "hplus": "hplus"}
"""The grid's arms, by suffix of the columns of ``items``."""
_ACCURACY = "accuracy, "


def save(experiment: Experiment, table: pd.DataFrame, name: str, **settings) -> pd.DataFrame:
    """Keep a table as ``<results>/<name>.csv`` with all that it depends on; returns it."""
    grid, code = experiment.grid, [judge.__name__, __name__]
    settings |= {**grid.behind, "k": grid.k, "lam": experiment.lam}
    data = [*grid.data, CASES, "ddx-mini/mimic_grades.jsonl"]
    write_result(table, name, grid.profile, code=code, data=data, **settings)
    return table


def graders(told: pd.DataFrame, name: str) -> dict[str, pd.Series]:
    """Grades by question id: ddx-mini's two graders, both where they agree, the judge ``name``."""
    rows = pd.DataFrame(read("mimic_grades")).set_index("qid")
    both = rows["first"].where(rows["first"] == rows["second"], "")
    return {
        "first": rows["first"],
        "second": rows["second"],
        "both agree": both,
        name: told.set_index("qid")["grade"],
    }


def outcomes(items: pd.DataFrame, answers: pd.DataFrame, k: int) -> pd.DataFrame:
    """What hypotheses are good for: measure, method, qid, value, for H+ only and both lambdas.

    A right answer (1 or 0) of every reader to exam questions only, as in the paper's Table 4; then
    P@k of questions whose relevance is known.
    """
    told = answers[answers["method"].isin(_ARMS.values())]
    told = told[told["qid"].isin(items.loc[items["exam"], "qid"])]
    right = told.assign(measure=_ACCURACY + told["reader"], value=told["letter"] == told["gold"])
    parts = [right] + [
        items.assign(measure=f"P@{k}", method=method, value=items[f"p_{at}"])
        for at, method in _ARMS.items()
    ]
    parts = [part[["measure", "method", "qid", "value"]].dropna() for part in parts]
    return pd.concat(parts, ignore_index=True).astype({"value": float})


def table4(told: pd.DataFrame, grades: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Table 4 in long form from ``outcomes``: grader, measure, method, tier, n, hits, value, ...

    low and high are exact for accuracy, a bootstrap's for P@k (from n = 10 on). ``reported`` and
    ``verdict`` stand beside CHR's accuracy; the paper's own rows come first.
    """
    paper = reported("table4_mimic_quality")
    paper = paper.pivot(index="quality", columns="metric", values="value")
    label = {"grader": PHYSICIAN, "measure": "accuracy", "method": "chr"}
    counts = paper[["correct", "n"]].loc[list(tier_statistics.TIERS)].astype(int)
    rows = [
        label | {"tier": t} | tier_statistics.exact_share(*counts.loc[t].tolist())
        for t in tier_statistics.TIERS
    ]
    for grader, grade in grades.items():
        for (measure, method), own in told.groupby(["measure", "method"], sort=False):
            for tier in tier_statistics.TIERS:
                values = own.loc[own["qid"].map(grade) == tier, "value"]
                row = {"grader": grader, "measure": measure, "method": method, "tier": tier}
                if measure.startswith(_ACCURACY):
                    row |= tier_statistics.exact_share(int(values.sum()), len(values))
                    row |= {"reported": paper.at[tier, "accuracy"] / 100} if method == "chr" else {}
                else:
                    row |= _mean(values)
                half, stated = (row["high"] - row["low"]) / 2, row.get("reported")
                rows.append(row | {"verdict": verdict(row["value"], half, stated, False)})
    columns = [*label, "tier", "n", "hits", "value", "low", "high", "reported", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def _mean(values: pd.Series) -> dict[str, float]:
    few = len(values) < 10
    value, low, high = (values.mean(), np.nan, np.nan) if few else mean_interval(values)
    return {"n": len(values), "value": value, "low": low, "high": high}


def tier_claims(table: pd.DataFrame) -> pd.DataFrame:
    """Fisher's tests between the tiers of every accuracy in Table 4, the paper's among them."""
    names, parts = ["grader", "measure", "method"], []
    accuracy = table[table["measure"].str.startswith("accuracy")]
    for label, own in accuracy.groupby(names, sort=False):
        hits, n = (own.set_index("tier")[c].astype(int).to_dict() for c in ("hits", "n"))
        parts.append(
            tier_statistics.tier_tests(hits, n).assign(**dict(zip(names, label, strict=True)))
        )
    found = pd.concat(parts, ignore_index=True)
    return found[[*names, *(c for c in found if c not in names)]]


def proxies(
    items: pd.DataFrame, told: pd.DataFrame, grades: Mapping[str, pd.Series]
) -> pd.DataFrame:
    """Rank correlation of each proxy with what it should predict, Holm over the table.

    Outcomes: the graders' tiers (2, 1 or 0, their mean), and what contrast gains over H+ only in
    P@k and in the first reader's right answers.
    """
    wide = told.pivot(index="qid", columns=["measure", "method"], values="value")
    qids, rows = items["qid"], []
    points = dict(zip(tier_statistics.TIERS, (2, 1, 0), strict=True))
    wanted = {"tier": sum(qids.map(grades[g]).map(points) for g in ("first", "second")) / 2}
    measures = list(dict.fromkeys(told["measure"]))
    for measure in dict.fromkeys((measures[-1], measures[0])):
        for method, lam in ((CHOSEN, "given λ"), ("chr", "λ = 1")):
            gain = wide[measure, method] - wide[measure, "hplus"]
            wanted[f"Δ {measure.partition(',')[0]}, {lam}"] = qids.map(gain)
    tried = {c: items[c] for c in ("c", "shared", "copied")}
    for side, sign in (("plus", "+"), ("minus", "−")):
        tried[f"H{sign} names an option"] = (items[f"{side}_option"] != "").where(items["exam"])
    for outcome, reached in wanted.items():
        for proxy, values in tried.items():
            row = {"outcome": outcome, "proxy": proxy}
            rows.append(row | tier_statistics.rank_correlation(values, reached))
    return _with_holm(pd.DataFrame(rows))


def collapse(items: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """Does collapse tell the first reader's wrong answers from its right ones? By criterion.

    criterion, method, items, hits, wrong_n, wrong_value (the share of wrong answers that it hits),
    wrong_low, wrong_high (exact), right_n, right_value, p (Fisher) and p_holm over the table.
    """
    rows, alike = [], items["c"] > items["c"].quantile(0.9)
    for at in ("chosen", "one"):
        own = told[(told["measure"] == told["measure"].iloc[0]) & (told["method"] == _ARMS[at])]
        answer, lost = items["qid"].map(own.set_index("qid")["value"]), items[f"kept_{at}"] < 0.5
        for criterion, hit in {
            "shared > 1/2, kept < 1/2": items[f"collapsed_{at}"],
            "shared > 1/4, kept < 1/2": (items["shared"] > 0.25) & lost,
            "kept < 1/2, whatever is shared": lost,
            "c in the top tenth, far from the question": alike
            & (items[f"near_{at}"] < items["near_standard"].quantile(0.1)),
        }.items():
            wrong, right = (
                tier_statistics.exact_share(int(hit[answer == x].sum()), int((answer == x).sum()))
                for x in (0, 1)
            )
            row = {"criterion": criterion, "method": _ARMS[at], "items": len(items)}
            row |= {"hits": int(hit.sum())} | {f"wrong_{c}": wrong[c] for c in wrong if c != "hits"}
            row |= {"right_n": right["n"], "right_value": right["value"]}
            p = tier_statistics.freeman_halton(
                [wrong["hits"], right["hits"]], [wrong["n"], right["n"]]
            )
            rows.append(row | {"p": p})
    return _with_holm(pd.DataFrame(rows))


def _with_holm(table: pd.DataFrame) -> pd.DataFrame:
    tested = table["p"].notna()
    table.loc[tested, "p_holm"] = holm(table.loc[tested, "p"]) if tested.any() else np.nan
    return table


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
