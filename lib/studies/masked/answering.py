"""One question answered from five passages in which the options have code names.

The passages come in the order of the hashes of their ids, not by rank: two searches that find the
same five are one request, and no arm gains by an order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lib.base.files import sha256_bytes
from lib.data.judgments import shown_text
from lib.data.passages import Passage
from lib.data.questions import Question
from lib.llm.chat import ChatModel, Message
from lib.llm.prompts import load_prompt
from lib.studies.masked.mask import Mask, read_names

_REPLY = re.compile(r"(Entity-[A-Z])\b\W*(told|guess)", re.IGNORECASE)

METRICS = ("accuracy", "right", "told", "told_right", "told_wrong")
"""Of one answer. ``accuracy``: told and right is 1, told and wrong 0, and a guess (or a reply that
cannot be read) counts as its chance, one over the number of options. ``right``: as it fell."""


@dataclass(frozen=True)
class Answer:
    """The letter that was chosen, empty where the reply cannot be read, and whether a passage told
    it or it was guessed."""

    letter: str
    told: bool

    def metrics(self, question: Question) -> dict[str, float]:
        """``METRICS`` by name."""
        right = bool(self.letter) and question.is_right(self.letter)
        chance = len(question.answer) / len(question.options)
        values = (
            float(right) if self.told else chance,
            right,
            self.told,
            self.told and right,
            self.told and not right,
        )
        return dict(zip(METRICS, map(float, values), strict=True))


def mask_of(question: Question) -> Mask:
    """The question's mask, with the names on file where there are any."""
    return Mask.of(question, read_names().get((question.dataset, question.qid)))


def request(question: Question, passages: Sequence[Passage]) -> list[Message]:
    """What the answerer is asked; without passages, from the question alone."""
    mask = mask_of(question)
    ordered = sorted(passages, key=lambda p: sha256_bytes(p.pid.encode()))
    text, *shown = mask.hide([question.text, *map(shown_text, ordered)])
    options = "\n".join(mask.letter_of)
    if not shown:
        return load_prompt("masked_answer_alone").messages(question=text, options=options)
    listed = "\n\n".join(f"[{n}] {one}" for n, one in enumerate(shown, 1))
    return load_prompt("masked_answer").messages(question=text, options=options, passages=listed)


def answer(question: Question, passages: Sequence[Passage], llm: ChatModel) -> Answer:
    """What the answerer says."""
    (reply,) = llm.generate(request(question, passages), max_tokens=64)
    return read_reply(question, reply.text)


def answer_openly(question: Question, passages: Sequence[Passage], llm: ChatModel) -> Answer:
    """What the answerer says where nothing is masked: it may remember, and counts as told.

    Without passages from the question alone. A reply that is no letter has none.
    """
    options = "\n".join(f"{letter}. {text}" for letter, text in sorted(question.options.items()))
    values = {"question": question.text, "options": options}
    name = "letter_closed_book"
    if passages:
        name = "letter_with_documents"
        ordered = sorted(passages, key=lambda p: sha256_bytes(p.pid.encode()))
        texts = [shown_text(passage) for passage in ordered]
        values["documents"] = "\n\n".join(f"[{n}] {text}" for n, text in enumerate(texts, 1))
    (reply,) = llm.generate(load_prompt(name).messages(**values), max_tokens=8)
    letter = reply.text.strip().strip(".").upper()
    return Answer(letter if letter in question.options else "", told=letter in question.options)


def read_reply(question: Question, text: str) -> Answer:
    """The last answer that a reply gives; no letter where it gives none, or names no option."""
    code, told = read_code(text)
    letter = mask_of(question).letter_of.get(code, "")
    return Answer(letter, bool(letter) and told)


def read_code(text: str) -> tuple[str, bool]:
    """The code name of a reply's last answer, "" where there is none, and whether it was told."""
    found = _REPLY.findall(text)
    return (found[-1][0], found[-1][1].lower() == "told") if found else ("", False)
