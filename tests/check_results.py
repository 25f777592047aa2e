"""Are the committed results what the code makes? What ``make check`` runs after ``make figures``.

The mini results, and the numbers its figures are drawn from, are compared with a fresh run, to one
unit in the third decimal; the results of other profiles, which take hours to make, by the hashes of
the code and data behind them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pandas as pd

from lib import paths
from lib.files import read_manifest
from lib.provenance import code_hash, data_hash

__all__ = ["check"]

_CSV = "[!.]*.csv"  # a name that starts with a dot is what a killed write left behind


def _differences(old: pd.DataFrame, new: pd.DataFrame) -> list[str]:
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


def _compared(old: Path, new: Path, name: str) -> list[str]:
    """Every table of one folder against that of the same name in the other."""
    problems = []
    for path in sorted(old.glob(_CSV)):
        if not (new / path.name).exists():
            problems.append(f"{name}/{path.name}: committed but no longer made")
            continue
        found = _differences(pd.read_csv(path), pd.read_csv(new / path.name))
        problems += [f"{name}/{path.name}: {d}" for d in found]
    return problems + [
        f"{name}/{path.name}: made but not committed"
        for path in sorted(new.glob(_CSV)) if not (old / path.name).exists()
    ]  # fmt: skip


def check(made: Path) -> list[str]:
    """What is wrong with what is committed: mini's results against those in ``made``, its figures'
    tables against those in the folder beside, other results by their hashes."""
    drawn = made.parent / "figures" / "mini"
    problems = _compared(paths.committed("mini"), made / "mini", "mini")
    problems += _compared(paths.ROOT / "figures" / "mini", drawn, "figures/mini")
    stored = paths.DATA / "results"
    # The audit belongs to no profile.
    for path in sorted([*stored.glob("audit.csv"), *stored.glob(f"*/{_CSV}")]):
        manifest = read_manifest(path)
        name = path.relative_to(stored).as_posix()
        if manifest is None:
            problems.append(f"{name}: does not match its manifest")
        elif path.parent.name != "mini":
            problems += [f"{name}: {why}" for why in _stale(manifest["settings"])]
    return problems


def _stale(settings: dict) -> list[str]:
    again = f"changed; run: make figures PROFILE={settings['profile'] or 'mini'}"
    found = []
    if code_hash(settings["code_roots"]) != settings["code"]:
        found.append(f"its code has {again}")
    if data_hash(settings["data_files"]) != settings["data"]:
        found.append(f"its data have {again}")
    return found


if __name__ == "__main__":
    wrong = check(Path(os.environ.get("CHR_OUT") or paths.ROOT / "build" / "check") / "results")
    print("\n".join(wrong) if wrong else "The committed results are what the code makes.")
    sys.exit(bool(wrong))
