"""What an LLM quotes: the spans between its quotation marks, and whether a text has them."""

from __future__ import annotations

import re
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
