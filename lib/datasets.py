"""Questions: the five sets of MIRAGE, this project's own ddx-mini, and a sample of real questions.

Question ids are MIRAGE's, so its prediction files and ours can be laid side by side. Without ``n``,
questions come in the order of MIRAGE's ``benchmark.json``, which is that of the registry and of the
files; its own evaluation sorts by id, which moves BioASQ, MedMCQA and PubMedQA only. Texts are
cleaned by ``tidy`` with line breaks kept, but BioASQ snippets are as they were.

The real sample ("real") is where the paper's claim is measured: on what a capable language model
writes about real questions. They are drawn by the hash of their ids. Test: all 618 yes/no questions
of BioASQ, 150 of MedQA, 150 of MMLU-Med. Dev, on which lambda is chosen: 40 and 40 further exam
questions, and 60 BioASQ questions that are not yes/no. Exam questions that refer to a picture are
left out; ``data/real/pictures.csv`` lists them.
"""

from __future__ import annotations

import csv
import json
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from lib.base.downloads import DownloadError, fetch, load_registry
from lib.base.files import read_jsonl, sha256_bytes
from lib.base.paths import DATA, DDX_MINI, is_own, mirror_folder, say_once
from lib.data.passages import tidy
from lib.data.questions import Question

MOST_OPTIONS = len(string.ascii_uppercase)
"""Options of a question at most: prompts and readers call each by a letter."""

_tidy_lines = partial(tidy, keep_lines=True)
"""Cleaned text whose line breaks stay, as in the laboratory tables of exam questions."""


_Reader = Callable[[], Iterable[Question]]
SIZES: dict[str, int] = {}
"""How many questions each set has, as MIRAGE reports it."""
_READERS: dict[str, _Reader] = {}


def question_set(name: str, size: int) -> Callable[[_Reader], _Reader]:
    """Declare that the function below reads a question set: it can be loaded and named in profiles.

    ``size`` is how many questions it has; a file with another number is refused.
    """

    def declared(read: _Reader) -> _Reader:
        SIZES[name], _READERS[name] = size, read
        return read

    return declared


def load_questions(name: str) -> list[Question]:
    """Questions of "mmlu", "medqa", "bioasq", "medmcqa", "pubmedqa", "ddx-mini", a set that is
    declared, or a path (see ``lib.forms.read_questions``), of which is printed what was read.

    "medqa-train" and "medmcqa-train", which RAG2 learns from, come from the hub.

    Raises ValueError for another number of questions than declared, two of one id, more than
    ``MOST_OPTIONS`` options, or an answer that is none of them.
    """
    if is_own(name):
        from lib.forms import read_questions

        own, report = read_questions(name)
        say_once(f"questions: {report}")
        return own
    if name not in _READERS:
        raise ValueError(
            f"no question set {name!r}; known: {', '.join(_READERS)}. A file of your own has a "
            f"suffix, a folder a slash: {name}/"
        )
    questions = list(_READERS[name]())
    if len(questions) != SIZES[name]:
        raise ValueError(f"{name}: found {len(questions)} questions, expected {SIZES[name]}")
    seen: set[str] = set()
    for question in questions:
        options, fault = question.options, ""
        if question.qid in seen:
            fault = "stands twice; each would count twice"
        elif len(options) > MOST_OPTIONS:
            fault = f"has {len(options)} options, and at most {MOST_OPTIONS} are read"
        elif options and question.answer not in options:
            fault = f"has the answer {question.answer!r}, and the options {', '.join(options)}"
        if fault:
            row = f"{name}: question {question.qid!r}"
            raise ValueError(f"{row} {fault}. Next: mend its row in the file, or leave it out")
        seen.add(question.qid)
    return questions


def load_bioasq_all() -> list[Question]:
    """All 2,310 BioASQ questions of tasks 7 to 11, in MIRAGE's order; only 618 of them are tests.

    ``question_type`` is yesno, factoid, list or summary; only yesno questions have options and an
    answer. ``ideal_answer`` is the experts' first one; ``subset`` is the batch, such as "11B1".
    """
    return [
        _bioasq_question(row, name.removeprefix("bioasq-"))
        for name in load_registry("bioasq-")
        for row in _fetch_json(name)["questions"]
    ]


