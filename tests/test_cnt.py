"""CNT against loops that follow the equations, and what must hold whatever the NLI model says."""

from __future__ import annotations

import zlib
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lib.contradiction.cnt import FILTERS, cnt, document_cnt, length_matched_null, pair_scores
from lib.embed import HashEncoder
from lib.nli.models import sentences
from lib.nli.scores import DIRECTIONS

settings = hypothesis_settings(max_examples=25, deadline=None)
ENCODER = HashEncoder(32)
WORDS = ["aspirin", "oxygen", "lowers", "raises", "mortality", "risk", "never", "children"]


class Fake:
    """A model that decides by a checksum, differently for (a, b) and (b, a)."""

    name, fingerprint, symmetric = "fake", "fake 1", False

    def contradiction(self, pairs):
        return np.array([p(*pair) for pair in pairs])


class Flat(Fake):
    """A model that says the same of every pair."""

    fingerprint = "flat"

    def contradiction(self, pairs):
        return np.full(len(pairs), 0.25)


def p(a: str, b: str) -> float:
    return zlib.crc32(f"{a}|{b}".encode()) / 2**32


sentence = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(
    lambda words: " ".join(words).capitalize() + "."
)
text = st.lists(sentence, max_size=4).map(" ".join)
couples = st.lists(st.tuples(text, text), min_size=1, max_size=4)
switches = st.fixed_dictionaries({
    "sentence_filter": st.sampled_from(FILTERS), "theta": st.sampled_from([-1.0, 0.2, 0.75, 1.1]),
    "percentile": st.sampled_from([0, 50, 90]), "direction": st.sampled_from(DIRECTIONS),
    "top": st.integers(1, 3),
})  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def folders(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def cosine(s: str, t: str) -> float:
    a, b = ENCODER.encode([s, t], "article")
    return round(float(a @ b), 6)


def scored(s: str, t: str, direction: str) -> float:
    there, back = p(s, t), p(t, s)
    return {"max": max(there, back), "mean": (there + back) / 2, "forward": there}[direction]


def by_hand(found, sentence_filter, theta, percentile, direction, top):
    """(value, pairs, passed, the sentence pairs that may carry it) of each couple."""
    met = [[(cosine(s, t), s, t) for s, t in product(*map(sentences, pair))] for pair in found]
    if sentence_filter == "percentile" and any(met):
        theta = np.percentile(np.float32([c for pairs in met for c, _, _ in pairs]), percentile)
    for pairs in met:
        passed = [(s, t) for c, s, t in pairs if sentence_filter == "none" or c >= theta - 2e-6]
        scores = sorted((scored(*pair, direction) for pair in passed), reverse=True)
        best = [pair for pair in passed if scored(*pair, direction) == scores[0]]
        yield float(np.mean(scores[:top] or [0.0])), len(pairs), len(passed), best


@given(couples, switches)
@settings
def test_cnt_is_what_the_equations_say(found, how):
    got = pair_scores(found, Fake(), ENCODER, progress=False, **how)
    for score, (value, pairs, passed, best) in zip(got, by_hand(found, **how), strict=True):
        assert (score.pairs, score.passed) == (pairs, passed)
        assert score.value == pytest.approx(value) and 0 <= score.value <= 1
        assert (score.sentence_a, score.sentence_b) == (best[0] if best else ("", ""))


@given(text, text, switches)
@settings
def test_max_and_mean_are_symmetric_and_forward_is_not_promised(a, b, how):
    there, back = cnt(a, b, Fake(), ENCODER, **how), cnt(b, a, Fake(), ENCODER, **how)
    assert (there.pairs, there.passed) == (back.pairs, back.passed)
    if how["direction"] != "forward":
        assert there.value == pytest.approx(back.value, abs=1e-12)


def test_forward_is_one_order_only():
    a, b = "Aspirin lowers mortality.", "Aspirin raises mortality."
    forward = {"direction": "forward", "sentence_filter": "none"}
    assert cnt(a, b, Fake(), ENCODER, **forward).value == p(a, b)
    assert cnt(b, a, Fake(), ENCODER, **forward).value == p(b, a) != p(a, b)


@given(couples, st.integers(1, 3))
@settings
def test_a_stricter_filter_never_raises_the_maximum(found, top):
    loose, strict = (
        pair_scores(found, Fake(), ENCODER, theta=theta, progress=False) for theta in (0.2, 0.6)
    )
    for more, less in zip(loose, strict, strict=True):
        assert less.passed <= more.passed and less.value <= more.value


def test_empty_pair_sets_give_0_and_are_counted(capsys):
    found = [("Aspirin.", "Oxygen."), ("", "Aspirin."), ("Aspirin.", "Aspirin. Oxygen.")]
    got = pair_scores(found, Flat(), ENCODER)
    assert [(s.value, s.pairs, s.passed) for s in got] == [(0, 1, 0), (0, 0, 0), (0.25, 2, 1)]
    told = capsys.readouterr().err
    assert "theta passed 1 of 3 sentence pairs (33.3%)" in told
    assert "2 of 3 document pairs have none and score 0" in told
    assert pair_scores([], Flat(), ENCODER) == []


def test_an_unknown_switch_is_refused():
    with pytest.raises(ValueError, match="no filter 'specter'; there are: theta, percentile, none"):
        cnt("a.", "b.", Flat(), ENCODER, sentence_filter="specter")
    with pytest.raises(ValueError, match="no direction 'both'"):
        cnt("a.", "b.", Flat(), ENCODER, direction="both")


@given(st.integers(1, 6).flatmap(lambda n: st.lists(
    st.lists(st.floats(0, 1), min_size=n, max_size=n), min_size=n, max_size=n)))  # fmt: skip
@settings
def test_document_cnt_is_the_mean_over_the_others(matrix):
    ids, n = [f"d{i}" for i in range(len(matrix))], len(matrix)
    ordered = {(ids[i], ids[j]): matrix[i][j] for i in range(n) for j in range(n) if i != j}
    for i, d in enumerate(ids):
        rest = [matrix[i][j] for j in range(n) if j != i]
        assert document_cnt(ordered, ids)[d] == pytest.approx(sum(rest) / len(rest) if rest else 0)
    half = {pair: value for pair, value in ordered.items() if pair[0] < pair[1]}
    full = half | {(b, a): value for (a, b), value in half.items()}
    assert document_cnt(half, ids) == document_cnt(full, ids)


@given(couples, st.integers(1, 12), st.integers(1, 3))
@settings
def test_null_keeps_what_it_should(found, bins, top):
    how = {"sentence_filter": "none", "bins": bins, "draws": 3, "top": top}
    null = length_matched_null(found, Fake(), ENCODER, seed=1, **how)
    real = pair_scores(found, Fake(), ENCODER, sentence_filter="none", top=top, progress=False)
    assert null.shape == (3, len(found)) and (null >= 0).all() and (null <= 1).all()
    for score, column in zip(real, null.T, strict=True):
        if not score.passed:
            assert (column == 0).all()
        if bins >= sum(s.passed for s in real):  # one pair a stratum: nothing to shuffle
            assert column == pytest.approx(score.value)
    flat = pair_scores(found, Flat(), ENCODER, sentence_filter="none", progress=False)
    assert (length_matched_null(found, Flat(), ENCODER, **how) == [s.value for s in flat]).all()


def test_null_moves_scores_only_among_pairs_of_one_length():
    short, long = "Aspirin.", "Aspirin lowers mortality risk never."
    found = [(short, f"{w.capitalize()}.") for w in WORDS] + [
        (long, f"{long[:-1]} {w}.") for w in WORDS
    ]
    how = {"sentence_filter": "none", "draws": 30}
    real = [
        s.value for s in pair_scores(found, Fake(), ENCODER, sentence_filter="none", progress=False)
    ]
    n = len(WORDS)
    for row in length_matched_null(found, Fake(), ENCODER, bins=2, **how):
        assert sorted(row[:n]) == sorted(real[:n]) and sorted(row[n:]) == sorted(real[n:])
    mixed = length_matched_null(found, Fake(), ENCODER, bins=1, **how)
    assert all(sorted(row) == sorted(real) for row in mixed)
    assert any(sorted(row[:n]) != sorted(real[:n]) for row in mixed)


def test_a_longer_text_scores_higher_by_chance_and_the_null_says_so():
    lines = [f"{a} {b} {c}.".capitalize() for a, b, c in product(WORDS, WORDS, WORDS)]
    found = [(lines[0], lines[i]) for i in range(1, 40)] + [
        (" ".join(lines[40:70]), " ".join(lines[70:100]))
    ]
    null = length_matched_null(found, Fake(), ENCODER, sentence_filter="none", draws=10)
    assert null[:, -1].mean() > 0.95 > null[:, :-1].mean() + 0.1
