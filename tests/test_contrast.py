"""The contrast mathematics against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib.search import contrast, scoring
from lib.search.index import DenseIndex
from lib.search.scoring import (
    LinearForms,
    hubness,
    log_sum_exp,
    rerank_pool,
    search_certified,
    search_forms,
    search_scored,
    search_with_penalty,
)


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
    twin[2] = unit(h[2] + 5e-4 * some(10, 8))  # nearer than processors agree
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
    monkeypatch.setattr(scoring, "BLOCK", 7)
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


@pytest.mark.parametrize("lam", [0.0, 0.4, 1.3, np.linspace(0, 2, 9)])
@pytest.mark.parametrize("margin", [0.0, 0.3, -0.2])
def test_the_margin_rule_is_searched_exactly(lam, margin, monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK", 7)
    docs, h, m = some(0, 80, 6), some(1, 9, 6), some(2, 9, 6)
    index = index_of(docs).subset(np.arange(80) % 10 != 0)
    kept = np.flatnonzero(index.kept)
    parts = zip(*contrast.margin_forms(h, m, lam, margin), strict=True)
    hits = search_forms(index, [LinearForms(v, b) for v, b in parts], 5)
    for i, own in enumerate(np.broadcast_to(lam, 9)):
        plus, minus = docs @ h[i], docs @ m[i]
        want = plus - own * np.maximum(0, minus - plus + margin)
        assert hits.rows[i].tolist() == [int(kept[j]) for j in ranked(want[kept], 5)]
        assert np.allclose(hits.scores[i], want[hits.rows[i]], atol=3e-5)


def test_forms_may_have_offsets_and_differ_in_number(monkeypatch):
    docs, h, m = some(0, 80, 6), some(1, 2, 6), some(2, 3, 6)
    monkeypatch.setattr(scoring, "BLOCK", 7)
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
    for whole in (scoring.WHOLE, 10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scoring, "WHOLE", whole)
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
    # What may not be found for a question takes no place in its pool.
    excluded = [frozenset(f"d{row:04d}" for row in ranked(docs @ h[0], 3)), frozenset()]
    hits = rerank_pool(index_of(docs), h, query, n=10, k=10, excluded=excluded)
    assert sorted(hits.rows[0].tolist()) == sorted(ranked(docs @ h[0], 13)[3:])
    assert sorted(hits.rows[1].tolist()) == sorted(ranked(docs @ h[1], 10))
    everything = rerank_pool(index_of(docs), h, query, n=50, k=4)
    assert (everything.rows == index_of(docs).search(query, 4).rows).all()


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of at most 7 passages, and fewer where questions have many vectors."""
    monkeypatch.setattr(scoring, "BLOCK", 7)
    monkeypatch.setattr(scoring, "PRODUCTS", 100)


def some_kept(docs: np.ndarray) -> tuple[DenseIndex, np.ndarray]:
    """An index without every tenth passage, and the rows that can be found."""
    index = index_of(docs).subset(np.arange(len(docs)) % 10 != 0)
    return index, np.flatnonzero(index.kept)


def soft_score(plus: np.ndarray, minus: np.ndarray, lam: float, tau: float) -> np.ndarray:
    """The definition: plus (passages,), minus (passages, mimics)."""
    return plus - lam * tau * np.log(np.exp(minus / tau).mean(axis=1))


@pytest.mark.parametrize("lam", [0.0, 0.7, -0.4, np.linspace(0, 2, 9)])
@pytest.mark.parametrize(("mimics", "tau"), [(1, 0.1), (4, 0.02), (30, 0.5)])
def test_log_sum_exp_is_searched_exactly(mimics, tau, lam, small_blocks):
    docs, h, some_mimics = some(0, 80, 6), some(1, 9, 6), some(2, 9, mimics, 6)
    index, kept = some_kept(docs)
    vectors = np.concatenate([h[:, None], some_mimics], axis=1)
    hits = search_scored(index, vectors, log_sum_exp(lam, tau), 5)
    for i, own in enumerate(np.broadcast_to(lam, 9)):
        want = soft_score(docs @ h[i], docs @ some_mimics[i].T, own, tau)
        assert hits.rows[i].tolist() == [int(kept[j]) for j in ranked(want[kept], 5)]
        assert np.allclose(hits.scores[i], want[hits.rows[i]], atol=3e-5)


@pytest.mark.parametrize("tau", [1e-9, 1e9])
def test_log_sum_exp_goes_from_the_maximum_to_the_mean_of_mimics(tau):
    docs, h, mimics = some(0, 80, 6), some(1, 9, 6), some(2, 9, 4, 6)
    index, vectors = index_of(docs), np.concatenate([h[:, None], mimics], axis=1)
    hits = search_scored(index, vectors, log_sum_exp(0.8, tau), 80)
    if tau < 1:
        forms = contrast.max_mimic_forms(h, mimics, 0.8)
        want = search_forms(index, [LinearForms(v, np.zeros(4)) for v in forms], 80)
    else:
        want = index.search(contrast.shifted_query(h, mimics.mean(axis=1), 0.8), 80)
    # Rounding to 1e-5 may fall on either side, so scores agree to one step of it.
    for i in range(9):
        order, wanted = np.argsort(hits.rows[i]), np.argsort(want.rows[i])
        assert np.allclose(hits.scores[i][order], want.scores[i][wanted], atol=1.2e-5)


