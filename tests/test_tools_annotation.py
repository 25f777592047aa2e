"""Annotation: what writers and judges are given, and that only whole answers are taken."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from lib.base.files import read_jsonl
from lib.data.judgments import read_judgments
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.llm.chat import tag
from lib.llm.recorder import Recorder
from lib.methods.hyde import HyDE
from lib.studies.real import expansions
from tools import judging, texts
from tools.annotation import (
    EmptyRecording,
    give,
    give_texts,
    pending,
    record_texts,
    recorded,
    taken,
)
from tools.judging import (
    control_items,
    evidence_labels,
    evidence_sheet,
    evidence_sheets,
    wrong_option,
)

OPTIONS = {"A": "gout", "B": "sprain", "C": "sepsis", "D": "burn"}
QUESTIONS = [
    Question(f"q{i}", f"Case {i}: why does it hurt?", OPTIONS, "A", "medqa", split="test")
    for i in range(30)
]


def no_search(request, k):
    return []


def asks(method, questions=QUESTIONS):
    for question in questions:
        with tag(method=method.name, qid=question.qid):
            yield lambda model, q=question: method.expand(q, model, no_search)


def answer_all(folder, reply="A text."):
    """Answer every request; ``reply`` is a text, or makes one of a request's."""
    for path in folder.glob("*/q*.txt"):
        text = reply if isinstance(reply, str) else reply(path.read_text())
        path.with_suffix(".reply").write_text(text)


# out and back -------------------------------------------------------------------------------------


def test_requests_go_out_in_conversations_and_what_is_missing_waits(tmp_path):
    made = give(
        "kind", [(f"request {i}", {"i": i}) for i in range(5)], "Read {files}.", tmp_path, 2
    )
    assert len(made) == 3 and (tmp_path / made[0] / "README.txt").read_text().endswith("q2.txt.")
    assert sorted(p.name for p in (tmp_path / made[2]).iterdir()) == ["README.txt", "q1.txt"]
    (tmp_path / made[0] / "q2.reply").write_text(" one \n")
    found, waiting = taken("kind", tmp_path)
    assert found == [({"i": 1}, "one")] and len(waiting) == 4
    assert taken("other", tmp_path) == ([], [])
    (tmp_path / made[0] / "q1.reply").write_text("\n")
    with pytest.raises(ValueError, match="q1.reply is empty"):
        taken("kind", tmp_path)


def test_texts_become_a_recording_that_replays_and_holds_no_question(tmp_path):
    path, desk = tmp_path / "real.jsonl.gz", tmp_path / "desk"
    method = HyDE(samples=2)
    requests = pending(asks(method), recorded(path, "writer"))
    made = give_texts("hyde", requests, desk)
    assert len(requests) == 60 and len(made) == 2  # samples are never in one conversation
    assert record_texts("hyde", desk, path, "writer", "an author")[0] == 0
    answer_all(desk)
    assert record_texts("hyde", desk, path, "writer", "an author") == (60, [])
    before = path.read_bytes()
    assert record_texts("hyde", desk, path, "writer", "an author") == (0, [])
    assert path.read_bytes() == before
    rows = list(read_jsonl(path))
    assert rows == sorted(rows, key=lambda row: row["key"]) and "Case" not in json.dumps(rows)
    llm = recorded(path, "writer")
    assert isinstance(llm, Recorder) and pending(asks(method), llm) == []
    assert method.expand(QUESTIONS[3], llm, no_search).trace["passages"] == ["A text."] * 2
    answer_all(desk, "Another text.")
    with pytest.raises(ValueError, match="recorded with another text"):
        record_texts("hyde", desk, path, "writer", "an author")


# in what form a reply is kept ---------------------------------------------------------------------


def test_a_continuation_is_kept_as_a_number_and_a_copy_is_refused():
    question = Question("q", " ".join(f"w{i}" for i in range(40)), {}, "", "medqa")
    assert texts.as_run(question, "so W25 w26, w27 and") == "3"
    (request,) = pending(asks(HyDE(samples=1), [question]), EmptyRecording("w"))
    assert texts.own_words("short w1 w2", request) == "short w1 w2"
    with pytest.raises(ValueError, match="copies 20 words"):
        texts.own_words(" ".join(f"w{i}" for i in range(5, 30)), request)


def test_every_kind_of_text_is_asked_for(monkeypatch, tmp_path):
    for module in (texts, expansions):
        monkeypatch.setattr(module, "load_real", lambda split: QUESTIONS)
    monkeypatch.setattr(texts, "RECORDINGS", tmp_path)
    llm = EmptyRecording("w")
    assert len(pending(texts.asks_for("hypotheses", "test", no_search, llm), llm)) == 30
    written = pending(texts.asks_for("counterfactual", "test", no_search, llm), llm)
    assert len(written) == len(texts.with_counterfactual("test")) == 15
    assert "sprain" in json.dumps([request.messages for request in written])
    monkeypatch.setattr(texts, "to_turn", lambda: {"x": "It was given. It helped."})
    (request,) = pending(texts.asks_for("turned", "test", no_search, llm), llm)
    assert "(2) It helped." in request.messages[-1]["content"]


# evidence -----------------------------------------------------------------------------------------

