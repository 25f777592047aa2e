"""Every lambda at once: what a path gives is what one search for each lambda gives, bit for bit."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.embed import HashEncoder
from lib.query_spec import Hypotheses, SearchSpec, Text
from lib.run import Retriever
from lib.search import lambda_path
from lib.search.candidates import multiplies_int8
from lib.search.compressed import CompressedIndex
from lib.search.contrast import spectrum
from lib.search.index import DenseIndex
from lib.search.lambda_path import rows_on_path, search_path

BACKENDS = ["faiss", "torch"] + ["int8"] * multiplies_int8("cpu")


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def shuffled_ids(n, seed=0):
    return [f"p{i:05d}" for i in np.random.default_rng(seed).permutation(n)]


def lines(plus, minus, lambdas):
    """Queries of every pair at every lambda, their lines and lambdas, in no order."""
    lam = np.repeat(np.asarray(lambdas, np.float64), len(plus))
    line = np.tile(np.arange(len(plus)), len(lambdas))
    queries = plus[line] - lam.astype(np.float32)[:, None] * minus[line]
    mixed = np.random.default_rng(1).permutation(len(lam))
    return queries[mixed], line[mixed], lam[mixed]


@contextmanager
def short_lists(depth, fewest=2):
    """Lists of a few passages, and what is searched: a line for each call, queries and depth."""
    searched = []
    whole = DenseIndex.longlist

    def longlist(self, queries, depth):
        searched.append((len(queries), depth))
        return whole(self, queries, depth)

    with (
        mock.patch.object(lambda_path, "DEPTH", depth),
        mock.patch.object(lambda_path, "FEWEST", fewest),
        mock.patch.object(DenseIndex, "longlist", longlist),
    ):
        yield searched


def assert_same(found, wanted):
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.rows.tolist() == wanted.rows.tolist()
    assert found.scores.tobytes() == wanted.scores.tobytes()


def text_like(n, dim=32, pairs=12, seed=0):
    """Clustered passages, and pairs of which some are alike and one is the same text twice."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20, dim))
    passages = unit(centres[rng.integers(20, size=n)] + rng.normal(size=(n, dim)))
    plus = unit(passages[:pairs] + 0.3 * rng.normal(size=(pairs, dim)))
    minus = unit(plus + np.linspace(0, 1, pairs)[:, None] * rng.normal(size=(pairs, dim)))
    return passages, plus, minus


# against the definition --------------------------------------------------------------------------


