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
    "save", "plot_lambda", "plot_trade_off", "plot_lines", "plot_sizes", "plot_spectrum",
    "plot_differences", "plot_reported_lambda", "plot_cosines",
]  # fmt: skip

_CLASSES = {"target": "#0072B2", "both": "#56B4E9", "mimic": "#D55E00", "neither": "#999999"}
_CURVES = {
    "nearest": "#D55E00", "by name": "#CC79A7", "middle": "#E69F00", "random": "#999999",
    "matched rotation": "#000000",
}  # fmt: skip
_OTHERS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def _style():
    import matplotlib

    matplotlib.rcParams |= {
        "figure.dpi": 110, "savefig.dpi": 160, "font.size": 9, "axes.titlesize": 9,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
        "grid.color": "#e6e6e6", "grid.linewidth": 0.6, "legend.frameon": False,
        "legend.fontsize": 8, "legend.title_fontsize": 8, "svg.hashsalt": "chr",
        "svg.fonttype": "none", "figure.constrained_layout.use": True,
    }  # fmt: skip
    import matplotlib.pyplot as plt

    return plt


def _nothing(what: str):
    """In place of a figure: that there is nothing to draw, which is not the same as zero."""
    figure = _style().figure(figsize=(4, 1.4))
    figure.text(0.5, 0.5, f"{what}: NOT MEASURED", ha="center", va="center")
    return figure


def save(figure, name: str, profile: str, table: pd.DataFrame) -> Path:
    """Write ``figures/<profile>/<name>`` as PNG, SVG and the CSV it was drawn from (3 decimals)."""
    path = paths.figures(profile) / f"{name}.png"
    atomic_write(path, lambda file: figure.savefig(file, format="png"))
    plain = {"Date": None}  # the same bytes every time
    atomic_write(
        path.with_suffix(".svg"), lambda file: figure.savefig(file, format="svg", metadata=plain)
    )
    csv = table.to_csv(index=False, float_format="%.3f", lineterminator="\n")
    atomic_write(path.with_suffix(".csv"), csv)
    return path


def _lines(axis, rows: pd.DataFrame, x: str, y: str, colour: str, label: str) -> None:
    axis.plot(rows[x], rows[y], marker="o", markersize=3, color=colour, label=label)


def _mark(axis, lam: float) -> None:
    axis.axvline(lam, color="black", lw=0.8, ls=":")


def _measures(k: int) -> dict[str, str]:
    return {"p_at_5": f"P@{k}", "contamination_at_5": f"mimic share of top {k}",
            "neither_at_5": f"off-topic share of top {k}"}  # fmt: skip


def _coloured(curves: pd.DataFrame, by: str):
    for i, (label, rows) in enumerate(curves.groupby(by, sort=False)):
        yield label, rows, _CURVES.get(label, _OTHERS[i % len(_OTHERS)])


def plot_lambda(curves: pd.DataFrame, by: str, k: int = 5, title: str = "", lam: float = 0.4):
    """P@k with its 95 % band, mimic share and off-topic share over lambda, one line per ``by``.

    ``lam`` is the reader's lambda: a dotted line.
    """
    figure, axes = _style().subplots(1, 3, figsize=(9.6, 3.2))
    for label, rows, colour in _coloured(curves, by):
        band = rows["lambda"], rows["p_at_5_low"], rows["p_at_5_high"]
        axes[0].fill_between(*band, color=colour, alpha=0.13, lw=0)
        for axis, metric in zip(axes, _measures(k), strict=True):
            _lines(axis, rows, "lambda", metric, colour, label)
    for axis, name in zip(axes, _measures(k).values(), strict=True):
        axis.set(xlabel="λ", ylabel=name)
        axis.set_ylim(bottom=0)
        _mark(axis, lam)
    axes[0].legend(title=f"{title}, n = {int(curves['n'].max())}")
    return figure


def plot_trade_off(curves: pd.DataFrame, by: str, k: int = 5):
    """P@k against contamination, and against off-topic share: what one buys costs the other."""
    figure, axes = _style().subplots(1, 2, figsize=(8, 3.4), sharey=True)
    (y, y_name), *shares = _measures(k).items()
    for axis, (x, name) in zip(axes, shares, strict=True):
        for label, rows, colour in _coloured(curves, by):
            _lines(axis, rows, x, y, colour, label)
            for row in rows[rows["lambda"].round(6).isin([0, 1])].to_dict("records"):
                axis.annotate(
                    f"λ={row['lambda']:g}", (row[x], row[y]), fontsize=7, xytext=(3, 3),
                    textcoords="offset points",
                )  # fmt: skip
        axis.set(xlabel=name)
    axes[0].set(ylabel=y_name)
    axes[0].set_ylim(bottom=0)
    axes[1].legend()
    return figure


