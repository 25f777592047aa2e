"""Verdicts, tables and controls against sums that anyone can do by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lib.base.provenance import make_or_reuse
from lib.profiles import load_profile
from lib.report import nine_digits, pivot, pooled, reported, verdict
from lib.stats import mcnemar_p
from lib.studies.main_tables.accuracy import (
    OUTCOMES,
    accuracy_table,
    claims,
    cost_table,
    is_right,
    overlap,
    overlap_table,
    rbo,
    same_setup,
)

share = st.floats(0, 1)

# verdicts ----------------------------------------------------------------------------------------


@given(share, share, st.floats(0.001, 0.5))
def test_a_verdict_is_the_same_in_both_directions(one, two, half):
    here = verdict(one, half, two, True)
    assert here == verdict(two, half, one, True)
    distance = abs(one - two)
    assert here == ("MATCH" if distance <= half else "CLOSE" if distance <= 2 * half else "OFF")


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_nothing_is_judged_that_was_not_run_or_printed_or_is_another_setup(nothing):
    assert verdict(nothing, 0.1, 0.5, True) == verdict(nothing, 0.1, nothing, False) == "NOT RUN"
    assert verdict(0.5, 0.1, nothing, True) == verdict(0.5, 0.1, nothing, False) == ""
    assert verdict(0.5, 0.1, 0.5, False) == verdict(0.1, 0.1, 0.9, False) == "DIFFERENT SETUP"


# tables in another shape --------------------------------------------------------------------------

LONG = pd.DataFrame(
    [
        ("majority", "exams", "right", 0.307, 300),
        ("majority", "bioasq", "right", 0.62, 150),
        ("hplus", "exams", "right", 0.507, 300),
    ],
    columns=["arm", "dataset", "metric", "value", "n"],
)


def test_rows_that_would_merge_in_a_cell_are_refused_by_name():
    """Their mean, 0.464, is no number of anything: 300 exam questions and 150 of BioASQ."""
    with pytest.raises(ValueError, match=r"2 rows .*arm = majority.* differ in dataset, value, n"):
        pivot(LONG, "arm", "metric")
    same = pd.concat([LONG[:1], LONG[:1]])
    with pytest.raises(ValueError, match="differ in nothing"):
        pivot(same, "arm", "metric")


def test_a_wide_table_has_every_number_and_the_order_of_the_long_one():
    wide = pivot(LONG, "arm", ["dataset", "metric"])
    assert list(wide.index) == ["majority", "hplus"]
    assert list(wide.columns) == [("exams", "right"), ("bioasq", "right")]
    assert wide.loc["majority"].tolist() == [0.307, 0.62]
    assert wide.loc["hplus"].tolist()[0] == 0.507 and pd.isna(wide.loc["hplus"].tolist()[1])
    assert pivot(LONG, ["arm", "dataset"], "metric", ["value", "n"]).shape == (3, 2)


def test_a_mean_over_sets_is_one_over_their_questions():
    table = LONG.rename(columns={"arm": "method"})
    found = pooled(table, ["value"])
    assert found["n"].to_dict() == {"majority": 450, "hplus": 300}
    assert found.loc["majority", "value"] == pytest.approx((0.307 * 300 + 0.62 * 150) / 450)
    assert found.loc["hplus", "value"] == pytest.approx(0.507)
    nowhere = pooled(table.assign(value=np.nan), ["value"])
    assert nowhere["value"].isna().all()


def test_scores_near_0_and_1_keep_their_order_in_a_file_and_missing_ones_are_missing(own_folders):
    scores = pd.Series([1 - 3e-8, 1 - 1e-8, None, 2e-9, 3e-9, 0.5])
    made = pd.DataFrame({"qid": list("abcdef"), "value": scores})
    kept = make_or_reuse(lambda: nine_digits(made), "scores", "mini", code=["lib.stats"], data=[])
    assert kept["value"].rank().equals(scores.rank())
    assert kept["value"].to_numpy() == pytest.approx(scores.to_numpy(), abs=1e-9, nan_ok=True)


# accuracy ----------------------------------------------------------------------------------------


def answers_of(letters: str, gold: str, **columns) -> pd.DataFrame:
    """One row a question; "-" is a reply that could not be read, and MIRAGE's scorer says A."""
    rows = [
        {"qid": f"q{i:03d}", "gold": g, "letter": x.strip("-"), "mirage": x.replace("-", "A")}
        for i, (x, g) in enumerate(zip(letters, gold, strict=True))
    ]
    given = {"dataset": "medqa", "reader": "me", "method": "chr"} | columns
    return pd.DataFrame(rows).assign(**given)


