"""ddx-real: target and mimic diseases from independent NIH institutes, no LLM, no word of ours.

H+ is one institute's description of disease X (Genetics Home Reference), target passages are the
other institutes' on X; H- is the same institute's description of a neighbouring disease Y, mimic
passages the others' on Y. The whole open corpus, without the first institute, is the background.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np

from lib.benchmarks.base import Benchmark, shares_8gram
from lib.benchmarks.neighbours import DISTANCES, neighbour_ranks, pick
from lib.corpora import CORPORA, OPEN_CORPUS, Passage, load_passages
from lib.vectors import encode_small

__all__ = ["build", "HYPOTHESIS_SUBSET", "DESCRIBES"]

HYPOTHESIS_SUBSET = "3_GHR_QA"
DESCRIBES = ("information", "symptoms")
"""Question types whose answer describes a disease, in order of preference."""
COPIED = 0.05
"""A disease is left out when more than this share of its description's 8-word sequences stands in
its target passages."""
CHARACTERS = 700
"""Length of a hypothesis: the first 700 characters, about what an LLM writes."""


def build(
    encoder, seed: int = 0, several: int = 5, characters: int = CHARACTERS, corpora=None
) -> Benchmark:
    """Diseases (first UMLS CUI) described here and found elsewhere; half, by CUI hash, are dev."""
    ours, theirs = _by_disease()
    described = {cui: _description(p, characters) for cui, p in ours.items() if cui in theirs}
    described = {cui: d for cui, d in described.items() if d}
    copied = {
        cui for cui, (text, _) in described.items()
        if shares_8gram(text, [p.text for p in theirs[cui]]) > COPIED
    }  # fmt: skip
    cuis = sorted(set(described) - copied)
    texts = [described[c][0] for c in cuis]
    names = [described[c][1] for c in cuis]
    ranks = neighbour_ranks(encode_small(texts, encoder, "article"), 50)
    by_name = neighbour_ranks(encode_small(names, encoder, "query"), 50)
    chosen = {d: pick(ranks, len(cuis), d, seed) for d in DISTANCES} | {"by name": by_name[:, 0]}
    targets = {c: frozenset(p.pid for p in theirs[c]) for c in cuis}
    return Benchmark(
        name="ddx-real",
        title="ddx-real: diseases described by independent NIH institutes",
        corpora=corpora or OPEN_CORPUS,
        files=tuple(f for c in corpora or OPEN_CORPUS for f in CORPORA[c].files),
        qids=tuple(cuis),
        questions=tuple(f"What is {n}?" for n in names),
        h_plus=tuple(texts),
        h_minus={d: tuple(texts[j] for j in rows) for d, rows in chosen.items()},
        targets=targets,
        mimics={
            d: {c: targets[cuis[j]] for c, j in zip(cuis, rows, strict=True)}
            for d, rows in chosen.items()
        },
        several=tuple(tuple(texts[j] for j in row[:several]) for row in ranks),
        dev=frozenset(c for c in cuis if hashlib.sha256(c.encode()).digest()[0] % 2),
        excluded_sources=frozenset({f"medquad:{HYPOTHESIS_SUBSET}"}),
        counts={
            "described": len(described), "copied_left_out": len(copied), "diseases": len(cuis),
            "median_targets": int(np.median([len(t) for t in targets.values()])),
        },
    )  # fmt: skip


def _by_disease() -> tuple[dict[str, list[Passage]], dict[str, list[Passage]]]:
    """MedQuAD chunks by first CUI: the hypothesis institute's, and everyone else's."""
    ours, theirs = defaultdict(list), defaultdict(list)
    for passage in load_passages("medquad"):
        if cuis := passage.meta["cuis"]:
            side = ours if passage.meta["subset"] == HYPOTHESIS_SUBSET else theirs
            side[cuis[0]].append(passage)
    return ours, theirs


def _description(chunks: list[Passage], characters: int) -> tuple[str, str] | None:
    """(first characters of the describing answer, disease name), or None without one."""
    for kind in DESCRIBES:
        of_kind = [p for p in chunks if p.meta["question_type"] == kind]
        if of_kind:
            document = of_kind[0].meta["doc"]
            text = " ".join(p.text for p in of_kind if p.meta["doc"] == document)
            if len(text) > characters:
                text = text[:characters].rsplit(" ", 1)[0]
            return text, of_kind[0].meta["focus"]
    return None
