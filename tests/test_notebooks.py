"""The notebooks as a reader has them: executed, in order, current, moved by their parameters."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest

from lib import index_build, notebooks
from lib.base import paths
from lib.base.files import read_manifest, write_manifest
from lib.pages.readable import NAMES
from lib.profiles import load_profile
from lib.studies.main_tables.experiment import open_experiment
from lib.studies.slhyde import study as slhyde
from tests.committed import committed

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
    free = (
        "machine()",
        "ledger(",
        "explore(",
        "counts",
        "dimensions",
        "p.title",
        'passages"',
        "print(p.",
    )
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


def shown_by(cell) -> list[str]:
    """What a reader sees of a cell: prose, or all that its code has put out."""
    if cell.cell_type == "markdown":
        return [cell.source]
    said = []
    for output in cell.outputs:
        said.append(output.get("text", ""))
        said += [output.get("data", {}).get(f"text/{kind}", "") for kind in ("markdown", "html")]
    return [text for text in said if text]


def opening_lacks(book, name: str, names=notebooks.NOTEBOOKS) -> list[str]:
    """What the first cell of a notebook does not tell: title, finding, time, the next ones."""
    first = book.cells[0]
    text = first.source if first.cell_type == "markdown" else ""
    minutes = r"(second|minute)s?\b"
    lacks = []
    if not re.match(r"# \S", text):
        lacks.append("a title")
    if not re.search(r"^\*\*[A-Z].{20,}[.:?]\*\*", text, re.M) and "printed below" not in text:
        lacks.append("a finding")
    if not re.search(minutes, text):
        lacks.append("a time")
    at = names.index(name)
    for other in (*names[max(at - 1, 0) : at], *names[at + 1 : at + 2]):
        exists = (paths.ROOT / "notebooks" / f"{other}.ipynb").exists()
        if exists and f"]({other}.ipynb)" not in text:
            lacks.append(f"a link to {other}")
    return lacks


@pytest.mark.parametrize("name", BOOKS)
def test_a_notebook_opens_with_its_finding_its_time_and_its_neighbours(name):
    assert opening_lacks(BOOKS[name], name) == []


PRINTED = [name for name in BOOKS if name[:2] not in ("00", "14")]
"""Notebooks whose finding is made from their results; 00 has its answer, 14 the reader's own."""


def finding_lacks(book) -> list[str]:
    """What a printed finding lacks: results, a check, a number, its place before any figure."""
    finds = [i for i, c in enumerate(book.cells) if re.search(r"\bfinding\(", c.source)]
    draws = [i for i, c in enumerate(book.cells) if "plots.save(" in c.source]
    if not finds:
        return ["a finding made from results"]
    lacks = []
    found = book.cells[finds[0]]
    if CHECKED not in tags_of(found):
        lacks.append("the tag by which it is checked")
    if not any(re.search(r"\d", text) for text in shown_by(found)):
        lacks.append("a number")
    if draws and draws[0] < finds[0]:
        lacks.append("a finding ahead of the first figure")
    return lacks


@pytest.mark.parametrize("name", PRINTED)
def test_the_finding_opens_with_numbers_made_from_results(name):
    assert finding_lacks(BOOKS[name]) == []


MACHINE = {key for key, words in NAMES.items() if "_" in key and words != key}
MACHINE |= {"hplus", "chr", "rrf", "bm25", "csqe", "p_holm", "hit_right", "p_at_5"}
"""What files call their columns and arms, and no reader should have to."""
ARM = re.compile(r"(chr|hplus|lexical|fused)(_\w+)?([+@]\S+)+")


def machine_words(cell) -> list[str]:
    """Names of columns and arms that a table shown by a cell has, in heads or cells."""
    found = []
    for text in shown_by(cell):
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", text, re.S)
        if cell.cell_type == "code":
            cells += [x for row in re.findall(r"^\|(.*)\|$", text, re.M) for x in row.split("|")]
        for one in (unescape(re.sub("<.*?>", "", x)).strip().strip("`") for x in cells):
            snake = re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", one)
            if one in MACHINE or snake or ARM.fullmatch(one):
                found.append(one)
    return found


@pytest.mark.parametrize("name", BOOKS)
def test_no_table_shows_a_machines_word(name):
    found = {c.id: words for c in BOOKS[name].cells if (words := machine_words(c))}
    assert not found


