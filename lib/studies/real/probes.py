"""What else is asked about the texts of the real sample: is H+ right, does the writer know it all.

Each probe is a request to a role that sees what its prompt shows and nothing else; its replies are
recorded like the texts themselves, as ``real-<probe>.jsonl.gz``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from lib.datasets import EXAMS, Question, in_full, load_real
from lib.llm.chat import ChatModel, tag
from lib.llm.prompts import load_prompt
from lib.methods.base import Expansion
from lib.studies.mimics.items import grade_mimic

_RUN = 8
"""Words in a row, the same and in order, that nobody continues a question with by chance."""

_SHORTEST = 2 * _RUN
"""Words that a question must have at least, so that half of it can tell anything."""

Call = tuple[str, Callable[[ChatModel], object]]
"""A question id, and what asks a model about that question."""


def read_hypothesis(question: Question, h_plus: str, llm: ChatModel) -> str:
    """The letter of the option that H+ speaks for, to a reader who sees these two alone.

    Empty where it speaks for none, or the reply is no letter.
    """
    options = "\n".join(f"{letter}. {text}" for letter, text in sorted(question.options.items()))
    messages = load_prompt("read_hypothesis").messages(text=h_plus, options=options)
    (reply,) = llm.generate(messages, max_tokens=8)
    letter = reply.text.strip().strip(".").upper()
    return letter if letter in question.options else ""


def complete_stem(question: Question, llm: ChatModel) -> str:
    """How a model continues the first half of the question's words."""
    beginning, _ = halves(question)
    messages = load_prompt("complete_stem").messages(beginning=beginning)
    (reply,) = llm.generate(messages, max_tokens=512)
    return reply.text


def is_known_by_heart(run: str) -> bool:
    """Whether ``_RUN`` words in a row or more were the question's (``tools.texts.as_run``)."""
    return int(run) >= _RUN


def halves(question: Question) -> tuple[str, str]:
    """The two halves of a question's text by its words; the second empty if it is too short."""
    places = [match.start() for match in re.finditer(r"\S+", question.text)]
    if len(places) < _SHORTEST:
        return question.text, ""
    middle = places[len(places) // 2]
    return question.text[:middle].rstrip(), question.text[middle:]


def _h_plus_calls(written: Mapping[str, Expansion]) -> Iterator[Call]:
    for question in in_full(load_real("test")):
        h_plus = written[question.qid].trace["H_plus"]
        yield question.qid, lambda llm, q=question, text=h_plus: read_hypothesis(q, text, llm)


def _mimic_calls(written: Mapping[str, Expansion]) -> Iterator[Call]:
    for question in _exams():
        trace = written[question.qid].trace
        pair = trace["H_plus"], trace["H_minus"]
        yield question.qid, lambda llm, q=question, pair=pair: grade_mimic(q, *pair, llm)


def _memory_calls(written: Mapping[str, Expansion]) -> Iterator[Call]:
    for question in _exams():
        if halves(question)[1]:
            yield question.qid, lambda llm, q=question: complete_stem(q, llm)


def _exams() -> list[Question]:
    return [question for question in load_real("test") if question.dataset in EXAMS]


PROBES: Mapping[str, Callable[[Mapping[str, Expansion]], Iterable[Call]]] = {
    "hplus-reading": _h_plus_calls,
    "mimics": _mimic_calls,
    "memory": _memory_calls,
}
"""Every probe by the name of its recording; each takes the written hypotheses by question id."""


def calls(name: str, written: Mapping[str, Expansion]) -> Iterator[Call]:
    """What a probe asks about each question of the test half."""
    for qid, ask in PROBES[name](written):
        with tag(method=name, qid=qid):
            yield qid, ask


def options_read(written: Mapping[str, Expansion], llm: ChatModel) -> dict[str, str]:
    """The option that each H+ speaks for, by question id; empty for none."""
    return {qid: ask(llm) for qid, ask in calls("hplus-reading", written)}


def known_by_heart(written: Mapping[str, Expansion], llm: ChatModel) -> dict[str, bool]:
    """Whether the writer knows each question by heart; those too short to tell are missing."""
    return {qid: is_known_by_heart(ask(llm)) for qid, ask in calls("memory", written)}
