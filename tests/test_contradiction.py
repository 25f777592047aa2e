"""The contradiction study: its data, its measures by hand, its tables by brute force."""

from __future__ import annotations

import json
import math
import re
import shutil
import zlib
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from lib.base.paths import DATA
from lib.base.provenance import data_hash, read_result, write_result
from lib.embed import HashEncoder
from lib.llm.chat import Reply, ScriptedChat
from lib.model_files import minilm_folder
from lib.plots import caption, figures, plot_curves, plot_dots
from lib.profiles import load_profile
from lib.studies.contradiction import checks, near, outcomes, quality, retrieved, study
from lib.studies.contradiction.cnt import PairScore, strangers
from lib.studies.contradiction.pools import CONDITIONS, MATCHED
from lib.studies.evidence import load as evidence
from lib.studies.contradiction.evidence import UNKNOWN
from tests.drawn import dots, levels, panel_titles_of
from tests.evidence_check import FIELDS, FOLDER, kappa, read, validate

ENCODER = HashEncoder(64)


class ByWords:
    """A scorer that needs no model: CNT is the share of the words of two texts that differ."""

    backend = None

    switches, encoder = {}, ENCODER

    def fitted(self, couples):
        return self

    def __call__(self, couples, counts=None, progress=False):
        out = []
        for a, b in couples:
            one, other = set(a.split()), set(b.split())
            out.append(PairScore(1 - len(one & other) / len(one | other), a[:20], b[:20], 9, 3))
        return out


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
    of_label = Counter(row["label"] for row in labels)
    agreed = sum(bool(row["label"]) for row in labels)
    on_card = re.search(r"\(contradiction (\d+), entailment\s(\d+), neutral (\d+)\)", card)
    numbers = [int(number) for number in on_card.groups()]
    assert [of_label[x] for x in ("contradiction", "entailment", "neutral")] == numbers
    assert f"agree on {agreed} of 210, Cohen's kappa {kappa(labels):.2f}" in card
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
        ValueError, match="no evidence 'mini'; there are: evidence-mini, open, labels, tga:"
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
        ("abacavir", 1, "It treats HIV."),
        ("abacavir", 4, "Twice a day."),
    ]


def old_leaflets(folder, *good: str):
    for name in good:
        text = f"Why am I using {name}?\nIt treats HIV.\nHow do I use {name}?\nTwice a day.\n"
        (folder / f"{name}.txt").write_text(text)
    (folder / "old.txt").write_text("What Abacavir is used for\nIt treats HIV.\n")
    return f"tga:{folder}"


def test_a_leaflet_in_an_old_format_is_left_out_and_named(tmp_path, capsys):
    name = old_leaflets(tmp_path, "abacavir", "ritonavir")
    assert {n.medicine for n in evidence.load_needs(name)} == {"abacavir", "ritonavir"}
    told = capsys.readouterr().err
    assert "1 of 3 leaflets are left out: old.txt; the first because old: found no heading" in told
    assert [path.rpartition("/")[2] for path in evidence.files_of(name)] == [
        "abacavir.txt",
        "old.txt",
        "ritonavir.txt",
    ]
    (tmp_path / "abacavir.txt").unlink()
    (tmp_path / "ritonavir.txt").unlink()
    with pytest.raises(ValueError, match="none of 1 leaflets can be read; the first: old: found"):
        evidence.load_needs(name)


def test_pubmed_is_asked_about_the_needs_that_are_studied(tmp_path, monkeypatch, capsys):
    name = old_leaflets(tmp_path, "abacavir", "pfizer")
    asked = []

    class Client:
        counts = Counter(searches=2)

    monkeypatch.setattr(evidence, "PubMed", Client)
    monkeypatch.setattr(
        evidence, "gather", lambda client, need, queries: asked.append(need.qid) or []
    )
    assert evidence.load_evidence(name) == []
    assert asked == ["abacavir-1", "abacavir-4"], "a maker is no medicine"
    told = capsys.readouterr().err
    assert "2 of 4 questions are left out: pfizer-1, pfizer-4; the first because" in told
    assert "PubMed: {'searches': 2}" in told
    asked.clear()
    evidence.load_evidence(name, evidence.load_needs(name)[:1])
    assert asked == ["abacavir-1"]


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


