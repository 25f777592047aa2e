"""Figures of the contradiction study, each drawn from a result table."""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd

from lib.plots.palette import COLOURS, GREY
from lib.plots.style import pyplot

__all__ = ["MODELLED", "plot_heatmap", "plot_periods", "plot_quality", "plot_timeline"]

MODELLED = "contradiction as a model sees it, not as a judge does"
"""What a figure says whose numbers go through an NLI model."""

_SIDES = {
    "for": COLOURS["SUPPORTED"],
    "against": COLOURS["AGAINST"],
    "mixed": "#E69F00",
    "background": GREY,
    "PubMedQA": "#009E73",
    "Evidence Inference": "#56B4E9",
}
"""Sides in the order they are drawn, from the top, and their colours."""

_BACKENDS = {
    "bi": "#0072B2",
    "cross": "#56B4E9",
    "head": "#009E73",
    "cosine": "#E69F00",
    "cues": GREY,
    "claim only": "#CC79A7",
    "shuffled": "black",
}
_SOURCES = {
    "paper": GREY,
    "evidence-mini": COLOURS["AGAINST"],
    "open": COLOURS["SUPPORTED"],
}


def plot_periods(table: pd.DataFrame, title: str):
    """Figure 2 in one picture: the share of contradicted abstracts by period, with intervals.

    ``table``: source (one of ``_SOURCES``), label, period, value, low, high, n; a source
    without intervals is a line alone. Lines are labelled by ``label`` at their last period.
    """
    periods = [period for period in dict.fromkeys(table["period"]) if period != "all"]
    figure, axis = pyplot().subplots(figsize=(8.2, 3.6))
    for source, colour in _SOURCES.items():
        rows = table[(table["source"] == source) & (table["period"] != "all")]
        if rows.empty:
            continue
        places = [periods.index(period) for period in rows["period"]]
        axis.plot(places, rows["value"], color=colour, lw=1.4, marker="o", ms=4)
        if rows["low"].notna().all():
            value = rows["value"]
            error = np.clip([value - rows["low"], rows["high"] - value], 0, None)
            axis.errorbar(places, rows["value"], yerr=error, fmt="none", color=colour, lw=1.4)
        axis.annotate(
            rows["label"].iloc[0],
            (places[-1], rows["value"].iloc[-1]),
            xytext=(8, 0),
            textcoords="offset points",
            color=colour,
            fontsize=8,
            va="center",
        )
    axis.set_xticks(range(len(periods)), periods)
    axis.set(ylim=(-0.03, 1.05), xlim=(-0.4, len(periods) + 2.6), title=title)
    axis.set(xlabel="published", ylabel="share of abstracts")
    return figure


def plot_quality(table: pd.DataFrame, title: str, marks: tuple[float, ...] = ()):
    """AUROC of every NLI model on every labelled set, with its interval; a line at chance.

    ``title`` says whose results they are. ``table``: backend, set, auroc, auroc_low, auroc_high, n;
    sets from the top in their order. ``marks`` are drawn as dotted lines.
    """
    sets = list(dict.fromkeys(table["set"]))
    backends = list(dict.fromkeys(table["backend"]))
    figure, axis = pyplot().subplots(figsize=(6.8, 0.14 * len(sets) * len(backends) + 1.4))
    for place, backend in enumerate(backends):
        rows = table[table["backend"] == backend].set_index("set")
        shift = 0.72 / len(backends) * ((len(backends) - 1) / 2 - place)  # the first one on top
        heights = [len(sets) - 1 - sets.index(name) + shift for name in rows.index]
        error = [rows["auroc"] - rows["auroc_low"], rows["auroc_high"] - rows["auroc"]]
        colour = _BACKENDS.get(backend, "black")
        axis.errorbar(
            rows["auroc"], heights, xerr=error, fmt="o", ms=4, lw=1.4, color=colour, label=backend
        )
    axis.axvline(0.5, color="black", lw=0.8, zorder=1)
    for mark in marks:
        axis.axvline(mark, color="black", lw=0.8, ls=":", zorder=1)
    counts = table.drop_duplicates("set")["n"]
    labels = [f"{name}, n = {n}" for name, n in zip(sets, counts, strict=True)]
    axis.set_yticks(range(len(sets))[::-1], labels)
    axis.set(xlabel="AUROC, 95 % interval; 0.5 is guessing", title=title)
    figure.legend(ncol=4, loc="outside lower center")
    return figure


