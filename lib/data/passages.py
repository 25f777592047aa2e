"""What a passage is, the corpora there are, and what every reader needs: tidy text and safe XML."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from lib.base.downloads import load_registry

PASSAGE_CHARS = 1000
"""Characters of a passage at most."""
OPEN_CORPUS = ("bioasq", "pubmedqa", "medquad", "openstax")
"""The corpora that anybody may download."""

_POWER = re.compile(r"(?<=\d)<sup>", re.IGNORECASE)
_BREAK = re.compile(r"</?(?:br|p)\s*/?>", re.IGNORECASE)
_INLINE = re.compile(r"</?(?:b|i|u|em|strong|sub|sup)>", re.IGNORECASE)


@dataclass(frozen=True)
class Passage:
    """A text that can be retrieved. ``pid`` is stable, and unique over all sources.

    ``source`` is the corpus, except in ddx-mini, which has four sources of its own.
    """

    pid: str
    title: str
    text: str
    source: str
    meta: dict[str, Any]

    @property
    def titled(self) -> str:
        """The text behind its title, where it has one."""
        return f"{self.title}. {self.text}" if self.title else self.text


@dataclass(frozen=True)
class Corpus:
    """A source of passages: its licence, how many it has, and what it is read from.

    ``read_from`` is a path below the data folder (with a "/") or how its registry names begin.
    """

    licence: str
    passages: int
    read_from: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """What it is read from: names in the registry, or a path below the data folder."""
        if not self.read_from:  # what is read from the hub or NCBI is not in the registry
            return ()
        if "/" in self.read_from:
            return (self.read_from,)
        return tuple(load_registry(self.read_from))


CORPORA = {
    "bioasq": Corpus("CC BY 2.5 (BioASQ terms)", 21_231, "bioasq-"),
    "pubmedqa": Corpus("MIT", 1_939, "pubmedqa-labelled"),
    "medquad": Corpus("CC BY 4.0", 30_498, "medquad-"),
    "openstax": Corpus("CC BY 4.0; Anatomy and Microbiology CC BY-NC-SA 4.0", 16_062, "openstax-"),
    "ddx-mini": Corpus("MIT", 624, "ddx-mini/passages.jsonl"),
    # The paper's corpus, MedCorp, with the numbers that its authors print (Xiong et al., ACL 2024):
    "pubmed": Corpus("NLM terms", 23_900_000),
    "textbooks": Corpus("publishers'", 125_800),
    "wikipedia": Corpus("CC BY-SA 3.0", 29_900_000),
    "statpearls": Corpus("CC BY-NC-ND 4.0", 301_200),
    # By the hash of the ids, so roughly (lib.data.medrag.TENTHS).
    "pubmed-tenth": Corpus("NLM terms", 2_390_000),
    "wikipedia-tenth": Corpus("CC BY-SA 3.0", 2_990_000),
}


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


def cut(text: str) -> list[str]:
    """The pieces of a text, each of at most 1,000 characters, cut between sentences if possible."""
    from semantic_text_splitter import TextSplitter

    text = tidy(text)
    if len(text) <= PASSAGE_CHARS:
        return [text]
    return TextSplitter(PASSAGE_CHARS).chunks(text)


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
