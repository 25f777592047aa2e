"""Perplexity labels of RAG2 (Equations 3 and 4), by the bundled SmolLM2: ``data/perplexity``.

    python -m tools.label_passages    (with the open data, some hours; goes on where it stopped)
    python -m tools.label_passages --model meta-llama/Meta-Llama-3-8B-Instruct --profile rag2
        --sets medqa-train medmcqa-train --out data/own/rag2-labels

The second is RAG2's own way, with any model and the passages of any profile: the model writes the
rationale, passages are found by it, and ``tools.flan_t5`` learns from the labels.

``lib.studies.rag2.labels`` says what the labels are, and what the paper leaves open.

The rationales are experts', in parts that share nothing. BioASQ's are the ideal answers of
questions that are not yes/no and share no document with the 618 test questions. MedMCQA's are its
explanations; none of its questions is a test question here. RAG2 takes the rationale that the
answering model itself wrote; an expert's is text of known truth, and the model's own is measured
beside it.
"""

from __future__ import annotations

import argparse
import lzma
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from lib.base.downloads import fetch
from lib.base.files import (
    atomic_write,
    canonical_json,
    read_jsonl,
    sha256_bytes,
    sha256_file,
    write_jsonl_gz,
)
from lib.base.paths import ROOT, cache
from lib.data.passages import Passage, tidy
from lib.datasets import (
    Question,
    load_bioasq_all,
    load_bioasq_dev,
    load_questions,
    load_real,
    question_sets,
)
from lib.embed import load_encoder
from lib.llm.prompts import load_prompt
from lib.llm.small_model import NAME, SHA256
from lib.methods.base import question_alone, stem
from lib.methods.rag2 import RAG2
from lib.model_files import digest, model_folder, pack_linear_layers
from lib.open_retriever import open_retriever
from lib.profiles import load_profile
from lib.query_spec import Request
from lib.readers import answer_messages
from lib.run import Retriever
from lib.studies.rag2.labels import CARD, COLUMNS, FOLDER, LABELS, asked_of
from lib.studies.rag2.long_answers import word_runs
from tools.causal import BUNDLED, Causal, Sampling, in_batches, open_causal
from tools.training import write_toml

PASSAGES = 6
"""Passages of each question: the nearest to it."""

REPLY_TOKENS = 96
"""A rationale is scored to the end of a word, up to here; the model's own is as long at most."""

OWN_QUESTIONS = {"bioasq": 150, "medmcqa": 100}
"""For how many questions to train on the model writes a rationale itself: the first of each set."""

OWN_RATIONALES = "own_rationales.jsonl.gz"

Part = Literal["train", "held"]

COUNTS = {
    "train": {"bioasq": 500, "medmcqa": 300},
    "held": {"bioasq": 150, "medmcqa": 100},
}
"""Questions of each set to train on, and those that are held out."""

_PROMPTS = ROOT / "lib" / "studies" / "rag2" / "prompts"
_CONTEXT_TOKENS = 8192
_SCORED_AT_ONCE, _WRITTEN_AT_ONCE = 64, 16

_LEAST_WORDS = 20
"""Shorter explanations of MedMCQA are left out: many say no more than a page of a book."""

Parts = Mapping[Part, Sequence[Question]]
"""Questions with a rationale each, their ``ideal_answer``, as an expert wrote it."""


# who is trained on --------------------------------------------------------------------------------


class Leak(ValueError):
    """A question to train on has something in common with one to test on."""


def load_parts() -> dict[Part, list[Question]]:
    """The questions of ``COUNTS``; BioASQ first, each set in the order of a hash of its ids.

    A question whose words, expert's words or documents are also those of one to train on is passed
    over when the held part is drawn. Raises ``Leak`` if a part has what it must not have.
    """
    candidates = {"bioasq": _bioasq(), "medmcqa": _medmcqa()}
    parts: dict[Part, list[Question]] = {}
    for part, counts in COUNTS.items():
        avoided = {fact for question in parts.get("train", ()) for fact in _facts(question)}
        parts[part] = []
        for dataset, count in counts.items():
            parts[part] += _drawn(candidates[dataset], part, count, avoided)
    check_leaks(parts, tested_questions())
    return parts


def _bioasq() -> list[Question]:
    """All that could be drawn: not those on which lambda is chosen."""
    used = {question.qid for question in load_real("dev")}
    return [q for q in load_bioasq_dev() if q.qid not in used and q.ideal_answer]


