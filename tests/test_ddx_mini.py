"""The bundled set is fit to measure on, and its validator sees every way in which one is not."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib.base import paths
from lib.base.files import sha256_file
from lib.benchmarks import ddx_mini, load_benchmark
from lib.benchmarks.base import ngrams, shared_ngrams
from lib.benchmarks.ddx_mini import FILES, known_errors, read
from lib.datasets import load_questions
from lib.embed import HashEncoder, load_encoder
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


def test_the_command_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "tests.ddx_check"],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.startswith("ddx-mini is valid: {'passages': ")


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


# every rule of the validator ---------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path) -> Path:
    return Path(shutil.copytree(paths.DDX_MINI, tmp_path / "set"))


def correct(folder: Path, name: str) -> None:
    """Enter the file as it is now in the errata."""
    row = {"file": f"{name}.jsonl", "id": "x", "what": "w", "why": "y"}
    digest = sha256_file(folder / f"{name}.jsonl")
    write_jsonl(folder / "errata.jsonl", [*read("errata", folder), row | {"sha256": digest}])


def shorter(rows: list[dict]) -> dict:
    """A passage with room for a few words."""
    return min(rows, key=lambda p: len(p["text"].split()))


def text(value: str | None, key: str = "text", place: int = 0):
    """A change: ``key`` of one row becomes ``value``."""

    def change(rows: list[dict]) -> None:
        rows[place][key] = value

    return change


def eight_words(rows: list[dict]) -> None:
    p = shorter(rows)
    other = next(o for o in rows if o is not p and len(o["text"].split()) > 8)
    p["text"] += " " + " ".join(other["text"].split()[:8]).upper() + "!"


def add(value: str, key: str):
    def change(rows: list[dict]) -> None:
        row = shorter(rows) if key == "text" else rows[0]
        row[key] += f" {value}"

    return change


def equal_sizes(rows: list[dict]) -> None:
    sizes = Counter(p["source"] for p in rows)
    pairs = itertools.combinations(sizes.most_common(), 2)
    (big, n), (small, m) = next(pair for pair in pairs if (pair[0][1] - pair[1][1]) % 2 == 0)
    for p in [p for p in rows if p["source"] == big][: (n - m) // 2]:
        p["source"] = small
    assert len(set(Counter(p["source"] for p in rows).values())) < 4


def all_a(rows: list[dict]) -> None:
    for q in rows:
        if q["style"] == "medqa":
            q["answer"] = "A"


def without(name: str):
    """No passage of one class for the first question."""

    def change(rows: list[dict]) -> None:
        qid = rows[0]["qid"]
        rows[:] = [r for r in rows if (r["qid"], r["class"]) != (qid, name)]

    return change


def drop_option(rows: list[dict]) -> None:
    next(q for q in rows if len(q["options"]) == 4)["options"].pop("D")


def same_options(rows: list[dict]) -> None:
    rows[0]["options"]["A"] = rows[0]["options"]["B"]


def target_is_mimic(rows: list[dict]) -> None:
    rows[0]["mimic"] = rows[0]["target"]


WORDS_60 = " ".join(f"word{i}" for i in range(60))
RULES = [
    ("passages", eight_words, r"share the words '"),
    ("passages", text(" ".join(WORDS_60.split()[:49])), r": 49 words, wanted 50 to 130"),
    ("passages", text(" ".join(f"word{i}" for i in range(131))), r": 131 words, wanted 50 to 130"),
    ("passages", text("Harrison", "check"), r"names no source its facts can be checked in"),
    ("passages", text("fifth", "source"), r"wanted four sources of unequal size, found"),
    ("passages", equal_sizes, r"wanted four sources of unequal size, found"),
    (
        "passages",
        text("abstracts-002", "pid"),
        r"passage id abstracts-002 stands 2 times|"
        r"names something that does not exist",
    ),
    ("passages", add("oedema", "text"), r"'oedema' is not American spelling"),
    ("passages", add("anaemia", "title"), r"'anaemi' is not American spelling"),
    ("passages", lambda rows: rows[3].pop("title"), r"^passages, row 4: fields \["),
    ("passages", text("new", "extra"), r"^passages, row 1: fields \["),
    (
        "questions",
        lambda rows: rows.append(dict(rows[0])),
        r"^question id .* stands 2 times$|letters are not balanced",
    ),
    ("questions", drop_option, r"options and answer do not fit style"),
    ("questions", text("essay", "style"), r"options and answer do not fit style 'essay'|balanced"),
    ("questions", text("E", "answer"), r"options and answer do not fit style|balanced"),
    ("questions", text("", "answer"), r"options and answer do not fit style|balanced"),
    ("questions", text("AB", "answer"), r"options and answer do not fit style|balanced"),
    ("questions", same_options, r": two options are the same$"),
    ("questions", target_is_mimic, r"target and mimic must be two topics of the passages"),
    ("questions", text("no topic", "target"), r"target and mimic must be two topics"),
    ("questions", text("train", "split"), r"split is 'train', not dev or test"),
    ("questions", all_a, r"^style medqa: answer letters are not balanced: "),
    ("questions", add("Which tumour is it?", "question"), r"'tumour' is not American spelling"),
    ("hypotheses", lambda rows: rows.pop(), r"hypotheses and questions are not for the same ids"),
    ("hypotheses", lambda rows: rows.append(dict(rows[0])), r"^hypothesis for id .* stands 2"),
    ("hypotheses", text("Too short.", "H_minus"), r"H_minus has 2 words, not 15 to 120"),
    ("hypotheses", text(WORDS_60 * 3, "H_plus"), r"H_plus has \d+ words, not 15 to 120"),
    ("hypotheses", text("some-model-72b", "author"), r"author is 'some-model-72b', not 'ref"),
    ("hypotheses", add("It is haemolytic.", "H_plus"), r"'haemo' is not American spelling"),
    ("expansions", lambda rows: rows.pop(), r"expansions and questions are not for the same ids"),
    ("expansions", text("Too short.", "rationale"), r"not six texts of 30 to 120 words"),
    ("expansions", lambda rows: rows[0]["hyde"].pop(), r"not six texts of 30 to 120 words"),
    ("expansions", text("a-model", "author"), r"author is 'a-model', not 'reference text'"),
    ("questions", text("dev", "split"), r"a pair of look-alikes stands in dev and in test"),
    ("qrels", text("nobody-1", "pid"), r"qrel .*/nobody-1 names something that does not exist"),
    ("qrels", text("nobody-1", "qid"), r"qrel nobody-1/.* names something that does not exist"),
    ("qrels", text("perhaps", "class"), r"class 'perhaps'$"),
    ("qrels", lambda rows: rows.append(dict(rows[0])), r"^qrel id .* stands 2 times"),
    ("qrels", without("target"), r": no target passage$"),
    ("qrels", without("mimic"), r": no mimic passage$"),
]


@pytest.mark.parametrize(
    ("name", "change", "message"), RULES, ids=[f"{n}: {m[:30]}" for n, _, m in RULES]
)
def test_one_thing_wrong_is_caught_and_nothing_else_is_said(name, change, message, copy):
    rows = read(name, copy)
    change(rows)
    write_jsonl(copy / f"{name}.jsonl", rows)
    correct(copy, name)
    found = validate(copy)
    assert found and all(re.search(message, problem) for problem in found), found[:5]
    first = message.split("|")[0]
    assert any(re.search(first, problem) for problem in found)


def is_meant(rows: list[dict]) -> None:
    rows[0]["describes"] = rows[0]["meant"]


KNOWN_ERROR_RULES = [
    (text("nobody-1", "qid"), r"^known error nobody-1/H_minus: no question has this id$"),
    (text("H-", "part"), r"^known error .*/H-: the part is not one of H_plus, H_minus$"),
    (text("H_plus", "part"), r": meant is '.*', the question says '"),
    (text("another disease", "meant"), r": meant is 'another disease', the question says '"),
    (text(" ", "why"), r": nothing stands in why$"),
    (text(None, "why"), r": nothing stands in why$"),
    (text("", "describes"), r": nothing stands in describes$"),
    (is_meant, r": what it describes is what was meant"),
    (lambda rows: rows.append(dict(rows[0])), r"^known error id .*/H_minus stands 2 times$"),
    (lambda rows: rows[2].pop("why"), r"^known_errors, row 3: fields \["),
    (text("new", "extra"), r"^known_errors, row 1: fields \["),
]


@pytest.mark.parametrize(
    ("change", "message"), KNOWN_ERROR_RULES, ids=[m[:30] for _, m in KNOWN_ERROR_RULES]
)
def test_a_known_error_that_is_not_well_said_is_refused(change, message, copy):
    rows = read("known_errors", copy)
    change(rows)
    write_jsonl(copy / "known_errors.jsonl", rows)
    (problem,) = validate(copy)
    assert re.search(message, problem), problem


def test_books_may_be_spelled_as_their_authors_do(copy):
    rows = read("passages", copy)
    rows[0]["check"] = "Essential Haematology, Oesophageal disease"
    write_jsonl(copy / "passages.jsonl", rows)
    correct(copy, "passages")
    assert validate(copy) == []


def test_the_greek_names_americans_spell_alike_are_allowed(copy):
    rows = read("passages", copy)
    shorter(rows)["text"] += " Haemophilus, exercise, otherwise, promise and a sulfite."
    write_jsonl(copy / "passages.jsonl", rows)
    correct(copy, "passages")
    assert validate(copy) == []


@pytest.mark.parametrize("name", FILES)
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


# shared words ------------------------------------------------------------------------------------


def test_shared_words_are_counted_without_case_and_punctuation():
    text_ = "One two, three (four) five-six seven eight; nine."
    assert len(ngrams(text_)) == 2 and ngrams("seven words are too few for one") == set()
    assert shared_ngrams(text_, ["ONE TWO THREE FOUR FIVE SIX SEVEN EIGHT"]) == 0.5
    assert shared_ngrams(text_, [text_, "other"]) == 1.0
    assert shared_ngrams(text_, []) == shared_ngrams("short", [text_]) == 0.0
    halves = ["one two three four", "five six seven eight nine"]
    assert shared_ngrams(text_, halves) == 0.0  # a sequence does not run from text to text


# real or not -------------------------------------------------------------------------------------


def opened(store, encoder) -> Study:
    """The bundled set, ready to be searched."""
    index = build_index(store, encoder, progress=False)
    return open_study(load_benchmark("ddx-mini"), Retriever(index, encoder, store))


def test_statistics_are_per_question(own_folders):
    encoder = HashEncoder()
    store = corpus_store(["ddx-mini"])
    lab = opened(store, encoder)
    table = text_statistics(lab, store)
    assert len(table) == len(lab.benchmark.qids)
    for i in (0, 11):
        qid = lab.benchmark.qids[i]
        golds = store.get_many(sorted(lab.benchmark.targets[qid]))
        b = lab.benchmark
        h_plus, h_minus = encoder.encode([b.h_plus[i], b.h_minus["nearest"][i]])
        cosines = encoder.encode([p.text for p in golds]) @ h_plus
        assert table.loc[i, "cos(H+, gold)"] == pytest.approx(cosines.max(), abs=1e-5)
        assert table.loc[i, "cos(H+, H-)"] == pytest.approx(h_plus @ h_minus, abs=1e-5)
        share = shared_ngrams(lab.benchmark.h_plus[i], [p.text for p in golds])
        assert table.loc[i, "copied 8-grams"] == share


def test_the_bundled_set_lies_within_what_real_sets_show():
    measured = paths.DDX_MINI / "ranges.csv"
    if not measured.exists():
        pytest.skip("ranges.csv was not measured yet: it comes with the open profile's curves")
    encoder, store = load_encoder("minilm"), corpus_store(["ddx-mini"])
    assert (
        range_problems(text_statistics(opened(store, encoder), store), pd.read_csv(measured)) == []
    )


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
