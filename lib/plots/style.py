"""What every figure shares: the look, a title that states, marked lambdas, labels at line ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill

import numpy as np
import pandas as pd

from lib.base import paths, provenance
from lib.base.files import atomic_write

WIDTH = 7.6
"""Inches that a figure is wide at most. On a printed page, 6.7 inches, SMALL is 7 points."""
SMALL = 8
"""Points of the smallest text."""

_LOOK = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "font.size": 9,
    # The one that matplotlib brings: a figure must not depend on what a machine has installed.
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": "black",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.title_fontsize": SMALL,
    # Texts are shown as they are: dollar signs in a question or a title start no formula.
    "text.parse_math": False,
    "svg.hashsalt": "chr",
    "svg.fonttype": "none",
    "figure.constrained_layout.use": True,
}
"""What differs from seaborn's white grid."""


def pyplot():
    """``matplotlib.pyplot`` in this project's look; what a notebook shows is sharp."""
    import seaborn

    seaborn.set_theme(context="paper", style="whitegrid", rc=_LOOK)
    import matplotlib.pyplot as plt

    _sharpen_notebooks()
    return plt


def _sharpen_notebooks() -> None:
    """Twice the pixels for what a notebook shows; files are as ``save`` writes them."""
    known = sys.modules.get("IPython")
    shell = known.get_ipython() if known else None
    if getattr(shell, "kernel", None) is None:
        return
    # Its import says how figures are shown; what comes after it stands.
    import matplotlib_inline.backend_inline  # noqa: F401
    from matplotlib.figure import Figure

    shell.display_formatter.formatters["image/png"].for_type(Figure, _sharp_and_small)


