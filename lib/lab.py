"""``make lab``: JupyterLab on a copy, so that playing changes nothing that is committed.

Notebooks and pages are copied to ``build/lab``; results and figures are written below it too
(``CHR_OUT``), beginning with the committed ones, so that nothing that still holds is made again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lib.base import paths
from lib.base.files import atomic_write, sha256_file

FOLDER = paths.ROOT / "build" / "lab"

FIRST = "/lab/tree/notebooks/00_start_here.ipynb"
COMMAND = (sys.executable, "-m", "jupyter", "lab", f"--LabApp.default_url={FIRST}")
"""How JupyterLab is started, in the folder: all of it can be reached, and the first notebook opens.
Were the notebook named as a file, only the notebooks' own folder could be reached."""

_COPIED = {
    "notebooks": "notebooks",
    "docs": "docs",
    "figures": "figures",
    "data/results": "results",
    # What pages and notebooks link to.
    "README.md": "README.md",
    "data/adapters/README.md": "data/adapters/README.md",
    "data/ddx-mini/README.md": "data/ddx-mini/README.md",
    "data/judgments/README.md": "data/judgments/README.md",
    "data/looks.csv": "data/looks.csv",
    "data/primary_tests.toml": "data/primary_tests.toml",
}
"""What is copied, from the project to the folder."""


def seed(folder: Path = FOLDER, ours: bool = False) -> list[Path]:
    """Copy what is new or was not touched since it was copied; returns what the reader changed.

    A file of the reader's is never overwritten. To have the committed one back, delete the copy.
    With ``ours`` the folder is no reader's: every file becomes what is committed.
    """
    record = folder / ".copied.json"
    copied = _read(record)
    changed = []
    for source in _sources():
        target = folder / _place(source)
        name = target.relative_to(folder).as_posix()
        now = sha256_file(source)
        there = sha256_file(target) if target.exists() else None
        if there not in (None, copied.get(name), now) and not ours:
            changed.append(target)
            continue
        if there != now:
            atomic_write(target, source.read_bytes())
        copied[name] = now
    atomic_write(record, json.dumps(copied, indent=0, sort_keys=True))
    return changed


def _read(record: Path) -> dict[str, str]:
    """What was copied, by place: its hash. A record that is broken is none: then nothing that
    differs is overwritten."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _sources() -> list[Path]:
    """The committed files that are copied; hidden ones and checkpoints of editors are none."""
    found = []
    for name in _COPIED:
        top = paths.ROOT / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            inside = path.relative_to(top)
            if path.suffix == ".py":  # how notebooks are checked
                continue
            if path.is_file() and not any(part.startswith(".") for part in inside.parts):
                found.append(path)
    return found


def _place(source: Path) -> Path:
    """Where a file is copied to, below the folder."""
    for name, there in _COPIED.items():
        if source.is_relative_to(paths.ROOT / name):
            return Path(there) / source.relative_to(paths.ROOT / name)
    raise ValueError(f"{source} is not copied")


def environment_of(folder: Path = FOLDER) -> dict[str, str]:
    """The environment in which the copies run: they import lib/ and write below the folder."""
    return os.environ | {"PYTHONPATH": str(paths.ROOT), "CHR_OUT": str(folder)}


def main() -> int:
    """Copy, say so, and open JupyterLab until it is stopped."""
    changed = seed()
    print(
        f"Notebooks are copied to {paths.shown(FOLDER)}: whatever you change or run there, the "
        "committed ones stay as they are.",
        file=sys.stderr,
    )
    for file in changed:
        kept = f"yours, kept: {paths.shown(file)} (delete it for the committed one)"
        print(kept, file=sys.stderr)
    command = [*COMMAND, *sys.argv[1:]]
    try:
        return subprocess.run(command, cwd=FOLDER, env=environment_of()).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
