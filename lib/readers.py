"""From retrieved passages to an answer: three kinds of reader behind one interface.

``EvidenceReader`` needs no LLM, ``ChatReader`` follows MIRAGE's protocol with any chat model, and
``ChoiceReader`` asks the same model only how likely each letter is. A reader is given contexts, the
passages of each question, best first; an empty context is the closed book.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from lib.data.passages import Passage
from lib.data.questions import Question
from lib.llm.chat import ChatModel, Reply, in_parallel
from lib.llm.prompts import load_prompt
from lib.parse import parse_answer, parse_mirage
from lib.search.embed import Encoder
from lib.search.index import DenseIndex
from lib.search.vectors import encode_small

__all__ = [
    "Answer",
    "ChatReader",
    "ChoiceReader",
    "EvidenceReader",
    "READERS",
    "Reader",
    "answer_messages",
    "load_reader",
]

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
    question without passages, go to the first letter. It reads likeness, not negation, so yes/no
    questions are beyond it; their rows show that.
    """

    encoder: Encoder
    name: str = "evidence reader"
    needs_llm: bool = False
    _index: DenseIndex | None = field(default=None, repr=False)
    _known: dict = field(default_factory=dict, repr=False)

    def answer_all(
        self, questions: Sequence[Question], contexts: Sequence[Sequence[Passage]]
    ) -> list[Answer]:
        """See Reader."""
        asked = [_stem(q) for q in questions]
        asked += [f"{_stem(q)} {option}" for q in questions for option in q.options.values()]
        self._encode("query", asked)
        passages = [p for context in contexts for p in context]
        self._take_vectors(passages)
        self._encode("article", [(p.title, p.text) for p in passages])
        return [self._one(q, c) for q, c in zip(questions, contexts, strict=True)]

    def use_vectors_of(self, index: DenseIndex) -> None:
        """Take the vectors of the index's passages from it, instead of encoding them once more."""
        self._index = index

    def _take_vectors(self, passages: Sequence[Passage]) -> None:
        if self._index is None:
            return
        keys = {p.pid: ("article", (p.title, p.text)) for p in passages}
        rows = {i: pid for i, pid in enumerate(self._index.ids.tolist()) if pid in keys}
        vectors = self._index.vectors(np.array(list(rows), dtype=int))
        self._known |= {keys[pid]: v for pid, v in zip(rows.values(), vectors, strict=True)}

    def _encode(self, tower: str, texts: Sequence) -> None:
        new = [t for t in dict.fromkeys(texts) if (tower, t) not in self._known]
        rows = encode_small(new, self.encoder, tower) if new else []
        self._known |= {(tower, t): row for t, row in zip(new, rows, strict=True)}

    def _one(self, question: Question, context: Sequence[Passage]) -> Answer:
        letters, stem = sorted(question.options), _stem(question)
        asked = [f"{stem} {question.options[x]}" for x in letters]
        vectors = np.stack([self._known["query", text] for text in [stem, *asked]])
        support = np.zeros(len(letters))
        if context:
            passages = np.stack([self._known["article", (p.title, p.text)] for p in context])
            likeness = vectors.astype(np.float64) @ passages.T.astype(np.float64)
            support = (likeness[1:] - likeness[0]).max(axis=1)
        best = letters[int(np.argmax(np.round(support, 5)))]
        return Answer(question.qid, best, "support", best)


def _stem(question: Question) -> str:
    return " ".join(question.text.split()[-STEM_WORDS:])


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
    options = "\n".join(f"{x}. {question.options[x]}" for x in sorted(question.options))
    prompt = load_prompt(f"{style}_with_documents" if context else f"{style}_closed_book")

    def made(**documents: str) -> list[dict[str, str]]:
        messages = prompt.messages(question=question.text, options=options, **documents)
        if system_role:
            return messages
        return [{"role": "user", "content": "\n\n".join(m["content"] for m in messages)}]

    if not context:
        return made(), 0
    around = sum(len(m["content"]) for m in made(documents=""))
    room = int((context_tokens - max_tokens) * CHARACTERS_PER_TOKEN) - around
    whole = [f"Document [{i}] (Title: {p.title}) {p.text}" for i, p in enumerate(context)]
    shown = []
    for text in whole:
        shown.append(text[: max(room, 0)])
        room -= len(text) + 1
    cut = sum(a != b for a, b in zip(shown, whole, strict=True))
    return made(documents="\n".join(text for text in shown if text)), cut


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
        return in_parallel(self._one, pairs, workers=self.workers)

    def _one(self, pair: tuple[Question, Sequence[Passage]]) -> Answer:
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
        (reply,) = self.llm.generate(messages, temperature=0.0, max_tokens=self.max_tokens)
        letter, rule = parse_answer(reply.text, question.options)
        return Answer(question.qid, letter, rule, parse_mirage(reply.text), cut, (reply,))


class ChoiceReader(ChatReader):
    """No reasoning: the letter that the model finds likeliest as the first token of its reply.

    Needs a server that gives log-probabilities. A letter it does not list is as likely as the least
    likely that it does; ties go to the first letter.
    """

    style = "letter"

    def _ask(self, question: Question, messages: list[dict], cut: int) -> Answer:
        letters = sorted(question.options)
        (reply,) = self.llm.generate(messages, choices=letters)
        scores = json.loads(reply.text)
        letter = max(letters, key=lambda x: (scores[x], -ord(x)))
        return Answer(question.qid, letter, "log-probability", letter, cut, (reply,))


READERS: dict[str, type] = {
    "evidence": EvidenceReader,
    "choice": ChoiceReader,
    "chat": ChatReader,
}
"""Every kind of reader, by the name that a profile's ``answerers`` give as ``kind``."""


def load_reader(spec: Mapping, encoder: Encoder, *, live: bool = False) -> Reader:
    """The reader a profile names: ``kind`` (evidence, choice, chat), ``name`` and its settings.

    ``live`` lets the bundled small model answer what its recording lacks, instead of replaying it.
    """
    from lib.llm.connect import connect

    settings = {k: v for k, v in spec.items() if k not in ("kind", "llm", "sample")}
    if spec["kind"] == "evidence":
        return EvidenceReader(encoder, **settings)
    llm = spec["llm"]
    if live and llm.startswith("replay:"):
        llm = f"record:{llm.removeprefix('replay:')}=small"
    return READERS[spec["kind"]](connect(llm), **settings)
