"""``make lab``: JupyterLab on a copy, so that playing changes nothing that is committed.

Notebooks and pages are copied to ``build/lab``; results and figures are written below it too
(``CHR_OUT``), beginning with the committed ones, so that nothing that still holds is made again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lib.base import paths
from lib.base.files import atomic_write, sha256_file

FOLDER = paths.LAB

FIRST = "/lab/tree/notebooks/00_start_here.ipynb"
_SETTINGS = ".jupyterlab"
COMMAND = (
    *(sys.executable, "-m", "jupyter", "lab"),
    f"--LabApp.default_url={FIRST}",
    f"--LabApp.app_settings_dir={_SETTINGS}",
)
"""How JupyterLab is started, in the folder: all of it can be reached, and the first notebook opens.
Were the notebook named as a file, only the notebooks' own folder could be reached."""

_OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"codeCellConfig": {"lineWrap": True}},
}
"""JupyterLab asks for no news, and a long text that is typed into a cell is seen whole. What a
reader has set goes before it."""

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
    "tests/rocchio.py": "tests/rocchio.py",
    "data/primary_tests.toml": "data/primary_tests.toml",
}
"""What is copied, from the project to the folder."""


def seed(folder: Path = FOLDER, ours: bool = False) -> list[Path]:
    """Copy what is new or was not touched since it was copied; returns what the reader changed.

    A file of the reader's is never overwritten. To have the committed one back, delete the copy.
    With ``ours`` no reader uses the folder: every file is overwritten by the committed one.
    """
    record = folder / ".copied.json"
    copied: dict[str, str] = {}  # place in the folder -> the hash of what was copied there
    if record.exists():
        copied = json.loads(record.read_text(encoding="utf-8"))
    changed = []
    for source, target in _files(folder):
        name = target.relative_to(folder).as_posix()
        now = sha256_file(source)
        there = sha256_file(target) if target.exists() else None
        if there not in (None, copied.get(name), now) and not ours:
            changed.append(target)
            continue
        if there != now:
            atomic_write(target, source.read_bytes())
        copied[name] = now
    atomic_write(folder / _SETTINGS / "overrides.json", json.dumps(_OVERRIDES))
    atomic_write(record, json.dumps(copied, indent=0, sort_keys=True))
    return changed


def _files(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The committed files that are copied, and where to; no hidden ones, no checkpoints."""
    for name, place in _COPIED.items():
        top = paths.ROOT / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            inside = path.relative_to(top)
            hidden = any(part.startswith(".") for part in inside.parts)
            if path.is_file() and not hidden and path.name != "conftest.py":
                yield path, folder / place / inside


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
