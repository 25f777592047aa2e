"""The table of faults: what was done to the project, how often, and what came of it.

A test that tries a fault is marked, and counts what came of every try:

    @pytest.mark.fault("numbers", "A bit of a stored vector is flipped")
    def test_...(fault, capsys):
        for seed in fault.tries(20):
            ...
            fault.came(wrong=got != right, said=capsys.readouterr().err)

The test fails where anything was lost or wrong, and where its counts are not those of the result
``faults``. ``make faults`` tries them all and writes it anew. What is said is not compared: it may
hold the words of a library or of the system.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write, sha256_bytes
from lib.base.provenance import write_result

__all__ = ["COLUMNS", "GROUPS", "TABLE", "Fault", "committed"]

TABLE = paths.DATA / "results" / "faults.csv"
COLUMNS = ("group", "fault", "tries", "lost", "wrong", "said")
GROUPS = ("numbers", "secrets", "waiting", "supply")
_LONGEST = 240


class Fault:
    """One row of the table, filled by the test that tries it."""

    def __init__(self, group: str, name: str, folder: Path):
        if group not in GROUPS:
            raise ValueError(f"no group of faults {group!r}; there are: {', '.join(GROUPS)}")
        self.group, self.name, self._folder = group, name, folder
        self.count = self.lost = self.wrong = 0
        self.said = ""

    def tries(self, n: int) -> Iterator[int]:
        """The seeds 0 to n - 1; each must be followed by ``came``."""
        for seed in range(n):
            yield seed
            assert self.count == seed + 1, f"{self.name}: try {seed} was not counted"

    def came(self, *, lost: int = 0, wrong: int = 0, said: object = "", tries: int = 1) -> None:
        """Count one try, or as many as a program made that counts by itself.

        ``lost``: pieces of finished work that are gone. ``wrong``: values that are not the right
        ones, or right ones that were refused without a word. The first thing said is kept.
        """
        self.count += tries
        self.lost += int(lost)
        self.wrong += int(wrong)
        self.said = self.said or self._plain(str(said))

    def row(self) -> dict[str, str]:
        """The row as it stands in the file."""
        values = (self.group, self.name, self.count, self.lost, self.wrong, self.said)
        return dict(zip(COLUMNS, map(str, values), strict=True))

    def _plain(self, said: str) -> str:
        """One line, not too long, without this machine's folders, ports and seconds."""
        for folder in (self._folder, paths.ROOT):
            said = said.replace(f"{folder}/", "")
        said = re.sub(r"([0-9a-f]{8})[0-9a-f]{8,}", r"\1…", said)
        said = re.sub(r"after \d+\.\d s", "after … s", said)
        said = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:port", " ".join(said.split()))
        return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"

    def end(self) -> None:
        """Nothing lost, nothing wrong, and the row that is committed; or written down for it."""
        row = self.row()
        assert self.count, f"{self.name}: nothing was tried"
        assert (self.lost, self.wrong) == (0, 0), row
        if folder := os.environ.get("CHR_FAULTS"):
            file = Path(folder) / f"{sha256_bytes(self.name.encode())[:16]}.json"
            atomic_write(file, json.dumps(row))
            return
        there = committed().get(self.name, {})
        same = all(there.get(column) == row[column] for column in COLUMNS if column != "said")
        assert same, f"{paths.shown(TABLE)} has {there}, found {row}; run: make faults"


def committed() -> dict[str, dict[str, str]]:
    """The rows of the committed table by the fault's name."""
    with TABLE.open(encoding="utf-8", newline="") as stream:
        return {row["fault"]: row for row in csv.DictReader(stream)}


def _write(folder: Path) -> None:
    """The rows that tests have left in ``folder`` become the committed table."""
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")]
    rows.sort(key=lambda row: (GROUPS.index(row["group"]), row["fault"]))
    write_result(pd.DataFrame(rows, columns=COLUMNS), "faults", "", code=[], data=[])
    print(f"{paths.shown(TABLE)}: {len(rows)} faults")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
