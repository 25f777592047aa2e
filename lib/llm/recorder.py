"""Every generation passes one recorder: asked once, written down, replayed for ever.

A recording is JSON Lines sorted by ``key`` (see ``recording_key``), one generation a line:
``model`` (as asked for), ``author`` (as the server names it), ``request`` (unless it is long),
``sample``, ``reply``. What differs between two runs (latency, time, who asked) stands beside it in
``<name>.times.jsonl``: the recording is the same bytes whatever the order of the calls or the
number of kills.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import warnings
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from lib.base.files import atomic_write, canonical_json, sha256_bytes
from lib.base.paths import shown
from lib.llm.chat import REFERENCE, ChatModel, Message, Reply, current_tag, sample_seed

__all__ = ["Recorder", "RecordingMiss", "recording_key"]

LONG = 4000
"""Characters from which a request is kept by its key alone: a prompt that holds passages."""

_VOLATILE = ("latency_s", "model", "method")


class RecordingMiss(LookupError):
    """Replay was asked for a generation that nobody recorded; says which, and how to record it."""


def recording_key(model: str, request: dict, sample: int) -> str:
    """sha256 of model name, ``{"messages", "options"}`` and sample; never of a URL or API key."""
    return sha256_bytes(canonical_json([model, request, sample]).encode())


class Recorder(ChatModel, AbstractContextManager):
    """A ChatModel that keeps what another one says in ``path``; any number may write one file.

    ``mode`` "record" asks ``model`` for what is missing; "replay" (``model`` None) never asks and
    raises RecordingMiss; "refresh" asks once more for all it is asked. Lines are fsynced as they
    come, so a killed run goes on where it stopped; ``close`` (also at exit, or ``with``) sorts the
    file. In replay, ``name`` chooses among the file's models when there are several.
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
        files = self.path.with_suffix(".times.jsonl"), self.path
        self._rows = {file: _load(file, mend=bool(model)) for file in files}
        self._lock = threading.Lock()
        known = sorted({line["model"] for line in self._rows[self.path].values()})
        if not model and not name and len(known) > 1:
            raise ValueError(f"{shown(path)} holds {known}: pass name= to choose one")
        self.name = model.name if model else name or (known or ["nothing recorded"])[0]
        if mode == "refresh":
            self._rows = {file: {} for file in files}
        if model:
            atexit.register(self.close)

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        times, lines = self._rows.values()
        request = {"messages": messages, "options": options}
        keys = [recording_key(self.name, request, i) for i in range(n)]
        if missing := [i for i, key in enumerate(keys) if key not in lines]:
            self._record(request, keys, missing)
        return [
            Reply(
                **lines[key]["reply"],
                model=lines[key]["author"],
                latency_s=times.get(key, {}).get("latency_s"),
            )
            for key in keys
        ]

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
        # The key alone tells whether a request is the one recorded, so a long one is left out.
        spelled_out = {"request": request} if len(canonical_json(request)) < LONG else {}
        now = {"at": datetime.now(UTC).isoformat(timespec="seconds")} | current_tag()
        with self._lock:
            times, lines = new = {}, {}
            for i, reply in zip(missing, replies, strict=True):
                if (key := keys[i]) in self._rows[self.path]:
                    continue  # another thread asked the same meanwhile: what was first stays
                told = {k: v for k, v in vars(reply).items() if k not in _VOLATILE}
                lines[key] = {
                    "key": key,
                    "author": reply.model,
                    "model": self.name,
                    "sample": i,
                    "reply": told,
                } | spelled_out
                if reply.latency_s is not None:
                    times[key] = now | {"key": key, "latency_s": round(reply.latency_s, 4)}
            for (file, rows), added in zip(self._rows.items(), new, strict=True):
                _append(file, added)  # times first: a recording never lacks its latency
                rows |= added

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
        """Rewrite the recording sorted by key, atomically; what other processes appended stays."""
        atexit.unregister(self.close)
        for file, mine in self._rows.items() if self.model else ():
            with self._lock:
                text = _text(mine | _load(file, mend=False))
                if file.exists() and text != file.read_bytes():
                    atomic_write(file, text)

    def __exit__(self, *_) -> None:
        self.close()


def _text(rows: dict[str, dict]) -> bytes:
    return "".join(canonical_json(rows[key]) + "\n" for key in sorted(rows)).encode()


def _append(file: Path, rows: dict[str, dict]) -> None:
    """Add lines and wait until the disk has them; opened anew, for ``close`` replaces the file."""
    if rows:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "ab") as stream:
            stream.write(_text(rows))
            stream.flush()
            os.fsync(stream.fileno())


def _load(file: Path, *, mend: bool) -> dict[str, dict]:
    """Lines by key, the last of each; a torn last line is dropped (``mend``: from the file too)."""
    data = file.read_bytes() if file.exists() else b""
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        warnings.warn(f"{shown(file)}: dropped a torn last line (a killed run)", stacklevel=3)
        if mend:
            os.truncate(file, whole)
    rows = {}
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            row = json.loads(line)
            rows[row["key"]] = row
            asked = (row.get("model"), row.get("request"), row.get("sample"))
            if asked[1] and row["key"] != recording_key(*asked):
                raise ValueError("edited by hand")
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{shown(file)}, line {number}: no recording ({error!r})") from error
    return rows
