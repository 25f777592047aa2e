"""Figures of the audit: what the discordance that nobody printed would make of the margins."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib.plots.style import pyplot
from lib.studies.audit.margins import DATASETS, GENERATORS, curve, next_best

__all__ = ["plot_discordance", "plot_p"]

_LOOKS = (("#0072B2", "-"), ("#CC79A7", "-"), ("#000000", "--"))
_GENERATORS = dict(zip(GENERATORS, _LOOKS, strict=True))


def plot_p(margins: pd.DataFrame):
    """Exact McNemar p over the share of discordant questions, for CHR and the next best method.

    A curve begins where the margin forces it to, and a dot marks independent answers.
    """
    figure, axes = pyplot().subplots(1, len(DATASETS), figsize=(9.6, 3.4), sharey=True)
    for axis, dataset in zip(axes, DATASETS, strict=True):
        own = next_best(margins)
        own = own[own["dataset"] == dataset]
        for row in own.itertuples():
            line = curve(row.more, row.n)
            label = f"{row.generator.split('-')[0]}: {row.margin:.1f} over {row.baseline}"
            colour, dashes = _GENERATORS[row.generator]
            axis.plot(100 * line["share"], line["p"], color=colour, ls=dashes, label=label)
            at = (line["discordant"] - row.independent).abs().idxmin()
            axis.plot(100 * line["share"][at], line["p"][at], "o", ms=5, color=colour)
        axis.axhline(0.05, color="black", lw=0.8, ls=":")
        axis.set(yscale="log", ylim=(1e-6, 1.5), xlim=(0, 70))
        axis.set(xlabel="discordant questions, %", title=f"{dataset}, n = {own['n'].iloc[0]:,}")
        axis.legend(loc="lower right", fontsize=7, frameon=True, framealpha=0.9, edgecolor="white")
    axes[0].set(ylabel="p, exact McNemar")
    return figure


def plot_discordance(margins: pd.DataFrame):
    """All margins: on how many questions CHR and the other may differ for p to be at most 0.05."""
    figure, axes = pyplot().subplots(1, len(DATASETS), figsize=(9.6, 4.4), sharey=True)
    for axis, dataset in zip(axes, DATASETS, strict=True):
        own = margins[margins["dataset"] == dataset].reset_index(drop=True)
        share = {c: 100 * own[c] / own["n"] for c in ("forced", "limit", "independent")}
        y = np.arange(len(own))[::-1]
        enough = own["limit"] >= own["independent"]
        for some, colour, label in (
            (enough, "#009E73", "p ≤ 0.05, independent answers too"),
            (~enough, "#E69F00", "p ≤ 0.05 only so far"),
        ):
            left = share["forced"][some]
            width = (share["limit"][some] - left).clip(lower=0.4)
            axis.barh(y[some], width, left=left, color=colour, height=0.6, label=label)
        axis.plot(share["independent"], y, "k|", ms=8, label="if answers were independent")
        axis.set_axisbelow(True)
        axis.set(xlim=(0, 100), xlabel="discordant questions, %")
        axis.set_title(f"{dataset}, n = {own['n'].iloc[0]:,}")
        names = [f"{r.generator.split('-')[0]}, {r.baseline}" for r in own.itertuples()]
    axes[0].set_yticks(y, names, fontsize=7)
    figure.legend(*axes[0].get_legend_handles_labels(), ncol=3, loc="outside upper center")
    return figure
