"""SL-HyDE's page and figures: what is printed beside what is measured, every retriever drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lib.base.paths import REPORTED
from lib.pages.render import finding
from lib.pages.tables import slhyde_beside, slhyde_declared
from lib.plots import caption, figures, names_of
from lib.studies.slhyde import study
from lib.studies.slhyde.evaluate import HOW
from lib.studies.slhyde.trained import TRAININGS
from tools.slhyde_retriever import RECIPES


@pytest.fixture(scope="module", autouse=True)
def one_side():
    """SciFact's queries have two sides; here all are on one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "folds", lambda: dict.fromkeys(map(str, range(12)), "the others"))
        yield


@pytest.fixture(scope="module")
def values() -> pd.DataFrame:
    """Outcomes that are drawn, of every arm of both sets, on 12 queries."""
    rng = np.random.default_rng(1)
    parts = []
    for dataset in ("scifact", "bioasq"):
        rows = []
        for qid in map(str, range(12)):
            for metric in ("ndcg_at_10", "recall_at_100"):
                rows.append((study.BM25, qid, metric, float(rng.integers(0, 1001)) / 1000))
        for name in (study.BASE, *TRAININGS):
            for arm in study.arms_of(name, dataset):
                for qid in map(str, range(12)):
                    for metric in ("ndcg_at_10", "recall_at_100"):
                        rows.append((arm.name, qid, metric, float(rng.integers(0, 1001)) / 1000))
        table = pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])
        parts.append(study.over_seeds(table, dataset).assign(dataset=dataset))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def table(values) -> pd.DataFrame:
    return study.slhyde_table(values, "made")


@pytest.fixture(scope="module")
def claims(values) -> pd.DataFrame:
    return study.slhyde_claims(values)


def test_printed_differences_are_those_of_the_papers_tables(table):
    found = slhyde_beside(table).set_index("change")
    # Table 5, "w/ D." less SL-HyDE, by task: -1.26, -7.40, -5.01, -5.79, -6.39.
    assert found.loc["the passage alone instead of the mean", "printed"] == "-5.2 (-7.4 to -1.3)"
    # Table 6, "w/o BGE-FT" less SL-HyDE: -4.94, -1.31, -2.08, -0.90, -0.51.
    assert found.loc["the base retriever in SL-HyDE", "printed"] == "-1.9 (-4.9 to -0.5)"


def test_recall_stands_beside_the_recall_that_is_printed(values, table):
    found = slhyde_beside(table).set_index("table").loc["12"]
    wide = pd.read_csv(REPORTED / "slhyde_table12.csv").pivot(
        index="model", columns="dataset", values="value"
    )
    gains = (wide.loc["BGE(large)"] - wide.loc["BM25"]).drop("Average")
    assert len(gains) == 10 and found["metric"] == "recall_at_100"
    wanted = f"{gains.mean():+.1f} ({gains.min():+.1f} to {gains.max():+.1f})"
    assert found["printed"] == wanted
    own = values[(values["dataset"] == "scifact") & (values["metric"] == "recall_at_100")]
    mean = own.groupby("arm")["value"].mean()
    wanted = 100 * (mean[study.BASE] - mean[study.BM25])
    assert float(found["scifact"]) == pytest.approx(wanted, abs=0.051)


def test_measured_differences_are_of_means_on_the_same_queries(values, table):
    own = values[(values["dataset"] == "bioasq") & (values["metric"] == "ndcg_at_10")]
    mean = own.groupby("arm")["value"].mean()
    wanted = 100 * (mean["slhyde, mean, tuned"] - mean["minilm, mean, base"])
    found = slhyde_beside(table).set_index("change").loc["SL-HyDE instead of HyDE", "bioasq"]
    assert float(found) == pytest.approx(wanted, abs=0.051)


def test_the_finding_tells_the_four_declared_tests(claims):
    declared = slhyde_declared(claims)
    assert len(declared) == 4 and set(declared["n"]) == {12}
    said = finding("slhyde", claims=claims)
    for row in declared.itertuples():
        assert f"{row.difference:+.3f}" in said
    first = declared.iloc[0]
    assert f"{first['value']:.3f}" in said and f"{first['value_against']:.3f}" in said


