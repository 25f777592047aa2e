"""One call evaluates methods on data of your own: oracle, resume, lambda grid, refusals."""

from __future__ import annotations

import json

import ir_measures
import pytest

from lib.corpus import Corpus
from lib.embed import HashEncoder, load_encoder
from lib.evaluation import evaluate
from lib.forms import read_qrels, read_questions, write_qrels
from lib.methods import METHODS
from lib.methods.base import Expansion
from lib.methods.chr import written_pair
from lib.query_spec import SearchSpec

TOPICS = ["gout", "sepsis", "stroke", "asthma", "lupus", "measles", "mumps", "rabies"]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A retriever of 40 passages, 8 questions and their judgments, as files on disk."""
    monkeypatch.setenv("CHR_CACHE", str(tmp_path / "cache"))
    rows = [
        {"id": f"{topic}-{i}", "contents": f"{topic} sign{i} fever {TOPICS[n - 1]}"}
        for n, topic in enumerate(TOPICS)
        for i in range(5)
    ]
    asked = [{"id": f"q{n}", "question": f"{topic} sign1?"} for n, topic in enumerate(TOPICS)]
    for name, written in (("c.jsonl", rows), ("q.jsonl", asked)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in written))
    qrels = {f"q{n}": {f"{t}-{i}": 1 for i in range(5)} for n, t in enumerate(TOPICS)}
    write_qrels(tmp_path / "qrels.txt", qrels)
    corpus = Corpus.read(tmp_path / "c.jsonl")
    return (
        corpus.retriever(HashEncoder(), progress=False),
        read_questions(tmp_path / "q.jsonl")[0],
        read_qrels(tmp_path / "qrels.txt")[0],
    )


class Topic:
    """Counts how often the method below is asked."""

    calls = 0


def topic_method():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Contrast:
        name: str = "topic"
        lam: float = 1.0
        needs_llm: bool = False
        options_visible: bool = False

        def budget(self):
            return None

        def expand(self, question, llm, search):
            Topic.calls += 1
            topic = question.text.split()[0]
            mimic = TOPICS[(TOPICS.index(topic) + 1) % len(TOPICS)]
            pair = written_pair(question.text, topic, mimic, SearchSpec(lam=self.lam))
            return Expansion(pair)

    return Contrast()


def test_the_table_is_what_ir_measures_says_of_the_kept_runs(own, tmp_path):
    done = evaluate(*own, methods=["standard", "bm25"], folder=tmp_path / "kept", progress=False)
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "kept" / "qrels.txt")))
    for arm in ("standard", "bm25"):
        run = list(ir_measures.read_trec_run(str(tmp_path / "kept" / "runs" / f"{arm}.run")))
        for name in ("P@5", "R@10", "nDCG@10", "RR"):
            measure = ir_measures.parse_measure(name)
            want = ir_measures.calc_aggregate([measure], qrels, run)[measure]
            row = done.table.query("arm == @arm and metric == @name").iloc[0]
            assert row["value"] == pytest.approx(want)
    against = done.table.query("arm == 'bm25'")
    assert (against["baseline"] == "standard").all() and (
        against["p_corrected"] >= against["p"]
    ).all()


def test_every_lambda_is_an_arm_and_a_stopped_run_goes_on_where_it_was(own, tmp_path, monkeypatch):
    method, lambdas = topic_method(), [0.0, 0.4, 1.0]
    kept = tmp_path / "kept"
    Topic.calls = 0
    from lib import evaluation as module

    whole = module._searched

    def stopped(arm, *rest):
        if arm == "topic@1":
            raise KeyboardInterrupt
        return whole(arm, *rest)

    monkeypatch.setattr(module, "_searched", stopped)
    with pytest.raises(KeyboardInterrupt):
        evaluate(*own, methods=[method], lambdas=lambdas, folder=kept, progress=False)
    assert Topic.calls == 16
    monkeypatch.undo()
    done = evaluate(*own, methods=[method], lambdas=lambdas, folder=kept, progress=False)
    assert Topic.calls == 24  # the third arm alone
    assert list(done.table["arm"].unique()) == ["topic@0", "topic@0.4", "topic@1"]
    p5 = done.table.query("metric == 'P@5'").set_index("arm")["value"]
    assert p5["topic@0.4"] >= p5["topic@0"]
    again = evaluate(*own, methods=[method], lambdas=lambdas, folder=kept, progress=False)
    assert again.table.equals(done.table) and Topic.calls == 24


def test_what_fails_counts_as_nothing_found(own):
    class Failing(type(METHODS["standard"])):
        def expand(self, question, llm, search):
            if question.qid == "q0":
                return Expansion(None, {"error": "no reply"})
            return super().expand(question, llm, search)

    done = evaluate(*own, methods=["standard", Failing(name="failing")], progress=False)
    assert done.failed["failing"] == {"q0": "no reply"}
    row = done.values.query("arm == 'failing' and qid == 'q0'")
    assert (row["value"] == 0).all() and len(row) == 4
    assert (done.table["n"] == 8).all()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"methods": ["nosuch"]}, "no method 'nosuch'"),
        ({"methods": []}, "no method to evaluate"),
        ({"measures": ["precision"]}, "no measure 'precision'"),
        ({"baseline": "chr"}, "no arm 'chr'"),
        ({"correction": "guess"}, "no correction 'guess'"),
        ({"methods": [topic_method()], "lambdas": [float("nan")]}, "finite"),
    ],
)
def test_what_is_unknown_is_refused_before_anything_is_searched(own, wrong, says):
    with pytest.raises(ValueError, match=says):
        evaluate(*own, **wrong)
    retriever, questions, _ = own
    with pytest.raises(ValueError, match="no question has a judgment"):
        evaluate(retriever, questions, {"other": {"x": 1}})


def test_pieces_of_a_passage_that_was_judged_whole_count_as_it_once(own, tmp_path):
    _, questions, _ = own
    long = " ".join(f"gout sign{i} of the {i % 7}th toe." for i in range(60))
    rows = [{"id": "long", "contents": long}, {"id": "short", "contents": "gout"}]
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    minilm = load_encoder("minilm")
    corpus = Corpus.read(tmp_path / "long.jsonl", encoder=minilm, cut=64)
    retriever = corpus.retriever(minilm, progress=False)
    options = {"methods": ["bm25"], "measures": ["RR", "P@5"], "progress": False}
    done = evaluate(retriever, questions[:1], {"q0": {"long": 1}}, **options)
    pieces = [pid for pid in done.runs["pid"] if pid.startswith("long#")]
    assert len(pieces) > 2 and done.runs["pid"].iloc[0] in pieces
    assert done.table["value"].tolist() == [1.0, 0.2]
    # Judgments of pieces hold for pieces.
    second = {"q0": {done.runs["pid"].iloc[1]: 1}}
    assert evaluate(retriever, questions[:1], second, **options).table["value"].iloc[0] == 0.5
