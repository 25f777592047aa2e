"""Perplexity labels of RAG2 (Equations 3 and 4), by the bundled SmolLM2: ``data/perplexity``.

    python -m tools.label_passages    (with the open data, some hours; goes on where it stopped)

``lib.studies.rag2.labels`` says what the labels are, and what the paper leaves open.

The rationales are experts', in parts that share nothing. BioASQ's are the ideal answers of
questions that are not yes/no and share no document with the 618 test questions. MedMCQA's are its
explanations; none of its questions is a test question here. RAG2 takes the rationale that the
answering model itself wrote; an expert's is text of known truth, and the model's own is measured
beside it.
"""

from __future__ import annotations

import lzma
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from lib.datasets import Question, load_bioasq_all, load_bioasq_dev, load_questions, load_real
from lib.embed import load_encoder
from lib.llm.prompts import load_prompt
from lib.llm.small_model import NAME, SHA256
from lib.methods.base import question_alone
from lib.model_files import pack_linear_layers
from lib.open_retriever import open_retriever
from lib.profiles import load_profile
from lib.readers import answer_messages
from lib.run import Retriever
from lib.studies.rag2.labels import CARD, COLUMNS, FOLDER, LABELS, asked_of
from tools.causal import BUNDLED, Causal, Sampling, in_batches, open_causal
from tools.slhyde_writer import runs_of
from tools.training import write_toml

PASSAGES = 6
"""Passages of each question: the nearest to it."""

REPLY_TOKENS = 96
"""A rationale is scored to the end of a word, up to here; the model's own is as long at most."""

OWN_QUESTIONS = {"bioasq": 150, "medmcqa": 100}
"""For how many questions to train on the model writes a rationale itself: the first of each set."""

OWN_RATIONALES = "own_rationales.jsonl.gz"

_PROMPTS = ROOT / "lib" / "studies" / "rag2" / "prompts"
_CONTEXT_TOKENS = 8192
_SCORED_AT_ONCE, _WRITTEN_AT_ONCE = 64, 16
_REPEATED = 25

Passages = Sequence[Sequence[Passage]]
"""Of each question its nearest passages."""


# who is trained on --------------------------------------------------------------------------------

Part = Literal["train", "held"]

TRAIN = {"bioasq": 500, "medmcqa": 300}
"""Questions of each set to train on."""

HELD = {"bioasq": 150, "medmcqa": 100}
"""Questions of each set that are held out."""

_LEAST_WORDS = 20
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
        return asked_of(Question(self.qid, self.question, self.options, self.answer, self.dataset))


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
    texts = {row["id"]: tidy(row["exp"] or "") for row in read_jsonl(fetch("medmcqa-dev"))}
    return [
        Rationale(
            dataset="medmcqa",
            qid=question.qid,
            part=half_of(question.qid),
            question=question.text,
            options=question.options,
            answer=question.answer,
            expert=texts[question.qid],
        )
        for question in load_questions("medmcqa")
        if len(texts[question.qid].split()) >= _LEAST_WORDS
    ]


def _drawn(
    candidates: Sequence[Rationale], part: Part, count: int, avoided: set[str]
) -> list[Rationale]:
    """The first ``count`` by hash that may be in the part and have none of the ``avoided`` facts.

    Of questions with the same words or the same expert's words, the first alone.
    """

    def order(rationale: Rationale) -> str:
        return sha256_bytes(f"rationale {rationale.dataset} {rationale.qid}".encode())

    drawn: list[Rationale] = []
    seen: set[str] = set()
    for candidate in sorted(candidates, key=order):
        texts = {_plain(candidate.question), _plain(candidate.expert)}
        of_other_half = candidate.dataset == "medmcqa" and candidate.part != part
        if of_other_half or seen & texts or avoided & _facts(candidate):
            continue
        seen |= texts
        drawn.append(replace(candidate, part=part))
        if len(drawn) == count:
            return drawn
    raise ValueError(f"{len(drawn)} questions for the part {part!r}, {count} are needed")


