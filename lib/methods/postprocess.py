"""Post-processing of a ranked list: it is re-ranked, or filtered (RAG2).

A step reads (question, passage) pairs with a ``Scorer`` and orders or drops passages by it. A
scorer is any function; ``lib.search.rerank`` has re-rankers, ``lib.studies.rag2`` filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from lib.base.parameters import check_k
from lib.datasets import Question
from lib.methods.base import Taken, check_choices, stem
from lib.query_spec import Hit

Scorer = Callable[[Sequence[tuple[str, str]]], np.ndarray]
"""scores(pairs) -> float (n,): how well each (query, passage text) fits, higher is better."""


@dataclass(frozen=True)
class Rerank:
    """The list in the order of a scorer, ties by passage id.

    ``query`` is what passages are scored for: the question where it is empty (as RAG2's paper
    says), or another text such as the rationale (as its code does).
    """

    score: Scorer
    query: str = ""
    name: ClassVar[str] = "rerank"

    def __call__(self, question: Question, hits: Sequence[Hit]) -> Taken:
        """See ``lib.methods.base.Step``."""
        query = self.query or question.text
        scores = self.score([(query, text) for _, text in hits])
        scored = zip(scores.tolist(), hits, strict=True)
        ordered = sorted(scored, key=lambda pair: (-pair[0], pair[1][0]))
        return Taken([hit for _, hit in ordered], len(hits), {"scores": [s for s, _ in ordered]})


@dataclass(frozen=True)
class First:
    """The first ``count`` passages alone. ValueError for none."""

    count: int
    name: ClassVar[str] = "first"
    after_cut: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_k(self.count)

    def __call__(self, question: Question, hits: Sequence[Hit]) -> Taken:
        """See ``lib.methods.base.Step``."""
        return Taken(list(hits[: self.count]), 0)


@dataclass(frozen=True)
class Filter:
    """Only passages whose score is at or above ``threshold`` stay, in their order.

    It is given the k passages that a reader would get, as in RAG2: nothing takes the place of what
    it drops. The scorer reads the question as ``shown`` shows it, as RAG2's filter does. Where no
    passage would stay, ``if_none`` says what does: "nothing" (a chat model then answers without
    documents) or the "best" one (a reader without a language model cannot answer without any).
    """

    score: Scorer
    threshold: float
    if_none: Literal["nothing", "best"] = "nothing"
    name: str = "filter"
    after_cut: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choices(self)

    def __call__(self, question: Question, hits: Sequence[Hit]) -> Taken:
        """See ``lib.methods.base.Step``. The trace tells whether it was ``emptied``."""
        query = shown(question)
        scores = np.asarray(self.score([(query, text) for _, text in hits]))
        kept = np.flatnonzero(scores >= self.threshold)
        emptied = not len(kept)
        if emptied and self.if_none == "best" and len(hits):
            kept = [int(np.argmax(scores))]
        trace = {"scores": scores.tolist(), "emptied": emptied}
        return Taken([hits[i] for i in kept], len(hits), trace)


def shown(question: Question) -> str:
    """A question as a filter reads it: with its options, unless these are only yes, no and maybe.

    Filters were trained on questions that were shown like this.
    """
    says_more = not set(question.options.values()) <= {"yes", "no", "maybe"}
    return stem(question, options_visible=says_more)
