"""ddx-fresh: diseases that nothing was tuned on, to confirm on once what ddx-real suggests.

Made as ddx-real is, of MedQuAD's diseases that its H+ institute (Genetics Home Reference) has
nothing on. Here every disease draws its own institute: the one whose description is H+ is chosen by
a hash of the disease's CUI among those whose description is not copied from the others, so that no
institute's style is the style of all hypotheses. The other institutes' passages on the disease are
its targets. As that institute is a target of other diseases, its passages stay in the corpus, and
only those on this disease are excluded, for this question alone (``Benchmark.excluded``).

MedQuAD's concepts are assigned by machine, so a document's first concept is at times not its topic
("Loin pain hematuria syndrome" is filed under hematuria). ``Benchmark.doubtful`` has the diseases
none of whose target documents has a name or synonym in common with the document behind H+.

The passages behind a question's mimics are excluded for it too (``apart_from_mimics``): else H-
would stand word for word in the corpus, which is easier to subtract than anything written, and
which ddx-real, whose institute of hypotheses is left out whole, does not have.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib.benchmarks.base import Benchmark, name_words, shared_ngrams
from lib.benchmarks.ddx_real import (
    COPIED,
    HYPOTHESIS_SUBSET,
    Disease,
    Institutes,
    as_benchmark,
    description,
    diseases_of,
    names_of,
    passages_by_disease,
)
from lib.data.passages import Passage

DESCRIBES = ("information",)
"""Answers to "What is ...?" alone: many on symptoms are a form that was filled in by machine."""


def build(encoder) -> Benchmark:
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
        code=("lib.benchmarks.ddx_fresh",),
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
    disease_of = dict(zip(benchmark.h_plus, benchmark.qids, strict=True))
    excluded = {}
    for i, qid in enumerate(benchmark.qids):
        mimics = [texts[i] for texts in benchmark.h_minus.values()]
        if benchmark.several:
            mimics += benchmark.several[i]
        behind = {qid, *(disease_of[text] for text in mimics)}
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
    return description(passages, kinds=DESCRIBES)


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
