"""Dated abstracts and the questions asked of them: evidence-mini, open, or PubMed's on leaflets.

``evidence-mini`` is bundled. ``open`` is the PubMedQA abstracts that have a year, each with its
conclusion, and the Evidence Inference articles that have an abstract, with the effect directions
that doctors read off them; neither has citation counts. ``tga:<folder>`` asks PubMed about every
TGA leaflet (``*.txt``) in a folder, relative to the project's root.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator

from lib.documents import parse_xml, tidy
from lib.downloads import fetch, members
from lib.evidence.leaflets import read_cmi
from lib.evidence.pubmed import PubMed, gather
from lib.evidence.queries import tiers
from lib.evidence.records import Evidence, Need, inner_text
from lib.files import read_jsonl
from lib.paths import DATA, ROOT

__all__ = ["DIRECTIONS", "FILES", "load_evidence", "load_needs"]

DIRECTIONS = {"1": "increased", "-1": "decreased", "0": "no difference"}
"""Label Code of Evidence Inference: what the intervention did to the outcome."""

_MINI = "evidence-mini"
_ARTICLES = "evidence-inference-articles"
FILES = {
    _MINI: tuple(f"{_MINI}/{name}.jsonl" for name in ("abstracts", "questions", "pairs", "labels")),
    "open": ("pubmedqa-labelled", _ARTICLES, "evidence-inference-prompts",
             "evidence-inference-annotations"),
}  # fmt: skip
"""What each set is read from, as ``lib.provenance.data_hash`` takes it."""


def load_evidence(name: str) -> list[Evidence]:
    """All abstracts of evidence-mini (174) or open (1,421), by id; or what PubMed has, by need."""
    kind, _, folder = name.partition(":")
    readers = {_MINI: (_mini,), "open": (_pubmedqa, _evidence_inference)}
    if kind == "tga" and folder:
        client = PubMed()
        return [d for need in load_needs(name) for d in gather(client, need, tiers(need))]
    if name not in readers:
        raise ValueError(f"no evidence {name!r}; there are: {', '.join(readers)}, tga:<folder>")
    return sorted((d for read in readers[name] for d in read()), key=lambda d: d.id)


def load_needs(name: str) -> list[Need]:
    """The questions asked: six a medicine, or, for open, each abstract's own title.

    Those have no medicine and no heading; the answer to a PubMedQA question is its abstract's
    conclusion, which is part of that abstract here.
    """
    kind, _, folder = name.partition(":")
    if kind == "tga" and folder:
        files = sorted((ROOT / folder).glob("*.txt"))
        if not files:
            raise FileNotFoundError(f"no leaflets: put TGA leaflets as *.txt into {folder}, or set "
                                    f"evidence = '{_MINI}'")  # fmt: skip
        return [n for f in files for n in read_cmi(f.read_text(encoding="utf-8"), f.stem)]
    if name == _MINI:
        return [Need(**row) for row in read_jsonl(DATA / _MINI / "questions.jsonl")]
    return [Need(d.id, "", 0, d.title, d.meta.get("conclusion", "")) for d in load_evidence(name)]


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
            yield Evidence(f"pubmed:{pmid}", tidy(row["QUESTION"]), text, int(row["YEAR"]),
                           source="PubMedQA", meta=meta)  # fmt: skip


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
            yield Evidence(f"pmc:{name}", title, text, min(int(y.text) for y in years),
                           source="Evidence Inference",
                           meta={"effects": effects.get(name.removeprefix("PMC"), [])})  # fmt: skip


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
