"""The study of masked answers: dev chooses, the test half is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lib.data.passages import Passage
from lib.datasets import Question
from lib.embed import load_encoder
from lib.methods.base import Expansion
from lib.open_retriever import open_retriever
from lib.profiles import Profile, load_profile
from lib.run import Retriever
from lib.studies.masked.arms import LAMBDAS, NOTHING, arms, bases_of
from lib.studies.masked.instrument import items
from lib.studies.masked.sample import Part, load_masked
from lib.studies.masked.texts import written_for
from lib.study import Found, search_arm

TOP = 5
"""Passages that the answerer reads."""

DEV_LAMBDAS: Mapping[str, Sequence[float]] = {"described": LAMBDAS, "held": LAMBDAS}


@dataclass(frozen=True)
class Half:
    """One half of the sample: questions, what was written about them, and where to search."""

    questions: Sequence[Question]
    retriever: Retriever
    at: Mapping[str, Sequence[float]]
    written: Mapping[str, Mapping[str, Expansion]] = field(default_factory=dict)

    @classmethod
    def open(cls, part: Part, profile: Profile, at: Mapping[str, Sequence[float]]) -> Half:
        """A half, searched in the profile's passages, contrast at the lambdas ``at``."""
        encoder = load_encoder(profile.encoder, **profile.encoder_options)
        questions = load_masked(part)
        return cls(questions, open_retriever(profile, encoder), at, written_for(questions))

    @cached_property
    def found(self) -> dict[str, Found]:
        """What each arm finds, by arm and question id."""
        bases = bases_of(self.questions, self.written)
        qids = [question.qid for question in self.questions]
        every = {}
        for arm in arms(bases, self.at):
            (every[arm.name],) = search_arm(arm, qids, self.retriever, TOP)
        return every

    def shown(self) -> Iterator[tuple[str, Question, list[Passage]]]:
        """Every arm's passages of every question that it found some for; ``none`` has none."""
        store = self.retriever.store
        for question in self.questions:
            yield NOTHING, question, []
        for arm, found in self.found.items():
            for question in self.questions:
                if question.qid in found:
                    yield arm, question, store.get_many(found[question.qid])


# what the answerer is asked -----------------------------------------------------------------------


def validation(_: str) -> Iterator[tuple[Question, Sequence[Passage]]]:
    """The requests that validate the answerer."""
    profile = load_profile("open")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    for item in items(open_retriever(profile, encoder).store):
        yield item.question, item.passages


def readings(part: Part) -> Iterator[tuple[Question, Sequence[Passage]]]:
    """What is read of a half."""
    for _, question, passages in Half.open(part, load_profile("open"), DEV_LAMBDAS).shown():
        yield question, passages


ANSWERS: Mapping[str, Callable] = {"validation": validation, "answers": readings}
"""What the answerer is asked, by the name of its recording, ``masked-<name>.jsonl.gz``."""
