"""Whether a judge is an instrument: measured on judges whose faults are known."""

from __future__ import annotations

import pandas as pd
import pytest

from lib.datasets import Question
from lib.studies.real.quality import (
    agreement,
    control_errors,
    known_truth,
    passes_quality_gate,
)
from tools.judging import _EVERY, _is_judged_again, control_items

QUESTIONS = {
    f"q{i}": Question(f"q{i}", "Why?", dict.fromkeys("ABCD", "x"), "A", "medqa") for i in range(40)
}


def row(qid: str, pid: str, judge: str, supports: str = "", topic: int | None = 0) -> dict:
    text = {"qid": qid, "pid": pid, "judge": judge, "on_topic": topic}
    return text | {"supports": supports, "contradicts": ""}


def two_passes(says_again) -> list[dict]:
    """Each question has two passages that speak, for A, and twenty that do not; ``says_again`` is
    what the second pass says of each, by the first's word."""
    rows = []
    for qid in QUESTIONS:
        for i in range(22):
            said = "A" if i < 2 else ""
            one = row(qid, f"p{i}", "first", said, 3 if said else 0)
            rows.append(one)
            if _is_judged_again(not said, qid, f"p{i}"):
                rows.append(row(qid, f"p{i}", "second", says_again(said, i), 3 if said else 0))
    return rows


def kappa_of(rows: list[dict], label: str = "supports") -> float:
    table = agreement(rows, QUESTIONS)
    return table.set_index(["check", "label"])["value"]["kappa of first and second pass", label]


def test_kappa_is_that_of_all_items_although_silent_ones_are_sampled():
    # The second pass keeps one of two labels and adds none: known 2 x 2 table per question.
    found = kappa_of(two_passes(lambda said, i: said if i == 0 else ""))
    # Items x options for one question: 1 both, 1 first only, 0 second only, 86 neither.
    both, first, neither = 1, 1, 86
    n = both + first + neither
    chance = ((both + first) * both + (n - both - first) * (n - both)) / n**2
    expected = ((both + neither) / n - chance) / (1 - chance)
    assert found == pytest.approx(expected, abs=0.02)


def made_items():
    pool = {f"p{i}": f"text {i}" for i in range(9)}
    made = []
    for place, question in enumerate(QUESTIONS.values()):
        made += control_items(question, place, pool, ["a stranger"], "false words")
    return made


def labels_of(items, fault: str = "") -> list[dict]:
    """What a careful judge says, but for one kind, where he does the contrary."""
    rows = [
        row(qid, f"p{i}", "first", "A" if i == 3 else "") for qid in QUESTIONS for i in range(9)
    ]
    for item in items:
        supported = item.supports or ("A" if item.like == "p3" else "")
        if item.kind == fault:
            supported = "" if supported else "B"
        rows.append(row(item.qid, item.item, "first", supported, 3))
    return rows


@pytest.mark.parametrize("kind", ["", *_EVERY])
def test_a_fault_shows_in_its_own_kind_of_control_item(kind):
    items = made_items()
    assert {item.kind for item in items} == set(_EVERY)
    table = control_errors(labels_of(items, kind), items).set_index("check")["value"]
    if kind:
        assert table.pop(f"planted: {kind}") == 1
        assert 0 < table.pop("planted: all planted items") < 1
    assert table.eq(0).all()


def test_known_truth_tells_sensitivity_and_specificity():
    rows = [row("q0", "p0", "first", "A", 3), row("q0", "p1", "first", "", 1)]
    rows.append(row("q1", "p0", "first", "B", 2))
    classes = {("q0", "p0"): "expert", ("q0", "p1"): "other", ("q1", "p0"): "expert"}
    table = known_truth(rows, QUESTIONS, classes).set_index(["check", "label"])["value"]
    assert table["medqa: expert", "on topic"] == 1 and table["medqa: other", "on topic"] == 0
    assert table["medqa: expert", "supports right"] == 0.5
    assert table["medqa: expert", "supports wrong"] == 0.5


@pytest.mark.parametrize(
    ("kappa", "planted", "counterfactual", "passes"),
    [(0.7, 0.01, 0.03, True), (0.59, 0.01, 0.03, False), (0.7, 0.06, 0.03, False)]
    + [(0.7, 0.01, 0.06, False)],
)
def test_verdicts_need_kappa_and_few_errors_of_either_kind(kappa, planted, counterfactual, passes):
    rows = [
        ("kappa of first and second pass", "supports", kappa),
        ("planted: all planted items", "error", planted),
        ("planted: counterfactual", "error", counterfactual),
    ]
    assert passes_quality_gate(pd.DataFrame(rows, columns=["check", "label", "value"])) is passes
