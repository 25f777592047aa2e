"""Indexes: one contract over faiss, torch and BM25, and each against brute force."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.embed import HashEncoder
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex, PassageIndex, top_rows

DENSE = {
    "faiss": {"backend": "faiss"},
    "torch": {"backend": "torch"},
    "torch on two devices": {"backend": "torch", "devices": ["cpu", "cpu"]},
}
WORDS = ["fever", "pain", "kidney", "heart", "dose", "b"]


def brute_force(shards, ids, queries, k):
    """Ids and scores by the definition: all scores in float64, rounded to 1e-5, ties by id."""
    vectors = np.concatenate(shards).astype(np.float64)
    scores = np.round(np.asarray(queries, np.float64) @ vectors.T, 5)
    ranked = [sorted(zip(-row, ids, strict=True))[:k] for row in scores]
    return [[pid for _, pid in row] for row in ranked], [[-s for s, _ in row] for row in ranked]


def shuffled_ids(n, seed=0):
    return [f"p{i:05d}" for i in np.random.default_rng(seed).permutation(n)]


def normal(shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(params=[*DENSE, "bm25"])
def case(request):
    """An index of 40 passages with many ties, and the queries it takes."""
    words = np.random.default_rng(3).choice(WORDS, size=(40, 3))
    texts, ids = [" ".join(row) for row in words], shuffled_ids(40)
    if request.param == "bm25":
        return BM25Index.build(texts, ids), ["fever", "kidney pain pain", "heart b"], ids
    rows = HashEncoder(16).encode(texts)
    index = DenseIndex([rows[:7], rows[7:8], rows[8:]], ids, **DENSE[request.param])
    return index, HashEncoder(16).encode(["fever", "kidney pain pain", "heart b"]), ids


class TestEveryIndex:
    def test_hits_are_documented_arrays_best_first_with_ties_by_id(self, case):
        index, queries, ids = case
        hits = index.search(queries, 10)
        assert hits.scores.shape == hits.rows.shape == hits.ids.shape == (3, 10) and len(hits) == 3
        assert (hits.scores.dtype, hits.rows.dtype, hits.ids.dtype.kind) == (
            "float32",
            "int64",
            "U",
        )
        tied = 0
        for i in range(3):
            pairs = list(zip(-hits.scores[i], hits.ids[i], strict=True))
            assert pairs == sorted(pairs) and len(set(hits.ids[i])) == 10
            assert hits.ids[i].tolist() == [ids[row] for row in hits.rows[i]]
            tied += 10 - len(set(hits.scores[i].tolist()))
        assert tied > 3, "the case must have ties"

    def test_a_batch_is_its_queries_one_by_one(self, case):
        index, queries, _ = case
        together = index.search(queries, 5)
        for i in range(3):
            alone = index.search(queries[i : i + 1], 5)
            assert alone.ids.tolist() == [together.ids[i].tolist()]
            assert alone.scores.tolist() == together[i].scores.tolist()

    def test_a_shorter_list_is_the_start_of_a_longer_one(self, case):
        index, queries, _ = case
        assert np.array_equal(index.search(queries, 3).ids, index.search(queries, 9).ids[:, :3])

    def test_k_beyond_the_index_gives_what_there_is(self, case):
        index, queries, ids = case
        hits = index.search(queries, 1000)
        found = [set(hits[i].ids[0]) for i in range(3)]
        assert len(index) == 40 and hits.ids.shape[1] <= 40
        assert found[0] <= set(ids) and (isinstance(index, BM25Index) or found[0] == set(ids))

    def test_no_k_is_refused(self, case):
        index, queries, _ = case
        with pytest.raises(ValueError, match="k"):
            index.search(queries, 0)

    def test_a_subset_is_the_search_without_the_others(self, case):
        index, queries, ids = case
        everything = index.search(queries, 40)
        best = everything.ids[:, 0].tolist()
        keep = ~np.isin(ids, best)
        view = index.subset(keep)
        left = view.search(queries, 5)
        assert len(view) == keep.sum() and len(index) == 40
        for i in range(3):
            wanted = [pid for pid in everything[i].ids[0] if pid not in best][:5]
            assert left[i].ids[0].tolist() == wanted
            assert left[i].ids[0].tolist() == [ids[row] for row in left[i].rows[0]]
        assert view.subset(np.isin(ids, wanted)).search(queries, 9).ids.shape[1] <= 5

    def test_a_mask_of_another_shape_or_type_is_refused(self, case):
        index, _, ids = case
        for mask in (np.ones(3, dtype=bool), np.zeros(40, dtype=bool), np.ones(40)):
            with pytest.raises(ValueError, match="40 booleans"):
                index.subset(mask)


def test_repeated_ids_are_refused():
    for make in (
        lambda ids: DenseIndex([np.eye(3, dtype=np.float32)], ids),
        lambda ids: BM25Index.build(["fever", "pain", "dose"], ids),
    ):
        with pytest.raises(ValueError, match="'p1' occurs twice"):
            make(["p1", "p2", "p1"])


@st.composite
def dense_cases(draw):
    """Shards of random cuts, in float32 or float16, with duplicates, and queries."""
    n, dim = draw(st.integers(1, 60)), draw(st.sampled_from([2, 8, 33]))
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    if draw(st.booleans()):  # a coarse grid: exact ties between different vectors
        vectors, queries = rng.integers(-2, 3, (n, dim)) / 4, rng.integers(-2, 3, (4, dim)) / 4
        queries[:, 0] = 1
    else:
        vectors, queries = rng.normal(size=(n, dim)), rng.normal(size=(4, dim))
        vectors += 0  # some rows are copies of others, or nearly
        copies = rng.integers(0, n, n // 2)
        vectors[rng.integers(0, n, n // 2)] = vectors[copies] + rng.choice([0, 1e-7], (n // 2, 1))
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=3)))
    dtype = draw(st.sampled_from([np.float32, np.float16]))
    shards = np.split(vectors.astype(dtype), cuts)
    return shards, shuffled_ids(n, seed), queries.astype(np.float32), draw(st.integers(1, n))


@pytest.mark.parametrize("backend", DENSE)
@given(case=dense_cases())
@settings(max_examples=40, deadline=None)
def test_dense_search_equals_brute_force(backend, case):
    shards, ids, queries, k = case
    hits = DenseIndex(shards, ids, **DENSE[backend]).search(queries, k, batch=3)
    wanted_ids, wanted_scores = brute_force(shards, ids, queries, k)
    assert hits.ids.tolist() == wanted_ids
    assert np.allclose(hits.scores, wanted_scores, atol=1e-6)


@pytest.mark.parametrize("backend", DENSE)
def test_ties_beyond_any_candidate_list_are_still_exact(backend):
    rows = normal((1200, 16), 1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    same = np.random.default_rng(2).permutation(1200)[:700]
    rows[same] = rows[same[0]]
    rows[same[::3]] += 1e-7  # not even equal bits, only equal to 1e-5
    shards, ids = np.split(rows, [100, 101, 800]), shuffled_ids(1200)
    query = rows[same[:1]] + 0.1 * normal((1, 16), 4)
    hits = DenseIndex(shards, ids, **DENSE[backend]).search(query, 5)
    assert hits.ids.tolist() == brute_force(shards, ids, query, 5)[0]


@pytest.mark.parametrize("backend", DENSE)
def test_a_query_without_direction_is_named(backend):
    index = DenseIndex([np.eye(3, dtype=np.float32)], ["a", "b", "c"], **DENSE[backend])
    for bad in (0.0, 1e-9, np.nan, np.inf):
        queries = np.eye(3)
        queries[1] = bad
        with pytest.raises(ValueError, match="query row 1 "):
            index.search(queries, 2)
    with pytest.raises(ValueError, match=r"\(n, 3\)"):
        index.search(np.eye(2), 1)
    assert index.search(np.zeros((0, 3)), 2).ids.shape == (0, 2)


def test_vectors_and_ids_must_fit():
    with pytest.raises(ValueError, match="3 vectors and 2 passage ids"):
        DenseIndex([np.eye(3, dtype=np.float32)], ["a", "b"])
    with pytest.raises(ValueError, match="use faiss or torch"):
        DenseIndex([np.eye(1, dtype=np.float32)], ["a"], backend="annoy")
    with pytest.raises(ValueError, match="backend='torch'"):
        DenseIndex([np.eye(1, dtype=np.float32)], ["a"], devices=["cuda"])


def test_score_takes_rows_or_ids_in_any_order():
    shards, ids, queries = (
        np.split(normal((30, 8), 5), [4, 4, 20]),
        shuffled_ids(30),
        normal((3, 8), 6),
    )
    index = DenseIndex(shards, ids)
    rows = np.array([29, 0, 4, 4, 19, 20])
    wanted = queries.astype(np.float64) @ np.concatenate(shards)[rows].T.astype(np.float64)
    assert np.allclose(index.score(queries, rows), wanted, atol=1e-12)
    assert np.allclose(index.score(queries, [ids[row] for row in rows]), wanted, atol=1e-12)
    with pytest.raises(KeyError, match="p99"):
        index.score(queries, ["p99"])


@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.sampled_from([1.0, 1e-4, 1e15]),
    st.integers(0, 2**32 - 1),
)
def test_top_rows_is_a_sort_by_rounded_score_then_id(m, k, scale, seed):
    """Of few different values, so that ties abound, and of any size, beyond 64 bits too."""
    random = np.random.default_rng(seed)
    index = PassageIndex([f"p{i:03d}" for i in random.permutation(60)])
    scores = random.integers(-3, 4, size=(3, m)) * scale + random.choice([0.0, 3e-6], size=(3, m))
    rows = random.permutation(60)[:m]
    hits = top_rows(scores, rows, index, k)
    for i in range(3):
        by_id = sorted(range(m), key=lambda j: (-np.round(scores[i, j], 5), index.ids[rows[j]]))
        assert hits.rows[i].tolist() == rows[by_id[:k]].tolist()
        assert hits.scores[i] == pytest.approx(np.round(scores[i, by_id[:k]], 5), rel=1e-6)


def test_top_rows_rounds_before_it_breaks_ties():
    three = PassageIndex(["b", "a", "c"])
    scores = np.array([[0.500001, 0.5, 0.7], [-1e-9, 0.0, -0.1]])
    hits = top_rows(scores, np.array([0, 1, 2]), three, 2)
    assert hits.ids.tolist() == [["c", "a"], ["a", "b"]]
    assert hits.scores.tolist() == [[np.float32(0.7), 0.5], [0.0, 0.0]]
    own = top_rows(scores, np.array([[2, 1, 0], [0, 2, 1]]), three, 1)
    assert own.rows.tolist() == [[0], [0]]


def bm25_by_hand(texts, query, k1=0.9, b=0.4):
    """Lucene's formula: sum of idf * tf / (tf + k1 (1 - b + b |d| / avgdl)), per query word."""
    bags = [Counter(text.split()) for text in texts]
    mean = sum(sum(bag.values()) for bag in bags) / len(bags)
    scores = np.zeros(len(bags))
    for word in query.split():
        df = sum(word in bag for bag in bags)
        idf = math.log(1 + (len(bags) - df + 0.5) / (df + 0.5))
        for i, bag in enumerate(bags):
            norm = k1 * (1 - b + b * sum(bag.values()) / mean)
            scores[i] += idf * bag[word] / (bag[word] + norm)
    return scores


