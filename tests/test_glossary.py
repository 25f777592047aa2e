"""The glossary explains words that a reader meets, each once, where an eye looks for it."""

from __future__ import annotations

import re
from html import unescape

import nbformat

from lib.base import paths

GLOSSARY = paths.ROOT / "docs" / "glossary.md"
ENTRY = re.compile(r"^- \*\*(.+?)\*\*: (.+?)(?=^- |^$)", re.MULTILINE | re.DOTALL)


def entries() -> list[tuple[str, str]]:
    """Every term of the glossary with what it says of it, in the order of the page."""
    return ENTRY.findall(GLOSSARY.read_text(encoding="utf-8"))


TERMS = [term for term, _ in entries()]


def read_elsewhere() -> str:
    """What a reader meets elsewhere: README, docs/, the prose and output of notebooks."""
    pages = [paths.ROOT / "README.md", *(paths.ROOT / "docs").glob("*.md")]
    found = [page.read_text(encoding="utf-8") for page in pages if page != GLOSSARY]
    for path in (paths.ROOT / "notebooks").glob("*.ipynb"):
        for cell in nbformat.read(path, 4).cells:
            found += [cell.source] if cell.cell_type == "markdown" else shown_by(cell)
    return " ".join(" ".join(found).replace("*", "").split())


def shown_by(cell) -> list[str]:
    """The text that a code cell shows."""
    data = [output.get("data", {}) for output in cell.get("outputs", [])]
    kinds = ("text/markdown", "text/plain", "text/html")
    found = [one[kind] for one in data for kind in kinds if kind in one]
    return [unescape(re.sub(r"<[^>]+>", " ", text)) for text in found]


def is_used(term: str, text: str) -> bool:
    """Whether a text has the term as whole words; one in capitals is a verdict, only so written."""
    case = 0 if term.isupper() else re.IGNORECASE
    return re.search(rf"(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w-])", text, case) is not None


def test_every_term_is_met_outside_the_glossary():
    text = read_elsewhere()
    assert not [term for term in TERMS if not is_used(term, text)], "nobody meets these words"


FIRST = "P@5 HyDE Query2Doc CSQE ThinkQE exploratory requests dev support judge arm Holm masked"
"""What the first pages say before they explain it."""


def test_what_the_first_pages_say_early_is_explained():
    assert not {*FIRST.split(), "H+ alone", "matched rotation"} - {*TERMS}


def test_terms_are_unique_and_in_the_order_of_the_alphabet():
    """λ stands where lambda would."""
    sorted_by = [term.casefold().replace("λ", "lambda") for term in TERMS]
    assert len(TERMS) > 50
    assert len(set(sorted_by)) == len(sorted_by)
    assert sorted_by == sorted(sorted_by)
