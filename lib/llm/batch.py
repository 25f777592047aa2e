"""Requests written down and answered elsewhere: for a writer that is reached through files.

``pending`` asks a method for its expansions and writes down what no recording answers yet;
``add_replies`` turns texts that came back into a recording, which replays like any other. A method
that asks again after it has read (ThinkQE, CSQE's extraction) is simply asked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lib.base.files import read_jsonl, write_jsonl_gz
from lib.llm.chat import ChatModel, Message, Reply, current_tag
from lib.llm.recorder import Recorder, RecordingMiss, recording_key


@dataclass(frozen=True)
class Pending:
    """One generation that nobody has recorded: its key in a recording, and what is asked."""

    key: str
    messages: tuple[Message, ...]
    options: dict
    sample: int
    method: str
    qid: str


class Nothing(ChatModel):
    """A recording in which nothing is: it is asked for everything."""

    def __init__(self, name: str):
        self.name = name

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        raise RecordingMiss(f"nothing of {self.name} is recorded")

    def missing(self, request: dict, n: int) -> list[int]:
        """Every sample."""
        return list(range(n))


class Collector(ChatModel):
    """Answers from a recording; what is not there is kept in ``asked`` and raises RecordingMiss."""

    def __init__(self, recorded: Recorder | Nothing):
        self.recorded, self.name = recorded, recorded.name
        self.asked: dict[str, Pending] = {}

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        request = {"messages": messages, "options": options}
        tag = current_tag()
        for sample in self.recorded.missing(request, n):
            key = recording_key(self.name, request, sample)
            self.asked[key] = Pending(
                key, tuple(messages), options, sample, tag["method"], tag["qid"]
            )
        return self.recorded._say(messages, n, options)


def pending(expand: Callable[[ChatModel], object], recorded: Recorder | Nothing) -> list[Pending]:
    """What ``expand(llm)`` still asks for, after what is recorded; empty once all is there."""
    collector = Collector(recorded)
    with suppress(RecordingMiss):
        expand(collector)
    return list(collector.asked.values())


def add_replies(
    path: Path, model: str, author: str, requests: Iterable[Pending], texts: Mapping[str, str]
) -> int:
    """Add the texts (by key) to the recording at ``path`` (gzip); how many were new.

    Requests stand there by their key alone. Raises LookupError for a text that nobody asked for,
    and ValueError for one that is recorded already with other words.
    """
    asked = {request.key: request for request in requests}
    if unknown := sorted(set(texts) - set(asked)):
        raise LookupError(f"{path.name}: nobody asked for {unknown[0]}")
    rows = {row["key"]: row for row in read_jsonl(path)} if path.exists() else {}
    new = 0
    for key, text in texts.items():
        reply = {
            "text": text,
            "finish_reason": "stop",
            "prompt_tokens": None,
            "output_tokens": None,
            "choice": asked[key].sample,
            "note": "",
        }
        row = {
            "key": key,
            "author": author,
            "model": model,
            "sample": asked[key].sample,
            "reply": reply,
        }
        if key in rows and rows[key] != row:
            raise ValueError(f"{path.name}: {key} is recorded with another text")
        new += key not in rows
        rows[key] = row
    write_jsonl_gz(path, (rows[key] for key in sorted(rows)))
    return new


def sheet(requests: Sequence[Pending]) -> str:
    """The requests as one text to be answered by hand or in one conversation, numbered from 1.

    Each stands there as a model would be given it; nothing says whose question it is.
    """
    parts = []
    for number, request in enumerate(requests, 1):
        turns = [f"[{turn['role']}]\n{turn['content']}" for turn in request.messages]
        parts.append("\n\n".join([f"===== request {number} =====", *turns]))
    return "\n\n\n".join(parts) + "\n"


def read_sheet(text: str, requests: Sequence[Pending]) -> dict[str, str]:
    """The replies of an answered sheet by key: each stands below a line ``@@@ <number>``.

    Raises ValueError where a number is missing, unknown or there twice, or a reply is empty.
    """
    parts = re.split(r"(?m)^@@@ *(\d+) *$", text)
    if parts[0].strip():
        raise ValueError(f"the sheet begins with {parts[0].strip()[:40]!r}, not with @@@ 1")
    numbers, replies = [int(n) for n in parts[1::2]], [reply.strip() for reply in parts[2::2]]
    if numbers != list(range(1, len(requests) + 1)):
        raise ValueError(f"the sheet answers {numbers}, and asks 1 to {len(requests)}")
    if "" in replies:
        raise ValueError(f"reply {replies.index('') + 1} is empty")
    return {request.key: reply for request, reply in zip(requests, replies, strict=True)}
