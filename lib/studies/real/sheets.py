"""Judging sheets: what a judge is shown, and how what comes back becomes labels.

A sheet has one question, its options in another order than the exam's, and numbered passages in an
order that says nothing: no arm, no rank, no key. A label that speaks for or against an option
carries words, and counts only where these stand in the passage.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lib.data.judgments import Label
from lib.datasets import Question
from lib.llm.prompts import load_prompt
from lib.llm.quotes import find_words


@dataclass(frozen=True)
class Sheet:
    """One question to be judged. ``letters`` maps the letters shown to the question's own;
    ``items`` are ids of passages (or planted items) in the order shown."""

    name: str
    qid: str
    letters: Mapping[str, str]
    items: tuple[str, ...]


def make_sheet(name: str, question: Question, items: Sequence[str], seed: str) -> Sheet:
    """The items shuffled and the options permuted, by ``seed`` and the sheet's name alone."""
    generator = random.Random(f"{seed} {name}")
    letters = sorted(question.options)
    drawn = generator.sample(letters, len(letters))
    ordered = generator.sample(sorted(items), len(items))
    return Sheet(name, question.qid, dict(zip(letters, drawn, strict=True)), tuple(ordered))


def sheet_messages(sheet: Sheet, question: Question, texts: Mapping[str, str]) -> list[dict]:
    """What the judge is asked: chat messages of the prompt ``judge_evidence``."""
    options = "\n".join(f"{shown}. {question.options[own]}" for shown, own in sheet.letters.items())
    passages = "\n\n".join(f"[{n}] {texts[item]}" for n, item in enumerate(sheet.items, 1))
    prompt = load_prompt("judge_evidence")
    return prompt.messages(question=question.text, options=options, passages=passages)


def alone_messages(
    sheets: Sequence[Sheet], questions: Mapping[str, Question], texts: Mapping[str, str]
) -> list[dict]:
    """Many sheets of one passage each in one request: question n has passage n and no other.

    Judging a question's passages together may leak from one to the next; these tell how much.
    """
    parts = []
    for number, sheet in enumerate(sheets, 1):
        (item,) = sheet.items
        question = questions[sheet.qid]
        options = [f"{shown}. {question.options[own]}" for shown, own in sheet.letters.items()]
        listed = "\n".join(options)
        parts.append(f"Question {number}: {question.text}\n{listed}\n[{number}] {texts[item]}")
    return load_prompt("judge_evidence").messages(
        question="There are several here, each with its own options and one passage of its number.",
        options="They stand below each question.",
        passages="\n\n".join(parts),
    )


def read_alone_labels(
    reply: str, sheets: Sequence[Sheet], texts: Mapping[str, str]
) -> list[tuple[Sheet, list[Label]]]:
    """The label of each one-passage sheet, from a reply to ``alone_messages``."""
    blocks: dict[int, list[str]] = {}
    lines: list[str] = []
    for line in reply.splitlines():
        if head := _HEAD.match(line):
            lines = blocks.setdefault(int(head[1]), [])
            line = f"1 topic {head[2]}"
        lines.append(line)
    return [
        (sheet, read_labels("\n".join(blocks.get(number, [])), sheet, texts))
        for number, sheet in enumerate(sheets, 1)
    ]


_HEAD = re.compile(r"^\W*(\d+)\W*topic\W*([0-3])\b(.*)$", re.IGNORECASE)
_MARK = re.compile(r"^\W{0,3}?([+\-−–])\s*([A-Z])\b[.:)]?\s*(.*)$")


def read_labels(reply: str, sheet: Sheet, texts: Mapping[str, str]) -> list[Label]:
    """One label for each item of the sheet, in its order.

    An item that the reply leaves out, names twice or gives no topic is unjudged (``on_topic`` is
    None), never 0. A mark whose words are not in the passage is lost: the option stays silent.
    """
    blocks: dict[int, list[tuple[int, list]]] = {}
    current: list | None = None
    for line in reply.splitlines():
        if head := _HEAD.match(line):
            current = []
            blocks.setdefault(int(head[1]), []).append((int(head[2]), current))
        elif (mark := _MARK.match(line)) and current is not None:
            current.append((mark[1] == "+", mark[2], mark[3]))
    labels = []
    for number, item in enumerate(sheet.items, 1):
        found = blocks.get(number, [])
        if len(found) != 1:
            labels.append(Label(item, None))
            continue
        topic, marks = found[0]
        labels.append(_label(item, topic, marks, sheet.letters, texts[item]))
    return labels


def _label(item: str, topic: int, marks: list, letters: Mapping[str, str], text: str) -> Label:
    kept: dict[tuple[bool, str], tuple[int, int]] = {}
    lost = 0
    for positive, shown, words in marks:
        span = find_words(words, text)
        if shown not in letters or span is None:
            lost += 1
            continue
        kept.setdefault((positive, letters[shown]), span)
    both = {letter for positive, letter in kept if (not positive, letter) in kept}
    # For and against at once says nothing.
    kept = {key: span for key, span in kept.items() if key[1] not in both}
    supports = sorted(letter for positive, letter in kept if positive)
    contradicts = sorted(letter for positive, letter in kept if not positive)
    spans = [kept[True, letter] for letter in supports]
    spans += [kept[False, letter] for letter in contradicts]
    return Label(item, topic, "".join(supports), "".join(contradicts), tuple(spans), lost)
