"""Labels read from texts: of passages, of pairs of texts, and of trial reports by doctors.

Passages: ``data/judgments/real.jsonl.gz`` has one row for a question, a passage (or control item)
and a pass: ``qid, pid, judge, on_topic, supports, contradicts, start, length, lost``. ``judge`` is
the pass: "first", "second" (other order of options and passages) or "single" (one passage by
itself). ``on_topic`` is 0 to 3, or null where the item is unjudged. ``start`` and ``length`` are
lists, one entry for each letter of ``supports`` and then of ``contradicts``: where the words stand
in ``shown_text``.

Pairs: ``data/judgments/contradiction.jsonl.gz`` has one row for a pair in a pool and a pass:
``pool, a, b, judge, same, stance, sentence_a, sentence_b, reason``. ``a`` and ``b`` are ids, ``a``
before ``b``. ``same`` says whether both are on one question, null where the pair is unjudged;
``stance`` is "agree", "disagree" or "unclear" where they are, else empty; the sentences that carry
it are counted from 1, and 0 where there are none; ``reason`` says why they disagree.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.base.downloads import fetch
from lib.base.files import read_jsonl
from lib.base.paths import DATA, JUDGMENTS
from lib.data.passages import Passage, tidy

PAIR_JUDGMENTS = DATA / "judgments" / "contradiction.jsonl.gz"

HELPFUL = DATA / "judgments" / "helpful.csv"
"""For 200 passages that BioASQ questions retrieve by themselves: does a language model call them
helpful? Columns: qid, pid, helpful."""


@dataclass(frozen=True)
class Evidence:
    """What is known of one passage for one question.

    ``supports`` and ``contradicts`` are letters on which every pass that saw it agrees;
    ``supports_any`` has the letters that at least one pass gave.
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
    evidence_of = {}
    for key, judged in passes.items():
        supports = [frozenset(row["supports"]) for row in judged]
        contradicts = [frozenset(row["contradicts"]) for row in judged]
        evidence_of[key] = Evidence(
            on_topic=sum(row["on_topic"] for row in judged) / len(judged),
            supports=frozenset.intersection(*supports),
            contradicts=frozenset.intersection(*contradicts),
            supports_any=frozenset.union(*supports),
        )
    return evidence_of


def read_option(ranked: Sequence[Evidence | None]) -> str | None:
    """What the judged reader answers from ranked evidence: the option with the most support.

    A passage at rank r gives 1/r to each option it supports. Without any support, or between
    equals, the reader abstains (None).
    """
    support: dict[str, float] = {}
    for rank, evidence in enumerate(ranked, 1):
        for letter in evidence.supports if evidence else ():
            support[letter] = support.get(letter, 0.0) + 1 / rank
    best = max(support.values(), default=0.0)
    leaders = [letter for letter, total in support.items() if total == best]
    return leaders[0] if len(leaders) == 1 else None


# pairs of texts ----------------------------------------------------------------------------------


def read_pair_judgments(path: Path = PAIR_JUDGMENTS) -> list[dict]:
    """All rows; none where nothing was judged yet."""
    return read_judgments(path)


# findings ----------------------------------------------------------------------------------------


def read_findings() -> Iterator[dict[str, Any]]:
    """What doctors read off trial reports (Evidence Inference 2.0; DeYoung et al., 2020; MIT).

    One row a quoted passage: article, prompt, intervention, comparator, outcome, direction (1, -1
    or 0) and quote.

    A reading counts when the doctor who checked it accepted both its label and its reasoning, and a
    prompt only where every reading agrees on the direction.
    """
    codes, quotes = defaultdict(set), defaultdict(dict)
    for row in _table("evidence-inference-annotations"):
        if row["Valid Label"] == row["Valid Reasoning"] == "True":
            codes[row["PromptID"]].add(row["Label Code"])
            quotes[row["PromptID"]][row["Annotations"]] = None  # each once, in order
    for row in _table("evidence-inference-prompts"):
        prompt = row["PromptID"]
        if len(codes[prompt]) == 1:
            (code,) = codes[prompt]
            finding = {
                "article": row["PMCID"],
                "prompt": prompt,
                "intervention": tidy(row["Intervention"]),
                "comparator": tidy(row["Comparator"]),
                "outcome": tidy(row["Outcome"]),
                "direction": int(code),
            }
            for quote in quotes[prompt]:
                yield finding | {"quote": quote}


def _table(name: str) -> list[dict[str, str]]:
    with open(fetch(name), encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))
