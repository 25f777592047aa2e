"""The judged sets for other programs: what is on file is what was judged, and measures the same."""

from __future__ import annotations

import re
import subprocess
import sys

import ir_measures
import pytest

from lib.base import paths
from lib.data.judgments import evidence, read_judgments, read_pair_judgments
from lib.trec import judged_sets, load_judged_set


def test_the_published_script_measures_runs_as_the_committed_outcomes_say(tmp_path):
    """The first one in docs/reproduce.md, which must not use what made them."""
    text = (paths.ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    script, *_ = re.findall(r"```python\n(.*?)```", text, re.S)
    assert "lib" not in re.findall(r"^\s*(?:from|import) (\w+)", script, re.M)
    (tmp_path / "data").symlink_to(paths.DATA)
    for name in ("exams-test", "bioasq-rag2", "ddx-mini", "masked", "pubmedqa"):
        load_judged_set(name).write(tmp_path / "build" / "trec" / name)
    command = [sys.executable, "-I", "-c", script]  # without lib on its path
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    told = re.findall(r"^(\w+) +(\d+) +(\d+) +(\d+)$", run.stdout, re.M)
    counts = {(metric, int(arms)): (same, of) for metric, arms, same, of in told}
    # 300 questions of each arm; ddx-mini's 96 by every method that is no control.
    assert counts["supports_correct", 35] == counts["on_topic_at_5", 35] == ("10500", "10500")
    assert counts["p_at_5", 12] == ("1152", "1152")
    # 500 questions of eight arms; 210 of those of the answers.
    assert counts["mrr", 8] == ("4000", "4000")
    # Five passages are masked together: an abbreviation that one introduces is then a name in all.
    together = {metric: int(same) / int(of) for metric, _, same, of in told if "names" in metric}
    assert len(together) == 2 and min(together.values()) > 0.99
    assert len(told) > 15
    assert all(same == of for metric, _, same, of in told if metric not in together)


@pytest.mark.parametrize("name", judged_sets())
def test_a_set_holds_judgments_and_runs_of_its_own_questions(name):
    judged = load_judged_set(name)
    qids = set()
    for label in judged.labels:
        rows = list(judged.qrels_iter(label))
        assert rows and len({row[:2] for row in rows}) == len(rows)
        assert {row.relevance for row in rows} <= set(range(4))
        qids |= {row.query_id for row in rows}
    assert bool(judged.runs) == bool(judged.values)
    for run in judged.runs:
        found = list(judged.scoreddocs_iter(run))
        assert {row.query_id for row in found} <= qids
        assert len({row[:2] for row in found}) == len(found)


def test_an_unknown_set_label_or_run_is_named_with_what_there_is():
    with pytest.raises(ValueError, match="exams_test.*did you mean 'exams-test'"):
        load_judged_set("exams_test")
    judged = load_judged_set("exams-test")
    with pytest.raises(ValueError, match="exams-test has no label 'right'"):
        next(judged.qrels_iter("right"))
    with pytest.raises(ValueError, match="exams-test has no run 'chr'"):
        next(judged.scoreddocs_iter("chr"))


def test_files_are_read_back_by_ir_measures_in_their_order(tmp_path):
    judged = load_judged_set("ddx-mini")
    judged.write(tmp_path)
    run = list(ir_measures.read_trec_run(str(tmp_path / "runs" / "chr.run")))
    assert [tuple(row) for row in run] == [tuple(row) for row in judged.scoreddocs_iter("chr")]
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "qrels" / "target.txt")))
    want = list(judged.qrels_iter("target"))
    assert [tuple(row) for row in qrels] == [tuple(row) for row in want]
    lines = (tmp_path / "runs" / "chr.run").read_text().splitlines()
    assert all(len(line.split()) == 6 and line.split()[5] == "chr" for line in lines)
    assert [line.split()[3] for line in lines[:10]] == [str(rank) for rank in range(1, 11)]


def test_texts_of_a_bundled_set_are_those_that_were_judged():
    judged = load_judged_set("ddx-mini")
    queries = {query.query_id: query.text for query in judged.queries_iter()}
    docs = {doc.doc_id: doc.text for doc in judged.docs_iter()}
    rows = [row for label in judged.labels for row in judged.qrels_iter(label)]
    assert {row.query_id for row in rows} == set(queries) and {row.doc_id for row in rows} <= set(
        docs
    )
    assert all(queries.values()) and all(docs.values())


def test_a_pair_has_what_every_pass_said_of_it_and_no_planted_one_is_listed():
    judged = load_judged_set("contradiction")
    said: dict[tuple, list[bool]] = {}
    for row in read_pair_judgments():
        if row["judge"] != "single" and row["same"] is not None:
            said.setdefault((row["a"], row["b"]), []).append(row["stance"] == "disagree")
    listed = {row[:2]: row.relevance for row in judged.qrels_iter("disagree.both")}
    assert {pair: int(all(said[pair])) for pair in listed} == listed
    assert not any(pid.startswith("plant:") for pair in listed for pid in pair)
    assert sum(listed.values()) > 150


@pytest.mark.mirror
def test_exam_labels_are_what_the_judges_said_of_the_keyed_option(mirror):
    from lib.datasets import load_real

    answers = {q.qid: q.answer for q in load_real("test") if q.dataset != "bioasq"}
    judged = load_judged_set("exams-test")
    rows = (row for row in read_judgments() if row["qid"] in answers)
    known = evidence(row for row in rows if not row["pid"].startswith("plant:"))
    right, wrong, topic = (
        {row[:2]: row.relevance for row in judged.qrels_iter(f"{label}.both")}
        for label in ("right", "wrong", "topic")
    )
    assert set(right) == set(wrong) == set(topic) == set(known)
    for key, said in known.items():
        assert right[key] == (answers[key[0]] in said.supports)
        assert wrong[key] == bool(said.supports - {answers[key[0]]})
        assert topic[key] == int(said.on_topic)
    first = {row[:2]: row.relevance for row in judged.qrels_iter("right.first")}
    assert sum(first.values()) > sum(right.values()) > 700


@pytest.mark.mirror
@pytest.mark.parametrize("name", ["exams-dev", "bioasq-dev", "scifact", "contradiction"])
def test_every_judged_question_and_passage_has_its_text(name, mirror):
    judged = load_judged_set(name)
    docs = {doc.doc_id for doc in judged.docs_iter()}
    queries = {query.query_id for query in judged.queries_iter()}
    rows = [row for label in judged.labels for row in judged.qrels_iter(label)]
    assert {row.query_id for row in rows} == queries
    assert {row.doc_id for row in rows} <= docs
