"""What makes a result stale and what does not, and the check of the committed results."""

from __future__ import annotations

import json
import lzma
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lib.base import paths, provenance
from lib.base.files import StaleInput, read_manifest, sha256_file
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
    "lib/__init__.py": "",
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
    "lib/second.py": (
        "import json\nfrom lib.pack import third\n\n\ndef helper():\n    return json\n"
    ),
    "lib/base/__init__.py": "",
    "lib/base/files.py": "def atomic_write():\n    return 1\n",
    "lib/pack/__init__.py": "from lib.pack import third\n",
    "lib/pack/third.py": "def deep(x):\n    return x\n",
    "lib/fourth.py": "import lib.first\n",
    "lib/circle.py": "from lib.round import a\n",
    "lib/round.py": "from lib.circle import b\n",
    "lib/stranger.py": "A = 1\n",
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
            own.In = ["", "import lib.first", text]
        return code_hash(["lib.first", "own"])

    one = say("def expand():\n    return 'H−'\n")
    assert one != code_hash(["lib.first"])
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


def test_the_project_is_what_is_looked_at_for_edits():
    assert paths.ROOT / "lib" / "run.py" in provenance._AT_START


SAME = {
    "comment": ("# a comment", "# another one\n    # and more"),
    "module docstring": ('"""First."""', '"""First, in\nother words."""'),
    "function docstring": ('"""Run it."""', '"""Run."""'),
    "docstring of a constant": ('"""How many."""', '"""The number of things."""'),
    "docstring removed": ('    """Run it."""\n', ""),
    "docstring added": ("    def inner():\n", '    def inner():\n        """Go deep."""\n'),
    "layout": ("inner() + LIMIT", "(\n        inner()\n        + LIMIT\n    )"),
    "import": ("from lib.second import helper", "from lib.third import helper"),
    "what a star would import": ("LIMIT = 3", '__all__ = ["run"]\n\nLIMIT = 3'),
}


@pytest.mark.parametrize("what", SAME)
def test_what_cannot_move_a_number_leaves_the_hash(project, what):
    before = code_hash(["lib.first"])
    edit(project, *SAME[what])
    assert code_hash(["lib.first"]) == before


OTHER = {
    "constant": ("LIMIT = 3", "LIMIT = 4", "lib/first.py"),
    "operator": ("+ LIMIT", "- LIMIT", "lib/first.py"),
    "default argument": ("x: int", "x: int = 2", "lib/first.py"),
    "the numeric core": ("sorted(x)", "list(x)", "lib/run.py"),
}


@pytest.mark.parametrize("what", OTHER)
def test_what_could_move_a_number_changes_the_hash(project, what):
    before = code_hash(["lib.first"])
    edit(project, *OTHER[what])
    assert code_hash(["lib.first"]) != before


def test_what_a_study_does_not_name_as_its_own_leaves_its_hash(project):
    before = code_hash(["lib.first"])
    edit(project, "return json", "return 5", "lib/second.py")
    assert code_hash(["lib.first"]) == before
    assert code_hash(["lib.first", "lib.second"]) != before


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
    made = []
    for own in (["lib.first"], ["lib.moved"]):
        make_or_reuse(
            lambda: made.append(1) or TABLE, "curve", "mini", code=own, data=["own.jsonl"]
        )
    assert made == [1]


def test_a_packages_prompts_are_its_own(project):
    prompt = project / "lib" / "pack" / "ask.txt"
    prompt.write_text("Say {question}")
    before = code_hash(["lib.pack"])
    prompt.write_text("Answer {question}")
    assert code_hash(["lib.pack"]) != before


def test_the_core_is_there():
    """A name that leads nowhere would count for nothing."""
    for name in provenance.CORE:
        assert paths.ROOT.joinpath(*name.split(".")).with_suffix(".py").exists()


# data --------------------------------------------------------------------------------------------


def test_data_are_the_bytes_of_own_files_and_the_registered_hash_of_downloads(project):
    both = ["own.jsonl", "medqa-test"]
    before = data_hash(both)
    assert before == data_hash(reversed(both)) != data_hash(["medqa-test"])
    (project / "data" / "own.jsonl").write_text('{"a": 2}\n')
    assert data_hash(both) != before
    with pytest.raises(FileNotFoundError):
        data_hash(["nowhere.jsonl"])


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


