"""``make verify``: what comes out is said to, what does not is named, and only then is stamped."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

from lib import run_files, verify
from lib.base import files, paths


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Committed results in a folder of the test's own; notebooks and code are the project's."""
    data = tmp_path / "data"
    shutil.copytree(paths.DATA / "results", data / "results")
    monkeypatch.setattr(paths, "DATA", data)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    for name in ("CHR_OUT", "CHR_PROFILE"):
        monkeypatch.setenv(name, "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def notebook(project, *cells: str) -> None:
    """A study of one notebook, whose first cell holds its parameters."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    first = new_code_cell("profile = None", metadata={"tags": ["parameters"]})
    book = new_notebook(cells=[first, *map(new_code_cell, cells)])
    nbformat.write(book, project / "notebooks" / "90_made_up.ipynb")


@pytest.fixture
def study(monkeypatch):
    monkeypatch.setattr(verify, "STUDIES", {"made up": ("90_made_up",)})


WRITE = """
import pandas as pd
from lib.base.provenance import write_result
table = pd.DataFrame({"method": ["a", "b"], "value": [0.25, 0.5]})
write_result(table, "made_up", profile, code=["lib.stats"], data=[])
"""


def run(project, **options) -> verify.Verified:
    made = verify.verify("open", ["made up"], **({"dear": False, "record": False} | options))
    report = {"same": made.same, "different": made.different, "code": verify._all_code()}
    files.atomic_write(made.out / "report.json", json.dumps(report))
    return made


def commit(project) -> None:
    """What the notebook makes, as the committed result."""
    for path in (project / "build" / "verify" / "open" / "results" / "open").glob("made_up*"):
        shutil.copy(path, project / "data" / "results" / "open" / path.name)


def test_a_table_that_comes_out_is_ok_and_one_that_does_not_is_named(project, study, capsys):
    notebook(project, WRITE)
    (told,) = run(project).different
    assert told.startswith("made_up: made, but not committed") and "copy " in told
    commit(project)
    good = run(project)
    assert (good.different, list(good.same)) == ([], ["made_up"])
    assert "OK" in capsys.readouterr().out
    file = project / "data" / "results" / "open" / "made_up.csv"
    file.write_text(file.read_text().replace("0.250", "0.260"))
    (wrong,) = run(project).different
    assert "made_up" in wrong and "0.26" in wrong and "0.25" in wrong


def test_what_no_cell_has_made_is_listed(project, study):
    notebook(project, WRITE)
    left = run(project).not_remade()
    assert "real_arms" in left and "made_up" not in left


def test_a_cell_that_fails_is_a_failure_and_the_rest_runs(project, study):
    notebook(project, "1 / 0", WRITE)
    commit(project)
    assert [line.split(":")[0] for line in run(project).different] == ["90_made_up", "made_up"]


NEEDS = "from lib.run_files import NeedsIndex\nraise NeedsIndex('all vectors')"


def test_a_cell_that_needs_an_index_is_passed_over_with_what_builds_on_it(project, study, capsys):
    notebook(project, WRITE)
    run(project)
    commit(project)
    notebook(project, NEEDS + "\nx = 1", "print(x)", WRITE)
    assert not run(project).different
    assert capsys.readouterr().out.count("PASS") == 2
    notebook(project, "print(x)", WRITE)
    assert len(run(project).different) == 1


SEARCH = """
import numpy as np
from lib import run_files
from lib.query_spec import Hypotheses, Text
asked = [Hypotheses((Text("gout", role="target"),), qid="q1")]
def search(requests):
    ids = np.array([[{ids}]])
    return [run_files.Hits(np.ones(ids.shape, np.float32), ids, ids)]
found = run_files.through(search, asked, 2, lambda: "place")
table = pd.DataFrame({"method": "a", "pid": found[0].ids[0].tolist()})
write_result(table, "made_up", profile, code=["lib.stats"], data=[])
"""


def test_runs_are_recorded_replayed_and_compared(project, study):
    here = WRITE.rpartition("write_result")[0] + SEARCH
    notebook(project, here.replace("{ids}", "'p1', 'p2'"))
    run(project, record=True)
    commit(project)
    assert run_files.run_file("open", "made up").exists()
    # Another search is not asked: what is on file is what was found.
    notebook(project, here.replace("{ids}", "'p3', 'p4'"))
    assert not run(project).different
    table, again = (line.split(":")[0] for line in run(project, dear=True).different)
    assert table == "made_up" and again.endswith("made up.csv.xz")


def test_only_a_green_run_of_todays_code_is_stamped(project, study, monkeypatch):
    notebook(project, WRITE)
    with pytest.raises(ValueError, match="nothing was verified"):
        verify.stamp("open", "why")
    run(project)
    with pytest.raises(ValueError, match="not green"):
        verify.stamp("open", "why")
    commit(project)
    file = project / "data" / "results" / "open" / "made_up.csv"
    manifest = files.read_manifest(file)
    files.write_manifest(file, rows=2, settings=manifest["settings"] | {"code": "old"})
    run(project)
    monkeypatch.setattr(verify, "_all_code", lambda: "newer")
    with pytest.raises(ValueError, match="has changed"):
        verify.stamp("open", "why")
    monkeypatch.undo()
    monkeypatch.setattr(paths, "DATA", project / "data")
    monkeypatch.setattr(paths, "ROOT", project)
    verify.stamp("open", "a file was moved")
    assert files.read_manifest(file) == manifest
    last = pd.read_csv(project / "data" / "results" / "stamps.csv").iloc[-1]
    assert (last["tables"], last["why"]) == (1, "a file was moved")
