"""Diseases read without an LLM: the questions, their options, and accuracy by what was found."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lib.studies.lambda_sweep.corruption import exchanged
from lib.studies.lambda_sweep.reading import OPTIONS, asked, read_arms, reading_table

from lib.base import paths, provenance
from lib.benchmarks import Benchmark
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.profiles import load_profile
from lib.query_spec import DRAWS, SearchSpec
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.stats import measure
from lib.studies.lambda_sweep import reading
from lib.studies.lambda_sweep.arms import Arm
from lib.studies.lambda_sweep.study import Study, found_by, open_study
from lib.studies.naming import named_option

N, DEV = 15, 5
LAMBDAS = [0.4, 1.0]
ENCODER = HashEncoder(dim=96)
_ITIS = ("Arbor", "Borel", "Cedar", "Dorad", "Elmor", "Finch", "Gorse", "Holly")
_OSIS = ("Ivory", "Jolly", "Karst", "Larch", "Maple", "Norse", "Olive")
NAMES = (*(f"{start}itis" for start in _ITIS), *(f"{start}osis" for start in _OSIS))
QIDS = tuple(f"C{i:02d}" for i in range(N))
SIGNS = ("fever", "rash", "cough", "tremor", "oedema", "pallor", "nausea", "vertigo", "fatigue")


def signs(i: int, n: int = 4) -> str:
    return " ".join(SIGNS[(i * step + step) % len(SIGNS)] for step in range(1, n + 1))


H_PLUS = tuple(f"{NAMES[i]} shows as {signs(i)} in region{i % 6} tissue{i}" for i in range(N))


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    """Fifteen diseases, three passages on each and one that its H+ is taken from."""
    folder = tmp_path_factory.mktemp("reading")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(folder / "cache"))
        passages = [Passage(f"{q}-own", "", H_PLUS[i], "own", {}) for i, q in enumerate(QIDS)]
        for i, qid in enumerate(QIDS):
            for j, part in enumerate(("tissue", "region", "signs")):
                words = {"tissue": f"tissue{i}", "region": f"region{i % 6}", "signs": signs(i, 3)}
                text = f"Patients with {NAMES[i]} have {words[part]} and part{j} of {signs(i + j)}"
                passages.append(Passage(f"{qid}-{j}", "", text, "other", {}))
        passages.sort(key=lambda p: p.pid)
        ids, texts = [p.pid for p in passages], [p.text for p in passages]
        store = PassageStore.build(folder / "store.sqlite", passages)
        index = DenseIndex([ENCODER.encode(texts, "article")], ids)
        near = [[(i + step) % N for step in (1, 2, 3, 6, 7)] for i in range(N)]
        benchmark = Benchmark(
            name="made-diseases",
            title="made-up diseases",
            corpora=("ddx-mini",),
            qids=QIDS,
            questions=tuple(f"What is {name}?" for name in NAMES),
            h_plus=H_PLUS,
            h_minus={"nearest": tuple(H_PLUS[own[0]] for own in near)},
            targets={q: frozenset(f"{q}-{j}" for j in range(3)) for q in QIDS},
            mimics={
                q: frozenset(f"{QIDS[near[i][0]]}-{j}" for j in range(3))
                for i, q in enumerate(QIDS)
            },
            several=tuple(tuple(H_PLUS[j] for j in own) for own in near),
            dev=frozenset(QIDS[:DEV]),
            excluded={q: frozenset({f"{q}-own"}) for q in QIDS},
            names={q: (name, f"{name} syndrome") for q, name in zip(QIDS, NAMES, strict=True)},
            files=("ddx-mini/qrels.jsonl",),
        )
        retriever = Retriever(index, ENCODER, store, BM25Index.build(texts, ids))
        yield open_study(benchmark, retriever)


@pytest.fixture(scope="module")
def values(study) -> pd.DataFrame:
    return read_arms(study, LAMBDAS, [Arm(SearchSpec(form="max", mimic="several", lam=0.4))])


# questions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS)
def test_every_test_disease_is_asked_for_among_five_names(study, options):
    b = study.benchmark
    questions = asked(study, options)
    assert [q.qid for q in questions] == list(b.test)
    for question in questions:
        i = QIDS.index(question.qid)
        assert question.options[question.answer] == NAMES[i]
        assert sorted(question.options) == list("ABCDE")
        assert len(set(question.options.values())) == 5 and set(question.options.values()) <= set(
            NAMES
        )
    assert asked(study, options) == questions  # drawn by id, so always the same
    assert len({q.answer for q in questions}) > 2  # the right one is not always first


def test_near_options_are_the_likest_diseases_and_random_ones_any_others(study):
    b = study.benchmark
    name_of = dict(zip(b.h_plus, NAMES, strict=True))
    for question in asked(study, "near"):
        i = QIDS.index(question.qid)
        nearest = [name_of[text] for text in b.several[i]][:4]
        assert set(question.options.values()) == {NAMES[i], *nearest}
    drawn = [set(q.options.values()) - {NAMES[QIDS.index(q.qid)]} for q in asked(study, "random")]
    assert len(set().union(*drawn)) > 10 and len(set(map(frozenset, drawn))) == len(drawn)
    near = [set(q.options.values()) for q in asked(study, "near")]
    assert all(own - options for own, options in zip(drawn, near, strict=True))


def test_the_question_is_the_description_without_the_words_of_its_name(study):
    for question in asked(study, "near"):
        i = QIDS.index(question.qid)
        assert NAMES[i].lower() not in question.text.lower()
        start = "Which condition is this? "
        assert question.text.startswith(start)
        assert question.text.removeprefix(start) == H_PLUS[i].replace(NAMES[i], "…")


def test_every_form_of_a_word_of_the_name_is_struck_and_short_words_stay(study):
    b = study.benchmark
    i = QIDS.index(b.test[0])
    names = {**b.names, QIDS[i]: ("Gout of the knees",)}
    h_plus = list(b.h_plus)
    h_plus[i] = "Gouty GOUT, a gout of the knee or knees; it hurts."
    several = tuple(tuple(h_plus[H_PLUS.index(t)] for t in own) for own in b.several)
    changed = replace(b, names=names, h_plus=tuple(h_plus), several=several)
    (question,) = [q for q in asked(replace(study, benchmark=changed), "near") if q.qid == QIDS[i]]
    words = question.text.removeprefix("Which condition is this? ")
    assert words == "… …, a … of the knee or …; it hurts."


# who reads what ----------------------------------------------------------------------------------


def answered(question, passages: list[Passage]) -> str:
    """The option that brings the question nearest to a passage, from the definition."""

    def embedded(text: str) -> np.ndarray:
        return ENCODER.encode([text])[0].astype(np.float64)

    stem = " ".join(question.text.split()[-60:])
    rows = [embedded(p.text) for p in passages]
    support = {}
    for letter, option in sorted(question.options.items()):
        gains = [(embedded(f"{stem} {option}") - embedded(stem)) @ row for row in rows]
        support[letter] = round(float(max(gains, default=0.0)), 5)
    return max(support, key=support.get)


def outcome(values: pd.DataFrame, arm: str, metric: str) -> pd.Series:
    own = values[(values["arm"] == arm) & (values["metric"] == metric)]
    return own.set_index("qid")["value"]


@pytest.mark.parametrize("name", ["hplus", "chr@0.4", "chr@1", "max@0.4", "random"])
def test_an_arm_is_read_as_its_definition_says(study, values, name):
    spec = {
        "hplus": SearchSpec(),
        "chr@0.4": SearchSpec(lam=0.4),
        "chr@1": SearchSpec(lam=1.0),
        "max@0.4": SearchSpec(form="max", mimic="several", lam=0.4),
        "random": SearchSpec(form="random"),
    }[name]
    b = study.benchmark
    found = found_by(study, Arm(spec), b.test, depth=5)
    for options in OPTIONS:
        right = outcome(values, name, f"right_{options}")
        for question in asked(study, options):
            passages = study.retriever.store.get_many(found[question.qid])
            want = answered(question, passages) == question.answer
            assert right[question.qid] == want, (name, question.qid)
    table = measure(found, {q: b.targets[q] for q in b.test}, b.mimics, 5)
    assert outcome(values, name, "p_at_5")[table.index].tolist() == table["p_at_5"].tolist()
    assert outcome(values, name, "found")[table.index].tolist() == table["hit_at_5"].tolist()


def test_a_control_is_read_as_the_mean_over_its_draws(study, values):
    arm, questions = Arm(SearchSpec(lam=1.0, rotation=True)), asked(study, "near")[:4]
    qids = [q.qid for q in questions]
    total = dict.fromkeys(qids, 0.0)
    for draw in range(DRAWS):
        found = found_by(study, arm, study.benchmark.test, depth=5, draw=draw)
        for question in questions:
            passages = study.retriever.store.get_many(found[question.qid])
            total[question.qid] += answered(question, passages) == question.answer
    right = outcome(values, "chr+rotation@1", "right_near")
    assert right[qids].tolist() == pytest.approx([total[q] / DRAWS for q in qids])


def test_what_needs_no_retrieval_stands_beside(study, values):
    b = study.benchmark
    for options in OPTIONS:
        as_passage = outcome(values, "hplus_as_passage", f"right_{options}")
        named = outcome(values, "named_option", f"right_{options}")
        for question in asked(study, options):
            text = b.h_plus[QIDS.index(question.qid)]
            alone = [Passage("x", "", text, "", {})]
            want = answered(question, alone) == question.answer
            assert as_passage[question.qid] == want
            assert named[question.qid] == (named_option(text, question.options) == question.answer)
        assert (named == 1).all()  # every H+ here names its disease: what makes it no instrument
    for arm in ("hplus_as_passage", "named_option"):
        assert set(values[values["arm"] == arm]["metric"]) == {"right_near", "right_random"}


def test_a_text_that_names_no_option_or_two_is_wrong(study):
    b = study.benchmark
    first, second = b.test[:2]
    own = asked(study, "near")[1]
    texts = list(b.h_plus)
    texts[QIDS.index(first)] = f"It shows as {signs(3)}"
    texts[QIDS.index(second)] = " or ".join(list(own.options.values())[:2])
    several = tuple(tuple(texts[H_PLUS.index(t)] for t in old) for old in b.several)
    nearest = tuple(own[0] for own in several)
    changed = replace(b, h_plus=tuple(texts), several=several, h_minus={"nearest": nearest})
    made = open_study(changed, study.retriever)
    questions = {kind: asked(made, kind) for kind in OPTIONS}
    table = reading._named(made, questions)
    right = outcome(table, "named_option", "right_near")
    assert right[first] == right[second] == 0 and (right.drop([first, second]) == 1).all()


def test_what_may_not_be_found_is_read_by_nobody(study, values):
    """The passage that H+ is taken from is the likest to the question, and is left out."""
    b = study.benchmark
    given = list(reading._contexts(study, asked(study, "near"), LAMBDAS, []))
    retrieved = [arm for arm in given if arm.retrieved]
    assert {"asked_dense", "asked_bm25", "asked_rrf"} < {arm.name for arm in retrieved}
    for arm in retrieved:
        for contexts in arm.draws:
            for qid, passages in contexts.items():
                assert f"{qid}-own" not in {p.pid for p in passages}, arm.name
                assert len(passages) == 5 or arm.name == "asked_bm25"
    free = open_study(replace(b, excluded={}), study.retriever)
    first = next(iter(reading._contexts(free, asked(free, "near"), LAMBDAS, [])))
    assert any(f"{q}-own" in {p.pid for p in own} for q, own in first.draws[0].items())


def test_exchanged_hypotheses_are_read_too(study, values):
    found = [
        found_by(
            exchanged(study, 0.4, seed), Arm(SearchSpec(lam=0.4)), study.benchmark.test, depth=5
        )
        for seed in range(reading.EXCHANGES)
    ]
    question = asked(study, "near")[2]
    rights = [
        answered(question, study.retriever.store.get_many(own[question.qid])) == question.answer
        for own in found
    ]
    right = outcome(values, "chr@0.4+exchanged0.4", "right_near")
    assert right[question.qid] == pytest.approx(np.mean(rights))
    names = set(values["arm"])
    assert {f"{arm}+exchanged{s}" for arm in ("hplus", "chr@1") for s in ("0.2", "0.4")} <= names


# accuracy ----------------------------------------------------------------------------------------


def test_accuracy_is_split_by_whether_a_target_was_found(study, values):
    table = reading_table(values)
    assert len(table) == 2 * values["arm"].nunique()
    for row in table.to_dict("records"):
        right = outcome(values, row["arm"], f"right_{row['options']}")
        assert row["accuracy"] == pytest.approx(right.mean()) and row["n"] == len(right) == N - DEV
        assert row["low"] <= row["accuracy"] <= row["high"]
        found = outcome(values, row["arm"], "found")
        if found.empty:
            assert np.isnan(row["p_at_5"]) and np.isnan(row["n_found"])
            continue
        there = [q for q in right.index if found[q] >= 0.5]
        gone = [q for q in right.index if found[q] < 0.5]
        assert (row["n_found"], row["n_not_found"]) == (len(there), len(gone))
        assert row["found"] == pytest.approx(found.mean())
        for qids, name in ((there, "accuracy_found"), (gone, "accuracy_not_found")):
            if qids:
                assert row[name] == pytest.approx(right[qids].mean())
            else:
                assert np.isnan(row[name])
    shown = table[table["arm"] == "random"]
    assert (shown["n_not_found"] > 0).all() and (
        shown["n_found"] + shown["n_not_found"] == 10
    ).all()


def test_the_tables_are_kept_under_their_names(study, own_folders, monkeypatch):
    monkeypatch.setattr(reading, "SHARES", ())
    profile = load_profile("mini")
    dev = {
        "one mimic": Arm(SearchSpec(lam=0.2)),
        "question added": Arm(SearchSpec(lam=0.4, question_weight=1.0)),
    }
    found = reading.reading_results(study, profile, dev)
    assert set(found) == {"values", "table"}
    table, settings = provenance.read_result("made_diseases_reading_table", "mini")
    assert settings["lambdas"] == [0.2, 0.4, 1.0] and settings["chosen"] == ["chr+question1@0.4"]
    values, _ = provenance.read_result("values_made_diseases_reading", "mini")
    pd.testing.assert_frame_equal(values, found["values"])
    pd.testing.assert_frame_equal(table, found["table"])
    assert {"chr@0.2", "chr+rotation@0.2", "chr+question1@0.4", "hplus"} <= set(table["arm"])
    assert len(list(paths.results("mini").glob("*.csv"))) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"names": {}}, "no names for C00, C01, C02"),
        ({"several": ()}, "no several mimics"),
        ({"several": (("unknown",),) * N}, "a mimic of C00 is no other one's H"),
        ({"names": dict.fromkeys(QIDS, ("Gout",))}, "too few diseases for 5 options"),
    ],
)
def test_a_set_that_cannot_be_read_says_why(study, change, why):
    lacking = replace(study, benchmark=replace(study.benchmark, **change))
    with pytest.raises(ValueError, match=re.escape(f"made-diseases cannot be read: {why}")):
        asked(lacking, "near")


def test_without_a_choice_nothing_is_read(study):
    with pytest.raises(ValueError, match="no dev questions chose a lambda"):
        reading.reading_results(study, load_profile("mini"), {})
