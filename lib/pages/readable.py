"""Tables as a notebook shows them: words for column names and keys, one cell for an interval.

Result files keep their names (``p_at_5``, ``hplus``); a reader sees "P@5" and "H+ alone". What a
column or a cell is called on a screen is said in ``lib.plots`` (labels.csv).
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.plots.labels import ARMS, label_of, names_of
from lib.report import pivot

NAMES = names_of("column")
"""What a column, or a key in a cell, is called (labels.csv). ``{k}`` is how many passages were
retrieved: the files say ``p_at_5`` whatever k is."""
_CELLS = {
    (column, key): label
    for column in ("group", "kind", "measure", "outcome")
    for key, label in names_of(f"cell: {column}").items()
}
"""Keys that have words of their own in one column only, by column and key."""
_ARMS = ("arm", "baseline", "family", "method", "label", "kind", "part")
"""Columns and levels whose cells are keys of ``label_of``."""
_COUNTS = ("n", "n_dev", "dev_n", "test_n", "n_found", "n_not_found", "hits", "value_n", "failed")
"""Columns of whole numbers, also where a missing one has made them decimal."""
_LEAST = ("mde", "mde_holm")
"""Columns of the smallest differences that a test can tell."""
_MIXED = ("value", "reported")
"""Columns that may hold counts beside shares."""
_SETS = ("exams", "mmlu", "medqa", "bioasq", "ddx-real", "ddx-fresh")
"""Question sets in the paper's order; those of several come first."""
_MISSING = "–"

NOT_RUN = (
    "**NOT RUN**: nothing was recorded or measured for this table. What would run it is under "
    "*What was not run* in [03](03_run_methods.ipynb)."
)
"""What stands in place of a table without rows."""

NO_FORMULAS = 'class="mathjax_ignore tex2jax_ignore"'
"""Jupyter looks for formulas in all that is not of this class."""


def words(name: object, k: int = 5) -> str:
    """What a column or a key is called; a name that nobody listed is split at its underscores."""
    if isinstance(name, float):
        return f"{name:g}"
    text = str(name)
    if text in NAMES:
        return NAMES[text].format(k=k)
    parts = [
        NAMES.get(part) or (part.replace("_", " ") if re.fullmatch(r"\w+", part) else part)
        for part in re.split(r"(, |; )", text)
    ]
    return re.sub(r"@k\b", f"@{k}", "".join(parts)).replace("{k}", str(k))


def readable(
    table: pd.DataFrame, k: int = 5, digits: int = 3, percent: bool = False
) -> pd.DataFrame:
    """The table as texts for a screen; the table that was given is not changed.

    Columns, levels and keys get words (``NAMES``, ``label_of``), numbers have ``digits`` decimals,
    a value and its interval stand in one cell, a missing value is a dash. Question sets come in
    the paper's order. ``k`` is how many passages the table's run retrieved. ``percent``: every
    decimal number but lambda and p is a share, shown as 15.0 %, or a difference of shares, in
    percentage points.
    """
    table = _sets_in_order(table)
    intervals = _intervals(table.columns)
    ends = {end for pair in intervals.values() for end in pair}
    texts, heads = [], []
    for place, column in enumerate(table.columns):
        if column in ends:
            continue
        values = table.iloc[:, place]
        if column in intervals:
            low, high = intervals[column]
            differs = column == "difference"
            rows = zip(values, table[low], table[high], strict=True)
            texts.append([_interval(*row, digits, differs, percent) for row in rows])
            unit = ", points" if percent and differs else ""
            heads.append(f"{words(column, k)}{unit} (95 % interval)")
        else:
            name = column[0] if isinstance(column, tuple) else column
            whole = _whole(values, name)
            share = percent and not whole and name not in ("lambda", "p", "p_holm")
            texts.append([_cell(value, name, 0 if whole else digits, k, share) for value in values])
            heads.append(f"{words(column, k)}, points" if share and column in _LEAST else column)
    shown = pd.DataFrame(dict(enumerate(texts)), index=_index(table.index, k))
    if isinstance(table.columns, pd.MultiIndex):
        shown.columns = _index(table.columns, k)
    else:
        shown.columns = _index(pd.Index(heads, name=table.columns.name), k)
    return shown


def show(
    table: pd.DataFrame,
    k: int = 5,
    digits: int = 3,
    says: str = "",
    fold: str = "",
    percent: bool = False,
) -> None:
    """Show a table to a reader: a line above it, then the table as ``readable`` has it.

    The line is ``says`` and every column that has one value only. With ``fold`` the table opens on
    a click at those words. A table without rows is said to be NOT RUN.
    """
    from IPython.display import HTML, Markdown, display

    if table.empty:
        display(Markdown(f"{says or fold} {NOT_RUN}".strip()))
        return
    texts = readable(table, k, digits, percent)
    alike = _alike(texts)
    line = f"{says} {caption(texts.iloc[:, alike])}".strip()
    if line:
        display(Markdown(line))
    rest = texts.iloc[:, [place for place in range(texts.shape[1]) if place not in alike]]
    looks = {"display.max_colwidth": None, "display.max_rows": 200}
    if re.search(r"\$|\\[(\[]", rest.to_string()):
        looks["display.html.use_mathjax"] = False  # what looks like a formula is a price, or a text
    with pd.option_context(looks):
        shown = _texts_left(rest)
    if fold:
        shown = f"<details><summary>{html.escape(fold)}</summary>{shown}</details>"
    display(HTML(shown))


