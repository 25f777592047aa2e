"""Hits, and merging them, against small oracles made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.search.merge import Hits, merge_balanced, merge_rrf, merge_scores


def hits(*queries: str) -> Hits:
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


def test_stacked_hits_are_padded_and_single_ones_are_not():
    long = Hits(np.array([[2.0, 1.0]], "float32"), np.array([[7, 3]]), np.array([["b", "ab"]]))
    none = Hits(np.empty((1, 0), "float32"), np.empty((1, 0), "int64"), np.empty((1, 0), str))
    both = Hits.stack([long, none])
    assert both.ids.tolist() == [["b", "ab"], ["", ""]]
    assert both.rows.tolist() == [[7, 3], [-1, -1]] and both.scores[1].tolist() == [-np.inf] * 2
    assert both[0].ids.tolist() == [["b", "ab"]] and both[1].ids.shape == (1, 0)


PUBMED, BOOKS = hits("c:0.9 a:0.8 d:0.1", "x:0.5"), hits("b:0.8 a:0.7 e:0.2", "")


def test_by_score_a_passage_counts_once_with_its_best_score():
    merged = merge_scores([PUBMED, BOOKS], 4)
    assert (found(merged), found(merged, 1)) == ("c a b e", "x")
    assert merged.scores[0].tolist() == pytest.approx([0.9, 0.8, 0.8, 0.2])
    assert (merged.rows == -1).all()


def test_rrf_adds_reciprocal_ranks_from_one():
    merged = merge_rrf([PUBMED, BOOKS], 5)
    assert found(merged) == "a b c d e"  # a: 2/62; b and c: 1/61; d and e: 1/63; ties by id
    assert merged.scores[0].tolist() == pytest.approx([2 / 62, 1 / 61, 1 / 61, 1 / 63, 1 / 63])
    assert merge_rrf([PUBMED, BOOKS], 1, rrf_k=0).scores[0, 0] == pytest.approx(1.0)


def test_balanced_takes_turns_and_skips_what_is_there():
    merged = merge_balanced([PUBMED, BOOKS], 5)
    assert (found(merged), found(merged, 1)) == ("c b a d e", "x")
    assert found(merge_balanced([BOOKS, PUBMED], 2)) == "b c"
    assert (np.diff(merged.scores[0]) < 0).all()


@given(st.data())
def test_balanced_gives_every_disjoint_source_its_share(data):
    sources = [
        hits(" ".join(f"{name}{i}:{-i}" for i in range(data.draw(st.integers(3, 6)))))
        for name in "abc"
    ]
    chosen = found(merge_balanced(sources, 9)).split()
    assert chosen == [f"{name}{i}" for i in range(3) for name in "abc"]


@pytest.mark.parametrize("merge", [merge_scores, merge_rrf])
class TestEveryMerge:
    def test_one_list_stays_as_it_is(self, merge):
        assert found(merge([PUBMED], 2)) == "c a"

    def test_queries_are_merged_apart_and_padding_is_no_result(self, merge):
        merged = merge([PUBMED, BOOKS], 5)
        assert merged.ids.shape == (2, 5) and merged.ids[1].tolist() == ["x", "", "", "", ""]

    def test_lists_of_other_queries_are_refused(self, merge):
        for lists, k in (([PUBMED, hits("a:1")], 3), ([], 3), ([PUBMED], 0)):
            with pytest.raises(ValueError, match="cannot merge"):
                merge(lists, k)
