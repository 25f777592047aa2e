"""One interface for every method: ``expand(question, llm, search) -> Expansion(request, trace)``.

A method only says *what to search with*, and what becomes of the list after the search. ``lib.run``
is the one place that embeds, searches and merges; ``lib.expansion`` takes the steps after it.

A method is a frozen dataclass whose fields are its settings, each with a default (``Method``):

``name``
    its key in every table: a text that no other method or row has.
``needs_llm``, ``options_visible``
    whether it asks a language model, and whether its texts are written seeing the options.
``lam``
    only where a mimic is subtracted: it is swept in Figure 5, and compared in the claims.
``budget()``
    what one question asks of a language model at most (``Budget``); None where it asks nothing.
``expand(question, llm, search)``
    the request. ``llm`` is a ``lib.llm.chat.ChatModel`` or None; ``search(request, k)`` gives the
    first k passages as (id, text). A passage that was found is searched with by its stored vector:
    ``Text(pid=pid)``. What it asked goes into the trace under ``replies``: costs are counted there.

It is one file, or one cell of a notebook, and joins the others in one of four ways: a file in this
folder that ends in ``register(Mine())``; ``register(Mine())`` in a cell;
``evaluate(methods=[Mine()])``; or a profile that names its file, wherever that is:
``methods = ["mine.py:Mine"]``, or with settings, ``[methods.mine]``, ``file = "mine.py:Mine"``.
``tests/rocchio.py`` is an example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import (
    Literal,
    Protocol,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from lib.datasets import Question
from lib.llm.chat import Reply
from lib.query_spec import Hit, Hypotheses, Request, Text


@dataclass(frozen=True)
class Taken:
    """What a step made of a list: the ``hits`` that are left, in their new order, how many
    ``pairs`` of texts it had a model score, and what else the trace should hold (``info``)."""

    hits: list[Hit]
    pairs: int = 0
    info: Mapping = field(default_factory=dict)


@runtime_checkable
class Step(Protocol):
    """What happens to a ranked list after the search: it is re-ranked, or filtered.

    With the attribute ``after_cut`` it is given only the final k passages, not a deeper list.
    """

    name: str

    def __call__(self, question: Question, hits: Sequence[Hit]) -> Taken:
        """The list after this step. Never looks at ``question.answer``."""
        ...


@dataclass(frozen=True)
class Expansion:
    """What to search with, and everything that led to it (prompts, replies, flags) for the trace.

    ``request`` is None when the method failed (say, an LLM reply that stayed broken): the question
    is then counted as failed, never answered by another method. The steps ``after`` the search are
    taken one after the other on the best ``depth`` passages (0: as many as are wanted), which they
    read with their ``titles`` or without.
    """

    request: Request | None
    trace: dict = field(default_factory=dict)
    after: tuple[Step, ...] = ()
    depth: int = 0
    titles: bool = False


Search = Callable[[Request, int], list[Hit]]
"""search(request, k) -> the k best; given to methods that read first results."""


@dataclass(frozen=True)
class Budget:
    """Upper bound on what one question's expansion asks of an LLM, known before any request.

    ``prompts`` has a (prompt name, passages shown) for each request, and ``texts`` is how many
    texts are written in all, each of at most ``max_tokens``; a passage is shown up to its first
    ``words`` words. ``temperature`` and ``seed`` are part of it, so that methods with equal budgets
    make the same requests and share their replies. ``length_as`` is the paper's name of the method
    whose printed text length is expected; without one a text is costed at its cap.
    """

    prompts: tuple[tuple[str, int], ...]
    texts: int
    max_tokens: int
    words: int = 0
    temperature: float = 0.0
    seed: int = 0
    length_as: str = ""


@runtime_checkable
class Method(Protocol):
    """A retrieval method: a frozen dataclass whose fields are its settings.

    It may also say its name in the paper (``paper_name``).
    """

    name: str
    needs_llm: bool
    options_visible: bool

    def budget(self) -> Budget | None:
        """What an expansion asks of an LLM; None for a method that asks nothing."""
        ...

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Say what to search with for one question. Never looks at ``question.answer``."""
        ...


METHODS: dict[str, Method] = {}
"""Every registered method by name, with its default settings."""


def register(method: Method) -> None:
    """Add a method, with its default settings, to every table; its own file in this folder does so.

    A class that is defined again, such as in a cell that is run once more, replaces itself.
    ValueError for what is no method, and where another method has its name.
    """
    check_method(method)
    other = METHODS.get(method.name)
    if other is not None and _place_of(other) != _place_of(method):
        raise ValueError(f"two methods are called {method.name!r}: give yours another name")
    METHODS[method.name] = method