def cell(table: pd.DataFrame, metric: str, method: str = "chr") -> pd.Series:
    (i,) = table.index[(table["metric"] == metric) & (table["method"] == method)]
    return table.loc[i]


def wilson(hits: int, n: int) -> tuple[float, float]:
    z = 1.959963984540054
    middle = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)
    return middle - half, middle + half


def test_any_of_several_right_letters_is_right_and_nothing_is_not():
    answers = answers_of("AC-BA", "ABCAB").assign(gold=["AC", "AC", "AC", "AC", "B"])
    assert is_right(answers).tolist() == [True, True, False, False, False]
    table = accuracy_table(answers)
    assert cell(table, "accuracy")["value"] == 2 / 5
    assert cell(table, "accuracy_mirage")["value"] == 3 / 5  # it reads A where nothing can be read


def test_accuracy_its_intervals_and_failures_by_hand():
    table = accuracy_table(answers_of("ABC-D-AAB", "ABCABBACD"))
    for metric, hits, n in (
        ("accuracy", 4, 9),
        ("accuracy_answered", 4, 7),
        ("accuracy_mirage", 5, 9),
        ("unparsed", 2, 9),
    ):
        row = cell(table, metric)
        assert (row["value"], row["n"]) == (hits / n, n)
        assert (row["low"], row["high"]) == pytest.approx(wilson(hits, n))
    assert len(table) == 4
    nothing = cell(accuracy_table(answers_of("---", "AAB")), "accuracy_answered")
    assert nothing["n"] == 0 and np.isnan([nothing["value"], nothing["low"]]).all()


def test_who_abstains_may_guess():
    """Two of nine are not read: each counts as the chance of its set."""
    table = accuracy_table(answers_of("ABC-D-AAB", "ABCABBACD"), {"medqa": 0.25})
    row = cell(table, "accuracy_or_guess")
    assert row["value"] == pytest.approx((4 + 2 * 0.25) / 9) and row["n"] == 9
    assert row["low"] < row["value"] < row["high"]


