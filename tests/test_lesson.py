"""The HyDE lesson: wrong passages, what is expected under them, and the claims."""

from __future__ import annotations

import random

import nbformat
import numpy as np
import pandas as pd
import pytest

from lib.base import paths
from lib.data.passages import Passage
from lib.data.store import PassagesInMemory
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.llm.chat import ChatModel, Reply
from lib.llm.connect import connect
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.llm.small_model import NAME
from lib.query_spec import Fusion, Hypotheses, Text
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.search.merge import merge_rrf
from lib.studies.hyde_study import (
    ARMS,
    DEPTH,
    NEAR,
    STUDY,
    Lesson,
    closeness,
    lesson_claims,
    mixed_name,
    strangers_of,
    with_mixed,
)

WORDS = [f"word{i}" for i in range(60)]


def made(seed: int = 0, questions: int = 30) -> Lesson:
    """Questions on a few words each, passages that answer them, and what experts gave for them."""
    generator = random.Random(seed)
    asked, passages, targets, texts = [], {}, {}, []
    for i in range(questions):
        about = generator.sample(WORDS, 4)
        asked.append(Question(f"q{i:02d}", " ".join(about[:2]), {}, "yes", "bioasq"))
        passages[f"q{i:02d}"] = [" ".join(about), " ".join(about[1:])]
        own = [len(texts), len(texts) + 1]
        # Some say much of what is asked, some little: not every search finds both.
        for _ in own:
            said = generator.sample(about, generator.randint(1, 3))
            texts.append(" ".join(said + generator.sample(WORDS, 3)))
        targets[f"q{i:02d}"] = frozenset(f"p{j:03d}" for j in own)
    encoder = HashEncoder()
    ids = [f"p{j:03d}" for j in range(len(texts))]
    index = DenseIndex([encoder.encode(texts, "article")], ids)
    kinds = {q.qid: ("lookup" if i % 3 else "reasoning") for i, q in enumerate(asked)}
    return Lesson(asked, passages, targets, Retriever(index, encoder), kinds, "made")


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    """A made lesson and its outcomes."""
    patch = pytest.MonkeyPatch()
    patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
    one = made()
    yield one, STUDY.values["hyde_lesson_values"](one)
    patch.undo()


def test_a_stranger_shares_no_passage_and_does_not_hang_on_the_order(lesson):
    qids, gold = lesson[0].qids, lesson[0].gold
    shared = gold | {qids[1]: gold[qids[0]] | gold[qids[1]]}
    found = strangers_of(qids, shared, 20)
    assert qids[1] not in found[qids[0]] and qids[0] not in found[qids[1]]
    with pytest.raises(ValueError, match="q00 has 28 other questions, fewer than 29"):
        strangers_of(qids, shared, 29)
    assert all(qid not in others and len(set(others)) == 20 for qid, others in found.items())
    assert strangers_of(qids[::-1], shared, 20) == found
    with pytest.raises(ValueError, match="fewer than 40"):
        strangers_of(qids, shared, 40)


def test_outcomes_by_brute_force(lesson):
    one, values = lesson
    passages, targets, retriever = one.passages, one.gold, one.retriever
    wide = values.pivot(index=["qid", "metric"], columns="arm", values="value")
    encoder = retriever.encoder
    strangers = strangers_of(one.qids, targets)

    def found(vector: np.ndarray, depth: int):
        return retriever.index.search(vector[None], depth)

    def p_at_5(ids, qid: str) -> float:
        return sum(pid in targets[qid] for pid in list(ids)[:DEPTH]) / DEPTH

    spread = wide.xs("p_at_5", level="metric")[list(ARMS)].nunique()
    assert (spread > 1).all(), "the made questions are all alike"
    for question in one.questions[:8]:
        qid = question.qid
        own = encoder.encode([question.text])[0]
        first, second = encoder.encode(passages[qid], "article")
        alone = found(own, 5).ids[0]
        assert wide.loc[(qid, "p_at_5"), "question"] == pytest.approx(p_at_5(alone, qid))
        mean = found(own + first + second, 5).ids[0]
        assert wide.loc[(qid, "p_at_5"), "hyde"] == pytest.approx(p_at_5(mean, qid))
        merged = merge_rrf([found(own, 10), found(first, 10)], 5).ids[0]
        assert wide.loc[(qid, "p_at_5"), "fusion"] == pytest.approx(p_at_5(merged, qid))
        others = encoder.encode([passages[other][0] for other in strangers[qid]], "article")
        wrong = np.mean([p_at_5(found(other, 5).ids[0], qid) for other in others])
        assert wide.loc[(qid, "p_at_5"), "passage (wrong)"] == pytest.approx(wrong)


def test_what_is_expected_is_what_drawing_gives_in_the_long_run(lesson):
    values = lesson[1]
    expected = with_mixed(values).groupby(["arm", "metric"])["value"].mean()
    wide = values.pivot(index=["qid", "metric"], columns="arm", values="value")
    generator = np.random.default_rng(0)
    for arm in ("passage", "hyde", "fusion"):
        right = wide.xs("p_at_5", level="metric")[arm].to_numpy()
        wrong = wide.xs("p_at_5", level="metric")[f"{arm} (wrong)"].to_numpy()
        drawn = [
            np.where(generator.random(len(right)) < 0.4, wrong, right).mean() for _ in range(4000)
        ]
        assert expected[mixed_name(arm, 0.4), "p_at_5"] == pytest.approx(np.mean(drawn), abs=0.01)
    question = wide.xs("p_at_5", level="metric")["question"].mean()
    assert expected[mixed_name("question", 0.4), "p_at_5"] == pytest.approx(question)


