"""Which abstracts are kept and in what order (seed 004, sections 3.2, 3.3, 4; METHODS 10.1, 10.2).

Algorithm 1 keeps at most 20 abstracts over the years, Algorithm 2 ranks them by S, and three
conditions choose K of them as context. Every switch has the number METHODS gives its oddity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from lib.studies.evidence.records import Evidence

__all__ = ["CONDITIONS", "MATCHED", "balanced", "chosen_years", "conditions", "rank"]

CONDITIONS = ("most_similar", "most_contradictory", "least_contradictory")
MATCHED = ("most_contradictory, matched", "least_contradictory, matched")
"""The two conditions without the confound of relevance (C4)."""


def chosen_years(
    years: Iterable[int], *, limit: int = 20, gap: int = 3, above: int = 20, fill: bool = True
) -> list[int]:
    """The years of Algorithm 1 (lines 1 to 6), newest first: all of them if fewer than ``above``.

    C11: 20 years 3 apart need 58 years and PubMed's abstracts here span 51, so years at least
    ``gap`` apart are taken newest first, and ``fill`` adds the newest others up to ``limit``
    (``False``: as many as the gap allows). ``above=20`` is the algorithm's, 21 the prose's.
    """
    newest = sorted(set(years), reverse=True)
    if len(newest) < above:
        return newest
    apart: list[int] = []
    for year in newest:
        if len(apart) < limit and (not apart or apart[-1] - year >= gap):
            apart.append(year)
    others = [year for year in newest if year not in apart] if fill else []
    return sorted(apart + others[: limit - len(apart)], reverse=True)


def balanced(
    candidates: Iterable[Evidence], *, limit: int = 20, check_inside: bool = True, **years: int
) -> list[Evidence]:
    """Algorithm 1: the most cited abstract of each chosen year in turn, until ``limit`` are there.

    Years are taken newest first, candidates with the same id once, ties by id. An abstract is never
    taken twice, which the printed arg max does not say; C12: it also looks at the size only between
    passes (``check_inside=False``), so that 7 years give 21. ``years`` go to ``chosen_years``.
    """
    found = {d.id: d for d in candidates}.values()
    chosen = chosen_years((d.year for d in found), limit=limit, **years)
    left = {
        y: sorted((d for d in found if d.year == y), key=lambda d: (-d.citations, d.id))
        for y in chosen
    }
    kept: list[Evidence] = []
    while len(kept) < limit and any(left.values()):
        for year in chosen:
            if left[year] and not (check_inside and len(kept) >= limit):
                kept.append(left[year].pop(0))
    return kept


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
    (equations 6 to 8); ``query`` (dim,) and ``vectors`` (n, dim) have unit rows. C1: ``mmr`` static
    takes the nearest of *all* others as redundancy, as printed; greedy the nearest of those already
    ranked. C2: tau is ``recency`` as printed, ``year_coverage`` (years to the nearest other one, or
    to the nearest already ranked, over the span; 1 without any) or ``none``. Ties break by id.
    """
    if mmr not in ("static", "greedy") or temporal not in ("recency", "year_coverage", "none"):
        raise ValueError(f"no mmr {mmr!r} with temporal {temporal!r}; see: help(rank)")
    order = np.argsort(np.asarray(ids, dtype=object), kind="stable")
    year, vectors = np.asarray(years, float)[order], np.asarray(vectors, float)[order]
    relevance, near, apart = vectors @ query, vectors @ vectors.T, np.abs(year[:, None] - year)
    np.fill_diagonal(near, -np.inf)
    np.fill_diagonal(apart, np.inf)
    span, picked, rows = np.ptp(year) + 1e-5, [], []
    while len(rows) < len(order):
        others = picked if mmr == "greedy" else slice(None)
        redundancy = near[:, others].max(axis=1, initial=-np.inf)
        redundancy = np.where(np.isinf(redundancy), 0.0, redundancy)
        away = np.minimum(apart[:, others].min(axis=1, initial=np.inf), span) / span
        tau = {"recency": (year - year.min()) / span, "year_coverage": away}.get(temporal, 0 * year)
        score = alpha * (lam * relevance - (1 - lam) * redundancy) + (1 - alpha) * tau
        left = [i for i in range(len(order)) if i not in picked]
        best = left[int(np.argmax(score[left].round(9)))]
        picked.append(best)
        parts = relevance[best], redundancy[best], tau[best], score[best]
        rows.append((ids[order[best]], int(year[best]), *parts))
    return pd.DataFrame(rows, columns=["id", "year", "relevance", "redundancy", "tau", "score"])


def conditions(ranked: pd.DataFrame, cnt: Mapping[str, float], k: int = 5) -> dict[str, list[str]]:
    """The ids of each condition's context: the K highest by S, by CNT, and lowest by CNT.

    ``ranked`` is what ``rank`` returns, ``cnt`` CNT(d) by id; ties break by id. Relevance differs
    between the three, so C4 adds two that match it: neighbours in relevance form pairs, of the k
    most relevant pairs the more contradictory document goes to one, the other to the other.
    """
    least = sorted(ranked["id"], key=lambda i: (cnt[i], i))
    most = sorted(ranked["id"], key=lambda i: (-cnt[i], i))
    near = ranked.sort_values(["relevance", "id"], ascending=[False, True])["id"].tolist()[: 2 * k]
    parted = [sorted(pair, key=most.index) for pair in zip(near[::2], near[1::2], strict=False)]
    matched = ([pair[side] for pair in parted] for side in (0, 1))
    chosen = (ranked["id"].tolist()[:k], most[:k], least[:k], *matched)
    return dict(zip(CONDITIONS + MATCHED, chosen, strict=True))
