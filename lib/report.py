"""Reported beside measured: printed tables, one verdict rule, and how tables are reshaped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.base.paths import REPORTED


def verdict(
    measured: float | None, half_width: float, printed: float | None, same_setup: bool
) -> str:
    """One rule for every number, the same in both directions.

    NOT RUN without a measured value, DIFFERENT SETUP (shown, not judged) unless model, corpus and
    questions are the paper's; else MATCH when the two differ by at most the 95 % half-width, CLOSE
    by at most twice that, OFF beyond. Empty where the paper prints nothing, and where nothing says
    how sure the measured value is (``half_width`` is NaN).
    """
    if measured is None or np.isnan(measured):
        return "NOT RUN"
    if printed is None or np.isnan(printed):
        return ""
    if not same_setup:
        return "DIFFERENT SETUP"
    if np.isnan(half_width):
        return ""
    difference = abs(measured - printed)
    if difference <= half_width:
        return "MATCH"
    if difference <= 2 * half_width:
        return "CLOSE"
    return "OFF"


def reported(table: str) -> pd.DataFrame:
    """One of the paper's tables, such as "table1_accuracy", with its values as numbers."""
    rows = pd.read_csv(REPORTED / f"chr_{table}.csv")
    return rows.assign(value=pd.to_numeric(rows["value"], errors="coerce"))


def pivot(
    table: pd.DataFrame,
    index: str | list[str],
    columns: str | list[str],
    values: str | list[str] = "value",
) -> pd.DataFrame:
    """A long table as a wide one: a cell is one row's value; rows and columns keep their order.

    Raises ValueError where several rows would share a cell: no mean, no first of several is taken.
    The message names one such cell and the columns in which its rows differ.
    """
    keys = [
        key for given in (index, columns) for key in ([given] if isinstance(given, str) else given)
    ]
    twice = table[table.duplicated(keys, keep=False)]
    if len(twice):
        first = twice[keys].iloc[0]
        cell = twice[(twice[keys] == first).all(axis=1)]
        differ = [name for name in table if name not in keys and cell[name].nunique() > 1]
        where = ", ".join(f"{key} = {value}" for key, value in first.items())
        raise ValueError(
            f"{len(cell)} rows share the cell {where}; they differ in "
            f"{', '.join(differ) or 'nothing'}: choose among them, or pivot by that column too"
        )
    return table.pivot_table(
        index=index, columns=columns, values=values, aggfunc="first", sort=False
    )


def pooled(table: pd.DataFrame, columns: Sequence[str], by: str = "method") -> pd.DataFrame:
    """Means over the questions of several sets: of each set's mean, weighted by its ``n``.

    A row for each value of ``by``, in the order they come in; ``n`` is the sum. A column without a
    value in some set is over the other sets' questions.
    """
    sums = {}
    for name in columns:
        n = table["n"].where(table[name].notna())
        sums[name] = (table[name] * n).groupby(table[by], sort=False).sum(min_count=1)
        sums[name] /= n.groupby(table[by], sort=False).sum()
    return pd.DataFrame(sums).assign(n=table.groupby(by, sort=False)["n"].sum())


def nine_digits(table: pd.DataFrame, columns: Sequence[str] = ("value",)) -> pd.DataFrame:
    """A table to be stored, with these columns as text of nine digits, empty where missing.

    Three decimals, which other numbers have in a file, would make ties and move what is computed
    from it; so would six digits among probabilities near 0 and 1.
    """
    text = {name: table[name].map("{:.9g}".format, na_action="ignore") for name in columns}
    return table.assign(**text)
