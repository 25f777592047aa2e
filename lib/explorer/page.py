"""``docs/explorer.html``: the explorer as one page that opens from the file system.

Numbers, texts, style and script stand in the page. Cosines are kept in steps of 1e-6, the passages
those of the exact top five, and the texts of passages shortened until the page is small enough.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lib.base import paths
from lib.base.files import atomic_write
from lib.explorer.rows import (
    COLUMNS,
    FOLDER,
    Explored,
    Place,
    begins,
    candidates,
    read_rows,
)
from lib.explorer.steps import STEPS
from lib.explorer.why import reasons
from lib.explorer.widget import HEADS, MIMICS, STARTS

PAGE = paths.ROOT / "docs" / "explorer.html"
TOP = 5
LIMIT = 3_000_000
"""Bytes that the page may have."""

_TEMPLATE = Path(__file__).parent / "template"
_SEEN_TO = 1.2
"""Passages that plain contrast finds up to this lambda are shown with longer texts."""

_LONG, _SHORT, _MIMIC = 72, 56, 50
"""Characters of a passage: of those, and of others that have no title; of one of several mimics."""

_SOURCES = {
    "bioasq": ("PubMed, by way of BioASQ", "https://pubmed.ncbi.nlm.nih.gov/*/"),
    "pubmedqa": ("PubMed, by way of PubMedQA", "https://pubmed.ncbi.nlm.nih.gov/*/"),
    "medquad": ("MedQuAD", "*"),
    "openstax": ("OpenStax", "https://openstax.org/details/books/*"),
    "ddx-mini": ("ddx-mini, written for this companion", ""),
}
"""Name of every source, and where its passages are: * stands for what the passage adds."""

_MISSING = 0xFFFFFF


def page(explored: Explored) -> str:
    """The page as text."""
    payload = _packed(explored)
    parts = {
        "/*style*/": (_TEMPLATE / "page.css").read_text(encoding="utf-8"),
        "/*script*/": (_TEMPLATE / "page.js").read_text(encoding="utf-8"),
        "<!--lead-->": _lead(explored),
        "<!--notice-->": html.escape((FOLDER / "NOTICE").read_text(encoding="utf-8")),
        "<!--data-->": _in_letters(payload),
    }
    text = (_TEMPLATE / "page.html").read_text(encoding="utf-8")
    for mark, content in parts.items():
        text = text.replace(mark, content)
    return text


def _in_letters(payload: bytes) -> str:
    """Bytes as text, five letters for four bytes; their number comes first. "/" is in the place of
    "<", so that nothing in it ends a script."""
    return (
        base64.b85encode(len(payload).to_bytes(4, "big") + payload, pad=True)
        .decode()
        .translate({ord("<"): "/"})
    )


def _lead(explored: Explored) -> str:
    """What was found, from the rows: what the charts show at λ = 0 and at 1."""
    shown = []
    for name in ("medqa", "mmlu"):
        _, (before, after), n = explored.shares(explored.start(name), (0.0, 1.0))
        title, *_ = explored.set_named(name)["title"].split(",")
        shown.append(f"from {100 * before:.0f} % to {100 * after:.0f} % ({n} of {title})")
    return html.escape(
        "Found here: at the paper's λ = 1, exam questions with a right passage fall "
        f"{', '.join(shown)}."
    )


def _packed(explored: Explored) -> bytes:
    """Texts as JSON and numbers as planes of bytes, gzipped."""
    kept, long = kept_records(explored)
    said = {key: _said(explored, key, places) for key, places in kept.items()}
    whole = {passage for found in said.values() for passage, *_ in found}
    records = explored.records[np.concatenate(list(kept.values()))]
    used = np.unique(records["passage"])
    place = np.zeros(len(explored.passages), np.int64)
    place[used] = np.arange(len(used))
    # A random mimic is stored as the id of its question, whose text is in the page already.
    owner = {question["mimic"]: question["qid"] for question in explored.questions}
    sets = {}
    for described in explored.sets:
        median = explored.median_question(described["name"])
        shown = {**described, "median": median, "questions": []}
        sets[described["name"]] = shown
    starts = [0]
    for question in explored.questions:
        length = len(kept[question["set"], question["qid"]])
        shown = _question(question, starts[-1], length, owner)
        shown["said"] = [one[1:] for one in said[question["set"], question["qid"]]]
        sets[question["set"]]["questions"].append(shown)
        starts.append(starts[-1] + length)
    texts = {
        "rows": len(records),
        "columns": list(COLUMNS),
        "steps": STEPS,
        "starts": STARTS,
        "heads": HEADS,
        "mimics": MIMICS,
        "sets": list(sets.values()),
        "sources": [{"name": name, "link": link} for name, link in _SOURCES.values()],
        "passages": [_passage(explored.passages[i], i in long, i in whole) for i in used.tolist()],
    }
    head = json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode()
    numbers = _planes(records, starts[:-1], place)
    return gzip.compress(len(head).to_bytes(4, "big") + head + numbers, 9, mtime=0)


def kept_records(explored: Explored) -> tuple[dict[tuple[str, str], np.ndarray], set[int]]:
    """The places of the records that the page has, by set and question id, those that hold the
    top five; and the passages that plain contrast finds up to ``_SEEN_TO``."""
    kept, long = {}, set()
    for question in explored.questions:
        records = explored.records_of(question)
        chosen = []
        for form, mimic in explored.choices_of(question):
            height, slope = explored.lines(question, form, mimic)
            low = explored.least(Place(question["set"], "", form))
            chosen.append(candidates(height, slope, TOP, lam_min=low))
            if (form, mimic) == ("one mimic", "own"):
                near = candidates(height, slope, TOP, lam_max=_SEEN_TO)
                long.update(records["passage"][near].tolist())
        places = question["start"] + np.unique(np.concatenate(chosen))
        kept[question["set"], question["qid"]] = places
    return kept, long


def _question(question: Mapping, start: int, length: int, owner: Mapping[str, str]) -> dict:
    shown = ("qid", "text", "options", "answer", "target", "mimic", "c_own", "c_random")
    kept = {key: question[key] for key in shown}
    kept["random_of"] = owner.get(question["random"], "")
    kept["several"] = [begins(text, _MIMIC) for text in question["several"]]
    return kept | {"start": start, "length": length}


def _said(explored: Explored, key: tuple[str, str], places: np.ndarray) -> list[tuple]:
    """What the judges of a question said of its records: the passage, the place of the record in
    the page's question, the option, and where in the text its words begin and end; -1 and -1 where
    the text that is kept does not have them. Nothing for a set whose classes are no judgments."""
    found: list[tuple] = []
    if not explored.set_named(key[0])["judged_at"]:
        return found
    for i, passage in enumerate(explored.records["passage"][places].tolist()):
        shown = explored.passages[passage]
        before = len(shown["title"]) + 1 if shown["title"] else 0
        for option, (start, end) in reasons().get((key[1], shown["pid"]), {}).items():
            whole = before <= start and end - before <= len(shown["text"].removesuffix(" …"))
            words = (start - before, end - before) if whole else (-1, -1)
            found.append((passage, i, option, *words))
    return found


def _passage(passage: Mapping, long: bool, whole: bool) -> list:
    """Title, how it begins, source, and what completes the source's link; the ``whole`` text that
    is kept where judges named words of it."""
    title, source, link = passage["title"], passage["source"], passage["link"]
    length = len(passage["text"]) if whole else _LONG if long else 0 if title else _SHORT
    before, _, after = _SOURCES[source][1].partition("*")
    if not link.startswith(("https://", "http://")):
        link = ""
    key = link.removeprefix(before).removesuffix(after)
    return [title, begins(passage["text"], length), list(_SOURCES).index(source), key]


def _planes(records: np.ndarray, starts: Sequence[int], place: np.ndarray) -> bytes:
    """Cosines in steps of 1e-6 from -2, that with H+ as the difference to the row before it in the
    question; then passages and classes. A number's bytes stand in planes: they pack better."""
    scores = records["score"].astype(np.float64)
    steps = np.rint(np.nan_to_num(scores) * 1e6).astype(np.int64)
    differences = np.diff(steps[:, 0], prepend=0)
    differences[starts] = steps[starts, 0]
    steps[:, 0] = differences
    values = np.where(np.isnan(scores), _MISSING, steps + 2_000_000)
    planes = [(column >> shift) & 255 for column in values.T for shift in (0, 8, 16)]
    passages = place[records["passage"]]
    planes += [passages & 255, passages >> 8, records["class"]]
    return np.stack(planes).astype(np.uint8).tobytes()


def write_page() -> Path:
    """Write the page from the committed rows; ValueError if it is larger than ``LIMIT``."""
    text = page(read_rows())
    if len(text.encode()) > LIMIT:
        raise ValueError(f"the page has {len(text.encode()):,} bytes, more than {LIMIT:,}")
    return atomic_write(PAGE, text)
