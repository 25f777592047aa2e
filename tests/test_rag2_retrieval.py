"""RAG2's ways to retrieve, and what filters leave, by brute force on small made-up sets."""

from __future__ import annotations

import random

import numpy as np
import pandas as pd
import pytest

from lib.data.judgments import Evidence
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question, load_questions
from lib.embed import HashEncoder
from lib.pages.tables import rag2_beside
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.stats import claims
from lib.studies.rag2 import filtering, retrieval, writers
from lib.studies.rag2.filters import (
    BASELINES,
    CROSSES,
    HEADS,
    RERANKERS,
    card_of,
    lines_of,
    load_filter,
)
from lib.studies.rag2.labels import RECIPES, Recipe
from lib.studies.rag2.long_answers import word_runs
from lib.studies.rag2.retrieval import (
    DEPTH,
    QuestionSet,
    strategies,
    strategy_pairs,
    strategy_values,
)
from lib.studies.real.arms import Sample

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
def asked(retriever) -> QuestionSet:
    rng = random.Random(5)
    questions = [
        Question(f"q{i}", " ".join(rng.choices(WORDS, k=4)), {}, "", "mine") for i in range(6)
    ]
    rationales = {q.qid: " ".join(rng.choices(WORDS, k=7)) for q in questions[:4]}
    pids = [p.pid for p in PASSAGES]
    targets = {q.qid: frozenset(rng.sample(pids, 12)) for q in questions}
    return QuestionSet("mine", questions, rationales, targets, retriever)


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


def test_every_strategy_finds_what_its_steps_say(asked):
    arms = strategies(SOURCES, {"": by_words_in_common, " (shuffled)": by_length})
    values = strategy_values(asked, arms)
    assert set(values["arm"]) == set(arms)
    table = claims(values, strategy_pairs())  # all that is compared is measured
    assert set(table["status"]) == {"exploratory"}
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
            # A third of 32 from each: 10 of the large, 10 of the middle, all 9 of the small one.
            assert got["pairs_scored"] == (0 if not rest else 29 if how == "balanced" else DEPTH)
            for source in SOURCES:
                share = sum(pid.startswith(source) for pid in found[:5]) / 5
                assert got[f"share of {source}"] == pytest.approx(share), (name, source)


# filters ------------------------------------------------------------------------------------------

QUESTIONS = [
    Question("e1", "Which?", {"A": "one", "B": "two"}, "A", "medqa"),
    Question("e2", "Which then?", {"A": "one", "B": "two"}, "B", "mmlu"),
    Question("b1", "Is it?", {"A": "yes", "B": "no"}, "A", "bioasq"),
]
JUDGED = {
    ("e1", "p1"): Evidence(3.0, frozenset("A")),
    ("e1", "p2"): Evidence(3.0, frozenset("B")),
    ("e1", "p3"): Evidence(1.0),
    ("e1", "p4"): Evidence(3.0, frozenset("AB")),
    ("e2", "p1"): Evidence(0.0),
    ("e2", "p2"): Evidence(2.0, frozenset("B")),
}
LISTS = {
    ("medqa", "question", "e1"): ["p3", "p1", "p2", "p4", "p9", "p1x"],
    ("medqa", "chr@1", "e1"): ["p2", "p3"],
    ("mmlu", "question", "e2"): ["p1", "p2"],
    ("bioasq", "question", "b1"): [f"s{i}" for i in range(10)],
    ("bioasq", "some other arm", "b1"): ["s20"],
}
SCORES = {"p1": 0.9, "p2": 0.6, "p3": 0.2, "p4": 0.1, "s1": 0.8, "s3": 0.7, "s4": 0.3, "s9": 0.9}


@pytest.fixture
def sample() -> Sample:
    sample = Sample(QUESTIONS, {}, None)
    known = {"judged": JUDGED, "experts": {"b1": frozenset({"s1", "s4", "s11"})}}
    vars(sample).update(known)  # in place of what is on file
    return sample


