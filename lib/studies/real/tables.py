"""The tables of the real sample, all functions of its long table of outcomes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from lib.datasets import EXAMS, GROUPS
from lib.stats import Pair, claims, ratio_interval
from lib.studies.real.arms import Arm, added_arms, arms_of
from lib.studies.real.choice import chosen_lambdas
from lib.studies.real.measures import POOL, TOP
from lib.study import declared_pairs, means, primary_tests

LAMBDA_COLUMNS = (
    "dataset",
    "form",
    "mimic",
    "visibility",
    "lambda",
    "metric",
    "value",
    "low",
    "high",
    "n",
)
"""Of ``real_lambda.csv``. ``visibility``: whether who wrote the hypotheses saw the options."""


def arm_table(values: pd.DataFrame) -> pd.DataFrame:
    """Every arm's mean with its 95 % interval: dataset, arm, metric, value, low, high, n.

    Beside the sets there is ``exams``, both exam sets together.
    """
    both = values[values["dataset"].isin(EXAMS)].assign(dataset="exams")
    every = pd.concat([values, both], ignore_index=True)
    return means(every, sort=True)


def purity_table(values: pd.DataFrame) -> pd.DataFrame:
    """Of the passages in the top fives of exam questions that speak for an option: how many speak
    for the right one? A row an arm: arm, right, wrong (passages), value, low, high, n (questions).

    ``misled`` falls with every passage that is lost; this does not. The interval resamples
    questions. What is drawn several times counts as the mean of its draws.
    """
    exams = values[values["dataset"].isin(EXAMS)]
    metrics = ["supports_right_at_5", "supports_wrong_at_5"]
    spoken = exams[exams["metric"].isin(metrics)]
    rows = []
    for arm, own in spoken.groupby("arm", sort=True):
        counts = TOP * own.pivot(index="qid", columns="metric", values="value")[metrics].to_numpy()
        right, wrong = counts.sum(axis=0)
        if right + wrong == 0:
            continue
        value, low, high = ratio_interval(counts[:, 0], counts.sum(axis=1))
        row = {"arm": arm, "right": right, "wrong": wrong, "value": value}
        rows.append(row | {"low": low, "high": high, "n": len(counts)})
    return pd.DataFrame(rows)


def lambda_rows(table: pd.DataFrame, chosen: Mapping[str, float]) -> pd.DataFrame:
    """The arms of ``arm_table`` that are contrast at some lambda, in ``LAMBDA_COLUMNS``."""
    arms = [arm for lam in (0.0, *chosen.values()) for arm in arms_of(lam)] + added_arms()
    said = {arm.name: _described(arm) for arm in arms}
    known = {name: about for name, about in said.items() if about}
    own = table[table["arm"].isin(known)]
    about = pd.DataFrame([known[arm] for arm in own["arm"]], index=own.index)
    joined = pd.concat([own, about], axis=1)[list(LAMBDA_COLUMNS)]
    keys = ["dataset", "metric", "form", "mimic", "visibility", "lambda"]
    return joined.sort_values(keys, ignore_index=True)


def _described(arm: Arm) -> dict:
    """Form, mimic, visibility and lambda of an arm; empty for one that is no contrast."""
    spec = arm.spec
    if spec is None or spec.form == "random":
        return {}
    form = {"max": "maximum of several", "mean": "mean of several"}.get(spec.form, "one mimic")
    if spec.question_weight:
        form = "question added"
    if spec.pool:
        form = f"pool of {spec.pool}"
    if spec.space == "whitened":
        form = "whitened"
    mimic = "several" if spec.mimic == "several" else "own"
    if spec.mimic == "stranger":
        mimic = "another question's"
    if spec.rotation:
        mimic = "matched rotation"
    visibility = "options" if arm.of == "hypotheses" else "stem"
    return {"form": form, "mimic": mimic, "visibility": visibility, "lambda": spec.lam}


def claims_table(
    values: pd.DataFrame, chosen: Mapping[str, float], instrument: bool
) -> pd.DataFrame:
    """Every declared test with its verdict, then what is exploratory (see ``stats.claims``).

    On exams there are no verdict words where the judge was no instrument. The column ``excludes``
    is for tests of ``misled``: whether a fall counts as exclusion, that is whether ``hit_right`` of
    the same two arms did not fall by more than the declared margin.
    """
    declared = declared_pairs("real", chosen_lambdas(chosen))
    arms = {metric: set(own["arm"]) for metric, own in values.groupby("metric")}
    declared = [p for p in declared if {p.arm, p.against} <= arms.get(p.metric, set())]
    table = claims(values, [*declared, *exploratory_pairs(arms)])
    if not instrument:
        table.loc[table["metric"] != "p_at_5", "verdict"] = ""
    return table.assign(excludes=_excludes(values, table))


def exploratory_pairs(arms: Mapping[str, Collection[str]]) -> list[Pair]:
    """Every arm against H+ alone and against the question; contrast against its controls."""
    pairs = []
    for metric in ("hit_right", "misled", "supports_right_at_5", "reads_right", "p_at_5"):
        measured = arms.get(metric, ())
        for arm in sorted(measured):
            against = ["hplus", "question"]
            lam = arm.partition("@")[2]
            if arm.startswith("chr@"):
                against += [f"chr+rotation@{lam}", f"chr+stranger@{lam}"]
            if arm == f"chr-stem@{lam}":
                against.append("hplus-stem")
            pairs += [
                Pair(f"{arm} against {other}", metric, arm, other)
                for other in against
                if other in measured and arm not in (other, POOL)
            ]
    return pairs


def _excludes(values: pd.DataFrame, table: pd.DataFrame) -> list[str]:
    margin = primary_tests()["real"]["margin"]
    said = []
    for row in table.itertuples():
        if row.metric != "misled" or row.status != "primary":
            said.append("")
            continue
        pair = Pair("", "hit_right", row.arm, row.against)
        low = claims(values, [pair])["low"].iloc[0]
        fewer = row.verdict == "SUPPORTED"
        said.append("yes" if fewer and low > -margin else "no")
    return said


def judged_share(table: pd.DataFrame) -> pd.DataFrame:
    """The judged share of each pooled arm's top five, the least first: dataset, arm, value."""
    own = table[(table["metric"] == "judged_share") & table["dataset"].isin(GROUPS["exams"])]
    return own[["dataset", "arm", "value"]].sort_values("value", ignore_index=True)
