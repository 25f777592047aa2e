"""HyDE's lesson as a figure: what is left of each way to search when passages are wrong."""

from __future__ import annotations

import re

import pandas as pd

from lib.plots.curves import plot_curves

_MIXED = re.compile(r"(?P<arm>\w+), (?P<share>\d+) % wrong")
_SETS = {
    "bioasq": "all questions",
    "bioasq, lookup": "lookups",
    "bioasq, reasoning": "reasoning",
}


def wrong_rows(table: pd.DataFrame, metric: str = "p_at_5") -> pd.DataFrame:
    """``hyde_lesson`` as ``plot_curves`` takes it: study, family, share, value, low, high, n.

    ``share`` is that of questions with a wrong passage, from 0.
    """
    own = table[table["metric"] == metric]
    parts = [_share_of(method) for method in own["method"]]
    rows = own.assign(
        study=own["dataset"].map(_SETS),
        family=[arm for arm, _ in parts],
        share=[share for _, share in parts],
    )
    columns = ["study", "family", "share", "value", "low", "high", "n"]
    return rows.dropna(subset="share")[columns].reset_index(drop=True)


def _share_of(method: str) -> tuple[str, float]:
    """An arm and its share of wrong passages; NaN for an arm that has only wrong ones."""
    mixed = _MIXED.fullmatch(method)
    if mixed:
        return mixed["arm"], int(mixed["share"]) / 100
    return method, float("nan") if method.endswith("(wrong)") else 0.0


def plot_wrong(rows: pd.DataFrame):
    """P@5 over the share of wrong passages, a panel a kind of question."""
    worst = rows["share"].max()
    whole = rows[(rows["study"] == rows["study"].iloc[0]) & (rows["share"] == worst)]
    left = whole.set_index("family")["value"]
    title = (
        f"With {worst:.0%} wrong passages merging keeps a P@5 of {left['fusion']:.2f}, a passage "
        f"alone {left['passage']:.2f}; the question alone has {left['question']:.2f}"
    ).replace("%", " %")
    named = rows.assign(family=rows["family"].replace({"passage": "one passage alone"}))
    return plot_curves(named, title, x="share", xlabel="share of wrong passages", ylabel="P@5")
