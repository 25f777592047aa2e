"""Which option did a model choose? Our parser, which may fail, and MIRAGE's, which never does.

Ours tries the rules of one table (``_RULES``), in its order: JSON, JSON that needs mending, a
letter alone, a letter that is marked as the answer, a sentence that announces it, the text of
exactly one option, and yes or no where those are the options. What is left is a failure: scored as
wrong, and counted. MIRAGE scores a failure as "A", the right letter of
about a quarter of the exam questions and of 64 % of BioASQ, so its score always stands beside ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lib.llm.replies import part, read_objects

KEY = "answer_choice"
"""The field of MIRAGE's JSON that holds the letter."""

_KEYS = (KEY, "answer", "final_answer", "correct_answer", "answer_letter", "choice", "option")
"""Names that models give the field, in whatever letters; the first that is there counts."""

_MARKED = re.compile(
    r"(?is)<answer>(.*?)(?:</answer>|\Z)|\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}|(?m:^####(.+)$)"
)
"""Where a model puts its answer that was taught to mark it: tags, a box, four hashes."""
_FONT = re.compile(r"\\(?:text|mathrm|mathbf)(?:bf|it|rm)?\s*\{([^{}]*)\}|[$]")

_ANSWER_IS = (
    r"(?:answer|choice|conclusion|答案|option(?=\s+is|\s*:))(?:\s+choice)?"
    r"(?:is\b|would be\b|[\s:：=*是为])*[\"'(\[*\\$【]*"
)
_LETTER = r"([A-Z])(?![A-Za-z])[\"')\].:*]*"
_SETTLED, _OPTION_NAMED = (
    re.compile(start + _LETTER, re.IGNORECASE)
    for start in (rf"{_ANSWER_IS}(?:option\s+)?", r"option[\s\"'(\[*]*")
)
"""What settles on a letter, then what only names one: "the answer is C, not option D"."""
_IS_CORRECT = re.compile(r"(?m)^\W*([A-Z])[)\].*]* is (?:the )?(?:correct|right|best)\b")
"""At the beginning of a line alone: elsewhere it may be hepatitis B that is right."""
_ANSWER_IS_YES_OR_NO = re.compile(rf"{_ANSWER_IS}(yes|no|maybe)\b", re.IGNORECASE)


class Parsed(NamedTuple):
    """The letter (empty when nothing was found) and the rule that found it."""

    letter: str
    rule: str


def parse_answer(text: str, options: Mapping[str, str]) -> Parsed:
    """The option a reply chose; ``letter`` is a key of ``options`` or empty (rule "none")."""
    text = part(text).text
    name_of = {name.upper(): name for name in options}
    options = {name.upper(): option for name, option in options.items()}
    for rule, find in _RULES.items():
        letter = find(text, options)
        if letter:
            return Parsed(name_of[letter], rule)
    return Parsed("", "none")


def _json(text: str, options: Mapping[str, str]) -> str:
    """A reply that is JSON and nothing else."""
    try:
        return _answer_field(json.loads(text), options)
    except ValueError:
        return ""


def _mended(text: str, options: Mapping[str, str]) -> str:
    """JSON inside other text, or with single quotes, a fence, a missing end; the last object."""
    for found in read_objects(text):  # the likeliest first
        letter = _answer_field(found, options)
        if letter:
            return letter
    return ""


def _answer_field(found: Any, options: Mapping[str, str]) -> str:
    """The letter that the answer field holds, alone, with its text, or as the text alone."""
    if not isinstance(found, dict):
        return ""
    named = {re.sub(r"\W+", "_", str(name).strip()).lower(): value for name, value in found.items()}
    value = next((named[key] for key in _KEYS if key in named), None)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if not isinstance(value, str):
        return ""
    return _letter_or_text(value.strip(), options)


def _letter_or_text(value: str, options: Mapping[str, str]) -> str:
    """ "C", "(c)", "**C.** its text" or its text alone: the letter of the option that is meant."""
    value = value.strip(" \t\n*_`$【】")
    if "\n" not in value:  # else it is a list
        value = value.lstrip("-•> ")
    starts = re.fullmatch(r"[(\[\"']*([A-Za-z])([)\]\"'.:*]*)(?:\s+.*)?", value, re.DOTALL)
    letter = starts[1].upper() if starts else ""
    if letter in options:
        rest = re.sub(r"^\W*\w\W*", "", value).lower()
        own_text = rest == options[letter].lower()
        marked = re.search("[.):]", starts[2])
        # "A febrile seizure" begins with an article: a letter before other words counts only when
        # these are its option's text, or when it is marked as a letter, as in "A." or "A)".
        if not rest or own_text or marked:
            return letter
    return _option_text(value, options)


def _letter(text: str, options: Mapping[str, str]) -> str:
    """A reply that is a letter, alone or with its option's text, or whose first line is one.

    But a first line may begin a list of the options: an answer that is announced after it counts.
    """
    text = text.strip()
    first, _, rest = text.partition("\n")
    letter = _line(first, options) if rest else ""
    # The space lets a letter at the very end be followed by something too.
    if not letter and re.match(r"\W*[A-Za-z]\W", text + " "):
        letter = _letter_or_text(text, options)
    return letter and (_announced_in(rest, options) or letter)


