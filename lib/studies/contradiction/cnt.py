"""CNT: how far two abstracts contradict each other, and one abstract all others (METHODS 10).

Equations 10 to 12 of seed 004: of the sentence pairs near enough in meaning, the highest
P(contradiction); an abstract's CNT is its mean over the other abstracts of the same question.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from lib.search.embed import Encoder
from lib.search.vectors import encode_small
from lib.studies.nli.models import Backend, Pairs, sentences
from lib.studies.nli.scores import BLOCK, score_pairs

__all__ = ["FILTERS", "PairScore", "Scorer", "document_cnt", "pair_scores", "strangers"]

FILTERS = ("theta", "percentile", "none")
"""C5: which sentence pairs are compared. ``theta``: a cosine of at least ``theta`` (the paper's
0.75 is for SPECTER, whose cosines are higher than those of other encoders); ``percentile``: at or
above that percentile of the cosines in a study's pools; ``none``: all."""

_SAMPLE = 20_000


class PairScore(NamedTuple):
    """CNT of two texts and the two sentences that carry it, "" when no pair ``passed`` (C6).

    ``pairs`` counts the sentence pairs there are, ``passed`` those that were compared.
    """

    value: float
    sentence_a: str
    sentence_b: str
    pairs: int
    passed: int


@dataclass(frozen=True)
class Scorer:
    """CNT of couples of texts. ``switches``: ``sentence_filter`` (see FILTERS), ``theta`` and
    ``percentile``; ``direction`` and ``top``, see ``pair_scores``.

    ``least`` is the cosine from which sentence pairs are compared. ``fitted`` sets it, once a
    study, so that the CNT of a couple does not depend on what is scored together with it.
    """

    backend: Backend
    encoder: Encoder
    switches: Mapping[str, Any] = field(default_factory=dict)
    least: float | None = None

    def fitted(self, couples: Pairs) -> Scorer:
        """The same with ``least`` from the sentence pairs of ``couples`` (if there are more than
        20,000, of as many, drawn with a fixed seed); what will be scored is printed."""
        rule = {"sentence_filter": "theta", "theta": 0.75, "percentile": 90} | dict(self.switches)
        if unknown := rule.keys() - {"sentence_filter", "theta", "percentile", "direction", "top"}:
            raise ValueError(f"no switch {sorted(unknown)}; see: help(Scorer)")
        if (kind := rule["sentence_filter"]) not in FILTERS:
            raise ValueError(f"no filter {kind!r}; there are: {', '.join(FILTERS)}")
        some = couples
        if len(couples) > _SAMPLE:
            drawn = np.random.default_rng(0).choice(len(couples), _SAMPLE, replace=False)
            some = [couples[i] for i in np.sort(drawn)]
        parts = (some[start : start + BLOCK] for start in range(0, len(some), BLOCK))
        found = [c.ravel() for part in parts for *_, c in _cosines(part, self.encoder)]
        cosines = np.concatenate([np.zeros(0, np.float32), *found])
        least = float(rule["theta"]) if kind == "theta" else -np.inf
        if kind == "percentile" and cosines.size:
            least = float(np.percentile(cosines, rule["percentile"]))
        share = (cosines >= least).sum() / max(1, cosines.size)
        total = cosines.size / max(1, len(some)) * len(couples)
        print(
            f"{len(couples):,} pairs of abstracts, about {total:,.0f} pairs of sentences, of "
            f"which {share:.1%} have a cosine of at least {least:.3f} and are scored by "
            f"{self.backend.name}",
            file=sys.stderr,
            flush=True,
        )
        return replace(self, least=least)

    def __call__(
        self, couples: Pairs, counts: Sequence[int] | None = None, progress: bool = False
    ) -> list[PairScore]:
        """CNT of each couple; ``counts`` as for ``pair_scores``. ValueError before ``fitted``."""
        if self.least is None:
            raise ValueError("this Scorer has no threshold yet: call fitted(couples) first")
        how = {k: v for k, v in self.switches.items() if k in ("direction", "top")}
        return pair_scores(
            couples,
            self.backend,
            self.encoder,
            theta=self.least,
            counts=counts,
            progress=progress,
            **how,
        )


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

    C7, ``direction``: max | mean | forward (the paper's). C8, ``top``: the mean of the ``top``
    highest (the paper: 1). With ``counts`` as many sentence pairs of a couple are compared,
    whatever their cosines: the nearest. Couples are scored in blocks, which bounds memory;
    ``progress`` shows them and prints what passed.
    """
    from tqdm import tqdm

    found: list[PairScore] = []
    starts = range(0, len(couples), BLOCK)
    for start in tqdm(starts, "CNT", disable=not progress or len(starts) < 5, leave=False):
        part, compared, totals = slice(start, start + BLOCK), [], []
        wanted = counts[part] if counts is not None else [None] * len(couples[part])
        near = zip(wanted, _cosines(couples[part], encoder), strict=True)
        for count, (said_a, said_b, cosines) in near:
            places = _compared(cosines, theta, count)
            compared.append([(said_a[i], said_b[j]) for i, j in places])
            totals.append(cosines.size)
        flat = [pair for pairs in compared for pair in pairs]
        scores = score_pairs(flat, backend, direction=direction)
        parts = np.split(scores, np.cumsum([len(pairs) for pairs in compared])[:-1])
        found += [_collapse(*row, top) for row in zip(compared, parts, totals, strict=True)]
    if progress:
        passed, met = sum(s.passed for s in found), sum(s.pairs for s in found)
        empty = sum(not s.passed for s in found)
        print(
            f"{passed:,} of {met:,} sentence pairs were compared ({passed / max(1, met):.1%}); "
            f"{empty:,} of {len(found):,} pairs of abstracts have none and score 0",
            file=sys.stderr,
            flush=True,
        )
    return found


def _cosines(couples: Pairs, encoder: Encoder) -> Iterator[tuple[list[str], list[str], np.ndarray]]:
    """Of each couple the sentences of both texts and their cosines, rounded to 6 decimals so that
    they are the same whatever is computed together."""
    cut = {text: sentences(text) for text in dict.fromkeys(t for couple in couples for t in couple)}
    place = {s: i for i, s in enumerate(dict.fromkeys(s for part in cut.values() for s in part))}
    rows = encode_small(list(place), encoder, "article")
    at = {text: [place[s] for s in part] for text, part in cut.items()}
    for a, b in couples:
        yield cut[a], cut[b], np.round(rows[at[a]] @ rows[at[b]].T, 6)


def _compared(cosines: np.ndarray, theta: float, count: int | None) -> np.ndarray:
    """Row and column of the sentence pairs to compare, in the order of the texts."""
    if count is None:
        return np.argwhere(cosines >= theta)
    nearest = np.sort(np.argsort(-cosines, axis=None, kind="stable")[:count])
    return np.column_stack(np.unravel_index(nearest, cosines.shape))


def _collapse(pairs: Pairs, scores: np.ndarray, total: int, top: int) -> PairScore:
    """Ties break by the place of the sentences, first text first."""
    if not len(pairs):
        return PairScore(0.0, "", "", total, 0)
    order = np.argsort(-scores, kind="stable")[:top]
    return PairScore(float(scores[order].mean()), *pairs[order[0]], total, len(pairs))


def document_cnt(values: Mapping[tuple[str, str], float], ids: Sequence[str]) -> dict[str, float]:
    """CNT(d) of every id: the mean of CNT(d, d') over the others; 0 for a document alone.

    ``values`` has CNT by (a, b); where only (b, a) is there that is used, right unless forward.
    """

    def one(a: str, b: str) -> float:
        return values[a, b] if (a, b) in values else values[b, a]

    return {a: float(np.mean([one(a, b) for b in ids if b != a] or [0.0])) for a in ids}


def strangers(
    couples: Pairs, texts: Mapping[str, str], pools: Iterable[Collection[str]]
) -> list[tuple[str, str]]:
    """Couples that only length makes alike (C8): for each (a, b) the id a and, instead of b, the
    text nearest to it in words that shares no pool with a (ties by id).

    ValueError where every text shares a pool with a.
    """
    ids, beside = sorted(texts), defaultdict(set)
    for pool in pools:
        for i in pool:
            beside[i].update(pool)
    place = {i: n for n, i in enumerate(ids)}
    words = np.array([len(texts[i].split()) for i in ids], float)
    out = []
    for a, b in couples:
        away = np.abs(words - words[place[b]])
        away[[place[i] for i in {a} | beside[a]]] = np.inf
        if np.isinf(away).all():
            raise ValueError(f"every text shares a pool with {a}: a null needs two questions")
        out.append((a, ids[int(away.argmin())]))
    return out
