"""The desk: what is given to writers and judges, and that only whole answers are taken."""

from __future__ import annotations

import json

import pytest

from lib import datasets
from lib.data import judgments
from lib.data.judgments import read_judgments
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.llm.batch import Nothing
from lib.llm.recorder import Recorder
from lib.studies.real import desk
from lib.studies.real.texts import WRITER

OPTIONS = {"A": "gout", "B": "sprain", "C": "sepsis", "D": "burn"}


@pytest.fixture
def exams(monkeypatch, tmp_path) -> list[Question]:
    """Thirty questions in place of the sample's test half, and a desk of the test's own."""
    questions = [
        Question(f"q{i}", f"Case {i}: why does it hurt?", OPTIONS, "A", "medqa", split="test")
        for i in range(30)
    ]
    for module in (desk, datasets):
        monkeypatch.setattr(module, "load_real", lambda split: questions)
    monkeypatch.setattr(desk, "RECORDINGS", tmp_path / "recordings")
    for name in ("read_judgments", "add_labels"):
        own = getattr(judgments, name)
        path = tmp_path / "datasets.jsonl.gz"
        monkeypatch.setattr(desk, name, lambda *a, own=own, path=path: own(*a, path))
    return questions


def answer_all(folder, text="{}"):
    """Answer every sheet of requests with the same words."""
    for path in folder.glob("*/requests.txt"):
        n = path.read_text().count("===== request")
        replies = "".join(f"@@@ {i}\n{text}\n" for i in range(1, n + 1))
        (path.parent / "replies.txt").write_text(replies)


def test_texts_go_out_in_sheets_and_come_back_as_a_recording(exams, tmp_path):
    folder = tmp_path / "desk"
    requests = desk.asked_for("test", "hypotheses", Nothing(WRITER))
    made = desk.give_texts(requests, "hypotheses", folder)
    assert len(requests) == 30 and len(made) == 2
    for place in made:
        given = sorted(path.name for path in (folder / place).iterdir())
        assert given == ["README.txt", "requests.txt"]
        text = (folder / place / "requests.txt").read_text()
        assert "q1" not in text and "medqa" not in text and text.count("=====") <= 2 * 25
    assert desk.take_texts("hypotheses", folder) == (0, sorted(made))
    answer_all(folder)
    assert desk.take_texts("hypotheses", folder) == (30, [])
    assert desk.take_texts("hypotheses", folder) == (0, [])  # taken once
    file = desk.RECORDINGS / "real-hypotheses.jsonl.gz"
    llm = Recorder(None, file, "replay", name=WRITER)
    # "{}" is no pair of hypotheses: what is still asked for is the one repair of each.
    repairs = desk.asked_for("test", "hypotheses", llm)
    assert len(repairs) == 30 and all(len(r.messages) == 4 for r in repairs)


def test_two_samples_are_never_in_one_conversation(exams, tmp_path):
    requests = desk.asked_for("test", "hyde", Nothing(WRITER))
    made = desk.give_texts(requests, "hyde", tmp_path)
    assert len(requests) == 60 and len(made) == 4
    for place in made:
        key = json.loads((tmp_path / "keys" / f"{place}.json").read_text())
        assert len({request["sample"] for request in key["requests"]}) == 1


def test_a_half_answered_sheet_is_refused_by_its_name(exams, tmp_path):
    requests = desk.asked_for("test", "hypotheses", Nothing(WRITER))
    place = desk.give_texts(requests, "hypotheses", tmp_path)[0]
    (tmp_path / place / "replies.txt").write_text("@@@ 1\n{}\n")
    with pytest.raises(ValueError, match=f"{place}.*give the sheet out again"):
        desk.take_texts("hypotheses", tmp_path)


@pytest.fixture
def store(tmp_path) -> PassageStore:
    passages = [
        Passage(f"p{i}", "", f"Passage {i}: crystals of urate in the joint.", "mine", {})
        for i in range(40)
    ]
    return PassageStore.build(tmp_path / "store.sqlite", passages)


def label_all(folder, said):
    """Answer every judging sheet; ``said(number)`` is the block of a passage."""
    for path in folder.glob("*/q*.txt"):
        shown = path.read_text().partition("Passages:")[2]
        n = sum(f"\n[{i}] " in shown for i in range(1, 200))
        blocks = "".join(said(i) for i in range(1, n + 1))
        path.with_suffix(".labels").write_text(blocks)


def test_labels_go_out_and_come_back_and_the_second_pass_follows(exams, store, tmp_path):
    pools = desk.pool_of(
        exams[:4], [(q.qid, f"p{n + i}") for n, q in enumerate(exams[:9]) for i in range(5)], {}
    )
    assert set(pools) == {"q0", "q1", "q2", "q3"}
    written = dict.fromkeys(pools, "Made up: a sprain.")
    work, plants = desk.first_sheets(exams[:4], pools, store, written)
    assert {plant.kind for plant in plants} == {
        "repeat",
        "padding",
        "words",
        "order",
        "counterfactual",
    }
    folder = tmp_path / "desk"
    (place,) = desk.give_sheets(work, "first", folder)
    assert len(list((folder / place).glob("q*.txt"))) == 4
    assert "plant" not in "".join(p.read_text() for p in (folder / place).iterdir())
    assert desk.take_labels("first", folder)[1] == [f"{place}/q{i}" for i in range(1, 5)]
    label_all(folder, lambda n: f"{n} topic 2\n" + ("+A crystals of urate in\n" if n == 1 else ""))
    new, waiting = desk.take_labels("first", folder)
    assert (new, waiting) == (sum(len(sheet.items) for sheet, _, _ in work), [])
    second, alone = desk.again_sheets(work)
    spoke = {(r["qid"], r["pid"]) for r in judgments.read_judgments(tmp_path / "datasets.jsonl.gz")}
    again = {(sheet.qid, item) for sheet, _, _ in second for item in sheet.items}
    assert again <= spoke and {(p.qid, p.item) for p in plants} <= again
    assert all(len(sheet.items) == 1 for sheet, _, _ in alone)
    # What is judged is not given out twice.
    assert desk.first_sheets(exams[:4], pools, store, {}) == ([], [])


def test_passages_judged_by_themselves_go_out_together(exams, store, tmp_path):
    texts = {"p1": "Passage 1: crystals of urate in the joint."}
    work = [(desk._sheet("single", q, texts), q, texts) for q in exams]
    (place,) = desk.give_sheets(work, "single", tmp_path / "desk")
    label_all(tmp_path / "desk", lambda n: f"{n} topic {n % 3}\n")
    assert desk.take_labels("single", tmp_path / "desk") == (30, [])
    rows = judgments.read_judgments(tmp_path / "datasets.jsonl.gz")
    assert {row["judge"] for row in rows} == {"single"} and len(rows) == 30
    assert read_judgments is judgments.read_judgments  # the committed file was not touched
