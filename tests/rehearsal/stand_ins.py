"""Stand-ins for what a rehearsal has not: MedCorp and MedCPT, small, and in the same form.

The texts are ddx-mini's passages, in the files that ``lib.data.medrag`` reads; the towers are two
BERTs of random weights. Nothing that is measured with them says anything about medicine.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from lib.base.files import atomic_write
from lib.benchmarks.ddx_mini import read
from lib.corpora import load_passages
from lib.data.medrag import STATPEARLS
from lib.data.passages import Passage
from lib.datasets import question_sets
from lib.studies.contradiction.evidence import HEADINGS, Evidence, load_evidence, load_needs
from lib.studies.contradiction.pubmed import PubMed, gather, tiers

_PLACES = {"abstracts": "pubmed", "textbook": "textbooks", "encyclopedia": "wikipedia"}
"""ddx-mini's sources, and the collection of MedCorp that each stands in for; the rest is
StatPearls."""


def corpora(folder: Path, snippets: Iterable[Passage] = ()) -> None:
    """``<folder>/medrag/<source>`` of all four sources; ``snippets`` are pubmed's first records.

    The PMIDs of ddx-mini's passages are made up, beyond those that PubMed has given out.
    """
    records: dict[str, list[dict]] = {source: [] for source in _PLACES.values()}
    articles: list[dict] = []
    for i, row in enumerate(read("passages")):
        source = _PLACES.get(row["source"])
        if source is None:
            articles.append(row)
            continue
        pmid = {"PMID": 90_000_000 + i} if source == "pubmed" else {}
        records[source].append(_record(f"standin_{i}", row["title"], row["text"]) | pmid)
    for i, p in enumerate(snippets):
        extra = _record(f"snippet_{i}", p.title or p.text[:60], p.text)
        records["pubmed"].insert(i, extra | {"PMID": int(p.meta["pmids"][0])})  # read with a limit
    for source, rows in records.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        atomic_write(folder / "medrag" / source / "chunk" / "standin.jsonl", text)
    archive = folder / "medrag" / "statpearls" / STATPEARLS.rsplit("/", 1)[1]
    atomic_write(archive, lambda file: _statpearls(file, articles))


def judged_snippets(sample: int, n: int = 300) -> list[Passage]:
    """BioASQ's snippets, ``n`` in all: first those of the questions that a grid samples."""
    asked = question_sets(["bioasq"], sample)["bioasq"]
    wanted, found = {q.qid for q in asked}, list(load_passages("bioasq"))
    found.sort(key=lambda p: wanted.isdisjoint(p.meta["qids"]))
    return found[:n]


def _record(name: str, title: str, text: str) -> dict:
    """A record as MedRAG publishes them: the text twice, once with its title."""
    return {"id": name, "title": title, "content": text, "contents": f"{title}. {text}"}


def _statpearls(file: Path, rows: list[dict]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for i, row in enumerate(rows):
            data = (
                f"<book-part><book-part-meta><title>{escape(row['title'])}</title></book-part-meta>"
                f"<body><sec><title>{escape(row['aspect'])}</title><p>{escape(row['text'])}</p>"
                "</sec></body></book-part>"
            ).encode()
            entry = tarfile.TarInfo(f"statpearls_NBK430685/article-{i}.nxml")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    file.write_bytes(gzip.compress(packed.getvalue(), mtime=0))  # the same bytes at any time


MEDICINES = 2
"""Of evidence-mini's, the first so many have a leaflet."""


def leaflets(folder: Path) -> None:
    """TGA leaflets of evidence-mini's medicines, as text: the six headings and their answers."""
    texts: dict[str, list[str]] = {}
    for need in load_needs("evidence-mini"):
        heading = HEADINGS[need.heading].format(need.medicine)
        texts.setdefault(need.medicine, []).append(f"{need.heading}. {heading}\n{need.answer}\n")
    for medicine in list(texts)[:MEDICINES]:
        atomic_write(folder / f"{medicine}.txt", "\n".join(texts[medicine]))


def pubmed(folder: Path) -> None:
    """Ask the true client about these leaflets, with evidence-mini's abstracts for PubMed's: its
    replies are then kept in the cache, in their own form."""
    abstracts = {str(91_000_000 + i): a for i, a in enumerate(load_evidence("evidence-mini"))}

    class StandIn(PubMed):
        def _send(self, kind: str, asked: dict) -> str:
            if kind == "esearch":
                words = set(re.findall(r"\w+", asked["term"].lower()))
                ids = [i for i, a in abstracts.items() if a.medicine.lower() in words]
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
