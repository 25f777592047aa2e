"""The study of masked answers: what is hidden, what is asked, what is chosen, in which order."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib.base.paths import DATA, ROOT
from lib.base.provenance import read_result
from lib.data.passages import Passage
from lib.data.questions import Question
from lib.llm.chat import ScriptedChat
from lib.llm.recorder import RecordingMiss
from lib.plots import figures, label_of
from lib.report import pivot, reported
from lib.studies.masked import answering, arms, grid, sample, study
from lib.studies.masked.mask import Mask, names_left, other_names, read_names
from lib.studies.masked.texts import KINDS, Held, written_for
from tools.annotation import Pending, apart
from tools.fresh_sample import ORDER, hash_of, link

QUESTION = Question(
    qid="q1",
    text="A child with cystic fibrosis has thick mucus. Which drug?",
    options={"A": "Cystic fibrosis", "B": "Gout", "C": "a deletion.", "D": "Diabetes insipidus"},
    answer="A",
    dataset="medqa",
)
NAMES = {
    "A": ["Cystic fibrosis", "mucoviscidosis", "shared name"],
    "B": ["Gout", "shared name"],
    "C": ["deletion"],
    "D": ["Diabetes insipidus", "Diabetes"],
}


def masked(*texts: str) -> list[str]:
    """The texts with A, B, C, D in place of the options' code names."""
    mask = Mask.of(QUESTION, NAMES)
    shown = mask.hide(texts)
    for code, letter in mask.letter_of.items():
        shown = [text.replace(code, letter) for text in shown]
    return shown


# what is hidden -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Cystic-fibrosis and GOUT.", "A and B."),
        ("Two deletions; gout's pain", "Two C; B pain"),
        ("Gout 's pain", "B pain"),
        ("mucoviscidosis (thick mucus)", "A (thick mucus)"),
        ("diabetes insipidus is no diabetes", "D is no D"),
        ("a shared name tells nothing", "a … tells nothing"),
        ("goutlike, undeleted", "goutlike, undeleted"),
        ("cystic fibrosis (mucoviscidosis) hurts", "A hurts"),
    ],
)
def test_every_form_of_a_name_becomes_its_code(text: str, shown: str):
    assert masked(text) == [shown]


def test_an_abbreviation_that_one_text_introduces_is_hidden_in_all():
    assert masked("cystic fibrosis (CF) is rare", "In CF, mucus is thick") == [
        "A is rare",
        "In A, mucus is thick",
    ]


def test_an_options_own_words_are_its_own_even_if_they_are_anothers_synonym():
    names = NAMES | {"B": ["Gout", "Cystic fibrosis"]}
    mask = Mask.of(QUESTION, names)
    code = next(code for code, letter in mask.letter_of.items() if letter == "A")
    assert mask.hide(["cystic fibrosis"]) == [code]


def test_an_organism_that_is_left_by_its_abbreviation_is_found():
    options = {"A": "Escherichia coli", "B": "Gout"}
    mask = Mask.of(replace(QUESTION, options=options))
    assert names_left(mask, "e. coli grows; E.coli too") == ["e. coli"]
    assert not names_left(mask, "a colic. Entity-K grows")


def test_codes_tell_nothing_of_the_right_letter():
    questions = [
        Question(f"q{i}", "?", dict.fromkeys("ABCD", "x"), "A", dataset="made-up")
        for i in range(400)
    ]
    given = Counter(
        code for q in questions for code, letter in Mask.of(q).letter_of.items() if letter == "A"
    )
    assert len(given) == 4 and max(given.values()) < 140  # 100 each by chance


def test_other_names_come_from_documents_and_glossaries_and_not_from_umbrella_topics():
    def page(focus: str, synonyms: list[str], subset: str) -> Passage:
        about = {"focus": focus, "synonyms": synonyms, "subset": subset}
        return Passage(focus, focus, "", "medquad", about)

    terms = "renal calculus (kidney stone): a lump. tibia: a bone (of the leg)."
    found = other_names(
        [
            page("Gout", ["podagra"], "5_NIDDK_QA"),
            page("Cholesterol", ["HDL"], "4_MPlus_Health_Topics_QA"),
            Passage("t", "Urine -- Key terms", terms, "openstax", {}),
        ]
    )
    assert found[("gout",)] == {"podagra"}
    assert found[("kidney", "stone")] == {"renal calculus"}
    assert ("cholesterol",) not in found and ("tibia",) not in found


