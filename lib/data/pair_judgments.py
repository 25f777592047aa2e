"""Judged pairs of texts: the labels of every pass, and what they say together.

``data/judgments/contradiction.jsonl.gz`` has one row for a pair in a pool and a pass: ``pool, a, b,
judge, same, stance, sentence_a, sentence_b, reason``. ``a`` and ``b`` are ids, ``a`` before ``b``;
``judge`` is "first", "second" (another order of texts and pairs) or "single" (the pair by itself).
``same`` says whether both are on one question, null where the pair is unjudged; ``stance`` is
"agree", "disagree" or "unclear" where they are, else empty; the sentences that carry it are counted
from 1, and 0 where there are none; ``reason`` says why they disagree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lib.base.files import read_jsonl
from lib.base.paths import DATA

PAIR_JUDGMENTS = DATA / "judgments" / "contradiction.jsonl.gz"


@dataclass(frozen=True)
class Verdict:
    """What the first and second pass say of a pair together.

    ``same`` and ``stance`` are what every pass that saw it says; where they differ, a pair is on
    other questions, or its stance is "unclear". ``disagree_any`` is True where some pass alone says
    that they disagree.
    """

    same: bool
    stance: str
    disagree_any: bool


def read_pair_judgments(path: Path = PAIR_JUDGMENTS) -> list[dict]:
    """All rows; none where nothing was judged yet."""
    return list(read_jsonl(path)) if path.exists() else []


def verdicts(rows: Iterable[Mapping]) -> dict[tuple[str, str, str], Verdict]:
    """What is known of each judged pair, by (pool, a, b); pairs that no pass judged are missing."""
    passes = defaultdict(list)
    for row in rows:
        if row["judge"] in ("first", "second") and row["same"] is not None:
            passes[row["pool"], row["a"], row["b"]].append(row)
    found = {}
    for key, judged in passes.items():
        same = all(row["same"] for row in judged)
        stances = {row["stance"] for row in judged}
        found[key] = Verdict(
            same=same,
            stance=(stances.pop() if len(stances) == 1 else "unclear") if same else "",
            disagree_any=any(row["stance"] == "disagree" for row in judged),
        )
    return found