def test_claims_are_differences_of_means_without_a_verdict(lesson):
    one, values = lesson
    table = lesson_claims(one, values)
    assert not {"verdict", "p", "p_holm"} & set(table)
    everything = with_mixed(values)
    means = everything[everything["metric"] == "p_at_5"].groupby("arm")["value"].mean()
    for row in table[(table["metric"] == "p_at_5") & (table["kind"] == "all")].itertuples():
        assert row.difference == pytest.approx(means[row.arm] - means[row.baseline], abs=1e-9)
        assert row.low <= row.difference <= row.high and row.n == len(one.questions)
    gap = table[(table["metric"] == NEAR) & (table["kind"] == "all")].iloc[0]
    by_text = closeness(one).groupby("searched_with")["expert"].mean()
    assert gap["difference"] == pytest.approx(by_text["passage"] - by_text["question"])
    counts = table.groupby("kind")["n"].first()
    assert counts["lookup"] + counts["reasoning"] == counts["all"]


# the lesson's two programs, in notebook 11 --------------------------------------------------------


class OnePassage(ChatModel):
    """Writes one passage, and notes what it was asked."""

    name = "one passage"

    def __init__(self, text: str):
        self.text, self.asked = text, []

    def _say(self, messages, n, options):
        self.asked.append((messages, n, options))
        return [Reply(self.text, "stop", 1, 1, 0.0, self.name)] * n


def the_programs(**given):
    """Run both cells with stand-ins; what they show, and the names that they leave."""
    book = nbformat.read(paths.ROOT / "notebooks" / "11_self_learning_hyde.ipynb", 4)
    sources = [cell.source for cell in book.cells if cell.cell_type == "code"]
    (first,) = [i for i, source in enumerate(sources) if 'load_prompt("lesson_passage")' in source]
    shown = []
    names = {"show": shown.append, "show_texts": shown.append, "pd": pd, "load_prompt": load_prompt}
    names |= {"Fusion": Fusion, "Hypotheses": Hypotheses, "Text": Text} | given
    for source in sources[first : first + 2]:
        exec(source, names)
    return shown, names


def lists_by_brute_force(question: str, passage: str, texts, encoder, k: int):
    """The lesson's programs as it has them: cosines with every document, then a sum of 1 / (60 +
    rank) over two lists of twice the depth."""
    documents = encoder.encode(texts, "article")

    def ranked(vector, depth):
        scores = [float(np.dot(row, vector)) for row in documents]
        return sorted(range(len(texts)), key=lambda i: (-scores[i], f"p{i:03d}"))[:depth]

    by_question = encoder.encode([question], "query")[0]
    by_passage = encoder.encode([passage], "article")[0]
    points: dict[int, float] = {}
    for vector in (by_question, by_passage):
        for rank, i in enumerate(ranked(vector, 2 * k), 1):
            points[i] = points.get(i, 0.0) + 1 / (60 + rank)
    merged = sorted(points, key=lambda i: (-round(points[i], 12), f"p{i:03d}"))[:k]
    return ranked(by_question, k), ranked(by_passage, k), merged


@pytest.mark.parametrize("seed", range(3))
def test_the_lessons_two_programs_find_what_brute_force_does(seed, tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_CACHE", str(tmp_path))
    generator = random.Random(seed)
    texts = [" ".join(generator.sample(WORDS, 6)) for _ in range(40)]
    question, written = (" ".join(generator.sample(WORDS, n)) for n in (3, 8))
    encoder, llm, k = HashEncoder(), OnePassage(f"\n{written} "), 4
    ids = [f"p{i:03d}" for i in range(len(texts))]
    store = PassagesInMemory(
        Passage(pid, f"title of {pid}", text, "s", {}) for pid, text in zip(ids, texts, strict=True)
    )
    retriever = Retriever(DenseIndex([encoder.encode(texts, "article")], ids), encoder, store)
    shown, left = the_programs(
        llm=llm, retriever=retriever, question=question, domain="sea fishing", k=k
    )
    expected = lists_by_brute_force(question, written, texts, encoder, k)
    titles = [[f"title of {ids[i]}" for i in found] for found in expected]
    assert [pid for pid, _ in left["found"]] == [ids[i] for i in expected[1]]
    _, one, three = shown
    assert one.iloc[:, 0].tolist() == titles[1]
    assert [three[name].tolist() for name in three] == titles
    # One request for one passage of at most 300 tokens, which names the field and the question.
    ((messages, n, options),) = llm.asked
    assert n == 1 and options["max_tokens"] == 300
    assert "sea fishing" in messages[-1]["content"] and question in messages[-1]["content"]


def test_the_passage_of_the_notebooks_question_is_recorded():
    """As the notebook stands nobody is asked, on a profile that replays."""
    book = nbformat.read(paths.ROOT / "notebooks" / "11_self_learning_hyde.ipynb", 4)
    (cell,) = [c.source for c in book.cells if "parameters" in c.metadata.get("tags", [])]
    given: dict = {}
    exec(cell, given)
    request = load_prompt("lesson_passage").messages(
        domain=given["domain"], question=given["question"]
    )
    llm = connect("replay:data/recordings/smollm2-lesson.jsonl")
    (reply,) = llm.generate(request, temperature=0.7, max_tokens=300)
    assert reply.text.strip() and llm.name == NAME
    with pytest.raises(RecordingMiss):
        llm.generate(request[:-1] + [{"role": "user", "content": "another"}], max_tokens=300)
