"""The papers' printed numbers (``data/reported``): what rounding leaves of each; rows of the audit.

A printed 38.2 stands for every value from 38.15 to 38.25. Sums, quotients and means carry such
ranges on, as exact fractions. Both ends belong to a range, so no rule for rounding halves is taken
for granted.

The words of a row stand in ``audit_texts.csv``: where, claim, assumption, and for what is printed,
recomputed and worked out a sentence with places for a check's values. Numbers that a paper prints
in its text, and in no table, stand in ``claims.csv``. A printed number that follows from others by
one formula is a row of ``audit_formulas.csv``.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

from lib.base.paths import REPORTED

IMPOSSIBLE = "IMPOSSIBLE"
MISPRINT = "MISPRINT"
IN_TENSION = "IN TENSION"
NOT_TESTED = "NOT TESTED"
CONSISTENT = "CONSISTENT"
_PAPERS = {"chr": "CHR", "rag2": "RAG²", "slhyde": "SL-HyDE", "contra": "Contradiction study"}
"""The first part of a row's id, and the paper it names."""
_MEASURED_UNITS = "percent ratio score divergence GB thousand million billion tokens_per_sample"
"""Units in which even a whole number is rounded; in every other unit it is a count, and exact."""


# ranges ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """All values from ``low`` to ``high``; ``text`` is what the paper printed, if it did.

    Formatted without a specification it shows ``text``; with one (".2f"), the middle.
    """

    low: Fraction
    high: Fraction
    text: str = ""

    @property
    def middle(self) -> Fraction:
        """Halfway from low to high. For a printed number this is the number itself."""
        return (self.low + self.high) / 2

    def __sub__(self, other: Range) -> Range:
        return Range(self.low - other.high, self.high - other.low)

    def __mul__(self, number: Fraction | int) -> Range:
        ends = (self.low * number, self.high * number)
        return Range(min(ends), max(ends))

    def __truediv__(self, other: Range) -> Range:
        if other.low <= 0:
            raise ValueError(f"{other.span()} may be 0 or negative: nothing is divided by it")
        ends = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Range(min(ends), max(ends))

    def __format__(self, spec: str) -> str:
        if self.text and not spec:
            return self.text
        return format(float(self.middle), spec or ".4g")

    def span(self, spec: str = ".2f") -> str:
        """Both ends, as "67.98 to 68.08"."""
        return f"{float(self.low):{spec}} to {float(self.high):{spec}}"

    def may_equal(self, other: Range) -> bool:
        """Whether some value is in both ranges: the two may be the same number."""
        return self.low <= other.high and other.low <= self.high

    def may_exceed(self, other: Range) -> bool:
        """Whether some value of this range is larger than some value of the other."""
        return self.high > other.low


def exactly(number: Fraction | int) -> Range:
    """A number that is not rounded."""
    return Range(Fraction(number), Fraction(number))


def printed_range(text: str, unit: str = "", kind: str = "exact") -> Range:
    """What a printed number may stand for: half a unit of its last digit to either side.

    With ``kind="approx"`` the last digit is the last one that is not 0: "about 400000" is rounded
    to hundred thousands. A count ("172", in no measured unit) stands for itself only.
    """
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not a number as the papers print them, like 68.1") from error
    approximate = kind == "approx"
    # normalize() strips zeros at the end, and so moves the last digit: 400000 becomes 4E+5.
    shown = value.normalize() if approximate else value
    exponent = shown.as_tuple().exponent
    if exponent >= 0 and not approximate and unit not in _MEASURED_UNITS.split():
        half = Fraction(0)
    else:
        half = Fraction(Decimal(5).scaleb(exponent - 1))
    return Range(Fraction(value) - half, Fraction(value) + half, text)


def total(parts: Sequence[Range]) -> Range:
    """The sum of ranges."""
    return Range(sum(part.low for part in parts), sum(part.high for part in parts))


def mean(parts: Iterable[Range], weights: Sequence[Fraction | int] = ()) -> Range:
    """The mean of ranges, weighted if there are ``weights`` (one for each part)."""
    parts = list(parts)
    weights = list(weights) or [1] * len(parts)
    weighted = [part * weight for part, weight in zip(parts, weights, strict=True)]
    return total(weighted) * (1 / Fraction(sum(weights)))


def relative_change(old: Range, new: Range) -> Range:
    """Change from ``old`` to ``new`` in percent of ``old``; a fall is negative."""
    ratio = new / old
    return Range((ratio.low - 1) * 100, (ratio.high - 1) * 100)


def possible_counts(percent: Range, n: int) -> range:
    """How many of ``n`` a printed percentage may stand for.

    If no whole number prints so, the two nearest stand in: the one below and the one above.
    """
    least = math.ceil(percent.low * n / 100)
    most = math.floor(percent.high * n / 100)
    # Where no whole number fits, rounding up and down cross over, and least is above most.
    return range(min(least, most), max(least, most) + 1)


# tables ------------------------------------------------------------------------------------------


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
        return {row[by]: range_of(row) for row in self.rows(name, **keys)}

    def number(self, name: str, **keys: str) -> Range:
        """The number of the only row that has ``keys``."""
        if len(self.rows(name, **keys)) > 1:
            raise KeyError(f"more than one row of {name}.csv has {keys}; look into data/reported")
        (number,) = self.numbers(name, "value", **keys).values()
        return number

    def text_number(self, id: str) -> Range:
        """A number of the papers' texts, by its id in ``claims.csv``."""
        return self.number("claims", id=id)

    def cell(self, reference: str) -> Range:
        """The number that is meant by "rag2_table3: filter=Adaptive-RAG & dataset=MedQA", or by an
        id of ``claims.csv``."""
        name, _, keys = reference.partition(": ")
        if not keys:
            return self.text_number(name)
        return self.number(name, **dict(key.split("=", 1) for key in keys.split(" & ")))

    def changed(self, name: str, value: str, **keys: str) -> Tables:
        """The same tables but for one number: what would the audit say?"""
        self.number(name, **keys)  # refuses keys that fit no row, or several
        rows = [{**row, "value": value} if _matches(row, keys) else row for row in self.files[name]]
        return Tables({**self.files, name: rows})


