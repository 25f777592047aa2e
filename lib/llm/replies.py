"""From an LLM's text to a checked JSON object, or to a recorded failure: never to a guess."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lib.llm.chat import ChatModel, Message, Reply

_START = re.compile(r"\{(?=\s*[\"'“‘])")
_NAME = r"[^\"'“”‘’\\{}\[\]:,]+"
_KEY = rf"[\"'“‘]{_NAME}[\"'”’]\s*:\s*"
_END = rf"(?=\s*,?\s*(?:\}}|\Z|{_KEY}))"
# A string ends where its object can go on, so quotes inside need no escape, and it holds no other
# pair; or the text ends, and it holds no such quote.
_STRING = "|".join(
    rf"{q[0]}((?:\\.|(?!{_KEY}[\"'“‘])[^\\])*?)[{q}]{_END}|{q[0]}((?:\\.|[^{q}\\])*)\Z"
    for q in ('"', "'", "“”", "‘’")
)
_BARE = r"([\w.+-]+|\[[^\[\]]*\])(?=\s*[,}])"
_PAIR = re.compile(rf"(?s)\s*(?={_KEY}).({_NAME}).\s*:\s*(?:{_STRING}|{_BARE})\s*,?")


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
        value, error = _read(replies[-1], schema)
        if not error:
            break
        names = ", ".join(schema["required"])
        repair = f"This cannot be used: {error}. Reply with one JSON object only, keys: {names}."
        # Some servers refuse an empty turn, such as that of a reply that was cut in its thinking.
        asked.append({"role": "assistant", "content": replies[-1].text or "(nothing)"})
        asked.append({"role": "user", "content": repair})
    return JsonReply(value, error, len(replies) > 1, tuple(replies))


def _read(reply: Reply, schema: dict) -> tuple[dict | None, str]:
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


def read_objects(text: str) -> list[dict]:
    """JSON objects in a text, the likeliest first: those that end (the last leads), then cut ones.

    Where it is not strict JSON, a flat object is read, strings in any quotes; nothing is guessed.
    """
    whole, cut, at = [], [], 0
    while start := _START.search(text, at):
        try:
            found, at = json.JSONDecoder().raw_decode(text, start.start())
            follows = "}"
        except (ValueError, RecursionError):
            found, at = _flat(text, start.end())
            follows = text[at:].lstrip()[:1]
        if found and follows in ("}", ""):
            (whole if follows else cut).append(found)
        elif "}" in text[at:]:
            whole.clear()  # what cannot be read may be the answer, and what stands before a draft
    return whole[::-1] + cut[::-1]


def _flat(text: str, at: int) -> tuple[dict, int]:
    """The pairs from ``at``, and where they end; none if one is not what JSON allows."""
    marks, found = {"'": "'", '"': r"\""}, {}
    while pair := _PAIR.match(text, at):
        raw, at = pair[pair.lastindex], pair.end()
        if pair.lastindex < _PAIR.groups:
            raw = re.sub(r"(\\[^'])|\\?(['\"])", lambda m: m[1] or marks[m[2]], raw)
            raw = f'"{raw}"'
        found[pair[1]] = raw
    try:
        return {name: json.loads(raw, strict=False) for name, raw in found.items()}, at
    except ValueError:
        return {}, at
