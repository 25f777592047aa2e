"""What makes a result stale and what does not, and the check of the committed results."""

from __future__ import annotations

import lzma
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lib.base import paths, provenance
from lib.base.files import StaleInput, read_manifest
from lib.base.provenance import (
    code_hash,
    data_hash,
    make_all_or_reuse,
    make_or_reuse,
    read_result,
    write_result,
)
from tests.check_results import check, to_verify

FILES = {
    "lib/first.py": '''
"""First."""
from lib.base.files import atomic_write
from lib.second import helper

LIMIT = 3
"""How many."""


def run(x: int) -> int:
    """Run it."""
    # a comment
    def inner():
        from lib.pack.third import deep
        import lib.fourth
        return deep(x)

    return inner() + LIMIT
''',
    "lib/second.py": "import json\n\n\ndef helper():\n    return json\n",
    "lib/pack/__init__.py": "from lib.pack import third\n",
    "lib/pack/third.py": "def deep(x):\n    return x\n",
    "lib/run.py": "import lib.second\n\n\ndef ranked(x):\n    return sorted(x)\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A small project of its own in place of this one; the registry stays the real one."""
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    root = tmp_path / "project"
    (root / "data").mkdir()
    (root / "data" / "own.jsonl").write_text('{"a": 1}\n')
    monkeypatch.setattr(paths, "ROOT", root)
    monkeypatch.setattr(paths, "DATA", root / "data")
    monkeypatch.delenv("CHR_OUT", raising=False)
    return root


def edit(project: Path, old: str, new: str, name: str = "lib/first.py") -> None:
    text = (project / name).read_text()
    assert old in text
    path = project / name
    before = path.stat().st_mtime_ns
    path.write_text(text.replace(old, new))
    # Written within the same step of the file system's clock, it would look unchanged.
    os.utime(path, ns=(before, before + 1_000_000_000))


# code --------------------------------------------------------------------------------------------


@pytest.mark.fault(
    "numbers",
    "An own method outside lib/ is changed after its result was made",
    "nothing: it is made again",
)
@pytest.mark.parametrize("where", ["a file", "a notebook"])
def test_a_method_of_ones_own_is_behind_its_results(where, project, tmp_path, monkeypatch):
    """Edited, with the settings it had, it was not run again: its old results were read."""
    own = ModuleType("own")
    file = tmp_path / "own.py"
    monkeypatch.setitem(sys.modules, "own", own)

    def say(text: str) -> str:
        if where == "a file":
            file.write_text(text, encoding="utf-8")
            own.__file__ = str(file)
        else:
            own.In = ["", "import lib.first", text, *cells_run_again]
        return code_hash(["lib.first", "own"])

    cells_run_again: list[str] = []
    one = say("def expand():\n    return 'H−'\n")
    assert one != code_hash(["lib.first"])
    cells_run_again.append("import lib.first")
    assert one != say("def expand():\n    return 'H+'\n")
    assert one == say("def expand():\n    return 'H−'\n")


@pytest.mark.fault(
    "numbers", "A module is edited while a notebook runs", "restart the kernel first"
)
def test_code_that_was_edited_while_it_ran_is_not_taken_for_what_ran(project, monkeypatch):
    """The old code's numbers were stored with the new code's hash, and read as the new code's."""
    file = project / "lib" / "first.py"
    monkeypatch.setitem(provenance._AT_START, file, file.read_bytes())
    before = code_hash(["lib.first"])
    edit(project, "# a comment", "# another comment")
    monkeypatch.setitem(sys.modules, "lib.first", ModuleType("lib.first"))
    assert code_hash(["lib.first"]) == before
    edit(project, "LIMIT = 3", "LIMIT = 4")
    with pytest.raises(StaleInput, match=r"lib/first.py was edited while this ran.* restart"):
        save()
    assert project == paths.ROOT and not list(paths.results("mini").iterdir())


SAME = {
    "comment": ("# a comment", "# another one\n    # and more"),
    "module docstring": ('"""First."""', '"""First, in\nother words."""'),
    "function docstring": ('"""Run it."""', '"""Run."""'),
    "docstring of a constant": ('"""How many."""', '"""The number of things."""'),
    "layout": ("inner() + LIMIT", "(\n        inner()\n        + LIMIT\n    )"),
    "import": ("from lib.second import helper", "from lib.third import helper"),
}


def test_what_cannot_move_a_number_leaves_the_hash(project):
    before = code_hash(["lib.first"])
    for what, (old, new) in SAME.items():
        edit(project, old, new)
        assert code_hash(["lib.first"]) == before, what
    edit(project, "return json", "return 5", "lib/second.py")  # not named as its own
    assert code_hash(["lib.first"]) == before != code_hash(["lib.first", "lib.second"])


OTHER = {
    "constant": ("LIMIT = 3", "LIMIT = 4", "lib/first.py"),
    "operator": ("+ LIMIT", "- LIMIT", "lib/first.py"),
    "default argument": ("x: int", "x: int = 2", "lib/first.py"),
    "the numeric core": ("sorted(x)", "list(x)", "lib/run.py"),
}


def test_what_could_move_a_number_changes_the_hash(project):
    prompt = project / "lib" / "pack" / "ask.txt"
    seen = {code_hash(["lib.first", "lib.pack"])}
    for old, new, name in OTHER.values():
        edit(project, old, new, name)
        seen.add(code_hash(["lib.first", "lib.pack"]))
    for text in ("Say {question}", "Answer {question}"):
        prompt.write_text(text)
        seen.add(code_hash(["lib.first", "lib.pack"]))
    assert len(seen) == 1 + len(OTHER) + 2


def test_moving_and_splitting_files_leaves_the_hash(project):
    """A moved file made 164 results stale, of which some take hours."""
    package = project / "lib" / "pack"
    before = code_hash(["lib.pack"])
    (package / "third.py").rename(package / "last.py")
    assert code_hash(["lib.pack"]) == before
    one = code_hash(["lib.first"])
    text = (project / "lib" / "first.py").read_text()
    start = text.index("def run")
    (project / "lib" / "moved").mkdir()
    (project / "lib" / "moved" / "values.py").write_text(text[:start])
    (project / "lib" / "moved" / "running.py").write_text("import json\n\n" + text[start:])
    assert code_hash(["lib.moved"]) == one


# results -----------------------------------------------------------------------------------------

TABLE = pd.DataFrame(
    {
        "method": ["a", "b"],
        "p_at_5": [0.12345, 0.5],
        "n": [3, 4],
        "seen": [True, False],
        "low": [float("nan"), 1.0],
    }
)

BEHIND = {"code": ["lib.first"], "data": ["own.jsonl"]}


def save(profile: str = "mini", name: str = "curve", table: pd.DataFrame = TABLE) -> Path:
    return write_result(table, name, profile, **BEHIND, k=5, encoder="hash")


def test_a_result_comes_back_with_its_settings(project):
    path = save()
    table, settings = read_result("curve", "mini")
    rounded = TABLE.assign(p_at_5=[0.123, 0.5])
    pd.testing.assert_frame_equal(table, rounded, check_dtype=False)
    assert path.read_text().splitlines()[1] == "a,0.123,3,True,"
    assert settings["k"] == 5 and settings["encoder"] == "hash"
    assert settings["versions"]["numpy"] == np.__version__
    assert settings["code"] == code_hash(["lib.first"]) != code_hash([])
    assert settings["data"] == data_hash(["own.jsonl"]) != data_hash([])
    assert (settings["code_roots"], settings["data_files"]) == (["lib.first"], ["own.jsonl"])
    assert read_manifest(path)["rows"] == 2


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\r\n",#\\\0')),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(["a\rb", "\r", "\r\n", "2", "007", "1e5", "True", "inf", "NA"])
def test_any_text_comes_back_as_it_was(project, texts):
    """After a carriage return that a model wrote, the rest of its text was a row of its own."""
    table = pd.DataFrame({"qid": "q", "arm": texts, "H_plus": texts, "value": 0.5})
    save(table=table)
    again = read_result("curve", "mini")[0]
    assert again.fillna("").to_dict("list") == table.to_dict("list")


CHANGES = {
    "code": lambda root: edit(root, "LIMIT = 3", "LIMIT = 4"),
    "data": lambda root: (root / "data" / "own.jsonl").write_text("{}\n"),
    "a file": lambda root: (paths.results("mini") / "curve.csv").write_text("half"),
    "a manifest": lambda root: (paths.results("mini") / "curve.csv.manifest.json").unlink(),
}


@pytest.mark.parametrize("together", [False, True])
def test_a_result_is_made_again_only_when_something_behind_it_changed(project, together):
    made = []

    def get(**settings) -> pd.DataFrame:
        def make() -> pd.DataFrame:
            made.append(1)
            return TABLE

        origin = BEHIND | {"lambdas": (0.0, 1.0)} | settings
        if not together:
            return make_or_reuse(make, "curve", "mini", **origin)
        both = make_all_or_reuse(
            lambda: {"curve": make(), "table": TABLE * 2}, ("table", "curve"), "mini", **origin
        )
        assert list(both) == ["table", "curve"]
        return both["curve"]

    first = get()
    assert made == [1] and first["p_at_5"].tolist() == [0.123, 0.5]
    pd.testing.assert_frame_equal(get(), first)
    assert made == [1]
    for number, change in enumerate(CHANGES.values(), 2):
        change(project)
        pd.testing.assert_frame_equal(get(), first)
        pd.testing.assert_frame_equal(get(), first)
        assert len(made) == number
    get(lambdas=(0.0, 0.4))
    assert len(made) == 6
    assert read_result("curve", "mini")[1]["lambdas"] == [0.0, 0.4]


LONG = pd.DataFrame({"qid": [f"{i:05d}" for i in range(90_000)], "value": 1 / 3})


def test_a_large_result_is_packed_and_comes_back_the_same(project):
    path = save(table=LONG)
    assert path.name == "curve.csv.xz" and lzma.decompress(path.read_bytes()).count(b"\n") == 90_001
    assert path.stat().st_size < 1_000_000
    table, settings = read_result("curve", "mini")
    assert list(table["qid"]) == list(LONG["qid"]) and set(table["value"]) == {0.333}
    assert settings["k"] == 5 and read_manifest(path)["rows"] == 90_000
    before = path.read_bytes()
    assert save(table=LONG).read_bytes() == before
    save()  # crosses the size: no other self is left beside it
    names = {p.name for p in paths.results("mini").iterdir()}
    assert names == {"curve.csv", "curve.csv.manifest.json"}


# the check of the committed results --------------------------------------------------------------


@pytest.fixture
def results(project, tmp_path, monkeypatch) -> Path:
    """Committed results of two profiles, and a fresh run of mini in the folder that is returned."""
    save("mini")
    save("open", "real")
    monkeypatch.setenv("CHR_OUT", str(tmp_path / "made"))
    save("mini")
    assert check(tmp_path / "made" / "results") == []
    return tmp_path / "made" / "results"


def test_a_changed_number_text_shape_or_column_is_found(results):
    changes = {
        "p_at_5, row 1: 0.5 committed, 0.502": TABLE.assign(p_at_5=[0.12345, 0.502]),
        "method, row 0: a committed, c made": TABLE.assign(method=["c", "b"]),
        "seen, row 0: True committed, False": TABLE.assign(seen=[False, False]),
        "low, row 0: nan committed, 1.0 made": TABLE.assign(low=[1.0, 1.0]),
        "low, row 1: 1.0 committed, nan made": TABLE.assign(low=[float("nan")] * 2),
        "shape or columns differ": TABLE.iloc[:1],
        "shape or columns differ: (2, 5)": TABLE.rename(columns={"n": "N"}),
    }
    for message, table in changes.items():
        save("mini", table=table)
        (found,) = check(results)
        assert found.startswith("mini/curve.csv: ") and message in found
    for value in (0.499, 0.501):  # one unit in the third decimal
        save("mini", table=TABLE.assign(p_at_5=[0.12345, value]))
        assert not check(results)


def test_a_result_that_is_gone_or_new_or_changed_by_hand_is_found(results):
    for folder, value in ((paths.ROOT, 0.5), (results.parent, 0.6)):
        place = folder / "figures" / "mini"
        place.mkdir(parents=True)
        (place / "08_curves.csv").write_text(f"p\n{value}\n")
    (results / "mini" / "curve.csv").rename(results / "mini" / "other.csv")
    path = paths.committed("open") / "real.csv"
    path.write_text(path.read_text().replace("0.123", "0.124"))
    assert sorted(check(results)) == [
        "figures/mini/08_curves.csv: p, row 0: 0.5 committed, 0.6 made",
        "mini/curve.csv: committed but no longer made",
        "mini/other.csv: made but not committed",
        "open/real.csv: does not match its manifest",
    ]


def test_stale_code_and_data_are_found_where_nothing_is_made_anew(results, project):
    assert not to_verify()
    edit(project, "LIMIT = 3", "LIMIT = 4")
    assert (check(results), to_verify()) == ([], ["open/real"])
    (project / "data" / "own.jsonl").write_text("{}\n")
    assert check(results) == [
        "open/real.csv: its data have changed; run: make figures PROFILE=open"
    ]


@pytest.mark.parametrize("k", [1, 5, 12])
def test_a_file_says_the_k_it_was_made_with_and_reads_as_it_was(own_folders, k):
    values = pd.DataFrame({"metric": ["p_at_5", "ndcg_at_10", "share_correct_at_5", "hit_at_5"]})
    curves = pd.DataFrame(
        {"p_at_5": [0.5], "p_at_5_low": [0.4], "ndcg_at_10": [0.1], "dev_p_at_5": 1.0}
    )
    for name, table in (("values_x", values.assign(value=0.5)), ("x_lambda", curves)):
        path = write_result(table, name, "mini", code=["lib.stats"], data=[], k=k)
        written = path.read_text()
        assert f"p_at_{k}" in written and "ndcg_at_10" in written
        assert k == 5 or not re.search(r"\b(p|hit|dev_p)_at_5", written)
        assert written.count("share_correct_at_5") == (name == "values_x")
        pd.testing.assert_frame_equal(read_result(name, "mini")[0], table)
        again = make_or_reuse(lambda: 1 / 0, name, "mini", code=["lib.stats"], data=[], k=k)
        pd.testing.assert_frame_equal(again, table)


def test_what_is_dear_is_taken_as_it_is_committed_and_says_by_which_code(project, monkeypatch):
    monkeypatch.setenv("CHR_OUT", "")
    dear = {"dear": True, **BEHIND}
    make_or_reuse(lambda: TABLE, "values", "open", **dear)
    before = read_result("values", "open")[1]["code"]
    edit(project, "LIMIT = 3", "LIMIT = 4")
    monkeypatch.setenv("CHR_OUT", str(project / "out"))
    with provenance.dear_as_committed():
        table = make_or_reuse(pytest.fail, "values", "open", **dear)
        assert table["p_at_5"].tolist() == [0.123, 0.5]
        kept, settings = read_result("values", "open")
        assert kept.equals(table) and settings["measured_by"] == before != settings["code"]
        cheap = make_or_reuse(lambda: TABLE * 2, "means", "open", **BEHIND)
        assert cheap["p_at_5"].tolist() == [0.247, 1.0]
        with pytest.raises(StaleInput, match="other data or settings"):
            make_or_reuse(pytest.fail, "values", "open", **dear, lam=1)
    # Without it, another code makes it anew.
    made = []
    make_or_reuse(lambda: made.append(1) or TABLE, "values", "open", **{**dear, "code": []})
    assert made == [1]