@given(st.lists(st.tuples(st.sampled_from("AB-"), st.sampled_from("AB")), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_balanced_accuracy_is_the_mean_of_the_recalls(pairs):
    letters, gold = ("".join(column) for column in zip(*pairs, strict=True))
    table = accuracy_table(answers_of(letters, gold, dataset="ddx-mini bioasq"))
    recalls = [np.mean([x == g for x, g in pairs if g == side]) for side in "AB" if side in gold]
    row = cell(table, "balanced_accuracy")
    assert row["value"] == pytest.approx(np.mean(recalls)) and row["n"] == len(pairs)
    assert 0 <= row["low"] <= row["value"] <= row["high"] <= 1
    assert cell(table, "yes_rate")["value"] == letters.count("A") / len(pairs)


def test_table_1_stands_beside_what_the_paper_prints_with_the_average_of_its_three_sets():
    """As Table 1's Avg.: BioASQ's ten questions weigh as much as the two of each exam."""
    llama = {"reader": "Llama-3-8B-Instruct"}
    parts = [
        answers_of("AB", "AA", dataset="mmlu", **llama),
        answers_of("AA", "AA", dataset="medqa", **llama),
        answers_of("B" * 10, "A" * 10, dataset="bioasq", **llama),
        answers_of("AA", "AA", dataset="ddx-mini medqa", reader="reads one set"),
        answers_of("AA", "AA", dataset="pubmedqa", **llama),
    ]
    table = accuracy_table(pd.concat(parts))
    row = cell(table, "average")
    assert (row["dataset"], row["answerer"], row["n"]) == ("average", llama["reader"], 14)
    assert row["asked"] == {"mmlu": 2, "medqa": 2, "bioasq": 10}
    assert row["value"] == pytest.approx((0.5 + 1 + 0) / 3)
    alone = table[table["metric"] == "accuracy"].set_index("dataset")
    ends = alone.loc[["mmlu", "medqa", "bioasq"], ["value", "low"]].to_numpy()
    down = np.linalg.norm(ends[:, 0] - ends[:, 1]) / 3
    assert row["value"] - row["low"] == pytest.approx(down)
    printed = reported("table1_accuracy").set_index(["generator", "method", "dataset"])["value"]
    assert row["reported"] == printed[llama["reader"], "CHR", "Avg."] / 100
    assert alone.loc["medqa", "reported"] == printed[llama["reader"], "CHR", "MedQA-US"] / 100
    mean = printed[:, "CHR", "MedQA-US"].mean() / 100
    assert alone.loc["ddx-mini medqa", "reported"] == pytest.approx(mean)
    assert pd.isna(alone.loc["pubmedqa", "reported"])


# is it the paper's setup? ------------------------------------------------------------------------

BENCHMARK = {"mmlu": 1089, "medqa": 1273, "bioasq": 618}
PAPERS = replace(
    load_profile("mini"),
    corpora=("textbooks", "pubmed", "statpearls", "wikipedia"),
    encoder="medcpt",
    k=5,
    methods=load_profile("paper").methods | {"hyde": {"samples": 3}},
)
"""A made-up profile that is the paper's setup, but for HyDE's number of samples."""
RAN = {
    "expander": "Qwen/Qwen2.5-72B-Instruct",
    "method": "chr",
    "answerer": "Llama-3-8B-Instruct",
    "answered_by": "meta-llama/Meta-Llama-3-8B-Instruct",
}


def test_the_papers_setup_is_known_by_what_ran_whatever_the_profile_is_called():
    for asked in ({"medqa": 1273}, BENCHMARK):
        assert same_setup(PAPERS, asked, **RAN) and same_setup(load_profile("paper"), asked, **RAN)
        assert same_setup(PAPERS, asked, **RAN | {"answerer": None})  # nobody answered: Table 3
    for changed in (
        {"corpora": ("textbooks", "pubmed", "statpearls")},
        {"corpora": (*PAPERS.corpora, "medquad")},
        {"limit": 1000},
        {"encoder": "minilm"},
        {"encoder_options": {"max_query_tokens": 64}},
        {"k": 10},
        {"methods": {"chr": {"max_tokens": 256}}},
    ):
        assert not same_setup(replace(PAPERS, **changed), BENCHMARK, **RAN), changed
    for changed in (
        {"expander": "Qwen/Qwen2.5-7B-Instruct"},
        {"expander": "reference text"},
        {"method": "hyde"},
        {"answerer": "evidence reader", "answered_by": ""},
        {"answered_by": "meta-llama/Llama-3.1-8B-Instruct"},
        {"answerer": "Qwen2.5-7B-Instruct"},
    ):
        assert not same_setup(PAPERS, BENCHMARK, **RAN | changed), changed
    for asked in ({"medqa": 1272}, {"ddx-mini medqa": 1273}, {"pubmedqa": 500}):
        assert not same_setup(PAPERS, BENCHMARK | asked, **RAN), asked


def binomial(wins: int, losses: int) -> float:
    """Two-sided exact p: twice the smaller tail of n fair coins, at most 1."""
    n, least = wins + losses, min(wins, losses)
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(least + 1)) / 2**n)