def test_vsim_is_cosine_and_dot_product_of_means_over_known_words():
    vectors = {"a": np.array([4.0, 0.0]), "b": np.array([0.0, 4.0])}
    got = quality.vsim("a b", "a x", vectors)
    assert got == pytest.approx({"vsim_cosine": 1 / math.sqrt(2), "vsim_dot": 2 * 4})
    longer = {word: 3 * vector for word, vector in vectors.items()}
    assert quality.vsim("a b", "a x", longer)["vsim_dot"] == pytest.approx(9 * got["vsim_dot"])
    assert all(map(math.isnan, quality.vsim("x", "a", vectors).values()))


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
    (nothing,) = quality.bertscore(["heart"], ["tax"], str(minilm_folder()))
    from sentence_transformers import SentenceTransformer

    rows = SentenceTransformer(str(minilm_folder()), device="cpu").encode(
        ["heart", "tax"], output_value="token_embeddings"
    )
    a, b = (r.numpy()[1] / np.linalg.norm(r.numpy()[1]) for r in rows)  # [CLS] heart [SEP]
    assert nothing == pytest.approx(float(a @ b), abs=1e-5)


def test_scores_of_answers(own_folders):
    table = pd.DataFrame({"qid": ["x", "y"], "answer": ["one two three four", "nothing alike"]})
    wanted = {"x": "one two three five", "y": "one two three five"}
    vectors = {"one": np.array([1.0, 0.0]), "nothing": np.array([0.6, 0.8])}
    got = quality.score_answers(table, wanted, ENCODER, vectors)
    assert got["rouge1"].tolist() == pytest.approx([3 / 4, 0])
    assert got["rouge2"].tolist() == pytest.approx([2 / 3, 0])
    assert got["rougeL"].tolist() == pytest.approx([3 / 4, 0])
    assert got["vsim_cosine"].tolist() == pytest.approx([1, 0.6])
    assert got["vsim_dot"].tolist() == pytest.approx([1, 0.6])
    rows = ENCODER.encode(["one two three four", "one two three five"])
    assert got["bert_cosine"][0] == pytest.approx(float(rows[0] @ rows[1]), abs=1e-6)
    assert got["bertscore"].isna().all() and not got["jsd"].isna().any()
    turned = quality.score_answers(table, wanted, ENCODER, vectors, direction="answer", base=math.e)
    assert turned["kld"][0] == pytest.approx(
        quality.divergences(table["answer"][0], wanted["x"], direction="answer", base=math.e)["kld"]
    )


