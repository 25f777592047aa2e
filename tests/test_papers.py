"""What of each paper is here: nothing is missing, and nothing is said to be here that is not."""

from __future__ import annotations

import csv
import re

import nbformat
import pandas as pd
import pytest

from lib.base import paths
from lib.base.files import read_manifest
from lib.pages import papers

ITEMS = papers.read_items()
BY_NAME = {(item.paper, item.item): item for item in ITEMS}

ENDS = {
    "CHR": {"Table": 5, "Figure": 5},
    "RAG²": {"Table": 4, "Table A": 2, "Figure": 4, "Figure A": 3},
    "HyDE lesson": {"Program": 2, "Claim": 7},
    "SL-HyDE": {"Table": 16, "Figure": 5, "Algorithm": 1},
    "Contradiction study": {"Table": 4, "Figure": 2, "Algorithm": 2},
}
"""The last number of each kind of caption, read in the papers."""
UNNUMBERED = {("RAG²", "Prompt, 3.3")}

NAMES = {"chr": "CHR", "rag2": "RAG²", "sl-hyde": "SL-HyDE", "slhyde": "SL-HyDE"}
NAMES |= {"contradiction": "Contradiction study", "contra": "Contradiction study"}
POSSESSIVE = {
    "the paper's": "CHR",
    "RAG²'s": "RAG²",
    "the lesson's": "HyDE lesson",
    "SL-HyDE's": "SL-HyDE",
    "the contradiction study's": "Contradiction study",
}
"""How the first cell of a notebook names the paper whose tables it makes."""

NUMBER = r"A?\d+"
CAPTIONS = re.compile(
    rf"\b(Table|Figure|Algorithm)s? ({NUMBER}(?:(?:, and |, | and | to ){NUMBER})*)(?![\w.])"
)


def captions_in(text: str) -> set[str]:
    """Every caption that a text names: "Tables 1, 3 to 5 and A2" are five of them."""
    found = set()
    for kind, numbers in CAPTIONS.findall(text):
        for part in re.split(r", and |, | and ", numbers):
            first, _, last = part.partition(" to ")
            letter = "A" if first.startswith("A") else ""
            low = int(first.lstrip("A"))
            high = int((last or first).lstrip("A"))
            found |= {f"{kind} {letter}{number}" for number in range(low, high + 1)}
    return found


def test_captions_are_read_in_all_their_forms():
    assert captions_in("Tables 1, 3 to 5 and A2, section 4.2") == {
        *("Table 1", "Table 3", "Table 4", "Table 5", "Table A2"),
    }
    assert captions_in("Figures A1 to A3; Table 12") == {
        *("Figure A1", "Figure A2", "Figure A3", "Table 12"),
    }
    assert captions_in("Algorithm 1, and tables of section 2") == {"Algorithm 1"}


# nothing is missing -------------------------------------------------------------------------------


def named_in_reported() -> set[tuple[str, str]]:
    """(paper, caption) of everything that the files of printed numbers are from."""
    found = set()
    for path in sorted(paths.REPORTED.glob("*.csv")):
        with open(path, encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                told = row.get("table") or row["where"]
                first = row.get("paper") or re.split(r"[ .]", row.get("table") or row["id"])[0]
                if first.lower() in NAMES:
                    found |= {(NAMES[first.lower()], caption) for caption in captions_in(told)}
    return found


def test_every_caption_that_printed_numbers_are_from_stands_in_the_list():
    named = named_in_reported()
    assert len(named) > 25 and ("RAG²", "Table A2") in named and ("SL-HyDE", "Figure 5") in named
    assert named - set(BY_NAME) == set()


@pytest.mark.parametrize("paper", papers.PAPERS)
def test_the_items_of_a_paper_are_all_its_numbers(paper):
    wanted = {
        f"{kind}{'' if kind.endswith(' A') else ' '}{number}"
        for kind, last in ENDS[paper].items()
        for number in range(1, last + 1)
    }
    wanted |= {item for name, item in UNNUMBERED if name == paper}
    assert {item.item for item in ITEMS if item.paper == paper} == wanted


def test_no_item_stands_twice_and_cells_are_short():
    assert len(BY_NAME) == len(ITEMS)
    for item in ITEMS:
        assert 1 <= len(item.what.split()) <= 12, item
        assert 1 <= len(item.note.split()) <= 15, item


# nothing is said to be that is not ----------------------------------------------------------------


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item.paper} {item.item}")
def test_every_place_of_an_item_is_there(item):
    for where in item.where:
        assert papers.place_of(where).is_file()
    assert len(set(item.where)) == len(item.where)


MEASURED = [item for item in ITEMS if item.status in (papers.MEASURED, papers.RETRIEVAL)]


@pytest.mark.parametrize("item", MEASURED, ids=lambda item: f"{item.paper} {item.item}")
def test_what_is_measured_has_numbers_of_profile_open(item):
    """Every result it names is whole and of profile open, and some value in it was run."""
    results = [where for where in item.where if where.startswith(("open/", "mini/"))]
    assert all(where.startswith("open/") for where in results), "bundled texts measure nothing"
    for where in results:
        path = papers.place_of(where)
        manifest = read_manifest(path)
        assert manifest is not None and manifest["rows"] > 0, where
        table = pd.read_csv(path)
        if "verdict" in table:
            table = table[table["verdict"] != "NOT RUN"]
        assert table.select_dtypes("number").notna().any(axis=None), where


def first_cells() -> dict[str, str]:
    """The first cell of every notebook, by the notebook's name."""
    return {
        path.stem: nbformat.read(path, 4).cells[0].source
        for path in sorted((paths.ROOT / "notebooks").glob("[0-9]*.ipynb"))
    }


