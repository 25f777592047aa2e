"""Reported beside measured: the papers' printed tables, and one verdict rule for every number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.base.paths import REPORTED
from lib.methods import METHODS

__all__ = ["PAPER_NAMES", "reported", "six_digits", "verdict"]

PAPER_NAMES: dict[str, str] = {
    name: method.paper_name for name, method in METHODS.items() if getattr(method, "paper_name", "")
}
"""Our names of the methods, and the paper's; each method brings its own."""


def verdict(
    measured: float | None, half_width: float, printed: float | None, same_setup: bool
) -> str:
    """One rule for every number, the same in both directions.

    NOT RUN without a measured value, DIFFERENT SETUP (shown, not judged) unless model, corpus and
    questions are the paper's; else MATCH when the two differ by at most the 95 % half-width, CLOSE
    by at most twice that, OFF beyond. Empty where the paper prints nothing.
    """
    if measured is None or np.isnan(measured):
        return "NOT RUN"
    if printed is None or np.isnan(printed):
        return ""
    if not same_setup:
        return "DIFFERENT SETUP"
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


def six_digits(table: pd.DataFrame, columns: Sequence[str] = ("value",)) -> pd.DataFrame:
    """A table to be stored, with these columns as text of six digits: three decimals, which other
    numbers have in a file, would make ties and move what is computed from it."""
    return table.assign(**{name: table[name].map("{:.6g}".format) for name in columns})
