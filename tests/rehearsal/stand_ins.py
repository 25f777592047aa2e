"""Stand-ins for what a rehearsal has not: MedCorp and MedCPT, small, and in the same form.

The texts are ddx-mini's passages, in the files that ``lib.data.medrag`` reads; the towers are two
BERTs of random weights. Nothing that is measured with them says anything about medicine.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape

from lib.base.files import atomic_write, canonical_json
from lib.benchmarks.ddx_mini import read
from lib.corpora import load_passages
from lib.data.medrag import SOURCES, STATPEARLS
from lib.data.passages import Passage
from lib.datasets import question_sets
from lib.studies.contradiction.evidence import HEADINGS, Evidence, load_evidence, load_needs
from lib.studies.contradiction.pubmed import PubMed, gather, tiers

_PLACES = {"abstracts": "pubmed", "textbook": "textbooks", "encyclopedia": "wikipedia"}
"""ddx-mini's sources, and the collection of MedCorp that each stands in for; the rest is
StatPearls."""

_FILES = {
    "pubmed": "pubmed23n{:04d}",
    "textbooks": "Textbook_{:02d}",
    "wikipedia": "wiki20220301en{:03d}",
}
"""What the publishers call a file, from 1 on; a record's id is the file's name and its place."""
_IN_A_FILE = 10_000  # records; articles of StatPearls have ten sections of one passage each


def corpora(
    folder: Path,
    snippets: Iterable[Passage] = (),
    rows: Mapping[str, int] | None = None,
    words: int = 0,
) -> None:
    """``<folder>/medrag/<source>`` of all four sources, in files as their publishers have them.

    ``snippets`` are pubmed's first records, and ddx-mini's passages the next of each source. Where
    ``rows`` wants more of a source, they are six sentences of ddx-mini each, or so many ``words``.
    The PMIDs of all but snippets are made up, beyond those that PubMed has given out. Written once.
    """
    snippets, note = list(snippets), folder / "medrag" / "made.json"
    made_of = canonical_json([[p.pid for p in snippets], dict(rows or {}), words])
    if note.exists() and note.read_text() == made_of:
        return
    known: dict[str, list[tuple]] = {source: [] for source in SOURCES}
    for row in read("passages"):
        known[_PLACES.get(row["source"], "statpearls")].append((row["title"], row["text"], None))
    for i, p in enumerate(snippets):  # first, as a source may be read with a limit
        known["pubmed"].insert(i, (p.title or p.text[:60], p.text, int(p.meta["pmids"][0])))
    texts = [text for of_source in known.values() for _, text, _ in of_source]
    parts = [part for text in texts for part in (text.split() if words else _SENTENCE.split(text))]
    parts = sorted(set(parts))
    for source, first in known.items():
        missing = (rows or {}).get(source, 0) - len(first)
        more = _made(parts, words or 6, missing, random.Random(source))
        records = chain(first, more)
        place = folder / "medrag" / source
        if source == "statpearls":
            archive = place / STATPEARLS.rsplit("/", 1)[1]
            atomic_write(archive, partial(_statpearls, articles=records))
            continue
        for number in count(1):
            some = list(islice(records, _IN_A_FILE))
            if not some:
                break
            name, start = _FILES[source].format(number), 90_000_000 + number * _IN_A_FILE
            lines = [
                json.dumps(_record(source, f"{name}_{i}", record, start + i), ensure_ascii=False)
                for i, record in enumerate(some)
            ]
            atomic_write(place / "chunk" / f"{name}.jsonl", "\n".join(lines) + "\n")
    atomic_write(note, made_of)


_SENTENCE = re.compile(r"(?<=[.!?]) ")


def _made(parts: list[str], n: int, rows: int, chance: random.Random) -> Iterator[tuple]:
    """Title, text and no PMID of so many passages of ``n`` parts each."""
    for number in range(rows):
        yield f"Passage {number}", " ".join(chance.choices(parts, k=n)), None


def judged_snippets(sample: int, n: int = 300) -> list[Passage]:
    """BioASQ's snippets, ``n`` in all: first those of the questions that a grid samples."""
    asked = question_sets(["bioasq"], sample)["bioasq"]
    wanted, found = {q.qid for q in asked}, list(load_passages("bioasq"))
    found.sort(key=lambda p: wanted.isdisjoint(p.meta["qids"]))
    return found[:n]


def _record(source: str, name: str, record: tuple, made_up: int) -> dict:
    """A record as MedRAG publishes them: the text twice, once with its title."""
    title, text, pmid = record
    row = {"id": name, "title": title, "content": text, "contents": f"{title}. {text}"}
    return row | ({"PMID": pmid or made_up} if source == "pubmed" else {})


