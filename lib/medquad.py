"""MedQuAD: answers to consumers' health questions from nine NIH sites, one XML file per topic."""

from __future__ import annotations

from collections.abc import Iterator

from lib.documents import Document, parse_xml, tidy

__all__ = ["read_answers"]


def read_answers(subset: str, path: str, data: bytes) -> Iterator[Document]:
    """The answers of one MedQuAD file, in order; questions without an answer are left out.

    The title is the topic (Focus). ``meta`` keeps the question and its type, the UMLS concepts
    (cuis, may be empty), the UMLS semantic group or MedlinePlus category (may be ""), the subset,
    the id of the document and its address. Source: Ben Abacha and Demner-Fushman 2019.
    """
    root = parse_xml(data, f"medquad {subset}/{path}")
    stem = path.removesuffix(".xml")  # unique, which the ids inside the files are not
    focus = tidy(root.findtext("Focus") or "")
    notes = root.find("FocusAnnotations")
    shared = {
        "focus": focus,
        "cuis": [] if notes is None else [tidy(cui.text or "") for cui in notes.iter("CUI")],
        "group": root.findtext(".//SemanticGroup") or root.findtext(".//Category") or "",
        "subset": subset,
        "document": stem,
        "url": root.get("url"),
    }
    for pair in root.iter("QAPair"):
        question = pair.find("Question")
        answer = tidy(pair.findtext("Answer") or "")
        if answer:
            yield Document(
                doc=f"medquad:{subset}/{stem}-{pair.get('pid')}",
                title=focus,
                text=answer,
                meta=shared
                | {"question": tidy(question.text or ""), "question_type": question.get("qtype")},
            )