def load_bioasq_dev() -> list[Question]:
    """The BioASQ questions on which settings may be tuned.

    They are not yes/no, and no document of theirs belongs to one of the 618 test questions.
    """
    everything = load_bioasq_all()
    tested: set[str] = set()
    for question in everything:
        if question.options:
            tested |= _documents(question)
    return [q for q in everything if not q.options and tested.isdisjoint(_documents(q))]


def _documents(question: Question) -> set[str]:
    """The PubMed ids of all its documents: a few snippets are from some that are not listed."""
    return {*question.gold_pmids, *question.snippet_pmids}


def _bioasq_question(row: dict, batch: str) -> Question:
    options, answer = {}, ""
    if row["type"] == "yesno":
        options = {"A": "yes", "B": "no"}
        answer = {"yes": "A", "no": "B"}[row["exact_answer"].lower()]
    pmids = [_pmid(address) for address in row["documents"]]
    snippets = [snippet for snippet in row["snippets"] if snippet["text"].strip()]
    return Question(
        qid=row["id"],
        text=_tidy_lines(row["body"]),
        options=options,
        answer=answer,
        dataset="bioasq",
        subset=batch,
        gold_pmids=tuple(dict.fromkeys(pmids)),  # each once, in their order
        gold_snippets=tuple(snippet["text"] for snippet in snippets),
        snippet_pmids=tuple(_pmid(snippet["document"]) for snippet in snippets),
        ideal_answer=tidy(row["ideal_answer"][0]),
        question_type=row["type"],
    )


def _pmid(address: str) -> str:
    """The PubMed id at the end of a document's address."""
    return address.rsplit("/", 1)[-1]


def _fetch_json(name: str) -> dict:
    return json.loads(fetch(name).read_text(encoding="utf-8"))


def _lettered(texts: Iterable[str]) -> dict[str, str]:
    """Options under the letters A, B, ... in their order."""
    texts = list(texts)
    # One more than there are letters for is refused where its question is known.
    letters = [*string.ascii_uppercase, *map(str, range(MOST_OPTIONS, len(texts)))]
    return {letter: _tidy_lines(text) for letter, text in zip(letters, texts, strict=False)}


@question_set("mmlu", 1089)
def _mmlu() -> Iterator[Question]:
    for name in load_registry("mmlu-"):
        subject = name.removeprefix("mmlu-")
        with open(fetch(name), encoding="utf-8", newline="") as stream:
            for i, (text, *options, answer) in enumerate(csv.reader(stream)):
                yield Question(
                    qid=f"{subject}-{i:03d}",
                    text=_tidy_lines(text),
                    options=_lettered(options),
                    answer=answer,
                    dataset="mmlu",
                    subset=subject,
                )


@question_set("medqa", 1273)
def _medqa() -> Iterator[Question]:
    return _medqa_questions(read_jsonl(fetch("medqa-test")), "medqa", "")


@question_set("medqa-train", 10_178)
def _medqa_train() -> Iterator[Question]:
    file = _hub_file("GBaker/MedQA-USMLE-4-options", "phrases_no_exclude_train.jsonl")
    return _medqa_questions(read_jsonl(file), "medqa-train", "train-")


def _medqa_questions(rows: Iterable[dict], dataset: str, before: str) -> Iterator[Question]:
    for i, row in enumerate(rows):
        options = _lettered(text for _, text in sorted(row["options"].items()))
        yield Question(
            qid=f"{before}{i:04d}",
            text=_tidy_lines(row["question"]),
            options=options,
            answer=row["answer_idx"],
            dataset=dataset,
            question_type=row["meta_info"],
        )


def _hub_file(repository: str, name: str) -> Path:
    """A file of a data set of the hub, downloaded once; with a mirror from its folder ``hub``.

    DownloadError where it is in neither.
    """
    mirror = mirror_folder()
    if mirror and (mirror / "hub" / repository / name).is_file():
        return mirror / "hub" / repository / name
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repository, name, repo_type="dataset"))
    except (OSError, ValueError) as error:
        raise DownloadError(
            f"the hub gave no {name} of {repository} ({type(error).__name__}). Next: connect to "
            f"the network, or put it into a mirror as hub/{repository}/{name} (CHR_MIRROR)"
        ) from error


@question_set("bioasq", 618)
def _bioasq() -> Iterator[Question]:
    return (question for question in load_bioasq_all() if question.options)


@question_set("medmcqa", 4183)
def _medmcqa() -> Iterator[Question]:
    return _medmcqa_questions(read_jsonl(fetch("medmcqa-dev")), "medmcqa", first=1)


