"""The kinds of picture: dots with intervals, curves with bands, stacked composition, heat map."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from textwrap import shorten

import numpy as np
import pandas as pd

from lib.plots.labels import (
    COLOURS,
    GREY,
    colour_of,
    in_order,
    in_order_of_arms,
    label_of,
    with_labels,
)
from lib.plots.style import (
    SMALL,
    WIDTH,
    count_label,
    headline,
    label_ends,
    legend_below,
    mark_lambdas,
    note,
    nothing_drawn,
    panel_titles,
    pyplot,
)

FEW = 6
"""The least number of questions for which a value or a difference gets an interval."""
TINT = "#fbf3dc"
"""The ground of a panel that has a scale of its own."""
_ROW = 0.24
"""Height of a row in inches."""
P_AT_5 = {"p_at_5": "value", "p_at_5_low": "low", "p_at_5_high": "high"}
"""The columns of P@k as the pictures call them."""

JUDGED = {
    "target_at_5": ("on the target", COLOURS["target"]),
    "both_at_5": ("on both", COLOURS["both"]),
    "mimic_at_5": ("on the mimic", COLOURS["mimic"]),
    "neither_at_5": ("on neither", COLOURS["neither"]),
}
"""Bands of a composition from the bottom, by column: what they are called, and their colour."""
POOLED = JUDGED | {"neither_at_5": ("neither, or not judged", COLOURS["neither"])}
"""The same where not every passage was judged."""


# dots with intervals ------------------------------------------------------------------------------


def plot_dots(
    table: pd.DataFrame,
    title: str,
    xlabel: str,
    *,
    levels: Mapping[str, float | Mapping[str, float]] | None = None,
    xlim: tuple[float, float] | None = (0, 1),
    numbers: bool = False,
    names: Mapping[str, str] | None = None,
    together: bool = False,
):
    """A dot with its interval for every row: columns ``panel, row, value, low, high, n``.

    Panels stand side by side on one scale. They and the rows are in the order of the table, or of
    their categories. A column ``series`` puts several dots in a row, each in its colour;
    ``together`` puts them on one height. A row's ``colour`` takes precedence. An interval that is
    missing, or rests on fewer than ``FEW`` questions, is not drawn. ``levels`` are lines by their
    name: a number, or one for each panel. ``numbers`` writes each value beside its dot; else n
    stands there where a panel's rows differ in it. ``names`` calls the series.
    """
    rows = table.dropna(subset="value")
    if rows.empty:
        return nothing_drawn(xlabel)
    if "series" not in rows:
        rows = rows.assign(series="")
    panels, labels, series = (_order(rows[column]) for column in ("panel", "row", "series"))
    high = 1 if together else max(1, 0.75 * len(series))
    figure, axes, inches = _panels(len(panels), len(labels) * high, labels)
    rows = _placed(rows, labels, series, together)
    called = {name: label_of(name) for name in series} | dict(names or {})
    titles = []
    for axis, panel in zip(axes, panels, strict=True):
        here = rows[rows["panel"] == panel]
        for name in series:
            label = called[name] if len(series) > 1 else "_nolegend_"
            _dots(axis, here[here["series"] == name], label)
        one_n = here["n"].nunique() == 1
        if numbers:
            axis.margins(x=0.15)
        if numbers or not one_n:
            _beside(axis, here, numbers)
        _levels(axis, levels or {}, panel)
        counted = panel and (numbers or one_n)
        titles.append(f"{panel}, {count_label(here['n'])}" if counted else str(panel))
    axes[0].set(xlim=xlim, ylim=(len(labels) - 0.4, -0.6))
    if xlim is None:
        axes[0].locator_params(axis="x", nbins=6 if len(panels) == 1 else 4)
    for axis, name in zip(axes, panel_titles(titles, inches), strict=True):
        axis.set_title(name, fontsize=SMALL + 0.5)
    headline(figure, title)
    legend_below(figure, axes, xlabel, 4)
    return figure


def _placed(rows: pd.DataFrame, labels: list, series: list, together: bool) -> pd.DataFrame:
    """Rows with their height ``y`` and, where they have none, a colour."""
    rows = rows.assign(y=rows["row"].map(labels.index).astype(float))
    if not together:
        place = rows["series"].map(series.index).astype(float)
        rows["y"] += 0.72 / len(series) * (place - (len(series) - 1) / 2)
    if "colour" not in rows:
        colours = {name: colour_of(name, place) for place, name in enumerate(series)}
        rows["colour"] = rows["series"].astype(object).map(colours | {"": GREY})
    return rows


def plot_differences(
    table: pd.DataFrame,
    xlabel: str,
    title: str = "",
    sides: str = "",
    numbers: bool = False,
):
    """Paired differences around zero: columns ``label, difference, low, high, n``.

    Without ``label`` a row is called by its ``arm`` and ``baseline``. A column ``panel`` sets
    differences side by side on one scale. ``sides`` says under each axis what left and right of
    zero mean. A colour is a verdict: that of ``verdict``, else what ``p_holm`` leaves. A row with
    neither is exploratory, and grey: nothing is concluded from it. A column ``accent`` has colours
    for those that the title speaks of instead. ``numbers`` as for ``plot_dots``. Differences of
    fewer than six questions have no interval.
    """
    if table.empty:
        return nothing_drawn(xlabel)
    if "label" not in table:
        table = with_labels(table)
    if "dataset" in table:
        table = table.sort_values("dataset", key=lambda d: d.map(in_order(d).index), kind="stable")
    kinds = _kinds(table)
    rows = table.assign(
        panel=table.get("panel", ""),
        row=table["label"],
        series=pd.Categorical(kinds, sorted(set(kinds))),
        value=table["difference"],
        colour=table.get("accent", kinds.map(COLOURS)).fillna(GREY),
    )
    alone = f"; {kinds.iloc[0]}" if kinds.nunique() == 1 else ""
    bars = "95 % intervals, uncorrected; " if (table["n"] >= FEW).any() else ""
    below = f"{xlabel}\n{bars}{count_label(table['n'])}{alone}"
    looks = {"xlim": None, "together": True, "numbers": numbers}
    figure = plot_dots(rows, title, below, levels={"": 0.0}, **looks)
    for axis in figure.axes:
        axis.set_xlabel(sides, fontsize=SMALL)
    return figure


EXPLORATORY = "exploratory: no verdict"
"""What the legend calls a difference that was not declared in advance."""


def _kinds(table: pd.DataFrame) -> pd.Series:
    """What the legend calls each row of differences."""
    kinds = pd.Series(EXPLORATORY, table.index)
    if "p_holm" in table:
        tested = table["p_holm"].notna()
        clear = table["p_holm"] < 0.05
        kinds = kinds.mask(tested, "p ≥ 0.05 (Holm)").mask(clear, "p < 0.05 (Holm)")
    if "verdict" in table:
        verdicts = table["verdict"].fillna("")
        kinds = kinds.mask(verdicts != "", verdicts)
    return kinds.mask(table["n"] < FEW, "TOO FEW (n < 6)")


def _order(column: pd.Series) -> list[str]:
    """The names in a column once each, in the order of its categories where it has them."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return list(column.cat.remove_unused_categories().cat.categories)
    return list(dict.fromkeys(column))


