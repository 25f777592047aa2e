"""Which abstracts are asked about a question, in what order, and how far each two disagree.

*When Evidence Contradicts*, sections 3.2 to 4: Algorithm 1 takes at most 20 abstracts over the
years, Algorithm 2 ranks them by S, and three conditions choose K of them as context. Where the
paper's steps are impossible, or its prose and its algorithm differ, an argument has both readings,
and the docstring says which one is printed. A document's S and CNT depend on the question it was
found for; the paper collapses them in a way it does not say, here they are averaged.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from lib.embed import Encoder
from lib.report import nine_digits
from lib.search.vectors import encode_small
from lib.studies.contradiction.cnt import PairScore, Scorer, document_cnt
from lib.studies.contradiction.evidence import Evidence, Need, load_evidence, load_needs
from lib.studies.contradiction.labelled import judged_couples, judged_pairs
from lib.studies.contradiction.pubmed import evidence_for

CONDITIONS = ("most_similar", "most_contradictory", "least_contradictory")
"""The paper's three. They differ in relevance too: the first is chosen by S, the others by CNT."""

MATCHED = ("most_contradictory, matched", "least_contradictory, matched")
"""Two of our own, of the same relevance, so that they differ in contradiction alone."""


def chosen_years(
    years: Iterable[int], *, limit: int = 20, gap: int = 3, above: int = 20, fill: bool = True
) -> list[int]:
    """The years of Algorithm 1 (lines 1 to 6), newest first: all of them if fewer than ``above``.

    The paper asks for 20 years at least 3 apart. Those need 58 years and PubMed's abstracts here
    span 51, so years at least ``gap`` apart are taken newest first, and ``fill`` adds the newest
    others up to ``limit`` (``False``: as many as the gap allows). ``above=20`` is what the
    algorithm says, 21 what the prose says.
    """
    newest_first = sorted(set(years), reverse=True)
    if len(newest_first) < above:
        return newest_first
    apart: list[int] = []
    for year in newest_first:
        far_enough = not apart or apart[-1] - year >= gap
        if far_enough and len(apart) < limit:
            apart.append(year)
    others = [year for year in newest_first if year not in apart] if fill else []
    return sorted(apart + others[: limit - len(apart)], reverse=True)


def balanced(
    candidates: Iterable[Evidence], *, limit: int = 20, check_inside: bool = True, **years: Any
) -> list[Evidence]:
    """Algorithm 1: the most cited abstract of each chosen year in turn, until ``limit`` are there.

    Years are taken newest first, candidates with the same id once, ties by id. An abstract is never
    taken twice, which the printed arg max does not say. The printed algorithm also looks at the
    size only between two passes over the years (``check_inside=False``), so that 7 years give 21.
    ``years`` go to ``chosen_years``.
    """
    found = {abstract.id: abstract for abstract in candidates}.values()
    chosen = chosen_years((abstract.year for abstract in found), limit=limit, **years)
    waiting: dict[int, list[Evidence]] = {}
    for year in chosen:
        of_year = [abstract for abstract in found if abstract.year == year]
        waiting[year] = sorted(of_year, key=lambda abstract: (-abstract.citations, abstract.id))
    taken: list[Evidence] = []
    while len(taken) < limit and any(waiting.values()):
        for year in chosen:
            full = check_inside and len(taken) >= limit
            if waiting[year] and not full:
                taken.append(waiting[year].pop(0))
    return taken


