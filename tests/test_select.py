"""Algorithms 1 and 2 of the contradiction study and its conditions, against brute force."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.studies.contradiction.evidence import Evidence
from lib.studies.contradiction.pools import (
    CONDITIONS,
    MATCHED,
    balanced,
    chosen_years,
    conditions,
    rank,
)

YEARS = st.lists(st.integers(1975, 2025), min_size=1, max_size=60)
CITED = st.lists(st.tuples(st.integers(1975, 2025), st.integers(-1, 5)), min_size=1, max_size=80)


def evidence(rows) -> list[Evidence]:
    return [Evidence(f"d{i:03d}", "t", "x", y, c) for i, (y, c) in enumerate(rows)]


# Algorithm 1 -------------------------------------------------------------------------------------


@given(YEARS)
def test_the_chosen_years(years):
    distinct, chosen = sorted(set(years), reverse=True), chosen_years(years)
    assert chosen == sorted(set(chosen), reverse=True) and set(chosen) <= set(distinct)
    assert len(chosen) == min(20, len(distinct)) and distinct[0] in chosen
    if len(distinct) < 20:
        assert chosen == distinct
    apart = chosen_years(years, above=1, fill=False)
    assert all(a - b >= 3 for a, b in zip(apart, apart[1:], strict=False))
    # Greedy, newest first, is as many as the gap allows: the oldest window of 3 years counts once.
    assert all(any(0 <= kept - y < 3 for kept in apart) for y in distinct)
    if len(distinct) >= 20:
        assert set(apart[:20]) <= set(chosen)


def test_twenty_years_three_apart_do_not_fit_into_the_papers_span():
    every = range(1975, 2026)
    assert len(chosen_years(every, fill=False)) == 17 and len(chosen_years(every)) == 20
    twenty = range(2000, 2020)
    assert len(chosen_years(twenty, fill=False)) == 7, "the algorithm samples from 20 years on"
    assert len(chosen_years(twenty, fill=False, above=21)) == 20, "the prose above 20"


@given(CITED)
def test_algorithm_1_keeps_twenty_at_most_and_every_year_before_a_second_pass(rows):
    found = evidence(rows)
    kept = balanced(found)
    years = chosen_years(d.year for d in found)
    available = sum(d.year in years for d in found)
    assert len(kept) == len({d.id for d in kept}) == min(20, available)
    first = [d.year for d in kept[: len(years)]]
    assert first == years, "one of each chosen year, newest first"
    taken = Counter(d.year for d in kept)
    for year in years:
        own = sorted((d for d in found if d.year == year), key=lambda d: (-d.citations, d.id))
        assert [d for d in kept if d.year == year] == own[: taken[year]], "most cited first"
        for other in years:  # passes: nobody is two ahead of a year that still has some
            if taken[other] > taken[year] + 1:
                assert taken[year] == len(own)


def test_checked_between_passes_only_seven_years_give_21():
    found = evidence([(2000 + i % 7, i) for i in range(42)])
    assert len(balanced(found)) == len(balanced(found * 2)) == 20
    kept = balanced(found, check_inside=False)
    assert len(kept) == 21 and set(Counter(d.year for d in kept).values()) == {3}


# Algorithm 2 -------------------------------------------------------------------------------------


def pool(seed: int, n: int, dim: int = 6):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n + 1, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    ids = [f"d{i:02d}" for i in rng.permutation(n)]
    return rows[0], rows[1:], ids, rng.integers(1975, 2026, n).tolist()


def by_hand(query, vectors, years, i, others, temporal, lam=0.7, alpha=0.7):
    """S of document i, written from equations 6 to 8."""
    span = max(years) - min(years) + 1e-5
    mmr = lam * (query @ vectors[i])
    mmr -= (1 - lam) * max([vectors[i] @ vectors[j] for j in others] or [0])
    gaps = [abs(years[i] - years[j]) for j in others] or [span]
    tau = {"recency": (years[i] - min(years)) / span, "year_coverage": min(gaps) / span, "none": 0}
    return alpha * mmr + (1 - alpha) * tau[temporal]


@pytest.mark.parametrize("temporal", ["recency", "year_coverage", "none"])
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_static_and_greedy_against_brute_force(temporal, seed, n):
    query, vectors, ids, years = pool(seed, n)
    table = rank(query, vectors, ids, years, temporal=temporal)
    every = {
        i: by_hand(query, vectors, years, i, [j for j in range(n) if j != i], temporal)
        for i in range(n)
    }
    assert table["score"].tolist() == pytest.approx(sorted(every.values(), reverse=True))
    assert dict(zip(table["id"], table["score"], strict=True)) == pytest.approx(
        {ids[i]: s for i, s in every.items()}
    )
    greedy = rank(query, vectors, ids, years, mmr="greedy", temporal=temporal)
    place, taken = {d: i for i, d in enumerate(ids)}, []
    for row in greedy.itertuples():
        left = [i for i in range(n) if i not in taken]
        scores = {i: by_hand(query, vectors, years, i, taken, temporal) for i in left}
        assert row.score == pytest.approx(max(scores.values()))
        assert scores[place[row.id]] == pytest.approx(row.score)
        taken.append(place[row.id])
    assert sorted(greedy["id"]) == sorted(ids)


def test_ties_break_by_id_and_unknown_settings_are_refused():
    query, same = np.array([1.0, 0.0]), np.tile([0.6, 0.8], (4, 1))
    for mmr in ("static", "greedy"):
        assert rank(query, same, list("dbca"), [2000] * 4, mmr=mmr)["id"].tolist() == list("abcd")
    for wrong in ({"mmr": "gready"}, {"temporal": "year"}):
        with pytest.raises(ValueError, match="help"):
            rank(query, same, list("dbca"), [2000] * 4, **wrong)


# conditions --------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 4))
def test_the_conditions_against_all_subsets(seed, n, k):
    query, vectors, ids, years = pool(seed, n)
    ranked = rank(query, vectors, ids, years)
    values = np.random.default_rng(seed + 1).integers(0, 4, n) / 4
    cnt = dict(zip(sorted(ids), values, strict=True))
    chosen = conditions(ranked, cnt, k)
    score = ranked.set_index("id")["score"]
    subsets = list(combinations(ids, min(k, n)))
    for name, value, best in zip(CONDITIONS, (score, cnt, cnt), (max, max, min), strict=True):
        total = best(sum(value[i] for i in subset) for subset in subsets)
        assert sum(value[i] for i in chosen[name]) == pytest.approx(total), name
    # The matched two share nothing and differ by neighbours in relevance.
    most, least = (chosen[name] for name in MATCHED)
    order = ranked.sort_values("relevance", ascending=False)["id"].tolist()
    assert len(most) == len(least) == min(k, n // 2)
    assert {*most, *least} == set(order[: 2 * len(most)])
    for high, low in zip(most, least, strict=True):
        assert cnt[high] >= cnt[low] and abs(order.index(high) - order.index(low)) == 1