def _medmcqa() -> list[Question]:
    texts = {row["id"]: tidy(row["exp"] or "") for row in read_jsonl(fetch("medmcqa-dev"))}
    return [
        replace(question, ideal_answer=texts[question.qid])
        for question in load_questions("medmcqa")
        if len(texts[question.qid].split()) >= _LEAST_WORDS
    ]


def _drawn(
    candidates: Sequence[Question], part: Part, count: int, avoided: set[str]
) -> list[Question]:
    """The first ``count`` by hash that may be in the part and have none of the ``avoided`` facts.

    Of questions with the same words or the same expert's words, the first alone.
    """

    def order(question: Question) -> str:
        return sha256_bytes(f"rationale {question.dataset} {question.qid}".encode())

    drawn: list[Question] = []
    seen: set[str] = set()
    for question in sorted(candidates, key=order):
        texts = {_plain(question.text), _plain(question.ideal_answer)}
        if _in_other_half(question, part) or seen & texts or avoided & _facts(question):
            continue
        seen |= texts
        drawn.append(question)
        if len(drawn) == count:
            return drawn
    raise ValueError(f"{len(drawn)} questions for the part {part!r}, {count} are needed")


def half_of(qid: str) -> Part:
    """Which half a question of MedMCQA is in, by the sha256 of its id."""
    first_digit = int(sha256_bytes(qid.encode())[0], 16)
    return "train" if first_digit < 8 else "held"


def _in_other_half(question: Question, part: Part) -> bool:
    return question.dataset == "medmcqa" and half_of(question.qid) != part


def _facts(question: Question) -> set[str]:
    """What two questions may have in common: their words, their experts' words, a document."""
    return {_plain(question.text), _plain(question.ideal_answer), *_documents(question)}


def _documents(question: Question) -> set[str]:
    return {*question.gold_pmids, *question.snippet_pmids}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def tested_questions() -> list[Question]:
    """Everything that a filter may be tested on: BioASQ's 618 and the real sample, dev and test."""
    bioasq = [question for question in load_bioasq_all() if question.options]
    return bioasq + load_real("test") + load_real("dev")


def check_leaks(parts: Parts, tested: Iterable[Question]) -> None:
    """``Leak``, naming what is wrong, unless training saw nothing of what is tested or held.

    Refused are a question (of either part) with the words or, for yes/no questions of BioASQ, with
    a document of a tested one; a question to train on that shares its words, its expert's words or
    a document with a held one; a question that is in twice; and one of MedMCQA in the wrong half.
    """
    tested = list(tested)
    words = {_plain(question.text) for question in tested}
    documents: set[str] = set()
    for question in tested:
        if question.dataset == "bioasq" and question.options:
            documents |= _documents(question)
    trained_on = {fact for question in parts["train"] for fact in _facts(question)}
    seen = set()
    for part, questions in parts.items():
        for question in questions:
            key = (question.dataset, question.qid)
            if _documents(question) & documents:
                raise Leak(f"{question.qid} shares a document with a test question")
            if _plain(question.text) in words:
                raise Leak(f"{question.qid} asks what a test question asks")
            if _in_other_half(question, part):
                raise Leak(f"{question.qid} is not of the half {part!r}")
            if key in seen:
                raise Leak(f"{question.qid} is in twice")
            if part == "held" and trained_on & _facts(question):
                raise Leak(f"{question.qid} is held out, but shares something with one to train on")
            seen.add(key)


def without_leaks(questions: Sequence[Question], tested: Iterable[Question]) -> list[Question]:
    """The questions that ask what no tested one asks, in the same words; it is said how many do."""
    words = {_plain(question.text) for question in tested}
    kept = [question for question in questions if _plain(question.text) not in words]
    if left_out := len(questions) - len(kept):
        print(f"{left_out} of {len(questions)} ask what a tested question asks", file=sys.stderr)
    return kept


# what is asked ------------------------------------------------------------------------------------


def rationale_messages(question: Question, passage: Passage | None = None) -> list[dict]:
    """The request for a rationale: a passage if there is one, then the question and its options."""
    if passage is None:
        return load_prompt("rationale_alone", _PROMPTS).messages(question=asked_of(question))
    prompt = load_prompt("rationale_with_passage", _PROMPTS)
    document = f"{passage.title}\n{passage.text}".strip()
    return prompt.messages(document=document, question=asked_of(question))


