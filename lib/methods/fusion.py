"""The course's ensemble: the question's ranking and one HyDE passage's, fused by rank."""

from __future__ import annotations

from dataclasses import dataclass

from lib.datasets import Question
from lib.embed import Tower
from lib.llm.prompts import load_prompt
from lib.methods import base
from lib.methods.base import Budget, Expansion, Search
from lib.query_spec import Fusion, Hypotheses, Text


@dataclass(frozen=True)
class HyDEFusion:
    """Two searches, the question alone and one hypothetical passage alone, merged by RRF.

    Defaults are the lesson's: one passage of at most 300 tokens, k = 60, ranks from 1, each list
    twice as deep as the result. The temperature is HyDE's.
    """

    name: str = "fusion"
    rrf_k: int = 60
    temperature: float = 0.7
    max_tokens: int = 300
    seed: int = 0
    tower: Tower = "article"
    prompt: str = "hyde_passage"
    options_visible: bool = False
    needs_llm: bool = True

    def budget(self) -> Budget:
        """One request for one passage, expected to be as long as HyDE's."""
        return Budget(((self.prompt, 0),), 1, **base.sampling(self), length_as="HyDE")

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Ask once for one passage and search with it beside the question."""
        shown = base.stem(question, self.options_visible)
        messages = load_prompt(self.prompt).messages(question=shown)
        replies = llm.generate(messages, n=1, top_p=1.0, **base.sampling(self))
        passages, trace = base.passages_of(replies)
        if not passages:
            return Expansion(None, trace | {"error": "the sampled passage was empty"})
        passage = Hypotheses((Text(passages[0], 1.0, self.tower, "passage"),))
        return Expansion(Fusion((base.question_alone(question), passage), "rrf", self.rrf_k), trace)


base.register(HyDEFusion())
