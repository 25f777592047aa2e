"""Judged evidence: the labels of every pass, and what they say together.

``data/judgments/real.jsonl.gz`` has one row for a question, a passage (or planted item) and a pass:
``qid, pid, judge, on_topic, supports, contradicts, start, length, lost``. ``judge`` is the pass:
"first", "second" (other order of options and passages) or "single" (one passage by itself).
``on_topic`` is 0 to 3, or null where the item is unjudged. ``start`` and ``length`` are lists, one
entry for each letter of ``supports`` and then of ``contradicts``: where the words stand in
``shown_text``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.data.passages import Passage

JUDGMENTS = DATA / "judgments" / "real.jsonl.gz"

HELPFUL = DATA / "judgments" / "helpful.csv"
"""Of 200 passages that questions of BioASQ find alone, whether a language model calls them helpful:
qid, pid, helpful."""


@dataclass(frozen=True)
class Evidence:
    """What is known of one passage for one question.

    ``supports`` and ``contradicts`` are letters on which every pass that saw it agrees; what is
    said by some pass alone is silent here and stands in ``supports_any``.
    """

    on_topic: float
    supports: frozenset[str] = frozenset()
    contradicts: frozenset[str] = frozenset()
    supports_any: frozenset[str] = frozenset()


def shown_text(passage: Passage) -> str:
    """A passage as a judge sees it: its title, if it has one, above its text."""
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def read_judgments(path: Path = JUDGMENTS) -> list[dict]:
    """All rows; none where nothing was judged yet."""
    return list(read_jsonl(path)) if path.exists() else []


def evidence(rows: Iterable[Mapping]) -> dict[tuple[str, str], Evidence]:
    """What the first and second pass say together, by (question id, passage id).

    A letter counts when every pass that judged the item gave it. Items that no pass judged are
    missing. The topic is the mean of the passes.
    """
    passes = defaultdict(list)
    for row in rows:
        if row["judge"] in ("first", "second") and row["on_topic"] is not None:
            passes[row["qid"], row["pid"]].append(row)
    found = {}
    for key, judged in passes.items():
        supports = [frozenset(row["supports"]) for row in judged]
        contradicts = [frozenset(row["contradicts"]) for row in judged]
        found[key] = Evidence(
            on_topic=sum(row["on_topic"] for row in judged) / len(judged),
            supports=frozenset.intersection(*supports),
            contradicts=frozenset.intersection(*contradicts),
            supports_any=frozenset.union(*supports),
        )
    return found


def read_option(found: Sequence[Evidence | None]) -> str | None:
    """What the judged reader answers from ranked evidence: the option with the most support.

    A passage at rank r gives 1/r to each option it supports. Without any support, or between
    equals, the reader abstains (None).
    """
    support: dict[str, float] = {}
    for rank, evidence in enumerate(found, 1):
        for letter in evidence.supports if evidence else ():
            support[letter] = support.get(letter, 0.0) + 1 / rank
    best = max(support.values(), default=0.0)
    leaders = [letter for letter, total in support.items() if total == best]
    return leaders[0] if len(leaders) == 1 else None
