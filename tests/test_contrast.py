"""The mathematics of contrast against brute force: forms, spaces, rules, the spectrum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib.search import adaptive, contrast, scoring, whitening
from lib.search.index import DenseIndex
from lib.search.scoring import (
    hubness,
    log_sum_exp,
    search_certified,
    search_forms,
    search_scored,
    search_with_penalty,
)
from lib.search.whitening import centred, lda_query, moments, whitened


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def some(seed: int, *shape: int) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=shape))


def index_of(vectors: np.ndarray, **options) -> DenseIndex:
    half = len(vectors) // 2
    ids = [f"d{i:04d}" for i in range(len(vectors))]
    return DenseIndex([vectors[:half], vectors[half:]], ids, **options)


def ranked(scores: np.ndarray, k: int) -> list[int]:
    """The oracle: round to 1e-5, sort all, ties by id (= row here)."""
    return sorted(range(len(scores)), key=lambda i: (-round(float(scores[i]), 5), i))[:k]


@given(st.floats(-0.99, 0.999), st.floats(0, 3))
def test_rotation_is_the_angle_between_the_shifted_query_and_h_plus(c, lam):
    h = np.array([1.0, 0.0])
    query = h - lam * np.array([c, np.sqrt(1 - c * c)])
    norm = np.linalg.norm(query)
    if norm > 1e-6:
        want = np.degrees(np.arccos(np.clip(query[0] / norm, -1, 1)))
        assert contrast.rotation(c, lam) == pytest.approx(want, abs=1e-4)
    assert contrast.rotation(0.5, 1.0) == pytest.approx(60)


@given(st.floats(-0.99, 0.999))
def test_at_lambda_1_the_turn_is_half_of_what_is_left_of_180_degrees(c):
    """As notebook 08 derives it: h+, h- and the query make a triangle with two equal sides."""
    h, m = np.array([[1.0, 0.0]]), np.array([[c, np.sqrt(1 - c * c)]])
    (query,) = contrast.shifted_query(h, m, 1.0)
    turn = np.degrees(np.arccos(query[0] / np.linalg.norm(query)))
    assert turn == pytest.approx((180 - np.degrees(np.arccos(c))) / 2, abs=1e-3)
    assert contrast.rotation(c, 1.0) == pytest.approx(turn, abs=1e-3)
    assert np.cos(np.radians(turn)) == pytest.approx(np.sqrt((1 - c) / 2), abs=1e-4)


def test_a_zero_or_tiny_query_is_seen():
    h = some(0, 3, 8)
    twin = h.copy()
    twin[1] = some(9, 1, 8)[0]
    twin[2] = unit(h[2] + 5e-4 * some(10, 8))  # nearer than processors agree
    query = contrast.shifted_query(h, twin, 1.0)
    assert contrast.is_degenerate(query).tolist() == [True, False, True]


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_matched_rotation_keeps_the_angle_and_leaves_the_mimic(seed):
    h, m, other = some(seed, 5, 16), some(seed + 1, 5, 16), some(seed + 2, 5, 16)
    control = contrast.matched_rotation(h, m, other)
    assert np.allclose(contrast.cosine(h, control), contrast.cosine(h, m), atol=1e-5)
    assert np.allclose(np.linalg.norm(control, axis=1), 1, atol=1e-5)
    # It lies in the plane of h+ and the other question's mimic.
    for i in range(5):
        basis, *_ = np.linalg.lstsq(np.stack([h[i], other[i]], 1), control[i], rcond=None)
        assert np.allclose(np.stack([h[i], other[i]], 1) @ basis, control[i], atol=1e-4)


whole = arrays(np.int64, 14, elements=st.integers(-6, 6))


@given(whole, whole, st.integers(1, 6))
@settings(max_examples=200)
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


@given(st.lists(st.integers(-5, 5), max_size=45))
def test_the_hardest_tenth_has_the_highest_cosines(numbers):
    c = np.array(numbers) / 5
    size = int(np.ceil(len(c) / 10))
    want = sorted(range(len(c)), key=lambda i: (-c[i], i))[:size]
    assert sorted(want) == np.flatnonzero(contrast.hardest_tenth(c)).tolist()


# scores that are no inner product; test_query_spec has every form against its definition ----------

DOCS, H = some(0, 80, 6), some(1, 9, 6)
MIMICS = some(2, 9, 4, 6)
INDEX = index_of(DOCS).subset(np.arange(80) % 10 != 0)
"""Without every tenth passage."""


def test_the_margin_rule_is_the_minimum_of_two_forms():
    plus, minus = DOCS @ H.T, DOCS @ MIMICS[:, 0].T
    lam = np.linspace(0, 2, 9)
    for margin in (0.0, 0.3, -0.2):
        vectors = contrast.margin_forms(H, MIMICS[:, 0], lam)
        offsets = contrast.margin_offsets(lam, margin)
        found = (vectors @ DOCS.T + offsets[..., None]).min(axis=1).T
        want = plus - lam * np.maximum(0, minus - plus + margin)
        assert np.allclose(found, want, atol=1e-6)


@given(st.integers(0, 10**6), st.floats(0, 2), st.integers(1, 5))
@settings(max_examples=40)
def test_certified_candidates_give_what_scoring_every_passage_gives(seed, lam, k):
    docs, h, mimics = some(seed, 90, 6), some(seed + 1, 4, 6), some(seed + 2, 4, 3, 6)
    offsets = np.array([[0.3, 0.5, 0.1], [0.0, 0.0, 0.0], [0.1, 0.0, 0.9], [-0.2, 0.2, 0.0]])
    vectors = (h[:, None] - lam * mimics).astype(np.float32)
    index = index_of(docs)
    shallow = search_certified(index, vectors, offsets, k, candidates=k)
    for whole in (scoring.WHOLE, 10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scoring, "WHOLE", whole)
            found = search_forms(index, vectors, offsets, k)
        assert found.rows.tolist() == shallow.rows.tolist()
        for i in range(4):
            want = (docs @ vectors[i].T + offsets[i]).min(axis=1)
            assert found.rows[i].tolist() == ranked(want, k)


def test_a_penalty_is_needed_for_every_passage_that_can_be_found():
    penalty = hubness(INDEX, H, 4)
    assert np.isnan(penalty[~INDEX.kept]).all() and np.isfinite(penalty[INDEX.kept]).all()
    subset = INDEX.subset(np.arange(80) < 40)
    assert (search_with_penalty(subset, H, penalty, 1.0, 3).rows < 40).all()
    for wrong in (penalty, penalty[:-1]):
        with pytest.raises(ValueError, match="one finite number for each of 80 rows"):
            search_with_penalty(index_of(DOCS), H, wrong, 1.0, 3)


def test_what_cannot_be_scored_is_refused():
    flat = moments(index_of(DOCS * np.eye(6, dtype="f4")[0]))
    for search, says in (
        (lambda: log_sum_exp(1.0, 0.0), "tau"),
        (lambda: log_sum_exp(1.0, np.nan), "tau"),
        (lambda: search_scored(INDEX, H[:, None], log_sum_exp(1, 0.1), 3), "at least one mimic"),
        (lambda: search_scored(INDEX, MIMICS, log_sum_exp(1, 0.1), 0), "k is 0"),
        (lambda: search_scored(INDEX, H, log_sum_exp(1, 0.1), 3), "wanted .questions, vectors"),
        (lambda: hubness(INDEX, H, 10), "neighbours among 9"),
        (lambda: contrast.matched_rotation(H, MIMICS[:, 0], H), "parallel to h"),
        (lambda: contrast.margin_forms(H, H, np.float64(-0.1)), "lambda >= 0"),
        (lambda: contrast.hardest_tenth(np.array([0.1, np.nan])), "finite"),
        (lambda: whitened(OF, 0.0), "rho"),
        (lambda: lda_query(H, H, OF, np.nan, 1.0), "rho"),
        (lambda: whitened(flat, 1e-14), "larger rho"),
        (lambda: centred(OF).apply(np.stack([H[0], OF.mean])), "row 1 .* equals the corpus mean"),
        (lambda: centred(OF).apply(H * np.nan), "row 0 is not finite"),
        (lambda: adaptive.orthogonal(2.0)(np.array([-0.6])), "lambda"),
        (lambda: adaptive.drift_budget(1.0, 0.0), "rho"),
    ):
        with pytest.raises(ValueError, match=says):
            search()


# spaces ------------------------------------------------------------------------------------------


def narrow(seed: int, n: int, d: int = 6) -> np.ndarray:
    """Unit rows in a narrow cone with strong and weak directions, as encoders give."""
    rng = np.random.default_rng(seed)
    return unit(2 * np.ones(d) + rng.normal(size=(n, d)) * np.linspace(0.2, 2, d))


NARROW = narrow(0, 90)
OF = moments(index_of(NARROW))


def shrunk(rho: float, vectors: np.ndarray = NARROW) -> np.ndarray:
    """numpy's covariance, shrunk towards a multiple of the identity."""
    covariance = np.cov(vectors.astype(float).T, bias=True)
    return (1 - rho) * covariance + rho * np.trace(covariance) / 6 * np.eye(6)


