"""Questions and reference answers from leaflets: TGA Consumer Medicine Information, FDA labels.

Both give the same six Needs a medicine, with the questions of ``HEADINGS``; a heading that a
document does not have gives none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from xml.etree.ElementTree import Element

from lib.base.downloads import fetch, load_registry
from lib.data.documents import parse_xml, tidy
from lib.studies.evidence.records import HEADINGS, Need, inner_text

__all__ = ["load_labels", "read_cmi", "read_label"]

_STARTS = {  # how the six headings begin, whoever gives the medicine
    1: r"why (?:am i|are you)\b",
    2: r"what should (?:i|you) know before\b",
    3: r"what if (?:i am|i'm|you are) taking\b",
    4: r"how (?:do|will|should) (?:i|you)\b|how is .{1,60} (?:given|used)\b",
    5: r"what should (?:i|you) know (?:while|during|after)\b",
    6: r"(?:are there|what are the)(?: any| possible)* side effects\b",
}
_ENDS = r"(?P<h7>product details|consumer medicine information|full cmi)\b"  # what ends the sixth
_HEADING = re.compile(  # lines of their own, numbered or not; with a question mark also two lines
    r"^[^\w\n]*(?:section\s+)?(?:\d{1,2}[^\w\n]*)?(?:(?:"
    + "|".join(f"(?P<h{n}>{start})" for n, start in _STARTS.items())
    + r")(?:[^?\n]{0,120}(?:\n(?!\W*(?:\d|what|how|why|are|is|do|if)\b)[^?\n]{1,60})?\?|"
    + rf"[^?\n.:;]{{0,80}})|{_ENDS}[^?\n.:;]{{0,80}})[^\S\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_NAME = re.compile(r"\b(?:using|taking|given)\s+([^?\n]+?)\s*(?:\?|$)", re.IGNORECASE)
_CODES = {  # LOINC codes of label sections, prescription and over the counter
    "34067-9": 1,
    "34066-1": 2,
    "34070-3": 2,
    "43685-7": 2,
    "34071-1": 2,
    "42232-9": 2,
    "43684-0": 2,
    "42228-7": 2,
    "50570-1": 2,
    "50569-3": 2,
    "34073-7": 3,
    "50568-5": 3,
    "34068-7": 4,
    "34076-0": 5,
    "50567-7": 5,
    "50566-9": 5,
    "34084-4": 6,
}
_BOXED = "34066-1"


def read_cmi(text: str, qid: str, medicine: str = "") -> list[Need]:
    """The needs of one leaflet as plain text; numbers, case and line breaks of headings may differ.

    A leaflet has each heading in its summary and again in full: the longest text wins. Without
    ``medicine`` its name is read from the first heading that has one. Raises ValueError if no
    heading is found, or no name.
    """
    hits, answers = list(_HEADING.finditer(text)), defaultdict(str)
    ends = [*(hit.start() for hit in hits[1:]), len(text)]
    for hit, end in zip(hits, ends, strict=False):
        heading, body = int(hit.lastgroup[1:]), tidy(text[hit.end() : end])
        answers[heading] = max(answers[heading], body, key=len)
        if not medicine and heading == 1 and (name := _NAME.search(hit[0])):
            medicine = tidy(name[1])
    return _needs(qid, medicine, answers)


def read_label(data: bytes, qid: str) -> list[Need]:
    """The needs of one FDA label (SPL XML), by the LOINC codes of its sections.

    A coded section inside another goes to its own heading (over the counter, the warnings hold
    "when using"), except a boxed text, which some labels use as a frame. The medicine is its active
    moieties, as papers call it. Raises ValueError if no section, or no name, is found.
    """
    root, answers = parse_xml(data, qid), defaultdict(str)
    for section in root.iterfind("component/structuredBody/component/section"):
        _read(section, 0, answers)
    moieties = (tidy(inner_text(e)).lower() for e in root.iterfind(".//activeMoiety/name"))
    return _needs(qid, " and ".join(dict.fromkeys(moieties)), answers)


def load_labels() -> list[Need]:
    """The needs of the six real labels of the registry, downloaded or from the mirror."""
    names = load_registry("openfda-")
    return [need for name in names for need in read_label(fetch(name).read_bytes(), name)]


def _read(section: Element, inherited: int, answers: dict[int, str]) -> None:
    """Add the text of a section and of those inside it to the headings they belong to."""
    code = next((e.get("code") for e in section.iterfind("code")), "")
    heading = inherited if inherited and code == _BOXED else _CODES.get(code, inherited)
    if heading:
        parts = [tidy(inner_text(e)) for e in section.iterfind("text")]
        if inherited:  # "4.1 Nitrates"; an outermost title says what the heading says
            titles = (tidy(inner_text(e)).lstrip("0123456789. ") for e in section.iterfind("title"))
            parts = [f"{title.rstrip('.:')}:" for title in titles if title] + parts
        answers[heading] = " ".join(filter(None, (answers[heading], *parts)))
    for inner in section.iterfind("component/section"):
        _read(inner, heading, answers)


def _needs(qid: str, medicine: str, answers: dict[int, str]) -> list[Need]:
    asked = {n: question.format(medicine) for n, question in HEADINGS.items() if answers.get(n)}
    if not asked or not medicine:
        missing = "name of the medicine; pass medicine=" if asked else "heading of the six"
        raise ValueError(f"{qid}: found no {missing}")
    return [Need(f"{qid}-{n}", medicine, n, asked[n], answers[n]) for n in asked]
