"""Which pairs of texts are judged, by rules that were written down before any was.

Four groups, told apart by the first part of a pool's name: ``mini`` (evidence-mini, every pair of
abstracts on one topic), ``query`` (60 stated queries of ``open``, every pair among the seven
abstracts nearest to each), ``near`` (abstracts of ``open`` drawn by period, each with its nearest
neighbour) and ``real`` (60 questions of the real sample, the pairs within the top five of each of
three arms). Whoever draws, draws by the hash of an id, so nobody chose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from lib.base.files import sha256_bytes
from lib.data.judgments import shown_text
from lib.data.store import PassageStore
from lib.datasets import EXAMS, Question
from lib.embed import Encoder
from lib.search.vectors import encode_small
from lib.studies.contradiction.study import PERIODS
from lib.studies.evidence.load import load_evidence, load_needs
from lib.studies.evidence.records import Evidence

QUERIES, TOP = 60, 7
"""Stated queries of ``open``, and the abstracts nearest to each: 60 x 21 pairs."""

NEAR = 340
"""Abstracts drawn by period, each with its nearest neighbour: 1,600 pairs with the queries'."""

REAL_QUESTIONS = 30
"""Questions of each exam set, the first by the hash of their ids."""

ARMS = ("hplus", "chr@0.4", "chr@1")
"""Whose top five are compared, each within itself."""


@dataclass(frozen=True)
class Pool:
    """Texts that are judged together, by id, and those of their pairs that are; ids in order."""

    name: str
    texts: Mapping[str, str]
    pairs: tuple[tuple[str, str], ...]


def _drawn(what: str, ids: Iterable[str]) -> list[str]:
    """The ids in the order of their hashes."""
    return sorted(ids, key=lambda i: sha256_bytes(f"{what} {i}".encode()))


def _pool(name: str, texts: Mapping[str, str], pairs: Iterable[Sequence[str]] = ()) -> Pool:
    """A pool of all pairs of its texts, or of those given."""
    chosen = pairs or combinations(texts, 2)
    return Pool(name, dict(texts), tuple(sorted({tuple(sorted(pair)) for pair in chosen})))


def mini_pools() -> list[Pool]:
    """evidence-mini: a pool for each topic of a medicine that has more than one abstract."""
    topics = defaultdict(dict)
    for abstract in load_evidence("evidence-mini"):
        topics[f"mini/{abstract.medicine}, {abstract.topic}"][abstract.id] = _shown(abstract)
    return [_pool(name, texts) for name, texts in sorted(topics.items()) if len(texts) > 1]


def query_pools(encoder: Encoder) -> list[Pool]:
    """``open``: 60 of its queries, each with the seven abstracts nearest to it by cosine."""
    evidence, needs = load_evidence("open"), {need.qid: need for need in load_needs("open")}
    vectors = encode_small([abstract.text for abstract in evidence], encoder, "article")
    pools = []
    for qid in _drawn("judged query", needs)[:QUERIES]:
        (query,) = encode_small([needs[qid].question], encoder, "query")
        best = np.argsort(-(vectors @ query), kind="stable")[:TOP]
        pools.append(_pool(f"query/{qid}", {evidence[i].id: _shown(evidence[i]) for i in best}))
    return pools


def near_pools(encoder: Encoder, taken: Iterable[Pool]) -> list[Pool]:
    """``open``: abstracts drawn from each period in turn, each with its nearest neighbour.

    A pair that ``taken`` or an earlier abstract has is left out, and the next neighbour is taken.
    """
    evidence = load_evidence("open")
    vectors = encode_small([abstract.text for abstract in evidence], encoder, "article")
    row_of = {abstract.id: row for row, abstract in enumerate(evidence)}
    have = {pair for pool in taken for pair in pool.pairs}
    pools = []
    for i in _by_period(evidence):
        row = row_of[i]
        for other in np.argsort(-(vectors @ vectors[row]), kind="stable"):
            pair = tuple(sorted((i, evidence[other].id)))
            if other != row and pair not in have:
                break
        have.add(pair)
        pools.append(_pool(f"near/{i}", {j: _shown(evidence[row_of[j]]) for j in pair}))
    return pools


def _by_period(evidence: Sequence[Evidence]) -> list[str]:
    """Of each period in turn the next abstract by hash, ``NEAR`` in all."""
    waiting = defaultdict(list)
    for i in _drawn("judged near", (abstract.id for abstract in evidence)):
        waiting[period_of(_years(evidence)[i])].append(i)
    found = []
    while len(found) < min(NEAR, len(evidence)):
        for period in PERIODS:
            if waiting[period] and len(found) < NEAR:
                found.append(waiting[period].pop(0))
    return found


def share_drawn(evidence: Sequence[Evidence]) -> dict[str, float]:
    """Of each period, the share of its abstracts that were drawn with a neighbour: what a figure
    over periods is weighted by."""
    years = _years(evidence)
    drawn = pd.Series([period_of(years[i]) for i in _by_period(evidence)]).value_counts()
    there = pd.Series([period_of(year) for year in years.values()]).value_counts()
    return (drawn.reindex(there.index).fillna(0) / there).to_dict()


def _years(evidence: Sequence[Evidence]) -> dict[str, int]:
    return {abstract.id: abstract.year for abstract in evidence}


def period_of(year: int) -> str:
    """The period of a year (``PERIODS``): the first year belongs to a period, the last to the next
    one."""
    return PERIODS[min(max((year - 1995) // 5, 0), len(PERIODS) - 1)]


def real_pools(
    questions: Sequence[Question], runs: pd.DataFrame, store: PassageStore
) -> list[Pool]:
    """The real sample: of 30 questions of each exam set the pairs within the top five of ``ARMS``.

    ``runs`` have the columns arm, qid, rank, pid. ``questions`` come in the order of the hashes.
    """
    pools = []
    for dataset in EXAMS:
        own = [question.qid for question in questions if question.dataset == dataset]
        for qid in own[:REAL_QUESTIONS]:
            found = runs[(runs["qid"] == qid) & (runs["rank"] <= 5) & runs["arm"].isin(ARMS)]
            pairs = set()
            for _, rows in found.groupby("arm"):
                pairs |= {tuple(sorted(pair)) for pair in combinations(rows["pid"], 2)}
            pids = sorted(set(found["pid"]))
            texts = {passage.pid: shown_text(passage) for passage in store.get_many(pids)}
            pools.append(_pool(f"real/{qid}", texts, pairs))
    return pools


def _shown(abstract: Evidence) -> str:
    """An abstract as a judge sees it: its text alone, for titles of reviews tell the answer."""
    return abstract.text
