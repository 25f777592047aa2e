"""RAG2's long answers, their scores, and recordings that keep no words of others."""

from __future__ import annotations

import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.base.files import read_jsonl, write_jsonl_gz
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.llm.chat import ChatModel, Reply
from lib.llm.recorder import RecordingMiss
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.studies.rag2 import long_answers as long
from lib.studies.rag2 import writers
from lib.studies.rag2.filters import Filter
from lib.studies.rag2.long_answers import greedy, open_scorers, token_vectors
from tools import record_small

ENCODER = HashEncoder(dim=64)


# scores -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scorers() -> long.Scorers:
    return open_scorers()


def test_rouge_l_is_the_longest_common_subsequence(scorers):
    found = scorers["rouge_l"]("a b c", "a c d e")
    assert (found.precision, found.recall) == pytest.approx((2 / 3, 2 / 4))
    assert found.fmeasure == pytest.approx(2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
def test_greedy_takes_the_nearest_token_as_the_paper_prints_it(n, m, seed):
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(n, 5)), rng.normal(size=(m, 5))
    one /= np.linalg.norm(one, axis=1, keepdims=True)
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    found = greedy(one, other)
    precision = sum(max(float(c @ r) for r in other) for c in one) / n
    recall = sum(max(float(r @ c) for c in one) for r in other) / m
    assert (found.precision, found.recall) == pytest.approx((precision, recall))
    turned = greedy(other, one)
    assert (turned.precision, turned.recall) == pytest.approx((recall, precision))


TEXTS = (
    "Calcium-channel blockers may be chronically needed, and nitrates relieve the chest pain.",
    "Nitrates relieve pain in the chest; calcium antagonists are often needed for good.",
    "A body louse is removed by washing clothes and bedding in hot water.",
)


def test_token_scores_know_a_text_itself_and_a_paraphrase(scorers):
    scorer = scorers["bert_score"]
    same, paraphrase, other = (scorer(TEXTS[0], text) for text in TEXTS)
    assert tuple(same) == pytest.approx((1, 1, 1), abs=1e-5)
    assert same.fmeasure > paraphrase.fmeasure > other.fmeasure
    turned = scorer(TEXTS[1], TEXTS[0])
    assert turned.fmeasure == pytest.approx(paraphrase.fmeasure, abs=1e-6)
    assert turned.precision == pytest.approx(paraphrase.recall, abs=1e-6)
    for name in scorers:
        assert scorers[name]("", TEXTS[0]).fmeasure == 0.0


def test_token_vectors_are_those_of_all_tokens_but_the_marks():
    vectors = token_vectors()
    rows = vectors("A body louse is removed.")  # "louse" is two tokens
    assert rows.shape == (7, 384)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert vectors(" ".join(TEXTS * 30)).shape == (510, 384)


def answer(pid: str, title: str, subset: str, text: str = "", **meta) -> Passage:
    about = {"question": f"What of {title} ?", "question_type": "treatment", "cuis": []}
    about |= {"subset": subset, "document": pid.split("-")[0], "doc": pid} | meta
    return Passage(pid, title, text or f"words on {title}", "medquad", about)


# copied words -------------------------------------------------------------------------------------

RNG = random.Random(7)
LEXICON = ["pain", "chest,", "nitrates", "relieve", "(the)", "blood.", "of", "Heart", "may", "be"]
SHOWN = {f"p:{i}": " ".join(RNG.choices(LEXICON, k=40)) for i in range(3)}


@pytest.fixture(scope="module")
def shown_store(tmp_path_factory) -> PassageStore:
    passages = [Passage(pid, "", text, "s", {}) for pid, text in SHOWN.items()]
    return PassageStore.build(tmp_path_factory.mktemp("shown") / "store.sqlite", passages)


@settings(max_examples=60)
@given(
    parts=st.lists(
        st.one_of(
            st.text(alphabet="abc \n.", max_size=12),
            st.tuples(st.sampled_from(sorted(SHOWN)), st.integers(0, 39), st.integers(1, 39)),
        ),
        max_size=5,
    )
)
def test_copied_words_become_places_and_come_back(shown_store, parts):
    text = ""
    for part in parts:
        if isinstance(part, tuple):
            pid, start, length = part
            part = " ".join(SHOWN[pid].split()[start : start + length])
        text += f"{part} "
    kept = record_small.as_places(text, SHOWN)
    assert writers.with_words(kept, shown_store) == text
    left = kept.split("⟨")
    for piece in [left[0], *(piece.partition("⟩")[2] for piece in left[1:])]:
        assert writers.copied(piece, SHOWN) == []


def test_a_stretch_has_ten_words_and_stands_where_it_says():
    passage = SHOWN["p:0"].split()
    text = "It is said: " + " ".join(passage[5:16]) + " and so on"
    (stretch,) = writers.copied(text, SHOWN)
    there = SHOWN[stretch.pid][stretch.at : stretch.at + stretch.end - stretch.start]
    assert there == text[stretch.start : stretch.end] == " ".join(passage[5:16])
    assert writers.copied(" ".join(passage[5:14]), SHOWN) == []
    with pytest.raises(ValueError, match="mark of its own"):
        record_small.as_places("see ⟨p:0 1 2⟩", SHOWN)


