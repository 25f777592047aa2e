"""What notebooks 10 and 11 show: committed tables, or those of the profile, made first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from lib.profiles import load_profile
from lib.studies import neighbours
from lib.studies.rag2 import results as rag2
from lib.studies.slhyde import building_study as building
from lib.studies.slhyde import cmedir_study as cmedir
from lib.studies.slhyde import study as slhyde
from lib.study import MADE_BY

RAG2 = [name for group in rag2.TABLES.values() for name in group]

READERS = {
    "rag2": (neighbours.rag2_tables, (rag2, "rag2_results"), RAG2),
    "slhyde": (neighbours.slhyde_tables, (slhyde, "slhyde_results"), slhyde.TABLES),
    "building": (neighbours.building_tables, (building, "building_results"), building.TABLES),
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
def test_a_profile_without_the_real_sample_reads_what_is_committed(study, done):
    read, _, names = READERS[study]
    tables = read(load_profile("mini"))
    assert done == [("read", name, MADE_BY, True) for name in names]
    assert {name: table["name"].item() for name, table in tables.items()} == {n: n for n in names}


@pytest.mark.parametrize("study", READERS)
def test_a_profile_with_the_real_sample_makes_first_and_reads_its_own(study, done):
    read, _, names = READERS[study]
    tables = read(replace(load_profile("open"), name="mine"))
    assert done == [("made", study, "mine"), *(("read", n, "mine", False) for n in names)]
    assert list(tables) == list(names)


def test_chinese_searches_are_always_those_committed(done):
    assert list(neighbours.cmedir_tables()) == list(cmedir.TABLES)
    assert done == [("read", name, MADE_BY, True) for name in cmedir.TABLES]
