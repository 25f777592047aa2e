"""python -m lib.pages: write README.md, docs/ and data/results/README.md; --check; log."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from lib.base import paths
from lib.pages.weave import add_row, stale, write


def main() -> int:
    """Command line: [write | log] [--check]."""
    parser = argparse.ArgumentParser(prog="python -m lib.pages", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["write", "log"], default="write")
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    parser.add_argument("--profile", default=os.environ.get("CHR_PROFILE") or "mini")
    parser.add_argument("--note", default="", help="a few words for the log")
    given = parser.parse_args()
    out = Path(os.environ.get("CHR_OUT") or paths.ROOT / "build" / "check")
    try:
        if given.check:
            found = stale()
            print(*found or ["The generated pages are what the result files say."], sep="\n")
            return bool(found)
        if given.what == "log":
            row = add_row(given.profile, out / "results" / given.profile, given.note)
            print(f"{row['equal']} of {row['compared']} files equal. {row['note']}")
        print(*(f"wrote {paths.shown(path)}" for path in write()), sep="\n")
    except (FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
