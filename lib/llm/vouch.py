"""Vouch for recordings whose lines carry no digest: ``python -m lib.llm.vouch FILE ...``.

Writes the manifest beside each file, as its replies are now. Texts that came in sheets, and
recordings of an older version, need it; what ``Recorder`` writes does not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib.base.files import read_jsonl, write_manifest

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lib.llm.vouch")
    parser.add_argument("files", nargs="+", type=Path)
    for file in parser.parse_args().files:
        write_manifest(file, rows=sum(1 for _ in read_jsonl(file)), settings={})
        print(f"{file}: its replies are vouched for as they are now")
