"""A fresh sample of exam questions whose options are entities, drawn by the hash of their ids.

An option is an entity if it has at most five words, none of them a bare number, and stands, as a
name, in at least one passage of the open corpora and in at most one in a hundred of them: so no
sentence, no dose, and no word as common as "proteins". A question is drawn if all its options are
entities, no study has used it, it shows no picture, and it does not ask for the exception.

``data/masked/questions.csv`` is what ``draw`` gave: dataset, qid, split, wrong. ``split`` is
"test", "dev", or "judged" for the questions of the real sample that fit the rule: on those, whose
passages were judged before, the answerer is validated. ``wrong`` is the wrong option that one
writer is told to hold for right.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from lib.base.files import sha256_bytes
from lib.base.paths import DATA
from lib.benchmarks.base import name_words
from lib.benchmarks.entity_masking import names_something
from lib.data.passages import Passage
from lib.data.questions import Question
from lib.datasets import EXAMS, asks_for_the_exception, load_questions, load_real, pictures

SAMPLE = DATA / "masked" / "questions.csv"

Part = Literal["test", "dev", "judged"]

SIZES: Mapping[str, tuple[int, int]] = {"medqa": (150, 37), "mmlu": (60, 23)}
"""Test and dev questions of each set."""

WORDS = 5
"""Words of an option at most."""

COMMON = 100
"""A name that stands in more than one passage in so many is too common to be masked."""

_ENDS = ' \n".,;'
_ARTICLE = re.compile(r"^(?:an?|the)\s+", re.IGNORECASE)


def plain_name(option: str) -> str:
    """An option as a name: without article and what ends it, "a deletion." is "deletion"."""
    return _ARTICLE.sub("", option.strip(_ENDS)).strip()


class NameCounts:
    """In how many passages a name stands, by its words (``name_words``)."""

    def __init__(self, passages: Iterable[Passage]):
        self._texts: list[str] = []
        self._with: dict[str, set[int]] = defaultdict(set)
        for row, passage in enumerate(passages):
            words = name_words(f"{passage.title} {passage.text}")
            self._texts.append(f" {' '.join(words)} ")
            for word in set(words):
                self._with[word].add(row)

    def __len__(self) -> int:
        return len(self._texts)

    def of(self, name: str) -> int:
        """The number of passages with these words, in this order and side by side."""
        words = name_words(name)
        if not words:
            return 0
        rows = set.intersection(*(self._with.get(word, set()) for word in words))
        wanted = f" {' '.join(words)} "
        return sum(wanted in self._texts[row] for row in rows)


def is_entity(option: str, counts: NameCounts) -> bool:
    """Whether an option is a name that can be masked (see above)."""
    words = plain_name(option).split()
    if not 0 < len(words) <= WORDS or any(word.strip("%.,").isdigit() for word in words):
        return False
    if not names_something(plain_name(option)):
        return False
    return 1 <= counts.of(plain_name(option)) <= len(counts) / COMMON


def fits(question: Question, counts: NameCounts) -> bool:
    """Whether a question has entities for options, each its own, and asks for the one that fits."""
    options = list(question.options.values())
    named = {name_words(plain_name(option)) for option in options}
    distinct = len(named) == len(options)
    return (
        distinct
        and not asks_for_the_exception(question)
        and all(is_entity(option, counts) for option in options)
    )


def draw(counts: NameCounts) -> tuple[list[dict], list[dict]]:
    """The rows of ``SAMPLE``, and how many questions of each set every part of the rule leaves."""
    real = [*load_real("dev"), *load_real("test")]
    used = {(q.dataset, q.qid) for q in real}
    said = {q.text for q in real}
    rows, steps = [], []
    for name, (n_test, n_dev) in SIZES.items():
        questions = load_questions(name)
        seen = [q for q in questions if q.qid not in pictures(name)]
        free = [q for q in seen if (name, q.qid) not in used and q.text not in said]
        kept = list(_once(q for q in free if fits(q, counts)))
        kept.sort(key=lambda q: sha256_bytes(f"masked {q.dataset} {q.qid}".encode()))
        parts = {"test": kept[:n_test], "dev": kept[n_test : n_test + n_dev]}
        parts["judged"] = [q for q in real if q.dataset == name and fits(q, counts)]
        for step, left in (("all", questions), ("no picture", seen), ("unused", free)):
            steps.append({"dataset": name, "step": step, "questions": len(left)})
        steps.append({"dataset": name, "step": "options are entities", "questions": len(kept)})
        for split, chosen in parts.items():
            steps.append({"dataset": name, "step": split, "questions": len(chosen)})
            for q in chosen:
                rows.append((name, q.qid, split, wrong_option(q)))
    columns = ("dataset", "qid", "split", "wrong")
    return [dict(zip(columns, row, strict=True)) for row in rows], steps


def _once(questions: Iterable[Question]) -> Iterator[Question]:
    """The questions without those whose text stood there before."""
    said: set[str] = set()
    for question in questions:
        if question.text not in said:
            yield question
        said.add(question.text)


def wrong_option(question: Question) -> str:
    """A wrong option, by the hash of the question's id."""
    wrong = sorted(set(question.options) - {question.answer})
    return wrong[int(sha256_bytes(f"wrong {question.qid}".encode()), 16) % len(wrong)]


def read_sample() -> list[dict[str, str]]:
    """The rows of ``SAMPLE``."""
    with open(SAMPLE, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def load_masked(part: Part) -> list[Question]:
    """The questions of a part, each with its ``split``, in the order they were drawn."""
    by_key = {(name, q.qid): q for name in EXAMS for q in load_questions(name)}
    rows = [row for row in read_sample() if row["split"] == part]
    return [replace(by_key[row["dataset"], row["qid"]], split=part) for row in rows]


def held_options(questions: Sequence[Question]) -> dict[str, str]:
    """The wrong option that the writer of wrong hypotheses holds, a letter by question id."""
    asked = {(q.dataset, q.qid) for q in questions}
    rows = read_sample()
    return {r["qid"]: r["wrong"] for r in rows if (r["dataset"], r["qid"]) in asked}
