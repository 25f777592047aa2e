"""The bundled set is fit to measure on, and its validator sees every way in which one is not."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib.base import paths
from lib.base.files import sha256_file
from lib.benchmarks import ddx_mini, load_benchmark
from lib.benchmarks.ddx_mini import FILES, known_errors, read
from lib.datasets import load_questions
from lib.embed import load_encoder
from lib.expansion import hypotheses
from lib.index_build import build_index, corpus_store
from lib.llm.chat import REFERENCE
from lib.llm.connect import connect
from lib.methods import METHODS
from lib.profiles import load_profile
from lib.run import Retriever
from lib.studies.grid.reference import record_reference
from lib.studies.lam.study import Study, hypotheses_of, open_study
from lib.ways import DRAWS, with_strangers
from tests.ddx_check import frozen_problems, range_problems, real_ranges, text_statistics, validate


def write_jsonl(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


# the set as it is --------------------------------------------------------------------------------


def test_the_bundled_set_is_valid():
    assert validate() == []


def test_the_readme_counts_what_there_is():
    text = (paths.DDX_MINI / "README.md").read_text(encoding="utf-8")
    for name in (*FILES, "freeze", "errata", "known_errors"):
        (rows,) = re.findall(rf"^\| `{name}\.jsonl` \| (\d+) \|", text, re.MULTILINE)
        assert int(rows) == len(read(name)), name
    said = re.search(r"abstracts (\d+), handbook (\d+),\s+textbook (\d+), encyclopedia (\d+)", text)
    sizes = Counter(p["source"] for p in read("passages"))
    names = ("abstracts", "handbook", "textbook", "encyclopedia")
    assert {n: int(c) for n, c in zip(names, said.groups(), strict=True)} == dict(sizes)


def test_the_readme_counts_the_known_errors_in_test_and_dev():
    text = (paths.DDX_MINI / "README.md").read_text(encoding="utf-8")
    said = re.search(
        r"(\d+) of the (\d+) questions \((\d+) of the (\d+) test questions, "
        r"(\d+) of the (\d+) dev questions\)",
        text,
    )
    wrong = ddx_mini.known_errors()
    benchmark = load_benchmark("ddx-mini")
    counted = []
    for qids in (benchmark.qids, benchmark.test, benchmark.dev):
        counted += [len(wrong & set(qids)), len(qids)]
    assert [int(number) for number in said.groups()] == counted
    parts = Counter(row["part"] for row in read("known_errors"))
    assert parts["H_plus"] == 0  # the README says that all H+ are on the target


def test_known_errors_are_the_questions_listed_and_do_not_change_the_set(copy):
    assert ddx_mini.known_errors() == {row["qid"] for row in read("known_errors")}
    assert ddx_mini.known_errors() < set(load_benchmark("ddx-mini").qids)
    rows = read("known_errors", copy)
    both_parts = rows[0] | {"part": "H_plus", "meant": target_of(rows[0]["qid"])}
    write_jsonl(copy / "known_errors.jsonl", [rows[0], both_parts])
    assert validate(copy) == []  # one question may be wrong in both parts
    assert ddx_mini.known_errors(copy) == {rows[0]["qid"]}
    # An error is marked, and nothing else of the set changes.
    fewer = ddx_mini.build(folder=copy)
    assert fewer.errata == {rows[0]["qid"]}
    assert replace(fewer, errata=ddx_mini.known_errors()) == ddx_mini.build()


def target_of(qid: str) -> str:
    return next(q["target"] for q in read("questions") if q["qid"] == qid)


def test_the_reference_recording_is_what_the_reference_text_gives(tmp_path):
    made = record_reference(tmp_path / "reference.jsonl")
    assert made.read_bytes() == (paths.RECORDINGS / "reference.jsonl").read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["reference.jsonl"]  # no times, no costs


def test_replayed_without_a_model_every_question_gets_its_own_hypotheses():
    llm = connect(load_profile("mini").llm)
    table = hypotheses(METHODS["chr"], load_questions("ddx-mini"), llm).set_index("qid")
    for row in read("hypotheses"):
        found = table.loc[row["qid"]]
        assert (found["H_plus"], found["H_minus"]) == (row["H_plus"], row["H_minus"])
        (reply,) = found["replies"]
        assert reply.model == REFERENCE
        assert (reply.prompt_tokens, reply.output_tokens, reply.latency_s) == (None, None, None)
    assert (table["error"] == "").all() and not table["repaired"].any()


def test_as_a_benchmark_every_list_is_that_of_its_question():
    b = load_benchmark("ddx-mini")
    questions = {q["qid"]: q for q in read("questions")}
    rows = {h["qid"]: h for h in read("hypotheses")}
    topic = {p["pid"]: p["topic"] for p in read("passages")}
    classes = {(r["qid"], r["pid"]): r["class"] for r in read("qrels")}
    assert b.qids == tuple(questions) and set(b.dev) | set(b.test) == set(b.qids)
    # No curve depends on what other methods wrote; which questions are left out depends on errors.
    behind = [name for name in FILES if name != "expansions"] + ["known_errors"]
    assert b.files == tuple(f"ddx-mini/{name}.jsonl" for name in behind)
    assert set(b.h_minus) == {"nearest"} and not b.several and b.errata == known_errors()
    for i, qid in enumerate(b.qids):
        q = questions[qid]
        assert b.questions[i] == q["question"] and b.h_plus[i] == rows[qid]["H_plus"]
        assert b.h_minus["nearest"][i] == rows[qid]["H_minus"]
        of = {p: c for (asked, p), c in classes.items() if asked == qid}
        assert b.targets[qid] == {p for p, c in of.items() if c in ("target", "both")}
        assert b.mimics[qid] == {p for p, c in of.items() if c in ("mimic", "both")}
        assert b.topics[qid] == {q["target"], q["mimic"]}
        assert {topic[p] for p, c in of.items() if c == "target"} == {q["target"]}
        assert {topic[p] for p, c in of.items() if c == "mimic"} == {q["mimic"]}
    assert ddx_mini.build() == b


def test_a_strangers_mimic_is_on_neither_topic_of_the_question():
    b = load_benchmark("ddx-mini")
    questions = {q["qid"]: q for q in read("questions")}
    written: dict[str, list[dict]] = {}
    for h in read("hypotheses"):
        written.setdefault(h["H_minus"], []).append(questions[h["qid"]])
    drawn = with_strangers(hypotheses_of(b))
    for qid, q in questions.items():
        strangers = drawn[qid].of("mimic", "stranger")
        assert len({text.text for text in strangers}) == DRAWS
        for other in (other for text in strangers for other in written[text.text]):
            assert not {other["target"], other["mimic"]} & {q["target"], q["mimic"]}
            # No passage on it is judged here.
            assert not b.mimics[other["qid"]] & (b.targets[qid] | b.mimics[qid])


# the validator sees what is wrong ----------------------------------------------------------------


@pytest.fixture
def copy(tmp_path) -> Path:
    return Path(shutil.copytree(paths.DDX_MINI, tmp_path / "set"))


def correct(folder: Path, name: str) -> None:
    """Enter the file as it is now in the errata."""
    row = {"file": f"{name}.jsonl", "id": "x", "what": "w", "why": "y"}
    digest = sha256_file(folder / f"{name}.jsonl")
    write_jsonl(folder / "errata.jsonl", [*read("errata", folder), row | {"sha256": digest}])


def text(value: str | None, key: str = "text", place: int = 0):
    """A change: ``key`` of one row becomes ``value``."""

    def change(rows: list[dict]) -> None:
        rows[place][key] = value

    return change


def eight_words(rows: list[dict]) -> None:
    p = min(rows, key=lambda row: len(row["text"].split()))
    other = next(o for o in rows if o is not p and len(o["text"].split()) > 8)
    p["text"] += " " + " ".join(other["text"].split()[:8]).upper() + "!"


def without_target(rows: list[dict]) -> None:
    qid = rows[0]["qid"]
    rows[:] = [r for r in rows if (r["qid"], r["class"]) != (qid, "target")]


def is_meant(rows: list[dict]) -> None:
    rows[0]["describes"] = rows[0]["meant"]


def again(rows: list[dict]) -> None:
    rows.append(dict(rows[0]))


RULES = [
    ("passages", eight_words, r"share the words '"),
    ("passages", text("Too short."), r": 2 words, wanted 50 to 130"),
    ("passages", text("fifth", "source"), r"wanted four sources of unequal size, found"),
    ("passages", text("new", "extra"), r"^passages, row 1: fields \["),
    ("questions", text("no topic", "target"), r"target and mimic must be two topics"),
    ("questions", text("E", "answer"), r"options and answer do not fit style|balanced"),
    ("questions", text("dev", "split"), r"a pair of look-alikes stands in dev and in test"),
    ("hypotheses", text("It is a haemolytic " * 9, "H_plus"), r"'haemo' is not American spelling"),
    ("hypotheses", text("some-model-72b", "author"), r"author is 'some-model-72b', not 'ref"),
    ("expansions", lambda rows: rows[0]["hyde"].pop(), r"not six texts of 30 to 120 words"),
    ("qrels", text("nobody-1", "pid"), r"qrel .*/nobody-1 names something that does not exist"),
    ("qrels", again, r"^qrel id .* stands 2 times"),
    ("qrels", without_target, r": no target passage$"),
    ("known_errors", text("another disease", "meant"), r": meant is 'another disease', the quest"),
    ("known_errors", is_meant, r": what it describes is what was meant"),
]


@pytest.mark.parametrize(("name", "change", "message"), RULES, ids=[m[:30] for *_, m in RULES])
def test_one_thing_wrong_is_caught_and_nothing_else_is_said(name, change, message, copy):
    rows = read(name, copy)
    change(rows)
    write_jsonl(copy / f"{name}.jsonl", rows)
    if name in FILES:
        correct(copy, name)
    found = validate(copy)
    assert found and all(re.search(message, problem) for problem in found), found[:5]


@pytest.mark.parametrize("name", FILES[:2])
def test_a_file_changed_after_the_freeze_needs_an_erratum(name, copy):
    path = copy / f"{name}.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    (problem,) = validate(copy)
    assert problem.startswith(f"{name}.jsonl has sha256 {sha256_file(path)[:12]}, not the frozen")
    correct(copy, name)
    assert frozen_problems(copy) == []

    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert len(frozen_problems(copy)) == 1  # each change needs its own
    correct(copy, name)
    assert frozen_problems(copy) == []
    shutil.copy(paths.DDX_MINI / f"{name}.jsonl", path)
    assert len(frozen_problems(copy)) == 1  # and an undone one too


def test_a_set_that_was_never_frozen_is_not_accepted(copy):
    (copy / "freeze.jsonl").write_text("")
    found = frozen_problems(copy)
    assert len(found) == len(FILES) and all("never frozen" in problem for problem in found)


# real or not -------------------------------------------------------------------------------------


def opened(store, encoder) -> Study:
    """The bundled set, ready to be searched."""
    index = build_index(store, encoder, progress=False)
    return open_study(load_benchmark("ddx-mini"), Retriever(index, encoder, store))


def test_the_bundled_set_lies_within_what_real_sets_show():
    encoder, store = load_encoder("minilm"), corpus_store(["ddx-mini"])
    statistics = text_statistics(opened(store, encoder), store)
    assert range_problems(statistics, pd.read_csv(paths.DDX_MINI / "ranges.csv")) == []


def test_a_median_outside_what_real_sets_show_is_named():
    rng = np.random.default_rng(0)
    real = {
        "one": pd.DataFrame({"cos": rng.uniform(0.2, 0.6, 5000), "copied": np.zeros(5000)}),
        "two": pd.DataFrame({"cos": rng.uniform(0.4, 0.8, 5000), "copied": np.full(5000, 0.1)}),
    }
    ranges = real_ranges(real)
    row = ranges.set_index("statistic").loc["cos"]
    assert (row["low"], row["high"]) == pytest.approx((0.22, 0.78), abs=0.01)
    inside = pd.DataFrame({"cos": [0.0, 0.5, 1.0], "copied": [0.0, 0.05, 0.1]})
    assert range_problems(inside, ranges) == []
    (problem,) = range_problems(inside.assign(cos=[0.85, 0.9, 0.1]), ranges)
    assert problem.startswith("median cos is 0.850, real sets show 0.2")
    assert len(range_problems(inside.assign(cos=0.1, copied=0.2), ranges)) == 2
