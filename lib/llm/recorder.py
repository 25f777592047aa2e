"""Every generation passes one recorder: asked once, written down, replayed for ever.

A recording is JSON Lines, one generation a line: ``key`` (see ``recording_key``), ``model`` (as
asked for), ``author`` (as the server names it), ``request`` (unless it is long), ``sample``,
``reply``, and ``digest``, a hash of all these, so that an edited reply is found. What differs
between two runs (latency, time, who asked) stands beside it in ``<name>.times.jsonl``: sorted by
key, the recording is the same bytes whatever the order of the calls or the number of kills.

A writer holds one lock for both files (``lib.base.files.locked``), and first reads what others
have written. So an incomplete line comes from a writer that was killed.
"""

from __future__ import annotations

import atexit
import gzip
import json
import os
import warnings
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from lib.base.files import atomic_write, canonical_json, locked, row_digest, sha256_bytes
from lib.base.paths import shown
from lib.llm.chat import REFERENCE, ChatModel, Message, Reply, current_tag, sample_seed

LONG = 4000
"""Characters from which a request is kept by its key alone: a prompt that holds passages."""

_VOLATILE = ("latency_s", "model", "method")
_AGAIN = "again"
"""Marks a line that replaces an older one of its key: the model was asked once more."""


class RecordingMiss(LookupError):
    """Replay was asked for a generation that nobody recorded; says which, and how to record it."""


def recording_key(model: str, request: dict, sample: int) -> str:
    """sha256 of model name, ``{"messages", "options"}`` and sample; never of a URL or API key."""
    return sha256_bytes(canonical_json([model, request, sample]).encode())


class _Lines:
    """The rows of one file by key; ``fields`` are those that each must have.

    A row with a ``reply`` may not contradict an older row of its key unless marked (``_AGAIN``); of
    other rows, such as times, the last counts.
    """

    def __init__(self, file: Path, fields: tuple[str, ...] = ()):
        self.file, self.fields = file, {"key", *fields}
        self.rows: dict[str, dict] = {}
        self._seen: tuple[int, int] | None = None

    def read(self, mend: bool = False) -> None:
        """Read the file if another has changed it; ``mend``, under the lock, cuts a torn line off.

        ValueError names a line that is no recording, was edited, or contradicts another.
        """
        if not self.file.exists() or self._state() == self._seen:
            return
        state, data = self._state(), self.file.read_bytes()
        if self.file.suffix == ".gz":
            data = gzip.decompress(data)
        whole = data.rfind(b"\n") + 1
        self.rows = self._parsed(data[:whole])
        is_torn = whole < len(data)
        if is_torn:
            told = f"{shown(self.file)}: dropped a torn last line (a killed run)"
            warnings.warn(told, stacklevel=3)
        if is_torn and mend:
            os.truncate(self.file, whole)
            state = self._state()
        self._seen = None if is_torn and not mend else state

    def append(self, rows: dict[str, dict], again: bool = False) -> None:
        """Add rows, under the lock, and wait until the disk has them; ``again`` marks them."""
        if not rows:
            return
        self.read(mend=True)
        mark = {_AGAIN: True} if again else {}
        with open(self.file, "ab") as stream:
            stream.write(_text(row | mark for row in rows.values()))
            stream.flush()
            os.fsync(stream.fileno())
        self.rows.update(rows)
        self._seen = self._state()

    def sort(self) -> None:
        """Put the lines in order of their keys, under the lock."""
        if not self.file.exists():
            return
        self.read(mend=True)
        text = _text(self.rows[key] for key in sorted(self.rows))
        if text != self.file.read_bytes():
            atomic_write(self.file, text)

    def _state(self) -> tuple[int, int]:
        """A value that changes when lines were added, or another file is in its place."""
        stat = self.file.stat()
        return stat.st_ino, stat.st_size

    def _parsed(self, data: bytes) -> dict[str, dict]:
        rows: dict[str, dict] = {}
        line_of: dict[str, int] = {}
        for number, line in enumerate(data.splitlines(), 1):
            try:
                row = json.loads(line)
                is_again = row.pop(_AGAIN, False)
                if not self.fields <= row.keys() or not isinstance(row["key"], str):
                    raise ValueError("a field is missing")
                if "digest" in row and row["digest"] != row_digest(row):
                    raise ValueError("edited since it was recorded; delete the line to ask again")
            except (ValueError, RecursionError, TypeError, AttributeError) as error:
                where = f"{shown(self.file)}, line {number}"
                raise ValueError(f"{where}: no recording ({error!r})") from error
            key = row["key"]
            if not is_again and key in rows and rows[key].get("reply") != row.get("reply"):
                raise ValueError(
                    f"{shown(self.file)}, lines {line_of[key]} and {number}: "
                    "two replies to one request; delete the line that does not belong"
                )
            rows[key], line_of[key] = row, number
        return rows


