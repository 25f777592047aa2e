"""Figures of the mimic study, each drawn from a result table: tiers, and the worked cases."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.plots import said
from lib.plots.dots import plot_dots
from lib.plots.labels import grid_label
from lib.plots.palette import COLOURS, in_order_of_arms
from lib.plots.style import SMALL, WIDTH, headline, pyplot
from lib.stats import CLASSES
from lib.studies.mimics.cases import PAPER, crossing
from lib.studies.mimics.tables import PHYSICIAN
from lib.studies.mimics.tier_statistics import TIERS


def tier_rows(table: pd.DataFrame) -> pd.DataFrame:
    """What ``plot_tiers`` draws of ``table4``: the paper's accuracy, ours, and P@k, by tier.

    Ours are by the grader that comes first after the paper's physician, with the first reader.
    Columns: panel, row (the tier), series (the method), value, low, high, n.
    """
    graded = table[table["n"] > 0]
    paper = graded[graded["grader"] == PHYSICIAN].assign(panel=PHYSICIAN)
    ours = graded[graded["grader"] != PHYSICIAN]
    first = ours[ours["grader"] == ours["grader"].iloc[0]] if len(ours) else ours
    parts = [paper.assign(panel="the paper: accuracy")]
    accuracies = [m for m in first["measure"].unique() if m.startswith("accuracy")][:1]
    for measure in [*accuracies, *(m for m in first["measure"].unique() if m.startswith("P@"))]:
        parts.append(first[first["measure"] == measure].assign(panel=measure))
    rows = pd.concat(parts, ignore_index=True)
    return rows.assign(
        row=pd.Categorical(rows["tier"], list(TIERS)),
        series=pd.Categorical(rows["method"], in_order_of_arms(rows["method"])),
    ).sort_values("series", kind="stable")


def plot_tiers(rows: pd.DataFrame, lam: float):
    """Does the tier of the mimic matter? H+ alone and CHR by tier, a panel a measure.

    ``rows`` is ``tier_rows``. What the tier says about contrast is the distance between H+ alone
    and CHR within a tier. ``lam`` is the lambda of the rows ``chr_given``.
    """
    accurate = rows["panel"].str.startswith("accuracy") & (rows["method"] == "chr")
    grader = rows.loc[rows["grader"] != PHYSICIAN, "grader"]
    told = f"; ours: tiers of the grader “{grader.iloc[0]}”" if len(grader) else ""
    xlabel = f"95 % intervals, number: n{told}"
    names = {method: grid_label(method, lam) for method in rows["method"].unique()}
    return plot_dots(rows, said.tiers(rows[accurate]), xlabel, xlim=(-0.03, 1.08), names=names)


def plot_cases(ranks: pd.DataFrame, printed: pd.DataFrame, k: int, lambdas: Sequence[float]):
    """Ranks of the passages in a top k at one of ``lambdas``, for one pair; a panel for each case.

    Ranks beyond twice k stand at the lower edge with their number. Below each lambda: how many of
    the top k are on the target, and of the paper's excerpts where it ``printed`` any.
    """
    ranks, last = crossing(ranks, k, lambdas), 2 * k + 1
    figure, axes = pyplot().subplots(2, 3, figsize=(WIDTH, 6.6), sharey=True)
    found = dict.fromkeys(lambdas, 0)
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
            axis.annotate(text, (x, last + 0.5), fontsize=SMALL, va="top", ha="center")
            here = told[told["lambda"] == lam]
            hits = here["class"].isin(["target", "both"]).groupby(here["pair"] == PAPER)
            counts = {paper: f"{own.sum()} of {len(own)}" for paper, own in hits}
            found[lam] += int(hits.sum().get(False, 0))
            paper = f"\npaper:\n{counts[True]}" if True in counts else "\n\n"
            labels.append(f"{f'λ = {lam:g}' if lam else 'H+ alone'}\n{counts.get(False)}{paper}")
        axis.set_xticks(range(len(lambdas)), labels, fontsize=SMALL)
        axis.axhspan(0.5, k + 0.5, color="#f2f2f2", zorder=0)
        depth = last + 0.95 * k + 1
        axis.set(ylim=(depth, 0.5), xlim=(-0.35, len(lambdas) - 0.65), yticks=[1, k, 2 * k])
        axis.set_title(name)
    for axis in axes[:, 0]:
        axis.set(ylabel="rank")
    _explain(axes[1, 2], k)
    places = k * ranks["case"].nunique()
    told = [f"{n} at λ = {lam:g}" if lam else f"{n} with H+ alone" for lam, n in found.items()]
    headline(figure, f"On the target, of {places} top places: {', '.join(told)}")
    return figure


def _explain(axis, k: int) -> None:
    """The panel that is left over says what the others show."""
    axis.axis("off")
    for name in CLASSES:
        axis.plot([], [], marker="o", color=COLOURS[name], label=name)
    told = (
        f"A line is a passage.\nShaded: the top {k}.\nNumbers inside: ranks\nbeyond {2 * k}. "
        f"Below: how many\nof the top {k} are on the target.\n\nThe passage is on"
    )
    axis.legend(title=told, loc="upper left", alignment="left")
