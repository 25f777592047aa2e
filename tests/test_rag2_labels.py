"""RAG2's labels: who is trained on, what is measured, what is helpful, killed and run again."""

from __future__ import annotations

import math
import random
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.files import read_jsonl
from lib.data.passages import Passage
from lib.datasets import Question, load_bioasq_all, load_real
from lib.llm.small_model import SHA256
from lib.studies.rag2.labels import (
    COLUMNS,
    FOLDER,
    FRACTIONS,
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
    HELD,
    OWN_RATIONALES,
    PASSAGES,
    REPLY_TOKENS,
    TRAIN,
    Labeller,
    Leak,
    Rationale,
    check_leaks,
    first_words,
    half_of,
    load_prompt,
    load_rationales,
    make_labels,
    rationale_messages,
    write_labels,
)

OWN = {"bioasq": 2, "medmcqa": 1}


def some_words(seed: int, least: int = 3, most: int = 12) -> str:
    """A few words of the tiny vocabulary."""
    generator = random.Random(seed)
    return " ".join(generator.choices(NUMBERED, k=generator.randint(least, most)))


def rationales() -> list[Rationale]:
    """Seven questions: two sets, two parts; of some the model writes itself."""
    train = [("bioasq", "train")] * 3 + [("medmcqa", "train")] * 2
    held = [("bioasq", "held"), ("medmcqa", "held")]
    made = []
    for i, (dataset, part) in enumerate(train + held):
        options = {x: some_words(50 + i, 1, 2) for x in "ABCD"} if dataset == "medmcqa" else {}
        answer = "ABCD"[i % 4] if options else ""
        expert = some_words(100 + i, 4, 30)
        made.append(Rationale(dataset, f"q{i}", part, some_words(i), options, answer, expert))
    return made


def passages() -> list[list[Passage]]:
    """Three passages for each question, one of them without a title."""
    made = []
    for i in range(len(rationales())):
        texts = [some_words(200 + 10 * i + j, 5, 60) for j in range(3)]
        titles = ["", "word1", "word2 word3"]
        pairs = enumerate(zip(titles, texts, strict=True))
        made.append([Passage(f"p{i}{j}", title, text, "made", {}) for j, (title, text) in pairs])
    return made


def labelled(folder: Path):
    """The labels and own rationales, with progress kept in ``folder``."""
    labeller = Labeller(tiny_causal(), "tiny", folder)
    return make_labels(labeller, rationales(), passages(), OWN)


# who is trained on --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(mirror) -> list[Rationale]:
    return load_rationales()


@pytest.mark.mirror
def test_the_parts_are_as_large_as_said_and_share_nothing(real):
    """By brute force, without the code that refuses a leak."""
    counts = Counter((r.part, r.dataset) for r in real)
    assert counts == {("train", d): n for d, n in TRAIN.items()} | {
        ("held", d): n for d, n in HELD.items()
    }
    assert all(r.expert and r.question for r in real)
    assert all(sorted(r.options) == list("ABCD" if r.dataset == "medmcqa" else "") for r in real)
    yes_no = [q for q in load_bioasq_all() if q.options]
    documents = {pmid for q in yes_no for pmid in (*q.gold_pmids, *q.snippet_pmids)}
    assert len(yes_no) == 618 and len(documents) > 3000
    tuned_on = {q.qid for q in load_real("dev")}
    words = {q.text for q in (*load_real("test"), *load_real("dev"))}
    bioasq = [r for r in real if r.dataset == "bioasq"]
    assert all(r.documents and not r.documents & documents for r in bioasq)
    assert not any(r.qid in tuned_on or r.question in words for r in real)
    train = [r for r in real if r.part == "train"]
    for one in (r for r in real if r.part == "held"):
        for other in train:
            assert one.qid != other.qid and one.question != other.question
            assert one.expert != other.expert and not one.documents & other.documents


def made(qid: str, dataset: str = "bioasq", part: str = "train", **fields) -> Rationale:
    given = {"question": f"question {qid}", "options": {}, "answer": "", "expert": f"expert {qid}"}
    return Rationale(dataset=dataset, qid=qid, part=part, **given | fields)


TESTED = [
    Question("t", "Is it?", {"A": "yes"}, "A", "bioasq", gold_pmids=("1",), snippet_pmids=("2",)),
    Question("u", "What is it?", {"A": "so"}, "A", "medqa"),
]


OF_HALF = {half_of(f"m{i}"): f"m{i}" for i in range(40)}
"""A question of MedMCQA of each half."""