# who is asked -------------------------------------------------------------------------------------


def test_an_option_is_an_entity_by_its_words_and_how_often_it_stands_there():
    common = [Passage(str(i), "", "pain", "x", {}) for i in range(300)]
    rare = [
        Passage("a", "", "Deletions of a gene", "x", {}),
        Passage("b", "Gout", "24 hours", "x", {}),
    ]
    counts = sample.NameCounts([*common, *rare])
    assert counts.of("deletion") == 1
    assert sample.is_entity("A deletion.", counts) and sample.is_entity("gout", counts)
    for option in ("24 hours", "pain", "unheard of", "disease", "one two three four five six"):
        assert not sample.is_entity(option, counts), option


def test_the_committed_sample_is_of_new_questions_only(mirror: Path):
    from lib.datasets import asks_for_the_exception, load_real

    used = {(q.dataset, q.qid) for half in ("dev", "test") for q in load_real(half)}
    halves = {part: sample.load_masked(part) for part in ("test", "dev")}
    assert [len(halves[part]) for part in ("test", "dev")] == [210, 60]
    asked = [question for half in halves.values() for question in half]
    assert len({q.text for q in asked}) == 270
    held = sample.held_options(asked)
    for question in asked:
        assert (question.dataset, question.qid) not in used
        assert not asks_for_the_exception(question)
        assert held[question.qid] != question.answer
    assert {(q.dataset, q.qid) for q in sample.load_masked("judged")} <= used


def test_no_name_is_left_in_the_options_and_questions(mirror: Path):
    for question in sample.load_masked("test"):
        mask = answering.mask_of(question)
        texts = [question.text, *question.options.values()]
        assert (question.dataset, question.qid) in read_names()
        hidden = " ".join(mask.hide(texts))
        assert not names_left(mask, hidden), question.qid
        assert set(mask.letter_of) <= {word.strip(".,;?()") for word in hidden.split()}


# what is asked and answered -----------------------------------------------------------------------


def test_the_same_five_passages_are_one_request_in_any_order():
    passages = [Passage(f"p{i}", "", f"Gout is {i}", "x", {}) for i in range(5)]
    asked = answering.request(QUESTION, passages)
    assert asked == answering.request(QUESTION, passages[::-1])
    assert "Gout" not in asked[-1]["content"] and "fibrosis" not in asked[-1]["content"]
    assert "Passages:" not in answering.request(QUESTION, [])[-1]["content"]


@pytest.mark.parametrize(
    ("reply", "told", "read"),
    [
        ("{} told by 2, 5", True, True),
        ("{} guessed", False, True),
        ("**{}**: told by 1", True, True),
        ("Passage 2 says so. {} told by 2.", True, True),
        ("It may be Entity-M or {}.", False, False),
        ("Entity-Q told by 1", False, False),
        ("", False, False),
    ],
)
def test_replies_are_read_or_count_as_a_guess(reply: str, told: bool, read: bool):
    code = next(c for c, letter in answering.mask_of(QUESTION).letter_of.items() if letter == "A")
    found = answering.read_reply(QUESTION, reply.format(code))
    assert found == answering.Answer("A" if read else "", told)
    values = found.metrics(QUESTION)
    assert values["accuracy"] == (1.0 if told else 0.25)
    assert values["right"] == float(read)


def test_told_and_wrong_counts_nothing():
    values = answering.Answer("B", told=True).metrics(QUESTION)
    assert list(values.values()) == [0.0, 0.0, 1.0, 0.0, 1.0]


