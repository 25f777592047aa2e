"""Figures of the mimic study, each drawn from a result table: tiers, and the worked cases."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.plots.labels import label_of
from lib.plots.palette import COLOURS, GREY
from lib.plots.style import pyplot
from lib.stats import CLASSES
from lib.studies.mimics.cases import PAPER, crossing
from lib.studies.mimics.tables import PHYSICIAN
from lib.studies.mimics.tier_statistics import TIERS

__all__ = ["plot_cases", "plot_tiers"]


def plot_tiers(table: pd.DataFrame, k: int):
    """Table 4: CHR's accuracy by tier and grader (diamonds: the paper's), and P@k by method."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(8.6, 3.8), width_ratios=(3, 2))
    table = table[table["n"] > 0]
    told = table[(table["method"] == "chr") & table["measure"].str.startswith("accuracy")]
    reader = [m for m in told["measure"].unique() if m != "accuracy"][:1]
    told = told[told["measure"].isin(["accuracy", *reader])]
    colours = (GREY, "#0072B2", "#56B4E9", "#009E73", "#CC79A7")  # none that the right panel has
    _points(left, told, "grader", dict(zip(told["grader"].unique(), colours, strict=False)))
    left.set(ylabel="accuracy of CHR (λ = 1), exact 95 %", title="; ".join(reader))
    told = table[table["measure"] == f"P@{k}"]
    told = told[told["grader"] == told["grader"].iloc[0]] if len(told) else told
    _points(right, told, "method", COLOURS)
    right.set(ylabel=f"P@{k}, 95 % where n ≥ 10", title="tiers of the first grader")
    for axis in (left, right):
        axis.set_xticks(range(len(TIERS)), TIERS)
        axis.set(ylim=(0, 1.08), xlim=(-0.5, len(TIERS) - 0.5))
        if axis.containers:
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncol=2, fontsize=7)
    return figure


def _points(axis, rows: pd.DataFrame, by: str, colours: dict[str, str]) -> None:
    """A point with its interval and n for every tier, one colour for each value of ``by``."""
    names = list(dict.fromkeys(rows[by]))
    for i, name in enumerate(names):
        own = rows[rows[by] == name]
        x = own["tier"].map(TIERS.index) + 0.85 * ((i + 0.5) / len(names) - 0.5)
        error = [own["value"] - own["low"], own["high"] - own["value"]]
        looks = {"fmt": "D", "mfc": "white"} if name == PHYSICIAN else {"fmt": "o"}
        axis.errorbar(
            x, own["value"], error, color=colours[name], ms=5, lw=1.3, label=label_of(name), **looks
        )
        for at, value, n in zip(x, own["value"], own["n"], strict=True):
            axis.annotate(
                f"{n}", (at, value), xytext=(4, 3), textcoords="offset points", fontsize=7
            )


def plot_cases(ranks: pd.DataFrame, printed: pd.DataFrame, k: int, lambdas: Sequence[float]):
    """Ranks of the passages in a top k at one of ``lambdas``, for one pair; a panel for each case.

    Ranks beyond twice k stand at the lower edge with their number. Below each lambda: how many of
    the top k are on the target, and of the paper's excerpts where it ``printed`` any.
    """
    ranks, last = crossing(ranks, k, lambdas), 2 * k + 1
    figure, axes = pyplot().subplots(2, 3, figsize=(8.6, 6.2), sharey=True)
    for axis, (name, case) in zip(axes.flat, ranks.groupby("case", sort=False), strict=False):
        for _, line in case.groupby("pid"):
            line, colour = line.sort_values("lambda"), COLOURS[line["class"].iloc[0]]
            places = line["rank"].clip(upper=last)
            axis.plot(range(len(line)), places, marker="o", ms=4, lw=1.4, color=colour)
        told = pd.concat([case[case["rank"] <= k], printed[printed["case"] == name]])
        labels = []
        for x, lam in enumerate(lambdas):
            far = case[(case["lambda"] == lam) & (case["rank"] >= last)]["rank"]
            text = "\n".join(map(str, sorted(far)))
            axis.annotate(text, (x, last + 0.5), fontsize=6, va="top", ha="center")
            here = told[told["lambda"] == lam]
            hits = here["class"].isin(["target", "both"]).groupby(here["pair"] == PAPER)
            counts = {paper: f"{own.sum()} of {len(own)}" for paper, own in hits}
            paper = f"\npaper: {counts[True]}" if True in counts else "\n"
            labels.append(f"{f'λ = {lam:g}' if lam else 'H+ alone'}\n{counts.get(False)}{paper}")
        axis.set_xticks(range(len(lambdas)), labels, fontsize=7)
        axis.axhspan(0.5, k + 0.5, color="#f2f2f2", zorder=0)
        axis.set(
            ylim=(last + 0.8 * k + 1, 0.5), xlim=(-0.3, len(lambdas) - 0.7), yticks=[1, k, 2 * k]
        )
        axis.set_title(name, loc="left")
    for axis in axes[:, 0]:
        axis.set(ylabel="rank")
    axes[1, 2].axis("off")
    for name in CLASSES:
        axes[1, 2].plot([], [], marker="o", color=COLOURS[name], label=name)
    title = f"The passage is on\n(grey: the top {k};\nnumbers inside: ranks beyond {2 * k};\n"
    axes[1, 2].legend(title=title + "below: how many are on the target)", loc="upper left")
    return figure
