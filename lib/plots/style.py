"""What every figure shares: the look, how it is saved, a marked lambda, n, and one legend."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write

__all__ = ["count_label", "legend_below", "mark_lambda", "nothing_drawn", "pyplot", "save"]


_LOOK = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "font.size": 9,
    # The one that matplotlib brings: a figure must not depend on what a machine has installed.
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.edgecolor": "black",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "svg.hashsalt": "chr",
    "svg.fonttype": "none",
    "figure.constrained_layout.use": True,
}
"""What differs from seaborn's white grid."""


def pyplot():
    """``matplotlib.pyplot`` in this project's look."""
    import seaborn

    seaborn.set_theme(context="paper", style="whitegrid", rc=_LOOK)
    import matplotlib.pyplot as plt

    return plt


def nothing_drawn(what: str):
    """In place of a figure: that there is nothing to draw, which is not the same as zero."""
    figure = pyplot().figure(figsize=(4, 1.4))
    figure.text(0.5, 0.5, f"{what}: NOT MEASURED", ha="center", va="center")
    return figure


def save(figure, name: str, profile: str, table: pd.DataFrame) -> Path:
    """Write ``figures/<profile>/<name>`` as PNG, SVG and the CSV it was drawn from (3 decimals)."""
    path = paths.figures(profile) / f"{name}.png"
    atomic_write(path, lambda file: figure.savefig(file, format="png"))
    plain = {"format": "svg", "metadata": {"Date": None}}  # the same bytes every time
    atomic_write(path.with_suffix(".svg"), lambda file: figure.savefig(file, **plain))
    csv = table.to_csv(index=False, float_format="%.3f", lineterminator="\n")
    atomic_write(path.with_suffix(".csv"), csv)
    return path


def mark_lambda(axis, lam: float) -> None:
    """A dotted line at the reader's lambda."""
    axis.axvline(lam, color="black", lw=0.8, ls=":")


def count_label(counts: pd.Series) -> str:
    """The words for counts: "n = 9", or "n = 7 to 9" where counts differ."""
    few, many = (0, 0) if counts.empty else (int(counts.min()), int(counts.max()))
    return f"n = {few}" if few == many else f"n = {few} to {many}"


def legend_below(figure, axis, title: str = "", columns: int = 6) -> None:
    """One legend below all panels, where it covers nothing and is no wider than the figure."""
    handles, labels = axis.get_legend_handles_labels()
    # An inch holds about 16 letters; a handle and the gap behind a name take as much as seven.
    longest = max((len(label) + 7 for label in labels), default=1)
    fitting = int(16 * figure.get_figwidth() / longest)
    columns = max(1, min(columns, fitting))
    figure.legend(handles, labels, title=title, ncol=columns, loc="outside lower center")