def _sharp_and_small(figure) -> tuple[bytes, dict]:
    """A figure as a PNG of twice its size in 256 colours: a third of the bytes."""
    from IPython.core.pylabtools import retina_figure
    from PIL import Image

    png, size = retina_figure(figure)
    few = Image.open(BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    written = BytesIO()
    few.save(written, "PNG", optimize=True)
    return written.getvalue(), size


def nothing_drawn(what: str):
    """In place of a figure: that there is nothing to draw, which is not the same as zero."""
    figure, axes = pyplot().subplots(figsize=(4, 1.4))
    axes.set_axis_off()  # a notebook shows no figure without axes
    figure.text(0.5, 0.5, f"{what}: NOT MEASURED", ha="center", va="center")
    return figure


def save(figure, name: str, profile: str, table: pd.DataFrame, k: int = provenance.USUAL_K) -> Path:
    """Write ``figures/<profile>/<name>`` as PNG, SVG and the CSV it was drawn from (3 decimals).

    What the code calls ``p_at_5`` is called by the ``k`` that the table was made with.
    """
    _leave_out_undrawable(figure)
    table = provenance.with_true_k(table, k)
    path = paths.figures(profile) / f"{name}.png"
    atomic_write(path, lambda file: figure.savefig(file, format="png"))
    plain = {"format": "svg", "metadata": {"Date": None}}  # the same bytes every time
    atomic_write(path.with_suffix(".svg"), lambda file: figure.savefig(file, **plain))
    csv = table.to_csv(index=False, float_format="%.3f", lineterminator="\n")
    atomic_write(path.with_suffix(".csv"), csv)
    return path


_UNDRAWABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters and halves of characters: no font has them, and an SVG may not hold them."""


def _leave_out_undrawable(figure) -> None:
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if _UNDRAWABLE.search(text.get_text()):
            text.set_text(_UNDRAWABLE.sub("\ufffd", text.get_text()))


def headline(figure, text: str) -> None:
    """What is seen, as a sentence above the figure, broken to its width."""
    if not text:
        return
    fitting = 12 * figure.get_figwidth()  # letters of this size
    lines = -(-len(text) // int(fitting))
    letters = min(fitting, len(text) / lines + 8)  # lines of about one length
    figure.suptitle(
        fill(text, int(letters), break_on_hyphens=False),
        x=0.01,
        ha="left",
        fontsize=10,
        weight="bold",
    )


def panel_titles(texts: Sequence[str], inches: float) -> list[str]:
    """Titles of panels so wide, in lines that fit; where one is too long n goes below in all."""
    letters = int(inches / 0.075)
    if max(map(len, texts)) > letters:
        texts = [text.replace(", n = ", "\nn = ") for text in texts]
    titles = []
    for text in texts:
        lines = text.replace("n = ", "n\u00a0=\u00a0").split("\n")
        titles.append("\n".join(fill(line, letters, break_on_hyphens=False) for line in lines))
    return titles


def mark_lambdas(axis, lam: float | None, dev: float | None = None, named: bool = True) -> None:
    """Thin lines at three lambdas: dev's choice (dashed), the paper's 1, the reader's (dotted).

    Lambdas that are equal share a line. ``named`` writes above which is which. ``dev`` is None
    where nothing was chosen.
    """
    marks: dict[float, list[str]] = {}
    for name, at in (("dev", dev), ("paper", 1.0), ("yours", lam)):
        if at is not None:
            marks.setdefault(round(float(at), 6), []).append(name)
    for place, names in marks.items():
        style = ":" if "yours" in names else "--" if "dev" in names else "-"
        axis.axvline(place, color="black", lw=1.1 if style == ":" else 0.7, ls=style, zorder=1)
    if named and marks:
        _name_marks(axis, {place: ", ".join(marks[place]) for place in sorted(marks)})


def _name_marks(axis, names: dict[float, str]) -> None:
    """Names above a panel, each over its lambda or as near as its neighbours let it."""
    axis.figure.draw_without_rendering()  # only now a panel's width is known
    left, right = axis.get_xlim()
    inch = (right - left) / (axis.get_window_extent().width / axis.figure.dpi)
    widths = np.array([(0.068 * len(name) + 0.08) * inch for name in names.values()])
    places = spread(list(names), widths)
    places += max(0.0, left - (places[0] - widths[0] / 2))
    for place, name in zip(places, names.values(), strict=True):
        coords = ("data", "axes fraction")
        note(axis, place, 1, name, (0, 2), xycoords=coords, ha="center", va="bottom")


def spread(places: Sequence[float], sizes: float | Sequence[float]) -> np.ndarray:
    """Places as near to the given ones as they can be, in their order, so that nothing overlaps.

    ``sizes`` are the sizes of what stands there, or the one size of all.
    """
    from scipy.optimize import isotonic_regression

    given = np.asarray(places, float)
    sizes = np.broadcast_to(np.asarray(sizes, float), given.shape)
    order = np.argsort(given, kind="stable")
    between = (sizes[order][1:] + sizes[order][:-1]) / 2
    least = np.concatenate([[0.0], np.cumsum(between)])
    moved = np.empty_like(given)
    moved[order] = isotonic_regression(given[order] - least).x + least
    return moved


def label_ends(axis, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Name lines at the right edge of a panel: each end is x, y, its text and the line's colour.

    Texts that would overlap are moved apart; a thin line leads from a line's end to its text. What
    ends well before the edge is named where it ends.
    """
    left, right = axis.get_xlim()
    for x, y, text, colour in ends:
        if x < right - 0.05 * (right - left):
            note(axis, x, y, text, (5, 2), va="bottom", color=ink(colour))
    ends = [end for end in ends if end[0] >= right - 0.05 * (right - left)]
    if not ends:
        return
    axis.figure.draw_without_rendering()  # only now a panel's height is known
    inches = axis.get_window_extent().height / axis.figure.dpi
    low, high = axis.get_ylim()
    gap = 1.3 * SMALL / 72 / inches * (high - low)
    heights = spread([end[1] for end in ends], gap)
    heights += max(0.0, low - heights.min())
    for (x, y, text, colour), height in zip(ends, heights, strict=True):
        axis.plot([x, right], [y, height], color=colour, lw=0.6, alpha=0.7, clip_on=False)
        note(axis, right, height, text, (3, 0), va="center", color=ink(colour))
    axis.set(ylim=(low, high))
    axis.set_xlim(right=right)


def note(axis, x: float, y: float, text: str, points: tuple[float, float] = (0, 0), **looks):
    """A small text at a place in a panel, so many points to the right and up; outside it, too."""
    axis.annotate(
        text,
        (x, y),
        xytext=points,
        textcoords="offset points",
        fontsize=SMALL,
        annotation_clip=False,
        **looks,
    )


def ink(colour: str) -> tuple[float, float, float]:
    """A colour as text: darkened until it can be read on white."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    bright = 0.299 * red + 0.587 * green + 0.114 * blue
    dim = min(1.0, 0.42 / bright) if bright else 1.0
    return red * dim, green * dim, blue * dim


def count_label(counts: pd.Series) -> str:
    """The words for counts: "n = 9", or "n = 7 to 9" where counts differ."""
    if counts.empty:
        return "n = 0"
    few, many = int(counts.min()), int(counts.max())
    return f"n = {few:,}" if few == many else f"n = {few:,} to {many:,}"


def in_percent(figure, along: str = "x", unit: str = " %"):
    """The figure with the shares on its axes ``along`` "x" or "y" as percentages.

    Without ``unit`` they are differences of shares, and the label says that they are points.
    """
    from matplotlib.ticker import FuncFormatter

    def told(share: float, _: int) -> str:
        return f"{100 * share:.6g}{unit}".replace("-", "−")

    for axis in figure.axes:
        getattr(axis, f"{along}axis").set_major_formatter(FuncFormatter(told))
    return figure


def legend_below(figure, axes, title: str = "", columns: int = 6) -> None:
    """One legend below all panels, each name once; without names its title alone."""
    named = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    if not any(named):
        figure.supxlabel(title, fontsize=9)
        return
    # An inch holds about 16 letters; a handle and the gap behind a name take as much as seven.
    longest = max((len(label) + 7 for label in named), default=1)
    fitting = int(16 * figure.get_figwidth() / longest)
    columns = max(1, min(columns, fitting))
    looks = {"title": title, "ncol": columns, "loc": "outside lower center", "title_fontsize": 9}
    legend = figure.legend(named.values(), named.keys(), **looks)
    legend.get_title().set_multialignment("center")