INTERNAL = (
    r"\bprototypes?\b",
    r"\bseed numbers?\b",
    r"\bissues? \d",
    r"\bthe lead\b(?! is more)",
    r"\bsessions?\b",
    r"\bclaim C\d|\(C\d\)",
    r"\bL4\b",
    r"\bagents?\b(?=.{0,40}\b(wrote|made|ran)\b)",
)
"""Words of those who make this, and nobody else's."""


def internal_words(cell) -> list[str]:
    """Words of the makers in what a cell tells a reader."""
    told = shown_by(cell)
    return [m[0] for text in told for rule in INTERNAL for m in re.finditer(rule, text)]


@pytest.mark.parametrize("name", BOOKS)
def test_a_notebook_shows_no_word_of_its_makers(name):
    assert not {c.id: words for c in BOOKS[name].cells if (words := internal_words(c))}
    told = "".join(text for c in BOOKS[name].cells for text in shown_by(c))
    for rule in re.findall(r"CHR, (L\d \w+)", told):  # a rule's name is explained where it stands
        assert f"*{rule}" in told


def made(*cells, **outputs):
    """A small notebook of (kind, source) cells; ``outputs`` are HTML texts by the cell's number."""
    book = nbformat.v4.new_notebook()
    for place, (kind, source) in enumerate(cells):
        cell = getattr(nbformat.v4, f"new_{kind}_cell")(source)
        if kind == "code" and f"_{place}" in outputs:
            data = {"text/html": outputs[f"_{place}"]}
            cell.outputs = [nbformat.v4.new_output("display_data", data)]
        book.cells.append(cell)
    return book


def test_an_opening_without_finding_time_or_links_is_told():
    good = BOOKS["05_retrieval_shift"].cells[0].source
    assert opening_lacks(made(("markdown", good)), "05_retrieval_shift") == []
    for gone, lack in (
        ("# 5.", "a title"),
        ("**", "a finding"),
        ("seconds", "a time"),
        ("04_accuracy_grid.ipynb", "a link to 04_accuracy_grid"),
        ("06_token_cost.ipynb", "a link to 06_token_cost"),
    ):
        text = good.replace(gone, "").replace("printed below", "")
        text = text.replace("minute", "") if gone == "seconds" else text
        assert opening_lacks(made(("markdown", text)), "05_retrieval_shift") == [lack]
    assert "a title" in opening_lacks(made(("code", good)), "05_retrieval_shift")


def test_a_finding_that_is_late_or_unchecked_or_typed_is_told():
    figure = ("code", 'plots.save(figure, "a", p.name, table)')
    found = ("code", 'display(Markdown(finding("shift", table=table)))')
    assert finding_lacks(made(figure)) == ["a finding made from results"]
    late = finding_lacks(made(figure, found, _1="<b>5 of 7</b>"))
    assert late == ["the tag by which it is checked", "a finding ahead of the first figure"]
    silent = made(found, figure, _0="<b>some</b>")
    silent.cells[0].metadata["tags"] = [CHECKED]
    assert finding_lacks(silent) == ["a number"]


@pytest.mark.parametrize(
    "word", ["p_at_5", "hplus", "chr+rotation@1", "kept_chosen", "some_new_name"]
)
def test_a_machines_word_in_a_table_is_found(word):
    head = f"<table><tr><th>method</th><th>{word}</th></tr><tr><td>P@5</td></tr></table>"
    (cell,) = made(("code", "show(table)"), _0=head).cells
    assert machine_words(cell) == [word]
    (cell,) = made(("code", "table"), _0=f"<table><tr><td>{word}</td></tr></table>").cells
    assert machine_words(cell) == [word]


def test_readers_words_in_a_table_are_let_pass():
    row = "".join(f"<td>{word}</td>" for word in ("P@5", "+0.094 (-0.156 to 0.344)", "H+ alone"))
    (cell,) = made(("code", "show(table)"), _0=f"<table><tr>{row}</tr></table>").cells
    assert machine_words(cell) == []


@pytest.mark.parametrize("said", ["as the prototype had it", "see issue 14", "claim C4", "rule L4"])
def test_a_makers_word_is_found(said):
    (cell,) = made(("markdown", f"It is, {said}, so.")).cells
    assert internal_words(cell)
    (cell,) = made(("code", "x"), _0=f"<p>{said}</p>").cells
    assert internal_words(cell)


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


