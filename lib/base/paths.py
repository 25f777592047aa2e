"""Where things are. Two environment variables move what is written, never what is read.

``CHR_CACHE`` moves downloads, vectors and passage stores; ``CHR_OUT`` moves results and figures
(used by tests and by the check that committed files are what the code makes). A third,
``CHR_MIRROR``, names a folder with the files that would be downloaded. A relative path is relative
to the project's folder, wherever a notebook or a command runs.

A notebook that no command of the project runs is played with: what it makes of a committed profile
goes to ``build/lab``, unless ``CHR_OUT`` is set (to nothing: the committed folders).
"""

from __future__ import annotations

import os
import sys
from functools import cache as once
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "data"
REGISTRY = DATA / "registry.toml"
DDX_MINI = DATA / "ddx-mini"
REPORTED = DATA / "reported"
RECORDINGS = DATA / "recordings"
JUDGMENTS = DATA / "judgments" / "real.jsonl.gz"
LAB = ROOT / "build" / "lab"
"""Where playing writes, under the names that CHR_OUT gives."""

COMMITTED = ("mini", "open")
"""The profiles whose results are committed."""


def _named(variable: str) -> Path | None:
    """The folder that an environment variable names; None where it is unset or empty."""
    value = os.environ.get(variable)
    return ROOT / Path(value).expanduser() if value else None


def mirror_folder() -> Path | None:
    """The folder that ``CHR_MIRROR`` names, read in place of downloads; None without one."""
    return _named("CHR_MIRROR")


def cache(*parts: str) -> Path:
    """A folder below the cache (``CHR_CACHE``, default ``data/cache``), made if missing."""
    return _made((_named("CHR_CACHE") or DATA / "cache").joinpath(*parts))


def _made(folder: Path) -> Path:
    """The folder, made if missing; OSError that says why it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"{error.strerror}. Mend that, or name another folder (CHR_OUT or CHR_CACHE)"
        raise OSError(error.errno, why, str(folder)) from error
    return folder


def is_played(profile: str) -> bool:
    """Whether results of this profile would be committed, and a notebook that is played with makes
    them: one that somebody opened or ran by papermill, with no word of where to write."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    in_a_notebook = kernel is not None and kernel.IPKernelApp.initialized()
    return in_a_notebook and profile in COMMITTED and "CHR_OUT" not in os.environ


def _output(kind: str, default: Path, profile: str) -> Path:
    """A profile's folder below ``default``, or below ``<CHR_OUT>/<kind>``; not made here."""
    moved = _named("CHR_OUT")
    if is_played(profile):
        moved = LAB
        say_once(
            f"results and figures go to {shown(LAB)}: the committed ones stay as they are "
            "(make figures writes those)"
        )
    return (moved / kind if moved else default) / profile


@once
def say_once(line: str) -> None:
    """Print a line to stderr, once in a process."""
    print(line, file=sys.stderr)


def outputs(profile: str) -> tuple[Path, Path]:
    """Where results and figures of a profile go, whether they are there or not."""
    to_results = _output("results", DATA / "results", profile)
    return to_results, _output("figures", ROOT / "figures", profile)


def results(profile: str) -> Path:
    """Folder of a profile's result files, ``data/results/<profile>`` unless ``CHR_OUT`` is set;
    made if missing."""
    return _made(outputs(profile)[0])


def figures(profile: str) -> Path:
    """Folder of a profile's figures, ``figures/<profile>`` unless ``CHR_OUT`` is set; made if
    missing."""
    return _made(outputs(profile)[1])


def committed(profile: str) -> Path:
    """Folder of the results that are committed for a profile; never moved by ``CHR_OUT``."""
    return DATA / "results" / profile


OWN = "own"
"""The source of every passage of your own."""


def is_own(entry: str) -> bool:
    """Whether an entry of a profile is the path of a file or folder of your own, and no name: it
    has a slash or a suffix."""
    return "/" in entry or "." in entry


def shown(path: Path) -> str:
    """A path as a reader should see it: relative to the project when inside it, else its name."""
    path = Path(path)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def existing(path: str | Path) -> Path:
    """A file or folder, seen from here or from the project's root; ``~`` is read. ValueError where
    there is none."""
    from_here = Path(path).expanduser()
    found = [place for place in (from_here, ROOT / from_here) if place.exists()]
    if not found:
        raise ValueError(
            f"there is no {path}, seen from {Path.cwd()} and from {ROOT}. Next: give its whole path"
        )
    return found[0]