def first_words(text: str, tokens_of: Callable[[str], Sequence[int]], most: int) -> str:
    """The first words of a text, as many as make at most ``most`` tokens; at least one word."""
    words = text.split()

    def tokens_in(count: int) -> int:
        return len(tokens_of(" ".join(words[:count])))

    fitting = bisect_right(range(len(words) + 1), most, key=tokens_in) - 1
    return " ".join(words[: max(fitting, 1)])


Nearest = Mapping[str, Sequence[Passage]]
"""Of each question, by id, its nearest passages. No two sets have an id in common."""


def find_passages(
    questions: Sequence[Question], retriever: Retriever, rationales: Sequence[str] = ()
) -> dict[str, list[Passage]]:
    """For each question the nearest passages, searched with the question alone, or with its
    rationale alone."""
    requests: list[Request] = [question_alone(question) for question in questions]
    if rationales:
        requests = [
            RAG2().given(question, text).request
            for question, text in zip(questions, rationales, strict=True)
        ]
    found = retriever.search_many(requests, PASSAGES)
    return {
        question.qid: retriever.store.get_many(hits.ids[0].tolist())
        for question, hits in zip(questions, found, strict=True)
    }


@dataclass(frozen=True)
class Labeller:
    """One model that scores rationales; what it has finished is kept in ``folder``.

    ``model_id`` names the model and its weights: other weights begin anew.
    """

    causal: Causal
    model_id: str
    folder: Path
    nearest: Nearest
    reply_tokens: int = REPLY_TOKENS

    def texts(self, name: str, questions: Sequence[Question], texts: Sequence[str]) -> pd.DataFrame:
        """Log-likelihoods of one text for each question, alone and with each of its passages.

        Columns: dataset, qid, pid, rank, tokens, log_p_without, log_p_with.
        """
        asked = []
        for question, text in zip(questions, texts, strict=True):
            scored = first_words(text, self.causal.text_tokens, self.reply_tokens)
            for passage in (None, *self.nearest[question.qid]):
                asked.append([rationale_messages(question, passage), scored])
        lengths = [
            len(self.causal.prompt_tokens(messages)) + len(self.causal.text_tokens(text))
            for messages, text in asked
        ]
        values = self._measured(name, asked, lengths, self.causal.log_likelihoods)
        rows = []
        for _, row, (without, tokens), (with_passage, _) in self._by_pair(questions, values):
            row |= {"tokens": int(tokens), "log_p_without": without, "log_p_with": with_passage}
            rows.append(row)
        return pd.DataFrame(rows)

    def letters(self, name: str, questions: Sequence[Question]) -> pd.DataFrame:
        """How probable the right letter is, alone and with each passage; questions with options.

        Columns: dataset, qid, pid, rank, p_right_without, p_right_with, right_without, right_with.
        The requests are those of ``lib.readers``' letter prompts.
        """
        options = {"context_tokens": _CONTEXT_TOKENS, "max_tokens": 1, "style": "letter"}
        asked = []
        for question in questions:
            asked.append(answer_messages(question, [], **options)[0])
            for passage in self.nearest[question.qid]:
                asked.append(answer_messages(question, [passage], **options)[0])
        letters = sorted(questions[0].options)
        if any(sorted(question.options) != letters for question in questions):
            raise ValueError("questions whose options have other letters are compared apart")
        lengths = [len(self.causal.prompt_tokens(messages)) for messages in asked]

        def measure(batch: list) -> np.ndarray:
            return self.causal.next_log_p(batch, letters)

        values = self._measured(name, asked, lengths, measure)
        rows = []
        for question, row, *both in self._by_pair(questions, values):
            right = letters.index(question.answer)
            for log_p, ending in zip(both, ("without", "with"), strict=True):
                odds = np.exp(np.array(log_p) - max(log_p))
                row[f"p_right_{ending}"] = float(odds[right] / odds.sum())
                row[f"right_{ending}"] = int(np.argmax(log_p) == right)
            rows.append(row)
        return pd.DataFrame(rows)

    def written(
        self,
        name: str,
        questions: Sequence[Question],
        messages_of: Callable[[Question], list[dict]] = rationale_messages,
    ) -> list[str]:
        """The model's own rationale for each question, without a passage, always the likeliest."""
        asked = [messages_of(question) for question in questions]
        most = self.reply_tokens
        lengths = [len(self.causal.prompt_tokens(messages)) + most for messages in asked]
        sampling = Sampling(max_tokens=most, temperature=0.0)

        def measure(batch: list) -> list:
            return [" ".join(reply.split()) for reply in self.causal.write(batch, sampling)]

        # Results are cached by this name, so replies with other sampling settings are not mixed in.
        full = f"{name}, {sampling}, {self.model_id}"
        return in_batches(full, asked, lengths, measure, self.folder, _WRITTEN_AT_ONCE)

    def _measured(self, name: str, asked: list, lengths: list[int], measure: Callable) -> list:
        def numbers(batch: list) -> list:
            return measure(batch).tolist()

        full = f"{name}, {self.model_id}"
        return in_batches(full, asked, lengths, numbers, self.folder, _SCORED_AT_ONCE)

    def _by_pair(self, questions: Sequence[Question], values: Iterable) -> Iterator[tuple]:
        """(question, its columns, what was measured without a passage, with it), by passage."""
        values = iter(values)
        for question in questions:
            without = next(values)
            for rank, passage in enumerate(self.nearest[question.qid], 1):
                row = {"dataset": question.dataset, "qid": question.qid}
                yield question, row | {"pid": passage.pid, "rank": rank}, without, next(values)