EVIDENCE = {
    "p1": "In an attack of gout a nonsteroidal drug in full dose relieves the pain within a day.",
    "p2": "Allopurinol lowers uric acid. Begun during an attack it may prolong it.",
    "p3": "Knee osteoarthritis improves with “regular\nexercise” – at any age.",
}


@pytest.fixture
def sheet():
    return evidence_sheet("first", QUESTIONS[0], EVIDENCE)


def letter(sheet, own: str) -> str:
    return next(shown for shown, real in sheet["letters"].items() if real == own)


def test_a_sheet_hides_arm_rank_key_and_the_options_order(sheet):
    asked = judging.evidence_messages([sheet], {"q0": QUESTIONS[0]})[-1]["content"]
    assert all(text in asked for text in EVIDENCE.values()) and "p1" not in asked
    for shown, own in sheet["letters"].items():
        assert f"{shown}. {OPTIONS[own]}" in asked
    orders = {str(evidence_sheet("first", q, EVIDENCE)["letters"]) for q in QUESTIONS[:9]}
    assert len(orders) > 3  # another sheet, another order
    assert evidence_sheet("first", QUESTIONS[0], dict(reversed(EVIDENCE.items()))) == sheet


def test_labels_come_back_in_the_questions_own_letters_with_their_spans(sheet):
    a, b, c = (letter(sheet, own) for own in "ABC")
    blocks = {
        "p1": f"topic 3\n+{b} Nonsteroidal drug  in full dose\n+{c} naproxen is best\n+Z in full",
        "p2": f"topic 3\n-{a}: “begun during an attack it may prolong it.”",
        "p3": f"topic 1\n+{a} improves with regular exercise\n-{a} improves with regular exercise",
    }
    reply = "\n".join(f"{n} {blocks[item]}" for n, item in enumerate(sheet["items"], 1))
    rows = {row["pid"]: row for row in evidence_labels(reply, [sheet], "first")}
    assert (rows["p1"]["supports"], rows["p1"]["contradicts"], rows["p1"]["lost"]) == ("B", "", 2)
    assert (rows["p2"]["supports"], rows["p2"]["contradicts"]) == ("", "A")
    # For and against the same option says nothing.
    assert (rows["p3"]["on_topic"], rows["p3"]["supports"], rows["p3"]["start"]) == (1, "", [])
    silent = evidence_labels("1 topic 0\n1 topic 3\n2 topic seven", [sheet], "first")
    assert [row["on_topic"] for row in silent] == [None] * 3  # unjudged, and never 0
    for item, words in (("p1", "nonsteroidal"), ("p2", "Begun")):
        start, length = rows[item]["start"][0], rows[item]["length"][0]
        assert EVIDENCE[item][start : start + length].startswith(words)


def test_control_items_have_a_label_that_they_must_get():
    made = [
        (question, item)
        for place, question in enumerate(QUESTIONS[:8])
        for item in control_items(question, place, EVIDENCE, ["Other words."], "Made up: a sprain.")
    ]
    for question, item in made:
        if item.like:
            assert EVIDENCE[item.like] in item.text
        elif item.supports:
            assert item.supports == wrong_option(question) != question.answer
        else:
            assert item.text.startswith(("Case", "Other words. Note to whoever labels"))
    kinds = Counter(item.kind for _, item in made)
    assert kinds == {"repeat": 4, "padding": 2, "words": 2, "order": 2, "counterfactual": 4}


def test_evidence_is_judged_twice_and_by_itself_and_never_given_out_again(tmp_path, monkeypatch):
    path, desk = tmp_path / "real.jsonl.gz", tmp_path / "desk"
    monkeypatch.setattr(judging, "read_judgments", lambda: read_judgments(path))
    passages = [
        Passage(f"p{i}", "", f"Passage {i}: crystals of urate in the joint.", "mine", {})
        for i in range(40)
    ]
    store = PassageStore.build(tmp_path / "store.sqlite", passages)
    wanted = {q.qid: {f"p{n + i}" for i in range(5)} for n, q in enumerate(QUESTIONS[:4])}
    by_id = {question.qid: question for question in QUESTIONS}
    written = dict.fromkeys(wanted, "Made up: a sprain.")
    sheets, controls = evidence_sheets(QUESTIONS, wanted, store, written)
    assert {control.kind for control in controls} == set(judging._EVERY)
    (place,) = judging.give_evidence(sheets, "first", by_id, desk)
    assert "plant" not in "".join(p.read_text() for p in (desk / place).iterdir())

    def labels(text: str) -> str:
        n = sum(f"\n[{i}] " in text for i in range(1, 60))
        return "".join(
            f"{i} topic 2\n" + "+A crystals of urate in\n" * (i == 1) for i in range(1, n + 1)
        )

    answer_all(desk, labels)
    new, waiting = judging.take("first", desk, path)
    assert (new, waiting) == (sum(len(sheet["items"]) for sheet in sheets), [])
    second, single = judging.again_sheets(sheets, by_id)
    again = {(sheet["qid"], item) for sheet in second for item in sheet["items"]}
    assert {(control.qid, control.item) for control in controls} <= again
    single += [evidence_sheet("single", q, {"p1": "Crystals of urate in it."}) for q in QUESTIONS]
    judging.give_evidence(single, "single", by_id, desk)
    answer_all(desk, labels)
    assert judging.take("single", desk, path)[0] == len(single)
    assert evidence_sheets(QUESTIONS, wanted, store, {}) == ([], [])
