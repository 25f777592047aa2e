"""The real sample with another writer or another encoder, and its verdict in words."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from lib.studies.real.second_encoder import compared

from lib.corpora import load_passages
from lib.data.store import PassageStore
from lib.datasets import load_real
from lib.embed import HashEncoder
from lib.llm.chat import ScriptedChat
from lib.llm.recorder import Recorder
from lib.pages import render
from lib.plots.captions import Lookup
from lib.run import Retriever
from lib.search.index import DenseIndex
from tools.own_writer import SHOWN, ask_again, beside_the_recorded, written_by


@pytest.fixture(scope="module")
def few(mirror, tmp_path_factory):
    """Two questions of each set, and the snippets of BioASQ's two among two hundred others."""
    every = load_real("test")
    asked = [q for name in ("medqa", "mmlu", "bioasq") for q in every if q.dataset == name][:2]
    asked += [q for q in every if q.dataset == "mmlu"][:2]
    asked += [q for q in every if q.dataset == "bioasq"][:2]
    own = {q.qid for q in asked}
    passages = list(load_passages("bioasq"))
    kept = [p for p in passages if own & set(p.meta["qids"])] + passages[:200]
    kept = list({p.pid: p for p in kept}.values())
    encoder = HashEncoder(64)
    vectors = encoder.encode([p.text for p in kept], "article")
    store = PassageStore.build(tmp_path_factory.mktemp("few") / "few.sqlite", kept)
    return asked, Retriever(DenseIndex([vectors], [p.pid for p in kept]), encoder, store)


def test_your_own_writer_stands_beside_the_recorded_one(few):
    questions, retriever = few
    reply = json.dumps({"H_plus": "It is gout.", "H_minus": "It is a sprain."})
    table = beside_the_recorded(ScriptedChat([{"match": "", "text": reply}]), questions, retriever)
    assert set(table["writer"]) == {"recorded", "reference text"}
    assert set(table["arm"]) == set(SHOWN) and set(table["dataset"]) >= {"exams", "bioasq"}
    # Nobody judged these snippets for exam questions: the row says so, and supports nothing.
    exams = table[table["dataset"] == "exams"].set_index(["writer", "metric"])["value"]
    assert exams["reference text", "judged_share"].eq(0).all()
    assert exams["reference text", "hit_right"].eq(0).all()


def test_a_question_that_your_writer_fails_on_retrieves_nothing_and_counts(few):
    """Of the six only one gets JSON: the other five are zeros, and are never left out."""
    questions, retriever = few
    reply = json.dumps({"H_plus": "It is gout.", "H_minus": "It is a sprain."})
    rules = [{"match": questions[0].text[:60], "text": reply}, {"match": "", "text": "no"}]
    table = beside_the_recorded(ScriptedChat(rules), questions, retriever)
    own = table[table["writer"] == "reference text"].set_index(["dataset", "metric", "arm"])
    assert own.loc[("exams", "hit_right", "hplus"), "n"] == 4
    assert own.loc[("exams", "abstains", "hplus"), "value"] == 1
    assert own.loc[("bioasq", "p_at_5", "chr@1"), ["value", "n"]].tolist() == [0, 2]


def test_only_what_your_writer_failed_on_is_asked_for_again(few, tmp_path, capsys):
    questions, _ = few
    good = {"match": "", "text": json.dumps({"H_plus": "It is gout.", "H_minus": "A sprain."})}
    bad = {"match": questions[0].text[:60], "text": "no"}
    file = tmp_path / "own.jsonl"
    with Recorder(ScriptedChat([bad, good]), file) as llm:
        assert sum(one.request is None for one in written_by(llm, questions)["hypotheses"].values())
    assert "1 of 6 replies" in (said := capsys.readouterr().err) and "own_writer --again" in said
    mended = ScriptedChat([{"match": bad["match"], "text": good["text"]}])
    with Recorder(mended, file) as llm:
        ask_again(llm, questions)
    with Recorder(ScriptedChat([]), file) as llm:
        made = written_by(llm, questions)["hypotheses"]
    assert all(one.request is not None for one in made.values())


def test_an_encoders_table_holds_means_and_paired_differences_from_h_plus():
    values = pd.DataFrame(
        [
            ("bioasq", arm, f"q{i}", "p_at_5", value * (i % 2))
            for arm, value in (("hplus", 0.8), ("chr@1", 0.4))
            for i in range(10)
        ],
        columns=["dataset", "arm", "qid", "metric", "value"],
    )
    table = compared(values).set_index("arm")
    assert table["value"].to_dict() == pytest.approx({"hplus": 0.4, "chr@1": 0.2})
    assert table.loc["chr@1", "difference"] == pytest.approx(-0.2)
    assert table.loc["chr@1", "difference_low"] < -0.2 < table.loc["chr@1", "difference_high"]
    assert pd.isna(table.loc["hplus", "difference"])


def outcome_of(hit: str, misled: str, excludes: str) -> pd.DataFrame:
    rows = [
        ("hit_right", "chr@1", "hplus", hit, ""),
        ("misled", "chr@1", "hplus", misled, excludes),
        ("p_at_5", "chr@1", "hplus", "AGAINST", ""),
    ]
    table = pd.DataFrame(rows, columns=["metric", "arm", "against", "verdict", "excludes"])
    numbers = {"value": 0.25, "value_against": 0.5, "difference": -0.25, "low": -0.3, "high": -0.2}
    return table.assign(status="primary", n=300, **numbers)


ARMS = pd.DataFrame(
    [("exams", "whole pool", "hit_right", 0.7), ("exams", "what H+ says", "reads_right", 0.9)],
    columns=["dataset", "arm", "metric", "value"],
)


@pytest.mark.parametrize(
    ("hit", "misled", "excludes", "answer", "words"),
    [
        ("AGAINST", "INCONCLUSIVE", "no", "Not as tested here", "does not count as exclusion"),
        ("AGAINST", "SUPPORTED", "no", "Not as tested here", "does not count as exclusion"),
        ("AGAINST", "SUPPORTED", "yes", "In part", "counts as exclusion"),
        ("SUPPORTED", "SUPPORTED", "yes", "In part", "counts as exclusion"),
    ],
)
def test_the_verdict_in_words_follows_from_the_tests(
    hit, misled, excludes, answer, words, monkeypatch
):
    tables = {"claims_real": outcome_of(hit, misled, excludes), "real_arms": ARMS}
    monkeypatch.setattr(render, "read", lambda name, profile="open": Lookup(tables[name]))
    text = render.block("verdict")
    assert f"Does it work? {answer}." in text and words in text
    assert f"**{hit}**" in text and "0.700 of the questions" in text
    held = [hit, misled, "AGAINST"].count("SUPPORTED")
    assert f"{held} held" in text