def make_labels(
    labeller: Labeller, parts: Parts, own_questions: Mapping[str, int] = OWN_QUESTIONS
) -> tuple[pd.DataFrame, list[dict]]:
    """The table of ``COLUMNS``, and the model's own rationales: dataset, qid, text.

    What is of use first is measured first: experts' rationales to train on, the held ones, the
    letters, and at last the model's own rationales. An own rationale without a word has no rows;
    one that repeats the words of others is measured as it was written, and kept as "".
    """
    groups = {
        (part, dataset): [question for question in parts[part] if question.dataset == dataset]
        for part in parts
        for dataset in own_questions
    }
    tables, letters, own = [], [], []
    for (part, dataset), group in groups.items():
        name = f"expert, {part}, {dataset}"
        table = labeller.texts(name, group, [question.ideal_answer for question in group])
        tables.append(table.assign(part=part, rationale="expert"))
    for (part, dataset), group in groups.items():
        if group[0].options:
            table = labeller.letters(f"letters, {part}, {dataset}", group)
            letters.append(table.assign(part=part))
    for dataset, count in own_questions.items():
        first = groups["train", dataset][:count]
        replies = labeller.written(f"written, {dataset}", first)
        wrote = [(question, reply) for question, reply in zip(first, replies, strict=True) if reply]
        for question, reply in wrote:
            own.append({"dataset": dataset, "qid": question.qid, "text": _kept(question, reply)})
        asked, texts = [question for question, _ in wrote], [reply for _, reply in wrote]
        table = labeller.texts(f"own, {dataset}", asked, texts)
        tables.append(table.assign(part="train", rationale="own"))
    pair = ["dataset", "part", "qid", "pid", "rank"]
    labels = pd.concat(tables, ignore_index=True).merge(pd.concat(letters), "left", pair)
    # No machine's last digits; whole numbers, where there are any.
    digits = {"log_p_without": 4, "log_p_with": 4, "p_right_without": 5, "p_right_with": 5}
    labels = labels[list(COLUMNS)].round(digits)
    return labels.astype({"right_without": "Int64", "right_with": "Int64"}), own


def label_own(
    labeller: Labeller, questions: Sequence[Question], retriever: Retriever
) -> tuple[pd.DataFrame, list[dict]]:
    """As ``make_labels`` of the model's own rationales alone, which are asked for as ``RAG2`` asks:
    passages are found by the rationale, all questions are to train on, and no letters are
    compared."""

    def steps(question: Question) -> list[dict]:
        return load_prompt(RAG2.prompt).messages(question=stem(question, options_visible=True))

    replies = labeller.written("written in steps", questions, steps)
    wrote = [(question, reply) for question, reply in zip(questions, replies, strict=True) if reply]
    asked, texts = [question for question, _ in wrote], [reply for _, reply in wrote]
    found = replace(labeller, nearest=find_passages(asked, retriever, texts))
    labels = found.texts("own", asked, texts).assign(part="train", rationale="own")
    labels = labels.reindex(columns=list(COLUMNS)).round({"log_p_without": 4, "log_p_with": 4})
    rows = [{"dataset": q.dataset, "qid": q.qid, "text": text} for q, text in wrote]
    return labels.astype({"right_without": "Int64", "right_with": "Int64"}), rows


