"""Dated abstracts and the questions asked of them: evidence-mini, open, or PubMed's on leaflets.

``evidence-mini`` is bundled. ``open`` is the PubMedQA abstracts that have a year, each with its
conclusion, and the Evidence Inference articles that have an abstract, with the effect directions
that doctors read off them; neither has citation counts. ``tga:<folder>`` asks PubMed about every
TGA leaflet (``*.txt``) in a folder, relative to the project's root; what cannot be read is named.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lib.base.downloads import fetch, members
from lib.base.files import read_jsonl
from lib.base.paths import DATA, ROOT
from lib.data.documents import parse_xml, tidy
from lib.studies.evidence.leaflets import read_cmi
from lib.studies.evidence.pubmed import PubMed, gather
from lib.studies.evidence.queries import tiers
from lib.studies.evidence.records import Evidence, Need, inner_text

__all__ = ["DIRECTIONS", "FILES", "files_of", "load_evidence", "load_needs"]

DIRECTIONS = {"1": "increased", "-1": "decreased", "0": "no difference"}
"""Label Code of Evidence Inference: what the intervention did to the outcome."""

_MINI = "evidence-mini"
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
    folder = name.partition("tga:")[2]
    found = [path.resolve() for path in _leaflets(folder)] if folder else []
    inside = [str(path.relative_to(DATA) if path.is_relative_to(DATA) else path) for path in found]
    return [*FILES.get(name, ()), *inside]


def load_evidence(name: str, needs: Sequence[Need] | None = None) -> list[Evidence]:
    """All abstracts of evidence-mini (174) or open (1,421), by id; or what PubMed has, by need.

    PubMed is asked about ``needs`` alone where they are given.
    """
    kind, _, folder = name.partition(":")
    readers = {_MINI: (_mini,), "open": (_pubmedqa, _evidence_inference)}
    if kind == "tga" and folder:
        client, needs = PubMed(), load_needs(name) if needs is None else needs
        asked = _read(((need.qid, need) for need in needs), tiers, "questions")
        found = [d for need, queries in asked for d in gather(client, need, queries)]
        print(f"PubMed: {dict(sorted(client.counts.items()))}", file=sys.stderr)
        return found
    if name not in readers:
        raise ValueError(f"no evidence {name!r}; there are: {', '.join(readers)}, tga:<folder>")
    return sorted((d for read in readers[name] for d in read()), key=lambda d: d.id)


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

        def read(file: Path) -> list[Need]:
            return read_cmi(file.read_text(encoding="utf-8"), file.stem)

        return [n for _, own in _read(((f.name, f) for f in files), read, "leaflets") for n in own]
    if name == _MINI:
        return [Need(**row) for row in read_jsonl(DATA / _MINI / "questions.jsonl")]
    return [Need(d.id, "", 0, d.title, d.meta.get("conclusion", "")) for d in load_evidence(name)]


def _leaflets(folder: str) -> list[Path]:
    return sorted((ROOT / folder).glob("*.txt"))


def _read(items: Iterable[tuple[str, Any]], read: Callable, what: str) -> list[tuple[Any, Any]]:
    """Each item with what ``read`` makes of it; those it refuses (ValueError) are named."""
    out, refused, why = [], [], ""
    for name, item in items:
        try:
            out.append((item, read(item)))
        except ValueError as error:
            refused.append(name)
            why = why or str(error)
    if refused and not out:
        raise ValueError(f"none of {len(refused)} {what} can be read; the first: {why}")
    if refused:
        print(
            f"{len(refused)} of {len(refused) + len(out)} {what} are left out: "
            f"{', '.join(refused)}; the first because {why}",
            file=sys.stderr,
        )
    return out


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
        if row["YEAR"]:
            yield Evidence(
                f"pubmed:{pmid}",
                tidy(row["QUESTION"]),
                text,
                int(row["YEAR"]),
                source="PubMedQA",
                meta=meta,
            )


def _evidence_inference() -> Iterator[Evidence]:
    effects = _effects()
    for path, data in members(_ARTICLES):
        meta = parse_xml(data, f"Evidence Inference {path}").find(".//article-meta")
        # Some have more than one; the abstract itself is the one without a type.
        abstracts = sorted(meta.findall("abstract"), key=lambda e: "abstract-type" in e.attrib)
        name, years = path.removesuffix(".nxml"), meta.findall("pub-date/year")
        if abstracts:
            text = tidy(" ".join(inner_text(p) for p in abstracts[0].iter("p")))
            title = tidy(inner_text(meta.find(".//article-title")))
            yield Evidence(
                f"pmc:{name}",
                title,
                text,
                min(int(y.text) for y in years),
                source="Evidence Inference",
                meta={"effects": effects.get(name.removeprefix("PMC"), [])},
            )


def _effects() -> dict[str, list[dict]]:
    """By article: outcome, intervention, comparator and effect, where every reading agrees on it.

    A reading counts when the doctor who checked it accepted both its label and its reasoning.
    """
    asked, read = (_table(f"evidence-inference-{kind}") for kind in ("prompts", "annotations"))
    codes = defaultdict(set)
    for row in read:
        if row["Valid Label"] == row["Valid Reasoning"] == "True":
            codes[row["PromptID"]].add(row["Label Code"])
    found = defaultdict(list)
    for row in asked:
        if len(own := codes[row["PromptID"]]) == 1:
            said = {k.lower(): tidy(row[k]) for k in ("Outcome", "Intervention", "Comparator")}
            found[row["PMCID"]].append(said | {"effect": DIRECTIONS[own.pop()]})
    return found


def _table(name: str) -> list[dict[str, str]]:
    with open(fetch(name), encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))
