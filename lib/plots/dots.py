"""Dots with 95 % intervals: values side by side, and paired differences around zero."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.plots.labels import label_of, with_labels
from lib.plots.palette import COLOURS, GREY, colour_of, in_order
from lib.plots.style import (
    SMALL,
    WIDTH,
    beside,
    count_label,
    headline,
    legend_below,
    nothing_drawn,
    panel_titles,
    pyplot,
)

FEW = 6
"""From so many questions on a value or a difference has an interval."""
_ROW = 0.24
"""Inches of a row."""


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
    ``together`` puts them on one height. An interval that is missing, or rests on fewer than
    ``FEW`` questions, is not drawn. ``levels`` are lines by their name: a number, or one for each
    panel. ``numbers`` writes each value beside its dot; else n stands there where a panel's rows
    differ in it. ``names`` calls the series.
    """
    table = table.dropna(subset="value")
    if table.empty:
        return nothing_drawn(xlabel)
    panels, labels = _order(table["panel"]), _order(table["row"])
    series = list(dict.fromkeys(table["series"])) if "series" in table else [""]
    rows_high = len(labels) * (1 if together else max(1, 0.75 * len(series)))
    figure, axes, inches = _panels(len(panels), rows_high, labels)
    titles = []
    for axis, panel in zip(axes, panels, strict=True):
        own = table[table["panel"] == panel]
        for place, name in enumerate(series):
            rows = own[own["series"] == name] if name else own
            shift = 0 if together else 0.72 / len(series) * (place - (len(series) - 1) / 2)
            y = np.array([labels.index(row) for row in rows["row"]], float) + shift
            colours = [colour_of(name, place)] * len(rows) if name else rows.get("colour", GREY)
            _dots(axis, rows, y, colours, (names or {}).get(name, label_of(name)))
            if numbers or own["n"].nunique() > 1:
                _beside(axis, rows, y, numbers)
        _levels(axis, levels or {}, panel)
        n = f", {count_label(own['n'])}" if numbers or own["n"].nunique() == 1 else ""
        titles.append(f"{panel}{n}")
    _entitle(axes, titles, inches)
    axes[0].set(xlim=xlim, ylim=(len(labels) - 0.4, -0.6))
    headline(figure, title)
    _below(figure, axes, xlabel, len(series) > 1 or bool(levels))
    return figure


def plot_differences(table: pd.DataFrame, xlabel: str, title: str = ""):
    """Paired differences around zero: columns ``label, difference, low, high, n``.

    Without ``label`` a row is called by its ``arm`` and ``against``. A column ``panel`` sets
    differences side by side on one scale. A colour is a verdict: that of ``verdict``, else what
    ``p_holm`` leaves. A row with neither is exploratory, and grey: nothing is concluded from it.
    Differences of fewer than six questions have no interval.
    """
    from matplotlib.ticker import MaxNLocator

    if table.empty:
        return nothing_drawn(xlabel)
    if "label" not in table:
        table = with_labels(table)
    if "dataset" in table:
        table = table.sort_values("dataset", key=lambda d: d.map(in_order(d).index), kind="stable")
    table = table.assign(kind=_kinds(table), value=table["difference"])
    differ = table["n"].nunique() > 1
    if "panel" not in table:
        table["panel"] = ""
        table["label"] += table["n"].map(", n = {:.0f}".format) if differ else ""
    labels = list(dict.fromkeys(table["label"]))
    panels = list(dict.fromkeys(table["panel"]))
    figure, axes, inches = _panels(len(panels), len(labels), labels)
    titles = []
    for axis, panel in zip(axes, panels, strict=True):
        own = table[table["panel"] == panel]
        for kind, rows in own.groupby("kind"):
            y = rows["label"].map(labels.index)
            _dots(axis, rows, y, [COLOURS.get(kind, GREY)] * len(rows), kind)
        axis.axvline(0, color="black", lw=0.8, zorder=1)
        titles.append(f"{panel}, {count_label(own['n'])}" if panel and differ else panel)
    _entitle(axes, titles, inches)
    axes[0].set(ylim=(len(labels) - 0.4, -0.6))
    axes[0].xaxis.set_major_locator(MaxNLocator(6 if len(panels) == 1 else 4))
    kinds = sorted(set(table["kind"]))
    alone = f"; {kinds[0]}" if len(kinds) == 1 else ""
    bars = "95 % intervals, uncorrected; " if (table["n"] >= FEW).any() else ""
    headline(figure, title)
    told = f"{xlabel}\n{bars}{count_label(table['n'])}{alone}"
    _below(figure, axes, told, legend=len(kinds) > 1)
    return figure


