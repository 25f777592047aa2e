"""Arithmetic on printed numbers: exact fractions with the range that rounding leaves, exact tests.

A printed 38.2 stands for every value from 38.15 to 38.25. Sums, quotients and means carry such
ranges on. Both ends belong to a range, so no rule for rounding halves is taken for granted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from lib.stats import mcnemar_p

_MEASURED_UNITS = {
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
"""Units in which even a whole number is rounded; in every other unit it is a count, and exact."""


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
    is_whole = exponent >= 0
    if is_whole and not approximate and unit not in _MEASURED_UNITS:
        half = Fraction(0)
    else:
        half = Fraction(Decimal(5).scaleb(exponent - 1))
    return Range(Fraction(value) - half, Fraction(value) + half, text)


def total(parts: Sequence[Range]) -> Range:
    """The sum of ranges."""
    return Range(sum(part.low for part in parts), sum(part.high for part in parts))


def mean(parts: Sequence[Range], weights: Sequence[Fraction | int] = ()) -> Range:
    """The mean of ranges, weighted if there are ``weights`` (one for each part)."""
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


def largest_discordance(difference: int, n: int, level: float = 0.05) -> int:
    """The most discordant questions of ``n`` that leave p at ``level`` or below; 0 if none do.

    ``difference`` is wins minus losses. At a given difference, p grows with every further pair of
    a win and a loss, so the last number of losses that is significant is found by bisection.
    """
    if difference < 1 or mcnemar_p(difference, 0) > level:
        return 0
    fewest_losses = 0
    most_losses = (n - difference) // 2
    while fewest_losses < most_losses:
        losses = (fewest_losses + most_losses + 1) // 2
        if mcnemar_p(losses + difference, losses) <= level:
            fewest_losses = losses
        else:
            most_losses = losses - 1
    return difference + 2 * fewest_losses
