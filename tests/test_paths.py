"""Where the project reads and writes: relative places, and places with spaces in their names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lib.base import paths

_SAY = "from lib.base import paths; print({}.resolve())"


def test_a_relative_place_is_the_projects_whichever_folder_a_notebook_runs_in(tmp_path):
    place = paths.ROOT / "build" / "a place"
    for variable, asked, below in (
        ("CHR_CACHE", "paths.cache()", ""),
        ("CHR_OUT", "paths.results('mini')", "results/mini"),
        ("CHR_OUT", "paths.figures('mini')", "figures/mini"),
        ("CHR_MIRROR", "paths.mirror_folder()", ""),
    ):
        env = os.environ | {variable: "build/a place", "PYTHONPATH": str(paths.ROOT)}
        command = [sys.executable, "-c", _SAY.format(asked)]
        for folder in (paths.ROOT, tmp_path):
            told = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
            found = told.stdout.rstrip("\n")
            assert found == str(place / below)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("variable", ["CHR_CACHE", "CHR_OUT"])
def test_an_absolute_place_is_kept_and_an_empty_one_is_none(variable, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, str(tmp_path / "my own"))
    assert (paths.cache() if variable == "CHR_CACHE" else paths.results("mini")).is_relative_to(
        tmp_path / "my own"
    )
    monkeypatch.setenv("CHR_MIRROR", "")
    assert paths.mirror_folder() is None


def test_make_hands_on_a_place_with_spaces():
    rule = 'probe: ; @printf "%s|%s" "$$CHR_OUT" "$$CHR_MIRROR"'
    for place in ("my folder/with spaces", "/tmp/my folder"):
        command = ["make", "-s", f"--eval={rule}", "probe", f"CHR_OUT={place}", f"MIRROR={place}"]
        made = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)
        out, mirror = made.stdout.split("|")
        assert paths.ROOT / out == paths.ROOT / mirror == paths.ROOT / place


@pytest.mark.parametrize("variable", ["CHR_CACHE", "CHR_OUT"])
def test_a_folder_that_cannot_be_made_is_said(variable, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "here")
    (tmp_path / "file").touch()
    for place in ("link", "file", "file/below"):
        monkeypatch.setenv(variable, str(tmp_path / place))
        with pytest.raises(OSError, match=f"name another folder.*{tmp_path}/{place}"):
            paths.cache() if variable == "CHR_CACHE" else paths.results("mini")
