"""Blocks of docs/papers.md: what of each paper is here, from the list in data/papers.csv.

A row of the list is a table, a figure, an algorithm, or another procedure or claim of one paper.
What the pages say of it, counts among it, comes from the list alone.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lib.base import paths
from lib.pages.committed import markdown

FILE = paths.DATA / "papers.csv"
COLUMNS = ("paper", "item", "what", "status", "where", "note")
"""Of the list; ``where`` holds its places with "; " between them."""

MEASURED, RETRIEVAL, REHEARSED, NOT_RUN = "measured", "retrieval only", "rehearsed", "NOT RUN"
STATUSES = (MEASURED, RETRIEVAL, REHEARSED, NOT_RUN)
"""A number of it stands in a result of profile ``open``; the same, but the paper prints answers of
language models there, and none answered here; its code was run, but on bundled texts, stand-ins or
hand-made records alone; nothing of it was run."""

PAPERS = {
    "CHR": "Ruling Out to Rule In: Contrastive Hypothesis Retrieval",
    "RAG²": "Rationale-Guided Retrieval Augmented Generation",
    "HyDE lesson": "Hypothetical Document Embeddings, a lesson of a course",
    "SL-HyDE": "AutoMIR: self-learning HyDE, and the benchmark CMIRB",
    "Contradiction study": "When Evidence Contradicts",
}
"""The papers by their short names, in the order of the page, with what they are about."""

PREFIXES = {
    "RAG²": "rag2_",
    "HyDE lesson": "hyde_lesson_",
    "SL-HyDE": "slhyde_",
    "Contradiction study": "contradiction_",
}
"""What the results of a paper begin with; those of CHR have no such word."""

_ROOT = paths.ROOT
_RESULTS = paths.DATA / "results"
_PROFILES = ("open", "mini")


@dataclass(frozen=True)
class Item:
    """One row of the list.

    ``paper`` is a name of ``PAPERS``, ``item`` its name there ("Table 1", "Algorithm 1"), ``what``
    what it shows, ``status`` one of ``STATUSES``. ``where`` are places as ``place_of`` reads them,
    none where it was not run; ``note`` says what differs, or what it needs.
    """

    paper: str
    item: str
    what: str
    status: str
    where: tuple[str, ...]
    note: str


def read_items() -> tuple[Item, ...]:
    """The list, in its order; ValueError, with the line, for a row that cannot be one."""
    with open(FILE, encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{FILE.name}: its columns must be {', '.join(COLUMNS)}")
        return tuple(_item(row, f"{FILE.name}, line {reader.line_num}") for row in reader)


def _item(row: dict[str, str], line: str) -> Item:
    where = tuple(place for place in row["where"].split("; ") if place)
    item = Item(row["paper"], row["item"], row["what"], row["status"], where, row["note"])
    if item.paper not in PAPERS:
        raise ValueError(f"{line}: no paper {item.paper!r}; there are: {', '.join(PAPERS)}")
    if item.status not in STATUSES:
        raise ValueError(f"{line}: no status {item.status!r}; there are: {', '.join(STATUSES)}")
    on_open = any(place.startswith("open/") for place in where)
    if item.status in (MEASURED, RETRIEVAL) and not on_open:
        raise ValueError(f"{line}: {item.status}, but without a result of profile open")
    if item.status == REHEARSED and not where:
        raise ValueError(f"{line}: rehearsed, but it is not said where")
    if item.status == NOT_RUN and (where or not item.note):
        raise ValueError(f"{line}: NOT RUN names what it needs, and no place")
    return item


def place_of(where: str) -> Path:
    """The file of a place: a test, a result ("open/table1"), or else a notebook by its name.

    Raises FileNotFoundError, naming the list, where there is none.
    """
    folder, _, name = where.partition("/")
    if folder == "tests":
        found = [_ROOT / where]
    elif folder in _PROFILES:
        plain = _RESULTS / folder / f"{name}.csv"
        found = [plain, plain.with_suffix(".csv.xz")]
    else:
        found = [_ROOT / "notebooks" / f"{where}.ipynb"]
    for path in found:
        if path.exists():
            return path
    raise FileNotFoundError(f"{FILE.name} names {where}, and there is no such file")


def linked(where: str, paper: str) -> str:
    """A place as a short link from docs/: a notebook by its number, a result by its name.

    What every result of the paper begins with is left out of the name.
    """
    address = place_of(where).relative_to(_ROOT).as_posix()
    folder, _, name = where.partition("/")
    short = name.removesuffix(".py").removeprefix(PREFIXES.get(paper, ""))
    if folder == "mini":
        short = f"mini/{short}"
    return f"[{short or where[:2]}](../{address})"


def counts(items: Iterable[Item]) -> dict[str, int]:
    """How many items have each status, in the order of ``STATUSES``."""
    found = dict.fromkeys(STATUSES, 0)
    for item in items:
        found[item.status] += 1
    return found


def papers_found() -> str:
    """One sentence: how many have which status; then the same by paper."""
    items = read_items()
    of_all = counts(items)
    rows = []
    for name in PAPERS:
        own = [item for item in items if item.paper == name]
        rows.append((name, *counts(own).values(), len(own)))
    rows.append(("all", *of_all.values(), len(items)))
    table = markdown(("paper", *STATUSES, "in all"), rows)
    return (
        f"**Of {len(items)} tables, figures, procedures and claims of {len(PAPERS)} papers "
        f"{of_all[MEASURED]} are measured here on real open data; of {of_all[RETRIEVAL]} more, "
        f"which print answers of language models, the retrieval is measured and nobody answered; "
        f"{of_all[REHEARSED]} are rehearsed, and {of_all[NOT_RUN]} are NOT RUN.**\n\n{table}"
    )


def papers() -> str:
    """One table a paper: its items with their status, where they are, and what differs."""
    items = read_items()
    parts = []
    for name, title in PAPERS.items():
        rows = [_row(item) for item in items if item.paper == name]
        head = ("item", "status, and where", "what differs, or what it needs")
        parts.append(f"## {name}\n\n*{title}*\n\n{markdown(head, rows)}")
    return "\n\n".join(parts)


def _row(item: Item) -> tuple[str, str, str]:
    places = [linked(place, item.paper) for place in item.where]
    status = f"{item.status}: {', '.join(places)}" if places else item.status
    return f"**{item.item}**: {item.what}", status, item.note
