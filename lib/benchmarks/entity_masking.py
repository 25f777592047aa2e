"""Benchmarks with disease names masked: how well a search works that cannot match names.

From every text of a question (H+, every H-, the question itself) the names of every disease of that
question are struck: the target's and those of all its mimics, each with its titles and synonyms in
MedQuAD, and the abbreviations that its description introduces in brackets ("cystic fibrosis (CF)").
They are struck from all texts alike, so that H+ is one text in every arm. A "…" stands in their
place: unlike "this condition" it gives an encoder or BM25 no word, none that H+ and H- would share.

The rules, for whole words:

- Case, accents, plural and possessive do not matter, nor do hyphens, spaces and punctuation between
  the words of a name. "Anemia, sickle cell" is also "sickle cell anemia".
- A name of two to four letters and digits that has two capitals or a digit (AS, CF, A-T, NF1) is
  struck as it is written only, so that "as" stays. One letter alone ("C") is never struck.
- A title with a bracket, slash or colon has several names: "Hypertension (High Blood Pressure)".
- An ordinary word that is the name of a disease (Gas, Stroke) is struck where that disease is the
  target or a mimic. Names made of GENERIC words alone ("syndrome") are not.
- A proper noun in a name (Cushing) is struck by itself too, as it is written.
- A bracket that follows directly on a name repeats it and is struck with it, whatever it holds: an
  abbreviation, how it is spoken, another name.

A test looks for names that were missed, by another rule.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from lib.benchmarks.base import Benchmark, name_words

STRUCK = "…"
"""What stands where a name was."""

_QUESTION = "Which condition is this?"
GENERIC = frozenset(
    ["anomaly", "condition", "defect", "disease", "disorder", "health", "illness", "infection"]
    + ["malformation", "problem", "syndrome", "type"]
)
"""A name of these words alone (in singular) names no disease."""

_SHORT = 4
"""Names of at most so many letters and digits may be abbreviations, struck as they are written."""
_BETWEEN = r"[\W_]{0,5}"
"""What may stand between two words of a name: a hyphen, a space, brackets, but no word.

