"""Do two tables of results say the same? What ``make check`` and the log of reproductions ask."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

SECONDS = "_seconds"
"""Tables whose name ends so hold a machine's times, which are no two times the same."""


def tables(folder: Path) -> list[Path]:
    """The result files of a folder that can be compared, sorted.

    Left out are times, and names that start with a dot: what a killed write left behind.
    """
    found = [*folder.glob("[!.]*.csv"), *folder.glob("[!.]*.csv.xz")]
    return sorted(path for path in found if not path.name.split(".")[0].endswith(SECONDS))


def differences(old: pd.DataFrame, new: pd.DataFrame) -> list[str]:
    """Where they differ: shape, texts, or numbers by more than one unit in the third decimal."""
    if list(old.columns) != list(new.columns) or len(old) != len(new):
        return [f"shape or columns differ: {old.shape} committed, {new.shape} made"]
    found = []
    for column in old:
        before = old[column]
        after = new[column]
        if _is_number(before) and _is_number(after):
            # One unit in the third decimal: a value on a rounding edge may fall either way.
            same = (before - after).abs() < 0.00101
        else:
            same = before == after
        same |= before.isna() & after.isna()
        for row in same[~same].index:
            found.append(f"{column}, row {row}: {before[row]} committed, {after[row]} made")
    return found


def _is_number(column: pd.Series) -> bool:
    """Whether a column holds numbers; to pandas, True and False are numbers too."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