def _panel(axis, cells: pd.DataFrame, title: str) -> None:
    """One grid of shares, on a scale from 0 to 1; a cell's number is readable whatever its
    colour."""
    values = cells.to_numpy(dtype=float)
    axis.imshow(values, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = "–" if np.isnan(value) else f"{value:.0%}"
        colour = "white" if value < 0.55 else "black"  # NaN is drawn on white
        axis.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    axis.set_xticks(range(cells.shape[1]), cells.columns, fontsize=7, rotation=30, ha="right")
    axis.set_yticks(range(cells.shape[0]), cells.index, fontsize=7)
    axis.set_title(title, fontsize=8)
    axis.grid(visible=False)


def plot_heatmap(table: pd.DataFrame, title: str):
    """Figure 2 as the paper draws it: of each period's documents the share in each bin of CNT.

    ``table``: contradiction (judged or modelled), period, cnt_bin, documents, reported; a panel
    each, and one for the paper. ``title`` names the evidence.
    """
    names = list(dict.fromkeys(table["contradiction"]))
    panels = [(name, "documents", f"{title}, {name}") for name in names]
    panels.append((names[-1], "reported", "the paper, modelled"))
    figure, axes = pyplot().subplots(
        1, len(panels), figsize=(0.6 + 3.2 * len(panels), 3), sharey=True
    )
    periods = list(dict.fromkeys(table["period"]))
    for axis, (which, column, name) in zip(axes, panels, strict=True):
        rows = table[table["contradiction"] == which]
        counts = rows.pivot(index="period", columns="cnt_bin", values=column).loc[periods]
        total = counts.sum(axis=1)
        shares = counts.div(total.where(total > 0), axis=0)
        _panel(axis, shares, f"{name}, n = {total.sum():,.0f}")
    axes[0].set(ylabel="published")
    figure.supxlabel("contradiction score CNT; shares of each period's documents", fontsize=8)
    return figure


def plot_timeline(nodes: pd.DataFrame, links: pd.DataFrame, title: str, width: int = 118):
    """One question's abstracts by year and side; lines join the pairs that contradict most.

    ``nodes``: id, year, cnt, side; a larger point has a higher CNT(d). ``links``, highest first:
    a, b, value, sentence_a, sentence_b, and ``reason`` where a judge gave one; their sentences
    stand below, ``width`` letters a line.
    """
    in_nodes = list(dict.fromkeys(nodes["side"]))
    # A side that _SIDES does not know (of PubMed: its own name) comes last, in black.
    sides = sorted(in_nodes, key=[*_SIDES, *in_nodes].index)
    crowd = nodes.groupby(["side", "year"]).cumcount() * 0.25  # one year's points side by side
    height = nodes["side"].map(sides[::-1].index) + crowd
    points = nodes.assign(y=height).set_index("id")
    lines = _sentences_below(links, points["year"], width)
    heights = [0.9 + 0.5 * len(sides), 0.155 * len(lines)]
    figure, (axis, below) = pyplot().subplots(
        2, 1, figsize=(8.6, sum(heights) + 0.7), height_ratios=heights
    )
    size = 20 + 100 * points["cnt"] / (points["cnt"].max() or 1)
    colour = [_SIDES.get(side, "black") for side in points["side"]]
    axis.scatter(points["year"], points["y"], s=size, color=colour, zorder=3)
    for point in points.itertuples():
        axis.annotate(
            point.Index.rpartition("-")[2],
            (point.year, point.y),
            fontsize=7,
            ha="center",
            xytext=(0, 7),
            textcoords="offset points",
            zorder=4,
        )
    for number, link in enumerate(links.itertuples(), 1):
        _draw_link(axis, points.loc[link.a], points.loc[link.b], number)
    axis.set_yticks(range(len(sides)), sides[::-1])
    axis.set(ylim=(-0.6, len(sides) - 0.3))
    axis.set_title(f"{title} n = {len(nodes)} abstracts", loc="left", fontsize=8)
    below.axis("off")
    below.text(0, 1, "\n".join(lines), va="top", fontsize=7, family="DejaVu Sans Mono")
    return figure


def _sentences_below(links: pd.DataFrame, year: pd.Series, width: int) -> list[str]:
    """The lines of text under a timeline: of each link both abstracts and the two sentences."""
    lines = []
    for number, link in enumerate(links.itertuples(), 1):
        said = getattr(link, "reason", "") or f"CNT {link.value:.2f}"
        first = f"{number}  {said:10}  {year[link.a]}, {link.a}: “{link.sentence_a}”"
        second = f"{' ' * 15}{year[link.b]}, {link.b}: “{link.sentence_b}”"
        for text in (first, second):
            lines += textwrap.wrap(text, width, subsequent_indent=" " * 15)
    return lines


def _draw_link(axis, start: pd.Series, end: pd.Series, number: int) -> None:
    """A numbered line between two points; between points of one side an arc below them."""
    along = np.linspace(0, 1, 40)
    x = start["year"] + (end["year"] - start["year"]) * along
    y = start["y"] + (end["y"] - start["y"]) * along
    bend = np.zeros_like(along)
    if abs(start["y"] - end["y"]) < 0.5:
        bend = 1.4 * along * (1 - along)
    axis.plot(x, y - bend, color="black", lw=0.9, zorder=2)
    axis.text(
        (start["year"] + end["year"]) / 2,
        (start["y"] + end["y"]) / 2 - bend[20],
        f"{number}",
        fontsize=8,
        weight="bold",
        ha="center",
        va="center",
        zorder=5,
        bbox={"boxstyle": "circle,pad=0.15", "fc": "white", "lw": 0.6},
    )
