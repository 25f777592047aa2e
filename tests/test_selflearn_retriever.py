"""SL-HyDE's retriever: pairs, negatives and losses by brute force, arms and measures by hand."""

from __future__ import annotations

import math
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import model_files
from lib.base.paths import REPORTED
from lib.base.provenance import read_result, write_result
from lib.data.passages import Passage
from lib.embed import HashEncoder
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.stats import holm
from lib.studies.selflearn import documents, evaluate, retriever, study, tasks
from lib.studies.selflearn.cmirb import Task
from lib.studies.selflearn.evaluate import HOW, Arm, open_task, request_of, task_values
from lib.studies.selflearn.pairs import (
    FIRST_RANK,
    LAST_RANK,
    columns,
    hard_negatives,
    one_of_each,
    random_negatives,
    ranked_by,
    shuffled,
)
from lib.studies.selflearn.retriever import PLAN, TRAININGS, Training, examples_of
from lib.study import primary_tests
from lib.train.fit import Plan, fit
from lib.ways import Hypotheses, Text
from tests.tiny_models import save_bert, save_sentence_model

WORDS = [f"word{i}" for i in range(40)]


def texts_of(n: int, seed: int = 0) -> dict[str, str]:
    """``n`` passages of six words each, by id."""
    generator = random.Random(seed)
    return {f"p{i:03d}": " ".join(generator.sample(WORDS, 6)) for i in range(n)}


# negatives and pairs ------------------------------------------------------------------------------


@pytest.fixture
def mined(own_folders):
    """160 passages, a query for each of twelve, and what brute force ranks for each."""
    texts = texts_of(160)
    queries = {pid: " ".join(texts[pid].split()[:3]) for pid in list(texts)[:12]}
    encoder = HashEncoder()
    vectors = encoder.encode(list(texts.values()), "article")
    scores = np.round(encoder.encode(list(queries.values())) @ vectors.T, 5)
    ids = list(texts)
    by_hand = {}
    for row, pid in zip(scores, queries, strict=True):
        order = sorted(range(len(ids)), key=lambda i, row=row: (-row[i], ids[i]))
        by_hand[pid] = [ids[i] for i in order]
    return texts, queries, DenseIndex([vectors], ids), encoder, by_hand


def test_negatives_are_drawn_from_ranks_5_to_100_and_are_never_the_own_passage(mined):
    texts, queries, index, encoder, by_hand = mined
    ranked = ranked_by(queries, index, encoder)
    assert ranked == {pid: listed[:100] for pid, listed in by_hand.items()}
    seen = set()
    for seed in range(40):
        drawn = hard_negatives(ranked, texts, 3, seed)
        assert drawn == hard_negatives(ranked, texts, 3, seed)
        for pid, own in drawn.items():
            ranks = [by_hand[pid].index(other) + 1 for other in own]
            assert len(set(own)) == 3 and pid not in own
            assert min(ranks) >= FIRST_RANK and max(ranks) <= LAST_RANK
            seen |= set(ranks)
    assert {FIRST_RANK, LAST_RANK} <= seen and len(seen) > 90  # both ends are drawn from


def test_a_draw_depends_on_its_own_query_and_the_seed_alone(mined):
    texts, queries, index, encoder, _ = mined
    ranked = ranked_by(queries, index, encoder)
    whole = hard_negatives(ranked, texts, 2, 0)
    last = list(ranked)[-1]
    assert hard_negatives({last: ranked[last]}, texts, 2, 0) == {last: whole[last]}
    assert hard_negatives(ranked, texts, 2, 1) != whole


def test_a_passage_with_the_same_text_is_no_negative_and_too_few_are_refused():
    texts = {f"p{i}": f"text {i}" for i in range(12)} | {"twin": "text 0"}
    listed = ["p1", "p2", "p3", "p4", "twin", "p0", "p5", "p6"]  # ranks 5 and 6 say what p0 says
    assert sorted(hard_negatives({"p0": listed}, texts, 2, 0)["p0"]) == ["p5", "p6"]
    with pytest.raises(ValueError, match="p0: 2 passages to draw 3 negatives from"):
        hard_negatives({"p0": listed}, texts, 3, 0)
    for seed in range(30):
        drawn = random_negatives(["p0"], sorted(texts), texts, 11, seed)["p0"]
        assert sorted(drawn) == sorted(f"p{i}" for i in range(1, 12))


