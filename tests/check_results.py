"""Are the committed results what the code makes? What ``make check`` runs after ``make figures``.

The mini results, and the numbers its figures are drawn from, are compared with a fresh run, to one
unit in the third decimal; the results of other profiles, which take hours to make, and the rows of
the explorer by the hashes of the code and data behind them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lib.base import paths
from lib.base.command import set_up
from lib.base.compare import differences, tables
from lib.base.files import read_manifest
from lib.base.provenance import CORE, code_hash, data_hash

__all__ = ["check"]


def _compared(old: Path, new: Path, name: str) -> list[str]:
    """Every table of one folder against that of the same name in the other."""
    problems = []
    for path in tables(old):
        if not (new / path.name).exists():
            problems.append(f"{name}/{path.name}: committed but no longer made")
            continue
        found = differences(pd.read_csv(path), pd.read_csv(new / path.name))
        problems += [f"{name}/{path.name}: {d}" for d in found]
    return problems + [
        f"{name}/{path.name}: made but not committed"
        for path in tables(new)
        if not (old / path.name).exists()
    ]


def check(made: Path) -> list[str]:
    """What is wrong with what is committed: mini's results against those in ``made``, its figures'
    tables against those in the folder beside, other results by their hashes."""
    drawn = made.parent / "figures" / "mini"
    problems = _compared(paths.committed("mini"), made / "mini", "mini")
    problems += _compared(paths.ROOT / "figures" / "mini", drawn, "figures/mini")
    stored = paths.DATA / "results"
    # The audit belongs to no profile.
    folders = [folder for folder in sorted(stored.iterdir()) if folder.is_dir()]
    audit = stored.glob("audit.csv")
    for path in [*audit, *(path for folder in folders for path in tables(folder))]:
        manifest = read_manifest(path)
        name = path.relative_to(stored).as_posix()
        if manifest is None:
            problems.append(f"{name}: does not match its manifest")
        elif path.parent.name != "mini":
            again = f"PROFILE={manifest['settings']['profile'] or 'mini'}"
            remade = f"make verify {again} && make stamp {again}"
            problems += [f"{name}: {why}" for why in _stale(manifest["settings"], remade)]
    for file in sorted((paths.DATA / "explorer").glob("*.manifest.json")):
        path = file.with_name(file.name.removesuffix(".manifest.json"))
        manifest = read_manifest(path)
        name = f"explorer/{path.name}"
        if manifest is None:
            problems.append(f"{name}: does not match its manifest")
        else:
            wrong = _stale(manifest["settings"], "make explorer", core=())
            problems += [f"{name}: {why}" for why in wrong]
    return problems


def _stale(settings: dict, remade: str, core: Sequence[str] = CORE) -> list[str]:
    again = f"changed; run: {remade}"
    found = []
    if code_hash(settings["code_roots"], core) != settings["code"]:
        found.append(f"its code has {again}")
    if data_hash(settings["data_files"]) != settings["data"]:
        found.append(f"its data have {again}")
    return found


if __name__ == "__main__":
    set_up()
    wrong = check(Path(os.environ.get("CHR_OUT") or paths.ROOT / "build" / "check") / "results")
    print("\n".join(wrong) if wrong else "The committed results are what the code makes.")
    sys.exit(bool(wrong))
