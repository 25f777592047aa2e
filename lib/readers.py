"""From retrieved passages to an answer: four kinds of reader behind one interface.

``EvidenceReader`` and ``JudgedReader`` need no LLM, ``ChatReader`` follows MIRAGE's protocol with
any chat model, and ``ChoiceReader`` asks the same model only how likely each letter is. A reader is
given contexts, the passages of each question, best first; an empty context is the closed book.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from lib.base.files import sha256_file
from lib.data.judgments import JUDGMENTS, evidence, read_judgments, read_option
from lib.data.passages import Passage
from lib.datasets import Question
from lib.embed import Encoder
from lib.llm.chat import ChatModel, Reply, in_parallel
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.parse import parse_answer, parse_mirage
from lib.search.index import DenseIndex
from lib.search.vectors import encode_small

CHARACTERS_PER_TOKEN = 3.0
"""A cautious estimate for medical English, so that a prompt never outgrows the model's context. It
is an estimate on purpose: replay must build the same prompt without the model's tokenizer."""

STEM_WORDS = 150
"""The reader without an LLM puts an option behind the question's last 150 words: behind a longer
question an encoder of 256 tokens would cut the option off unread."""


@dataclass(frozen=True)
class Answer:
    """What one reader answered to one question.

    ``letter`` is empty when the reply could not be read (scored as wrong), ``rule`` says how it was
    read, ``mirage`` what MIRAGE's scorer would make of it; ``documents_cut`` counts passages that
    were shortened or left out to fit the context.
    """

    qid: str
    letter: str
    rule: str
    mirage: str
    documents_cut: int = 0
    replies: tuple[Reply, ...] = ()


class Reader(Protocol):
    """What every answerer offers; ``name`` is what tables call it."""

    name: str
    needs_llm: bool

    def answer_all(
        self, questions: Sequence[Question], contexts: Sequence[Sequence[Passage]]
    ) -> list[Answer]:
        """One Answer per question, in order."""
        ...


@dataclass
class EvidenceReader:
    """No LLM: the option that the passages support best under the encoder.

    support(o) = max over passages d of cos(e(question and o), e(d)) - cos(e(question), e(d)): how
    much closer to some passage the question comes when this option is put behind it. Ties, and a
    question without passages, go to the first letter. It measures similarity and misses negation,
    so it cannot answer yes/no questions; their rows show that.
    """

    encoder: Encoder
    name: str = "evidence reader"
    needs_llm: bool = False
    _index: DenseIndex | None = field(default=None, repr=False)
    _vectors: dict = field(default_factory=dict, repr=False)

    def answer_all(
        self, questions: Sequence[Question], contexts: Sequence[Sequence[Passage]]
    ) -> list[Answer]:
        """See Reader."""
        # Everything is encoded at once, before the first question is answered.
        self._encode("query", [text for question in questions for text in _asked(question)])
        passages = [passage for context in contexts for passage in context]
        self._take_vectors(passages)
        self._encode("article", [(passage.title, passage.text) for passage in passages])
        pairs = zip(questions, contexts, strict=True)
        return [self._answer(question, context) for question, context in pairs]

    def use_vectors_of(self, index: DenseIndex) -> None:
        """Take the vectors of the index's passages from it, instead of encoding them once more."""
        self._index = index

    def _take_vectors(self, passages: Sequence[Passage]) -> None:
        """The vectors of those passages that the index has, if there is one, and are new here."""
        if self._index is None:
            return
        rows = self._index.ids.find([passage.pid for passage in passages])
        keys = [("article", (passage.title, passage.text)) for passage in passages]
        texts = {row: key for row, key in zip(rows, keys, strict=True) if row >= 0}
        new = {row: key for row, key in texts.items() if key not in self._vectors}
        vectors = self._index.vectors(np.array(list(new), dtype=int))
        self._vectors.update(zip(new.values(), vectors, strict=True))

    def _encode(self, tower: str, texts: Sequence) -> None:
        """Encode the texts that have no vector yet."""
        new = [text for text in dict.fromkeys(texts) if (tower, text) not in self._vectors]
        if new:
            keys = [(tower, text) for text in new]
            self._vectors |= dict(zip(keys, encode_small(new, self.encoder, tower), strict=True))

    def _answer(self, question: Question, context: Sequence[Passage]) -> Answer:
        letters = sorted(question.options)
        support = np.zeros(len(letters))
        if context:
            asked = [self._vectors["query", text] for text in _asked(question)]
            read = [self._vectors["article", (p.title, p.text)] for p in context]
            cosines = np.stack(asked).astype(np.float64) @ np.stack(read).T.astype(np.float64)
            # Row 0 is the question alone, the others are the question with each option.
            support = (cosines[1:] - cosines[0]).max(axis=1)
        best = letters[int(np.argmax(np.round(support, 5)))]
        return Answer(question.qid, best, "support", best)


