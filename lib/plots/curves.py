"""Lines over lambda with their bands, and what the paper reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.plots import said
from lib.plots.labels import label_of
from lib.plots.palette import COLOURS, GREY, colour_of, in_order_of_arms
from lib.plots.style import (
    SMALL,
    WIDTH,
    count_label,
    headline,
    label_ends,
    mark_lambdas,
    nothing_drawn,
    pyplot,
)


def plot_curves(
    table: pd.DataFrame,
    title: str,
    *,
    panel: str = "study",
    line: str = "family",
    x: str = "lambda",
    xlabel: str = "λ",
    ylabel: str = "",
    lam: float | None = None,
    dev: Mapping[str, float] | None = None,
    ylim: tuple[float, float | None] = (0, None),
):
    """``value`` over ``x`` with its 95 % band (``low``, ``high``): a panel for each ``panel``.

    All panels have one scale; lines are named at the right edge. What has one row only, such as
    the question alone, is a dashed level. ``lam`` is the reader's lambda and ``dev`` has dev's, by
    panel: they are marked where x is lambda. A line of fewer than six questions is not drawn, and
    its panel says so.
    """
    if table.empty:
        return nothing_drawn(ylabel or title)
    from matplotlib.ticker import MultipleLocator

    panels = list(dict.fromkeys(table[panel]))
    columns = len(panels) if len(panels) < 4 else 2
    rows = -(-len(panels) // columns)
    size = min(WIDTH, 4.1 * columns + 1.4), 2.3 * rows + 0.7
    figure, axes = pyplot().subplots(
        rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    drawn = [
        _panel(axis, table[table[panel] == name], line, x, name)
        for axis, name in zip(axes.flat, panels, strict=False)
    ]
    axes[0, 0].set(ylim=ylim, xlim=(table[x].min(), table[x].max()))
    if x == "lambda":
        axes[0, 0].xaxis.set_major_locator(MultipleLocator(0.5 if columns > 2 else 0.2))
        chosen = [(dev or {}).get(name) for name in panels]
        for axis, at in zip(axes.flat, chosen, strict=False):
            # Named where dev's choice is not that of the first panel.
            mark_lambdas(axis, lam, at, named=axis is axes[0, 0] or at != chosen[0])
    for place, axis in enumerate(axes.flat):
        if place >= len(panels):
            axis.axis("off")
        elif place + columns >= len(panels):
            axis.tick_params(labelbottom=True)
            axis.set(xlabel=xlabel)
    figure.supylabel(f"{ylabel}, 95 % band", fontsize=9)
    headline(figure, title)
    _name_lines(axes, drawn)
    return figure


def _panel(axis, rows: pd.DataFrame, line: str, x: str, name: str) -> list[tuple]:
    """Draw one panel's lines; the ends that are to be named."""
    ends = []
    differ = rows["n"].nunique() > 1
    for place, (key, own) in enumerate(rows.groupby(line, sort=False)):
        told = label_of(key) + (f", {count_label(own['n'])}" if differ else "")
        colour = colour_of(key, place)
        if own["n"].max() < 6:
            told = f"{told}: too few to draw"
            ends.append((rows[x].max(), 0.0, told, GREY))
            continue
        last = own.sort_values(x).iloc[-1]
        if x == "lambda" and len(own) == 1:
            axis.axhline(last["value"], color=colour, lw=1.2, ls="--", label=told)
            ends.append((rows[x].max(), last["value"], told, colour))
            continue
        _line(axis, own, x, colour, told)
        ends.append((last[x], last["value"], told, colour))
    axis.set_title(f"{name}, {count_label(rows['n'])}", pad=13)
    return ends


def _line(axis, rows: pd.DataFrame, x: str, colour: str, label: str) -> None:
    """One line with its 95 % band."""
    axis.plot(rows[x], rows["value"], "o-", ms=3, color=colour, label=label, clip_on=False)
    axis.fill_between(rows[x], rows["low"], rows["high"], color=colour, alpha=0.13, lw=0)