@given(st.integers(2, 60), st.integers(0, 99))
def test_in_disorder_no_query_keeps_its_passage(n, seed):
    pids = [f"p{i}" for i in range(n)]
    instead = shuffled(pids, seed)
    assert sorted(instead) == sorted(instead.values()) == sorted(pids)
    assert all(other != own for own, other in instead.items())
    assert instead == shuffled(pids, seed)


def test_one_query_alone_cannot_be_shuffled():
    with pytest.raises(ValueError, match="one query alone"):
        shuffled(["p"], 0)


def test_columns_are_rows_of_what_belongs_together_and_of_the_same_texts_in_disorder():
    texts = {pid: f"text of {pid}" for pid in "abcdef"}
    queries = {"a": "on a", "b": "on b", "c": "on c"}
    negatives = {"a": ["d", "e"], "b": ["e", "f"], "c": ["f", "d"]}
    made = columns(queries, negatives, texts, {"a": "A", "b": "B", "c": "C"})
    assert made == {
        "anchor": ["on a", "on b", "on c"],
        "written": ["A", "B", "C"],
        "positive": ["text of a", "text of b", "text of c"],
        "negative_1": ["text of d", "text of e", "text of f"],
        "negative_2": ["text of e", "text of f", "text of d"],
    }
    instead = shuffled(list(queries), 0)
    other = columns(queries, negatives, texts, instead=instead)
    rows = zip(*(other[name] for name in ("positive", "negative_1", "negative_2")), strict=True)
    whole = zip(*(made[name] for name in ("positive", "negative_1", "negative_2")), strict=True)
    moved = list(rows)
    assert sorted(moved) == sorted(whole) and other["anchor"] == made["anchor"]
    assert all(row[0] != f"text of {pid}" for pid, row in zip(queries, moved, strict=True))


def test_of_one_text_the_first_passage_is_kept():
    assert one_of_each(["b", "a", "c"], {"a": "same", "b": "same", "c": "other"}) == ["b", "c"]


# losses -------------------------------------------------------------------------------------------


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def cross_entropy(anchors: np.ndarray, passages: list[np.ndarray], scale: float) -> float:
    """-log softmax of the own passage, row by row."""
    everything = np.concatenate([unit(rows) for rows in passages])
    losses = []
    for i, anchor in enumerate(anchors):
        scores = [scale * float(anchor @ passage) for passage in everything]
        highest = max(scores)
        total = highest + math.log(sum(math.exp(s - highest) for s in scores))
        losses.append(total - scores[i])
    return float(np.mean(losses))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("negatives", [0, 1, 2])
def test_both_losses_are_what_numpy_makes_of_the_equations(seed, negatives, sentence_model):
    import torch

    from lib.studies.selflearn.losses import MeanAnchorLoss, query_alone

    rng = np.random.default_rng(seed)
    columns_ = [rng.normal(size=(5, 8)) * 3 for _ in range(3 + negatives)]
    tensors = [torch.from_numpy(rows) for rows in columns_]
    query, written, *passages = columns_
    mean = (unit(query) + unit(written)) / 2
    assert not np.allclose(np.linalg.norm(mean, axis=1), 1)  # it stays as long as it comes out
    found = MeanAnchorLoss(sentence_model()).of_vectors(tensors)
    assert float(found) == pytest.approx(cross_entropy(mean, passages, 50), abs=1e-9)
    alone = query_alone(sentence_model())
    found = alone.compute_loss_from_embeddings([tensors[0], *tensors[2:]], None)
    assert float(found) == pytest.approx(cross_entropy(unit(query), passages, 50), abs=1e-6)
    assert alone.temperature == pytest.approx(0.02)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    bert = save_bert(folder / "bert", seed=0)
    return save_sentence_model(folder / "model", bert, {})


@pytest.fixture
def sentence_model(tiny):
    def opened():
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(tiny), device="cpu")

    return opened


