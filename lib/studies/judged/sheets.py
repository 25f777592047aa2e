"""What a judge of contradiction is shown, and how what comes back becomes labels.

A sheet has numbered texts with numbered sentences and a list of pairs; texts and pairs come in an
order that says nothing. It may hold one pool, or pairs of many pools.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lib.data.judgments import REASONS, PairLabel
from lib.llm.prompts import load_prompt
from lib.studies.nli.models import sentences

Pair = tuple[str, str, str]
"""A pool's name and two ids, the first before the second."""


@dataclass(frozen=True)
class Sheet:
    """``items`` are (pool, id) as shown, numbered from 1; ``pairs`` in the order asked."""

    items: tuple[tuple[str, str], ...]
    pairs: tuple[Pair, ...]


def make_sheet(pairs: Sequence[Pair], seed: str) -> Sheet:
    """Texts and pairs shuffled by ``seed`` and by what is asked."""
    generator = random.Random(f"{seed} {sorted(pairs)}")
    items = sorted({(pool, i) for pool, *ids in pairs for i in ids})
    return Sheet(
        tuple(generator.sample(items, len(items))),
        tuple(generator.sample(sorted(pairs), len(pairs))),
    )


def sheet_messages(sheet: Sheet, texts: Mapping[tuple[str, str], str]) -> list[dict]:
    """What the judge is asked: chat messages of the prompt ``judge_contradiction``.

    ``texts`` by pool and id. Of a pair the text with the smaller number is named first.
    """
    shown = []
    for number, item in enumerate(sheet.items, 1):
        lines = [f"({n}) {sentence}" for n, sentence in enumerate(sentences(texts[item]), 1)]
        shown.append("\n".join([f"[{number}]", *lines]))
    pairs = ", ".join("-".join(map(str, numbers)) for numbers in map(sorted, _numbers(sheet)))
    prompt = load_prompt("judge_contradiction")
    return prompt.messages(texts="\n\n".join(shown), pairs=pairs)


def _numbers(sheet: Sheet) -> list[tuple[int, int]]:
    """The numbers on the sheet of each pair's texts, ``a`` and ``b``."""
    number = {item: n for n, item in enumerate(sheet.items, 1)}
    return [(number[pool, a], number[pool, b]) for pool, a, b in sheet.pairs]


_LINE = re.compile(
    r"^\W*(\d+)\s*[-–]\s*(\d+)\W+(?:(other)\b|same\W+(?:(unclear)\b|(agree|disagree)\b(.*)))", re.I
)
_PLACE = re.compile(r"\b(\d+)\.(\d+)\b")


def read_pairs(reply: str, sheet: Sheet, texts: Mapping[tuple[str, str], str]) -> list[PairLabel]:
    """One label for each pair of the sheet, in its order.

    A pair that the reply leaves out or names twice is unjudged (``same`` is None). Agreement and
    disagreement without a sentence that exists in each text are "unclear".
    """
    said: dict[frozenset[int], list[re.Match]] = {}
    for line in reply.splitlines():
        if found := _LINE.match(line.strip()):
            said.setdefault(frozenset((int(found[1]), int(found[2]))), []).append(found)
    labels = []
    for (pool, a, b), numbers in zip(sheet.pairs, _numbers(sheet), strict=True):
        found = said.get(frozenset(numbers), [])
        if len(found) != 1:
            labels.append(PairLabel(pool, a, b, None))
        elif found[0][3]:
            labels.append(PairLabel(pool, a, b, False))
        else:
            counts = [len(sentences(texts[pool, i])) for i in (a, b)]
            labels.append(_label(pool, a, b, found[0], numbers, counts))
    return labels


def _label(
    pool: str, a: str, b: str, found: re.Match, numbers: Sequence[int], counts: Sequence[int]
) -> PairLabel:
    """The label of a pair on the same question."""
    stance, rest = (found[5] or "").lower(), found[6] or ""
    places = {int(text): int(sentence) for text, sentence in _PLACE.findall(rest)}
    carries = [places.get(number, 0) for number in numbers]
    if not stance or not all(0 < n <= count for n, count in zip(carries, counts, strict=True)):
        return PairLabel(pool, a, b, True, "unclear")
    reason = ""
    if stance == "disagree":
        words = re.findall(r"[a-z]+", rest.lower())
        reason = next((word for word in words if word in REASONS), "")
    return PairLabel(pool, a, b, True, stance, *carries, reason)