def _text(rows) -> bytes:
    return "".join(canonical_json(row) + "\n" for row in rows).encode()


class Recorder(ChatModel, AbstractContextManager):
    """A ChatModel that records another one's replies in ``path``; any number may write one file.

    ``mode`` "record" asks ``model`` for what is missing; "replay" (``model`` None) never asks and
    raises RecordingMiss; "refresh" asks again for every request. Lines are fsynced as they
    come, so a killed run goes on where it stopped; ``close`` (also at exit, or ``with``) sorts the
    file. When two processes ask the same at once, both get what was written first. In replay,
    ``name`` chooses among the file's models when there are several; ``path`` may be gzipped, and
    its name a pattern that several files fit ("real-*.jsonl.gz").
    """

    def __init__(
        self,
        model: ChatModel | None,
        path: str | Path,
        mode: Literal["record", "replay", "refresh"] = "record",
        *,
        name: str | None = None,
    ):
        if mode not in (("record", "refresh") if model else ("replay",)):
            raise ValueError(f"no mode {mode!r} {'with' if model else 'without'} a model")
        self.model, self.path, self.mode = model, Path(path), mode
        self.asked = 0
        """How many samples ``model`` was asked for: the others were recorded before."""
        if model and (self.path.suffix == ".gz" or "*" in self.path.name):
            raise ValueError(f"{shown(path)} can be replayed, not written: name one .jsonl file")
        self._times = _Lines(self.path.with_suffix(".times.jsonl"))
        self._times.read()
        self._lines = _Lines(self.path, ("author", "model", "reply"))
        self._lines.read()
        if "*" in self.path.name:
            self._lines.rows = self._rows_of_all_files()
        self._refreshed: set[str] = set()
        known = sorted({row["model"] for row in self._lines.rows.values()})
        if not model and not name and len(known) > 1:
            raise ValueError(f"{shown(path)} holds {known}: pass name= to choose one")
        self.name = model.name if model else name or (known or ["nothing recorded"])[0]
        if model:
            atexit.register(self.close)

    def _rows_of_all_files(self) -> dict[str, dict]:
        """The rows of every file whose name fits the pattern."""
        files = sorted(self.path.parent.glob(self.path.name))
        if not files:
            raise FileNotFoundError(f"no recording fits {shown(self.path)}")
        rows = {}
        for file in files:
            lines = _Lines(file, ("author", "model", "reply"))
            lines.read()
            rows |= lines.rows
        return rows

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        request = {"messages": messages, "options": options}
        if missing := self.missing(request, n):
            self._record(request, n, missing)
        replies = []
        for key in self._keys(request, n):
            row = self._lines.rows[key]
            latency_s = self._times.rows.get(key, {}).get("latency_s")
            replies.append(Reply(**row["reply"], model=row["author"], latency_s=latency_s))
        return replies

    def _keys(self, request: dict, n: int) -> list[str]:
        return [recording_key(self.name, request, sample) for sample in range(n)]

    def missing(self, request: dict, n: int) -> list[int]:
        """Which of the samples 0 to n - 1 of a request are to be asked for."""
        return [i for i, key in enumerate(self._keys(request, n)) if not self._is_known(key)]

    def _is_known(self, key: str) -> bool:
        if self.mode == "refresh":
            return key in self._refreshed
        return key in self._lines.rows

    def _record(self, request: dict, n: int, missing: list[int]) -> None:
        """Generate the missing samples, all at once or, after a kill, the rest one by one."""
        if self.model is None:
            raise RecordingMiss(self._miss(missing[0]))
        options = request["options"]
        asks = [(n, options["seed"])]
        if len(missing) < n:
            asks = [(1, sample_seed(options["seed"], sample)) for sample in missing]
        replies = []
        for several, seed in asks:
            seeded = options | {"seed": seed}
            replies += self.model.generate(request["messages"], n=several, **seeded)
        self.asked += len(replies)
        keys = self._keys(request, n)
        now = {"at": datetime.now(UTC).isoformat(timespec="seconds")} | current_tag()
        with locked(self.path):
            self._times.read(mend=True)
            self._lines.read(mend=True)
            times, lines = {}, {}
            for sample, reply in zip(missing, replies, strict=True):
                key = keys[sample]
                if self._is_known(key):
                    continue  # another thread or process asked the same: what was first stays
                lines[key] = self._row(key, request, sample, reply)
                if reply.latency_s is not None:
                    row = now | {"key": key, "latency_s": round(reply.latency_s, 4)}
                    times[key] = row | {"digest": row_digest(row)}
            self._refreshed |= set(lines)
            self._times.append(times)  # first: a recording never lacks its latency
            self._lines.append(lines, again=self.mode == "refresh")

    def _row(self, key: str, request: dict, sample: int, reply: Reply) -> dict:
        row = {
            "key": key,
            "author": reply.model,
            "model": self.name,
            "sample": sample,
            "reply": as_recorded(reply),
        }
        # The key alone tells whether a request is the one recorded, so a long one is left out.
        if len(canonical_json(request)) < LONG:
            row["request"] = request
        return row | {"digest": row_digest(row)}

    def again(self) -> Recorder:
        """A recorder of the same model and file that asks the model again for every request."""
        return Recorder(self.model, self.path, "refresh")

    def _miss(self, sample: int) -> str:
        asked, file = current_tag(), shown(self.path)
        small = self.name.startswith(("SmolLM2-135M", "nothing"))
        again = f"record:{file}={'small' if small else f'openai:{self.name}'}"
        if self.name == REFERENCE:  # which no command writes
            again = "small"
        return (
            f"no reply of {self.name} is recorded in {file} for method {asked['method'] or '?'}, "
            f"question {asked['qid'] or '?'}, sample {sample}. "
            f"Next: llm = lib.llm.connect({again!r}), and run this again"
        )

    def close(self) -> None:
        """Sort the recording by key, atomically, with what other processes appended."""
        atexit.unregister(self.close)
        in_order = list(self._lines.rows) == sorted(self._lines.rows)
        if self.model is None or not self.path.exists() or (in_order and not self.asked):
            return
        with locked(self.path):
            self._times.sort()
            self._lines.sort()

    def __exit__(self, *_) -> None:
        self.close()


def may_ask(llm: ChatModel | None) -> bool:
    """Whether ``llm`` is a recorder with a model behind it, which it asks for missing replies."""
    return isinstance(llm, Recorder) and llm.model is not None


def as_recorded(reply: Reply) -> dict:
    """The fields of a reply that a recording keeps; ``thinking`` only where there is some."""
    kept = {name: value for name, value in vars(reply).items() if name not in _VOLATILE}
    if not reply.thinking:
        del kept["thinking"]
    return kept