def plot_lines(lines: pd.DataFrame, lam: float, k: int, lam_max: float = 1.4):
    """One question: every passage is a line in lambda, S = s_plus - lambda s_minus.

    Columns: ``pid, class, s_plus, s_minus``. The k highest at ``lam`` are drawn bold.
    """
    figure, axis = _style().subplots(figsize=(6.4, 3.8))
    top = set((lines["s_plus"] - lam * lines["s_minus"]).nlargest(k).index)
    ends = np.array([0, lam_max])
    for name in ("neither", "mimic", "both", "target"):
        for i, row in lines[lines["class"] == name].iterrows():
            looks = {"lw": 2.2, "alpha": 1} if i in top else {"lw": 0.7, "alpha": 0.45}
            axis.plot(ends, row.s_plus - ends * row.s_minus, color=_CLASSES[name], **looks)
        if (lines["class"] == name).any():
            axis.lines[-1].set_label(name)
    _mark(axis, lam)
    axis.annotate(f"λ = {lam:g}", (lam, axis.get_ylim()[1]), fontsize=8, ha="left", va="top")
    axis.set(xlabel="λ", ylabel="S(d) = cos(d, H+) − λ cos(d, H−)", xlim=(0, lam_max))
    axis.legend(title=f"bold: top {k} at this λ", loc="lower left")
    return figure


def plot_spectrum(spectrum: pd.DataFrame, k: int, lam: float = 0.4):
    """Which classes fill the top k over lambda, exactly: columns ``question, start, end`` and one
    count per class."""
    questions = spectrum.groupby("question", sort=False)
    figure, axes = _style().subplots(
        len(questions), 1, figsize=(6.4, 1.15 * len(questions) + 0.6), sharex=True, squeeze=False
    )
    for axis, (question, rows) in zip(axes[:, 0], questions, strict=True):
        bottom = np.zeros(len(rows))
        for name, colour in _CLASSES.items():
            axis.bar(
                rows["start"], rows[name], width=rows["end"] - rows["start"], bottom=bottom,
                align="edge", color=colour, label=name, edgecolor="white", linewidth=0.4,
            )  # fmt: skip
            bottom += rows[name].to_numpy()
        axis.set(ylim=(0, k), yticks=[0, k])
        axis.set_title(question, loc="left", fontsize=8)
        axis.grid(visible=False)
        _mark(axis, lam)
    axes[0, 0].legend(ncol=4, loc="lower right", bbox_to_anchor=(1, 1.12), fontsize=7)
    axes[-1, 0].set(xlabel="λ")
    figure.supylabel(f"passages of the top {k}", fontsize=9)
    return figure


def plot_differences(table: pd.DataFrame, xlabel: str):
    """Forest plot of paired differences: columns ``label, difference, low, high, n``."""
    if table.empty:
        return _nothing(xlabel)
    figure, axis = _style().subplots(figsize=(6.8, 0.3 * len(table) + 0.9))
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
    figure, (left, right) = _style().subplots(1, 2, figsize=(8.4, 3.4))
    looks = {"exact": ("o", "stated"), "upper_bound": ("v", "below"), "lower_bound": ("^", "above")}
    for kind, (marker, label) in looks.items():
        rows = reported[(reported["kind"] == kind) & reported["lambda"].notna()].astype(
            {"lambda": float, "value": float}
        )
        left.plot(rows["lambda"], rows["value"], marker, color="#D55E00", label=f"CHR, {label}",
                  mfc="none" if kind != "exact" else "#D55E00")  # fmt: skip
    for row in reported[reported["kind"] == "reference_line"].itertuples():
        left.axhline(float(row.value), color="#666666", lw=0.9, label=row.series,
                     ls="--" if row.series == "HyDE" else ":")  # fmt: skip
    left.set(xlabel="λ", ylabel="accuracy, % (paper: MedQA, Gemma-2-9B)", title="reported")
    for (label, rows), colour in zip(measured.items(), _OTHERS, strict=False):
        _lines(right, rows, "lambda", "p_at_5", colour, label)
    _mark(right, lam)
    right.set(xlabel="λ", ylabel=f"P@{k} (measured here)", title="measured, another setup")
    right.set_ylim(bottom=0)
    for axis in (left, right):
        axis.legend(fontsize=7)
    return figure


def plot_sizes(passages: pd.DataFrame):
    """Passages per source, on a log scale: columns ``corpus, passages, mean_chars``."""
    figure, axis = _style().subplots(figsize=(6, 0.4 * len(passages) + 0.9))
    table = passages[::-1]
    bars = axis.barh(table["corpus"], table["passages"], color="#0072B2")
    sizes = zip(table["passages"], table["mean_chars"], strict=True)
    axis.bar_label(bars, [f" {n:,} of {c} characters" for n, c in sizes], fontsize=8)
    axis.set(xlabel="passages (log scale)", xscale="log", xlim=(1, 30 * table["passages"].max()))
    return figure


def plot_cosines(values: Mapping[str, Sequence[float]], xlabel: str):
    """Distributions of c = cos(h+, h-), one box per way of choosing the mimic."""
    figure, axis = _style().subplots(figsize=(6, 0.45 * len(values) + 0.9))
    labels = list(values)[::-1]
    axis.boxplot(
        [values[v] for v in labels], orientation="horizontal", tick_labels=labels, widths=0.6,
        medianprops={"color": "#D55E00"}, flierprops={"markersize": 2},
    )  # fmt: skip
    axis.set(xlabel=xlabel)
    return figure
