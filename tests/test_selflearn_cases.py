"""SL-HyDE's single cases, its steps and the ranks that passages were chosen by, by brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.paths import DATA
from lib.benchmarks import load_benchmark
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.datasets import load_questions
from lib.embed import HashEncoder, load_encoder
from lib.profiles import load_profile
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.search.vectors import encode_cached
from lib.studies.selflearn import cases, steps, study
from lib.studies.selflearn.cmirb import Task
from lib.studies.selflearn.retriever import TRAININGS
from lib.studies.selflearn.writing import read_texts

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


# step by step ------------------------------------------------------------------------------------


def test_what_was_written_is_shown_as_it_was_chosen():
    kept = read_texts("passages")[:4]
    shown = steps.written_rows(4)
    assert list(shown.columns) == ["query", "passage", "rank", "rank_of_query", "chosen"]
    assert len(shown) == 4 * len(kept[0]["passages"])
    each = len(shown) // len(kept)
    for number, row in enumerate(kept):
        own = shown[number * each : (number + 1) * each]
        assert set(own["query"]) == {row["query"]}
        assert set(own["rank_of_query"]) == {row["query_rank"]}
        assert own["rank"].tolist() == row["ranks"]
        (chosen,) = own.loc[own["chosen"] == "chosen", "rank"]
        assert chosen == min(row["ranks"])
        for text, start in zip(row["passages"], own["passage"], strict=True):
            whole, _, cut = start.partition(" …")
            assert " ".join(text.split()).startswith(whole) and not cut
            assert start.endswith(" …") == (len(text.split()) > len(whole.split()))


def test_one_question_before_and_after_is_what_sorting_everything_gives():
    qid, k = "medqa-22", 5
    passages = {passage.pid: passage for passage in load_passages("ddx-mini")}
    texts = [(passage.title, passage.text) for passage in passages.values()]
    question = {q.qid: q.text for q in load_questions("ddx-mini")}[qid]
    ranks = {}
    for when, name in (("before", "minilm"), ("after", "minilm+slhyde-query")):
        encoder = load_encoder(name, precision="float32")
        vectors = np.concatenate(list(encode_cached(texts, encoder, "article", label="ddx-mini")))
        scores = dict(zip(passages, vectors @ encoder.encode([question], "query")[0], strict=True))
        ranks[when] = sorted(passages, key=lambda pid, of=scores: -of[pid])
    before, after = ranks["before"], ranks["after"]
    benchmark = load_benchmark("ddx-mini")
    kinds = {(True, False): "target", (False, True): "mimic", (True, True): "both"}
    rows = []
    for pid in dict.fromkeys(after[:k] + before[:k]):
        about = pid in benchmark.targets[qid], pid in benchmark.mimics[qid]
        row = [passages[pid].title, passages[pid].source, kinds.get(about, "neither")]
        places = [order.index(pid) + 1 for order in (before, after)]
        rows.append(row + [place if place <= 20 else None for place in places])
    found = steps.before_and_after(qid, load_profile("mini"), k)
    assert list(found.columns) == ["title", "source", "class", "before", "after"]
    # A bundled question on which training changed something, or it would show nothing.
    assert len(rows) > k and before != after
    assert found.astype(object).replace({pd.NA: None}).to_numpy().tolist() == rows


def test_a_question_that_is_not_bundled_is_an_error():
    with pytest.raises(ValueError, match="no such question.* there are: "):
        steps.before_and_after("no such question", load_profile("mini"))


@pytest.mark.parametrize("count", ["3", -1, 2.5, None])
def test_how_many_rows_are_shown_is_a_whole_number(count):
    with pytest.raises(ValueError, match="shown_rows must be a whole number of at least 0"):
        steps.written_rows(count)


# what the tables are made of ---------------------------------------------------------------------


class Asked(Exception):
    """Ends a study before it measures anything."""


def test_whatever_a_table_prints_is_told_as_its_data(monkeypatch):
    """Minutes and memory are the cards', sizes the weights': a changed card makes them again."""
    kept = {}

    def keep(make, name, profile, **origin):
        kept[name] = origin
        return pd.DataFrame()

    def keep_all(make, names, profile, **origin):
        kept.update(dict.fromkeys(names, origin))
        raise Asked

    monkeypatch.setattr(study, "make_or_reuse", keep)
    monkeypatch.setattr(study, "make_all_or_reuse", keep_all)
    with pytest.raises(Asked):
        study.slhyde_results(load_profile("open"))
    assert set(kept) == set(study.TABLES)
    told = set(kept["slhyde_trainings"]["data"])
    for name in (*TRAININGS, "slhyde-generator"):
        assert f"adapters/{name}/card.toml" in told
        assert f"adapters/{name}/adapter_model.safetensors" in told
    # Hours of measuring are not done again where only a card's minutes changed.
    assert not [file for file in kept["slhyde_values"]["data"] if file.endswith("card.toml")]
    weights = {f"adapters/{name}/adapter_model.safetensors" for name in TRAININGS}
    assert weights <= set(kept["slhyde_values"]["data"])
    assert all((DATA / file).is_file() for file in told if file.startswith("adapters/"))