def rank(
    query: np.ndarray,
    vectors: np.ndarray,
    ids: Sequence[str],
    years: Sequence[int],
    *,
    lam: float = 0.7,
    alpha: float = 0.7,
    mmr: str = "static",
    temporal: str = "recency",
) -> pd.DataFrame:
    """Algorithm 2: abstracts, best first: id, year, relevance, redundancy, tau, score.

    S = alpha * MMR + (1 - alpha) * tau with MMR = lam * cos(q, d) - (1 - lam) * redundancy
    (equations 6 to 8); ``query`` (dim,) and ``vectors`` (n, dim) have unit rows. Redundancy is the
    cosine with the nearest other abstract: ``mmr="static"``, as printed, looks at *all* others,
    ``greedy``, as MMR is meant, at those already ranked. tau is ``recency`` as printed, though the
    paper calls it diversity; ``year_coverage`` (years to the nearest other one, or to the nearest
    already ranked, over the span; 1 without any) or ``none``. Ties break by id.
    """
    if mmr not in ("static", "greedy") or temporal not in ("recency", "year_coverage", "none"):
        raise ValueError(f"no mmr {mmr!r} with temporal {temporal!r}; see: help(rank)")
    order = np.argsort(np.asarray(ids, dtype=object), kind="stable")
    year = np.asarray(years, float)[order]
    vectors = np.asarray(vectors, float)[order]
    relevance = vectors @ query
    cosine = vectors @ vectors.T
    years_apart = np.abs(year[:, None] - year)
    np.fill_diagonal(cosine, -np.inf)  # an abstract is no other one
    np.fill_diagonal(years_apart, np.inf)
    span = np.ptp(year) + 1e-5
    picked: list[int] = []
    rows = []
    while len(picked) < len(order):
        others = picked if mmr == "greedy" else slice(None)
        redundancy = cosine[:, others].max(axis=1, initial=-np.inf)
        redundancy = np.where(np.isinf(redundancy), 0.0, redundancy)
        nearest_year = years_apart[:, others].min(axis=1, initial=np.inf)
        if temporal == "recency":
            tau = (year - year.min()) / span
        elif temporal == "year_coverage":
            tau = np.minimum(nearest_year, span) / span
        else:
            tau = np.zeros_like(year)
        score = alpha * (lam * relevance - (1 - lam) * redundancy) + (1 - alpha) * tau
        not_picked = [i for i in range(len(order)) if i not in picked]
        best = not_picked[int(np.argmax(score[not_picked].round(9)))]  # so that ties tie
        picked.append(best)
        rows.append(
            {
                "id": ids[order[best]],
                "year": int(year[best]),
                "relevance": relevance[best],
                "redundancy": redundancy[best],
                "tau": tau[best],
                "score": score[best],
            }
        )
    return pd.DataFrame(rows, columns=["id", "year", "relevance", "redundancy", "tau", "score"])


def conditions(ranked: pd.DataFrame, cnt: Mapping[str, float], k: int = 5) -> dict[str, list[str]]:
    """The ids of each condition's context: the K highest by S, by CNT, and lowest by CNT.

    ``ranked`` is what ``rank`` returns, ``cnt`` CNT(d) by id; ties break by id. Relevance differs
    between the three, so two are added that match it: neighbours in relevance form pairs, and of
    the k most relevant pairs the more contradictory document goes to one condition, the other to
    the other.
    """
    most_similar = ranked["id"].tolist()
    least = sorted(ranked["id"], key=lambda i: (cnt[i], i))
    most = sorted(ranked["id"], key=lambda i: (-cnt[i], i))
    by_relevance = ranked.sort_values(["relevance", "id"], ascending=[False, True])["id"].tolist()
    most_relevant = by_relevance[: 2 * k]
    matched_most, matched_least = [], []
    for pair in zip(most_relevant[::2], most_relevant[1::2], strict=False):
        more, less = sorted(pair, key=most.index)
        matched_most.append(more)
        matched_least.append(less)
    chosen = (most_similar[:k], most[:k], least[:k], matched_most, matched_least)
    return dict(zip(CONDITIONS + MATCHED, chosen, strict=True))


# the nearest abstracts ----------------------------------------------------------------------------

INDEXES = ("exact", "hnsw")
"""``hnsw`` is the paper's: faiss's HNSW with M = 16 and efConstruction = 200."""

_M, _CONSTRUCTION, _SEARCH = 16, 200, 64


