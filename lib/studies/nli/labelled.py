"""Labelled sentence pairs, and how well an NLI model tells the contradictions among them.

SciFact (Wadden et al., 2020): a claim with the sentences of an abstract that support or contradict
it, or, for a claim without evidence, with the nearest sentence of each abstract it cites. BioClaim
(Kim et al., 2023; not for commercial use, so only measured on): sentences of cardiology abstracts.
Both were labelled by people; evidence-mini's pairs by two readers that are language models.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib.base.downloads import fetch
from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.studies.nli.models import Backend
from lib.studies.nli.scores import score_pairs

__all__ = ["FILES", "Labelled", "NEAREST", "SETS", "cited", "quality", "scifact"]

NEAREST = DATA / "nli-head" / "nearest.csv"
"""claim, doc, sentence: in each abstract that a claim without evidence cites, the number (from 0)
of the sentence nearest to the claim by MiniLM's cosine, found once (``train_head``)."""

_NAMES = {"SUPPORT": "entailment", "CONTRADICT": "contradiction", "": "neutral"}


class Labelled(NamedTuple):
    """Two sentences; contradiction, entailment or neutral; and what they are resampled with."""

    a: str
    b: str
    label: str
    group: str


def scifact(held_out: bool) -> list[Labelled]:
    """SciFact's pairs held out from training (``data/nli-head/held_out.txt``), or the others.

    Pairs of one group share a claim or an abstract, directly or by way of other pairs; a group is
    on one side only, so no claim and no abstract is on both.
    """
    out = {*_numbers((DATA / "nli-head" / "held_out.txt").read_text(encoding="utf-8"))}
    return [pair for claim, pair in _scifact() if (claim in out) == held_out]


@cache
def cited() -> tuple[tuple[Any, str, list[str]], ...]:
    """(a claim's row, an abstract's id, its sentences): the abstracts with evidence on the claim,
    or, where it has none, those it cites."""
    corpus = _table("scifact-corpus").set_index("doc_id")["abstract"]
    return tuple(
        (row, doc, _sentences(corpus[doc]))
        for row in _table("scifact-claims").itertuples()
        for doc in _numbers(row.evidence_doc_id)
        or sorted({*_numbers(row.cited_doc_ids)} & {*corpus.index})
    )


@cache
def _scifact() -> tuple[tuple[str, Labelled], ...]:
    """Every pair with the id of its claim."""
    from scipy.cluster.hierarchy import DisjointSet

    parts, nearest = DisjointSet(), pd.read_csv(NEAREST, dtype=str).set_index(["claim", "doc"])
    for row in _table("scifact-claims").itertuples():
        for key in (row.claim, *_numbers(f"{row.cited_doc_ids} {row.evidence_doc_id}")):
            parts.add(key)
            parts.merge(row.claim, key)
    out = []
    for row, doc, said in cited():
        evident = row.evidence_doc_id != ""
        marked = row.evidence_sentences if evident else nearest.loc[(row.id, doc), "sentence"]
        text = " ".join(said[int(i)] for i in _numbers(marked))
        group = min(parts.subset(row.claim))
        out.append((row.id, Labelled(row.claim, text, _NAMES[row.evidence_label], group)))
    return tuple(out)


def _bioclaim() -> list[Labelled]:
    """Of each research question: a claim of either side whose words are marked as contradictory is
    a contradiction, two claims of one side answer it alike; the few unmarked pairs are left out."""
    out = []
    for group, rows in _table("bioclaim-val").groupby("group_no"):
        for row in rows.itertuples():
            if "1" in row.sent1_contradiction and "1" in row.sent2_contradiction:
                out.append(Labelled(row.sent1, row.sent2, "contradiction", group))
        for side in ("sent1", "sent2"):
            alike = combinations(sorted(set(rows[side])), 2)
            out += [Labelled(a, b, "entailment", group) for a, b in alike]
    return out


def _mini() -> list[Labelled]:
    """The bundled pairs on whose label both readers (language models) agree, by medicine."""
    folder = DATA / "evidence-mini"
    labels = {row["pid"]: row["label"] for row in read_jsonl(folder / "labels.jsonl")}
    return [
        Labelled(p["a"], p["b"], labels[p["pid"]], p["a_id"].rpartition("-")[0])
        for p in read_jsonl(folder / "pairs.jsonl")
        if labels[p["pid"]]
    ]


SETS: dict[str, Callable[[], list[Labelled]]] = {
    "scifact held-out": lambda: scifact(held_out=True),
    "bioclaim": _bioclaim,
    "evidence-mini pairs": _mini,
}
"""What ``quality`` measures on, also with ", no neutral" behind the name, which leaves out what is
on another matter: the harder half, where the cosine cannot help. Only the last set is bundled."""

FILES = {
    "scifact held-out": (
        "scifact-corpus",
        "scifact-claims",
        "nli-head/held_out.txt",
        "nli-head/nearest.csv",
    ),
    "bioclaim": ("bioclaim-val",),
    "evidence-mini pairs": ("evidence-mini/pairs.jsonl", "evidence-mini/labels.jsonl"),
}
"""What each set is read from, as ``lib.base.provenance.data_hash`` takes it."""


def quality(backend: Backend, name: str, *, draws: int = 1000, seed: int = 0) -> dict[str, Any]:
    """How well P(contradiction) ranks the contradictions of a set above its other pairs.

    backend, set, auroc, ap (average precision; its chance level is positives / n), n, positives,
    and auroc_low, auroc_high: the 95 % interval of a bootstrap over groups of pairs that share a
    text or a topic. Scores are the higher of both directions, as CNT takes them.
    """
    from sklearn.metrics import average_precision_score

    base, part, _ = name.partition(", no neutral")
    pairs = [p for p in SETS[base]() if not part or p.label != "neutral"]
    scores = score_pairs([(p.a, p.b) for p in pairs], backend)
    wanted = np.array([p.label == "contradiction" for p in pairs])
    groups = [
        rows.to_numpy()
        for _, rows in pd.Series(range(len(pairs))).groupby([p.group for p in pairs])
    ]
    rng, drawn = np.random.default_rng(seed), []
    for _ in range(draws):
        rows = np.concatenate([groups[i] for i in rng.integers(0, len(groups), len(groups))])
        if 0 < wanted[rows].sum() < len(rows):
            drawn.append(_auroc(wanted[rows], scores[rows]))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {
        "backend": backend.name,
        "set": name,
        "auroc": _auroc(wanted, scores),
        "ap": float(average_precision_score(wanted, scores)),
        "n": len(pairs),
        "positives": int(wanted.sum()),
        "auroc_low": float(low),
        "auroc_high": float(high),
    }


def _auroc(wanted: np.ndarray, scores: np.ndarray) -> float:
    """The share of (positive, negative) couples in the right order, ties half: from the ranks, as
    sklearn's takes milliseconds to check its input, and a bootstrap asks a thousand times."""
    from scipy.stats import rankdata

    n, negatives = wanted.sum(), (~wanted).sum()
    return float((rankdata(scores)[wanted].sum() - n * (n + 1) / 2) / (n * negatives))


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(fetch(name), dtype=str, keep_default_na=False)


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def _sentences(printed: str) -> list[str]:
    """The sentences of an abstract that is stored as a printed numpy array of strings."""
    tokens = tokenize.generate_tokens(io.StringIO(printed).readline)
    return [ast.literal_eval(t.string) for t in tokens if t.type == tokenize.STRING]