def said_to_be_made() -> list[tuple[str, str, str]]:
    """(notebook, paper, caption) of all that a notebook says it reproduces."""
    found = []
    for notebook, text in first_cells().items():
        for whose, rest in re.findall(r"[Rr]eproduces ([^.]*?'s) ([^.*]*)", text):
            if whose in POSSESSIVE:  # else it reproduces something behind a table
                captions = sorted(captions_in(rest))
                found += [(notebook, POSSESSIVE[whose], caption) for caption in captions]
    return found


def test_what_a_notebook_says_it_reproduces_is_not_listed_as_not_run_and_names_it():
    said = said_to_be_made()
    assert ("04_accuracy_grid", "CHR", "Table 1") in said
    assert ("09_contradictions", "Contradiction study", "Figure 2") in said
    for notebook, paper, caption in said:
        item = BY_NAME[paper, caption]
        assert item.status != papers.NOT_RUN, item
        assert notebook in item.where, item


def test_what_nobody_answered_is_said_to_be_made_in_retrieval_only():
    """An accuracy of language models is not reproduced where none was asked."""
    named = 0
    for notebook, text in first_cells().items():
        for whose, rest in re.findall(r"[Rr]eproduces ([^.]*?'s) ([^.*]*)", text):
            # "Tables 1 and 2 in retrieval only, and Table 3": each caption with what follows it.
            for part in re.split(r"(?<=in retrieval only), and ", rest):
                for caption in captions_in(part):
                    item = BY_NAME.get((POSSESSIVE.get(whose), caption))
                    if item is not None and notebook in item.where:
                        only = item.status == papers.RETRIEVAL
                        assert part.endswith("in retrieval only") == only, (notebook, caption)
                        named += only
    assert named >= 9


@pytest.mark.parametrize("paper, prefix", papers.PREFIXES.items())
def test_where_results_of_a_paper_are_there_some_item_names_them(paper, prefix):
    """A list that was not brought up to date after a study was measured fails here."""
    folder = paths.committed("open")
    there = [path for path in folder.glob(f"{prefix}*.csv*") if "manifest" not in path.name]
    named = [
        where
        for item in ITEMS
        for where in item.where
        if item.paper == paper and where.startswith(f"open/{prefix}")
    ]
    told = f"{len(there)} results {prefix}*, the list names {len(named)}"
    assert bool(there) == bool(named), f"{told}: bring data/papers.csv up to date"


# the page is the list -----------------------------------------------------------------------------


@pytest.fixture
def another_list(tmp_path, monkeypatch):
    """Write another list and let the page be made from it."""

    def write(*rows: tuple[str, ...]) -> None:
        path = tmp_path / "papers.csv"
        with open(path, "w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([papers.COLUMNS, *rows])
        monkeypatch.setattr(papers, "FILE", path)

    return write


ROW = ("CHR", "Table 1", "accuracy", "measured", "04_accuracy_grid; open/table1", "a sample")


def test_counts_and_rows_come_from_the_list(another_list):
    not_run = ("RAG²", "Table 2", "more accuracy", "NOT RUN", "", "needs | more")
    another_list(ROW, not_run, ("RAG²", "Table 3", "less", "rehearsed", "mini/table1", "bundled"))
    found = papers.papers_found().splitlines()
    assert found[0].startswith("**Of 3 tables, figures, procedures and claims of 5 papers 1 are")
    assert " of 0 more, which" in found[0] and "1 are rehearsed, and 1 are NOT RUN.**" in found[0]
    assert "| RAG² | 0 | 0 | 1 | 1 | 2 |" in found and found[-1] == "| all | 1 | 0 | 1 | 1 | 3 |"
    shown = papers.papers()
    assert (
        "| **Table 1**: accuracy | measured: [04](../notebooks/04_accuracy_grid.ipynb), "
        "[table1](../data/results/open/table1.csv) | a sample |" in shown
    )
    assert "| **Table 2**: more accuracy | NOT RUN | needs \\| more |" in shown
    assert "rehearsed: [mini/table1](../data/results/mini/table1.csv)" in shown


def test_the_committed_page_opens_with_its_counts():
    text = (paths.ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert text.index("<!-- begin: papers_found -->") < 60
    assert papers.papers_found() in text and papers.papers() in text
    assert sum(papers.counts(ITEMS).values()) == len(ITEMS)
    for item in ITEMS:
        assert f"| **{item.item}**: {item.what} |" in text


BROKEN = {
    "no such paper": (0, "HyDE", "no paper 'HyDE'"),
    "no such status": (3, "being measured", "no status 'being measured'"),
    "measured without a result": (4, "04_accuracy_grid; mini/table1", "without a result"),
    "retrieval without a result": ((3, 4), ("retrieval only", "04_accuracy_grid"), "without a res"),
    "rehearsed nowhere": ((3, 4), ("rehearsed", ""), "not said where"),
    "not run, but somewhere": (3, "NOT RUN", "names what it needs, and no place"),
    "not run, for no reason": ((3, 4, 5), ("NOT RUN", "", ""), "names what it needs"),
}


@pytest.mark.parametrize("column, value, told", BROKEN.values(), ids=BROKEN)
def test_a_row_that_cannot_be_is_refused_with_its_line(column, value, told, another_list):
    row = list(ROW)
    columns = column if isinstance(column, tuple) else (column,)
    values = value if isinstance(value, tuple) else (value,)
    for at, new in zip(columns, values, strict=True):
        row[at] = new
    another_list(ROW, tuple(row))
    with pytest.raises(ValueError, match=rf"papers\.csv, line 3: .*{told}"):
        papers.read_items()


def test_a_place_that_is_not_there_is_named():
    for where in ("open/table99", "10_nothing", "tests/test_nothing.py"):
        with pytest.raises(FileNotFoundError, match=f"papers.csv names {where}"):
            papers.place_of(where)
