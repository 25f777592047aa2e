"""Algorithm 1: its order, what is dropped and why, broken replies, counts, and its requests."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.embed import HashEncoder
from lib.forms import read_passages, read_qrels
from lib.llm.chat import ChatModel, Reply, current_tag
from lib.llm.recorder import Recorder
from lib.studies.real.expansions import WRITER
from lib.studies.slhyde import building_study as study
from lib.studies.slhyde import tasks
from lib.studies.slhyde.building import (
    STEPS,
    Query,
    build,
    counts,
    search_in,
    task_of,
    thresholds,
)
from lib.studies.slhyde.tasks import open_task
from tools import build_set, texts
from tools.annotation import give_texts, pending, record_texts, recorded

DISEASES = ["gout", "measles", "scurvy", "rabies", "mumps", "asthma", "tetanus", "anthrax"]
GIVEN = DISEASES[:4]
MATCHED = DISEASES[4:]


def passage(disease: str, part: int = 0) -> Passage:
    doc = f"medquad:x/{disease}-1"
    text = f"The cause of {disease} is known. Rest helps against {disease}. Part {part} ends here."
    return Passage(f"{doc}#{part}", disease, text, "medquad", {"doc": doc})


PASSAGES = [passage(disease, part) for disease in DISEASES for part in range(3)]


def query(disease: str) -> Query:
    route = "given" if disease in GIVEN else "matched"
    text = f"What is the cause of {disease} ?"
    return Query(f"medquad:x/{disease}-1", text, passage(disease), f"{disease} is known.", route)


QUERIES = [query(disease) for disease in DISEASES]

GOOD = {
    "medical": {"reason": "a disease", "label": 1},
    "rank": {"ranking": [1, 2, 3]},
    "extract": {"sentences": [3, 1]},
    "answer": {"reason": "it says so", "enough": True, "answer": "It is known."},
    "validate": {"reason": "the same", "similarity": 0.9},
    "relevance": {"reason": "to the point", "quality": 5},
}


def own_first(asked: str) -> list[int]:
    """The numbers of the passages shown, those on the question's disease first."""
    question, _, below = asked.partition("Passages:")
    titles = re.findall(r"(?m)^\[(\d+)\] (\w+)$", below)
    about = question.rpartition("Question:")[2]
    return [int(number) for number, _ in sorted(titles, key=lambda shown: shown[1] not in about)]


