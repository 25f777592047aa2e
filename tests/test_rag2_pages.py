"""RAG2's figures and pages from made-up tables: complete, in order, and true to the numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from lib.pages.render import finding
from lib.pages.tables import rag2_beside, with_filter_names
from lib.plots import caption, figures, names_of
from lib.studies.rag2 import filters, strategies
from lib.studies.rag2.filtering import KEEPS

ALL_FILTERS = (*filters.BASELINES, *filters.HEADS, *filters.CROSSES)
TRUTHS = {
    "the experts gave it": "bioasq",
    "it supports the right option": "exams",
    "it supports a wrong option": "exams",
}


def auroc_table(recipe: float = 0.7, cosine: float = 0.8) -> pd.DataFrame:
    value_of = {"cross-ppl-25": recipe, "cosine": cosine}
    rows = []
    for truth, dataset in TRUTHS.items():
        for name in ALL_FILTERS:
            value = value_of.get(name, 0.5)
            row = {"dataset": dataset, "filter": name, "truth": truth, "value": value}
            rows.append(row | {"low": value - 0.05, "high": value + 0.05, "n": 300})
    return pd.DataFrame(rows)


FILTERS = names_of("filter")


def test_every_filter_has_a_name_and_the_title_says_who_is_better():
    assert set(FILTERS) == set(ALL_FILTERS)
    rows = figures.filter_rows(auroc_table())
    assert rows["row"].notna().all()
    assert rows["panel"].nunique() == 3
    title = caption("filters", rows)
    assert "none tells an expert's snippet better than the cosine (0.80)" in title
    better = caption("filters", figures.filter_rows(auroc_table(0.9)))
    assert "1 tells" in better and "recipe has 0.90" in better
    assert "none tells" in caption("filters", figures.filter_rows(auroc_table(0.8)))


def label_table() -> pd.DataFrame:
    rows = []
    whose = (("expert", 0.7), ("expert, own's questions", 0.76), ("own", 0.44))
    for rationale, value in whose:
        for part in ("train", "held"):
            row = {"rationale": rationale, "score": "delta_ppl", "part": part}
            row |= {"value": value, "low": value - 0.03, "high": value + 0.03}
            rows += [row, row | {"score": "cosine", "value": 0.66}]
    return pd.DataFrame(rows)


def test_the_finding_reads_the_tables():
    draws = pd.DataFrame({"truth": "experts gave it", "auroc": [0.4, 0.5, 0.66]})
    tables = {"labels": label_table(), "shuffled": draws}
    said = finding("rag2", auroc=auroc_table(), **tables)
    trained = len(ALL_FILTERS) - len(filters.BASELINES) - 2  # two learnt from disorder
    assert f"Of {trained} trained filters none tells" in said
    for told in (
        "0.700 (0.650 to 0.750)",
        "0.800 (0.750 to 0.850)",
        "0.500 (0.450 to 0.550)",
        "0.400 to 0.660",
        "0.760 (0.730 to 0.790)",
        "they do not tell such snippets, 0.440 (0.410 to 0.470)",
        "0.660",
    ):
        assert told in said
    better = finding("rag2", auroc=auroc_table(0.95), **tables)
    assert f"Of {trained} trained filters 1 tells" in better


def test_what_is_kept_is_said_by_kind():
    shares = {
        "given": 0.41,
        "not given": 0.2,
        "for the right option": 0.3,
        "for a wrong option alone": 0.31,
        "for no option": 0.12,
        "all": 0.2,
    }
    rows = [
        {"filter": name, "keeps": keeps, "kind": kind, "value": value + (name != "cross-ppl-25")}
        for name in ("cross-ppl-25", "cosine")
        for keeps in KEEPS
        for kind, value in shares.items()
    ]
    said = finding("filters_keep", kept=pd.DataFrame(rows))
    assert "41 % of the experts' snippets and 20 % of the others" in said
    assert "right option 30 %, for a wrong one alone 31 %, for none 12 %" in said


@pytest.fixture
def strategy_table() -> pd.DataFrame:
    def by_length(pairs):
        return [len(text) for _, text in pairs]

    arms = strategies.strategies(("a", "b"), {"tuned": by_length, "shuffled": by_length})
    rows = []
    sets = {"bioasq": -0.1, "bioasq, with a rationale": 0.0, "ddx-mini": 0.1}
    for dataset, extra in sets.items():
        for place, name in enumerate(arms):
            value = place / 100 + extra
            row = {"dataset": dataset, "method": name, "metric": "precision_at_5", "value": value}
            rows.append(row | {"low": value - 0.01, "high": value + 0.01, "n": 150})
    return pd.DataFrame([*rows, {**rows[0], "metric": "ndcg_at_10"}])


def test_every_strategy_is_drawn_once_for_each_query(strategy_table):
    rows = figures.strategy_rows(strategy_table)
    # Of BioASQ, the questions on which every strategy was run.
    assert len(rows) == (len(strategy_table) - 1) * 2 / 3
    assert rows["row"].notna().all(), "a strategy has no place in the figure"
    assert list(rows["row"].cat.categories[:2]) == ["a alone", "b alone"]
    found = strategy_table.set_index(["dataset", "method"])["value"]
    same = found["bioasq, with a rationale"]
    gain = same["question, balanced, re-ranked"] - same["question, stacked"]
    assert f"{gain:+.2f} on BioASQ" in caption("strategies", rows)


def test_the_reader_over_k_is_drawn_without_the_arms_that_keep_a_best_passage():
    arms = [
        "question",
        "question | f, as 5 % of training",
        "question | f, as 5 % of training (best kept)",
    ]
    rows = [
        {
            "dataset": "medqa",
            "arm": arm,
            "k": k,
            "metric": "reads_right_or_guess",
            "value": 0.2 + place / 10,
            "low": 0.1,
            "high": 0.6,
            "n": 150,
        }
        for place, arm in enumerate(arms)
        for k in range(1, 6)
    ]
    drawn = figures.k_rows(pd.DataFrame(rows))
    assert set(drawn["family"]) == {"question", "question, filtered (as 5 % of training)"}
    title = caption("reading_by_k", drawn)
    assert "With 5 passages" in title
    assert "question, filtered" in title


def test_printed_gains_are_means_of_the_papers_cells_and_measured_ones_are_looked_up():
    recipe = "question | cross-ppl-25, as 25 % of training"
    right = "question | head-right, as 25 % of training"

    def claim(dataset, metric, arm, against, difference):
        row = {"dataset": dataset, "metric": metric, "arm": arm, "against": against}
        return row | {"difference": difference, "low": -1, "high": 1, "n": 9}

    read = "reads_right_or_guess"
    balanced = ("question, balanced, re-ranked", "question, stacked")
    tables = {
        "rag2_filters_claims": [
            claim("exams", "hit_right", "rationale", "question", 0.1),
            claim("exams", read, "rationale", "question", 0.2),
            claim("bioasq", "p_at_5", "rationale", "question", 0.3),
        ],
        "rag2_strategies_claims": [
            claim("bioasq", "precision_at_1", *balanced, 0.4),
            claim("ddx-mini", "precision_at_1", *balanced, 0.5),
        ],
        "rag2_top_1": [
            claim("exams", read, recipe, "question", 0.6),
            claim("exams", read, right, "question", 0.7),
        ],
    }
    table = rag2_beside({name: pd.DataFrame(rows) for name, rows in tables.items()})
    assert table["difference"].tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    # Llama-3: 58.6 - 55.3 on MedQA and 55.8 - 51.3 on MedMCQA.
    said = table.loc[table["step"].str.startswith("the filter of rationales"), "printed, points"]
    assert said.tolist() == ["+3.9 (+3.3 to +4.5, 2 cells)"]
    rationale = table.loc[table["step"] == "the rationale as the query", "printed, points"]
    assert "9 cells" in rationale.iloc[0]


def test_filters_and_labels_are_called_as_the_figures_call_them():
    table = pd.DataFrame(
        {
            "arm": ["question | head-ppl-25, as 5 % of training", "rationale"],
            "filter": ["bm25", "cross-shuffled"],
            "truth": ["delta_log_ppl, 25 %", "experts gave it"],
            "score": ["delta_ppl", "bm25"],
            "value": [0.25, 0.5],
        }
    )
    found = with_filter_names(table)
    assert found["arm"].tolist() == [
        f"question | {FILTERS['head-ppl-25']}, as 5 % of training",
        "rationale",
    ]
    assert found["filter"][1] == FILTERS["cross-shuffled"]
    assert found["truth"].tolist() == ["Δlog-PPL, 25 %", "experts gave it"]
    assert found["score"].tolist() == ["ΔPPL", "BM25"]
    assert found["value"].tolist() == [0.25, 0.5]
    assert table["score"][0] == "delta_ppl"
