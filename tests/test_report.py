"""Verdicts, tables and controls against sums that anyone can do by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lib.base.paths import ROOT
from lib.base.provenance import make_or_reuse
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.methods import METHODS, Expansion, Hypotheses, SearchSpec
from lib.profiles import load_profile
from lib.report import PAPER_NAMES, nine_digits, pivot, pooled, reported, verdict
from lib.run import Retriever, execute
from lib.search.contrast import matched_rotation, shifted_query
from lib.search.index import DenseIndex
from lib.stats import mcnemar_p, paired
from lib.studies.main_tables.accuracy import accuracy_table, answer_values, claims, cost_table
from lib.studies.main_tables.controls import CONTROLS, controlled, with_drawn_strangers
from lib.studies.main_tables.paper_setup import same_setup
from lib.studies.main_tables.shift import OUTCOMES, overlap, rbo, shift_table

share = st.floats(0, 1)

# verdicts ----------------------------------------------------------------------------------------


@given(share, share, st.floats(0.001, 0.5))
def test_a_verdict_is_the_same_in_both_directions(one, two, half):
    here = verdict(one, half, two, True)
    assert here == verdict(two, half, one, True)
    distance = abs(one - two)
    assert here == ("MATCH" if distance <= half else "CLOSE" if distance <= 2 * half else "OFF")


def test_the_thresholds_belong_to_the_better_verdict():
    told = [verdict(0.5 + d, 0.125, 0.5, True) for d in (0, 0.125, 0.1251, 0.25, 0.2501, -0.25)]
    assert told == ["MATCH", "MATCH", "CLOSE", "CLOSE", "OFF", "CLOSE"]


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


@pytest.mark.parametrize(
    "folder", ["notebooks", "lib/pages", "lib/plots", "lib/studies", "lib/explorer"]
)
def test_nothing_that_is_shown_pivots_in_a_way_that_merges_rows(folder):
    """``pivot_table`` takes the mean of rows that share a cell: ``lib.report.pivot`` refuses."""
    files = [file for end in ("*.py", "*.ipynb") for file in (ROOT / folder).rglob(end)]
    assert files
    bare = [file.name for file in files if "pivot_table" in file.read_text(encoding="utf-8")]
    assert not bare


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


def test_accuracy_its_intervals_and_failures_by_hand():
    table = accuracy_table(answers_of("ABC-D-AAB", "ABCABBACD"), {"chr": True})
    for metric, hits, n in (
        ("accuracy", 4, 9),
        ("accuracy_answered", 4, 7),
        ("accuracy_mirage", 5, 9),
        ("unparsed", 2, 9),
    ):
        row = cell(table, metric)
        assert (row["value"], row["n"]) == (hits / n, n)
        assert (row["low"], row["high"]) == pytest.approx(wilson(hits, n))
    assert table["options_visible"].all() and len(table) == 4


def test_who_abstains_may_guess():
    """Two of nine are not read: each counts as the chance of its set."""
    table = accuracy_table(answers_of("ABC-D-AAB", "ABCABBACD"), {}, chance={"medqa": 0.25})
    row = cell(table, "accuracy_or_guess")
    assert row["value"] == pytest.approx((4 + 2 * 0.25) / 9) and row["n"] == 9
    assert row["low"] < row["value"] < row["high"]


def test_a_letter_that_a_file_holds_as_nothing_is_unparsed_too():
    table = answers_of("A--B", "AABB")
    read = table.assign(letter=table["letter"].replace("", np.nan))
    assert accuracy_table(read, {}).equals(accuracy_table(table, {}))


def test_a_reader_that_was_never_understood_has_no_accuracy_of_what_it_answered():
    row = cell(accuracy_table(answers_of("---", "AAB"), {}), "accuracy_answered")
    assert row["n"] == 0 and pd.isna(row[["value", "low", "high"]].astype(float)).all()


@given(st.lists(st.tuples(st.sampled_from("AB-"), st.sampled_from("AB")), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_balanced_accuracy_is_the_mean_of_the_recalls(pairs):
    letters, gold = ("".join(column) for column in zip(*pairs, strict=True))
    table = accuracy_table(answers_of(letters, gold, dataset="ddx-mini bioasq"), {})
    recalls = [np.mean([x == g for x, g in pairs if g == side]) for side in "AB" if side in gold]
    row = cell(table, "balanced_accuracy")
    assert row["value"] == pytest.approx(np.mean(recalls)) and row["n"] == len(pairs)
    assert 0 <= row["low"] <= row["value"] <= row["high"] <= 1
    assert cell(table, "yes_rate")["value"] == letters.count("A") / len(pairs)


def test_always_yes_is_half_right_whatever_the_share_of_yes():
    table = accuracy_table(answers_of("A" * 100, "A" * 90 + "B" * 10, dataset="bioasq"), {})
    assert cell(table, "accuracy")["value"] == 0.9
    row = cell(table, "balanced_accuracy")
    # Ten questions with "no" decide half of it, so its interval is wider than accuracy's.
    assert row["value"] == 0.5 and row["high"] - row["low"] > 0.15


def test_every_row_stands_beside_what_the_paper_prints():
    some = [
        answers_of("AB", "AB", method=m, reader=r, dataset=d)
        for m in ("chr", "hyde", "mine")
        for r in ("Qwen2.5-7B-Instruct", "me")
        for d in ("medqa", "ddx-mini medqa", "pubmedqa")
    ]
    table = accuracy_table(pd.concat(some), {})
    table = table[table["metric"] == "accuracy"].set_index(["method", "answerer", "dataset"])
    printed = reported("table1_accuracy")
    printed = printed[(printed["dataset"] == "MedQA-US") & (printed["method"] == "HyDE")]
    own = printed.loc[printed["generator"] == "Qwen2.5-7B-Instruct", "value"].item() / 100
    assert table.loc[("hyde", "Qwen2.5-7B-Instruct", "medqa"), "reported"] == own
    mean = table.loc[("hyde", "me", "ddx-mini medqa"), "reported"]
    assert mean == pytest.approx(printed["value"].sum() / 300) and len(printed) == 3
    nothing = table[table["reported"].isna()]
    assert {*nothing.index} == {i for i in table.index if i[0] == "mine" or i[2] == "pubmedqa"}
    assert set(nothing["verdict"]) == {""}
    assert set(table["verdict"].drop(nothing.index)) == {"DIFFERENT SETUP"}
    judged = accuracy_table(pd.concat(some), {}, same_setup=lambda *cell: True)
    assert set(judged["verdict"].dropna()) <= {"MATCH", "CLOSE", "OFF", ""}


def test_the_average_of_a_reader_counts_each_of_the_three_sets_once():
    """As Table 1's Avg.: BioASQ's ten questions weigh as much as the two of each exam."""
    llama = {"reader": "Llama-3-8B-Instruct"}
    some = [
        answers_of("AB", "AA", dataset="mmlu", **llama),
        answers_of("AA", "AA", dataset="medqa", **llama),
        answers_of("B" * 10, "A" * 10, dataset="bioasq", **llama),
        answers_of("AA", "AA", dataset="medqa", reader="reads one set"),
        answers_of("AA", "AA", dataset="pubmedqa", **llama),
    ]
    seen = []
    table = accuracy_table(pd.concat(some), {}, same_setup=lambda *cell: seen.append(cell) or True)
    row = cell(table, "average")
    assert (row["dataset"], row["answerer"], row["n"]) == ("average", llama["reader"], 14)
    assert row["value"] == pytest.approx((0.5 + 1 + 0) / 3)
    alone = table[(table["metric"] == "accuracy") & (table["answerer"] == llama["reader"])]
    ends = alone[alone["dataset"] != "pubmedqa"][["value", "low", "high"]].to_numpy()
    down = np.linalg.norm(ends[:, 0] - ends[:, 1]) / 3
    assert row["value"] - row["low"] == pytest.approx(down)
    printed = reported("table1_accuracy").set_index(["generator", "method", "dataset"])["value"]
    assert row["reported"] == printed[llama["reader"], "CHR", "Avg."] / 100
    assert ("chr", {"mmlu": 2, "medqa": 2, "bioasq": 10}, llama["reader"]) in seen
    assert row["verdict"] in ("MATCH", "CLOSE", "OFF")


# is it the paper's setup? ------------------------------------------------------------------------

BENCHMARK = {"mmlu": 1089, "medqa": 1273, "bioasq": 618}
PAPERS = replace(
    load_profile("mini"),
    corpora=("textbooks", "pubmed", "statpearls", "wikipedia"),
    encoder="medcpt",
    k=5,
    methods={"hyde": {"samples": 3}},
)
"""A made-up profile that is the paper's setup, but for HyDE's number of samples."""
RAN = {
    "expander": "Qwen/Qwen2.5-72B-Instruct",
    "method": "chr",
    "answerer": "Llama-3-8B-Instruct",
    "answered_by": "meta-llama/Meta-Llama-3-8B-Instruct",
}


@pytest.mark.parametrize("asked", [{d: n} for d, n in BENCHMARK.items()] + [BENCHMARK])
def test_the_papers_setup_is_known_whatever_the_profile_is_called(asked):
    assert same_setup(PAPERS, asked, **RAN)
    assert same_setup(PAPERS, asked, **RAN | {"answerer": None})  # nobody answered: Table 3
    assert same_setup(load_profile("paper"), asked, **RAN)


@pytest.mark.parametrize(
    "changed",
    [
        {"corpora": ("textbooks", "pubmed", "statpearls")},
        {"corpora": (*PAPERS.corpora, "medquad")},
        {"limit": 1000},
        {"encoder": "minilm"},
        {"encoder_options": {"max_query_tokens": 64}},
        {"k": 10},
        {"methods": {"chr": {"max_tokens": 256}}},
    ],
    ids=str,
)
def test_a_profile_that_differs_in_one_thing_is_another_setup(changed):
    assert not same_setup(replace(PAPERS, **changed), BENCHMARK, **RAN)


@pytest.mark.parametrize(
    "changed",
    [
        {"expander": "Qwen/Qwen2.5-7B-Instruct"},
        {"expander": "reference text"},
        {"method": "hyde"},
        {"answerer": "evidence reader", "answered_by": ""},
        {"answered_by": "meta-llama/Llama-3.1-8B-Instruct"},
        {"answerer": "Qwen2.5-7B-Instruct"},
    ],
    ids=str,
)
def test_another_writer_or_reader_or_method_is_another_setup(changed):
    assert not same_setup(PAPERS, BENCHMARK, **RAN | changed)


@pytest.mark.parametrize(
    "asked", [{"medqa": 1272}, {"medqa": 150}, {"ddx-mini medqa": 1273}, {"pubmedqa": 500}], ids=str
)
def test_fewer_questions_or_others_are_another_setup(asked):
    assert not same_setup(PAPERS, asked, **RAN)
    assert not same_setup(PAPERS, BENCHMARK | asked, **RAN)


def binomial(wins: int, losses: int) -> float:
    """Two-sided exact p: twice the smaller tail of n fair coins, at most 1."""
    n, least = wins + losses, min(wins, losses)
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(least + 1)) / 2**n)


@given(st.integers(0, 80), st.integers(0, 80))
@settings(deadline=None)
def test_mcnemars_p_of_two_counts_is_the_direct_binomial_sum(wins, losses):
    assert mcnemar_p(wins, losses) == pytest.approx(binomial(wins, losses))


RIGHT, WRONG = "A" * 40, "B" * 40


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


def test_answers_are_outcomes_of_one_set_and_reader():
    answers = pd.concat([family(LETTERS), family({"chr": WRONG}, "other")])
    values = answer_values(answers, "medqa", "me")
    assert list(values.columns) == ["arm", "qid", "metric", "value"]
    right = values.groupby("arm")["value"].sum().to_dict()
    assert right == {"chr": 30, "hyde": 18, "standard": 29, "csqe": 40, "mine": 35}
    assert answer_values(answers, "medqa", "other")["value"].sum() == 0
    silent = family({"chr": "-" * 40})
    assert answer_values(silent, "medqa", "me")["value"].sum() == 0


# claims ------------------------------------------------------------------------------------------


def test_claims_have_a_row_for_each_baseline_of_the_paper():
    table = claims(family(LETTERS)).set_index("against")
    assert list(table.index) == ["standard", "hyde", "csqe"] and set(table["arm"]) == {"chr"}
    assert list(table["difference"]) == pytest.approx([1 / 40, 12 / 40, -10 / 40])
    assert table["p"].isna().all()  # none of them was declared
    assert set(table["n"]) == {40} and set(table["answerer"]) == {"me"}
    assert (table["low"] <= table["difference"]).all() and (table["least"] > 0).all()


def test_what_was_looked_at_before_gets_no_verdict_however_clear():
    table = claims(family({"chr": RIGHT, "hyde": WRONG}))
    assert list(table["status"]) == ["exploratory"] and list(table["verdict"]) == [""]
    assert table["p"].isna().all() and table["p_holm"].isna().all()


def test_every_set_and_reader_has_its_own_claims_and_without_chr_there_are_none():
    some = pd.concat([family({"hyde": RIGHT}, "other"), family(LETTERS)])
    both = pd.concat([some, family(LETTERS, "third")])
    assert set(claims(some)["answerer"]) == {"me"}
    assert list(claims(both)["answerer"]) == ["me"] * 3 + ["third"] * 3
    assert len(claims(family({"hyde": RIGHT}))) == 0


@pytest.mark.parametrize("wins, losses, ties", [(12, 1, 9), (3, 2, 1), (4, 4, 0), (0, 0, 5)])
def test_exchanged_arms_give_the_opposite_claim(wins, losses, ties):
    pairs = [(True, False)] * wins + [(False, True)] * losses + [(True, True)] * ties
    one, two = ("".join("BA"[x] for x in column) for column in zip(*pairs, strict=True))
    gold = "A" * len(pairs)

    def claim(ours: str, theirs: str) -> pd.Series:
        arms = [answers_of(x, gold, method=m) for m, x in (("chr", ours), ("hyde", theirs))]
        return claims(pd.concat(arms)).iloc[0]

    here, there = claim(one, two), claim(two, one)
    for a, b in (("difference", "difference"), ("low", "high"), ("high", "low")):
        assert there[a] == pytest.approx(-here[b])
    for same in ("least", "n"):
        assert there[same] == pytest.approx(here[same])
    series = (np.array([p[i] for p in pairs], float) for i in (0, 1))
    tested = paired(*series)
    assert tested["p"] == pytest.approx(binomial(wins, losses))
    assert here["low"] == pytest.approx(tested["low"])


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
    # Where no exam question was asked, all that was asked counts.
    other = cost_table(costs(many, dataset="bioasq")).set_index("method")
    assert other["output_tokens"].to_dict() == {"chr": 1000, "hyde": 1000}
    assert set(other["dataset"]) == {"bioasq"}


def test_the_reduction_is_hydes_tokens_over_the_methods():
    rows = [("hyde", 8, 1, 100, ""), ("hyde", 8, 1, 300, ""), ("chr", 1, 1, 20, "")]
    rows += [("chr", 1, 1, 20, ""), ("mine", 1, 1, None, ""), ("mine", 1, 1, 7, "")]
    table = cost_table(costs(rows)).set_index("method")
    assert table["token_reduction"].dropna().to_dict() == {"hyde": 1, "chr": 10}
    assert table.loc["hyde", ["token_reduction_low", "token_reduction_high"]].tolist() == [1, 1]
    assert table.loc["chr", ["token_reduction_low", "token_reduction_high"]].tolist() == [5, 15]
    assert table.loc["chr", "reported_token_reduction"] == 9.7
    alone = cost_table(costs(rows[2:])).set_index("method")
    assert alone["token_reduction"].isna().all()  # of what?


def test_costs_are_means_a_question_beside_the_papers():
    rows = [
        ("chr", 1, 10, 4, ""),
        ("chr", 2, 20, 8, "nothing was said"),
        ("hyde", 1, None, None, ""),
        ("hyde", 1, 8, 8, ""),
        ("mine", 3, 1, 1, ""),
        ("standard", 0, 0, 0, ""),
    ]
    table = cost_table(costs(rows, latency_s=[1, 3, *"1234"])).set_index("method")
    assert list(table.loc["chr", ["retrieval_rounds", "latency_s"]]) == [2, 2]
    ours = table.loc["chr", ["calls", "prompt_tokens", "output_tokens", "n", "failed"]]
    assert list(ours) == [1.5, 15, 6, 2, 1]
    # One that was not measured leaves no mean.
    assert table.loc["hyde", ["prompt_tokens", "output_tokens"]].isna().all()
    assert table.loc["hyde", "calls"] == 1 and set(table["failed"]) == {0, 1}
    assert list(table.loc["chr", ["reported_calls", "reported_output_tokens"]]) == [1, 303]
    assert list(table.loc["standard", ["reported_calls", "reported_output_tokens"]]) == [0, 0]
    assert table.loc["mine", ["reported_calls", "reported_output_tokens"]].isna().all()


def test_every_name_of_the_paper_is_in_its_tables():
    for name in ("table1_accuracy", "table3_cost"):
        assert set(PAPER_NAMES.values()) <= set(reported(name)["method"])


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


def test_two_methods_that_found_nothing_share_nothing():
    found = overlap([], [], 5)
    assert found.pop("zero") == 1 and set(found.values()) == {0}


@given(
    st.lists(st.tuples(lists, lists, st.booleans(), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_the_outcomes_part_the_questions(rows, k):
    first = {f"q{i}": a for i, (a, _, _, _) in enumerate(rows)}
    second = {f"q{i}": b for i, (_, b, _, _) in enumerate(rows)}
    right = tuple(pd.Series({f"q{i}": row[j] for i, row in enumerate(rows)}) for j in (2, 3))
    table = shift_table(first, second, k, right).set_index("outcome")
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
    alone = shift_table(first, second, k).set_index("outcome")
    assert alone.equals(table.loc[["all"]])


def test_a_question_that_was_not_answered_is_in_no_outcome():
    runs = {"q1": ["a"], "q2": ["b"]}
    right = pd.Series({"q1": True})
    table = shift_table(runs, runs, 5, (right, right)).set_index("outcome")
    assert list(table["n"]) == [2, 1, 0, 0, 0] and table.loc["both right", "count"] == 1


# controls ----------------------------------------------------------------------------------------

PLUS = [f"gout of toe {i} with urate" for i in range(5)]
MINUS = [f"sepsis of joint {i} with fever and gout" for i in range(5)]
PASSAGES = [f"{'gout' if i % 2 else 'sepsis'} joint toe {i} fever {i * i}" for i in range(40)]


class Towers(HashEncoder):
    """The hash encoder with two different towers."""

    def encode(self, items, tower="query", progress=True):
        rows = super().encode(items, tower, progress)
        return np.roll(rows, 1, axis=1) if tower == "query" else rows


@pytest.fixture
def retriever(own_folders) -> Retriever:
    encoder = Towers(dim=64)
    ids = [f"p{i:02d}" for i in range(len(PASSAGES))]
    return Retriever(DenseIndex([encoder.encode(PASSAGES, "article")], ids), encoder)


class Told:
    """An LLM that names one pair of hypotheses."""

    def __init__(self, plus, minus):
        self.plus, self.minus = plus, minus

    def generate(self, *_, **__):
        import json

        from lib.llm.chat import Reply

        text = json.dumps({"H_plus": self.plus, "H_minus": self.minus})
        return [Reply(text, "stop", 1, 1, 0.1, "told")]


QUESTIONS = [Question(f"q{i}", "What is it?", {"A": "gout"}, "A", "mine") for i in range(5)]


def made(plus=PLUS, minus=MINUS, **how) -> list[tuple[str, Expansion]]:
    method = replace(METHODS["chr"], **how)
    return [
        (q.qid, method.expand(q, Told(a, b), None))
        for q, a, b in zip(QUESTIONS, plus, minus, strict=False)
    ]


def turned(kind: str, own: list, draw: int = 0) -> list[Expansion]:
    return controlled(kind, own, with_drawn_strangers({"mine": own}), draw)


def vector(request: Hypotheses, lam: float, weight: float, rotation: bool) -> np.ndarray:
    """h+ - lambda h- + w q with the first stranger in place of h-, or h- turned towards it."""
    encoder = Towers(dim=64)
    (target,), (mimic,) = request.of("target"), request.of("mimic")
    stranger = request.of("mimic", "stranger")[request.spec.draw]
    texts = [target.text, mimic.text, stranger.text]
    plus, minus, other = encoder.encode(texts, "article")[:, None]
    if rotation:
        other = matched_rotation(plus, minus, other)
    asked = encoder.encode(["What is it?"], "query")
    return (shifted_query(plus, other, lam) + weight * asked)[0]


@pytest.mark.parametrize("lam", [0.4, 1.0])
@pytest.mark.parametrize("weight", [0.0, 0.5])
@pytest.mark.parametrize("kind", CONTROLS)
def test_a_control_is_chrs_own_way_with_another_mimic(kind, lam, weight, retriever):
    own = made(lam=lam, question_weight=weight)
    docs = Towers(dim=64).encode(PASSAGES, "article").astype(np.float64)
    for draw in (0, 2):
        for (_, before), after in zip(own, turned(kind, own, draw), strict=True):
            spec = after.request.spec
            assert replace(spec, mimic="", rotation=False, draw=0) == before.request.spec
            assert spec.draw == draw and after.trace == before.trace
            query = vector(after.request, lam, weight, kind == "chr+rotation")
            (hits,) = retriever.search_many([after.request], 6)
            best = np.sort(docs @ query.astype(np.float64))[::-1][:6]
            np.testing.assert_allclose(hits.scores[0], best, atol=2e-5)


@given(st.integers(2, 5), st.sets(st.integers(0, 4)))
@settings(max_examples=20, deadline=None)
def test_never_its_own_mimic_and_failures_stay_failures(n, failed):
    own = [
        (qid, Expansion(None, {"error": "broken"}) if i in failed else e)
        for i, (qid, e) in enumerate(made()[:n])
    ]
    alive = {MINUS[i] for i in range(n) if i not in failed}
    for i, ((_, before), after) in enumerate(zip(own, turned("chr+stranger", own), strict=True)):
        if i in failed:
            assert after is before
        else:
            drawn = {t.text for t in after.request.of("mimic", "stranger")}
            assert drawn == alive - {MINUS[i]}


@pytest.mark.parametrize("kind", CONTROLS)
def test_without_contrast_there_is_nothing_to_control(kind, retriever):
    for own in (made(lam=0.0), made(lam=0.0, question_weight=0.5)):
        alone, after = ([e.request for _, e in own], [e.request for e in turned(kind, own)])
        pairs = zip(retriever.search_many(alone, 5), retriever.search_many(after, 5), strict=True)
        for one, two in pairs:
            assert one.ids.tolist() == two.ids.tolist()


@pytest.mark.parametrize("kind", CONTROLS)
def test_an_others_mimic_that_is_the_questions_own_text_is_no_control(kind, retriever):
    for own in (made(minus=[MINUS[0]] * 5), made(PLUS[:2], [PLUS[1], PLUS[0]])):
        after = turned(kind, own)
        _, traces = execute("x", QUESTIONS[: len(own)], after, retriever)
        assert all("control" in t["error"] or "stranger" in t["error"] for t in traces.values())


def test_a_mimic_that_is_h_plus_itself_is_degenerate_as_ever_and_the_rest_goes_on(retriever):
    own = made(minus=[PLUS[0], *MINUS[1:]])
    found, traces = execute("x", QUESTIONS, turned("chr+rotation", own), retriever)
    # Turned by the angle of its own mimic, which is none: nothing is left to search with.
    assert "zero or tiny" in traces["q0"]["error"]
    assert set(found["qid"]) == {"q1", "q2", "q3", "q4"}
    assert np.isfinite(found["score"]).all()


def test_a_pool_stays_and_unknown_kinds_are_refused(retriever):
    own = made(pool=7)
    for after in turned("chr+rotation", own):
        assert after.request.spec == SearchSpec(lam=1.0, pool=7, rotation=True)
    with pytest.raises(ValueError, match="no control 'noise'.*rotation"):
        turned("noise", made())
