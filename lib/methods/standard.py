"""Standard RAG: search with the question itself."""

from __future__ import annotations

from dataclasses import dataclass

from lib.datasets import Question
from lib.methods.base import Dense, Expansion, Search, Sparse, Text, stem

__all__ = ["Standard"]


@dataclass(frozen=True)
class Standard:
    """The question stem, options unseen (MIRAGE's question-only rule), dense or by BM25."""

    name: str = "standard"
    sparse: bool = False
    needs_llm: bool = False
    options_visible: bool = False

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """One text of weight 1 on the query tower."""
        text = stem(question, self.options_visible)
        if self.sparse:
            return Expansion(Sparse(text))
        return Expansion(Dense((Text(text, 1.0, "query", "question"),)))