def test_the_losses_turn_dropout_off(sentence_model):
    from lib.studies.selflearn.losses import MeanAnchorLoss, query_alone

    model = sentence_model()
    model.train()
    features = model.preprocess(["fever pain", "drug dose"])

    def embedded(model) -> bytes:
        return model(dict(features))["sentence_embedding"].detach().numpy().tobytes()

    assert len({embedded(model) for _ in range(3)}) == 3  # as it comes, it draws
    for loss in (query_alone(model), MeanAnchorLoss(sentence_model())):
        loss.train()
        assert len({embedded(loss.model) for _ in range(3)}) == 1


def mean_examples() -> dict[str, list[str]]:
    words = ("fever", "pain", "heart", "kidney", "drug", "dose", "treat", "test", "sign")
    rows = [
        [words[(i * step) % 9] + " " + words[(i + step) % 9] for i in range(40)]
        for step in (1, 2, 4, 5)
    ]
    return dict(zip(("anchor", "written", "positive", "negative_1"), rows, strict=True))


def test_trained_on_the_mean_stopped_and_resumed_it_comes_to_the_same_weights(tiny, tmp_path):
    from lib.studies.selflearn.losses import MeanAnchorLoss

    left = [0]

    class Stops(MeanAnchorLoss):
        def forward(self, *args):
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return super().forward(*args)

    plan = Plan(str(tiny), "texts", rank=4, batch_size=4, max_tokens=16, save_steps=3)
    outs = []
    for name, stops in (("whole", ()), ("stopped", (4, 2))):
        work, out = tmp_path / name / "work", tmp_path / name / "out"
        for steps in stops:
            left[0] = steps
            with pytest.raises(KeyboardInterrupt):
                fit(plan, mean_examples(), Stops, out, work)
            assert not out.exists()
        left[0] = 10
        card = fit(plan, mean_examples(), Stops, out, work)
        assert (left[0] > 0) == bool(stops)  # the stopped run had fewer steps left to take
        outs.append((out / model_files.WEIGHTS).read_bytes())
        assert card["examples"] == 40
    assert outs[0] == outs[1]


# what is trained on -------------------------------------------------------------------------------


def passage(number: int, text: str, focus: str = "a disease") -> Passage:
    meta = {"focus": focus, "cuis": [f"C{number}"], "synonyms": [], "subset": "S"}
    meta |= {"document": f"d{number}", "question": f"What is disease {number}?"}
    return Passage(f"medquad:{number:03d}", focus, text, "medquad", meta)


@pytest.fixture
def small_corpus(monkeypatch, own_folders):
    """130 passages in place of MedQuAD, hashed words in place of MiniLM, queries for 40 of them."""
    texts = list(texts_of(130, 3).values())
    texts[7] = texts[2]  # one text twice among those that have queries
    corpus = {p.pid: p for p in (passage(i, f"{text} " * 7) for i, text in enumerate(texts))}
    encoder = HashEncoder()
    index = DenseIndex([encoder.encode([p.text for p in corpus.values()], "article")], list(corpus))
    monkeypatch.setattr(retriever, "_corpus", lambda: corpus)
    monkeypatch.setattr(retriever, "mined_in", lambda: index)
    monkeypatch.setattr(retriever, "load_encoder", lambda *_, **__: encoder)
    nothing = documents.Tested(frozenset(), frozenset(), frozenset())
    monkeypatch.setattr(documents, "tested_diseases", lambda: nothing)
    queries = {pid: f"about {p.text.split()[0]}" for pid, p in list(corpus.items())[:40]}
    passages = {pid: f"on {query}" for pid, query in queries.items()}
    passages["medquad:001"] = " "
    told = {"query": queries, "passage": passages}
    monkeypatch.setattr(retriever, "_written", lambda field, *_: dict(told[field]))
    return corpus, queries, encoder


