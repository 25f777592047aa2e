"""RAG2's labels: who is trained on, what is measured, what is helpful, killed and run again."""

from __future__ import annotations

import math
import random
import tomllib
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.files import read_jsonl
from lib.data.passages import Passage
from lib.datasets import Question, load_bioasq_all, load_real
from lib.llm.prompts import load_prompt
from lib.llm.small_model import SHA256
from lib.studies.rag2.labels import (
    COLUMNS,
    FOLDER,
    FRACTIONS,
    asked_of,
    helpful,
    open_material,
    read_labels,
    threshold,
    with_differences,
)
from tests.tiny_models import NUMBERED, tiny_causal
from tools import label_passages
from tools.causal import in_batches
from tools.label_passages import (
    COUNTS,
    OWN_RATIONALES,
    PASSAGES,
    REPLY_TOKENS,
    Labeller,
    Leak,
    check_leaks,
    first_words,
    half_of,
    load_parts,
    make_labels,
    rationale_messages,
    write_labels,
)

# who is trained on --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(mirror) -> dict[str, list[Question]]:
    return load_parts()


@pytest.mark.mirror
def test_the_parts_are_as_large_as_said_and_share_nothing(real):
    """By brute force, without the code that refuses a leak."""
    train, held = real["train"], real["held"]
    assert {part: Counter(q.dataset for q in real[part]) for part in real} == COUNTS
    assert all(q.text and q.ideal_answer for q in train + held)
    yes_no = [q for q in load_bioasq_all() if q.options]
    documents = {pmid for q in yes_no for pmid in (*q.gold_pmids, *q.snippet_pmids)}
    assert len(yes_no) == 618 and len(documents) > 3000
    tuned_on = {q.qid for q in load_real("dev")}
    words = {q.text for q in (*load_real("test"), *load_real("dev"))}
    own = {q.qid: {*q.gold_pmids, *q.snippet_pmids} for q in train + held}
    assert all(own[q.qid] for q in train + held if q.dataset == "bioasq")
    assert not any(own[q.qid] & documents or q.text in words for q in train + held)
    assert not tuned_on & own.keys() and len(own) == len(train + held)
    for one in held:
        for other in train:
            assert one.text != other.text and one.ideal_answer != other.ideal_answer
            assert not own[one.qid] & own[other.qid]


def made(qid: str, dataset: str = "bioasq", text: str = "", said: str = "", pmids: str = ""):
    """A question with an expert's rationale; a document for each letter of ``pmids``."""
    text, said = text or f"question {qid}", said or f"expert {qid}"
    return Question(qid, text, {}, "", dataset, gold_pmids=tuple(pmids), ideal_answer=said)


OF_HALF = {half_of(f"m{i}"): f"m{i}" for i in range(40)}
"""A question of MedMCQA of each half."""


@pytest.mark.parametrize(
    ("part", "planted", "said"),
    [
        ("train", made("x", pmids="31"), "document with a test"),
        ("held", made("x", pmids="2"), "document with a test"),
        ("train", made("x", text="what  IS it?"), "asks what"),
        ("held", made("x", pmids="3"), "shares something"),
        ("held", made("x", text="Question A"), "shares something"),
        ("held", made("x", said="Expert a"), "shares something"),
        ("train", made("a", pmids="3"), "in twice"),
        ("held", made(OF_HALF["train"], "medmcqa"), "not of the half"),
    ],
)
def test_a_planted_leak_is_caught(part, planted, said):
    yes_no = Question("t", "Is it?", {"A": "yes"}, "A", "bioasq", gold_pmids=("1",))
    yes_no = replace(yes_no, snippet_pmids=("2",))
    tested = [yes_no, Question("u", "What is it?", {"A": "so"}, "A", "medqa")]
    parts = {
        "train": [made("a", pmids="3"), made(OF_HALF["train"], "medmcqa")],
        "held": [made("b", pmids="4"), made(OF_HALF["held"], "medmcqa")],
    }
    check_leaks(parts, tested)
    with pytest.raises(Leak, match=said):
        check_leaks(parts | {part: [*parts[part], planted]}, tested)


# what is asked ------------------------------------------------------------------------------------