def _place_of(method: Method) -> tuple[str, str]:
    return type(method).__module__, type(method).__qualname__


def check_method(method: object) -> None:
    """ValueError, naming all that it lacks, for what is no ``Method``."""
    if isinstance(method, type):
        name = method.__name__
        raise ValueError(f"{name} is a class: give a method of it, {name}()")
    kind, said = type(method), type(method).__name__
    if not is_dataclass(method):
        raise ValueError(f"{said} is no method: write @dataclass(frozen=True) above its class")
    has = {one.name for one in fields(method)}
    has |= {name for name in dir(kind) if isinstance(getattr(kind, name), property)}
    lacks = [
        f"field {name}" for name in ("name", "needs_llm", "options_visible") if name not in has
    ]
    lacks += [f"{name}()" for name in ("budget", "expand") if not hasattr(method, name)]
    if lacks:
        raise ValueError(
            f"{said} is no method: it has no {', no '.join(lacks)}. Next: see lib/methods/base.py"
        )


def has_lambda(method: Method) -> bool:
    """Whether lambda is a setting of the method. H+ alone has lambda 0, always."""
    return any(one.name == "lam" for one in fields(method)) and method.name != "hplus"  # type: ignore[arg-type]


def asked_once(methods: Mapping[str, Method]) -> dict[str, Budget]:
    """The budgets of methods that ask an LLM. Methods with the same requests share their replies,
    so only one of them is kept: CHR, else the first."""
    by_budget: dict[Budget, str] = {}
    for name, method in methods.items():
        budget = method.budget()
        if budget is not None and (budget not in by_budget or name == "chr"):
            by_budget[budget] = name
    return {name: budget for budget, name in by_budget.items()}


def code_of(method: Method) -> list[str]:
    """The modules that a method's class and its base classes are written in, by name."""
    return sorted({base.__module__ for base in type(method).__mro__} - {"builtins", "typing"})


class Sampling(TypedDict):
    """The sampling options that a method sets for every reply it asks for."""

    temperature: float
    max_tokens: int
    seed: int


def sampling(method, seed: int | None = None) -> Sampling:
    """A method's own sampling options, for ``llm.generate``, ``ask_json`` and ``Budget``.

    ``seed`` takes the place of the method's for a second call, which would repeat the first.
    """
    return {
        "temperature": method.temperature,
        "max_tokens": method.max_tokens,
        "seed": method.seed if seed is None else seed,
    }


def stem(question: Question, options_visible: bool) -> str:
    """The question as a retrieval prompt shows it, with the options only when they may be seen."""
    if not options_visible:
        return question.text
    listed = "\n".join(f"{letter}. {option}" for letter, option in sorted(question.options.items()))
    return f"{question.text}\n{listed}"


def question_alone(question: Question) -> Hypotheses:
    """The search of Standard RAG: the question, without its options, on the query tower."""
    return Hypotheses((Text(question.text, 1.0, "query", "question"),))


def reply_trace(replies: Sequence[Reply], used: int) -> dict:
    """The part of a trace about replies: the replies, and how many of them were empty or cut.

    ``used`` is how many gave a text to search with; a reply is cut when it reached ``max_tokens``.
    """
    cut = sum(reply.finish_reason == "length" for reply in replies)
    return {"replies": list(replies), "empty": len(replies) - used, "cut": cut}


def says_nothing(text: str) -> bool:
    """Whether a text is empty for a search: it has no letter of any script, such as "..."."""
    return not any(map(str.isalpha, text))


def passages_of(replies: Sequence[Reply]) -> tuple[list[str], dict]:
    """Sampled passages without the empty ones, and a trace: ``reply_trace`` and ``passages``."""
    texts = [reply.text.strip() for reply in replies]
    passages = [text for text in texts if not says_nothing(text)]
    trace = reply_trace(replies, used=len(passages))
    trace["passages"] = passages
    return passages, trace


def first_words(hits: Sequence[Hit], words: int) -> list[Hit]:
    """Retrieved passages, each text cut to its first ``words`` words."""
    return [(pid, " ".join(text.split()[:words])) for pid, text in hits]


def numbered(hits: Sequence[Hit]) -> str:
    """Retrieved passages as a prompt lists them: a line each, numbered from 1."""
    if not hits:
        return "(no passages)"
    return "\n".join(f"[{number}] {text}" for number, (_, text) in enumerate(hits, 1))


def check_choices(method: Method) -> None:
    """ValueError when a setting typed ``Literal`` holds anything else; for ``__post_init__``."""
    for name, hint in get_type_hints(type(method)).items():
        value = getattr(method, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ValueError(f"{method.name}: {name} is one of {get_args(hint)}, not {value!r}")
