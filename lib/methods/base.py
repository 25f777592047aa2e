"""One interface for every method: ``expand(question, llm, search) -> Expansion(request, trace)``.

A method only says *what to search with*; ``lib.run`` is the one place that embeds, searches
and merges. A request is one of four kinds: weighted texts that become one vector, a sparse text for
BM25, a minimum of linear forms, or a fusion of requests. The functions below are what several
methods share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

from lib.data.questions import Question
from lib.llm.chat import Reply

__all__ = [
    "Tower",
    "Text",
    "Dense",
    "Sparse",
    "Forms",
    "Fusion",
    "Request",
    "Expansion",
    "Hit",
    "Search",
    "Method",
    "check_choices",
    "counted",
    "first_words",
    "numbered",
    "passages_of",
    "question_alone",
    "stem",
]

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


Hit = tuple[str, str]
"""(passage id, text)."""
Search = Callable[[Request, int], list[Hit]]
"""search(request, k) -> the k best; given to methods that read first results."""


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


def question_alone(question: Question) -> Dense:
    """The search of Standard RAG: the question, without its options, on the query tower."""
    return Dense((Text(question.text, 1.0, "query", "question"),))


def counted(replies: Sequence[Reply], kept: int) -> dict:
    """What every trace says of its replies: them, how many gave nothing, how many were cut."""
    cut = sum(reply.finish_reason == "length" for reply in replies)
    return {"replies": list(replies), "empty": len(replies) - kept, "cut": cut}


def passages_of(replies: Sequence[Reply]) -> tuple[list[str], dict]:
    """Sampled passages without the empty ones, and their trace: ``counted`` and ``passages``."""
    passages = [text for text in (reply.text.strip() for reply in replies) if text]
    return passages, counted(replies, len(passages)) | {"passages": passages}


def first_words(found: Sequence[Hit], words: int) -> list[Hit]:
    """What a search returned, each text cut to its first ``words`` words."""
    return [(pid, " ".join(text.split()[:words])) for pid, text in found]


def numbered(found: Sequence[Hit]) -> str:
    """What a search returned as a prompt lists it: a line each, numbered from 1."""
    return "\n".join(f"[{i}] {text}" for i, (_, text) in enumerate(found, 1)) or "(no passages)"


def check_choices(method: Method) -> None:
    """ValueError when a setting typed ``Literal`` holds anything else; for ``__post_init__``."""
    for name, hint in get_type_hints(type(method)).items():
        value = getattr(method, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ValueError(f"{method.name}: {name} is one of {get_args(hint)}, not {value!r}")