@pytest.mark.parametrize("said", ["...", "", None, "— ?"])
def test_an_answer_without_a_word_has_no_score_and_stops_nothing(own_folders, said):
    wanted = {"x": "one two", "y": "one two"}
    table = pd.DataFrame({"qid": ["x", "y"], "answer": [said, "one two"]}, index=[7, 3])
    got = quality.score_answers(table, wanted, ENCODER, {})
    assert got.loc[7, list(quality.METRICS)].isna().all() and got.loc[3, "rouge1"] == 1
    none = quality.score_answers(table[:1], wanted, ENCODER, {})
    assert none[list(quality.METRICS)].isna().all(axis=None) and len(none) == 1


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
    of_medicine = Counter(lab.evidence[i].medicine for i in set(lab.ranked["id"]))
    assert len(lab.pairs) == sum(n * (n - 1) // 2 for n in of_medicine.values())


def small(monkeypatch, found: dict[str, list[str]], texts: dict[str, str]):
    """Two medicines, three questions each; ``found``: what PubMed has for each question."""
    needs = [
        evidence.Need(f"{m}-{n}", m, n, f"Why {m} {n}?", "Because.")
        for m in ("aaa", "bbb")
        for n in (1, 2, 3)
    ]
    docs = [
        evidence.Evidence(i, i, texts[i], 2000 + n, medicine=q[:3], topic=q)
        for q, ids in found.items()
        for n, i in enumerate(ids)
    ]
    monkeypatch.setattr(study, "load_needs", lambda name: needs)
    monkeypatch.setattr(study, "load_evidence", lambda name, needs: docs)


def test_a_question_that_pubmed_found_nothing_for_has_no_pool(monkeypatch, own_folders):
    texts = {i: f"one {i} of {i}" for i in "abcde"}
    small(monkeypatch, {"aaa-1": ["a", "b", "c"], "aaa-3": ["b", "d"]}, texts)
    made = study.open_study("tga:x", ENCODER, ByWords())
    pools = made.ranked.groupby("qid")["id"].agg(set).to_dict()
    assert pools == {"aaa-1": {"a", "b", "c"}, "aaa-3": {"b", "d"}}
    table = study.table1(made).set_index("statistic")["value"]
    assert table["medicines_tga"] == 2 and table["medicines_with_documents"] == 1
    assert table["queries"] == 6 and table["queries_without_documents"] == 4
    assert table["avg_documents_per_query"] == 5 / 2
    assert set(outcomes.contexts(made, 2)["qid"]) == {"aaa-1", "aaa-3"}
    small(monkeypatch, {}, texts)
    with pytest.raises(ValueError, match="no abstract was found for any of 6 questions"):
        study.open_study("tga:x", ENCODER, ByWords())


def test_what_will_be_scored_is_said_before_and_algorithm_1_has_its_switches(
    monkeypatch, own_folders, capsys
):
    from lib.studies.contradiction.cnt import Scorer

    class Silent:
        name, fingerprint, symmetric = "silent", "silent", True

        def contradiction(self, pairs):
            told.append(capsys.readouterr().err)
            return np.zeros(len(pairs))

    told, texts = [], {f"d{i:02d}": f"Text {i} of some words. More." for i in range(30)}
    small(monkeypatch, {"aaa-1": sorted(texts)}, texts)
    score = Scorer(Silent(), ENCODER, {"sentence_filter": "percentile", "percentile": 90})
    made = study.open_study("tga:x", ENCODER, score)
    assert "tga:x: 1 of 6 questions have abstracts" in told[0]
    assert "190 pairs of abstracts, about 760 pairs of sentences" in told[0]
    assert "scored by silent" in told[0] and made.score.threshold is not None
    assert made.pairs["passed"].sum() == sum(
        s.passed
        for s in made.score([(texts[a], texts[b]) for a, b in made.pairs[["a", "b"]].to_numpy()])
    )
    wide = study.open_study("tga:x", ENCODER, score, selection={"limit": 25})
    assert len(made.ranked) == 20 and len(wide.ranked) == 25


def test_another_ranking_keeps_pools_and_cnt(lab):
    again = study.reranked(lab, ENCODER, mmr="greedy", temporal="none")
    columns = ["qid", "id", "cnt"]
    before = lab.ranked[columns].sort_values(["qid", "id"], ignore_index=True)
    after = again[columns].sort_values(["qid", "id"], ignore_index=True)
    pd.testing.assert_frame_equal(before, after)
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
    assert table["value"].to_dict() == pytest.approx(
        {
            "medicines_tga": 2,
            "queries": 12,
            "abstract_year_first": 1975,
            "abstract_year_last": 2025,
            "pubmed_documents_raw": 174,
            "medicines_with_documents": 2,
            "pmids_after_selection": len(lab.ranked),
            "unique_pmids": lab.ranked["id"].nunique(),
            "avg_documents_per_query": len(lab.ranked) / 12,
            "queries_without_documents": 0,
        }
    )
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
    table = outcomes.describe_contexts(lab, chosen).set_index("condition")
    for name, own in chosen.groupby("condition"):
        years = [lab.evidence[i].year for ids in own["ids"] for i in ids]
        assert table.loc[name, "year"] == pytest.approx(np.mean(years))
        assert table.loc[name, ["year_10", "year_50", "year_90"]].tolist() == pytest.approx(
            np.percentile(years, [10, 50, 90])
        )
    assert list(table.index) == [*CONDITIONS, *MATCHED] and (table["contexts"] == 12).all()
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
    assert set(said["kind"]) == {"answer"} and set(none["kind"]) == {"not run"}


@pytest.mark.parametrize(
    "text, finish, kind",
    [
        ("Aspirin thins the blood.", "stop", "answer"),
        ("Aspirin thins the", "length", "truncated"),
        ("The answer is:", "stop", "echo"),
        ("Answer: Why am I using aspirin?", "stop", "echo"),
        ("The answer is: No.", "stop", "answer"),
        ("INSUFFICIENT EVIDENCE", "stop", "insufficient"),
        ("Insufficient evidence.", "stop", "insufficient"),
        ("...", "length", "empty"),
        ("There is insufficient evidence that it helps.", "stop", "answer"),
    ],
)
def test_what_kind_of_answer_it_is(text, finish, kind):
    assert outcomes.kind_of_answer(text, "Why am I using aspirin?", finish) == kind
    assert kind in outcomes.KINDS


def test_answers_that_are_none_are_counted(lab, own_folders, monkeypatch):
    replies = iter(["...", "The answer is:", "INSUFFICIENT EVIDENCE"])

    class Model:
        def tag(self, *_):
            return nullcontext()

        def generate(self, messages, max_tokens):
            return [Reply(next(replies, "Words."), "stop", 1, 1, 1.0, "x")]

    monkeypatch.setattr(outcomes, "connect", lambda spec: Model())
    chosen = outcomes.contexts(lab, 2)
    scored = outcomes.measured_answers(
        lab, chosen, ENCODER, [{"name": "m", "llm": "x", "workers": 1}]
    )
    own = scored[scored["answerer"] == "m"]
    assert Counter(own["kind"]) == {"empty": 1, "echo": 1, "insufficient": 1, "answer": 7}
    assert own["rouge1"].isna().sum() == 1, "what has a word is measured"
    table = outcomes.kinds_of_answers(scored)
    assert list(table) == list(outcomes.KINDS) and table.to_numpy().sum() == len(scored)
    assert table.loc["m"].sum().to_dict() == dict.fromkeys(outcomes.KINDS, 0) | Counter(own["kind"])
    table2 = outcomes.table2(scored)
    first = table2[(table2["answerer"] == "m") & (table2["metric"] == "rouge1")].iloc[0]
    assert (first["n"], first["answers"]) == (1, 1), "of two medicines one said no word"


def through_a_file(table):
    """As ``lib.base.provenance.make_or_reuse`` gives it back."""
    write_result(table, "table", "mini", code=["lib.base.files"], data=[])
    return read_result("table", "mini")[0]


def test_table_2_and_its_tests(lab, own_folders):
    chats = [{"name": "model", "llm": "replay:data/recordings/none.jsonl"}]
    made = outcomes.measured_answers(lab, outcomes.contexts(lab, 3), ENCODER, chats)
    scored = through_a_file(made)
    table = outcomes.table2(scored)
    assert len(table) == 2 * 5 * len(quality.METRICS)
    not_run = table[table["value"].isna()]
    assert set(not_run["verdict"]) == {"NOT RUN"} and (not_run["how"] != "").all()
    assert set(table.loc[table["value"].notna(), "how"]) == {""}
    assert set(not_run.loc[not_run["answerer"] == outcomes.EXTRACT, "metric"]) == {"bertscore"}
    own = scored[(scored["answerer"] == outcomes.EXTRACT) & (scored["condition"] == CONDITIONS[0])]
    row = table[(table["condition"] == CONDITIONS[0]) & (table["metric"] == "rouge1")].iloc[0]
    by_hand = [own[own["medicine"] == m]["rouge1"].mean() for m in own["medicine"].unique()]
    assert row["value"] == pytest.approx(np.mean(by_hand))
    assert (row["n"], row["answers"]) == (2, 12), "the unit is the medicine"
    assert row["reported"] == pytest.approx(np.mean([0.154, 0.066, 0.114, 0.156, 0.163]))
    assert row["verdict"] == "DIFFERENT SETUP" and row["reported_of"] == "mean of 5"
    tested = outcomes.tests(scored)
    assert set(tested["answerer"]) == {outcomes.EXTRACT} and len(tested) == 4 * 8
    assert (tested["n"] == 2).all()
    wide = own.groupby("medicine")["rouge1"].mean()
    other = scored[
        (scored["answerer"] == outcomes.EXTRACT) & (scored["condition"] == CONDITIONS[1])
    ]
    first = tested[tested["label"] == "most contradictory − most similar"].iloc[0]
    assert first["difference"] == pytest.approx(
        (other.groupby("medicine")["rouge1"].mean() - wide).mean()
    )


def test_a_model_of_the_paper_stands_beside_its_own_numbers(lab, own_folders):
    scored = outcomes.measured_answers(lab, outcomes.contexts(lab, 3), ENCODER, [])
    table = outcomes.table2(scored.assign(answerer="Gemma-3"))
    row = table[(table["condition"] == CONDITIONS[1]) & (table["metric"] == "kld")].iloc[0]
    assert (row["reported"], row["reported_of"]) == (2.290, "Gemma-3")


def invented(medicines: int, **shift: float) -> pd.DataFrame:
    """Measured answers, two questions a medicine; ``shift`` is added to a condition's values."""
    rng, rows = np.random.default_rng(0), []
    for n in range(medicines):
        for q in range(2):
            base = rng.random()
            for condition in (*CONDITIONS, *MATCHED):
                value = base + shift.get(condition, 0) + rng.normal(scale=0.01)
                rows.append(
                    {
                        "answerer": "x",
                        "qid": f"{n}-{q}",
                        "medicine": f"m{n}",
                        "words": 5,
                        "condition": condition,
                        "how": "",
                        "kind": "answer",
                    }
                    | dict.fromkeys(quality.METRICS, value)
                )
    return pd.DataFrame(rows)


def test_what_is_missing_drops_one_pair_and_not_the_measure():
    """Rows are told apart by medicine, in whatever order; both sides keep the same questions."""
    scored = invented(8)
    gone = (scored["medicine"] == "m3") & (scored["condition"] == CONDITIONS[1])
    scored.loc[gone, "vsim_cosine"] = np.nan
    one = (scored["qid"] == "5-0") & (scored["condition"] == CONDITIONS[0])
    scored.loc[one, "vsim_cosine"] = np.nan
    tested = outcomes.tests(scored.sample(frac=1, random_state=1))
    own = tested[tested["metric"] == "vsim_cosine"].set_index("label")
    first = own.loc["most contradictory − most similar"]
    assert first["n"] == 7 and own.loc["least contradictory − most similar", "n"] == 8
    wide = scored.pivot(index=["medicine", "qid"], columns="condition", values="vsim_cosine")
    both = wide[[CONDITIONS[1], CONDITIONS[0]]].dropna().groupby("medicine").mean()
    assert first["difference"] == pytest.approx((both.iloc[:, 0] - both.iloc[:, 1]).mean())
    assert (tested[tested["metric"] == "rouge1"]["n"] == 8).all()


def test_the_papers_claims_stand_beside_intervals_and_nothing_is_concluded():
    tested = outcomes.tests(invented(12, most_similar=0.5, least_contradictory=-0.2))
    own = tested.set_index(["metric", "label"])
    similar, least = "most contradictory − most similar", "most contradictory − least contradictory"
    assert (
        own.loc[("rouge1", similar), "claim"] == "lower"
        and own.loc[("rouge1", similar), "high"] < 0
    )
    assert own.loc[("rouge1", least), "low"] > 0
    assert own.loc[("kld", similar), "claim"] == "higher"
    assert own.loc[("jsd", similar), "claim"] == ""
    assert not {"p", "p_holm", "verdict"} & set(tested), "none of these was declared"


# checks ------------------------------------------------------------------------------------------


def test_auroc_against_all_couples():
    rng = np.random.default_rng(0)
    values, positive = rng.integers(0, 5, 40) / 5, rng.random(40) < 0.4
    row = checks.auroc_row("x", values, positive, rng.integers(0, 8, 40))
    wins = [(a > b) + (a == b) / 2 for a in values[positive] for b in values[~positive]]
    assert row["auroc"] == pytest.approx(np.mean(wins))
    assert row["low"] <= row["auroc"] <= row["high"] and row["groups"] == 8
    clear = checks.auroc_row("x", positive + 0.0, positive, range(40))
    assert (clear["auroc"], clear["low"]) == (1, 1) and "verdict" not in clear
    assert np.isnan(checks.auroc_row("x", values, [True] * 40, range(40))["auroc"])


def test_stances_are_compared_within_a_topic(lab, monkeypatch):
    one_pair = checks.pairs_of("sentences", [0.5], [True], ["g"])
    monkeypatch.setattr(checks, "_sentences", lambda backend: one_pair)
    table = checks.checks_table(checks.check_values(lab)).set_index("check")
    docs = [d for d in lab.evidence.values() if d.id in set(lab.ranked["id"])]
    both = {"for", "against"}
    couples = [
        (a, b)
        for a, b in combinations(docs, 2)
        if a.topic == b.topic and {a.meta["stance"], b.meta["stance"]} <= both
    ]
    opposite = sum(a.meta["stance"] != b.meta["stance"] for a, b in couples)
    assert table.loc["stance", "positives"] == opposite
    assert table.loc["stance", "negatives"] == len(couples) - opposite
    assert set(table.index) == {"sentences", "length", "length, as many compared", "stance"}
    for name in ("length", "length, as many compared"):
        assert table.loc[name, "positives"] == table.loc[name, "negatives"] == len(lab.pairs)
    texts = {i: d.text for i, d in lab.evidence.items()}
    couples = lab.pairs[["a", "b"]].to_numpy().tolist()
    null = [(texts[a], texts[b]) for a, b in strangers(couples, texts, lab.pools())]
    values = [s.value for s in ByWords()(null)]
    assert table.loc["length", "mean_negative"] == pytest.approx(np.mean(values))
    assert table.loc["length", "mean_positive"] == pytest.approx(lab.pairs["value"].mean())
    one = replace(lab, ranked=lab.ranked[lab.ranked["qid"].isin(list(lab.needs)[:6])])
    assert not checks.check_values(one)["check"].str.startswith("length").any()


def test_maxima_say_how_far_cnt_counts_opportunities(lab, own_folders):
    from lib.studies.contradiction.cnt import Scorer

    class Random:
        name, fingerprint, symmetric = "random", "random", True

        def contradiction(self, pairs):
            return np.array([zlib.crc32("|".join(p).encode()) / 2**32 for p in pairs])

    score = Scorer(Random(), ENCODER, {"sentence_filter": "percentile", "percentile": 80})
    texts = [
        (lab.evidence[a].text, lab.evidence[b].text) for a, b in lab.pairs[["a", "b"]].to_numpy()
    ]
    table = checks.maxima(replace(lab, score=score.fitted(texts))).set_index("top")
    assert table.loc[1, "mean"] > table.loc[3, "mean"]
    assert table["with_top_1"].between(0, 1 + 1e-9).all()
    assert table.loc[1, "with_compared"] > 0.3, "a maximum over more is higher"
    assert (table["n"] == len(lab.pairs)).all()


def test_statements_state_an_effect_and_turn_it_round(lab):
    def effect(what, outcome, sign):
        return {"intervention": what, "outcome": outcome, "comparator": "placebo", "effect": sign}

    docs = {i: evidence.Evidence(i, i, f"text of {i}", 2010) for i in "abcd"}
    found = [
        ("a", effect("aspirin daily", "death", "increased")),
        ("b", effect("aspirin daily", "death", "decreased")),
        ("d", effect("oxygen", "death", "increased")),
        ("a", effect("aspirin daily", "stroke", "decreased")),
    ]
    pairs = checks._statements(found, replace(lab, evidence=docs))
    assert pairs["positive"].tolist() == [0, 1, 1, 0, 0, 1, 1, 0]
    assert pairs["group"].tolist() == [0, 0, 1, 1, 2, 2, 0, 0]  # an article is resampled whole


def test_mimics_compares_mean_cnt_of_the_top_k(own_folders):
    from lib.benchmarks import load_benchmark
    from lib.index_build import build_index, corpus_store
    from lib.query_spec import SearchSpec
    from lib.run import Retriever
    from lib.studies.lambda_sweep.arms import Arm
    from lib.studies.lambda_sweep.study import found_by, open_study

    store = corpus_store(["ddx-mini"])
    index = build_index(store, ENCODER, progress=False)
    study = open_study(load_benchmark("ddx-mini"), Retriever(index, ENCODER, store))
    values = retrieved.mimic_values(study, store, ByWords(), 0.4, k=3)
    table = retrieved.mimics_table(values.sample(frac=1, random_state=0), "ddx-mini", 0.4)
    assert not {"p", "p_holm"} & set(table)
    assert list(table["arm"]) == ["chr@0.4"] * 4 + ["chr@1"] * 4
    assert set(table["measure"]) == {"cnt", "excess"} and table["against"].nunique() == 3

    def mean_of_pairs(spec: SearchSpec, draw: int = 0) -> float:
        found = found_by(study, Arm(spec), study.benchmark.test, depth=3, draw=draw)
        means = []
        for pids in found.values():
            texts = [passage.text for passage in store.get_many(pids)]
            means.append(np.mean([s.value for s in ByWords()(list(combinations(texts, 2)))]))
        return float(np.mean(means))

    assert table.loc[0, "value"] == pytest.approx(mean_of_pairs(SearchSpec(lam=0.4)))
    assert table.loc[0, "value_against"] == pytest.approx(mean_of_pairs(SearchSpec()))
    turned = table[table["against"] == "chr+rotation@0.4"].iloc[0]
    each = [
        mean_of_pairs(SearchSpec(lam=0.4, rotation=True), draw) for draw in range(retrieved.DRAWS)
    ]
    assert turned["value_against"] == pytest.approx(np.mean(each))
    assert (table["n"] == 96).all() and table["passed"].tolist() == pytest.approx([1 / 3] * 8)


def test_the_studys_results_know_what_they_are_read_from():
    score = study.Scorer(type("B", (), {"fingerprint": "x"}), ENCODER, {"percentile": 90})
    mini = study.provenance("evidence-mini", score, labelled=["evidence-mini pairs"], k=5)
    assert {
        "evidence-mini/labels.jsonl",
        "nli-head/weights.npz",
        "reported/contradiction_table2.csv",
    } <= set(mini["data"])
    sets = ["scifact held-out", "bioclaim", "evidence-mini pairs"]
    both = study.provenance("open", score, labelled=sets)
    assert {
        "scifact-claims",
        "bioclaim-val",
        "nli-head/held_out.txt",
        "nli-head/nearest.csv",
        "evidence-mini/pairs.jsonl",
        "pubmedqa-labelled",
    } <= set(both["data"])
    assert data_hash(both["data"]) != data_hash(mini["data"])


# figures -----------------------------------------------------------------------------------------


def test_the_quality_of_every_model_is_drawn_where_it_is_and_beside_chance():
    import matplotlib

    matplotlib.use("Agg")
    rows = []
    for place, name in enumerate(("one", "two")):
        for backend, auroc in (("head", 0.6), ("cosine", 0.7 + place / 10)):
            low, high = auroc - 0.1, auroc + 0.05
            row = {"backend": backend, "set": name, "auroc": auroc, "n": 10 + place}
            rows.append(row | {"auroc_low": low, "auroc_high": high})
    table = pd.DataFrame(rows)
    figure = plot_dots(figures.quality_rows(table), "x", "AUROC", levels={"guessing": 0.5})
    assert panel_titles_of(figure) == ["one, n = 10", "two, n = 11"]
    for place, axis in enumerate(figure.axes):
        expected = {"head": (0.6, True), "cosine": (0.7 + place / 10, True)}
        assert dots(axis) == expected and levels(axis) == [0.5]
    assert caption("nli_quality", table, least=0.65, trained_on=("three",)) == (
        "“cosine” lies above 0.65 with its whole interval on 1 of 2 sets, no other on any"
    )
    trained = caption("nli_quality", table, least=0.65, trained_on=("two",))
    assert "on 1 of 2 sets (1 of them of its training's kind), no other" in trained


def test_figures_show_every_number(lab):
    import matplotlib

    matplotlib.use("Agg")
    heat = study.heatmap(study.documents(lab))
    both = [heat.assign(contradiction=name) for name in ("judged", "modelled")]
    for parts, panels in ((both, 3), (both[1:], 2)):
        figure = figures.plot_scores(pd.concat(parts), "x")
        shown = [t.get_text() for axis in figure.axes for t in axis.texts]
        assert len(figure.axes) == panels + 1 and len(shown) == 30 * panels
        assert figure.axes[-1].get_ylabel() == "share of a period's documents"
    first = heat[heat["period"] == "<2000"].sort_values("cnt_bin")["share"]
    assert shown[:5] == ["–" if np.isnan(value) else f"{value:.0%}" for value in first]
    asked, nodes, links = study.timeline(lab)
    best = lab.pairs["value"].max()
    assert links["value"].iloc[0] == best and len(links) == 3 and asked
    assert {*links["a"], *links["b"]} <= set(nodes["id"])
    figures.plot_timeline(nodes.assign(side="pubmed", cnt=0.0), links, asked)
    figure = figures.plot_timeline(nodes, links, asked)
    (text,) = [text.get_text() for text in figure.subfigs[1].texts]
    assert all(s in " ".join(text.split()) for s in map(str.strip, links["sentence_a"]))
    assert max(map(len, text.splitlines())) <= 108
    named = [t.get_text() for t in figure.axes[0].texts if not t.get_text().isdigit()]
    assert len(named) == len({*links["a"], *links["b"]})  # the others are dots alone
    judged = links.assign(reason="population")
    below = figures.plot_timeline(nodes, judged, asked).subfigs[1].texts[0].get_text()
    assert "1  population" in below


def test_every_period_and_its_interval_is_drawn_a_line_a_source():
    import matplotlib

    matplotlib.use("Agg")
    none = (np.nan, np.nan)
    rows = [("paper", "p", "<2000", 0.4, *none), ("paper", "p", "2000-2005", 0.5, *none)]
    rows += [("open", "o", "<2000", 0.0, 0.0, 0.1), ("open", "o", "all", 0.9, 0.8, 1.0)]
    columns = ["source", "label", "period", "value", "low", "high"]
    counts = {"group": ["near"], "measure": ["same"], "count": [9], "n": [340]}
    title = caption("periods", pd.DataFrame(counts))
    table = pd.DataFrame(rows, columns=columns).assign(n=9)
    looks = {"panel": "panel", "line": "label", "x": "period"}
    (axis,) = plot_curves(figures.period_rows(table), title, **looks).axes
    assert "Of 340 real abstracts 9 are" in title
    assert [t.get_text() for t in axis.get_xticklabels()] == ["<2000", "2000-2005"]
    assert [t.get_text() for t in axis.texts] == ["p", "o"]
    drawn = [list(line.get_ydata()) for line in axis.lines]
    assert drawn[:2] == [[0.4, 0.5], [0.0]]


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


def test_real_labels_ask_the_abstracts_of_open(mirror):
    needs, abstracts = evidence.load_needs("labels"), evidence.load_evidence("labels")
    assert len({need.medicine for need in needs}) == 5 and all(need.answer for need in needs)
    assert [a.id for a in abstracts] == [a.id for a in evidence.load_evidence("open")]
    assert {"openfda-viagra", "pubmedqa-labelled"} <= set(evidence.files_of("labels"))


def test_the_papers_answerers_stand_beside_what_is_asked_here():
    table = study.table4(load_profile("paper").evidence["answerers"]).set_index("model")
    assert len(table) == 5 and (table["runs_as"] != "").all()
    assert table.loc["GPT-OSS-20b", ["parameters", "context"]].tolist() == ["21", "128"]
    assert study.table4()["runs_as"].eq("").all()
