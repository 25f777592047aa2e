"""Pairs of sentences whose label is known, and those that the judge of contradiction gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from lib.data.judgments import read_pair_judgments, verdicts
from lib.studies.nli.models import sentences

_COLUMNS = ["pool", "a", "b", "value", "same", "stance", "reason", "sentence_a", "sentence_b"]


class LabelledPair(NamedTuple):
    """Two sentences; contradiction, entailment or neutral; and what they are resampled with."""

    a: str
    b: str
    label: str
    group: str


def numbered(groups: Sequence[str]) -> list[int]:
    """Groups as numbers from 0, in the order of their names."""
    number = {name: i for i, name in enumerate(sorted(set(groups)))}
    return [number[name] for name in groups]


def judged_pairs(
    texts: Mapping[str, str], groups: Sequence[str], rows: Iterable[Mapping] | None = None
) -> pd.DataFrame:
    """Every judged couple of ``texts`` (by id) in these groups of pools, once, sorted by ids.

    Columns: pool, a, b, value (1 where both passes say that they disagree, else 0), same, stance,
    reason and the two sentences that carry it, as the first pass gave them; empty where it gave
    none. ``rows`` are the judgments (default: those that are bundled).
    """
    rows = read_pair_judgments() if rows is None else list(rows)
    first = {(r["pool"], r["a"], r["b"]): r for r in rows if r["judge"] == "first"}
    found: dict[tuple[str, str], tuple] = {}
    for (pool, a, b), verdict in sorted(verdicts(rows).items()):
        if pool.partition("/")[0] not in groups or not {a, b} <= texts.keys():
            continue
        said = first[pool, a, b]
        quoted = (
            _sentence(texts[a], said["sentence_a"]),
            _sentence(texts[b], said["sentence_b"]),
        )
        disagree = verdict.stance == "disagree"
        reason = said["reason"] if disagree else ""
        found[a, b] = (pool, a, b, float(disagree), verdict.same, verdict.stance, reason, *quoted)
    return pd.DataFrame([own for _, own in sorted(found.items())], columns=_COLUMNS)


def _sentence(text: str, number: int) -> str:
    """A sentence by its number, from 1; empty for 0."""
    return sentences(text)[number - 1] if number else ""
