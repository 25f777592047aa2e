"""The question sets: the five of MIRAGE, and this project's own ddx-mini.

Question ids are MIRAGE's, so its prediction files and ours can be laid side by side. Without ``n``,
questions come in the order of MIRAGE's ``benchmark.json``: file order, BioASQ from task 11 down to
task 7 with batches upward (read in that file at its start, middle and end). MIRAGE's own evaluation
sorts each set by id, which moves BioASQ, MedMCQA and PubMedQA only.

Texts are cleaned by ``tidy`` with line breaks kept: runs of spaces become one, ends are stripped,
HTML entities are decoded (none occur in the questions; BioASQ snippets have some, and markup).
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lib.documents import tidy
from lib.downloads import fetch, load_registry
from lib.files import read_jsonl
from lib.paths import DDX_MINI

__all__ = [
    "Question", "SIZES", "load_questions", "load_bioasq_all", "load_bioasq_dev",
]  # fmt: skip

SIZES = {"mmlu": 1089, "medqa": 1273, "bioasq": 618, "medmcqa": 4183, "pubmedqa": 500}
_MMLU = {
    "anatomy": 135, "clinical_knowledge": 265, "college_biology": 144, "college_medicine": 173,
    "medical_genetics": 100, "professional_medicine": 272,
}  # fmt: skip
_BIOASQ = {"yesno": 618, "factoid": 740, "list": 409, "summary": 543}


@dataclass(frozen=True)
class Question:
    """One question; ``options`` maps letters to texts and ``answer`` is the right letter.

    What experts found relevant (BioASQ, PubMedQA): documents ``gold_pmids``, pieces of abstracts
    ``gold_snippets``, and beside each piece the document it is from, ``snippet_pmids``. The last
    four are ddx-mini's: the right topic, its mimic, dev or test, and the book to check in.
    """

    qid: str
    text: str
    options: dict[str, str]
    answer: str
    dataset: str
    subset: str = ""
    gold_pmids: tuple[str, ...] = ()
    gold_snippets: tuple[str, ...] = ()
    snippet_pmids: tuple[str, ...] = ()
    ideal_answer: str = ""
    question_type: str = ""
    target: str = ""
    mimic: str = ""
    split: str = ""
    check: str = ""


def load_questions(name: str, n: int | None = None, seed: int = 0) -> list[Question]:
    """Questions of "mmlu", "medqa", "bioasq", "medmcqa", "pubmedqa" or "ddx-mini".

    ``n`` asks for a random subset: sorted by qid, sampled with ``random.Random(seed)``, and sorted
    by qid again, so it depends on nothing but the ids, ``n`` and ``seed``. Raises ValueError when
    the files do not hold the number of questions that MIRAGE reports.
    """
    if name not in _LOADERS:
        raise ValueError(f"no question set {name!r}; known: {', '.join(_LOADERS)}")
    questions = list(_LOADERS[name]())
    _require(f"{name} questions", len(questions), SIZES.get(name, len(questions)))
    _require(f"distinct ids of {name}", len({q.qid for q in questions}), len(questions))
    for q in questions:
        if q.answer not in q.options:
            raise ValueError(f"{name} {q.qid}: answer {q.answer!r} is none of {list(q.options)}")
    if n is None:
        return questions
    if not 0 < n <= len(questions):
        raise ValueError(f"n={n}: {name} has {len(questions)} questions")
    questions.sort(key=lambda q: q.qid)
    return sorted(random.Random(seed).sample(questions, n), key=lambda q: q.qid)


def load_bioasq_all() -> list[Question]:
    """All 2,310 BioASQ questions of tasks 7 to 11, in MIRAGE's order; only 618 of them are tests.

    ``question_type`` is yesno, factoid, list or summary; only yesno questions have options and an
    answer. ``ideal_answer`` is the experts' first one; ``subset`` is the batch, such as "11B1".
    """
    names = [name for name in load_registry() if name.startswith("bioasq-")]
    names.sort(key=lambda name: (-int(name.split("-")[1].split("B")[0]), name))
    questions = [
        _bioasq_question(row, name.removeprefix("bioasq-"))
        for name in names
        for row in json.loads(fetch(name).read_text(encoding="utf-8"))["questions"]
    ]
    kinds = [q.question_type for q in questions]
    for kind, count in _BIOASQ.items():
        _require(f"BioASQ {kind} questions", kinds.count(kind), count)
    return questions


def load_bioasq_dev() -> list[Question]:
    """The BioASQ questions on which settings may be tuned.

    They are not yes/no, and no document of theirs belongs to one of the 618 test questions.
    """
    questions = load_bioasq_all()
    tested = {p for q in questions if q.question_type == "yesno" for p in _documents(q)}
    return [q for q in questions if q.question_type != "yesno" and tested.isdisjoint(_documents(q))]


def _documents(question: Question) -> tuple[str, ...]:
    return question.gold_pmids + question.snippet_pmids  # a few snippets are from unlisted ones


def _bioasq_question(row: dict, batch: str) -> Question:
    yes_no = row["type"] == "yesno"
    snippets = [s for s in row["snippets"] if s["text"].strip()]
    return Question(
        qid=row["id"],
        text=tidy(row["body"], keep_lines=True),
        options={"A": "yes", "B": "no"} if yes_no else {},
        answer={"yes": "A", "no": "B"}[row["exact_answer"].lower()] if yes_no else "",
        dataset="bioasq",
        subset=batch,
        gold_pmids=tuple(dict.fromkeys(map(_pmid, row["documents"]))),
        gold_snippets=tuple(s["text"] for s in snippets),
        snippet_pmids=tuple(_pmid(s["document"]) for s in snippets),
        ideal_answer=tidy(row["ideal_answer"][0]),
        question_type=row["type"],
    )


def _pmid(address: str) -> str:
    return address.rsplit("/", 1)[-1]


def _require(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{what}: found {found}, expected {expected}; the data files changed")


def _lettered(texts: Iterable[str]) -> dict[str, str]:
    return dict(zip("ABCDE", (tidy(t, keep_lines=True) for t in texts), strict=False))


def _mmlu() -> Iterator[Question]:
    for subject, count in _MMLU.items():
        with open(fetch(f"mmlu-{subject}"), encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream))
        _require(f"MMLU {subject}", len(rows), count)
        for i, (text, *options, answer) in enumerate(rows):
            text = tidy(text, keep_lines=True)
            yield Question(f"{subject}-{i:03d}", text, _lettered(options), answer, "mmlu", subject)


def _medqa() -> Iterator[Question]:
    for i, row in enumerate(read_jsonl(fetch("medqa-test"))):
        yield Question(
            f"{i:04d}", tidy(row["question"], keep_lines=True),
            _lettered(text for _, text in sorted(row["options"].items())),
            row["answer_idx"], "medqa", question_type=row["meta_info"],
        )  # fmt: skip


def _medmcqa() -> Iterator[Question]:
    for row in read_jsonl(fetch("medmcqa-dev")):
        yield Question(
            row["id"], tidy(row["question"], keep_lines=True),
            _lettered(row[f"op{letter}"] for letter in "abcd"),
            " ABCD"[row["cop"]], "medmcqa", row["subject_name"], question_type=row["choice_type"],
        )  # fmt: skip


def _pubmedqa() -> Iterator[Question]:
    rows = json.loads(fetch("pubmedqa-test").read_text(encoding="utf-8"))
    for pmid, row in rows.items():
        answer = {"yes": "A", "no": "B", "maybe": "C"}[row["final_decision"]]
        yield Question(
            pmid, tidy(row["QUESTION"], keep_lines=True), _lettered(["yes", "no", "maybe"]),
            answer, "pubmedqa", gold_pmids=(pmid,),
            gold_snippets=tuple(map(tidy, row["CONTEXTS"])),
            snippet_pmids=(pmid,) * len(row["CONTEXTS"]), ideal_answer=tidy(row["LONG_ANSWER"]),
        )  # fmt: skip


def _bioasq() -> Iterator[Question]:
    return (q for q in load_bioasq_all() if q.question_type == "yesno")


def _ddx_mini() -> Iterator[Question]:
    for row in read_jsonl(DDX_MINI / "questions.jsonl"):
        yield Question(
            row["qid"], row["question"], row["options"], row["answer"], "ddx-mini", row["style"],
            target=row["target"], mimic=row["mimic"], split=row["split"], check=row["check"],
        )  # fmt: skip


_LOADERS = {
    "mmlu": _mmlu, "medqa": _medqa, "bioasq": _bioasq,
    "medmcqa": _medmcqa, "pubmedqa": _pubmedqa, "ddx-mini": _ddx_mini,
}  # fmt: skip