def clean() -> list[Rationale]:
    """Two parts that share nothing with each other and with what is tested."""
    return [
        made("a", documents=frozenset({"3"})),
        made(OF_HALF["train"], "medmcqa"),
        made("b", part="held", documents=frozenset({"4"})),
        made(OF_HALF["held"], "medmcqa", "held"),
    ]


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        (made("x", documents=frozenset({"3", "1"})), "document with a test"),
        (made("x", documents=frozenset({"2"})), "document with a test"),
        (made("x", part="held", documents=frozenset({"1"})), "document with a test"),
        (made("x", question="what  IS it?"), "asks what"),
        (made("x", part="held", documents=frozenset({"3"})), "shares something"),
        (made("x", part="held", question="Question A"), "shares something"),
        (made("x", part="held", expert="Expert a"), "shares something"),
        (made("a", documents=frozenset({"3"})), "in twice"),
        (made(OF_HALF["train"], "medmcqa", "held"), "not of the half"),
    ],
)
def test_a_planted_leak_is_caught(planted, said):
    check_leaks(clean(), TESTED)
    with pytest.raises(Leak, match=said):
        check_leaks([*clean(), planted], TESTED)


# what is asked ------------------------------------------------------------------------------------


def test_the_passage_comes_before_the_question_and_is_all_that_differs():
    rationale = made("q", question="Why so?", options={"B": "two", "A": "one"})
    passage = Passage("p", "A title", "Some text.", "made", {})
    alone, with_passage = rationale_messages(rationale), rationale_messages(rationale, passage)
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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[pd.DataFrame, list[dict], Path]:
    """What a run that nobody kills makes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return *labelled(folder), folder


def test_every_number_is_that_of_its_own_question_and_passage(undisturbed):
    table, own, _ = undisturbed
    causal = tiny_causal()
    by_id = {r.qid: r for r in rationales()}
    near = {p.pid: p for found in passages() for p in found}
    texts = {row["qid"]: row["text"] for row in own}
    assert tuple(table.columns) == COLUMNS
    counts = table.groupby("rationale")["qid"].nunique()
    assert counts.to_dict() == {"expert": len(by_id), "own": sum(OWN.values())}
    assert table.groupby(["qid", "rationale"]).size().eq(3).all()
    for row in table.itertuples():
        rationale, passage = by_id[row.qid], near[row.pid]
        assert (rationale.dataset, rationale.part) == (row.dataset, row.part)
        assert row.pid == f"p{row.qid[1:]}{row.rank - 1}"
        text = rationale.expert if row.rationale == "expert" else texts[row.qid]
        for prompt, found in [(None, row.log_p_without), (passage, row.log_p_with)]:
            messages = rationale_messages(rationale, prompt)
            ((expected, tokens),) = causal.log_likelihoods([(messages, text)])
            assert row.tokens == tokens and found == pytest.approx(expected, abs=1e-3)


def test_letters_are_those_of_the_question(undisturbed):
    table, _, _ = undisturbed
    four = ["p_right_without", "p_right_with", "right_without", "right_with"]
    has_options = table["dataset"] == "medmcqa"
    assert table.loc[~has_options, four].isna().all(axis=None)
    assert table.loc[has_options, four].notna().all(axis=None)
    causal = tiny_causal()
    by_id = {r.qid: r for r in rationales()}
    near = {p.pid: p for found in passages() for p in found}
    for row in table[has_options].itertuples():
        rationale = by_id[row.qid]
        lines = "\n".join(f"{x}. {rationale.options[x]}" for x in "ABCD")
        document = f"Document [0] (Title: {near[row.pid].title}) {near[row.pid].text}"
        prompts = [
            load_prompt("letter_closed_book").messages(question=rationale.question, options=lines),
            load_prompt("letter_with_documents").messages(
                question=rationale.question, options=lines, documents=document
            ),
        ]
        asked = [[(messages, letter) for letter in "ABCD"] for messages in prompts]
        values = [(row.p_right_without, row.right_without), (row.p_right_with, row.right_with)]
        for pairs, (probability, right) in zip(asked, values, strict=True):
            odds = np.exp(causal.log_likelihoods(pairs)[:, 0])
            at = "ABCD".index(rationale.answer)
            assert probability == pytest.approx(odds[at] / odds.sum(), abs=1e-4)
            assert right == int(odds.argmax() == at)


def test_make_labels_keeps_no_words_of_others(tmp_path):
    """Who repeats the question or the expert has written nothing of their own; it is scored."""
    said = [f"word{i}" for i in range(40)]
    asked = rationales()
    asked[0] = replace(asked[0], question=" ".join(said[:30]))
    asked[1] = replace(asked[1], expert=" ".join(said[10:40]))
    replies = {
        "bioasq": [" ".join(["word7", *said[3:29]]), " ".join(said[12:38])],
        "medmcqa": [" ".join(said[:24])],
    }

    class Repeats(Labeller):
        def written(self, name, rationales):
            return replies[rationales[0].dataset]

    labeller = Repeats(tiny_causal(), "tiny", tmp_path)
    table, own = make_labels(labeller, asked, passages(), OWN)
    assert [row["text"] for row in own] == ["", "", replies["medmcqa"][0]]
    scored = table.loc[table["rationale"] == "own", "qid"]
    assert set(scored) == {row["qid"] for row in own}


# killed and run again -----------------------------------------------------------------------------


def portions(folder: Path, asked: list[int], stop_after: int = 10**6, size: int = 3):
    """Squares, made in portions; RuntimeError instead of the portion after ``stop_after``."""
    made = []

    def measure(portion):
        if len(made) == stop_after:
            raise RuntimeError("stopped")
        made.append(portion)
        return [x * x for x in portion]

    return in_batches("squares", asked, asked, measure, folder, size), made


@given(
    asked=st.lists(st.integers(1, 50), max_size=30),
    stop=st.integers(0, 10),
    size=st.integers(1, 7),
    torn=st.binary(max_size=8).filter(lambda end: b"\n" not in end),
)
def test_portions_go_on_where_they_stopped(tmp_path_factory, asked, stop, size, torn):
    folder = tmp_path_factory.mktemp("portions")
    expected = sorted(asked, reverse=True)
    try:
        portions(folder, asked, stop, size)
    except RuntimeError:
        (path,) = folder.glob("*.jsonl")
        path.write_bytes(path.read_bytes() + torn)  # killed within a line
        values, again = portions(folder, asked, size=size)
        assert [x for portion in again for x in portion] == expected[stop * size :]
    else:
        values, again = portions(folder, asked, size=size)
        assert again == []
    assert values == [x * x for x in asked]


# what is helpful ----------------------------------------------------------------------------------

fractions = st.sampled_from([*FRACTIONS, 0.1, 0.5, 1.0])


def test_five_in_a_hundred_and_none_of_nothing():
    for n, reach in ((60, 3), (3000, 150), (61, 4), (1, 1)):
        assert sum(np.arange(n) >= threshold(np.arange(n), 0.05)) == reach
    with pytest.raises(ValueError, match="a threshold needs differences"):
        threshold([], 0.25)


rows = st.fixed_dictionaries(
    {
        "dataset": st.sampled_from(["bioasq", "medmcqa"]),
        "part": st.sampled_from(["train", "held"]),
        "rationale": st.sampled_from(["expert", "own"]),
        "delta_ppl": st.integers(-4, 4).map(float),
    }
)
AT_LEAST_ONE = [
    {"dataset": d, "part": "train", "rationale": r, "delta_ppl": 0.0}
    for d in ("bioasq", "medmcqa")
    for r in ("expert", "own")
]


@given(drawn=st.lists(rows, max_size=40), fraction=fractions, held=st.integers(-9, 9))
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


def test_written_and_read_back(undisturbed, tmp_path):
    table, own, _ = undisturbed
    write_labels(table, own, tmp_path, {"date": "2000-01-01", "corpora": ["one"]})
    found = read_labels(tmp_path)
    pd.testing.assert_frame_equal(found[list(COLUMNS)], table, check_dtype=False, check_exact=True)
    assert list(read_jsonl(tmp_path / OWN_RATIONALES)) == own
    card = tomllib.loads((tmp_path / "card.toml").read_text())
    assert card["rows"] == len(table) and card["corpora"] == ["one"]


@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_labels_that_are_not_those_of_the_card_are_refused(undisturbed, tmp_path, harm):
    table, own, _ = undisturbed
    write_labels(table, own, tmp_path, {})
    path = tmp_path / "labels.csv.xz"
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises((FileNotFoundError, ValueError), match="tools.label_passages"):
        read_labels(tmp_path)


# the labels that are kept -------------------------------------------------------------------------


def own_rationales() -> dict[tuple[str, str], str]:
    rows = read_jsonl(FOLDER / OWN_RATIONALES)
    return {(row["dataset"], row["qid"]): row["text"] for row in rows}


def test_the_kept_labels_are_whole():
    found = read_labels()
    sizes = found[found["rationale"] == "expert"].groupby(["part", "dataset"]).size().to_dict()
    assert sizes == {("train", d): PASSAGES * n for d, n in TRAIN.items()} | {
        ("held", d): PASSAGES * n for d, n in HELD.items()
    }
    assert not found.duplicated(["dataset", "qid", "pid", "rationale"]).any()
    assert found["tokens"].between(1, REPLY_TOKENS).all()
    own = found[found["rationale"] == "own"]
    assert set(zip(own["dataset"], own["qid"], strict=True)) == set(own_rationales())
    card = tomllib.loads((FOLDER / "card.toml").read_text())
    assert card["rows"] == len(found) and card["model_sha256"] == SHA256


@pytest.mark.mirror
def test_the_kept_labels_are_of_these_questions(real):
    found = read_labels()
    by_id = {(r.dataset, r.qid): r for r in real}
    for key, text in own_rationales().items():
        assert label_passages._kept(by_id[key], text)["text"] == text
    asked = open_material().asked
    for dataset, qid, part in zip(found["dataset"], found["qid"], found["part"], strict=True):
        assert by_id[dataset, qid].part == part
        assert by_id[dataset, qid].asked == asked[dataset, qid]
