"""RAG2 (Sohn et al. 2025): search with a rationale, in every source alike, re-rank, cut, filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from lib.datasets import Question
from lib.embed import Tower
from lib.llm.prompts import load_prompt
from lib.methods.base import (
    Budget,
    Expansion,
    Search,
    Step,
    check_choices,
    passages_of,
    question_alone,
    sampling,
    stem,
)
from lib.methods.postprocess import Filter, First, Rerank, Scorer
from lib.query_spec import Fusion, Hypotheses, Text

if TYPE_CHECKING:
    from lib.search.label_tokens import LabelTokens
    from lib.search.rerank import PairScorer


@dataclass(frozen=True)
class RAG2:
    """A rationale as the query, as many passages from each of ``sources``, re-ranked and filtered.

    ``query`` is what is searched with. The rationale saw the options and contains an answer, so
    nothing that uses it is question-only retrieval. ``sources``: each gives ``depth`` / sources
    passages, in turns (balanced retrieval); without them all sources are one corpus (stacked).
    ``reranker`` scores pairs for the question, as the paper says, or for the rationale, as its code
    does. ``judge`` scores how helpful each of the first k passages is; those below ``threshold``
    are dropped, and ``if_none`` says what is left where all are (see ``postprocess.Filter``).
    ``read``: the judge and the reader are given so many of the k, None = all. Scorers
    are functions, or names (``lib.search.rerank.load_scorer``); with ``titles`` they read a
    passage with its title.
    ``prompt`` asks for steps, an explanation and one option, as the paper does; "rationale" asks
    for a paragraph alone, and is what the recorded rationales were written for. Defaults are the
    paper's; ``depth`` is ours (the paper's code has 10 and 100 a source).
    """

    name: str = "rag2"
    query: Literal["rationale", "question"] = "rationale"
    sources: tuple[str, ...] = ()
    depth: int = 32
    reranker: str | Scorer | None = None
    rerank_by: Literal["question", "rationale"] = "question"
    judge: str | Scorer | None = None
    threshold: float = 0.5
    if_none: Literal["nothing", "best"] = "nothing"
    read: int | None = None
    titles: bool = False
    temperature: float = 0.0
    max_tokens: int = 512
    seed: int = 0
    tower: Tower = "query"
    prompt: str = "rationale_steps"
    options_visible: bool = True

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("reranker", "judge"):
            if isinstance(scorer := getattr(self, name), str):
                object.__setattr__(self, name, Named(scorer))
        if self.sources and self.depth < len(self.sources):
            raise ValueError(f"depth {self.depth} leaves some of {len(self.sources)} sources out")

    @property
    def needs_llm(self) -> bool:
        """Whether a rationale is written at all."""
        return self.query == "rationale" or bool(self.reranker and self.rerank_by == "rationale")

    def budget(self) -> Budget | None:
        """One request for one rationale."""
        if not self.needs_llm:
            return None
        return Budget(((self.prompt, 0),), 1, **sampling(self))

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Ask for the rationale, where something reads it, and say what follows the search."""
        if not self.needs_llm:
            return self.given(question)
        messages = load_prompt(self.prompt).messages(question=stem(question, self.options_visible))
        replies = llm.generate(messages, n=1, top_p=1.0, **sampling(self))
        written, trace = passages_of(replies)
        if not written:
            return Expansion(None, trace | {"error": "the rationale was empty"})
        return replace(self.given(question, written[0]), trace=trace)

    def given(self, question: Question, rationale: str = "") -> Expansion:
        """The expansion with a rationale that is there already; empty where none is read."""
        searched = question_alone(question)
        if self.query == "rationale":
            searched = Hypotheses((Text(rationale, 1.0, self.tower, "passage"),))
        request = searched
        if self.sources:
            parts = tuple(replace(searched, sources=(source,)) for source in self.sources)
            request = Fusion(parts, "balanced", depth=self.depth // len(self.sources))
        steps = self._steps(rationale)
        return Expansion(request, {}, steps, self.depth if steps else 0, self.titles)

    def _steps(self, rationale: str) -> tuple[Step, ...]:
        steps: list[Step] = []
        if self.reranker:
            by_rationale = self.rerank_by == "rationale"
            steps.append(Rerank(self.reranker, rationale if by_rationale else ""))
        if self.read is not None:
            steps.append(First(self.read))
        if self.judge:
            steps.append(Filter(self.judge, self.threshold, self.if_none))
        return tuple(steps)


@dataclass(frozen=True)
class Named:
    """A scorer by name, opened when it is first needed; ``fingerprint`` is that of its weights."""

    name: str

    @property
    def fingerprint(self) -> str:
        """All that changes a score."""
        return _opened(self.name).fingerprint

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """See ``lib.methods.postprocess.Scorer``."""
        return _opened(self.name)(pairs)


@cache
def _opened(name: str) -> PairScorer | LabelTokens:
    from lib.search.rerank import load_scorer

    return load_scorer(name)
