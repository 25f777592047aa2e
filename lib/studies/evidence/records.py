"""The two records of the study, the six questions of a leaflet, and the text of an XML element."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

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

_BLOCKS = {"br", "caption", "item", "list", "paragraph", "table", "td", "th", "tr"}


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
