"""SL-HyDE's single cases and the ranks that passages were chosen by, against brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.data.passages import Passage
from lib.run import Retriever
from lib.search.embed import HashEncoder
from lib.search.index import DenseIndex
from lib.studies.selflearn import cases, study
from lib.studies.selflearn.cmirb import Task

TEXTS = [f"word{i} word{i + 1} word{i + 2}" for i in range(12)]
PASSAGES = tuple(Passage(f"p{i}", "", text, "s", {}) for i, text in enumerate(TEXTS))
TASK = Task(
    "toy",
    {f"q{i}": f"word{i} word{i + 5}" for i in range(6)},
    PASSAGES,
    {f"q{i}": {f"p{i}": 1, f"p{i + 5}": 1} for i in range(6)},
)


def test_the_rank_is_that_of_the_first_relevant_passage():
    encoder = HashEncoder()
    vectors = encoder.encode(TEXTS, "article")
    retriever = Retriever(DenseIndex([vectors], [p.pid for p in PASSAGES]), encoder)
    written = {qid: [TEXTS[i + 2]] for i, qid in enumerate(TASK.queries)}
    ranks = cases.first_ranks(TASK, retriever, written)
    for qid, query in TASK.queries.items():
        query_vector = encoder.encode([query], "query")[0]
        passage_vector = encoder.encode(written[qid], "article")[0]
        scores = vectors @ (query_vector + passage_vector)
        order = [PASSAGES[i].pid for i in np.argsort(-scores, kind="stable")]
        assert ranks[qid] == min(order.index(pid) for pid in TASK.qrels[qid]) + 1


RANKS = st.lists(
    st.tuples(st.integers(1, cases.DEEP + 1), st.integers(1, cases.DEEP + 1)), min_size=1
)


@given(RANKS)
def test_cases_have_the_greatest_and_the_least_change(pairs):
    qids = [f"q{i:03d}" for i in range(len(pairs))]
    before = pd.Series([one for one, _ in pairs], qids)
    after = pd.Series([other for _, other in pairs], qids)
    task = Task("drawn", dict.fromkeys(qids, "asked"), PASSAGES, {qid: {"p0": 1} for qid in qids})
    written = {"base": {qid: ["first"] for qid in qids}, "tuned": {}}
    rows = cases.case_rows(task, before, after, written).set_index("case")

    def gain(qid: str) -> float:
        one, other = (0 if s[qid] > cases.DEEP else 1 / s[qid] for s in (before, after))
        return other - one

    gains = [gain(qid) for qid in qids]
    assert gain(rows.loc[cases.CASES[0], "qid"]) == max(gains)
    assert gain(rows.loc[cases.CASES[2], "qid"]) == min(gains)
    still = [qid for qid in qids if before[qid] == after[qid]]
    if still:
        assert rows.loc[cases.CASES[1], "qid"] == min(still, key=lambda qid: (before[qid], qid))
    else:
        assert cases.CASES[1] not in rows.index
    assert set(rows["base"]) == {"first"} and set(rows["tuned"]) == {""}
    counts = cases.case_counts(before, after).set_index("change")["n"]
    assert counts.sum() == len(qids) and counts["stayed"] == len(still)
    assert counts["rose"] == sum(other < one for one, other in pairs)


def test_chosen_ranks_are_means_over_documents():
    rows = [
        {"query_rank": 2, "ranks": [1, 4, 1000], "chosen": 0},
        {"query_rank": 1000, "ranks": [5, 2, 2], "chosen": 1},
    ]
    table = study.chosen_ranks(rows).set_index("searched_with")
    assert table.loc["the query alone", "mrr"] == pytest.approx((1 / 2 + 1 / 1000) / 2)
    assert table.loc["the query alone", "not_found"] == 0.5
    assert table.loc["query and passage 1", "first"] == 0.5
    assert table.loc["query and the chosen passage", "mrr"] == pytest.approx((1 + 1 / 2) / 2)
    assert set(table["n"]) == {2}
