"""A long list of texts to write, in batches that are kept one by one: a killed run goes on.

Which prompts make a batch depends on the whole list alone, and what is drawn in it on the seed and
its prompts. So a run that was killed comes to the same texts as one that was not.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lib.base.files import canonical_json, sha256_bytes
from lib.llm.causal import Causal, Sampling

BATCH = 24
"""Chats written at a time: more are slower on two cores, fewer as well."""

Chat = Sequence[Mapping[str, str]]


def write_all(
    writer: Causal,
    asked: Sequence[Chat],
    sampling: Sampling,
    folder: Path,
    seed: int = 0,
    size: int = BATCH,
) -> list[str]:
    """One text for each chat, in their order.

    Every finished batch is a line of a file in ``folder`` that belongs to this writer, these chats,
    this sampling and this seed. The writer is told by its name, which must say which weights it
    has, as that of ``generator.open_writer`` does. A last line that a kill tore is written again.
    """
    lengths = [len(writer.prompt_tokens(chat)) for chat in asked]
    batches = batches_of(lengths, size)
    told = canonical_json([writer.name, asdict(sampling), seed, size, [list(c) for c in asked]])
    file = folder / f"{sha256_bytes(told.encode())[:16]}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    done = _whole_lines(file)
    started = time.monotonic()
    with open(file, "a", encoding="utf-8") as stream:
        for number in range(len(done), len(batches)):
            chats = [asked[i] for i in batches[number]]
            texts = writer.write(chats, sampling, seed)
            stream.write(json.dumps(texts, ensure_ascii=False) + "\n")
            stream.flush()
            done.append(texts)
            minutes = (time.monotonic() - started) / 60
            print(f"  batch {number + 1} of {len(batches)}, {minutes:.1f} min", file=sys.stderr)
    found = [""] * len(asked)
    for positions, texts in zip(batches, done, strict=True):
        for position, text in zip(positions, texts, strict=True):
            found[position] = text
    return found


def batches_of(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Positions in batches of ``size`` prompts of like length, the longest first."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _whole_lines(file: Path) -> list[list[str]]:
    """The finished batches of a file; what comes after the last whole line is cut off."""
    if not file.is_file():
        return []
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with open(file, "rb+") as stream:
            stream.truncate(len(whole))
    return [json.loads(line) for line in whole.decode().splitlines()]
