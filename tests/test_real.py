"""The real sample: outcomes, what dev chooses, declared tests, subgroups, cases, and its texts."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from lib.corpora import load_passages
from lib.data.judgments import Evidence, evidence
from lib.data.store import PassageStore
from lib.datasets import Question, load_real
from lib.embed import HashEncoder
from lib.llm.chat import ScriptedChat
from lib.llm.recorder import Recorder
from lib.methods.base import Expansion
from lib.query_spec import Hypotheses, Text
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.studies.real.arms import (
    EXAM_DRAWS,
    JUDGED_P,
    LAMBDAS,
    Sample,
    added_searches,
    bioasq_outcomes,
    exam_outcome,
    outcomes,
    read_option,
    searches,
)
from lib.studies.real.study import (
    CASES,
    SHOWN,
    case_counts,
    case_table,
    case_texts,
    choices,
    claims_table,
    fitting,
    lambda_table,
    purity_table,
    real_pairs,
)
from lib.study import primary_tests
from tools.own_writer import SHOWN as WRITERS_ARMS
from tools.own_writer import ask_again, beside_the_recorded, written_by

COLUMNS = ["dataset", "arm", "qid", "metric", "value"]
QUESTION = Question("q", "Why?", {x: x for x in "ABCD"}, "B", "medqa")

# outcomes ----------------------------------------------------------------------------------------


def judged(**by_pid) -> dict:
    return {("q", pid): one for pid, one in by_pid.items()}


def test_an_outcome_counts_five_places_and_says_how_many_were_judged():
    labels = judged(
        a=Evidence(3, frozenset("B"), supports_any=frozenset("B")),
        b=Evidence(2, frozenset("BC"), supports_any=frozenset("BC")),
        c=Evidence(1, supports_any=frozenset("D")),
        f=Evidence(3, frozenset("B")),
    )
    found = exam_outcome(QUESTION, ["a", "b", "c", "d", "e", "f"], labels)
    assert found == {
        "share_correct_at_5": 0.4,
        "share_wrong_at_5": 0.2,
        "on_topic_at_5": 0.4,
        "supports_correct": 1.0,
        "supports_wrong": 1.0,
        "supports_correct_any": 1.0,
        "supports_wrong_any": 1.0,
        "reads_right": 1.0,
        "reads_right_or_guess": 1.0,
        "abstains": 0.0,
        "judged_share": 0.6,
    }
    nothing = exam_outcome(QUESTION, [], {})
    assert nothing["supports_correct"] == 0 and nothing["reads_right_or_guess"] == 0.25


def test_a_label_counts_when_every_pass_gave_it():
    def row(judge: str, supports: str, topic: int | None = 3) -> dict:
        text = {"qid": "q", "pid": "a", "judge": judge, "on_topic": topic}
        return text | {"supports": supports, "contradicts": ""}

    one = evidence([row("first", "B"), row("second", "BC"), row("single", "D")])["q", "a"]
    assert (one.supports, one.supports_any) == (frozenset("B"), frozenset("BC"))
    assert evidence([row("first", "B"), row("second", "", None)])["q", "a"].supports == {"B"}
    assert evidence([row("first", "", None)]) == {}


def test_the_judged_reader_takes_the_most_support_by_rank_and_else_abstains():
    def at(letters: str) -> Evidence:
        return Evidence(3, frozenset(letters))

    assert read_option([at("A"), at("B")]) == "A"  # 1 against 1/2
    assert read_option([at(""), at("A"), at("B"), at("B"), None]) == "B"  # 1/2 against 7/12
    assert read_option([at("AB"), at("")]) is None and read_option([None]) is None


def test_snippets_alone_are_the_list_without_what_no_expert_was_shown():
    """Two of three snippets are right, with passages of other corpora between them."""
    pids = ["medquad:1", "bioasq:1", "openstax:2", "bioasq:2", "pubmedqa:3", "bioasq:3"]
    targets = {"b": frozenset({"bioasq:1", "bioasq:3", "bioasq:9"})}
    found = bioasq_outcomes({"b": pids}, targets).loc["b"]
    assert found["p_at_5"] == pytest.approx(0.2) and found[JUDGED_P] == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Sample:
    """Four questions of MedQA with hypotheses for all but the last, and twenty passages."""
    encoder, words = HashEncoder(64), ("gout", "sepsis", "burn", "sprain")
    texts = [f"{words[i % 4]} hurts {i}" for i in range(20)]
    pids = [f"p{i:02d}" for i in range(20)]
    asked = [
        Question(f"m{i}", f"why {w}?", QUESTION.options, "A", "medqa") for i, w in enumerate(words)
    ]
    written = {}
    for i, question in enumerate(asked):
        pair = (Text(words[i], role="target"), Text(words[i - 1], role="mimic"))
        written[question.qid] = Expansion(None if i == 3 else Hypotheses(pair))
    folder = tmp_path_factory.mktemp("real")
    passages = [type("P", (), {"pid": p})() for p in pids]
    index = DenseIndex([encoder.encode(texts, "article")], pids)
    retriever = Retriever(index, encoder, passages, BM25Index.build(texts, pids))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(folder))
        yield Sample(asked, {"hypotheses": written}, retriever)


def test_outcomes_are_searched_measured_and_averaged_over_draws(small, monkeypatch):
    labels = {
        (q.qid, f"p{i:02d}"): Evidence(3, frozenset("A")) for q in small.questions for i in (0, 5)
    }
    small.__dict__["judged"] = labels
    values = outcomes(small, {"exams": searches(), "bioasq": searches()})
    assert set(values["qid"]) <= {q.qid for q in small.questions} and set(values["dataset"]) == {
        "medqa"
    }
    by_arm = values.groupby("arm")["qid"].unique().map(set)
    assert by_arm["question"] == {"m0", "m1", "m2", "m3"}  # m3 has no hypotheses, so no rows
    assert by_arm["chr@0.4"] == {"m0", "m1", "m2"} and "hyde" not in by_arm
    group = small.groups["exams"]
    (arm,) = [arm for arm in group.arms(searches()) if arm.name == "chr+stranger@0.4"]
    assert arm.draws == EXAM_DRAWS
    each = []
    for draw in range(EXAM_DRAWS):
        (hit,) = small.retriever.search_many([arm.request("m0", draw)], 10)
        each.append(exam_outcome(group.questions[0], hit.ids[0].tolist(), labels))
    got = values[(values["arm"] == arm.name) & (values["qid"] == "m0")].set_index("metric")["value"]
    for metric, value in got.items():
        assert value == pytest.approx(np.mean([one[metric] for one in each]))


# what dev chooses, and what was declared ---------------------------------------------------------


def dev_values(exams: dict[float, float], bioasq: dict[float, float]) -> pd.DataFrame:
    """Ten questions a set whose every outcome is the value given for its lambda."""
    rows = []
    for dataset, by_lambda in (("medqa", exams), ("mmlu", exams), ("bioasq", bioasq)):
        metric = "p_at_5" if dataset == "bioasq" else "share_correct_at_5"
        for i in range(10):
            for lam in LAMBDAS:
                arm = "hplus" if lam == 0 else f"chr@{lam:g}"
                rows.append((dataset, arm, f"{dataset}-{i}", metric, by_lambda.get(lam, 0.0)))
    return pd.DataFrame(rows, columns=COLUMNS)


def test_dev_chooses_the_best_lambda_and_of_equals_the_smaller():
    table = lambda_table(dev_values({0.4: 0.5, 0.8: 0.5}, {0.0: 0.3, 1.2: 0.3}))
    assert choices(table) == {"exams": 0.4, "bioasq": 0.0}
    assert table.groupby("group")["chosen_in"].sum().to_list() == pytest.approx([1, 1])
    assert table[table["chosen"]]["chosen_in"].to_list() == [1.0, 1.0]
    assert table.groupby("group")["n"].first().to_dict() == {"bioasq": 10, "exams": 20}


def test_a_test_at_lambda_0_is_void_and_every_declared_arm_is_searched():
    declared = primary_tests()["real"]["test"]
    at_dev = [t for t in declared if "{" in t["arm"] + t["baseline"]]
    of_exams = [t for t in at_dev if "{exams" in t["arm"] + t["baseline"]]
    pairs_at = {
        pair: real_pairs({"exams": pair[0], "bioasq": pair[1]}) for pair in [(0.4, 0.2), (0, 0.2)]
    }
    assert [len(pairs) for pairs in pairs_at.values()] == [
        len(declared),
        len(declared) - len(of_exams),
    ]
    for lam in LAMBDAS:
        pairs = real_pairs({"exams": lam, "bioasq": lam})
        assert {name for p in pairs for name in (p.arm, p.baseline)} <= searches(lam).keys()
        if lam in (0.0, 1.0):  # void, or the same as the paper's
            assert len(pairs) == len(declared) - len(at_dev)
    assert not searches(0.2).keys() & added_searches().keys()  # nobody judged those


# tables ------------------------------------------------------------------------------------------

ARMS = ("hplus", "chr@1", "chr+rotation@1", "hyde-options", "hplus+hplus-stem", "question")
NO_DEV = {"exams": 0.0, "bioasq": 0.0}


def values_of(outcome, metrics=("supports_correct", "supports_wrong")) -> pd.DataFrame:
    """Forty exam questions a set; ``outcome(arm, metric, i)`` is what an arm scores on the ith."""
    rows = [
        (dataset, arm, f"{dataset}-{i}", metric, float(outcome(arm, metric, i)))
        for dataset in ("medqa", "mmlu")
        for arm in ARMS
        for metric in metrics
        for i in range(40)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def fewer_misled(arm, metric, i):
    """Contrast misleads on no question, all else on half of them; it loses no right support."""
    return metric == "supports_correct" or (arm != "chr@1" and i % 2 > 0)


def loses_both(arm, metric, i):
    return (
        (arm != "chr@1" or i % 4 > 0)
        if metric == "supports_correct"
        else fewer_misled(arm, metric, i)
    )


@pytest.mark.parametrize(
    ("outcome", "verdicts", "supports_wrong", "supports_correct"),
    [
        (fewer_misled, True, ("SUPPORTED", "yes"), "INCONCLUSIVE"),
        (loses_both, True, ("SUPPORTED", "no"), "AGAINST"),
        (fewer_misled, False, ("", "no"), ""),
    ],
)
def test_a_fall_in_misled_is_exclusion_only_where_no_right_support_is_lost(
    outcome, verdicts, supports_wrong, supports_correct
):
    table = claims_table(values_of(outcome), NO_DEV, verdicts)
    primary = table[(table["status"] == "primary") & (table["baseline"] == "hplus")]
    primary = primary[primary["arm"] == "chr@1"].set_index("metric")
    assert tuple(primary.loc["supports_wrong", ["verdict", "excludes"]]) == supports_wrong
    assert primary.loc["supports_correct", "verdict"] == supports_correct
    assert table["p_holm"].notna().eq(table["status"] == "primary").all()
    assert (table["status"] == "exploratory").sum() > 5


def test_purity_is_of_the_passages_that_speak_not_of_the_places():
    """Contrast loses nine of ten passages for either side: fewer mislead, and purity stays."""

    def outcome(arm, metric, i):
        if arm == "question":
            return 0
        return (arm != "chr@1" or i % 10 == 0) * (0.8 if "correct" in metric else 0.2)

    metrics = ("share_correct_at_5", "share_wrong_at_5")
    found = purity_table(values_of(outcome, metrics)).set_index("arm")
    assert "question" not in found.index  # nothing speaks there
    assert found["value"].to_list() == pytest.approx([0.8] * (len(ARMS) - 1))
    assert found.loc["hplus", ["right", "wrong", "n"]].tolist() == pytest.approx([320, 80, 80])
    assert found.loc["chr@1", ["right", "wrong"]].tolist() == pytest.approx([32, 8])
    # Means of three draws are thirds of passages, also as they are on file.
    thirds = values_of(lambda arm, metric, i: round(2 / 15, 3), metrics)
    assert purity_table(thirds)["right"].to_list() == pytest.approx([80 * 2 / 3] * len(ARMS))


# subgroups and single questions ------------------------------------------------------------------


def by_question(hits: dict[str, dict[str, float]], metric: str) -> list:
    return [("medqa", arm, q, metric, v) for arm, own in hits.items() for q, v in own.items()]


def test_a_case_is_the_first_question_that_fits_its_kind_and_every_kind_is_counted(small):
    """Of four questions contrast finds the right option on m1 and m2; m2 comes first."""
    hits = {
        arm: {f"m{i}": float(arm == "chr@1" and i in (1, 2)) for i in range(4)} for arm in SHOWN
    }
    values = pd.DataFrame(
        by_question(hits, "supports_correct")
        + by_question(
            {arm: dict.fromkeys(own, 0.0) for arm, own in hits.items()}, "supports_wrong"
        ),
        columns=COLUMNS,
    )
    kind = "contrast finds the right option"
    fits = fitting(values)
    counts = case_counts(fits).set_index("kind")["questions"]
    assert counts.to_dict() == dict.fromkeys(CASES, 0) | {kind: 2}
    asked = [small.by_qid[qid] for qid in ("m0", "m2", "m1", "m3")]  # as the hashes have them
    sample = Sample(asked, small.written, small.retriever)
    (arm,) = [arm for arm in small.groups["exams"].arms(searches()) if arm.name == "chr@1"]
    (hit,) = small.retriever.search_many([arm.request("m2", 0)], 10)
    sample.__dict__["judged"] = {("m2", hit.ids[0][1]): Evidence(3, frozenset("AB"))}
    table = case_table(sample, fits)
    assert set(table["kind"]) == {kind} and set(table["qid"]) == {"m2"}
    assert table["rank"].max() == 5 and set(table["arm"]) == {"hplus", "chr@0.4", "chr@1"}
    says = table[(table["says"] != "") & (table["arm"] == "chr@1")]
    assert says[["rank", "says"]].to_numpy().tolist() == [[2, "both"]]
    (text,) = case_texts(table, small.written["hypotheses"]).itertuples()
    assert (text.h_plus, text.h_minus) == ("burn", "sepsis")


# what was written, and what is asked about it ----------------------------------------------------


# another writer ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few(mirror, tmp_path_factory):
    """Two questions of each set, and the snippets of BioASQ's two among two hundred others."""
    every = load_real("test")
    asked = [q for name in ("medqa", "mmlu", "bioasq") for q in every if q.dataset == name][:2]
    asked += [q for q in every if q.dataset == "mmlu"][:2]
    asked += [q for q in every if q.dataset == "bioasq"][:2]
    qids = {q.qid for q in asked}
    passages = list(load_passages("bioasq"))
    kept = [p for p in passages if qids & set(p.meta["qids"])] + passages[:200]
    kept = list({p.pid: p for p in kept}.values())
    encoder = HashEncoder(64)
    vectors = encoder.encode([p.text for p in kept], "article")
    store = PassageStore.build(tmp_path_factory.mktemp("few") / "few.sqlite", kept)
    return asked, Retriever(DenseIndex([vectors], [p.pid for p in kept]), encoder, store)


