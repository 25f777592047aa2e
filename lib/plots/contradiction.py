"""Figures of the contradiction study, each drawn from a result table."""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd

from lib.plots.palette import COLOURS, GREY
from lib.plots.style import pyplot

__all__ = ["plot_heatmap", "plot_s_cnt", "plot_timeline"]

_SIDES = {
    "for": COLOURS["SUPPORTED"],
    "against": COLOURS["AGAINST"],
    "mixed": "#E69F00",
    "background": GREY,
    "PubMedQA": "#009E73",
    "Evidence Inference": "#56B4E9",
}


def _panel(axis, cells: pd.DataFrame, title: str, *, share: bool) -> None:
    """One grid of counts or shares; a cell's number is readable whatever its colour."""
    values = cells.to_numpy(dtype=float)
    top = np.nanmax(values) or 1
    axis.imshow(values, cmap="cividis", vmin=0, vmax=top, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        text = "–" if np.isnan(value) else f"{value:.0%}" if share else f"{value:,.0f}"
        dark = "white" if value < 0.55 * top else "black"  # NaN is drawn on white
        axis.text(j, i, text, ha="center", va="center", fontsize=7, color=dark)
    axis.set_xticks(range(cells.shape[1]), cells.columns, fontsize=7, rotation=30, ha="right")
    axis.set_yticks(range(cells.shape[0]), cells.index, fontsize=7)
    axis.set_title(title, fontsize=8)
    axis.grid(visible=False)


def plot_heatmap(table: pd.DataFrame, title: str):
    """Figure 2: period (rows) by CNT; counts, and each period's shares; here and in the paper."""
    figure, axes = pyplot().subplots(2, 2, figsize=(8.2, 5.4), sharex=True)
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
    figure, axes = pyplot().subplots(1, 3, figsize=(9.8, 3), sharey=True)
    parts = (
        ("fixed", "documents", f"{title}, the paper's bins"),
        ("quintile", "documents", f"{title}, quintiles of S"),
        ("fixed", "reported", "paper"),
    )
    for axis, (binning, column, name) in zip(axes, parts, strict=True):
        own = table[table["binning"] == binning]
        cells = own.pivot(index="cnt_bin", columns="score_bin", values=column)[::-1]
        _panel(axis, cells, f"{name}, n = {cells.to_numpy().sum():,.0f}", share=False)
    axes[0].set(ylabel="CNT")
    figure.supxlabel("score S", fontsize=9)
    return figure


def plot_timeline(nodes: pd.DataFrame, links: pd.DataFrame, title: str, width: int = 118):
    """One question's abstracts by year and side; lines join the pairs that conflict most.

    ``nodes``: id, year, cnt, side; a larger point has a higher CNT(d). ``links``, most
    contradictory first: a, b, value, sentence_a, sentence_b; their sentences stand below.
    """
    there = list(dict.fromkeys(nodes["side"]))  # of PubMed: its own name, in black
    sides = sorted(there, key=[*_SIDES, *there].index)
    crowd = nodes.groupby(["side", "year"]).cumcount() * 0.25
    at = nodes.assign(y=nodes["side"].map(sides[::-1].index) + crowd).set_index("id")
    lines = []
    for n, row in enumerate(links.itertuples(), 1):
        for lead, who, said in (
            (f"{n}  CNT {row.value:.2f}", row.a, row.sentence_a),
            (" " * 11, row.b, row.sentence_b),
        ):
            text = f"{lead}  {at.year[who]}, {who}: “{said}”"
            lines += textwrap.wrap(text, width, subsequent_indent=" " * 13)
    heights = [0.9 + 0.5 * len(sides), 0.155 * len(lines)]
    figure, (axis, below) = pyplot().subplots(
        2, 1, figsize=(8.6, sum(heights) + 0.7), height_ratios=heights
    )
    size = 20 + 100 * at["cnt"] / (at["cnt"].max() or 1)
    colour = [_SIDES.get(side, "black") for side in at["side"]]
    axis.scatter(at["year"], at["y"], s=size, color=colour, zorder=3)
    for row in at.itertuples():
        axis.annotate(
            row.Index.rpartition("-")[2],
            (row.year, row.y),
            fontsize=7,
            ha="center",
            xytext=(0, 7),
            textcoords="offset points",
            zorder=4,
        )
    for n, row in enumerate(links.itertuples(), 1):
        (x, y), (u, v) = at.loc[[row.a, row.b], ["year", "y"]].to_numpy()
        t = np.linspace(0, 1, 40)
        bend = 1.4 * t * (1 - t) * (abs(y - v) < 0.5)  # two of one side: an arc below the points
        axis.plot(x + (u - x) * t, y + (v - y) * t - bend, color="black", lw=0.9, zorder=2)
        axis.text(
            (x + u) / 2,
            (y + v) / 2 - bend[20],
            f"{n}",
            fontsize=8,
            weight="bold",
            ha="center",
            va="center",
            zorder=5,
            bbox={"boxstyle": "circle,pad=0.15", "fc": "white", "lw": 0.6},
        )
    axis.set_yticks(range(len(sides)), sides[::-1])
    axis.set(ylim=(-0.6, len(sides) - 0.3))
    axis.set_title(f"{title}, n = {len(nodes)} abstracts", loc="left", fontsize=9)
    below.axis("off")
    below.text(0, 1, "\n".join(lines), va="top", fontsize=7, family="DejaVu Sans Mono")
    return figure
