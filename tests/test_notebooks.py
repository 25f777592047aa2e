"""The notebooks as a reader has them: executed, in order, current, moved by their parameters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape

import nbformat
import pandas as pd
import pytest

from lib import index_build, notebooks
from lib.base import paths
from lib.base.files import read_manifest
from lib.base.provenance import differences
from lib.pages.readable import NAMES
from lib.profiles import load_profile
from lib.studies.slhyde import study as slhyde

BOOKS = {n: nbformat.read(paths.ROOT / "notebooks" / f"{n}.ipynb", 4) for n in notebooks.NOTEBOOKS}
CHECKED = "nbval-check-output"
"""The tag by which nbval compares what a cell shows."""


def code_cells(book):
    return [c for c in book.cells if c.cell_type == "code"]


def code_of(cell) -> str:
    """The code of a cell, without the text of a file that it writes."""
    return re.sub(r"'''.*?'''", "''", cell.source, flags=re.S)


def tags_of(cell) -> list[str]:
    return cell.metadata.get("tags", [])


@pytest.mark.parametrize("name", BOOKS)
def test_a_notebook_is_executed_in_order_short_and_clean(name):
    cells = code_cells(BOOKS[name])
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        lines = [line for line in code_of(cell).splitlines() if line.strip()]
        # A parameter may be a text, over several lines.
        assert len(lines) <= (25 if "parameters" in tags_of(cell) else 12), cell.source
        assert max(map(len, cell.source.splitlines())) <= 100, cell.source
        assert len(cell.source.splitlines()) <= 32, "a screen"
        # Jupyter hides what is hidden by one word, the site by another.
        hidden = cell.metadata.get("jupyter", {}).get("source_hidden", False)
        assert hidden == ("hide-input" in tags_of(cell)), cell.source
        assert not re.search(r"^\s*(def|class) ", code_of(cell), re.M), cell.source
        assert not [o for o in cell.outputs if o.output_type == "error"]
    assert str(paths.ROOT) not in nbformat.writes(BOOKS[name])
    assert sum("parameters" in tags_of(c) for c in cells) == 1


FREE = (
    "machine()",
    "ledger(",
    "explore(",
    "counts",
    "dimensions",
    "p.title",
    'passages"',
    "print(p.",
)
"""What is of a machine or of costs, and compared with nothing."""


@pytest.mark.parametrize("name", BOOKS)
def test_every_table_a_reader_sees_is_checked(name):
    cells = code_cells(BOOKS[name])
    for cell in cells:
        shows = any("text/html" in o.get("data", {}) for o in cell.outputs)
        if shows and not any(free in cell.source for free in FREE):
            assert CHECKED in tags_of(cell), cell.source
    assert sum(CHECKED in tags_of(c) for c in cells) >= 2
    (cell,) = [c for c in cells if "parameters" in tags_of(c)]
    names = set(re.findall(r"^(\w+) = ", cell.source, re.M))
    assert {"profile", "limit"} <= names


def shown_by(cell) -> list[str]:
    """What a reader sees of a cell: prose, or all that its code has put out."""
    if cell.cell_type == "markdown":
        return [cell.source]
    said = []
    for output in cell.outputs:
        said.append(output.get("text", ""))
        said += [output.get("data", {}).get(f"text/{kind}", "") for kind in ("markdown", "html")]
    return [text for text in said if text]


@pytest.mark.parametrize("name", BOOKS)
def test_a_notebook_opens_with_its_finding_its_time_and_its_neighbours(name):
    text = BOOKS[name].cells[0].source
    assert re.match(r"# \S", text), "a title"
    assert re.search(r"^\*\*[A-Z].{20,}[.:?]\*\*", text, re.M) or "printed below" in text
    assert re.search(r"(second|minute)s?\b", text), "a time"
    at = notebooks.NOTEBOOKS.index(name)
    for other in notebooks.NOTEBOOKS[max(at - 1, 0) : at + 2]:
        assert other == name or f"]({other}.ipynb)" in text


NUMBER = re.compile(r"(?<![\w.])[-+−]?\d*\.\d+")
WITHOUT_FINDING = (
    "00_start_here",
    "14_your_own_question",
    "17_exercises",
    "18_your_own_method",
)
"""00 has its answer, the others the reader's own."""


def numbers_in(text: str) -> set[float]:
    """The decimal numbers of a text, without their signs, to two decimals."""
    return {round(abs(float(it.replace("−", "-"))), 2) for it in NUMBER.findall(text)}


def told(book) -> dict[int, str]:
    """By place: the cells whose bold sentence, written by hand, tells a number of a result."""
    bold = {i: re.findall(r"\*\*(.+?)\*\*", c.source, re.S) for i, c in enumerate(book.cells)}
    texts = {i: " ".join(bold[i]) for i, c in enumerate(book.cells) if c.cell_type == "markdown"}
    return {i: text for i, text in texts.items() if numbers_in(text)}


