"""``data/explorer``: the explorer's rows as they are committed, three files and their manifests.

``scores.npy`` has one record a question and passage (``rows.RECORD``), ``questions.jsonl.gz`` the
sets and then a line a question, ``passages.jsonl.gz`` a line a passage, in the order of their ids.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Mapping

import numpy as np

from lib.base import paths
from lib.base.files import (
    StaleInput,
    atomic_write,
    canonical_json,
    read_jsonl,
    read_manifest,
    sha256_bytes,
    write_manifest,
)
from lib.explorer.rows import Explored

FOLDER = paths.DATA / "explorer"
FILES = ("scores.npy", "questions.jsonl.gz", "passages.jsonl.gz")


def write_rows(explored: Explored, settings: Mapping) -> None:
    """Write the three files, each whole, with a manifest that holds ``settings``."""
    buffer = io.BytesIO()
    np.save(buffer, explored.records, allow_pickle=False)
    head = {"sets": list(explored.sets)}
    contents = (
        (buffer.getvalue(), len(explored.records)),
        (_lines([head, *explored.questions]), len(explored.questions)),
        (_lines(explored.passages), len(explored.passages)),
    )
    # Each manifest names all three: a kill between two of them is seen when they are read.
    together = sha256_bytes(b"".join(content for content, _ in contents))
    for name, (content, rows) in zip(FILES, contents, strict=True):
        atomic_write(FOLDER / name, content)
        write_manifest(FOLDER / name, rows=rows, settings=dict(settings) | {"together": together})


def _lines(rows: Iterable[Mapping]) -> bytes:
    text = "".join(canonical_json(row) + "\n" for row in rows)
    return gzip.compress(text.encode(), mtime=0)


def read_rows() -> Explored:
    """What is committed; StaleInput, with the command that makes it, where a file is not whole or
    not made with the others."""
    manifests = {name: read_manifest(FOLDER / name) for name in FILES}
    broken = [name for name, manifest in manifests.items() if manifest is None]
    if not broken and len({m["settings"].get("together") for m in manifests.values()}) > 1:
        broken = list(FILES)
    if broken:
        raise StaleInput(
            f"{', '.join(paths.shown(FOLDER / name) for name in broken)}: missing, not what the "
            "manifest says, or not made together; run: git checkout data/explorer, or with the "
            "open data: make explorer"
        )
    scores, asked, texts = (FOLDER / name for name in FILES)
    head, *questions = read_jsonl(asked)
    passages = list(read_jsonl(texts))
    records = np.load(scores, allow_pickle=False)
    return Explored(head["sets"], questions, passages, records, np.arange(len(passages)))
