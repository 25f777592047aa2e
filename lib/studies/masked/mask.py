"""Names of options hidden behind code names, the same in a question, its options and passages.

What an option is called is in ``data/masked/names.jsonl``: its own words, its titles and synonyms
in MedQuAD, and what OpenStax's key terms say beside it in brackets. Abbreviations that a text
introduces right after a name ("cystic fibrosis (CF)") are hidden too. The rules for words are those
of ``lib.benchmarks.entity_masking``: case, accents, plural, possessive and hyphens do not matter.
An option's own words are its own; any other name that two options share is struck.

A name that is missed gives nothing away: no option is called by it. It can only make the answerer
miss what a passage says.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from lib.base.files import read_jsonl, sha256_bytes
from lib.base.paths import DATA
from lib.benchmarks.base import name_words
from lib.benchmarks.entity_masking import STRUCK, introduced, name_pattern, spellings, unaccented
from lib.data.passages import Passage, tidy
from lib.data.questions import Question
from lib.studies.masked.sample import plain_name

NAMES = DATA / "masked" / "names.jsonl"

CODES = tuple(f"Entity-{letter}" for letter in "KMRTVXZBDFGHJLNPQSWCAEIOUY")
"""Code names, in the order in which they are given out."""

_TERM = re.compile(r"(?:^|[.;] )([^.:;()]{3,60}?) \(([^()]{2,60})\): ")
"""A key term of OpenStax with what is in brackets beside it: "renal calculus (kidney stone): "."""

_UMBRELLAS = "4_MPlus_Health_Topics_QA"
"""Its "synonyms" are often other things: those of "Cholesterol" are HDL and hyperlipidemia."""

_ALSO = re.compile(r"^(?:also,?(?: called| known as)?:? )", re.IGNORECASE)


def other_names(passages: Iterable[Passage]) -> dict[tuple[str, ...], set[str]]:
    """What else a thing is called, by the words of one of its names (``name_words``)."""
    groups: list[set[str]] = []
    topics: dict[str, set[str]] = defaultdict(set)
    for passage in passages:
        if passage.source == "medquad" and passage.meta["subset"] != _UMBRELLAS:
            focus = passage.meta["focus"]
            topics[focus] |= {focus, *map(tidy, passage.meta["synonyms"])}
        elif passage.title.endswith("Key terms"):
            groups += [{term, _ALSO.sub("", also)} for term, also in _TERM.findall(passage.text)]
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for group in (*topics.values(), *groups):
        for name in group:
            found[name_words(name)] |= group - {name}
    found.pop((), None)
    return found


def names_of(
    question: Question, others: Mapping[tuple[str, ...], set[str]]
) -> dict[str, list[str]]:
    """The names of each option, by letter: its own, then the others by alphabet."""
    found = {}
    for letter, option in sorted(question.options.items()):
        own = plain_name(option)
        more = {name for one in spellings(own) for name in others.get(name_words(one), ())}
        found[letter] = [own, *sorted(more - {own})]
    return found


@cache
def read_names() -> dict[tuple[str, str], dict[str, list[str]]]:
    """What is in ``NAMES``, by set and question id."""
    return {(row["dataset"], row["qid"]): row["names"] for row in read_jsonl(NAMES)}


_LOOSE = re.compile(r"\s+(?=['’]s\b)")
"""A possessive that lost its word: "Huntington 's disease"."""


@dataclass(frozen=True)
class Mask:
    """The code names of one question's options: ``letter_of`` each code, ``names`` by code."""

    letter_of: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, question: Question, names: Mapping[str, Sequence[str]] | None = None) -> Mask:
        """Codes are given out in the order of hashes, so they tell nothing of the letters.

        Without ``names`` an option is known by its own words.
        """
        names = names or {letter: [plain_name(text)] for letter, text in question.options.items()}
        name = f"mask {question.dataset} {question.qid}"
        letters = sorted(question.options, key=lambda it: sha256_bytes(f"{name} {it}".encode()))
        letter_of = dict(zip(CODES, letters, strict=False))
        return cls(letter_of, {code: tuple(names[letter]) for code, letter in letter_of.items()})

    def hide(self, texts: Sequence[str]) -> list[str]:
        """The texts with code names in place of names.

        An abbreviation that one of them introduces is hidden in all.
        """
        codes_of: dict[str, set[str]] = defaultdict(set)
        for code, names in self.names.items():
            short = {abbreviation for text in texts for abbreviation in introduced(text, names)}
            for name in (*names, *short):
                for spelling in spellings(name):
                    codes_of[spelling].add(code)
        places = {
            name: next(iter(codes)) if len(codes) == 1 else STRUCK
            for name, codes in codes_of.items()
        }
        places |= {one: code for code, (own, *_) in self.names.items() for one in spellings(own)}
        return [_replaced(text, places) for text in texts]


def _replaced(text: str, places: Mapping[str, str]) -> str:
    """The text with each name's code in its place, the longest name first."""
    text = _LOOSE.sub("", text)
    plain = unaccented(text)
    lower = plain.lower()
    found = []
    for name, code in places.items():
        part, pattern = name_pattern(name, "")
        if part in lower:
            found += [(*match.span(), code) for match in pattern.finditer(plain)]
    # From left to right, of those that begin at one place the longest.
    found.sort(key=lambda span: (span[0], -span[1]))
    pieces, end = [], 0
    for start, stop, code in found:
        if start >= end:
            pieces += [text[end:start], code]
            end = stop
    text = "".join([*pieces, text[end:]])
    return re.sub(r"(Entity-[A-Z])(?:[\s,;(\[]{1,3}\1[)\]]?)+", r"\1", text)


def names_left(mask: Mask, text: str) -> list[str]:
    """Names of options that a masked text still has, by another rule than the mask's: the words of
    a name side by side, as ``name_words`` has them; of two words also as "E. coli"."""
    words = f" {' '.join(name_words(text))} "
    every = dict.fromkeys(name for names in mask.names.values() for name in names)
    left = [name for name in every if len(name) > 4 and f" {' '.join(name_words(name))} " in words]
    for name in every:
        if two := re.fullmatch(r"(\w)\w+ (\w+)", name):
            left += re.findall(rf"\b{two[1]}\. ?{two[2]}\b", text, re.IGNORECASE)[:1]
    return left