def test_your_own_writer_stands_beside_the_recorded_one_and_its_failures_count(few):
    """Of the six questions only one gets JSON: the other five are zeros, and are never left out."""
    questions, retriever = few
    reply = json.dumps({"H_plus": "It is gout.", "H_minus": "It is a sprain."})
    rules = [{"match": questions[0].text[:60], "text": reply}, {"match": "", "text": "no"}]
    table = beside_the_recorded(ScriptedChat(rules), questions, retriever)
    assert set(table["writer"]) == {"recorded", "reference text"}
    assert set(table["arm"]) == set(WRITERS_ARMS) and set(table["dataset"]) >= {"exams", "bioasq"}
    written = table[table["writer"] == "reference text"].set_index(["dataset", "metric", "arm"])
    assert written.loc[("exams", "supports_correct", "hplus"), "n"] == 4
    # Nobody judged these snippets for exam questions: the row says so, and supports nothing.
    assert written.loc[("exams", "judged_share", "hplus"), "value"] == 0
    assert written.loc[("exams", "abstains", "hplus"), "value"] == 1
    assert written.loc[("bioasq", "p_at_5", "chr@1"), ["value", "n"]].tolist() == [0, 2]


def test_only_what_your_writer_failed_on_is_asked_for_again(few, tmp_path, capsys):
    questions, _ = few
    good = {"match": "", "text": json.dumps({"H_plus": "It is gout.", "H_minus": "A sprain."})}
    bad = {"match": questions[0].text[:60], "text": "no"}
    file = tmp_path / "own.jsonl"
    with Recorder(ScriptedChat([bad, good]), file) as llm:
        assert sum(one.request is None for one in written_by(llm, questions)["hypotheses"].values())
    assert "own_writer --again" in capsys.readouterr().err
    with Recorder(ScriptedChat([{"match": bad["match"], "text": good["text"]}]), file) as llm:
        ask_again(llm, questions)
    with Recorder(ScriptedChat([]), file) as llm:
        made = written_by(llm, questions)["hypotheses"]
    assert all(one.request is not None for one in made.values())
