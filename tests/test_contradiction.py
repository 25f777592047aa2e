"""The contradiction study: its data, its measures by hand, its tables by brute force."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from lib.contradiction import checks, outcomes, plots, quality, study
from lib.contradiction.cnt import PairScore
from lib.contradiction.select import CONDITIONS, MATCHED
from lib.embed import HashEncoder, minilm_folder
from lib.evidence import load as evidence
from lib.evidence.records import UNKNOWN
from lib.llm import ScriptedChat
from lib.paths import DATA
from lib.profiles import load_profile
from tests.evidence_check import FIELDS, FOLDER, kappa, read, validate

ENCODER = HashEncoder(64)


class ByWords:
    """A scorer that needs no model: CNT is the share of the words of two texts that differ."""

    backend = None

    def __call__(self, couples):
        out = []
        for a, b in couples:
            one, other = set(a.split()), set(b.split())
            out.append(PairScore(1 - len(one & other) / len(one | other), a[:20], b[:20], 9, 3))
        return out

    def null(self, couples):
        return np.zeros(len(couples))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """evidence-mini, 12 questions of two medicines, without a model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield study.open_study("evidence-mini", ENCODER, ByWords(), limit=12)


# the bundled set ---------------------------------------------------------------------------------


def test_evidence_mini_is_valid():
    assert validate() == []


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("abstracts", lambda r: r[3].update(text=r[4]["text"]), "share the words"),
        ("abstracts", lambda r: r[3].update(year=1066), "not plausible"),
        ("abstracts", lambda r: r[3].update(stance="yes"), "stance 'yes'"),
        ("abstracts", lambda r: r[3].pop("retells"), "fields"),
        ("abstracts", lambda r: r.pop(), "173 rows, wanted 174"),
        ("questions", lambda r: r[0].update(question="Why?"), "not the question of heading 1"),
        ("questions", lambda r: r[0].update(answer="Because."), "answer of 1 words"),
        ("questions", lambda r: r[0].update(heading=2), "each of the six questions once"),
        ("pairs", lambda r: r[0].update(a=r[0]["a"][:-1] + "!"), "does not stand in its abstract"),
        ("pairs", lambda r: r[0].update(b_id=r[0]["a_id"], b=r[0]["a"]), "two abstracts"),
        ("labels", lambda r: r[0].update(label="neutral"), "not what both readers say"),
        ("labels", lambda r: r.append(dict(r[0])), "211 rows"),
    ],
)
def test_the_validator_sees(name, change, problem, tmp_path):
    folder = tmp_path / "set"
    shutil.copytree(FOLDER, folder)
    rows = read(name)
    change(rows)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    assert any(problem in said for said in validate(folder)), validate(folder)


def test_its_card_says_what_is_there():
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in FIELDS:
        assert f"| `{name}.jsonl` | {len(read(name))} |" in card
    labels = read("labels")
    counted, both = (
        Counter(row["label"] for row in labels),
        sum(bool(row["label"]) for row in labels),
    )
    said = re.search(r"\(contradiction (\d+), entailment\s(\d+), neutral (\d+)\)", card)
    assert [counted[x] for x in ("contradiction", "entailment", "neutral")] == [
        *map(int, said.groups())
    ]
    assert f"agree on {both} of 210, Cohen's kappa {kappa(labels):.2f}" in card
    sides = Counter(d["stance"] for d in read("abstracts"))
    assert all(f"{side} {n}" in " ".join(card.split()) for side, n in sides.items())


# loaders -----------------------------------------------------------------------------------------


def test_evidence_mini_is_loaded_whole():
    found, needs = evidence.load_evidence("evidence-mini"), evidence.load_needs("evidence-mini")
    assert [d.id for d in found] == sorted(d["id"] for d in read("abstracts"))
    assert {d.source for d in found} == {"evidence-mini"} and len(needs) == 72
    assert all((DATA / name).is_file() for name in evidence.FILES["evidence-mini"])


def test_what_there_is_not_is_said():
    with pytest.raises(
        ValueError, match="no evidence 'mini'; there are: evidence-mini, open, tga:"
    ):
        evidence.load_evidence("mini")
    with pytest.raises(FileNotFoundError, match="as [*].txt into data/none, or set evidence = "):
        evidence.load_needs("tga:data/none")
    names = [load_profile(name).evidence["name"] for name in ("mini", "open", "paper")]
    assert names == ["evidence-mini", "open", "tga:data/leaflets"]


