"""The bundled set is as it was frozen, fit to measure on, and read as it is written."""

from __future__ import annotations

import pytest

from lib.base import paths
from lib.base.files import sha256_file
from lib.benchmarks import load_benchmark
from lib.benchmarks.ddx_mini import FILES, known_errors, read
from lib.datasets import load_questions
from lib.expansion import hypotheses
from lib.forms import read_qrels
from lib.llm.chat import REFERENCE
from lib.llm.connect import connect
from lib.methods import METHODS
from lib.profiles import load_profile
from lib.query_spec import DRAWS, with_random_mimics
from lib.studies.lambda_sweep.study import hypotheses_of
from tools.reference import record_reference

QUESTIONS = {q["qid"]: q for q in read("questions")}

# the set as it is --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_as_frozen_or_as_last_corrected(name):
    """``freeze.jsonl`` has the sha256 of each file before the first retrieval run; each row of
    ``errata.jsonl`` says what was corrected and what the hash became."""
    rows = [row for row in [*read("freeze"), *read("errata")] if row["file"] == f"{name}.jsonl"]
    assert rows[-1]["sha256"] == sha256_file(paths.DDX_MINI / f"{name}.jsonl")


def test_the_judgments_for_other_programs_are_the_same():
    judged, _ = read_qrels(paths.DDX_MINI / "qrels.txt")
    rows = {(qid, pid): relevance for qid, of in judged.items() for pid, relevance in of.items()}
    assert rows == {(r["qid"], r["pid"]): int(r["class"] != "mimic") for r in read("qrels")}


def test_a_known_error_is_one_and_says_why():
    rows = read("known_errors")
    assert len({(row["qid"], row["part"]) for row in rows}) == len(rows)
    for row in rows:
        topic = QUESTIONS[row["qid"]][{"H_plus": "target", "H_minus": "mimic"}[row["part"]]]
        assert row["meant"] == topic != row["describes"] and row["describes"] and row["why"]


# the set as it is read ---------------------------------------------------------------------------


def test_as_a_benchmark_every_list_is_that_of_its_question():
    b = load_benchmark("ddx-mini")
    rows = {h["qid"]: h for h in read("hypotheses")}
    classes = {(r["qid"], r["pid"]): r["class"] for r in read("qrels")}
    assert b.qids == tuple(QUESTIONS) and set(b.dev) | set(b.test) == set(b.qids)
    # No curve depends on what other methods wrote; which questions are left out depends on errors.
    behind = [name for name in FILES if name != "expansions"] + ["known_errors"]
    assert b.files == tuple(f"ddx-mini/{name}.jsonl" for name in behind)
    assert set(b.h_minus) == {"nearest"} and not b.several and b.errata == known_errors()
    for i, (qid, q) in enumerate(QUESTIONS.items()):
        assert b.questions[i] == q["question"] and b.h_plus[i] == rows[qid]["H_plus"]
        assert b.h_minus["nearest"][i] == rows[qid]["H_minus"]
        judged = {pid: name for (asked, pid), name in classes.items() if asked == qid}
        assert b.targets[qid] == {p for p, c in judged.items() if c in ("target", "both")}
        assert b.mimics[qid] == {p for p, c in judged.items() if c in ("mimic", "both")}
        assert b.topics[qid] == {q["target"], q["mimic"]}
        assert (qid in b.dev) == (q["split"] == "dev")


def test_a_strangers_mimic_is_on_neither_topic_of_the_question():
    b = load_benchmark("ddx-mini")
    written: dict[str, list[dict]] = {}
    for h in read("hypotheses"):
        written.setdefault(h["H_minus"], []).append(QUESTIONS[h["qid"]])
    drawn = with_random_mimics(hypotheses_of(b))
    for qid, q in QUESTIONS.items():
        strangers = drawn[qid].of("mimic", "stranger")
        assert len({text.text for text in strangers}) == DRAWS
        for other in (other for text in strangers for other in written[text.text]):
            assert not {other["target"], other["mimic"]} & {q["target"], q["mimic"]}
            # No passage on it is judged here.
            assert not b.mimics[other["qid"]] & (b.targets[qid] | b.mimics[qid])


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