@st.composite
def paths(draw):
    """A small corpus with ties and copies, pairs that are nearly the same text, and lambdas."""
    n, dim = draw(st.integers(1, 60)), draw(st.sampled_from([2, 8, 33]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    if draw(st.booleans()):  # a coarse grid: exact ties between different vectors
        rows, plus = rng.integers(-2, 3, (n, dim)) / 4, rng.integers(-2, 3, (3, dim)) / 4
        plus[:, 0] = 1
    else:
        rows, plus = unit(rng.normal(size=(n, dim))), unit(rng.normal(size=(3, dim)))
        copied = rng.integers(0, n, n // 2)
        rows[rng.integers(0, n, n // 2)] = rows[copied] + rng.choice([0, 1e-7], (n // 2, 1))
    away = draw(st.sampled_from([0, 1e-6, 1e-4, 1e-2, 1]))
    minus = plus + away * rng.normal(size=plus.shape)
    shards = np.split(rows.astype(draw(st.sampled_from([np.float32, np.float16]))), [n // 3])
    lambdas = draw(st.lists(st.integers(-4, 24), min_size=1, max_size=12))
    queries, line, lam = lines(
        plus.astype(np.float32), minus.astype(np.float32), np.array(lambdas) / 8
    )
    clear = np.linalg.norm(queries, axis=1) > 2e-6
    asked = queries[clear], line[clear], lam[clear]
    return shards, shuffled_ids(n, n), asked, draw(st.integers(1, n + 1)), draw(st.integers(1, 30))


@pytest.mark.parametrize("backend", BACKENDS)
@given(case=paths())
@settings(max_examples=60, deadline=None)
def test_a_path_is_the_definition_at_every_lambda(backend, case):
    shards, ids, (queries, line, lam), k, depth = case
    index = DenseIndex(shards, ids, backend=backend)
    with (
        short_lists(depth),
        mock.patch.object(lambda_path, "_LINES", 2),
    ):
        found = search_path(index, queries, line, lam, k)
    assert_same(found, index.search(queries, k))
    stored = np.concatenate(shards).astype(np.float64)
    scores = np.round(queries.astype(np.float64) @ stored.T, 5)
    ranked = [[pid for _, pid in sorted(zip(-row, ids, strict=True))[:k]] for row in scores]
    assert found.ids.tolist() == ranked


@given(case=paths(), lam_max=st.sampled_from([0.5, 2.0, 3.0]))
@settings(max_examples=60, deadline=None)
def test_the_spectrum_of_the_rows_of_a_path_is_that_of_the_corpus(case, lam_max):
    shards, ids, (queries, _, lam), k, depth = case
    index = DenseIndex(shards, ids)
    starts, slopes = queries[:2], queries[:2] - queries[-2:]
    order = index.in_order()
    with short_lists(depth):
        found = rows_on_path(index, starts, slopes, k, lam_max)
    for start, slope, rows in zip(starts, slopes, found, strict=True):
        pair = np.stack([start, slope])
        few = rows[np.argsort(index.ranks[rows])]
        whole = spectrum(*index.score(pair, order), k, lam_max)
        part = spectrum(*index.score(pair, few), k, lam_max)
        for lam in np.linspace(0, lam_max, 23):
            sums = []
            for segments, of in ((whole, order), (part, few)):
                here = next(s for s in segments if s.start <= lam <= s.end)
                scores = index.score((start - lam * slope)[None], of[list(here.rows)])
                sums.append(np.sort(scores[0]))
            assert np.allclose(*sums, atol=2e-5)


# on every index ----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [*BACKENDS, "two devices", "compressed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_every_index_gives_what_it_gives_for_one_lambda_after_another(backend, dtype):
    passages, plus, minus = text_like(3000)
    shards, ids = np.split(passages.astype(dtype), [700, 701]), shuffled_ids(3000)
    if backend == "compressed":
        index = CompressedIndex(shards, ids, candidates=50)
    elif backend == "two devices":
        index = DenseIndex(shards, ids, backend="torch", devices=["cpu", "cpu"])
    else:
        index = DenseIndex(shards, ids, backend=backend)
    queries, line, lam = lines(plus[1:], minus[1:], np.linspace(0.1, 1.5, 30) ** 2)
    for view in (index, index.subset(np.arange(3000) % 3 > 0)):
        with short_lists(40) as searched:
            found = search_path(view, queries, line, lam, 5)
        assert_same(found, view.search(queries, 5))
        if backend != "compressed":
            asked = sum(queries for queries, _ in searched)
            assert 2 * 11 < asked < 6 * 11, "of 330 queries a few are searched"


def test_an_approximate_index_is_searched_lambda_by_lambda_but_its_rows_are_exact():
    passages, plus, minus = text_like(3000)
    exact = DenseIndex([passages], shuffled_ids(3000))
    index = CompressedIndex([passages], shuffled_ids(3000), candidates=10)
    with short_lists(40):
        mine, wanted = (rows_on_path(one, plus, minus, 5) for one in (index, exact))
    assert [rows.tolist() for rows in mine] == [rows.tolist() for rows in wanted]
    # Of H+ and H- that are the same text every score is 0 at lambda 1, so every passage ties.
    assert len(mine[0]) == 3000 and all(len(rows) < 1000 for rows in mine[2:])


# what is not certified at first ------------------------------------------------------------------


def test_what_is_best_in_the_middle_alone_is_found_by_an_anchor_there():
    """H+ and H- are two axes. 50 passages near H+ are the best at lambda 0, 50 far from H- at
    lambda 2; one in between is never among the 50 at either end, and is the best at lambda 1."""
    angle = np.radians(np.concatenate([np.linspace(0, 5, 50), np.linspace(268, 273, 50), [315]]))
    passages = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    index = DenseIndex([passages], shuffled_ids(101))
    plus, minus = np.eye(2, dtype=np.float32)[:, None]
    queries, line, lam = lines(plus, minus, np.linspace(0, 20, 21))
    with short_lists(20) as searched:
        found = search_path(index, queries, line, lam, 1)
    assert_same(found, index.search(queries, 1))
    assert found.rows[lam == 1] == 100
    assert searched[0] == (2, 20) and len(searched) > 1, "both ends, then anchors in between"
    assert all(count == 1 for count, _ in searched[1:])


def test_ties_beyond_a_list_make_it_deeper():
    """All passages but two tie at every lambda: no list shorter than the corpus certifies any."""
    passages = np.tile(unit(np.ones(4)), (300, 1))
    passages[[7, 9]] = unit(np.array([1.0, 2, 3, 4]))
    index = DenseIndex([passages], shuffled_ids(300))
    plus, minus = unit(np.array([[1.0, 1, 0, 1]])), unit(np.array([[1.0, 0, 0, 1]]))
    queries, line, lam = lines(plus, minus, np.linspace(0.1, 1, 8))
    with short_lists(20) as searched:
        found = search_path(index, queries, line, lam, 5)
    assert_same(found, index.search(queries, 5))
    assert {depth for _, depth in searched} == {20, 80}, "then all 300, without a search"


def test_few_lambdas_and_queries_that_are_off_their_line_are_searched_one_by_one():
    passages, plus, minus = text_like(3000)
    index = DenseIndex([passages], shuffled_ids(3000))
    queries, line, lam = lines(plus[1:], minus[1:], [0.2, 0.4, 1.0])
    assert_same(search_path(index, queries, line, lam, 5), index.search(queries, 5))
    queries, line, lam = lines(plus[1:], minus[1:], np.linspace(0.1, 1, 9))
    bent = queries.copy()
    bent[0] += 1e-3
    assert_same(search_path(index, bent, line, lam, 5), index.search(bent, 5))
    one_line = np.zeros(len(line), int)
    assert_same(search_path(index, queries, one_line, lam, 5), index.search(queries, 5))


def test_a_path_refuses_what_a_search_refuses():
    passages, plus, _ = text_like(50)
    index = DenseIndex([passages], shuffled_ids(50))
    queries, line, lam = lines(plus, plus, [0, 0.5, 1, 2])
    with pytest.raises(ValueError, match="no direction"):
        search_path(index, queries, line, lam, 5)
    with pytest.raises(ValueError, match="k = 0"):
        search_path(index, queries[lam < 1], line[lam < 1], lam[lam < 1], 0)
    assert search_path(index, queries[:0], line[:0], lam[:0], 5).ids.shape == (0, 5)


# sweeps ------------------------------------------------------------------------------------------

WORDS = ["fever", "pain", "kidney", "heart", "dose", "cough", "liver", "rash", "sodium", "gait"]
FORMS = {
    "one mimic": {},
    "a random mimic": {"mimic": "stranger", "draw": 1},
    "rotation": {"rotation": True},
    "question added": {"question_weight": 1.0},
    "centred": {"space": "centred"},
    "whitened": {"space": "whitened"},
    "mean": {"form": "mean", "mimic": "several"},
    "lda": {"form": "lda", "mimic": "several"},
    "max": {"form": "max", "mimic": "several"},
    "margin": {"form": "margin"},
    "pool": {"pool": 30},
}
LINES = [name for name, changes in FORMS.items() if SearchSpec(**changes).is_line]


@pytest.fixture(scope="module")
def place():
    """A retriever on 400 short passages, and five questions' hypotheses."""
    rng = np.random.default_rng(5)

    def some(n):
        return [" ".join(rng.choice(WORDS, 4)) for _ in range(n)]

    encoder = HashEncoder(16)
    index = DenseIndex([encoder.encode(some(400), "article")], shuffled_ids(400))
    asked = []
    for i in range(5):
        question, plus, minus, *others = some(7)
        texts = [Text(question, 0.0, "query", "question"), Text(plus, role="target")]
        texts.append(Text(minus, role="mimic"))
        texts += [Text(other, role="mimic", kind="stranger") for other in others[:2]]
        texts += [Text(other, role="mimic", kind="several") for other in others[2:]]
        asked.append(Hypotheses(tuple(texts), excluded=frozenset({f"p{i:05d}"}), qid=str(i)))
    return Retriever(index, encoder), asked


@pytest.mark.parametrize("form", FORMS)
def test_a_sweep_finds_what_each_lambda_finds_and_a_line_takes_few_searches(form, place):
    retriever, asked = place
    lambdas = np.linspace(0, 2, 15).tolist()
    requests = [one.by(**FORMS[form], lam=lam) for one in asked for lam in lambdas]
    alone = [retriever.search_many([request], 6)[0] for request in requests]
    with short_lists(30) as searched:
        together = retriever.search_many(requests, 6)
    for mine, wanted in zip(together, alone, strict=True):
        assert_same(mine, wanted)
    if form in LINES:
        one_by_one = len(asked)  # lambda 0 has no mimic, and stands alone
        assert sum(queries for queries, _ in searched) < one_by_one + 6 * len(asked)
    assert len(LINES) == 8
