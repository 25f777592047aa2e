"""What dev chooses, the declared tests with it, and the outcomes they are made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lib.studies.real.choice import (
    choices,
    chosen_lambdas,
    lambda_table,
    least_differences,
)
from lib.studies.real.measures import JUDGED_P, exam_outcome, headroom, read_option, values_of

from lib.data.judgments import Evidence, evidence
from lib.datasets import Question
from lib.studies.real.arms import LAMBDAS, added_arms, arms_of
from lib.study import declared_pairs, primary_tests


def pairs_at(exams: float, bioasq: float) -> list:
    return declared_pairs("real", chosen_lambdas({"exams": exams, "bioasq": bioasq}))


def arm_at(lam: float) -> str:
    return "hplus" if lam == 0 else f"chr@{lam:g}"


def dev_values(exams: dict[float, float], bioasq: dict[float, float]) -> pd.DataFrame:
    """Ten questions a set whose every outcome is the value given for its lambda."""
    rows = []
    for dataset, metric, by_lambda in (
        ("medqa", "supports_right_at_5", exams),
        ("mmlu", "supports_right_at_5", exams),
        ("bioasq", "p_at_5", bioasq),
    ):
        for i in range(10):
            for lam in LAMBDAS:
                row = (dataset, arm_at(lam), f"{dataset}-{i}", metric, by_lambda.get(lam, 0.0))
                rows.append(row)
    return pd.DataFrame(rows, columns=["dataset", "arm", "qid", "metric", "value"])


def test_dev_chooses_the_best_lambda_and_of_equals_the_smaller():
    table = lambda_table(dev_values({0.4: 0.5, 0.8: 0.5}, {0.0: 0.3, 1.2: 0.3}))
    assert choices(table) == {"exams": 0.4, "bioasq": 0.0}
    assert table.groupby("group")["chosen_in"].sum().to_list() == pytest.approx([1, 1])
    sure = table[table["chosen"]]
    assert sure["chosen_in"].to_list() == [1.0, 1.0]
    assert table.groupby("group")["n"].first().to_dict() == {"bioasq": 10, "exams": 20}


def test_a_test_at_lambda_0_is_void_and_one_that_became_another_counts_once():
    declared = primary_tests()["real"]["test"]
    at_dev = [t for t in declared if "{" in t["arm"] + t["against"]]
    of_exams = [t for t in at_dev if "{exams" in t["arm"] + t["against"]]
    assert len(pairs_at(0.4, 0.2)) == len(declared)
    assert len(pairs_at(0.0, 0.2)) == len(declared) - len(of_exams)
    for lam in (0.0, 1.0):
        pairs = pairs_at(lam, lam)
        assert len(pairs) == len(declared) - len(at_dev)
    assert all(pair.primary for pair in pairs)


def test_every_declared_arm_is_among_the_arms_that_are_searched():
    for lam in LAMBDAS[1:]:
        names = {arm.name for arm in arms_of(lam)}
        for pair in pairs_at(lam, lam):
            assert {pair.arm, pair.against} <= names


def test_names_of_arms_are_unique():
    names = [arm.name for arm in arms_of(0.2)]
    assert len(names) == len(set(names))


def test_the_least_difference_is_that_of_the_spread_at_the_size_of_the_test():
    values = dev_values({}, {})
    misled = values[values["dataset"] != "bioasq"].assign(metric="misled")
    values = pd.concat([values, misled], ignore_index=True)
    noise = np.random.default_rng(0).integers(0, 2, len(values)).astype(float)
    values["value"], values["metric"] = (
        noise,
        values["metric"].replace("supports_right_at_5", "hit_right"),
    )
    few = least_differences(values, {"exams": 0.4, "bioasq": 0.2}, {"exams": 300, "bioasq": 618})
    many = least_differences(values, {"exams": 0.4, "bioasq": 0.2}, {"exams": 1200, "bioasq": 2472})
    assert np.allclose(few["least"], 2 * many["least"]) and (few["least_holm"] > few["least"]).all()
    row = few[(few["arm"] == "chr@1") & (few["metric"] == "hit_right")].iloc[0]
    hits = values[values["metric"] == "hit_right"]
    exams = hits.pivot(index="qid", columns="arm", values="value")
    sd = (exams["chr@1"] - exams["hplus"]).std(ddof=1)
    assert row["least"] == pytest.approx(2.8 * sd / np.sqrt(300)) and row["dev_n"] == 20


# outcomes ----------------------------------------------------------------------------------------

QUESTION = Question("q", "Why?", {x: x for x in "ABCD"}, "B", "medqa")


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
        "supports_right_at_5": 0.4,
        "supports_wrong_at_5": 0.2,
        "on_topic_at_5": 0.4,
        "hit_right": 1.0,
        "misled": 1.0,
        "hit_right_any": 1.0,
        "misled_any": 1.0,
        "reads_right": 1.0,
        "reads_right_or_guess": 1.0,
        "abstains": 0.0,
        "judged_share": 0.6,
    }
    assert exam_outcome(QUESTION, [], {})["hit_right"] == 0.0


def test_a_label_counts_when_every_pass_gave_it():
    def row(judge: str, supports: str, topic: int | None = 3) -> dict:
        text = {"qid": "q", "pid": "a", "judge": judge, "on_topic": topic}
        return text | {"supports": supports, "contradicts": ""}

    one = evidence([row("first", "B"), row("second", "BC"), row("single", "D")])["q", "a"]
    assert (one.supports, one.supports_any) == (frozenset("B"), frozenset("BC"))
    assert evidence([row("first", "B"), row("second", "", None)])["q", "a"].supports == {"B"}
    assert evidence([row("first", "", None)]) == {}


def test_snippets_alone_are_the_list_without_what_no_expert_was_shown():
    """Two of three snippets are right, with passages of other corpora between them."""
    question = Question("b", "Is it?", {"A": "yes", "B": "no"}, "A", "bioasq")
    pids = ["medquad:1", "bioasq:1", "openstax:2", "bioasq:2", "pubmedqa:3", "bioasq:3"]
    rows = [("bioasq", "hplus", 0, "b", rank, pid) for rank, pid in enumerate(pids, 1)]
    runs = pd.DataFrame(rows, columns=["dataset", "arm", "draw", "qid", "rank", "pid"])
    targets = {"b": frozenset({"bioasq:1", "bioasq:3", "bioasq:9"})}
    found = values_of([question], runs, {}, targets).set_index("metric")["value"]
    assert found["p_at_5"] == pytest.approx(0.2) and found[JUDGED_P] == pytest.approx(2 / 3)


def test_arms_that_nobody_judged_are_for_bioasq_alone():
    named = [arm.name for arm in (*arms_of(0.2), *added_arms())]
    assert len(named) == len(set(named))
    assert {"chr+question1@1", "chr+pool10@1"} <= set(named)


def test_values_average_the_draws_of_a_control():
    runs = pd.DataFrame(
        [("medqa", "chr+rotation@1", draw, "q", 1, pid) for draw, pid in enumerate("ab")],
        columns=["dataset", "arm", "draw", "qid", "rank", "pid"],
    )
    labels = judged(a=Evidence(3, frozenset("B")), b=Evidence(0))
    values = values_of([QUESTION], runs, labels, {}).set_index("metric")["value"]
    assert values["hit_right"] == 0.5 and values["supports_right_at_5"] == pytest.approx(0.1)


def test_the_judged_reader_takes_the_most_support_by_rank_and_else_abstains():
    def at(letters: str) -> Evidence:
        return Evidence(3, frozenset(letters))

    assert read_option([at("A"), at("B")]) == "A"  # 1 against 1/2
    assert read_option([at(""), at("A"), at("B"), at("B"), None]) == "B"  # 1/2 against 7/12
    assert read_option([at("AB"), at("")]) is None and read_option([None]) is None


def test_headroom_is_what_the_whole_pool_holds_without_what_was_planted():
    labels = judged(a=Evidence(3, frozenset("B"))) | {
        ("q", "plant:counterfactual:q"): Evidence(3, frozenset("C"))
    }
    found = headroom([QUESTION], labels).set_index("metric")["value"]
    assert found.to_dict() == {"hit_right": 1.0, "misled": 0.0}
