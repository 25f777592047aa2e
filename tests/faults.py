"""The table of faults: what was done to the project, how often, and what came of it.

A test that tries a fault is marked with a group and the fault, and counts what came of every try:

    @pytest.mark.fault("numbers", "A passage store is cut short")
    def test_...(fault, capsys):
        for seed in fault.tries(10):
            ...
            fault.came(wrong=got != right, said=capsys.readouterr().err)

The test fails where anything was lost or wrong. A marked test that does not ask for ``fault`` says
with its assertions that nothing is lost or wrong: each of its cases that passes is a try, and a
third word of the mark is what is said. Several tests may try one fault.

``make faults`` tries all and writes the result ``faults`` anew.
"""

from __future__ import annotations

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

COLUMNS = ("group", "fault", "tries", "lost", "wrong", "said")
GROUPS = ("numbers", "secrets", "waiting", "supply")
_LONGEST = 240


class Fault:
    """What one test adds to the row of a fault; ``case`` is the test's own name."""

    def __init__(self, group: str, name: str, folder: Path, case: str = ""):
        if group not in GROUPS:
            raise ValueError(f"no group of faults {group!r}; there are: {', '.join(GROUPS)}")
        self.group, self.name, self._folder, self._case = group, name, folder, case
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

    def row(self) -> dict[str, str | int]:
        """What stands in the table."""
        values = (self.group, self.name, self.count, self.lost, self.wrong, self.said)
        return dict(zip(COLUMNS, values, strict=True))

    def _plain(self, said: str) -> str:
        """One line, not too long, without this machine's folders, ports and seconds."""
        for folder in (self._folder, paths.ROOT):
            said = said.replace(f"{folder}/", "")
        said = re.sub(r"([0-9a-f]{8})[0-9a-f]{8,}", r"\1…", said)
        said = re.sub(r"after \d+\.\d s", "after … s", said)
        said = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:port", " ".join(said.split()))
        return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"

    def end(self) -> None:
        """Nothing lost, nothing wrong; written down for the table, where that is asked for."""
        assert self.count, f"{self.name}: nothing was tried"
        assert (self.lost, self.wrong) == (0, 0), self.row()
        if folder := os.environ.get("FAULTS_FOLDER"):
            name = sha256_bytes(f"{self.name} {self._case}".encode())[:16]
            atomic_write(Path(folder) / f"{name}.json", json.dumps(self.row()))


def table_of(folder: Path) -> pd.DataFrame:
    """The rows that tests have left in ``folder``, one a fault."""
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    kinds = pd.DataFrame(rows, columns=COLUMNS).groupby(["group", "fault"], as_index=False)
    sums = dict.fromkeys(("tries", "lost", "wrong"), "sum")
    table = kinds.agg(sums | {"said": "first"})
    return table.sort_values("group", key=lambda it: it.map(GROUPS.index), kind="stable")


if __name__ == "__main__":
    table = table_of(Path(sys.argv[1]))
    write_result(table, "faults", "", code=[], data=[])
    print(f"data/results/faults.csv: {len(table)} faults")
