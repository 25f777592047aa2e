"""Sentences made from tables, so that they hold: templates with a way to look values up.

A student who changes lambda, k or the profile gets another sentence, never a false one. The
captions of figures are the macros of captions.j2; pages have templates of their own
(``lib.pages.render``) in the same language.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lib.plots.labels import label_of
from lib.report import pivot, pooled


class Lookup:
    """A table as templates read it; a value that was not measured is NaN."""

    def __init__(self, table: pd.DataFrame):
        self.table = table

    def where(self, **wanted) -> Lookup:
        """The rows whose columns have these values (``lam`` is the column ``lambda``)."""
        rows = self.table
        if "lam" in wanted:
            rows = rows[np.isclose(rows["lambda"], wanted.pop("lam"))]
        for column, value in wanted.items():
            rows = rows[rows[column] == value]
        return Lookup(rows)

    def query(self, condition: str) -> pd.DataFrame:
        """The rows for which a condition in pandas' words holds."""
        return self.table.query(condition, engine="python")

    def get(self, column: str = "value", **wanted):
        """The first value of a column among such rows."""
        rows = self.where(**wanted).table
        return rows[column].iloc[0] if len(rows) else np.nan

    def row(self, **wanted) -> pd.Series:
        """The one such row; LookupError where there are none or several."""
        rows = self.where(**wanted).table
        if len(rows) != 1:
            raise LookupError(f"{len(rows)} rows of {wanted}")
        return rows.iloc[0]

    def rows(self, condition: str = "") -> list:
        """The rows, or those for which a condition holds, as named tuples."""
        return list((self.query(condition) if condition else self.table).itertuples())

    def series(self) -> list[pd.Series]:
        """The rows by the names of their columns."""
        return [row for _, row in self.table.iterrows()]

    def nearest(self, column: str, wanted: float) -> float:
        """The value of a column that is nearest to one."""
        return min(self.table[column], key=lambda value: abs(value - wanted))

    def first_by(self, column: str) -> pd.Series:
        """The row with the highest value of a column, of equal ones the first."""
        return self.table.loc[self.table[column].idxmax()]

    def best(self, key: str, column: str = "value") -> Hashable:
        """The key of the row with the highest value."""
        return self.table.loc[self.table[column].idxmax(), key]

    def names(self, key: str) -> list:
        """The values of a column once each, as they come."""
        return list(dict.fromkeys(self.table[key]))

    def groups(self, key: str) -> list[tuple]:
        """Each value of a column with its rows, as they come."""
        return [(name, Lookup(rows)) for name, rows in self.table.groupby(key, sort=False)]


def moved(before: float, after: float, percent: bool = False) -> str:
    """From one value to another: "falls from 0.31 to 0.16", "stays at 31.0 %"."""
    first, last = (f"{100 * x:.1f} %" if percent else f"{x:.2f}" for x in (before, after))
    if first == last:
        return f"stays at {first}"
    return f"{'rises' if after > before else 'falls'} from {first} to {last}"


def nearest(curves: pd.DataFrame, lam: float) -> float:
    """The lambda above 0 nearest to ``lam`` at which the controls were measured too."""
    measured = curves.loc[(curves["family"] == "chr+rotation") & (curves["lambda"] > 0), "lambda"]
    return min(measured, key=lambda at: abs(at - lam))


def listed(words) -> str:
    """Words as a list: "a, b and c"."""
    *most, last = map(str, words)
    return f"{', '.join(most)} and {last}" if most else last


def template_environment(folder: Path) -> Environment:
    """How all sentences are made: plain text, and an error for a name that is not there."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value, form=".2f": format(value, form)
    environment.filters["percent"] = lambda share, places=0: f"{100 * share:.{places}f} %"
    helpers = (Lookup, moved, nearest, listed, label_of, pivot, pooled)
    environment.globals |= {helper.__name__: helper for helper in helpers}
    environment.globals |= {"known": pd.notna, "zip": zip, "max": max, "int": int}
    return environment


@cache
def _captions():
    folder = Path(__file__).parent
    return template_environment(folder).get_template("captions.j2").module


def caption(name: str, table: pd.DataFrame, **values) -> str:
    """The title of a figure by its name in captions.j2, made from the table that is drawn.

    AttributeError for a name that is not there.
    """
    words = " ".join(getattr(_captions(), name)(Lookup(table), **values).split())
    words = re.sub(r"(?<=\d) %", "\u00a0%", words)  # a line does not break there
    return re.sub(r"(?<![\w.)])-(?=\d)", "−", words)
