"""SL-HyDE's page and figures: what is printed beside what is measured, every retriever drawn."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from lib.pages import selflearn as page
from lib.plots import selflearn as draw
from lib.studies.selflearn import study
from lib.studies.selflearn.evaluate import HOW
from lib.studies.selflearn.retriever import TRAININGS


@pytest.fixture
def values(monkeypatch) -> pd.DataFrame:
    """Outcomes that are drawn, of every arm of both sets, on 12 queries."""
    monkeypatch.setattr(study, "folds", lambda: dict.fromkeys(map(str, range(12)), "the others"))
    rng = np.random.default_rng(1)
    parts = []
    for dataset in ("scifact", "bioasq"):
        rows = []
        for name in (study.BASE, *TRAININGS):
            for arm in study.arms_of(name, dataset):
                for qid in map(str, range(12)):
                    for metric in ("ndcg_at_10", "recall_at_100"):
                        rows.append((arm.name, qid, metric, float(rng.integers(0, 1001)) / 1000))
        table = pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])
        parts.append(study.over_seeds(table, dataset).assign(dataset=dataset))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture
def table(values) -> pd.DataFrame:
    return study.slhyde_table(values, "made")


def test_printed_differences_are_those_of_the_papers_tables(table):
    found = page.beside(table).set_index("change")
    # Table 5, "w/ D." less SL-HyDE, by task: -1.26, -7.40, -5.01, -5.79, -6.39.
    assert found.loc["the passage alone instead of the mean", "printed"] == "-5.2 (-7.4 to -1.3)"
    # Table 6, "w/o BGE-FT" less SL-HyDE: -4.94, -1.31, -2.08, -0.90, -0.51.
    assert found.loc["the base retriever in SL-HyDE", "printed"] == "-1.9 (-4.9 to -0.5)"


def test_measured_differences_are_of_means_on_the_same_queries(values, table):
    own = values[(values["dataset"] == "bioasq") & (values["metric"] == "ndcg_at_10")]
    mean = own.groupby("arm")["value"].mean()
    wanted = 100 * (mean["slhyde, mean, tuned"] - mean["minilm, mean, base"])
    found = page.beside(table).set_index("change").loc["SL-HyDE instead of HyDE", "bioasq"]
    assert float(found) == pytest.approx(wanted, abs=0.051)


def test_the_finding_tells_the_four_declared_tests(values):
    claims = study.slhyde_claims(values)
    declared = page.declared(claims)
    assert len(declared) == 4 and set(declared["n"]) == {12}
    said = page.found(claims)
    for row in declared.itertuples():
        assert f"{row.difference:+.3f}" in said
    first = declared.iloc[0]
    assert f"{first['value']:.3f}" in said and f"{first['value_against']:.3f}" in said


def test_every_retriever_and_every_way_is_drawn_on_both_sets(table):
    rows = draw.retriever_rows(table)
    assert rows.groupby("panel")["method"].nunique().tolist() == [len(draw.RETRIEVERS)] * 2
    # All trainings are drawn: seeds as their mean, shares in the learning curve.
    in_curve = draw.learning_rows(table, 1600)
    shown = {*draw.RETRIEVERS, *in_curve["method"], *sum(study.SEEDS.values(), ())}
    assert {study.BASE, *TRAININGS} <= shown
    assert sorted(set(in_curve["pairs"])) == [0, 400, 800, 1600]
    ways = draw.way_rows(table)
    assert len(ways) == 2 * 2 * len(HOW)
    for drawn, plot in (
        (rows, draw.plot_retrievers),
        (ways, draw.plot_ways),
        (in_curve, draw.plot_learning),
    ):
        figure = plot(drawn)
        assert len(figure.axes) == 2
        plt.close(figure)
