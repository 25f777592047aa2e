"""What judged contradiction says: how much there is, when, and what contrast does to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from lib.data.judgments import Verdict, verdicts
from lib.stats import paired, ratio_interval
from lib.studies.contradiction.study import PERIODS
from lib.studies.judged.sample import ARMS, period_of

Found = Mapping[tuple[str, str, str], Verdict]
MEASURES = ("same", "agree", "disagree")


def shares(found: Found) -> pd.DataFrame:
    """Of the judged pairs of each group, how many are on one question, agree and disagree.

    Columns: group, measure, count, value, low, high, n (pairs), pools. Both passes must say so;
    "disagree_any" is what either says. "disagree_of_same" is of the pairs on one question alone:
    no other pair could disagree, so it is what tells how much contradiction there is. Planted
    pairs are left out. The interval resamples pools; where none or all are counted it has no
    width, and says nothing.
    """
    groups = defaultdict(lambda: defaultdict(list))
    for (pool, a, b), verdict in found.items():
        group = pool.partition("/")[0]
        if group in ("mini", "query", "near", "real") and "plant:" not in a + b:
            groups[group][pool].append(verdict)
    rows = []
    for group, pools in sorted(groups.items()):
        for measure in (*MEASURES, "disagree_any"):
            counts = [(_count(own, measure), len(own)) for own in pools.values()]
            rows.append((group, measure, *_share(counts)))
        counts = [(_count(own, "disagree"), _count(own, "same")) for own in pools.values()]
        rows.append((group, "disagree_of_same", *_share(counts)))
    columns = ["group", "measure", "count", "value", "low", "high", "n", "pools"]
    return pd.DataFrame(rows, columns=columns)


def _share(counts: Iterable[tuple[int, int]]) -> tuple[int, float, float, float, int, int]:
    """count, value, low, high, n and pools of (hits, of) by pool; pools of nothing are left out."""
    own = np.array([(hits, of) for hits, of in counts if of])
    count, n = own.sum(axis=0)
    return count, *ratio_interval(*own.T), n, len(own)


def _count(verdicts: Iterable[Verdict], measure: str) -> int:
    if measure == "same":
        return sum(verdict.same for verdict in verdicts)
    if measure == "disagree_any":
        return sum(verdict.disagree_any for verdict in verdicts)
    return sum(verdict.stance == measure for verdict in verdicts)


def reasons(rows: Iterable[Mapping]) -> pd.DataFrame:
    """Why pairs of evidence-mini disagree where both passes say that they do.

    Columns: reason (the first pass's), pairs, share, again (of them the share for which the second
    pass gave the same reason).
    """
    rows = list(rows)
    found = {key for key, verdict in verdicts(rows).items() if verdict.stance == "disagree"}
    said = {judge: {} for judge in ("first", "second")}
    for row in rows:
        key = (row["pool"], row["a"], row["b"])
        if key in found and key[0].startswith("mini/") and "plant:" not in key[1] + key[2]:
            said.get(row["judge"], {})[key] = row["reason"]
    first = pd.Series(said["first"])
    same = first == pd.Series(said["second"]).reindex(first.index)
    table = same.groupby(first.to_numpy()).agg(["size", "mean"]).rename_axis("reason")
    table = table.sort_values("size", ascending=False).reset_index()
    table.insert(2, "share", table["size"] / len(first))
    return table.rename(columns={"size": "pairs", "mean": "again"})


def by_period(
    found: Found, years: Mapping[str, int], group: str, drawn: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Of the abstracts of each period that were judged, the share that some other one contradicts.

    Columns: period, value, low, high, n; periods without any are left out, and "all" comes last.
    ``group`` is "mini" or "near": of the latter only the drawn abstracts count, so every period
    speaks for its own. In "all" an abstract stands for as many as it was drawn from: ``drawn`` is
    the share of each period that was drawn (``sample.share_drawn``; default: all of it). Intervals
    are Wilson's, that of "all" resamples abstracts within their period.
    """
    from statsmodels.stats.proportion import proportion_confint

    contradicted: dict[str, float] = {}
    for (pool, a, b), verdict in found.items():
        kind, _, name = pool.partition("/")
        if kind != group or "plant:" in a + b:
            continue
        for i in (a, b):
            if group == "mini" or i == name:
                said = float(verdict.stance == "disagree")
                contradicted[i] = max(contradicted.get(i, 0.0), said)
    values = defaultdict(list)
    for i, value in contradicted.items():
        values[period_of(years[i])].append(value)
    rows = []
    for period in (period for period in PERIODS if period in values):
        count, n = int(sum(values[period])), len(values[period])
        rows.append((period, count / n, *proportion_confint(count, n, method="wilson"), n))
    weights = {period: 1 / (drawn or {}).get(period, 1.0) for period in values}
    rows.append(("all", *_weighted(values, weights), len(contradicted)))
    return pd.DataFrame(rows, columns=["period", "value", "low", "high", "n"])


def _weighted(
    values: Mapping[str, Sequence[float]], weights: Mapping[str, float], seed: int = 0
) -> tuple[float, float, float]:
    """The weighted mean of all values and its 95 % interval, resampled within each period."""
    rng = np.random.default_rng(seed)
    total = sum(weights[period] * len(own) for period, own in values.items())
    drawn, mean = np.zeros(2000), 0.0
    for period, own in sorted(values.items()):
        share = weights[period] * len(own) / total
        drawn += share * rng.choice(own, (2000, len(own))).mean(axis=1)
        mean += share * float(np.mean(own))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return mean, float(low), float(high)


def pair_values(found: Found, runs: pd.DataFrame) -> pd.DataFrame:
    """Of the pairs within each arm's top five, the share on one question, that agree and that
    disagree: arm, qid, metric, value. ``runs``: arm, qid, rank, pid."""
    top = runs[runs["arm"].isin(ARMS) & (runs["rank"] <= 5)]
    values = []
    for (qid, arm), rows in top.groupby(["qid", "arm"]):
        pairs = [tuple(sorted(pair)) for pair in combinations(rows["pid"], 2)]
        own = [found[key] for a, b in pairs if (key := (f"real/{qid}", a, b)) in found]
        for measure in MEASURES if len(own) == len(pairs) and pairs else ():
            values.append((arm, qid, measure, _count(own, measure) / len(pairs)))
    return pd.DataFrame(values, columns=["arm", "qid", "metric", "value"])


def arms_table(values: pd.DataFrame, against: str = "hplus") -> pd.DataFrame:
    """What contrast does to ``pair_values``, each arm against H+ alone on the same questions.

    Columns: arm, measure, value, difference, low, high, n, least.
    """
    by_qid = values.sort_values("qid").set_index("qid")
    of = {key: own["value"] for key, own in by_qid.groupby(["metric", "arm"])}
    rows = []
    for measure in MEASURES:
        base = of[measure, against]
        for arm in ARMS:
            own = of[measure, arm].reindex(base.index)
            row = {"arm": arm, "measure": measure, "value": own.mean(), "n": len(own)}
            rows.append(row if arm == against else row | paired(own.to_numpy(), base.to_numpy()))
    return pd.DataFrame(rows).drop(columns="p")
