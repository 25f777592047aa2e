"""CNT against loops that follow the equations, and what must hold whatever the NLI model says."""

from __future__ import annotations

import zlib
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lib.embed import HashEncoder
from lib.studies.contradiction import cnt
from lib.studies.contradiction.cnt import FILTERS, Scorer, document_cnt, strangers
from lib.studies.contradiction.nli import DIRECTIONS, sentences

settings = hypothesis_settings(max_examples=25, deadline=None)
ENCODER = HashEncoder(32)
WORDS = ["aspirin", "oxygen", "lowers", "raises", "mortality", "risk", "never", "children"]


class Fake:
    """A model that decides by a checksum, differently for (a, b) and (b, a)."""

    name, fingerprint, symmetric = "fake", "fake 1", False

    def contradiction(self, pairs):
        return np.array([p(*pair) for pair in pairs])


def p(a: str, b: str) -> float:
    return zlib.crc32(f"{a}|{b}".encode()) / 2**32


sentence = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(
    lambda words: " ".join(words).capitalize() + "."
)
text = st.lists(sentence, max_size=4).map(" ".join)
couples = st.lists(st.tuples(text, text), min_size=1, max_size=4)
switches = st.fixed_dictionaries(
    {
        "sentence_filter": st.sampled_from(FILTERS),
        "theta": st.sampled_from([-1.0, 0.2, 0.75, 1.1]),
        "percentile": st.sampled_from([0, 50, 90]),
        "direction": st.sampled_from(DIRECTIONS),
        "top": st.integers(1, 3),
    }
)


@pytest.fixture(autouse=True, scope="module")
def folders(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def fitted(found, **how) -> Scorer:
    return Scorer(Fake(), ENCODER, **how).fitted(found)


def cosine(s: str, t: str) -> float:
    a, b = ENCODER.encode([s, t], "article")
    return round(float(a @ b), 6)


def scored(s: str, t: str, direction: str) -> float:
    there, back = p(s, t), p(t, s)
    return {"max": max(there, back), "mean": (there + back) / 2, "forward": there}[direction]


def by_hand(found, sentence_filter, theta, percentile, direction, top):
    """(value, top 1, top 3, pairs, passed, the pairs that may carry it) of each couple."""
    met = [[(cosine(s, t), s, t) for s, t in product(*map(sentences, pair))] for pair in found]
    if sentence_filter == "percentile" and any(met):
        theta = np.percentile(np.float32([c for pairs in met for c, _, _ in pairs]), percentile)
    for pairs in met:
        passed = [(s, t) for c, s, t in pairs if sentence_filter == "none" or c >= theta - 2e-6]
        scores = sorted((scored(*pair, direction) for pair in passed), reverse=True)
        best = [pair for pair in passed if scored(*pair, direction) == scores[0]]
        means = [float(np.mean(scores[:n] or [0.0])) for n in (top, 1, 3)]
        yield *means, len(pairs), len(passed), best


@given(couples, switches)
@settings
def test_cnt_is_what_the_equations_say(found, how):
    got = fitted(found, **how)(found)
    for (a, b), score, wanted in zip(found, got, by_hand(found, **how), strict=True):
        *means, pairs, passed, best = wanted
        assert (score.pairs, score.passed) == (pairs, passed)
        assert score[:3] == pytest.approx(means) and 0 <= score.value <= 1
        if not best:
            assert (score.sentence_a, score.sentence_b) == (0, 0)
            continue
        carrying = (sentences(a)[score.sentence_a - 1], sentences(b)[score.sentence_b - 1])
        assert carrying == best[0]


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="no filter 'specter'; there are: theta, percentile, none"):
        fitted([("a.", "b.")], sentence_filter="specter")
    with pytest.raises(ValueError, match="no direction 'both'"):
        fitted([("a.", "b.")], direction="both")([("a.", "b.")])
    with pytest.raises(ValueError, match="no threshold yet"):
        Scorer(Fake(), ENCODER)([("a.", "b.")])


@given(couples, st.integers(0, 100), st.integers(1, 3))
@settings
def test_a_couples_cnt_does_not_depend_on_what_is_scored_with_it(found, percentile, block):
    score = fitted(found, sentence_filter="percentile", percentile=percentile)
    whole = score(found)
    assert whole == [score([couple])[0] for couple in found]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cnt, "BLOCK", block)
        assert score(found) == whole and score.fitted(found).threshold == score.threshold


def test_a_large_study_fits_its_threshold_on_a_sample_that_does_not_change(monkeypatch, capsys):
    texts = [f"{a} {b} {c}.".capitalize() for a, b, c in product(WORDS, WORDS, WORDS)]
    found = list(product(texts[:20], texts[20:50]))
    whole = fitted(found, sentence_filter="percentile").threshold
    assert "600 pairs of abstracts, about 600 pairs of sentences" in capsys.readouterr().err
    monkeypatch.setattr(cnt, "_SAMPLE", 150)
    some = [fitted(found, sentence_filter="percentile").threshold for _ in range(2)]
    assert some[0] == some[1] == pytest.approx(whole, abs=0.1)
    assert "about 600 pairs of sentences" in capsys.readouterr().err


@given(couples, st.integers(0, 5))
@settings
def test_with_counts_the_nearest_pairs_are_compared(found, count):
    got = fitted(found, theta=9)(found, [count] * len(found))
    for (a, b), score in zip(found, got, strict=True):
        near = sorted(
            (
                (-cosine(s, t), i, scored(s, t, "max"))
                for i, (s, t) in enumerate(product(sentences(a), sentences(b)))
            ),
        )[:count]
        assert score.passed == len(near) == min(count, score.pairs)
        assert score.value == pytest.approx(max((x for *_, x in near), default=0), abs=0.01)


@given(st.integers(1, 6), st.integers(0, 10**6))
@settings
def test_document_cnt_is_the_mean_over_the_others(n, seed):
    matrix = np.random.default_rng(seed).random((n, n))
    ids = [f"d{i}" for i in range(n)]
    values = {(ids[i], ids[j]): matrix[i, j] for i in range(n) for j in range(i + 1, n)}
    for i, found in enumerate(document_cnt(values, ids).values()):
        others = [matrix[min(i, j), max(i, j)] for j in range(n) if j != i]
        assert found == pytest.approx(np.mean(others) if others else 0)


def test_strangers_share_no_pool_and_are_as_long():
    rng = np.random.default_rng(0)
    texts = {f"d{i:02d}": "word " * int(n) for i, n in enumerate(rng.integers(5, 60, 40))}
    pools = [set(rng.choice(sorted(texts), 6, replace=False)) for _ in range(6)]
    couples = [tuple(sorted(pool))[:2] for pool in pools]
    length = {i: len(text.split()) for i, text in texts.items()}
    for (a, b), (same, other) in zip(couples, strangers(couples, texts, pools), strict=True):
        apart = [i for i in texts if i != a and not any({a, i} <= pool for pool in pools)]
        assert same == a and other == min(apart, key=lambda i: (abs(length[i] - length[b]), i))  # noqa: B023
    with pytest.raises(ValueError, match="every text shares a pool with x"):
        strangers([("x", "y")], {"x": "one", "y": "two"}, [{"x", "y"}])
