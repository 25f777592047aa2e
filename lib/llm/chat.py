"""The interface of chat models: requests for text or JSON, in parallel, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from lib.llm.replies import part, read_objects

Message = dict[str, str]

REFERENCE = "reference text"
"""Name and author of text that was written for this companion: it has no tokens and no latency."""

_TAG: ContextVar[dict[str, str]] = ContextVar("tag")


@dataclass(frozen=True)
class Reply:
    """One generated text. ``finish_reason`` "length" means that ``max_tokens`` cut it.

    Tokens and latency (seconds, waiting for retries included) are those of the request: they are
    recorded on ``choice`` 0 and are 0 on its later choices; None = not measured. ``note`` says what
    the server did not do ("schema not enforced"), ``method`` which method asked (see ``tag``).
    ``thinking`` is the model's reasoning before ``text``; ``text`` does not contain it.
    """

    text: str
    finish_reason: str
    prompt_tokens: int | None
    output_tokens: int | None
    latency_s: float | None
    model: str
    choice: int = 0
    note: str = ""
    method: str = ""
    thinking: str = ""


MOST_CHARACTERS = 200_000
"""The longest reply accepted. No prompt asks for a tenth of it: a longer one is an error."""

MOST_SIGNS = 1000
"""With so many brackets, or characters in a row without a letter, a model is repeating itself.
Parsing such a text would take minutes, or nest too deep."""
_SIGNS = re.compile(rf"(?<!\W)\W{{{MOST_SIGNS}}}")  # tried only where a run begins: once a run


class LLMError(RuntimeError):
    """A server refused, failed or answered nonsense; says who, where and what to do next."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status


@contextmanager
def tag(method: str = "", qid: str = "") -> Iterator[None]:
    """Name the method and question that the calls inside are for; never part of a request."""
    token = _TAG.set({"method": method, "qid": qid})
    try:
        yield
    finally:
        _TAG.reset(token)


def current_tag() -> dict[str, str]:
    """``{"method": ..., "qid": ...}`` of the innermost ``tag``; empty strings outside of any."""
    return dict(_TAG.get({"method": "", "qid": ""}))


def sample_seed(seed: int, sample: int) -> int:
    """Seed of sample 0, 1, ...: ``seed`` itself first, then far from any neighbouring seed."""
    return seed + 1_000_003 * sample


class ChatModel:
    """A text generator. Yours has a ``name`` and ``_say(messages, n, options) -> list[Reply]``."""

    name: str
    tag = staticmethod(tag)

    def generate(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        temperature: float = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 512,
        seed: int = 0,
        stop: str | Sequence[str] | None = None,
        schema: dict | None = None,
        choices: Sequence[str] = (),
    ) -> list[Reply]:
        """``n`` replies to chat messages; ``schema`` is a JSON schema for the reply's text.

        With ``choices`` nothing is generated: the text is a JSON object of the log-probability of
        each choice that is among the likeliest first tokens (see ``OpenAIChat``).
        """
        options = {
            "temperature": float(temperature),
            "top_p": float(top_p),
            "max_tokens": max_tokens,
            "seed": seed,
            "stop": [stop] if isinstance(stop, str) else list(stop or []),
            "schema": schema,
            **({"choices": list(choices)} if choices else {}),
        }
        replies = map(_within_reason, self._say([dict(m) for m in messages], n, options))
        method = current_tag()["method"]
        return [replace(without_thinking(reply), method=method) for reply in replies]

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        """Each model implements this: ``n`` replies to messages, with ``generate``'s options."""
        raise NotImplementedError(f"{type(self).__name__} has no _say")


def _within_reason(reply: Reply) -> Reply:
    """The reply, or, if it cannot be parsed, an empty one (a failed generation) that says why."""
    text = reply.text
    brackets = text.count("[") + text.count("{")
    if len(text) <= MOST_CHARACTERS and brackets <= MOST_SIGNS and not _SIGNS.search(text):
        return reply
    note = f"{len(text):,} characters without end, dropped"
    return replace(reply, text="", finish_reason="no text", note=note)


def without_thinking(reply: Reply) -> Reply:
    """The reply with thinking and text separated; cut while still thinking, its text is empty."""
    thought, text = part(reply.text)
    return replace(reply, text=text, thinking=thought or reply.thinking)


class ScriptedChat(ChatModel):
    """Text written by hand: rules ``{"match": part of the messages, "text": str or list}``.

    The first that fits answers: a list sample by sample, a str every sample; else LLMError.
    """

    name = REFERENCE

    def __init__(self, rules: Iterable[dict]):
        self.rules = list(rules)

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        asked = "\n".join(m["content"] for m in messages)
        texts = next((rule["text"] for rule in self.rules if rule["match"] in asked), [])
        texts = [texts] * n if isinstance(texts, str) else texts[:n]
        if len(texts) < n:
            raise LLMError(f"the script has {len(texts)} of {n} replies to {asked[-200:]!r}")
        return [Reply(t, "stop", None, None, None, self.name, i) for i, t in enumerate(texts)]


