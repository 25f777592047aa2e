"""The paper's Tables 4 and 5, and what stands behind them: tiers, proxies, collapse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.base.provenance import write_result
from lib.benchmarks.ddx_mini import read
from lib.report import reported, verdict
from lib.stats import holm, mean_interval
from lib.studies.main_tables.accuracy import is_right
from lib.studies.main_tables.experiment import CHOSEN, Experiment
from lib.studies.mimics.items import CASES, TIERS, printed

PHYSICIAN = "the paper's physician"
_BOTH = "both agree"
_ARMS = {"one": "chr", "chosen": CHOSEN, "hplus": "hplus"}
"""The arms of the main tables, by suffix of the columns of ``items``."""
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
    right = is_right(read)
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
    paper = paper.pivot(index="quality", columns="metric", values="value").loc[list(TIERS)]
    rows = []
    for tier, count in paper.astype({"correct": int, "n": int}).iterrows():
        row = {"grader": PHYSICIAN, "measure": "accuracy", "method": "chr", "tier": tier}
        rows.append(row | exact_share(int(count["correct"]), int(count["n"])))
    for grader, grade in grades.items():
        for (measure, method), group in outcomes.groupby(["measure", "method"], sort=False):
            tier_of = group["qid"].map(grade)
            for tier in TIERS:
                values = group.loc[tier_of == tier, "value"]
                row = {"grader": grader, "measure": measure, "method": method, "tier": tier}
                if not measure.startswith(_ACCURACY):
                    row |= _mean(values)
                else:
                    row |= exact_share(int(values.sum()), len(values))
                    if method == "chr":
                        row["reported"] = paper.at[tier, "accuracy"] / 100
                half_width = (row["high"] - row["low"]) / 2
                row["verdict"] = verdict(row["value"], half_width, row.get("reported"), False)
                rows.append(row)
    columns = ["grader", "measure", "method", "tier", "n", "hits", "value", "low", "high"]
    return pd.DataFrame(rows, columns=[*columns, "reported", "verdict"])


def exact_share(hits: int, n: int) -> dict[str, float]:
    """n, hits, value (their share), low, high: Clopper and Pearson's 95 %; missing for n = 0."""
    from scipy.stats import binomtest

    if n == 0:
        return {"n": 0, "hits": hits, "value": np.nan, "low": np.nan, "high": np.nan}
    low, high = binomtest(hits, n).proportion_ci()
    return {"n": n, "hits": hits, "value": hits / n, "low": low, "high": high}


def _mean(values: pd.Series) -> dict[str, float]:
    """n, value, low, high; no interval for fewer than ten values."""
    value, low, high = values.mean(), np.nan, np.nan
    if len(values) >= 10:
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
    for (grader, measure, method), rows in accuracy.groupby(names, sort=False):
        of_tier = rows.set_index("tier")
        tests = tier_tests(of_tier["hits"], of_tier["n"])
        if grader != PHYSICIAN:
            tests[["p", "p_holm"]] = np.nan
        tests.insert(0, "grader", grader)
        tests.insert(1, "measure", measure)
        tests.insert(2, "method", method)
        parts.append(tests)
    return pd.concat(parts, ignore_index=True)


def tier_tests(hits: Mapping[str, int], n: Mapping[str, int]) -> pd.DataFrame:
    """Any difference, then each pair: test, difference, low, high, p, p_holm, mde, n.

    ``hits`` of ``n`` by tier. Holm is over the three pairs; for the rest see ``two_shares``. A pair
    with an empty tier is NOT RUN.
    """
    counts = [(int(hits.get(tier, 0)), int(n.get(tier, 0))) for tier in TIERS]
    first, second, third = counts
    rows = [
        {"test": "any difference", "p": fisher_p(counts), "n": first[1] + second[1] + third[1]},
        {"test": "Excellent > Good"} | two_shares(*first, *second),
        {"test": "Good > Poor"} | two_shares(*second, *third),
        {"test": "Excellent > Poor"} | two_shares(*first, *third),
    ]
    columns = ["test", "difference", "low", "high", "p", "p_holm", "mde", "n"]
    table = pd.DataFrame(rows, columns=columns)
    table["p_holm"] = table["p"]
    pairs = table["p"].notna() & (table.index > 0)
    if pairs.any():
        table.loc[pairs, "p_holm"] = holm(table.loc[pairs, "p"])
    return table


def two_shares(hits_a: int, n_a: int, hits_b: int, n_b: int) -> dict[str, float]:
    """The difference of two shares: n, difference, low, high, p, mde; n alone where one is empty.

    ``low`` and ``high`` are Newcombe's interval, p is Fisher's, ``mde`` is the smallest difference
    that n would have shown with 80 % power (2.8 standard errors).
    """
    from statsmodels.stats.proportion import confint_proportions_2indep

    n = n_a + n_b
    if not n_a or not n_b:
        return {"n": n}
    low, high = confint_proportions_2indep(hits_a, n_a, hits_b, n_b, method="newcomb")
    share = (hits_a + hits_b) / n
    return {
        "n": n,
        "difference": hits_a / n_a - hits_b / n_b,
        "low": low,
        "high": high,
        "p": fisher_p([(hits_a, n_a), (hits_b, n_b)]),
        "mde": 2.8 * np.sqrt(share * (1 - share) * (1 / n_a + 1 / n_b)),
    }


