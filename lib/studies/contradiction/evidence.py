"""Dated abstracts and the questions asked of them: evidence-mini, open, or PubMed's on leaflets.

``evidence-mini`` is bundled. ``open`` is the PubMedQA abstracts that have a year, each with its
conclusion, and the Evidence Inference articles that have an abstract, with the effect directions
that doctors read off them; neither has citation counts. ``labels`` is the same abstracts, asked the
six questions of real FDA labels. ``tga:<folder>`` asks PubMed about every TGA leaflet (``*.txt`` or
``*.pdf``) in a folder, relative to the project's root; what cannot be read is named.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from lib.base.downloads import fetch, load_registry, members
from lib.base.files import read_jsonl
from lib.base.paths import DATA, ROOT
from lib.data.judgments import read_findings
from lib.data.passages import parse_xml, tidy
from lib.forms import read_pdf

UNKNOWN = -1
"""``Evidence.citations`` when the source has no count: not the same as never cited."""

HEADINGS = {
    1: "Why am I using {}?",
    2: "What should I know before I use {}?",
    3: "What if I am taking other medicines with {}?",
    4: "How do I use {}?",
    5: "What should I know while using {}?",
    6: "Are there any side effects of {}?",
}
"""The question of each heading of a TGA leaflet, with room for the medicine."""

DIRECTIONS = {"1": "increased", "-1": "decreased", "0": "no difference"}
"""What the intervention did to the outcome, by Evidence Inference's Label Code."""

PERIODS = ("<2000", "2000-2005", "2005-2010", "2010-2015", "2015-2020", "2020-2025")
"""The paper's periods; the first year belongs to a period, the last to the next one."""

_ARTICLES = "evidence-inference-articles"
_MINI = DATA / "evidence-mini"
_OPEN = (
    "pubmedqa-labelled",
    _ARTICLES,
    "evidence-inference-prompts",
    "evidence-inference-annotations",
)


@dataclass(frozen=True)
class Evidence:
    """One dated abstract; ``id`` is stable ("pubmed:<PMID>"), ``citations`` may be UNKNOWN."""

    id: str
    title: str
    text: str
    year: int
    citations: int = UNKNOWN
    medicine: str = ""
    topic: str = ""
    source: str = ""
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Need:
    """What a consumer asks about a medicine under heading 1 to 6, and the leaflet's own answer."""

    qid: str
    medicine: str
    heading: int
    question: str
    answer: str