def test_examples_are_queries_beside_their_passages(small_corpus):
    corpus, queries, encoder = small_corpus
    made = examples_of(Training())
    kept = [pid for pid in queries if pid != "medquad:007"]  # its text came before
    assert made["anchor"] == [queries[pid] for pid in kept]
    assert made["positive"] == [corpus[pid].text for pid in kept]
    vectors = encoder.encode([p.text for p in corpus.values()], "article")
    rows = zip(made["anchor"], made["negative_1"], made["positive"], strict=True)
    for query, negative, own in rows:
        scores = vectors @ encoder.encode([query])[0]
        by_text = {p.text: s for p, s in zip(corpus.values(), scores, strict=True)}
        better = sum(score > by_text[negative] + 1e-5 for score in scores)
        assert negative != own and better < LAST_RANK
    assert examples_of(Training(seed=1))["negative_1"] != made["negative_1"]
    random_ones = examples_of(Training(negatives="random"))
    assert random_ones["negative_1"] != made["negative_1"]
    assert random_ones["positive"] == made["positive"]


def test_less_is_the_first_and_a_blank_passage_is_the_query(small_corpus):
    _, queries, _ = small_corpus
    few = examples_of(Training(first=5, with_passage=True))
    first = list(queries.values())[:5]
    assert few["anchor"] == first
    assert few["written"] == [f"on {first[0]}", first[1], *(f"on {q}" for q in first[2:])]


def test_in_disorder_all_texts_stay_and_none_keeps_its_place(small_corpus):
    made, other = examples_of(Training()), examples_of(Training(shuffled=True))
    assert made["anchor"] == other["anchor"]
    assert sorted(made["positive"]) == sorted(other["positive"])
    assert sorted(made["negative_1"]) == sorted(other["negative_1"])
    assert not any(a == b for a, b in zip(made["positive"], other["positive"], strict=True))


def test_supervised_asks_what_the_institutes_ask(small_corpus, monkeypatch):
    corpus, *_ = small_corpus
    monkeypatch.setattr(retriever, "sample", lambda passages: list(passages)[:6])
    made = examples_of(Training(asked="medquad"))
    assert made["anchor"] == [f"What is disease {i}?" for i in range(6)]


def test_a_planted_leak_is_caught(small_corpus, monkeypatch):
    """A query on a tested disease: by concept, by name, or on a passage outside the corpus."""
    corpus, *_ = small_corpus
    for tested in (
        documents.Tested(frozenset({"C3"}), frozenset(), frozenset()),
        documents.Tested(frozenset(), frozenset(), frozenset({"medquad:003"})),
    ):
        monkeypatch.setattr(documents, "tested_diseases", lambda tested=tested: tested)
        with pytest.raises(ValueError, match="medquad:003.*benchmark tests"):
            examples_of(Training())
    without = {pid: p for pid, p in corpus.items() if pid != "medquad:003"}
    monkeypatch.setattr(retriever, "_corpus", lambda: without)
    with pytest.raises(ValueError, match="medquad:003 may not be learnt from"):
        examples_of(Training())


def test_what_was_not_written_yet_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(retriever, "DATA", tmp_path)
    with pytest.raises(FileNotFoundError, match="queries.jsonl.gz is missing"):
        retriever.queries_of(Training())


def test_the_plans_differ_in_one_thing_each():
    seeds = {name: TRAININGS[name] for names in study.SEEDS.values() for name in names}
    assert [training.seed for training in seeds.values()] == [0, 1, 2, 0, 1, 2]
    assert TRAININGS["slhyde-mean"].first == TRAININGS["slhyde-half"].first
    assert len(set(TRAININGS.values())) == len(TRAININGS)
    assert PLAN.max_tokens == 160 and PLAN.epochs == 1


# arms ---------------------------------------------------------------------------------------------


@pytest.fixture
def toy(own_folders):
    """A task of 150 passages and eight queries, two relevant passages each, a passage written."""
    texts = texts_of(150, 5)
    passages = tuple(Passage(pid, "", text, "toy", {}) for pid, text in texts.items())
    generator = random.Random(1)
    queries, qrels, written = {}, {}, {}
    for number in range(8):
        own = generator.sample(sorted(texts), 2)
        words = texts[own[0]].split()
        queries[f"q{number}"] = " ".join(words[:2] + generator.sample(WORDS, 2))
        qrels[f"q{number}"] = dict.fromkeys(own, 1)
        other = generator.sample(WORDS, 3)
        written[f"q{number}"] = [" ".join(words[1:4] + other), " ".join(words[2:5])]
    written["q7"] = ["  ", ""]
    del written["q6"]
    task = Task("toy", queries, passages, qrels)
    return task, written, texts


