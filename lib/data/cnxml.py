"""OpenStax textbooks: CNXML modules as plain text, one Document for each section.

Left out, because they are not prose to retrieve: exercises, learning objectives, references,
footnotes, images and their alt texts, videos, prefaces, and notes that only point elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from lib.data.documents import Document, parse_xml, tidy

__all__ = ["read_book"]

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


def read_book(book: str, members: Iterable[tuple[str, bytes]]) -> Iterator[Document]:
    """The sections of one book, modules in order of their id, sections in order of the text.

    The title is "module -- section -- subsection"; ``meta`` has the book, the chapter and the
    module. ``members`` must give the collection (the table of contents) before the modules.
    """
    title, chapters = book, {}
    for path, data in members:
        if path.startswith("collections/"):
            contents = parse_xml(data, path)
            title = tidy(contents.findtext(".//title"))
            for chapter in contents.iter("subcollection"):  # an inner one comes after its outer one
                name = tidy(chapter.findtext("title"))
                chapters |= {module.get("document"): name for module in chapter.iter("module")}
        elif path.startswith("modules/"):
            module = path.split("/")[1]
            meta = {"book": title, "chapter": chapters.get(module, title), "module": module}
            root = _cleaned(parse_xml(data, f"{book} {path}"))
            titles = [_title(root)]
            if titles == ["Introduction"]:  # 149 modules are called that and nothing more
                titles = [meta["chapter"], *titles]
            for i, (found, text) in enumerate(_sections(root, titles)):
                yield Document(f"openstax:{book}/{module}/{i}", " -- ".join(found), text, meta)


def _cleaned(root: Element) -> Element:
    """Empties what is left out, and gives cross-references without text the word printed there."""
    kinds = {e.get("id"): e.tag for e in root.iter()}
    for e in list(root.iter()):
        if _LEFT_OUT & {e.tag, *e.get("class", "").split()}:
            tail = e.tail
            e.clear()
            e.tag, e.tail = "nothing", tail
        elif e.tag == "link" and not (e.text or len(e)):
            e.text = kinds.get(e.get("target-id", ""), "").capitalize()
    return root


def _sections(element: Element, titles: list[str]) -> Iterator[tuple[list[str], str]]:
    """(titles from the module down to the section, text) of every section that has any text."""
    prose = (child for child in element if child.tag != "title")
    text = tidy(" ".join(_stop(block) for child in prose for block in _blocks(child)))
    if text:
        yield titles, _EMPTY.sub("", text)
    for inner in element:
        if inner.tag in _SECTIONS:
            title = "Key terms" if inner.tag == "glossary" else _title(inner)
            yield from _sections(inner, titles + [title] * (title not in ("", titles[-1])))


def _blocks(element: Element) -> Iterator[str]:
    """The texts of one block element, each to be ended like a sentence."""
    if element.tag in ("note", "figure", "table", "tgroup", "thead", "tbody"):
        for child in element:
            yield from _blocks(child)
    elif element.tag == "row":
        yield " | ".join(filter(None, (_text(cell).strip() for cell in element)))
    elif element.tag == "caption":
        yield _CREDIT.sub("", _text(element))
    elif element.tag == "definition":
        yield ": ".join(tidy(_text(part)) for part in element)
    elif element.tag not in _SECTIONS:
        yield _text(element)


def _text(element: Element) -> str:
    """The running text of an element: lists joined by semicolons, formulas on one line."""
    if element.tag == "list":
        *items, last = map(_text, element.findall("item"))
        return " ".join(["", *(_stop(item, ";") for item in items), last, ""])
    text = element.text or ""
    for child in element:
        if child.tag == "sup" and text[-1:].isdigit():  # 10^3, but Ca2+
            text += "^"
        text += _math(child) if child.tag == "math" else _text(child)
        text += " " * (child.tag == "newline") + (child.tail or "")
    return text


def _math(element: Element) -> str:
    """MathML as one line of text: a/b, x^2, sqrt(x); subscripts follow their letter."""
    tag, parts = element.tag, [_math(child) for child in element]
    if not parts:
        text = (element.text or "").strip()
        return f" {text} " if text in _OPERATORS or tag == "mspace" else text
    if tag == "mfrac":
        return "/".join(map(_grouped, parts))
    if tag in ("msup", "msubsup"):
        return "".join(parts[:-1]) + "^" + _grouped(parts[-1])
    if tag == "msqrt":
        return f"sqrt({''.join(parts)})"
    if tag == "mfenced":
        return f"({', '.join(parts)})"
    if tag in ("munder", "mover"):
        return parts[0]
    return {"mtable": "; ", "mtr": " "}.get(tag, "").join(parts)


def _grouped(formula: str) -> str:
    formula = formula.strip()
    return f"({formula})" if " " in formula else formula


def _title(element: Element) -> str:
    title = element.find("title")
    return "" if title is None else tidy(_text(title))


def _stop(text: str, mark: str = ".") -> str:
    """``text`` ended by a mark, unless it ends with one: so that sentences stay apart."""
    text = text.strip()
    return text if not text or text[-1] in ".?!:;" else text + mark