Up to five characters, as MedQuAD lost its Greek letters: "dopamine beta ()-hydroxylase deficiency".
"""
_POSSESSIVE = r"(?:['’]s?)?"
_BRACKET = r"(?:[\"”]?\s*(?:\([^()]*\)|\[[^\[\]]*\]))?"
_NO_LETTER_BEFORE = r"(?<![^\W_])"
_NO_LETTER_AFTER = r"(?![^\W_])"


def mask_names(benchmark: Benchmark) -> Benchmark:
    """The benchmark "<name>-blind": no text of a question names a disease of that question.

    Mimics and relevant passages stay the same for each question. A question is no longer
    "What is (name)?" but H+ without its names. ``counts`` says how many texts (H+ and mimics, one
    for each question that shows it) were read, how many of them had a name, and how many names
    were struck. ValueError if ``names`` lacks a disease or a mimic is no other question's H+.
    """
    names_of = _names_to_strike(benchmark)
    strikes: list[int] = []

    def without(qid: str, text: str) -> str:
        struck, n = strike(text, names_of[qid])
        strikes.append(n)
        return struck

    def column(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(without(qid, text) for qid, text in zip(benchmark.qids, texts, strict=True))

    h_plus = column(benchmark.h_plus)
    in_h_plus = sum(n > 0 for n in strikes)
    h_minus = {distance: column(texts) for distance, texts in benchmark.h_minus.items()}
    several = tuple(
        tuple(without(qid, text) for text in texts)
        for qid, texts in zip(benchmark.qids, benchmark.several, strict=bool(benchmark.several))
    )
    return replace(
        benchmark,
        name=f"{benchmark.name}-blind",
        code=(*benchmark.code, "lib.benchmarks.entity_masking"),
        chosen_on=f"{benchmark.chosen_on}-blind" if benchmark.chosen_on else "",
        title=f"{benchmark.title}, names struck",
        questions=tuple(f"{_QUESTION} {text}" for text in h_plus),
        h_plus=h_plus,
        h_minus=h_minus,
        several=several,
        counts=dict(benchmark.counts)
        | {
            "texts": len(strikes),
            "texts_with_a_name": sum(n > 0 for n in strikes),
            "h_plus_with_a_name": in_h_plus,
            "names_struck": sum(strikes),
        },
    )


def strike(text: str, names: Iterable[str]) -> tuple[str, int]:
    """The text with "…" where one of the names stood, and how many places were struck."""
    names = list(names)
    lower = unaccented(text).lower()
    of_names = [name_pattern(other) for name in names for other in spellings(name)]
    patterns = [pattern for part, pattern in of_names if part in lower]
    patterns += [re.compile(_whole(noun) + _BRACKET) for noun in _proper_nouns(text, names)]
    struck = 0
    # Again until nothing is found: what falls inside a name may leave a shorter name behind.
    while spans := _places(text, patterns):
        struck += len(spans)
        for start, end in reversed(spans):
            text = f"{text[:start]}{STRUCK}{text[end:]}"
    text = re.sub(rf"{STRUCK}(?:[\s/–-]*{STRUCK})+", STRUCK, text)
    return text, struck


def _places(text: str, patterns: Iterable[re.Pattern]) -> list[tuple[int, int]]:
    """Where a pattern stands in the text, from left to right; places that overlap are one."""
    plain = unaccented(text)
    return _merged(match.span() for pattern in patterns for match in pattern.finditer(plain))


def _names_to_strike(benchmark: Benchmark) -> dict[str, list[str]]:
    """For each question the names of its disease and of the diseases its mimics describe."""
    if missing := [qid for qid in benchmark.qids if not benchmark.names.get(qid)]:
        raise ValueError(f"{benchmark.name}: no names for {', '.join(missing[:5])}")
    names_of = {}
    for qid, text in zip(benchmark.qids, benchmark.h_plus, strict=True):
        names_of[qid] = (*benchmark.names[qid], *introduced(text, benchmark.names[qid]))
    to_strike = {}
    for qid, shown in benchmark.shown.items():
        to_strike[qid] = list(dict.fromkeys(name for other in shown for name in names_of[other]))
    return to_strike


@cache
def spellings(name: str) -> tuple[str, ...]:
    """The name, and the names in it: around and in brackets, beside a slash or colon, inverted."""
    outside = re.sub(r"\([^()]*\)", " ", name)
    spellings = [name, outside, *re.findall(r"\(([^()]*)\)", name), *re.split(r"[/:]", outside)]
    if name.count(", ") == 1:
        spellings.append(" ".join(reversed(name.split(", "))))
    spellings = [other.strip() for other in spellings]
    # Of a part, one word alone is often no name: "(childhood)", "sensory/motor neuropathy".
    parts = [other for other in spellings[1:] if _is_abbreviation(other) or len(_tokens(other)) > 1]
    return tuple(other for other in dict.fromkeys([name, *parts]) if names_something(other))


def names_something(name: str) -> bool:
    """Whether a name is struck at all: more than one letter, and not of generic words alone."""
    return len("".join(_tokens(name))) > 1 and not GENERIC.issuperset(name_words(name))


def _is_abbreviation(name: str) -> bool:
    """Whether a name is struck as it is written only."""
    letters = "".join(_tokens(name))
    capitals = sum(c.isupper() for c in letters)
    return 1 < len(letters) <= _SHORT and (capitals > 1 or any(c.isdigit() for c in letters))


@cache
def name_pattern(name: str, bracket: str = _BRACKET) -> tuple[str, re.Pattern]:
    """Where a name stands in an unaccented text, with a ``bracket`` that follows directly on it.

    Before it, for speed: lower-case letters that every text with the name has.
    """
    words = _tokens(unaccented(name))
    if _is_abbreviation(name):
        words[-1] = words[-1].removesuffix("s")  # "CMs" is the plural of "CM"
        body, flags = _BETWEEN.join(map(re.escape, words)) + "s?" + _POSSESSIVE, re.NOFLAG
        part = words[0].lower()
    else:
        words = [word for word in words if word != "s"]  # of "Cushing's", which _POSSESSIVE has
        body, flags = _BETWEEN.join(map(_any_number, words)), re.IGNORECASE
        longest = max(words, key=len).lower()
        part = longest[:-3] or longest  # singular and plural differ in three letters at most
    pattern = re.compile(_NO_LETTER_BEFORE + body + _NO_LETTER_AFTER + bracket, flags)
    return part, pattern


def _whole(word: str) -> str:
    """A pattern of the word as it is written, its possessive included."""
    return _NO_LETTER_BEFORE + re.escape(word) + "s?" + _POSSESSIVE + _NO_LETTER_AFTER


def _any_number(word: str) -> str:
    """A pattern of the word in singular and plural, its possessive included."""
    word = word.lower()
    if len(word) < 3 or not word.isalpha():
        return re.escape(word) + _POSSESSIVE
    singular = {word}
    if word.endswith("ies"):
        singular.add(word[:-3] + "y")
    elif word.endswith("es"):
        singular |= {word[:-1], word[:-2], word[:-2] + "is"}
    elif word.endswith("s") and not word.endswith(("is", "ss", "us")):
        singular.add(word[:-1])
    forms = set(singular)
    for one in singular:
        forms |= {one + "s", one + "es"}
        if one.endswith("y"):
            forms.add(one[:-1] + "ies")
        if one.endswith("is"):
            forms.add(one[:-2] + "es")
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return f"(?:{'|'.join(longest_first)}){_POSSESSIVE}"


def _proper_nouns(text: str, names: Iterable[str]) -> list[str]:
    """Words of the names that the text writes with a capital in the middle of a sentence."""
    inside = set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]{3,}", unaccented(text)))
    inside = {word for word in inside if not GENERIC.issuperset(name_words(word))}
    if not inside:
        return []
    words = set().union(*map(_lower_words, names))
    return sorted(w for w in inside if words & {w.lower(), w.lower().removesuffix("s")})


@cache
def _lower_words(name: str) -> frozenset[str]:
    return frozenset(_tokens(unaccented(name.lower())))


def introduced(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Abbreviations in the brackets that follow directly on a name: words with two capitals."""
    abbreviations = []
    for spelling in (other for name in names for other in spellings(name)):
        for match in name_pattern(spelling)[1].finditer(unaccented(text)):
            bracket = re.search(r"[(\[](.*)[)\]]$", match.group())
            inside = re.findall(r"[^\W_](?:[\w-]*[^\W_])?", bracket.group(1)) if bracket else ()
            abbreviations += [word for word in inside if sum(c.isupper() for c in word) > 1]
    return tuple(dict.fromkeys(abbreviations))


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that overlap made one, from left to right."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _tokens(text: str) -> list[str]:
    """The runs of letters and digits of a text, as they are written."""
    return re.findall(r"[^\W_]+", text)


def unaccented(text: str) -> str:
    """The text without accents, character by character: places in it are places in the text."""
    if text.isascii():
        return text
    return "".join(unicodedata.normalize("NFKD", c)[0] if c.isalpha() else c for c in text)