@given(st.integers(0, 80), st.integers(0, 80))
@settings(deadline=None)
def test_mcnemars_p_of_two_counts_is_the_direct_binomial_sum(wins, losses):
    assert mcnemar_p(wins, losses) == pytest.approx(binomial(wins, losses))


RIGHT = "A" * 40


def family(letters: dict[str, str], reader: str = "me") -> pd.DataFrame:
    some = [answers_of(x, RIGHT, method=m, reader=reader) for m, x in letters.items()]
    return pd.concat(some, ignore_index=True)


LETTERS = {
    "chr": "A" * 30 + "B" * 10,
    "hyde": "B" * 12 + "A" * 18 + "B" * 10,
    "standard": "A" * 29 + "B" * 11,
    "csqe": RIGHT,
    "mine": "B" * 5 + "A" * 35,
}


# claims ------------------------------------------------------------------------------------------


def test_claims_have_a_row_for_each_baseline_of_the_paper():
    table = claims(family(LETTERS)).set_index("baseline")
    assert list(table.index) == ["standard", "hyde", "csqe"] and set(table["arm"]) == {"chr"}
    assert list(table["difference"]) == pytest.approx([1 / 40, 12 / 40, -10 / 40])
    assert table["p"].isna().all()  # none of them was declared
    assert set(table["n"]) == {40} and set(table["answerer"]) == {"me"}
    assert (table["low"] <= table["difference"]).all() and (table["mde"] > 0).all()
    assert set(table["status"]) == {"exploratory"} and set(table["verdict"]) == {""}
    both = pd.concat([family({"hyde": RIGHT}, "other"), family(LETTERS), family(LETTERS, "third")])
    assert list(claims(both)["answerer"]) == ["me"] * 3 + ["third"] * 3
    assert claims(family({"hyde": RIGHT})).empty


# cost --------------------------------------------------------------------------------------------


def costs(rows: list[tuple], latency_s=1.0, dataset="medqa") -> pd.DataFrame:
    """As the grid's: method, calls, prompt and output tokens, error; a question a row."""
    columns = ["method", "calls", "prompt_tokens", "output_tokens", "error"]
    table = pd.DataFrame(rows, columns=columns)
    qids = table.groupby("method").cumcount().astype(str)
    table = table.assign(retrieval_rounds=2.0, latency_s=latency_s, dataset=dataset, qid=qids)
    return table.astype({"latency_s": float, "prompt_tokens": float, "output_tokens": float})


def test_costs_are_those_of_the_exams_as_in_the_paper():
    few = [("chr", 1, 10, 4, ""), ("hyde", 8, 10, 40, "")]
    many = [("chr", 1, 10, 1000, ""), ("hyde", 8, 10, 1000, "")]
    exams = [costs(few, dataset=d) for d in ("mmlu", "medqa")]
    table = cost_table(pd.concat([*exams, costs(many, dataset="bioasq")])).set_index("method")
    assert set(table["dataset"]) == {"mmlu, medqa"} and set(table["n"]) == {2}
    assert table["output_tokens"].to_dict() == {"chr": 4, "hyde": 40}
    assert table["token_reduction"].to_dict() == {"chr": 10, "hyde": 1}
    assert table.loc["chr", "reported_token_reduction"] == 9.7
    # Where no exam question was asked, all that was asked counts.
    other = cost_table(costs(many, dataset="bioasq")).set_index("method")
    assert other["output_tokens"].to_dict() == {"chr": 1000, "hyde": 1000}
    assert set(other["dataset"]) == {"bioasq"}


