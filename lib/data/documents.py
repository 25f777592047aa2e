"""What every reader gives and needs: a Document, tidy text, and XML without surprises."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

_POWER = re.compile(r"(?<=\d)<sup>", re.IGNORECASE)
_BREAK = re.compile(r"</?(?:br|p)\s*/?>", re.IGNORECASE)
_INLINE = re.compile(r"</?(?:b|i|u|em|strong|sub|sup)>", re.IGNORECASE)


@dataclass(frozen=True)
class Document:
    """One text as its source has it, before it is cut into passages; ``doc`` is its stable id."""

    doc: str
    title: str
    text: str
    meta: dict[str, Any]


def tidy(text: str, keep_lines: bool = False) -> str:
    """Decode HTML entities, drop inline markup, make any run of white space one space, strip.

    Nothing else is touched. ``keep_lines`` keeps line breaks (the laboratory tables of exam
    questions); 10<sup>3</sup> becomes 10^3, since 103 would be another number.
    """
    text = html.unescape(html.unescape(text))  # PubMed text holds &amp;quot; too
    text = _POWER.sub("^", text)
    text = _BREAK.sub(" ", text)
    text = _INLINE.sub("", text)
    lines = text.splitlines() if keep_lines else [text]
    return "\n".join(" ".join(line.split()) for line in lines).strip()


def parse_xml(data: bytes, what: str) -> ElementTree.Element:
    """The root element of an XML file, tags without namespaces; ``what`` names it in errors.

    Entity declarations are refused, so nothing can expand; a DTD may be named, but is never loaded.
    """
    if b"<!ENTITY" in data or b"\0" in data:
        raise ValueError(f"{what}: refused, it declares entities or is not UTF-8 XML")
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise ValueError(f"{what}: not well-formed XML ({error})") from error
    for element in root.iter():
        _, _, element.tag = element.tag.rpartition("}")  # "{namespace}tag"
    return root
