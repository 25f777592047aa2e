"""The contrast mathematics against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib.search import contrast
from lib.search import forms as forms_module
from lib.search.forms import LinearForms, rerank_pool, search_certified, search_forms
from lib.search.index import DenseIndex


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def some(seed: int, *shape: int) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=shape))


def index_of(vectors: np.ndarray) -> DenseIndex:
    half = len(vectors) // 2
    return DenseIndex([vectors[:half], vectors[half:]], [f"d{i:04d}" for i in range(len(vectors))])


def ranked(scores: np.ndarray, k: int) -> list[int]:
    """The oracle: round to 1e-5, sort all, ties by id (= row here)."""
    return sorted(range(len(scores)), key=lambda i: (-round(float(scores[i]), 5), i))[:k]


@given(st.integers(0, 10**6), st.floats(0, 2), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_one_search_with_the_shifted_query_is_the_contrastive_score(seed, lam, k):
    docs, h_plus, h_minus = some(seed, 60, 8), some(seed + 1, 1, 8), some(seed + 2, 1, 8)
    two_scores = docs @ h_plus[0] - np.float32(lam) * (docs @ h_minus[0])
    hits = index_of(docs).search(contrast.shifted_query(h_plus, h_minus, lam), k)
    assert np.allclose(hits.scores[0], np.sort(two_scores)[::-1][:k], atol=2e-5)
    assert set(hits.rows[0]) <= {i for i in range(60) if two_scores[i] >= hits.scores[0, -1] - 3e-5}


def test_lambda_may_differ_by_question():
    h, m = some(0, 4, 5), some(1, 4, 5)
    lams = np.array([0.0, 0.3, 1.0, 2.0])
    query = contrast.shifted_query(h, m, lams)
    assert np.allclose(query, [h[i] - lams[i] * m[i] for i in range(4)], atol=1e-6)


@given(st.floats(-0.99, 0.999), st.floats(0, 3))
def test_rotation_is_the_angle_between_the_shifted_query_and_h_plus(c, lam):
    h = np.array([1.0, 0.0])
    query = h - lam * np.array([c, np.sqrt(1 - c * c)])
    norm = np.linalg.norm(query)
    if norm > 1e-6:
        want = np.degrees(np.arccos(np.clip(query[0] / norm, -1, 1)))
        assert contrast.rotation(c, lam) == pytest.approx(want, abs=1e-4)


def test_rotation_at_the_papers_lambda():
    assert contrast.rotation(0.5, 1.0) == pytest.approx(60)
    assert contrast.rotation(0.9, 1.2) > 90


def test_a_zero_or_tiny_query_is_seen():
    h = some(0, 3, 8)
    twin = h.copy()
    twin[1] = some(9, 1, 8)[0]
    query = contrast.shifted_query(h, twin, 1.0)
    assert contrast.is_degenerate(query).tolist() == [True, False, True]


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_matched_rotation_keeps_the_angle_and_leaves_the_mimic(seed):
    h, m, other = some(seed, 5, 16), some(seed + 1, 5, 16), some(seed + 2, 5, 16)
    control = contrast.matched_rotation(h, m, other)
    assert np.allclose(contrast.cosine(h, control), contrast.cosine(h, m), atol=1e-5)
    assert np.allclose(np.linalg.norm(control, axis=1), 1, atol=1e-5)
    # It lies in the plane of h+ and the other question's mimic.
    for i in range(5):
        basis, *_ = np.linalg.lstsq(np.stack([h[i], other[i]], 1), control[i], rcond=None)
        assert np.allclose(np.stack([h[i], other[i]], 1) @ basis, control[i], atol=1e-4)
    with pytest.raises(ValueError, match="parallel to h"):
        contrast.matched_rotation(h, m, h)


whole = arrays(np.int64, 14, elements=st.integers(-6, 6))


@given(whole, whole, st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_the_spectrum_lists_every_top_k_set_exactly(s_plus, s_minus, k):
    segments = contrast.spectrum(s_plus, s_minus, k, lam_max=3.0)
    assert segments[0].start == 0 and segments[-1].end == 3.0
    for left, right in zip(segments, segments[1:], strict=False):
        assert left.end == right.start and left.rows != right.rows
    for segment in segments:
        middle = (segment.start + segment.end) / 2
        scores = s_plus - middle * s_minus
        inside = set(segment.rows)
        worst = min(scores[i] for i in inside)
        assert len(inside) == k
        assert all(scores[j] <= worst + 1e-9 for j in range(14) if j not in inside)


def test_the_spectrum_misses_no_change_between_grid_points():
    rng = np.random.default_rng(5)
    s_plus, s_minus = rng.normal(size=300), rng.normal(size=300)
    segments = contrast.spectrum(s_plus, s_minus, 5, lam_max=2.0)
    for lam in np.linspace(0.0007, 1.9993, 1500):
        want = set(np.argsort(-(s_plus - lam * s_minus))[:5].tolist())
        here = next(s for s in segments if s.start <= lam <= s.end)
        assert want == set(here.rows)


def searched(docs: np.ndarray, vectors: np.ndarray, k: int, monkeypatch):
    """The search in blocks of 7 passages, with every tenth passage out of the index."""
    monkeypatch.setattr(forms_module, "BLOCK", 7)
    index = index_of(docs).subset(np.arange(len(docs)) % 10 != 0)
    forms = [LinearForms(v, np.zeros(len(v))) for v in vectors]
    return search_forms(index, forms, k), np.flatnonzero(index.kept)


@pytest.mark.parametrize("k", [1, 5, 100])
def test_the_maximum_over_mimics_is_searched_exactly(k, monkeypatch):
    docs, h, mimics = some(0, 80, 6), some(1, 9, 6), some(2, 9, 4, 6)
    lams = np.linspace(0, 2, 9)
    vectors = contrast.max_mimic_forms(h, mimics, lams)
    hits, kept = searched(docs, vectors, k, monkeypatch)
    for i, lam in enumerate(lams):
        want = docs @ h[i] - lam * (docs @ mimics[i].T).max(axis=1)
        assert hits.rows[i].tolist() == [int(kept[j]) for j in ranked(want[kept], k)]
        assert np.allclose(hits.scores[i], want[hits.rows[i]], atol=3e-5)


@pytest.mark.parametrize("lam", [0.0, 0.4, 1.3])
def test_the_margin_rule_is_searched_exactly(lam, monkeypatch):
    docs, h, m = some(0, 80, 6), some(1, 9, 6), some(2, 9, 6)
    hits, kept = searched(docs, contrast.margin_forms(h, m, lam), 5, monkeypatch)
    for i in range(9):
        plus, minus = docs @ h[i], docs @ m[i]
        want = plus - lam * np.maximum(0, minus - plus)
        assert hits.rows[i].tolist() == [int(kept[j]) for j in ranked(want[kept], 5)]


def test_forms_may_have_offsets_and_differ_in_number(monkeypatch):
    docs, h, m = some(0, 80, 6), some(1, 2, 6), some(2, 3, 6)
    monkeypatch.setattr(forms_module, "BLOCK", 7)
    offsets = [np.array([0.1, -0.2]), np.array([0.0, 0.3, -0.1])]
    forms = [LinearForms(h, offsets[0]), LinearForms(m, offsets[1])]
    hits = search_forms(index_of(docs), forms, 4)
    for i, (vectors, b) in enumerate(zip((h, m), offsets, strict=True)):
        assert hits.rows[i].tolist() == ranked((docs @ vectors.T + b).min(axis=1), 4)


@given(st.integers(0, 10**6), st.floats(0, 2), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_certified_candidates_give_what_scoring_every_passage_gives(seed, lam, k):
    docs, h, mimics = some(seed, 90, 6), some(seed + 1, 4, 6), some(seed + 2, 4, 3, 6)
    forms = [
        LinearForms(v, np.array([0.0, 0.05, -0.1]))
        for v in contrast.max_mimic_forms(h, mimics, np.full(4, lam))
    ]
    index, shallow = index_of(docs), search_certified(index_of(docs), forms, k, candidates=k)
    for whole in (contrast.WHOLE, 10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(forms_module, "WHOLE", whole)
            found = search_forms(index, forms, k)
        assert found.rows.tolist() == shallow.rows.tolist()
        assert np.allclose(found.scores, shallow.scores)


def test_a_pool_is_re_ranked_and_nothing_outside_it_returned():
    docs, h, m = some(0, 50, 6), some(1, 2, 6), some(2, 2, 6)
    query = contrast.shifted_query(h, m, 1.0)
    hits = rerank_pool(index_of(docs), h, query, n=10, k=4)
    for i in range(2):
        pool = ranked(docs @ h[i], 10)
        want = sorted(pool, key=lambda r: (-round(float(docs[r] @ query[i]), 5), r))[:4]
        assert hits.rows[i].tolist() == want
    everything = rerank_pool(index_of(docs), h, query, n=50, k=4)
    assert (everything.rows == index_of(docs).search(query, 4).rows).all()