def _facts(rationale: Rationale) -> set[str]:
    """What two questions may have in common: their words, their experts' words, a document."""
    return {_plain(rationale.question), _plain(rationale.expert), *rationale.documents}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def check_training(
    pairs: pd.DataFrame, rationales: Sequence[Rationale], tested: Iterable[Question]
) -> None:
    """``Leak`` unless all pairs may be trained on.

    Refused are pairs and questions of another part than "train", a question that is unknown, and
    one that shares a document or its words with a tested one (``check_leaks``).
    """
    to_train_on = {(r.dataset, r.qid): r for r in rationales if r.part == "train"}
    used = sorted(set(zip(pairs["dataset"], pairs["qid"], strict=True)))
    wrong = [qid for dataset, qid in used if (dataset, qid) not in to_train_on]
    wrong += pairs.loc[pairs["part"] != "train", "qid"].tolist()
    if wrong:
        raise Leak(f"{wrong[0]} is none to train on")
    check_leaks([to_train_on[key] for key in used], tested)


# what is asked ------------------------------------------------------------------------------------


def rationale_messages(rationale: Rationale, passage: Passage | None = None) -> list[dict]:
    """The request for a rationale: a passage if there is one, then the question and its options."""
    if passage is None:
        return load_prompt("rationale_alone", _PROMPTS).messages(question=rationale.asked)
    prompt = load_prompt("rationale_with_passage", _PROMPTS)
    document = f"{passage.title}\n{passage.text}".strip()
    return prompt.messages(document=document, question=rationale.asked)


def first_words(text: str, tokens_of: Callable[[str], Sequence[int]], most: int) -> str:
    """The first words of a text, as many as make at most ``most`` tokens; at least one word."""
    words = text.split()

    def tokens_in(count: int) -> int:
        return len(tokens_of(" ".join(words[:count])))

    fitting = bisect_right(range(len(words) + 1), most, key=tokens_in) - 1
    return " ".join(words[: max(fitting, 1)])


def find_passages(rationales: Sequence[Rationale], retriever: Retriever) -> list[list[Passage]]:
    """For each question the nearest passages, searched with the question alone."""
    questions = [Question(r.qid, r.question, {}, "", r.dataset) for r in rationales]
    found = retriever.search_many([question_alone(question) for question in questions], PASSAGES)
    return [retriever.store.get_many(hits.ids[0].tolist()) for hits in found]


