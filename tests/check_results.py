"""Are the committed results what the code makes? What ``make check`` runs after ``make figures``.

The mini results, and the numbers its figures are drawn from, are compared with a fresh run, to one
unit in the third decimal; the results of other profiles, which take hours to make, and the rows of
the explorer by the hash of the data behind them. Where their code is another by now, that is said,
and no fault: whether the numbers still come out is what ``make verify`` finds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pandas as pd

from lib.base import paths
from lib.base.command import set_up
from lib.base.files import read_manifest
from lib.base.provenance import code_hash, data_hash, differences, tables


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
    committed = [*stored.glob("audit.csv")]
    for folder in sorted(stored.iterdir()):
        committed += tables(folder) if folder.is_dir() else []
    shown = {path: path.relative_to(stored).as_posix() for path in committed}
    for file in sorted((paths.DATA / "explorer").glob("*.manifest.json")):
        path = file.with_name(file.name.removesuffix(".manifest.json"))
        shown[path] = f"explorer/{path.name}"
    for path, name in shown.items():
        manifest = read_manifest(path)
        if manifest is None:
            problems.append(f"{name}: does not match its manifest")
        elif path.parent.name != "mini":
            problems += _stale(name, manifest["settings"])
    return problems


def _stale(name: str, settings: dict) -> list[str]:
    if data_hash(settings["data_files"]) == settings["data"]:
        return []
    command = f"make figures PROFILE={settings['profile'] or 'mini'}"
    if name.startswith("explorer/"):
        command = "make explorer"
    return [f"{name}: its data have changed; run: {command}"]


def to_verify() -> list[str]:
    """The committed results of other profiles than mini that today's code has not been seen to
    make: since they were made or stamped, their code has changed."""
    found = []
    for path in sorted((paths.DATA / "results").glob("*/*.manifest.json")):
        result = path.with_name(path.name.removesuffix(".manifest.json"))
        manifest = read_manifest(result)
        if result.parent.name == "mini" or manifest is None:
            continue
        settings = manifest["settings"]
        if code_hash(settings["code_roots"]) != settings["code"]:
            found.append(f"{result.parent.name}/{result.name.split('.')[0]}")
    return found


if __name__ == "__main__":
    set_up()
    if others := to_verify():
        print(
            f"{len(others)} results of other profiles have other code than they were made by; "
            f"make verify PROFILE=open compares them, make stamp says so: {', '.join(others)}"
        )
    wrong = check(Path(os.environ.get("CHR_OUT") or paths.ROOT / "build" / "check") / "results")
    print("\n".join(wrong) if wrong else "The committed results are what the code makes.")
    sys.exit(bool(wrong))
