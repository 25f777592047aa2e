"""A rationale as the query (Sohn et al. 2025, RAG2): search with how one would answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lib.data.questions import Question
from lib.llm.prompts import load_prompt
from lib.methods.base import Budget, Expansion, Search, passages_of, stem
from lib.search.embed import Tower
from lib.ways import Hypotheses, Text

__all__ = ["Rationale"]


@dataclass(frozen=True)
class Rationale:
    """One greedy rationale, searched with by itself.

    RAG2 puts it in place of the question; whoever writes it sees the options, and so it may name
    the answer. An empty reply fails the question and is counted.
    """

    name: str = "rationale"
    temperature: float = 0.0
    max_tokens: int = 512
    seed: int = 0
    tower: Tower = "article"
    prompt: str = "rationale"
    options_visible: bool = True
    needs_llm: bool = True
    colour: ClassVar[str] = "#7F7F7F"

    def budget(self) -> Budget:
        """One request for one rationale."""
        return Budget(
            ((self.prompt, 0),), 1, self.max_tokens, temperature=self.temperature, seed=self.seed
        )

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Ask once, and search with what is said."""
        shown = stem(question, self.options_visible)
        replies = llm.generate(
            load_prompt(self.prompt).messages(question=shown),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )
        written, trace = passages_of(replies)
        if not written:
            return Expansion(None, trace | {"error": "the rationale was empty"})
        return Expansion(Hypotheses((Text(written[0], 1.0, self.tower, "passage"),)), trace)
