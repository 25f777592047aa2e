"""ddx-real: target and mimic diseases from independent NIH institutes, no LLM, no text of our own.

H+ is one institute's description of disease X (Genetics Home Reference), target passages are the
other institutes' on X; H- is the same institute's description of a neighbouring disease Y, mimic
passages the others' on Y. The whole open corpus, without the first institute, is the background.

``build_fresh`` is ddx-fresh: diseases on which nothing was tuned, used once to confirm what
ddx-real suggests. They are the diseases that the institute of ddx-real's H+ does not cover. Here
each disease has its own institute for H+, chosen by a hash of the disease's CUI among the
institutes whose description is not copied from the others. So the hypotheses do not share one
institute's style. The other institutes' passages on the disease are its targets. As the chosen one
is a target of other diseases, its passages stay in the corpus, and only those on this disease are
excluded, for this question alone (``Benchmark.excluded``).

MedQuAD's concepts are assigned by machine, so a document's first concept is at times not its topic
("Loin pain hematuria syndrome" is filed under hematuria). ``Benchmark.doubtful`` has the diseases
none of whose target documents has a name or synonym in common with the document behind H+.

The passages behind a question's mimics are excluded for it too (``apart_from_mimics``): else H-
would be in the corpus word for word, and a verbatim mimic is easier to subtract than a written one.
ddx-real avoids this by leaving out the whole institute that its hypotheses are from.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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

    Mimics are neighbours by the cosine of descriptions, or, for "by name", of disease names.
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
    passages: Iterable[Passage], kinds: Sequence[str] = DESCRIBES
) -> tuple[str, str] | None:
    """(first characters of the describing answer, disease name), or None without one.

    It is the first answer to a question of the first of the ``kinds`` that there is.
    """
    passages = list(passages)
    for kind in kinds:
        if of_kind := [p for p in passages if p.meta["question_type"] == kind]:
            first = of_kind[0].meta
            text = " ".join(p.text for p in of_kind if p.meta["doc"] == first["doc"])
            if len(text) > CHARACTERS:
                text = text[:CHARACTERS].rsplit(" ", 1)[0]
            return text, first["focus"]
    return None


# ddx-fresh ----------------------------------------------------------------------------------------

FRESH_DESCRIBES = ("information",)
"""Answers to "What is ...?" alone: many on symptoms are a template filled in by machine."""


def build_fresh(encoder) -> Benchmark:
    """All diseases are test: parameters come from the dev half of ddx-real.

    Left out, in this order and each counted: diseases that no institute describes, those where
    every description is copied (ddx-real's rule), and those that ddx-real has under another CUI.
    """
    by_disease = passages_by_disease()
    candidates = {
        cui: institutes
        for cui, institutes in sorted(by_disease.items())
        if len(institutes) > 1 and HYPOTHESIS_SUBSET not in institutes
    }
    described = [cui for cui in candidates if any(map(_described, candidates[cui].values()))]
    describers = {cui: _describer(cui, candidates[cui]) for cui in described}
    original = [cui for cui in described if describers[cui]]
    in_ddx_real = _in_ddx_real(by_disease)
    kept = [cui for cui in original if not in_ddx_real(candidates[cui])]
    diseases = [_disease(cui, describers[cui], candidates[cui]) for cui in kept]
    doubtful = {d.cui for d in diseases if not _named_alike(d, describers[d.cui], candidates)}
    shares = Counter(describers[cui] for cui in kept)
    benchmark = as_benchmark(
        diseases,
        encoder,
        name="ddx-fresh",
        code=("lib.benchmarks.ddx_real",),
        chosen_on="ddx-real",
        title="ddx-fresh: diseases nothing was tuned on, each institute in turn",
        excluded={d.cui: d.excluded for d in diseases},
        doubtful=frozenset(doubtful),
        counts={
            "candidates": len(candidates),
            "described": len(described),
            "copied_left_out": len(described) - len(original),
            "in_ddx_real_left_out": len(original) - len(kept),
            "diseases": len(diseases),
            "doubtful": len(doubtful),
            "median_targets": int(np.median([len(d.targets) for d in diseases])),
            "median_excluded": int(np.median([len(d.excluded) for d in diseases])),
        }
        | {f"h_plus_from_{name}": shares[name] for name in sorted(shares)},
    )
    return apart_from_mimics(benchmark)


def apart_from_mimics(benchmark: Benchmark) -> Benchmark:
    """The same questions, where the passages behind a question's mimics may not be found either.

    So no hypothesis of a question, H+ or any H-, has the text of a passage that it can find.
    """
    excluded = {}
    for qid, behind in benchmark.shown.items():
        excluded[qid] = frozenset().union(*(benchmark.excluded[other] for other in behind))
    return replace(benchmark, excluded=excluded)


def _in_ddx_real(by_disease: Mapping[str, Institutes]) -> Callable[[Institutes], bool]:
    """Tells whether a document's title is a title or synonym of one of ddx-real, or the reverse."""
    known = [by_disease[disease.cui] for disease in diseases_of(by_disease)[0]]
    titles = set().union(*map(_titles, known))
    names = set().union(*map(_names, known))
    return lambda institutes: bool(_titles(institutes) & names or _names(institutes) & titles)


def _described(passages: Sequence[Passage]) -> tuple[str, str] | None:
    """Text and name of an institute's description of a disease, or None without one."""
    return description(passages, kinds=FRESH_DESCRIBES)


def _describer(cui: str, institutes: Institutes) -> str | None:
    """The institute whose description is H+, by the hash of the CUI; None if all are copied.

    The institutes stand in the order of their names, and the number that the first 8 bytes of
    SHA-256 make, modulo how many there are, says which.
    """
    original = []
    for institute in sorted(institutes):
        described = _described(institutes[institute])
        others = [p.text for p in _passages(institutes, but=institute)]
        if described and shared_ngrams(described[0], others) <= COPIED:
            original.append(institute)
    if not original:
        return None
    number = int.from_bytes(hashlib.sha256(cui.encode()).digest()[:8], "big")
    return original[number % len(original)]


def _disease(cui: str, describer: str, institutes: Institutes) -> Disease:
    text, name = _described(institutes[describer])
    return Disease(
        cui,
        text,
        names_of(name, institutes),
        targets=frozenset(p.pid for p in _passages(institutes, but=describer)),
        excluded=frozenset(p.pid for p in institutes[describer]),
    )


def _passages(institutes: Institutes, but: str) -> list[Passage]:
    """The passages of every institute except one."""
    return [p for name, passages in institutes.items() if name != but for p in passages]


def _named_alike(disease: Disease, describer: str, candidates: Mapping[str, Institutes]) -> bool:
    """Whether a target document shares a name with the document that H+ is from."""
    institutes = candidates[disease.cui]
    source = [p for p in institutes[describer] if p.meta["focus"] == disease.names[0]]
    targets = {name: passages for name, passages in institutes.items() if name != describer}
    return bool(_names({describer: source}) & _names(targets))


def _titles(institutes: Institutes) -> set[tuple[str, ...]]:
    return {name_words(p.meta["focus"]) for passages in institutes.values() for p in passages}


def _names(institutes: Institutes) -> set[tuple[str, ...]]:
    synonyms = {
        name_words(synonym)
        for passages in institutes.values()
        for p in passages
        for synonym in p.meta["synonyms"]
    }
    return (_titles(institutes) | synonyms) - {()}