@pytest.mark.parametrize("neighbours", [1, 4, 12])
def test_hubness_is_the_mean_of_the_nearest_questions(neighbours, small_blocks):
    docs, h = some(0, 80, 6), some(1, 12, 6)
    index, kept = some_kept(docs)
    found = hubness(index, h, neighbours)
    for row in kept:
        nearest = sorted(docs[row].astype(float) @ h.T.astype(float))[-neighbours:]
        assert found[row] == pytest.approx(np.mean(nearest), abs=1e-12)
    assert np.isnan(found[~index.kept]).all() and found.shape == (80,)


@pytest.mark.parametrize("lam", [0.0, 0.5, -0.5, np.linspace(0, 2, 12)])
def test_a_penalty_is_searched_exactly(lam, small_blocks):
    docs, h = some(0, 80, 6), some(1, 12, 6)
    index, kept = some_kept(docs)
    penalty = hubness(index, h, 4)
    hits = search_with_penalty(index, h, penalty, lam, 5)
    for i, own in enumerate(np.broadcast_to(lam, 12)):
        want = docs @ h[i] - own * penalty
        assert hits.rows[i].tolist() == [int(kept[j]) for j in ranked(want[kept], 5)]
        assert np.allclose(hits.scores[i], want[hits.rows[i]], atol=3e-5)


def test_csls_ranks_as_its_authors_formula():
    docs, h = some(0, 60, 6), some(1, 12, 6)
    index = index_of(docs)
    hits = search_with_penalty(index, h, hubness(index, h, 3), 0.5, 60)
    cosines = docs.astype(float) @ h.T.astype(float)
    of_passages = np.sort(cosines, axis=1)[:, -3:].mean(axis=1)
    of_questions = np.sort(cosines, axis=0)[-3:].mean(axis=0)
    csls = 2 * cosines - of_passages[:, None] - of_questions
    for i in range(12):
        # Half of it and half a constant: the order is the same but for ties in rounding.
        assert (np.diff(csls[hits.rows[i], i]) <= 2.1e-5).all()


def test_a_penalty_is_needed_for_every_passage_that_can_be_found():
    docs, h = some(0, 80, 6), some(1, 12, 6)
    index, _ = some_kept(docs)
    penalty = hubness(index, h, 4)
    subset = index.subset(np.arange(80) < 40)
    assert (search_with_penalty(subset, h, penalty, 1.0, 3).rows < 40).all()
    for wrong in (penalty, penalty[:-1]):
        with pytest.raises(ValueError, match="one finite number for each of 80 rows"):
            search_with_penalty(index_of(docs), h, wrong, 1.0, 3)


def test_ties_in_any_score_break_by_passage_id(small_blocks):
    docs = np.repeat(some(0, 4, 6), 5, axis=0)
    ids = [f"p{i:02d}" for i in np.random.default_rng(1).permutation(20)]
    index, h = DenseIndex([docs], ids), docs[:1]
    constant = np.full(20, 0.1)
    found = [
        search_scored(index, np.stack([h, h], axis=1), log_sum_exp(0.5, 0.1), 5),
        search_with_penalty(index, h, constant, 1.0, 5),
    ]
    for hits in found:
        assert hits.ids[0].tolist() == sorted(ids[:5])


def test_a_search_refuses_what_it_cannot_score():
    index = index_of(some(0, 9, 4))
    for tau in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="tau"):
            log_sum_exp(1.0, tau)
    with pytest.raises(ValueError, match="at least one mimic"):
        search_scored(index, some(1, 2, 1, 4), log_sum_exp(1.0, 0.1), 3)
    for neighbours in (0, 3):
        with pytest.raises(ValueError, match="neighbours among 2"):
            hubness(index, some(1, 2, 4), neighbours)
    with pytest.raises(ValueError, match="lambda >= 0"):
        contrast.margin_forms(some(0, 2, 4), some(1, 2, 4), np.array([0.5, -0.1]))
    with pytest.raises(ValueError, match="finite"):
        contrast.hardest_tenth(np.array([0.1, np.nan]))
    with pytest.raises(ValueError, match="k is 0"):
        search_scored(index, some(1, 2, 3, 4), log_sum_exp(1.0, 0.1), 0)
    with pytest.raises(ValueError, match=r"wanted \(questions, vectors each, 4\)"):
        search_scored(index, some(1, 2, 4), log_sum_exp(1.0, 0.1), 3)


@given(st.lists(st.integers(-5, 5), max_size=45))
def test_the_hardest_tenth_has_the_highest_cosines(numbers):
    c = np.array(numbers) / 5
    chosen = contrast.hardest_tenth(c)
    size = int(np.ceil(len(c) / 10))
    want = sorted(range(len(c)), key=lambda i: (-c[i], i))[:size]
    assert sorted(want) == np.flatnonzero(chosen).tolist()