def test_moments_are_numpys_over_the_passages_that_can_be_found(monkeypatch):
    monkeypatch.setattr(whitening, "BLOCK", 7)
    keep = np.arange(90) % 4 != 0
    found = moments(index_of(NARROW).subset(keep))
    kept = NARROW[keep].astype(np.float64)
    assert found.n == keep.sum() and found.mean.dtype == found.covariance.dtype == np.float64
    assert np.allclose(found.mean, kept.mean(axis=0), atol=1e-12)
    assert np.allclose(found.covariance, np.cov(kept.T, bias=True), atol=1e-12)


@pytest.mark.parametrize("rho", [1e-3, 0.5, 1.0])
def test_whitening_is_the_symmetric_root_of_the_inverse(rho):
    matrix = whitened(OF, rho).matrix
    assert np.allclose(matrix, matrix.T) and (np.linalg.eigvalsh(matrix) > 0).all()
    assert np.allclose(matrix @ matrix.T @ shrunk(rho), np.eye(6), atol=1e-8)
    moved = centred(OF).apply(NARROW)
    assert moved.dtype == np.float32
    assert np.allclose(moved, unit(NARROW - NARROW.astype(float).mean(axis=0)), atol=1e-6)


# rules for lambda --------------------------------------------------------------------------------

cosines = st.floats(-0.95, 0.999)


