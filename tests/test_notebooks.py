"""The notebooks as a reader has them: executed, in order, current, moved by their parameters."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from lib import notebooks
from lib.base import paths
from lib.base.files import read_manifest, write_manifest
from lib.profiles import load_profile
from lib.studies.grid.experiment import open_experiment

BOOKS = {n: nbformat.read(paths.ROOT / "notebooks" / f"{n}.ipynb", 4) for n in notebooks.NOTEBOOKS}
CHECKED = "nbval-check-output"
"""The tag by which nbval compares what a cell shows."""


def code_cells(book):
    return [c for c in book.cells if c.cell_type == "code"]


def tags_of(cell) -> list[str]:
    return cell.metadata.get("tags", [])


@pytest.mark.parametrize("name", BOOKS)
def test_a_notebook_is_executed_in_order_short_and_clean(name):
    cells = code_cells(BOOKS[name])
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert len([x for x in cell.source.splitlines() if x.strip()]) <= 12, cell.source
        assert not re.search(r"^\s*(def|class) ", cell.source, re.M), cell.source
        assert not [o for o in cell.outputs if o.output_type == "error"]
    assert str(paths.ROOT) not in nbformat.writes(BOOKS[name])
    assert sum("parameters" in tags_of(c) for c in cells) == 1


@pytest.mark.parametrize("name", BOOKS)
def test_every_table_a_reader_sees_is_checked(name):
    """A cell that shows a table is compared by nbval, but for machine and cost."""
    free = ("machine()", "ledger(", "counts", "dimensions", "p.title", 'passages"', "print(p.")
    for cell in code_cells(BOOKS[name]):
        shows = any("text/html" in o.get("data", {}) for o in cell.outputs)
        if shows and not any(f in cell.source for f in free):
            assert CHECKED in tags_of(cell), cell.source
    assert sum(CHECKED in tags_of(c) for c in code_cells(BOOKS[name])) >= 2


@pytest.mark.parametrize("name", BOOKS)
def test_a_notebook_has_the_readers_parameters(name):
    (cell,) = [c for c in code_cells(BOOKS[name]) if "parameters" in tags_of(c)]
    names = set(re.findall(r"^(\w+) = ", cell.source, re.M))
    assert {"profile", "limit"} <= names
    if name[:2] in ("00", "03", "04", "05", "06", "07", "08"):
        assert {"lam", "k"} <= names


STUDENT = {"profile": "mini", "lam": 0.35, "k": 7}
"""What a student changes, in the notebooks that draw what follows from it."""
TRIED = ("00_start_here", "03_run_methods", "04_accuracy_grid", "08_lambda")


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """student(name): the folder with all that a notebook made with STUDENT's parameters.

    Each is executed once, all in one folder: 04 reads the cells that 03 made, as a student's does.
    """
    out, done = tmp_path_factory.mktemp("student"), set()
    code = (
        "import sys, json; from pathlib import Path; from lib import notebooks;"
        "notebooks.run(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))"
    )

    def executed(name: str) -> Path:
        if name not in done:
            run = subprocess.run(
                [sys.executable, "-c", code, name, out / f"{name}.ipynb", json.dumps(STUDENT)],
                env=os.environ | {"CHR_OUT": str(out), "PYTHONPATH": str(paths.ROOT)},
                cwd=paths.ROOT,
                capture_output=True,
                text=True,
            )
            assert run.returncode == 0, run.stderr[-3000:]
            done.add(name)
        return out

    return executed


COMMITTED_ONLY = {"04_ddx_real", "08_fresh"}
"""Drawn from the committed real result: a laptop's lambda and k have no part in it."""


@pytest.mark.parametrize("name", TRIED)
def test_a_student_who_changes_lambda_and_k_sees_every_figure_move(name, student):
    made = sorted((student(name) / "figures" / "mini").glob(f"{name[:2]}_*.csv"))
    committed = paths.ROOT / "figures" / "mini"
    assert made and {p.name for p in made} == {p.name for p in committed.glob(f"{name[:2]}_*.csv")}
    for path in (p for p in made if p.stem not in COMMITTED_ONLY):
        for file in (path, path.with_suffix(".png")):
            before = (committed / file.name).read_bytes()
            assert file.read_bytes() != before, f"{file.name} is the same at lambda 0.35 and k 7"
        assert path.with_suffix(".png").stat().st_size > 5000


def test_a_students_lambda_and_k_are_in_the_results(student):
    path = student("08_lambda") / "results" / "mini" / "ddx_mini_lambda.csv"
    assert read_manifest(path)["settings"]["k"] == 7
    for name, result in (("03_run_methods", "retrieval"), ("04_accuracy_grid", "table1")):
        path = student(name) / "results" / "mini" / f"{result}.csv"
        settings = read_manifest(path)["settings"]
        assert (settings["k"], settings["lam"]) == (7, 0.35)


def test_a_reader_without_an_llm_answers_whatever_a_student_sets(student):
    out = student("03_run_methods")
    answers = pd.read_csv(out / "results" / "mini" / "answers.csv")
    lab = open_experiment(load_profile("mini"))
    arms = {*lab.searched, "hypotheses_as_context"}  # without passages it reads nothing
    assert set(answers["method"]) == arms and answers["dataset"].nunique() == 3
    assert answers.groupby(["method", "dataset"])["qid"].nunique().eq(32).all()


def test_the_accuracy_notebook_holds_no_number_of_what_was_not_run(student):
    out = student("04_accuracy_grid") / "results" / "mini"
    answers, table = (pd.read_csv(out / f"{n}.csv") for n in ("answers", "table1"))
    asked = set(answers.groupby(["dataset", "reader", "method"]).groups)
    read = table[table["answerer"] != "no reader"]
    assert set(read.groupby(["dataset", "answerer", "method"]).groups) == asked
    assert table.loc[table["metric"] == "accuracy", "value"].notna().all()


def test_a_changed_result_fails_the_notebook_check(tmp_path):
    """One number of one committed result is altered: nbval must see it."""
    copy = tmp_path / "project"
    listed = subprocess.run(
        ["git", "ls-files", "lib", "data", "notebooks"],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for file in listed:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(paths.ROOT / file, copy / file)
    path = copy / "data/results/open/ddx_fresh_lambda.csv"
    settings = read_manifest(path)["settings"]
    table = pd.read_csv(path)
    table.loc[table["arm"] == "hplus", "p_at_5"] += 0.01
    table.to_csv(path, index=False)
    write_manifest(path, rows=len(table), settings=settings)
    name = copy / "notebooks/00_start_here.ipynb"
    book = nbformat.read(name, 4)
    (shown,) = [i for i, c in enumerate(book.cells) if "story_rows" in c.source]
    book.cells = book.cells[: shown + 1]  # what comes after takes long and reads other results
    nbformat.write(book, name)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--nbval-lax",
        "notebooks/00_start_here.ipynb",
    ]
    env = {**os.environ, "PYTHONPATH": str(copy), "CHR_CACHE": str(paths.cache())}
    run = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout[-3000:]
    assert re.search(r"1 failed, \d+ passed", run.stdout), run.stdout[-3000:]