@pytest.mark.parametrize("name", BOOKS)
def test_the_finding_has_numbers_and_they_are_those_of_the_tables(name):
    """Made from results by a cell that is checked, or written by hand: then its numbers are shown
    in the notebook, or in a table that one of its figures is drawn from."""
    cells = BOOKS[name].cells
    drawn = paths.ROOT / "figures"
    tables = [file.read_text() for file in drawn.glob(f"*/{name[:2]}_*.csv")]
    shown = [text for c in code_cells(BOOKS[name]) for text in shown_by(c)]
    for text in told(BOOKS[name]).values():
        assert numbers_in(text) <= numbers_in("\n".join([*shown, *tables])), text
    made = [i for i, c in enumerate(cells) if re.search(r"\bfinding\(", c.source)]
    assert all(CHECKED in tags_of(cells[i]) for i in made[:1])
    if name not in WITHOUT_FINDING:
        first = min([*made, *told(BOOKS[name])])
        draws = [i for i, c in enumerate(cells) if "plots.save(" in c.source]
        assert re.search(r"\d", "".join(shown_by(cells[first]))) and first < min(draws, default=99)


MACHINE = {key for key, words in NAMES.items() if "_" in key and words != key}
MACHINE |= {"hplus", "chr", "rrf", "bm25", "csqe", "p_holm", "supports_correct", "p_at_5"}
"""What files call their columns and arms, and no reader should have to."""
ARM = re.compile(r"(chr|hplus|lexical|fused)(_\w+)?([+@]\S+)+|(slhyde|minilm)\b.*")


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


# a student's parameters ---------------------------------------------------------------------------

STAYS = {
    "lam=0.35": {
        *("02_cosines", "04_ddx_real", "04_table1", "08_fresh", "13_tests", "13_travel"),
        *("15_accuracy", "15_tests", "15_wrong"),
        *("09_conditions", "09_heatmap", "09_nli_quality", "09_periods", "09_timeline"),
    },
    "k=7": {
        *("00_lambda", "00_lines", "00_story", "02_cosines", "04_ddx_real", "04_table1"),
        *("08_figure5", "08_fresh", "08_geometry", "13_travel", "19_bioasq", "19_blind"),
        *("15_accuracy", "15_tests", "15_wrong"),
        *("09_heatmap", "09_nli_quality", "09_periods", "09_timeline"),
    },
}
"""The figures that a parameter of their notebook has no part in: cosines of texts, models of
contradiction, and what is drawn from committed real results. Every other one moves."""


@pytest.mark.students
@pytest.mark.parametrize("change", STAYS)
def test_a_student_who_changes_a_parameter_sees_the_figures_move_that_it_is_behind(
    change, tmp_path
):
    command = [sys.executable, "-m", "tests.student", str(tmp_path), change]
    run = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    name, value = change.split("=")
    # k is the profile's own: where it differs, results have a name of their own.
    profile = load_profile("mini", k=int(value)).name if name == "k" else "mini"
    made = {path.stem: pd.read_csv(path) for path in tmp_path.glob("figures/mini*/*.csv")}
    committed = {name: paths.ROOT / "figures" / "mini" / f"{name}.csv" for name in made}
    moved = {name for name in made if differences(pd.read_csv(committed[name]), made[name])}
    assert moved == made.keys() - STAYS[change]
    settings = read_manifest(tmp_path / "results" / profile / "table1.csv")["settings"]
    assert settings[name] == float(value)
    if name == "k":  # nothing is said of five
        shown = (tmp_path / "shown" / "03_run_methods.txt").read_text()
        assert "P@7" in shown and not re.search(r"@5\b|_at_5", shown)


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
    (shown,) = [i for i, c in enumerate(cells) if "top_table(" in c.source]
    html = cells[shown].outputs[-1].data["text/html"]
    rows = [
        re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", html, re.S)
    ]
    at = {lam: [row for row in rows if row and float(row[0]) == lam] for lam in (0.0, 0.4, 1.0)}
    classes = {lam: [name for _, _, name, _ in found] for lam, found in at.items()}
    assert [sorted(classes[lam]) for lam in (0.0, 0.4, 1.0)] == [
        ["both", "mimic", "target", "target", "target"],
        ["both", "target", "target", "target", "target"],
        ["neither", "target", "target", "target", "target"],
    ]
    told = cells[shown + 1].source
    assert "three of the five are on the target, one on both, one on the mimic" in told
    assert "four are on the target, one on both" in told
    assert "At λ = 1 four are on the target and one on neither" in told


def test_what_notebooks_search_on_mini_is_embedded_before_they_run(monkeypatch):
    """A notebook that embeds shows a bar or not by what is cached: its outputs would change."""
    opened = []
    of_plan = index_build._listed  # an index by the hash of its passages and its encoder

    def noted(plan):
        opened.append(plan.name)
        return of_plan(plan)

    monkeypatch.setattr(index_build, "_listed", noted)
    notebooks.prepare("mini", {})
    beforehand = set(opened)
    opened.clear()
    slhyde.before_and_after("medqa-22", load_profile("mini"))
    assert len(set(opened)) == 2 and set(opened) <= beforehand