def _panels(count: int, rows: float, labels: list[str]):
    """A row of panels that share both axes, the names of the rows on the left.

    Also how many inches wide a panel is.
    """
    names = 0.068 * max(len(label) for label in labels) + 0.4  # inches
    wide = max(5.0, min(WIDTH, names + 2.6 * count))
    size = wide, _ROW * max(rows, 3) + 1.15
    figure, axes = pyplot().subplots(
        1, count, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    axes[0, 0].set_yticks(range(len(labels)), labels)
    return figure, axes[0], (wide - names) / count


def _levels(axis, levels: Mapping[str, float | Mapping[str, float]], panel: str) -> None:
    """Vertical lines by their name, each in a style of its own."""
    for style, (name, level) in zip(("--", ":", "-."), levels.items(), strict=False):
        at = level.get(panel) if isinstance(level, Mapping) else level
        if at is not None:
            axis.axvline(at, color="black", lw=0.9, ls=style, label=name, zorder=1)


def _dots(axis, rows: pd.DataFrame, label: str) -> None:
    """Dots at ``value`` and ``y``, each with its interval; open and without one if it rests on few.

    A column ``marker`` says what stands for a dot, ``hollow`` which of them are open besides.
    """
    for row in rows.itertuples():
        few = row.n < FEW
        if not few and pd.notna(row.low):
            axis.plot([row.low, row.high], [row.y, row.y], color=row.colour, lw=1.4, zorder=2)
        marker = getattr(row, "marker", "o")
        fill = "white" if few or getattr(row, "hollow", False) else row.colour
        axis.plot(row.value, row.y, marker, ms=4, color=row.colour, mfc=fill, label=label)


def _beside(axis, rows: pd.DataFrame, numbers: bool) -> None:
    """To the right of each dot and its interval the value, or else n."""
    ends = rows["high"].where(rows["n"] >= FEW).fillna(rows["value"])
    for row, end in zip(rows.itertuples(), ends, strict=True):
        text = f"{row.value:.1f}".replace("-", "−") if numbers else f"{row.n:.0f}"
        box = {"fc": "white", "ec": "none", "pad": 0.4}
        note(axis, end, row.y, text, (4, 0), va="center", bbox=box)


# curves with bands --------------------------------------------------------------------------------


def plot_curves(
    table: pd.DataFrame,
    title: str,
    *,
    panel: str = "study",
    line: str = "family",
    x: str = "lambda",
    xlabel: str = "λ",
    ylabel: str = "",
    lam: float | None = None,
    dev: Mapping[str, float] | None = None,
    ylim: tuple[float, float | None] = (0, None),
    own_scale: Collection[str] = (),
):
    """``value`` over ``x`` with its 95 % band (``low``, ``high``): a panel for each ``panel``.

    All panels have one scale, but for those of ``own_scale``, which are tinted and whose heading
    says how much larger it is; lines are named at the right edge. An ``x`` of names stands in their
    order. What has one row only, such as the question alone, is a dashed level. ``lam`` is the
    reader's lambda and ``dev`` has dev's, by panel: they are marked where x is lambda. A line of
    fewer than six questions is not drawn, and its panel says so.
    """
    from matplotlib.ticker import MultipleLocator

    if table.empty:
        return nothing_drawn(ylabel or title)
    panels = list(dict.fromkeys(table[panel]))
    columns = len(panels) if len(panels) < 4 else 2
    size = 4.1 * columns + 1.4, 2.3, 0.7
    figure, axes = _grid_of_panels(len(panels), columns, size, sharey=not own_scale)
    if not pd.api.types.is_numeric_dtype(table[x]):
        ticks = list(dict.fromkeys(table[x]))
        table = table.assign(**{x: table[x].map(ticks.index)})
        axes[0, 0].set_xticks(range(len(ticks)), ticks)
        figure.set_figwidth(WIDTH)
    ends = []
    for axis, name in zip(axes.flat, panels, strict=False):
        ends.append(_curve_panel(axis, table[table[panel] == name], line, x, name))
    axes[0, 0].set(xlim=(table[x].min(), table[x].max()))
    alike = [axis for axis, name in zip(axes.flat, panels, strict=False) if name not in own_scale]
    top = max((axis.get_ylim()[1] for axis in alike), default=None) if ylim[1] is None else ylim[1]
    for axis, name in zip(axes.flat, panels, strict=False):
        axis.set_ylim(ylim[0], None if name in own_scale else top)
        if name in own_scale:
            more = (top or 1) / axis.get_ylim()[1]
            axis.set_title(f"{name}, scale × {more:.0f}", pad=13)
            axis.set_facecolor(TINT)
    if x == "lambda":
        chosen = dev or {}
        axes[0, 0].xaxis.set_major_locator(MultipleLocator(0.5 if columns > 2 else 0.2))
        for axis, name in zip(axes.flat, panels, strict=False):
            # Named where dev's choice is not that of the first panel.
            at = chosen.get(name)
            mark_lambdas(axis, lam, at, named=name == panels[0] or at != chosen.get(panels[0]))
    band = ", 95 % band" if table["low"].notna().any() else ""
    figure.supylabel(f"{ylabel}{band}", fontsize=9)
    for axis in axes.flat[max(0, len(panels) - columns) : len(panels)]:
        axis.set(xlabel=xlabel)
    headline(figure, title)
    _name_lines(axes, ends)
    return figure


def _grid_of_panels(
    count: int, columns: int, size: tuple[float, float, float], sharey: bool = True
):
    """Panels in rows that share their axes: figure and axes, those that nothing fills taken away.

    ``size`` is the width at most, a row's height and what all rows have above and below, in inches.
    """
    wide, high, around = size
    rows = -(-count // columns)
    figure, axes = pyplot().subplots(
        rows,
        columns,
        figsize=(min(WIDTH, wide), high * rows + around),
        sharex=True,
        sharey=sharey,
        squeeze=False,
    )
    for place, axis in enumerate(axes.flat):
        # The lowest panel of each column has its numbers.
        axis.tick_params(labelbottom=place + columns >= count)
        if place >= count:
            axis.axis("off")
    return figure, axes


def _curve_panel(axis, rows: pd.DataFrame, line: str, x: str, name: str) -> list[tuple]:
    """Draw one panel's lines; the ends that are to be named."""
    ends = []
    right = rows[x].max()
    differ = rows["n"].nunique() > 1
    for place, (key, group) in enumerate(rows.groupby(line, sort=False)):
        label = label_of(key)
        if differ:
            gap = "\n" if len(label) > 20 else " "
            label += f",{gap}{count_label(group['n'])}"
        colour = group["colour"].iloc[0] if "colour" in group else colour_of(key, place)
        if group["n"].max() < FEW:
            ends.append((right, 0.0, f"{label}: too few to draw", GREY))
        elif x == "lambda" and len(group) == 1:
            level = group["value"].item()
            axis.axhline(level, color=colour, lw=1.2, ls="--", label=label)
            ends.append((right, level, label, colour))
        else:
            few = x == "lambda" and len(group) < 0.75 * rows[x].nunique()
            marker = {"chr+rotation": "s", "chr+stranger": "^"}.get(key, "D") if few else ""
            ends.append(draw_line(axis, group, x, colour, label, marker))
    axis.set_title(f"{name}, {count_label(rows['n'])}" if name else "", pad=13)
    return ends


def draw_line(axis, rows: pd.DataFrame, x: str, colour: str, label: str, marker: str = "") -> tuple:
    """One line with its 95 % band. Returns its end, for ``label_ends``.

    With a ``marker`` its points are too few to be joined: each has the marker and its interval.
    """
    looks = {"marker": marker, "ls": "", "mfc": "none", "ms": 5} if marker else {"marker": "o"}
    axis.plot(rows[x], rows["value"], **{"ms": 3} | looks, color=colour, label=label, clip_on=False)
    if marker:
        axis.vlines(rows[x], rows["low"], rows["high"], color=colour, lw=1.2, clip_on=False)
    else:
        axis.fill_between(rows[x], rows["low"], rows["high"], color=colour, alpha=0.13, lw=0)
    end = rows.loc[rows[x].idxmax()]
    return end[x], end["value"], label, colour


def _name_lines(axes, drawn: Sequence[list[tuple]]) -> None:
    """Names at the right edge: of the last panel of each row, and of lines it does not have."""
    columns = axes.shape[1]
    for start in range(0, len(drawn), columns):
        *others, (last, named) = list(zip(axes.flat, drawn, strict=False))[start : start + columns]
        label_ends(last, named)
        texts = {text for *_, text, _ in named}
        for axis, ends in others:
            label_ends(axis, [end for end in ends if end[2] not in texts])


# stacked composition ------------------------------------------------------------------------------


def plot_composition(
    curves: pd.DataFrame,
    title: str,
    *,
    by: str = "family",
    bands: Mapping[str, tuple[str, str]] = POOLED,
    k: int = 5,
    lam: float = 0.4,
    dev: float | Mapping[str, float] | None = None,
):
    """What the top k is made of over lambda: a panel for each value of ``by``, all on one scale.

    ``curves``: ``by``, lambda, the columns of ``bands``, p_at_5 with its 95 % interval
    (``p_at_5_low``, ``p_at_5_high``) and n. The black line with its pale band is P@k, the upper
    edge of the target's bands. A value of ``by`` with one row, such as the question alone, is a
    dashed level of P@k in every panel. ``dev`` is the lambda that dev chose, or has one by the
    values of ``by``; ``lam`` is the reader's.
    """
    if curves.empty:
        return nothing_drawn(title)
    is_level = curves.groupby(by)["lambda"].transform("size") == 1
    levels, lines = curves[is_level], curves[~is_level]
    panels = in_order_of_arms(lines[by])
    columns = 3 if len(panels) in (5, 6) else min(len(panels), 4)
    figure, axes = _grid_of_panels(len(panels), columns, (2.9 * columns + 0.5, 2.1, 0.75))
    halves = [0, 0.5, 1]
    axes[0, 0].set(xlim=(0, curves["lambda"].max()), ylim=(0, 1), xticks=halves, yticks=halves)
    for axis, name in zip(axes.flat, panels, strict=False):
        group = lines[lines[by] == name].sort_values("lambda").set_index("lambda")
        stack(axis, group[list(bands)], bands)
        looks = {"color": "black", "alpha": 0.22, "lw": 0}
        axis.fill_between(group.index, group["p_at_5_low"], group["p_at_5_high"], **looks)
        axis.plot(group["p_at_5"], color="black", lw=1.4, marker="o", ms=2.5)
        for level in levels["p_at_5"]:
            axis.axhline(level, color="black", lw=1, ls="--")
        chosen = dev.get(name) if isinstance(dev, Mapping) else dev
        mark_lambdas(axis, lam, chosen, named=name == panels[0])
    _title_panels(axes, curves, by, panels, (figure.get_figwidth() - 0.6) / columns)
    dashed = "".join(f"; dashed: {label_of(name)}" for name in levels[by])
    below = f"λ\nblack: P@{k} with its 95 % band{dashed}; {count_label(curves['n'])}"
    figure.supylabel(f"share of the top {k}", fontsize=9)
    headline(figure, title)
    legend_below(figure, axes[0, :1], below)
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
    figure, axes = _grid_of_panels(len(questions), 1, (WIDTH - 1, 1.25, 0.9))
    axes[0, 0].set(xlim=(0, spectrum["end"].max()), ylim=(0, k), yticks=[0, k])
    for axis, (question, rows) in zip(axes[:, 0], questions, strict=True):
        last = rows.iloc[[-1]]
        steps = pd.concat([rows.set_index("start"), last.set_index("end")])[list(bands)]
        stack(axis, steps, bands, step="post")
        axis.vlines(steps.index[1:-1], 0, k, color="white", lw=0.7)
        text = f"{question}: {names[question]}" if names else question
        first = axis is axes[0, 0]
        axis.set_title(shorten(text, 95, placeholder=" …"), fontsize=SMALL, pad=13 if first else 4)
        mark_lambdas(axis, lam, dev, named=first)
    figure.supylabel(f"passages of the top {k}", fontsize=9)
    legend_below(figure, axes[0], "λ")
    headline(figure, title)
    return figure


def stack(
    axis, heights: pd.DataFrame, bands: Mapping, step: str | None = None, bars: bool = False
) -> None:
    """Bands on top of each other from zero, over the index; ``heights`` has a column for each.

    ``bars`` are drawn where there are too few heights to join them.
    """
    tops = heights.cumsum(axis=1)
    for column, (name, colour) in bands.items():
        top = tops[column].to_numpy(float)
        bottom = top - heights[column].to_numpy(float)
        looks = {"color": _shade(colour), "lw": 0, "label": name}
        if bars:
            axis.bar(heights.index, top - bottom, 0.08, bottom, clip_on=False, **looks)
        else:
            axis.fill_between(heights.index, bottom, top, step=step, **looks)
    axis.grid(visible=False)


def _shade(colour: str) -> tuple[float, ...]:
    """The colour of a band: what is off the topic stays in the background."""
    from matplotlib.colors import to_rgb

    depth = 0.35 if colour == COLOURS["neither"] else 0.9
    return tuple(1 - depth * (1 - part) for part in to_rgb(colour))


def _title_panels(axes, curves: pd.DataFrame, by: str, panels: list[str], inches: float) -> None:
    """Name the panels, with n where they differ in it."""
    names = [label_of(name) for name in panels]
    if curves["n"].nunique() > 1:
        counts = curves.groupby(by)["n"].agg(count_label)
        names = [f"{name}, {counts[key]}" for name, key in zip(names, panels, strict=True)]
    pads = [13] + [4] * len(names)  # the first panel has the names of the lambdas below its title
    for axis, title, pad in zip(axes.flat, panel_titles(names, inches), pads, strict=False):
        axis.set_title(title, fontsize=SMALL + 0.5, pad=pad)


# heat map -----------------------------------------------------------------------------------------


def plot_heatmap(
    panels: Mapping[str, pd.DataFrame], title: str, *, xlabel: str, ylabel: str, scale: str
):
    """Shares as shades from 0 to 1 with their numbers: a panel for each wide table, side by side.

    A cell's number is readable whatever its colour; what is missing is a dash. ``scale`` says what
    a share is of.
    """
    figure, axes = pyplot().subplots(1, len(panels), figsize=(WIDTH, 3.2), sharey=True)
    for axis, (name, shares) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        values = shares.to_numpy(dtype=float)
        image = axis.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            text = "–" if np.isnan(value) else f"{value:.0%}"
            colour = "white" if value > 0.55 else "black"  # NaN is drawn on white
            axis.text(column, row, text, ha="center", va="center", fontsize=SMALL, color=colour)
        axis.set_xticks(range(shares.shape[1]), shares.columns, rotation=45, ha="right")
        axis.set_yticks(range(shares.shape[0]), shares.index)
        axis.set_title(name, fontsize=SMALL + 0.5)
        axis.grid(visible=False)
    figure.axes[0].set(ylabel=ylabel)
    figure.supxlabel(xlabel, fontsize=9)
    figure.colorbar(image, ax=axes, label=scale, shrink=0.8)
    headline(figure, title)
    return figure