def test_a_folder_of_leaflets_is_a_set_of_needs(tmp_path):
    text = "Why am I using abacavir?\nIt treats HIV.\nHow do I use abacavir?\nTwice a day.\n"
    (tmp_path / "abacavir.txt").write_text(text)
    needs = evidence.load_needs(f"tga:{tmp_path}")
    assert [(n.medicine, n.heading, n.answer) for n in needs] == [
        ("abacavir", 1, "It treats HIV."), ("abacavir", 4, "Twice a day."),
    ]  # fmt: skip


@pytest.mark.mirror
def test_the_open_evidence_is_dated_real_abstracts(mirror):
    found = evidence.load_evidence("open")
    by = Counter(d.source for d in found)
    assert by == {"PubMedQA": 942, "Evidence Inference": 479}
    years = {s: sorted(d.year for d in found if d.source == s) for s in by}
    assert (years["PubMedQA"][0], years["PubMedQA"][-1]) == (1989, 2017)
    assert (years["Evidence Inference"][0], years["Evidence Inference"][-1]) == (2004, 2018)
    assert {d.citations for d in found} == {UNKNOWN} and len({d.id for d in found}) == 1421
    assert all(len(d.text.split()) > 15 and d.title and "<" not in d.title for d in found)
    effects = [e for d in found for e in d.meta.get("effects", [])]
    assert {e["effect"] for e in effects} == set(evidence.DIRECTIONS.values())
    asked = evidence.load_needs("open")
    assert [n.qid for n in asked] == [d.id for d in found]
    for d in found[-3:]:
        assert d.text.endswith(d.meta["conclusion"])


# measures of answers -----------------------------------------------------------------------------


def test_divergences_by_hand():
    """p = (1/2, 1/2, 0), q = (1/3, 0, 2/3) over the words a, b, c."""
    got = quality.divergences("a c c", "a b", epsilon=0.5)
    m = [(1 / 2 + 1 / 3) / 2, 1 / 4, 1 / 3]
    half = sum(p * math.log2(p / x) for p, x in zip((1 / 2, 1 / 2), m, strict=False))
    other = 1 / 3 * math.log2(1 / 3 / m[0]) + 2 / 3 * math.log2(2 / 3 / m[2])
    assert got["jsd"] == pytest.approx((half + other) / 2)
    p, q = [1.5 / 3.5, 1.5 / 3.5, 0.5 / 3.5], [1.5 / 4.5, 0.5 / 4.5, 2.5 / 4.5]
    assert got["kld"] == pytest.approx(sum(x * math.log2(x / y) for x, y in zip(p, q, strict=True)))
    turned = quality.divergences("a c c", "a b", epsilon=0.5, direction="answer", base=math.e)
    assert turned["kld"] == pytest.approx(
        sum(y * math.log(y / x) for x, y in zip(p, q, strict=True))
    )
    assert quality.divergences("A b.", "b a") == pytest.approx({"jsd": 0, "kld": 0})
    assert quality.divergences("a", "b")["jsd"] == pytest.approx(1)
    with pytest.raises(ValueError, match="without words"):
        quality.divergences("...", "a")


def test_vsim_is_the_cosine_of_means_over_known_words():
    vectors = {"a": np.array([1.0, 0.0]), "b": np.array([0.0, 1.0])}
    assert quality.vsim("a b", "a x", vectors) == pytest.approx(1 / math.sqrt(2))
    assert math.isnan(quality.vsim("x", "a", vectors))


def test_word_vectors_are_the_same_twice():
    texts = [d["text"] for d in read("abstracts")[:12]]
    a, b = (quality.word_vectors(texts, size=8) for _ in range(2))
    assert a.index_to_key == b.index_to_key and (a.vectors == b.vectors).all()
    counts = Counter(w for t in texts for w in quality.words(t))
    assert set(a.index_to_key) == {w for w, n in counts.items() if n > 1}


def test_bertscore_is_greedy_matching():
    said, wanted = ["the drug works"], ["the drug fails to work"]
    (same,) = quality.bertscore(wanted, wanted, str(minilm_folder()))
    (got,) = quality.bertscore(said, wanted, str(minilm_folder()))
    (turned,) = quality.bertscore(wanted, said, str(minilm_folder()))
    assert same == pytest.approx(1, abs=1e-5) and 0 < got < 1 and got == pytest.approx(turned)


