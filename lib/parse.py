"""Which option did a model choose? Our parser, which may fail, and MIRAGE's, which never does.

Ours tries, in this order: JSON, JSON that needs mending, a letter alone, a sentence that announces
the answer, the text of exactly one option, and yes or no where those are the options. What is left
is a failure: scored as wrong, and counted. MIRAGE scores a failure as "A", the right letter of
about a quarter of the exam questions and of 64 % of BioASQ, so its score always stands beside ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lib.llm.replies import read_objects

__all__ = ["Parsed", "parse_answer", "parse_mirage"]

KEY = "answer_choice"
"""The field of MIRAGE's JSON that holds the letter."""

_SAYS = (
    r"(?:answer|choice|conclusion|option(?=\s+is|\s*:))(?:\s+choice)?"
    r"(?:is\b|would be\b|[\s:=*])*[\"'(\[*]*"
)
_LETTER = r"([A-Z])(?![A-Za-z])[\"')\].:*]*"
_ANNOUNCED = [
    re.compile(start + _LETTER, re.IGNORECASE)
    for start in (rf"{_SAYS}(?:option\s+)?", r"option[\s\"'(\[*]*")
]
"""What settles on a letter, then what only names one: "the answer is C, not option D"."""
_SAID = re.compile(rf"{_SAYS}(yes|no|maybe)\b", re.IGNORECASE)


class Parsed(NamedTuple):
    """The letter (empty when nothing was found) and the rule that found it."""

    letter: str
    rule: str


def parse_answer(text: str, options: Mapping[str, str]) -> Parsed:
    """The option a reply chose; ``letter`` is a key of ``options`` or empty (rule "none")."""
    for rule, find in _RULES.items():
        if letter := find(text, options):
            return Parsed(letter, rule)
    return Parsed("", "none")


def _json(text: str, options: Mapping[str, str]) -> str:
    try:
        return _value(json.loads(text), options)
    except ValueError:
        return ""


def _mended(text: str, options: Mapping[str, str]) -> str:
    """JSON inside other text, or with single quotes, a fence, a missing end; the last object."""
    return next((x for found in read_objects(text) if (x := _value(found, options))), "")


def _value(found: Any, options: Mapping[str, str]) -> str:
    """The letter that the answer field holds, alone, with its text, or as the text alone."""
    value = found.get(KEY) if isinstance(found, dict) else None
    return _named(value.strip(), options) if isinstance(value, str) else ""


def _named(value: str, options: Mapping[str, str]) -> str:
    alone = re.fullmatch(r"[(\[\"']*([A-Za-z])[)\]\"'.:]*(?:\s+.*)?", value, re.DOTALL)
    letter = alone.group(1).upper() if alone else ""
    rest = re.sub(r"^\W*\w\W*", "", value).lower()
    # "A febrile seizure" begins with an article: a bare letter needs its own option's text, if any.
    if letter in options and (not rest or rest == options[letter].lower() or value[1:2] in ".):"):
        return letter
    return _option(value, options)


def _letter(text: str, options: Mapping[str, str]) -> str:
    """A reply of one line that is a letter, alone or with its option's text."""
    return _named(text.strip(), options) if re.match(r"\W*[A-Za-z]\W", text.strip() + " ") else ""


def _announced(text: str, options: Mapping[str, str]) -> str:
    """The last "the answer is (C)", else the only "option C"; an article "a" is no answer."""
    settled, named = (
        [
            m[1].upper()
            for m in pattern.finditer(text)
            if m[1].upper() in options and (m[1].isupper() or not text[m.end() :][:2].strip())
        ]
        for pattern in _ANNOUNCED
    )
    return settled[-1] if settled else named[0] if len(set(named)) == 1 else ""


def _option(text: str, options: Mapping[str, str]) -> str:
    """The option whose text is all there is, or the only one whose text occurs."""
    tidy = text.strip().strip(".\"' ").lower()
    exact = [letter for letter, option in options.items() if option.lower() == tidy]
    if exact or _yes_no(options):
        return exact[0] if len(exact) == 1 else ""
    inside = [letter for letter, option in options.items() if _occurs(option, text)]
    return inside[0] if len(inside) == 1 else ""


def _words(text: str, options: Mapping[str, str]) -> str:
    """For yes/no questions: the option that the reply announces last, or begins with, as a word."""
    said = re.findall(r"^\W*(\w+)", text) + _SAID.findall(text)
    said = [word.lower() for word in said] if _yes_no(options) else []
    letters = [x for word in said for x, option in options.items() if option.lower() == word]
    return letters[-1] if letters else ""


def _yes_no(options: Mapping[str, str]) -> bool:
    return {o.lower() for o in options.values()} <= {"yes", "no", "maybe"}


def _occurs(option: str, text: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(option)}(?!\w)", text, re.IGNORECASE))


_RULES = {
    "json": _json,
    "mended json": _mended,
    "letter": _letter,
    "announced": _announced,
    "option text": _option,
    "yes or no": _words,
}


_MIRAGE = (
    r"^\s*([A-D])$",
    r"^\s*([A-D]) or",
    r"^\s*([A-D]) and",
    r"^\s*([A-D])/",
    r"^\s*([A-D]),",
    r"[Oo]ption ([A-D])",
    r":\s*([A-D])",
    r"^\s*([A-D])\.",
    r"^\s*([A-D])\"",
    r"^\s*([A-D]):",
)
"""What MIRAGE's scorer looks for, in its order (METHODS 6.6); the first pattern that fits wins."""


def parse_mirage(text: str) -> str:
    """The letter that MIRAGE's scorer would read: always one of A to D, and "A" for a failure."""
    tail = text.rsplit(f'"{KEY}": "', 1)[-1]
    for pattern in _MIRAGE:
        if found := re.search(pattern, tail):
            return found.group(1)
    return "A"
