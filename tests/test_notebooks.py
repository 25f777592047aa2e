"""The notebooks as a reader has them: executed, in order, current, moved by their parameters."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from lib import notebooks, paths
from lib.files import write_manifest

BOOKS = {n: nbformat.read(paths.ROOT / "notebooks" / f"{n}.ipynb", 4) for n in notebooks.NOTEBOOKS}
CHECKED = "# NBVAL_CHECK_OUTPUT"


def code_cells(book):
    return [c for c in book.cells if c.cell_type == "code"]


@pytest.mark.parametrize("name", BOOKS)
def test_a_notebook_is_executed_in_order_short_and_clean(name):
    cells = code_cells(BOOKS[name])
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert len([x for x in cell.source.splitlines() if x.strip()]) <= 12, cell.source
        assert not re.search(r"^\s*(def|class) ", cell.source, re.M), cell.source
        assert not [o for o in cell.outputs if o.output_type == "error"]
    assert str(paths.ROOT) not in nbformat.writes(BOOKS[name])
    assert sum("parameters" in c.metadata.get("tags", []) for c in cells) == 1


@pytest.mark.parametrize("name", BOOKS)
def test_every_table_a_reader_sees_is_checked(name):
    """A cell that shows a table is compared by nbval, but for machine and cost."""
    free = ("machine()", "ledger(", "counts", "dimensions", "p.title", 'passages"', "print(p.")
    for cell in code_cells(BOOKS[name]):
        shows = any("text/html" in o.get("data", {}) for o in cell.outputs)
        if shows and not any(f in cell.source for f in free):
            assert CHECKED in cell.source, cell.source
    assert sum(CHECKED in c.source for c in code_cells(BOOKS[name])) >= 3


def executed(name: str, out: Path, parameters: dict) -> None:
    command = [sys.executable, "-c",
               "import sys, json; from pathlib import Path; from lib import notebooks;"
               "notebooks.run(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))",
               name, str(out / f"{name}.ipynb"), __import__("json").dumps(parameters)]  # fmt: skip
    env = os.environ | {"CHR_OUT": str(out), "PYTHONPATH": str(paths.ROOT)}
    subprocess.run(command, env=env, cwd=paths.ROOT, check=True, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["00_start_here", "08_lambda"])
def test_a_student_who_changes_lambda_and_k_sees_every_figure_move(name, tmp_path):
    executed(name, tmp_path, {"profile": "mini", "lam": 0.35, "k": 7})
    made = sorted((tmp_path / "figures" / "mini").glob("*.csv"))
    assert {p.name for p in made} == {
        p.name for p in (paths.ROOT / "figures" / "mini").glob(f"{name[:2]}_*.csv")
    }
    for path in made:
        before = (paths.ROOT / "figures" / "mini" / path.name).read_bytes()
        assert path.read_bytes() != before, f"{path.name} is the same at lambda 0.35 and k 7"
        assert path.with_suffix(".png").stat().st_size > 5000
    if name == "08_lambda":
        curves = pd.read_csv(tmp_path / "results" / "mini" / "ddx_mini_lambda.csv")
        assert set(curves["k"]) == {7}


def test_a_changed_result_fails_the_notebook_check(tmp_path):
    """One number of one committed result is altered: nbval must see it."""
    copy = tmp_path / "project"
    listed = subprocess.run(
        ["git", "ls-files", "lib", "data", "notebooks"], cwd=paths.ROOT, capture_output=True,
        text=True, check=True,
    ).stdout.split()  # fmt: skip
    for file in listed:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(paths.ROOT / file, copy / file)
    path = copy / "data/results/open/ddx_real_claims.csv"
    table = pd.read_csv(path)
    table.loc[0, "difference"] += 0.01
    table.to_csv(path, index=False)
    write_manifest(path, rows=len(table), settings={})
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax",
               "notebooks/00_start_here.ipynb"]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(copy), "CHR_CACHE": str(paths.cache())}
    run = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout[-3000:]
    assert re.search(r"1 failed, \d+ passed", run.stdout), run.stdout[-3000:]
