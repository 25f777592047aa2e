"""ddx-real: target and mimic diseases from independent NIH institutes, no LLM, no word of ours.

H+ is one institute's description of disease X (Genetics Home Reference), target passages are the
other institutes' on X; H- is the same institute's description of a neighbouring disease Y, mimic
passages the others' on Y. The whole open corpus, without the first institute, is the background.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.benchmarks.base import Benchmark, name_words, neighbour_ranks, pick, shared_ngrams
from lib.corpora import load_passages
from lib.data.passages import CORPORA, OPEN_CORPUS, Passage
from lib.search.vectors import encode_small

HYPOTHESIS_SUBSET = "3_GHR_QA"
DESCRIBES = ("information", "symptoms")
"""Question types whose answer describes a disease, in order of preference."""
COPIED = 0.05
"""A disease is left out when more than this share of its description's 8-word sequences stands in
its target passages."""
CHARACTERS = 700
"""Length of a hypothesis: the first 700 characters, about what an LLM writes."""

Institutes = Mapping[str, Sequence[Passage]]
"""The passages on one disease by institute (MedQuAD's subset), each in the corpus' order."""


@dataclass(frozen=True)
class Disease:
    """One disease of a benchmark: its description (H+), its names, and the passages on it.

    ``names`` begins with that of the document that H+ is from. ``excluded`` are the passages that
    may not be found for it.
    """

    cui: str
    text: str
    names: tuple[str, ...]
    targets: frozenset[str]
    excluded: frozenset[str] = frozenset()


def build(encoder) -> Benchmark:
    """Diseases (first UMLS CUI) described here and found elsewhere; half, by CUI hash, are dev."""
    diseases, described = diseases_of(passages_by_disease())
    return as_benchmark(
        diseases,
        encoder,
        name="ddx-real",
        title="ddx-real: diseases described by independent NIH institutes",
        code=("lib.benchmarks.ddx_real",),
        dev=frozenset(d.cui for d in diseases if hashlib.sha256(d.cui.encode()).digest()[0] % 2),
        excluded_sources=frozenset({f"medquad:{HYPOTHESIS_SUBSET}"}),
        counts={
            "described": described,
            "copied_left_out": described - len(diseases),
            "diseases": len(diseases),
            "median_targets": int(np.median([len(d.targets) for d in diseases])),
        },
    )


def diseases_of(by_disease: Mapping[str, Institutes]) -> tuple[list[Disease], int]:
    """The diseases of ddx-real in the order of their CUIs, and how many there were with copies."""
    diseases, described = [], 0
    for cui, institutes in sorted(by_disease.items()):
        others = [p for name in institutes if name != HYPOTHESIS_SUBSET for p in institutes[name]]
        h_plus = description(institutes.get(HYPOTHESIS_SUBSET, ()))
        if not (h_plus and others):
            continue
        described += 1
        text, name = h_plus
        if shared_ngrams(text, [p.text for p in others]) <= COPIED:
            names = names_of(name, institutes)
            diseases.append(Disease(cui, text, names, frozenset(p.pid for p in others)))
    return diseases, described


def as_benchmark(diseases: Sequence[Disease], encoder, **fields: Any) -> Benchmark:
    """The benchmark of these diseases over the open corpus, each a possible mimic of every other.

    Who is near whom is the cosine of their descriptions, or of their names for "by name".
    ``fields`` are the fields of Benchmark that differ between the sets made this way.
    """
    texts = tuple(d.text for d in diseases)
    ranks = neighbour_ranks(encode_small(texts, encoder, "article"))
    by_name = neighbour_ranks(encode_small([d.names[0] for d in diseases], encoder, "query"))
    chosen = pick(ranks) | {"by name": by_name[:, 0]}
    nearest = zip(diseases, ranks[:, 0], strict=True)
    return Benchmark(
        corpora=OPEN_CORPUS,
        files=tuple(file for name in OPEN_CORPUS for file in CORPORA[name].files),
        questions=tuple(f"What is {d.names[0]}?" for d in diseases),
        qids=tuple(d.cui for d in diseases),
        h_plus=texts,
        h_minus={distance: tuple(texts[j] for j in rows) for distance, rows in chosen.items()},
        several=tuple(tuple(texts[j] for j in row[:5]) for row in ranks),
        targets={d.cui: d.targets for d in diseases},
        mimics={d.cui: diseases[j].targets for d, j in nearest},
        names={d.cui: d.names for d in diseases},
        **fields,
    )


def passages_by_disease() -> dict[str, dict[str, list[Passage]]]:
    """MedQuAD's passages by first CUI, and by institute within it; topics without one are left."""
    by_disease: dict[str, dict[str, list[Passage]]] = defaultdict(lambda: defaultdict(list))
    for passage in load_passages("medquad"):
        if cuis := passage.meta["cuis"]:
            by_disease[cuis[0]][passage.meta["subset"]].append(passage)
    return by_disease


def names_of(name: str, institutes: Institutes) -> tuple[str, ...]:
    """What a disease is called: ``name``, then the titles and synonyms of its other documents.

    Names that differ only in case, punctuation or plural are one name.
    """
    by_words = {name_words(name): name}
    for passage in (p for passages in institutes.values() for p in passages):
        for other in (passage.meta["focus"], *passage.meta["synonyms"]):
            by_words.setdefault(name_words(other), other)
    return tuple(other for words, other in by_words.items() if words)


def description(
    passages: Iterable[Passage],
    characters: int = CHARACTERS,
    kinds: Sequence[str] = DESCRIBES,
) -> tuple[str, str] | None:
    """(first characters of the describing answer, disease name), or None without one.

    It is the first answer to a question of the first of the ``kinds`` that there is.
    """
    passages = list(passages)
    for kind in kinds:
        if of_kind := [p for p in passages if p.meta["question_type"] == kind]:
            first = of_kind[0].meta
            text = " ".join(p.text for p in of_kind if p.meta["doc"] == first["doc"])
            if len(text) > characters:
                text = text[:characters].rsplit(" ", 1)[0]
            return text, first["focus"]
    return None
