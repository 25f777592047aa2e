"""What the bundled SmolLM2 wrote for this study: recorded once, packed, replayed for ever.

A packed recording keeps requests by their keys alone, because they show passages and questions of
others. A model that is shown a passage repeats it: where a reply has ``LEAST_COPIED`` or more words
in a row of a passage, the recording holds the place of these words in place of them, and a replay
puts them back, letter for letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lib.base.paths import RECORDINGS, shown
from lib.data.store import PassageStore
from lib.llm.chat import ChatModel, Message, Reply
from lib.llm.recorder import Recorder, RecordingMiss
from lib.llm.small_model import NAME

LEAST_COPIED = 10
"""Words in a row that are taken to be copied."""

_PLACE = re.compile(r"⟨(\S+) (\d+) (\d+)⟩")


@dataclass(frozen=True)
class Stretch:
    """Characters ``start`` to ``end`` of a text, which stand in a passage from character ``at``."""

    start: int
    end: int
    pid: str
    at: int


def copied(text: str, passages: Mapping[str, str], least: int = LEAST_COPIED) -> list[Stretch]:
    """The stretches of ``text`` that stand in a passage letter for letter, from left to right.

    Each begins and ends with a word and has at least ``least`` words. Where several passages go on
    alike, the longest stretch is taken; of equal ones the first passage's by id.
    """
    words = list(re.finditer(r"\S+", text))
    everything = "\n".join(passages.values())
    found: list[Stretch] = []
    first = 0
    while first + least <= len(words):
        start = words[first].start()
        longest = None
        if text[start : words[first + least - 1].end()] in everything:
            longest = _longest(text, words[first:], least, passages)
        if longest is None:
            first += 1
            continue
        found.append(longest)
        first += sum(start <= word.start() < longest.end for word in words)
    return found


def _longest(
    text: str, words: list[re.Match], least: int, passages: Mapping[str, str]
) -> Stretch | None:
    """The longest stretch that begins with the first of these words; None below ``least``."""
    start = words[0].start()
    best = None
    for pid in sorted(passages):
        passage = passages[pid]
        for count in range(least, len(words) + 1):
            end = words[count - 1].end()
            at = passage.find(text[start:end])
            if at < 0:
                break
            if best is None or end > best.end:
                best = Stretch(start, end, pid, at)
    return best


def with_words(text: str, store: PassageStore) -> str:
    """A text that was kept ``as_places``, with the words again. KeyError for an unknown passage."""

    def words(match: re.Match) -> str:
        start, length = int(match[2]), int(match[3])
        return store.get(match[1]).text[start : start + length]

    return _PLACE.sub(words, text)


class Replayed(ChatModel):
    """A packed recording as a chat model, with the words of all places.

    ``RecordingMiss`` for what is not in it, naming the ``command`` that records it.
    """

    def __init__(self, name: str, command: str, store: PassageStore, file: Path | None = None):
        self.name = NAME
        self._file = file or packed_file(name)
        self._command = command
        self._store = store
        if not self._file.is_file():
            raise RecordingMiss(f"{shown(self._file)} is missing; run: {command}")
        self._recorder = Recorder(None, self._file, "replay", name=NAME)

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        try:
            replies = self._recorder._say(messages, n, options)
        except RecordingMiss as miss:
            what, _, _ = str(miss).partition(" Next:")
            raise RecordingMiss(f"{what} Run: {self._command}") from None
        return [replace(reply, text=with_words(reply.text, self._store)) for reply in replies]


def packed_file(name: str) -> Path:
    """Where the packed recording called ``name`` is, or is to be."""
    return RECORDINGS / f"{name}.jsonl.gz"
