"""The table of faults: what was done to the project, how often, and what came of it.

A test that tries a fault is marked, and counts what came of every try:

    @pytest.mark.fault("numbers", "A bit of a stored vector is flipped")
    def test_...(fault, capsys):
        for seed in fault.tries(20):
            ...
            fault.came(wrong=got != right, said=capsys.readouterr().err)

The test fails where anything was lost or wrong, and where its counts are not those of the result
``faults``. A marked test that does not ask for ``fault`` says with its assertions that nothing is
lost or wrong: each of its cases that passes is a try. A third word of the mark is what is said.

``make faults`` tries all and writes the result anew. What is said is not compared: it may hold the
words of a library or of the system.
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

    def note(self, case: str = "") -> bool:
        """Write the row down for the table, where that is asked for; False where it is not."""
        folder = os.environ.get("FAULTS_FOLDER")
        if folder:
            file = Path(folder) / f"{sha256_bytes((case or self.name).encode())[:16]}.json"
            atomic_write(file, json.dumps(self.row()))
        return bool(folder)

    def end(self) -> None:
        """Nothing lost, nothing wrong, and the row that is committed; or written down for it."""
        row = self.row()
        assert self.count, f"{self.name}: nothing was tried"
        assert (self.lost, self.wrong) == (0, 0), row
        if self.note():
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
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    table = pd.DataFrame(rows, columns=COLUMNS)
    counts = ["tries", "lost", "wrong"]
    table[counts] = table[counts].astype(int)
    kinds = table.groupby(["group", "fault"], as_index=False)
    table = kinds.agg(dict.fromkeys(counts, "sum") | {"said": "first"})
    table = table.sort_values("group", key=lambda it: it.map(GROUPS.index), kind="stable")
    write_result(table, "faults", "", code=[], data=[])
    print(f"{paths.shown(TABLE)}: {len(table)} faults")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
