"""Every generation passes one recorder: asked once, written down, replayed for ever.

A recording is JSON Lines sorted by ``key`` (see ``recording_key``), one generation a line:
``model`` (as asked for), ``author`` (as the server names it), ``request`` (unless it is long),
``sample``, ``reply``, and ``digest``, a hash of all these, so that an edited reply is found. What
differs between two runs (latency, time, who asked) stands beside it in ``<name>.times.jsonl``: the
recording is the same bytes whatever the order of the calls or the number of kills. Lines without a
digest (texts that came in sheets, older versions) are vouched for by a manifest beside the file,
which ``python -m tools.annotation seal FILE ...`` writes.

Whoever writes to the two files holds one lock (``lib.base.files.locked``). So a torn line is that
of a writer who is dead, and nobody writes into a file that another is replacing.
"""

from __future__ import annotations

import atexit
import gzip
import json
import math
import os
import threading
import warnings
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

from lib.base.files import (
    atomic_write,
    canonical_json,
    finished_bytes,
    locked,
    row_digest,
    sha256_bytes,
)
from lib.base.paths import shown
from lib.llm.chat import REFERENCE, ChatModel, Message, Reply, current_tag, sample_seed

LONG = 4000
"""Characters from which a request is kept by its key alone: a prompt that holds passages."""

_VOLATILE = ("latency_s", "model", "method")
_AGAIN = "again"
_DIGEST = "digest"


class RecordingMiss(LookupError):
    """Replay was asked for a generation that nobody recorded; says which, and how to record it."""


def recording_key(model: str, request: dict, sample: int) -> str:
    """sha256 of model name, ``{"messages", "options"}`` and sample; never of a URL or API key."""
    return sha256_bytes(canonical_json([model, request, sample]).encode())


