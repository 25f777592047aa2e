"""Figures of the grid: what methods retrieve and answer, what they share, and what they cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib.plots.dots import plot_dots
from lib.plots.labels import grid_label, label_of
from lib.plots.palette import COLOURS, GREY, in_order, in_order_of_arms
from lib.plots.style import SMALL, WIDTH, count_label, headline, pyplot, spread

NOBODY = "no reader"
"""The answerer of rows that nobody reads, such as the commonest letter."""


def plot_methods(table: pd.DataFrame, xlabel: str, title: str, lam: float):
    """A dot with its interval for every method, a panel a question set.

    ``table``: dataset, method, value, low, high, n, and ``answerer`` where several answered: each
    has a colour then. A set on which nobody was asked is named below as NOT RUN. ``lam`` is the
    lambda of the rows ``chr_given``.
    """
    rows = table.assign(panel=table["dataset"], row=table["method"])
    if "answerer" in rows:
        asked = set(rows.loc[rows["answerer"] != NOBODY, "dataset"])
        missing = [name for name in in_order(rows["dataset"]) if name not in asked]
        xlabel += f"; NOT RUN: {', '.join(missing)}" if missing else ""
        rows = rows[rows["dataset"].isin(asked)]
        if rows["answerer"].nunique() > 2:
            rows["series"] = rows["answerer"]
    return plot_dots(_sorted(rows, lam), title, xlabel)


def plot_overlap(table: pd.DataFrame, k: int, title: str, lam: float):
    """Passages of the top k that each method shares with CHR's, a panel a question set.

    Columns ``dataset, method, count, count_low, count_high, n``; the dashed line is HyDE against
    itself from other samples.
    """
    values = {"count": "value", "count_low": "low", "count_high": "high"}
    rows = table.rename(columns=values).assign(panel=table["dataset"], row=table["method"])
    floor = rows[rows["method"] == "noise floor"]
    levels = {"HyDE and itself": dict(zip(floor["panel"], floor["value"], strict=True))}
    rows = rows.drop(floor.index)
    told = f"passages of {k} shared with CHR (λ = 1)"
    return plot_dots(
        _sorted(rows, lam),
        title,
        told,
        levels=levels if len(floor) else None,
        xlim=(-0.02 * k, k),
        numbers=True,
    )


def reading_rows(table: pd.DataFrame) -> pd.DataFrame:
    """A reader's accuracy by what was retrieved: of all questions, and with and without a target.

    ``table``: study, arm, accuracy, low, high, n, accuracy_found, accuracy_not_found. Columns:
    panel, row, series, value, low, high, n, arm.
    """
    family, _, at = (table["arm"].str.partition("@")[part] for part in range(3))
    lam = pd.to_numeric(at, errors="coerce").fillna(0)
    place = family.map(in_order_of_arms(family, family).index)
    table = table.assign(place=place, lam=lam).sort_values(["place", "lam"], kind="stable")
    table = table.assign(panel=table["study"], row=table["arm"].map(label_of), series=_READ[0])
    parts = [table.rename(columns={"accuracy": "value"})]
    for series, column in zip(_READ[1:], ("accuracy_found", "accuracy_not_found"), strict=True):
        split = table.drop(columns=["accuracy", "low", "high"]).rename(columns={column: "value"})
        parts.append(split.assign(series=series, low=np.nan, high=np.nan))
    columns = ["panel", "row", "series", "value", "low", "high", "n", "arm"]
    rows = pd.concat([part[columns] for part in parts], ignore_index=True)
    rows["row"] = pd.Categorical(rows["row"], list(dict.fromkeys(rows["row"])))
    return rows.dropna(subset="value")


_READ = ("all questions", "a target was found", "none was found")


def plot_reading(rows: pd.DataFrame, chance: float = 0.2):
    """How often a reader is right where a target was found, and where none was; ``reading_rows``.

    A reader that is an instrument is at ``chance`` (of five options) where none was.
    """
    alone = rows[(rows["arm"] == "hplus") & (rows["series"] == _READ[2])].iloc[0]
    told = f"With H+ alone and no target found the reader is right on {alone['value']:.0%}"
    return plot_dots(
        rows,
        f"{told} ({alone['panel']}); chance is {chance:.0%}".replace("%", " %"),
        "accuracy, near options, 95 % intervals",
        levels={"chance": chance},
        xlim=(-0.02, 1.03),
        together=True,
    )


def _sorted(rows: pd.DataFrame, lam: float) -> pd.DataFrame:
    """Rows with their colours, sets and methods in the order of all figures, methods by name."""
    methods = in_order_of_arms(rows["method"], rows["method"])
    names = {method: grid_label(method, lam) for method in methods}
    return rows.assign(
        colour=rows["method"].map(COLOURS).fillna(GREY),
        panel=pd.Categorical(rows["panel"], in_order(rows["panel"])),
        row=pd.Categorical(rows["method"].map(names), list(names.values())),
    )


def plot_cost(table: pd.DataFrame, x: str, xlabel: str, ylabel: str, title: str, log: bool = False):
    """``value`` against what it costs: columns ``method, value, n`` and ``x``.

    A method whose cost or value is missing has no point. ``n`` counts the questions behind the
    cost; a column ``value_n`` those behind the value.
    """
    from matplotlib.ticker import LogFormatter, MaxNLocator

    figure, axis = pyplot().subplots(figsize=(WIDTH - 1.4, 3.2))
    points = table.dropna(subset=[x, "value"])
    if log:
        axis.set(xscale="log")
        axis.xaxis.set_major_formatter(LogFormatter())
        axis.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.5)))
    costs = sorted(points[x].round(6).unique())
    gaps = np.diff(np.log(costs) if log else costs, prepend=-np.inf, append=np.inf)
    for place, cost in enumerate(costs):
        # The name stands away from the nearer neighbour; of equal costs one above the other.
        side, align = (-8, "right") if gaps[place + 1] < gaps[place] else (8, "left")
        same = points[points[x].round(6) == cost]
        for row, height in zip(same.itertuples(), spread(same["value"], 0.07), strict=True):
            colour = COLOURS.get(row.method, GREY)
            axis.plot(cost, row.value, "o", ms=7, color=colour, mec="black", mew=0.5)
            looks = {"textcoords": "offset points", "ha": align, "va": "center", "fontsize": SMALL}
            axis.annotate(label_of(row.method), (cost, height), (side, 0), **looks)
    if not log:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.margins(x=0.25)
    axis.set(xlabel=xlabel, ylabel=f"{ylabel}, mean", ylim=(-0.05, 1.05))
    told = f"; {ylabel}: {count_label(points['value_n'])}" if "value_n" in points else ""
    axis.set_title(f"cost: {count_label(points['n'])} questions{told}", fontsize=SMALL)
    headline(figure, title)
    return figure
