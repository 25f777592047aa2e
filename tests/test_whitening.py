"""Centred and whitened spaces and the LDA direction against numpy's own formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.search import contrast, whitening
from lib.search.index import DenseIndex
from lib.search.whitening import Moments, centred, lda_query, moments, transformed, whitened


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def narrow(seed: int, n: int, d: int = 6) -> np.ndarray:
    """Unit rows in a narrow cone with strong and weak directions, as encoders give."""
    rng = np.random.default_rng(seed)
    return unit(2 * np.ones(d) + rng.normal(size=(n, d)) * np.linspace(0.2, 2, d)).astype("f4")


def index_of(vectors: np.ndarray) -> DenseIndex:
    ids = [f"d{i:04d}" for i in np.random.default_rng(7).permutation(len(vectors))]
    third = len(vectors) // 3
    return DenseIndex([vectors[:third], vectors[third:]], ids)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(whitening, "BLOCK", 7)


@pytest.fixture
def of() -> Moments:
    return moments(index_of(narrow(0, 90)))


def test_moments_are_numpys_over_the_passages_that_can_be_found():
    vectors = narrow(0, 90)
    keep = np.arange(90) % 4 != 0
    found = moments(index_of(vectors).subset(keep))
    kept = vectors[keep].astype(np.float64)
    assert found.n == keep.sum() and found.mean.dtype == found.covariance.dtype == np.float64
    assert np.allclose(found.mean, kept.mean(axis=0), atol=1e-12)
    assert np.allclose(found.covariance, np.cov(kept.T, bias=True), atol=1e-12)


def test_centring_takes_the_mean_away_and_renormalises(of):
    vectors = narrow(0, 90)
    moved = centred(of).apply(vectors)
    assert moved.dtype == np.float32
    assert np.allclose(moved, unit(vectors - vectors.astype(float).mean(axis=0)), atol=1e-6)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 0.5, 1.0])
def test_the_whitening_matrix_is_the_symmetric_root_of_the_inverse(of, rho):
    matrix = whitened(of, rho).matrix
    d = len(of.mean)
    shrunk = (1 - rho) * of.covariance + rho * np.trace(of.covariance) / d * np.eye(d)
    assert np.allclose(matrix, matrix.T)
    assert np.allclose(matrix @ matrix.T @ shrunk, np.eye(d), atol=1e-8)
    assert (np.linalg.eigvalsh(matrix) > 0).all()


@pytest.mark.parametrize("rho", [0.0, -0.1, 1.1, np.nan])
def test_rho_is_a_share(of, rho):
    with pytest.raises(ValueError, match="rho"):
        whitened(of, rho)
    with pytest.raises(ValueError, match="rho"):
        lda_query(narrow(1, 2), narrow(2, 2), of, rho, 1.0)


def test_a_flat_corpus_needs_a_larger_rho():
    vectors = narrow(0, 40)
    vectors[:, 0] = 0  # no scatter at all in one direction
    flat = moments(index_of(unit(vectors).astype("f4")))
    with pytest.raises(ValueError, match="larger rho"):
        whitened(flat, 1e-14)
    assert np.isfinite(whitened(flat, 0.01).matrix).all()


def test_a_vector_that_is_the_mean_has_no_direction(of):
    rows = np.stack([narrow(1, 1)[0], of.mean])
    with pytest.raises(ValueError, match="row 1 .* equals the corpus mean"):
        centred(of).apply(rows)
    rows[1] = np.nan
    with pytest.raises(ValueError, match="row 1 is not finite"):
        centred(of).apply(rows)


@pytest.mark.parametrize("devices", [(), ("cpu", "cpu")])
@pytest.mark.parametrize("rho", [0.05, 1.0])
def test_a_search_in_the_space_is_exact_and_keeps_ids_and_subset(of, rho, devices):
    vectors = narrow(0, 90)
    keep = np.arange(90) % 10 != 0
    backend = "torch" if devices else "faiss"
    index = DenseIndex([vectors], index_of(vectors).ids, backend=backend, devices=devices)
    space = whitened(of, rho)
    moved = transformed(index.subset(keep), space)
    assert (moved.backend, moved.devices) == (backend, list(devices) or ["cpu"])
    assert (moved.ids == index.ids).all() and (moved.kept == keep).all()
    h_plus, h_minus = space.apply(narrow(1, 8)), space.apply(narrow(2, 8))
    hits = moved.search(contrast.shifted_query(h_plus, h_minus, 0.7), 5)

    away = (vectors.astype(np.float64) - of.mean) @ space.matrix
    cosines = [unit(away) @ h.T.astype(np.float64) for h in (h_plus, h_minus)]
    scores = cosines[0] - 0.7 * cosines[1]
    for i in range(8):
        best = sorted(np.flatnonzero(keep), key=lambda row, i=i: -scores[row, i])[:5]
        assert hits.rows[i].tolist() == best
        assert np.allclose(hits.scores[i], scores[best, i], atol=2e-5)


@given(st.integers(0, 10**6), st.floats(0.01, 1), st.floats(0, 3))
@settings(max_examples=30, deadline=None)
def test_the_lda_query_adds_fishers_direction(seed, rho, beta):
    of = moments(index_of(narrow(seed, 60)))
    h_plus, minus = narrow(seed + 1, 4), narrow(seed + 2, 4)
    found = lda_query(h_plus, minus, of, rho, beta)
    assert found.dtype == np.float32
    d = len(of.mean)
    shrunk = (1 - rho) * of.covariance + rho * np.trace(of.covariance) / d * np.eye(d)
    for i in range(4):
        direction = np.linalg.inv(shrunk) @ (h_plus[i].astype(float) - minus[i])
        assert np.allclose(found[i], h_plus[i] + beta * unit(direction), atol=1e-5)


def test_beta_may_differ_by_question_and_zero_leaves_the_target_alone(of):
    h_plus, minus = narrow(1, 3), narrow(2, 3)
    found = lda_query(h_plus, minus, of, 0.1, np.array([0.0, 0.5, 2.0]))
    assert (found[0] == h_plus[0]).all()
    for i, beta in enumerate([0.0, 0.5, 2.0]):
        alone = lda_query(h_plus[i : i + 1], minus[i : i + 1], of, 0.1, beta)
        assert np.allclose(found[i], alone[0], atol=1e-6)


def test_a_target_that_is_its_mimics_mean_gives_a_degenerate_query(of):
    h_plus, minus = narrow(1, 3), narrow(2, 3)
    minus[1] = h_plus[1]
    found = lda_query(h_plus, minus, of, 0.1, 1.0)
    assert contrast.is_degenerate(found).tolist() == [False, True, False]
    assert (lda_query(h_plus, minus, of, 0.1, 0.0) == h_plus).all()