def _statpearls(file: Path, articles: Iterator[tuple]) -> None:
    """NCBI's archive: the same bytes at any time."""
    with gzip.GzipFile(file, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as to:
        for number in count(1):
            sections = list(islice(articles, 10))
            if not sections:
                break
            data = _article(sections).encode()
            entry = tarfile.TarInfo(f"statpearls_NBK430685/article-{number}.nxml")
            entry.size = len(data)
            to.addfile(entry, io.BytesIO(data))


def _article(sections: list[tuple]) -> str:
    """An article of StatPearls, called as its first section is: a passage a section."""
    told = "".join(
        f"<sec><title>{escape(title)}</title><p>{escape(text)}</p></sec>"
        for title, text, _ in sections
    )
    title = f"<title-group><title>{escape(sections[0][0])}</title></title-group>"
    return (
        f"<book-part-wrapper><book-part><book-part-meta>{title}</book-part-meta>"
        f"<body>{told}</body></book-part></book-part-wrapper>"
    )


MEDICINES = 2
"""Of evidence-mini's, the first so many have a leaflet."""


def leaflets(folder: Path, headings: int = 0) -> None:
    """TGA leaflets of evidence-mini's medicines, the first as text and the second as a PDF: the
    first so many headings, or all six, and their answers."""
    texts: dict[str, list[str]] = {}
    for need in load_needs("evidence-mini"):
        heading = HEADINGS[need.heading].format(need.medicine)
        texts.setdefault(need.medicine, []).append(f"{need.heading}. {heading}\n{need.answer}\n")
    for i, medicine in enumerate(list(texts)[:MEDICINES]):
        text = "\n".join(texts[medicine][: headings or None])
        if i % 2:
            atomic_write(folder / f"{medicine}.pdf", pdf(text))
        else:
            atomic_write(folder / f"{medicine}.txt", text)


def pdf(text: str) -> bytes:
    """A small PDF that says ``text``: lines of at most 90 letters, 50 on a page."""
    lines = [part for line in text.splitlines() for part in wrap(line, 90) or [""]]
    pages = [lines[start : start + 50] for start in range(0, len(lines), 50)] or [[]]
    places = range(4, 4 + 2 * len(pages), 2)
    kids = " ".join(f"{place} 0 R" for place in places)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
    ]
    for place, page in zip(places, pages, strict=True):
        shown = [re.sub(r"([()\\])", r"\\\1", line) for line in page]
        drawn = "BT /F1 10 Tf 14 TL 40 780 Td " + "".join(f"({line}) Tj T*\n" for line in shown)
        data = f"{drawn}ET".encode("cp1252")
        objects += [
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 820]/Contents %d 0 R"
            b"/Resources<</Font<</F1 3 0 R>>>>>>" % (place + 1),
            b"<</Length %d>>stream\n%s\nendstream" % (len(data), data),
        ]
    body, starts = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        starts.append(len(body))
        body += b"%d 0 obj%s endobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    size = len(objects) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    return (
        body + end + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, len(body))
    )


def pubmed(folder: Path) -> None:
    """Ask the true client about these leaflets, with evidence-mini's abstracts for PubMed's: its
    replies are then kept in the cache, in their own form."""
    abstracts = {str(91_000_000 + i): a for i, a in enumerate(load_evidence("evidence-mini"))}

    class StandIn(PubMed):
        def _send(self, kind: str, asked: dict) -> str:
            if kind == "esearch":
                words = set(re.findall(r"\w+", asked["term"].lower()))
                names = {i: set(a.medicine.lower().split()) for i, a in abstracts.items()}
                ids = [i for i, name in names.items() if name <= words]
                return json.dumps({"esearchresult": {"count": len(ids), "idlist": ids}})
            if kind == "efetch":
                return _articles({i: abstracts[i] for i in asked["id"].split(",")})
            counts = [{"pmid": i, "citation_count": int(i) % 90} for i in asked["pmids"].split(",")]
            return json.dumps({"data": counts})

    client = StandIn("rehearsal@example.org")
    for need in load_needs(f"tga:{folder}"):
        gather(client, need, tiers(need))


def _articles(found: Mapping[str, Evidence]) -> str:
    """An efetch reply."""
    articles = [
        f"<PubmedArticle><MedlineCitation><PMID>{pmid}</PMID><Article><ArticleTitle>"
        f"{escape(a.title)}</ArticleTitle><Abstract><AbstractText>{escape(a.text)}</AbstractText>"
        f"</Abstract><Journal><JournalIssue><PubDate><Year>{a.year}</Year></PubDate></JournalIssue>"
        "</Journal></Article></MedlineCitation></PubmedArticle>"
        for pmid, a in found.items()
    ]
    return f"<PubmedArticleSet>{''.join(articles)}</PubmedArticleSet>"


def tower(folder: Path, seed: int) -> Path:
    """A BERT of two layers and random weights, saved as the hub stores MedCPT's towers.

    Its vocabulary are ddx-mini's words, and letters for all others.
    """
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    words = sorted(
        {w for row in read("passages") for w in re.findall("[a-z]+", row["text"].lower())}
    )
    letters = [mark + c for mark in ("", "##") for c in "abcdefghijklmnopqrstuvwxyz0123456789"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words]
    atomic_write(folder / "vocab.txt", "\n".join(dict.fromkeys(vocabulary)) + "\n")
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=512)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