@pytest.mark.parametrize("name", ["2", "007", "1e5", "True", "inf", "NA", "chr"])
def test_a_name_that_looks_like_a_number_stays_a_name(name, project):
    """A cell has one method: of one called "2" the number 2 came back, and no row was found."""
    table = pd.DataFrame({"dataset": [name], "method": name, "arm": name, "reader": name})
    save(table=table)
    assert read_result("curve", "mini")[0].to_dict("list") == table.to_dict("list")


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\r\n",#\\\0')),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(["a\rb", "\r", "\r\n"])
def test_any_text_comes_back_as_it_was(project, texts):
    """After a carriage return that a model wrote, the rest of its text was a row of its own."""
    table = pd.DataFrame({"qid": "q", "H_plus": texts, "value": 0.5})
    save(table=table)
    again = read_result("curve", "mini")[0]
    assert again.fillna("").to_dict("list") == table.to_dict("list")


@pytest.mark.parametrize("number", [float("inf"), float("-inf")])
def test_an_infinite_number_is_no_result(number, project):
    """A test over such values gave p = 0."""
    before = save().read_bytes()
    table = pd.DataFrame({"arm": ["a", "b"], "value": [float("nan"), number]})
    with pytest.raises(ValueError, match="curve: the column value has an infinite .* in row 1"):
        save(table=table)
    assert (paths.results("mini") / "curve.csv").read_bytes() == before
    save(table=table.head(1))


def test_saving_twice_gives_the_same_bytes(project):
    def both() -> list[bytes]:
        return [save().read_bytes(), Path(f"{save()}.manifest.json").read_bytes()]

    assert both() == both()


def test_a_result_is_made_again_only_when_something_behind_it_changed(project):
    made = []

    def get(**settings) -> pd.DataFrame:
        def make() -> pd.DataFrame:
            made.append(1)
            return TABLE

        return make_or_reuse(make, "curve", "mini", **BEHIND, **{"lambdas": (0.0, 1.0)} | settings)

    first = get()
    assert made == [1] and first["p_at_5"].tolist() == [0.123, 0.5]
    pd.testing.assert_frame_equal(get(), first)
    assert made == [1]
    changes = [
        lambda: edit(project, "LIMIT = 3", "LIMIT = 4"),
        lambda: (project / "data" / "own.jsonl").write_text("{}\n"),
        lambda: (paths.results("mini") / "curve.csv").write_text("half"),
        lambda: (paths.results("mini") / "curve.csv.manifest.json").unlink(),
    ]
    for number, change in enumerate(changes, 2):
        change()
        pd.testing.assert_frame_equal(get(), first)
        pd.testing.assert_frame_equal(get(), first)
        assert len(made) == number
    get(lambdas=(0.0, 0.4))
    assert len(made) == 6
    assert read_result("curve", "mini")[1]["lambdas"] == [0.0, 0.4]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("change", ["code", "data"])
def test_what_changes_while_a_result_is_made_makes_it_again(change, together, project):
    """It was stored as made from what was there at its end, and held for ever."""
    made = []

    def make() -> pd.DataFrame:
        made.append(1)
        if len(made) == 1 and change == "code":
            edit(project, "LIMIT = 3", "LIMIT = 4")
        elif len(made) == 1:
            (project / "data" / "own.jsonl").write_text("{}\n")
        return TABLE

    for times in (1, 2, 2):
        if together:
            make_all_or_reuse(lambda: {"curve": make()}, ["curve"], "mini", **BEHIND)
        else:
            make_or_reuse(make, "curve", "mini", **BEHIND)
        assert len(made) == times


def test_results_that_are_made_together_are_all_made_again_when_one_does_not_hold(project):
    made = []

    def get(names=("curve", "table")) -> dict[str, pd.DataFrame]:
        def make() -> dict[str, pd.DataFrame]:
            made.append(1)
            return {"curve": TABLE, "table": TABLE * 2}

        return make_all_or_reuse(make, names, "mini", **BEHIND)

    first = get()
    assert list(first) == ["curve", "table"]
    pd.testing.assert_frame_equal(get()["table"], first["table"])
    assert made == [1]
    changes = [
        lambda: edit(project, "LIMIT = 3", "LIMIT = 4"),
        lambda: (paths.results("mini") / "table.csv").write_text("half"),
        lambda: (paths.results("mini") / "curve.csv.manifest.json").unlink(),
    ]
    for number, change in enumerate(changes, 2):
        change()
        for name, table in get().items():
            pd.testing.assert_frame_equal(table, first[name])
        get()
        assert len(made) == number
    with pytest.raises(KeyError, match="nowhere"):
        get(("curve", "nowhere"))


LONG = pd.DataFrame({"qid": [f"{i:05d}" for i in range(90_000)], "value": 1 / 3})


