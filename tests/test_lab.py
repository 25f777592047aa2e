"""make lab: a copy to play on, which is never overwritten and never overwrites."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

import pytest

from lib import lab
from lib.base import paths


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small project with one file of each kind."""
    root = tmp_path / "project"
    for name in ("notebooks/a.ipynb", "docs/b.md", "figures/mini/c.png", "data/results/mini/d.csv"):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"committed {name}")
    (root / "notebooks" / ".ipynb_checkpoints").mkdir()
    (root / "notebooks" / ".ipynb_checkpoints" / "a.ipynb").write_text("an editor's")
    monkeypatch.setattr(lab.paths, "ROOT", root)
    return root


def test_everything_a_notebook_needs_is_copied_and_nothing_of_an_editors(project, tmp_path):
    folder = tmp_path / "lab"
    assert lab.seed(folder) == []
    copied = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    wanted = {"notebooks/a.ipynb", "docs/b.md", "figures/mini/c.png", "results/mini/d.csv"}
    assert copied == wanted | {".copied.json", ".jupyterlab/overrides.json"}


def test_jupyterlab_asks_for_no_news_and_wraps_a_long_text_that_is_typed(tmp_path, monkeypatch):
    """By JupyterLab's own reader of settings, in the folder that the command names."""
    from jupyterlab.labapp import LabApp

    read_by = import_module("jupyterlab_server.settings_utils")  # it comes with JupyterLab
    lab.seed(tmp_path)
    monkeypatch.chdir(tmp_path)
    (named,) = [part for part in lab.COMMAND if "app_settings_dir" in part]
    there = LabApp()

    def defaults(folder: str, plugin: str) -> dict:
        read, _ = read_by.get_settings(
            folder, there.schemas_dir, str(tmp_path / "none"), schema_name=plugin
        )
        return {name: one.get("default") for name, one in read["schema"]["properties"].items()}

    news, cells = lab._OVERRIDES
    plain = defaults(there.app_settings_dir, news)
    ours = defaults(named.partition("=")[2], news)
    assert plain["fetchNews"] == "none"  # it asks
    assert ours["fetchNews"] == "false" and ours["checkForUpdates"] is False
    wrapped = defaults(named.partition("=")[2], cells)["codeCellConfig"]
    assert wrapped["lineWrap"] is True and wrapped["lineNumbers"] is False


def test_what_a_reader_changed_is_kept_and_named_and_the_rest_renewed(project, tmp_path):
    folder = tmp_path / "lab"
    lab.seed(folder)
    (folder / "notebooks" / "a.ipynb").write_text("mine")
    for name in ("notebooks/a.ipynb", "docs/b.md"):
        (project / name).write_text("a newer version")
    assert lab.seed(folder) == [folder / "notebooks" / "a.ipynb"]
    assert (folder / "notebooks" / "a.ipynb").read_text() == "mine"
    assert (folder / "docs" / "b.md").read_text() == "a newer version"
    (folder / "notebooks" / "a.ipynb").unlink()  # how a reader has the committed one back
    assert lab.seed(folder) == []
    (folder / "docs" / "b.md").write_text("left by an earlier check")
    assert lab.seed(folder, ours=True) == []
    assert (folder / "docs" / "b.md").read_text() == "a newer version"
    assert (folder / "notebooks" / "a.ipynb").read_text() == "a newer version"


def test_every_link_of_a_notebook_leads_somewhere_in_the_copy(tmp_path):
    folder = tmp_path / "lab"
    lab.seed(folder)
    linked = 0
    for book in (folder / "notebooks").glob("*.ipynb"):
        for target in re.findall(r"\]\((?!https?:|#|attachment)([^)#]+)", book.read_text()):
            assert (book.parent / target).exists(), f"{book.name}: {target}"
            linked += 1
    assert linked > 30


def test_what_runs_in_the_copy_writes_below_it(tmp_path):
    code = (
        "import lib.base.paths as p; from lib.base.provenance import write_result;"
        "import pandas as pd; print(p.results('mini'));"
        "print(write_result(pd.DataFrame({'a': [1]}), 'table1', 'mini', code=[], data=[]))"
    )
    before = (paths.committed("mini") / "table1.csv").read_bytes()
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=lab.environment_of(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(line.startswith(str(tmp_path)) for line in run.stdout.splitlines())
    assert (paths.committed("mini") / "table1.csv").read_bytes() == before
