"""RAG2's figures and pages from made-up tables: complete, in order, and true to the numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from lib.pages.render import finding
from lib.pages.tables import rag2_beside, with_filter_names
from lib.plots import caption, figures, names_of
from lib.studies.rag2 import filters, retrieval

TRUTHS = {
    "the experts gave it": "bioasq",
    "it supports the right option": "exams",
    "it supports a wrong option": "exams",
}
NAMES = names_of("filter")


def auroc_table(recipe: float) -> pd.DataFrame:
    value_of = {"cross-ppl-25": recipe, "cosine": 0.8}
    rows = []
    for truth, dataset in TRUTHS.items():
        for name in filters.FILTERS:
            value = value_of.get(name, 0.5)
            row = {"dataset": dataset, "filter": name, "truth": truth, "value": value}
            rows.append(row | {"low": value - 0.05, "high": value + 0.05, "n": 300})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("recipe", "better"), [(0.7, "none"), (0.8, "none"), (0.9, "1")])
def test_title_and_finding_say_how_many_filters_are_better_than_the_cosine(recipe, better):
    auroc = auroc_table(recipe)
    assert set(NAMES) == set(filters.FILTERS)
    rows = figures.filter_rows(auroc)
    assert rows["row"].notna().all() and rows["panel"].nunique() == 3
    assert f"{better} tell" in caption("filters", rows)
    labels = [
        {"rationale": rationale, "score": score, "part": part, "value": value}
        for rationale, value in (("expert", 0.7), ("expert, own's questions", 0.76), ("own", 0.44))
        for part in ("train", "held")
        for score in ("delta_ppl", "cosine")
    ]
    labels = pd.DataFrame(labels).assign(low=0.4, high=0.8)
    shuffled = pd.DataFrame({"truth": "experts gave it", "auroc": [0.4, 0.5, 0.66]})
    text = finding("rag2", auroc=auroc, labels=labels, shuffled=shuffled)
    assert f"Of 9 trained filters {better} tell" in text
    assert f"{recipe:.3f}" in text and "0.440" in text and "0.400 to 0.660" in text


def test_every_strategy_is_drawn_once_for_each_query():
    def by_length(pairs):
        return [len(text) for _, text in pairs]

    arms = retrieval.strategies(("a", "b"), {"": by_length, " (shuffled)": by_length})
    rows = [
        {"dataset": dataset, "method": name, "metric": "precision_at_5", "value": place / 100}
        for dataset in ("bioasq", "bioasq, with a rationale", "ddx-mini")
        for place, name in enumerate(arms)
    ]
    table = pd.DataFrame(rows).assign(low=0.0, high=1.0, n=150)
    drawn = figures.strategy_rows(pd.concat([table, table.assign(metric="ndcg_at_10")]))
    # Of BioASQ, the questions on which every strategy was run.
    assert len(drawn) == len(table) * 2 / 3 and drawn["row"].notna().all()


def test_printed_gains_are_means_of_the_papers_cells_and_measured_ones_are_looked_up():
    recipe = "question | cross-ppl-25, as 25 % of training"
    right = "question | head-right, as 25 % of training"
    read = "reads_right_or_guess"
    balanced = ("question, balanced, re-ranked", "question, stacked")
    rows = {
        "rag2_filters_claims": [
            ("exams", "hit_right", "rationale", "question", 0.1),
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
    columns = ["dataset", "metric", "arm", "against", "difference"]
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


def test_filters_and_labels_are_called_as_the_figures_call_them():
    arm = "question | head-ppl-25, as 5 % of training"
    row = {"arm": arm, "filter": "bm25", "truth": "delta_log_ppl, 25 %", "score": "delta_ppl"}
    found = with_filter_names(pd.DataFrame([row])).iloc[0]
    assert found["arm"] == f"question | {NAMES['head-ppl-25']}, as 5 % of training"
    assert (found["truth"], found["score"]) == ("Δlog-PPL, 25 %", "ΔPPL")
