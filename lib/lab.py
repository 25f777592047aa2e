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

__all__ = ["COMMAND", "FOLDER", "environment_of", "seed"]

FOLDER = paths.ROOT / "build" / "lab"

COMMAND = (sys.executable, "-m", "jupyter", "lab")
"""How JupyterLab is started."""

_COPIED = {
    "notebooks": "notebooks",
    "docs": "docs",
    "figures": "figures",
    "data/results": "results",
}
"""What is copied, from the project to the folder."""


def seed(folder: Path = FOLDER) -> list[Path]:
    """Copy what is new or was not touched since it was copied; returns what the reader changed.

    A file of the reader's is never overwritten. To have the committed one back, delete the copy.
    """
    record = folder / ".copied.json"
    copied = json.loads(record.read_text()) if record.exists() else {}
    changed = []
    for source in _sources():
        target = folder / _place(source)
        name = target.relative_to(folder).as_posix()
        now = sha256_file(source)
        if target.exists() and sha256_file(target) not in (copied.get(name), now):
            changed.append(target)
            continue
        if not target.exists() or copied.get(name) != now:
            atomic_write(target, source.read_bytes())
        copied[name] = now
    atomic_write(record, json.dumps(copied, indent=0, sort_keys=True))
    return changed


def _sources() -> list[Path]:
    """The committed files that are copied; hidden ones and checkpoints of editors are none."""
    found = []
    for name in _COPIED:
        for path in sorted((paths.ROOT / name).rglob("*")):
            inside = path.relative_to(paths.ROOT / name)
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
        f"committed ones stay as they are. {len(changed)} files there are yours and were kept.",
        file=sys.stderr,
    )
    command = [*COMMAND, "notebooks/00_start_here.ipynb", *sys.argv[1:]]
    try:
        return subprocess.run(command, cwd=FOLDER, env=environment_of()).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
