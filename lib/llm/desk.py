"""The desk: sheets for whoever writes or judges in a conversation, and their return.

Each conversation is given a folder with a README and sheets as plain text, and nothing else; the
key to what stands in them stays in ``keys/`` beside the folders. What is missing is simply given
out again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lib.base.files import atomic_write, canonical_json, sha256_bytes
from lib.llm.batch import Pending, read_sheet, sheet

CHARACTERS = 150_000
"""Of a conversation's judging sheets together, at most."""

FILES = 9
"""Judging sheets in a conversation, at most."""


def give_requests(requests: Sequence[Pending], kind: str, readme: str, folder: Path) -> str:
    """One conversation's requests in a folder whose name says nothing; the name."""
    key = {"kind": kind, "requests": [asdict(request) for request in requests]}
    files = {"README.txt": readme, "requests.txt": sheet(requests)}
    return _give((request.key for request in requests), files, key, folder)


def answered(kind: str, folder: Path) -> Iterator[tuple[str, list[Pending], dict[str, str] | None]]:
    """Each conversation of a kind: its folder's name, what was asked, and the texts by key.

    The texts are None where there are no replies yet; ValueError names replies that do not fit.
    """
    for path, key in _keys(folder):
        if key.get("kind") != kind:
            continue
        requests = [Pending(**request) for request in key["requests"]]
        file = folder / path.stem / "replies.txt"
        if not file.exists():
            yield path.stem, requests, None
            continue
        try:
            yield path.stem, requests, read_sheet(file.read_text(encoding="utf-8"), requests)
        except ValueError as error:
            raise ValueError(f"{file}: {error}; mend it or give the sheet out again") from None


def give_sheets(
    sheets: Iterable[tuple[str, Any]], judge: str, readme: str, folder: Path
) -> list[str]:
    """Judging sheets, each a text and its key (any JSON), some in a conversation; folders' names.

    ``readme`` has ``{files}`` where the files' names belong.
    """
    groups: list[list[tuple[str, Any]]] = []
    size = 0
    for one in sheets:
        if not groups or size + len(one[0]) > CHARACTERS or len(groups[-1]) == FILES:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += len(one[0])
    made = []
    for group in groups:
        named = {f"q{number}": one for number, one in enumerate(group, 1)}
        files = {f"{name}.txt": text for name, (text, _) in named.items()}
        files["README.txt"] = readme.format(files=", ".join(f"{name}.txt" for name in named))
        key = {"judge": judge} | {name: of_sheet for name, (_, of_sheet) in named.items()}
        made.append(_give((text for text, _ in group), files, key, folder))
    return made


def replies(judge: str, folder: Path) -> tuple[list[tuple[Any, str]], list[str]]:
    """The key and the reply of each answered sheet of a pass, and the sheets without a reply."""
    found, waiting = [], []
    for path, key in _keys(folder):
        if key.pop("judge", "") != judge:
            continue
        for name, of_sheet in key.items():
            file = folder / path.stem / f"{name}.labels"
            if file.exists():
                found.append((of_sheet, file.read_text(encoding="utf-8")))
            else:
                waiting.append(f"{path.stem}/{name}")
    return found, waiting


def _give(named_by: Iterable[str], files: dict[str, str], key: dict, folder: Path) -> str:
    place = sha256_bytes("".join(named_by).encode())[:8]
    for name, text in files.items():
        atomic_write(folder / place / name, text)
    atomic_write(folder / "keys" / f"{place}.json", canonical_json(key))
    return place


def _keys(folder: Path) -> Iterator[tuple[Path, dict]]:
    for path in sorted((folder / "keys").glob("*.json")):
        yield path, json.loads(path.read_text(encoding="utf-8"))