def nearest(
    vectors: np.ndarray, queries: np.ndarray, n: int, index: str = "exact", search: int = _SEARCH
) -> np.ndarray:
    """Rows of the ``n`` unit ``vectors`` nearest to each query by cosine, best first: (queries, n).

    Exact search breaks ties by row. ``hnsw`` looks at ``search`` candidates (efSearch, which the
    paper does not state) and may miss some; the graph is built by one thread, so it is the same
    every time. ValueError for another index.
    """
    if index not in INDEXES:
        raise ValueError(f"no index {index!r}; there are: {', '.join(INDEXES)}")
    if index == "exact":
        return np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :n]
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        graph = faiss.IndexHNSWFlat(vectors.shape[1], _M, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = _CONSTRUCTION
        graph.hnsw.efSearch = max(search, n)
        graph.add(np.ascontiguousarray(vectors, dtype=np.float32))
        return graph.search(np.ascontiguousarray(queries, dtype=np.float32), n)[1]
    finally:
        faiss.omp_set_num_threads(threads)


def recall(
    vectors: np.ndarray, queries: np.ndarray, n: int = 10, searches: Sequence[int] = (10, 16, 64)
) -> pd.DataFrame:
    """What ``hnsw`` finds of the exact ``n`` nearest: index, search, recall, worst (of a query)."""
    wanted = nearest(vectors, queries, n)
    rows = [("exact", 0, 1.0, 1.0)]
    for search in searches:
        found = nearest(vectors, queries, n, "hnsw", search)
        shares = [len(set(a) & set(b)) / n for a, b in zip(wanted, found, strict=True)]
        rows.append(("hnsw", search, float(np.mean(shares)), min(shares)))
    return pd.DataFrame(rows, columns=["index", "search", "recall", "worst"])


# pools --------------------------------------------------------------------------------------------

_DIGITS = ("value", "top_1", "top_3", "threshold")


@dataclass(frozen=True)
class Pools:
    """One set of evidence, with every question's abstracts ranked and every couple scored.

    ``evidence`` by id, ``needs`` (the questions) by qid. ``ranked``: what ``rank`` gives for every
    question with evidence, with ``qid`` and ``cnt``, CNT(d) in its pool. ``pairs``: a, b and the
    PairScore (or what a judge said) of every two abstracts that share a pool. ``score``: what
    scored them, its threshold set.
    """

    evidence: Mapping[str, Evidence]
    needs: Mapping[str, Need]
    ranked: pd.DataFrame
    pairs: pd.DataFrame
    score: Scorer

    @property
    def texts(self) -> dict[str, str]:
        """The abstracts' texts by id."""
        return {i: abstract.text for i, abstract in self.evidence.items()}

    @property
    def ids_of(self) -> dict[str, list[str]]:
        """The ids of each question's abstracts, best first, by question id."""
        return self.ranked.groupby("qid", sort=False)["id"].agg(list).to_dict()


def open_pools(
    name: str,
    encoder: Encoder,
    score: Scorer,
    *,
    limit: int = 0,
    email: str = "",
    selection: Mapping[str, Any] = MappingProxyType({}),
    ranking: Mapping[str, Any] = MappingProxyType({}),
    kept: Callable[[Callable[[], pd.DataFrame]], pd.DataFrame] = lambda make: make(),
) -> Pools:
    """Each question's abstracts, chosen (``balanced``), ranked (``rank``), scored by CNT.

    Candidates are what PubMed, asked by ``email``, found for the question (``tga:``), all abstracts
    on its medicine (evidence-mini), or the ten nearest to it (open, labels).
    A question without any has no pool; ValueError where no question has one. ``selection`` goes to
    ``balanced``, ``ranking`` to ``rank``; ``limit`` takes the first questions (0 = all). ``kept``
    may give a table of scores that was made before (``score_couples``).
    """
    needs = load_needs(name)[: limit or None]
    evidence = evidence_for(needs, email) if name.startswith("tga:") else load_evidence(name)
    pools: dict[str, list[str]] = {}
    candidates = _candidates(name, needs, evidence, encoder)
    for need, abstracts in zip(needs, candidates, strict=True):
        chosen = balanced(abstracts, **selection)
        if chosen:
            pools[need.qid] = sorted(abstract.id for abstract in chosen)
    if not pools:
        raise ValueError(f"{name}: no abstract was found for any of {len(needs)} questions")
    print(f"{name}: {len(pools):,} of {len(needs):,} questions have abstracts", file=sys.stderr)
    by_id = {abstract.id: abstract for abstract in evidence}
    # Every two abstracts that share a pool, once, in the order of the pools.
    couples = dict.fromkeys(couple for ids in pools.values() for couple in combinations(ids, 2))
    pairs = kept(lambda: score_couples(list(couples), by_id, score))
    pairs = pairs.astype(dict.fromkeys(_DIGITS, float))
    score = replace(score, threshold=float(pairs["threshold"].iloc[0]) if len(pairs) else 0.0)
    pairs = pairs.drop(columns="threshold")
    opened = Pools(by_id, {need.qid: need for need in needs}, pd.DataFrame(), pairs, score)
    return replace(opened, ranked=reranked(opened, encoder, pools, **ranking))


def _candidates(
    name: str, needs: list[Need], evidence: list[Evidence], encoder: Encoder
) -> Iterator[list[Evidence]]:
    """Of each need the abstracts that Algorithm 1 chooses from."""
    own = defaultdict(list)
    if name.startswith("tga:"):  # PubMed was asked question by question
        for abstract in evidence:
            own[abstract.topic].append(abstract)
        yield from (own[need.qid] for need in needs)
    elif all(abstract.medicine for abstract in evidence):
        for abstract in evidence:
            own[abstract.medicine].append(abstract)
        yield from (own[need.medicine] for need in needs)
    else:
        by_id = {abstract.id: abstract for abstract in evidence}
        asked = {need.qid: need for need in needs}
        for rows in nearest(*vectors_of(asked, by_id, encoder), 10):
            yield [evidence[i] for i in rows]


def vectors_of(
    needs: Mapping[str, Need], evidence: Mapping[str, Evidence], encoder: Encoder
) -> tuple[np.ndarray, np.ndarray]:
    """Of the abstracts and of the questions, both by id."""
    return (
        encode_small([abstract.text for abstract in evidence.values()], encoder, "article"),
        encode_small([need.question for need in needs.values()], encoder, "query"),
    )


def score_couples(
    couples: Sequence[tuple[str, str]], evidence: Mapping[str, Evidence], score: Scorer
) -> pd.DataFrame:
    """a, b, the fields of PairScore and the ``threshold`` of each couple of ids, sorted by a and b.

    It is a table to be stored (see ``nine_digits``). Couples are scored in the order given: those
    of one pool in one block share their sentences. Where the order of a pair counts ("forward"),
    ``back`` is CNT of b and a, in this order.
    """
    ordered = [(evidence[a].text, evidence[b].text) for a, b in sorted(couples)]
    score = score.fitted(ordered)
    texts = [(evidence[a].text, evidence[b].text) for a, b in couples]
    scores = pd.DataFrame(score(texts), columns=PairScore._fields)
    table = pd.DataFrame(couples, columns=["a", "b"]).join(scores)
    table = table.assign(threshold=score.threshold)
    digits = _DIGITS
    if score.direction == "forward":
        table["back"] = [found.value for found in score([(b, a) for a, b in texts])]
        digits = (*_DIGITS, "back")
    return nine_digits(table.sort_values(["a", "b"], ignore_index=True), digits)


def reranked(
    pools: Pools,
    encoder: Encoder,
    ids_of: Mapping[str, Sequence[str]] | None = None,
    **ranking: Any,
) -> pd.DataFrame:
    """What ``Pools.ranked`` is with ``ranking``, the settings of ``rank``, of the abstracts in
    ``ids_of`` (default: those of ``pools``)."""
    value = pools.pairs.set_index(["a", "b"])["value"].to_dict()
    if "back" in pools.pairs:
        value |= pools.pairs.set_index(["b", "a"])["back"].to_dict()
    parts = []
    for qid, ids in (ids_of or pools.ids_of).items():
        abstracts = {i: pools.evidence[i] for i in ids}
        vectors, (query,) = vectors_of({qid: pools.needs[qid]}, abstracts, encoder)
        years = [abstract.year for abstract in abstracts.values()]
        table = rank(query, vectors, list(abstracts), years, **ranking)
        parts.append(table.assign(qid=qid, cnt=table["id"].map(document_cnt(value, ids))))
    return pd.concat(parts, ignore_index=True)


# judged -------------------------------------------------------------------------------------------


def with_judged(modelled: Pools, encoder: Encoder, ranking: Mapping[str, Any]) -> dict[str, Pools]:
    """The pools with judged couples ("judged"), where any was judged, and the "modelled" ones.

    A judged couple's value is 1 where both passes say that the two disagree, and 0 else, so CNT(d)
    is the share of a pool's other abstracts that contradict d. Of evidence-mini every pool stays as
    it is; a couple on two topics of a medicine is on two questions and has the value 0. Of ``open``
    the pools are those of the 60 judged queries, each with the seven abstracts that were judged.
    """
    judged = judged_couples(modelled.texts, ("mini", "query")).drop(columns="pool")
    ids_of = _judged_queries(modelled)
    if all(abstract.topic for abstract in modelled.evidence.values()):
        ids_of = {qid: sorted(ids) for qid, ids in modelled.ids_of.items()}
    couples = sorted({couple for ids in ids_of.values() for couple in combinations(ids, 2)})
    pairs = pd.DataFrame(couples, columns=["a", "b"]).merge(judged, "left", on=["a", "b"])
    if pairs["value"].notna().sum() == 0:
        return {"modelled": modelled}
    unread = {"value": 0.0, "stance": "", "reason": "", "sentence_a": 0, "sentence_b": 0}
    pairs = pairs.assign(same=pairs["same"].eq(True)).fillna(unread)
    needs = {qid: modelled.needs[qid] for qid in ids_of}
    opened = replace(modelled, needs=needs, pairs=pairs)
    ranked = reranked(opened, encoder, ids_of, **ranking)
    return {"judged": replace(opened, ranked=ranked), "modelled": modelled}


def _judged_queries(pools: Pools) -> dict[str, list[str]]:
    """The pools of ``open`` that were judged, by question id, ids in order; of others none."""
    pairs = judged_pairs()
    pairs = pairs[(pairs["group"] == "query") & ~pairs["control"]]
    ids_of = {}
    for pool, own in pairs.groupby("pool", sort=False):
        qid = pool.removeprefix("query/")
        if qid in pools.needs:
            ids_of[qid] = sorted({*own["a"], *own["b"]} & pools.evidence.keys())
    return ids_of