def _texts_left(texts: pd.DataFrame) -> str:
    """The table in HTML: texts to the left, numbers to the right, where Jupyter has all of them."""
    left = [not texts.iloc[:, place].map(_is_number).all() for place in range(texts.shape[1])]
    page = re.sub(r"(?<=\d) %", "\u00a0%", texts.to_html())  # no line ends between the two
    head, body = page.split("<tbody>")
    if texts.columns.nlevels == 1:
        head = _to_the_left("th", head, [True] * texts.index.nlevels + left)
    body = _to_the_left("td", _to_the_left("th", body, [True]), left)
    return f"{head}<tbody>{body}"


def _to_the_left(tag: str, page: str, which: Sequence[bool]) -> str:
    """The page with those of its cells to the left that ``which`` says, over and over."""
    place = itertools.cycle(which)
    return re.sub(f"<{tag}(?=[ >])", lambda cell: cell[0] + next(place) * _LEFT, page)


_LEFT = ' style="text-align: left"'


def _is_number(text: str) -> bool:
    """Whether a cell is a number, with or without its interval, or is missing."""
    return bool(re.fullmatch(rf"{_MISSING}|[+\-−<]? ?[\d.,]+( ?%)?( \(.*\))?", str(text)))


def _alike(texts: pd.DataFrame) -> list[int]:
    """Positions of the columns that have one value in all rows. None of a table with fewer than two
    rows, of a grid, or where this holds for every column."""
    if len(texts) < 2 or texts.columns.name or isinstance(texts.columns, pd.MultiIndex):
        return []
    places = range(texts.shape[1])
    alike = [place for place in places if texts.iloc[:, place].nunique() == 1]
    return alike if len(alike) < len(places) else []


def caption(alike: pd.DataFrame) -> str:
    """Columns that have one value in all rows, as a line of Markdown."""
    said = []
    for place, name in enumerate(alike.columns):
        value = alike.iloc[0, place]
        if value != _MISSING:
            said.append(f"{plain(name)} {plain(value)}")
    return f"*In every row: {'; '.join(said)}.*" if said else ""


def chance(p: float) -> str:
    """A p-value with three decimals; results hold no more, so 0.000 is less than a thousandth."""
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def show_texts(texts: Mapping[str, str]) -> None:
    """Show every text after its name, a paragraph each, character for character.

    Whoever wrote it, a model, a corpus or a reader: its tags, links and formulas do nothing.
    """
    from IPython.display import HTML, display

    shown = [f"<p><b>{html.escape(n)}</b> {html.escape(text)}</p>" for n, text in texts.items()]
    display(HTML(f"<div {NO_FORMULAS}>{''.join(shown)}</div>"))


def plain(text: object) -> str:
    """Markdown that shows these very characters: every one that could be markup as an entity.

    That holds for line breaks, which could begin a heading or a list, and for addresses as links.
    """
    markup = r"[&<>\[\]`*_\\$|~#\n\r]|:(?=//)|(?<=www)\."
    return re.sub(markup, lambda found: f"&#{ord(found[0])};", str(text))


def wide(
    table: pd.DataFrame,
    rows: str | list[str],
    columns: str | list[str],
    value: str = "value",
    percent: bool = False,
) -> pd.DataFrame:
    """A long table as a wide one, for example a row a method and a column a question set.

    Cells are texts: ``value`` with its interval, of the columns ``<value>_low`` and
    ``<value>_high`` or ``low`` and ``high``. Rows and columns stay in the order they come in.
    ``percent`` as for ``readable``.
    """
    if table.empty:
        return table.set_index(rows)[[]]
    low, high = (f"{value}_{end}" if f"{value}_{end}" in table else end for end in ("low", "high"))
    cells = zip(table[value], table[low], table[high], strict=True)
    looks = {"differs": value == "difference", "percent": percent}
    texts = table.assign(text=[_interval(*cell, **looks) for cell in cells])
    return pivot(texts, rows, columns, "text").fillna(_MISSING)


