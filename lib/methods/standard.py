"""Standard RAG: search with the question itself, by meaning, by its words, or by both."""

from __future__ import annotations

from dataclasses import dataclass

from lib.datasets import Question
from lib.methods.base import Expansion, Search, register, stem
from lib.query_spec import By, Fusion, Hypotheses, Sparse, Text


@dataclass(frozen=True)
class Standard:
    """The question stem, options unseen (MIRAGE's question-only rule), dense or by BM25."""

    name: str = "standard"
    sparse: bool = False
    needs_llm: bool = False
    options_visible: bool = False

    @property
    def paper_name(self) -> str:
        """The paper's name of the dense search; it has no other."""
        return "" if self.sparse else "Standard RAG"

    def budget(self) -> None:
        """None: it asks no model."""
        return None

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """One text of weight 1 on the query tower, or the same text for BM25."""
        text = stem(question, self.options_visible)
        if self.sparse:
            return Expansion(Sparse(text))
        return Expansion(Hypotheses((Text(text, 1.0, "query", "question"),)))


@dataclass(frozen=True)
class Hybrid:
    """The dense and the BM25 ranking of the question, each ``depth`` deep, merged by RRF; with
    ``encoders`` also the ranking by each of these. MedRAG's RRF of two has ``rrf_k`` 100, its RRF
    of four also "contriever" and "specter", or "contriever=<folder>" for a copy of its model."""

    name: str = "rrf"
    rrf_k: int = 60
    depth: int = 100
    encoders: tuple[str, ...] = ()
    needs_llm: bool = False
    options_visible: bool = False

    def budget(self) -> None:
        """None: it asks no model."""
        return None

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Several searches with the same question."""
        text = stem(question, self.options_visible)
        dense = Hypotheses((Text(text, 1.0, "query", "question"),))
        parts = (dense, Sparse(text), *(By(encoder, dense) for encoder in self.encoders))
        return Expansion(Fusion(parts, "rrf", self.rrf_k, self.depth))


register(Standard())
register(Standard("bm25", sparse=True))
register(Hybrid())
