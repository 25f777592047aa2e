"""RAG2's retrieval strategies and what filters leave, against brute force on small made-up sets."""

from __future__ import annotations

import random

import numpy as np
import pandas as pd
import pytest

from lib.data.judgments import Evidence
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.stats import claims
from lib.studies.rag2 import filtering
from lib.studies.rag2.filtering import Candidates
from lib.studies.rag2.strategies import (
    DEPTH,
    METRICS,
    MemoizedScorer,
    Set,
    strategies,
    strategy_pairs,
    strategy_values,
)

# strategies ---------------------------------------------------------------------------------------

SOURCES = ("large", "middle", "small")
SIZES = {"large": 60, "middle": 25, "small": 9}
WORDS = [f"word{i}" for i in range(30)]
RNG = random.Random(3)
PASSAGES = [
    Passage(f"{source}:{i:02d}", "", " ".join(RNG.choices(WORDS, k=8)), source, {})
    for source, size in SIZES.items()
    for i in range(size)
]
ENCODER = HashEncoder(dim=64)


@pytest.fixture
def retriever(own_folders) -> Retriever:
    store = PassageStore.build(own_folders / "store.sqlite", PASSAGES)
    index = DenseIndex([ENCODER.encode([p.text for p in store], "article")], store.ids())
    return Retriever(index, ENCODER, store)


@pytest.fixture
def asked() -> Set:
    rng = random.Random(5)
    questions = [
        Question(f"q{i}", " ".join(rng.choices(WORDS, k=4)), {}, "", "mine") for i in range(6)
    ]
    rationales = {q.qid: " ".join(rng.choices(WORDS, k=7)) for q in questions[:4]}
    pids = [p.pid for p in PASSAGES]
    targets = {q.qid: frozenset(rng.sample(pids, 12)) for q in questions}
    return Set("mine", questions, rationales, targets, SOURCES)


def by_length(pairs) -> np.ndarray:
    return np.array([len(text) for _, text in pairs], dtype=float)


def by_words_in_common(pairs) -> np.ndarray:
    return np.array([len(set(q.split()) & set(p.split())) for q, p in pairs], dtype=float)


def ranking(query: str, sources=SOURCES) -> list[str]:
    """All passages of some sources, the nearest first, ties by id."""
    own = [p for p in PASSAGES if p.source in sources]
    scores = ENCODER.encode([p.text for p in own]).astype(float) @ ENCODER.encode([query])[0]
    order = sorted(range(len(own)), key=lambda i: (-round(float(scores[i]), 5), own[i].pid))
    return [own[i].pid for i in order]


