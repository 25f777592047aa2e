"""Figures of the contradiction study, each drawn from a result table."""

from __future__ import annotations

import textwrap
from collections.abc import Collection

import numpy as np
import pandas as pd

from lib.plots.dots import plot_dots
from lib.plots.palette import COLOURS, GREY
from lib.plots.style import SMALL, WIDTH, headline, label_ends, pyplot

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
    without intervals is a line alone. Lines are labelled by ``label`` at the right.
    """
    periods = [period for period in dict.fromkeys(table["period"]) if period != "all"]
    figure, axis = pyplot().subplots(figsize=(WIDTH, 3.2))
    ends = []
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
        told = rows["label"].iloc[0].replace(", n =", ",\nn =")
        ends.append((places[-1], rows["value"].iloc[-1], told, colour))
    axis.set_xticks(range(len(periods)), periods)
    axis.set(ylim=(-0.03, 1.05), xlim=(-0.2, len(periods) - 0.8))
    axis.set(xlabel="published", ylabel="share of abstracts, 95 %")
    headline(figure, title)
    label_ends(axis, ends)
    return figure


def said_of_periods(judged: pd.DataFrame) -> str:
    """How few of the real abstracts of ``plot_periods`` have a nearest one that could contradict.

    ``judged`` is ``contradiction_judged``.
    """
    near = judged.set_index(["group", "measure"]).loc[("near", "same")]
    return (
        f"Of {near['n']:,.0f} real abstracts {near['count']:,.0f} are on the same question as the "
        "nearest one: too few to ask whether they contradict"
    )


def said_of_quality(table: pd.DataFrame, least: float, trained_on: Collection[str]) -> str:
    """On how many sets the interval of a model's AUROC lies above ``least``: the best, and others;
    and on how many of them it was trained (``trained_on``: how the names of those begin).

    ``table``: backend, set, auroc, auroc_low.
    """
    clear = table[table["auroc_low"] > least].groupby("backend", sort=False)["set"].agg(list)
    clear = clear.reindex(table["backend"].unique()).map(lambda x: x if isinstance(x, list) else [])
    counts = clear.map(len)
    best = counts.idxmax()
    others = int(counts.drop(best).max())
    learnt = sum(name.startswith(tuple(trained_on)) for name in clear[best])
    of_training = f" ({learnt} of them of its training's kind)" if learnt else ""
    told = f"“{best}” lies above {least:g} with its whole interval on {counts[best]} of "
    return (
        f"{told}{table['set'].nunique()} sets{of_training}, "
        f"no other on {f'more than {others}' if others else 'any'}"
    )


def plot_quality(table: pd.DataFrame, title: str, marks: tuple[float, ...] = ()):
    """AUROC of every NLI model, a panel a labelled set, with its interval and chance.

    ``table``: backend, set, auroc, auroc_low, auroc_high, n. ``marks`` are dashed lines.
    """
    values = {"auroc": "value", "auroc_low": "low", "auroc_high": "high", "backend": "row"}
    rows = table.rename(columns=values)
    rows["panel"] = rows["set"]
    rows["colour"] = rows["row"].map(_BACKENDS).fillna("black")
    levels = {"guessing": 0.5} | {f"AUROC {mark:g}": mark for mark in marks}
    xlim = (min(0.4, rows["low"].min()), 1)
    return plot_dots(rows, title, "AUROC, 95 % intervals", levels=levels, xlim=xlim)


def _panel(axis, cells: pd.DataFrame, title: str):
    """One grid of shares, on a scale from 0 to 1; a cell's number is readable whatever its
    colour."""
    values = cells.to_numpy(dtype=float)
    image = axis.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = "–" if np.isnan(value) else f"{value:.0%}"
        colour = "white" if value > 0.55 else "black"  # NaN is drawn on white
        axis.text(column, row, text, ha="center", va="center", fontsize=SMALL, color=colour)
    axis.set_xticks(range(cells.shape[1]), cells.columns, rotation=45, ha="right")
    axis.set_yticks(range(cells.shape[0]), cells.index)
    axis.set_title(title, fontsize=SMALL + 0.5)
    axis.grid(visible=False)
    return image


def plot_heatmap(table: pd.DataFrame, evidence: str):
    """Figure 2 as the paper draws it: of each period's documents the share in each bin of CNT.

    ``table``: contradiction (judged or modelled), period, cnt_bin, documents, reported; a panel
    each, and one for the paper. ``evidence`` is its name.
    """
    names = list(dict.fromkeys(table["contradiction"]))
    evidence = "real abstracts" if evidence == "open" else evidence
    panels = [(name, "documents", f"{evidence}, {name}") for name in names]
    panels.append((names[-1], "reported", "the paper, modelled"))
    figure, axes = pyplot().subplots(1, len(panels), figsize=(WIDTH, 3.2), sharey=True)
    periods = list(dict.fromkeys(table["period"]))
    high = []
    for axis, (which, column, name) in zip(axes, panels, strict=True):
        rows = table[table["contradiction"] == which]
        counts = rows.pivot(index="period", columns="cnt_bin", values=column).loc[periods]
        total = counts.sum(axis=1)
        shares = counts.div(total.where(total > 0), axis=0)
        image = _panel(axis, shares, f"{name}\nn = {total.sum():,.0f}")
        above = counts[[cell for cell in counts if float(cell[1:].split(",")[0]) >= 0.6]]
        high.append(f"{above.to_numpy().sum() / total.sum():.0%} ({name})".replace("%", " %"))
    axes[0].set(ylabel="published")
    figure.supxlabel("contradiction score CNT of a document", fontsize=9)
    figure.colorbar(image, ax=axes, label="share of a period's documents", shrink=0.8)
    headline(figure, f"Documents with a score of .6 or more: {', '.join(high)}")
    return figure


def plot_timeline(nodes: pd.DataFrame, links: pd.DataFrame, question: str):
    """One question's abstracts by year and side; lines join the pairs that contradict most.

    ``nodes``: id, year, cnt, side; a larger point has a higher CNT(d). ``links``, highest first:
    a, b, value, sentence_a, sentence_b, and ``reason`` where a judge gave one. The abstracts of
    the links are named, and their sentences stand below.
    """
    in_nodes = list(dict.fromkeys(nodes["side"]))
    # A side that _SIDES does not know (of PubMed: its own name) comes last, in black.
    sides = sorted(in_nodes, key=[*_SIDES, *in_nodes].index)
    crowd = nodes.groupby(["side", "year"]).cumcount() * 0.25  # one year's points side by side
    height = nodes["side"].map(sides[::-1].index) + crowd
    points = nodes.assign(y=height).set_index("id")
    lines = _sentences_below(links, points["year"])
    heights = [0.9 + 0.5 * len(sides), 0.145 * len(lines) + 0.1]
    figure = pyplot().figure(figsize=(WIDTH, sum(heights) + 0.5))
    # Two subfigures: the text takes the whole width, whatever the names of the sides need.
    above, below = figure.subfigures(2, 1, height_ratios=heights)
    axis = above.subplots()
    size = 20 + 100 * points["cnt"] / (points["cnt"].max() or 1)
    colour = [_SIDES.get(side, "black") for side in points["side"]]
    axis.scatter(points["year"], points["y"], s=size, color=colour, zorder=3)
    for number, link in enumerate(links.itertuples(), 1):
        _draw_link(axis, points.loc[link.a], points.loc[link.b], number)
    for point in points.loc[list(dict.fromkeys([*links["a"], *links["b"]]))].itertuples():
        axis.annotate(
            _short_id(point.Index),
            (point.year, point.y),
            fontsize=SMALL,
            ha="center",
            xytext=(0, 9),
            textcoords="offset points",
            zorder=6,
            bbox={"fc": "white", "ec": "none", "pad": 0.5},
        )
    axis.set_yticks(range(len(sides)), sides[::-1])
    axis.set(ylim=(-0.5, len(sides) - 0.3), xlabel="published; larger: contradicted by more")
    below.text(0.01, 0.98, "\n".join(lines), va="top", fontsize=SMALL)
    counts = ", ".join(
        f"{n}\u00a0{side}" for side, n in nodes["side"].value_counts()[sides].items()
    )
    headline(figure, f"“{question}” {len(nodes)} abstracts: {counts}")
    return figure


def _short_id(name: str) -> str:
    """What follows the topic in the id of an abstract."""
    return name.rpartition("-")[2]


def _sentences_below(links: pd.DataFrame, year: pd.Series, width: int = 108) -> list[str]:
    """The lines of text under a timeline: of each link both abstracts and the two sentences."""
    lines = []
    for number, link in enumerate(links.itertuples(), 1):
        said = getattr(link, "reason", "") or f"CNT {link.value:.2f}"
        lines.append(f"{number}  {said}")
        for name, sentence in ((link.a, link.sentence_a), (link.b, link.sentence_b)):
            told = f"{year[name]}, {_short_id(name)}: “{sentence}”"
            looks = {"initial_indent": " " * 5, "subsequent_indent": " " * 9}
            lines += textwrap.wrap(told, width, **looks)
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