class _Lines:
    """The lines of one file by key, as far as they were read; those that write hold the lock.

    With ``once`` a key stands there once. Only what "refresh" asked for again follows an older line
    of its key, marked, until the file is sorted; any other line that contradicts one is an error.
    Else the last line of a key counts, as of times: after a kill a reply is timed anew.
    """

    def __init__(self, file: Path, once: bool = True):
        self.file = file
        self._once = once
        self.rows: dict[str, dict] = {}
        self._line_of: dict[str, int] = {}
        self._stream: BinaryIO | None = None
        self._bytes_read = 0
        self._lines_read = 0
        self._vouched = math.inf

    def let_go(self) -> None:
        """Close the file; when it is read next, it is read from its start."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._bytes_read = 0
        self._lines_read = 0

    def catch_up(self) -> bool:
        """Read the lines that were added since the last time; True when the last one is torn."""
        if not self.file.exists():
            return False
        if self._stream is None or self._was_replaced():
            self.let_go()
            self._stream = self.file.open("rb", buffering=0)
            self._vouched = _vouched_bytes(self.file)
            if self.file.suffix == ".gz":
                self._stream = gzip.GzipFile(fileobj=self._stream)
        self._stream.seek(self._bytes_read)
        data = self._stream.read()
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines(keepends=True):
            self._lines_read += 1
            self._bytes_read += len(line)
            self._take(self._parsed(line))
        return whole < len(data)

    def _take(self, row: dict) -> None:
        """Keep a row. ValueError, naming both lines, where it contradicts another of its key."""
        key, is_again = row["key"], row.pop(_AGAIN, False)
        there = self.rows.get(key, row)
        if self._once and not is_again and canonical_json(there) != canonical_json(row):
            raise ValueError(
                f"{shown(self.file)}, lines {self._line_of.get(key, '?')} and {self._lines_read}: "
                f"two replies to one request; delete the line that does not belong"
            )
        self.rows[key] = row
        self._line_of[key] = self._lines_read

    def _was_replaced(self) -> bool:
        """Whether another process closed its recording since: a sorted file is in its place.

        The old file is kept open until then, so that no new one can be given its number.
        """
        return not os.path.samestat(os.fstat(self._stream.fileno()), os.stat(self.file))

    def _parsed(self, line: bytes) -> dict:
        try:
            row = json.loads(line)
            asked = (row.get("model"), row.get("request"), row.get("sample"))
            if asked[1] and row["key"] != recording_key(*asked):
                raise ValueError("edited by hand")
            fields = {"author", "model", "reply"} if self._once else set()
            if not isinstance(row["key"], str) or not fields <= row.keys():
                raise ValueError("a field is missing")
            digest = row.pop(_DIGEST, None)
            if digest is None and self._bytes_read > self._vouched:
                raise ValueError(
                    "no digest, and the file is not the one its manifest vouches for; restore it, "
                    f"or, if the change is meant, run: python -m tools.annotation seal {self.file}"
                )
            if digest is not None and digest != row_digest(row):
                raise ValueError("edited since it was recorded; delete the line to ask again")
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            where = f"{shown(self.file)}, line {self._lines_read}"
            raise ValueError(f"{where}: no recording ({error!r})") from error
        return row

    def mend(self) -> bool:
        """Cut a torn last line off, under the lock: its writer was killed; True when there was."""
        if not self.file.exists():
            return False
        with open(self.file, "rb+") as stream:
            whole = _end_of_last_line(stream)
            torn = whole < stream.seek(0, os.SEEK_END)
            if torn:
                stream.truncate(whole)
        return torn

    def append(self, rows: dict[str, dict], again: bool = False) -> None:
        """Add lines, under the lock, and wait until the disk has them.

        ``again``: they may stand for older lines of the same keys.
        """
        if not rows:
            return
        self.mend()  # else the first new line would be glued to the torn one
        marked = {key: row | {_AGAIN: True} for key, row in rows.items()} if again else rows
        # Opened anew, for ``close`` replaces the file.
        with open(self.file, "ab") as stream:
            stream.write(_text(marked))
            stream.flush()
            os.fsync(stream.fileno())
        self.rows |= rows

    def is_sorted(self) -> bool:
        """Whether the file is in order and holds all that is known here; True where it is none."""
        if not self.file.exists():
            return True
        there = self.file.read_bytes()
        rows = self._in_order()
        # What is vouched for by a manifest stays as it is, without digests.
        return there in (_text(rows), _text(rows, digests=False))

    def sort(self) -> None:
        """Put the lines in order, under the lock, with what every process appended."""
        if not self.is_sorted():
            atomic_write(self.file, _text(self._in_order()))
        self.let_go()

    def _in_order(self) -> dict[str, dict]:
        there = _Lines(self.file, self._once)
        there.catch_up()
        there.let_go()
        return self.rows | there.rows


class Recorder(ChatModel, AbstractContextManager):
    """A ChatModel that keeps what another one says in ``path``; any number may write one file.

    ``mode`` "record" asks ``model`` for what is missing; "replay" (``model`` None) never asks and
    raises RecordingMiss; "refresh" asks once more for all it is asked. Lines are fsynced as they
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
        self._lock = threading.Lock()
        if model and (self.path.suffix == ".gz" or "*" in self.path.name):
            raise ValueError(f"{shown(path)} can be replayed, not written: name one .jsonl file")
        self._times = _Lines(self.path.with_suffix(".times.jsonl"), once=False)
        self._lines = _Lines(self.path)
        for lines in (self._times, self._lines):
            self._read(lines)
        if "*" in self.path.name:
            self._read_all()
        known = sorted({row["model"] for row in self._lines.rows.values()})
        if not model and not name and len(known) > 1:
            raise ValueError(f"{shown(path)} holds {known}: pass name= to choose one")
        self.name = model.name if model else name or (known or ["nothing recorded"])[0]
        if mode != "record":  # only a recorder goes on reading what others add
            self._times.let_go()
            self._lines.let_go()
        if mode == "refresh":
            self._times.rows, self._lines.rows = {}, {}
        if model:
            atexit.register(self.close)

    def _read(self, lines: _Lines) -> None:
        """Read what there is. Replay never writes; else a torn last line is cut off the file."""
        torn = lines.catch_up()
        if torn and self.model:
            # It may also be another process's, half way: that is known once the lock is held.
            with locked(self.path):
                torn = lines.mend()
                lines.catch_up()
        if torn:
            warnings.warn(
                f"{shown(lines.file)}: dropped a torn last line (a killed run)", stacklevel=3
            )

    def _read_all(self) -> None:
        """Read every file whose name fits the pattern, as one recording."""
        files = sorted(self.path.parent.glob(self.path.name))
        if not files:
            raise FileNotFoundError(f"no recording fits {shown(self.path)}")
        for file in files:
            lines = _Lines(file)
            self._read(lines)
            lines.let_go()
            self._lines.rows |= lines.rows

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        times, lines = self._times.rows, self._lines.rows
        request = {"messages": messages, "options": options}
        keys = [recording_key(self.name, request, i) for i in range(n)]
        if missing := self.missing(request, n):
            self._record(request, keys, missing)
        return [
            Reply(
                **lines[key]["reply"],
                model=lines[key]["author"],
                latency_s=times.get(key, {}).get("latency_s"),
            )
            for key in keys
        ]

    def missing(self, request: dict, n: int) -> list[int]:
        """Which of the samples 0 to n - 1 of a request nobody has recorded."""
        keys = [recording_key(self.name, request, i) for i in range(n)]
        return [i for i, key in enumerate(keys) if key not in self._lines.rows]

    def _record(self, request: dict, keys: list[str], missing: list[int]) -> None:
        """Generate the missing samples, all at once or, after a kill, the rest one by one."""
        if self.model is None:
            raise RecordingMiss(self._miss(missing[0]))
        options = request["options"]
        asks = [(len(keys), options["seed"])]
        if len(missing) < len(keys):
            asks = [(1, sample_seed(options["seed"], i)) for i in missing]
        replies = []
        for n, seed in asks:
            replies += self.model.generate(request["messages"], n=n, **options | {"seed": seed})
        self.asked += len(replies)
        # The key alone tells whether a request is the one recorded, so a long one is left out.
        spelled_out = {"request": request} if len(canonical_json(request)) < LONG else {}
        now = {"at": datetime.now(UTC).isoformat(timespec="seconds")} | current_tag()
        with self._lock, locked(self.path):
            if self.mode == "record":  # while "refresh" takes nothing from the file
                self._times.catch_up()
                self._lines.catch_up()
            times, lines = {}, {}
            for i, reply in zip(missing, replies, strict=True):
                if (key := keys[i]) in self._lines.rows:
                    continue  # another thread or process asked the same: what was first stays
                told = as_recorded(reply)
                lines[key] = {
                    "key": key,
                    "author": reply.model,
                    "model": self.name,
                    "sample": i,
                    "reply": told,
                } | spelled_out
                if reply.latency_s is not None:
                    times[key] = now | {"key": key, "latency_s": round(reply.latency_s, 4)}
            again = self.mode == "refresh"
            self._times.append(times, again)  # first: a recording never lacks its latency
            self._lines.append(lines, again)

    def again(self) -> Recorder:
        """A recorder of the same model and file that asks once more for all it is asked."""
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
        """Rewrite the recording sorted by key, atomically, with what other processes appended."""
        atexit.unregister(self.close)
        if self.model is None or (self._times.is_sorted() and self._lines.is_sorted()):
            return
        with self._lock, locked(self.path):
            self._times.sort()
            self._lines.sort()

    def __exit__(self, *_) -> None:
        self.close()