def _name_lines(axes, drawn: Sequence[list[tuple]]) -> None:
    """Names at the right edge: of the last panel of each row, and of lines it does not have."""
    columns = axes.shape[1]
    for place, ends in enumerate(drawn):
        last_of_row = min(len(drawn) - 1, (place // columns + 1) * columns - 1)
        named = {text for *_, text, _ in drawn[last_of_row]} if place != last_of_row else set()
        label_ends(axes.flat[place], [end for end in ends if end[2] not in named])


def plot_studies(
    curves: pd.DataFrame,
    by: str = "family",
    k: int = 5,
    lam: float = 0.4,
    dev: Mapping[str, float] | None = None,
    title: str | None = None,
):
    """P@k over lambda with its 95 % band, a panel for each value of the column ``study``.

    Without a ``title`` it says what contrast does to P@k in each panel.
    """
    if title is None:
        title = said.sets(curves, list(dict.fromkeys(curves["study"])), k)
    values = {"p_at_5": "value", "p_at_5_low": "low", "p_at_5_high": "high"}
    table = curves.rename(columns=values)
    return plot_curves(table, title, line=by, ylabel=f"P@{k}", lam=lam, dev=dev)


def plot_trade_off(
    curves: pd.DataFrame, title: str, by: str = "family", k: int = 5, lam: float = 0.4
):
    """P@k against the share on the mimic, a line an arm: what ruling the mimic out costs.

    Every line starts at H+ alone (the black dot). Squares are at the paper's 1, rings at ``lam`` or
    the lambda nearest to it at which all were measured.
    """
    near = said.nearest(curves, lam)
    figure, axis = pyplot().subplots(figsize=(WIDTH - 1.6, 3.4))
    for place, key in enumerate(in_order_of_arms(curves[by], curves[by])):
        rows, colour = curves[curves[by] == key].sort_values("lambda"), colour_of(key, place)
        looks = {"ms": 2.5, "color": colour, "label": label_of(key), "clip_on": False}
        axis.plot(rows["mimic_at_5"], rows["p_at_5"], "o-", **looks)
        for at, marker in ((near, "o"), (1.0, "s")):
            here = rows[np.isclose(rows["lambda"], at)]
            looks = {"ms": 7, "mec": colour, "mfc": "white", "mew": 1.4}
            axis.plot(here["mimic_at_5"], here["p_at_5"], marker, **looks)
    start = curves[curves["lambda"] == 0]
    axis.plot(start["mimic_at_5"], start["p_at_5"], "o", ms=7, color=COLOURS["hplus"])
    whose = "yours" if np.isclose(near, lam) else "nearest to yours"
    marks = f"black: H+ alone; ring: λ = {near:g}, {whose}; square: λ = 1, the paper's"
    told = f"share of the top {k} on the mimic\n{marks}; {count_label(curves['n'])}"
    figure.supxlabel(told, fontsize=9)
    axis.set(ylabel=f"P@{k}, mean", ylim=(0, None), xlim=(0, None))
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    headline(figure, title)
    return figure


def plot_reported_lambda(
    reported: pd.DataFrame,
    measured: Mapping[str, pd.DataFrame],
    lam: float = 0.4,
    k: int = 5,
    title: str = "",
):
    """The paper's Figure 5 (accuracy; only the values and bounds its text states) beside P@k here.

    The two panels have different units on purpose: shapes may be compared, numbers may not.
    """
    from matplotlib.ticker import MultipleLocator

    figure, (left, right) = pyplot().subplots(1, 2, figsize=(WIDTH, 3), sharex=True)
    stated = reported.dropna(subset="lambda").astype({"lambda": float, "value": float})
    marks = {"exact": "o", "upper_bound": "v", "lower_bound": "^"}
    for kind, marker in marks.items():
        rows = stated[stated["kind"] == kind]
        looks = {"color": COLOURS["chr"], "mfc": None if kind == "exact" else "none"}
        left.plot(rows["lambda"], rows["value"], marker, **looks, clip_on=False)
    levels = reported[reported["kind"] == "reference_line"]
    for row in levels.itertuples():
        colour = COLOURS[row.series.split()[0].lower()]
        left.axhline(float(row.value), color=colour, lw=1.2, ls="--")
    told = "λ; ● stated, ▽ below, △ above"
    left.set(xlabel=told, ylabel="accuracy, %", xlim=(0, 1.4))
    left.set_title("the paper on CHR: MedQA, Gemma-2-9B", pad=13)
    left.xaxis.set_major_locator(MultipleLocator(0.4))
    ends = []
    values = {"p_at_5": "value", "p_at_5_low": "low", "p_at_5_high": "high"}
    for place, (label, rows) in enumerate(measured.items()):
        own, colour = rows.rename(columns=values), colour_of(label, place)
        told = f"{label}, {count_label(own['n'])}"
        _line(right, own, "lambda", colour, told)
        ends.append((own["lambda"].iloc[-1], own["value"].iloc[-1], told, colour))
    right.set(xlabel="λ", ylabel=f"P@{k}, 95 % band", ylim=(0, None))
    right.set_title("measured here: another setup", pad=13)
    for axis in (left, right):
        mark_lambdas(axis, lam)
    headline(figure, title)
    label_ends(right, ends)
    named = zip(levels["value"].astype(float), levels["series"], strict=True)
    label_ends(left, [(1.4, at, name, COLOURS[name.split()[0].lower()]) for at, name in named])
    return figure


def plot_cosines(values: Mapping[str, Sequence[float]], xlabel: str, title: str = ""):
    """Distributions of c = cos(h+, h-), one box per way of choosing the mimic, with its median."""
    figure, axis = pyplot().subplots(figsize=(WIDTH - 1.2, 0.4 * len(values) + 1.1))
    import seaborn

    seaborn.boxplot(
        dict(values),
        orient="h",
        width=0.6,
        color=GREY,
        fill=False,
        linewidth=1,
        medianprops={"color": "black", "linewidth": 2},
        fliersize=2,
        ax=axis,
    )
    for place, some in enumerate(values.values()):
        middle = float(np.median(some))
        axis.annotate(
            f"{middle:.2f}",
            (middle, place - 0.32),
            xytext=(0, 1),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=SMALL,
        )
    axis.set(xlabel=xlabel)
    headline(figure, title)
    return figure
