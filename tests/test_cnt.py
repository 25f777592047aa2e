"""CNT against loops that follow the equations, and what must hold whatever the NLI model says."""

from __future__ import annotations

import zlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
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
@example(
    [("Aspirin lowers risk. Oxygen never.", "Aspirin raises risk. Children.")],
    {
        "sentence_filter": "percentile",
        "theta": 0.2,
        "percentile": 50,
        "direction": "max",
        "top": 1,
    },
)
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


@given(text, text, switches)
@settings
def test_max_and_mean_are_symmetric_and_forward_is_not_promised(a, b, how):
    (there,), (back,) = (fitted(x, **how)(x) for x in ([(a, b)], [(b, a)]))
    assert (there.pairs, there.passed) == (back.pairs, back.passed)
    if how["direction"] != "forward":
        assert there.value == pytest.approx(back.value, abs=1e-12)


@given(couples, st.integers(1, 3))
@settings
def test_a_stricter_filter_never_raises_the_maximum(found, top):
    loose, strict = (fitted(found, theta=theta)(found) for theta in (0.2, 0.6))
    for more, less in zip(loose, strict, strict=True):
        assert less.passed <= more.passed and less.value <= more.value


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="no filter 'specter'; there are: theta, percentile, none"):
        fitted([("a.", "b.")], sentence_filter="specter")
    with pytest.raises(TypeError, match="tops"):
        fitted([("a.", "b.")], tops=3)
    with pytest.raises(ValueError, match="no direction 'both'"):
        fitted([("a.", "b.")], direction="both")([("a.", "b.")])
    with pytest.raises(ValueError, match="no threshold yet"):
        Scorer(Fake(), ENCODER)([("a.", "b.")])
    assert fitted([])([]) == []


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


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.floats(0, 1), min_size=n, max_size=n), min_size=n, max_size=n
        )
    )
)
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


def test_length_alone_gives_no_difference_to_strangers():
    """Two pools of random sentences: longer couples score higher, strangers of theirs as well."""
    rng = np.random.default_rng(1)
    lines = [f"{a} {b} {c}.".capitalize() for a, b, c in product(WORDS, WORDS, WORDS)]
    texts = {f"d{i:02d}": " ".join(rng.choice(lines, 2 if i % 2 else 12)) for i in range(40)}
    pools = [sorted(texts)[:20], sorted(texts)[20:]]
    couples = [(a, b) for pool in pools for a, b in product(pool[:10], pool[10:])]
    score = replace(Scorer(Fake(), ENCODER), threshold=-1.0)
    value = {}
    for name, some in (("real", couples), ("null", strangers(couples, texts, pools))):
        value[name] = np.array([s.value for s in score([(texts[a], texts[b]) for a, b in some])])
    long = np.array([len(texts[a]) + len(texts[b]) > 400 for a, b in couples])
    assert value["real"][long].mean() > value["real"][~long].mean() + 0.02
    assert value["null"][long].mean() == pytest.approx(value["real"][long].mean(), abs=0.01)
    assert value["null"].mean() == pytest.approx(value["real"].mean(), abs=0.02)
