"""From an LLM's text to a checked JSON object, or to a recorded failure: never to a guess.

Strict JSON first, then a tolerant reader of what chat models write (fences, prose around the
object, single or typographic quotes, trailing commas, an end cut off), then one repair call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lib.llm import ChatModel, Message, Reply

__all__ = ["JsonReply", "ask_json", "read_objects", "schema_error"]

_CLOSING = {'"': '"', "'": "'", "“": "”“", "‘": "’‘"}
_START = re.compile(r"\{(?=\s*[\"'“‘}])")
_TOKEN = re.compile(r"\s+|[{}\[\]:,]|[^\s{}\[\]:,]+")
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(
    r"(?s)\\(u[\dA-Fa-f]{4}|x[\dA-Fa-f]{2}|U00(?:0[\dA-Fa-f]|10)[\dA-Fa-f]{4}|.|\Z)"
)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True)
class JsonReply:
    """``value`` fits the schema, or is None and ``error`` says why.

    ``repaired``: a second call was needed; ``tolerant``: the text was not strict JSON; ``replies``:
    the one or two replies behind it, the last one decisive.
    """

    value: dict[str, Any] | None
    error: str
    repaired: bool
    replies: tuple[Reply, ...]
    tolerant: bool = False

    @property
    def cut(self) -> bool:
        """The decisive reply was cut by ``max_tokens``, so even a value that fits may be half."""
        return self.replies[-1].finish_reason == "length"


def ask_json(llm: ChatModel, messages: Sequence[Message], schema: dict, **options) -> JsonReply:
    """Ask for one JSON object that fits ``schema``, with one repair call; see ``schema_error``.

    ``options`` go to ``llm.generate``. Keys the schema does not name are dropped. A failure is a
    JsonReply without value, to be counted; errors of the server itself are raised.
    """
    replies, asked = [], list(messages)
    for _ in range(2):
        replies.append(llm.generate(asked, schema=schema, **options)[0])
        value, error = _read(replies[-1], schema)
        if value is not None:
            break
        names = ", ".join(schema["required"])
        repair = f"This cannot be used: {error}. Reply with one JSON object only, keys: {names}."
        asked.append({"role": "assistant", "content": replies[-1].text})
        asked.append({"role": "user", "content": repair})
    tolerant = value is not None and _strict(replies[-1].text) is None
    return JsonReply(value, error, len(replies) > 1, tuple(replies), tolerant)


def _read(reply: Reply, schema: dict) -> tuple[dict | None, str]:
    """The best object that fits, or None and what is wrong with the best one there is."""
    problem = ""
    for found in read_objects(reply.text):
        value = {k: v for k, v in found.items() if k in schema["properties"]}
        error = schema_error(value, schema)
        if not error:
            return value, ""
        problem = problem or error
    cut = " (cut by max_tokens)" if reply.finish_reason == "length" else ""
    return None, (problem or "no JSON object in the reply") + cut


def schema_error(value: Any, schema: dict) -> str:
    """The first way in which a value does not fit a JSON schema, or "".

    Beyond the schema, a required string may not be blank: a model that fills in nothing has failed.
    """
    from jsonschema import Draft202012Validator

    error = next(Draft202012Validator(schema).iter_errors(value), None)
    if error:
        return error.message[:200]
    blank = [k for k in schema["required"] if isinstance(value[k], str) and not value[k].strip()]
    return f"{blank[0]!r} is empty" if blank else ""


def read_objects(text: str) -> list[dict]:
    """JSON objects in a text, the likeliest first: strict, complete (the last leads), cut off."""
    strict = _strict(text)
    if strict is not None:
        return [strict]
    complete: list[dict] = []
    end = 0
    while start := _START.search(text, end):
        found, end, cut = _tolerant(text, start.start())
        if found is None:
            end = start.end()
        elif cut:
            return [*complete[::-1], found]
        else:
            complete.append(found)
    return complete[::-1]


def _strict(text: str) -> dict | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _tolerant(text: str, at: int) -> tuple[dict | None, int, bool]:
    """The object that starts at ``at``, where it ends, and whether the text ended first.

    Rewrites the text token by token into strict JSON and closes what is open at the end.
    """
    tokens: list[str] = []
    closing: list[str] = []
    while at < len(text) and (closing or not tokens) and len(closing) < 40:
        mark = text[at]
        if mark in _CLOSING:
            key = closing[-1] == "}" and tokens[-1] in ("{", ",")
            plain, at = _string(text, at, ":" if key else ",}]")
            tokens.append(json.dumps(plain))
            continue
        token = _TOKEN.match(text, at)[0]
        at += len(token)
        if mark in "{[":
            closing.append("}" if mark == "{" else "]")
        elif mark in "}]":
            closing.pop()
            if tokens[-1] == ",":
                tokens.pop()
        if not mark.isspace():
            tokens.append(_WORDS.get(token, token))
    cut = bool(closing)
    # A cut may leave a key without its value at the end: comma, key, colon, half a word.
    for _ in range(5 if cut else 1):
        found = _strict("".join([*tokens, *closing[::-1]]))
        if found is not None:
            return found, at, cut
        del tokens[-1:]
    return None, at, cut


def _string(text: str, at: int, then: str) -> tuple[str, int]:
    """The string that starts at ``at``, and its end: a quote before ``then`` or the text's end.

    Quotes inside the string are so kept even where the model forgot to escape them.
    """
    end = rf"[{_CLOSING[text[at]]}](?=\s*(?:[{re.escape(then)}]|\Z))"
    found = re.compile(rf"((?:\\.|[^\\])*?){end}", re.DOTALL).match(text, at + 1)
    raw = found[1] if found else text[at + 1 :]
    plain = _ESCAPE.sub(lambda code: _plain(code[1]), raw).encode("utf-16", "surrogatepass")
    return plain.decode("utf-16", "replace"), found.end() if found else len(text)


def _plain(code: str) -> str:
    return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROL.get(code, code)