def fisher_p(counts: Sequence[tuple[int, int]]) -> float:
    """Fisher's exact test over any number of groups, each (hits, n); two-sided p.

    The probability of all tables with these margins that are no likelier than the one seen (Freeman
    and Halton, 1951). NaN with fewer than two groups that have any question.
    """
    from scipy.stats import multivariate_hypergeom

    seen = [hits for hits, n in counts if n]
    sizes = [n for _, n in counts if n]
    if len(sizes) < 2:
        return np.nan
    first = np.indices([n + 1 for n in sizes[:-1]]).reshape(len(sizes) - 1, -1)
    last = sum(seen) - first.sum(axis=0)  # the margins leave it no choice
    tables = np.vstack([first, last]).T[(last >= 0) & (last <= sizes[-1])]
    chances = multivariate_hypergeom(m=sizes, n=sum(seen))
    likelihoods = chances.pmf(tables)
    # A little more than its own, so that tables which are as likely are counted.
    as_unlikely = likelihoods <= chances.pmf(seen) * (1 + 1e-7)
    return float(likelihoods[as_unlikely].sum())


def agreement(a: pd.Series, b: pd.Series) -> dict[str, float]:
    """Two graders on what both graded: n, agree (a share), Cohen's kappa, low, high (asymptotic).

    A grader who always gives the same grade agrees at chance level: kappa 0, no interval. None at
    all without questions, or when both give one and the same grade to all of them.
    """
    from statsmodels.stats.inter_rater import cohens_kappa

    a, b = a.align(b, join="inner")
    both = a.isin(TIERS) & b.isin(TIERS)
    a, b = a[both], b[both]
    row = {"n": len(a), "agree": float((a == b).mean())}
    if min(a.nunique(), b.nunique()) < 2:
        kappa = 0.0 if len({*a, *b}) > 1 else np.nan
        return row | {"kappa": kappa, "low": np.nan, "high": np.nan}
    counts = pd.crosstab(a, b).reindex(index=TIERS, columns=TIERS, fill_value=0)
    found = cohens_kappa(counts.to_numpy())
    return row | {"kappa": found.kappa, "low": found.kappa_low, "high": min(found.kappa_upp, 1.0)}


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
    points = {"Excellent": 2, "Good": 1, "Poor": 0}
    # Two people's grades where there are any, else the judge's.
    people = [grader for grader in ("first", "second") if grader in grades] or [*grades][-1:]
    tiers = pd.concat([items["qid"].map(grades[one]).map(points) for one in people], axis=1)
    wanted = {"tier": tiers.mean(axis=1, skipna=False)}

    wide = outcomes.pivot(index="qid", columns=["measure", "method"], values="value")
    measures = outcomes["measure"].unique()
    # P@k is the last measure, and the first reader's answers are the first; they may be the same.
    for measure in dict.fromkeys([measures[-1], measures[0]]):
        name = measure.partition(",")[0]
        for method, lam in ((CHOSEN, "given λ"), ("chr", "λ = 1")):
            gain = wide[measure, method] - wide[measure, "hplus"]
            wanted[f"Δ {name}, {lam}"] = items["qid"].map(gain)

    tried = {column: items[column] for column in ("c", "shared", "copied")}
    tried["H+ names an option"] = (items["plus_option"] != "").where(items["exam"])
    tried["H− names an option"] = (items["minus_option"] != "").where(items["exam"])
    rows = []
    for outcome, of_outcome in wanted.items():
        for proxy, of_proxy in tried.items():
            row = {"outcome": outcome, "proxy": proxy}
            rows.append(row | rank_correlation(of_proxy, of_outcome))
    return pd.DataFrame(rows)


def rank_correlation(x: Sequence, y: Sequence) -> dict[str, float]:
    """Spearman's rho with Bonett and Wright's 95 % interval: rho, low, high, n.

    Missing values are left out; fewer than four, or a constant, correlate with nothing (NaN).
    """
    from scipy.stats import spearmanr

    both = pd.DataFrame({"x": x, "y": y}).dropna().astype(float)
    n = len(both)
    if n < 4 or (both.nunique() < 2).any():
        return {"rho": np.nan, "low": np.nan, "high": np.nan, "n": n}
    rho = float(spearmanr(both["x"], both["y"]).statistic)
    reach = 1.96 * np.sqrt((1 + rho**2 / 2) / (n - 3))
    low = np.tanh(np.arctanh(rho) - reach)
    high = np.tanh(np.arctanh(rho) + reach)
    return {"rho": rho, "low": low, "high": high, "n": n}


def collapse(items: pd.DataFrame, outcomes: pd.DataFrame) -> pd.DataFrame:
    """Does collapse tell the first reader's wrong answers from its right ones? By criterion.

    criterion, method, items, hits, wrong_n, wrong_value (the share of wrong answers that it hits),
    wrong_low, wrong_high (exact), right_n, right_value, right_low, right_high.
    """
    rows = []
    alike = items["c"] > items["c"].quantile(0.9)
    far_from_question = items["near_standard"].quantile(0.1)
    first_reader = outcomes[outcomes["measure"].isin(outcomes["measure"].head(1))]
    for at in ("chosen", "one"):
        answers = first_reader[first_reader["method"] == _ARMS[at]].set_index("qid")["value"]
        answer = items["qid"].map(answers)
        lost = items[f"kept_{at}"] < 0.5
        far = items[f"near_{at}"] < far_from_question
        criteria = {
            "shared > 1/2, kept < 1/2": items[f"collapsed_{at}"],
            "shared > 1/4, kept < 1/2": (items["shared"] > 0.25) & lost,
            "kept < 1/2, whatever is shared": lost,
            "c in the top tenth, far from the question": alike & far,
        }
        for criterion, is_hit in criteria.items():
            row = {"criterion": criterion, "method": _ARMS[at], "items": len(items)}
            row["hits"] = int(is_hit.sum())
            for kind, outcome in (("wrong", 0), ("right", 1)):
                of_kind = is_hit[answer == outcome]
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