@dataclass
class JudgedReader:
    """No LLM: the option that judged passages support most (``lib.data.judgments.read_option``).

    It reads the labels of ``data/judgments``, never a text; without any support, or between equals,
    it abstains: no letter, and wrong. At least the share ``least`` of the passages must be judged;
    else the cell is NOT RUN.
    """

    name: str = "judged reader"
    least: float = 0.99
    needs_llm: bool = False
    judgments: str = field(default="", init=False)
    """Which labels were read: the hash of their file."""
    _known: dict = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.judgments = sha256_file(JUDGMENTS)[:16]

    def answer_all(
        self, questions: Sequence[Question], contexts: Sequence[Sequence[Passage]]
    ) -> list[Answer]:
        """See Reader. Raises RecordingMiss where too few of the passages are judged."""
        if not self._known:
            self._known |= evidence(read_judgments())
        read = []
        for question, context in zip(questions, contexts, strict=True):
            read.append([self._known.get((question.qid, passage.pid)) for passage in context])
        passages = [one for of_question in read for one in of_question]
        judged = sum(one is not None for one in passages) / max(len(passages), 1)
        if judged < self.least:
            raise RecordingMiss(
                f"only {judged:.0%} of these passages are judged. "
                "Next: judge them as data/judgments/README.md says"
            )
        letters = [read_option(of_question) or "" for of_question in read]
        return [
            Answer(question.qid, letter, "judged support" if letter else "abstains", letter)
            for question, letter in zip(questions, letters, strict=True)
        ]


def _asked(question: Question) -> list[str]:
    """The last words of a question, where exam questions ask what they ask, alone and with each of
    its options put behind them, in the order of the letters."""
    stem = " ".join(question.text.split()[-STEM_WORDS:])
    return [stem, *(f"{stem} {question.options[letter]}" for letter in sorted(question.options))]


def answer_messages(
    question: Question,
    context: Sequence[Passage],
    *,
    context_tokens: int,
    max_tokens: int,
    system_role: bool = True,
    style: str = "answer",
) -> tuple[list[dict[str, str]], int]:
    """MIRAGE's prompt, documents first and numbered from 0, and how many documents were cut.

    Documents get what ``context_tokens`` leaves beside the question and ``max_tokens`` of answer;
    the last that fits in part is shortened. ``system_role=False`` folds the system text into the
    user's turn, for templates without one (Gemma-2). ``style`` "answer" asks for reasoning in JSON,
    "letter" for a letter alone.
    """
    lines = [f"{letter}. {question.options[letter]}" for letter in sorted(question.options)]
    options = "\n".join(lines)
    prompt = load_prompt(f"{style}_with_documents" if context else f"{style}_closed_book")

    def filled(**documents: str) -> list[dict[str, str]]:
        messages = prompt.messages(question=question.text, options=options, **documents)
        if system_role:
            return messages
        contents = [message["content"] for message in messages]
        return [{"role": "user", "content": "\n\n".join(contents)}]

    if not context:
        return filled(), 0
    prompt_chars = sum(len(message["content"]) for message in filled(documents=""))
    chars_left = int((context_tokens - max_tokens) * CHARACTERS_PER_TOKEN) - prompt_chars
    shown = []
    documents_cut = 0
    for i, passage in enumerate(context):
        document = f"Document [{i}] (Title: {passage.title}) {passage.text}"
        fitting = document[: max(chars_left, 0)]
        if fitting:
            shown.append(fitting)
        if fitting != document:
            documents_cut += 1
        chars_left -= len(document) + 1  # and the line break after it
    return filled(documents="\n".join(shown)), documents_cut