def test_scores_of_answers(own_folders):
    table = pd.DataFrame({"qid": ["x", "y"], "answer": ["one two three four", "nothing alike"]})
    wanted = {"x": "one two three five", "y": "one two three five"}
    vectors = {"one": np.array([1.0, 0.0]), "nothing": np.array([0.6, 0.8])}
    got = quality.score_answers(table, wanted, ENCODER, vectors)
    assert got["rouge1"].tolist() == pytest.approx([3 / 4, 0])
    assert got["rouge2"].tolist() == pytest.approx([2 / 3, 0])
    assert got["rougeL"].tolist() == pytest.approx([3 / 4, 0])
    assert got["vsim_cosine"].tolist() == pytest.approx([1, 0.6])
    rows = ENCODER.encode(["one two three four", "one two three five"])
    assert got["bert_cosine"][0] == pytest.approx(float(rows[0] @ rows[1]), abs=1e-6)
    assert got["bertscore"].isna().all() and not got["jsd"].isna().any()


# the study ---------------------------------------------------------------------------------------


def test_pools_and_cnt_against_brute_force(lab):
    score = ByWords()
    assert len(lab.needs) == 12 and set(lab.ranked["qid"]) == set(lab.needs)
    for qid, pool in lab.ranked.groupby("qid"):
        own = {i for i, d in lab.evidence.items() if d.medicine == lab.needs[qid].medicine}
        assert set(pool["id"]) == own and len(own) <= 20
        for row in pool.itertuples():
            text = lab.evidence[row.id].text
            others = [
                s.value for s in score([(text, lab.evidence[i].text) for i in own - {row.id}])
            ]
            assert row.cnt == pytest.approx(np.mean(others))
        assert pool["score"].is_monotonic_decreasing
    assert len(lab.pairs) == sum(
        n * (n - 1) // 2 for n in lab.ranked.groupby("id")["qid"].first().pipe(
            lambda x: Counter(lab.evidence[i].medicine for i in x.index)).values()
    )  # fmt: skip


def test_another_ranking_keeps_pools_and_cnt(lab):
    again = study.reranked(lab, ENCODER, mmr="greedy", temporal="none")
    for part in (["qid", "id", "cnt"],):
        a, b = (t[part].sort_values(["qid", "id"], ignore_index=True) for t in (lab.ranked, again))
        pd.testing.assert_frame_equal(a, b)
    assert not again["id"].equals(lab.ranked["id"])


def test_the_tables_add_up(lab):
    found = study.documents(lab)
    ids = set(lab.ranked["id"])
    assert set(found["id"]) == ids and not found["period"].isna().any()
    heat, grid = study.heatmap(found), study.table3(found)
    assert list(heat) == ["cnt_bin", "period", "documents", "share", "reported"] and len(heat) == 30
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


def test_table_1_counts(lab):
    table = study.table1(lab).set_index("statistic")
    assert table["value"].to_dict() == pytest.approx({
        "medicines_tga": 2, "queries": 12, "abstract_year_first": 1975, "abstract_year_last": 2025,
        "pubmed_documents_raw": 174, "medicines_with_documents": 2,
        "pmids_after_selection": len(lab.ranked), "unique_pmids": lab.ranked["id"].nunique(),
        "avg_documents_per_query": len(lab.ranked) / 12,
    })  # fmt: skip
    assert table.loc["avg_documents_per_query", "reported"] == 13.96


def test_contexts_and_extracts(lab, own_folders):
    chosen = outcomes.contexts(lab, 3)
    assert set(chosen["condition"]) == {*CONDITIONS, *MATCHED} and len(chosen) == 60
    cnt = chosen.pivot(index="qid", columns="condition", values="cnt")
    for most, least in ((CONDITIONS[1], CONDITIONS[2]), MATCHED):
        assert (cnt[most] >= cnt[least]).all()
    said = outcomes.extracts(lab, chosen, ENCODER, words=60)
    for row in said.itertuples():
        whole = " ".join(lab.evidence[i].text for i in row.ids)
        assert len(row.answer.split()) <= 60 and row.answer[:40] in whole
    short = outcomes.extracts(lab, chosen[:2], ENCODER, words=1)
    assert (short["answer"].str.split().str.len() > 1).all(), "at least one sentence"


