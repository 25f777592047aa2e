"""The passages: what each corpus is, and how its texts become passages of at most 1,000 characters.

White space is collapsed first; a longer text (but no BioASQ snippet) is cut on sentence boundaries
by the library semantic-text-splitter, inside a sentence only when one is longer than a passage. A
text that fits keeps its own id as pid; the pieces of a longer one are ``<id>#0``, ``<id>#1``, ...
and all carry that id in ``meta["doc"]``. Everything streams, one source file at a time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lib.cnxml import read_book
from lib.datasets import load_bioasq_all
from lib.documents import Document, tidy
from lib.downloads import fetch, load_registry, members
from lib.files import read_jsonl
from lib.medquad import read_answers
from lib.paths import DDX_MINI

__all__ = [
    "Passage", "Corpus", "CORPORA", "OPEN_CORPUS", "PASSAGE_CHARS",
    "load_passages", "open_corpus", "cut",
]  # fmt: skip

PASSAGE_CHARS = 1000
_MEDRAG = "Xiong et al., Benchmarking Retrieval-Augmented Generation for Medicine, ACL 2024"
OPEN_CORPUS = ("bioasq", "pubmedqa", "medquad", "openstax")


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


@dataclass(frozen=True)
class Corpus:
    """A source of passages; ``documents`` and ``passages`` count it when read in full.

    The counts of the paper's corpus are those its authors print; all others are checked.
    """

    name: str
    what: str
    licence: str
    citation: str
    documents: int
    passages: int

    @property
    def files(self) -> tuple[str, ...]:
        """What it is read from: names in the registry, or a path below the data folder."""
        if self.name == "ddx-mini":
            return ("ddx-mini/passages.jsonl",)
        prefix = {"pubmedqa": "pubmedqa-labelled"}.get(self.name, f"{self.name}-")
        return tuple(name for name in load_registry() if name.startswith(prefix))


CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            "bioasq", "pieces of PubMed abstracts that experts marked as relevant to a question",
            "CC BY 2.5 (BioASQ terms)", "Tsatsaronis et al. 2015; Krithara et al. 2023",
            21231, 21231,
        ),
        Corpus(
            "pubmedqa", "PubMed abstracts without their conclusions, titles that are questions",
            "MIT", "Jin et al., PubMedQA, EMNLP 2019", 1000, 1939,
        ),
        Corpus(
            "medquad", "answers to consumers' health questions from nine NIH sites",
            "CC BY 4.0", "Ben Abacha and Demner-Fushman, BMC Bioinformatics 20:511, 2019",
            16407, 30498,
        ),
        Corpus(
            "openstax", "sections of five medical and nursing textbooks",
            "CC BY 4.0; Anatomy and Microbiology CC BY-NC-SA 4.0", "OpenStax (openstax.org)",
            6206, 16062,
        ),
        Corpus(
            "ddx-mini", "reference text written for this project on diseases and their mimics",
            "MIT", "this project", 150, 150,
        ),
        Corpus("pubmed", "all PubMed abstracts", "NLM terms", _MEDRAG, 23_900_000, 23_900_000),
        Corpus("textbooks", "18 medical textbooks", "publishers'", _MEDRAG, 18, 125_800),
        Corpus("wikipedia", "all articles", "CC BY-SA 3.0", _MEDRAG, 6_500_000, 29_900_000),
        Corpus("statpearls", "clinical reviews", "CC BY-NC-ND 4.0", _MEDRAG, 9_300, 301_200),
    )
}  # fmt: skip


def load_passages(source: str, limit: int | None = None) -> Iterator[Passage]:
    """Passages of a corpus in a fixed order, streaming; only the first ``limit`` if given.

    ``source`` is a key of CORPORA; ask ``lib.medrag.estimate`` before reading the paper's corpus.
    Raises ValueError when a corpus, read to its end, has not the number of documents it should.
    """
    if source not in CORPORA:
        raise ValueError(f"no corpus {source!r}; known: {', '.join(CORPORA)}")
    if source in _READERS:
        return islice(_passages(source), limit)
    from lib.medrag import load_medrag

    return islice(load_medrag(source), limit)


def open_corpus() -> Iterator[Passage]:
    """All passages of the open profile: BioASQ, PubMedQA, MedQuAD, OpenStax, in this order."""
    for source in OPEN_CORPUS:
        yield from load_passages(source)


def cut(text: str) -> list[str]:
    """The pieces of a text, each of at most 1,000 characters, cut between sentences if possible."""
    text = tidy(text)
    return [text] if len(text) <= PASSAGE_CHARS else _splitter().chunks(text)


@functools.cache
def _splitter():
    from semantic_text_splitter import TextSplitter

    return TextSplitter(PASSAGE_CHARS)


def _passages(source: str) -> Iterator[Passage]:
    count = 0
    for document in _READERS[source]():
        count += 1
        # BioASQ experts cut their snippets and judged them whole: each stays one passage.
        pieces = [tidy(document.text)] if source == "bioasq" else cut(document.text)
        origin = document.meta.get("source", source)
        for i, piece in enumerate(pieces):
            pid = document.doc if len(pieces) == 1 else f"{document.doc}#{i}"
            yield Passage(pid, document.title, piece, origin, {"doc": document.doc} | document.meta)
    expected = CORPORA[source].documents
    if count != expected:
        raise ValueError(f"{source}: {count} documents, expected {expected}; its files changed")


def _bioasq() -> Iterator[Document]:
    """Distinct snippets of all 2,310 questions, with every document and question of each.

    21,998 snippets are 21,231 different strings, which is what BioASQ curves are drawn over. Some
    differ in white space and markup only: 20,519 different texts once they are tidied.
    """
    found: dict[str, tuple[dict, dict]] = {}
    for question in load_bioasq_all():
        for text, pmid in zip(question.gold_snippets, question.snippet_pmids, strict=True):
            pmids, qids = found.setdefault(text, ({}, {}))
            pmids[pmid] = qids[question.qid] = None
    for i, (text, (pmids, qids)) in enumerate(found.items()):
        yield Document(f"bioasq:{i:06d}", "", text, {"pmids": list(pmids), "qids": list(qids)})


def _pubmedqa() -> Iterator[Document]:
    """Abstracts as PubMedQA shows them: the conclusion, which answers the question in the title,
    is in ``meta`` and not in the text.
    """
    rows = json.loads(fetch("pubmedqa-labelled").read_text(encoding="utf-8"))
    for pmid, row in rows.items():
        sections = zip(row["LABELS"], row["CONTEXTS"], strict=True)
        text = " ".join(f"{label}: {section}" for label, section in sections)
        year = int(row["YEAR"]) if row["YEAR"] else None
        meta = {"pmids": [pmid], "year": year, "conclusion": tidy(row["LONG_ANSWER"])}
        yield Document(f"pubmedqa:{pmid}", tidy(row["QUESTION"]), text, meta)


def _medquad() -> Iterator[Document]:
    for name in CORPORA["medquad"].files:
        for path, data in members(name):
            yield from read_answers(name.removeprefix("medquad-"), path, data)


def _openstax() -> Iterator[Document]:
    for name in CORPORA["openstax"].files:
        yield from read_book(name.removeprefix("openstax-"), members(name))


def _ddx_mini() -> Iterator[Document]:
    for row in read_jsonl(DDX_MINI / "passages.jsonl"):
        meta = {k: v for k, v in row.items() if k not in ("pid", "title", "text")}
        yield Document(row["pid"], row["title"], row["text"], meta)


_READERS: dict[str, Callable[[], Iterator[Document]]] = {
    "bioasq": _bioasq, "pubmedqa": _pubmedqa, "medquad": _medquad, "openstax": _openstax,
    "ddx-mini": _ddx_mini,
}  # fmt: skip