@pytest.mark.fault(
    "numbers", "Two runs with other parameters write to one folder", "nothing: each has its own"
)
def test_two_runs_with_other_parameters_in_one_folder_read_no_number_of_the_other(project):
    def one_run(lam: float, meet: Barrier) -> None:
        chance = random.Random(f"{lam}")
        for name in [f"table{i}" for i in range(50)] * 2:

            def make() -> pd.DataFrame:
                time.sleep(chance.uniform(0, 0.002))
                return TABLE.assign(lam=lam)

            meet.wait(60)
            assert set(make_or_reuse(make, name, "mini", **BEHIND, lam=lam)["lam"]) == {lam}

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(one_run, (0.2, 0.4), [Barrier(2)] * 2))
    for i in range(50):
        path = paths.results("mini") / f"table{i}.csv"
        manifest = read_manifest(path)
        if manifest is not None:
            assert set(pd.read_csv(path)["lam"]) == {manifest["settings"]["lam"]}


def test_a_large_result_is_packed_and_comes_back_the_same(project):
    path = save(table=LONG)
    assert path.name == "curve.csv.xz" and lzma.decompress(path.read_bytes()).count(b"\n") == 90_001
    assert path.stat().st_size < 1_000_000
    table, settings = read_result("curve", "mini")
    assert list(table["qid"]) == list(LONG["qid"]) and set(table["value"]) == {0.333}
    assert settings["k"] == 5 and read_manifest(path)["rows"] == 90_000
    # A kill's remains, the size of the file and its name move; its bytes do not.
    again = save(table=LONG)
    assert again == path and again.read_bytes() == path.read_bytes()


def test_a_packed_result_is_the_same_bytes_whatever_the_clock(project, monkeypatch):
    one = save(table=LONG).read_bytes()
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert save(table=LONG).read_bytes() == one


def test_a_result_that_crosses_the_size_leaves_no_other_self(project):
    def files() -> set[str]:
        return {p.name for p in paths.results("mini").iterdir()}

    save()
    assert files() == {"curve.csv", "curve.csv.manifest.json"}
    save(table=LONG)
    assert files() == {"curve.csv.xz", "curve.csv.xz.manifest.json"}
    assert len(read_result("curve", "mini")[0]) == 90_000
    save()
    assert files() == {"curve.csv", "curve.csv.manifest.json"}
    assert len(read_result("curve", "mini")[0]) == 2


def test_a_packed_result_is_made_once_and_again_when_broken(project):
    made = []

    def get() -> pd.DataFrame:
        return make_or_reuse(lambda: made.append(1) or LONG, "curve", "mini", **BEHIND)

    first = get()
    pd.testing.assert_frame_equal(get(), first)
    assert made == [1] and list(first["qid"][:2]) == ["00000", "00001"]
    path = paths.results("mini") / "curve.csv.xz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(FileNotFoundError, match="make figures PROFILE=mini"):
        read_result("curve", "mini")
    pd.testing.assert_frame_equal(get(), first)
    assert made == [1, 1]


def test_an_incomplete_result_names_the_command(project, monkeypatch, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"curve\.csv is missing .*make figures PROFILE=open"
    ):
        read_result("curve", "open")
    path = save()
    path.write_text(path.read_text().replace("0.123", "0.999"))
    with pytest.raises(FileNotFoundError, match="does not match its manifest"):
        read_result("curve", "mini")
    save()
    monkeypatch.setenv("CHR_OUT", str(tmp_path / "elsewhere"))
    assert read_result("curve", "mini", committed=True)[0]["n"].sum() == 7
    with pytest.raises(FileNotFoundError):
        read_result("curve", "mini")


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
        "n, row 1: 4 committed, 5 made": TABLE.assign(n=[3, 5]),
        "seen, row 0: True committed, False": TABLE.assign(seen=[False, False]),
        "low, row 0: nan committed, 1.0 made": TABLE.assign(low=[1.0, 1.0]),
        "low, row 1: 1.0 committed, nan made": TABLE.assign(low=[float("nan")] * 2),
        "shape or columns differ": TABLE.iloc[:1],
        "shape or columns differ: (2, 5)": TABLE.rename(columns={"n": "N"}),
    }
    for message, table in changes.items():
        save("mini", table=table)
        found = check(results)
        assert len(found) == 1 and found[0].startswith("mini/curve.csv: "), message
        assert message in found[0]


def test_one_unit_in_the_third_decimal_is_accepted_and_two_are_not(results):
    for value, problems in ((0.499, 0), (0.501, 0), (0.498, 1), (0.502, 1)):
        save("mini", table=TABLE.assign(p_at_5=[0.12345, value]))
        assert len(check(results)) == problems, value


