"""The real sample: who is in it, what is written for it, and what was declared beforehand."""

from __future__ import annotations

from collections import Counter

import pytest

from lib.datasets import (
    EXAMS,
    asks_for_the_exception,
    in_full,
    load_bioasq_dev,
    load_questions,
    load_real,
    pictures,
)
from lib.studies.lam.claims import primary_tests


@pytest.fixture(scope="module")
def sample(mirror) -> dict:
    return {split: load_real(split) for split in ("dev", "test")}


def test_the_sample_has_the_sizes_that_were_declared(sample):
    sizes = {split: Counter(q.dataset for q in questions) for split, questions in sample.items()}
    assert sizes["test"] == {"medqa": 150, "mmlu": 150, "bioasq": 618}
    assert sizes["dev"] == {"medqa": 40, "mmlu": 40, "bioasq": 60}
    assert all(q.split == split for split, questions in sample.items() for q in questions)


def test_dev_and_test_share_no_question_and_no_stem(sample):
    for kind in ("qid", "text"):
        dev, test = ({getattr(q, kind) for q in sample[split]} for split in ("dev", "test"))
        assert not dev & test


def test_bioasq_dev_is_of_the_questions_that_may_be_tuned_on(sample):
    allowed = {q.qid for q in load_bioasq_dev()}
    dev = [q for q in sample["dev"] if q.dataset == "bioasq"]
    assert {q.qid for q in dev} <= allowed and not any(q.options for q in dev)


def test_a_question_that_needs_a_picture_is_in_no_half(sample):
    for name in EXAMS:
        known = {q.qid for q in load_questions(name)}
        assert pictures(name) <= known  # a misspelt id would leave nothing out
        drawn = {q.qid for questions in sample.values() for q in questions if q.dataset == name}
        assert not drawn & pictures(name)


def test_in_full_keeps_every_exam_question_and_150_of_bioasq(sample):
    kept = in_full(sample["test"])
    assert Counter(q.dataset for q in kept) == {"medqa": 150, "mmlu": 150, "bioasq": 150}
    assert kept == [q for q in sample["test"] if q in kept]  # order and objects as they were


def test_questions_that_ask_for_the_exception_are_known(mirror):
    counts = {name: sum(map(asks_for_the_exception, load_questions(name))) for name in EXAMS}
    assert counts == {"medqa": 2, "mmlu": 31}


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="dev and test"):
        load_real("train")


def test_every_declared_test_names_a_metric_two_arms_and_a_direction():
    declared = primary_tests()["real"]
    assert 0 < declared["margin"] < 0.2
    for test in declared["test"]:
        assert test["metric"] in ("hit_right", "misled", "p_at_5")
        assert test["arm"] != test["against"]
        assert test.get("sign", 1) == (-1 if test["metric"] == "misled" else 1)
    assert len(declared["test"]) == 15
