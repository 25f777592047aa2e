"""What notebook 10 shows: committed tables, or those of the profile, made first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from lib.profiles import load_profile
from lib.studies import neighbours
from lib.studies.rag2 import results as rag2
from lib.studies.real.results import MADE_BY

RAG2 = [name for group in rag2.TABLES.values() for name in group]

READERS = {
    "rag2": (neighbours.rag2_tables, (rag2, "rag2_results"), RAG2),
}
"""How each study is read, what makes its results, and their names."""


@pytest.fixture
def done(monkeypatch) -> list[tuple]:
    """What was made and read, in order; nothing is opened or measured."""
    steps = []

    def read_result(name: str, profile: str, *, committed: bool = False):
        steps.append(("read", name, profile, committed))
        return pd.DataFrame({"name": [name]}), {}

    def maker(of: str) -> Callable:
        return lambda profile, *_: steps.append(("made", of, profile.name))

    monkeypatch.setattr(neighbours, "read_result", read_result)
    monkeypatch.setattr(neighbours, "_retriever", lambda profile: None)
    for study, (_, (module, make), _) in READERS.items():
        monkeypatch.setattr(module, make, maker(study))
    return steps


@pytest.mark.parametrize("study", READERS)
def test_committed_tables_are_read_or_those_of_the_whole_real_sample_made_first(study, done):
    read, _, names = READERS[study]
    tables = read(load_profile("mini"))
    assert done == [("read", name, MADE_BY, True) for name in names]
    assert {name: table["name"].item() for name, table in tables.items()} == {n: n for n in names}
    done.clear()
    assert list(read(replace(load_profile("open"), name="mine"))) == list(names)
    assert done == [("made", study, "mine"), *(("read", n, "mine", False) for n in names)]