def period_of(year: int) -> str:
    """The period of a year (``PERIODS``)."""
    return PERIODS[min(max((year - 1995) // 5, 0), len(PERIODS) - 1)]


def files_of(name: str) -> list[str]:
    """What a set is read from, as ``data_hash`` takes it; of ``tga:<folder>`` its leaflets."""
    if name == "evidence-mini":
        files = ("abstracts", "questions", "pairs", "labels")
        return [f"evidence-mini/{file}.jsonl" for file in files]
    if name in ("open", "labels"):
        return [*_OPEN, *(load_registry("openfda-") if name == "labels" else ())]
    leaflets = [path.resolve() for path in _leaflets(name.partition("tga:")[2])]
    return [str(p.relative_to(DATA) if p.is_relative_to(DATA) else p) for p in leaflets]


def load_evidence(name: str) -> list[Evidence]:
    """All abstracts of evidence-mini (174), or of open and labels (1,421), by id.

    ValueError for another name. (What ``tga:`` finds in PubMed: ``pubmed.evidence_for``.)
    """
    abstracts = []
    if name == "evidence-mini":
        for row in read_jsonl(_MINI / "abstracts.jsonl"):
            meta = {key: row.pop(key) for key in ("stance", "retells")}
            abstracts.append(Evidence(**row, source=name, meta=meta))
    elif name in ("open", "labels"):
        abstracts = [*_pubmedqa(), *_evidence_inference()]
    else:
        raise ValueError(
            f"no evidence {name!r}; there are: evidence-mini, open, labels, tga:<folder>"
        )
    return sorted(abstracts, key=lambda abstract: abstract.id)


def load_needs(name: str) -> list[Need]:
    """The questions asked: six a medicine, or, for open, each abstract's own title.

    Those have no medicine and no heading; the answer to a PubMedQA question is its abstract's
    conclusion, which is part of that abstract here. A leaflet without any of the six headings (the
    format before 2020) is left out and named; ValueError where all are.
    """
    if name.startswith("tga:"):
        folder = name.partition(":")[2]
        files = {file.name: file for file in _leaflets(folder)}
        if not files:
            raise FileNotFoundError(
                f"no leaflets: put TGA leaflets as *.txt or *.pdf into {folder}, or set "
                "evidence = 'evidence-mini'"
            )

        def read(file: Path) -> list[Need]:
            is_pdf = file.suffix.lower() == ".pdf"
            text = read_pdf(file)[1] if is_pdf else file.read_text(encoding="utf-8")
            return read_cmi(text, file.stem)

        return [need for _, needs in readable(files, read, "leaflets") for need in needs]
    if name == "labels":
        return [
            need
            for label in load_registry("openfda-")
            for need in read_label(fetch(label).read_bytes(), label)
        ]
    if name == "evidence-mini":
        return [Need(**row) for row in read_jsonl(_MINI / "questions.jsonl")]
    return [
        Need(abstract.id, "", 0, abstract.title, abstract.meta.get("conclusion", ""))
        for abstract in load_evidence(name)
    ]


def _leaflets(folder: str) -> list[Path]:
    """A file a medicine: where one is there as text and as a PDF, the text."""
    found = sorted((ROOT / folder).glob("*.*"), key=lambda file: (file.suffix.lower(), file.name))
    files = {file.stem: file for file in found if file.suffix.lower() in (".pdf", ".txt")}
    return sorted(files.values())


def readable(items: Mapping[str, Any], reader: Callable, what: str) -> list[tuple[Any, Any]]:
    """Each item with what ``reader`` makes of it; those it refuses (ValueError) are named.

    ValueError where it refuses all.
    """
    read, refused = [], {}
    for name, item in items.items():
        try:
            read.append((item, reader(item)))
        except ValueError as error:
            refused[name] = str(error)
    first_reason = next(iter(refused.values()), "")
    if refused and not read:
        raise ValueError(f"none of {len(refused)} {what} can be read; the first: {first_reason}")
    if refused:
        print(
            f"{len(refused)} of {len(items)} {what} are left out: {', '.join(refused)};"
            f" the first because {first_reason}",
            file=sys.stderr,
        )
    return read


# abstracts ----------------------------------------------------------------------------------------


def _pubmedqa() -> Iterator[Evidence]:
    rows = json.loads(fetch("pubmedqa-labelled").read_text(encoding="utf-8"))
    for pmid, row in rows.items():
        conclusion = tidy(row["LONG_ANSWER"])
        if row["YEAR"]:  # a few have none
            yield Evidence(
                id=f"pubmed:{pmid}",
                title=tidy(row["QUESTION"]),
                text=" ".join([*map(tidy, row["CONTEXTS"]), conclusion]),
                year=int(row["YEAR"]),
                source="PubMedQA",
                meta={"decision": row["final_decision"], "conclusion": conclusion},
            )


def _evidence_inference() -> Iterator[Evidence]:
    effects: dict[str, dict] = defaultdict(dict)  # by article and prompt
    for row in read_findings():
        effect = {name: row[name] for name in ("outcome", "intervention", "comparator")}
        effect["effect"] = DIRECTIONS[str(row["direction"])]
        effects[row["article"]][row["prompt"]] = effect
    for path, data in members(_ARTICLES):
        meta = parse_xml(data, f"Evidence Inference {path}").find(".//article-meta")
        # Some have more than one; the abstract itself is the one without a type.
        abstracts = sorted(meta.findall("abstract"), key=lambda e: "abstract-type" in e.attrib)
        if not abstracts:
            continue
        name = path.removesuffix(".nxml")
        yield Evidence(
            id=f"pmc:{name}",
            title=tidy(inner_text(meta.find(".//article-title"))),
            text=tidy(" ".join(inner_text(p) for p in abstracts[0].iter("p"))),
            # in print and online: the first
            year=min(int(year.text) for year in meta.findall("pub-date/year")),
            source="Evidence Inference",
            meta={"effects": list(effects[name.removeprefix("PMC")].values())},
        )


_BLOCKS = {"br", "caption", "item", "list", "paragraph", "table", "td", "th", "tr"}


def inner_text(element: Element) -> str:
    """All text of an element, blocks kept apart by spaces; 10<sup>9</sup> becomes 10^9."""
    text = element.text or ""
    for child in element:
        if child.tag == "sup" and text[-1:].isdigit():
            text += "^"
        text += inner_text(child)
        if child.tag in _BLOCKS:
            text += " "
        text += child.tail or ""
    return text


# leaflets and labels ------------------------------------------------------------------------------

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
_SECTIONS = {  # LOINC codes of label sections, prescription and over the counter, by heading
    1: ("34067-9",),
    2: ("34066-1", "34070-3", "43685-7", "34071-1", "42232-9", "43684-0", "42228-7", "50570-1")
    + ("50569-3",),
    3: ("34073-7", "50568-5"),
    4: ("34068-7",),
    5: ("34076-0", "50567-7", "50566-9"),
    6: ("34084-4",),
}
_HEADING_OF = {code: heading for heading, codes in _SECTIONS.items() for code in codes}
_BOXED = "34066-1"


def read_cmi(text: str, qid: str, medicine: str = "") -> list[Need]:
    """The needs of one TGA leaflet (CMI) as plain text; numbers, case and line breaks of headings
    may differ.

    A leaflet has each heading in its summary and again in full: the longest text wins. Without
    ``medicine`` its name is read from the first heading that has one. ValueError if no heading is
    found, or no name.
    """
    headings = list(_HEADING.finditer(text))
    ends = [*(match.start() for match in headings[1:]), len(text)]
    answers: dict[int, str] = defaultdict(str)
    for match, end in zip(headings, ends, strict=False):  # without a heading there is one end
        heading = int(match.lastgroup[1:])  # the group h3 is the third heading
        answers[heading] = max(answers[heading], tidy(text[match.end() : end]), key=len)
        name = _NAME.search(match[0])
        if name and heading == 1 and not medicine:
            medicine = tidy(name[1])
    return _needs(qid, medicine, answers)


def read_label(data: bytes, qid: str) -> list[Need]:
    """The needs of one FDA label (SPL XML), by the LOINC codes of its sections.

    A coded section inside another goes to its own heading (over the counter, the warnings hold
    "when using"), except a boxed text, which some labels use as a frame. The medicine is its active
    moieties, as papers call it. ValueError if no section, or no name, is found.
    """
    root = parse_xml(data, qid)
    answers: dict[int, str] = defaultdict(str)
    for section in root.iterfind("component/structuredBody/component/section"):
        _collect(section, 0, answers)
    names = [tidy(inner_text(name)).lower() for name in root.iterfind(".//activeMoiety/name")]
    return _needs(qid, " and ".join(dict.fromkeys(names)), answers)


def _collect(section: Element, outer_heading: int, answers: dict[int, str]) -> None:
    """Add the text of a section and of those inside it to the headings they belong to.

    ``outer_heading`` is that of the section around it, 0 without one.
    """
    code = next((element.get("code") for element in section.iterfind("code")), "")
    heading = _HEADING_OF.get(code, outer_heading)
    if outer_heading and code == _BOXED:  # a frame around a text of the outer section
        heading = outer_heading
    if heading:
        parts = [tidy(inner_text(text)) for text in section.iterfind("text")]
        if outer_heading:  # "4.1 Nitrates"; an outermost title says what the heading says
            titles = [tidy(inner_text(title)) for title in section.iterfind("title")]
            named = [title.lstrip("0123456789. ").rstrip(".:") for title in titles]
            parts = [*(f"{title}:" for title in named if title), *parts]
        answers[heading] = " ".join(filter(None, (answers[heading], *parts)))
    for inner in section.iterfind("component/section"):
        _collect(inner, heading, answers)


def _needs(qid: str, medicine: str, answers: Mapping[int, str]) -> list[Need]:
    """One need for each heading that has an answer; ValueError without any, or without a name."""
    if not any(answers.get(heading) for heading in HEADINGS):
        raise ValueError(f"{qid}: found no heading of the six")
    if not medicine:
        raise ValueError(f"{qid}: found no name of the medicine; pass medicine=")
    return [
        Need(f"{qid}-{heading}", medicine, heading, question.format(medicine), answers[heading])
        for heading, question in HEADINGS.items()
        if answers.get(heading)
    ]