class Labeller:
    """One model that scores rationales; what it has finished is kept in ``folder``.

    ``model_id`` names the model and its weights: other weights begin anew.
    """

    def __init__(self, causal: Causal, model_id: str, folder: Path):
        self.causal, self.model_id, self.folder = causal, model_id, folder

    def texts(
        self, name: str, rationales: Sequence[Rationale], texts: Sequence[str], passages: Passages
    ) -> pd.DataFrame:
        """Log-likelihoods of one text for each question, alone and with each of its passages.

        Columns: dataset, part, qid, pid, rank, tokens, log_p_without, log_p_with.
        """
        asked = []
        for rationale, text, nearest in zip(rationales, texts, passages, strict=True):
            scored = first_words(text, self.causal.text_tokens, REPLY_TOKENS)
            for passage in (None, *nearest):
                asked.append([rationale_messages(rationale, passage), scored])
        lengths = [
            len(self.causal.prompt_tokens(messages)) + len(self.causal.text_tokens(text))
            for messages, text in asked
        ]

        def measure(batch: list) -> list:
            return self.causal.log_likelihoods(batch).tolist()

        values = iter(self._measured(name, asked, lengths, measure, _SCORED_AT_ONCE))
        rows = []
        for rationale, nearest in zip(rationales, passages, strict=True):
            without, tokens = next(values)
            for row in _pairs(rationale, nearest):
                row |= {"tokens": int(tokens), "log_p_without": without}
                rows.append(row | {"log_p_with": next(values)[0]})
        return pd.DataFrame(rows)

    def letters(
        self, name: str, rationales: Sequence[Rationale], passages: Passages
    ) -> pd.DataFrame:
        """How probable the right letter is, alone and with each passage; questions with options.

        Columns: dataset, part, qid, pid, rank, p_right_without, p_right_with, right_without,
        right_with. The requests are those of ``lib.readers``' letter prompts.
        """
        asked = []
        for rationale, nearest in zip(rationales, passages, strict=True):
            question = Question(rationale.qid, rationale.question, rationale.options, "", "")
            for context in ([], *([passage] for passage in nearest)):
                messages, _ = answer_messages(
                    question, context, context_tokens=_CONTEXT_TOKENS, max_tokens=1, style="letter"
                )
                asked.append(messages)
        lengths = [len(self.causal.prompt_tokens(messages)) for messages in asked]
        letters = sorted(rationales[0].options)
        if any(sorted(rationale.options) != letters for rationale in rationales):
            raise ValueError("questions whose options have other letters are compared apart")

        def measure(batch: list) -> list:
            return self.causal.next_log_p(batch, letters).tolist()

        values = iter(self._measured(name, asked, lengths, measure, _SCORED_AT_ONCE))
        rows = []
        for rationale, nearest in zip(rationales, passages, strict=True):
            right = letters.index(rationale.answer)
            without = _of_letters(next(values), right)
            for row in _pairs(rationale, nearest):
                with_passage = _of_letters(next(values), right)
                row |= {"p_right_without": without[0], "p_right_with": with_passage[0]}
                rows.append(row | {"right_without": without[1], "right_with": with_passage[1]})
        return pd.DataFrame(rows)

    def written(self, name: str, rationales: Sequence[Rationale]) -> list[str]:
        """The model's own rationale for each question, without a passage, always the likeliest."""
        asked = [rationale_messages(rationale) for rationale in rationales]
        lengths = [len(self.causal.prompt_tokens(messages)) + REPLY_TOKENS for messages in asked]
        sampling = Sampling(max_tokens=REPLY_TOKENS, temperature=0.0)

        def measure(batch: list) -> list:
            return [" ".join(reply.split()) for reply in self.causal.write(batch, sampling)]

        # Results are cached by this name, so replies with other sampling settings are not mixed in.
        return self._measured(f"{name}, {sampling}", asked, lengths, measure, _WRITTEN_AT_ONCE)

    def _measured(
        self, name: str, asked: list, lengths: list[int], measure: Callable, size: int
    ) -> list:
        full = f"{name}, {self.model_id}"
        return in_batches(full, asked, lengths, measure, self.folder, size)


def _pairs(rationale: Rationale, passages: Sequence[Passage]) -> list[dict]:
    """The columns that say which question and which passage."""
    asked = {"dataset": rationale.dataset, "part": rationale.part, "qid": rationale.qid}
    return [asked | {"pid": p.pid, "rank": rank} for rank, p in enumerate(passages, 1)]


def _of_letters(log_p: Sequence[float], right: int) -> tuple[float, int]:
    """The right letter's probability among all letters; 1 where it is the likeliest."""
    probabilities = np.exp(np.array(log_p) - max(log_p))
    return float(probabilities[right] / probabilities.sum()), int(np.argmax(log_p) == right)