def test_the_passage_comes_before_the_question_and_is_all_that_differs():
    question = Question("q", "Why so?", {"B": "two", "A": "one"}, "A", "medmcqa")
    passage = Passage("p", "A title", "Some text.", "made", {})
    alone, with_passage = rationale_messages(question), rationale_messages(question, passage)
    assert [m["role"] for m in alone] == ["system", "user"]
    assert alone[0] == with_passage[0]
    before, _, rest = with_passage[1]["content"].partition("Question:")
    assert before == "Document:\nA title\nSome text.\n\n"
    assert "Question:" + rest == alone[1]["content"]
    assert "Why so?\nA. one\nB. two\n" in rest


@given(
    text=st.lists(st.sampled_from(["a", "bb", "ccc", "dddd"]), min_size=1).map(" ".join),
    most=st.integers(1, 30),
)
def test_as_many_words_as_fit(text, most):
    """A token is a character here, and a space is one too."""
    words = text.split()
    fitting = [n for n in range(1, len(words) + 1) if len(" ".join(words[:n])) <= most]
    expected = " ".join(words[: max(fitting, default=1)])
    assert first_words(text, list, most) == expected


# what is measured ---------------------------------------------------------------------------------

OWN = {"bioasq": 2, "medmcqa": 1}


def some_words(seed: int, least: int = 3, most: int = 12) -> str:
    """A few words of the tiny vocabulary."""
    generator = random.Random(seed)
    return " ".join(generator.choices(NUMBERED, k=generator.randint(least, most)))


def parts() -> dict[str, list[Question]]:
    """Seven questions: two sets, two parts; of some the model writes itself."""
    questions = []
    for i, dataset in enumerate(["bioasq"] * 3 + ["medmcqa"] * 2 + ["bioasq", "medmcqa"]):
        options = {x: some_words(50 + i, 1, 2) for x in "ABCD"} if dataset == "medmcqa" else {}
        answer = "ABCD"[i % 4] if options else ""
        expert = some_words(100 + i, 4, 30)
        asked = Question(f"q{i}", some_words(i), options, answer, dataset, ideal_answer=expert)
        questions.append(asked)
    return {"train": questions[:5], "held": questions[5:]}


def nearest() -> dict[str, list[Passage]]:
    """Three passages for each question, one of them without a title."""
    near = {}
    for i in range(7):
        titles = enumerate(["", "word1", "word2 word3"])
        near[f"q{i}"] = [
            Passage(f"p{i}{j}", title, some_words(200 + 10 * i + j, 5, 60), "made", {})
            for j, title in titles
        ]
    return near


@pytest.fixture(scope="module")
def labels(tmp_path_factory) -> tuple[pd.DataFrame, list[dict]]:
    labeller = Labeller(tiny_causal(), "tiny", tmp_path_factory.mktemp("labels"), nearest())
    return make_labels(labeller, parts(), OWN)


def test_every_number_is_that_of_its_own_question_and_passage(labels):
    table, own = labels
    causal = tiny_causal()
    asked = {q.qid: (part, q) for part, questions in parts().items() for q in questions}
    texts = {row["qid"]: row["text"] for row in own}
    assert tuple(table.columns) == COLUMNS
    counts = table.groupby("rationale")["qid"].nunique()
    assert counts.to_dict() == {"expert": len(asked), "own": sum(OWN.values())}
    assert table.groupby(["qid", "rationale"]).size().eq(3).all()
    for row in table.itertuples():
        part, question = asked[row.qid]
        assert (question.dataset, part) == (row.dataset, row.part)
        passage = nearest()[row.qid][row.rank - 1]
        assert row.pid == passage.pid
        text = question.ideal_answer if row.rationale == "expert" else texts[row.qid]
        for prompt, found in [(None, row.log_p_without), (passage, row.log_p_with)]:
            messages = rationale_messages(question, prompt)
            ((expected, tokens),) = causal.log_likelihoods([(messages, text)])
            assert row.tokens == tokens and found == pytest.approx(expected, abs=1e-3)


