"""What an LLM quotes: the spans between its quotation marks, and whether a text has them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

# One line at most, so that a forgotten mark spoils one line and not the rest of the reply.
_QUOTED = re.compile(r'"([^"\n]+)"|“((?:[^“”\n]|“[^“”\n]*”)+)”')


def quoted(text: str) -> list[str]:
    """Every span between straight or curly double quotes; of nested ones the outer span."""
    return [(straight or curly).strip() for straight, curly in _QUOTED.findall(text)]


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


def as_places(reply: str, documents: Mapping[str, str]) -> str:
    """The reply with ⟨passage id, start, length⟩ for the words of every quote.

    So a reply that quotes others' texts can be kept without them. ``documents`` are what it was
    shown, by passage id. A quote that stands in none of them word for word is kept as ⟨not found⟩.
    """

    def place(match: re.Match) -> str:
        words = (match[1] or match[2]).strip()
        for pid, text in documents.items():
            if span := find_words(words, text):
                return f'"⟨{pid} {span[0]} {span[1]}⟩"'
        return _LOST

    return _QUOTED.sub(place, reply)


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


def find_words(words: str, text: str) -> tuple[int, int] | None:
    """Where these words stand in the text, as (start, length); None where they do not.

    Case, white space and the shapes of quotation marks and dashes do not matter; letters do. A
    stretch of fewer than three words carries nothing.
    """
    wanted, _ = _plain(words.strip().strip("\"'“”‘’ ."))
    if len(wanted.split()) < 3:
        return None
    plain, places = _plain(text)
    at = plain.find(wanted)
    if at < 0:
        return None
    start, end = places[at], places[at + len(wanted) - 1] + 1
    return start, end - start


def _plain(text: str) -> tuple[str, list[int]]:
    """The text in lower case, with single spaces and plain marks, and where each character was."""
    plain, places = [], []
    for place, character in enumerate(text):
        for c in unicodedata.normalize("NFKC", character).casefold():
            if c.isspace():
                if plain and plain[-1] == " ":
                    continue
                c = " "
            plain.append(_MARKS.get(c, c))
            places.append(place)
    return "".join(plain), places


_MARKS = dict.fromkeys('‘’‚‛`´"“”„', "'") | dict.fromkeys("‐‑‒–—−", "-")
"""Quotation marks and dashes in their plainest shape."""