def range_of(row: Mapping[str, str]) -> Range:
    """The number of one row of a reported table."""
    return printed_range(row["value"], row["unit"], row.get("kind", "exact"))


def _matches(row: Mapping[str, str], keys: Mapping[str, str]) -> bool:
    return all(row[column] == value for column, value in keys.items())


def read_tables(folder: Path = REPORTED) -> Tables:
    """All tables of a folder."""
    tables = {}
    for path in sorted(Path(folder).glob("*.csv")):
        with open(path, encoding="utf-8", newline="") as stream:
            tables[path.stem] = list(csv.DictReader(stream))
    return Tables(tables)


# rows of the audit -------------------------------------------------------------------------------

Pairs = Mapping[str, tuple[Range, Range]]
"""By name, two numbers to be compared: mostly the printed one and the recomputed one."""
Cases = Mapping[str, tuple[str, bool]]
"""By name, one case of a claim about many cases: its numbers as text, and whether it holds."""


@dataclass(frozen=True)
class Finding:
    """What a check found: the id of its text in ``audit_texts.csv``, the verdict, and the values
    that the text has places for. ``name`` tells rows of one text apart."""

    id: str
    verdict: str
    values: Mapping[str, object]
    name: str = ""


def judge(possible: bool, strained: bool = False) -> str:
    """The verdict: IMPOSSIBLE if no values within the rounding fit; IN TENSION if some fit, but
    only with something that the paper does not say, or says otherwise; else CONSISTENT."""
    if not possible:
        return IMPOSSIBLE
    return IN_TENSION if strained else CONSISTENT


def more_than_chance(shown: bool) -> str:
    """The verdict on a difference that the paper does not test: CONSISTENT if the printed numbers
    alone show that it is more than chance, else NOT TESTED."""
    return CONSISTENT if shown else NOT_TESTED


def audit_row(tables: Tables, finding: Finding) -> dict[str, str]:
    """One row: what is printed, what comes out, the verdict, the arithmetic.

    A text without a sentence takes the values ``printed``, ``recomputed`` and ``working`` as they
    are; a claim without places is followed by the finding's name.
    """
    (text,) = tables.rows("audit_texts", id=finding.id)
    row = {"id": finding.id, "paper": _PAPERS[finding.id.partition(".")[0]]}
    row |= {"where": text["where"], "claim": text["claim"].format(**finding.values)}
    if finding.name:
        slug = re.sub(r"[^a-z0-9]+", "-", finding.name.lower()).strip("-")
        row["id"] = f"{finding.id}.{slug}"
        if "{" not in text["claim"]:
            row["claim"] += f": {finding.name}"
    for column in ("printed", "recomputed"):
        row[column] = (text[column] or f"{{{column}}}").format(**finding.values)
    working = (text["working"] or "{working}").format(**finding.values)
    return row | {
        "assumption": text["assumption"],
        "verdict": finding.verdict,
        "working": working,
    }


