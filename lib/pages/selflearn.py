"""SL-HyDE as its notebook tells it: what was found, and measured differences beside printed ones.

Tables 2, 5, 6 and 12 of the paper are of other models, in Chinese, on other sets. So what stands
side by side is what a change of one part adds.
"""

from __future__ import annotations

import pandas as pd

from lib.base.paths import REPORTED
from lib.pages.committed import between, chance
from lib.report import pivot
from lib.studies.selflearn.study import (
    BASE,
    BM25,
    DISORDER_LOW,
    HYDE,
    MARGIN,
    METHOD,
    PRINTED,
    RIGHT_LOW,
)
from lib.studies.selflearn.trained import LOW_RATE

_NDCG, _RECALL = "ndcg_at_10", "recall_at_100"

_STEPS = (
    ("the encoder instead of BM25", "2", BASE, BM25),
    ("the encoder instead of BM25", "12", BASE, BM25),
    ("HyDE instead of the query", "2", HYDE, BASE),
    ("SL-HyDE instead of HyDE", "2", METHOD, HYDE),
    ("the passage alone instead of the mean", "5", "slhyde, passage, tuned", METHOD),
    ("both as one text instead of the mean", "5", "slhyde, concatenation, tuned", METHOD),
    ("the base retriever in SL-HyDE", "6", f"{BASE}, mean, tuned", METHOD),
    ("the base generator in SL-HyDE", "6", "slhyde, mean, base", METHOD),
)
"""What is changed, the printed table, and the two arms; ``PRINTED`` has their printed names."""

_METRICS = {"12": _RECALL}
"""What a printed table measures where it is not nDCG@10."""

_PARTS = ("scifact, with passages", "bioasq, with passages")


def beside(table: pd.DataFrame) -> pd.DataFrame:
    """What each change adds: printed and measured, both in points, a row each.

    ``table`` is ``slhyde_table``. Columns: change, metric, table, printed (mean; least to most over
    tasks or sets), then a column for each measured set. The measured differences are of means on
    the same queries; ``slhyde_claims`` has their intervals.
    """
    measured = table.set_index(["dataset", "method", "metric"])["value"]
    rows = []
    for change, number, arm, against in _STEPS:
        metric = _METRICS.get(number, _NDCG)
        gains = _printed(number, PRINTED[arm], PRINTED[against])
        row = {
            "change": change,
            "metric": metric,
            "table": number,
            "printed": f"{gains.mean():+.1f} ({gains.min():+.1f} to {gains.max():+.1f})",
        }
        for part in _PARTS:
            gain = 100 * (measured[part, arm, metric] - measured[part, against, metric])
            row[part.partition(",")[0]] = f"{gain:+.1f}"
        rows.append(row)
    return pd.DataFrame(rows)


def _printed(number: str, arm: str, against: str) -> pd.Series:
    """Differences that a table prints, by task or data set; averages are left out."""
    printed = pd.read_csv(REPORTED / f"slhyde_table{number}.csv")
    names = {"model": "name", "method": "name", "dataset": "of", "task": "of"}
    printed = printed.rename(columns=names)
    printed = printed[~printed["of"].str.startswith("Average")]
    # Table 2 prints its base retriever twice, in both of its parts.
    wide = pivot(printed.drop_duplicates(["of", "name", "value"]), "of", "name")
    return (wide[arm] - wide[against]).dropna()


def declared(claims: pd.DataFrame) -> pd.DataFrame:
    """The primary tests of ``slhyde_claims``, one a row, with their verdicts."""
    own = claims[claims["status"] == "primary"]
    columns = ["claim", "arm", "against", "value", "value_against", "difference", "low", "high"]
    return own[[*columns, "p_holm", "n", "verdict"]]


def found(claims: pd.DataFrame) -> str:
    """The finding in one sentence, then what its parts come to.

    Whether the retriever finds more is what the verdict says, which Holm corrects: an interval
    alone may leave out 0 where the verdict is INCONCLUSIVE.
    """
    own = declared(claims).set_index(["arm", "against"])

    def told(arm: str, against: str) -> str:
        row = own.loc[(arm, against)]
        gap = between(row["difference"], row["low"], row["high"], "+")
        return f"{gap}, Holm p {chance(row['p_holm'])}, {row['verdict']}"

    first, control = own.loc[("slhyde", BASE)], own.loc[("slhyde", "shuffled")]
    if control["verdict"] == "VOID":
        disorder = (
            "The declared test against pairs in disorder is void: that control collapsed, to "
            f"nDCG@10 {control['value_against']:.3f}."
        )
    else:
        disorder = f"Against the same on pairs in disorder: {told('slhyde', 'shuffled')}."
    return (
        f"**On {first['n']} claims of SciFact {_moved(first)}: nDCG@10 "
        f"{first['value']:.3f} where the untrained has {first['value_against']:.3f}.** "
        f"The difference is {told('slhyde', BASE)}. {disorder} {_low_rate(claims)}"
        f"All of SL-HyDE against HyDE: {told(METHOD, HYDE)}; "
        f"against the claim alone: {told(METHOD, BASE)}. 95 % intervals over claims."
    )


def _low_rate(claims: pd.DataFrame) -> str:
    """The pair that learnt slowly enough for pairs in disorder to ruin nothing: exploratory."""
    pair = (claims["arm"] == RIGHT_LOW) & (claims["against"] == DISORDER_LOW)
    rows = claims[pair & (claims["dataset"] == "scifact") & (claims["metric"] == _NDCG)]
    if rows.empty:
        return ""
    (row,) = rows.to_dict("records")
    small = row["low"] > -MARGIN and row["high"] < MARGIN
    named = f", no difference larger than {MARGIN:g}" if small else ""
    return (
        f"At a learning rate of {LOW_RATE:g} pairs in disorder keep {row['value_against']:.3f}, "
        f"and right ones differ by {between(row['difference'], row['low'], row['high'], '+')}"
        f"{named} (exploratory). "
    )


def _moved(test: pd.Series) -> str:
    """What self-learning did to the retriever, by the verdict of its declared test."""
    if test["verdict"] == "SUPPORTED" and test["difference"] > 0:
        return "the retriever that taught itself finds more"
    if test["verdict"] == "AGAINST":
        return "the retriever that taught itself finds less"
    return "chance could explain what self-learning changed"
