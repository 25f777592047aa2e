"""Parts of the exam questions, cases found by a rule, and the probes of what was written."""

from __future__ import annotations

import pandas as pd
import pytest
from lib.studies.real.cases import KINDS, SHOWN, case_counts, case_table, case_texts
from lib.studies.real.where import METRICS, PAIRS, where_table

from lib.data.judgments import Evidence
from lib.datasets import Question
from lib.llm.chat import ScriptedChat
from lib.methods.base import Expansion
from lib.pages.render import finding
from lib.query_spec import Hypotheses, Text
from lib.studies.real import probes
from tools.texts import as_run

OPTIONS = {"A": "gout", "B": "sprain", "C": "sepsis", "D": "burn"}
STEM = " ".join(f"word{i}" for i in range(40)) + "?"


def question(i: int, dataset: str = "medqa", text: str = STEM) -> Question:
    return Question(f"{dataset}-{i}", text, OPTIONS, "A", dataset, split="test")


def outcomes(hits: dict[str, dict[str, float]], metric: str, dataset: str = "medqa") -> list:
    return [
        (dataset, arm, qid, metric, value)
        for arm, own in hits.items()
        for qid, value in own.items()
    ]


COLUMNS = ["dataset", "arm", "qid", "metric", "value"]


def test_a_difference_that_lies_in_one_part_is_found_there_alone():
    qids = [f"medqa-{i}" for i in range(20)]
    arms = dict.fromkeys({arm for pair in PAIRS for arm in pair}, dict.fromkeys(qids, 1.0))
    # Contrast at 1 loses the last ten questions, whose H+ is wrong, and no other.
    arms["chr@1"] = {qid: float(i < 10) for i, qid in enumerate(qids)}
    rows = [row for metric in METRICS for row in outcomes(arms, metric)]
    about = pd.DataFrame(
        {"h_plus": ["right"] * 10 + ["wrong"] * 10, "set": "medqa"}, index=pd.Index(qids)
    )
    table = where_table(pd.DataFrame(rows, columns=COLUMNS), about)
    at_one = table[(table["arm"] == "chr@1") & (table["metric"] == "hit_right")]
    found = at_one.set_index("level")["difference"].to_dict()
    assert found == {"right": 0.0, "wrong": -1.0, "medqa": -0.5}
    assert at_one.set_index("level")["n"].to_dict() == {"right": 10, "wrong": 10, "medqa": 20}


def case_values(fits: int, n: int) -> pd.DataFrame:
    """n questions; only question ``fits`` is one where contrast finds the right option."""
    qids = [f"medqa-{i}" for i in range(n)]
    rows = []
    for arm in SHOWN:
        hit = {qid: float(arm == "chr@1" and i >= fits) for i, qid in enumerate(qids)}
        rows += outcomes({arm: hit}, "hit_right")
        rows += outcomes({arm: dict.fromkeys(qids, 0.0)}, "misled")
    return pd.DataFrame(rows, columns=COLUMNS)


def test_a_case_is_the_first_question_that_fits_its_kind():
    asked = [question(i) for i in (4, 1, 3, 0, 2)]  # as the hashes have them
    runs = pd.DataFrame(
        [
            ("medqa", arm, 0, q.qid, rank, f"{arm}-{rank}")
            for arm in SHOWN
            for q in asked
            for rank in range(1, 8)
        ],
        columns=["dataset", "arm", "draw", "qid", "rank", "pid"],
    )
    judged = {("medqa-3", "chr@1-2"): Evidence(3, frozenset("A"))}
    table = case_table(asked, runs, case_values(3, 5), judged)
    assert set(table["kind"]) == {"contrast finds the right option"}
    assert set(table["qid"]) == {"medqa-4"} and table["rank"].max() == 5
    table = case_table(asked[1:], runs, case_values(3, 5), judged)
    assert set(table["qid"]) == {"medqa-3"}
    says = table[table["says"] != ""]
    assert says[["arm", "rank", "says"]].to_numpy().tolist() == [["chr@1", 2, "right"]]


def test_a_story_has_what_was_written_and_what_each_arm_found():
    kind, columns = "contrast loses the right option", ["kind", "dataset", "qid", "arm", "rank"]
    said = [("hplus", 1, 3, "right"), ("hplus", 2, 2, "both"), ("hplus", 3, 1, "")]
    said += [("chr@1", 1, 0, ""), ("chr@1", 2, None, "")]
    rows = [(kind, "medqa", "medqa-3", arm, rank, *more) for arm, rank, *more in said]
    cases = pd.DataFrame(rows, columns=[*columns, "on_topic", "says"])
    texts = (Text("gout", 1.0, "article", "target"), Text("sepsis", 1.0, "article", "mimic"))
    written = {"medqa-3": Expansion(Hypotheses(texts))}
    texts = case_texts(cases, written)
    told = finding("cases", cases=cases, texts=texts, arms=SHOWN, on_topic=2)
    assert told.count("medqa-3") == 1 and "*H+* gout" in told and "*H−* sepsis" in told
    assert "| H+ alone | 2 | 1 | 2 |" in told and "| CHR, λ = 1 | 0 | 0 | 0 |" in told


def test_every_kind_is_counted_also_where_it_has_no_question():
    counts = case_counts(case_values(3, 5)).set_index("kind")["questions"]
    assert counts.to_dict() == dict.fromkeys(KINDS, 0) | {"contrast finds the right option": 2}


@pytest.mark.parametrize(
    ("continuation", "known"),
    [
        (" ".join(f"word{i}" for i in range(20, 40)), True),
        (" ".join(f"WORD{i}," for i in range(25, 33)), True),
        (" ".join(f"word{i}" for i in range(25, 32)), False),  # seven words in a row
        (" ".join(f"word{i}" for i in range(20)), False),  # the half that was shown
        ("", False),
    ],
)
def test_known_by_heart_is_eight_words_in_a_row_of_the_half_not_shown(continuation, known):
    run = as_run(question(0), continuation)
    assert run.isdigit() and probes.is_known_by_heart(run) is known


def test_the_memory_probe_shows_half_the_question_and_no_option():
    rules = [{"match": text, "text": text} for text in ("word20", "sepsis", "word19")]
    assert probes.complete_stem(question(0), ScriptedChat(rules)) == "word19"


@pytest.mark.parametrize(
    ("reply", "letter"), [("B", "B"), (" b. ", "B"), ("none", ""), ("E", ""), ("B or C", "")]
)
def test_a_reading_of_h_plus_is_a_letter_or_none(reply, letter):
    llm = ScriptedChat([{"match": "", "text": reply}])
    assert probes.read_hypothesis(question(0), "It is a sprain.", llm) == letter
