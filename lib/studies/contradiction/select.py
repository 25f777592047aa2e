"""Which abstracts are taken and in what order (*When Evidence Contradicts*, sections 3.2 to 4).

Algorithm 1 takes at most 20 abstracts over the years, Algorithm 2 ranks them by S, and three
conditions choose K of them as context. Where the paper's steps are impossible, or its prose and its
algorithm differ, an argument has both readings, and the docstring says which one is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.studies.evidence.records import Evidence

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