def by_method(table: pd.DataFrame, column: str = "method") -> pd.DataFrame:
    """The rows in one order of methods: baselines, H+ alone, contrast, its controls, the rest.

    ``column`` is a column, or a level of the index, of keys such as ``chr+rotation@1``; rows of one
    method stay as they were.
    """
    asked = ["question", "asked_dense", "asked_bm25", "asked_rrf"]
    methods = ARMS[ARMS.index("standard") : ARMS.index("hplus")]
    saw_options = ["hyde-options", "rationale"]
    ours = ["hplus-stem", "hplus", "chr", "chr_given", "chr+rotation", "chr+stranger"]
    order = [*asked, *methods, *saw_options, *ours]
    keys = table[column] if column in table else table.index.get_level_values(column)
    families = [key.partition("@")[0] for key in keys]
    places = [order.index(name) if name in order else len(order) for name in families]
    return table.iloc[np.argsort(places, kind="stable")]


def _intervals(columns: pd.Index) -> dict[str, tuple[str, str]]:
    """Columns that have an interval, with the names of its two ends."""
    names = {name for name in columns if isinstance(name, str)}
    found = {}
    for end in names:
        stem = end.removesuffix("_low")
        owner = stem if stem in names else f"{stem}_value"
        if end != stem and owner in names:
            found[owner] = (end, f"{stem}_high")
    if {"low", "high"} <= names:
        # They stand after what they belong to.
        found[columns[list(columns).index("low") - 1]] = ("low", "high")
    return found


def _interval(
    value: float,
    low: float,
    high: float,
    digits: int = 3,
    differs: bool = False,
    percent: bool = False,
) -> str:
    if pd.isna(value):
        return _MISSING
    digits, scale = (1, 100) if percent else (digits, 1)
    value, low, high = (round(scale * one, digits) + 0.0 for one in (value, low, high))  # no -0
    unit = " %" if percent and not differs else ""
    said = f"{value:{'+' if differs else ''}.{digits}f}{unit}"
    return said if pd.isna(low) else f"{said} ({low:.{digits}f} to {high:.{digits}f})"


def _cell(value: object, column: object, digits: int, k: int, share: bool = False) -> str:
    """One value as text; that of a ``share`` as a percentage."""
    if isinstance(value, str) and value:
        return _text(value, column, k)
    if value is None or pd.isna(value) or value == "":
        return _MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if column == "lambda":
        return f"{value:g}"
    if column in ("p", "p_holm") and value < 0.001:
        return "< 0.001"
    mixed = column in _MIXED and value >= 10 and float(value).is_integer()
    if isinstance(value, int | np.integer) or mixed:
        digits = 0
    elif share:
        if column in _LEAST:
            return f"{100 * value:.1f}"
        return f"{100 * value:+.1f}" if column == "difference" else f"{100 * value:.1f} %"
    return f"{value:,.{digits}f}" if abs(value) >= 10_000 else f"{value:.{digits}f}"


def _whole(values: pd.Series, column: object) -> bool:
    """Whether a decimal column holds counts, decimal only because one of them is missing."""
    if not pd.api.types.is_float_dtype(values):
        return False
    known = values.dropna()
    whole = bool((known % 1 == 0).all())
    return whole and (column in _COUNTS or (len(known) > 0 and known.max() >= 10))


def _text(value: object, column: object, k: int) -> str:
    """A key of a column or level as words."""
    if not isinstance(value, str):
        return words(value, k)
    if column in _ARMS and label_of(value) != value:
        return label_of(value)
    if column == "who" and ": " in value:
        what, whose = value.split(": ")
        return f"{what}: {label_of(whose)}"
    return _CELLS.get((column, value)) or words(value, k)


def _index(index: pd.Index, k: int) -> pd.Index:
    """The same index in words; row numbers, which say nothing, are blank."""
    if index.names == [None] and pd.api.types.is_integer_dtype(index):
        return pd.Index([""] * len(index))
    names = [None if name is None else words(name, k) for name in index.names]
    levels = []
    for level, name in enumerate(index.names):
        levels.append([_text(value, name, k) for value in index.get_level_values(level)])
    if isinstance(index, pd.MultiIndex):
        return pd.MultiIndex.from_arrays(levels, names=names)
    return pd.Index(levels[0], name=names[0])


def _sets_in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Question sets in the paper's order: in columns, and in rows that begin with their set."""
    table = table.iloc[:, _order(table.columns)]
    if table.index.names[0] == "dataset":
        return table.iloc[_order(table.index)]
    if len(table.columns) and table.columns[0] == "dataset":
        return table.iloc[_order(pd.Index(table["dataset"]))]
    return table


def _order(index: pd.Index) -> Sequence[int]:
    """Places of an index with its question sets in order, and all else as it was."""
    if "dataset" not in index.names:
        return range(len(index))
    levels = []
    for level, name in enumerate(index.names):
        values = index.get_level_values(level)
        is_set = name == "dataset"
        levels.append([_place(value) for value in values] if is_set else pd.factorize(values)[0])
    return np.lexsort(levels[::-1])


def _place(name: str) -> int:
    known = (place for place, one in enumerate(_SETS) if one in str(name).lower())
    return next(known, len(_SETS))
