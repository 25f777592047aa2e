"""Do the tests notice? Each fault of ``mutations.toml`` is made in a copy, one at a time.

    python -m tools.mutations           every fault: its line, and whether the tests caught it
    python -m tools.mutations --only contrast

Run it before and after deleting tests: the number of caught faults must not fall. Four faults take
about a minute. ``tests/test_mutations.py`` checks that the list still fits the code.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from lib.base.paths import ROOT

FAULTS = Path(__file__).with_name("mutations.toml")
LEFT_OUT = (".git", ".venv", "build", "figures", "docs", "*.sqlite", "__pycache__", ".hypothesis")


def read_faults(only: str = "") -> list[dict[str, str]]:
    """The rows of the list whose file has ``only`` in its name: file, old, new, what, tests."""
    faults = tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]
    return [fault for fault in faults if only in fault["file"]]


def mutated(source: str, fault: dict[str, str]) -> str:
    """The source with the fault in it. ValueError unless its old text is there exactly once."""
    found = source.count(fault["old"])
    if found != 1:
        raise ValueError(f"{fault['file']}: {fault['old']!r} is there {found} times, not once")
    return source.replace(fault["old"], fault["new"])


def passes(names: str, tree: Path) -> bool:
    """Whether the tests of these names, such as "index contrast", pass in ``tree``.

    RuntimeError where they could not be run.
    """
    tests = [f"tests/test_{name}.py" for name in names.split()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    ended = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return ended.returncode == 0


def is_caught(fault: dict[str, str], tree: Path) -> bool:
    """Whether the fault's tests fail on it in ``tree``, which is as it was afterwards."""
    file = tree / fault["file"]
    source = file.read_text(encoding="utf-8")
    file.write_text(mutated(source, fault), encoding="utf-8")
    try:
        return not passes(fault["tests"], tree)
    finally:
        file.write_text(source, encoding="utf-8")


def main() -> None:
    """Make every fault, and say which ones the tests let through; exit status 1 where there are."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutations")
    parser.add_argument("--only", default="", metavar="TEXT", help="of files with this in the name")
    faults = read_faults(parser.parse_args().only)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        every = " ".join(sorted({name for fault in faults for name in fault["tests"].split()}))
        if not passes(every, tree):
            sys.exit(f"without any fault these tests fail: {every}")
        for fault in faults:
            start = time.perf_counter()
            caught = is_caught(fault, tree)
            missed += not caught
            seconds = time.perf_counter() - start
            word = "caught" if caught else "MISSED"
            print(f"{word} {seconds:5.1f} s  {fault['file']}: {fault['what']}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults were caught")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