def may_ask(llm: ChatModel | None) -> bool:
    """Whether replies are read from a recording that a model goes on writing."""
    return isinstance(llm, Recorder) and llm.model is not None


def as_recorded(reply: Reply) -> dict:
    """What a recording keeps of a reply; of thinking nothing where there is none."""
    kept = {name: value for name, value in vars(reply).items() if name not in _VOLATILE}
    if not reply.thinking:
        del kept["thinking"]
    return kept


def _text(rows: dict[str, dict], digests: bool = True) -> bytes:
    """The lines of a file, sorted by key, each with its digest."""
    told = [rows[key] for key in sorted(rows)]
    if digests:
        told = [row | {_DIGEST: row_digest(row)} for row in told]
    return "".join(canonical_json(row) + "\n" for row in told).encode()


def _vouched_bytes(file: Path) -> float:
    """Up to which byte lines need no digest; all of them where no manifest stands beside the file.

    A manifest vouches for the bytes it was written for, so lines may have been added since. Of a
    gzipped file it vouches for all or nothing.
    """
    vouched = finished_bytes(file)
    if vouched is None or (vouched and file.suffix == ".gz"):
        return math.inf
    return vouched


def _end_of_last_line(stream: BinaryIO) -> int:
    """How many bytes of a file are whole lines; read from its end, block by block."""
    end = stream.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 65536)
        stream.seek(start)
        found = stream.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