def test_letters_are_those_of_the_question(labels):
    table, _ = labels
    has_options = table["dataset"] == "medmcqa"
    four = ["p_right_without", "p_right_with", "right_without", "right_with"]
    assert table.loc[~has_options, four].isna().all(axis=None)
    causal = tiny_causal()
    asked = {q.qid: q for questions in parts().values() for q in questions}
    for row in table[has_options].itertuples():
        question, passage = asked[row.qid], nearest()[row.qid][row.rank - 1]
        lines = "\n".join(f"{x}. {question.options[x]}" for x in "ABCD")
        filled = {"question": question.text, "options": lines}
        document = f"Document [0] (Title: {passage.title}) {passage.text}"
        alone = load_prompt("letter_closed_book").messages(**filled)
        both = load_prompt("letter_with_documents").messages(**filled, documents=document)
        values = [
            (alone, row.p_right_without, row.right_without),
            (both, row.p_right_with, row.right_with),
        ]
        for messages, probability, right in values:
            odds = np.exp(causal.log_likelihoods([(messages, x) for x in "ABCD"])[:, 0])
            at = "ABCD".index(question.answer)
            assert probability == pytest.approx(odds[at] / odds.sum(), abs=1e-4)
            assert right == int(odds.argmax() == at)


def test_make_labels_keeps_no_words_of_others(tmp_path):
    """Who repeats the question or the expert has written nothing of their own; it is scored."""
    said = [f"word{i}" for i in range(40)]
    asked = parts()
    asked["train"][0] = replace(asked["train"][0], text=" ".join(said[:30]))
    asked["train"][1] = replace(asked["train"][1], ideal_answer=" ".join(said[10:40]))
    replies = {
        "bioasq": [" ".join(["word7", *said[3:29]]), " ".join(said[12:38])],
        "medmcqa": [" ".join(said[:24])],
    }

    class Repeats(Labeller):
        def written(self, name, questions):
            return replies[questions[0].dataset]

    table, own = make_labels(Repeats(tiny_causal(), "tiny", tmp_path, nearest()), asked, OWN)
    assert [row["text"] for row in own] == ["", "", replies["medmcqa"][0]]
    scored = table.loc[table["rationale"] == "own", "qid"]
    assert set(scored) == {row["qid"] for row in own}


@given(
    asked=st.lists(st.integers(1, 50), max_size=30),
    stop=st.integers(0, 10),
    size=st.integers(1, 7),
    torn=st.binary(max_size=8).filter(lambda end: b"\n" not in end),
)
def test_batches_go_on_where_they_stopped(tmp_path_factory, asked, stop, size, torn):
    folder = tmp_path_factory.mktemp("batches")

    def squares(stop_after: int) -> tuple[list[int], list[int]]:
        measured = []

        def measure(batch):
            if len(measured) == stop_after:
                raise RuntimeError("stopped")
            measured.append(batch)
            return [x * x for x in batch]

        values = in_batches("squares", asked, asked, measure, folder, size)
        return values, [x for batch in measured for x in batch]

    left = sorted(asked, reverse=True)
    try:
        squares(stop)
        left = []
    except RuntimeError:
        (path,) = folder.glob("*.jsonl")
        path.write_bytes(path.read_bytes() + torn)  # killed within a line
        left = left[stop * size :]
    assert squares(10**6) == ([x * x for x in asked], left)


# what is helpful ----------------------------------------------------------------------------------


def test_five_in_a_hundred_and_none_of_nothing():
    for n, reach in ((60, 3), (3000, 150), (61, 4), (1, 1)):
        assert sum(np.arange(n) >= threshold(np.arange(n), 0.05)) == reach
    with pytest.raises(ValueError, match="a threshold needs differences"):
        threshold([], 0.25)


SETS, WRITERS = ["bioasq", "medmcqa"], ["expert", "own"]
rows = st.fixed_dictionaries(
    {
        "dataset": st.sampled_from(SETS),
        "part": st.sampled_from(["train", "held"]),
        "rationale": st.sampled_from(WRITERS),
        "delta_ppl": st.integers(-4, 4).map(float),
    }
)
AT_LEAST_ONE = [
    {"dataset": dataset, "part": "train", "rationale": writer, "delta_ppl": 0.0}
    for dataset in SETS
    for writer in WRITERS
]