def test_a_result_that_is_gone_or_new_is_found(results):
    (results / "mini" / "curve.csv").rename(results / "mini" / "other.csv")
    found = check(results)
    assert any("curve.csv: committed but no longer made" in f for f in found)
    assert any("mini/other.csv: made but not committed" in f for f in found)
    assert len(found) == 2


def test_a_figures_numbers_are_compared_too(results):
    for folder, value in ((paths.ROOT, 0.5), (results.parent, 0.6)):
        place = folder / "figures" / "mini"
        place.mkdir(parents=True)
        (place / "08_curves.csv").write_text(f"p\n{value}\n")
    assert check(results) == ["figures/mini/08_curves.csv: p, row 0: 0.5 committed, 0.6 made"]
    (place / "08_curves.csv").unlink()
    assert check(results) == ["figures/mini/08_curves.csv: committed but no longer made"]


def test_a_committed_file_changed_by_hand_is_found(results):
    path = paths.committed("open") / "real.csv"
    path.write_text(path.read_text().replace("0.123", "0.124"))
    assert check(results) == ["open/real.csv: does not match its manifest"]
    save("open", "real")
    (paths.committed("mini") / "curve.csv.manifest.json").unlink()
    assert "mini/curve.csv: does not match its manifest" in check(results)


def test_stale_code_and_data_are_found_where_nothing_is_made_anew(results, project):
    assert not to_verify()
    edit(project, "LIMIT = 3", "LIMIT = 4")
    assert (check(results), to_verify()) == ([], ["open/real"])
    (project / "data" / "own.jsonl").write_text("{}\n")
    assert check(results) == [
        "open/real.csv: its data have changed; run: make figures PROFILE=open"
    ]


def test_what_a_killed_run_left_behind_is_no_result(results):
    """The real thing: a child is killed while it writes, in both folders."""
    for folder in (results / "mini", paths.committed("mini"), paths.committed("open")):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(folder / "curve.csv")],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert len([p for p in folder.iterdir() if p.name.startswith(".")]) == 1
    assert check(results) == []


KILLED = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType
from lib.base.files import atomic_write

def write(path):
    path.write_text("a,b\\n1")
    print("half way", flush=True)
    time.sleep(60)

atomic_write(Path(sys.argv[1]), write)
"""


def test_the_command_prints_and_fails(tmp_path, monkeypatch):
    """As CI runs it, on a copy of the project with one committed number changed."""
    monkeypatch.delenv("CHR_OUT", raising=False)
    copy = tmp_path / "copy"
    shutil.copytree(paths.ROOT / "lib", copy / "lib")
    for folder in ("data", "tests"):
        (copy / folder).mkdir()
    shutil.copy(paths.ROOT / "tests" / "check_results.py", copy / "tests")
    shutil.copy(paths.REGISTRY, copy / "data")
    for name in ("committed", "made"):
        folder = copy / ("data" if name == "committed" else "build/check") / "results" / "mini"
        folder.mkdir(parents=True)
        text = "p\n0.500\n" if name == "committed" else "p\n0.600\n"
        (folder / "x.csv").write_text(text)
    command = [sys.executable, "-m", "tests.check_results"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 1 and "mini/x.csv: p, row 0: 0.5 committed, 0.6 made" in done.stdout
    (folder / "x.csv").write_text("p\n0.500\n")
    manifest = {
        "rows": 1,
        "bytes": 8,
        "settings": {},
        "sha256": sha256_file(folder / "x.csv"),
    }
    beside = copy / "data" / "results" / "mini" / "x.csv.manifest.json"
    beside.write_text(json.dumps(manifest))
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "The committed results are what the code makes.\n")


@pytest.mark.parametrize("k", [1, 5, 10, 12])
def test_a_file_says_the_k_it_was_made_with_and_reads_as_it_was(own_folders, k):
    values = pd.DataFrame({"metric": ["p_at_5", "ndcg_at_10", "supports_right_at_5", "hit_at_5"]})
    curves = pd.DataFrame(
        {"p_at_5": [0.5], "p_at_5_low": [0.4], "ndcg_at_10": [0.1], "dev_p_at_5": 1.0}
    )
    for name, table in (("values_x", values.assign(value=0.5)), ("x_lambda", curves)):
        path = write_result(table, name, "mini", code=["lib.stats"], data=[], k=k)
        written = path.read_text()
        assert f"p_at_{k}" in written and "ndcg_at_10" in written
        assert k == 5 or not re.search(r"\b(p|hit|dev_p)_at_5", written)
        assert written.count("supports_right_at_5") == (name == "values_x")
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
