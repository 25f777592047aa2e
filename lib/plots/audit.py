"""Figures of the audit: what the discordance that nobody printed would make of the margins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lib.plots.style import SMALL, WIDTH, headline, pyplot
from lib.studies.paper_audit.margins import (
    BASELINES,
    DATASETS,
    GENERATORS,
    next_best,
    p_by_discordance,
    short,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = {
    GENERATORS[0]: {"color": "#0072B2", "ls": "-"},
    GENERATORS[1]: {"color": "#CC79A7", "ls": "-"},
    GENERATORS[2]: {"color": "#000000", "ls": "--"},
}
_SURE = "#009E73"
_UNSURE = "#E69F00"


def plot_p(margins: pd.DataFrame) -> Figure:
    """Exact McNemar p over the share of discordant questions, for CHR and the next best method.

    A curve begins at the least discordance that its margin allows. A dot marks the discordance of
    independent answers. ``margins`` is ``lib.studies.paper_audit.margins.margins``.
    """
    figure, axes = pyplot().subplots(1, len(DATASETS), figsize=(WIDTH, 3.6), sharey=True)
    smallest = next_best(margins)
    for axis, dataset in zip(axes, DATASETS, strict=True):
        rows = smallest[smallest["dataset"] == dataset]
        for row in rows.itertuples():
            curve = p_by_discordance(row.extra_right, row.n)
            percent = 100 * curve["share"]
            line = _LINES[row.generator]
            label = f"{short(row.generator)}: {row.margin:.1f} over {row.baseline}"
            axis.plot(percent, curve["p"], label=label, **line)
            nearest = (curve["discordant"] - row.independent).abs().idxmin()
            axis.plot(percent[nearest], curve["p"][nearest], "o", ms=5, color=line["color"])
        axis.axhline(0.05, color="black", lw=0.8, ls=":")
        axis.set(yscale="log", ylim=(1e-6, 1.5), xlim=(0, 70))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set(xlabel="discordant questions, %", title=f"{dataset}, n = {rows['n'].iloc[0]:,}")
        # Below, where it covers no curve.
        axis.legend(loc="upper center", bbox_to_anchor=(0.42, -0.2), handlelength=1.4)
    axes[0].set(ylabel="p, exact McNemar")
    axes[0].annotate("p = 0.05", (69, 0.05), ha="right", va="bottom", fontsize=SMALL)
    sure = smallest["most_significant"] >= smallest["independent"]
    counts = sure.groupby(smallest["dataset"]).agg(["sum", "size"]).loc[list(DATASETS)]
    told = [f"{own['sum']} of {own['size']} on {name}" for name, own in counts.iterrows()]
    headline(figure, f"CHR's leads over the next best with p ≤ 0.05 at the dot: {', '.join(told)}")
    return figure


def plot_discordance(margins: pd.DataFrame) -> Figure:
    """All margins: on how many questions the two methods may differ for p to be at most 0.05.

    ``margins`` is ``lib.studies.paper_audit.margins.margins``.
    """
    figure, axes = pyplot().subplots(1, len(DATASETS), figsize=(WIDTH, 4.6), sharey=True)
    names = [f"{short(generator)}, {base}" for generator in GENERATORS for base in BASELINES]
    heights = np.arange(len(names))[::-1]  # the first name on top
    axes[0].set_yticks(heights, names)
    for axis, dataset in zip(axes, DATASETS, strict=True):
        rows = margins[margins["dataset"] == dataset].reset_index(drop=True)
        n = rows["n"].iloc[0]
        sure = rows["most_significant"] >= rows["independent"]
        for chosen, colour, label in (
            (sure, _SURE, "p ≤ 0.05, independent answers too"),
            (~sure, _UNSURE, "p ≤ 0.05 only so far"),
        ):
            left = 100 * rows["fewest_discordant"][chosen] / n
            right = 100 * rows["most_significant"][chosen] / n
            # A bar of no width would not be seen.
            width = (right - left).clip(lower=0.8)
            axis.barh(heights[chosen], width, left=left, color=colour, height=0.6, label=label)
        independent = 100 * rows["independent"] / n
        axis.plot(independent, heights, "k|", ms=8, label="if answers were independent")
        axis.set_axisbelow(True)
        axis.set(xlim=(0, 100), xlabel="discordant questions, %")
        axis.set_title(f"{dataset}, n = {n:,}")
    figure.legend(*axes[0].get_legend_handles_labels(), ncol=3, loc="outside lower center")
    lost = int((margins["most_significant"] < margins["independent"]).sum())
    told = f"{lost} of CHR's {len(margins)} leads are not beyond chance"
    headline(figure, f"{told} if answers are independent")
    return figure