@given(
    drawn=st.lists(rows, max_size=40),
    fraction=st.sampled_from([*FRACTIONS, 0.1, 0.5, 1.0]),
    held=st.integers(-9, 9),
)
def test_helpful_by_brute_force_and_held_rows_move_nothing(drawn, fraction, held):
    table = pd.DataFrame([*AT_LEAST_ONE, *drawn])
    found = helpful(table, "delta_ppl", fraction)
    for i, row in table.iterrows():
        same = (table["dataset"] == row["dataset"]) & (table["rationale"] == row["rationale"])
        train = sorted(table.loc[same & (table["part"] == "train"), "delta_ppl"], reverse=True)
        least = train[math.ceil(fraction * len(train) - 1e-9) - 1]
        assert found[i] == (row["delta_ppl"] >= least)
    is_held = table["part"] == "held"
    moved = table.assign(delta_ppl=table["delta_ppl"].where(~is_held, float(held)))
    assert (helpful(moved, "delta_ppl", fraction)[~is_held] == found[~is_held]).all()


@given(
    tokens=st.integers(1, 96),
    without=st.floats(-300, -0.01),
    with_passage=st.floats(-300, -0.01),
)
def test_both_differences_against_products_of_probabilities(tokens, without, with_passage):
    row = {"tokens": tokens, "log_p_without": without, "log_p_with": with_passage}
    found = with_differences(pd.DataFrame([row])).iloc[0]
    ppl = [math.exp(log_p) ** (-1 / tokens) for log_p in (without, with_passage)]
    assert found["delta_ppl"] == pytest.approx(ppl[0] - ppl[1], rel=1e-6, abs=1e-6 * max(ppl))
    log_ratio = math.log(ppl[0] / ppl[1])
    assert found["delta_log_ppl"] == pytest.approx(log_ratio, rel=1e-6, abs=1e-9)


# files --------------------------------------------------------------------------------------------


def test_written_and_read_back_and_refused_where_they_are_not_those_of_the_card(labels, tmp_path):
    table, own = labels
    write_labels(table, own, tmp_path, {"date": "2000-01-01", "corpora": ["one"]})
    found = read_labels(tmp_path)
    pd.testing.assert_frame_equal(found[list(COLUMNS)], table, check_dtype=False, check_exact=True)
    assert list(read_jsonl(tmp_path / OWN_RATIONALES)) == own
    card = tomllib.loads((tmp_path / "card.toml").read_text())
    assert card["rows"] == len(table) and card["corpora"] == ["one"]
    path = tmp_path / "labels.csv.xz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="tools.label_passages"):
        read_labels(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="tools.label_passages"):
        read_labels(tmp_path)


def own_rationales() -> dict[tuple[str, str], str]:
    rows = read_jsonl(FOLDER / OWN_RATIONALES)
    return {(row["dataset"], row["qid"]): row["text"] for row in rows}


def test_the_kept_labels_are_whole():
    found = read_labels()
    sizes = found[found["rationale"] == "expert"].groupby(["part", "dataset"]).size().to_dict()
    expected = {(part, d): PASSAGES * n for part in COUNTS for d, n in COUNTS[part].items()}
    assert sizes == expected
    assert not found.duplicated(["dataset", "qid", "pid", "rationale"]).any()
    assert found["tokens"].between(1, REPLY_TOKENS).all()
    own = found[found["rationale"] == "own"]
    assert set(zip(own["dataset"], own["qid"], strict=True)) == set(own_rationales())
    card = tomllib.loads((FOLDER / "card.toml").read_text())
    assert card["rows"] == len(found) and card["model_sha256"] == SHA256


@pytest.mark.mirror
def test_the_kept_labels_are_of_these_questions(real):
    asked = {(q.dataset, q.qid): (part, q) for part, questions in real.items() for q in questions}
    for key, text in own_rationales().items():
        assert label_passages._kept(asked[key][1], text) == text
    of_material = open_material().asked
    found = read_labels()
    for dataset, qid, part in zip(found["dataset"], found["qid"], found["part"], strict=True):
        assert asked[dataset, qid][0] == part
        assert asked_of(asked[dataset, qid][1]) == of_material[dataset, qid]
