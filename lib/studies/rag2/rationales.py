"""Experts' rationales: what people wrote about why an answer is right, in parts that share nothing.

BioASQ's are the ideal answers of questions that are not yes/no and share no document with the 618
test questions. MedMCQA's are its explanations; none of its questions is a test question here. RAG2
takes the rationale that the answering model itself wrote; an expert's is text of known truth, and
the model's own is measured beside it (``lib.studies.rag2.labels``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lib.base.downloads import fetch
from lib.base.files import read_jsonl, sha256_bytes
from lib.data.passages import tidy
from lib.datasets import Question, load_bioasq_all, load_bioasq_dev, load_questions, load_real

Part = Literal["train", "held"]

TRAIN = {"bioasq": 500, "medmcqa": 300}
"""Questions of each set to train on."""

HELD = {"bioasq": 150, "medmcqa": 100}
"""Questions of each set that are held out."""

LEAST_WORDS = 20
"""Shorter explanations of MedMCQA are left out: many say no more than a page of a book."""


class Leak(ValueError):
    """A question to train on has something in common with one to test on."""


@dataclass(frozen=True)
class Rationale:
    """A question and why its answer is right, as an expert wrote it (``expert``).

    ``options`` and ``answer`` (a letter) are empty for BioASQ; ``documents`` are the PubMed ids
    behind a question of BioASQ, and empty for MedMCQA.
    """

    dataset: str
    qid: str
    part: Part
    question: str
    options: dict[str, str]
    answer: str
    expert: str
    documents: frozenset[str] = frozenset()

    @property
    def asked(self) -> str:
        """The question and, where it has options, a line for each of them."""
        lines = [f"{letter}. {self.options[letter]}" for letter in sorted(self.options)]
        return "\n".join([self.question, *lines])


def explanations() -> dict[str, str]:
    """MedMCQA's explanations of 20 words or more, white space and markup tidied, by question id."""
    texts = {row["id"]: tidy(row["exp"] or "") for row in read_jsonl(fetch("medmcqa-dev"))}
    return {qid: text for qid, text in texts.items() if len(text.split()) >= LEAST_WORDS}


def half_of(qid: str) -> Part:
    """Which half a question of MedMCQA is in, by the sha256 of its id."""
    first_digit = int(sha256_bytes(qid.encode())[0], 16)
    return "train" if first_digit < 8 else "held"


def load_rationales() -> list[Rationale]:
    """All of ``TRAIN``, then all of ``HELD``; BioASQ first, in the order of a hash of their ids.

    A question whose words, expert's words or documents are also those of one to train on is passed
    over when the held part is drawn. Raises ``Leak`` if a part has what it must not have.
    """
    candidates = {"bioasq": _bioasq(), "medmcqa": _medmcqa()}
    train: list[Rationale] = []
    for dataset, count in TRAIN.items():
        train += _drawn(candidates[dataset], "train", count, avoided=set())
    seen = {fact for rationale in train for fact in _facts(rationale)}
    held: list[Rationale] = []
    for dataset, count in HELD.items():
        held += _drawn(candidates[dataset], "held", count, avoided=seen)
    check_leaks(train + held, tested_questions())
    return train + held


def tested_questions() -> list[Question]:
    """Everything that a filter may be tested on: BioASQ's 618 and the real sample, dev and test."""
    bioasq = [question for question in load_bioasq_all() if question.options]
    return bioasq + load_real("test") + load_real("dev")


def check_leaks(rationales: Sequence[Rationale], tested: Iterable[Question]) -> None:
    """``Leak``, naming what is wrong, unless training saw nothing of what is tested or held.

    Refused are a question (of either part) with the words or, for yes/no questions of BioASQ, with
    a document of a tested one; a question to train on that shares its words, its expert's words or
    a document with a held one; a question that is in twice; and one of MedMCQA in the wrong half.
    """
    tested = list(tested)
    words = {_plain(question.text) for question in tested}
    documents = {
        pmid
        for question in tested
        if question.dataset == "bioasq" and question.options
        for pmid in (*question.gold_pmids, *question.snippet_pmids)
    }
    for rationale in rationales:
        if rationale.documents & documents:
            raise Leak(f"{rationale.qid} shares a document with a test question")
        if _plain(rationale.question) in words:
            raise Leak(f"{rationale.qid} asks what a test question asks")
        if rationale.dataset == "medmcqa" and half_of(rationale.qid) != rationale.part:
            raise Leak(f"{rationale.qid} is not of the half {rationale.part!r}")
    ids = [(rationale.dataset, rationale.qid) for rationale in rationales]
    if len(set(ids)) < len(ids):
        raise Leak("a question is in twice")
    train = {fact for r in rationales if r.part == "train" for fact in _facts(r)}
    for rationale in rationales:
        if rationale.part == "held" and train & _facts(rationale):
            raise Leak(f"{rationale.qid} is held out, but shares something with one to train on")


def _bioasq() -> list[Rationale]:
    """All that could be drawn: not those on which lambda is chosen. Their part is set later."""
    used = {question.qid for question in load_real("dev")}
    return [
        Rationale(
            dataset="bioasq",
            qid=question.qid,
            part="train",
            question=question.text,
            options={},
            answer="",
            expert=question.ideal_answer,
            documents=frozenset({*question.gold_pmids, *question.snippet_pmids}),
        )
        for question in load_bioasq_dev()
        if question.qid not in used and question.ideal_answer
    ]


def _medmcqa() -> list[Rationale]:
    experts = explanations()
    return [
        Rationale(
            dataset="medmcqa",
            qid=question.qid,
            part=half_of(question.qid),
            question=question.text,
            options=question.options,
            answer=question.answer,
            expert=experts[question.qid],
        )
        for question in load_questions("medmcqa")
        if question.qid in experts
    ]


def _drawn(
    candidates: Sequence[Rationale], part: Part, count: int, avoided: set[str]
) -> list[Rationale]:
    """The first ``count`` by hash that may be in the part and have none of the ``avoided`` facts.

    Of questions with the same words or the same expert's words, the first alone.
    """
    drawn: list[Rationale] = []
    said: set[str] = set()
    for candidate in sorted(candidates, key=_place):
        texts = {_plain(candidate.question), _plain(candidate.expert)}
        of_other_half = candidate.dataset == "medmcqa" and candidate.part != part
        if of_other_half or said & texts or avoided & _facts(candidate):
            continue
        said |= texts
        drawn.append(replace(candidate, part=part))
        if len(drawn) == count:
            return drawn
    raise ValueError(f"{len(drawn)} questions for the part {part!r}, {count} are needed")


def _place(rationale: Rationale) -> str:
    return sha256_bytes(f"rationale {rationale.dataset} {rationale.qid}".encode())


def _facts(rationale: Rationale) -> set[str]:
    """What two questions may have in common: their words, their experts' words, a document."""
    return {_plain(rationale.question), _plain(rationale.expert), *rationale.documents}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