def test_a_writer_who_holds_an_option_is_told_that_option(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lib.studies.masked.texts.held_options", lambda _: {"q1": "B"})
    reply = json.dumps({"H_plus": "plus", "H_minus": "minus", "mimic_option": "A"})
    model = ScriptedChat([{"match": "its answer is this option: Gout.", "text": reply}])
    made = Held().expand(QUESTION, model, None)
    assert made.trace["mimic_option"] == "A"
    assert [text.text for text in made.request.of("target")] == ["plus"]


def test_a_conversation_has_each_question_once():
    requests = [
        Pending(f"{qid}-{i}", (), {}, 0, "answers", qid)
        for qid in "abcde"
        for i in range(len(qid) + 3)
    ]
    groups = apart(requests)
    assert sorted(r.key for group in groups for r in group) == sorted(r.key for r in requests)
    assert all(max(Counter(r.qid for r in group).values()) == 1 for group in groups)


# arms and choices ---------------------------------------------------------------------------------


def test_arms_are_searched_as_their_names_say():
    by_name = arms.specs({"described": (0.4, 1.0), "held": (1.0,)})
    assert by_name["chr@1"][1].lam == 1 and by_name["hplus"][1].lam == 0
    assert by_name["chr-held@1"] == ("held", by_name["chr@1"][1])
    assert by_name["chr+rotation@1"][1].rotation
    assert set(arms.RECIPES) <= {*by_name, *arms.AS_THEY_ARE}


def test_dev_chooses_the_best_and_of_equals_the_first():
    arms_read = [*(f"chr@{lam:g}" for lam in arms.LAMBDAS), *arms.RECIPES]
    arms_read += [f"chr-held@{lam:g}" for lam in arms.LAMBDAS]
    best = {"chr@0.4": 0.6, "chr@0.6": 0.6, "chr-held@1": 0.5, "rationale": 0.9}
    values = pd.DataFrame(
        [
            ("medqa", arm, f"q{i}", "accuracy", best.get(arm, 0.3) + shift)
            for arm in arms_read
            for i, shift in enumerate((-0.1, 0.1))
        ],
        columns=["dataset", "arm", "qid", "metric", "value"],
    )
    table = study.choose(values)
    chosen = table[table["chosen"]].set_index("choice")["picks"].to_dict()
    assert chosen == {"masked:lambda": "0.4", "held:lambda": "1", "recipe": "rationale"}
    assert np.allclose(table["value"].max(), 0.9)


def test_every_kind_of_text_is_a_request_of_its_own():
    prompts = [
        (getattr(method, "prompt", method.name), method.options_visible)
        for method in KINDS.values()
    ]
    assert len(set(prompts)) == len(prompts) - 1  # the differential's H+ is "described"


def values_of(**arms_: list[float]) -> pd.DataFrame:
    """Accuracy by arm, a question each."""
    rows = [
        ("medqa", arm, f"q{i}", "accuracy", value)
        for arm, values in arms_.items()
        for i, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["dataset", "arm", "qid", "metric", "value"])


def test_a_rate_of_wrong_hypotheses_mixes_both_outcomes_of_each_question():
    values = values_of(
        **{"hplus": [1, 1, 0.25, 1], "hplus-held": [0, 1, 0.25, 0], "random": [0] * 4}
    )
    table = study.wrong_table(values)
    assert set(table["arm"]) == {"hplus"} and set(table["n"]) == {4}
    found = table.set_index("share")["value"]
    assert np.allclose(found[[0.0, 0.5, 1.0]], [0.8125, 0.5625, 0.3125])


def test_answers_without_a_mask_are_set_against_no_passages():
    values = values_of(none=[1, 1, 0, 1], hplus=[1, 1, 1, 1]).assign(metric="right")
    table = study.openly_table(values).set_index("arm")
    assert table.loc["hplus", "difference"] == 0.25 and np.isnan(table.loc["none", "difference"])


def test_who_saw_options_and_less_support_but_more_right_answers_is_as_15_says():
    real, masked = (
        read_result(f"{name}_arms", "open", committed=True)[0] for name in ("real", "masked")
    )
    support = real[real["metric"] == "supports_correct"].set_index(["dataset", "arm"])
    named, right = (
        masked[masked["metric"] == metric].set_index(["dataset", "arm"])["value"]
        for metric in ("names_right", "accuracy")
    )
    ours, plain = ("exams", "chr@1"), ("exams", "question")
    assert support["value"][ours] < support["value"][plain]
    assert named[ours] > named[plain] and right[ours] > right[plain]
    assert support["value"]["medqa", "chr@1"] < support["high"]["medqa", "question"]
    assert support["value"]["mmlu", "chr@1"] < support["low"]["mmlu", "question"]
    rows = figures.masked_rows(masked).set_index("row")
    for kind in ("hyde", "query2doc", "csqe", "thinkqe", "described"):
        row = "H+ alone" if kind == "described" else label_of(kind)
        assert rows["hollow"][row] == (not KINDS[kind].options_visible)


def test_an_arm_that_was_read_in_part_has_no_accuracy(monkeypatch: pytest.MonkeyPatch):
    class TwoArms:
        def shown(self):
            for arm in ("read", "half"):
                for qid in ("q1", "q2"):
                    yield (
                        arm,
                        replace(QUESTION, qid=qid),
                        [Passage(f"{arm}{qid}", "", "Gout", "x", {})],
                    )

    def answers(question, passages, llm):
        if passages[0].pid == "halfq2":
            raise RecordingMiss("nobody asked")
        return answering.Answer("A", told=True)

    monkeypatch.setattr(study, "answer", answers)
    values = study.half_values(TwoArms(), None)
    assert set(values.loc[values["metric"] == "accuracy", "arm"]) == {"read"}
    assert set(values.loc[values["metric"] == "names_wrong", "arm"]) == {"read", "half"}


def test_a_letter_without_a_mask_is_read_and_anything_else_is_wrong():
    for text, right in (("A.", 1.0), ("b", 0.0), ("The answer is A", 0.0)):
        said = answering.answer_openly(QUESTION, [], ScriptedChat([{"match": "", "text": text}]))
        assert said.metrics(QUESTION)["right"] == right


def test_your_own_answerer_is_measured_as_the_recorded_one_and_joins_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from tools import own_answerer

    code = next(c for c, letter in answering.mask_of(QUESTION).letter_of.items() if letter == "A")
    items = [("hplus", QUESTION, [Passage("p", "", "Gout", "x", {})])]
    tables = {}
    for name, text in (("knows", f"{code} told by 1"), ("mine", "no idea")):
        llm = ScriptedChat([{"match": "", "text": text}])
        llm.name = name
        tables[name] = own_answerer.answers_of(llm, items, 1)
    of = {name: pivot(table, "metric", "dataset")["exams"] for name, table in tables.items()}
    assert of["knows"]["accuracy"] == 1.0 and of["mine"]["accuracy"] == 0.25
    assert (of["knows"]["unread"], of["mine"]["unread"]) == (0, 1)

    monkeypatch.setattr(grid, "OWN", tmp_path / "own.csv")
    assert set(grid.grid(tables["knows"])["answerer"]) == {grid.RECORDED}
    tables["mine"].to_csv(grid.OWN, index=False)
    table = grid.grid(tables["knows"])
    assert set(table["answerer"]) == {grid.RECORDED, "mine"}
    hyde = reported("table1_accuracy").query("method == 'HyDE (H+ only)' or method == 'HyDE'")
    printed = hyde[hyde["dataset"] == "MedQA-US"]["value"].mean() / 100
    assert table["reported"].tolist() == pytest.approx([printed] * len(table))
    assert set(table["verdict"]) == {"DIFFERENT SETUP"}


# the order ----------------------------------------------------------------------------------------


def test_the_chain_of_steps_holds():
    order = pd.read_csv(ORDER, dtype=str)
    before = ""
    for row in order.to_dict("records"):
        files = [ROOT / name for name in row["files"].split()]
        assert hash_of(files) == row["sha256"], f"{row['step']}: a file was changed afterwards"
        before = link(before, row)
        assert before == row["chain"]
    assert list(order["date"]) == sorted(order["date"])


def test_a_changed_step_breaks_the_chain(tmp_path: Path):
    order = pd.read_csv(ORDER, dtype=str).to_dict("records")
    assert link("", order[0] | {"date": "2026-01-01 00:00"}) != order[0]["chain"]
    copy = tmp_path / "questions.csv"
    copy.write_bytes((DATA / "masked" / "questions.csv").read_bytes() + b"medqa,1,test,A\n")
    assert hash_of([copy]) != hash_of([DATA / "masked" / "questions.csv"])


def test_half_of_what_is_written_is_h_plus_and_thirty_questions_show_twenty_points():
    """What notebooks 06 and 14 say in words: the share of H+, and what a small sample can show."""
    written = written_for(list(sample.load_masked("test")), ["described"])["described"].values()
    both = [[len(one.trace[key].split()) for key in ("H_plus", "H_minus")] for one in written]
    plus, minus = np.mean(both, axis=0)
    assert 0.4 < plus / (plus + minus) < 0.6
    tests = read_result("claims_masked", "open", committed=True)[0].query("status == 'primary'")
    questions, found = tests["n"].max(), tests.query("baseline == 'question' and arm == 'chr@1'")
    least = found["mde"].item()
    assert 0.15 < least * np.sqrt(questions / 30) < 0.25
    assert 100 < questions * (least / 0.1) ** 2 <= 150
