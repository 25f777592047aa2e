"""What a chat model is here, and how to get, drive and cost one.

``connect`` turns a spec into a ``ChatModel`` (a server, the bundled model, a recording, a script),
``in_parallel`` keeps many calls in flight, ``ledger`` adds up what they cost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from lib.files import read_jsonl
from lib.paths import ROOT

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ChatModel", "LLMError", "Message", "REFERENCE", "Reply", "ScriptedChat",
    "connect", "current_tag", "in_parallel", "ledger", "sample_seed", "tag",
]  # fmt: skip

Message = dict[str, str]
Item = TypeVar("Item")
Result = TypeVar("Result")

REFERENCE = "reference text"
"""Name and author of text that was written for this companion: it has no tokens and no latency."""

_TAG: ContextVar[dict[str, str]] = ContextVar("tag")


@dataclass(frozen=True)
class Reply:
    """One generated text. ``finish_reason`` "length" means that ``max_tokens`` cut it.

    Tokens and latency (seconds, waiting for retries included) are those of the request: they stand
    on ``choice`` 0 and are 0 on its later choices; None = not measured. ``note`` says what the
    server did not do ("schema not enforced"), ``method`` whom it was for (see ``tag``).
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


class LLMError(RuntimeError):
    """A server refused, failed or answered nonsense; says who, where and what to do next."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status


@runtime_checkable
class ChatModel(Protocol):
    """What generates: ``OpenAIChat``, ``ScriptedChat``, ``Recorder``, or your own."""

    name: str

    def generate(
        self, messages: Sequence[Message], *, n: int = 1, temperature: float = 0.0,
        top_p: float = 1.0, max_tokens: int = 512, seed: int = 0,
        stop: str | Sequence[str] | None = None, schema: dict | None = None,
    ) -> list[Reply]:  # fmt: skip
        """``n`` replies to chat messages; ``schema`` is a JSON schema for the reply's text."""
        ...

    def tag(self, method: str = "", qid: str = ""):
        """A context that says what the calls inside are for: the function ``tag``."""
        ...


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


class ScriptedChat:
    """Replies by rules ``{"match": part of the messages, "text": str or list}``; the first fits.

    A list holds the texts of samples 0, 1, ...; a str answers every sample. For tests and for text
    written by hand, so its name is "reference text".
    """

    name = REFERENCE
    tag = staticmethod(tag)

    def __init__(self, rules: Iterable[dict]):
        self.rules = list(rules)

    def generate(self, messages: Sequence[Message], *, n: int = 1, **options) -> list[Reply]:
        """``n`` texts of the first rule that fits; LLMError when none does or it has fewer."""
        asked = "\n".join(m["content"] for m in messages)
        texts = next((rule["text"] for rule in self.rules if rule["match"] in asked), [])
        texts = [texts] * n if isinstance(texts, str) else texts[:n]
        if len(texts) < n:
            raise LLMError(f"the script has {len(texts)} of {n} replies to {asked[-200:]!r}")
        method = current_tag()["method"]
        return [Reply(t, "stop", None, None, None, self.name, method=method) for t in texts]


def connect(spec: str | None = None) -> ChatModel:
    """The model a spec names; relative files are relative to the project's root.

    "small" (bundled) | "openai:<model>@<base_url>" | "replay:<file>" | "record:<file>=<spec>" |
    "scripted:<file>". What None or "openai:" leave out comes from CHR_LLM_MODEL and CHR_LLM_URL.
    """
    from lib.openai_chat import OpenAIChat
    from lib.recorder import Recorder
    from lib.small_model import small_model

    kind, _, rest = (spec or "openai:").partition(":")
    match kind:
        case "small" if not rest:
            return small_model()
        case "openai":
            model, url = re.fullmatch(r"(.*?)(?:@(https?://.*))?", rest).groups()
            model, url = model or os.getenv("CHR_LLM_MODEL"), url or os.getenv("CHR_LLM_URL")
            if model and url:
                return OpenAIChat(model, url)
            raise LLMError("no LLM: export CHR_LLM_URL=... CHR_LLM_MODEL=..., or connect('small')")
        case "replay" if rest:
            return Recorder(None, ROOT / rest, "replay")
        case "record" if "=" in rest:
            file, _, live = rest.partition("=")
            return Recorder(connect(live), ROOT / file)
        case "scripted" if rest:
            return ScriptedChat(read_jsonl(ROOT / rest))
    raise ValueError(f"no LLM spec {spec!r}; see: help(lib.llm.connect)")


def in_parallel(
    fn: Callable[[Item], Result], items: Iterable[Item], workers: int = 8,
    label: str = "", progress: bool = False,
) -> list[Result]:  # fmt: skip
    """``fn`` of every item on ``workers`` threads, in order; each sees the caller's ``tag``.

    After an error nothing new starts; what is under way ends, then the error is raised.
    """
    from tqdm.auto import tqdm

    pool = ThreadPoolExecutor(workers)
    try:
        jobs = [pool.submit(copy_context().run, fn, item) for item in items]
        for job in tqdm(as_completed(jobs), label, len(jobs), disable=not progress):
            job.result()
        return [job.result() for job in jobs]
    finally:
        pool.shutdown(cancel_futures=True)


def ledger(replies: Iterable[Reply]) -> pd.DataFrame:
    """What replies cost, one row per method and model.

    Columns: method, model, calls (requests), replies, prompt_tokens, output_tokens, latency_s
    (sums; missing when one was not measured), finish_reasons ("length 2, stop 30").
    """
    import pandas as pd

    table = pd.DataFrame([vars(r) for r in replies], columns=list(Reply.__annotations__))
    costs = ["prompt_tokens", "output_tokens", "latency_s"]
    table[costs] = table[costs].astype("Float64")
    groups = table.groupby(["method", "model"])
    counts = groups.agg(calls=("choice", lambda c: (c == 0).sum()), replies=("choice", "size"))
    reasons = groups.finish_reason.agg(
        lambda column: ", ".join(f"{k} {n}" for k, n in sorted(column.value_counts().items()))
    )
    sums = groups[costs].sum(skipna=False)
    return counts.join(sums).join(reasons.rename("finish_reasons")).reset_index()
