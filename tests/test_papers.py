"""What of each paper is here: nothing is missing, and nothing is said to be here that is not."""

from __future__ import annotations

import csv
import re

import nbformat
import pandas as pd
import pytest

from lib.base import paths
from lib.base.files import read_manifest
from lib.pages.render import papers

ITEMS = [
    item._replace(where=tuple(place for place in item.where.split("; ") if place))
    for item in papers().itertuples(index=False)
]
BY_NAME = {(item.paper, item.item): item for item in ITEMS}
MEASURED, RETRIEVAL, REHEARSED, NOT_RUN = "measured", "retrieval only", "rehearsed", "NOT RUN"

ENDS = {
    "CHR": {"Table": 5, "Figure": 5},
    "RAG²": {"Table": 4, "Table A": 2, "Figure": 4, "Figure A": 3},
    "HyDE lesson": {"Program": 2, "Claim": 7},
    "SL-HyDE": {"Table": 16, "Figure": 5, "Algorithm": 1},
    "Contradiction study": {"Table": 4, "Figure": 2, "Algorithm": 2},
}
"""The last number of each kind of caption, read in the papers."""
UNNUMBERED = {("RAG²", "Prompt, 3.3"), ("CHR", "Future work")}

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


@pytest.mark.parametrize("paper", ENDS)
def test_the_items_of_a_paper_are_all_its_numbers(paper):
    wanted = {
        f"{kind}{'' if kind.endswith(' A') else ' '}{number}"
        for kind, last in ENDS[paper].items()
        for number in range(1, last + 1)
    }
    wanted |= {item for name, item in UNNUMBERED if name == paper}
    assert {item.item for item in ITEMS if item.paper == paper} == wanted


# nothing is said to be that is not ----------------------------------------------------------------


def place_of(where: str):
    """The file of a place: a test, a result ("open/table1"), or else a notebook by its name."""
    folder, _, name = where.partition("/")
    if folder == "tests":
        return paths.ROOT / where
    if folder in ("open", "mini"):
        plain = paths.DATA / "results" / folder / f"{name}.csv"
        return plain if plain.exists() else plain.with_suffix(".csv.xz")
    return paths.ROOT / "notebooks" / f"{where}.ipynb"


def test_every_item_stands_once_with_a_status_and_places_that_are_there():
    assert len(BY_NAME) == len(ITEMS)
    for item in ITEMS:
        assert item.paper in ENDS and item.what, item
        assert item.status in (MEASURED, RETRIEVAL, REHEARSED, NOT_RUN), item
        assert all(place_of(where).is_file() for where in item.where), item
        assert bool(item.where) == (item.status != NOT_RUN) and item.note, item
        assert item.command, item


def test_every_command_starts_something_that_is_there():
    """A target of the Makefile, a module with such options, or a reason why there is none."""
    made = re.findall(r"^([\w-]+):", (paths.ROOT / "Makefile").read_text(), re.MULTILINE)
    shipped = {path.stem for path in (paths.ROOT / "lib" / "profiles").glob("*.toml")}
    for command in {item.command for item in ITEMS}:
        first, _, rest = command.partition(" ")
        if first == "make":
            (profile,) = re.findall(r"PROFILE=(\S+)", rest)
            assert rest.split()[0] in made and (profile in shipped or profile.endswith(".toml"))
        elif rest.startswith("-m "):
            module = paths.ROOT / f"{rest.split()[1].replace('.', '/')}.py"
            text = module.read_text(encoding="utf-8")
            assert all(f'"{option}"' in text for option in re.findall(r"(?<= )--[a-z]+", rest))
        elif rest.startswith("-c "):
            compile(rest.removeprefix("-c ").strip('"'), command, "exec")
        else:
            assert first == "none:" and rest


def test_what_is_measured_has_numbers_of_profile_open():
    """Every result it names is whole and of profile open, and some value in it was run."""
    for item in (item for item in ITEMS if item.status in (MEASURED, RETRIEVAL)):
        results = [where for where in item.where if where.startswith(("open/", "mini/"))]
        assert results and all(where.startswith("open/") for where in results), item
        for path in map(place_of, results):
            manifest = read_manifest(path)
            assert manifest is not None and manifest["rows"] > 0, path
            table = pd.read_csv(path)
            if "verdict" in table:
                table = table[table["verdict"] != NOT_RUN]
            assert table.select_dtypes("number").notna().any(axis=None), path


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
        assert item.status != NOT_RUN, item
        assert notebook in item.where, item
