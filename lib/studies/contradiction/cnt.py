"""CNT: how far two abstracts contradict each other, and one abstract all others.

This follows equations 10 to 12 of *When Evidence Contradicts*: of the sentence pairs near enough in
meaning, the highest P(contradiction); an abstract's CNT is its mean over the other abstracts of the
same question. What the paper leaves open or does in another way is an argument here.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lib.embed import Encoder
from lib.search.vectors import encode_small
from lib.studies.contradiction.nli import Backend, Pairs, score_pairs, sentences

FILTERS = ("theta", "percentile", "none")
"""Which sentence pairs are compared. ``theta``: those with a cosine of at least ``theta`` (the
paper's 0.75 is for SPECTER, whose cosines are higher than those of other encoders); ``percentile``:
those at or above that percentile of the cosines in a study's pools; ``none``: all."""

BLOCK = 1000
"""Couples of texts whose sentence pairs are in memory at a time."""

_SAMPLE = 20_000


class PairScore(NamedTuple):
    """CNT of two texts and the two sentences that carry it, by their numbers from 1.

    ``top_1`` and ``top_3`` are the means of so many of the highest scores, whichever of them CNT
    takes. ``pairs`` counts all sentence pairs, ``passed`` those near enough to be compared. Where
    none was, CNT and both sentence numbers are 0: the paper leaves this case open.
    """

    value: float
    top_1: float
    top_3: float
    sentence_a: int
    sentence_b: int
    pairs: int
    passed: int


@dataclass(frozen=True)
class Scorer:
    """CNT of couples of texts, under one setting.

    ``sentence_filter`` is one of FILTERS. ``direction``: max | mean | forward (the paper's), see
    ``nli.DIRECTIONS``. ``top``: CNT is the mean of so many of the highest scores (the paper: 1).
    ``threshold`` is the cosine from which sentence pairs are compared; ``fitted`` sets it, once a
    study, so that the CNT of a couple does not depend on what is scored together with it.
    """

    backend: Backend
    encoder: Encoder
    sentence_filter: str = "theta"
    theta: float = 0.75
    percentile: float = 90
    direction: str = "max"
    top: int = 1
    threshold: float | None = None

    def fitted(self, couples: Pairs) -> Scorer:
        """The same, with the ``threshold`` that the filter means for ``couples``.

        Of more than 20,000 couples it is found on as many, drawn with a fixed seed. What will be
        scored is printed. ValueError for a filter that there is not.
        """
        if self.sentence_filter not in FILTERS:
            raise ValueError(f"no filter {self.sentence_filter!r}; there are: {', '.join(FILTERS)}")
        sample = couples
        if len(couples) > _SAMPLE:
            drawn = np.random.default_rng(0).choice(len(couples), _SAMPLE, replace=False)
            sample = [couples[i] for i in np.sort(drawn)]
        found = [np.zeros(0, np.float32)]
        for start in range(0, len(sample), BLOCK):
            block = sample[start : start + BLOCK]
            found += [cosines.ravel() for *_, cosines in _cosines(block, self.encoder)]
        cosines = np.concatenate(found)
        threshold = -np.inf
        if self.sentence_filter == "theta":
            threshold = self.theta
        elif self.sentence_filter == "percentile" and cosines.size:
            threshold = float(np.percentile(cosines, self.percentile))
        share = (cosines >= threshold).sum() / max(1, cosines.size)
        sentence_pairs = cosines.size / max(1, len(sample)) * len(couples)
        print(
            f"{len(couples):,} pairs of abstracts, about {sentence_pairs:,.0f} pairs of sentences,"
            f" of which {share:.1%} have a cosine of at least {threshold:.3f} and are scored by "
            f"{self.backend.name}",
            file=sys.stderr,
            flush=True,
        )
        return replace(self, threshold=threshold)

    def __call__(self, couples: Pairs, counts: Sequence[int] | None = None) -> list[PairScore]:
        """CNT of each couple of texts, in order. ValueError before ``fitted``.

        With ``counts`` as many sentence pairs of a couple are compared, whatever their cosines: the
        nearest. Couples are scored in blocks, which bounds memory.
        """
        from tqdm import tqdm

        if self.threshold is None:
            raise ValueError("this Scorer has no threshold yet: call fitted(couples) first")
        found: list[PairScore] = []
        starts = range(0, len(couples), BLOCK)
        for start in tqdm(starts, "CNT", disable=len(starts) < 5, leave=False):
            wanted = None if counts is None else counts[start : start + BLOCK]
            found += self._scored(couples[start : start + BLOCK], wanted)
        return found

    def _scored(self, block: Pairs, counts: Sequence[int] | None) -> list[PairScore]:
        compared = []
        for number, (in_a, in_b, cosines) in enumerate(_cosines(block, self.encoder)):
            count = None if counts is None else counts[number]
            if count is None:
                places = np.argwhere(cosines >= self.threshold)
            else:  # the nearest, in the order of the texts
                nearest_first = np.argsort(-cosines, axis=None, kind="stable")
                in_order = np.sort(nearest_first[:count])
                places = np.column_stack(np.unravel_index(in_order, cosines.shape))
            texts = [(in_a[i], in_b[j]) for i, j in places]
            compared.append((places, texts, cosines.size))
        # All sentence pairs of a block go to the model together: it is asked in large batches.
        together = [pair for _, texts, _ in compared for pair in texts]
        scores = score_pairs(together, self.backend, direction=self.direction)
        found, start = [], 0
        for places, texts, total in compared:
            end = start + len(texts)
            found.append(_collapsed(places, scores[start:end], total, self.top))
            start = end
        return found


def _cosines(couples: Pairs, encoder: Encoder) -> Iterator[tuple[list[str], list[str], np.ndarray]]:
    """Of each couple the sentences of both texts and their cosines, rounded to 6 decimals so that
    they are the same whatever is computed together."""
    texts = dict.fromkeys(text for couple in couples for text in couple)
    sentences_of = {text: sentences(text) for text in texts}
    row_of: dict[str, int] = {}
    for parts in sentences_of.values():
        for sentence in parts:
            row_of.setdefault(sentence, len(row_of))
    vectors = encode_small(list(row_of), encoder, "article")
    rows_of = {text: [row_of[s] for s in parts] for text, parts in sentences_of.items()}
    for a, b in couples:
        cosines = np.round(vectors[rows_of[a]] @ vectors[rows_of[b]].T, 6)
        yield sentences_of[a], sentences_of[b], cosines


def _collapsed(places: np.ndarray, scores: np.ndarray, total: int, top: int) -> PairScore:
    """One couple's CNT; ties break by the place of the sentences, first text first."""
    if not len(scores):
        return PairScore(0.0, 0.0, 0.0, 0, 0, total, 0)
    highest = np.argsort(-scores, kind="stable")
    means = [float(scores[highest[:n]].mean()) for n in (top, 1, 3)]
    sentence_a, sentence_b = (int(number) + 1 for number in places[highest[0]])
    return PairScore(*means, sentence_a, sentence_b, total, len(scores))


def document_cnt(values: Mapping[tuple[str, str], float], ids: Sequence[str]) -> dict[str, float]:
    """CNT(d) of every id: the mean of CNT(d, d') over the others; 0 for a document alone.

    ``values`` has CNT by (a, b). Where only (b, a) is there that is taken: right for the directions
    "max" and "mean", which do not depend on the order; for "forward" both are there.
    """
    found = {}
    for a in ids:
        others = [values.get((a, b), values.get((b, a))) for b in ids if b != a]
        found[a] = float(np.mean(others or [0.0]))
    return found


def strangers(
    couples: Pairs, texts: Mapping[str, str], pools: Iterable[Collection[str]]
) -> list[tuple[str, str]]:
    """Length-matched control pairs: for each (a, b) the id a and, in place of b, the text nearest
    to b in number of words that shares no pool with a (ties by id).

    They show how high CNT is from length alone: the maximum is higher over longer texts.
    ValueError where every text shares a pool with a.
    """
    ids = sorted(texts)
    row_of = {i: row for row, i in enumerate(ids)}
    n_words = np.array([len(texts[i].split()) for i in ids], float)
    pool_mates = defaultdict(set)
    for pool in pools:
        for i in pool:
            pool_mates[i].update(pool)
    found = []
    for a, b in couples:
        difference = np.abs(n_words - n_words[row_of[b]])
        difference[[row_of[i] for i in {a} | pool_mates[a]]] = np.inf
        if np.isinf(difference).all():
            raise ValueError(f"every text shares a pool with {a}: a null needs two questions")
        found.append((a, ids[int(difference.argmin())]))
    return found
