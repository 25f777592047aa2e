"""The contradiction study: pools, tables and checks by brute force, on a scorer without a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from lib.base.provenance import data_hash
from lib.embed import HashEncoder
from lib.plots import figures
from lib.studies.contradiction import answers, checks, near, pools, study
from lib.studies.contradiction.cnt import PairScore, strangers
from lib.studies.contradiction.evidence import Evidence, Need

ENCODER = HashEncoder(64)


@dataclass(frozen=True)
class ByWords:
    """A scorer that needs no model: CNT is the share of the words of two texts that differ."""

    threshold: float = 0.0
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


def small(monkeypatch, found: dict[str, list[str]]):
    """Two medicines, three questions each; ``found``: what PubMed has for each question."""
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
    monkeypatch.setattr(pools, "evidence_for", lambda needs: docs)


def test_a_question_that_pubmed_found_nothing_for_has_no_pool(monkeypatch, own_folders):
    small(monkeypatch, {"aaa-1": ["a", "b", "c"], "aaa-3": ["b", "d"]})
    made = pools.open_pools("tga:x", ENCODER, ByWords())
    found = made.ranked.groupby("qid")["id"].agg(set).to_dict()
    assert found == {"aaa-1": {"a", "b", "c"}, "aaa-3": {"b", "d"}}
    table = study.table1(made).set_index("statistic")["value"]
    assert table["medicines_tga"] == 2 and table["medicines_with_documents"] == 1
    assert table["queries"] == 6 and table["queries_without_documents"] == 4
    assert table["avg_documents_per_query"] == 5 / 2
    assert set(answers.contexts(made, 2)["qid"]) == {"aaa-1", "aaa-3"}
    small(monkeypatch, {})
    with pytest.raises(ValueError, match="no abstract was found for any of 6 questions"):
        pools.open_pools("tga:x", ENCODER, ByWords())


def test_algorithm_1_has_its_switches_and_scores_may_come_from_a_file(monkeypatch, own_folders):
    small(monkeypatch, {"aaa-1": [f"d{i:02d}" for i in range(30)]})
    made = pools.open_pools("tga:x", ENCODER, ByWords())
    wide = pools.open_pools("tga:x", ENCODER, ByWords(), selection={"limit": 25})
    assert len(made.ranked) == 20 and len(wide.ranked) == 25
    stored = made.pairs.assign(value=0.25, threshold=0.5)
    read = pools.open_pools("tga:x", ENCODER, ByWords(), kept=lambda make: stored)
    assert (read.ranked["cnt"] == 0.25).all() and read.score.threshold == 0.5


def test_another_ranking_keeps_pools_and_cnt(lab):
    again = pools.reranked(lab, ENCODER, mmr="greedy", temporal="none")
    columns = ["qid", "id", "cnt"]
    before = lab.ranked[columns].sort_values(["qid", "id"], ignore_index=True)
    after = again[columns].sort_values(["qid", "id"], ignore_index=True)
    pd.testing.assert_frame_equal(before, after)
    assert not again["id"].equals(lab.ranked["id"])


# tables ------------------------------------------------------------------------------------------


def test_the_tables_add_up(lab):
    found = study.documents(lab)
    ids = set(lab.ranked["id"])
    assert set(found["id"]) == ids and not found["period"].isna().any()
    heat, grid = study.heatmap(lab), study.table3(lab)
    assert heat["documents"].sum() == len(ids) and heat["reported"].sum() == 28_261
    for row in heat.itertuples():
        some = [d for d in found.itertuples() if d.period == row.period]
        low = float(row.cnt_bin[1:].split(",")[0])
        inside = [d for d in some if low <= d.cnt < low + 0.2 or (low == 0.8 and d.cnt >= 0.8)]
        assert row.documents == len(inside)
        assert row.share == pytest.approx(len(inside) / len(some)) or not some
        start = 0 if row.period == "<2000" else int(row.period[:4])
        end = 2000 if row.period == "<2000" else 2026 if start == 2020 else start + 5
        assert all(start <= d.year < end for d in some)
    assert grid.groupby("binning")["documents"].sum().to_dict() == dict.fromkeys(
        ("fixed", "quintile"), len(ids)
    )
    assert grid["reported"].sum() == 28_389
    fifths = grid[grid["binning"] == "quintile"].groupby("score_bin")["documents"].sum()
    assert len(fifths) == 5 and fifths.max() - fifths.min() <= 1


def test_the_timeline_shows_the_most_contradictory_sentences(lab):
    asked, nodes, links = study.timeline(lab)
    assert links["value"].iloc[0] == lab.pairs["value"].max() and len(links) == 3 and asked
    assert {*links["a"], *links["b"]} <= set(nodes["id"])
    for link in links.itertuples():
        assert link.sentence_a in " ".join(lab.texts[link.a].split())
        assert link.sentence_b in " ".join(lab.texts[link.b].split())


def test_the_studys_results_know_what_they_are_read_from():
    mini = study.data_of("evidence-mini", [], ["evidence-mini pairs"])
    both = study.data_of("open", [], ["scifact held-out", "bioclaim", "evidence-mini pairs"])
    tables = {"nli-head/weights.npz", "reported/contradiction_table2.csv"}
    assert tables | {"evidence-mini/labels.jsonl"} <= set(mini)
    wanted = {"scifact-claims", "bioclaim-val", "nli-head/held_out.txt", "pubmedqa-labelled"}
    assert tables | wanted <= set(both) and data_hash(both) != data_hash(mini)


# checks ------------------------------------------------------------------------------------------


def test_auroc_against_all_couples():
    rng = np.random.default_rng(0)
    values, positive = rng.integers(0, 5, 40) / 5, rng.random(40) < 0.4
    groups = rng.integers(0, 8, 40)
    row = checks.auroc_row("x", values, positive, groups)
    wins = [(a > b) + (a == b) / 2 for a in values[positive] for b in values[~positive]]
    assert row["auroc"] == pytest.approx(np.mean(wins))
    assert row["low"] <= row["auroc"] <= row["high"] and row["groups"] == 8
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
    couples = [
        {a.meta["stance"], b.meta["stance"]}
        for a, b in combinations(docs, 2)
        if a.topic == b.topic and {a.meta["stance"], b.meta["stance"]} <= {"for", "against"}
    ]
    opposite = sum(len(stances) == 2 for stances in couples)
    assert table.loc["stance", "positives"] == opposite
    assert table.loc["stance", "negatives"] == len(couples) - opposite
    for name in ("length", "length, as many compared"):
        assert table.loc[name, "positives"] == table.loc[name, "negatives"] == len(lab.pairs)
    couples = lab.pairs[["a", "b"]].to_numpy().tolist()
    null = [(lab.texts[a], lab.texts[b]) for a, b in strangers(couples, lab.texts, lab.pools())]
    assert table.loc["length", "mean_negative"] == pytest.approx(
        np.mean([s.value for s in ByWords()(null)])
    )
    assert table.loc["length", "mean_positive"] == pytest.approx(lab.pairs["value"].mean())
    # Of a statement that death increased the one that it decreased is the contradiction.
    statement = values[values["check"] == "statement"]
    assert statement["positive"].tolist() == [0, 1] and statement["group"].nunique() == 1
    one = replace(lab, ranked=lab.ranked[lab.ranked["qid"].isin(list(lab.needs)[:6])])
    assert not checks.check_values(one)["check"].str.startswith("length").any()


def test_maxima_say_how_far_cnt_counts_opportunities(lab):
    rng = np.random.default_rng(0)
    passed = rng.integers(1, 30, len(lab.pairs))
    top_1 = 1 - 1 / passed
    pairs = lab.pairs.assign(passed=passed, top_1=top_1, top_3=top_1 / 2)
    table = checks.maxima(replace(lab, pairs=pairs)).set_index("top")
    assert table["with_compared"].tolist() == pytest.approx([1, 1])
    assert table["with_top_1"].tolist() == pytest.approx([1, 1])
    assert table["mean"].tolist() == pytest.approx([top_1.mean(), top_1.mean() / 2])
    assert (table["n"] == len(lab.pairs)).all()


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


# figures -----------------------------------------------------------------------------------------


def test_figures_show_every_number(lab):
    import matplotlib

    matplotlib.use("Agg")
    heat = study.heatmap(lab)
    both = pd.concat([heat.assign(contradiction=name) for name in ("judged", "modelled")])
    figure = figures.plot_scores(both, "x")
    shown = [t.get_text() for axis in figure.axes for t in axis.texts]
    assert len(figure.axes) == 4 and len(shown) == 90
    first = heat[heat["period"] == "<2000"].sort_values("cnt_bin")["share"]
    assert shown[:5] == ["–" if np.isnan(value) else f"{value:.0%}" for value in first]
    asked, nodes, links = study.timeline(lab)
    figure = figures.plot_timeline(nodes, links.assign(reason="population"), asked)
    (text,) = [text.get_text() for text in figure.subfigs[1].texts]
    assert all(" ".join(s.split()) in " ".join(text.split()) for s in links["sentence_a"])
    assert "1  population" in text
    named = [t.get_text() for t in figure.axes[0].texts if not t.get_text().isdigit()]
    assert len(named) == len({*links["a"], *links["b"]})  # the others are dots alone


# the paper's index --------------------------------------------------------------------------------


def test_exact_search_finds_the_nearest_and_hnsw_says_how_many_of_them_it_finds():
    rng = np.random.default_rng(0)
    vectors, queries = (rng.normal(size=(n, 16)).astype(np.float32) for n in (400, 30))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    exact = near.nearest(vectors, queries, 7)
    for row, query in zip(exact, queries, strict=True):
        assert row.tolist() == sorted(range(400), key=lambda i: -float(vectors[i] @ query))[:7]
    assert near.nearest(vectors[[0] * 5], queries, 3).tolist() == [[0, 1, 2]] * 30  # ties by row
    table = near.recall(vectors, queries, 7, (7, 400)).set_index("search")
    assert table.loc[0, "recall"] == 1 == table.loc[400, "recall"]
    assert table.loc[7, "worst"] <= table.loc[7, "recall"] <= 1
    graph = near.nearest(vectors, queries, 7, "hnsw")
    assert (graph == near.nearest(vectors, queries, 7, "hnsw")).all()
    found = np.mean([len(set(a) & set(b)) / 7 for a, b in zip(exact, graph, strict=True)])
    assert near.recall(vectors, queries, 7, (64,))["recall"].iloc[1] == pytest.approx(found)
    with pytest.raises(ValueError, match="no index 'tree'"):
        near.nearest(vectors, queries, 7, "tree")
