"""The ledger of looks: code writes it, once for a look, and every study that opens labels does."""

from __future__ import annotations

import ast
import hashlib
import shutil
import tomllib

import pytest

from lib.base import paths
from lib.base.provenance import read_result
from lib.benchmarks import benchmark_makers
from lib.data.looks import Look, look_key, note_look, read_looks
from lib.studies import hyde_study
from lib.studies.rag2 import results as rag2
from lib.studies.real import study as real
from lib.study import primary_tests

OPENERS = ("gold_passages", "read_judgments", "load_benchmark", "open_task")
"""Functions that give labels of test questions."""

NOTING = {"note_look", "Study"}


def calls(tree: ast.AST) -> set[str]:
    """The names of all functions that are called."""
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {getattr(function, "id", getattr(function, "attr", "")) for function in functions}


def test_every_module_that_opens_test_labels_notes_it():
    """A new study cannot read labels without a row in the ledger."""
    called = {
        path.relative_to(paths.ROOT).as_posix(): calls(ast.parse(path.read_text()))
        for path in (paths.ROOT / "lib").rglob("*.py")
    }
    # ``lib.study.make`` notes the look of any Study.
    noting = {path.rpartition("/")[0] for path, names in called.items() if names & NOTING}
    noting.discard("lib/studies")  # a file there is a study of its own
    for path, names in called.items():
        opens = names & set(OPENERS)
        if path.startswith(("lib/studies/", "lib/explorer/")) and opens:
            noted = path.rpartition("/")[0] in noting or names & NOTING
            assert noted, f"{path} opens labels by {opens}"


def test_the_ledger_is_whole():
    looks = read_looks()
    assert looks["look"].tolist() == list(range(1, len(looks) + 1))
    assert (looks.drop(columns=["hash"]).astype(str) != "").all(axis=None)
    assert set(benchmark_makers()) <= set(looks["test_set"])
    hashes = looks.loc[looks["hash"] != "", "hash"]
    assert hashes.is_unique
    by_code = looks["entered"] == "by the code"
    assert (looks.loc[by_code, "hash"] != "").all()
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


def test_a_look_is_noted_once_and_another_arm_or_question_is_another(ledger, tmp_path, monkeypatch):
    before = len(ledger())
    for qids, arms in ((["b", "a", "a"], ["hplus", "chr@1"]), (["a", "b"], ["chr@1", "hplus"])):
        note_look("mine", "open", Look("bioasq", qids, arms, declared="primary_tests.toml"))
    added = ledger().iloc[before:]
    assert len(added) == 1
    row = added.iloc[0]
    assert (row["study"], row["test_set"], row["questions"]) == ("mine", "bioasq", "2")
    assert row["look"] == before + 1 and row["entered"] == "by the code"
    assert row["declared_beforehand"].startswith("yes")
    note_look("mine", "open", Look("bioasq", ["a", "b"], ["chr@1"]))
    note_look("mine", "open", Look("bioasq", ["a"], ["chr@1"]))
    assert len(ledger()) == before + 3
    # Only a committed result is a look.
    another = Look("bioasq", ["c"], ["hplus"])
    note_look("mine", "open-5", another)
    note_look("mine", "paper", another)
    monkeypatch.setenv("CHR_OUT", str(tmp_path / "elsewhere"))
    note_look("mine", "open", another)
    assert len(ledger()) == before + 3


@pytest.mark.parametrize(
    "study", [hyde_study.STUDY, real.STUDY, *rag2.STUDIES], ids=lambda s: s.name
)
def test_a_study_that_is_made_again_adds_no_row(study, request):
    """What it looks at, by its committed results, is a look that the ledger has."""
    if study in rag2.STUDIES:
        request.getfixturevalue("mirror")  # which questions those are, their sets say
    names = [*study.values, *study.tables]
    made = {name: read_result(name, "open", committed=True)[0] for name in names}
    for look in study.looks(None, made) if study.looks else ():
        assert look_key(study.name, look) in set(read_looks()["hash"])


# what was declared --------------------------------------------------------------------------------

DECLARED = ("2193e4d97c46d5b93b3ecb1121732dc6bf106a5f786e8cb262e86861e4b9c362", 7433)
"""The sha256 of the declarations of 2026-11-22 and 23, and how many bytes they are."""


def test_what_was_declared_is_never_edited_and_errata_stand_beside_it():
    """A later declaration is added below; what is wrong with one is said in a file of its own."""
    sha256, length = DECLARED
    content = (paths.DATA / "primary_tests.toml").read_bytes()
    assert hashlib.sha256(content[:length]).hexdigest() == sha256
    errata = tomllib.loads((paths.DATA / "primary_tests_errata.toml").read_text(encoding="utf-8"))
    assert set(errata) <= set(primary_tests())
    assert any("BioASQ's labels" in erratum["what"] for erratum in errata["real"])


def test_every_declared_test_names_a_metric_two_arms_and_a_direction():
    declared = primary_tests()["real"]
    assert 0 < declared["margin"] < 0.2
    for test in declared["test"]:
        assert test["metric"] in ("supports_correct", "supports_wrong", "p_at_5")
        assert test["arm"] != test["baseline"]
        assert test.get("sign", 1) == (-1 if test["metric"] == "supports_wrong" else 1)
    assert len(declared["test"]) == 15