def want(query: str, how: str, scored_for: str | None, scorer) -> list[str]:
    """The list of an arm, step by step as the paper has it."""
    if how in SIZES:
        found = ranking(query, (how,))[:DEPTH]
    elif how == "stacked":
        found = ranking(query)[:DEPTH]
    else:
        lists = [ranking(query, (source,))[: DEPTH // 3] for source in SOURCES]
        found = []
        for turn in range(DEPTH // 3):
            found += [own[turn] for own in lists if turn < len(own)]
    if scored_for is None:
        return found
    text_of = {p.pid: p.text for p in PASSAGES}
    score = {pid: scorer([(scored_for, text_of[pid])])[0] for pid in found}
    return sorted(found, key=lambda pid: (-score[pid], pid))


def test_every_strategy_finds_what_its_steps_say(retriever, asked):
    arms = strategies(SOURCES, {"tuned": by_words_in_common, "shuffled": by_length})
    values = strategy_values(asked, arms, retriever)
    assert set(values["arm"]) == set(arms)
    wide = values.set_index(["arm", "qid", "metric"])["value"]
    for name in arms:
        query, how, *rest = name.split(", ")
        how = how.removesuffix(" alone")
        for question in asked.questions:
            rationale = asked.rationales.get(question.qid)
            if rationale is None and (rest or query == "rationale"):
                assert question.qid not in wide[name].index.get_level_values("qid")
                continue
            searched = question.text if query == "question" else rationale
            scored_for, scorer = None, by_words_in_common
            if rest:
                scored_for = rationale if "by the rationale" in rest[0] else question.text
                scorer = by_length if "shuffled" in rest[0] else by_words_in_common
            found = want(searched, how, scored_for, scorer)
            got = wide[name][question.qid]
            targets = asked.targets[question.qid]
            for k in (1, 3, 5, 10):
                assert got[f"precision_at_{k}"] == pytest.approx(len(targets & {*found[:k]}) / k)
            assert got["pairs_scored"] == (min(len(found), DEPTH) if rest else 0)
            for source in SOURCES:
                share = sum(pid.startswith(source) for pid in found[:5]) / 5
                assert got[f"share of {source}"] == pytest.approx(share), (name, source)


def test_balanced_and_stacked_score_as_many_pairs_unless_a_source_runs_out(retriever, asked):
    arms = strategies(SOURCES, {"tuned": by_words_in_common})
    values = strategy_values(asked, arms, retriever)
    spent = values[values["metric"] == "pairs_scored"].groupby("arm")["value"].max()
    assert spent["question, stacked, re-ranked"] == DEPTH
    # A third of 32 from each: 10 of the large, 10 of the middle, all 9 of the small one.
    assert spent["question, balanced, re-ranked"] == 29
    assert spent["question, stacked"] == 0


def test_all_that_is_compared_is_measured(retriever, asked):
    arms = strategies(SOURCES, {"tuned": by_words_in_common, "shuffled": by_length})
    table = claims(strategy_values(asked, arms, retriever), strategy_pairs())
    assert set(table["status"]) == {"exploratory"}
    assert set(table["metric"]) <= set(METRICS)
    assert table["verdict"].isna().all() or (table["verdict"] == "").all()


def test_a_remembered_scorer_is_asked_once_for_each_pair():
    seen = []

    def score(pairs):
        seen.extend(pairs)
        return by_length(pairs)

    scorer = MemoizedScorer(score)
    assert scorer([("q", "aa"), ("q", "b"), ("q", "aa")]).tolist() == [2, 1, 2]
    assert scorer([("q", "b"), ("r", "b")]).tolist() == [1, 1]
    assert seen == [("q", "aa"), ("q", "b"), ("r", "b")]


# filters ------------------------------------------------------------------------------------------

EXAM = Question("e1", "Which?", {"A": "one", "B": "two"}, "A", "medqa")
EXAM2 = Question("e2", "Which then?", {"A": "one", "B": "two"}, "B", "mmlu")
YESNO = Question("b1", "Is it?", {"A": "yes", "B": "no"}, "A", "bioasq")
JUDGED = {
    ("e1", "p1"): Evidence(3.0, frozenset("A")),
    ("e1", "p2"): Evidence(3.0, frozenset("B")),
    ("e1", "p3"): Evidence(1.0),
    ("e1", "p4"): Evidence(3.0, frozenset("AB")),
    ("e2", "p1"): Evidence(0.0),
    ("e2", "p2"): Evidence(2.0, frozenset("B")),
}


def runs() -> pd.DataFrame:
    lists = {
        ("medqa", "question", "e1"): ["p3", "p1", "p2", "p4", "p9", "p1x"],
        ("medqa", "chr@1", "e1"): ["p2", "p3"],
        ("mmlu", "question", "e2"): ["p1", "p2"],
        ("bioasq", "question", "b1"): [f"s{i}" for i in range(12)],
        ("bioasq", "some other arm", "b1"): ["s20"],
    }
    rows = [
        (dataset, arm, 0, qid, rank, pid)
        for (dataset, arm, qid), pids in lists.items()
        for rank, pid in enumerate(pids, 1)
    ]
    return pd.DataFrame(rows, columns=["dataset", "arm", "draw", "qid", "rank", "pid"])


TARGETS = {"b1": frozenset({"s1", "s4", "s11"})}


@pytest.fixture
def candidates() -> Candidates:
    return Candidates.of([EXAM, EXAM2, YESNO], runs(), JUDGED, TARGETS)


class ByTable:
    """A filter whose scores are written down by passage."""

    name = "by table"
    threshold = 0.5

    def __init__(self, scores: dict[str, float]):
        self.of = scores
        self.fingerprint = f"by table {sorted(scores.items())}"
        self.asked = []

    def scores(self, pairs):
        self.asked += pairs
        return np.array([self.of.get(text.split()[-1], 0.0) for _, text in pairs])


TEXTS = {
    pid: f"text of {pid}" for pid in [*(f"p{i}" for i in range(10)), *(f"s{i}" for i in range(30))]
}
SCORES = {"p1": 0.9, "p2": 0.6, "p3": 0.2, "p4": 0.1, "s1": 0.8, "s3": 0.7, "s4": 0.3, "s9": 0.9}


@pytest.fixture
def scored(candidates, own_folders) -> pd.DataFrame:
    return filtering.score_candidates(candidates, TEXTS, {"f": ByTable(SCORES)})


def test_candidates_are_what_was_judged_of_the_first_five_and_the_first_ten_of_bioasq(candidates):
    table = candidates.table
    exam = table[(table["qid"] == "e1") & (table["arm"] == "question")]
    assert exam["pid"].tolist() == ["p3", "p1", "p2", "p4"]  # p9 was not judged, p1x is sixth
    assert exam["right"].tolist() == [False, True, False, True]
    assert exam["wrong"].tolist() == [False, False, True, True]
    bioasq = table[table["dataset"] == "bioasq"]
    assert bioasq["pid"].tolist() == [f"s{i}" for i in range(10)]
    assert bioasq.loc[bioasq["given"], "pid"].tolist() == ["s1", "s4"]
    assert "some other arm" not in set(table["arm"])


def test_a_filter_sees_options_only_where_they_say_something(candidates, own_folders):
    judge = ByTable(SCORES)
    scored = filtering.score_candidates(candidates, TEXTS, {"f": judge})
    questions = {question for question, _ in judge.asked}
    assert questions == {"Which?\nA. one\nB. two", "Which then?\nA. one\nB. two", "Is it?"}
    assert scored.set_index(["qid", "pid"])["f"]["e1", "p2"] == 0.6
    again = ByTable(SCORES)
    filtering.score_candidates(candidates, TEXTS, {"f": again})
    assert again.asked == []  # kept in the cache
    other = ByTable(SCORES | {"p1": 0.0})
    filtering.score_candidates(candidates, TEXTS, {"f": other})
    assert len(other.asked) == len(scored)


def test_a_torn_cache_of_scores_is_made_again(candidates, own_folders):
    filtering.score_candidates(candidates, TEXTS, {"f": ByTable(SCORES)})
    (file,) = (own_folders / "rag2").glob("*.txt") if (own_folders / "rag2").exists() else [None]
    file = file or next(own_folders.rglob("*.txt"))
    file.write_text("\n".join(file.read_text().splitlines()[:2]))
    judge = ByTable(SCORES)
    scored = filtering.score_candidates(candidates, TEXTS, {"f": judge})
    assert judge.asked
    assert (
        scored["f"].tolist()
        == filtering.score_candidates(candidates, TEXTS, {"f": judge})["f"].tolist()
    )


def test_what_a_filter_keeps_is_counted_by_kind(scored):
    parts = [scored[filtering.of_group(scored, group)] for group in ("bioasq", "exams")]
    lines = {("f", "likelier than not"): 0.5}
    table = pd.concat([filtering.kept_table(part, lines) for part in parts])
    share = table.set_index(["dataset", "kind"])["value"]
    assert share["bioasq", "given"] == 1 / 2
    assert share["bioasq", "not given"] == 2 / 8
    assert share["exams", "for the right option"] == 2 / 3  # e1: p1, not p4; e2: p2
    assert share["exams", "for a wrong option alone"] == 1
    assert share["exams", "for no option"] == 1 / 2  # p3 dropped, p1 of e2 kept
    assert table["n"].sum() == 10 + 2 + 8 + 6 + 3 + 1 + 2


def test_it_tells_apart_as_auroc_has_it(scored):
    table = filtering.tells_apart(scored, ["f"]).set_index(["dataset", "truth"])
    right = table.loc[("exams", "it supports the right option"), "value"]
    # right: .9, .1, .6; others: .6, .2, .9
    wins = [1, 1, 0.5, 0, 0, 0, 0.5, 1, 0]
    assert right == pytest.approx(np.mean(wins))
    assert table.loc[("bioasq", "the experts gave it"), "positives"] == 2


def test_what_is_left_is_measured_and_an_empty_list_is_counted(candidates, scored):
    lines = {("f", "likelier than not"): 0.5, ("f", "as 5 % of training"): 0.95}
    values = filtering.filtered_values(candidates, scored, lines)
    of = values.set_index(["arm", "qid", "metric"])["value"]
    assert of["question", "e1", "hit_right"] == 1
    assert of["question", "e1", "misled"] == 1
    after = "question | f, likelier than not"
    assert of[after, "e1", "kept"] == 2 / 4  # p1 and p2
    assert (of[after, "e1", "hit_right"], of[after, "e1", "misled"]) == (1, 1)
    assert of[after, "e1", "reads_right"] == 1  # p1 comes before p2
    assert of["chr@1 | f, likelier than not", "e1", "misled"] == 1
    # Of the first five s1 and s3 stay; s9, the tenth, would too, but is no longer there.
    assert of[after, "b1", "kept"] == 2 / 5
    assert of[after, "b1", "p_at_5"] == 1 / 5
    assert of[after, "b1", "precision_of_kept"] == 1 / 2
    none = "question | f, as 5 % of training"
    assert of[none, "e1", "emptied"] == 1
    assert of[none, "e1", "hit_right"] == 0
    assert of[none, "e1", "reads_right_or_guess"] == 0.5
    assert (none, "b1", "precision_of_kept") not in of.index
    best = f"{none} (best kept)"
    assert of[best, "e1", "emptied"] == 0
    assert of[best, "e1", "hit_right"] == 1  # p1 has the best score


def test_every_arm_after_a_filter_is_compared_with_itself_before():
    lines = {("f", "likelier than not"): 0.5, ("f", "as 5 % of training"): 0.9}
    lines[("g", "as 5 % of training")] = 0.8
    pairs = filtering.filter_pairs(lines, "f", ("hit_right",))
    before = [p for p in pairs if p.claim == "what a filter changes"]
    assert len(before) == len(filtering.ARMS) * len(lines)
    assert all(p.arm.startswith(f"{p.against} | ") for p in before)
    (other,) = (p for p in pairs if p not in before)  # only where both filters have the line
    assert (other.arm, other.against) == (
        "question | f, as 5 % of training",
        "question | g, as 5 % of training",
    )


def test_groups_part_the_candidates(candidates):
    parts = [candidates.of_group(group).table for group in ("exams", "bioasq")]
    assert sum(map(len, parts)) == len(candidates.table)
    assert set(parts[1]["dataset"]) == {"bioasq"}


def test_the_reader_is_given_the_first_k_before_they_are_filtered(candidates, scored):
    lines = {("f", "likelier than not"): 0.5}
    values = filtering.reading_values(candidates, scored, lines)
    table = filtering.by_k(values)
    of = table[table["metric"] == "reads_right"].set_index(["dataset", "arm", "k"])["value"]
    assert of["medqa", "question", 1] == 0  # p3 says nothing
    assert of["medqa", "question", 2] == 1
    assert of["medqa", "question | f, likelier than not", 1] == 0
    assert of["medqa", "question | f, likelier than not", 2] == 1
    guess = table[table["metric"] == "reads_right_or_guess"]
    of = guess.set_index(["dataset", "arm", "k"])["value"]
    assert of["medqa", "question | f, likelier than not", 1] == 0.5
    empty = table[table["metric"] == "emptied"].set_index(["dataset", "arm", "k"])["value"]
    assert empty["medqa", "question", 1] == 0
    assert empty["medqa", "question | f, likelier than not", 1] == 1
    one = values[(values["k"] == 1) & (values["metric"] == "reads_right")]
    assert one.groupby("arm")["qid"].nunique()["question"] == 2
