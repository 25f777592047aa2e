"""Judging sheets: what is hidden from a judge, and that a label counts only with its words."""

from __future__ import annotations

import pytest

from lib.datasets import Question
from lib.studies.real.sheets import (
    alone_messages,
    make_sheet,
    read_alone_labels,
    read_labels,
    sheet_messages,
)

QUESTION = Question(
    "q1",
    "Which drug treats this attack?",
    {"A": "Allopurinol", "B": "Naproxen", "C": "Furosemide", "D": "Metformin"},
    "B",
    "mine",
)
TEXTS = {
    "p1": "In an attack of gout a nonsteroidal drug in full dose relieves the pain within a day.",
    "p2": "Allopurinol lowers uric acid. Begun during an attack it may prolong it.",
    "p3": "Knee osteoarthritis improves with “regular\nexercise” – at any age.",
}


@pytest.fixture
def sheet():
    return make_sheet("s1", QUESTION, list(TEXTS), "seed")


def shown(sheet, own: str) -> str:
    return next(letter for letter, real in sheet.letters.items() if real == own)


def place(sheet, item: str) -> int:
    return sheet.items.index(item) + 1


def test_a_sheet_hides_arm_rank_key_and_the_options_order(sheet):
    asked = sheet_messages(sheet, QUESTION, TEXTS)[-1]["content"]
    assert all(text in asked for text in TEXTS.values())
    assert not any(pid in asked for pid in TEXTS)
    for letter, own in sheet.letters.items():
        assert f"{letter}. {QUESTION.options[own]}" in asked
    orders = {
        tuple(make_sheet(f"s{i}", QUESTION, list(TEXTS), "x").letters.items()) for i in range(9)
    }
    assert len(orders) > 3  # another sheet, another order
    assert make_sheet("s1", QUESTION, list(TEXTS)[::-1], "seed") == sheet


def test_labels_come_back_in_the_questions_own_letters_with_their_spans(sheet):
    b, a = shown(sheet, "B"), shown(sheet, "A")
    blocks = {
        "p1": f"topic 3\n+{b} Nonsteroidal drug  in full dose",
        "p2": f"topic 3\n-{a}: “begun during an attack it may prolong it.”",
        "p3": "topic 1",
    }
    reply = "\n".join(f"{n} {blocks[item]}" for n, item in enumerate(sheet.items, 1))
    labels = {label.item: label for label in read_labels(reply, sheet, TEXTS)}
    assert (labels["p1"].supports, labels["p1"].contradicts) == ("B", "")
    assert (labels["p2"].supports, labels["p2"].contradicts) == ("", "A")
    assert (labels["p3"].on_topic, labels["p3"].spans) == (1, ())
    for item, words in (("p1", "nonsteroidal drug in full dose"), ("p2", "Begun during")):
        start, length = labels[item].spans[0]
        assert TEXTS[item][start : start + length].startswith(words.split()[0])


def test_a_mark_without_words_of_the_passage_is_silent_and_counted(sheet):
    b = shown(sheet, "B")
    n = place(sheet, "p1")
    reply = f"{n} topic 3\n+{b} naproxen is the drug of choice\n+Z in full dose relieves"
    label = next(x for x in read_labels(reply, sheet, TEXTS) if x.item == "p1")
    assert (label.on_topic, label.supports, label.lost) == (3, "", 2)


def test_what_is_left_out_or_said_twice_is_unjudged_and_never_0(sheet):
    n, other = place(sheet, "p1"), place(sheet, "p2")
    reply = f"{n} topic 0\n{n} topic 3\n{other} topic seven"
    labels = {label.item: label.on_topic for label in read_labels(reply, sheet, TEXTS)}
    assert labels == {"p1": None, "p2": None, "p3": None}


def test_for_and_against_the_same_option_says_nothing(sheet):
    b, n = shown(sheet, "B"), place(sheet, "p1")
    words = "nonsteroidal drug in full dose"
    reply = f"{n} topic 3\n+{b} {words}\n-{b} {words}"
    label = next(x for x in read_labels(reply, sheet, TEXTS) if x.item == "p1")
    assert (label.supports, label.contradicts) == ("", "")


def test_passages_judged_by_themselves_come_back_to_their_own_sheets():
    sheets = [make_sheet(f"alone-{item}", QUESTION, [item], "seed") for item in TEXTS]
    asked = alone_messages(sheets, {"q1": QUESTION}, TEXTS)[-1]["content"]
    assert all(f"[{n}] {text}" in asked for n, text in enumerate(TEXTS.values(), 1))
    b = shown(sheets[0], "B")
    reply = f"1 topic 3\n+{b} nonsteroidal drug in full dose\n2 topic 2\n3 topic 1"
    labels = [label for _, own in read_alone_labels(reply, sheets, TEXTS) for label in own]
    assert [(x.item, x.on_topic, x.supports) for x in labels] == [
        ("p1", 3, "B"),
        ("p2", 2, ""),
        ("p3", 1, ""),
    ]
    assert read_alone_labels("2 topic 1", sheets, TEXTS)[0][1][0].on_topic is None
