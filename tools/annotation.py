"""The annotation tool: requests for whoever writes or judges in a conversation, and their return.

    python -m tools.annotation seal FILE ...    vouch for recordings whose lines carry no digest

Each conversation is given a folder with a README, numbered requests ``q1.txt``, ``q2.txt``, ... as
plain text, and nothing else; the replies come as ``q1.reply`` beside them. The key to what stands
in them stays in ``keys/`` beside the folders, so that no conversation sees it. What is missing is
simply given out again. Texts become recordings that replay like any other (``record_texts``).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lib.base.files import (
    atomic_write,
    canonical_json,
    read_jsonl,
    sha256_bytes,
    write_jsonl_gz,
    write_manifest,
)
from lib.llm.chat import ChatModel, Message, Reply, current_tag
from lib.llm.recorder import Recorder, RecordingMiss, recording_key

WRITER_README = """\
INSTRUCTIONS. You play a language model that answers requests. The files {files} beside this one \
hold independent requests. Answer each one as if it were the only one you had been given, from \
your own knowledge, following exactly what that request asks (its form, its length). Write every \
reply yourself, word by word; no script or template may write or edit a text. Read no other file, \
search for nothing. Write each reply, and nothing else, to the file of the same name that ends in \
.reply (so q1.txt gives q1.reply), none left out. When all are written, end with the single word: \
done.
"""

JUDGE_README = """\
INSTRUCTIONS. You are a careful judge of medical texts. This folder has the files {files}. Each \
holds numbered texts and says how to label them. Take the files one after the other: read one in \
full, judge its texts one by one by reading them yourself, and write your reply for it to the file \
of the same name that ends in .reply (so q1.txt gives q1.reply). No script may choose or write a \
label, nothing may be left out, and no other file may be read. Reply nothing but the lines asked \
for. When all are written, end with the single word: done.
"""

READER_README = """\
INSTRUCTIONS. You play a language model that answers exam questions. The files {files} beside this \
one hold independent requests. Read each in full and answer it as if it were the only one you had \
been given, by reading it yourself: no script may choose an answer. Read no other file, search for \
nothing. Write each reply, one line and nothing else, to the file of the same name that ends in \
.reply (so q1.txt gives q1.reply), none left out. When all are written, end with the single word: \
done.
"""

CHARACTERS = 330_000
"""Of a conversation's requests together, at most."""

MOST = 60
"""Texts asked for in one conversation, at most."""


# out and back -------------------------------------------------------------------------------------


def give(
    kind: str, requests: Iterable[tuple[str, Any]], readme: str, folder: Path, most: int = 25
) -> list[str]:
    """Give out requests, each a text and its key (any JSON); the names of the folders made.

    At most ``most`` requests and ``CHARACTERS`` stand in one conversation; a folder's name says
    nothing. ``readme`` has ``{files}`` where the files' names belong.
    """
    groups: list[list[tuple[str, Any]]] = []
    size = 0
    for text, key in requests:
        if not groups or size + len(text) > CHARACTERS or len(groups[-1]) == most:
            groups.append([])
            size = 0
        groups[-1].append((text, key))
        size += len(text)
    made = []
    for group in groups:
        names = [f"q{number}" for number in range(1, len(group) + 1)]
        # By the keys too: two samples of one request are two conversations.
        place = sha256_bytes(canonical_json([list(one) for one in group]).encode())[:8]
        for name, (text, _) in zip(names, group, strict=True):
            atomic_write(folder / place / f"{name}.txt", text)
        listed = ", ".join(f"{name}.txt" for name in names)
        atomic_write(folder / place / "README.txt", readme.format(files=listed))
        keys = {name: key for name, (_, key) in zip(names, group, strict=True)}
        whole = canonical_json({"kind": kind, "requests": keys})
        atomic_write(folder / "keys" / f"{place}.json", whole)
        made.append(place)
    return made


def taken(kind: str, folder: Path) -> tuple[list[tuple[Any, str]], list[str]]:
    """The key and the reply of each answered request of a kind, and those without a reply.

    ValueError for a reply without a word.
    """
    found, waiting = [], []
    for path in sorted((folder / "keys").glob("*.json")):
        whole = json.loads(path.read_text(encoding="utf-8"))
        if whole["kind"] != kind:
            continue
        for name, key in whole["requests"].items():
            file = folder / path.stem / f"{name}.reply"
            if not file.exists():
                waiting.append(f"{path.stem}/{name}")
                continue
            reply = file.read_text(encoding="utf-8").strip()
            if not reply:
                raise ValueError(f"{file} is empty; write it, or give the request out again")
            found.append((key, reply))
    return found, waiting


