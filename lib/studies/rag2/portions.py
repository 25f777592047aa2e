"""Long work in portions that are kept: killed and run again, it comes to the same values."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lib.base.files import canonical_json, locked, sha256_bytes


def in_portions(
    name: str,
    asked: Sequence[Any],
    lengths: Sequence[int],
    measure: Callable[[list[Any]], list[Any]],
    folder: Path,
    size: int,
    say: Callable[[str], None],
) -> tuple[list[Any], float]:
    """``measure(asked)`` in the order asked, and how many seconds its portions took in all.

    A portion is ``size`` items of like length (in tokens), the longest first, and depends on
    nothing but all that is asked. Each finished one is a line of a file in ``folder`` that is named
    by a hash of ``name``, ``size`` and ``asked``: who asks something else, or another model, which
    ``name`` must tell, begins anew. What is asked and measured must be JSON.
    """
    digest = sha256_bytes(canonical_json([name, size, list(asked)]).encode())[:16]
    path = folder / f"{digest}.jsonl"
    order = sorted(range(len(asked)), key=lambda i: (-lengths[i], i))
    portions = [order[start : start + size] for start in range(0, len(order), size)]
    with locked(path):
        finished = _finished(path)
        left = sum(lengths[i] for rows in portions[len(finished) :] for i in rows)
        with open(path, "ab") as stream:
            for number in range(len(finished), len(portions)):
                rows = portions[number]
                start = time.monotonic()
                values = measure([asked[i] for i in rows])
                seconds = max(time.monotonic() - start, 0.001)
                line = canonical_json({"values": values, "seconds": round(seconds, 3)})
                stream.write(line.encode() + b"\n")
                stream.flush()
                finished.append(json.loads(line))
                tokens = sum(lengths[i] for i in rows)
                left -= tokens
                rate = tokens / seconds
                say(
                    f"{name}: {number + 1} of {len(portions)}, {rate:.0f} tokens a second, "
                    f"{left / rate / 60:.0f} minutes left"
                )
    values = [None] * len(asked)
    for rows, portion in zip(portions, finished, strict=True):
        for i, value in zip(rows, portion["values"], strict=True):
            values[i] = value
    return values, sum(portion["seconds"] for portion in finished)


def _finished(path: Path) -> list[dict]:
    """The portions that are kept; what stands behind the last whole line is cut off the file."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with open(path, "rb+") as stream:
            stream.truncate(len(whole))
    return [json.loads(line) for line in whole.splitlines()]
