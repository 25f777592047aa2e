"""One call evaluates methods on data of your own: oracle, resume, lambda grid, refusals."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import ir_measures
import pytest

from lib.base import paths
from lib.corpus import Corpus, contrast
from lib.embed import HashEncoder, load_encoder
from lib.evaluation import Written, evaluate
from lib.forms import read_qrels, read_questions, write_qrels
from lib.methods import METHODS
from lib.methods.base import Expansion
from lib.methods.chr import written_pair
from lib.query_spec import SearchSpec
from lib.readers import EvidenceReader
from tests.rocchio import Rocchio

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


def test_a_small_p_value_is_shown_as_less_than_a_thousandth_and_none_as_nothing(own):
    retriever, questions, qrels = own
    done = evaluate(retriever, questions, qrels, measures=["P@5"], progress=False)
    table = done.table.assign(p_corrected=[float("nan"), 0.0004])
    shown = replace(done, table=table)
    assert repr(shown).splitlines()[-1].endswith("< 0.001")
    assert "<td>&lt; 0.001</td>" in shown._repr_html_() and "nan" not in repr(shown).lower()
    assert repr(replace(done, table=table.assign(p_corrected=0.25))).endswith("0.250")


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


def test_a_reader_answers_from_what_each_arm_found_and_any_right_answer_counts(own, tmp_path):
    rows = ["id,question,A,B,C,answer"]
    for n, topic in enumerate(TOPICS):
        rows.append(
            f"a{n},{topic} sign1?,nothing,{topic} fever,{topic} fever,{'B' if n else 'B;C'}"
        )
    (tmp_path / "asked.csv").write_text("\n".join(rows) + "\n")

    class Third(EvidenceReader):
        def answer_all(self, questions, contexts):
            assert all(len(context) == 3 for context in contexts)
            return [replace(a, letter="C") for a in super().answer_all(questions, contexts)]

    retriever, asked = own[0], str(tmp_path / "asked.csv")
    done = evaluate(retriever, asked, reader=Third(retriever.encoder), k=3, progress=False)
    assert done.table["value"].tolist() == [1 / 8] * 2  # C is right of the first question alone
    reader = EvidenceReader(retriever.encoder)
    done = evaluate(retriever, asked, reader=reader, k=3, progress=False)
    questions, _ = read_questions(asked)
    for arm, run in done.runs.groupby("method"):
        found = run[run["rank"] <= 3].groupby("qid")["pid"].apply(list)
        contexts = [retriever.store.get_many(found[q.qid]) for q in questions]
        letters = [answer.letter for answer in reader.answer_all(questions, contexts)]
        want = (
            sum(
                letter in {q.answer, *q.also_right}
                for letter, q in zip(letters, questions, strict=True)
            )
            / 8
        )
        assert done.table.set_index("arm").loc[arm, "value"] == pytest.approx(want) and want > 0.5
    qrels = {f"a{n}": {f"{t}-0": 1} for n, t in enumerate(TOPICS[:4])}
    both = evaluate(retriever, asked, qrels, reader=reader, k=3, measures=["RR"], progress=False)
    assert both.table.groupby("metric")["n"].first().to_dict() == {"RR": 4, "accuracy": 8}
    with pytest.raises(ValueError, match="8 of 8 questions lack them, first 'q0'"):
        evaluate(*own, reader=reader)


def test_an_own_method_is_taken_from_its_file_and_made_anew_when_its_text_changes(own, tmp_path):
    text = (paths.ROOT / "tests" / "rocchio.py").read_text(encoding="utf-8")
    file, kept = tmp_path / "mine.py", tmp_path / "kept"

    def made(text: str):
        file.write_text(text)
        asked = {"methods": ["standard", f"{file}:Rocchio"], "folder": kept, "progress": False}
        done = evaluate(*own, **asked)
        return done.runs, (kept / "runs" / "rocchio.run").stat().st_mtime_ns

    (first, written), (again, same) = made(text), made(text)
    assert written == same and again["pid"].tolist() == first["pid"].tolist()
    assert set(first["method"]) == {"standard", "rocchio"}
    other, later = made(text.replace("weight=self.beta", "weight=-self.beta"))
    assert later > written and other["pid"].tolist() != first["pid"].tolist()


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
        ({"methods": [Rocchio]}, r"a class: give a method of it, Rocchio\(\)"),
        ({"methods": [Rocchio(), Rocchio(depth=9)]}, "two methods are called 'rocchio'"),
        ({"methods": ["nosuch.py:Mine"]}, "no file nosuch.py"),
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


def test_texts_of_ones_own_are_searched_with_and_what_lacks_them_is_counted(own, capsys):
    retriever, questions, qrels = own
    pairs = {f"q{n}": (t, TOPICS[(n + 1) % 8]) for n, t in enumerate(TOPICS)}
    done = evaluate(*own, methods=Written(pairs), lambdas=[0, 1], measures=["P@5"])
    for lam in (0, 1):
        for question in questions:
            found = [pid for pid, _ in retriever.search(contrast(*pairs[question.qid], lam), 5)]
            of_arm = done.runs[done.runs["method"] == f"written@{lam}"]
            run = of_arm[of_arm["qid"] == question.qid].sort_values("rank")
            assert run["pid"].tolist()[:5] == found
    capsys.readouterr()
    del pairs["q3"]
    less = evaluate(*own, methods=Written(pairs), measures=["P@5"])
    assert less.failed["written"] == {"q3": "no H+ and H- are given for it"}
    assert "1 of 8 questions failed and count 0, first q3" in capsys.readouterr().err


def test_a_method_that_gives_no_request_has_failed_and_odd_judgments_are_counted(own, capsys):
    @dataclass(frozen=True)
    class Nothing(Written):
        name: str = "nothing"

        def expand(self, question, llm, search):
            return Expansion(None)

    retriever, questions, qrels = own
    odd = qrels | {"q0": {"gone": 1}, "unasked": {"gout-0": 1}}
    done = evaluate(retriever, questions, odd, methods=[Nothing()], measures=["P@5"])
    assert len(done.failed["nothing"]) == 8 and (done.table["value"] == 0).all()
    said = capsys.readouterr().err
    assert "1 of 9 judged questions are not asked" in said
    assert "1 of 36 relevant passages are not in the corpus" in said
