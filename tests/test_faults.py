"""The table of faults counts what is told to it, and cannot pass where something was lost."""

from __future__ import annotations

import ast

import pytest

from lib.base import paths
from tests.faults import COLUMNS, GROUPS, Fault, committed


def test_a_row_counts_tries_and_keeps_the_first_thing_said(tmp_path):
    fault = Fault("numbers", "made up", tmp_path)
    for seed in fault.tries(3):
        fault.came(
            lost=seed == 2, wrong=seed, said="" if seed == 0 else f"{tmp_path}/x: try {seed}"
        )
    assert tuple(fault.row().values()) == ("numbers", "made up", "3", "1", "3", "x: try 1")
    assert tuple(fault.row()) == COLUMNS


def test_what_was_said_is_one_short_line_without_the_machine(tmp_path):
    fault = Fault("numbers", "made up", tmp_path)
    fault.came(said=f"http://127.0.0.1:4711/v1:\n{'ab' * 32} after 12.3 s {'x' * 300}")
    assert fault.said.startswith("http://127.0.0.1:port/v1: abababab… after … s xxx")
    assert len(fault.said) == 241 and fault.said.endswith("…")


@pytest.mark.parametrize("came", [{"lost": 1}, {"wrong": 1}, {}, None])
def test_what_is_lost_or_wrong_or_not_in_the_table_fails(came, tmp_path, monkeypatch):
    monkeypatch.delenv("FAULTS_FOLDER", raising=False)
    fault = Fault("numbers", "made up", tmp_path)
    if came is not None:
        fault.came(**came)
    with pytest.raises(AssertionError, match="made up"):
        fault.end()


def test_a_try_that_is_not_counted_is_found(tmp_path):
    fault = Fault("numbers", "made up", tmp_path)
    with pytest.raises(AssertionError, match="try 0 was not counted"):
        list(fault.tries(2))


def marked() -> dict[str, str]:
    """Every fault that a test is marked with, and its group."""
    found = {}
    for file in sorted((paths.ROOT / "tests").glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                group, name, *_ = (ast.literal_eval(argument) for argument in node.args)
                assert name not in found, f"two tests are marked {name!r}"
                found[name] = group
    return found


def test_the_table_has_every_fault_that_is_tried_and_no_other():
    rows, tests = committed(), marked()
    for name, row in rows.items():
        assert any(name == told or name.startswith(f"{told}: ") for told in tests), name
        assert (row["lost"], row["wrong"]) == ("0", "0") and int(row["tries"]) > 0
    missing = [t for t in tests if not any(n == t or n.startswith(f"{t}: ") for n in rows)]
    assert not missing, f"run: make faults; not in the table: {missing}"
    assert {row["group"] for row in rows.values()} == set(GROUPS)
