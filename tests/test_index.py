"""Indexes and merges: one contract over faiss, torch and BM25, and each against brute force."""

from __future__ import annotations

import errno
import math
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.embed import HashEncoder
from lib.search import candidates, postings
from lib.search.blocks import float16_products, in_two_halves
from lib.search.bm25 import BM25Index, words
from lib.search.candidates import BACKENDS, Torch, multiplies_int8
from lib.search.compressed import CompressedIndex
from lib.search.ids import Ids
from lib.search.index import DenseIndex, PassageIndex, top_rows
from lib.search.merge import Hits, merge_balanced, merge_rrf

DENSE = {
    "faiss": {"backend": "faiss"},
    "torch": {"backend": "torch"},
    "torch on two devices": {"backend": "torch", "devices": ["cpu", "cpu"]},
    "two full cards": {"backend": "full card", "devices": ["cpu", "cpu"]},
}
if multiplies_int8("cpu"):
    DENSE["int8"] = {"backend": "int8"}
    DENSE["int8 on two devices"] = {"backend": "int8", "devices": ["cpu", "cpu"]}
ALL_CANDIDATES = "compressed, every passage a candidate"
WORDS = ["fever", "pain", "kidney", "heart", "dose", "b"]


class FullCard(Torch):
    """What a card does whose memory takes a few rows, on the processor: halves, blocks that stay
    and blocks that pass through buffers, products a few rows at a time."""

    def __init__(self, shards, devices):
        super().__init__(shards, devices, room=2000, halves=True)


@pytest.fixture(scope="module", autouse=True)
def _full_card():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "full card", FullCard)
        yield


def brute_force(shards, ids, queries, k):
    """Ids and scores by the definition: all scores in float64, rounded to 1e-5, ties by id."""
    vectors = np.concatenate(shards).astype(np.float64)
    scores = np.round(np.asarray(queries, np.float64) @ vectors.T, 5)
    ranked = [sorted(zip(-row, ids, strict=True))[:k] for row in scores]
    return [[pid for _, pid in row] for row in ranked], [[-s for s, _ in row] for row in ranked]


def shuffled_ids(n, seed=0):
    return [f"p{i:05d}" for i in np.random.default_rng(seed).permutation(n)]


def dense(name, shards, ids):
    if name == ALL_CANDIDATES:
        return CompressedIndex(shards, ids, candidates=len(ids))
    return DenseIndex(shards, ids, **DENSE[name])