def _kept(question: Question, text: str) -> str:
    """An own rationale as it is kept: "" where it repeats the words of others.

    A small model at times says the question again; 25 words in a row are not its own.
    """
    theirs = {*word_runs(asked_of(question)), *word_runs(question.ideal_answer)}
    return text if theirs.isdisjoint(word_runs(text)) else ""


def write_labels(
    labels: pd.DataFrame, own: Sequence[dict], folder: Path, made: Mapping[str, object]
) -> None:
    """Write the labels, the model's own rationales and a card: the same labels, the same bytes.

    ``made`` is what the card says besides: numbers and texts.
    """
    content = labels.to_csv(index=False, lineterminator="\n").encode()
    atomic_write(folder / LABELS, lzma.compress(content, preset=6))
    write_jsonl_gz(folder / OWN_RATIONALES, own)
    card = {
        "rows": len(labels),
        "labels_sha256": sha256_file(folder / LABELS),
        "own_rationales_sha256": sha256_file(folder / OWN_RATIONALES),
        **made,
    }
    write_toml(card, folder / CARD)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the labels of the open corpus with the bundled model, or of other sets with another; or
    go on where a run stopped."""
    parser = argparse.ArgumentParser(prog="python -m tools.label_passages")
    parser.add_argument("--model", default=BUNDLED, help="any causal model: of the hub or a folder")
    parser.add_argument("--profile", default="open", help="whose passages are labelled")
    parser.add_argument("--sets", nargs="+", help="question sets to train on")
    parser.add_argument("--questions", type=int, default=0, help="of each set; 0: all")
    parser.add_argument("--out", type=Path, default=FOLDER)
    asked = parser.parse_args(arguments)
    if bool(asked.sets) != (asked.out != FOLDER):
        parser.error("--sets goes with --out: data/perplexity has the shipped labels")
    started = time.monotonic()
    profile = load_profile(asked.profile)
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    retriever = open_retriever(profile, encoder)
    bundled = asked.model == BUNDLED
    causal = open_causal(asked.model, device="cpu" if bundled else None)
    if bundled:
        # Every token of a rationale is looked up in the whole vocabulary: a third of all the work.
        pack_linear_layers(causal.model.lm_head)
    weights = SHA256 if bundled else digest(model_folder(asked.model))
    name = NAME if bundled else asked.model
    most = RAG2.max_tokens if asked.sets else REPLY_TOKENS
    labeller = Labeller(causal, f"{name} {weights[:8]}", cache("perplexity"), {}, most)
    if asked.sets:
        sets = question_sets(asked.sets, asked.questions)
        tested = question_sets(list(profile.questions)).values()
        of_profile = [question for of_set in tested for question in of_set]
        questions = without_leaks(
            [question for of_set in sets.values() for question in of_set],
            [*tested_questions(), *(q for q in of_profile if q.dataset not in asked.sets)],
        )
        labels, own = label_own(labeller, questions, retriever)
    else:
        parts = load_parts()
        nearest = find_passages([*parts["train"], *parts["held"]], retriever)
        labels, own = make_labels(replace(labeller, nearest=nearest), parts)
    prompts = [
        asdict(load_prompt("rationale_alone", _PROMPTS)),
        asdict(load_prompt("rationale_with_passage", _PROMPTS)),
        asdict(load_prompt("letter_closed_book")),
        asdict(load_prompt("letter_with_documents")),
    ]
    made = {
        "date": date.today().isoformat(),
        "command": " ".join(["python -m tools.label_passages", *(arguments or sys.argv[1:])]),
        "minutes": round((time.monotonic() - started) / 60, 1),
        "model": name,
        "model_sha256": weights,
        "torch": version("torch"),
        "transformers": version("transformers"),
        "passages": PASSAGES,
        "reply_tokens": most,
        "encoder": encoder.fingerprint,
        "corpora": list(profile.corpora),
        "prompts_sha256": sha256_bytes(canonical_json(prompts).encode()),
    }
    if asked.sets:
        made |= {"profile": asked.profile, "sets": asked.sets, "questions": asked.questions}
    write_labels(labels, own, asked.out, made)
    print(f"{len(labels)} rows in {asked.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