@pytest.fixture
def candidates(sample) -> pd.DataFrame:
    rows = [(*key, rank, pid) for key, pids in LISTS.items() for rank, pid in enumerate(pids, 1)]
    runs = pd.DataFrame(rows, columns=["dataset", "arm", "qid", "rank", "pid"])
    return filtering.candidates_of(sample, runs)


def test_candidates_are_what_was_judged_of_the_first_five_and_all_of_bioasq(candidates):
    exam = candidates[(candidates["qid"] == "e1") & (candidates["arm"] == "question")]
    assert exam["pid"].tolist() == ["p3", "p1", "p2", "p4"]  # p9 was not judged, p1x is sixth
    assert exam["right"].tolist() == [False, True, False, True]
    assert exam["wrong"].tolist() == [False, False, True, True]
    bioasq = candidates[candidates["dataset"] == "bioasq"]
    assert bioasq["pid"].tolist() == [f"s{i}" for i in range(10)]
    assert bioasq.loc[bioasq["is_gold"], "pid"].tolist() == ["s1", "s4"]


def test_what_is_left_is_measured_and_an_empty_list_is_counted(sample, candidates):
    scored = candidates.drop_duplicates(["qid", "pid"])
    scored = scored.assign(f=scored["pid"].map(SCORES).fillna(0.0))
    lines = {("f", "likelier than not"): 0.5, ("f", "as 5 % of training"): 0.95}
    values = filtering.values_after(sample, candidates, scored, lines)
    of = values.set_index(["arm", "qid", "metric"])["value"]
    kept = "question | f, likelier than not"
    none = "question | f, as 5 % of training"
    expected = {
        ("question", "e1", "supports_correct"): 1,
        ("question", "e1", "supports_wrong"): 1,
        (kept, "e1", "kept"): 2 / 4,  # p1 and p2
        (kept, "e1", "supports_correct"): 1,
        (kept, "e1", "supports_wrong"): 1,
        (kept, "e1", "reads_right"): 1,  # p1 comes before p2
        ("chr@1 | f, likelier than not", "e1", "supports_wrong"): 1,
        # Of the first five s1 and s3 stay; s9, the tenth, would too, but is no longer there.
        (kept, "b1", "kept"): 2 / 5,
        (kept, "b1", "p_at_5"): 1 / 5,
        (kept, "b1", "precision_of_kept"): 1 / 2,
        (none, "e1", "emptied"): 1,
        (none, "e1", "supports_correct"): 0,
        (none, "e1", "reads_right_or_guess"): 0.5,
        (f"{none} (best kept)", "e1", "emptied"): 0,
        (f"{none} (best kept)", "e1", "supports_correct"): 1,  # p1 has the best score
    }
    assert {key: of[key] for key in expected} == expected
    assert (none, "b1", "precision_of_kept") not in of.index
    exams = candidates[candidates["dataset"] != "bioasq"]
    options = {"ks": (1,), "metrics": ("reads_right", "emptied")}
    read = filtering.values_after(sample, exams, scored, lines, **options)
    of = read.set_index(["arm", "qid", "metric"])["value"]
    assert of["question", "e1", "reads_right"] == 0  # p3 says nothing, and is dropped
    assert of[kept, "e1", "emptied"] == 1


# what is shipped ----------------------------------------------------------------------------------


def test_every_shipped_filter_has_a_recipe_and_its_card_tells_the_same():
    for name, recipe in RECIPES.items():
        card = card_of(name)
        told = {key: card[key] for key in ("label", "share", "rationale", "questions", "shuffled")}
        assert Recipe(**told) == recipe, name
    for name in (*BASELINES, *HEADS, *CROSSES):
        assert card_of(name)["threshold_25"] < card_of(name)["threshold_05"]
    for name in (HEADS[0], CROSSES[0]):
        (score,) = load_filter(name).scores([("What treats scurvy?", "Vitamin C cures scurvy.")])
        assert 0 < score < 1
    tuned, shuffled = (card_of(name) for name in RERANKERS)
    assert tuned["p_at_5"] >= tuned["cosine_p_at_5"] and tuned["p_at_5"] > shuffled["p_at_5"]
    for trained_on, ending in (("", ""), ("medmcqa", "_medmcqa"), ("bioasq", "_bioasq")):
        found = lines_of(["cosine"], trained_on)["cosine", "as 25 % of training"]
        assert found == card_of("cosine")[f"threshold_25{ending}"]


