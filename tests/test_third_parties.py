"""No text of third parties stands in the project, but where NOTICE says whose it is."""

from __future__ import annotations

import gzip
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch

import pytest

from lib.base import paths
from lib.base.files import read_jsonl
from lib.corpora import load_passages
from lib.data.judgments import JUDGMENTS, read_pair_judgments
from lib.data.passages import OPEN_CORPUS
from lib.datasets import load_real
from lib.studies.contradiction.evidence import load_evidence
from lib.studies.real.quality import read_control_items
from tests.committed import committed
from tools.texts import TURNED

pytestmark = pytest.mark.mirror

RUN = 25
"""Words in a row that nobody writes twice by chance; terms, names and set phrases are shorter."""


def runs(text: str) -> Iterator[int]:
    words = re.findall(r"\w+", text.casefold())
    for i in range(len(words) - RUN + 1):
        yield hash(tuple(words[i : i + RUN]))


def copied(ours: dict[str, str], theirs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Which of our texts share a run of words with which of theirs."""
    places = {run: name for name, text in ours.items() for run in runs(text)}
    return [(places[run], name) for name, text in theirs for run in runs(text) if run in places]


@pytest.fixture(scope="module")
def ours() -> dict[str, str]:
    """Every recorded text about texts that are not ours, by file and key."""
    found = {}
    for file in [*sorted(paths.RECORDINGS.glob("real-*.jsonl.gz")), TURNED]:
        for row in read_jsonl(file):
            found[f"{file.name} {row['key'][:8]}"] = row["reply"]["text"]
    assert len(found) > 8000
    return found


SHOWN = ("data/explorer/", "docs/explorer.html")
"""Where short texts of third parties are shown, as data/explorer/NOTICE says."""
NUMBERS = "data/results/*/values_*"
"""Ids and numbers alone: two thirds of all letters."""


@pytest.fixture(scope="module")
def theirs(mirror) -> set[int]:
    """The runs of words of every passage and question."""
    found = set()
    for name in OPEN_CORPUS:
        for passage in load_passages(name):
            found.update(runs(passage.text))
    for half in ("dev", "test"):
        for question in load_real(half):
            found.update(runs(question.text))
    return found


def words_of(name: str) -> str:
    """The text of a file of the project; "" where it is no text. Of a notebook, what it shows."""
    content = (paths.ROOT / name).read_bytes()
    if name.endswith(".gz"):
        content = gzip.decompress(content)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return ""
    return "\n".join(strings_of(json.loads(text))) if name.endswith(".ipynb") else text


def strings_of(value) -> Iterator[str]:
    """The texts in a notebook, lines that belong together as one; pictures are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        yield "".join(value)
    elif isinstance(value, list):
        for one in value:
            yield from strings_of(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if not key.startswith("image/"):
                yield from strings_of(one)


def test_no_file_but_the_explorers_holds_a_passage_or_question(theirs):
    ours = [n for n in committed() if not n.startswith(SHOWN) and not fnmatch(n, NUMBERS)]
    assert len(ours) > 500
    holding = [name for name in ours if not theirs.isdisjoint(runs(words_of(name)))]
    assert holding == []


def test_a_text_in_a_notebook_would_be_found_however_it_is_wrapped(mirror, tmp_path, monkeypatch):
    question = load_real("test")[0]
    lines = [f"{line}\n" for line in textwrap.wrap(question.text, 40)]
    book = {"cells": [{"cell_type": "markdown", "source": lines}]}
    (tmp_path / "a.ipynb").write_text(json.dumps(book))
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert set(runs(question.text)) <= set(runs(words_of("a.ipynb")))


def test_the_explorers_files_would_be_found(theirs):
    (texts,) = [n for n in committed() if n.endswith("explorer/passages.jsonl.gz")]
    assert not theirs.isdisjoint(runs(words_of(texts)))


def test_recorded_texts_hold_no_abstract(mirror, ours):
    abstracts = ((abstract.id, abstract.text) for abstract in load_evidence("open"))
    assert copied(ours, abstracts) == []


def test_a_copy_would_be_found(mirror):
    question = load_real("test")[0]
    assert copied({"x": f"It says: {question.text}"}, [(question.qid, question.text)])


def test_judgments_and_plants_hold_places_and_no_words():
    for row in read_jsonl(JUDGMENTS):
        words = [value for value in row.values() if isinstance(value, str) and " " in value]
        assert not words, row
    assert not any(plant.text for plant in read_control_items())


def test_judged_pairs_hold_numbers_and_no_sentence():
    for row in read_pair_judgments():
        said = {key: row[key] for key in ("judge", "stance", "reason")}
        assert not any(" " in value for value in said.values()), row
        assert isinstance(row["sentence_a"], int) and isinstance(row["sentence_b"], int)


def test_requests_are_recorded_by_their_keys_alone():
    for file in paths.RECORDINGS.glob("real-*.jsonl.gz"):
        assert not any("request" in row for row in read_jsonl(file)), file.name
