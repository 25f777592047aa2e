"""Figures of the contradiction study, each drawn from a result table."""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd

from lib.plots import _style

__all__ = ["plot_heatmap", "plot_s_cnt", "plot_timeline"]

_SIDES = {"for": "#0072B2", "against": "#D55E00", "mixed": "#E69F00", "background": "#999999",
          "PubMedQA": "#009E73", "Evidence Inference": "#CC79A7"}  # fmt: skip


def _panel(axis, cells: pd.DataFrame, title: str, *, share: bool) -> None:
    """One grid of counts or shares; a cell's number is readable whatever its colour."""
    values = cells.to_numpy(dtype=float)
    top = np.nanmax(values) or 1
    axis.imshow(values, cmap="cividis", vmin=0, vmax=top, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        text = f"{value:.0%}" if share else f"{value:,.0f}"
        dark = "white" if value < 0.55 * top else "black"
        axis.text(j, i, text, ha="center", va="center", fontsize=7, color=dark)
    axis.set_xticks(range(cells.shape[1]), cells.columns, fontsize=7, rotation=30, ha="right")
    axis.set_yticks(range(cells.shape[0]), cells.index, fontsize=7)
    axis.set_title(title, fontsize=8)
    axis.grid(visible=False)


def plot_heatmap(table: pd.DataFrame, title: str):
    """Figure 2: period (rows) by CNT; counts, and each period's shares; here and in the paper."""
    figure, axes = _style().subplots(2, 2, figsize=(8.2, 5.4), sharex=True)
    periods = list(dict.fromkeys(table["period"]))
    for pair, column, name in zip(axes, ("documents", "reported"), (title, "paper"), strict=True):
        cells = table.pivot(index="period", columns="cnt_bin", values=column).loc[periods]
        total = cells.sum(axis=1)
        shares = cells.div(total.where(total > 0), axis=0)
        shares.index = [f"n = {n:,.0f}" for n in total]
        _panel(pair[0], cells, f"{name}: documents, n = {total.sum():,.0f}", share=False)
        _panel(pair[1], shares, f"{name}: share of each period's documents", share=True)
        pair[0].set(ylabel="published")
    figure.supxlabel("contradiction score CNT", fontsize=9)
    return figure


def plot_s_cnt(table: pd.DataFrame, title: str):
    """Table 3: documents by CNT (rows) and S; in the paper's bins, in quintiles, and the paper."""
    figure, axes = _style().subplots(1, 3, figsize=(9.8, 3), sharey=True)
    parts = (("fixed", "documents", f"{title}, the paper's bins"),
             ("quintile", "documents", f"{title}, quintiles of S"),
             ("fixed", "reported", "paper"))  # fmt: skip
    for axis, (binning, column, name) in zip(axes, parts, strict=True):
        own = table[table["binning"] == binning]
        cells = own.pivot(index="cnt_bin", columns="score_bin", values=column)[::-1]
        _panel(axis, cells, f"{name}, n = {cells.to_numpy().sum():,.0f}", share=False)
    axes[0].set(ylabel="CNT")
    figure.supxlabel("score S", fontsize=9)
    return figure


def plot_timeline(nodes: pd.DataFrame, links: pd.DataFrame, title: str, width: int = 118):
    """One question's abstracts over time, by side; arcs join those that conflict most.

    ``nodes``: id, year, cnt, side. ``links``, most contradictory first: a, b, value, sentence_a,
    sentence_b; they are numbered, and their sentences stand below.
    """
    lines = []
    year = nodes.set_index("id")["year"]
    for n, row in enumerate(links.itertuples(), 1):
        for i, (who, said) in enumerate(((row.a, row.sentence_a), (row.b, row.sentence_b))):
            head = f"{n}  CNT {row.value:.2f}  " if not i else " " * 4
            text = f"{head}{year[who]}, {who}: “{said}”"
            lines += textwrap.wrap(text, width, subsequent_indent=" " * 8)
    plt = _style()
    figure, (axis, below) = plt.subplots(
        2, 1, figsize=(8.6, 3 + 0.155 * len(lines)), height_ratios=[3, 0.155 * len(lines)]
    )
    for side, own in nodes.groupby("side"):
        colour = _SIDES.get(side, "#000000")
        axis.scatter(own["year"], own["cnt"], s=36, color=colour, label=side, zorder=3)
    for row in nodes.itertuples():
        axis.annotate(row.id.rpartition("-")[2], (row.year, row.cnt), fontsize=7, ha="center",
                      xytext=(0, 6), textcoords="offset points")  # fmt: skip
    height = nodes.set_index("id")["cnt"]
    for n, row in enumerate(links.itertuples(), 1):
        ends = [(year[x], height[x]) for x in sorted((row.a, row.b), key=lambda x: year[x])]
        bend = {"arrowstyle": "-", "color": "black", "lw": 0.9, "connectionstyle": "arc3,rad=-0.3"}
        axis.annotate("", ends[1], ends[0], arrowprops=bend)
        middle = np.mean(ends, axis=0)
        axis.annotate(str(n), middle, fontsize=8, weight="bold", xytext=(0, 12),
                      textcoords="offset points")  # fmt: skip
    axis.set(xlabel="year", ylabel="CNT(d), mean over the others")
    axis.set_title(f"{title}, n = {len(nodes)} abstracts", loc="left", fontsize=9)
    axis.margins(0.06, 0.18)
    axis.legend(ncols=4, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    below.axis("off")
    below.text(0, 1, "\n".join(lines), va="top", fontsize=7, family="DejaVu Sans Mono")
    return figure
