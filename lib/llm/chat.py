"""What a chat model is here, and how to drive and cost one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace

import pandas as pd
from tqdm.auto import tqdm

from lib.llm.thinking import part
from lib.llm.waiting import stop_on_interrupt

Message = dict[str, str]

REFERENCE = "reference text"
"""Name and author of text that was written for this companion: it has no tokens and no latency."""

_TAG: ContextVar[dict[str, str]] = ContextVar("tag")


@dataclass(frozen=True)
class Reply:
    """One generated text. ``finish_reason`` "length" means that ``max_tokens`` cut it.

    Tokens and latency (seconds, waiting for retries included) are those of the request: they stand
    on ``choice`` 0 and are 0 on its later choices; None = not measured. ``note`` says what the
    server did not do ("schema not enforced"), ``method`` whom it was for (see ``tag``).
    ``thinking`` is what the model thought before it wrote ``text``, which holds nothing of it.
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
"""No prompt here asks for a tenth of it. A longer text is a server's fault: it is not kept, and
counts as an empty reply, which is a failed generation."""


MOST_SIGNS = 1000
"""So many brackets, or so many signs in a row without a letter, are a model that repeats itself.
Whoever reads the reply would read for minutes, or nest too deep; it counts as an empty one, too."""
_SIGNS = re.compile(rf"(?<!\W)\W{{{MOST_SIGNS}}}")  # looked for where a run begins: once a run


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
    """What generates. Your own: a ``name``, and ``_say(messages, n, options) -> list[Reply]``."""

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


def _within_reason(reply: Reply) -> Reply:
    """The reply, or an empty one that says why if nobody could read its text."""
    text = reply.text
    if len(text) > MOST_CHARACTERS:
        note = f"{len(text):,} characters, dropped"
        return replace(reply, text="", finish_reason="too long", note=note)
    if text.count("[") + text.count("{") > MOST_SIGNS or _SIGNS.search(text):
        return replace(reply, text="", finish_reason="no text", note="signs without end, dropped")
    return reply


def without_thinking(reply: Reply) -> Reply:
    """The reply with its thinking apart; one that was cut while it thought says nothing."""
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


def in_parallel(
    fn: Callable, items: Iterable, workers: int = 8, label: str = "", progress: bool = False
) -> list:
    """``fn`` of every item on ``workers`` threads, in order; each sees the caller's ``tag``.

    After an error nothing new starts; what is under way ends, then the error is raised. After
    Ctrl-C what waits for a server ends at once.
    """
    with stop_on_interrupt() as stop:
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
