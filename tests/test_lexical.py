"""Lexical contrast: weighted BM25 against the plain one, and word weights against their formula."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.search.bm25 import BM25Index, contrast_terms, words

WORDS = ["fever", "pain", "kidney", "heart", "dose", "b"]
some_words = st.lists(st.sampled_from([*WORDS, "absent"]), max_size=8)


def some_index(seed: int = 3, n: int = 40) -> BM25Index:
    """Passages of four of six words, with many ties and shuffled ids."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(row) for row in rng.choice(WORDS, size=(n, 4))]
    return BM25Index.build(texts, [f"p{i:03d}" for i in rng.permutation(n)])


def same(one, other) -> bool:
    return one.ids.tolist() == other.ids.tolist() and one.scores.tolist() == other.scores.tolist()


@given(some_words, st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_word_counts_as_weights_are_a_plain_search(query, k):
    index = some_index().subset(np.arange(40) % 5 != 0)
    weighted = index.search_weighted([Counter(query)], k)
    assert same(weighted, index.search([" ".join(query)], k))


@given(
    st.dictionaries(st.sampled_from([*WORDS, "absent", ""]), st.floats(-2, 3), max_size=6),
    st.integers(1, 50),
)
@settings(max_examples=60, deadline=None)
def test_a_weighted_search_is_the_weighted_sum_of_single_words(weights, k):
    whole = some_index()
    keep = np.arange(40) % 5 != 0
    scores = np.zeros(40)
    for word, weight in weights.items():
        single = whole.search([word], 40)
        scores[single.rows[0]] += weight * single.scores[0]
    hits = whole.subset(keep).search_weighted([weights], k)
    assert np.allclose(hits.scores[0], scores[hits.rows[0]], atol=1e-4)
    best = np.sort(scores[keep & (scores > 1e-4)])[::-1][:k]
    assert len(hits.ids[0]) >= len(best)
    assert np.allclose(hits.scores[0][: len(best)], best, atol=1e-4)
    assert keep[hits.rows[0]].all() and (hits.scores[0] > 0).all()
    pairs = list(zip(-hits.scores[0], hits.ids[0], strict=True))
    assert pairs == sorted(pairs)


def test_the_order_of_words_changes_no_score():
    """bm25s adds in float32 in the order of the words, which moved scores by more than 1e-5."""
    rng = np.random.default_rng(0)
    vocabulary = [f"w{i}" for i in range(300)]
    texts = [" ".join(rng.choice(vocabulary, 120)) for _ in range(50)]
    index = BM25Index.build(texts, [f"p{i:02d}" for i in range(50)])
    query = rng.choice(vocabulary, 400).tolist()
    assert same(index.search([" ".join(query)], 50), index.search([" ".join(sorted(query))], 50))


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_a_weight_is_finite(weight):
    with pytest.raises(ValueError, match="finite"):
        some_index().search_weighted([{"fever": weight}], 3)


def test_words_are_those_the_index_was_built_from():
    assert words("The fever of Hepatitis B; fever!") == ["fever", "hepatitis", "b", "fever"]
    assert words("") == words("the") == []


@given(some_words, some_words)
def test_without_lambda_the_terms_are_the_targets_word_counts(target, mimic):
    terms = contrast_terms(" ".join(target), " ".join(mimic), 0.0)
    assert terms == Counter(target)


@given(some_words, some_words, st.floats(-2, 3), st.floats(0.01, 2))
def test_the_weights_are_the_published_log_odds(target, mimic, lam, a):
    """Monroe et al.'s formula, written as they do: alpha_w = a, alpha_0 = a V."""
    terms = contrast_terms(" ".join(target), " ".join(mimic), lam, smoothing=a)
    size = len({*target, *mimic})
    if size < 2 or not mimic:
        assert terms == Counter(target)
        return
    for word in set(target):
        logs = []
        for text in (target, mimic):
            y, n = text.count(word), len(text)
            logs.append(math.log((y + a) / (n + a * size - y - a)))
        want = target.count(word) * max(0.0, 1 + lam * (logs[0] - logs[1]))
        assert terms.get(word, 0.0) == pytest.approx(want, abs=1e-9)
    assert set(terms) <= set(target) and all(weight > 0 for weight in terms.values())


def test_a_contrasted_search_finds_the_target_before_the_mimic():
    texts = ["fever cough sputum", "fever rash joints", "fever"]
    index = BM25Index.build(texts, ["mimic", "target", "both"])
    terms = contrast_terms("fever cough rash", "fever cough cough sputum", 2.0)
    assert index.search_weighted([terms], 1).ids.tolist() == [["target"]]


@pytest.mark.parametrize("smoothing", [0.0, -1.0, np.inf, np.nan])
def test_smoothing_is_positive(smoothing):
    with pytest.raises(ValueError, match="smoothing"):
        contrast_terms("fever", "pain", smoothing=smoothing)
