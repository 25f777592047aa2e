"""Open questions: arms, scores and claims on made sets, against brute force."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rouge_score.scoring import Score

from lib.base.provenance import read_result
from lib.data.passages import Passage
from lib.data.store import PassagesInMemory
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.llm.chat import ChatModel, Reply
from lib.methods.base import Expansion
from lib.methods.chr import written_pair
from lib.profiles import load_profile
from lib.query_spec import Hypotheses, SearchSpec, Text
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.studies import open_questions as study

WORDS = [f"word{i}" for i in range(50)]
ENCODER = HashEncoder()


def share(candidate: str, reference: str) -> Score:
    """A plain score: how many of the words of both are in both."""
    one, other = set(candidate.split()), set(reference.split())
    return Score(0.0, 0.0, len(one & other) / max(1, len(one | other)))


SCORERS = {"rouge_l": share, "bert_score": share}


@pytest.fixture
def asked(tmp_path, monkeypatch) -> study.Asked:
    """Ten questions; the writer of the last gave nothing that can be used."""
    monkeypatch.setenv("CHR_CACHE", str(tmp_path))
    generator = random.Random(3)
    texts = [" ".join(generator.sample(WORDS, 7)) for _ in range(60)]
    ids = [f"p{i:02d}" for i in range(60)]
    store = PassagesInMemory(
        Passage(pid, "", text, "s", {}) for pid, text in zip(ids, texts, strict=True)
    )
    index = DenseIndex([ENCODER.encode(texts, "article")], ids)
    questions, pairs, passages = [], {}, {}
    for i in range(10):
        said = [" ".join(generator.sample(WORDS, 4)) for _ in range(4)]
        answer = " ".join(generator.sample(WORDS, 6))
        question = Question(f"q{i}", said[0], {}, "", "made", ideal_answer=answer)
        questions.append(question)
        pairs[question.qid] = Expansion(written_pair(said[0], said[1], said[2], SearchSpec()))
        written = (Text(said[0], 1.0, "query", "question"), Text(said[3], role="passage"))
        passages[question.qid] = Expansion(Hypotheses(written))
    pairs["q9"] = passages["q9"] = Expansion(None, {"error": "broken"})
    written = {"hypotheses": pairs, "hyde": passages}
    hidden = {"q0": frozenset(ids[:30])}
    return study.Asked("made", questions, written, Retriever(index, ENCODER, store), hidden)


def test_every_arm_is_what_brute_force_finds(asked):
    values = study.values_of(asked, SCORERS)
    wide = values.set_index(["arm", "qid", "metric"])["value"]
    texts = {passage.pid: passage.text for passage in asked.retriever.store}
    documents = {pid: ENCODER.encode([text], "article")[0] for pid, text in texts.items()}

    def unit(text: str, tower: str = "article") -> np.ndarray:
        return ENCODER.encode([text], tower)[0].astype(float)

    for question in asked.questions[:-1]:
        pair, hyde = (asked.written[k][question.qid].request for k in ("hypotheses", "hyde"))
        plus, minus = (unit(pair.of(role)[0].text) for role in ("target", "mimic"))
        passage = unit(hyde.of("passage")[0].text)
        vectors = {
            "question": unit(question.text, "query"),
            "hyde": unit(question.text, "query") + passage,
            "hplus": plus,
            "chr@0.4": plus - 0.4 * minus,
            "chr@1": plus - minus,
        }
        hidden = asked.hidden.get(question.qid, frozenset())
        for arm, vector in vectors.items():
            scores = {pid: float(row @ vector) for pid, row in documents.items()}
            ranked = sorted(scores.keys() - hidden, key=lambda pid: (-round(scores[pid], 6), pid))
            near = [share(texts[pid], question.ideal_answer).fmeasure for pid in ranked[: study.K]]
            assert wide[arm, question.qid, study.BEST] == pytest.approx(max(near))
            assert wide[arm, question.qid, study.FIRST] == pytest.approx(near[0])
            assert wide[arm, question.qid, "bert_score_first"] == pytest.approx(near[0])
            assert wide[arm, question.qid, "failed"] == 0


def test_a_question_without_texts_finds_nothing_and_counts(asked):
    values = study.values_of(asked, SCORERS)
    of_last = values[values["qid"] == "q9"].set_index(["arm", "metric"])["value"]
    for arm in ("hyde", *study.SPECS):
        assert of_last[arm, "failed"] == 1 and of_last[arm, study.BEST] == 0
    assert of_last["question", "failed"] == 0
    assert set(values.groupby(["arm", "metric"]).size()) == {10}


def test_two_comparisons_were_declared_and_no_other_has_a_verdict(asked):
    values = study.values_of(asked, SCORERS)
    both = [values.assign(dataset=name) for name in ("bioasq, open questions", "medquad")]
    collection = study.Collection(load_profile("open"))
    made = study.tables(collection, study.pd.concat(both, ignore_index=True))
    compared = made["open_questions_claims"]
    declared = compared[compared["status"] == "primary"]
    assert declared[["dataset", "metric", "arm", "baseline"]].to_numpy().tolist() == [
        ["bioasq, open questions", study.BEST, "chr@1", other] for other in ("question", "hplus")
    ]
    assert (compared.loc[compared["status"] != "primary", "verdict"] == "").all()
    assert (made["open_questions"]["n"] == 10).all()


class Parrot(ChatModel):
    """Gives every request what its kind of reply is, and notes how it was asked."""

    name = "parrot"

    def __init__(self):
        self.asked = []

    def _say(self, messages, n, options):
        self.asked.append((messages[-1]["content"], n, options))
        said = '{"H_plus": "this", "H_minus": "that"}' if options.get("schema") else "a passage"
        return [Reply(said, "stop", 1, 1, 0.0, self.name)] * n


def test_a_writer_is_asked_by_figure_2_and_sees_the_question_alone():
    question = Question("q", "What causes it?", {}, "", "made", ideal_answer="A secret.")
    llm = Parrot()
    made = study.ask([question], llm)
    assert [kind for kind, found in made.items() if found["q"].request] == list(study.WRITERS)
    (about_pair, n, options), (about_passage, samples, _) = llm.asked
    assert (n, samples, options["max_tokens"]) == (1, 2, 256)
    assert "contradict each other" in about_pair
    for request in (about_pair, about_passage):
        assert "What causes it?" in request and "secret" not in request


def test_what_notebook_13_says_of_the_committed_tables_is_so():
    compared, _ = read_result("open_questions_claims", "open", committed=True)
    declared = compared[compared["status"] == "primary"]
    assert declared["verdict"].tolist() == ["AGAINST", "AGAINST"]
    rows = compared.set_index(["dataset", "metric", "arm", "baseline"])
    bioasq, medquad = "bioasq, open questions", study.MEDQUAD
    for metric in study.METRICS[:3]:
        for arm in ("hplus", "hyde"):
            assert rows.loc[(bioasq, metric, arm, "question"), "low"] > 0
        assert rows.loc[(bioasq, metric, "chr@1", "chr+rotation@1"), "high"] < 0
        assert rows.loc[(medquad, metric, "hyde", "question"), "low"] < 0
    means, _ = read_result("open_questions", "open", committed=True)
    failed = means[means["metric"] == "failed"].set_index(["dataset", "method"])["value"]
    assert 0.5 < failed[medquad, "hplus"] < failed[medquad, "chr@1"]
    assert failed[bioasq].max() == failed[medquad, "hyde"] == 0
