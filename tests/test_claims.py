"""One long table of outcomes and the one function that tests: against sums that anyone can do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from lib.stats import (
    Pair,
    claims,
    holm,
    mcnemar_p,
    paired,
)

# paired tests ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_of_right_and_wrong_it_is_mcnemars_test(pairs):
    """That is the binomial test of the questions that differ."""
    a, b = np.array(pairs).T
    wins, losses = int((a & ~b).sum()), int((b & ~a).sum())
    found = paired(a, b)
    assert found["p"] == pytest.approx(mcnemar_p(wins, losses)) == pytest.approx(paired(b, a)["p"])
    if wins + losses:
        assert found["p"] == pytest.approx(binomtest(wins, wins + losses, 0.5).pvalue)
    assert paired(a, a)["p"] == 1.0 and found["n"] == len(pairs)
    assert found["difference"] == pytest.approx((wins - losses) / len(pairs))


def test_means_of_draws_are_tested_exactly_whatever_the_seed():
    """Resampling gave a Holm p of .049 where the exact one is .046."""
    rng = np.random.default_rng(6)
    arm = rng.integers(0, 2, 300).astype(float)
    control = rng.integers(0, 4, 300) / 3  # the mean of three draws
    (found,) = {paired(arm, control, seed=seed, resamples=99)["p"] for seed in range(5)}
    signs = rng.choice([-1, 1], size=(20_000, 300))
    sums = np.abs(signs @ (arm - control))
    assert found == pytest.approx(np.mean(sums >= abs((arm - control).sum()) - 1e-9), abs=0.015)


# the long table ----------------------------------------------------------------------------------


# claims ------------------------------------------------------------------------------------------

N = 24
RNG = np.random.default_rng(7)
SERIES = {
    ("a", "p_at_5"): RNG.integers(2, 6, N) / 5,
    ("b", "p_at_5"): RNG.integers(0, 4, N) / 5,
    ("c", "p_at_5"): RNG.integers(0, 6, N) / 5,
    ("a", "right"): RNG.random(N) < 0.8,
    ("b", "right"): RNG.random(N) < 0.4,
    ("c", "right"): RNG.random(N) < 0.7,
}


def values_of(series: dict = SERIES) -> pd.DataFrame:
    rows = [
        (arm, f"q{i:02d}", metric, float(value))
        for (arm, metric), column in series.items()
        for i, value in enumerate(column)
    ]
    return pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])


PAIRS = [
    Pair("a finds more than b", "p_at_5", "a", "b", primary=True),
    Pair("a finds more than c", "p_at_5", "a", "c"),
    Pair("a is right more often than b", "right", "a", "b", primary=True),
    Pair("b is right more often than c", "right", "b", "c"),
    Pair("a finds less than c", "p_at_5", "a", "c", sign=-1.0, primary=True),
]


def test_a_claim_is_the_paired_test_of_its_two_arms():
    table = claims(values_of().sample(frac=1, random_state=1), PAIRS)
    assert list(table["claim"]) == [pair.claim for pair in PAIRS]
    for pair, row in zip(PAIRS, table.itertuples(), strict=True):
        one, other = (SERIES[arm, pair.metric] for arm in (pair.arm, pair.baseline))
        want = paired(one, other, tested=pair.primary)
        assert row.value == pytest.approx(np.mean(one))
        assert row.value_baseline == pytest.approx(np.mean(other))
        for name, value in want.items():
            assert getattr(row, name) == pytest.approx(value, nan_ok=True), name
        assert (row.metric, row.arm, row.baseline) == (pair.metric, pair.arm, pair.baseline)


def test_holm_is_over_primary_pairs_and_only_they_get_a_verdict():
    table = claims(values_of(), PAIRS)
    primary = table["status"] == "primary"
    assert primary.tolist() == [pair.primary for pair in PAIRS]
    assert set(table.loc[~primary, "status"]) == {"exploratory"}
    assert table.loc[primary, "p_holm"].tolist() == pytest.approx(
        holm(table.loc[primary, "p"]).tolist()
    )
    assert table.loc[~primary, "p_holm"].isna().all()
    assert (table.loc[~primary, "verdict"] == "").all()
    assert claims(values_of(), []).empty
    # Exploratory pairs cost the primary ones nothing, however many there are.
    alone = claims(values_of(), [pair for pair in PAIRS if pair.primary])
    more = claims(values_of(), [*PAIRS, *[Pair("x", "p_at_5", "b", "c")] * 20])
    for other in (alone, more[more["status"] == "primary"]):
        assert other["p_holm"].tolist() == table.loc[primary, "p_holm"].tolist()
        assert other["verdict"].tolist() == table.loc[primary, "verdict"].tolist()


@pytest.mark.parametrize(
    ("arm", "baseline", "sign", "verdict"),
    [
        ("more", "less", 1.0, "SUPPORTED"),
        ("more", "less", -1.0, "AGAINST"),
        ("less", "more", 1.0, "AGAINST"),
        ("less", "more", -1.0, "SUPPORTED"),
        ("more", "same", 1.0, "INCONCLUSIVE"),
    ],
)
def test_a_verdict_says_whether_it_went_where_it_was_to_go(arm, baseline, sign, verdict):
    more = np.ones(20)
    less, same = more.copy(), more.copy()
    less[:15] = 0
    same[0] = 0
    series = {("more", "m"): more, ("less", "m"): less, ("same", "m"): same}
    (row,) = claims(values_of(series), [Pair("c", "m", arm, baseline, sign, True)]).itertuples()
    assert row.verdict == verdict
    few = {key: column[:5] for key, column in series.items()}
    (row,) = claims(values_of(few), [Pair("c", "m", arm, baseline, sign, True)]).itertuples()
    assert row.verdict == "TOO FEW" and row.n == 5


def test_arms_with_different_questions_are_compared_on_those_they_share():
    values = values_of()
    gone = (values["arm"] == "a") & values["qid"].isin(["q00", "q01"])
    also = (values["arm"] == "b") & values["qid"].isin(["q01", "q05"])
    (row,) = claims(values[~gone & ~also], [PAIRS[0]]).itertuples()
    shared = [i for i in range(N) if i not in (0, 1, 5)]
    one, other = SERIES["a", "p_at_5"][shared], SERIES["b", "p_at_5"][shared]
    assert row.n == N - 3 and row.difference == pytest.approx((one - other).mean())
    assert row.value == pytest.approx(one.mean())
    assert row.p == pytest.approx(paired(one, other)["p"])
    # A value that is missing is a question that is missing.
    holes = values.assign(value=values["value"].mask(gone | also))
    pd.testing.assert_frame_equal(
        claims(holes, [PAIRS[0]]), claims(values[~gone & ~also], PAIRS[:1])
    )


def test_what_cannot_be_compared_is_an_error_that_names_it():
    values = values_of()
    odd = values["qid"].str[-1].isin(list("13579"))
    apart = values[(values["arm"] == "a") & odd | (values["arm"] == "b") & ~odd]
    twice = pd.concat([values, values.iloc[:1]])  # joined by id it would count as four
    for table, pair, why in (
        (values, Pair("x", "p_at_5", "a", "z"), "nobody measured p_at_5 of z"),
        (values, Pair("x", "mrr", "a", "b"), "nobody measured mrr of a"),
        (apart, PAIRS[0], "a and b share no question"),
        (twice, PAIRS[0], "a has p_at_5 of q00 twice"),
    ):
        with pytest.raises((LookupError, ValueError), match=why):
            claims(table, [pair])
