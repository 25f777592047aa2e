"""HyDE (Gao et al. 2023): search with the mean of the question and N hypothetical passages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lib.datasets import Question
from lib.embed import Tower
from lib.llm.prompts import load_prompt
from lib.methods.base import Budget, Expansion, Search, passages_of, register, sampling, stem
from lib.query_spec import Hypotheses, Text


@dataclass(frozen=True)
class HyDE:
    """N sampled passages and the question, each unit-normalised, with equal weights.

    Defaults are the original's (N = 8, temperature 0.7, 512 tokens, question included); normalised
    parts are our decision for two-tower encoders, whose norms differ. Empty passages
    are dropped and counted in the trace; with none left the expansion fails.
    """

    name: str = "hyde"
    samples: int = 8
    temperature: float = 0.7
    max_tokens: int = 512
    seed: int = 0
    include_question: bool = True
    tower: Tower = "article"
    prompt: str = "hyde_passage"
    options_visible: bool = False
    needs_llm: bool = True
    paper_name: ClassVar[str] = "HyDE"

    def budget(self) -> Budget:
        """One request for ``samples`` passages."""
        return Budget(((self.prompt, 0),), self.samples, **sampling(self), length_as="HyDE")

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Sample the passages with one request of n = ``samples``."""
        messages = load_prompt(self.prompt).messages(question=stem(question, self.options_visible))
        replies = llm.generate(messages, n=self.samples, top_p=1.0, **sampling(self))
        passages, trace = passages_of(replies)
        if not passages:
            return Expansion(None, trace | {"error": "every sampled passage was empty"})
        texts = [Text(passage, 1.0, self.tower, "passage") for passage in passages]
        if self.include_question:
            texts.insert(0, Text(question.text, 1.0, "query", "question"))
        return Expansion(Hypotheses(tuple(texts)), trace)


register(HyDE())