@given(cosines, st.floats(0.05, 3), st.floats(0.05, 0.999))
def test_the_drift_budget_is_the_largest_lambda_within_it(c, lam_max, rho):
    lam = float(adaptive.drift_budget(lam_max, rho)(np.array([c]))[0])
    allowed = np.degrees(np.arccos(rho))
    assert 0 < lam <= lam_max
    assert contrast.rotation(c, lam) <= allowed + 1e-3
    if lam < lam_max:
        assert contrast.rotation(c, lam * 1.001) > allowed - 1e-3
        assert contrast.rotation(c, lam) == pytest.approx(allowed, abs=1e-3)


@given(st.floats(-0.9, 1.0), st.floats(0, 1))
def test_the_orthogonal_rule_ranks_as_h_plus_minus_the_new_part_of_the_mimic(c, lam):
    h = np.array([1.0, 0.0])
    mimic = np.array([c, np.sqrt(1 - c * c)])
    want = h - lam * (mimic - c * h)
    here = h - float(adaptive.orthogonal(lam)(np.array([c]))[0]) * mimic
    assert np.allclose(here / np.linalg.norm(here), want / np.linalg.norm(want), atol=1e-9)


def test_attenuation_falls_from_lambda_max_to_zero_as_the_pair_merges():
    dev = np.linspace(0.2, 0.8, 61)
    for rule in (adaptive.attenuated(1.2, 2.0, dev), adaptive.attenuated_linear(1.2, 2.0, dev)):
        lam = rule(np.array([0.0, 0.3, 0.5, 0.7, 1.0]))
        assert lam[0] == pytest.approx(1.2) and lam[-1] == pytest.approx(0)
        assert (np.diff(lam) <= 0).all()
    # F(c) is the share of dev questions at or below c.
    few = adaptive.attenuated(1.0, 1.0, np.array([0.2, 0.4, 0.6, 0.8]))
    assert few(np.array([0.1, 0.4, 0.5, 0.8])) == pytest.approx([1.0, 0.5, 0.5, 0.0])
