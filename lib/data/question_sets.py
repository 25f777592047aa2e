"""Which questions a profile asks: its test questions by set, all of them or a sample."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from lib.base.files import sha256_bytes
from lib.data.questions import Question, load_questions
from lib.data.real import in_full, load_real


def question_sets(names: Sequence[str], n: int = 0, seed: int = 0) -> dict[str, list[Question]]:
    """Test questions by set and sorted by id, ``n`` of each (0 = all).

    ddx-mini gives one set for each of its three styles; its dev questions are left out. "real"
    gives one for each set that it is drawn from, of the questions that every text is written for.
    """
    sets: dict[str, list[Question]] = {}
    for name in names:
        asked = in_full(load_real("test")) if name == "real" else load_questions(name)
        for question in asked:
            if question.split != "dev":
                label = name
                if name == "ddx-mini":
                    label = f"{name} {question.subset}"
                elif name == "real":
                    label = question.dataset
                sets.setdefault(label, []).append(question)
    return {label: sampled(questions, n, seed) for label, questions in sets.items()}


def sampled(questions: Sequence[Question], n: int, seed: int = 0) -> list[Question]:
    """``n`` of the questions, by id; all of them when ``n`` is 0 or there are no more."""
    questions = sorted(questions, key=lambda q: q.qid)
    if not 0 < n < len(questions):
        return questions
    # The first n of one shuffle: a larger sample holds the smaller one, and its recordings.
    order = random.Random(seed).sample(questions, len(questions))
    return sorted(order[:n], key=lambda q: q.qid)


def few(ids: Iterable[str], n: int) -> list[str]:
    """The first ``n`` of the ids by their hash, sorted by id; all of them if there are no more."""
    return sorted(sorted(ids, key=lambda one: sha256_bytes(f"limit {one}".encode()))[:n])