def test_a_chat_answer_and_its_absence(lab, monkeypatch):
    chosen = outcomes.contexts(lab, 2)
    llm = ScriptedChat([{"match": "numbered abstracts", "text": "Said."}])
    monkeypatch.setattr(outcomes, "connect", {"scripted": llm}.get)
    said = outcomes.chat_answers(lab, chosen, "scripted", "model")
    headings = Counter((lab.needs[q].medicine, lab.needs[q].heading) for q in said["qid"])
    assert len(headings) == 2 and set(headings.values()) == {5}, "one question a medicine"
    assert set(said["answer"]) == {"Said."} and set(said["how"]) == {""}
    every = outcomes.chat_answers(lab, chosen, "scripted", "model", every=True)
    assert len(every) == len(chosen) == len(said) * 6
    monkeypatch.undo()
    none = outcomes.chat_answers(lab, chosen, "replay:data/recordings/none.jsonl", "model")
    assert none["answer"].isna().all()
    assert none["how"].str.startswith("llm = lib.llm.connect('record:").all()


def test_table_2_and_its_tests(lab, own_folders):
    chats = [{"name": "model", "llm": "replay:data/recordings/none.jsonl"}]
    scored = outcomes.answered(lab, outcomes.contexts(lab, 3), ENCODER, chats)
    table = outcomes.table2(scored)
    assert len(table) == 2 * 5 * len(quality.METRICS)
    not_run = table[table["value"].isna()]
    assert set(not_run["verdict"]) == {"NOT RUN"} and (not_run["how"] != "").all()
    assert set(not_run.loc[not_run["answerer"] == outcomes.EXTRACT, "metric"]) == {"bertscore"}
    own = scored[(scored["answerer"] == outcomes.EXTRACT) & (scored["condition"] == CONDITIONS[0])]
    row = table[(table["condition"] == CONDITIONS[0]) & (table["metric"] == "rouge1")].iloc[0]
    by_hand = [own[own["medicine"] == m]["rouge1"].mean() for m in own["medicine"].unique()]
    assert row["value"] == pytest.approx(np.mean(by_hand)) and row["n"] == 12
    assert row["reported"] == pytest.approx(np.mean([0.154, 0.066, 0.114, 0.156, 0.163]))
    assert row["verdict"] == "DIFFERENT SETUP"
    tested = outcomes.tests(scored)
    assert set(tested["answerer"]) == {outcomes.EXTRACT} and len(tested) == 4 * 7
    assert (tested["n"] == 2).all(), "the unit is the medicine"
    wide = own.groupby("medicine")["rouge1"].mean()
    other = scored[
        (scored["answerer"] == outcomes.EXTRACT) & (scored["condition"] == CONDITIONS[1])
    ]
    first = tested[tested["label"] == "most contradictory − most similar"].iloc[0]
    assert first["difference"] == pytest.approx(
        (other.groupby("medicine")["rouge1"].mean() - wide).mean()
    )
    jsd = tested[tested["metric"] == "jsd"]
    assert (jsd["worse"] == (jsd["difference"] > 0)).all()


# checks ------------------------------------------------------------------------------------------


def test_agreement_against_all_couples():
    rng = np.random.default_rng(0)
    values, positive = rng.integers(0, 5, 40) / 5, rng.random(40) < 0.4
    row = checks.agreement("x", values, positive, rng.integers(0, 8, 40))
    wins = [(a > b) + (a == b) / 2 for a in values[positive] for b in values[~positive]]
    assert row["auroc"] == pytest.approx(np.mean(wins))
    assert row["low"] <= row["auroc"] <= row["high"] and row["groups"] == 8
    clear = checks.agreement("x", positive + 0.0, positive, range(40))
    assert (clear["auroc"], clear["low"], clear["verdict"]) == (1, 1, "ABOVE CHANCE")
    assert checks.agreement("x", values, [True] * 40, range(40))["verdict"] == "NOT RUN"
    assert checks.agreement("x", [], [], [])["verdict"] == "NOT RUN"