class StandIn(ChatModel):
    """Replies by step; ``instead`` has other replies by (step, part of the request)."""

    name = WRITER

    def __init__(self, instead: dict | None = None):
        self.instead = instead or {}
        self.asked: list[tuple[str, list[dict]]] = []

    def _say(self, messages, n, options):
        step = current_tag()["method"]
        self.asked.append((step, messages))
        return [Reply(self.reply_to(step, messages), "stop", None, None, None, self.name)]

    def reply_to(self, step: str, messages: list[dict]) -> str:
        for (of_step, part), said in self.instead.items():
            if of_step == step and part in messages[0]["content"]:
                if isinstance(said, list):  # one reply after the other
                    said = said[min(len(messages) // 2, len(said) - 1)]
                return said if isinstance(said, str) else json.dumps(said)
        if step == "rank":
            return json.dumps({"ranking": own_first(messages[0]["content"])[:3]})
        if step == "answer":  # other evidence, another answer
            return json.dumps(GOOD[step] | {"answer": messages[0]["content"].splitlines()[-6]})
        return json.dumps(GOOD[step])


def built(instead: dict | None = None, queries=QUERIES):
    llm = StandIn(instead)
    return build(queries, llm, search_in(PASSAGES)), llm


def of(pairs, disease: str) -> list:
    return [pair for pair in pairs if pair.query.qid == f"medquad:x/{disease}-1"]


def test_steps_follow_each_other_and_given_queries_keep_their_passage():
    pairs, llm = built()
    asked = [step for step, _ in llm.asked]
    assert list(dict.fromkeys(asked)) == list(STEPS)
    assert Counter(asked) == dict(zip(STEPS, (8, 4, 12, 12, 12, 16), strict=True))
    assert not any(pair.dropped for pair in pairs)
    for disease in GIVEN:
        (pair,) = of(pairs, disease)
        assert pair.passage == passage(disease) and pair.place == 0 and pair.similarity is None
    for disease in MATCHED:
        assert [pair.place for pair in of(pairs, disease)] == [1, 2, 3]
    known = {query.answer for query in QUERIES}
    for step, messages in llm.asked:  # only steps that may know it are shown the known answer
        labelled = re.findall(r"(?m)^(?:Known answer|Answer): (.+)$", messages[0]["content"])
        assert (set(labelled) <= known and len(labelled) == 1) == (step in ("extract", "validate"))
    pair = of(pairs, "mumps")[0]
    part = pair.passage.pid[-1]
    assert pair.evidence == ("The cause of mumps is known.", f"Part {part} ends here.")
    shown = [messages[0]["content"] for step, messages in llm.asked if step == "answer"]
    (about_it,) = [text for text in shown if "\n".join(["mumps", *pair.evidence]) in text]
    assert "Rest helps" not in about_it


DROPPED = {
    "gout": ("medical", {"reason": "-", "label": 0}, "not medical"),
    "measles": ("relevance", {"reason": "-", "quality": 3}, "low quality"),
    "mumps": ("medical", {"reason": "-", "label": 0}, "not medical"),
    "asthma": ("extract", {"sentences": []}, "no evidence"),
    "tetanus": ("answer", {"reason": "-", "enough": False, "answer": "-"}, "too little evidence"),
    "anthrax": ("validate", {"reason": "-", "similarity": 0.69}, "another answer"),
}
"""At which step, by which reply, and why a disease is dropped."""


def test_what_is_dropped_why_and_how_it_is_counted():
    instead = {(step, disease): reply for disease, (step, reply, _) in DROPPED.items()}
    pairs, llm = built(instead)
    for disease in DISEASES:
        step, _, why = DROPPED.get(disease, ("", None, ""))
        assert {(pair.step, pair.dropped) for pair in of(pairs, disease)} == {(step, why)}
    for step, messages in llm.asked:  # nobody asks about what was dropped before
        for disease in ("gout", "mumps"):
            assert step == "medical" or f"cause of {disease} ?" not in messages[0]["content"]
    table = counts(pairs)
    n = table.groupby(["route", "step"], sort=False)["n"].sum()
    kept = table[table["outcome"] == "kept"].set_index(["route", "step"])["n"]
    assert n["given", "relevance"] == kept["given", "medical"] == 3
    assert n["matched", "rank"] == kept["matched", "medical"] == 3
    assert n["matched", "extract"] == 3 * kept["matched", "rank"]
    for before, after in pairwise(list(STEPS)[2:]):
        assert n["matched", after] == kept["matched", before]
    assert kept["given", "relevance"] == 2 and kept["matched", "relevance"] == 0
    rows = study.pair_rows(pairs)
    assert len(rows) == len(pairs) and rows.loc[rows["route"] == "given", "own"].all()
    assert (rows["dropped"] == [pair.dropped for pair in pairs]).all()


def test_thresholds_are_least_values_that_stay():
    instead = {
        ("validate", "mumps"): {"reason": "-", "similarity": 0.7},
        ("relevance", "gout"): {"reason": "-", "quality": 4},
    }
    pairs, _ = built(instead)
    assert not any(pair.dropped for pair in pairs)
    table = thresholds(pairs).set_index(["step", "least"])["kept"]
    assert table["relevance", 4] == len(pairs) == table["relevance", 5] + len(of(pairs, "gout"))
    assert table["validate", 0.7] == 12 == table["validate", 0.8] + len(of(pairs, "mumps"))


def test_what_is_not_medical_leaves_the_corpus_and_the_candidates():
    gone = passage("mumps")
    foreign = Query("other", "What is the cause of mumps ?", gone, "-", "given")
    twin = replace(query("mumps"), source=passage("anthrax", 2), text="Does rest help mumps?")
    assert gone.pid in {pair.passage.pid for pair in built()[0]}
    pairs, llm = built({("medical", "mumps ?"): {"reason": "-", "label": 0}}, [foreign, twin])
    assert of(pairs, "mumps") and gone.pid not in {p.passage.pid for p in of(pairs, "mumps")}
    asked = next(messages for step, messages in llm.asked if step == "rank")
    assert gone.text not in asked[0]["content"]
    assert len(re.findall(r"(?m)^\[\d+\] \w+$", asked[0]["content"])) == 20
    assert task_of("x", pairs, PASSAGES).corpus == [p for p in PASSAGES if p != gone]


def test_the_model_ranks_all_candidates_in_an_order_that_tells_nothing():
    _, llm = built(queries=[query("mumps")])
    found = [p.pid for p in search_in(PASSAGES)(query("mumps").text, 20)]
    (shown,) = [messages[0]["content"] for step, messages in llm.asked if step == "rank"]
    texts_shown = re.findall(r"\[\d+\] \w+\n(.+)", shown)
    ids = [next(p.pid for p in PASSAGES if p.text == text) for text in texts_shown]
    assert len(ids) == 20 and sorted(ids) == sorted(found) and ids != found
    pairs, _ = built({("rank", "mumps ?"): {"ranking": [7, 20, 1]}})
    assert [pair.passage.pid for pair in of(pairs, "mumps")] == [ids[6], ids[19], ids[0]]
    nothing, _ = built(queries=[replace(query("mumps"), text="Zebra ?")])
    assert [(pair.step, pair.dropped) for pair in nothing] == [("rank", "no candidates")]
    llm = StandIn({("rank", ""): {"ranking": [2, 1]}})
    few = build([query("mumps")], llm, search_in(PASSAGES[:2]))
    assert [pair.place for pair in few] == [1, 2]


BROKEN = [
    ("medical", "I cannot say."),
    ("medical", {"reason": "-", "label": 2}),
    ("rank", {"ranking": [1, 1, 2]}),
    ("rank", {"ranking": [1, 2]}),
    ("extract", {"sentences": [9]}),
    ("answer", {"reason": "-", "enough": "yes", "answer": "-"}),
    ("validate", {"reason": "-", "similarity": 1.1}),
    ("relevance", {"reason": "-", "quality": 6}),
]


@pytest.mark.parametrize(("step", "wrong"), BROKEN)
def test_a_broken_reply_gets_one_repair_and_then_counts_as_failed(step, wrong):
    repaired, _ = built({(step, "mumps"): [wrong, GOOD[step]]})
    assert not any(pair.dropped for pair in repaired)
    pairs, llm = built({(step, "mumps"): wrong})
    failed = {(pair.step, pair.dropped) for pair in pairs if pair.dropped}
    assert failed == {(step, "no usable reply")}
    assert max(len(messages) for _, messages in llm.asked) == 3
    # A broken reply says nothing of the passage.
    assert len(task_of("x", pairs, PASSAGES).corpus) == len(PASSAGES)


# requests and control items -----------------------------------------------------------------------


def test_requests_go_out_step_by_step_until_all_is_recorded(tmp_path, monkeypatch):
    path, llm, rounds = tmp_path / "building.jsonl.gz", StandIn(), []
    monkeypatch.setattr(texts, "load_passages", lambda name: PASSAGES)
    monkeypatch.setattr(texts, "unlabelled", lambda passages: passages)
    monkeypatch.setattr(study, "open_queries", lambda passages, allowed: QUERIES)
    while requests := pending(texts.building_asks(recorded(path, WRITER)), recorded(path, WRITER)):
        rounds.append(Counter(request.method for request in requests))
        desk = tmp_path / str(len(rounds))
        for place in give_texts("building", requests, desk):
            key = json.loads((desk / "keys" / f"{place}.json").read_text())["requests"]
            for name, request in key.items():
                reply = llm.reply_to(request["method"], request["messages"])
                (desk / place / f"{name}.reply").write_text(reply)
        assert record_texts("building", desk, path, WRITER, "an author", texts.own_words)[1] == []
    # Eight queries and six control items first; nothing is ranked before it is medical.
    assert rounds[0]["medical"] == 14 and "rank" not in rounds[0]
    assert sum(count["rank"] for count in rounds) == 4
    assert sum(count["relevance"] for count in rounds) == 4 + 12 + 3
    pairs = build(QUERIES, Recorder(None, path, "replay"), search_in(PASSAGES))
    assert not any(pair.dropped for pair in pairs)


def test_plants_are_dropped_by_whoever_reads():
    class Reader(StandIn):
        def reply_to(self, step, messages):
            named = len({d for d in DISEASES if d in messages[0]["content"]})
            alike = named == 1
            scores = {
                "medical": {"label": int(named > 0)},
                "validate": {"similarity": float(alike)},
                "relevance": {"quality": 1 + 4 * alike},
            }
            return json.dumps({"reason": "-"} | scores[step])

    table = study.caught(QUERIES, Reader()).set_index("step")
    assert table["planted"].to_dict() == {"medical": 6, "validate": 3, "relevance": 3}
    assert (table["dropped"] == table["planted"]).all() and (table["unusable"] == 0).all()
    fooled = study.caught(QUERIES, StandIn()).set_index("step")
    assert (fooled["dropped"] == 0).all()
    broken = study.caught(QUERIES, StandIn(dict.fromkeys([(s, "") for s in STEPS], "?")))
    assert (broken["unusable"] == broken["planted"]).all() and (broken["dropped"] == 0).all()


# what is measured --------------------------------------------------------------------------------


def test_the_base_retriever_and_bm25_are_measured_by_route(own_folders):
    pairs, _ = built({("relevance", "gout"): {"reason": "-", "quality": 1}})
    task = task_of("x", pairs, PASSAGES)
    retriever = open_task(task, HashEncoder(), "float32")
    routes = {query.qid: query.route for query in QUERIES}
    values = study.measured(task, routes, retriever)
    n = values.groupby(["dataset", "arm", "metric"]).size().unstack("metric")
    assert n.loc["x"].to_numpy().tolist() == [[7, 7], [7, 7]]
    assert n.loc["x, given"].to_numpy().tolist() == [[3, 3], [3, 3]]
    recall = values[values["metric"] == "recall_at_100"]
    assert np.allclose(recall.loc[recall["arm"] == "minilm", "value"], 1)  # the corpus is smaller


@pytest.mark.mirror
def test_the_open_set_is_one_that_nothing_learns_from(mirror):
    passages = list(load_passages(tasks.CORPUS))
    # Whether a disease is tested is for the tests of the corpus; reading the benchmarks is slow.
    queries = study.open_queries(passages, passages)
    assert len({query.qid for query in queries}) == study.QUERIES
    assert [query.route for query in queries].count("matched") == study.MATCHED
    learnt = {(p.meta["subset"], p.meta["document"]) for p in tasks.sample(passages)}
    by_id = {passage.pid: passage for passage in passages}
    for one in queries:
        meta = one.source.meta
        assert (meta["subset"], meta["document"]) not in learnt and one.text == meta["question"]
        assert one.answer in {by_id.get(pid, one.source).text for pid in (one.qid, f"{one.qid}#0")}


# a set of one's own, by any of the six tasks -----------------------------------------------------


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder in BEIR's form, and what runs the command on it with a stand-in."""
    folder, llm = tmp_path / "mine", StandIn()
    (folder / "qrels").mkdir(parents=True)
    rows = {
        "corpus": [{"_id": p.pid, "title": p.title, "text": p.text} for p in PASSAGES],
        "queries": [{"_id": q.qid, "text": q.text, "answer": q.answer} for q in QUERIES],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    judged = [f"{q.qid}\t{q.source.pid}\t1\n" for q in QUERIES if q.route == "given"]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    monkeypatch.setattr(build_set, "connect", lambda _: llm)

    def command(name: str, *tasks: str, source=folder):
        told = ["--task", *tasks] if tasks else []
        out = tmp_path / name
        build_set.main([str(source), "--llm", "any", "--out", str(out), *told])
        return out

    return command, llm


def test_the_command_builds_what_the_algorithm_builds_and_asks_nothing_twice(own):
    command, llm = own
    llm.instead = {("medical", "rabies"): {"reason": "no", "label": 0}}
    out = command("whole")
    wanted, _ = built(llm.instead)
    table = pd.read_csv(out / "pairs.csv", keep_default_na=False)
    assert set(zip(table["qid"], table["pid"], table["step"], strict=True)) == {
        (pair.query.qid, pair.passage.pid, pair.step) for pair in wanted
    }
    set_made = task_of("x", wanted, PASSAGES)
    assert read_qrels(out)[0] == {qid: dict(of) for qid, of in set_made.qrels.items()}
    assert {p.pid for p in read_passages(out)[0]} == {p.pid for p in set_made.corpus}
    before = len(llm.asked)
    command("whole")
    assert len(llm.asked) == before


def test_each_task_can_be_run_without_the_others(own):
    command, llm = own

    def asked_by(*tasks: str, source=None) -> Counter:
        llm.asked.clear()
        command("-".join(tasks), *tasks, **({"source": source} if source else {}))
        return Counter(step for step, _ in llm.asked)

    whole = command("whole")  # in it every query has a passage
    answers = {q.qid: q.answer for q in QUERIES}
    lines = [json.loads(line) for line in (whole / "queries.jsonl").read_text().splitlines()]
    told = [json.dumps(row | {"answer": answers[row["_id"]]}) + "\n" for row in lines]
    (whole / "queries.jsonl").write_text("".join(told))
    assert asked_by("rank") == {"rank": 4}
    assert asked_by("medical", source=whole) == {"medical": 8}
    assert asked_by("relevance", source=whole) == {"relevance": 8}
    assert asked_by("extract", source=whole) == {"extract": 8}
    assert asked_by("answer", source=whole) == {"answer": 8}
    assert "Rest helps" in llm.asked[0][1][0]["content"]  # the whole passage is the evidence
    assert asked_by("answer", "validate", source=whole) == {"answer": 8, "validate": 8}


def test_what_a_task_lacks_is_named(own):
    command, _ = own
    for named, says in (
        (["relevance"], "query medquad:x/mumps-1 has no passage in qrels"),
        (["rank", "validate"], "validate compares an answer"),
    ):
        with pytest.raises(SystemExit, match=says):
            command("wrong", *named)
