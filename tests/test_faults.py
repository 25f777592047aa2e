"""The table of faults counts what is told to it, and cannot pass where something was lost."""

from __future__ import annotations

import ast

import pandas as pd
import pytest

from lib.base import paths
from tests.faults import COLUMNS, GROUPS, Fault, table_of


def test_a_row_counts_tries_and_keeps_the_first_thing_said_in_one_short_line(tmp_path):
    fault = Fault("numbers", "made up", tmp_path)
    for seed in fault.tries(3):
        said = f"{tmp_path}/x: 127.0.0.1:4711\n{'ab' * 32} after 12.3 s {'x' * 300}"
        fault.came(lost=seed == 2, wrong=seed, said="" if seed == 0 else f"{seed} {said}")
    assert tuple(fault.row()) == COLUMNS
    assert tuple(fault.row().values())[:5] == ("numbers", "made up", 3, 1, 3)
    assert fault.said.startswith("1 x: 127.0.0.1:port abababab… after … s xxx")
    assert len(fault.said) == 241 and fault.said.endswith("…")


def test_what_is_lost_or_wrong_or_was_not_tried_fails_and_one_fault_is_one_row(
    tmp_path, monkeypatch
):
    for came in ({"lost": 1}, {"wrong": 1}, None):
        fault = Fault("numbers", "made up", tmp_path)
        if came is not None:
            fault.came(**came)
        with pytest.raises(AssertionError, match="made up"):
            fault.end()
    monkeypatch.setenv("FAULTS_FOLDER", str(tmp_path))
    for group, name, case in (("supply", "b", "1"), ("numbers", "a", "1"), ("numbers", "a", "2")):
        fault = Fault(group, name, tmp_path, case)
        fault.came(said=f"said {name}", tries=2)
        fault.end()
    rows = table_of(tmp_path).to_dict("list")
    assert (rows["fault"], rows["tries"]) == (["a", "b"], [4, 2])


def marked() -> set[tuple[str, str]]:
    """The group and name of every fault that a test is marked with."""
    found = set()
    for file in sorted((paths.ROOT / "tests").glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                group, name, *_ = (ast.literal_eval(argument) for argument in node.args)
                found.add((group, name))
    return found


def test_the_table_has_every_fault_that_is_tried_and_no_other():
    table = pd.read_csv(paths.DATA / "results" / "faults.csv")
    assert set(zip(table["group"], table["fault"], strict=True)) == marked(), "run: make faults"
    assert (table[["lost", "wrong"]] == 0).all(axis=None) and (table["tries"] > 0).all()
    assert set(table["group"]) == set(GROUPS)