def as_text(messages: Sequence[Message]) -> str:
    """A request as whoever answers it reads it: one turn as it is, several below who speaks."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"[{turn['role']}]\n{turn['content']}" for turn in messages)


# texts that no recording has ----------------------------------------------------------------------


@dataclass(frozen=True)
class Pending:
    """One generation that nobody has recorded: its key in a recording, and what is asked."""

    key: str
    messages: tuple[Message, ...]
    options: dict
    sample: int
    method: str
    qid: str


class EmptyRecording(ChatModel):
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

    def __init__(self, recorded: Recorder | EmptyRecording):
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


def recorded(path: Path, name: str) -> Recorder | EmptyRecording:
    """What is recorded at ``path``, perhaps a pattern, of a writer called ``name``, for replay."""
    exists = any(path.parent.glob(path.name))
    return Recorder(None, path, "replay", name=name) if exists else EmptyRecording(name)


def pending(
    asks: Iterable[Callable[[ChatModel], object]], llm: Recorder | EmptyRecording
) -> list[Pending]:
    """What each of ``asks`` still wants of a model, after what is recorded; each request once.

    A method that asks again after it has read (ThinkQE, CSQE's extraction) is simply asked again
    once these are recorded.
    """
    collector = Collector(llm)
    for ask in asks:
        with suppress(RecordingMiss):
            ask(collector)
    return list(collector.asked.values())


def give_texts(
    kind: str, requests: Sequence[Pending], folder: Path, readme: str = WRITER_README
) -> list[str]:
    """Give out requests for texts, samples apart; the names of the folders made.

    What is asked about one question more than once stands in several conversations.
    """
    made = []
    for sample in sorted({request.sample for request in requests}):
        for part in apart(request for request in requests if request.sample == sample):
            asked = [(as_text(request.messages), asdict(request)) for request in part]
            made += give(kind, asked, readme, folder, MOST)
    return made


def apart(requests: Iterable[Pending]) -> list[list[Pending]]:
    """Requests in groups, each with a question once at most; which of a question's stands in which
    group is drawn by the hash of its key."""
    groups: list[list[Pending]] = []
    places: Counter[str] = Counter()
    for request in sorted(requests, key=lambda one: sha256_bytes(one.key.encode())):
        place = places[request.qid]
        places[request.qid] += 1
        if place == len(groups):
            groups.append([])
        groups[place].append(request)
    return groups


def record_texts(
    kind: str,
    folder: Path,
    path: Path,
    model: str,
    author: str,
    kept: Callable[[str, Pending], str] | None = None,
) -> tuple[int, list[str]]:
    """Add every reply of a kind to the recording at ``path``; how many were new, and who waits.

    Requests stand there by their key alone. ``kept`` says in what form a reply is recorded, as it
    came if left out. ValueError for a text that is recorded already with other words.
    """
    replies, waiting = taken(kind, folder)
    rows = {row["key"]: row for row in read_jsonl(path)} if path.exists() else {}
    before = len(rows)
    for fields, text in replies:
        request = Pending(**fields)
        row = _row(request, kept(text, request) if kept else text, model, author)
        if rows.setdefault(request.key, row) != row:
            raise ValueError(f"{path.name}: {request.key} is recorded with another text")
    write_jsonl_gz(path, (rows[key] for key in sorted(rows)))
    seal(path)
    return len(rows) - before, waiting


def _row(request: Pending, text: str, model: str, author: str) -> dict:
    reply = {
        "text": text,
        "finish_reason": "stop",
        "prompt_tokens": None,
        "output_tokens": None,
        "choice": request.sample,
        "note": "",
    }
    key = {"key": request.key, "author": author, "model": model, "sample": request.sample}
    return key | {"reply": reply}


def add_rows(rows: Iterable[Mapping], path: Path, key: Sequence[str]) -> int:
    """Add judged rows to a file of judgments; how many are new.

    ValueError for what was judged otherwise before, by the columns of ``key``.
    """
    known = {}
    if path.exists():
        known = {tuple(row[name] for name in key): row for row in read_jsonl(path)}
    before = len(known)
    for row in rows:
        name = tuple(row[column] for column in key)
        if known.setdefault(name, row) != row:
            raise ValueError(f"{path.name}: {name} was judged otherwise before")
    write_jsonl_gz(path, (known[name] for name in sorted(known)))
    return len(known) - before


def seal(path: Path) -> None:
    """Write the manifest beside a recording whose lines carry no digest: its replies as they are.

    Texts that came in conversations need it, and recordings of an older version or edited by hand.
    """
    write_manifest(path, rows=sum(1 for _ in read_jsonl(path)), settings={})


def main() -> None:
    """Seal recordings."""
    parser = argparse.ArgumentParser(prog="python -m tools.annotation")
    parser.add_argument("do", choices=["seal"])
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        seal(path)
        print(f"{path}: its replies are vouched for as they are now")


if __name__ == "__main__":
    main()