def make_labels(
    labeller: Labeller,
    rationales: Sequence[Rationale],
    passages: Passages,
    own_questions: Mapping[str, int] = OWN_QUESTIONS,
) -> tuple[pd.DataFrame, list[dict]]:
    """The table of ``COLUMNS``, and the model's own rationales: dataset, qid, text.

    What is of use first is measured first: experts' rationales to train on, the held ones, the
    letters, and at last the model's own rationales. An own rationale without a word has no rows;
    one that repeats the words of others is measured as it was written, and kept as "".
    """
    near = {(r.dataset, r.qid): found for r, found in zip(rationales, passages, strict=True)}
    groups: dict[tuple[str, str], list[Rationale]] = {}
    for part in ("train", "held"):
        for rationale in rationales:
            if rationale.part == part:
                groups.setdefault((part, rationale.dataset), []).append(rationale)

    def scored(kind: str, name: str, chosen: list[Rationale], texts: list[str]) -> pd.DataFrame:
        nearest = [near[r.dataset, r.qid] for r in chosen]
        return labeller.texts(f"{kind}, {name}", chosen, texts, nearest).assign(rationale=kind)

    tables, letters, own = [], [], []
    for (part, dataset), chosen in groups.items():
        tables.append(scored("expert", f"{part}, {dataset}", chosen, [r.expert for r in chosen]))
    for (part, dataset), group in groups.items():
        chosen = [r for r in group if r.options]
        if chosen:
            nearest = [near[r.dataset, r.qid] for r in chosen]
            letters.append(labeller.letters(f"letters, {part}, {dataset}", chosen, nearest))
    for dataset, count in own_questions.items():
        first = groups["train", dataset][:count]
        replies = labeller.written(f"written, {dataset}", first)
        wrote = [(r, reply) for r, reply in zip(first, replies, strict=True) if reply]
        own += [_kept(r, reply) for r, reply in wrote]
        tables.append(scored("own", dataset, [r for r, _ in wrote], [reply for _, reply in wrote]))
    return _joined(tables, letters), own


def _joined(scored: Sequence[pd.DataFrame], letters: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One table of ``COLUMNS``: no machine's last digits; whole numbers, where there are any."""
    pair = ["dataset", "part", "qid", "pid", "rank"]
    labels = pd.concat(scored, ignore_index=True).merge(pd.concat(letters), "left", pair)
    digits = {"log_p_without": 4, "log_p_with": 4, "p_right_without": 5, "p_right_with": 5}
    labels = labels[list(COLUMNS)].round(digits)
    return labels.astype({"right_without": "Int64", "right_with": "Int64"})


def _kept(rationale: Rationale, text: str) -> dict:
    """An own rationale as it is kept: "" where it repeats the words of others.

    A small model at times says the question again; 25 words in a row are not its own.
    """
    theirs = runs_of(rationale.asked, _REPEATED) | runs_of(rationale.expert, _REPEATED)
    kept = text if theirs.isdisjoint(runs_of(text, _REPEATED)) else ""
    return {"dataset": rationale.dataset, "qid": rationale.qid, "text": kept}


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


def main() -> None:
    """Make the labels of the open corpus with the bundled model, or go on where a run stopped."""
    started = time.monotonic()
    profile = load_profile("open")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    rationales = load_rationales()
    passages = find_passages(rationales, open_retriever(profile, encoder))
    causal = open_causal(BUNDLED, device="cpu")
    # Every token of a rationale is looked up in the whole vocabulary: a third of all the work.
    pack_linear_layers(causal.model.lm_head)
    labeller = Labeller(causal, f"{NAME} {SHA256[:8]}", cache("perplexity"))
    labels, own = make_labels(labeller, rationales, passages)
    prompts = [
        asdict(load_prompt("rationale_alone", _PROMPTS)),
        asdict(load_prompt("rationale_with_passage", _PROMPTS)),
        asdict(load_prompt("letter_closed_book")),
        asdict(load_prompt("letter_with_documents")),
    ]
    made = {
        "date": date.today().isoformat(),
        "command": "python -m tools.label_passages",
        "minutes": round((time.monotonic() - started) / 60, 1),
        "model": NAME,
        "model_sha256": SHA256,
        "torch": version("torch"),
        "transformers": version("transformers"),
        "passages": PASSAGES,
        "reply_tokens": REPLY_TOKENS,
        "encoder": encoder.fingerprint,
        "corpora": list(profile.corpora),
        "prompts_sha256": sha256_bytes(canonical_json(prompts).encode()),
    }
    write_labels(labels, own, FOLDER, made)
    print(f"{len(labels)} rows in {FOLDER}", file=sys.stderr)


if __name__ == "__main__":
    main()
