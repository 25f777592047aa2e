"""One function per figure, each drawn from a result table and nothing else.

Colours are the Okabe-Ito palette, which colour-blind readers can tell apart: one per class of
passage, one per kind of curve, the same in every figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lib import paths
from lib.files import atomic_write

__all__ = [
    "CLASS_COLOURS", "CURVE_COLOURS", "save", "plot_lambda", "plot_trade_off", "plot_lines",
    "plot_sizes", "plot_spectrum", "plot_differences", "plot_reported_lambda", "plot_cosines",
]  # fmt: skip

CLASS_COLOURS = {"target": "#0072B2", "both": "#56B4E9", "mimic": "#D55E00", "neither": "#999999"}
CURVE_COLOURS = {
    "nearest": "#D55E00", "by name": "#CC79A7", "middle": "#E69F00", "random": "#999999",
    "matched rotation": "#000000", "question alone": "#0072B2",
}  # fmt: skip
_OTHERS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def _style():
    import matplotlib

    matplotlib.rcParams |= {
        "figure.dpi": 110, "savefig.dpi": 160, "font.size": 9, "axes.titlesize": 9,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
        "grid.color": "#e6e6e6", "grid.linewidth": 0.6, "legend.frameon": False,
        "legend.fontsize": 8, "svg.hashsalt": "chr", "svg.fonttype": "none",
        "figure.constrained_layout.use": True,
    }  # fmt: skip
    import matplotlib.pyplot as plt

    return plt


def save(figure, name: str, profile: str, table: pd.DataFrame) -> Path:
    """Write ``figures/<profile>/<name>`` as PNG, SVG and the CSV it was drawn from (3 decimals)."""
    folder = paths.figures(profile)
    for suffix in ("png", "svg"):
        options = {"metadata": {"Date": None}} if suffix == "svg" else {}
        atomic_write(
            folder / f"{name}.{suffix}",
            lambda path, o=options, s=suffix: figure.savefig(path, format=s, **o),
        )
    csv = table.to_csv(index=False, float_format="%.3f", lineterminator="\n")
    atomic_write(folder / f"{name}.csv", csv)
    return folder / f"{name}.png"


def _colour(label: str, position: int) -> str:
    return CURVE_COLOURS.get(label, _OTHERS[position % len(_OTHERS)])


def _k(metric: str, k: int) -> str:
    return {"p_at_5": f"P@{k}", "contamination_at_5": f"mimic share of top {k}",
            "neither_at_5": f"off-topic share of top {k}"}[metric]  # fmt: skip


def plot_lambda(curves: pd.DataFrame, by: str, k: int = 5, title: str = "", lam: float = 0.4):
    """P@k with its 95 % band, mimic share and off-topic share over lambda, one line per ``by``.

    ``lam`` is the reader's lambda: a dotted line.
    """
    plt = _style()
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.2))
    for position, (label, rows) in enumerate(curves.groupby(by, sort=False)):
        colour = _colour(label, position)
        marks = {"color": colour, "marker": "o", "markersize": 3, "label": label}
        axes[0].fill_between(
            rows["lambda"], rows["p_at_5_low"], rows["p_at_5_high"], color=colour, alpha=0.13, lw=0
        )
        for axis, metric in zip(
            axes, ("p_at_5", "contamination_at_5", "neither_at_5"), strict=True
        ):
            axis.plot(rows["lambda"], rows[metric], **marks)
            axis.set(xlabel="λ", ylabel=_k(metric, k))
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.axvline(lam, color="black", lw=0.8, ls=":")
    axes[0].legend(title=f"{title}, n = {int(curves['n'].max())}", title_fontsize=8)
    return figure


def plot_trade_off(curves: pd.DataFrame, by: str, k: int = 5):
    """P@k against contamination, and against off-topic share: what one buys costs the other."""
    plt = _style()
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True)
    for position, (label, rows) in enumerate(curves.groupby(by, sort=False)):
        for axis, metric in zip(axes, ("contamination_at_5", "neither_at_5"), strict=True):
            axis.plot(
                rows[metric], rows["p_at_5"], marker="o", markersize=3,
                color=_colour(label, position), label=label,
            )  # fmt: skip
            for lam in (0.0, 1.0):
                for _, row in rows[np.isclose(rows["lambda"], lam)].iterrows():
                    axis.annotate(
                        f"λ={lam:g}", (row[metric], row["p_at_5"]), fontsize=7,
                        xytext=(3, 3), textcoords="offset points",
                    )  # fmt: skip
            axis.set(xlabel=_k(metric, k))
    axes[0].set(ylabel=_k("p_at_5", k))
    axes[0].set_ylim(bottom=0)
    axes[1].legend()
    return figure


def plot_lines(lines: pd.DataFrame, lam: float, k: int, lam_max: float = 1.4):
    """One question: every passage is a line in lambda, S = s_plus - lambda s_minus.

    Columns: ``pid, class, s_plus, s_minus``. The k highest at ``lam`` are drawn bold.
    """
    plt = _style()
    figure, axis = plt.subplots(figsize=(6.4, 3.8))
    score = lines["s_plus"] - lam * lines["s_minus"]
    top = set(score.nlargest(k).index)
    ends = np.array([0, lam_max])
    for name in ("neither", "mimic", "both", "target"):
        shown = name
        for i, row in lines[lines["class"] == name].iterrows():
            axis.plot(
                ends, row.s_plus - ends * row.s_minus, color=CLASS_COLOURS[name], label=shown,
                lw=2.2 if i in top else 0.7, alpha=1 if i in top else 0.45,
            )  # fmt: skip
            shown = None
    axis.axvline(lam, color="black", lw=0.8, ls=":")
    axis.annotate(f"λ = {lam:g}", (lam, axis.get_ylim()[1]), fontsize=8, ha="left", va="top")
    axis.set(xlabel="λ", ylabel="S(d) = cos(d, H+) − λ cos(d, H−)", xlim=(0, lam_max))
    axis.legend(title=f"bold: top {k} at this λ", title_fontsize=8, loc="lower left")
    return figure


def plot_spectrum(spectrum: pd.DataFrame, k: int, lam: float = 0.4):
    """Which classes fill the top k over lambda, exactly: columns ``question, start, end`` and one
    count per class."""
    plt = _style()
    questions = list(dict.fromkeys(spectrum["question"]))
    figure, axes = plt.subplots(
        len(questions), 1, figsize=(6.4, 1.15 * len(questions) + 0.6), sharex=True, squeeze=False
    )
    for axis, question in zip(axes[:, 0], questions, strict=True):
        rows = spectrum[spectrum["question"] == question]
        bottom = np.zeros(len(rows))
        for name, colour in CLASS_COLOURS.items():
            axis.bar(
                rows["start"], rows[name], width=rows["end"] - rows["start"], bottom=bottom,
                align="edge", color=colour, label=name, edgecolor="white", linewidth=0.4,
            )  # fmt: skip
            bottom += rows[name].to_numpy()
        axis.set(ylim=(0, k), yticks=[0, k])
        axis.set_title(question, loc="left", fontsize=8)
        axis.grid(visible=False)
        axis.axvline(lam, color="black", lw=0.8, ls=":")
    axes[0, 0].legend(ncol=4, loc="lower right", bbox_to_anchor=(1, 1.12), fontsize=7)
    axes[-1, 0].set(xlabel="λ")
    figure.supylabel(f"passages of the top {k}", fontsize=9)
    return figure


def plot_differences(table: pd.DataFrame, xlabel: str):
    """Forest plot of paired differences: columns ``label, difference, low, high, n``."""
    plt = _style()
    figure, axis = plt.subplots(figsize=(6.8, 0.3 * len(table) + 0.9))
    y = np.arange(len(table))[::-1]
    clear = (table["low"] > 0) | (table["high"] < 0)
    for mask, colour in ((clear, "#0072B2"), (~clear, "#999999")):
        rows = table[mask]
        error = np.abs(rows[["low", "high"]].to_numpy().T - rows["difference"].to_numpy())
        axis.errorbar(rows["difference"], y[mask], xerr=error, fmt="o", color=colour, ms=4, lw=1.4)
    axis.axvline(0, color="black", lw=0.8)
    axis.set_yticks(y, table["label"])
    axis.set(xlabel=f"{xlabel}, 95 % interval; n = {int(table['n'].max())}")
    return figure


def plot_reported_lambda(
    reported: pd.DataFrame, measured: Mapping[str, pd.DataFrame], lam: float = 0.4, k: int = 5
):
    """The paper's Figure 5 (accuracy; only the values and bounds its text states) beside P@k here.

    The two panels have different units on purpose: shapes may be compared, numbers may not.
    """
    plt = _style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4))
    value = reported["value"].astype(float)
    looks = {"exact": ("o", "stated"), "upper_bound": ("v", "below"), "lower_bound": ("^", "above")}
    for kind, (marker, label) in looks.items():
        rows = (reported["kind"] == kind) & reported["lambda"].notna()
        left.plot(reported.loc[rows, "lambda"].astype(float), value[rows], marker, color="#D55E00",
                  mfc="none" if kind != "exact" else "#D55E00", label=f"CHR, {label}")  # fmt: skip
    for i, row in reported[reported["kind"] == "reference_line"].iterrows():
        left.axhline(value[i], color="#666666", lw=0.9, ls="--" if row["series"] == "HyDE" else ":",
                     label=row["series"])  # fmt: skip
    left.set(xlabel="λ", ylabel="accuracy, % (paper: MedQA, Gemma-2-9B)", title="reported")
    left.legend(fontsize=7)
    for position, (label, rows) in enumerate(measured.items()):
        colour = _OTHERS[position]
        right.plot(rows["lambda"], rows["p_at_5"], marker="o", ms=3, color=colour, label=label)
    right.axvline(lam, color="black", lw=0.8, ls=":")
    right.set(xlabel="λ", ylabel=f"P@{k} (measured here)", title="measured, another setup")
    right.set_ylim(bottom=0)
    right.legend(fontsize=7)
    return figure


def plot_sizes(passages: pd.DataFrame):
    """Passages per source, on a log scale: columns ``corpus, passages, mean_chars``."""
    plt = _style()
    figure, axis = plt.subplots(figsize=(6, 0.4 * len(passages) + 0.9))
    table = passages[::-1]
    axis.barh(table["corpus"], table["passages"], color="#0072B2")
    sizes = zip(table["passages"], table["mean_chars"], strict=True)
    axis.bar_label(axis.containers[0], [f" {n:,} of {c} characters" for n, c in sizes], fontsize=8)
    axis.set(xlabel="passages (log scale)", xscale="log", xlim=(1, 30 * table["passages"].max()))
    return figure


def plot_cosines(values: Mapping[str, Sequence[float]], xlabel: str):
    """Distributions of c = cos(h+, h-), one box per way of choosing the mimic."""
    plt = _style()
    figure, axis = plt.subplots(figsize=(6, 0.45 * len(values) + 0.9))
    labels = list(values)[::-1]
    axis.boxplot(
        [values[v] for v in labels], orientation="horizontal", tick_labels=labels, widths=0.6,
        medianprops={"color": "#D55E00"}, flierprops={"markersize": 2},
    )  # fmt: skip
    axis.set(xlabel=xlabel)
    return figure
