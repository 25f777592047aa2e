"""Tiers of mimic quality: exact intervals, Fisher's tests, agreement, rank correlation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import comb, prod, sqrt

import numpy as np
import pandas as pd

from lib.stats import holm

TIERS = ("Excellent", "Good", "Poor")
"""The paper's, best first. Anything else, such as "", is a question without a grade."""


def exact_share(hits: int, n: int) -> dict[str, float]:
    """n, hits, value (their share), low, high: Clopper and Pearson's 95 %; missing for n = 0."""
    from scipy.stats import binomtest

    low, high = binomtest(hits, n).proportion_ci() if n else (np.nan, np.nan)
    return {"n": n, "hits": hits, "value": hits / n if n else np.nan, "low": low, "high": high}


def freeman_halton(hits: Sequence[int], n: Sequence[int]) -> float:
    """Fisher's exact test over any number of groups, ``hits`` of ``n`` each; two-sided p.

    The probability, in whole numbers, of all tables with these margins that are no likelier than
    the one seen. NaN with fewer than two groups that have any question.
    """
    groups = [(h, m) for h, m in zip(hits, n, strict=True) if m]
    if len(groups) < 2:
        return np.nan
    specs = [[comb(m, x) for x in range(m + 1)] for _, m in groups]

    def weight(table: Sequence[int]) -> int:
        return prod(of_group[x] for of_group, x in zip(specs, table, strict=True))

    seen = weight([h for h, _ in groups])
    all_hits = sum(h for h, _ in groups)
    last_size = groups[-1][1]
    total, unlikely = 0, 0
    for first in product(*(range(m + 1) for _, m in groups[:-1])):
        last = all_hits - sum(first)  # the margins leave the last group no choice
        if 0 <= last <= last_size:
            this = weight([*first, last])
            total += this
            if this <= seen:
                unlikely += this
    return unlikely / total


def tier_tests(hits: Mapping[str, int], n: Mapping[str, int]) -> pd.DataFrame:
    """Any difference, then each pair: test, difference, low, high, p, p_holm, least, n.

    Holm is over the three pairs, ``low`` and ``high`` are Newcombe's interval, ``least`` is the
    smallest difference that n would have shown with 80 % power (2.8 standard errors). A pair with
    an empty tier is NOT RUN.
    """
    from statsmodels.stats.proportion import confint_proportions_2indep

    h = [hits.get(tier, 0) for tier in TIERS]
    m = [n.get(tier, 0) for tier in TIERS]
    rows = [{"test": "any difference", "p": freeman_halton(h, m), "n": sum(m)}]
    for a, b in ((0, 1), (1, 2), (0, 2)):
        row = {"test": f"{TIERS[a]} > {TIERS[b]}", "n": m[a] + m[b]}
        if m[a] and m[b]:
            low, high = confint_proportions_2indep(h[a], m[a], h[b], m[b], method="newcomb")
            share = (h[a] + h[b]) / row["n"]
            error = sqrt(share * (1 - share) * (1 / m[a] + 1 / m[b]))
            row |= {"difference": h[a] / m[a] - h[b] / m[b], "low": low, "high": high}
            row |= {"p": freeman_halton([h[a], h[b]], [m[a], m[b]]), "least": 2.8 * error}
        rows.append(row)
    columns = ["test", "difference", "low", "high", "p", "p_holm", "least", "n"]
    table = pd.DataFrame(rows, columns=columns)
    table["p_holm"] = table["p"]
    pairs = table["p"].notna() & (table.index > 0)
    if pairs.any():
        table.loc[pairs, "p_holm"] = holm(table.loc[pairs, "p"])
    return table


def agreement(a: pd.Series, b: pd.Series) -> dict[str, float]:
    """Two graders on what both graded: n, agree (a share), Cohen's kappa, low, high (asymptotic).

    A grader who always says the same agrees as chance would: kappa 0, no interval. There is none at
    all without questions, or when both give one and the same grade to all of them.
    """
    from statsmodels.stats.inter_rater import cohens_kappa

    a, b = a.align(b, join="inner")
    both = a.isin(TIERS) & b.isin(TIERS)
    a, b = a[both], b[both]
    out = {"n": len(a), "agree": float((a == b).mean())}
    if min(a.nunique(), b.nunique()) < 2:
        return out | {"kappa": 0.0 if len({*a, *b}) > 1 else np.nan, "low": np.nan, "high": np.nan}
    found = cohens_kappa([[((a == x) & (b == y)).sum() for y in TIERS] for x in TIERS])
    return out | {"kappa": found.kappa, "low": found.kappa_low, "high": min(found.kappa_upp, 1.0)}


def rank_correlation(x: Sequence, y: Sequence) -> dict[str, float]:
    """Spearman's rho with Bonett and Wright's 95 % interval: rho, low, high, n.

    Missing values are left out; fewer than four, or a constant, correlate with nothing (NaN).
    """
    from scipy.stats import spearmanr

    both = pd.DataFrame({"x": x, "y": y}).dropna().astype(float)
    n = len(both)
    if n < 4 or (both.nunique() < 2).any():
        return dict.fromkeys(("rho", "low", "high"), np.nan) | {"n": n}
    rho = float(spearmanr(both["x"], both["y"]).statistic)
    ends = np.arctanh(rho) + np.array([-1.96, 1.96]) * np.sqrt((1 + rho**2 / 2) / (n - 3))
    return {"rho": rho, "low": np.tanh(ends[0]), "high": np.tanh(ends[1]), "n": n}
