"""The site: all that is there is in it, its links lead somewhere, its search finds prose.

Tests marked ``site`` read what ``make site`` has built.
"""

from __future__ import annotations

import json
import posixpath
import re
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

import lib
from lib.base import paths
from lib.notebooks import HIDDEN, NOTEBOOKS
from lib.pages.render import reading_order
from tools import build_site
from tools.build_site import Assembly, sources

BUILT = build_site.BUILD / "site"


@pytest.fixture(scope="module")
def site() -> Assembly:
    return Assembly()


# put together -------------------------------------------------------------------------------------


def test_every_notebook_and_page_is_in_the_navigation_once(site):
    shown = [name for _, names in site.sections() for name in names]
    assert len(shown) == len({*shown}) and {*shown} == {*site.pages} - {"index.md"}
    assert {*sources()} <= {*shown} and len(sources()) > 25
    for name in shown:
        place = posixpath.splitext(name)[0]
        assert site.pages["index.md"].count(f"\n{place}\n") == 1, name


def test_a_new_notebook_is_shown_last_in_part_ii():
    site = Assembly()
    site.pages["notebooks/99_new.ipynb"] = ""
    sections = dict(site.sections())
    assert sections["Part II: the reproduction"][-1] == "notebooks/99_new.ipynb"
    assert sections["Part I: half an hour"][0] == "notebooks/00_start_here.ipynb"


def test_all_of_the_readme_is_on_the_site(site):
    """Its story on the first page, the rest on the page that site.toml makes of it."""
    titles = re.findall(r"^## .+", (paths.ROOT / "README.md").read_text(), re.M)
    story, start = site.pages["index.md"], site.pages["start.md"]
    assert story.startswith("# ") and start.startswith("# Run it\n")
    for title in titles:
        assert (f"{title}\n" in story) != (f"{title}\n" in start), title
    assert f"## {site.plan['start']['sections'][0]}\n" in start


def test_a_section_or_page_that_is_not_there_is_named():
    site = Assembly()
    site.plan["start"]["sections"].append("No such section")
    with pytest.raises(ValueError, match="No such section"):
        site._readme()
    site.plan["section"][0]["pages"].append("docs/nothing.md")
    with pytest.raises(ValueError, match=r"docs/nothing\.md"):
        site.sections()


LINKS = {
    "[a](../README.md)": "[a](../index.md)",
    "[a](../docs/explorer.html)": "[a](../explorer.md)",
    "[`a`](../docs/explorer.html#lam=1)": '<a href="explorer.html#lam=1">`a`</a>',
    "[a](../notebooks)": "[a](../index.md)",
    "[a](../data/results)": "[a](../data/results/README.md)",
    "[a](results.md#the-declared-tests)": "[a](results.md#the-declared-tests)",
    "[a](../data/looks.csv)": "[a](../data/looks.csv)",
    '<img src="../figures/mini/00_story.png">': '<img src="../figures/mini/00_story.png">',
    "[a](https://example.org/README.md) [b](#c) [d](no.md)": None,
}


def test_a_link_leads_to_the_place_in_the_site_and_its_file_is_taken_along():
    site = Assembly()
    site.files.clear()
    whole = {*site.whole}
    for text, wanted in LINKS.items():
        assert site._linked(text, "docs/page.md") == (wanted or text)
    assert site.files == {"data/looks.csv", "figures/mini/00_story.png"}
    assert site.whole == whole and "data/results/README.md" in site.pages


def test_a_whole_page_is_taken_with_its_pictures(monkeypatch, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "slides.html").write_text('<img src="../a.svg"> <img src="../no.svg">')
    (tmp_path / "a.svg").touch()
    site = Assembly()
    before = {*site.whole}
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert site._linked("[s](slides.html)", "docs/page.md") == '<a href="slides.html">s</a>'
    assert site.whole - before == {"docs/slides.html", "a.svg"}


def test_the_explorers_links_lead_to_files_and_on_the_site_to_pages(site):
    """In a frame of the site they open in its window. A copy for itself has the paper's address."""
    links = r'<a href="([^"#]+)" target="_top">'
    ours = re.findall(links, (paths.ROOT / "docs" / "explorer.html").read_text(encoding="utf-8"))
    own, paper = "../notebooks/14_your_own_question", "https://arxiv.org/abs/2604.04593"
    assert ours == ["../README.md", "glossary.md", f"{own}.ipynb", paper]
    assert all((paths.ROOT / "docs" / it).is_file() for it in ours if ":" not in it)
    theirs = re.findall(links, site.whole_page("docs/explorer.html"))
    assert theirs == ["../index.html", "glossary.html", f"{own}.html", paper]


def hidden(cell: dict) -> bool:
    return cell["metadata"].get("jupyter", {}).get("source_hidden", False)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_code_that_is_hidden_in_jupyterlab_is_hidden_in_a_book(name, site):
    committed = nbformat.read(paths.ROOT / "notebooks" / f"{name}.ipynb", 4)
    shown = nbformat.reads(site.pages[f"notebooks/{name}.ipynb"], 4)
    for book in (committed, shown):
        for cell in book.cells:
            both = hidden(cell) == (HIDDEN in cell["metadata"].get("tags", []))
            assert both, f"run: make notebooks. One mark of two: {cell.source}"
    code = [[c.source for c in b.cells if c.cell_type == "code"] for b in (committed, shown)]
    assert code[0] == code[1]


