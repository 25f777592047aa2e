"""Which pairs of texts are judged, by rules that were written down before any was.

Four groups, told apart by the first part of a pool's name: ``mini`` (evidence-mini, every pair of
abstracts on one topic), ``query`` (60 stated queries of ``open``, every pair among the seven
abstracts nearest to each), ``near`` (abstracts of ``open`` drawn by period, each with its nearest
neighbour) and ``real`` (60 questions of the real sample, the pairs within the top five of each of
three arms). Whoever draws, draws by the hash of an id, so nobody chose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pandas as pd

from lib.base.files import sha256_bytes
from lib.studies.contradiction.study import PERIODS
from lib.studies.evidence.records import Evidence

NEAR = 340
"""Abstracts drawn by period, each with its nearest neighbour: 1,600 pairs with the queries'."""

REAL_QUESTIONS = 30
"""Questions of each exam set, the first by the hash of their ids."""

ARMS = ("hplus", "chr@0.4", "chr@1")
"""Whose top five are compared, each within itself."""


def by_hash(what: str, ids: Iterable[str]) -> list[str]:
    """The ids in the order of their hashes."""
    return sorted(ids, key=lambda i: sha256_bytes(f"{what} {i}".encode()))


def by_period(evidence: Sequence[Evidence]) -> list[str]:
    """Of each period in turn the next abstract by hash, ``NEAR`` in all."""
    waiting = defaultdict(list)
    for i in by_hash("judged near", (abstract.id for abstract in evidence)):
        waiting[period_of(_years(evidence)[i])].append(i)
    found = []
    while len(found) < min(NEAR, len(evidence)):
        for period in PERIODS:
            if waiting[period] and len(found) < NEAR:
                found.append(waiting[period].pop(0))
    return found


def share_drawn(evidence: Sequence[Evidence]) -> dict[str, float]:
    """Of each period, the share of its abstracts that were drawn with a neighbour: what a figure
    over periods is weighted by."""
    years = _years(evidence)
    drawn = pd.Series([period_of(years[i]) for i in by_period(evidence)]).value_counts()
    there = pd.Series([period_of(year) for year in years.values()]).value_counts()
    return (drawn.reindex(there.index).fillna(0) / there).to_dict()


def _years(evidence: Sequence[Evidence]) -> dict[str, int]:
    return {abstract.id: abstract.year for abstract in evidence}


def period_of(year: int) -> str:
    """The period of a year (``PERIODS``): the first year belongs to a period, the last to the next
    one."""
    return PERIODS[min(max((year - 1995) // 5, 0), len(PERIODS) - 1)]
