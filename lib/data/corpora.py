"""The passages: what each corpus is, and how its texts become passages of at most 1,000 characters.

White space is collapsed first; a longer text (but no BioASQ snippet) is cut on sentence boundaries,
inside a sentence only when one is longer than a passage. A text that fits keeps its own id as pid;
the pieces of a longer one are ``<id>#0``, ``<id>#1``, ... and all carry that id in ``meta["doc"]``.
Everything streams, one source file at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice

from lib.base.downloads import fetch, members
from lib.base.files import read_jsonl
from lib.base.paths import DDX_MINI
from lib.data.cnxml import read_book
from lib.data.documents import Document, parse_xml, tidy
from lib.data.medrag import load_medrag
from lib.data.passages import CORPORA, PASSAGE_CHARS, Passage
from lib.data.questions import load_bioasq_all

__all__ = ["cut", "load_passages"]


def load_passages(source: str, limit: int | None = None) -> Iterator[Passage]:
    """Passages of a corpus in a fixed order, streaming; only the first ``limit`` if given.

    ``source`` is a key of CORPORA; ask ``lib.data.medrag.estimate`` before reading MedCorp.
    """
    if source not in CORPORA:
        raise ValueError(f"no corpus {source!r}; known: {', '.join(CORPORA)}")
    if source not in _READERS:
        return islice(load_medrag(source), limit)
    return islice(_passages(source), limit)


def cut(text: str) -> list[str]:
    """The pieces of a text, each of at most 1,000 characters, cut between sentences if possible."""
    from semantic_text_splitter import TextSplitter

    text = tidy(text)
    return [text] if len(text) <= PASSAGE_CHARS else TextSplitter(PASSAGE_CHARS).chunks(text)


def _passages(source: str) -> Iterator[Passage]:
    for document in _READERS[source]():
        # BioASQ experts cut their snippets and judged them whole: each stays one passage.
        pieces = [tidy(document.text)] if source == "bioasq" else cut(document.text)
        meta = {"doc": document.doc} | document.meta
        for i, piece in enumerate(pieces):
            pid = document.doc if len(pieces) == 1 else f"{document.doc}#{i}"
            yield Passage(pid, document.title, piece, meta.get("source", source), meta)


def _bioasq() -> Iterator[Document]:
    """Distinct snippets of all 2,310 questions, with every document and question of each.

    Some differ in white space and markup only: 20,519 different texts once they are tidied.
    """
    found: dict[str, tuple[dict, dict]] = {}
    for question in load_bioasq_all():
        for text, pmid in zip(question.gold_snippets, question.snippet_pmids, strict=True):
            pmids, qids = found.setdefault(text, ({}, {}))
            pmids[pmid] = qids[question.qid] = None
    for i, (text, (pmids, qids)) in enumerate(found.items()):
        yield Document(f"bioasq:{i:06d}", "", text, {"pmids": list(pmids), "qids": list(qids)})


def _pubmedqa() -> Iterator[Document]:
    """Abstracts; the conclusion, which answers the question in the title, is in ``meta`` alone."""
    rows = json.loads(fetch("pubmedqa-labelled").read_text(encoding="utf-8"))
    for pmid, row in rows.items():
        sections = zip(row["LABELS"], row["CONTEXTS"], strict=True)
        text = " ".join(f"{label}: {section}" for label, section in sections)
        year = int(row["YEAR"]) if row["YEAR"] else None
        meta = {"pmids": [pmid], "year": year, "conclusion": tidy(row["LONG_ANSWER"])}
        yield Document(f"pubmedqa:{pmid}", tidy(row["QUESTION"]), text, meta)


def _medquad() -> Iterator[Document]:
    """Answers to consumers' health questions from nine NIH sites, one file for each topic.

    ``meta`` has the UMLS concepts (cuis), the UMLS semantic group or MedlinePlus category, and what
    else the topic is called (synonyms).
    """
    for name in CORPORA["medquad"].files:
        subset = name.removeprefix("medquad-")
        for path, data in members(name):
            root = parse_xml(data, f"medquad {subset}/{path}")
            stem = path.removesuffix(".xml")  # unique, which the ids inside the files are not
            focus = tidy(root.findtext("Focus") or "")
            shared = {
                "focus": focus,
                "cuis": [tidy(cui.text or "") for cui in root.iterfind("FocusAnnotations//CUI")],
                "synonyms": [
                    tidy(name.text or "") for name in root.iterfind("FocusAnnotations//Synonym")
                ],
                "group": root.findtext(".//SemanticGroup") or root.findtext(".//Category") or "",
                "subset": subset,
                "document": stem,
                "url": root.get("url"),
            }
            for pair in root.iter("QAPair"):
                question, answer = pair.find("Question"), tidy(pair.findtext("Answer") or "")
                about = {"question": tidy(question.text), "question_type": question.get("qtype")}
                if answer:
                    doc = f"medquad:{subset}/{stem}-{pair.get('pid')}"
                    yield Document(doc, focus, answer, shared | about)


def _openstax() -> Iterator[Document]:
    for name in CORPORA["openstax"].files:
        yield from read_book(name.removeprefix("openstax-"), members(name))


def _ddx_mini() -> Iterator[Document]:
    for row in read_jsonl(DDX_MINI / "passages.jsonl"):
        meta = {k: v for k, v in row.items() if k not in ("pid", "title", "text")}
        yield Document(row["pid"], row["title"], row["text"], meta)


_READERS: dict[str, Callable[[], Iterator[Document]]] = {
    "bioasq": _bioasq,
    "pubmedqa": _pubmedqa,
    "medquad": _medquad,
    "openstax": _openstax,
    "ddx-mini": _ddx_mini,
}