# who writes the rationale, and the case -----------------------------------------------------------


def test_writers_are_measured_as_texts_that_are_searched_with(retriever):
    pids = [p.pid for p in PASSAGES[:4]]
    questions = [Question(f"q{i}", "word1 word2", {}, "", "bioasq") for i in range(4)]
    targets = {q.qid: frozenset({pid}) for q, pid in zip(questions, pids, strict=True)}
    own = {q.qid: p.text for q, p in zip(questions, PASSAGES, strict=False)}
    texts = {
        writers.QUESTION: {q.qid: q.text for q in questions},
        writers.SMALL: own | {"q3": ""},
        writers.LARGE: own,
    }
    values = writers.writer_values(questions, texts, targets, retriever, draws=1)
    wide = values.pivot(index=["arm", "qid"], columns="metric", values="value")
    assert (wide.loc[writers.LARGE, "p_at_5"] == 0.2).all()
    assert (wide.loc[writers.LARGE, "ndcg_at_10"] == 1).all()
    small = wide.loc[writers.SMALL]
    assert small.loc["q3", "p_at_5"] == small.loc["q3", "words"] == 0
    assert (small.loc[["q0", "q1", "q2"], "ndcg_at_10"] == 1).all()
    assert (wide.loc[writers.STRANGER, "ndcg_at_10"] < 1).all()


def test_the_case_names_what_it_argues_for():
    case = retrieval.read_case()
    right, straying = case["rationales"].values()
    assert case["question"].answer == "A"
    assert retrieval.options_named(right).startswith("A")
    assert retrieval.options_named(straying) == "B"


@pytest.mark.mirror
def test_the_vignette_is_nobodys_text(mirror):
    case = retrieval.read_case()
    ours = " ".join([case["question"].text, *case["rationales"].values()])
    for question in load_questions("medqa"):
        assert set(word_runs(ours)).isdisjoint(word_runs(question.text))


def test_printed_gains_are_means_of_the_papers_cells_and_measured_ones_are_looked_up():
    recipe = "question | cross-ppl-25, as 25 % of training"
    right = "question | head-right, as 25 % of training"
    read = "reads_right_or_guess"
    balanced = ("question, balanced, re-ranked", "question, stacked")
    rows = {
        "rag2_filters_claims": [
            ("exams", "supports_correct", "rationale", "question", 0.1),
            ("exams", read, "rationale", "question", 0.2),
            ("bioasq", "p_at_5", "rationale", "question", 0.3),
        ],
        "rag2_strategies_claims": [
            ("bioasq", "precision_at_1", *balanced, 0.4),
            ("ddx-mini", "precision_at_1", *balanced, 0.5),
        ],
        "rag2_top_1": [
            ("exams", read, recipe, "question", 0.6),
            ("exams", read, right, "question", 0.7),
        ],
    }
    columns = ["dataset", "metric", "arm", "baseline", "difference"]
    tables = {
        name: pd.DataFrame(own, columns=columns).assign(low=-1, high=1, n=9)
        for name, own in rows.items()
    }
    table = rag2_beside(tables)
    assert table["difference"].tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    # Llama-3: 58.6 - 55.3 on MedQA and 55.8 - 51.3 on MedMCQA.
    printed = table.set_index("step")["printed, points"]
    of_filter = printed[printed.index.str.startswith("the filter of rationales")]
    assert of_filter.tolist() == ["+3.9 (+3.3 to +4.5, 2 cells)"]
    assert "9 cells" in printed["the rationale as the query"].iloc[0]