def test_one_question_that_was_not_measured_leaves_no_mean():
    rows = [("chr", 1, 10, 4, ""), ("chr", 2, 20, 8, "nothing was said")]
    rows += [("hyde", 1, None, None, ""), ("hyde", 1, 8, 8, ""), ("mine", 3, 1, 1, "")]
    table = cost_table(costs(rows)).set_index("method")
    ours = table.loc["chr", ["calls", "prompt_tokens", "output_tokens", "n", "failed"]]
    assert list(ours) == [1.5, 15, 6, 2, 1]
    assert table.loc["hyde", ["prompt_tokens", "output_tokens"]].isna().all()
    assert table.loc["hyde", "calls"] == 1
    assert list(table.loc["chr", ["reported_calls", "reported_output_tokens"]]) == [1, 303]
    assert table.loc["mine", ["reported_calls", "reported_output_tokens"]].isna().all()


# overlap -----------------------------------------------------------------------------------------

lists = st.lists(st.sampled_from("abcdefgh"), max_size=8, unique=True)


@given(lists, lists, st.sampled_from([0.5, 0.9, 0.98]))
def test_rbo_is_the_extrapolated_sum(a, b, p):
    k = min(len(a), len(b))
    assume(k)
    total = 0.0
    for d in range(1, k + 1):  # Webber et al. (2010), eq. 32 for two lists of the length k
        total += (1 - p) / p * len({*a[:d]} & {*b[:d]}) / d * p**d
    total += len({*a[:k]} & {*b[:k]}) / k * p**k
    assert rbo(a, b, p) == pytest.approx(total) == pytest.approx(rbo(b, a, p))
    assert -1e-12 <= rbo(a, b, p) <= 1 + 1e-12
    assert rbo(a, a, p) == pytest.approx(1)
    assert (rbo(a[:k], b[:k], p) == 0) == (not {*a[:k]} & {*b[:k]})
    first = b[0]
    if first in a:  # the earlier a shared passage stands, the more it counts
        front = [first, *(x for x in a if x != first)]
        assert rbo(front[:k], b[:k], p) >= rbo(a[:k], b[:k], p) - 1e-12


@given(lists, lists, st.integers(1, 6))
def test_overlap_counts_what_two_lists_share(a, b, k):
    found = overlap(a, b, k)
    shared = [x for x in a[:k] if x in b[:k]]
    assert found["count"] == len(shared) and found["fraction"] == len(shared) / k
    assert found["zero"] == (not shared)
    union = len(a[:k]) + len(b[:k]) - len(shared)
    assert found["jaccard"] == (len(shared) / union if union else 0)
    short = min(len(a), len(b), k)  # rbo looks no deeper than the shorter list goes
    assert (found["rbo"] > 0) == bool({*a[:short]} & {*b[:short]})


@given(
    st.lists(st.tuples(lists, lists, st.booleans(), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_the_outcomes_part_the_questions(rows, k):
    first = {f"q{i}": a for i, (a, _, _, _) in enumerate(rows)}
    second = {f"q{i}": b for i, (_, b, _, _) in enumerate(rows)}
    right = tuple(pd.Series({f"q{i}": row[j] for i, row in enumerate(rows)}) for j in (2, 3))
    table = overlap_table(first, second, k, right).set_index("outcome")
    assert list(table.index) == list(OUTCOMES) and table.loc["all", "n"] == len(rows)
    assert table["n"].iloc[1:].sum() == len(rows)
    cells = {
        "both right": (True, True),
        "only the first right": (True, False),
        "only the second right": (False, True),
        "both wrong": (False, False),
    }
    for outcome, cell_of in {"all": None, **cells}.items():
        own = [overlap(a, b, k) for a, b, *r in rows if cell_of in (None, tuple(r))]
        assert table.loc[outcome, "n"] == len(own)
        for column in ("count", "fraction", "jaccard", "zero", "rbo"):
            mean = np.mean([o[column] for o in own]) if own else np.nan
            assert table.loc[outcome, column] == pytest.approx(mean, nan_ok=True)
    alone = overlap_table(first, second, k).set_index("outcome")
    assert alone.equals(table.loc[["all"]])
    one = (right[0][:1], right[1][:1])  # who was not answered is in no outcome
    assert overlap_table(first, second, k, one)["n"].tolist()[1:].count(1) == 1
