"""Figures of the grid, each drawn from a result table: accuracy, overlap, cost, lambda.

Every method has its colour of ``lib.plots.palette`` in all of them; the others are grey.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib.plots.labels import label_of
from lib.plots.palette import COLOURS, GREY, colour_of, in_order
from lib.plots.style import count_label, legend_below, mark_lambda, nothing_drawn, pyplot

__all__ = ["plot_accuracy", "plot_cost", "plot_overlap", "plot_accuracy_lambda", "plot_corruption"]

FEW = 10


def plot_accuracy(table: pd.DataFrame, metric: str = "accuracy"):
    """Table 1 as a heat map: a row a method, a column a question set, a panel an answerer.

    An empty cell was not run, or is not asked of this reader (no LLM, no closed book). A cell of
    fewer than ``FEW`` questions has no colour; its accuracy is shown as a count. Another ``metric``
    of the table than accuracy may be a mean of shares, and is shown as it is. A cell says its n
    where that is not its column's.
    """
    plt = pyplot()
    rows = table[table["metric"] == metric]
    if rows.empty:
        return nothing_drawn(metric)
    alone = rows["answerer"] == "no reader"  # the same whoever reads: shown in every panel
    readers = list(dict.fromkeys(rows.loc[~alone, "answerer"]))
    methods, sets = list(dict.fromkeys(rows["method"])), in_order(rows["dataset"])
    size = 2.6 + 2.2 * len(readers), 0.28 * len(methods) + 0.8
    figure, axes = plt.subplots(1, len(readers), figsize=size, sharey=True, squeeze=False)
    for axis, reader in zip(axes[0], readers, strict=True):
        own = rows[(rows["answerer"] == reader) | alone].set_index(["method", "dataset"])
        values, n = (own[c].unstack().reindex(index=methods, columns=sets) for c in ("value", "n"))
        asked = rows[rows["answerer"] == reader].groupby("dataset")["n"].max().reindex(sets)
        counts = [f"n = {asked[d]:.0f}" if asked[d] > 0 else "not run" for d in sets]
        _heat(axis, values.astype(float), n, _texts(values, n, metric, asked))
        labels = [f"{d.split()[-1]}\n{count}" for d, count in zip(sets, counts, strict=True)]
        axis.set_xticks(np.arange(len(sets)) + 0.5, labels, fontsize=7, rotation=0)
        axis.set_title(reader, fontsize=8)
        axis.set(xlabel="", ylabel="")
        axis.grid(visible=False)
    axes[0, 0].set_yticks(np.arange(len(methods)) + 0.5, map(label_of, methods), fontsize=8)
    label = f"{metric} (unread replies are wrong)" if metric == "accuracy" else metric
    shown = axes[0, -1].collections[0]
    figure.colorbar(shown, ax=axes[0], label=label, shrink=0.7)
    return figure


def _heat(axis, values: pd.DataFrame, n: pd.DataFrame, texts: pd.DataFrame) -> None:
    """Values as colours from 0 to 1 with their texts; what rests on few has a text alone."""
    import seaborn
    from matplotlib.colors import ListedColormap

    few = (n < FEW) | values.isna()
    looks = {"ax": axis, "fmt": "", "cbar": False, "vmin": 0, "vmax": 1, "yticklabels": False}
    size = {"fontsize": 7, "linespacing": 0.95}
    seaborn.heatmap(values, mask=few, annot=texts, cmap="cividis", annot_kws=size, **looks)
    # Cells without a colour: seaborn leaves out the text of what it masks.
    white, size = ListedColormap(["white"]), size | {"color": "black"}
    unsure = ~few | values.isna()
    seaborn.heatmap(values, mask=unsure, annot=texts, cmap=white, annot_kws=size, **looks)
    for text in axis.texts:
        if "\n" in text.get_text():
            text.set_fontsize(6)


def _texts(values: pd.DataFrame, n: pd.DataFrame, metric: str, asked: pd.Series) -> pd.DataFrame:
    """What each cell says, "" where there is nothing."""
    texts = values.astype(object)
    for method in values.index:
        for dataset in values.columns:
            value, count = values.at[method, dataset], n.at[method, dataset]
            told = "" if pd.isna(value) else _cell(value, count, metric, asked[dataset])
            texts.at[method, dataset] = told
    return texts


def _cell(value: float, n: float, metric: str, asked: float) -> str:
    """A value as a cell shows it: few right answers as a count of them, another n below it."""
    if n < FEW and metric == "accuracy":
        return f"{round(value * n)} of {n:.0f}"
    return f"{value:.2f}" + (f"\nn = {n:.0f}" if n != asked else "")


def plot_overlap(table: pd.DataFrame, k: int):
    """Shared passages of CHR's top k with each other method's, all questions of a set together.

    Columns ``dataset, method, count, n``; the line is HyDE against itself from other samples.
    """
    plt = pyplot()
    methods = [m for m in dict.fromkeys(table["method"]) if m != "noise floor"]
    datasets = in_order(table["dataset"])
    figure, axes = plt.subplots(
        1, len(datasets), figsize=(2.4 * len(datasets) + 0.8, 3.5), sharey=True, squeeze=False
    )
    for axis, dataset in zip(axes[0], datasets, strict=True):
        rows = table[table["dataset"] == dataset]
        own = rows.set_index("method")["count"]
        counts = own.reindex(methods)
        names = [label_of(method) for method in methods]
        axis.barh(names, counts, color=[COLOURS.get(m, GREY) for m in methods])
        for y, count in enumerate(counts):
            text, x = ("NOT RUN", 0) if np.isnan(count) else (f"{count:.1f}", count)
            axis.annotate(
                text, (x, y), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7
            )
        axis.set_axisbelow(True)
        if "noise floor" in own:
            floor = own["noise floor"]
            axis.axvline(floor, color=COLOURS["hyde"], lw=1.2, ls="--", label="HyDE and itself")
        axis.set(xlim=(0, k), title=f"{dataset}, {count_label(rows['n'])}")
    axes[0, 0].invert_yaxis()
    told = f"passages of {k} shared with CHR (λ = 1): means, without intervals"
    figure.supxlabel(told, fontsize=9)
    if with_floor := [axis for axis in axes[0] if axis.lines]:
        handles = with_floor[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper right", fontsize=7)
    return figure


def plot_cost(table: pd.DataFrame, measure: str):
    """``measure`` against output tokens a question: columns ``method, output_tokens, value, n``.

    A method whose tokens or measure are missing has no point. ``n`` counts the questions behind
    the tokens; a column ``value_n`` those behind the measure.
    """
    plt = pyplot()
    from matplotlib.ticker import LogFormatter

    figure, axis = plt.subplots(figsize=(5.6, 3.4))
    points = table.dropna(subset=["output_tokens", "value"]).sort_values("output_tokens")
    for place, row in enumerate(points.itertuples()):
        at, left = (row.output_tokens, row.value), place % 2 == 0
        axis.plot(*at, "o", ms=7, color=COLOURS.get(row.method, GREY), mec="black", mew=0.5)
        axis.annotate(
            label_of(row.method),
            at,
            fontsize=8,
            xytext=(-6 if left else 6, 0),
            va="center",
            ha="right" if left else "left",
            textcoords="offset points",
        )
    axis.set(xscale="log", xlabel="output tokens a question, measured (log scale)")
    axis.set(ylabel=f"{measure}, mean", ylim=(-0.05, 1.05))
    axis.margins(x=0.22)
    axis.xaxis.set_major_formatter(LogFormatter())
    axis.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.5)))
    told = f"; {measure}: {count_label(points['value_n'])}" if "value_n" in points else ""
    axis.set_title(f"tokens: {count_label(table['n'])} questions{told}", loc="left", fontsize=8)
    return figure


def plot_accuracy_lambda(table: pd.DataFrame, lam: float, k: int = 5):
    """Accuracy and P@k over lambda: columns ``series, metric, lambda, value, low, high, n``.

    A series of fewer than six questions is not drawn.
    """
    plt = pyplot()
    metrics = list(dict.fromkeys(table["metric"]))
    figure, axes = plt.subplots(1, len(metrics), figsize=(4.2 * len(metrics), 3.6), squeeze=False)
    for axis, metric in zip(axes[0], metrics, strict=True):
        own = table[table["metric"] == metric]
        for i, label in enumerate(in_order(own["series"])):
            rows = own[own["series"] == label]
            few = rows["n"].max() < 6
            told = f"{label}, {count_label(rows['n'])}" + (": too few to draw" if few else "")
            _band(axis, rows[:0] if few else rows, "lambda", "value", colour_of(label, i), told)
        mark_lambda(axis, lam)
        axis.set(xlabel="λ", ylabel=metric.replace("@k", f"@{k}") + ", 95 % band", ylim=(0, 1))
        axis.set_xlim(table["lambda"].min() - 0.05, table["lambda"].max() + 0.05)
        axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    return figure


def plot_corruption(table: pd.DataFrame):
    """P@k over the share of questions whose H+ and H- are exchanged, one line per lambda."""
    plt = pyplot()
    given = table.get("lambda_marked", pd.Series(0.4, table.index)).iloc[0]
    names = {f"λ = {given:g}": "chr_given", "λ = 0": "hplus", "λ = 1": "chr"}
    figure, axis = plt.subplots(figsize=(5.2, 3.6))
    for i, (label, rows) in enumerate(table.groupby("series", sort=False)):
        _band(axis, rows, "wrong", "p_at_5", colour_of(names.get(label, label), i), label)
    axis.set(xlabel="share of questions with H+ and H− exchanged")
    axis.set(ylabel=f"{table['metric'].iloc[0]}, 95 % band", ylim=(0, None))
    legend_below(figure, axis, f"{count_label(table['n'])}; λ = 0 is H+ alone")
    return figure


def _band(axis, rows: pd.DataFrame, x: str, y: str, colour: str, label: str) -> None:
    axis.plot(rows[x], rows[y], marker="o", ms=3, color=colour, label=label)
    axis.fill_between(rows[x], rows["low"], rows["high"], color=colour, alpha=0.12, lw=0)
