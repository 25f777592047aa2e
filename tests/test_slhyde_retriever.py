"""SL-HyDE's retriever: pairs, negatives and losses by brute force, arms and measures by hand."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib.base.paths import REPORTED
from lib.base.provenance import read_result, write_result
from lib.data.passages import Passage
from lib.embed import HashEncoder
from lib.query_spec import Hypotheses, Text
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.stats import holm
from lib.studies.slhyde import evaluate, study, tasks
from lib.studies.slhyde.cmirb import Task
from lib.studies.slhyde.evaluate import HOW, Arm, open_task, request_of, task_values
from lib.studies.slhyde.trained import TRAININGS
from lib.study import primary_tests

WORDS = [f"word{i}" for i in range(40)]


def texts_of(n: int, seed: int = 0) -> dict[str, str]:
    """``n`` passages of six words each, by id."""
    generator = random.Random(seed)
    return {f"p{i:03d}": " ".join(generator.sample(WORDS, 6)) for i in range(n)}


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
