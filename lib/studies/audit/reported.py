"""The papers' printed numbers (``data/reported``), and the rows of the audit made from them.

The words of a row (where, claim, assumption) stand in ``audit_texts.csv``. Numbers that a paper
prints in its text, and in no table, stand in ``claims.csv``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.base.paths import REPORTED
from lib.studies.audit.arithmetic import Range, printed_range

COLUMNS = (
    "id",
    "paper",
    "where",
    "claim",
    "printed",
    "recomputed",
    "assumption",
    "verdict",
    "working",
)
IMPOSSIBLE = "IMPOSSIBLE"
MISPRINT = "MISPRINT"
IN_TENSION = "IN TENSION"
CONSISTENT = "CONSISTENT"
VERDICTS = (IMPOSSIBLE, MISPRINT, IN_TENSION, CONSISTENT)
"""In the order in which they are read."""
_PAPERS = {"chr": "CHR", "rag2": "RAG²", "slhyde": "SL-HyDE", "contra": "Contradiction study"}
"""The first part of a row's id, and the paper it names."""


@dataclass(frozen=True)
class Tables:
    """Every reported table by file name: its rows, all values as text."""

    files: Mapping[str, Sequence[dict[str, str]]]

    def rows(self, name: str, **keys: str) -> list[dict[str, str]]:
        """The rows of a table whose columns have these values; KeyError if there are none."""
        found = [row for row in self.files[name] if _matches(row, keys)]
        if not found:
            raise KeyError(f"no row of {name}.csv has {keys}; look into data/reported")
        return found

    def values(self, name: str, column: str, **keys: str) -> list[str]:
        """What stands in a column, each value once, in order."""
        return list(dict.fromkeys(row[column] for row in self.rows(name, **keys)))

    def numbers(self, name: str, by: str, **keys: str) -> dict[str, Range]:
        """The numbers of the rows that have ``keys``, by the value of column ``by``."""
        return {
            row[by]: printed_range(row["value"], row["unit"], row.get("kind", "exact"))
            for row in self.rows(name, **keys)
        }

    def number(self, name: str, **keys: str) -> Range:
        """The number of the only row that has ``keys``."""
        if len(self.rows(name, **keys)) > 1:
            raise KeyError(f"more than one row of {name}.csv has {keys}; look into data/reported")
        (number,) = self.numbers(name, "value", **keys).values()
        return number

    def text_number(self, id: str) -> Range:
        """A number of the papers' texts, by its id in ``claims.csv``."""
        return self.number("claims", id=id)

    def changed(self, name: str, value: str, **keys: str) -> Tables:
        """The same tables but for one number: what would the audit say?"""
        self.number(name, **keys)  # refuses keys that fit no row, or several
        rows = [{**row, "value": value} if _matches(row, keys) else row for row in self.files[name]]
        return Tables({**self.files, name: rows})


def _matches(row: Mapping[str, str], keys: Mapping[str, str]) -> bool:
    return all(row[column] == value for column, value in keys.items())


def read_tables(folder: Path = REPORTED) -> Tables:
    """All tables of a folder."""
    tables = {}
    for path in sorted(Path(folder).glob("*.csv")):
        with open(path, encoding="utf-8", newline="") as stream:
            tables[path.stem] = list(csv.DictReader(stream))
    return Tables(tables)


def judge(possible: bool, strained: bool = False) -> str:
    """The verdict: IMPOSSIBLE if no values within the rounding fit; IN TENSION if some fit, but
    only with something that the paper does not say, or says otherwise; else CONSISTENT."""
    if not possible:
        return IMPOSSIBLE
    if strained:
        return IN_TENSION
    return CONSISTENT


def finding(
    tables: Tables,
    id: str,
    printed: object,
    recomputed: object,
    verdict: str,
    working: str,
    name: str = "",
    **words: str,
) -> dict[str, str]:
    """One row of the audit: what is printed, what comes out, the verdict, the arithmetic.

    ``id`` finds the claim's text in ``audit_texts.csv``. ``name`` tells rows of one text apart.
    ``words`` are put into the text where it has braces; without any, ``name`` is added to it.
    """
    text = tables.rows("audit_texts", id=id)[0]
    claim = text["claim"].format(**words)
    row_id = id
    if name:
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        row_id = f"{id}.{slug}"
        if not words:
            claim = f"{claim}: {name}"
    paper = id.split(".")[0]
    return {
        "id": row_id,
        "paper": _PAPERS[paper],
        "where": text["where"],
        "claim": claim,
        "printed": f"{printed}",
        "recomputed": f"{recomputed}",
        "assumption": text["assumption"],
        "verdict": verdict,
        "working": working,
    }


@dataclass(frozen=True)
class Case:
    """One case of a claim about many: its numbers as text, and whether the claim holds there."""

    numbers: str
    holds: bool


def holds_for_all(
    tables: Tables,
    id: str,
    cases: Mapping[str, Case],
    otherwise: str = IMPOSSIBLE,
    note: str = "",
    printed: str = "all",
) -> dict[str, str]:
    """One row for a claim about many cases, by their names.

    CONSISTENT if every case holds, else the verdict ``otherwise``. ``note`` opens the working.
    """
    failing = [f"{name} {case.numbers}" for name, case in cases.items() if not case.holds]
    holding = [f"{name} {case.numbers}" for name, case in cases.items() if case.holds]
    parts = [
        note,
        f"not so: {'; '.join(failing) or 'nowhere'}",
        f"so: {'; '.join(holding) or 'nowhere'}",
    ]
    return finding(
        tables,
        id,
        printed=printed,
        recomputed=f"so in {len(holding)} of {len(cases)}",
        verdict=otherwise if failing else CONSISTENT,
        working=". ".join(part for part in parts if part),
    )


@dataclass(frozen=True)
class Comparison:
    """A number of which a paper prints a value that other printed numbers give too.

    A number that stands alone needs no name.
    """

    name: str
    printed: Range
    recomputed: Range

    @property
    def agrees(self) -> bool:
        """Whether the two are the same within rounding."""
        return self.printed.may_equal(self.recomputed)


def compare_all(
    tables: Tables,
    id: str,
    comparisons: Sequence[Comparison],
    always_alone: Sequence[str] = (),
    spec: str = ".2f",
    otherwise: str = IMPOSSIBLE,
) -> Iterable[dict[str, str]]:
    """Rows for many numbers of one kind: those that agree share a row, others have one each.

    A number has a row of its own also if it has no name, or is named in ``always_alone``.
    ``otherwise`` is the verdict where the two differ; ``spec`` formats what is recomputed.
    """
    alone = {"", *always_alone}
    together = [c for c in comparisons if c.agrees and c.name not in alone]
    if together:
        lines = [f"{c.name}: {c.printed} printed, {c.recomputed:{spec}}" for c in together]
        of_all = "" if len(together) == len(comparisons) else f" (of {len(comparisons)})"
        yield finding(
            tables,
            id,
            printed=f"{len(together)} numbers{of_all}",
            recomputed="the same to rounding",
            verdict=CONSISTENT,
            working="; ".join(lines),
        )
    for c in comparisons:
        if c in together:
            continue
        yield finding(
            tables,
            id,
            printed=c.printed,
            recomputed=f"{c.recomputed:{spec}}",
            verdict=CONSISTENT if c.agrees else otherwise,
            working=f"{c.recomputed:{spec}} from the numbers as printed; their rounding leaves "
            f"{c.recomputed.span('.3f')}, and {c.printed} stands for {c.printed.span('.3f')}",
            name=c.name,
        )