def outcomes(order: list[str], relevant: set[str]) -> tuple[float, float]:
    """nDCG@10 and Recall@100 of a ranked list, from their definitions."""
    gain = sum(1 / math.log2(rank + 1) for rank, p in enumerate(order[:10], 1) if p in relevant)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(10, len(relevant)) + 1))
    return gain / best, len(set(order[:100]) & relevant) / len(relevant)


def by_hand(task, written, texts, how, passages):
    """Ranked lists by brute force, by query id, for the queries that have something written."""
    encoder = HashEncoder()
    vectors = encoder.encode(list(texts.values()), "article").astype(np.float64)
    ids = list(texts)

    def ranked(vector: np.ndarray) -> list[str]:
        scores = np.round(vectors @ vector, 5) + 0.0
        return [ids[i] for i in sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))]

    def vector(text: str) -> np.ndarray:
        return encoder.encode([text])[0].astype(np.float64)

    found = {}
    for qid, query in task.queries.items():
        if how != "query" and qid not in written:
            continue
        full = [p for p in written.get(qid, [])[:passages] if p.strip()]
        asked = vector(query)
        if how == "query" or not full:
            found[qid] = ranked(asked)
            continue
        total = sum(vector(p) for p in full)
        if how == "mean":
            found[qid] = ranked(asked + total)
        elif how == "passage":
            found[qid] = ranked(total)
        elif how == "concatenation":
            found[qid] = ranked(vector(" ".join([query, *full])))
        else:
            points: dict[str, float] = {}
            for order in (ranked(asked), ranked(total)):
                for rank, pid in enumerate(order[:200], 1):
                    points[pid] = points.get(pid, 0) + 1 / (60 + rank)
            points = {pid: round(p, 12) for pid, p in points.items()}
            found[qid] = sorted(points, key=lambda pid: (-points[pid], pid))
    return found


@pytest.mark.parametrize("passages", [1, 2])
def test_every_arm_is_what_brute_force_finds_and_measures(toy, passages):
    task, written, texts = toy
    opened = open_task(task, HashEncoder(), "float32")
    arms = [Arm("hash", how, "" if how == "query" else "w", passages) for how in HOW]
    values = task_values(task, opened, arms, {"w": written}, {})
    for arm, how in zip(arms, HOW, strict=True):
        orders = by_hand(task, written, texts, how, passages)
        own = values[values["arm"] == arm.name].pivot(index="qid", columns="metric", values="value")
        assert sorted(own.index) == sorted(orders)
        for qid, order in orders.items():
            ndcg, recall = outcomes(order, set(task.qrels[qid]))
            assert own.loc[qid, "ndcg_at_10"] == pytest.approx(ndcg, abs=1e-9)
            assert own.loc[qid, "recall_at_100"] == pytest.approx(recall, abs=1e-9)


def test_contrast_ranks_by_h_plus_less_lambda_h_minus(toy):
    task, written, texts = toy
    encoder = HashEncoder()
    pairs = dict.fromkeys(list(task.queries)[:3], (texts["p001"], texts["p002"]))
    hypotheses = {
        qid: Hypotheses((Text(plus, role="target"), Text(minus, role="mimic")))
        for qid, (plus, minus) in pairs.items()
    }
    opened = open_task(task, encoder, "float32")
    values = task_values(task, opened, [Arm("hash", "contrast@0.4", "w")], {}, hypotheses)
    assert set(values["qid"]) == set(pairs)
    vectors = encoder.encode(list(texts.values())).astype(np.float64)
    plus, minus = encoder.encode([texts["p001"], texts["p002"]]).astype(np.float64)
    scores = np.round(vectors @ (plus - 0.4 * minus), 5) + 0.0
    ids = list(texts)
    order = [ids[i] for i in sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))]
    for qid in pairs:
        ndcg, _ = outcomes(order, set(task.qrels[qid]))
        own = values[(values["qid"] == qid) & (values["metric"] == "ndcg_at_10")]["value"].item()
        assert own == pytest.approx(ndcg, abs=1e-9)