@question_set("medmcqa-train", 182_822)
def _medmcqa_train() -> Iterator[Question]:
    file = _hub_file("openlifescienceai/medmcqa", "data/train-00000-of-00001.parquet")
    import pandas as pd

    rows = pd.read_parquet(file).to_dict("records")
    return _medmcqa_questions(rows, "medmcqa-train", first=0)


def _medmcqa_questions(rows: Iterable[dict], dataset: str, first: int) -> Iterator[Question]:
    """``first``: the number of the first option, as the file counts."""
    for row in rows:
        options = _lettered(row[f"op{letter}"] for letter in "abcd")
        yield Question(
            qid=row["id"],
            text=_tidy_lines(row["question"]),
            options=options,
            answer="ABCD"[row["cop"] - first],
            dataset=dataset,
            subset=row["subject_name"],
            question_type=row["choice_type"],
        )


@question_set("pubmedqa", 500)
def _pubmedqa() -> Iterator[Question]:
    letter_of = {"yes": "A", "no": "B", "maybe": "C"}
    for pmid, row in _fetch_json("pubmedqa-test").items():
        yield Question(
            qid=pmid,
            text=_tidy_lines(row["QUESTION"]),
            options=_lettered(letter_of),
            answer=letter_of[row["final_decision"]],
            dataset="pubmedqa",
            gold_pmids=(pmid,),
            gold_snippets=tuple(map(tidy, row["CONTEXTS"])),
            snippet_pmids=(pmid,) * len(row["CONTEXTS"]),
            ideal_answer=tidy(row["LONG_ANSWER"]),
        )


@question_set("ddx-mini", 120)
def _ddx_mini() -> Iterator[Question]:
    for row in read_jsonl(DDX_MINI / "questions.jsonl"):
        # Its other fields are called as those of Question.
        text = row.pop("question")
        subset = row.pop("style")
        yield Question(text=text, subset=subset, dataset="ddx-mini", **row)


# the real sample --------------------------------------------------------------------------------

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
    """In the order of the hashes of their ids: a draw that is the same on every machine."""
    return sorted(questions, key=lambda q: sha256_bytes(f"real {q.dataset} {q.qid}".encode()))


# what a profile asks ------------------------------------------------------------------------------


def question_sets(names: Sequence[str], n: int = 0) -> dict[str, list[Question]]:
    """Test questions by set and sorted by id, ``n`` of each (0 = all).

    ddx-mini gives one set for each of its three styles; its dev questions are left out. "real"
    gives one for each set that it is drawn from, of the questions that every text is written for.
    Questions of your own are the set that their field ``dataset`` says, or "own"; ValueError where
    one id stands twice in a set.
    """
    sets: dict[str, list[Question]] = {}
    for name in names:
        questions = in_full(load_real("test")) if name == "real" else load_questions(name)
        for question in questions:
            label = name
            if name == "ddx-mini":
                label = f"{name} {question.subset}"
            elif name == "real" or is_own(name):
                label = question.dataset
            if question.split != "dev":
                sets.setdefault(label, []).append(question)
    for label, questions in sets.items():
        (qid, times), *_ = Counter(question.qid for question in questions).most_common(1)
        if times > 1:
            raise ValueError(f"{label}: the id {qid!r} stands {times} times in its files")
    return {label: sampled(questions, n) for label, questions in sets.items()}


def sampled(questions: Sequence[Question], n: int, seed: int = 0) -> list[Question]:
    """``n`` of the questions, by id; all of them when ``n`` is 0 or there are no more."""
    questions = sorted(questions, key=lambda q: q.qid)
    if not 0 < n < len(questions):
        return questions
    # The first n of one shuffle: a larger sample holds the smaller one, and its recordings.
    order = random.Random(seed).sample(questions, len(questions))
    return sorted(order[:n], key=lambda q: q.qid)


def dev_of(questions: Sequence[Question], share: float) -> list[Question]:
    """The share of a set's questions on which a setting may be chosen: the last by the hashes of
    their ids. The first are the real sample's."""
    dev = round(share * len(questions))
    return _by_hash(questions)[len(questions) - dev :]


def few(ids: Iterable[str], n: int) -> list[str]:
    """The first ``n`` of the ids by their hash, sorted by id; all of them if there are no more."""
    return sorted(sorted(ids, key=lambda one: sha256_bytes(f"limit {one}".encode()))[:n])
