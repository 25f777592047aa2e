"""Do two tables of results say the same? What ``make check`` and the log of reproductions ask."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

__all__ = ["SECONDS", "differences", "tables"]

SECONDS = "_seconds"
"""Tables whose name ends so hold a machine's times, which are no two times the same."""


def tables(folder: Path) -> list[Path]:
    """The result files of a folder that can be compared, sorted.

    Left out are times, and names that start with a dot: what a killed write left behind.
    """
    found = [*folder.glob("[!.]*.csv"), *folder.glob("[!.]*.csv.gz")]
    return sorted(path for path in found if not path.name.split(".")[0].endswith(SECONDS))


def differences(old: pd.DataFrame, new: pd.DataFrame) -> list[str]:
    """Where they differ: shape, texts, or numbers by more than one unit in the third decimal."""
    if list(old.columns) != list(new.columns) or len(old) != len(new):
        return [f"shape or columns differ: {old.shape} committed, {new.shape} made"]
    found, t = [], pd.api.types
    for column in old:
        a, b = old[column], new[column]
        if all(t.is_numeric_dtype(x) and not t.is_bool_dtype(x) for x in (a, b)):
            # One unit in the third decimal: a value on a rounding edge may fall either way.
            same = ((a - b).abs() < 0.00101) | (a.isna() & b.isna())
        else:
            same = (a == b) | (a.isna() & b.isna())
        found += [f"{column}, row {i}: {a[i]} committed, {b[i]} made" for i in same[~same].index]
    return found