def test_an_arm_without_texts_and_an_unknown_way_are_refused(toy):
    task, written, _ = toy
    opened = Retriever(DenseIndex([np.eye(2, dtype=np.float32)], ["a", "b"]), HashEncoder(2))
    with pytest.raises(LookupError, match="nothing written for the arm 'hash, mean, tuned'"):
        task_values(task, opened, [Arm("hash", "mean", "tuned")], {"base": written}, {})
    with pytest.raises(ValueError, match="no way 'sum'"):
        request_of("sum", "query", ["passage"])


def test_arms_have_names_of_their_own():
    for task in ("scifact", "bioasq"):
        for name in (study.BASE, *TRAININGS):
            arms = study.arms_of(name, task)
            assert len({arm.name for arm in arms}) == len(arms)
            assert arms[0].name == name
    assert Arm("minilm", "mean", "capable", 2).name == "minilm, mean, capable x 2"
    names = {arm.name for arm in study.arms_of(study.BASE, "bioasq")}
    assert {"minilm, contrast@0.4, capable", "minilm, rrf, tuned"} <= names


def test_generated_passages_are_by_writer_and_query(monkeypatch, tmp_path):
    from lib.base.files import write_jsonl_gz

    rows = [
        {"qid": "1", "writer": "base", "passage": "one"},
        {"qid": "2", "writer": "base", "passage": ""},
        {"qid": "1", "writer": "tuned", "passage": "other"},
    ]
    write_jsonl_gz(tmp_path / "selflearn" / "hyde-toy.jsonl.gz", rows)
    monkeypatch.setattr(evaluate, "DATA", tmp_path)
    found = evaluate.generated_passages("toy")
    assert found == {"base": {"1": ["one"], "2": [""]}, "tuned": {"1": ["other"]}}


# tables -------------------------------------------------------------------------------------------


@pytest.fixture
def values(monkeypatch) -> pd.DataFrame:
    """Outcomes that are drawn, of every arm that SciFact has, on 40 claims, 20 with passages."""
    monkeypatch.setattr(
        study, "folds", lambda: {f"{i}": "held out" if i < 8 else "the others" for i in range(40)}
    )
    rng = np.random.default_rng(0)
    rows = []
    for qid in map(str, range(40)):
        for metric in ("ndcg_at_10", "recall_at_100"):
            rows.append((study.BM25, qid, metric, float(rng.integers(0, 1001)) / 1000))
    for name in (study.BASE, *TRAININGS):
        for arm in study.arms_of(name, "scifact"):
            n = 40 if arm.how == "query" else 20
            for qid in map(str, range(n)):
                for metric in ("ndcg_at_10", "recall_at_100"):
                    rows.append((arm.name, qid, metric, float(rng.integers(0, 1001)) / 1000))
    table = pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])
    with_means = study.over_seeds(table, "scifact")
    with_means.insert(0, "dataset", "scifact")
    return with_means


def outcome(values: pd.DataFrame, arm: str, metric: str = "ndcg_at_10") -> pd.Series:
    own = values[(values["arm"] == arm) & (values["metric"] == metric)]
    return own.set_index("qid")["value"].sort_index()


def test_a_mean_over_seeds_is_taken_query_by_query(values):
    for rest in ("", ", mean, tuned", ", rrf, base"):
        seeds = [outcome(values, name + rest) for name in study.SEEDS["slhyde"]]
        assert np.allclose(outcome(values, f"slhyde{rest}"), sum(seeds) / 3)
    assert "shuffled, mean, tuned" in set(values["arm"])
    lacking = values[values["arm"] != "slhyde-query-2, rrf, base"].drop(columns="dataset")
    lacking = lacking[~lacking["arm"].str.match("slhyde,|slhyde$|shuffled")]
    assert "slhyde, rrf, base" not in set(study.over_seeds(lacking, "scifact")["arm"])