def test_the_word_of_the_finding_is_the_verdicts(claims):
    """Holm may leave open what the interval alone would not."""
    first = (claims["arm"] == "slhyde") & (claims["against"] == study.BASE)
    first &= claims["status"] == "primary"
    assert first.sum() == 1
    for verdict, difference, said in (
        ("SUPPORTED", 0.02, "the retriever that taught itself finds more: "),
        ("AGAINST", -0.02, "the retriever that taught itself finds less: "),
        ("INCONCLUSIVE", 0.02, "chance could explain what self-learning changed: "),
        ("INCONCLUSIVE", -0.02, "chance could explain what self-learning changed: "),
    ):
        told = claims.copy()
        columns = ["verdict", "difference", "low", "high"]
        told.loc[first, columns] = [verdict, difference, difference - 0.01, difference + 0.01]
        assert f"**On 12 claims of SciFact {said}nDCG@10 " in finding("slhyde", claims=told)


def test_a_void_test_is_called_so_and_the_low_rate_pair_stands_beside_it(claims):
    own = claims["dataset"] == "scifact"
    void = own & (claims["arm"] == "slhyde") & (claims["against"] == "shuffled")
    low = own & (claims["arm"] == study.RIGHT_LOW) & (claims["against"] == study.DISORDER_LOW)
    assert void.sum() == low.sum() == 1
    told = claims.copy()
    columns = ["verdict", "value_against"]
    told.loc[void, columns] = ["VOID", 0.0]
    columns = ["difference", "low", "high", "value_against"]
    told.loc[low, columns] = [0.004, -0.006, 0.014, 0.655]
    said = finding("slhyde", claims=told)
    assert "is void: that control collapsed, to nDCG@10 0.000." in said
    assert "keep 0.655" in said and "+0.004 (-0.006 to 0.014), no difference larger" in said
    told.loc[low, "high"] = 0.03
    assert "no difference larger" not in finding("slhyde", claims=told)


def test_a_mean_over_seeds_is_compared_with_the_same(claims):
    """One seed has its own luck: it is held against one of the same seed, or the untrained base."""

    def seeds_of(arm: str) -> set[int]:
        name = arm.partition(",")[0]
        if name in (study.BASE, study.BM25):
            return set()
        return {RECIPES[one].seed for one in study.SEEDS.get(name, (name,))}

    for row in claims.itertuples():
        one, other = seeds_of(row.arm), seeds_of(row.against)
        assert not one or not other or one == other, row.claim
    said = set(zip(claims["arm"], claims["against"], strict=True))
    for how in ("", ", mean, tuned"):
        assert (f"slhyde-supervised{how}", f"slhyde-query{how}") in said


TRAINED = pd.DataFrame(
    {
        "adapter": ["slhyde-generator", "slhyde-query", "slhyde-half", "slhyde-quarter"],
        "examples": [200, 1500, 700, 300],
    }
)
"""What each was trained on. Half of the documents are not half of the pairs: of one text one
stays."""


def test_every_retriever_and_every_way_is_drawn_on_both_sets(table):
    rows = figures.retriever_rows(table)
    assert rows.groupby("panel")["method"].nunique().tolist() == [len(names_of("retriever"))] * 2
    # All trainings are drawn: seeds as their mean, shares in the learning curve.
    in_curve = figures.learning_rows(table, TRAINED)
    shown = {*names_of("retriever"), *in_curve["method"], *sum(study.SEEDS.values(), ())}
    assert {study.BASE, *TRAININGS} <= shown
    pairs = set(zip(in_curve["method"], in_curve["pairs"], strict=True))
    trained = dict(zip(TRAINED["adapter"], TRAINED["examples"], strict=True))
    del trained["slhyde-generator"]
    assert pairs == {(study.BASE, 0), *trained.items()}
    assert in_curve.groupby("study")["pairs"].apply(list).tolist() == [[0, 300, 700, 1500]] * 2
    specs = figures.passage_use_rows(table)
    assert len(specs) == 2 * 2 * len(HOW)
    for name, drawn in (("retrievers", rows), ("passage_uses", specs), ("learning", in_curve)):
        assert " on SciFact, " in caption(name, drawn) and caption(name, drawn)[-7:] == " BioASQ"
