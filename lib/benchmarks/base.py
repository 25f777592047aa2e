"""What every target/mimic benchmark is: texts to search with, and which passages are on what.

A benchmark needs no LLM to run: H+ and H- are given, as reference text or as real text that stands
in for them. Mimics of real questions are neighbours by the cosine of unit vectors.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Benchmark:
    """One set of questions with hypotheses and relevance; every list is in ``qids`` order.

    ``h_minus`` holds one mimic per question for each way of choosing it ("nearest", "middle");
    ``mimics`` has the ids of the passages on the nearest. ``several`` holds the m
    nearest mimics, for differentials. ``dev`` are the questions parameters may be chosen on;
    results are on the others. ``copied``, ``shared`` and ``doubtful`` mark questions that a strict
    analysis leaves out. ``excluded`` holds, by question, the passages that may not be found for it,
    because its H+ was written from them; a question that is not in it may find everything.
    ``names`` has the names of a question's answer: the main name, then synonyms. ``topics``
    says what H+ and H- are about, ``errata`` has questions with a known error in a hypothesis, and
    ``code`` the modules that made the benchmark, for the results that stand on it. ``chosen_on``
    names the benchmark whose dev questions choose every parameter, for one without dev questions.
    """

    name: str
    title: str
    corpora: tuple[str, ...]
    qids: tuple[str, ...]
    questions: tuple[str, ...]
    h_plus: tuple[str, ...]
    h_minus: Mapping[str, tuple[str, ...]]
    targets: Mapping[str, frozenset[str]]
    mimics: Mapping[str, frozenset[str]]
    several: tuple[tuple[str, ...], ...] = ()
    dev: frozenset[str] = frozenset()
    copied: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()
    excluded_sources: frozenset[str] = frozenset()
    topics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    errata: frozenset[str] = frozenset()
    code: tuple[str, ...] = ()
    chosen_on: str = ""
    excluded: Mapping[str, frozenset[str]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """Names of the data files behind it, as ``lib.base.provenance.data_hash`` takes them."""
    counts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, lists = len(self.qids), {"questions": self.questions, "h_plus": self.h_plus}
        for name, values in (lists | dict(self.h_minus)).items():
            if len(values) != n:
                raise ValueError(f"{self.name}: {name} has {len(values)} rows, qids {n}")
        if self.several and len(self.several) != n:
            raise ValueError(f"{self.name}: several has {len(self.several)} rows, qids {n}")
        if missing := [q for q in self.qids if not self.targets.get(q)]:
            raise ValueError(f"{self.name}: no target passage for {', '.join(missing[:5])}")
        for qid, excluded in self.excluded.items():
            if both := sorted(excluded & self.targets[qid]):
                raise ValueError(f"{self.name}: {both[0]} is a target of {qid} and excluded for it")

    @property
    def test(self) -> tuple[str, ...]:
        """The questions results are reported on."""
        return tuple(q for q in self.qids if q not in self.dev)

    @property
    def shown(self) -> dict[str, list[str]]:
        """By question the questions whose H+ is among its texts: itself, then its mimics' own.

        ValueError where a mimic is no other question's H+.
        """
        qid_of = dict(zip(self.h_plus, self.qids, strict=True))
        shown = {}
        for i, qid in enumerate(self.qids):
            mimics = [column[i] for column in self.h_minus.values()]
            if self.several:
                mimics += self.several[i]
            for text in mimics:
                if text not in qid_of:
                    why = f"{self.name}: a mimic of {qid} is no other question's H+"
                    raise ValueError(f"{why}: {text[:60]!r}")
            shown[qid] = list(dict.fromkeys([qid, *(qid_of[text] for text in mimics)]))
        return shown


_NOT_IN_WORDS = re.compile(r"[\W_]")


def shared_ngrams(text: str, others: Sequence[str], n: int = 8) -> float:
    """Share of the text's n-word sequences that stand in any of ``others``; 0 for short texts.

    A sequence does not run from one of the others into the next.
    """
    sequences = ngrams(text, n)
    elsewhere = set().union(*(ngrams(other, n) for other in others))
    return len(sequences & elsewhere) / max(len(sequences), 1)


def ngrams(text: str, n: int = 8) -> set[tuple[str, ...]]:
    """The n-word sequences of a text, lower case, punctuation dropped; none in a shorter text."""
    words = _NOT_IN_WORDS.sub(" ", text).lower().split()
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def name_words(text: str) -> tuple[str, ...]:
    """The words of a name as names are compared: "Behçet's Diseases" is behcet, disease.

    Lower case, without accents, punctuation and possessive; words of four or more letters also
    without their plural ("-ies" is "-y", and a last "s" falls even where it is no plural).
    """
    letters = unicodedata.normalize("NFKD", text.lower())
    bare = "".join(c for c in letters if not unicodedata.combining(c))
    words = _NOT_IN_WORDS.sub(" ", bare).split()
    return tuple(_singular(word) for word in words if word != "s")


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s"):
        return word
    return word[:-3] + "y" if word.endswith("ies") else word[:-1]


def neighbour_ranks(vectors: np.ndarray) -> np.ndarray:
    """The 50 (or all, if fewer) nearest other rows of each row, nearest first, ties by row.

    Cosines are rounded to 1e-5 first, so that processors agree on ties.
    """
    similarity = np.round(vectors @ vectors.T, 5)
    np.fill_diagonal(similarity, -2)  # below every cosine: no row is its own neighbour
    order = np.argsort(-similarity, axis=1, kind="stable")
    return order[:, : min(50, len(vectors) - 1)]


def pick(ranks: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """For each row the number of one other row: its "nearest", and a "middle" one.

    The middle one is drawn from its neighbours of ranks 10 to 49. ``ranks`` is what
    ``neighbour_ranks`` gives.
    """
    n, depth = ranks.shape
    generator = np.random.default_rng(seed)
    # Columns 9 to 48 are ranks 10 to 49; with fewer rows, what there is of them.
    first = min(9, depth - 1)
    end = min(49, depth)
    drawn = generator.integers(first, end, size=n)
    return {"nearest": ranks[:, 0], "middle": ranks[np.arange(n), drawn]}
