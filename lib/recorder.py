"""Every generation passes one recorder: asked once, written down, replayed for ever.

A recording is a JSON Lines file, sorted by key, one generation a line: ``key`` (sha256 of model,
request and sample index; never a URL or API key), ``model`` (as asked for), ``author`` (as the
server names it, or "reference text"), ``request``, ``sample``, ``reply``. What differs between two
runs of the same thing (latency, time, who asked) stands beside it in ``<name>.times.jsonl``, so the
recording itself is the same bytes whatever the order of the calls or the number of kills.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

from lib.files import atomic_write, canonical_json, sha256_bytes
from lib.llm import REFERENCE, ChatModel, Message, Reply, current_tag, sample_seed, tag
from lib.paths import shown

__all__ = ["Recorder", "RecordingMiss", "recording_key"]

_STORED = ("text", "finish_reason", "prompt_tokens", "output_tokens", "choice", "note")


class RecordingMiss(LookupError):
    """Replay was asked for a generation that nobody recorded; says which, and how to record it."""


def recording_key(model: str, request: dict, sample: int) -> str:
    """sha256 of the canonical JSON of model name, ``{"messages", "options"}`` and sample index."""
    return sha256_bytes(canonical_json([model, request, sample]).encode())


class Recorder:
    """A ChatModel that keeps what another one says in ``path``.

    ``mode`` "record" asks ``model`` for what is missing; "replay" never asks and raises
    RecordingMiss; "refresh" asks once more for all it is asked. Lines are appended and fsynced as
    they come, so a killed run goes on where it stopped. ``close`` (also at exit, or ``with``) sorts
    the file. Several threads, or processes, may record at once. In replay ``model`` is None and
    ``name`` chooses among the file's models when there are several. ``remedy`` is the command that
    a RecordingMiss shows. ``replies`` holds all that was served, for ``lib.llm.ledger``.
    """

    tag = staticmethod(tag)

    def __init__(
        self, model: ChatModel | None, path: str | Path,
        mode: Literal["record", "replay", "refresh"] = "record",
        *, name: str | None = None, remedy: str | None = None,
    ):  # fmt: skip
        if mode not in ("record", "replay", "refresh"):
            raise ValueError(f"mode is record, replay or refresh, not {mode!r}")
        if (model is None) != (mode == "replay"):
            raise ValueError(f"mode {mode!r} goes {'without' if model else 'with'} a model")
        self.model, self.path, self.mode, self.remedy = model, Path(path), mode, remedy
        self.times = self.path.with_suffix(".times.jsonl")
        self.replies: list[Reply] = []
        self._lock = threading.Lock()
        self._new: set[str] = set()
        self._lines, self._times = (_load(p, mend=bool(model)) for p in (self.path, self.times))
        for key, line in self._lines.items():
            if key != recording_key(line["model"], line["request"], line["sample"]):
                raise ValueError(f"{shown(self.path)}: the request of {key} was edited by hand")
        self.name = model.name if model else self._only_model(name)
        if model:
            atexit.register(self.close)

    def _only_model(self, name: str | None) -> str:
        known = sorted({line["model"] for line in self._lines.values()})
        if not name and len(known) > 1:
            raise ValueError(f"{shown(self.path)} holds {known}: pass name= to choose one")
        return name or (known or ["nothing recorded"])[0]

    def generate(
        self, messages: Sequence[Message], *, n: int = 1, temperature: float = 0.0,
        top_p: float = 1.0, max_tokens: int = 512, seed: int = 0,
        stop: str | Sequence[str] | None = None, schema: dict | None = None,
    ) -> list[Reply]:  # fmt: skip
        """``n`` recorded replies; what is missing is generated and recorded, or RecordingMiss."""
        options = {
            "temperature": float(temperature), "top_p": float(top_p), "max_tokens": max_tokens,
            "seed": seed, "stop": [stop] if isinstance(stop, str) else list(stop or []),
            "schema": schema,
        }  # fmt: skip
        request = {"messages": [dict(m) for m in messages], "options": options}
        keys = [recording_key(self.name, request, i) for i in range(n)]
        missing = [i for i, key in enumerate(keys) if not self._has(key)]
        if missing:
            if self.model is None:
                raise RecordingMiss(self._miss(missing[0]))
            self._record(request, missing, keys)
        served = [self._reply(key) for key in keys]
        with self._lock:
            self.replies += served
        return served

    def _has(self, key: str) -> bool:
        return key in self._lines and (self.mode != "refresh" or key in self._new)

    def _record(self, request: dict, missing: list[int], keys: list[str]) -> None:
        """Generate the missing samples, all at once or, after a kill, the rest one by one."""
        options = request["options"] | {"stop": request["options"]["stop"] or None}
        seed = options.pop("seed")
        ask = partial(self.model.generate, request["messages"], **options)
        if len(missing) == len(keys):
            replies = ask(n=len(keys), seed=seed)
        else:
            replies = [ask(n=1, seed=sample_seed(seed, i))[0] for i in missing]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        lines, times = [], []
        for i, reply in zip(missing, replies, strict=True):
            if reply.model == REFERENCE:
                reply = replace(reply, prompt_tokens=None, output_tokens=None, latency_s=None)
            lines.append({
                "key": keys[i], "author": reply.model, "model": self.name, "request": request,
                "sample": i, "reply": {field: getattr(reply, field) for field in _STORED},
            })  # fmt: skip
            if reply.latency_s is not None:
                cost = {"key": keys[i], "latency_s": round(reply.latency_s, 4), "at": now}
                times.append(cost | current_tag())
        with self._lock:
            # Another thread may have asked the same meanwhile: what was written first stays.
            mine = {key for key in keys if not self._has(key)}
            lines = [line for line in lines if line["key"] in mine]
            times = [time for time in times if time["key"] in mine]
            _append(self.times, times)  # first: a recording never lacks its latency
            _append(self.path, lines)
            self._times |= {time["key"]: time for time in times}
            self._lines |= {line["key"]: line for line in lines}
            self._new |= mine

    def _reply(self, key: str) -> Reply:
        line, spent = self._lines[key], self._times.get(key, {}).get("latency_s")
        method = current_tag()["method"]
        return Reply(**line["reply"], latency_s=spent, model=line["author"], method=method)

    def _miss(self, sample: int) -> str:
        asked, file = current_tag(), shown(self.path)
        small = self.name.startswith(("SmolLM2-135M", "nothing"))
        spec = f"record:{file}={'small' if small else f'openai:{self.name}'}"
        again = "small" if self.name == REFERENCE else spec  # no command writes reference text
        remedy = self.remedy or f"llm = lib.llm.connect({again!r}), and run this again"
        return (
            f"no reply of {self.name} is recorded in {file} for method {asked['method'] or '?'}, "
            f"question {asked['qid'] or '?'}, sample {sample}. Next: {remedy}"
        )

    def close(self) -> None:
        """Rewrite the recording sorted by key, atomically; what other processes appended stays."""
        atexit.unregister(self.close)
        if self.model is None:
            return
        with self._lock:
            for path, mine in ((self.path, self._lines), (self.times, self._times)):
                rows = mine | _load(path, mend=False)
                text = "".join(canonical_json(rows[key]) + "\n" for key in sorted(rows))
                if path.exists() and text.encode() != path.read_bytes():
                    atomic_write(path, text)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _append(path: Path, rows: Iterable[dict]) -> None:
    """Add lines and wait until the disk has them; opened anew, for ``close`` replaces the file."""
    text = "".join(canonical_json(row) + "\n" for row in rows)
    if text:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())


def _load(path: Path, *, mend: bool) -> dict[str, dict]:
    """Lines by key, the last of each; a torn last line is dropped (``mend``: from the file too)."""
    data = path.read_bytes() if path.exists() else b""
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        warnings.warn(f"{shown(path)}: dropped a torn last line (a killed run)", stacklevel=3)
        if mend:
            os.truncate(path, whole)
    rows = {}
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
            rows[row["key"]] = row
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{shown(path)}, line {number}: no recording ({error!r})") from error
    return rows