def test_stances_are_compared_within_a_topic(lab, monkeypatch):
    monkeypatch.setattr(
        checks, "_labelled", lambda backend: checks.agreement("sentences", [], [], [])
    )
    table = checks.checks(lab, ByWords(), ENCODER).set_index("check")
    docs = [d for d in lab.evidence.values() if d.id in set(lab.ranked["id"])]
    both = {"for", "against"}
    couples = [(a, b) for a, b in combinations(docs, 2)
               if a.topic == b.topic and {a.meta["stance"], b.meta["stance"]} <= both]  # fmt: skip
    opposite = sum(a.meta["stance"] != b.meta["stance"] for a, b in couples)
    assert table.loc["stance", "positives"] == opposite
    assert table.loc["stance", "negatives"] == len(couples) - opposite
    assert table.loc["length", "positives"] == table.loc["length", "negatives"] == len(lab.pairs)
    assert table.loc["length", "auroc"] == 1, "this null is 0 everywhere"
    assert set(table.index) == {"sentences", "length", "stance"}


def test_directions_need_the_same_intervention_and_outcome(own_folders):
    def effect(what, outcome, sign):
        return {"intervention": what, "outcome": outcome, "comparator": "placebo", "effect": sign}

    docs = {i: evidence.Evidence(i, i, f"text of {i}", 2010) for i in "abcd"}
    found = [("a", effect("aspirin daily", "death", "increased")),
             ("b", effect("aspirin daily", "death", "decreased")),
             ("c", effect("aspirin daily", "death", "decreased")),
             ("d", effect("oxygen", "death", "increased")),
             ("a", effect("aspirin daily", "stroke", "decreased"))]  # fmt: skip
    row = checks._directions(found, docs, ByWords(), ENCODER)
    assert (row["positives"], row["negatives"]) == (2, 1), "a-b and a-c differ, b-c agree"
    row = checks._statements(found, docs, ByWords())
    assert (row["positives"], row["negatives"], row["groups"]) == (5, 5, 4)


def test_mimics_compares_mean_cnt_of_the_top_k(own_folders):
    from lib.benchmarks import load_benchmark
    from lib.benchmarks import study as lambda_study
    from lib.corpus_index import build_index, corpus_store

    store = corpus_store(["ddx-mini"])
    index = build_index(store, ENCODER, progress=False)
    bench = lambda_study.prepare(load_benchmark("ddx-mini", ENCODER), index, ENCODER)
    table = checks.mimics(bench, store, ByWords(), 0.4, k=3)
    assert list(table["arm"]) == ["CHR, λ = 0.4"] * 4 + ["CHR, λ = 1"] * 4
    assert set(table["measure"]) == {"cnt", "excess"} and table["against"].nunique() == 3
    rows = bench.rows(bench.benchmark.test)
    means = {}
    for lam in (0.0, 0.4):
        found, _ = lambda_study.retrieve(bench, lambda_study.Condition(), lam, rows, depth=3)
        texts = {
            p.pid: p.text for p in store.get_many(sorted({i for x in found.values() for i in x}))
        }
        couples = {
            q: [(texts[a], texts[b]) for a, b in combinations(x, 2)] for q, x in found.items()
        }
        means[lam] = [np.mean([s.value for s in ByWords()(c)]) for c in couples.values()]
    assert table.loc[0, "value"] == pytest.approx(np.mean(means[0.4]))
    assert table.loc[0, "value_against"] == pytest.approx(np.mean(means[0.0]))
    assert (table["n"] == 96).all() and table["passed"].tolist() == pytest.approx([1 / 3] * 8)


# figures -----------------------------------------------------------------------------------------


def test_figures_show_every_number(lab):
    import matplotlib

    matplotlib.use("Agg")
    found = study.documents(lab)
    heat = study.heatmap(found)
    figure = plots.plot_heatmap(heat, "x")
    shown = [t.get_text() for axis in figure.axes for t in axis.texts]
    assert len(shown) == 120 and shown[:5] == [
        f"{n:,}" for n in heat[heat["period"] == "<2000"].sort_values("cnt_bin")["documents"]
    ]
    assert len(plots.plot_s_cnt(study.table3(found), "x").axes) == 3
    asked, nodes, links = study.timeline(lab)
    best = lab.pairs["value"].max()
    assert links["value"].iloc[0] == best and len(links) == 3 and asked
    assert {*links["a"], *links["b"]} <= set(nodes["id"])
    text = plots.plot_timeline(nodes, links, asked).axes[1].texts[0].get_text()
    assert all(s in " ".join(text.split()) for s in map(str.strip, links["sentence_a"]))