@dataclass
class ChatReader:
    """MIRAGE's protocol: the model reasons and names a letter in JSON, greedily, no schema forced.

    ``context_tokens`` is the model's window; ``method`` names calls in ledgers and recordings.
    """

    llm: ChatModel
    name: str
    context_tokens: int = 8192
    max_tokens: int = 1024
    system_role: bool = True
    workers: int = 8
    needs_llm: bool = True
    style = "answer"

    def answer_all(
        self, questions: Sequence[Question], contexts: Sequence[Sequence[Passage]]
    ) -> list[Answer]:
        """See Reader."""
        pairs = list(zip(questions, contexts, strict=True))
        return in_parallel(self._answer, pairs, workers=self.workers)

    def _answer(self, pair: tuple[Question, Sequence[Passage]]) -> Answer:
        question, context = pair
        messages, cut = answer_messages(
            question,
            context,
            context_tokens=self.context_tokens,
            max_tokens=self.max_tokens,
            system_role=self.system_role,
            style=self.style,
        )
        with self.llm.tag(method=self.name, qid=question.qid):
            return self._ask(question, messages, cut)

    def _ask(self, question: Question, messages: list[dict], cut: int) -> Answer:
        """One call of the model, and what its reply says; ``cut`` counts shortened documents."""
        (reply,) = self.llm.generate(messages, temperature=0.0, max_tokens=self.max_tokens)
        letter, rule = parse_answer(reply.text, question.options)
        return Answer(question.qid, letter, rule, parse_mirage(reply.text), cut, (reply,))


class ChoiceReader(ChatReader):
    """No reasoning: the letter that the model finds likeliest as the first token of its reply.

    Needs a server that gives log-probabilities. A reply that lists no letter counts as one that
    could not be read; so does one with equal values for all letters, as older recordings have it.
    """

    style = "letter"

    def _ask(self, question: Question, messages: list[dict], cut: int) -> Answer:
        letters = sorted(question.options)
        (reply,) = self.llm.generate(messages, choices=letters)
        log_probabilities = json.loads(reply.text)
        none_listed = not log_probabilities
        all_alike = len(log_probabilities) > 1 and len(set(log_probabilities.values())) == 1
        if none_listed or all_alike:
            return Answer(question.qid, "", "none", parse_mirage(""), cut, (reply,))
        # ``max`` keeps the first of equals, and letters are sorted.
        letter = max(sorted(log_probabilities), key=log_probabilities.get)
        return Answer(question.qid, letter, "log-probability", letter, cut, (reply,))


READERS: dict[str, type] = {
    "evidence": EvidenceReader,
    "judged": JudgedReader,
    "choice": ChoiceReader,
    "chat": ChatReader,
}
"""Every kind of reader, by the name that a profile's ``answerers`` give as ``kind``."""


def load_reader(spec: Mapping, encoder: Encoder, *, live: bool = False) -> Reader:
    """The reader a profile names: ``kind`` (a key of ``READERS``), ``name`` and its settings.

    ``live`` lets the bundled small model answer what its recording lacks, instead of replaying it.
    """
    from lib.llm.connect import connect

    settings = {name: value for name, value in spec.items() if name != "kind"}
    if spec["kind"] == "evidence":
        settings["encoder"] = encoder
    if "llm" in settings:
        llm = settings["llm"]
        if live and llm.startswith("replay:"):
            llm = f"record:{llm.removeprefix('replay:')}=small"
        settings["llm"] = connect(llm)
    return READERS[spec["kind"]](**settings)
