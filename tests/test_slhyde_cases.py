"""SL-HyDE's single cases, its steps and the ranks that passages were chosen by, by brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.paths import DATA
from lib.benchmarks import ddx_real, load_benchmark
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.datasets import load_questions
from lib.embed import HashEncoder, load_encoder
from lib.profiles import load_profile
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.search.vectors import encode_cached
from lib.studies.slhyde import cases, documents, steps, study
from lib.studies.slhyde.cmirb import Task
from lib.studies.slhyde.trained import TRAININGS, read_texts
from tools.slhyde_writer import bank, repeats
from tools.slhyde_writer import test_queries as queries_of

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
    assert set(kept) == {*study.TABLES, study.RANKS}
    told = set(kept["slhyde_trainings"]["data"])
    for name in (*TRAININGS, "slhyde-generator"):
        assert f"adapters/{name}/card.toml" in told
        assert f"adapters/{name}/adapter_model.safetensors" in told
    # Hours of measuring are not done again where only a card's minutes changed.
    assert not [file for file in kept["slhyde_values"]["data"] if file.endswith("card.toml")]
    weights = {f"adapters/{name}/adapter_model.safetensors" for name in TRAININGS}
    assert weights <= set(kept["slhyde_values"]["data"])
    assert all((DATA / file).is_file() for file in told if file.startswith("adapters/"))


# the documents -----------------------------------------------------------------------------------


def passage(pid: str, **meta) -> Passage:
    """A passage on a disease that nothing tests, of a page of its own, unless said otherwise."""
    own = {"cuis": ["C1"], "focus": "Hiccups", "synonyms": [], "subset": "s", "document": pid}
    text = " ".join(f"word{i}" for i in range(documents.LEAST_WORDS))
    own |= meta
    return Passage(pid, own["focus"], own.pop("text", text), "medquad", own)


TESTED = documents.Tested(
    cuis=frozenset({"C9"}),
    names=frozenset({("behcet", "disease")}),
    pids=frozenset({"planted"}),
)

LEAKS = [
    passage("planted"),
    passage("by-concept", cuis=["C1", "C9"]),
    passage("by-title", focus="Behçet's Diseases"),
    passage("by-synonym", synonyms=["Hiccup", "behcet disease"]),
]


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.pid)
def test_a_planted_leak_is_refused_and_left_out(leak):
    clean = [passage("one"), passage("two")]
    documents.check_no_leak(clean, TESTED)
    with pytest.raises(ValueError, match=f"{leak.pid} .* a benchmark tests"):
        documents.check_no_leak([*clean, leak], TESTED)
    assert documents.unlabelled([clean[0], leak, clean[1]], TESTED) == clean


def test_the_sample_has_one_long_passage_of_a_page_whatever_the_order():
    pages = [passage(f"p{i}", document=f"page{i // 3}") for i in range(30)]
    short = [passage(f"s{i}", text="too short") for i in range(5)]
    drawn = documents.sample([*pages, *short], 8)
    assert len({p.meta["document"] for p in drawn}) == 8 and not [p for p in short if p in drawn]
    assert documents.sample([*short, *pages[::-1]], 8) == drawn
    assert documents.sample(pages, 10)[:8] == drawn  # a larger sample begins with the smaller
    with pytest.raises(ValueError, match="10 pages"):
        documents.sample(pages, 11)


def test_no_tested_disease_is_learnt_from(mirror):
    benchmarks = [build(HashEncoder()) for build in (ddx_real.build, ddx_real.build_fresh)]
    tested = documents.tested_in(benchmarks)
    passages = list(documents.load_passages("medquad"))
    kept = documents.unlabelled(passages, tested)
    documents.check_no_leak(kept, tested)
    known = {p.pid for p in kept}
    for benchmark in benchmarks:
        for on_tested in (*benchmark.targets.values(), *benchmark.excluded.values()):
            assert known.isdisjoint(on_tested)
        targets = benchmark.targets[benchmark.qids[0]]
        planted = next(p for p in passages if p.pid in targets)
        with pytest.raises(ValueError, match="a benchmark tests"):
            documents.check_no_leak([*kept[:5], planted], tested)
    assert not [e for e in bank() if tested.covers(passage("x", focus=e["title"]))]


def test_the_queries_are_on_the_sampled_documents(mirror):
    sampled = [p.pid for p in documents.sample(documents.unlabelled())]
    assert [row["pid"] for row in read_texts("queries")] == sampled


def test_what_is_shipped_repeats_no_document_and_is_on_what_was_asked(mirror):
    text_of = {p.pid: p.text for p in documents.unlabelled()}
    rows = read_texts("passages")
    assert not any(repeats(t, text_of[row["pid"]]) for row in rows for t in row["passages"])
    assert any("" in row["passages"] for row in rows)
    for dataset in ("scifact", "bioasq"):
        tuned = [row["qid"] for row in read_texts(f"hyde-{dataset}") if row["writer"] == "tuned"]
        assert tuned == list(queries_of(dataset))
