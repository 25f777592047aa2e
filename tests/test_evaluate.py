"""Retrieval metrics, intervals and paired tests against oracles written from their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.stats import (
    CLASSES,
    METRICS,
    auroc,
    auroc_interval,
    ceiling,
    class_of,
    holm,
    mean_interval,
    measure,
    paired,
    summary,
)

PIDS = [f"p{i:02d}" for i in range(16)]
some = st.frozensets(st.sampled_from(PIDS), max_size=8)
ranking = st.lists(st.sampled_from(PIDS), unique=True, max_size=14)
questions = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3"]), st.tuples(ranking, some, some), min_size=1
)


def oracle(ranked: list[str], targets: frozenset, mimics: frozenset, k: int) -> dict[str, float]:
    """Every metric from its definition, gains 0/1."""
    hit = [p in targets for p in ranked]
    gain = sum(h / math.log2(i + 2) for i, h in enumerate(hit[:10]))
    ideal = sum(1 / math.log2(i + 2) for i in range(min(10, len(targets))))
    share = dict.fromkeys(CLASSES, 0.0)
    for p in ranked[:k]:
        share[class_of(p, targets, mimics)] += 1 / k
    return {
        "p_at_5": sum(hit[:k]) / k,
        "hit_at_5": float(any(hit[:k])),
        "ndcg_at_10": gain / ideal if ideal else 0.0,
        "mrr": next((1 / (i + 1) for i, h in enumerate(hit) if h), 0.0),
        "recall_at_10": sum(hit[:10]) / len(targets) if targets else 0.0,
        **{f"{name}_at_5": share[name] for name in CLASSES},
    }


# metrics -----------------------------------------------------------------------------------------


@given(questions, st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_every_metric_is_its_definition(asked, k):
    table = measure(
        {q: ranked for q, (ranked, _, _) in asked.items()},
        {q: targets for q, (_, targets, _) in asked.items()},
        {q: mimics for q, (_, _, mimics) in asked.items()},
        k,
    )
    assert list(table.columns) == list(METRICS) and list(table.index) == list(asked)
    for qid, (ranked, targets, mimics) in asked.items():
        want = oracle(ranked, targets, mimics, k)
        assert table.loc[qid].to_dict() == pytest.approx(want, abs=1e-6), qid
        shares = table.loc[qid, [f"{c}_at_5" for c in CLASSES]].sum()
        assert shares == pytest.approx(min(len(ranked), k) / k)
        topical = table.loc[qid, "target_at_5"] + table.loc[qid, "both_at_5"]
        assert topical == pytest.approx(table.loc[qid, "p_at_5"])


def test_the_order_given_is_the_order_measured():
    """The metrics library breaks ties by id; equal scores must never reach it."""
    for order in itertools.permutations("abc"):
        table = measure({"q": list(order)}, {"q": frozenset("a")}, {})
        assert table.loc["q", "mrr"] == pytest.approx(1 / (order.index("a") + 1))


@given(st.dictionaries(st.text(max_size=3), some, min_size=1), st.integers(1, 6))
@settings(deadline=None)
def test_the_ceiling_is_what_a_perfect_ranking_scores(targets, k):
    perfect = {q: sorted(pids) + [p for p in PIDS if p not in pids] for q, pids in targets.items()}
    reached = [oracle(perfect[q], pids, frozenset(), k)["p_at_5"] for q, pids in targets.items()]
    assert ceiling(targets, k) == pytest.approx(np.mean(reached))


# intervals ---------------------------------------------------------------------------------------

numbers = st.lists(st.floats(-1, 1), min_size=1, max_size=40)


@given(numbers, st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_interval_is_inside_the_data_around_the_mean_and_the_seeds(values, seed):
    mean, low, high = mean_interval(np.array(values), seed=seed)
    assert mean == pytest.approx(np.mean(values))
    assert min(values) - 1e-9 <= low <= mean + 1e-9 and mean - 1e-9 <= high <= max(values) + 1e-9
    assert (mean, low, high) == mean_interval(np.array(values), seed=seed)


def test_the_interval_is_the_bootstraps():
    values = np.random.default_rng(1).random(80)
    rng = np.random.default_rng(2)
    means = [rng.choice(values, len(values)).mean() for _ in range(4000)]
    want = np.percentile(means, [2.5, 97.5])
    assert mean_interval(values)[1:] == pytest.approx(want, abs=0.01)
    assert mean_interval(values, seed=1) != mean_interval(values, seed=2)


# paired tests ------------------------------------------------------------------------------------


def test_a_clear_effect_is_found_and_none_is_not():
    rng = np.random.default_rng(3)
    base = rng.random(60)
    clear = paired(base + 0.3 + 0.05 * rng.normal(size=60), base)
    assert clear["p"] < 0.001 and 0.25 < clear["low"] < clear["difference"] < clear["high"] < 0.35
    assert clear["n"] == 60 and clear["mde"] < 0.05
    none = paired(base, base)
    assert none == {"difference": 0, "low": 0, "high": 0, "p": 1.0, "n": 60, "mde": 0.0}


@given(st.lists(st.sampled_from([-0.4, -0.2, 0.0, 0.2, 0.6]), min_size=1, max_size=9))
@example([-0.4, -0.4, -0.4, -0.2, 0.2, 0.6, 0.6])  # the mean is zero but for rounding
@settings(max_examples=40, deadline=None)
def test_the_p_value_is_the_share_of_sign_flips_as_large(difference):
    difference = np.array(difference)
    flips = [
        abs(np.mean(difference * s)) for s in itertools.product((1, -1), repeat=len(difference))
    ]
    want = np.mean(np.array(flips) >= abs(difference.mean()) - 1e-12)
    assert paired(difference, np.zeros(len(difference)))["p"] == pytest.approx(want)


def test_the_least_difference_would_have_been_seen_four_times_of_five():
    rng, seen = np.random.default_rng(6), 0
    for seed in range(60):
        noise = rng.normal(size=40)
        least = paired(noise, np.zeros(40), resamples=99)["mde"]
        seen += (
            paired(rng.normal(size=40) + least, np.zeros(40), resamples=399, seed=seed)["p"] < 0.05
        )
    assert 0.65 < seen / 60 < 0.95


def test_holm_against_a_hand_example():
    # Sorted 0.01, 0.02, 0.03, 0.5 times 4, 3, 2, 1; then no smaller than the one before.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


# tables ------------------------------------------------------------------------------------------


def test_a_summary_is_the_means_with_contamination_both_ways():
    targets = {"q1": frozenset("ab"), "q2": frozenset("c")}
    mimics = {"q1": frozenset("bx"), "q2": frozenset("y")}
    table = measure({"q1": list("abxvw"), "q2": list("ycvwz")}, targets, mimics)
    row = summary(table)
    assert row["p_at_5"] == pytest.approx(0.3) and row["n"] == 2
    assert row["target_at_5"] == pytest.approx(0.2) and row["both_at_5"] == pytest.approx(0.1)
    assert row["mimic_at_5"] == row["contamination_at_5"] == pytest.approx(0.2)
    assert row["contamination_ratio"] == pytest.approx(0.2 / 0.5)
    assert row["p_at_5_low"] <= row["p_at_5"] <= row["p_at_5_high"]
    assert set(METRICS) < set(row)
    nothing = measure({}, targets, mimics)
    assert math.isnan(summary(nothing)["contamination_ratio"])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=1, max_size=30))
def test_auroc_is_the_share_of_couples_in_the_right_order(rows):
    positive = np.array([is_positive for is_positive, _ in rows])
    scores = np.array([float(score) for _, score in rows])
    couples = list(itertools.product(scores[positive], scores[~positive]))
    if not couples:
        assert math.isnan(auroc(positive, scores))
        assert all(map(math.isnan, auroc_interval(positive, scores, list(range(len(rows))))))
        return
    wins = [1.0 if above > below else 0.5 if above == below else 0.0 for above, below in couples]
    assert auroc(positive, scores) == pytest.approx(np.mean(wins))


def test_the_interval_of_auroc_draws_whole_groups():
    positive = np.tile([True, False], 40)
    scores = np.tile([1.0, 0.0, 0.0, 1.0], 20)  # a group in order, a group turned round, ...
    group_of = [str(i // 2) for i in range(80)]
    assert auroc(positive, scores) == 0.5
    low, high = auroc_interval(positive, scores, group_of)
    assert 0.2 < low < 0.45
    assert 0.55 < high < 0.8
    alike = auroc_interval(positive, scores, ["one"] * 80)
    assert alike == (0.5, 0.5)