def test_the_reference_has_every_name_of_the_facade():
    text = (build_site.SITE / "reference.md").read_text()
    named = re.findall(r"^\.\. auto\w+:: lib\.(\w+)$", text, re.M)
    assert {*lib._MODULE_OF} <= {*named}


# built --------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page of the site links to and loads, its ids, and how much code is folded in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = {""}
        self.folded = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon"):
            self.loads.append(given["href"])
        elif given.get("src"):
            self.loads.append(given["src"])
        self.folded += tag == "details" and "hide" in (given.get("class") or "").split()


@cache
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def pages() -> list[Path]:
    found = [it for it in BUILT.rglob("*.html") if "_static" not in it.parts]
    assert len(found) > 30, "run: make site"
    return found


@pytest.mark.site
def test_every_page_is_built_and_every_link_leads_to_its_place(site):
    places = {it.relative_to(BUILT).with_suffix("").as_posix() for it in pages()}
    assert {posixpath.splitext(name)[0] for name in site.pages} <= places
    broken, followed = [], 0
    for path in pages():
        for link in [*page(path).links, *page(path).loads]:
            if re.match(r"[a-z]+:", link):
                continue
            place, _, anchor = unquote(link).partition("#")
            target = (path.parent / place.partition("?")[0]).resolve() if place else path
            there = target.is_file() and target.is_relative_to(BUILT)
            if there and target.suffix == ".html" and target.name != "explorer.html":
                there = anchor in page(target).ids
            if not there:
                broken.append(f"{path.relative_to(BUILT)}: {link}")
            followed += 1
    assert not broken and followed > 1000


@pytest.mark.site
def test_no_signature_of_the_reference_has_what_python_put_there():
    """A dataclass's default and a protocol's arguments; both once broke a signature in two."""
    shown = (BUILT / "reference.html").read_text(encoding="utf-8")
    text = unescape(re.sub(r"<[^>]+>", "", shown))
    assert "class lib.methods.base.Method" in text and "class lib.methods.base.Expansion" in text
    assert not [odd for odd in ("<factory>", "~lib.", "**kwargs") if odd in text]


@pytest.mark.site
def test_a_page_loads_nothing_from_elsewhere_and_names_no_place_of_this_machine():
    for path in pages():
        far = [it for it in page(path).loads if re.match(r"(https?:)?//", it)]
        assert not far, f"{path.name} loads {far}"
    for path in (it for it in BUILT.rglob("*") if it.suffix in (".html", ".js", ".txt", ".inv")):
        text = path.read_bytes()
        for place in (paths.ROOT, Path.home()):
            assert f"{place}/".encode() not in text, path


@pytest.mark.site
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_hidden_code_is_folded_on_its_page(name):
    book = nbformat.read(paths.ROOT / "notebooks" / f"{name}.ipynb", 4)
    built = page(BUILT / "notebooks" / f"{name}.html")
    assert built.folded == sum(map(hidden, book.cells))


@cache
def index() -> dict:
    text = (BUILT / "searchindex.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))


def places_of(terms: list[str]) -> set[str]:
    """The pages on which the search finds one of the terms, which are stems of words."""
    found: set[int] = set()
    for term in terms:
        for kind in ("terms", "titleterms"):
            at = index()[kind].get(term, [])
            found |= {at} if isinstance(at, int) else {*at}
    return {index()["docnames"][at] for at in found}


def found_by(word: str) -> set[str]:
    """The pages that a word finds: its stem is how it begins, with i for a last y."""
    starts = [word[:end] for end in range(max(3, len(word) - 5), len(word) + 1)]
    return places_of([*starts, *(f"{start[:-1]}i" for start in starts if start[-1] == "y")])


IN_A_CELL = re.compile(r"[a-z]{5,}|\d{3,}")
"""A word or a number; Sphinx itself leaves out numbers."""


@pytest.mark.site
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_search_finds_prose_and_no_cell_of_a_table(name):
    from sphinx.search.en import SearchEnglish

    book = nbformat.read(paths.ROOT / "notebooks" / f"{name}.ipynb", 4)
    place = f"notebooks/{name}"
    prose = "\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    sentence = re.search(r"^\*\*(.+?)\*\*", book.cells[0].source, re.M)[1]
    asked = set(re.findall(r"\b[a-z]{6,}\b", sentence)) - SearchEnglish.stopwords
    assert asked and not [word for word in asked if place not in found_by(word)]
    shown = [data for cell in book.cells for data in map(outputs_of, cell.get("outputs", []))]
    cells = " ".join(re.findall(r"<td[^>]*>(.*?)</td>", "".join(html for html, _ in shown), re.S))
    said = "\n".join([prose, *(text for _, text in shown)]).lower()
    only_there = {word for word in IN_A_CELL.findall(cells.lower()) if word[:3] not in said}
    assert not [word for word in only_there if place in found_by(word)]


def outputs_of(output: dict) -> tuple[str, str]:
    """What an output shows as HTML, and as prose: Markdown, and HTML without a table."""
    data = output.get("data", {})
    html, text = data.get("text/html", ""), data.get("text/markdown", "")
    return html, text if "<table" in html else f"{text}{html}"


def test_part_one_is_the_readmes_and_its_list_has_every_notebook(site):
    order = reading_order()
    (shown,) = [names for title, names in site.sections() if title.startswith("Part I:")]
    assert [Path(name).stem for name in shown] == order.loc[
        order["part"] == "I", "notebook"
    ].tolist()
    assert set(order["notebook"]) == set(NOTEBOOKS)
