"""The list of faults fits the code: each is there to make, and names tests that exist."""

from __future__ import annotations

import ast

import pytest

from lib.base.paths import ROOT
from tools.mutations import mutated, read_faults

FAULTS = read_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["what"] for fault in FAULTS])
def test_every_fault_can_be_made(fault):
    source = (ROOT / fault["file"]).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(mutated(source, fault))) != ast.dump(ast.parse(source))
    for name in fault["tests"].split():
        assert (ROOT / "tests" / f"test_{name}.py").exists(), name


def test_a_fault_that_is_not_there_once_is_refused():
    with pytest.raises(ValueError, match="2 times"):
        mutated("a a", {"file": "x", "old": "a", "new": "b"})