def _line(line: str, options: Mapping[str, str]) -> str:
    """The option that a line is and nothing else: its letter, or its letter and its text."""
    found = re.fullmatch(r"\W*([A-Z])(?:\W+(.*?))?\W*", line)
    if not found or found[1] not in options:
        return ""
    own_text = re.sub(r"\W+\Z", "", options[found[1]].lower())
    return found[1] if (found[2] or "").lower() in ("", own_text) else ""


def _last_letter(text: str, options: Mapping[str, str]) -> str:
    """A letter alone on the last line, after the reasons for it."""
    last = text.strip().rpartition("\n")[2]
    return _line(last, options) if re.fullmatch(r"\W*[A-Z]\W*", last) else ""


def _last_line(text: str, options: Mapping[str, str]) -> str:
    """An option's letter and text on the last line, after other options' texts."""
    return _line(text.strip().rpartition("\n")[2], options)


def _marked(text: str, options: Mapping[str, str]) -> str:
    """What stands in the last box, between the last answer tags or after the last four hashes."""
    found = [next(filter(None, groups), "") for groups in _MARKED.findall(text)]
    return _letter_or_text(_FONT.sub(r"\1", found[-1]), options) if found else ""


def _announced(text: str, options: Mapping[str, str]) -> str:
    """The last "the answer is (C)", else the only "option C"; an article "a" is no answer."""
    if settled := _announced_in(text, options):
        return settled
    for pattern in (_IS_CORRECT, _OPTION_NAMED):
        mentioned = set(_letters_found(pattern, text, options))
        if mentioned:
            return mentioned.pop() if len(mentioned) == 1 else ""
    return ""


def _announced_in(text: str, options: Mapping[str, str]) -> str:
    """The letter of the last "the answer is (C)"."""
    return next(reversed(_letters_found(_SETTLED, text, options)), "")


def _letters_found(pattern: re.Pattern, text: str, options: Mapping[str, str]) -> list[str]:
    """The options' letters that the pattern finds, in order.

    A small letter counts only where two blanks, or the end, follow: else it may be an article.
    """
    letters = []
    for match in pattern.finditer(text):
        letter = match[1].upper()
        two_after = text[match.end() :][:2]
        may_be_article = match[1].islower() and two_after.strip()
        if letter in options and not may_be_article:
            letters.append(letter)
    return letters


def _option_text(text: str, options: Mapping[str, str]) -> str:
    """The option whose text is all there is, or the only one whose text occurs."""
    bare_text = text.strip().strip(".\"' ").lower()
    exact = [letter for letter, option in options.items() if option.lower() == bare_text]
    # "no" occurs in many a sentence that does not answer with it.
    if exact or _are_yes_no(options):
        return _only(exact)
    return _only([letter for letter, option in options.items() if _occurs(option, text)])


def _only(letters: list[str]) -> str:
    """The letter, if there is exactly one."""
    return letters[0] if len(letters) == 1 else ""


def _yes_or_no(text: str, options: Mapping[str, str]) -> str:
    """For yes/no questions: the option that the reply announces last, or begins with, as a word."""
    if not _are_yes_no(options):
        return ""
    letter_of = {option.lower(): letter for letter, option in options.items()}
    words = re.findall(r"^\W*(\w+)", text) + _ANSWER_IS_YES_OR_NO.findall(text)
    letters = [letter_of[word.lower()] for word in words if word.lower() in letter_of]
    return letters[-1] if letters else ""


def _are_yes_no(options: Mapping[str, str]) -> bool:
    return {option.lower() for option in options.values()} <= {"yes", "no", "maybe"}


def _occurs(option: str, text: str) -> bool:
    """Whether the option's text stands in the text as whole words."""
    return bool(re.search(rf"(?<!\w){re.escape(option)}(?!\w)", text, re.IGNORECASE))


_RULES = {
    "json": _json,
    "mended json": _mended,
    "letter": _letter,
    "marked": _marked,
    "announced": _announced,
    "last letter": _last_letter,
    "option text": _option_text,
    "last line": _last_line,
    "yes or no": _yes_or_no,
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
"""What MIRAGE's scorer looks for, in its order; the first pattern that fits wins."""


def parse_mirage(text: str) -> str:
    """The letter that MIRAGE's scorer would read: always one of A to D, and "A" for a failure."""
    tail = text.rsplit(f'"{KEY}": "', 1)[-1]
    for pattern in _MIRAGE:
        found = re.search(pattern, tail)
        if found:
            return found.group(1)
    return "A"


# which option a text names, by its words alone ----------------------------------------------------

YES_NO = frozenset({"yes", "no", "maybe"})
"""Options that are answers only where a text begins with them."""


def named_option(text: str, options: Mapping[str, str]) -> str:
    """The letter of the only option that the text names (see ``names_option``).

    Empty when the text names no option, or several.
    """
    return _only([letter for letter, option in options.items() if names_option(text, option)])


def names_option(text: str, option: str) -> bool:
    """Whether an option stands in a text as whole words, in upper or lower case.

    "Gout" does not stand in "gouty". Yes, no and maybe must be the first word of the text, since
    any text may hold a "no".
    """
    option = option.lower()
    before = r"^\s*" if option in YES_NO else r"(?<!\w)"
    return re.search(rf"{before}{re.escape(option)}(?!\w)", text.lower()) is not None