def _order(column: pd.Series) -> list[str]:
    """The names in a column once each, in the order of its categories where it has them."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return list(column.cat.remove_unused_categories().cat.categories)
    return list(dict.fromkeys(column))


def _entitle(axes, titles: list[str], inches: float) -> None:
    """Titles of panels that are so wide."""
    for axis, title in zip(axes, panel_titles(titles, inches), strict=True):
        axis.set_title(title, fontsize=SMALL + 0.5)


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


def _below(figure, axes, xlabel: str, legend: bool) -> None:
    """What the x axis shows, once for all panels, with the legend where there is one."""
    if legend:
        legend_below(figure, axes, xlabel, 4)
    else:
        figure.supxlabel(xlabel, fontsize=9)


def _dots(axis, rows: pd.DataFrame, y, colours, label: str) -> None:
    """Dots at ``value``, each with its interval; open and without one where it rests on few."""
    colours = np.broadcast_to(np.asarray(colours, object), len(rows))
    label = label or None
    for (_, row), height, colour in zip(rows.iterrows(), y, colours, strict=True):
        few = row["n"] < FEW
        error = None
        if not few and pd.notna(row["low"]):
            error = [[abs(row["value"] - row["low"])], [abs(row["high"] - row["value"])]]
        inside = "white" if few else colour
        looks = {"fmt": "o", "ms": 4, "lw": 1.4, "color": colour, "mfc": inside, "label": label}
        axis.errorbar(row["value"], height, xerr=error, **looks)
        label = None  # once in the legend


def _beside(axis, rows: pd.DataFrame, y: np.ndarray, numbers: bool) -> None:
    """To the right of each dot and its interval the value, or else n."""
    texts = rows["value"].map("{:.1f}".format) if numbers else rows["n"].map("{:.0f}".format)
    ends = rows["high"].where(rows["n"] >= FEW).fillna(rows["value"])
    for at, height, text in zip(ends, y, texts, strict=True):
        beside(axis, at, height, text, 4)


_CONTROLS = ("hplus", "chr+rotation", "chr+stranger", "question", "hplus+question1")
"""What contrast is compared with at one lambda."""


def control_rows(claims: pd.DataFrame, dev: float | None = None) -> pd.DataFrame:
    """Of all comparisons those of contrast and its controls at one lambda, a panel a lambda.

    ``claims``: arm, against, metric and what ``plot_differences`` needs; of P@k alone. Columns
    ``panel`` and ``label`` are added. The lambda that ``dev`` chose is called so.
    """
    family, _, at = (claims["arm"].str.partition("@")[part] for part in range(3))
    against = claims["against"].str.partition("@")[0]
    plain = family.isin(["chr", "chr+rotation", "chr+stranger"]) & against.isin(_CONTROLS[:4])
    with_question = (family == "chr+question1") & (against == "hplus+question1")
    wanted = (plain | with_question) & (claims["metric"] == "p_at_5") & at.str.fullmatch(r"[\d.]+")
    rows = claims[wanted].assign(lam=at[wanted].astype(float))
    # What the question adds is compared where plain contrast is.
    shared = set(rows.loc[rows["arm"].str.startswith("chr@"), "lam"])
    rows = rows[rows["lam"].isin(shared)]
    told = {1.0: ", the paper's"} | ({dev: ", dev's"} if dev else {})
    labels = family[rows.index].map(label_of) + " − " + against[rows.index].map(label_of)
    panels = rows["lam"].map(lambda lam: f"λ = {lam:g}{told.get(lam, '')}")
    return rows.assign(panel=panels, label=labels).sort_values("lam", kind="stable")


EXPLORATORY = "exploratory: no verdict"
"""What the legend calls a difference that nobody declared before looking."""


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
