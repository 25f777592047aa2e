"""The contradiction study: pools, tables and checks by brute force, on a scorer without a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from lib.embed import HashEncoder
from lib.plots import figures
from lib.studies.contradiction import answers, checks, pools, study
from lib.studies.contradiction.cnt import PairScore, strangers
from lib.studies.contradiction.evidence import Evidence, Need

ENCODER = HashEncoder(64)


@dataclass(frozen=True)
class ByWords:
    """A scorer that needs no model: CNT is the share of the words of two texts that differ."""

    threshold: float = 0.0
    direction: str = "max"
    backend = None

    def fitted(self, couples):
        return self

    def __call__(self, couples, counts=None):
        out = []
        for a, b in couples:
            one, other = set(a.split()), set(b.split())
            value = 1 - len(one & other) / len(one | other)
            out.append(PairScore(value, value, value / 2, 1, 2, 9, 3))
        return out


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """evidence-mini, 12 questions of two medicines, without a model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield pools.open_pools("evidence-mini", ENCODER, ByWords(), limit=12)


# pools -------------------------------------------------------------------------------------------


def test_pools_and_cnt_against_brute_force(lab):
    score = ByWords()
    assert len(lab.needs) == 12 and set(lab.ranked["qid"]) == set(lab.needs)
    for qid, pool in lab.ranked.groupby("qid"):
        own = {i for i, d in lab.evidence.items() if d.medicine == lab.needs[qid].medicine}
        assert set(pool["id"]) == own and len(own) <= 20
        for row in pool.itertuples():
            text = lab.texts[row.id]
            others = [s.value for s in score([(text, lab.texts[i]) for i in own - {row.id}])]
            assert row.cnt == pytest.approx(np.mean(others))
        assert pool["score"].is_monotonic_decreasing
    of_medicine = Counter(lab.evidence[i].medicine for i in set(lab.ranked["id"]))
    assert len(lab.pairs) == sum(n * (n - 1) // 2 for n in of_medicine.values())


def test_another_ranking_keeps_pools_and_cnt(lab):
    again = pools.reranked(lab, ENCODER, mmr="greedy", temporal="none")
    before, after = (
        table[["qid", "id", "cnt"]].sort_values(["qid", "id"], ignore_index=True)
        for table in (lab.ranked, again)
    )
    pd.testing.assert_frame_equal(before, after)
    assert not again["id"].equals(lab.ranked["id"])


def test_a_question_that_pubmed_found_nothing_for_has_no_pool(monkeypatch, own_folders):
    found = {"aaa-1": ["a", "b", "c"], "aaa-3": ["b", "d"]}
    needs = [
        Need(f"{m}-{n}", m, n, f"Why {m} {n}?", "Because.")
        for m in ("aaa", "bbb")
        for n in (1, 2, 3)
    ]
    docs = [
        Evidence(i, i, f"one {i} of {i}", 2000 + n, medicine=q[:3], topic=q)
        for q, ids in found.items()
        for n, i in enumerate(ids)
    ]
    monkeypatch.setattr(pools, "load_needs", lambda name: needs)
    monkeypatch.setattr(pools, "evidence_for", lambda needs, email: docs)
    made = pools.open_pools("tga:x", ENCODER, ByWords())
    assert made.ranked.groupby("qid")["id"].agg(sorted).to_dict() == found
    table = study.table1(made).set_index("statistic")["value"]
    assert table["medicines_tga"] == 2 and table["medicines_with_documents"] == 1
    assert table["queries"] == 6 and table["queries_without_documents"] == 4
    assert table["avg_documents_per_query"] == 5 / 2
    assert set(answers.contexts(made, 2)["qid"]) == {"aaa-1", "aaa-3"}
    monkeypatch.setattr(pools, "evidence_for", lambda needs, email: [])
    with pytest.raises(ValueError, match="no abstract was found for any of 6 questions"):
        pools.open_pools("tga:x", ENCODER, ByWords())


def test_exact_search_finds_the_nearest_and_hnsw_says_how_many_of_them_it_finds():
    rng = np.random.default_rng(0)
    vectors, queries = (rng.normal(size=(n, 16)).astype(np.float32) for n in (400, 30))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    exact = pools.nearest(vectors, queries, 7)
    for row, query in zip(exact, queries, strict=True):
        assert row.tolist() == sorted(range(400), key=lambda i: -float(vectors[i] @ query))[:7]
    assert pools.nearest(vectors[[0] * 5], queries, 3).tolist() == [[0, 1, 2]] * 30  # ties by row
    graph = pools.nearest(vectors, queries, 7, "hnsw")
    assert (graph == pools.nearest(vectors, queries, 7, "hnsw")).all()
    found = np.mean([len(set(a) & set(b)) / 7 for a, b in zip(exact, graph, strict=True)])
    table = pools.recall(vectors, queries, 7, (64, 400)).set_index("search")
    assert table.loc[0, "recall"] == 1 == table.loc[400, "recall"]
    assert table.loc[64, "worst"] <= table.loc[64, "recall"] == pytest.approx(found)
    with pytest.raises(ValueError, match="no index 'flat'"):
        pools.nearest(vectors, queries, 7, "flat")


# tables ------------------------------------------------------------------------------------------


def test_the_tables_add_up(lab):
    found = study.documents(lab)
    ids = set(lab.ranked["id"])
    heat, grid = study.heatmap(lab), study.table3(lab)
    assert set(found["id"]) == ids and heat["documents"].sum() == len(ids)
    assert heat["reported"].sum() == 28_261 and grid["reported"].sum() == 28_389
    for row in heat.itertuples():
        start = 0 if row.period == "<2000" else int(row.period[:4])
        end = 2000 if row.period == "<2000" else 2026 if start == 2020 else start + 5
        dated = found[found["year"].between(start, end - 1)]
        low = float(row.cnt_bin[1:].split(",")[0])
        inside = ((dated["cnt"] >= low) & (dated["cnt"] < (low + 0.2 if low < 0.8 else 2))).sum()
        assert row.documents == inside
        assert row.share == pytest.approx(inside / len(dated)) or not len(dated)
    assert set(grid.groupby("binning")["documents"].sum()) == {len(ids)}
    fifths = grid[grid["binning"] == "quintile"].groupby("score_bin")["documents"].sum()
    assert len(fifths) == 5 and fifths.max() - fifths.min() <= 1


def test_figures_show_every_number(lab):
    import matplotlib

    matplotlib.use("Agg")
    heat = study.heatmap(lab)
    figure = figures.plot_scores(study.beside({"judged": heat, "modelled": heat}), "x")
    shown = [t.get_text() for axis in figure.axes for t in axis.texts]
    assert len(figure.axes) == 4 and len(shown) == 90
    first = heat[heat["period"] == "<2000"].sort_values("cnt_bin")["share"]
    assert shown[:5] == ["–" if np.isnan(value) else f"{value:.0%}" for value in first]
    asked, nodes, links = study.timeline(lab)
    assert links["value"].iloc[0] == lab.pairs["value"].max() and len(links) == 3 and asked
    assert {*links["a"], *links["b"]} <= set(nodes["id"])
    figure = figures.plot_timeline(nodes, links.assign(reason="population"), asked)
    (text,) = [text.get_text() for text in figure.subfigs[1].texts]
    assert all(" ".join(s.split()) in " ".join(text.split()) for s in links["sentence_a"])
    assert "1  population" in text
    named = [t.get_text() for t in figure.axes[0].texts if not t.get_text().isdigit()]
    assert len(named) == len({*links["a"], *links["b"]})  # the others are dots alone


# checks ------------------------------------------------------------------------------------------


def test_auroc_against_all_couples():
    rng = np.random.default_rng(0)
    values, positive = rng.integers(0, 5, 40) / 5, rng.random(40) < 0.4
    groups = rng.integers(0, 8, 40)
    row = checks.auroc_row("x", values, positive, groups)
    wins = [(a > b) + (a == b) / 2 for a in values[positive] for b in values[~positive]]
    assert row["auroc"] == pytest.approx(np.mean(wins)) and row["groups"] == 8
    assert row["mean_positive"] == pytest.approx(values[positive].mean())
    # The interval by repeating every couple as often as both its groups were drawn.
    drawn = np.random.default_rng(0).multinomial(8, [1 / 8] * 8, 2000)
    found = []
    for times in drawn:
        weight = times[groups[positive]][:, None] * times[groups[~positive]]
        if weight.sum():
            found.append((np.reshape(wins, weight.shape) * weight).sum() / weight.sum())
    assert (row["low"], row["high"]) == pytest.approx(tuple(np.percentile(found, [2.5, 97.5])))
    assert np.isnan(checks.auroc_row("x", values, [True] * 40, range(40))["auroc"])


def test_every_check_compares_the_couples_it_says(lab, monkeypatch):
    one_pair = checks._pairs("sentences", [0.5], [True], ["g"])
    monkeypatch.setattr(checks, "_sentences", lambda pools: one_pair)
    effect = {"intervention": "oxygen", "outcome": "death", "comparator": "air"}
    effects = [effect | {"effect": "increased"}, effect | {"effect": "no difference"}]
    held_out = next(str(i) for i in range(99) if checks.is_held_out(str(i)))
    trial = replace(next(iter(lab.evidence.values())), meta={"effects": effects})
    with_trial = replace(lab, evidence={**lab.evidence, f"pmc:PMC{held_out}": trial})
    values = checks.check_values(with_trial)
    table = checks.checks_table(values).set_index("check")
    docs = [d for d in lab.evidence.values() if d.id in set(lab.ranked["id"])]
    sides = [
        {a.meta["stance"], b.meta["stance"]}
        for a, b in combinations(docs, 2)
        if a.topic == b.topic and {a.meta["stance"], b.meta["stance"]} <= {"for", "against"}
    ]
    opposite = sum(len(stances) == 2 for stances in sides)
    assert table.loc["stance", ["positives", "negatives"]].tolist() == [
        opposite,
        len(sides) - opposite,
    ]
    couples = lab.pairs[["a", "b"]].to_numpy().tolist()
    null = [
        (lab.texts[a], lab.texts[b]) for a, b in strangers(couples, lab.texts, lab.ids_of.values())
    ]
    for name in ("length", "length, as many compared"):
        assert table.loc[name, "positives"] == table.loc[name, "negatives"] == len(lab.pairs)
        assert table.loc[name, "mean_positive"] == pytest.approx(lab.pairs["value"].mean())
        by_hand = np.mean([s.value for s in ByWords()(null)])
        assert table.loc[name, "mean_negative"] == pytest.approx(by_hand)
    # Of a statement that death increased the one that it decreased is the contradiction.
    statement = values[values["check"] == "statement"]
    assert statement["positive"].tolist() == [0, 1] and statement["group"].nunique() == 1
    one = replace(lab, ranked=lab.ranked[lab.ranked["qid"].isin(list(lab.needs)[:6])])
    assert not checks.check_values(one)["check"].str.startswith("length").any()


def test_maxima_say_how_far_cnt_counts_opportunities(lab):
    passed = np.random.default_rng(0).integers(1, 30, len(lab.pairs))
    top_1 = 1 - 1 / passed
    pairs = lab.pairs.assign(passed=passed, top_1=top_1, top_3=top_1 / 2)
    table = checks.maxima(replace(lab, pairs=pairs))
    assert table[["with_compared", "with_top_1"]].to_numpy() == pytest.approx(1)
    assert table["mean"].tolist() == pytest.approx([top_1.mean(), top_1.mean() / 2])


def test_mimics_compares_mean_cnt_of_the_top_k(own_folders):
    from lib.benchmarks import load_benchmark
    from lib.index_build import build_index, corpus_store
    from lib.query_spec import SearchSpec
    from lib.run import Retriever
    from lib.studies.lambda_sweep.study import open_benchmark
    from lib.study import search_arm

    store = corpus_store(["ddx-mini"])
    index = build_index(store, ENCODER, progress=False)
    opened = open_benchmark(load_benchmark("ddx-mini"), Retriever(index, ENCODER, store))
    values = checks.mimic_values(opened, store, ByWords(), 0.4, k=3)
    table = checks.mimics_table(values.sample(frac=1, random_state=0), "ddx-mini", 0.4)
    assert list(table["arm"]) == ["chr@0.4"] * 4 + ["chr@1"] * 4

    def mean_of_pairs(spec: SearchSpec, draw: int = 0) -> float:
        found = search_arm(opened.arm(spec), opened.benchmark.test, opened.retriever, 3)[draw]
        means = []
        for pids in found.values():
            texts = [passage.text for passage in store.get_many(pids)]
            means.append(np.mean([s.value for s in ByWords()(list(combinations(texts, 2)))]))
        return float(np.mean(means))

    assert table.loc[0, "value"] == pytest.approx(mean_of_pairs(SearchSpec(lam=0.4)))
    assert table.loc[0, "value_baseline"] == pytest.approx(mean_of_pairs(SearchSpec()))
    turned = table[table["baseline"] == "chr+rotation@0.4"].iloc[0]
    spec = SearchSpec(lam=0.4, rotation=True)
    each = [mean_of_pairs(spec, draw) for draw in range(checks.DRAWS)]
    assert turned["value_baseline"] == pytest.approx(np.mean(each))
    assert (table["n"] == 96).all() and table["passed"].tolist() == pytest.approx([1 / 3] * 8)
