"""Arithmetic on printed numbers: exact fractions with the range that rounding leaves, exact tests.

A printed 38.2 stands for every value from 38.15 to 38.25. Sums, quotients and means carry such
ranges on, and both ends belong to them, so no rule for halves is taken for granted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

__all__ = [
    "Range",
    "change",
    "counts",
    "exactly",
    "largest_discordance",
    "mcnemar",
    "mean",
    "printed",
    "total",
]

_MEASURED = {
    "percent",
    "ratio",
    "score",
    "divergence",
    "GB",
    "thousand",
    "million",
    "billion",
    "tokens_per_sample",
}
"""Units in which a whole number is rounded; in every other it is a count, and exact."""


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
        """Halfway, which for a printed number is the number."""
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
        return format(float(self.middle), spec or ".4g") if spec or not self.text else self.text

    def span(self, spec: str = ".2f") -> str:
        """Both ends, as "67.98 to 68.08"."""
        return f"{float(self.low):{spec}} to {float(self.high):{spec}}"

    def meets(self, other: Range) -> bool:
        """Whether some value is in both: whether the two may be the same number."""
        return self.low <= other.high and other.low <= self.high

    def may_exceed(self, other: Range) -> bool:
        """Whether a value of this one is larger than some value of the other."""
        return self.high > other.low


def exactly(number: Fraction | int) -> Range:
    """A number that is not rounded."""
    return Range(Fraction(number), Fraction(number))


def printed(text: str, unit: str = "", kind: str = "exact") -> Range:
    """A number as printed, with half a unit of its last digit to either side.

    For ``approx`` that is the last digit that is not 0; a count has nothing to either side.
    """
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not a number as the papers print them, like 68.1") from error
    shown = value.normalize() if kind == "approx" else value
    places = shown.as_tuple().exponent
    count = places >= 0 and kind != "approx" and unit not in _MEASURED
    half = Fraction(0) if count else Fraction(Decimal(5).scaleb(places - 1))
    return Range(Fraction(value) - half, Fraction(value) + half, text)


def total(parts: Sequence[Range]) -> Range:
    """The sum of ranges."""
    return Range(sum(p.low for p in parts), sum(p.high for p in parts))


def mean(parts: Sequence[Range], weights: Sequence[Fraction | int] = ()) -> Range:
    """The (weighted) mean of ranges."""
    weights = list(weights) or [1] * len(parts)
    whole = total([p * w for p, w in zip(parts, weights, strict=True)])
    return whole * (1 / Fraction(sum(weights)))


def change(old: Range, new: Range) -> Range:
    """Relative change from ``old`` to ``new`` in percent; a fall is negative."""
    ratio = new / old
    return Range((ratio.low - 1) * 100, (ratio.high - 1) * 100)


def counts(percent: Range, n: int) -> range:
    """How many of ``n`` a printed percentage may stand for; if no number, the two nearest."""
    ends = math.ceil(percent.low * n / 100), math.floor(percent.high * n / 100)
    return range(min(ends), max(ends) + 1)


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided McNemar p-value: are wins and losses a fair coin's?"""
    from scipy.stats import binom

    return min(1.0, 2 * float(binom.cdf(min(wins, losses), wins + losses, 0.5)))


def largest_discordance(more: int, n: int, level: float = 0.05) -> int:
    """The most discordant questions of ``n`` with which ``more`` wins than losses has p <= level.

    0 if none has. For a given difference p grows with discordance, so this is a bisection.
    """
    if more < 1 or mcnemar(more, 0) > level:
        return 0
    low, high = 0, (n - more) // 2  # losses
    while low < high:
        half = (low + high + 1) // 2
        low, high = (half, high) if mcnemar(more + half, half) <= level else (low, half - 1)
    return more + 2 * low