# a writer that is recorded ------------------------------------------------------------------------


class Parrot(ChatModel):
    """Says the first twelve words of the last line of its request; counts how often."""

    name = writers.NAME

    def __init__(self) -> None:
        self.asked = 0

    def _say(self, messages, n, options) -> list[Reply]:
        self.asked += 1
        document = messages[-1]["content"].split("\n")[1].removeprefix("[1] ").split(": ")[-1]
        text = "I say " + " ".join(document.split()[: options["max_tokens"] // 10])
        return [Reply(text, "stop", 5, 7, 0.1, self.name, i) for i in range(n)]


@pytest.fixture
def small_corpus(own_folders) -> Retriever:
    rng = random.Random(11)
    lexicon = [f"word{i}" for i in range(60)]
    passages = [
        Passage(f"bioasq:{i}", "", " ".join(rng.choices(lexicon, k=30)), "bioasq", {})
        for i in range(8)
    ]
    for i in range(12):
        text = " ".join(rng.choices(lexicon, k=70))
        meta = {"question": f"What treats {text[:18]} ?"}
        passages.append(answer(f"medquad:T/{i}-1", f"illness {i}", "T", text, **meta))
    copy_of = passages[-1]
    twin = "Others say. " + " ".join(copy_of.text.split()[10:40])
    passages.append(answer("medquad:T/90-1", "a copy", "T", twin, question_type="genes"))
    store = PassageStore.build(own_folders / "store.sqlite", passages)
    index = DenseIndex([ENCODER.encode([p.text for p in store], "article")], store.ids())
    return Retriever(index, ENCODER, store)


def by_length(pairs) -> np.ndarray:
    """A made-up re-ranker."""
    return np.array([float(len(text)) for _, text in pairs])


def share_of_ones(pairs) -> np.ndarray:
    """A made-up filter: the share of the digit 1."""
    return np.array([text.count("1") / len(text) for _, text in pairs])


def asked_of(retriever: Retriever):
    questions = long.long_questions(retriever.store, 5)
    arms = long.pipelines(by_length, Filter("f", "f", share_of_ones), 0.0, ("bioasq", "medquad"))
    twins = long.twins_of(questions, retriever.store)
    return questions, arms, twins


def test_questions_are_of_one_document_each_and_asked_once(small_corpus):
    questions = long.long_questions(small_corpus.store, 12)
    documents = [small_corpus.store.get(q.qid).meta["document"] for q in questions]
    assert len(set(documents)) == 12
    assert all(60 <= len(q.ideal_answer.split()) <= 160 for q in questions)
    assert [q.qid for q in long.long_questions(small_corpus.store, 4)] == [
        q.qid for q in questions[:4]
    ]
    with pytest.raises(ValueError, match="12 questions fit, 13"):
        long.long_questions(small_corpus.store, 13)


def test_twins_are_the_document_itself_and_its_copies(small_corpus):
    questions = long.long_questions(small_corpus.store, 12)
    twins = long.twins_of(questions, small_corpus.store)
    last = "medquad:T/11-1"
    assert twins[last] == {last, "medquad:T/90-1"}
    assert all(twins[q.qid] == {q.qid} for q in questions if q.qid != last)


def test_without_its_own_document_no_arm_shows_it_and_with_it_some_do(small_corpus):
    questions, arms, twins = asked_of(small_corpus)
    shown = long.shown_passages(questions, arms, small_corpus, twins)
    assert set(shown["arm"]) == {long.STACKED, long.BALANCED, long.FILTERED}
    own = shown["pid"] == shown["qid"]
    is_twin = [row.pid in twins[row.qid] for row in shown.itertuples()]
    without = shown["setting"] == long.SETTINGS[0]
    assert own[~without].any() and not shown[is_twin]["setting"].eq(long.SETTINGS[0]).any()
    assert (shown.groupby(["setting", "arm", "qid"]).size() == long.K).all()


def test_replay_equals_what_was_recorded_and_asks_nobody(small_corpus, tmp_path, capsys):
    questions, arms, twins = asked_of(small_corpus)
    shown = long.shown_passages(questions, arms, small_corpus, twins)
    store, parrot = small_corpus.store, Parrot()
    made = []
    texts = {p.pid: p.text for p in store}
    live, file = tmp_path / "live" / "x.jsonl", tmp_path / "x.jsonl.gz"

    def ask(llm) -> None:
        made.append(long.answers_to(questions, arms, shown, store, llm))

    where = {"store": store, "passages": texts, "model": parrot, "folder": tmp_path}
    record_small.record("x", ask, **where)
    first = file.read_bytes()
    replayed = writers.Replayed("x", "make it", store, file)
    again = long.answers_to(questions, arms, shown, store, replayed)
    pd.testing.assert_frame_equal(made[0], again)
    # The parrot repeats passages: not one stretch of them may stand in the packed file.
    rows = list(read_jsonl(file))
    assert all("request" not in row for row in rows)
    assert any("⟨" in row["reply"]["text"] for row in rows)
    assert not any(writers.copied(row["reply"]["text"], texts) for row in rows)
    # Gone on with from the packed file alone, nothing is asked again and nothing changes.
    count, _ = parrot.asked, live.unlink()
    record_small.record("x", ask, **where)
    assert parrot.asked == count and file.read_bytes() == first
    # What nobody asks any more is dropped.
    live.unlink()
    record_small.record("x", lambda llm: None, **where)
    assert list(read_jsonl(file)) == []


def test_what_is_not_recorded_names_the_command(small_corpus, tmp_path):
    file = tmp_path / "none.jsonl.gz"
    with pytest.raises(RecordingMiss, match="run: make it"):
        writers.Replayed("x", "make it", small_corpus.store, file)
    write_jsonl_gz(file, [])
    llm = writers.Replayed("x", "make it", small_corpus.store, file)
    with pytest.raises(RecordingMiss, match="Run: make it"):
        llm.generate([{"role": "user", "content": "?"}])


def test_values_against_the_texts(small_corpus, scorers):
    questions, _, _ = asked_of(small_corpus)
    rows = []
    for setting in long.SETTINGS:
        for question in questions:
            pids = tuple(p.pid for p in small_corpus.store if p.source == "bioasq")[:1]
            text = small_corpus.store.get(pids[0]).text
            rows.append((setting, long.CLOSED, question.qid, question.ideal_answer, True, ()))
            rows.append((setting, long.FILTERED, question.qid, "", False, ()))
            for arm in (long.STACKED, long.BALANCED):
                rows.append((setting, arm, question.qid, text, False, pids))
    answers = pd.DataFrame(rows, columns=["setting", "arm", "qid", "answer", "cut", "pids"])
    values = long.long_answer_values(questions, answers, small_corpus.store, scorers)
    wide = values.set_index(["setting", "arm", "qid", "metric"])["value"].sort_index()
    qid = questions[0].qid
    closed = wide[long.SETTINGS[0], long.CLOSED, qid]
    assert closed["rouge_l"] == 1 and closed["bert_score"] == pytest.approx(1, abs=1e-5)
    assert closed["cut"] == 1 and closed["documents"] == closed["copied"] == 0
    assert closed["emptied"] == 0 and wide[long.SETTINGS[0], long.FILTERED, qid]["emptied"] == 1
    stacked = wide[long.SETTINGS[1], long.STACKED, qid]
    assert stacked["copied"] == 1 and stacked["documents"] == 1 and stacked["own"] == 0
    first = wide[long.SETTINGS[1], f"{long.STACKED}: {long.FIRST}", qid]
    assert first["rouge_l"] == stacked["rouge_l"]
    rouge_l, own = scorers["rouge_l"], questions[0].ideal_answer
    others = [rouge_l(q.ideal_answer, own).fmeasure for q in questions[1:]]
    assert wide[long.SETTINGS[0], long.CHANCE, qid, "rouge_l"] == pytest.approx(np.mean(others))


def test_an_arm_of_which_nothing_is_left_asks_as_if_without_documents(small_corpus):
    questions, _, _ = asked_of(small_corpus)
    shown = pd.DataFrame(
        [(s, long.FILTERED, questions[1].qid, 1, "bioasq:0") for s in long.SETTINGS],
        columns=["setting", "arm", "qid", "rank", "pid"],
    )

    class Echo(ChatModel):
        name = "echo"

        def _say(self, messages, n, options) -> list[Reply]:
            return [Reply(messages[-1]["content"], "stop", None, None, None, self.name)]

    answers = long.answers_to(questions, [long.FILTERED], shown, small_corpus.store, Echo())
    said = answers.set_index(["setting", "arm", "qid"])["answer"].sort_index()
    emptied, kept = questions[0].qid, questions[1].qid
    for setting in long.SETTINGS:
        closed = said[setting, long.CLOSED]
        assert said[setting, long.FILTERED, emptied] == closed[emptied]
        assert said[setting, long.FILTERED, kept] != closed[kept]
        assert "[1] " in said[setting, long.FILTERED, kept]


@pytest.mark.parametrize("name", [writers.RECORDING, long.RECORDING])
def test_recordings_hold_no_request(name):
    file = writers.packed_file(name)
    rows = list(read_jsonl(file))
    assert rows and all("request" not in row for row in rows)
    assert [row["key"] for row in rows] == sorted(row["key"] for row in rows)
    assert {row["author"] for row in rows} == {writers.NAME}


@pytest.mark.mirror
def test_rationales_of_both_writers_are_recorded(mirror, own_folders):
    # What the small model copied is kept as places in BioASQ's snippets.
    store = PassageStore.build(own_folders / "bioasq.sqlite", load_passages("bioasq"))
    questions = writers.writer_questions()
    assert len(questions) == 60 and {q.dataset for q in questions} == {"bioasq"}
    small = writers.Replayed(writers.RECORDING, writers.COMMAND, store)
    texts = writers.writer_texts(questions, small, writers.recorded())
    assert all(len(by_question) == 60 for by_question in texts.values())
    for qid, text in texts[writers.LARGE_SHORT].items():
        assert len(text.split()) <= len(texts[writers.SMALL][qid].split())