def normal(shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(params=[*DENSE, ALL_CANDIDATES, "bm25"])
def case(request):
    """An index of 40 passages with many ties, and the queries it takes."""
    words = np.random.default_rng(3).choice(WORDS, size=(40, 3))
    texts, ids = [" ".join(row) for row in words], shuffled_ids(40)
    if request.param == "bm25":
        return BM25Index.build(texts, ids), ["fever", "kidney pain pain", "heart b"], ids
    rows = HashEncoder(16).encode(texts)
    index = dense(request.param, [rows[:7], rows[7:8], rows[8:]], ids)
    return index, HashEncoder(16).encode(["fever", "kidney pain pain", "heart b"]), ids


def test_every_index_gives_documented_arrays_best_first_with_ties_by_id(case):
    index, queries, ids = case
    hits = index.search(queries, 10)
    assert hits.scores.shape == hits.rows.shape == hits.ids.shape == (3, 10) and len(hits) == 3
    kinds = (hits.scores.dtype, hits.rows.dtype, hits.ids.dtype.kind)
    assert kinds == ("float32", "int64", "U")
    tied = 0
    for i in range(3):
        pairs = list(zip(-hits.scores[i], hits.ids[i], strict=True))
        assert pairs == sorted(pairs) and len(set(hits.ids[i])) == 10
        assert hits.ids[i].tolist() == [ids[row] for row in hits.rows[i]]
        tied += 10 - len(set(hits.scores[i].tolist()))
        alone = index.search(queries[i : i + 1], 5)
        assert alone.ids.tolist() == [hits.ids[i, :5].tolist()]
        assert alone.scores.tolist() == [hits.scores[i, :5].tolist()]
    assert tied > 3, "the case must have ties"
    everything = index.search(queries, 1000)
    found = set(everything[0].ids[0])
    assert everything.ids.shape[1] <= 40 == len(index) and found <= set(ids)
    assert found == set(ids) or isinstance(index, BM25Index)
    with pytest.raises(ValueError, match="k"):
        index.search(queries, 0)


def test_a_subset_of_any_index_is_the_search_without_the_others(case):
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
        assert wanted == [ids[row] for row in left[i].rows[0]]
    # A subset of a subset leaves out what either does.
    inner = view.subset(np.isin(ids, [*wanted, *best]))
    assert set(inner.search(queries, 40)[2].ids[0]) == set(wanted) and len(inner) == len(wanted)
    for mask in (np.ones(3, dtype=bool), np.zeros(40, dtype=bool), np.ones(40)):
        with pytest.raises(ValueError, match="40 booleans"):
            index.subset(mask)


# by vectors --------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("backend", [*DENSE, ALL_CANDIDATES])
def test_ties_beyond_any_candidate_list_are_still_exact(backend):
    rows = normal((1200, 16), 1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    same = np.random.default_rng(2).permutation(1200)[:700]
    rows[same] = rows[same[0]]
    rows[same[::3]] += 1e-7  # not even equal bits, only equal to 1e-5
    shards, ids = np.split(rows, [100, 101, 800]), shuffled_ids(1200)
    query = rows[same[:1]] + 0.1 * normal((1, 16), 4)
    hits = dense(backend, shards, ids).search(query, 5)
    assert hits.ids.tolist() == brute_force(shards, ids, query, 5)[0]


def test_a_corpus_larger_than_a_card_is_searched_in_part_from_its_file(tmp_path):
    rows = normal((5000, 24), 5)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.save(tmp_path / "all.npy", rows.astype(np.float16))
    shard = np.load(tmp_path / "all.npy", mmap_mode="r")
    ids, queries = shuffled_ids(5000), normal((7, 24), 6)
    card = Torch([shard], ["cpu"], room=100_000, halves=True).devices[0]
    stays = shard.nbytes - card.streamed
    assert 0.5 * 70_000 < stays <= 70_000, "the stated share of the room is filled"
    keep = np.arange(5000) % 3 > 0
    for index in (DenseIndex([shard], ids), DenseIndex([shard], ids).subset(keep)):
        wanted = index.search(queries, 10)
        index._search = Torch([shard], ["cpu", "cpu"], room=100_000, halves=True)
        found = index.search(queries, 10)
        assert found.ids.tolist() == wanted.ids.tolist()
        assert found.scores.tolist() == wanted.scores.tolist()


@pytest.mark.parametrize("size", [1e-3, 1.0, 40.0])
def test_float16_products_are_as_close_as_float32_ones(size):
    import torch

    stored = normal((3000, 768), 7)
    stored = (stored / np.linalg.norm(stored, axis=1, keepdims=True)).astype(np.float16)
    queries = normal((20, 768), 8)
    queries *= size / np.linalg.norm(queries, axis=1, keepdims=True)
    exact = queries.astype(np.float64) @ stored.T.astype(np.float64)
    block = torch.from_numpy(stored)
    products = float16_products(*in_two_halves(torch.from_numpy(queries)), block).numpy()
    # The half of what DenseIndex allows for, and far from what one float16 query would give.
    assert np.abs(products - exact).max() < 5e-6 * max(1, size)
    rounded = (torch.from_numpy(queries).half().float() @ block.float().T).numpy()
    assert np.abs(products - exact).max() < np.abs(rounded - exact).max() / 50


def test_products_rougher_than_float32_are_refused():
    import torch

    index = DenseIndex([np.eye(3, dtype=np.float32)], ["a", "b", "c"], backend="torch")
    try:
        torch.set_float32_matmul_precision("medium")
        with pytest.raises(ValueError, match="set_float32_matmul_precision"):
            index.search(np.eye(3), 1)
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif("int8" not in DENSE, reason="no exact 8-bit products on this processor")
def test_int8_is_exact_where_eight_bits_cannot_tell_passages_apart():
    """One number of each vector is so large that all others round to 0 or 1 of 127."""
    rows = np.concatenate([np.ones((20_000, 1)), normal((20_000, 31), 5) / 300], axis=1)
    queries = np.concatenate([np.ones((3, 1)), normal((3, 31), 6)], axis=1)
    shards, ids = np.split(rows.astype(np.float32), [17_000]), shuffled_ids(20_000)
    index = DenseIndex(shards, ids, backend="int8")
    wanted, scores = brute_force(shards, ids, queries, 5)
    hits = index.search(queries, 5)
    assert hits.ids.tolist() == wanted and np.allclose(hits.scores, scores, atol=2e-5)
    keep = ~np.isin(ids, np.ravel(wanted))
    left = [[pid for pid in row if keep[ids.index(pid)]] for row in index.search(queries, 99).ids]
    assert index.subset(keep).search(queries, 5).ids.tolist() == [row[:5] for row in left]


def test_int8_needs_a_processor_that_has_it(monkeypatch):
    monkeypatch.setattr(candidates, "multiplies_int8", lambda device: False)
    with pytest.raises(ValueError, match="VNNI.*backend = 'torch'"):
        DenseIndex([np.eye(3, dtype=np.float32)], list("abc"), backend="int8")


def test_what_cannot_be_searched_is_refused():
    eye = np.eye(3, dtype=np.float32)
    for options in DENSE.values():
        index = DenseIndex([eye], ["a", "b", "c"], **options)
        for bad in (0.0, 1e-9, np.nan, np.inf):
            queries = np.eye(3)
            queries[1] = bad
            with pytest.raises(ValueError, match="query row 1 "):
                index.search(queries, 2)
        with pytest.raises(ValueError, match=r"\(n, 3\)"):
            index.search(np.eye(2), 1)
        assert index.search(np.zeros((0, 3)), 2).ids.shape == (0, 2)
    for ids, options, says in (
        (["a", "b"], {}, "3 vectors and 2 passage ids"),
        (["a", "b", "a"], {}, "'a' occurs twice"),
        (["a", "b", "c"], {"backend": "annoy"}, "annoy.*faiss, torch"),
        (["a", "b", "c"], {"devices": ["cuda"]}, "backend='torch'"),
    ):
        with pytest.raises(ValueError, match=says):
            DenseIndex([eye], ids, **options)
    with pytest.raises(ValueError, match="'p1' occurs twice"):
        BM25Index.build(["fever", "pain", "dose"], ["p1", "p2", "p1"])


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


# by words ----------------------------------------------------------------------------------------


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
    part=st.integers(1, 16),
)
@settings(max_examples=60)
def test_bm25_is_lucenes_formula_without_what_does_not_match(texts, query, k, part):
    texts, query = [" ".join(words) for words in texts], " ".join(query)
    ids = shuffled_ids(len(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "PART", part)
        hits = BM25Index.build(texts, ids).search([query], k)
    scores = bm25_by_hand(texts, query)
    matching = int((scores > 0).sum())
    assert hits.ids.shape == (1, min(k, matching))
    assert np.allclose(hits.scores[0], scores[hits.rows[0]], atol=2e-5)
    assert np.allclose(hits.scores[0], np.sort(scores)[::-1][: min(k, matching)], atol=2e-5)


def test_words_are_lower_case_without_stop_words_and_count_each_time():
    assert words("The fever of Hepatitis B; fever!") == ["fever", "hepatitis", "b", "fever"]
    assert words("") == words("the") == []
    index = BM25Index.build(["hepatitis b", "hepatitis c", "the fever"], ["1", "2", "3"])
    once, five = (index.search([" ".join(["fever"] * n)], 1).scores[0, 0] for n in (1, 5))
    assert five == pytest.approx(5 * once, rel=1e-4)
    assert index.search(["hepatitis C"], 1).ids.tolist() == [["2"]]
    assert index.search(["the", ""], 2).ids.shape == (2, 0)
    with pytest.raises(ValueError, match="finite"):
        index.search_weighted([{"fever": np.nan}], 3)


def made_texts(n):
    """n texts of 120 of 300 words, and a query of 400 of them."""
    rng = np.random.default_rng(0)
    vocabulary = [f"w{i}" for i in range(300)]
    return [" ".join(rng.choice(vocabulary, 120)) for _ in range(n)], rng.choice(vocabulary, 400)


def test_a_word_scores_in_a_passage_what_bm25s_says_to_the_last_bit(monkeypatch):
    monkeypatch.setattr(postings, "PART", 7)
    texts, _ = made_texts(50)
    index = BM25Index.build(texts, [f"p{i:02d}" for i in range(50)])
    peer = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
    peer.index([words(text) for text in texts], show_progress=False)
    for word in ("w0", "w7", "w299"):
        scores = np.zeros(50, dtype=np.float32)
        for rows, ((_, passages, own),) in index._postings.find([word]):
            scores[rows][passages] = own
        assert scores.tolist() == peer.get_scores([word]).tolist()


class Stopped(BaseException):
    """As Ctrl-C."""


def test_an_index_of_words_that_was_killed_goes_on_and_a_finished_one_is_opened(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(postings, "PART", 10)
    texts, query = made_texts(35)
    ids, query = shuffled_ids(35), [" ".join(query)]
    wanted = BM25Index.build(texts, ids).search(query, 35)

    def stopped_after(n, texts=texts):
        yield from texts[:n]
        raise Stopped

    def same(texts, content="one"):
        index = BM25Index.build(texts, ids, tmp_path / "kept", content)
        hits = index.search(query, 35)
        return hits.ids.tolist() == wanted.ids.tolist() and np.all(hits.scores == wanted.scores)

    with pytest.raises(Stopped):
        same(stopped_after(25))
    for name in ("rows", "counts", "scores"):  # a kill may leave a part half written
        with open(tmp_path / "kept" / name, "ab") as file:
            file.write(b"torn")
    others = ["w1 w2"] * 20  # what was counted is not read again
    before = os.fsync
    monkeypatch.setattr(os, "fsync", full_disk_after(5, before))
    with pytest.raises(OSError, match="No space left"):
        same([*others, *texts[20:]])
    monkeypatch.setattr(os, "fsync", before)
    assert same([*others, *texts[20:]])
    assert same(stopped_after(0))  # finished: no text is read
    assert not same(["w1 w2"] * 35, "two") and same(texts)
    os.truncate(tmp_path / "kept" / "rows", 400)
    assert same(texts)
    (tmp_path / "kept" / "words.sqlite").write_bytes(b"no table" * 999)
    assert same(texts)
    with pytest.raises(ValueError, match="34 texts and 35 passage ids"):
        BM25Index.build(texts[1:], ids)


def test_an_index_of_words_is_written_by_one_of_two_and_opened_by_the_other(tmp_path):
    texts, query = made_texts(40)
    ids, read = shuffled_ids(40), []
    both = threading.Barrier(2)

    def build(_):
        both.wait()
        own = (read.append(text) or text for text in texts)
        return BM25Index.build(own, ids, tmp_path / "kept").search([" ".join(query)], 40)

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(build, range(2))
    assert one.ids.tolist() == other.ids.tolist() and len(read) == 40


def full_disk_after(n, fsync):
    """``fsync`` n times; then the disk is full."""
    left = iter(range(n))

    def full(handle):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    return full


def test_the_order_of_words_changes_no_score():
    """bm25s adds in float32 in the order of the words, which moved scores by more than 1e-5."""
    texts, query = made_texts(50)
    index = BM25Index.build(texts, [f"p{i:02d}" for i in range(50)])
    query = query.tolist()
    one, other = (index.search([" ".join(order)], 50) for order in (query, sorted(query)))
    assert one.ids.tolist() == other.ids.tolist() and one.scores.tolist() == other.scores.tolist()


# merging -----------------------------------------------------------------------------------------


def listed(*queries: str) -> Hits:
    """One list per query, written as "id:score id:score"."""
    parts = []
    for query in queries:
        pairs = [item.split(":") for item in query.split()]
        ids = np.array([[pid for pid, _ in pairs]], dtype=str).reshape(1, -1)
        scores = np.array([[score for _, score in pairs]], dtype=np.float32).reshape(1, -1)
        parts.append(Hits(scores, np.zeros(ids.shape, dtype=np.int64), ids))
    return Hits.stack(parts)


def found(merged: Hits, query: int = 0) -> str:
    return " ".join(merged[query].ids[0])


PUBMED, BOOKS = listed("c:0.9 a:0.8 d:0.1", "x:0.5"), listed("b:0.8 a:0.7 e:0.2", "")


def test_merges_by_reciprocal_rank_and_in_turns():
    merged = merge_rrf([PUBMED, BOOKS], 5)
    assert found(merged) == "a b c d e"  # a: 2/62; b and c: 1/61; d and e: 1/63; ties by id
    assert merged.scores[0].tolist() == pytest.approx([2 / 62, 1 / 61, 1 / 61, 1 / 63, 1 / 63])
    assert merge_rrf([PUBMED, BOOKS], 1, rrf_k=0).scores[0, 0] == pytest.approx(1.0)
    merged = merge_balanced([PUBMED, BOOKS], 5)
    assert (found(merged), found(merged, 1)) == ("c b a d e", "x") and (merged.rows == -1).all()
    assert merged.scores[0].tolist() == [-2, -3, -4, -6, -7]  # its best turn counts
    assert found(merge_balanced([BOOKS, PUBMED], 2)) == "b c"


def test_every_merge_keeps_queries_apart_and_padding_is_no_result():
    for merge in (merge_rrf, merge_balanced):
        assert found(merge([PUBMED], 2)) == "c a"
        merged = merge([PUBMED, BOOKS], 5)
        assert merged.ids.shape == (2, 5) and merged.ids[1].tolist() == ["x", "", "", "", ""]
        for lists, k in (([PUBMED, listed("a:1")], 3), ([], 3), ([PUBMED], 0)):
            with pytest.raises(ValueError, match="cannot merge"):
                merge(lists, k)


# ids ----------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
        unique=True,
    )
)
def test_ids_are_found_by_row_and_rows_by_id(pids):
    ids = Ids.of(pids)
    assert list(ids) == ids.tolist() == pids and len(ids) == len(pids)
    assert ids.find(pids).tolist() == list(range(len(pids)))
    assert [pids[row] for row in ids.order] == sorted(pids)
    assert np.array_equal(np.argsort(ids.order), ids.ranks)
    absent = [pid + "x" for pid in pids if pid + "x" not in pids]
    assert (ids.find(absent) == -1).all() and not any(pid in ids for pid in absent)
    for first in pids[:1]:
        starts = [pid.startswith(first) for pid in pids]
        assert ids.starting_with([first]).tolist() == starts
