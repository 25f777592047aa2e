"""What fills the top k over lambda, drawn as bands that add up to one."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten

import numpy as np
import pandas as pd

from lib.plots.labels import label_of
from lib.plots.palette import COLOURS, in_order_of_arms
from lib.plots.style import (
    SMALL,
    WIDTH,
    count_label,
    headline,
    ink,
    mark_lambdas,
    nothing_drawn,
    panel_titles,
    pyplot,
)

JUDGED = {
    "target_at_5": ("on the target", COLOURS["target"]),
    "both_at_5": ("on both", COLOURS["both"]),
    "mimic_at_5": ("on the mimic", COLOURS["mimic"]),
    "neither_at_5": ("on neither", COLOURS["neither"]),
}
"""Bands from the bottom, by column: what they are called, and their colour."""
POOLED = JUDGED | {"neither_at_5": ("neither, or\nnot judged", COLOURS["neither"])}
"""The same where not every passage was judged."""

_FAINT = COLOURS["neither"]


def plot_composition(
    curves: pd.DataFrame,
    title: str,
    *,
    by: str = "family",
    bands: Mapping[str, tuple[str, str]] = POOLED,
    k: int = 5,
    lam: float = 0.4,
    dev: float | Mapping[str, float] | None = None,
    measure: str = "",
):
    """What the top k is made of over lambda: a panel for each value of ``by``, all on one scale.

    ``curves``: ``by``, lambda, the columns of ``bands``, p_at_5 with its 95 % interval
    (``p_at_5_low``, ``p_at_5_high``) and n. The black line with its pale band is P@k, the upper
    edge of the target's bands; ``measure`` calls it something else. A value of ``by`` with one row,
    such as the question alone, is a dashed level of P@k in every panel. ``dev`` is the lambda that
    dev chose, or has one by the values of ``by``; ``lam`` is the reader's.
    """
    if curves.empty:
        return nothing_drawn(title)
    sizes = curves.groupby(by)["lambda"].size()
    panels = in_order_of_arms(sizes[sizes > 1].index, curves[by])
    levels = curves[curves[by].isin(sizes[sizes == 1].index)]
    columns = 3 if len(panels) in (5, 6) else min(len(panels), 4)
    rows = -(-len(panels) // columns)
    size = min(WIDTH, 2.9 * columns + 0.5), 2.1 * rows + 0.75
    figure, axes = pyplot().subplots(
        rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    halves = [0, 0.5, 1]
    axes[0, 0].set(xlim=(0, curves["lambda"].max()), ylim=(0, 1), xticks=halves, yticks=halves)
    for axis, name in zip(axes.flat, panels, strict=False):
        own = curves[curves[by] == name].sort_values("lambda")
        _stack(axis, own["lambda"].to_numpy(), own[list(bands)].to_numpy().T, bands)
        _edge(axis, own)
        for level in levels["p_at_5"]:
            axis.axhline(level, color="black", lw=1, ls="--")
        chosen = dev.get(name) if isinstance(dev, Mapping) else dev
        mark_lambdas(axis, lam, chosen, named=name == panels[0])
    _entitle(axes, curves, by, panels, (size[0] - 0.6) / columns)
    told = "".join(f"; dashed: {label_of(name)}" for name in levels[by])
    below = f"λ\nblack: {measure or f'P@{k}'} with its 95 % band{told}; {count_label(curves['n'])}"
    figure.supxlabel(below, fontsize=9)
    figure.supylabel(f"share of the top {k}", fontsize=9)
    headline(figure, title)
    _label_bands(axes[0, 0], curves[curves[by] == panels[0]].sort_values("lambda"), bands)
    return figure


def plot_spectrum(
    spectrum: pd.DataFrame,
    title: str,
    *,
    k: int,
    lam: float = 0.4,
    dev: float | None = None,
    bands: Mapping[str, tuple[str, str]] = POOLED,
    names: Mapping[str, str] | None = None,
):
    """Which classes fill the top k over lambda, exactly: a panel for each question.

    Columns ``question, start, end`` and a count for each class; every white line is a lambda at
    which the top k changes. ``names`` are the questions' texts.
    """
    bands = {column.removesuffix("_at_5"): band for column, band in bands.items()}
    questions = spectrum.groupby("question", sort=False)
    size = WIDTH - 1, 1.25 * len(questions) + 0.9
    figure, axes = pyplot().subplots(
        len(questions), 1, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    axes[0, 0].set(xlim=(0, spectrum["end"].max()), ylim=(0, k), yticks=[0, k])
    for axis, (question, rows) in zip(axes[:, 0], questions, strict=True):
        steps = [*rows["start"], rows["end"].iloc[-1]]
        counts = [[*rows[name], rows[name].iloc[-1]] for name in bands]
        _stack(axis, np.array(steps), np.array(counts, float), bands, step="post")
        axis.vlines(steps[1:-1], 0, k, color="white", lw=0.7)
        told = f"{question}: {names[question]}" if names else question
        first = axis is axes[0, 0]
        axis.set_title(shorten(told, 95, placeholder=" …"), fontsize=SMALL, pad=13 if first else 4)
        mark_lambdas(axis, lam, dev, named=first)
    axes[-1, 0].set(xlabel="λ")
    figure.supylabel(f"passages of the top {k}", fontsize=9)
    handles = axes[0, 0].collections[: len(bands)]
    told = [name.replace("\n", " ") for name, _ in bands.values()]
    figure.legend(handles, told, ncol=4, loc="outside lower center")
    headline(figure, title)
    return figure


def dev_lambdas(choices: pd.DataFrame) -> dict[str, float]:
    """The lambda that dev chose for each family of arms that has one, from a table of choices.

    ``choices``: form, arm, lambda. What was chosen for one mimic holds for plain contrast and for
    all its controls.
    """
    fixed = choices.dropna(subset="lambda")
    chosen = dict(zip(fixed["arm"].str.partition("@")[0], fixed["lambda"], strict=True))
    one = fixed.loc[fixed["form"] == "one mimic", "lambda"].iloc[0]
    plain = ("chr", "chr+rotation", "chr+stranger", "chr+by_name", "chr+middle")
    return chosen | dict.fromkeys(plain, one)


def _stack(axis, x: np.ndarray, heights: np.ndarray, bands: Mapping, step: str | None = None):
    """Bands on top of each other from zero: ``heights`` has a row for each of ``bands``."""
    tops = np.cumsum(heights, axis=0)
    bottoms = tops - heights
    for bottom, top, (_, colour) in zip(bottoms, tops, bands.values(), strict=True):
        axis.fill_between(x, bottom, top, color=_shade(colour), lw=0, step=step)
    axis.grid(visible=False)


def _shade(colour: str) -> tuple[float, ...]:
    """The colour of a band: what is off the topic stays in the background."""
    from matplotlib.colors import to_rgb

    depth = 0.35 if colour == _FAINT else 0.9
    return tuple(1 - depth * (1 - part) for part in to_rgb(colour))


def _edge(axis, rows: pd.DataFrame) -> None:
    """P@k as a line on the bands, with its interval."""
    looks = {"color": "black", "alpha": 0.22, "lw": 0}
    axis.fill_between(rows["lambda"], rows["p_at_5_low"], rows["p_at_5_high"], **looks)
    axis.plot(rows["lambda"], rows["p_at_5"], color="black", lw=1.4, marker="o", ms=2.5)


def _entitle(axes, curves: pd.DataFrame, by: str, panels: list[str], inches: float) -> None:
    """Name the panels, with n where they differ in it, and take away those that nothing fills."""
    counts = {name: count_label(own["n"]) for name, own in curves.groupby(by)}
    differ = curves["n"].nunique() > 1
    names = [label_of(name) + (f", {counts[name]}" if differ else "") for name in panels]
    titles = panel_titles(names, inches)
    columns = axes.shape[1]
    for place, axis in enumerate(axes.flat):
        if place >= len(panels):
            axis.axis("off")
            continue
        # The first panel has the names of the lambdas between its title and itself.
        axis.set_title(titles[place], fontsize=SMALL + 0.5, pad=4 if place else 13)
        axis.tick_params(labelbottom=place + columns >= len(panels))


def _label_bands(axis, rows: pd.DataFrame, bands: Mapping[str, tuple[str, str]]) -> None:
    """Each band's name inside it, or with a line to it where the band is too thin."""
    from matplotlib.patheffects import withStroke

    axis.figure.draw_without_rendering()  # only now a panel's size is known
    box = axis.get_window_extent()
    inches_wide, inches_high = (side / axis.figure.dpi for side in (box.width, box.height))
    right = axis.get_xlim()[1]
    x = np.linspace(0, rows["lambda"].max(), 60)
    heights = np.array([np.interp(x, rows["lambda"], rows[column]) for column in bands])
    tops = np.cumsum(heights, axis=0)
    bottoms = tops - heights
    thin = 0
    for (name, colour), bottom, top in zip(bands.values(), bottoms, tops, strict=True):
        lines = name.split("\n")
        wide = (0.068 * max(map(len, lines)) + 0.05) / inches_wide * right  # in units of lambda
        at, middle, free = _room(x, bottom, np.minimum(top, 1 - 0.13 * thin), wide)
        text = {"fontsize": SMALL, "va": "center"}
        if free * inches_high > 1.3 * SMALL / 72 * len(lines):
            halo = withStroke(linewidth=2, foreground=_shade(colour))
            dark = "white" if sum(_shade(colour)) < 1.7 else "black"
            axis.text(at, middle, name, color=dark, ha="center", path_effects=[halo], **text)
        elif (top - bottom).max() > 0.01:
            # Too thin: named at the upper right, where the last band is, with a line to it.
            thickest = int(np.argmax(top - bottom))
            aim = x[thickest], (top + bottom)[thickest] / 2
            looks = {"arrowstyle": "-", "color": ink(colour), "lw": 0.8}
            place = 0.97 * right, 0.93 - 0.12 * thin
            axis.annotate(name, aim, place, color=ink(colour), ha="right", arrowprops=looks, **text)
            thin += 1


def _room(x: np.ndarray, bottom: np.ndarray, top: np.ndarray, wide: float):
    """Where a text ``wide`` fits best between two curves: x, the middle of the room, its height."""
    found = []
    for at in x[(x - wide / 2 >= 0) & (x + wide / 2 <= x[-1])]:
        inside = abs(x - at) <= wide / 2
        floor, ceiling = bottom[inside].max(), top[inside].min()
        found.append((ceiling - floor, at, (floor + ceiling) / 2))
    free, at, middle = max(found, default=(0.0, 0.0, 0.0))
    return at, middle, free
