"""OpenStax textbooks: CNXML modules as plain text, one Document for each section.

Kept: paragraphs, lists, tables (cells divided by bars), captions, notes, equations, key terms and
chapter summaries. Left out, because they are not prose to retrieve: exercises and their solutions,
learning objectives, reference lists, footnotes, images and their alt texts, videos, prefaces, and
notes that only point to material elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from lib.documents import Document, parse_xml, tidy

__all__ = ["read_book"]

_SKIPPED = {"exercise", "media", "footnote", "metadata", "label"}
_SKIPPED_CLASSES = {
    "learning-objectives", "chapter-objectives", "references", "suggested-reading", "preface",
    "contrib-auth", "sr-contrib-auth", "link-to-learning", "media-feature", "interactive", "um",
}  # fmt: skip
_CREDIT = re.compile(r"\s*\((?:credit|attribution|modification|data source)\b[^()]*"
                     r"(?:\([^()]*\)[^()]*)*\)", re.IGNORECASE)  # fmt: skip
_EMPTY = re.compile(r"\s*\(\s*(?:see\s*)?[;,]?\s*\)")


def read_book(book: str, members: Iterable[tuple[str, bytes]]) -> Iterator[Document]:
    """The sections of one book, modules in order of their id, sections in order of the text.

    The title is "module -- section -- subsection"; ``meta`` has the book, the chapter and the
    module. ``members`` must give the collection (the table of contents) before the modules.
    """
    chapters: dict[str, str] = {}
    title = book
    for path, data in members:
        if path.startswith("collections/"):
            root = parse_xml(data, path)
            title = _first(root, "title") or book
            chapters = dict(_chapters(root, title))
        elif path.startswith("modules/"):
            module = path.split("/")[1]
            meta = {"book": title, "chapter": chapters.get(module, title), "module": module}
            sections = _module(parse_xml(data, f"{book} {path}"))
            for i, (titles, text) in enumerate(sections):
                if titles[0] == "Introduction":  # 149 modules are called that and nothing more
                    titles = [meta["chapter"], *titles]
                doc = f"openstax:{book}/{module}/{i}"
                yield Document(doc, " -- ".join(titles), text, meta)


def _module(root: Element) -> Iterator[tuple[list[str], str]]:
    """(titles from the module down to the section, text) of every section that has any text."""
    if _skipped(root):
        return
    _name_references(root)
    heading = _first(root, "title")
    for child in root:
        if _tag(child) == "content":
            yield from _sections(child, [heading])
        elif _tag(child) == "glossary":
            terms = [_stop(_definition(d)) for d in child if _tag(d) == "definition"]
            yield [heading, "Key terms"], tidy(" ".join(terms))


def _sections(element: Element, titles: list[str]) -> Iterator[tuple[list[str], str]]:
    text = tidy(" ".join(_stop(block) for child in element for block in _blocks(child)))
    if text:
        yield titles, _EMPTY.sub("", text)
    for child in element:
        if _tag(child) == "section" and not _skipped(child):
            title = _first(child, "title")
            yield from _sections(child, titles + [title] * (title not in ("", titles[-1])))


def _blocks(element: Element) -> Iterator[str]:
    """The texts of one block element, each to be ended like a sentence."""
    tag = _tag(element)
    if tag in ("section", "title") or _skipped(element):
        return
    if tag in ("note", "figure", "subfigure"):
        yield _first(element, "title")
        for child in element:
            yield from _blocks(child)
    elif tag == "table":
        yield _first(element, "title")
        for row in (e for e in element.iter() if _tag(e) == "row"):
            yield " | ".join(filter(None, (_inline(cell).strip() for cell in row)))
        yield from (_inline(e) for e in element if _tag(e) == "caption")
    elif tag == "caption":
        yield _CREDIT.sub("", tidy(_inline(element)))
    elif tag == "definition":
        yield _definition(element)
    else:
        yield _inline(element)


def _inline(element: Element) -> str:
    """The running text of an element: lists joined by semicolons, formulas on one line."""
    text = element.text or ""
    if _tag(element) == "list":
        items = [_inline(e).strip() for e in element if _tag(e) == "item"]
        return " ".join(_stop(item, ";") for item in items[:-1]) + " " + " ".join(items[-1:])
    for child in element:
        tag = _tag(child)
        if tag == "math":
            text += _math(child)
        elif tag in ("newline", "space"):
            text += " "
        elif tag in ("list", "para"):
            text += f" {_inline(child)} "
        elif not _skipped(child):
            power = "^" if tag == "sup" and text[-1:].isdigit() else ""  # 10^3, but Ca2+
            text += power + _inline(child)
        text += child.tail or ""
    return text


def _math(element: Element) -> str:
    """MathML as one line of text: a/b, x^2, sqrt(x); subscripts follow their letter."""
    tag = _tag(element)
    parts = [_math(child) for child in element]
    if not parts:
        text = (element.text or "").strip()
        return f" {text} " if tag == "mspace" or text in {"=", "+", "−", "×", "→", "÷"} else text
    if tag == "mfrac":
        return "/".join(map(_grouped, parts))
    if tag in ("msup", "msubsup"):
        return "".join(parts[:-1]) + "^" + _grouped(parts[-1])
    if tag == "msqrt":
        return f"sqrt({''.join(parts).strip()})"
    if tag == "mfenced":
        return f"({', '.join(parts)})"
    if tag in ("munder", "mover"):
        return parts[0]
    return ("; " if tag == "mtable" else " " if tag == "mtr" else "").join(parts)


def _grouped(formula: str) -> str:
    formula = formula.strip()
    return f"({formula})" if " " in formula else formula


def _definition(element: Element) -> str:
    term, meaning = (tidy(" ".join(_inline(e) for e in element if _tag(e) == part))
                     for part in ("term", "meaning"))  # fmt: skip
    return f"{term}: {meaning}"


def _name_references(root: Element) -> None:
    """Give empty cross-references the word that the printed book has there, without its number."""
    kinds = {e.get("id"): _tag(e) for e in root.iter() if e.get("id")}
    for link in (e for e in root.iter() if _tag(e) == "link"):
        kind = kinds.get(link.get("target-id", ""), "")
        if not "".join(link.itertext()).strip() and kind in ("figure", "table"):
            link.text = kind.capitalize()


def _chapters(element: Element, title: str) -> Iterator[tuple[str, str]]:
    """(module, title of the nearest enclosing chapter) for every module of a collection."""
    for child in element:
        inner = _first(child, "title") if _tag(child) == "subcollection" else ""
        if _tag(child) == "module":
            yield child.get("document", ""), title
        yield from _chapters(child, inner or title)


def _first(element: Element, tag: str) -> str:
    """The text of the first child (or, in a collection, descendant) that has this tag."""
    found = next((e for e in element if _tag(e) == tag), None)
    if found is None and _tag(element) == "collection":
        found = next((e for e in element.iter() if _tag(e) == tag), None)
    return "" if found is None else tidy(_inline(found))


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _skipped(element: Element) -> bool:
    classes = set((element.get("class") or "").split())
    return _tag(element) in _SKIPPED or not classes.isdisjoint(_SKIPPED_CLASSES)


def _stop(text: str, mark: str = ".") -> str:
    """``text`` ended by a mark, unless it ends with one: so that sentences stay apart."""
    text = text.strip()
    return text if not text or text[-1] in ".?!:;" else text + mark
