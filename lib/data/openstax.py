"""OpenStax textbooks: CNXML modules as plain text, one text for each section.

Left out, because they are not prose to retrieve: exercises, learning objectives, references,
footnotes, images and their alt texts, videos, prefaces, and notes that only point elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from lib.data.passages import Passage, parse_xml, tidy

_LEFT_OUT = {  # tags and classes
    "exercise",
    "footnote",
    "metadata",
    "learning-objectives",
    "chapter-objectives",
    "references",
    "suggested-reading",
    "preface",
    "link-to-learning",
    "media-feature",
    "interactive",
}
_CREDIT = re.compile(
    r"\s*\((?:credit|attribution|modification|data source)\b[^()]*"
    r"(?:\([^()]*\)[^()]*)*\)",
    re.IGNORECASE,
)
_EMPTY = re.compile(r"\s*\(\s*(?:see\s*)?\)")
_SECTIONS = ("content", "section", "glossary")
_OPERATORS = {"=", "+", "−", "×", "→", "÷"}


def read_book(book: str, members: Iterable[tuple[str, bytes]]) -> Iterator[Passage]:
    """The sections of one book, modules in order of their id, sections in order of the text.

    The title is "module -- section -- subsection"; ``meta`` has the book, the chapter and the
    module. ``members`` must give the collection (the table of contents) before the modules.
    """
    title = book
    chapter_of: dict[str, str] = {}  # by the id of a module
    for path, data in members:
        if path.startswith("collections/"):
            contents = parse_xml(data, path)
            title = tidy(contents.findtext(".//title"))
            for chapter in contents.iter("subcollection"):  # an inner one comes after its outer one
                name = tidy(chapter.findtext("title"))
                for module in chapter.iter("module"):
                    chapter_of[module.get("document")] = name
        elif path.startswith("modules/"):
            module = path.split("/")[1]
            meta = {"book": title, "chapter": chapter_of.get(module, title), "module": module}
            root = _cleaned(parse_xml(data, f"{book} {path}"))
            titles = [_title(root)]
            if titles == ["Introduction"]:  # 149 modules are called that and nothing more
                titles = [meta["chapter"], *titles]
            for i, (section_titles, text) in enumerate(_sections(root, titles)):
                doc = f"openstax:{book}/{module}/{i}"
                yield Passage(doc, " -- ".join(section_titles), text, "openstax", meta)


def _cleaned(root: Element) -> Element:
    """Empties what is left out, and gives cross-references without text the word printed there."""
    tag_of = {element.get("id"): element.tag for element in root.iter()}
    for element in list(root.iter()):
        names = {element.tag, *element.get("class", "").split()}
        if names & _LEFT_OUT:
            # The text after it belongs to the sentence around it, and stays.
            tail = element.tail
            element.clear()
            element.tag = "nothing"
            element.tail = tail
        elif element.tag == "link" and not (element.text or len(element)):
            # A link to a figure or a table is printed as "Figure" or "Table".
            element.text = tag_of.get(element.get("target-id", ""), "").capitalize()
    return root


def _sections(element: Element, titles: list[str]) -> Iterator[tuple[list[str], str]]:
    """(titles from the module down to the section, text) of every section that has any text."""
    sentences = []
    for child in element:
        if child.tag != "title":
            sentences += [_ended(block) for block in _blocks(child)]
    text = tidy(" ".join(sentences))
    if text:
        yield titles, _EMPTY.sub("", text)
    for inner in element:
        if inner.tag in _SECTIONS:
            title = "Key terms" if inner.tag == "glossary" else _title(inner)
            says_more = title not in ("", titles[-1])
            yield from _sections(inner, [*titles, title] if says_more else titles)


def _blocks(element: Element) -> Iterator[str]:
    """The texts of one block element, each to be ended like a sentence."""
    if element.tag in ("note", "figure", "table", "tgroup", "thead", "tbody"):
        for child in element:
            yield from _blocks(child)
    elif element.tag == "row":
        cells = [_text(cell).strip() for cell in element]
        yield " | ".join(cell for cell in cells if cell)
    elif element.tag == "caption":
        yield _CREDIT.sub("", _text(element))
    elif element.tag == "definition":
        yield ": ".join(tidy(_text(part)) for part in element)
    elif element.tag not in _SECTIONS:
        yield _text(element)


def _text(element: Element) -> str:
    """The running text of an element: lists joined by semicolons, formulas on one line."""
    if element.tag == "list":
        *items, last = [_text(item) for item in element.findall("item")]
        separated = [_ended(item, ";") for item in items]
        # The empty ends keep a list apart from the words around it.
        return " ".join(["", *separated, last, ""])
    text = element.text or ""
    for child in element:
        if child.tag == "sup" and text[-1:].isdigit():  # 10^3, but Ca2+
            text += "^"
        text += _math(child) if child.tag == "math" else _text(child)
        if child.tag == "newline":
            text += " "
        text += child.tail or ""
    return text


def _math(element: Element) -> str:
    """MathML as one line of text: a/b, x^2, sqrt(x); subscripts follow their letter."""
    tag = element.tag
    parts = [_math(child) for child in element]
    if not parts:
        text = (element.text or "").strip()
        spaced = text in _OPERATORS or tag == "mspace"
        return f" {text} " if spaced else text
    if tag == "mfrac":
        return "/".join(_grouped(part) for part in parts)
    if tag in ("msup", "msubsup"):
        return "".join(parts[:-1]) + "^" + _grouped(parts[-1])
    if tag == "msqrt":
        return f"sqrt({''.join(parts)})"
    if tag == "mfenced":
        return f"({', '.join(parts)})"
    if tag in ("munder", "mover"):
        return parts[0]
    separators = {"mtable": "; ", "mtr": " "}
    return separators.get(tag, "").join(parts)


def _grouped(formula: str) -> str:
    """A formula in brackets if it has several terms, so that a/(b + c) stays what it is."""
    formula = formula.strip()
    return f"({formula})" if " " in formula else formula


def _title(element: Element) -> str:
    """The title of a module or section; empty without one."""
    title = element.find("title")
    return "" if title is None else tidy(_text(title))


def _ended(text: str, punctuation: str = ".") -> str:
    """The text with punctuation at its end, unless it has some: so that sentences stay apart."""
    text = text.strip()
    if not text or text[-1] in ".?!:;":
        return text
    return text + punctuation
