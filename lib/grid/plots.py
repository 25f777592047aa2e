"""Figures of the grid, each drawn from a result table: accuracy, overlap, cost, lambda.

Every method has one colour in all of them (Okabe-Ito; controls and references are grey).
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pandas as pd

from lib.plots import _nothing, _style

__all__ = [
    "METHOD_COLOURS",
    "plot_accuracy",
    "plot_cost",
    "plot_overlap",
    "plot_accuracy_lambda",
    "plot_corruption",
]

METHOD_COLOURS = {
    "standard": "#0072B2", "hyde": "#E69F00", "query2doc": "#56B4E9", "csqe": "#009E73",
    "thinkqe": "#CC79A7", "fusion": "#F0E442", "hplus": "#000000", "chr": "#D55E00",
    "chr, chosen λ": "#F4A582",
}  # fmt: skip

FEW = 10


def plot_accuracy(table: pd.DataFrame, metric: str = "accuracy"):
    """Table 1 as a heat map: a row a method, a column a question set, a panel an answerer.

    An empty cell was not run, or is not asked of this reader (no LLM, no closed book). A cell of
    fewer than ``FEW`` questions has no colour; its accuracy is shown as a count. Another ``metric``
    of the table than accuracy may be a mean of shares, and is shown as it is.
    """
    plt = _style()
    rows = table[table["metric"] == metric]
    if rows.empty:
        return _nothing(metric)
    alone = rows["answerer"] == "no reader"  # the same whoever reads: shown in every panel
    readers = list(dict.fromkeys(rows.loc[~alone, "answerer"]))
    figure, axes = plt.subplots(
        1, len(readers), figsize=(2.6 + 2.2 * len(readers), 4.6), sharey=True, squeeze=False
    )
    methods, sets = list(dict.fromkeys(rows["method"])), sorted(set(rows["dataset"]))
    for axis, reader in zip(axes[0], readers, strict=True):
        own = rows[(rows["answerer"] == reader) | alone].set_index(["method", "dataset"])
        values, n = (own[c].unstack().reindex(index=methods, columns=sets) for c in ("value", "n"))
        shown = axis.imshow(values.mask(n < FEW), vmin=0, vmax=1, cmap="cividis", aspect="auto")
        for (i, j), value in np.ndenumerate(values.to_numpy(dtype=float)):
            if not np.isnan(value):
                text = _cell(value, n.iloc[i, j], metric)
                dark = n.iloc[i, j] >= FEW and value <= 0.55
                axis.text(j, i, text, ha="center", va="center", fontsize=7,
                          color="white" if dark else "black")  # fmt: skip
        asked = rows[rows["answerer"] == reader].groupby("dataset")["n"].max()
        labels = [f"{d.split()[-1]}\nn = {asked.get(d, 0)}" for d in sets]
        axis.set_xticks(range(len(sets)), labels, fontsize=7)
        axis.set_yticks(range(len(methods)), methods, fontsize=8)
        axis.set_title(reader, fontsize=8)
        axis.grid(visible=False)
    label = f"{metric} (unread replies are wrong)" if metric == "accuracy" else metric
    figure.colorbar(shown, ax=axes[0], label=label, shrink=0.7)
    return figure


def _cell(value: float, n: float, metric: str) -> str:
    """A value as a cell shows it: few right answers as a count of them."""
    if n < FEW and metric == "accuracy":
        return f"{round(value * n)} of {n:.0f}"
    return f"{value:.2f}"


def plot_overlap(table: pd.DataFrame, k: int):
    """Shared passages of CHR's top k with each other method's, all questions of a set together.

    Columns ``dataset, method, count``; the dashed line is HyDE against itself from other samples.
    """
    plt = _style()
    methods = [m for m in dict.fromkeys(table["method"]) if m != "noise floor"]
    datasets = list(dict.fromkeys(table["dataset"]))
    figure, axes = plt.subplots(
        1, len(datasets), figsize=(2.4 * len(datasets) + 0.8, 3), sharey=True, squeeze=False
    )
    for axis, dataset in zip(axes[0], datasets, strict=True):
        own = table[table["dataset"] == dataset].set_index("method")["count"]
        colours = [METHOD_COLOURS.get(m, "#999999") for m in methods]
        axis.barh(methods, own.reindex(methods), color=colours)
        axis.set_axisbelow(True)
        if "noise floor" in own:
            axis.axvline(
                own["noise floor"], color="black", lw=0.9, ls="--", label="HyDE and itself"
            )
        axis.set(xlim=(0, k), title=dataset, xlabel=f"shared of {k}")
    axes[0, 0].invert_yaxis()
    with_floor = [axis for axis in axes[0] if axis.lines]
    if with_floor:
        with_floor[-1].legend(loc="lower right", fontsize=7)
    return figure


def plot_cost(table: pd.DataFrame, measure: str):
    """``measure`` against output tokens a question: columns ``method, output_tokens, value, n``.

    A method whose tokens or measure are missing has no point.
    """
    plt = _style()
    figure, axis = plt.subplots(figsize=(5.6, 3.4))
    points = table.dropna(subset=["output_tokens", "value"]).sort_values("output_tokens")
    for place, row in enumerate(points.itertuples()):
        axis.plot(
            row.output_tokens, row.value, "o", ms=7, color=METHOD_COLOURS.get(row.method, "#999999")
        )
        axis.annotate(row.method, (row.output_tokens, row.value), fontsize=8,
                      xytext=(5, 4 if place % 2 else -11), textcoords="offset points")  # fmt: skip
    axis.set(xlabel="output tokens a question, measured", ylabel=measure, ylim=(0, 1))
    axis.set_title(f"n = {int(table['n'].max())} questions", loc="left", fontsize=8)
    return figure


def plot_accuracy_lambda(table: pd.DataFrame, lam: float):
    """Accuracy and P@k over lambda: columns ``series, metric, lambda, value, low, high, n``."""
    plt = _style()
    metrics = list(dict.fromkeys(table["metric"]))
    figure, axes = plt.subplots(1, len(metrics), figsize=(4.2 * len(metrics), 3.3), squeeze=False)
    for axis, metric in zip(axes[0], metrics, strict=True):
        colours = cycle(("#D55E00", "#0072B2", "#009E73", "#CC79A7"))
        for label, rows in table[table["metric"] == metric].groupby("series", sort=False):
            colour = next(colours)
            axis.plot(rows["lambda"], rows["value"], marker="o", ms=3, color=colour,
                      label=f"{label}, n = {int(rows['n'].max())}")  # fmt: skip
            axis.fill_between(
                rows["lambda"], rows["low"], rows["high"], color=colour, alpha=0.12, lw=0
            )
        axis.axvline(lam, color="black", lw=0.8, ls=":")
        axis.set(xlabel="λ", ylabel=metric, ylim=(0, 1))
        axis.legend(fontsize=7)
    return figure


def plot_corruption(table: pd.DataFrame):
    """P@k over the share of questions whose H+ and H- are exchanged, one line per lambda."""
    plt = _style()
    figure, axis = plt.subplots(figsize=(5.2, 3.3))
    colours = cycle(("#000000", "#0072B2", "#D55E00", "#CC79A7"))
    for label, rows in table.groupby("series", sort=False):
        colour = next(colours)
        axis.plot(rows["wrong"], rows["p_at_5"], marker="o", ms=3, color=colour, label=label)
        axis.fill_between(rows["wrong"], rows["low"], rows["high"], color=colour, alpha=0.12, lw=0)
    n = int(table["n"].max())
    axis.set(xlabel="share of questions with H+ and H− exchanged", ylabel=table["metric"].iloc[0])
    axis.set_ylim(bottom=0)
    axis.legend(title=f"n = {n}", title_fontsize=8)
    return figure