# JSON --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JsonReply:
    """``value`` fits the schema, or is None and ``error`` says why.

    ``repaired``: a second call was needed; ``replies``: the one or two, the last one decisive.
    """

    value: dict[str, Any] | None
    error: str
    repaired: bool
    replies: tuple[Reply, ...]

    @property
    def cut(self) -> bool:
        """The decisive reply was cut by ``max_tokens``, so even a value that fits may be half."""
        return self.replies[-1].finish_reason == "length"


def ask_json(llm: ChatModel, messages: Sequence[Message], schema: dict, **options) -> JsonReply:
    """Ask for one JSON object that fits ``schema``, with one repair call.

    ``options`` go to ``llm.generate``. Keys the schema does not name are dropped, a required string
    may not be blank. A failure is a JsonReply without value, to be counted; LLMErrors are raised.
    """
    replies, asked = [], list(messages)
    for _ in range(2):
        replies.append(llm.generate(asked, schema=schema, **options)[0])
        value, error = _read_json(replies[-1], schema)
        if not error:
            break
        names = ", ".join(schema["required"])
        repair = f"This cannot be used: {error}. Reply with one JSON object only, keys: {names}."
        # Some servers refuse an empty turn, such as that of a reply that was cut in its thinking.
        asked.append({"role": "assistant", "content": replies[-1].text or "(nothing)"})
        asked.append({"role": "user", "content": repair})
    return JsonReply(value, error, len(replies) > 1, tuple(replies))


def _read_json(reply: Reply, schema: dict) -> tuple[dict | None, str]:
    """The likeliest object that fits, or None and what is wrong with the likeliest."""
    from jsonschema import Draft202012Validator

    wrong = []
    for found in read_objects(reply.text):
        value = {k: v for k, v in found.items() if k in schema["properties"]}
        errors = [error.message[:200] for error in Draft202012Validator(schema).iter_errors(value)]
        errors += [f"{k!r} is empty" for k in schema["required"] if not str(value.get(k)).strip()]
        if not errors:
            return value, ""
        wrong += errors
    cut = " (cut by max_tokens)" if reply.finish_reason == "length" else ""
    return None, (wrong or ["no JSON object in the reply"])[0] + cut


# many at once ------------------------------------------------------------------------------------

_STOP: ContextVar[Event] = ContextVar("stop")
"""Set when Ctrl-C has ended a thread's work: Python tells only the main thread of Ctrl-C."""

_GLANCE_S = 0.2
"""Seconds after which a waiting thread checks again whether the work was stopped."""


def wait_for(reply: Future) -> Any:
    """The result of a running request; after Ctrl-C it is cancelled, with a KeyboardInterrupt."""
    stop = _STOP.get(None)
    try:
        while not reply.done():
            if stop and stop.is_set():
                raise KeyboardInterrupt
            wait([reply], _GLANCE_S)
        return reply.result()
    finally:
        reply.cancel()  # does nothing to one that is done


def in_parallel(
    fn: Callable, items: Iterable, workers: int = 8, label: str = "", progress: bool = False
) -> list:
    """``fn`` of every item on ``workers`` threads, in order; each sees the caller's ``tag``.

    After an error no new item starts; running ones finish, then the error is raised. After Ctrl-C
    items that wait for a server end at once.
    """
    stop = Event()
    token = _STOP.set(stop)
    pool = ThreadPoolExecutor(workers)
    try:
        jobs = [pool.submit(copy_context().run, fn, item) for item in items]
        for job in tqdm(as_completed(jobs), label, len(jobs), disable=not progress):
            job.result()
        return [job.result() for job in jobs]
    except KeyboardInterrupt:
        stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        _STOP.reset(token)


def ledger(replies: Iterable[Reply]) -> pd.DataFrame:
    """What replies cost, one row per method and model.

    Columns: method, model, calls (requests), replies, prompt_tokens, output_tokens, latency_s
    (sums; missing when one was not measured), finish_reasons ("length 2, stop 30").
    """
    table = pd.DataFrame([vars(r) for r in replies], columns=list(Reply.__annotations__))
    costs = ["prompt_tokens", "output_tokens", "latency_s"]
    table[costs] = table[costs].astype("Float64")
    groups = table.assign(calls=table["choice"] == 0, replies=1).groupby(["method", "model"])
    out = groups[["calls", "replies", *costs]].sum(skipna=False)
    out["finish_reasons"] = groups["finish_reason"].agg(
        lambda given: ", ".join(f"{k} {n}" for k, n in sorted(given.value_counts().items()))
    )
    return out.reset_index()
