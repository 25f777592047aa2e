"""The passages: what each corpus is, and how its texts become passages of at most 1,000 characters.

White space is collapsed first; a longer text (but no BioASQ snippet) is cut on sentence boundaries,
inside a sentence only when one is longer than a passage. A text that fits keeps its own id as pid;
the pieces of a longer one are ``<id>#0``, ``<id>#1``, ... and all carry that id in ``meta["doc"]``.
Everything streams, one source file at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from xml.etree.ElementTree import Element

from lib.base.downloads import fetch, members
from lib.base.files import read_jsonl
from lib.base.paths import DDX_MINI, existing, is_own, say_once
from lib.data.medrag import load_medrag
from lib.data.openstax import read_book
from lib.data.passages import CORPORA, Passage, cut, parse_xml, tidy
from lib.datasets import load_bioasq_all


def load_passages(source: str, limit: int | None = None) -> Iterator[Passage]:
    """Passages of a corpus in a fixed order, streaming; only the first ``limit`` if given.

    ``source`` is a key of CORPORA; ask ``lib.data.medrag.estimate`` before reading MedCorp. Or it
    is a path (see ``lib.forms.read_passages``): what was read is then printed at the end.
    """
    if is_own(source):
        return islice(_own(source), limit)
    if source not in CORPORA:
        raise ValueError(
            f"no corpus {source!r}; known: {', '.join(CORPORA)}. A file of your own has a suffix, "
            f"a folder a slash: {source}/"
        )
    if source not in _READERS:
        return islice(load_medrag(source), limit)
    return islice(_passages(source), limit)


def _own(path: str) -> Iterator[Passage]:
    """Passages of your own. Nothing of them depends on what their file is called."""
    from lib.forms import Report, stream_passages

    report = Report(existing(path))
    for passage in stream_passages(report):
        yield replace(passage, meta={"doc": passage.pid.partition("#")[0]})
    say_once(f"passages: {report}")


def _passages(source: str) -> Iterator[Passage]:
    """The texts of a corpus, each cut into its passages."""
    for whole in _READERS[source]():
        # BioASQ experts cut their snippets and judged them whole: each stays one passage.
        pieces = [tidy(whole.text)] if source == "bioasq" else cut(whole.text)
        meta = {"doc": whole.pid} | whole.meta
        for i, piece in enumerate(pieces):
            pid = whole.pid if len(pieces) == 1 else f"{whole.pid}#{i}"
            yield replace(whole, pid=pid, text=piece, meta=meta)


def _bioasq() -> Iterator[Passage]:
    """Distinct snippets of all 2,310 questions, with every document and question of each.

    Some differ in white space and markup only: 20,519 different texts once they are tidied.
    """
    # A dictionary of None values is a set that keeps the order of insertion.
    pmids_of: dict[str, dict[str, None]] = {}
    qids_of: dict[str, dict[str, None]] = {}
    for question in load_bioasq_all():
        for text, pmid in zip(question.gold_snippets, question.snippet_pmids, strict=True):
            pmids_of.setdefault(text, {})[pmid] = None
            qids_of.setdefault(text, {})[question.qid] = None
    for i, text in enumerate(pmids_of):
        meta = {"pmids": list(pmids_of[text]), "qids": list(qids_of[text])}
        yield Passage(f"bioasq:{i:06d}", "", text, "bioasq", meta)


def _pubmedqa() -> Iterator[Passage]:
    """Abstracts; the conclusion, which answers the question in the title, is in ``meta`` alone."""
    rows = json.loads(fetch("pubmedqa-labelled").read_text(encoding="utf-8"))
    for pmid, row in rows.items():
        sections = zip(row["LABELS"], row["CONTEXTS"], strict=True)
        text = " ".join(f"{label}: {section}" for label, section in sections)
        year = int(row["YEAR"]) if row["YEAR"] else None
        meta = {"pmids": [pmid], "year": year, "conclusion": tidy(row["LONG_ANSWER"])}
        yield Passage(f"pubmedqa:{pmid}", tidy(row["QUESTION"]), text, "pubmedqa", meta)


def _medquad() -> Iterator[Passage]:
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
                "cuis": _texts(root, "FocusAnnotations//CUI"),
                "synonyms": _texts(root, "FocusAnnotations//Synonym"),
                "group": root.findtext(".//SemanticGroup") or root.findtext(".//Category") or "",
                "subset": subset,
                "document": stem,
                "url": root.get("url"),
            }
            for pair in root.iter("QAPair"):
                question = pair.find("Question")
                answer = tidy(pair.findtext("Answer") or "")
                about = {"question": tidy(question.text), "question_type": question.get("qtype")}
                if answer:
                    doc = f"medquad:{subset}/{stem}-{pair.get('pid')}"
                    yield Passage(doc, focus, answer, "medquad", shared | about)


def _texts(root: Element, path: str) -> list[str]:
    """The tidy texts of all elements at a path."""
    return [tidy(element.text or "") for element in root.iterfind(path)]


def _openstax() -> Iterator[Passage]:
    for name in CORPORA["openstax"].files:
        yield from read_book(name.removeprefix("openstax-"), members(name))


def _ddx_mini() -> Iterator[Passage]:
    for row in read_jsonl(DDX_MINI / "passages.jsonl"):
        pid, title, text = row.pop("pid"), row.pop("title"), row.pop("text")
        yield Passage(pid, title, text, row["source"], meta=row)


_READERS: dict[str, Callable[[], Iterator[Passage]]] = {
    "bioasq": _bioasq,
    "pubmedqa": _pubmedqa,
    "medquad": _medquad,
    "openstax": _openstax,
    "ddx-mini": _ddx_mini,
}
"""Each corpus as its source has it: whole texts, under the ids of their documents."""
