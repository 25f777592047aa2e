"""Contrast on real questions, drawn from ``real_lambda``: what is lost and what is ruled out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.plots.palette import COLOURS
from lib.plots.style import count_label, mark_lambda, pyplot

__all__ = ["plot_real_lambda"]

_RIGHT, _WRONG = COLOURS["target"], COLOURS["mimic"]

PANELS = (
    ("exams", (("hit_right", _RIGHT, "the right option"), ("misled", _WRONG, "a wrong option"))),
    (
        "exams",
        (
            ("supports_right_at_5", _RIGHT, "the right option"),
            ("supports_wrong_at_5", _WRONG, "a wrong option"),
            ("on_topic_at_5", COLOURS["neither"], "on the topic"),
        ),
    ),
    ("bioasq", (("p_at_5", COLOURS["hplus"], "given by experts"),)),
)
"""The data set of each panel and the metrics drawn in it: metric, colour, what it is about."""

TITLES = (
    "exams: some passage of five supports",
    "exams: share of the five that is",
    "BioASQ: share of the five that is",
)


def plot_real_lambda(
    curves: pd.DataFrame,
    lam: float,
    chosen: Mapping[str, float] | None = None,
    mimics: Sequence[str] = (),
):
    """Support for the right and for a wrong option over lambda, and P@5, each with 95 % bands.

    ``curves`` are rows of ``real_lambda`` (columns dataset, metric, mimic, lambda, value, low,
    high, n) of one form and visibility. Of the mimics, "own" is a line, any other in ``mimics`` a
    set of open dots. ``chosen`` are lambdas to mark by dataset, besides the reader's ``lam``.
    """
    figure, axes = pyplot().subplots(1, len(PANELS), figsize=(10, 3.6))
    for axis, title, (dataset, metrics) in zip(axes, TITLES, PANELS, strict=True):
        own = curves[curves["dataset"] == dataset]
        for metric, colour, label in metrics:
            rows = own[own["metric"] == metric].sort_values("lambda")
            line = rows[(rows["mimic"] == "own") & (rows["lambda"] >= 0)]
            axis.plot(line["lambda"], line["value"], "o-", ms=3, color=colour, label=label)
            axis.fill_between(
                line["lambda"], line["low"], line["high"], color=colour, alpha=0.13, lw=0
            )
            for mimic, marker in zip(mimics, ("D", "s"), strict=False):
                dots = rows[rows["mimic"] == mimic]
                error = [dots["value"] - dots["low"], dots["high"] - dots["value"]]
                axis.errorbar(
                    dots["lambda"],
                    dots["value"],
                    yerr=error,
                    fmt=marker,
                    ms=5,
                    mfc="none",
                    color=colour,
                    lw=0.8,
                    label=f"the same, {mimic}",
                )
        if chosen and dataset in chosen:
            axis.axvline(chosen[dataset], color=COLOURS["neither"], lw=0.8, ls="--")
        mark_lambda(axis, lam)
        axis.set(title=f"{title}, {count_label(own['n'])}", xlabel="λ", ylim=(0, None))
    axes[0].set(ylabel="share of questions")
    axes[1].set(ylabel="mean share of the top five")
    dashed = "; dashed: the λ that dev chose" if chosen else ""
    _legend(figure, axes, f"dotted: λ = {lam:g}{dashed}")
    return figure


def _legend(figure, axes, title: str) -> None:
    """One legend of all panels, each name once."""
    named = {}
    for axis in axes:
        named |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(named.values(), named.keys(), title=title, ncol=4, loc="outside lower center")
