"""Reading what a model wrote: its thinking separated from its text, and JSON objects in the text.

Servers that do not know a model's template leave its thinking and the template's tokens in the
text. A search would then use the thinking, and an answer letter could be read from it. ``part``
alone separates them; ``read_objects`` guesses nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

_NAMES = r"(?:seed:)?(?:think|thinking|thought|thoughts|reasoning|reflection)"
_OPEN = (
    rf"<{_NAMES}>|\[THINK\]|◁think▷|<\|START_THINKING\|>|<\|begin_of_thought\|>|"
    r"<unused94>(?:thought)?|<\|channel>(?:thought)?|\A\s*\#\# Thinking(?=\s)"
)
_CLOSE = (
    rf"</{_NAMES}>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>|<\|end_of_thought\|>|"
    r"<unused95>|<channel\|>|^\#\# Final Response$"
)
"""The last ones are those of MedGemma, of Gemma 4 and of HuatuoGPT-o1."""
_WHOLE = re.compile(rf"(?ism)(?:{_OPEN})((?:(?!{_OPEN}).)*?)(?:{_CLOSE})")
_OPENED, _CLOSED = re.compile(f"(?im){_OPEN}"), re.compile(f"(?im){_CLOSE}")

_CHANNEL = re.compile(
    r"(?s)<\|channel\|>\s*(\w+).*?<\|message\|>"
    r"(.*?)(?=<\|(?:end|start|return|call|channel)\|>|\Z)"
)
"""A part of a reply in the harmony form: its channel ("analysis", "commentary", "final"), its text.
"""
_BARE_CHANNELS = re.compile(r"(?s)\A\s*analysis(?=[^\W\d_a-z])(.*?)(?:assistantfinal(.*))?\Z")
"""The same form where a server has dropped its marks and left the words between them: no blank
stands between "analysis" and the first, capital, letter of what was thought."""

_BEGINS = re.compile(
    r"(?i)\A(?:\s*(?:<s>|<bos>|<\|begin_of_text\|>|<\|im_start\|>(?:assistant)?|"
    r"<\|start\|>(?:assistant)?|<\|start_header_id\|>assistant<\|end_header_id\|>|"
    r"<start_of_turn>(?:model)?|<\|assistant\|>|<\|START_RESPONSE\|>|\[/INST\]))+"
)
_ENDS = re.compile(
    r"(?i)<\|(?:im_end|im_start|end|return|call|eot_id|eom_id|endoftext|end_of_text|end_of_turn|"
    r"END_RESPONSE|END_OF_TURN_TOKEN|start_header_id|user)\|>|</s>|<eos>|<(?:end|start)_of_turn>|"
    r"<｜end▁of▁sentence｜>"
)
"""Tokens that end a reply: what a model writes after one is the next turn."""

_TAGGED = re.compile(
    r"(?is)\A\s*<(answer|response|output|\|begin_of_solution\|)>"
    r"((?:(?!<\1>).)*?)(?:</\1>|<\|end_of_solution\|>)?\s*\Z"
)
"""The text in tags of its own, after the thinking; the closing tag may be cut off."""


class Parted(NamedTuple):
    """A reply's thinking (empty if there is none), and its text."""

    thinking: str
    text: str


def part(text: str) -> Parted:
    """A reply's thinking and its text, without marks of a template.

    Thinking may be closed, cut before it was closed (then nothing was said), or opened by the
    prompt. A text without any mark comes back as it is.
    """
    if "<|channel|>" in text:
        return _harmony(text)
    if bare := _BARE_CHANNELS.match(text):
        return Parted(bare[1].strip(), _without_marks(bare[2] or "").strip())
    thought = [found.strip() for found in _WHOLE.findall(text)]
    said = _WHOLE.sub("", text)
    # A closing tag alone ends thinking that the prompt opened; an opening tag alone was cut off.
    if closed := [*_CLOSED.finditer(said)]:
        thought.insert(0, _OPENED.sub("", said[: closed[-1].start()]).strip())
        said = said[closed[-1].end() :]
    if opened := _OPENED.search(said):
        thought.append(said[opened.end() :].strip())
        said = said[: opened.start()]
    plain = _without_marks(said)
    changed = bool(thought) or plain != text
    return Parted("\n\n".join(filter(None, thought)), plain.strip() if changed else text)


