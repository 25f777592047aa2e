"""Dated abstracts and the questions asked of them: evidence-mini, open, or PubMed's on leaflets.

``evidence-mini`` is bundled. ``open`` is the PubMedQA abstracts that have a year, each with its
conclusion, and the Evidence Inference articles that have an abstract, with the effect directions
that doctors read off them; neither has citation counts. ``labels`` is the same abstracts, asked the
six questions of real drug labels. ``tga:<folder>`` asks PubMed about every TGA leaflet (``*.txt``)
in a folder, relative to the project's root; what cannot be read is named.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lib.base.downloads import fetch, load_registry, members
from lib.base.files import read_jsonl
from lib.base.paths import DATA, ROOT
from lib.data.judgments import read_findings
from lib.data.passages import parse_xml, tidy
from lib.studies.evidence.leaflets import load_labels, read_cmi
from lib.studies.evidence.pubmed import PubMed, gather
from lib.studies.evidence.queries import tiers
from lib.studies.evidence.records import Evidence, Need, inner_text

DIRECTIONS = {"1": "increased", "-1": "decreased", "0": "no difference"}
"""What the intervention did to the outcome, by Evidence Inference's Label Code."""

_MINI = "evidence-mini"
_LABELS = "labels"
_ARTICLES = "evidence-inference-articles"
FILES = {
    _MINI: tuple(f"{_MINI}/{name}.jsonl" for name in ("abstracts", "questions", "pairs", "labels")),
    "open": (
        "pubmedqa-labelled",
        _ARTICLES,
        "evidence-inference-prompts",
        "evidence-inference-annotations",
    ),
}
"""What each set is read from, as ``lib.base.provenance.data_hash`` takes it."""


def files_of(name: str) -> list[str]:
    """What a set is read from, as ``data_hash`` takes it; of ``tga:<folder>`` its leaflets."""
    files = list(FILES.get("open" if name == _LABELS else name, ()))
    if name == _LABELS:
        files += load_registry("openfda-")
    folder = name.partition("tga:")[2]
    if folder:
        for path in _leaflets(folder):
            path = path.resolve()
            files.append(str(path.relative_to(DATA) if path.is_relative_to(DATA) else path))
    return files


def load_evidence(name: str, needs: Sequence[Need] | None = None) -> list[Evidence]:
    """All abstracts of evidence-mini (174) or open (1,421), by id; or what PubMed has, by need.

    PubMed is asked about ``needs`` alone where they are given.
    """
    kind, _, folder = name.partition(":")
    if kind == "tga" and folder:
        return _from_pubmed(load_needs(name) if needs is None else needs)
    real = (_pubmedqa, _evidence_inference)
    readers = {_MINI: (_mini,), "open": real, _LABELS: real}
    if name not in readers:
        raise ValueError(f"no evidence {name!r}; there are: {', '.join(readers)}, tga:<folder>")
    abstracts = [abstract for reader in readers[name] for abstract in reader()]
    return sorted(abstracts, key=lambda abstract: abstract.id)


def _from_pubmed(needs: Sequence[Need]) -> list[Evidence]:
    """What PubMed has on each need; how much was asked and dropped is printed."""
    client = PubMed()
    named_needs = [(need.qid, need) for need in needs]
    found = []
    for need, queries in _readable(named_needs, tiers, "questions"):
        found += gather(client, need, queries)
    print(f"PubMed: {dict(sorted(client.counts.items()))}", file=sys.stderr)
    return found