def holds_for_all(
    id: str,
    cases: Cases,
    otherwise: str = IMPOSSIBLE,
    note: str = "",
    printed: object = "all",
) -> Finding:
    """A claim about many cases: CONSISTENT if every case holds, else the verdict ``otherwise``.

    ``note`` opens the working.
    """
    told: dict[bool, list[str]] = {False: [], True: []}
    for name, (numbers, holds) in cases.items():
        told[holds].append(f"{name} {numbers}")
    parts = [note] if note else []
    parts += [f"not so: {'; '.join(told[False]) or 'nowhere'}"]
    parts += [f"so: {'; '.join(told[True]) or 'nowhere'}"]
    values = {
        "printed": printed,
        "recomputed": f"so in {len(told[True])} of {len(cases)}",
        "working": ". ".join(parts),
    }
    return Finding(id, otherwise if told[False] else CONSISTENT, values)


def first_is_higher(pairs: Pairs) -> Cases:
    """Cases of the claim that the first number of each pair is above the second."""
    return {
        name: (f"{first} against {second}", first.may_exceed(second))
        for name, (first, second) in pairs.items()
    }


def compare_all(
    id: str,
    pairs: Pairs,
    always_alone: Sequence[str] = (),
    spec: str = ".2f",
    otherwise: str = IMPOSSIBLE,
) -> Iterator[Finding]:
    """Printed numbers and what they are recomputed as: those that agree share a row, others have
    one each.

    A number has a row of its own also if its name is "", or in ``always_alone``. ``otherwise`` is
    the verdict where the two differ; ``spec`` formats what is recomputed.
    """
    agrees = {name: printed.may_equal(again) for name, (printed, again) in pairs.items()}
    together = [name for name in pairs if agrees[name] and name not in ("", *always_alone)]
    if together:
        lines = [f"{name}: {pairs[name][0]} printed, {pairs[name][1]:{spec}}" for name in together]
        of_all = "" if len(together) == len(pairs) else f" (of {len(pairs)})"
        values = {"printed": f"{len(together)} numbers{of_all}", "working": "; ".join(lines)}
        yield Finding(id, CONSISTENT, values | {"recomputed": "the same to rounding"})
    for name in [name for name in pairs if name not in together]:
        printed, again = pairs[name]
        values = {
            "printed": printed,
            "recomputed": f"{again:{spec}}",
            "working": f"{again:{spec}} from the numbers as printed; their rounding leaves "
            f"{again.span('.3f')}, and {printed} stands for {printed.span('.3f')}",
        }
        yield Finding(id, CONSISTENT if agrees[name] else otherwise, values, name)


FORMULAS: dict[str, Callable[..., Range]] = {
    "sum": lambda *parts: total(parts),
    "difference": lambda one, other: one - other,
    "quotient": lambda one, other: one / other,
    "percentage": lambda part, whole: part / whole * 100,
    "relative change": relative_change,
    "relative fall": lambda old, new: relative_change(old, new) * -1,
}
"""What a printed number is said to be of its ``cells``, in ``audit_formulas.csv``."""


def formulas(tables: Tables, id: str) -> dict[str, tuple[Range, Range]]:
    """By name, the printed numbers of one text, and what they are by their formulas."""
    pairs = {}
    for row in tables.rows("audit_formulas", id=id):
        cells = [tables.cell(reference) for reference in row["cells"].split(" ; ")]
        pairs[row["name"]] = tables.cell(row["printed"]), FORMULAS[row["formula"]](*cells)
    return pairs


def lines_of(
    rows: Iterable[Mapping[str, str]], keys: Sequence[str], by: str
) -> dict[str, dict[str, Range]]:
    """A reported table as it is printed: by the name of a line, its numbers by column.

    ``keys`` are the columns of the file that name a line, ``by`` is the one that names the columns.
    """
    lines: dict[str, dict[str, Range]] = {}
    for row in rows:
        name = ", ".join(row[key] for key in keys)
        lines.setdefault(name, {})[row[by]] = range_of(row)
    return lines


def averages(
    lines: Mapping[str, Mapping[str, Range]], average: str, weights: Mapping[str, int] | None = None
) -> Pairs:
    """Each printed ``average`` with the mean of the other numbers of its line, or of those that
    have ``weights``, weighted."""
    pairs = {}
    for name, line in lines.items():
        parts = weights or dict.fromkeys(line.keys() - {average}, 1)
        again = mean([line[part] for part in parts], list(parts.values()))
        pairs[name] = line[average], again
    return pairs