def test_the_table_has_means_with_the_spread_of_seeds_on_every_part(values):
    table = study.slhyde_table(values, "made").set_index(["dataset", "method", "metric"])
    whole = table.loc[("scifact", "slhyde", "ndcg_at_10")]
    assert whole["value"] == pytest.approx(outcome(values, "slhyde").mean())
    assert whole["low"] < whole["value"] < whole["high"]
    assert (whole["n"], whole["seeds"]) == (40, 3)
    means = [outcome(values, name).mean() for name in study.SEEDS["slhyde"]]
    assert whole["spread"] == pytest.approx(np.std(means, ddof=1))
    base = table.loc[("scifact, with passages", study.BASE, "ndcg_at_10")]
    first = outcome(values, study.BASE)
    assert base["n"] == 20 and base["seeds"] == 1 and np.isnan(base["spread"])
    assert base["value"] == pytest.approx(first[[str(i) for i in range(20)]].mean())
    assert table.loc[("scifact, held out", study.BASE, "ndcg_at_10"), "n"] == 8
    assert table.loc[("scifact, the others", study.BASE, "ndcg_at_10"), "n"] == 32


def test_a_test_against_a_control_that_collapsed_is_void_and_others_are_not(values):
    broken = values["arm"].isin(["shuffled", *study.SEEDS["shuffled"]])
    values.loc[broken, "value"] *= 0.01
    claims = study.slhyde_claims(values).set_index(["dataset", "arm", "against", "metric"])
    void = claims.loc[("scifact", "slhyde", "shuffled", "ndcg_at_10")]
    assert void["verdict"] == "VOID" and void["status"] == "primary"
    declared = claims[claims["status"] == "primary"]
    assert (declared["verdict"] == "VOID").sum() == 1 and len(declared) == 4
    # What was not declared has neither a verdict nor a p-value, a broken control or not.
    others = claims[claims["status"] != "primary"]
    assert others["p"].isna().all() and (others["verdict"] == "").all()
    assert declared["p"].notna().all()


def test_a_retriever_is_added_to_what_is_stored_and_nothing_else_moves(
    values, monkeypatch, tmp_path
):
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    name, task = "slhyde-random", "scifact"
    monkeypatch.setattr(study, "TASKS", {task: None})
    monkeypatch.setattr(study, "_origin", lambda: {"code": [], "data": []})
    write_result(values[values["arm"] != name], study.TABLES[0], "open", code=[], data=[])
    arms = [study.BM25, name, f"{name}, mean, base"]
    new = values[values["arm"].isin(arms)].assign(value=0.5)
    monkeypatch.setattr(study, "slhyde_values", lambda *_: new)
    for _ in range(2):  # added twice, it stands there once
        study.add(SimpleNamespace(name="open"), [name])
    stored, _ = read_result(study.TABLES[0], "open")
    assert not stored.duplicated(["dataset", "arm", "qid", "metric"]).any()
    assert (outcome(stored, name) == 0.5).all() and len(outcome(stored, name)) == 40
    assert (outcome(stored, f"{name}, mean, base") == 0.5).all()
    for arm in (study.BM25, "slhyde-query", "slhyde"):
        assert np.allclose(outcome(stored, arm), outcome(values, arm), atol=6e-4)


def test_claims_are_paired_differences_on_the_queries_that_both_have(values):
    claims = study.slhyde_claims(values)
    assert claims.set_index(["dataset", "arm", "against", "metric"]).index.is_unique
    assert set(claims.loc[claims["metric"] == "recall_at_100", "arm"]) == {study.BASE, "slhyde"}
    rows = claims[claims["metric"] == "ndcg_at_10"].set_index(["dataset", "arm", "against"])
    method, query = outcome(values, "slhyde, mean, tuned"), outcome(values, study.BASE)
    row = rows.loc[("scifact", "slhyde, mean, tuned", study.BASE)]
    assert row["n"] == 20
    assert row["difference"] == pytest.approx((method - query).dropna().mean())
    assert row["low"] < row["difference"] < row["high"]
    assert rows.loc[("scifact", "slhyde-supervised", study.BASE), "n"] == 40
    assert len(rows.loc["scifact"]) >= 20
    # Nobody capable wrote for SciFact.
    assert not any("capable" in arm for arm in rows.loc["scifact"].index.get_level_values("arm"))


