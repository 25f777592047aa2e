"""ddx-real: target and mimic diseases from independent NIH institutes, no LLM, no word of ours.

H+ is one institute's description of disease X (Genetics Home Reference), target passages are the
other institutes' on X; H- is the same institute's description of a neighbouring disease Y, mimic
passages the others' on Y. The whole open corpus, without the first institute, is the background.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np

from lib.data.benchmark import Benchmark, shares_8gram
from lib.data.corpora import load_passages
from lib.data.neighbours import neighbour_ranks, pick
from lib.data.passages import CORPORA, OPEN_CORPUS, Passage
from lib.search.vectors import encode_small

__all__ = ["build"]

HYPOTHESIS_SUBSET = "3_GHR_QA"
DESCRIBES = ("information", "symptoms")
"""Question types whose answer describes a disease, in order of preference."""
COPIED = 0.05
"""A disease is left out when more than this share of its description's 8-word sequences stands in
its target passages."""
CHARACTERS = 700
"""Length of a hypothesis: the first 700 characters, about what an LLM writes."""


def build(encoder) -> Benchmark:
    """Diseases (first UMLS CUI) described here and found elsewhere; half, by CUI hash, are dev."""
    ours, theirs = _by_disease()
    described = {cui: _description(ours[cui]) for cui in sorted(ours) if cui in theirs}
    described = {cui: found for cui, found in described.items() if found}
    cuis = [
        cui
        for cui, (text, _) in described.items()
        if shares_8gram(text, [p.text for p in theirs[cui]]) <= COPIED
    ]
    texts, names = zip(*(described[cui] for cui in cuis), strict=True)
    targets = {cui: frozenset(p.pid for p in theirs[cui]) for cui in cuis}
    ranks = neighbour_ranks(encode_small(texts, encoder, "article"))
    by_name = neighbour_ranks(encode_small(names, encoder, "query"))
    chosen = pick(ranks) | {"by name": by_name[:, 0]}
    return Benchmark(
        name="ddx-real",
        title="ddx-real: diseases described by independent NIH institutes",
        corpora=OPEN_CORPUS,
        code=("lib.data.ddx_real",),
        files=tuple(file for name in OPEN_CORPUS for file in CORPORA[name].files),
        questions=tuple(f"What is {name}?" for name in names),
        qids=tuple(cuis),
        h_plus=texts,
        h_minus={d: tuple(texts[j] for j in rows) for d, rows in chosen.items()},
        several=tuple(tuple(texts[j] for j in row[:5]) for row in ranks),
        targets=targets,
        mimics={c: targets[cuis[j]] for c, j in zip(cuis, ranks[:, 0], strict=True)},
        dev=frozenset(c for c in cuis if hashlib.sha256(c.encode()).digest()[0] % 2),
        excluded_sources=frozenset({f"medquad:{HYPOTHESIS_SUBSET}"}),
        counts={
            "described": len(described),
            "copied_left_out": len(described) - len(cuis),
            "diseases": len(cuis),
            "median_targets": int(np.median([*map(len, targets.values())])),
        },
    )


def _by_disease() -> tuple[dict[str, list[Passage]], dict[str, list[Passage]]]:
    """MedQuAD chunks by first CUI: the hypothesis institute's, and everyone else's."""
    ours, theirs = defaultdict(list), defaultdict(list)
    for passage in load_passages("medquad"):
        if cuis := passage.meta["cuis"]:
            side = ours if passage.meta["subset"] == HYPOTHESIS_SUBSET else theirs
            side[cuis[0]].append(passage)
    return ours, theirs


def _description(chunks: list[Passage], characters: int = CHARACTERS) -> tuple[str, str] | None:
    """(first characters of the describing answer, disease name), or None without one."""
    for kind in DESCRIBES:
        if of_kind := [p for p in chunks if p.meta["question_type"] == kind]:
            first = of_kind[0].meta
            text = " ".join(p.text for p in of_kind if p.meta["doc"] == first["doc"])
            if len(text) > characters:
                text = text[:characters].rsplit(" ", 1)[0]
            return text, first["focus"]
    return None