def _harmony(text: str) -> Parted:
    parts = _CHANNEL.findall(text)
    said = [own for channel, own in parts if channel == "final"]
    thought = [own.strip() for channel, own in parts if channel != "final"]
    return Parted("\n\n".join(filter(None, thought)), said[-1].strip() if said else "")


def _without_marks(text: str) -> str:
    """The text between the marks that begin a reply and the first that ends it, or in its tags."""
    text = _BEGINS.sub("", text)
    if end := _ENDS.search(text):
        text = text[: end.start()]
    tagged = _TAGGED.match(text)
    return tagged[2] if tagged else text


# JSON --------------------------------------------------------------------------------------------

_START = re.compile(r"\{(?=\s*[\"'“‘])")
_NAME = r"[^\"'“”‘’\\{}\[\]:,]+"
_KEY = rf"[\"'“‘]{_NAME}[\"'”’]\s*:\s*"
_END = rf"(?=\s*,?\s*(?:\}}|\Z|{_KEY}))"
# A string ends at a quote after which its object can continue, so quotes inside need no escape; it
# contains no other pair. Or the end of the text cuts it, and it contains no such quote.
_STRING = "|".join(
    rf"{q[0]}((?:\\.|(?!{_KEY}[\"'“‘])[^\\])*?)[{q}]{_END}|{q[0]}((?:\\.|[^{q}\\])*)\Z"
    for q in ('"', "'", "“”", "‘’")
)
_BARE = r"([\w.+-]+|\[[^\[\]]*\])(?=\s*[,}])"
_PAIR = re.compile(rf"(?s)\s*(?={_KEY}).({_NAME}).\s*:\s*(?:{_STRING}|{_BARE})\s*,?")


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
            whole.clear()  # the unreadable part may be the answer, those before it drafts
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


# quotes: the spans between quotation marks, and whether a text has them -------------------------

# One line at most, so that a forgotten mark spoils one line and not the rest of the reply.
QUOTED = re.compile(r'"([^"\n]+)"|“((?:[^“”\n]|“[^“”\n]*”)+)”')


def quoted(text: str) -> list[str]:
    """Every span between straight or curly double quotes; of nested ones the outer span."""
    return [(straight or curly).strip() for straight, curly in QUOTED.findall(text)]


def checked(spans: Iterable[str], question: str, texts: Collection[str]) -> list[tuple[str, bool]]:
    """Each span with ``is_in``; without those that say nothing or only repeat the question."""
    useless = [], _words(question)
    return [(s.strip(), is_in(s, texts)) for s in spans if _words(s) not in useless]


def is_in(span: str, texts: Iterable[str], least: float = 0.8) -> bool:
    """Does some sentence of ``texts`` have a token F1 of at least ``least`` with the span?"""
    own = Counter(_words(span))
    for sentence in (s for text in texts for s in re.split(r"(?<=[.!?])\s+", text)):
        other = Counter(_words(sentence))
        if own and 2 * (own & other).total() >= least * (own.total() + other.total()):
            return True
    return False


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


# quotes kept as places --------------------------------------------------------------------------

_PLACE = re.compile(r"\"⟨(\S+) (\d+) (\d+)⟩\"")
_LOST = '"⟨not found⟩"'


def with_words(reply: str, documents: Mapping[str, str]) -> str:
    """A reply that was kept ``as_places``, with the words again; quotes not found are left out.

    Raises LookupError for a place in a passage that is not among the documents.
    """

    def words(match: re.Match) -> str:
        pid, start, length = match[1], int(match[2]), int(match[3])
        if pid not in documents:
            raise LookupError(f"a recorded quote is from {pid}, which was not shown")
        stretch = documents[pid][start : start + length]
        # On one line and without double quotes of its own, so that it is one quote.
        plain = re.sub('["“”]', "'", " ".join(stretch.split()))
        return f'"{plain}"'

    return _PLACE.sub(words, reply.replace(_LOST, ""))
