"""Questions and reference answers from leaflets: TGA Consumer Medicine Information, FDA labels.

Both give the same six Needs a medicine, with the questions of ``HEADINGS``; a heading that a
document does not have gives none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from xml.etree.ElementTree import Element

from lib.base.downloads import fetch, load_registry
from lib.data.passages import parse_xml, tidy
from lib.studies.evidence.records import HEADINGS, Need, inner_text

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
    headings = list(_HEADING.finditer(text))
    ends = [*(match.start() for match in headings[1:]), len(text)]
    answers: dict[int, str] = defaultdict(str)
    for match, end in zip(headings, ends, strict=False):  # without a heading there is one end
        heading = int(match.lastgroup[1:])  # the group h3 is the third heading
        body = tidy(text[match.end() : end])
        answers[heading] = max(answers[heading], body, key=len)
        name = _NAME.search(match[0])
        if name and heading == 1 and not medicine:
            medicine = tidy(name[1])
    return _needs(qid, medicine, answers)


def read_label(data: bytes, qid: str) -> list[Need]:
    """The needs of one FDA label (SPL XML), by the LOINC codes of its sections.

    A coded section inside another goes to its own heading (over the counter, the warnings hold
    "when using"), except a boxed text, which some labels use as a frame. The medicine is its active
    moieties, as papers call it. Raises ValueError if no section, or no name, is found.
    """
    root = parse_xml(data, qid)
    answers: dict[int, str] = defaultdict(str)
    for section in root.iterfind("component/structuredBody/component/section"):
        _collect(section, 0, answers)
    names = [tidy(inner_text(name)).lower() for name in root.iterfind(".//activeMoiety/name")]
    medicine = " and ".join(dict.fromkeys(names))  # each once
    return _needs(qid, medicine, answers)


def load_labels() -> list[Need]:
    """The needs of the six real labels of the registry, downloaded or from the mirror."""
    needs = []
    for name in load_registry("openfda-"):
        needs += read_label(fetch(name).read_bytes(), name)
    return needs


def _collect(section: Element, outer_heading: int, answers: dict[int, str]) -> None:
    """Add the text of a section and of those inside it to the headings they belong to.

    ``outer_heading`` is that of the section around it, 0 without one.
    """
    code = next((element.get("code") for element in section.iterfind("code")), "")
    heading = _CODES.get(code, outer_heading)
    if outer_heading and code == _BOXED:  # a frame around a text of the outer section
        heading = outer_heading
    if heading:
        parts = [tidy(inner_text(text)) for text in section.iterfind("text")]
        if outer_heading:  # "4.1 Nitrates"; an outermost title says what the heading says
            parts = [*_inner_titles(section), *parts]
        answers[heading] = " ".join(filter(None, (answers[heading], *parts)))
    for inner in section.iterfind("component/section"):
        _collect(inner, heading, answers)


def _inner_titles(section: Element) -> list[str]:
    """A section's title without its number, with a colon: "Nitrates:"; nothing if it has none."""
    titles = [tidy(inner_text(title)) for title in section.iterfind("title")]
    without_number = [title.lstrip("0123456789. ") for title in titles]
    return [f"{title.rstrip('.:')}:" for title in without_number if title]


def _needs(qid: str, medicine: str, answers: dict[int, str]) -> list[Need]:
    """One need for each heading that has an answer; ValueError without any, or without a name."""
    there = [heading for heading in HEADINGS if answers.get(heading)]
    if not there:
        raise ValueError(f"{qid}: found no heading of the six")
    if not medicine:
        raise ValueError(f"{qid}: found no name of the medicine; pass medicine=")
    needs = []
    for heading in there:
        question = HEADINGS[heading].format(medicine)
        needs.append(Need(f"{qid}-{heading}", medicine, heading, question, answers[heading]))
    return needs
