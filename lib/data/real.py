"""The real sample: exam questions and BioASQ questions, drawn by the hash of their ids.

It is where the paper's claim is measured: what a capable language model writes about real
questions. Test: all 618 yes/no questions of BioASQ, 150 of MedQA, 150 of MMLU-Med. Dev, on which
lambda is chosen: 40 and 40 further exam questions, and 60 BioASQ questions that are not yes/no.
Exam questions that refer to a picture are left out; ``data/real/pictures.csv`` lists them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from lib.base.files import sha256_bytes
from lib.base.paths import DATA
from lib.data.questions import Question, load_bioasq_dev, load_questions

EXAMS = ("medqa", "mmlu")
"""The sets with four options; BioASQ's are yes and no."""

GROUPS: Mapping[str, tuple[str, ...]] = {"exams": EXAMS, "bioasq": ("bioasq",)}
"""The sets that are measured together: exams by judging, BioASQ by the experts' snippets."""

Split = Literal["dev", "test"]

_TEST, _DEV, _BIOASQ_DEV = 150, 40, 60
"""Test and dev questions of each exam set, and dev questions of BioASQ."""

_FULL = 150
"""BioASQ questions for which every kind of text is written."""

_EXCEPTION = re.compile(r"\b(EXCEPT|NOT|LEAST|FALSE|INCORRECT)\b|\bexcept:?\s*$")


def load_real(split: Split) -> list[Question]:
    """The questions of one half, each with its ``split``: medqa, mmlu, then bioasq.

    The order within a set is that of the hashes, so the first n of a set are a sample of it.
    """
    if split not in ("dev", "test"):
        raise ValueError(f"the sample has the splits dev and test, not {split!r}")
    chosen = []
    for name in EXAMS:
        drawn = _by_hash(q for q in load_questions(name) if q.qid not in pictures(name))
        test, rest = drawn[:_TEST], drawn[_TEST:]
        tested = {q.text for q in test}  # a few stems stand in a set twice
        chosen += test if split == "test" else [q for q in rest if q.text not in tested][:_DEV]
    if split == "test":
        chosen += _by_hash(load_questions("bioasq"))
    else:
        chosen += _by_hash(load_bioasq_dev())[:_BIOASQ_DEV]
    return [replace(question, split=split) for question in chosen]


def in_full(questions: Sequence[Question]) -> list[Question]:
    """Those for which every kind of text is written: all exam questions and 150 of BioASQ."""
    bioasq = [q for q in questions if q.dataset == "bioasq"][:_FULL]
    return [q for q in questions if q.dataset != "bioasq"] + bioasq


def pictures(dataset: str) -> frozenset[str]:
    """Ids of the questions of a set that refer to a picture which the set does not have."""
    with open(DATA / "real" / "pictures.csv", encoding="utf-8", newline="") as stream:
        return frozenset(row["qid"] for row in csv.DictReader(stream) if row["dataset"] == dataset)


def asks_for_the_exception(question: Question) -> bool:
    """Whether the right option is the one that does *not* fit, as in "all of these EXCEPT"."""
    return bool(_EXCEPTION.search(question.text))


def _by_hash(questions: Iterable[Question]) -> list[Question]:
    """In the order of the hashes of their ids: as good as drawn, and the same for everybody."""
    return sorted(questions, key=lambda q: sha256_bytes(f"real {q.dataset} {q.qid}".encode()))