def load_needs(name: str) -> list[Need]:
    """The questions asked: six a medicine, or, for open, each abstract's own title.

    Those have no medicine and no heading; the answer to a PubMedQA question is its abstract's
    conclusion, which is part of that abstract here. A leaflet without any of the six headings (the
    format before 2020) is left out and named; ValueError where all are.
    """
    kind, _, folder = name.partition(":")
    if kind == "tga" and folder:
        files = _leaflets(folder)
        if not files:
            raise FileNotFoundError(
                f"no leaflets: put TGA leaflets as *.txt into {folder}, or set evidence = '{_MINI}'"
            )
        named_files = [(file.name, file) for file in files]
        needs = []
        for _, of_leaflet in _readable(named_files, _read_leaflet, "leaflets"):
            needs += of_leaflet
        return needs
    if name == _LABELS:
        return load_labels()
    if name == _MINI:
        return [Need(**row) for row in read_jsonl(DATA / _MINI / "questions.jsonl")]
    needs = []
    for abstract in load_evidence(name):
        conclusion = abstract.meta.get("conclusion", "")
        needs.append(Need(abstract.id, "", 0, abstract.title, conclusion))
    return needs


def _leaflets(folder: str) -> list[Path]:
    return sorted((ROOT / folder).glob("*.txt"))


def _read_leaflet(file: Path) -> list[Need]:
    return read_cmi(file.read_text(encoding="utf-8"), file.stem)


def _readable(
    named_items: Sequence[tuple[str, Any]], reader: Callable, what: str
) -> list[tuple[Any, Any]]:
    """Each item with what ``reader`` makes of it; those it refuses (ValueError) are named.

    ValueError where it refuses all.
    """
    found, refused = [], {}
    for name, item in named_items:
        try:
            found.append((item, reader(item)))
        except ValueError as error:
            refused[name] = str(error)
    if not refused:
        return found
    first_reason = next(iter(refused.values()))
    if not found:
        raise ValueError(f"none of {len(refused)} {what} can be read; the first: {first_reason}")
    print(
        f"{len(refused)} of {len(named_items)} {what} are left out: {', '.join(refused)};"
        f" the first because {first_reason}",
        file=sys.stderr,
    )
    return found


def _mini() -> Iterator[Evidence]:
    for row in read_jsonl(DATA / _MINI / "abstracts.jsonl"):
        meta = {key: row.pop(key) for key in ("stance", "retells")}
        yield Evidence(**row, source=_MINI, meta=meta)


def _pubmedqa() -> Iterator[Evidence]:
    rows = json.loads(fetch("pubmedqa-labelled").read_text(encoding="utf-8"))
    for pmid, row in rows.items():
        conclusion = tidy(row["LONG_ANSWER"])
        text = " ".join([*map(tidy, row["CONTEXTS"]), conclusion])
        meta = {"decision": row["final_decision"], "conclusion": conclusion}
        if row["YEAR"]:  # a few have none
            yield Evidence(
                id=f"pubmed:{pmid}",
                title=tidy(row["QUESTION"]),
                text=text,
                year=int(row["YEAR"]),
                source="PubMedQA",
                meta=meta,
            )


def _evidence_inference() -> Iterator[Evidence]:
    effects = _effects()
    for path, data in members(_ARTICLES):
        meta = parse_xml(data, f"Evidence Inference {path}").find(".//article-meta")
        # Some have more than one; the abstract itself is the one without a type.
        abstracts = sorted(meta.findall("abstract"), key=lambda e: "abstract-type" in e.attrib)
        if not abstracts:
            continue
        name = path.removesuffix(".nxml")
        years = [int(year.text) for year in meta.findall("pub-date/year")]
        yield Evidence(
            id=f"pmc:{name}",
            title=tidy(inner_text(meta.find(".//article-title"))),
            text=tidy(" ".join(inner_text(p) for p in abstracts[0].iter("p"))),
            year=min(years),  # in print and online: the first
            source="Evidence Inference",
            meta={"effects": effects.get(name.removeprefix("PMC"), [])},
        )


def _effects() -> dict[str, list[dict]]:
    """By article: outcome, intervention, comparator and effect of each prompt."""
    effects = defaultdict(dict)
    for row in read_findings():
        effect = {name: row[name] for name in ("outcome", "intervention", "comparator")}
        effect["effect"] = DIRECTIONS[str(row["direction"])]
        effects[row["article"]][row["prompt"]] = effect
    return {article: list(own.values()) for article, own in effects.items()}