def test_with_another_k_nothing_is_said_of_five(student):
    """k = 7: tables and the finding say P@7, and no column keeps the name of its file's."""
    book = nbformat.read(student("03_run_methods") / "03_run_methods.ipynb", 4)
    told = "".join(text for c in code_cells(book) for text in shown_by(c))
    assert "P@7" in told and "hit@7" in told
    assert not re.search(r"@5\b|_at_5", told)


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
    read = read[~read["dataset"].str.endswith("average")]
    assert set(read.groupby(["dataset", "answerer", "method"]).groups) == asked
    assert table.loc[table["metric"] == "accuracy", "value"].notna().all()


def classes_drawn(table: pd.DataFrame) -> dict[float, list[str]]:
    """What the passages of the first picture's lists are, by lambda."""
    passages = table[table["part"] == "passage"]
    return {lam: rows["class"].tolist() for lam, rows in passages.groupby("lambda")}


def test_the_first_exercise_shows_what_it_says(tmp_path):
    """``lam`` is changed in a copy, as the exercise says; the picture changes as it says."""
    book = nbformat.read(paths.ROOT / "notebooks" / "00_start_here.ipynb", 4)
    exercise = r"Set `lam = (\S+)` above .* none of the five passages is right .* at (\S+) two were"
    lam, usual = map(float, re.search(exercise, book.cells[-1].source).groups())
    (parameters,) = [c for c in book.cells if "parameters" in tags_of(c)]
    assert f"lam = {usual:g} " in parameters.source
    parameters.source = parameters.source.replace(f"lam = {usual:g}", f"lam = {lam:g}")
    (drawn,) = [i for i, c in enumerate(book.cells) if "plot_worked(" in c.source]
    script = "\n".join(c.source for c in book.cells[: drawn + 1] if c.cell_type == "code")
    subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"CHR_OUT": str(tmp_path), "PYTHONPATH": str(paths.ROOT)},
        cwd=paths.ROOT / "notebooks",
        check=True,
    )
    figures = tmp_path / "figures", paths.ROOT / "figures"
    tables = [pd.read_csv(folder / "mini" / "00_overview.csv") for folder in figures]
    after, before = (classes_drawn(table) for table in tables)
    assert before[usual].count("right") == 2 and "both" not in before[usual]
    assert after[lam] and not {"right", "both"} & set(after[lam])
    assert before[1.0] == after[1.0] and not {"right", "both"} & set(after[1.0])


def test_the_question_that_contrast_helps_goes_as_it_is_told():
    """What the prose of 00 says of its bundled question is what the table above it shows."""
    cells = BOOKS["00_start_here"].cells
    (shown,) = [i for i, c in enumerate(cells) if "views.top_table(" in c.source]
    (output,) = cells[shown].outputs
    rows = re.findall(r"^\s+([\d.]+)\s+\d\s+(\w+)", output.data["text/plain"], re.M)
    classes = {lam: [name for at, name in rows if float(at) == lam] for lam in (0.0, 0.4, 1.0)}
    on_target = {lam: sum(x in ("target", "both") for x in own) for lam, own in classes.items()}
    assert on_target == {0.0: 4, 0.4: 5, 1.0: 4}
    assert [classes[lam].count("mimic") for lam in (0.0, 0.4)] == [1, 0]
    told = cells[shown + 1].source
    assert "At λ = 0 this is H+ alone: one of its five passages is on the mimic" in told
    assert "all five are on the target. At λ = 1 four still are" in told


def test_a_changed_result_fails_the_notebook_check(tmp_path):
    """One number of one committed result is altered: nbval must see it."""
    copy = tmp_path / "project"
    for file in committed("lib", "data", "docs", "notebooks"):
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


def test_what_notebooks_search_on_mini_is_embedded_before_they_run(monkeypatch):
    """A notebook that embeds shows a bar or not by what is cached: its outputs would change."""
    embedded = []

    def noted(items, encoder, *_, **__):
        embedded.append((encoder.fingerprint, len(items)))
        return [np.zeros((len(items), encoder.dim), np.float32)]

    monkeypatch.setattr(index_build, "encode_cached", noted)
    notebooks.prepare("mini", {})
    beforehand = set(embedded)
    embedded.clear()
    slhyde.before_and_after("medqa-22", load_profile("mini"))
    assert len(set(embedded)) == 2 and set(embedded) <= beforehand
