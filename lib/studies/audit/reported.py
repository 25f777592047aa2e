"""The papers' printed numbers (``data/reported``), and rows of the audit.

What a row asks (where, claim, assumption) stands in ``audit_texts.csv``; numbers that only the
papers' texts print stand in ``claims.csv``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.base.paths import REPORTED
from lib.studies.audit.arithmetic import Range, printed

__all__ = [
    "COLUMNS",
    "CONSISTENT",
    "IMPOSSIBLE",
    "IN_TENSION",
    "Tables",
    "family",
    "finding",
    "holds",
    "judge",
    "read_tables",
]

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
IMPOSSIBLE, IN_TENSION, CONSISTENT = "IMPOSSIBLE", "IN TENSION", "CONSISTENT"
_PAPERS = {"chr": "CHR", "rag2": "RAG²", "slhyde": "SL-HyDE", "contra": "Contradiction study"}


@dataclass(frozen=True)
class Tables:
    """Every reported table by file name: its rows, all values as text."""

    files: Mapping[str, Sequence[dict[str, str]]]

    def rows(self, name: str, **keys: str) -> list[dict[str, str]]:
        """The rows of a table whose columns have these values; KeyError if there are none."""
        found = [r for r in self.files[name] if all(r[k] == v for k, v in keys.items())]
        if not found:
            raise KeyError(f"no row of {name}.csv has {keys}; look into data/reported")
        return found

    def values(self, name: str, column: str, **keys: str) -> list[str]:
        """What stands in a column, each value once, in order."""
        return list(dict.fromkeys(r[column] for r in self.rows(name, **keys)))

    def numbers(self, name: str, by: str, **keys: str) -> dict[str, Range]:
        """The numbers of the rows that have ``keys``, by the value of column ``by``."""
        return {
            r[by]: printed(r["value"], r["unit"], r.get("kind", "exact"))
            for r in self.rows(name, **keys)
        }

    def number(self, name: str, **keys: str) -> Range:
        """The number of the only row that has ``keys``."""
        if len(self.rows(name, **keys)) > 1:
            raise KeyError(f"more than one row of {name}.csv has {keys}; look into data/reported")
        return next(iter(self.numbers(name, "value", **keys).values()))

    def said(self, id: str) -> Range:
        """A number of the papers' texts."""
        return self.number("claims", id=id)

    def changed(self, name: str, value: str, **keys: str) -> Tables:
        """The same tables but for one number: what would the audit say?"""
        self.number(name, **keys)
        rows = [
            r | {"value": value} if all(r[k] == v for k, v in keys.items()) else r
            for r in self.files[name]
        ]
        return Tables({**self.files, name: rows})


def read_tables(folder: Path = REPORTED) -> Tables:
    """All tables of a folder."""
    tables = {}
    for path in sorted(Path(folder).glob("*.csv")):
        with open(path, encoding="utf-8", newline="") as stream:
            tables[path.stem] = list(csv.DictReader(stream))
    return Tables(tables)


def judge(possible: bool, strained: bool = False) -> str:
    """IMPOSSIBLE if no values within the rounding fit; IN TENSION if they fit only with something
    that the paper does not say, or says otherwise; else CONSISTENT."""
    return IMPOSSIBLE if not possible else IN_TENSION if strained else CONSISTENT


def finding(
    t: Tables,
    id: str,
    told: object,
    again: object,
    verdict: str,
    working: str,
    name: str = "",
    **names: str,
) -> dict[str, str]:
    """A row: what is printed, what comes out, the verdict, the arithmetic.

    ``name`` tells rows of one kind apart; ``names`` go into the claim's text.
    """
    text = t.rows("audit_texts", id=id)[0]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    claim = text["claim"].format(**names) + (f": {name}" if name and not names else "")
    values = (
        f"{id}.{slug}" if slug else id,
        _PAPERS[id.split(".")[0]],
        text["where"],
        claim,
        f"{told}",
        f"{again}",
        text["assumption"],
        verdict,
        working,
    )
    return dict(zip(COLUMNS, values, strict=True))


def holds(
    t: Tables,
    id: str,
    cases: Mapping[str, tuple[str, bool]],
    otherwise: str = IMPOSSIBLE,
    note: str = "",
    told: str = "all",
) -> dict[str, str]:
    """A claim about many cases: name -> (its numbers, whether it holds). ``otherwise`` if one does
    not."""
    out, kept = ([f"{k} {x}" for k, (x, ok) in cases.items() if ok == so] for so in (False, True))
    parts = [note, f"not so: {'; '.join(out) or 'nowhere'}", f"so: {'; '.join(kept) or 'nowhere'}"]
    return finding(
        t,
        id,
        told,
        f"so in {len(kept)} of {len(cases)}",
        otherwise if out else CONSISTENT,
        ". ".join(p for p in parts if p),
    )


def family(
    t: Tables,
    id: str,
    members: Sequence[tuple[str, Range, Range]],
    apart: Sequence[str] = (),
    spec: str = ".2f",
    otherwise: str = IMPOSSIBLE,
) -> Iterable[dict[str, str]]:
    """Many numbers of one kind: (name, printed, recomputed) each.

    Those that agree share a row; each that does not has its own, and so has each in ``apart`` (a
    single number without a name, for one).
    """
    agree = [m for m in members if m[1].meets(m[2]) and m[0] not in ("", *apart)]
    if agree:
        lines = [f"{name}: {told} printed, {again:{spec}}" for name, told, again in agree]
        rest = f" (of {len(members)})" if len(agree) < len(members) else ""
        yield finding(
            t,
            id,
            f"{len(agree)} numbers{rest}",
            "the same to rounding",
            CONSISTENT,
            "; ".join(lines),
        )
    for name, told, again in (m for m in members if m not in agree):
        yield finding(
            t,
            id,
            told,
            f"{again:{spec}}",
            CONSISTENT if told.meets(again) else otherwise,
            f"{again:{spec}} from the numbers as printed; their rounding leaves "
            f"{again.span('.3f')}, and {told} stands for {told.span('.3f')}",
            name,
        )
