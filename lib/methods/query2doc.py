"""Query2Doc (Wang et al. 2023): search with the question and one pseudo-document behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from lib.datasets import Question
from lib.llm.prompts import load_prompt
from lib.methods import base
from lib.methods.base import Budget, Expansion, Search
from lib.query_spec import Hypotheses, Text


@dataclass(frozen=True)
class Query2Doc:
    """One sampled pseudo-document, read together with the question.

    Defaults are the original's (four examples, temperature 1, 128 tokens); CHR's Table 3 counts
    512. The two become one vector as a (question, document) pair on the query tower, where the
    question survives a cut.
    """

    name: str = "query2doc"
    shots: Literal[0, 4] = 4
    temperature: float = 1.0
    max_tokens: int = 128
    seed: int = 0
    options_visible: bool = False
    needs_llm: bool = True
    paper_name: ClassVar[str] = "Query2Doc"
    __post_init__ = base.check_choices

    def budget(self) -> Budget:
        """One request for one passage."""
        prompts = ((f"query2doc_{self.shots}shot", 0),)
        return Budget(prompts, 1, **base.sampling(self), length_as=self.paper_name)

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Ask once for one passage and put it behind the question."""
        prompt = load_prompt(f"query2doc_{self.shots}shot")
        messages = prompt.messages(question=base.stem(question, self.options_visible))
        replies = llm.generate(messages, n=1, top_p=1.0, **base.sampling(self))
        passages, trace = base.passages_of(replies)
        if not passages:
            return Expansion(None, trace | {"error": "the sampled passage was empty"})
        pair = Text((question.text, passages[0]), 1.0, "query", "question and passage")
        return Expansion(Hypotheses((pair,)), trace)


base.register(Query2Doc())
