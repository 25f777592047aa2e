"""CNT: how far two abstracts contradict each other, and one abstract all others.

This follows equations 10 to 12 of *When Evidence Contradicts*: of the sentence pairs near enough in
meaning, the highest P(contradiction); an abstract's CNT is its mean over the other abstracts of the
same question. What the paper leaves open or does in another way is an argument here.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from lib.embed import Encoder
from lib.search.vectors import encode_small
from lib.studies.nli.models import Backend, Pairs, sentences
from lib.studies.nli.scores import BLOCK, score_pairs

FILTERS = ("theta", "percentile", "none")
"""Which sentence pairs are compared. ``theta``: those with a cosine of at least ``theta`` (the
paper's 0.75 is for SPECTER, whose cosines are higher than those of other encoders); ``percentile``:
those at or above that percentile of the cosines in a study's pools; ``none``: all."""

_DEFAULTS = {"sentence_filter": "theta", "theta": 0.75, "percentile": 90}
_SWITCHES = {*_DEFAULTS, "direction", "top"}
_SAMPLE = 20_000


class PairScore(NamedTuple):
    """CNT of two texts and the two sentences that carry it.

    ``pairs`` counts the sentence pairs there are, ``passed`` those that were near enough to be
    compared. Where none was, CNT is 0 and both sentences are "": the paper does not say what then.
    """

    value: float
    sentence_a: str
    sentence_b: str
    pairs: int
    passed: int


@dataclass(frozen=True)
class Scorer:
    """CNT of couples of texts, under one setting of ``switches``.

    ``switches`` may hold ``sentence_filter`` (one of FILTERS), ``theta`` and ``percentile``;
    ``direction`` and ``top``, see ``pair_scores``. ``threshold`` is the cosine from which sentence
    pairs are compared. ``fitted`` sets it, once a study, so that the CNT of a couple does not
    depend on what is scored together with it.
    """

    backend: Backend
    encoder: Encoder
    switches: Mapping[str, Any] = field(default_factory=dict)
    threshold: float | None = None

    def fitted(self, couples: Pairs) -> Scorer:
        """The same, with the ``threshold`` that the switches mean for ``couples``.

        Of more than 20,000 couples it is found on as many, drawn with a fixed seed. What will be
        scored is printed. ValueError for a switch or a filter that there is not.
        """
        if unknown := self.switches.keys() - _SWITCHES:
            raise ValueError(f"no switch {sorted(unknown)}; see: help(Scorer)")
        rule = _DEFAULTS | dict(self.switches)
        if rule["sentence_filter"] not in FILTERS:
            raise ValueError(
                f"no filter {rule['sentence_filter']!r}; there are: {', '.join(FILTERS)}"
            )
        sample = _sampled(couples)
        cosines = _all_cosines(sample, self.encoder)
        threshold = _threshold(rule, cosines)
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

    def __call__(
        self, couples: Pairs, counts: Sequence[int] | None = None, progress: bool = False
    ) -> list[PairScore]:
        """CNT of each couple; ``counts`` as for ``pair_scores``. ValueError before ``fitted``."""
        if self.threshold is None:
            raise ValueError("this Scorer has no threshold yet: call fitted(couples) first")
        how = {name: self.switches[name] for name in ("direction", "top") if name in self.switches}
        return pair_scores(
            couples,
            self.backend,
            self.encoder,
            theta=self.threshold,
            counts=counts,
            progress=progress,
            **how,
        )


def _sampled(couples: Pairs) -> Pairs:
    """At most 20,000 of the couples, in their order, drawn with a fixed seed."""
    if len(couples) <= _SAMPLE:
        return couples
    drawn = np.random.default_rng(0).choice(len(couples), _SAMPLE, replace=False)
    return [couples[i] for i in np.sort(drawn)]


def _all_cosines(couples: Pairs, encoder: Encoder) -> np.ndarray:
    """The cosines of all sentence pairs of all couples, in one row; a block of couples at a time,
    so that not all vectors are in memory together."""
    found = [np.zeros(0, np.float32)]
    for start in range(0, len(couples), BLOCK):
        for _, _, cosines in _cosines(couples[start : start + BLOCK], encoder):
            found.append(cosines.ravel())
    return np.concatenate(found)


def _threshold(rule: Mapping[str, Any], cosines: np.ndarray) -> float:
    """The lowest cosine that passes the sentence filter; minus infinity where all pass."""
    if rule["sentence_filter"] == "theta":
        return float(rule["theta"])
    if rule["sentence_filter"] == "percentile" and cosines.size:
        return float(np.percentile(cosines, rule["percentile"]))
    return -np.inf


def pair_scores(
    couples: Pairs,
    backend: Backend,
    encoder: Encoder,
    *,
    theta: float = 0.75,
    direction: str = "max",
    top: int = 1,
    counts: Sequence[int] | None = None,
    progress: bool = True,
) -> list[PairScore]:
    """CNT of each couple of texts, in order, from its sentence pairs with a cosine >= ``theta``.

    ``direction``: max | mean | forward (the paper's), see ``lib.studies.nli.scores.DIRECTIONS``.
    ``top``: CNT is the mean of so many of the highest scores (the paper: 1). With ``counts`` as
    many sentence pairs of a couple are compared, whatever their cosines: the nearest. Couples are
    scored in blocks, which bounds memory; ``progress`` shows them and prints what passed.
    """
    from tqdm import tqdm

    found: list[PairScore] = []
    starts = range(0, len(couples), BLOCK)
    for start in tqdm(starts, "CNT", disable=not progress or len(starts) < 5, leave=False):
        block = couples[start : start + BLOCK]
        wanted = [None] * len(block) if counts is None else counts[start : start + BLOCK]
        compared, totals = [], []
        for count, couple in zip(wanted, _cosines(block, encoder), strict=True):
            sentences_a, sentences_b, cosines = couple
            places = _places_to_compare(cosines, theta, count)
            compared.append([(sentences_a[i], sentences_b[j]) for i, j in places])
            totals.append(cosines.size)
        # All sentence pairs of a block go to the model together: it is asked in large batches.
        together = [pair for pairs in compared for pair in pairs]
        scores = score_pairs(together, backend, direction=direction)
        ends = np.cumsum([len(pairs) for pairs in compared])
        for pairs, own_scores, total in zip(
            compared, np.split(scores, ends[:-1]), totals, strict=True
        ):
            found.append(_collapsed(pairs, own_scores, total, top))
    if progress:
        _print_what_passed(found)
    return found


def _print_what_passed(found: Sequence[PairScore]) -> None:
    passed = sum(score.passed for score in found)
    pairs = sum(score.pairs for score in found)
    without_any = sum(not score.passed for score in found)
    print(
        f"{passed:,} of {pairs:,} sentence pairs were compared ({passed / max(1, pairs):.1%}); "
        f"{without_any:,} of {len(found):,} pairs of abstracts have none and score 0",
        file=sys.stderr,
        flush=True,
    )


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


def _places_to_compare(cosines: np.ndarray, theta: float, count: int | None) -> np.ndarray:
    """Row and column of the sentence pairs to compare, in the order of the texts; shape (n, 2)."""
    if count is None:
        return np.argwhere(cosines >= theta)
    nearest_first = np.argsort(-cosines, axis=None, kind="stable")
    in_order = np.sort(nearest_first[:count])
    return np.column_stack(np.unravel_index(in_order, cosines.shape))


def _collapsed(pairs: Pairs, scores: np.ndarray, total: int, top: int) -> PairScore:
    """One couple's CNT; ties break by the place of the sentences, first text first."""
    if not len(pairs):
        return PairScore(0.0, "", "", total, 0)
    highest = np.argsort(-scores, kind="stable")[:top]
    sentence_a, sentence_b = pairs[highest[0]]
    return PairScore(float(scores[highest].mean()), sentence_a, sentence_b, total, len(pairs))


def document_cnt(values: Mapping[tuple[str, str], float], ids: Sequence[str]) -> dict[str, float]:
    """CNT(d) of every id: the mean of CNT(d, d') over the others; 0 for a document alone.

    ``values`` has CNT by (a, b). Where only (b, a) is there that is taken: right for the directions
    "max" and "mean", which do not depend on the order, and not for "forward".
    """

    def between(a: str, b: str) -> float:
        return values[a, b] if (a, b) in values else values[b, a]

    found = {}
    for a in ids:
        with_others = [between(a, b) for b in ids if b != a]
        found[a] = float(np.mean(with_others or [0.0]))
    return found


def strangers(
    couples: Pairs, texts: Mapping[str, str], pools: Iterable[Collection[str]]
) -> list[tuple[str, str]]:
    """Couples that only length makes alike: for each (a, b) the id a and, instead of b, the text
    nearest to b in words that shares no pool with a (ties by id).

    They show how high CNT is for its length alone: a maximum is higher over longer texts.
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
