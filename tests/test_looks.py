"""The ledger of looks: code writes it, once for a look, and every study that opens labels does."""

from __future__ import annotations

import ast
import hashlib
import shutil

import pytest

from lib.base import paths
from lib.benchmarks import benchmark_makers
from lib.data.looks import COLUMNS, note_look, read_looks
from lib.study import errata, primary_tests

OPENERS = ("gold_passages", "read_judgments", "load_benchmark", "open_task")
"""Functions that give labels of test questions."""

NO_RESULT = {
    "lib/studies/main_tables/relevance.py": "for the grid, which notes its answers",
    "lib/studies/rag2/steps.py": "one bundled question, step by step",
    "lib/studies/rag2/held.py": "pairs that a filter's training kept apart",
    "lib/studies/slhyde/steps.py": "one bundled question, step by step",
}
"""Modules that use an opener and make no result of test questions by themselves, and why."""


def calls_of(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def parsed() -> dict[str, ast.AST]:
    found = sorted((paths.ROOT / "lib").rglob("*.py"))
    return {p.relative_to(paths.ROOT).as_posix(): ast.parse(p.read_text()) for p in found}


def calls(tree: ast.AST) -> set[str]:
    return {name_of(call) for call in calls_of(tree)}


def begins(value: ast.expr) -> str:
    """A text in the code; of one that is put together, its beginning."""
    first = value.values[0] if isinstance(value, ast.JoinedStr) else value
    return first.value if isinstance(first, ast.Constant) else ""


def studies_noted() -> set[str]:
    """How the studies that note a look are called; where a name is put together, its beginning."""
    names = set()
    for call in (call for tree in parsed().values() for call in calls_of(tree)):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if name_of(call) == "note_look":
            names.add(begins(call.args[0]))
        if name_of(call) == "Study" and "test_sets" in given:  # ``lib.study.make`` notes its look
            names.add(begins(given["name"]))
    return names - {""}


def test_every_study_that_opens_test_labels_has_a_row():
    rows = set(read_looks()["study"])
    noted = studies_noted()
    assert len(noted) > 8
    for name in noted:
        assert any(study.startswith(name) for study in rows), name


def test_every_room_that_opens_test_labels_notes_it():
    """A new study cannot read labels without a row in the ledger."""
    trees = parsed()
    noting = {path.rsplit("/", 1)[0] for path, t in trees.items() if "note_look" in calls(t)}
    noting |= {path.rsplit("/", 1)[0] for path, t in trees.items() if "Study" in calls(t)}
    noting.discard("lib/studies")  # a file there is a study of its own
    for path, tree in trees.items():
        opens = calls(tree) & set(OPENERS)
        if path.startswith(("lib/studies/", "lib/explorer/")) and opens and path not in NO_RESULT:
            noted = path.rsplit("/", 1)[0] in noting or "Study" in calls(tree)
            assert noted, f"{path} opens labels by {opens}"


def test_the_ledger_is_whole_and_says_what_was_declared_first():
    looks = read_looks()
    assert list(looks.columns) == list(COLUMNS)
    assert looks["look"].tolist() == list(range(1, len(looks) + 1))
    assert (looks.drop(columns=["hash"]).astype(str) != "").all(axis=None)
    assert set(benchmark_makers()) <= set(looks["test_set"])
    hashes = looks.loc[looks["hash"] != "", "hash"]
    assert hashes.is_unique and (looks.loc[looks["entered"] == "by the code", "hash"] != "").all()
    for name in primary_tests():
        first = looks[looks["test_set"] == name].head(1)
        assert first["declared_beforehand"].str.startswith("yes").all()


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    """A project of its own, with the committed ledger and nothing moved by CHR_OUT."""
    shutil.copy(paths.DATA / "looks.csv", tmp_path / "looks.csv")
    monkeypatch.setenv("CHR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CHR_OUT", raising=False)
    monkeypatch.setattr(paths, "DATA", tmp_path)
    return read_looks


def test_a_look_is_noted_once_and_another_arm_or_question_is_another(ledger):
    before = len(ledger())
    for _ in range(2):
        note_look("mine", "bioasq", ["b", "a", "a"], "open", ["hplus", "chr@1"], declared=True)
        note_look("mine", "bioasq", ["a", "b"], "open", ["chr@1", "hplus"], declared=True)
    added = ledger().iloc[before:]
    assert len(added) == 1
    row = added.iloc[0]
    assert (row["study"], row["test_set"], row["questions"]) == ("mine", "bioasq", "2")
    assert row["look"] == before + 1 and row["entered"] == "by the code"
    assert row["declared_beforehand"].startswith("yes")
    note_look("mine", "bioasq", ["a", "b"], "open", ["chr@1"])
    note_look("mine", "bioasq", ["a"], "open", ["chr@1"])
    assert len(ledger()) == before + 3


def test_only_a_committed_result_is_a_look(ledger, tmp_path, monkeypatch):
    before = len(ledger())
    note_look("mine", "bioasq", ["a"], "open-5", ["hplus"])
    note_look("mine", "bioasq", ["a"], "paper", ["hplus"])
    monkeypatch.setenv("CHR_OUT", str(tmp_path / "elsewhere"))
    note_look("mine", "bioasq", ["a"], "open", ["hplus"])
    assert len(ledger()) == before


# what was declared --------------------------------------------------------------------------------

DECLARED = ("2193e4d97c46d5b93b3ecb1121732dc6bf106a5f786e8cb262e86861e4b9c362", 7433)
"""The sha256 of the declarations of 2026-11-22 and 23, and how many bytes they are."""


def test_what_was_declared_is_never_edited_and_errata_stand_beside_it():
    """A later declaration is added below; what is wrong with one is said in a file of its own."""
    sha256, length = DECLARED
    content = (paths.DATA / "primary_tests.toml").read_bytes()
    assert hashlib.sha256(content[:length]).hexdigest() == sha256
    assert any("BioASQ's labels" in erratum for erratum in errata("real"))
    assert errata("ddx-fresh") == []


def test_every_declared_test_names_a_metric_two_arms_and_a_direction():
    declared = primary_tests()["real"]
    assert 0 < declared["margin"] < 0.2
    for test in declared["test"]:
        assert test["metric"] in ("hit_right", "misled", "p_at_5")
        assert test["arm"] != test["against"]
        assert test.get("sign", 1) == (-1 if test["metric"] == "misled" else 1)
    assert len(declared["test"]) == 15