@given(
    texts=st.lists(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), min_size=1, max_size=15
    ),
    query=st.lists(st.sampled_from([*WORDS, "absent"]), max_size=5),
    k=st.integers(1, 6),
)
@settings(max_examples=60, deadline=None)
def test_bm25_is_lucenes_formula_without_what_does_not_match(texts, query, k):
    texts, query = [" ".join(words) for words in texts], " ".join(query)
    ids = shuffled_ids(len(texts))
    hits = BM25Index.build(texts, ids).search([query], k)
    scores = bm25_by_hand(texts, query)
    matching = int((scores > 0).sum())
    assert hits.ids.shape == (1, min(k, matching))
    assert np.allclose(hits.scores[0], scores[hits.rows[0]], atol=2e-5)
    assert np.allclose(hits.scores[0], np.sort(scores)[::-1][: min(k, matching)], atol=2e-5)


def test_bm25_counts_a_repeated_word_and_reads_single_letters():
    index = BM25Index.build(["hepatitis b", "hepatitis c", "the fever"], ["1", "2", "3"])
    once, five = (index.search([" ".join(["fever"] * n)], 1).scores[0, 0] for n in (1, 5))
    assert five == pytest.approx(5 * once, rel=1e-4)
    assert index.search(["hepatitis C"], 1).ids.tolist() == [["2"]]
    assert index.search(["the", ""], 2).ids.shape == (2, 0)