def test_what_was_declared_for_scifact_is_primary_there_and_nowhere_else(values):
    found = study.slhyde_claims(values)
    primary = found[found["status"] == "primary"]
    declared = primary_tests()["scifact"]["test"]
    assert [*zip(primary["arm"], primary["against"], primary["metric"], strict=True)] == [
        (test["arm"], test["against"], test["metric"]) for test in declared
    ]
    assert set(primary["dataset"]) == {"scifact"} and set(primary["n"]) == {20, 40}
    assert np.allclose(primary["p_holm"], holm(primary["p"]))
    others = found[found["status"] != "primary"]
    assert others["p_holm"].isna().all() and not others["verdict"].any()


def test_a_declared_arm_that_is_missing_is_an_error(values):
    with pytest.raises(LookupError, match="shuffled"):
        study.slhyde_claims(values[values["arm"] != "shuffled"])


def test_what_stands_in_the_papers_tables_is_an_arm_of_ours(values):
    assert set(study.PRINTED) <= set(values["arm"])
    tables = [pd.read_csv(REPORTED / f"slhyde_table{n}.csv") for n in (2, 5, 6, 12)]
    names = set(tables[0]["model"]).union(tables[1]["method"], tables[2]["method"])
    assert set(study.PRINTED.values()) <= names
    assert {study.PRINTED[arm] for arm in (study.BM25, study.BASE)} <= set(tables[3]["model"])


# the data -----------------------------------------------------------------------------------------


def test_scifact_is_what_beir_counts(mirror):
    task = tasks.scifact()
    assert len(task.queries) == 809 and len(task.corpus) == 5183
    assert sum(map(len, task.qrels.values())) == 919  # as BEIR's train judgments
    known = {p.pid for p in task.corpus}
    assert all(set(own) <= known and own for own in task.qrels.values())
    first = next(p for p in task.corpus if p.pid == "scifact:4983")
    assert first.text.startswith("Microstructural development of human newborn")
    assert "Alterations of the architecture" in first.text and "['" not in first.text
    sides = tasks.folds()
    assert set(sides) == set(task.queries) and set(sides.values()) == {"held out", "the others"}
    side_of_abstract: dict[str, str] = {}
    for qid, own in task.qrels.items():
        for pid in own:
            assert side_of_abstract.setdefault(pid, sides[qid]) == sides[qid]


def test_bioasq_is_the_618_among_all_snippets(mirror):
    task = tasks.bioasq()
    assert len(task.queries) == 618 and len(task.corpus) == 21_231
    assert all(task.qrels.values())
    of_question = {p.pid: set(p.meta["qids"]) for p in task.corpus}
    assert all(qid in of_question[pid] for qid, own in task.qrels.items() for pid in own)


# what is shipped ----------------------------------------------------------------------------------

SHIPPED = [name for name in TRAININGS if (model_files.ADAPTERS / name).is_dir()]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_adapter_is_what_its_plan_says(name):
    card = model_files.read_card(model_files.adapter_folder(name))  # its hash is checked
    training = TRAININGS[name]
    assert card["seed"] == training.seed and card["rank"] == PLAN.rank
    assert card["learning_rate"] == training.learning_rate
    assert card["max_tokens"] == PLAN.max_tokens
    assert card["examples"] <= training.first and card["minutes"] > 0
    assert card["negatives"] == f"1 {training.negatives}" and "MedQuAD" in card["data"]


def test_the_table_of_cards_has_what_each_cost(tmp_path, monkeypatch):
    for name in ("slhyde-query", "slhyde-half"):
        shutil.copytree(model_files.ADAPTERS / "contradiction", tmp_path / name)
        with open(tmp_path / name / model_files.CARD, "a") as card:
            card.write('negatives = "1 mined"\n')
    monkeypatch.setattr(retriever, "ADAPTERS", tmp_path)
    table = retriever.cards(["slhyde-half", "slhyde-query"]).set_index("adapter")
    assert list(table.index) == ["slhyde-half", "slhyde-query"]
    assert (table[["examples", "minutes", "memory_mb", "kilobytes"]] > 0).all().all()
    assert set(table["negatives"]) == {"1 mined"}
