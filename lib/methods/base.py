"""One interface for every method: ``expand(question, llm, search) -> Expansion(request, trace)``.

A method only says *what to search with*; ``lib.retrieve`` is the one place that embeds, searches
and merges. A request is one of four kinds: weighted texts that become one vector, a sparse text for
BM25, a minimum of linear forms, or a fusion of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from lib.datasets import Question

__all__ = [
    "Tower", "Text", "Dense", "Sparse", "Forms", "Fusion", "Request", "Expansion", "Search",
    "Method", "stem",
]  # fmt: skip

Tower = Literal["query", "article"]


@dataclass(frozen=True)
class Text:
    """One text of a weighted set; ``text`` may be a (title, text) or (question, text) pair.

    ``tower`` says which side of a two-tower encoder reads it: a hypothesis reads like a passage, so
    it goes to the article tower by default (ambiguity A1). ``role`` names it in traces.
    """

    text: str | tuple[str, str]
    weight: float = 1.0
    tower: Tower = "article"
    role: str = ""


@dataclass(frozen=True)
class Dense:
    """v = sum_i w_i e(text_i), one search; with ``pool``, only among its ``pool_size`` best."""

    texts: tuple[Text, ...]
    pool: Dense | None = None
    pool_size: int = 0


@dataclass(frozen=True)
class Sparse:
    """A text for BM25."""

    text: str


@dataclass(frozen=True)
class Forms:
    """S(d) = min_j (v_j . d + offset_j): several mimics by their maximum, or L4's margin."""

    forms: tuple[Dense, ...]
    offsets: tuple[float, ...]


@dataclass(frozen=True)
class Fusion:
    """Several requests merged by reciprocal rank (``rrf``) or by raw score (``score``)."""

    requests: tuple[Request, ...]
    how: Literal["rrf", "score"] = "rrf"
    rrf_k: int = 60
    depth: int = 0
    """How deep each list goes; 0 means twice the k asked for."""


Request = Dense | Sparse | Forms | Fusion


@dataclass(frozen=True)
class Expansion:
    """What to search with, and everything that led to it (prompts, replies, flags) for the trace.

    ``request`` is None when the method failed (say, an LLM reply that stayed broken): the question
    is then counted as failed, never answered by another method.
    """

    request: Request | None
    trace: dict = field(default_factory=dict)


Search = Callable[[Request, int], list[tuple[str, str]]]
"""search(request, k) -> (passage id, text) pairs; given to methods that read first results."""


@runtime_checkable
class Method(Protocol):
    """A retrieval method: a frozen dataclass whose fields are its settings."""

    name: str
    needs_llm: bool
    options_visible: bool

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Say what to search with for one question. Never looks at ``question.answer``."""
        ...


def stem(question: Question, options_visible: bool) -> str:
    """The question as a retrieval prompt shows it, with the options only when they may be seen."""
    if not options_visible:
        return question.text
    listed = "\n".join(f"{letter}. {option}" for letter, option in sorted(question.options.items()))
    return f"{question.text}\n{listed}"
