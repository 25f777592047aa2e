"""Retrieval over lambda, lines, spectra and paired differences, drawn from result tables alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.plots.labels import label_of, with_labels
from lib.plots.palette import COLOURS, GREY, colour_of, in_order
from lib.plots.style import count_label, legend_below, mark_lambda, nothing_drawn, pyplot
from lib.stats import CLASSES

__all__ = [
    "plot_lambda",
    "plot_trade_off",
    "plot_lines",
    "plot_sizes",
    "plot_spectrum",
    "plot_studies",
    "plot_reading",
    "plot_differences",
    "plot_reported_lambda",
    "plot_cosines",
]


def _lines(axis, rows: pd.DataFrame, x: str, y: str, colour: str, label: str) -> None:
    if x == "lambda" and len(rows) == 1:
        axis.axhline(rows[y].iloc[0], color=colour, lw=1.2, ls="--", label=label)
        return
    axis.plot(rows[x], rows[y], marker="o", markersize=3, color=colour, label=label)
    if x == "lambda" and f"{y}_low" in rows:  # only P@k has an interval
        axis.fill_between(
            rows[x], rows[f"{y}_low"], rows[f"{y}_high"], color=colour, alpha=0.13, lw=0
        )


def _measures(k: int) -> dict[str, str]:
    share = f"mean share of top {k}"
    return {
        "p_at_5": f"P@{k}",
        "contamination_at_5": f"{share}\non the nearest mimic",
        "neither_at_5": f"{share}\non neither, or not judged",
    }


def _coloured(curves: pd.DataFrame, by: str):
    """Label, rows and colour of every curve; the label says n where the curves differ in it."""
    for i, (label, rows) in enumerate(curves.groupby(by, sort=False)):
        n = f", {count_label(rows['n'])}" if curves["n"].nunique() > 1 else ""
        yield f"{label_of(label)}{n}", rows, colour_of(label, i)


def plot_lambda(
    curves: pd.DataFrame, by: str = "family", k: int = 5, title: str = "", lam: float = 0.4
):
    """P@k with its 95 % band, mimic share and off-topic share over lambda, one line per ``by``.

    ``by`` is a column of keys: their colours are the palette's, their names ``label_of``'s. What
    has one row only, such as the question alone, is a level line. ``lam`` is the reader's lambda:
    a dotted line.
    """
    figure, axes = pyplot().subplots(1, 3, figsize=(9.6, 3.6))
    for axis, (metric, name) in zip(axes, _measures(k).items(), strict=True):
        for label, rows, colour in _coloured(curves, by):
            _lines(axis, rows, "lambda", metric, colour, label)
        mark_lambda(axis, lam)
        axis.set(xlabel="λ", ylabel=name, ylim=(0, None))
    axes[0].set(ylabel=f"P@{k}, 95 % band")
    legend_below(figure, axes[0], f"{title}, {count_label(curves['n'])}; dotted: λ = {lam:g}")
    return figure


def plot_studies(curves: pd.DataFrame, by: str = "family", k: int = 5, lam: float = 0.4):
    """P@k over lambda with its 95 % band, a panel for each value of the column ``study``.

    All panels have one scale, so that they can be compared; lines are as in ``plot_lambda``.
    """
    studies = list(dict.fromkeys(curves["study"]))
    columns = min(len(studies), 2)
    rows = -(-len(studies) // columns)
    size = 4.4 * columns, 2.9 * rows + 0.5
    figure, axes = pyplot().subplots(
        rows, columns, figsize=size, sharey=True, sharex=True, squeeze=False
    )
    for axis, study in zip(axes.flat, studies, strict=False):
        own = curves[curves["study"] == study]
        for label, line, colour in _coloured(own, by):
            _lines(axis, line, "lambda", "p_at_5", colour, label)
        mark_lambda(axis, lam)
        axis.set(title=f"{study}, {count_label(own['n'])}")
    # Once all is drawn: the panels share the scale, and a limit set early would cut the others.
    axes[0, 0].set(ylim=(0, None))
    for axis in axes[-1]:
        axis.set(xlabel="λ")
    for axis in axes[:, 0]:
        axis.set(ylabel=f"P@{k}, 95 % band")
    for axis in axes.flat[len(studies) :]:
        axis.axis("off")
    legend_below(figure, axes[0, 0], f"dotted: λ = {lam:g}")
    return figure


def plot_reading(table: pd.DataFrame, chance: float = 0.2):
    """A reader's accuracy by what was retrieved: a row an arm, a panel for each ``study``.

    Columns ``study, label, accuracy, low, high, n, accuracy_found, accuracy_not_found``. A reader
    that is an instrument is right where a target was found, and at ``chance`` (the dashed line, of
    five options) where none was.
    """
    studies = list(dict.fromkeys(table["study"]))
    labels = list(dict.fromkeys(table["label"]))
    size = 3.2 + 2.6 * len(studies), 0.3 * len(labels) + 1.4
    figure, axes = pyplot().subplots(1, len(studies), figsize=size, sharey=True, squeeze=False)
    split = {"accuracy_found": ("^", "a target was found"), "accuracy_not_found": ("v", "none was")}
    for axis, study in zip(axes[0], studies, strict=True):
        own = table[table["study"] == study]
        y = own["label"].map(labels.index)
        error = [own["accuracy"] - own["low"], own["high"] - own["accuracy"]]
        told = "all questions, 95 %"
        axis.errorbar(own["accuracy"], y, xerr=error, fmt="o", color="black", ms=4, label=told)
        for column, (marker, name) in split.items():
            colour = COLOURS["target"] if column == "accuracy_found" else COLOURS["mimic"]
            axis.plot(own[column], y, marker, color=colour, ms=6, mfc="none", label=name)
        axis.axvline(chance, color="black", lw=0.8, ls="--", label="chance")
        axis.set(title=f"{study}, {count_label(own['n'])}", xlabel="accuracy", xlim=(0, 1.03))
    axes[0, 0].set_yticks(range(len(labels)), labels)
    axes[0, 0].invert_yaxis()
    legend_below(figure, axes[0, 0])
    return figure


def plot_trade_off(curves: pd.DataFrame, by: str = "family", k: int = 5):
    """P@k against contamination, and against the share on neither: what one buys costs the
    other."""
    figure, axes = pyplot().subplots(1, 2, figsize=(8, 3.9), sharey=True)
    (y, y_name), *shares = _measures(k).items()
    for axis, (x, name) in zip(axes, shares, strict=True):
        for label, rows, colour in _coloured(curves, by):
            _lines(axis, rows, x, y, colour, label)
        for lam, inside in ((0, COLOURS["hplus"]), (1, "white")):
            rows = curves[curves["lambda"].round(6) == lam]
            axis.plot(rows[x], rows[y], "o", ms=6, mec="black", mfc=inside, label=f"λ = {lam}")
        axis.set(xlabel=name)
    axes[0].set(ylabel=f"{y_name}, mean", ylim=(0, None))
    legend_below(figure, axes[0], count_label(curves["n"]), 4)
    return figure


def plot_lines(lines: pd.DataFrame, lam: float, k: int, lam_max: float = 1.4):
    """One question: every passage is a line in lambda, S = s_plus - lambda s_minus.

    Columns: ``pid, class, s_plus, s_minus``. The k highest at ``lam`` are drawn bold.
    """
    figure, axis = pyplot().subplots(figsize=(6.4, 3.8))
    top = set((lines["s_plus"] - lam * lines["s_minus"]).nlargest(k).index)
    ends = np.array([0, lam_max])
    for name in ("neither", "mimic", "both", "target"):
        for i, row in lines[lines["class"] == name].iterrows():
            looks = {"lw": 2.2, "alpha": 1} if i in top else {"lw": 0.7, "alpha": 0.45}
            axis.plot(ends, row.s_plus - ends * row.s_minus, color=COLOURS[name], **looks)
        if (lines["class"] == name).any():
            axis.lines[-1].set_label(name)
    mark_lambda(axis, lam)
    axis.annotate(f"λ = {lam:g}", (lam, axis.get_ylim()[1]), fontsize=8, ha="left", va="top")
    axis.set(xlabel="λ", ylabel="S(d) = cos(d, H+) − λ cos(d, H−)", xlim=(0, lam_max))
    axis.legend(title=f"bold: top {k} at this λ", loc="lower left")
    return figure


def plot_spectrum(spectrum: pd.DataFrame, k: int, lam: float = 0.4):
    """Which classes fill the top k over lambda, exactly: columns ``question, start, end`` and one
    count per class."""
    questions = spectrum.groupby("question", sort=False)
    figure, axes = pyplot().subplots(
        len(questions), 1, figsize=(6.4, 1.15 * len(questions) + 0.6), sharex=True, squeeze=False
    )
    for axis, (question, rows) in zip(axes[:, 0], questions, strict=True):
        bottom = np.zeros(len(rows))
        for name in CLASSES:
            axis.bar(
                rows["start"],
                rows[name],
                width=rows["end"] - rows["start"],
                bottom=bottom,
                align="edge",
                color=COLOURS[name],
                label=name,
                edgecolor="white",
                linewidth=0.4,
            )
            bottom += rows[name].to_numpy()
        axis.set(ylim=(0, k), yticks=[0, k])
        axis.set_title(question, loc="left", fontsize=8)
        axis.grid(visible=False)
        mark_lambda(axis, lam)
    axes[0, 0].legend(ncol=4, loc="lower right", bbox_to_anchor=(1, 1.12), fontsize=7)
    axes[-1, 0].set(xlabel="λ")
    figure.supylabel(f"passages of the top {k}", fontsize=9)
    return figure


def plot_differences(table: pd.DataFrame, xlabel: str):
    """Forest plot of paired differences: columns ``label, difference, low, high, n``.

    Without ``label`` a row is called by its ``arm`` and ``against``. A colour is a verdict: that of
    ``verdict``, else what ``p_holm`` leaves. A row with neither is exploratory, and grey: nothing
    is concluded from it. Differences of fewer than six questions have no interval.
    """
    if table.empty:
        return nothing_drawn(xlabel)
    if "label" not in table:
        table = with_labels(table)
    if "dataset" in table:
        table = table.sort_values("dataset", key=lambda d: d.map(in_order(d).index), kind="stable")
    kinds = _kinds(table)
    y = np.arange(len(table))[::-1]
    figure, axis = pyplot().subplots(figsize=(6.8, 0.3 * len(table) + 1.2))
    for kind, rows in table.groupby(kinds):
        colour, few = COLOURS.get(kind, GREY), kind.startswith("TOO FEW")
        error = np.abs(rows[["low", "high"]].to_numpy().T - rows["difference"].to_numpy())
        looks = {"mfc": "none"} if few else {"xerr": error}
        at = rows["difference"], y[kinds == kind]
        axis.errorbar(*at, fmt="o", color=colour, ms=4, lw=1.4, label=kind, **looks)
    axis.axvline(0, color="black", lw=0.8, zorder=1)
    each = table["n"].map(", n = {:.0f}".format) if table["n"].nunique() > 1 else ""
    axis.set_yticks(y, table["label"] + each)
    axis.set_ylim(-0.6, len(table) - 0.4)
    bars = "95 % intervals, uncorrected; " if (table["n"] >= 6).any() else ""
    figure.supxlabel(f"{xlabel}\n{bars}{count_label(table['n'])}", fontsize=9)
    figure.legend(ncol=4, loc="outside upper center")
    return figure


EXPLORATORY = "exploratory: no verdict"
"""What the legend calls a difference that nobody declared before looking."""


def _kinds(table: pd.DataFrame) -> pd.Series:
    """What the legend calls each row of a forest plot."""
    kinds = pd.Series(EXPLORATORY, table.index)
    if "p_holm" in table:
        tested = table["p_holm"].notna()
        clear = table["p_holm"] < 0.05
        kinds = kinds.mask(tested, "p ≥ 0.05 (Holm)").mask(clear, "p < 0.05 (Holm)")
    if "verdict" in table:
        verdicts = table["verdict"].fillna("")
        kinds = kinds.mask(verdicts != "", verdicts)
    return kinds.mask(table["n"] < 6, "TOO FEW (n < 6)")


def plot_reported_lambda(
    reported: pd.DataFrame, measured: Mapping[str, pd.DataFrame], lam: float = 0.4, k: int = 5
):
    """The paper's Figure 5 (accuracy; only the values and bounds its text states) beside P@k here.

    The two panels have different units on purpose: shapes may be compared, numbers may not.
    """
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(8.4, 3.4))
    marks = {"exact": ("o", "stated"), "upper_bound": ("v", "below"), "lower_bound": ("^", "above")}
    stated = reported.dropna(subset="lambda").astype({"lambda": float, "value": float})
    for kind, (marker, label) in marks.items():
        rows = stated[stated["kind"] == kind]
        inside = None if kind == "exact" else "none"
        looks = {"color": COLOURS["chr"], "mfc": inside, "label": f"CHR, {label}"}
        left.plot(rows["lambda"], rows["value"], marker, **looks)
    for row in reported[reported["kind"] == "reference_line"].itertuples():
        colour = COLOURS[row.series.split()[0].lower()]
        left.axhline(float(row.value), color=colour, lw=1.2, ls="--", label=row.series)
    left.set(xlabel="λ", ylabel="accuracy, % (paper: MedQA, Gemma-2-9B)", title="reported")
    for i, (label, rows) in enumerate(measured.items()):
        _lines(
            right,
            rows,
            "lambda",
            "p_at_5",
            colour_of(label, i),
            f"{label}, {count_label(rows['n'])}",
        )
    mark_lambda(right, lam)
    right.set(xlabel="λ", ylabel=f"P@{k} (measured here), 95 % band", ylim=(0, None))
    right.set(title=f"measured, another setup; dotted: λ = {lam:g}")
    for axis in (left, right):
        axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncol=3)
    return figure


def plot_sizes(passages: pd.DataFrame):
    """Passages per source, on a log scale: columns ``corpus, passages, mean_chars``."""
    figure, axis = pyplot().subplots(figsize=(6.4, 0.4 * len(passages) + 0.9))
    for row in passages[::-1].itertuples():
        told = f"{row.passages:,} passages, {row.mean_chars:.0f} characters each on average"
        axis.barh(f"{row.corpus}\n{told}", row.passages, color=GREY)
    axis.set_axisbelow(True)
    axis.tick_params("y", labelsize=8)
    axis.set(xlabel="passages (log scale)", xscale="log", xlim=(1, None))
    return figure


def plot_cosines(values: Mapping[str, Sequence[float]], xlabel: str):
    """Distributions of c = cos(h+, h-), one box per way of choosing the mimic."""
    figure, axis = pyplot().subplots(figsize=(6, 0.45 * len(values) + 0.9))
    import seaborn

    seaborn.boxplot(
        dict(values),
        orient="h",
        width=0.6,
        color=GREY,
        fill=False,
        linewidth=1,
        medianprops={"color": "black", "linewidth": 2},
        fliersize=2,
        ax=axis,
    )
    axis.set(xlabel=xlabel)
    return figure
