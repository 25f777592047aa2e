"""The audit: computed from the reported numbers, fair to rounding, and right by brute force."""

from __future__ import annotations

import re
from collections import Counter
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.base import paths, provenance
from lib.base.files import read_manifest
from lib.stats import mcnemar_p
from lib.studies.audit import CHECKS, audit, margins, overlap, read_tables, show, slhyde, sources
from lib.studies.audit import chr as chr_paper
from lib.studies.audit.arithmetic import (
    Range,
    exactly,
    largest_discordance,
    mean,
    possible_counts,
    printed_range,
    relative_change,
)
from lib.studies.audit.margins import BASELINES, DATASETS, GENERATORS
from lib.studies.audit.reported import (
    COLUMNS,
    CONSISTENT,
    IMPOSSIBLE,
    IN_TENSION,
    MISPRINT,
    VERDICTS,
    Comparison,
    Tables,
    compare_all,
)

TABLES = read_tables()
ROWS = {check: list(check(TABLES)) for check in CHECKS}
FOUND = audit(TABLES).set_index("id")
T1, T2 = "chr_table1_accuracy", "chr_table2_overlap"


def verdicts(tables: Tables, checks=CHECKS) -> dict[str, str]:
    return {r["id"]: r["verdict"] for check in checks for r in check(tables)}


# the table ---------------------------------------------------------------------------------------


def test_the_columns_are_the_stable_ones_and_every_row_is_whole():
    table = audit()
    stable = "id paper where claim printed recomputed assumption verdict working"
    assert " ".join(table.columns) == " ".join(COLUMNS) == stable
    assert table["id"].is_unique and (table.map(len) > 0).all().all()
    assert set(table["verdict"]) == set(VERDICTS)
    assert list(table["paper"].unique()) == ["CHR", "RAG²", "SL-HyDE", "Contradiction study"]
    assert not table.apply(lambda c: c.str.contains("[{}]|nan|Fraction")).any().any()


def test_every_text_is_used_and_every_number_of_the_texts_is_read(monkeypatch):
    texts = TABLES.values("audit_texts", "id")
    used = {t for t in texts if any(i == t or i.startswith(f"{t}.") for i in FOUND.index)}
    assert used == set(texts)
    asked = set()
    text_number = Tables.text_number

    def remember(tables, id):
        asked.add(id)
        return text_number(tables, id)

    monkeypatch.setattr(Tables, "text_number", remember)
    audit(TABLES)
    assert asked == set(TABLES.values("claims", "id"))


NAMED = {
    "chr.table2.ratio.mmlu": IMPOSSIBLE,
    "chr.table2.ratio.medqa": IMPOSSIBLE,
    "chr.table2.ratio.combined": IMPOSSIBLE,
    "chr.table2.ratio.bioasq": CONSISTENT,
    "chr.table2.count": IN_TENSION,
    "chr.table2.combined": CONSISTENT,
    "chr.pool.sum": IN_TENSION,
    "chr.pool.union": IN_TENSION,
    "chr.pool.all": IN_TENSION,
    "chr.pool.two": IN_TENSION,
    "chr.pool.one.llama": CONSISTENT,
    "chr.pool.one.qwen2-5": CONSISTENT,
    "chr.pool.one.gemma": CONSISTENT,
    "chr.bioasq.yes": CONSISTENT,
    "chr.bioasq.half": CONSISTENT,
    "chr.bioasq.whole": IN_TENSION,
    "chr.lambda.plateau": IN_TENSION,
    "chr.lambda.low": CONSISTENT,
    "chr.table1.comparisons": IN_TENSION,
    "chr.table1.comparisons.two": IN_TENSION,
    "chr.table1.best": CONSISTENT,
    "chr.table1.averages": CONSISTENT,
    "chr.table1.averages.gemma-2-9b-it-chr": CONSISTENT,
    "chr.table3.reductions": CONSISTENT,
    "chr.table4.trend": IN_TENSION,
    "chr.margin.llama-mmlu": IN_TENSION,
    "chr.margin.qwen2-5-bioasq": CONSISTENT,
    "contra.drop.average.rouge1": IN_TENSION,
    "contra.drop.average.bert-cosine": IN_TENSION,
    "contra.most_stable": IN_TENSION,
    "contra.kld": IN_TENSION,
    "contra.drop.models": CONSISTENT,
    "contra.documents": IN_TENSION,
    "contra.figure2.total": IN_TENSION,
    "contra.figure2.before": IN_TENSION,
    "contra.figure2.rises": IN_TENSION,
    "contra.figure2.half": CONSISTENT,
    "rag2.table2.averages": CONSISTENT,
    "rag2.text.order": MISPRINT,
    "rag2.table2.averages.llama-3-8b-instruct-instructrag-icl": IMPOSSIBLE,
    "rag2.table2.averages.gpt-4o-instructrag-icl": IMPOSSIBLE,
    "rag2.text.gains": CONSISTENT,
    "slhyde.averages": CONSISTENT,
    "slhyde.improvements": CONSISTENT,
    "slhyde.averages.table-6-qwen2-bge-w-o-qwen-ft": IMPOSSIBLE,
    "slhyde.table12.bold.dubaike": MISPRINT,
    "slhyde.prompts": IN_TENSION,
}


@pytest.mark.parametrize(("id", "verdict"), NAMED.items())
def test_the_named_findings_are_there(id, verdict):
    assert FOUND.loc[id, "verdict"] == verdict


@pytest.mark.parametrize(
    ("id", "numbers"),
    {
        "chr.table2.ratio.mmlu": ["0.215", "0.2145 to 0.2155", "0.245"],
        "chr.pool.sum": ["BioASQ 479 to", "166 printed"],
        "chr.pool.union": ["BioASQ 206 to"],
        "chr.pool.one.llama": ["MMLU-Med 35 to", "BioASQ 73 to"],
        "chr.pool.one.gemma": ["BioASQ 200 to"],
        "chr.table1.comparisons.two": ["9 settings × 2 baselines = 18", "10 of the 10 pairs"],
        "chr.bioasq.yes": ["395 of 618 = 63.9 %", "CHR 63.1"],
        "chr.bioasq.whole": ["258/618 = 41.75", "259/618 = 41.91"],
        "chr.table1.averages.gemma-2-9b-it-chr": ["68.03", "67.983 to 68.083"],
        "chr.table4.trend": ["0.347"],
        "contra.documents": ["6,566", "6,444", "14.22", "Table 3's", "13.99", "13.92", "10.35"],
        "contra.figure2.total": ["128", "4, 40, 27, 43, 14"],
        "contra.figure2.before": ["34.7", "44.9"],
        "contra.figure2.rises": ["59.8", "61.1", "56.1"],
        "contra.drop.average.rouge1": ["Mixtral-8x7B 19.6", "Falcon3-7B 3.9"],
        "contra.drop.average.bert-cosine": ["the fall of Mixtral-8x7B alone"],
        "contra.most_stable": ["bert_cosine", "GPT-OSS-20B 2.5", "Falcon3-7B 3.9 %"],
        "contra.kld": ["2.969 to 3.229", "Gemma-3 2.339 to 2.290"],
        "slhyde.prompts": ["Passage Reranking Prompt (Figure 4) and Validate Answer Prompt"],
        "slhyde.averages.table-6-qwen2-bge-w-o-qwen-ft": ["59.02"],
    }.items(),
)
def test_the_working_holds_the_arithmetic(id, numbers):
    assert all(n in FOUND.loc[id, "working"] for n in numbers), FOUND.loc[id, "working"]


@pytest.mark.parametrize(
    ("id", "many"),
    {
        "chr.bioasq.yes": (5, 18),
        "chr.bioasq.half": (11, 18),
        "chr.bioasq.yes_chr": (2, 3),
        "chr.table1.best": (45, 45),
        "chr.margins": (34, 45),
        "contra.most_stable": (2, 4),
        "contra.kld": (4, 5),
        "contra.mixtral": (4, 9),
    }.items(),
)
def test_how_many_cases_hold(id, many):
    assert FOUND.loc[id, "recomputed"] == f"so in {many[0]} of {many[1]}"


# a changed number moves the verdict --------------------------------------------------------------

LLAMA, QWEN, GEMMA = GENERATORS


def t1(generator, method, dataset):
    return T1, {"generator": generator, "method": method, "dataset": dataset}


def t2(dataset, metric):
    return T2, {"dataset": dataset, "metric": metric}


def quoted(id):
    return "claims", {"id": id}


def figure2(cnt_bin, year_bin):
    return "contradiction_fig2_heatmap", {"cnt_bin": cnt_bin, "year_bin": year_bin}


SIMILAR = "most_similar"


def score(model, retrieval, metric):
    return "contradiction_table2", {"model": model, "retrieval": retrieval, "metric": metric}


def cell(table, **keys):
    return table, keys


FLIPS = [
    ("chr.table2.ratio.mmlu", *t2("MMLU-Med", "mean_overlap"), "0.21", CONSISTENT),
    ("chr.table2.ratio.mmlu", *t2("MMLU-Med", "zero_overlap"), "75.4", CONSISTENT),
    ("chr.table2.ratio.mmlu", *t2("MMLU-Med", "zero_overlap"), "75.5", CONSISTENT),
    ("chr.table2.ratio.mmlu", *t2("MMLU-Med", "zero_overlap"), "75.6", IMPOSSIBLE),
    ("chr.table2.ratio.bioasq", *t2("BioASQ", "mean_overlap"), "0.02", IMPOSSIBLE),
    ("chr.table2.count", *t2("MedQA", "mean_overlap"), "1.00", IMPOSSIBLE),
    ("chr.table2.combined.zero-overlap", *t2("Combined", "zero_overlap"), "85.4", IMPOSSIBLE),
    ("chr.pool.sum", *t2("BioASQ", "n"), "479", CONSISTENT),
    ("chr.pool.union", *t2("BioASQ", "n"), "206", CONSISTENT),
    ("chr.pool.union", *t2("BioASQ", "n"), "205", IN_TENSION),
    ("chr.pool.union", *t2("BioASQ", "n"), "619", IMPOSSIBLE),
    ("chr.pool.sum", *t2("BioASQ", "n"), "978", IMPOSSIBLE),
    ("chr.pool.one.llama", *t2("BioASQ", "n"), "72", CONSISTENT),
    ("chr.pool.p.llama", *t2("MMLU-Med", "n"), "150", CONSISTENT),
    ("chr.bioasq.whole", *t1(LLAMA, "Standard RAG", "BioASQ-Y/N"), "41.7", CONSISTENT),
    ("chr.table1.averages.gemma-2-9b-it-chr", *t1(GEMMA, "CHR", "Avg."), "68.2", IMPOSSIBLE),
    (
        "chr.table1.averages.llama-3-8b-instruct-hyde",
        *t1(LLAMA, "HyDE", "Avg."),
        "47.9",
        IMPOSSIBLE,
    ),
    ("chr.table1.best", *t1(GEMMA, "CSQE", "MMLU-Med"), "70.5", IMPOSSIBLE),
    ("chr.table1.comparisons", *quoted("chr.comparisons"), "45", CONSISTENT),
    ("chr.table1.comparisons", *quoted("chr.comparisons"), "17", IMPOSSIBLE),
    ("chr.table1.comparisons.two", *quoted("chr.comparisons"), "45", IMPOSSIBLE),
    (
        "chr.text.gains.largest-qwen2-5-7b-instruct-bioasq-y-n",
        *quoted("chr.gain.best"),
        "10.6",
        IMPOSSIBLE,
    ),
    ("chr.lambda.plateau", *t1(GEMMA, "HyDE", "MedQA-US"), "50.4", CONSISTENT),
    ("chr.lambda.peak", "chr_fig5_lambda", {"lambda": "1.0"}, "53.3", IMPOSSIBLE),
    (
        "chr.table3.reductions.chr",
        *cell("chr_table3_cost", method="CHR", metric="output_tokens"),
        "350",
        IMPOSSIBLE,
    ),
    (
        "chr.table4.trend",
        *cell("chr_table4_mimic_quality", quality="Poor", metric="correct"),
        "0",
        CONSISTENT,
    ),
    ("chr.table4.equal", *cell("chr_table4_mimic_quality", quality="sampled"), "51", CONSISTENT),
    ("chr.margin.llama-mmlu", *t1(LLAMA, "CHR", "MMLU-Med"), "54.7", CONSISTENT),
    ("chr.margin.qwen2-5-bioasq", *t1(QWEN, "CHR", "BioASQ-Y/N"), "66.2", IN_TENSION),
    ("rag2.text.order", *quoted("rag2.order.GPT-4o"), "0.9", IMPOSSIBLE),  # then 0.9 stands twice
    (
        "rag2.text.every",
        *cell("rag2_table2", model="GPT-4o", method="RAG2", dataset="MMLU-Med"),
        "92.8",
        CONSISTENT,
    ),
    ("rag2.text.gains.meerkat-7b-average", *quoted("rag2.gain.Meerkat-7B"), "4.1", IMPOSSIBLE),
    ("rag2.figure3.meerkat-7b-medqa", *quoted("rag2.figure3.Meerkat-7B.MedQA"), "5.0", IN_TENSION),
    (
        "slhyde.table12.bold.medexam",
        *cell("slhyde_table12", model="BM25", dataset="MedExam"),
        "98.00",
        MISPRINT,
    ),
    ("slhyde.best.peg-large", *quoted("slhyde.best.PEG(large)"), "5", IMPOSSIBLE),
    ("slhyde.improvements.text-over-hyde", *quoted("slhyde.gain.HyDE"), "5.1", IMPOSSIBLE),
    (
        "contra.documents",
        *cell("contradiction_table1", statistic="avg_documents_per_query"),
        "14.22",
        CONSISTENT,
    ),
    (
        "contra.documents",
        *cell("contradiction_table1", statistic="medicines_with_documents"),
        "1095",
        CONSISTENT,
    ),
    (
        "contra.documents",
        *cell("contradiction_table1", statistic="medicines_with_documents"),
        "1090",
        IN_TENSION,
    ),
    (
        "contra.documents",
        *cell("contradiction_table1", statistic="avg_documents_per_query"),
        "13.91",
        IMPOSSIBLE,
    ),
    ("contra.queries", *quoted("contra.queries_each"), "5", IMPOSSIBLE),
    ("contra.drop.average.rouge1", *quoted("contra.drop.rouge1"), "12.1", CONSISTENT),
    ("contra.drop.average.rouge1", *quoted("contra.drop.rouge1"), "20.9", IMPOSSIBLE),
    ("contra.drop.average.bert-cosine", *quoted("contra.drop.bert_cosine"), "8.7", IMPOSSIBLE),
    ("contra.drop.average.bert-cosine", *quoted("contra.drop.bert_cosine"), "2.0", IMPOSSIBLE),
    ("contra.drop.average.bert-cosine", *quoted("contra.drop.bert_cosine"), "5.2", CONSISTENT),
    ("contra.drop.models.mixtral-8x7b", *quoted("contra.drop.Mixtral-8x7B"), "22", IMPOSSIBLE),
    (
        "contra.kld",
        *score("Gemma-3", "most_contradictory", "kld"),
        "2.400",
        CONSISTENT,
    ),
    # Now the five models' mean does not rise either.
    ("contra.kld", *score("Gemma-3", "most_contradictory", "kld"), "0.900", IMPOSSIBLE),
    ("contra.most_stable", *score("GPT-OSS-20B", SIMILAR, "rouge1"), "0.098", CONSISTENT),
    ("contra.figure2.rises", *figure2("[0.8,1]", "2020-2025"), "5000", IN_TENSION),
    ("contra.figure2.before", *figure2("[0,0.2)", "<2000"), "4000", CONSISTENT),
    ("contra.figure2.half", *figure2("[0,0.2)", "2010-2015"), "3000", IMPOSSIBLE),
    ("contra.table3.peak", *quoted("contra.peak"), "5491", IMPOSSIBLE),
]


@pytest.mark.parametrize(("id", "table", "keys", "value", "verdict"), FLIPS)
def test_a_changed_number_moves_its_verdict(id, table, keys, value, verdict):
    kind = next(t for t in TABLES.values("audit_texts", "id") if id == t or id.startswith(f"{t}."))
    checks = [c for c in CHECKS if any(r["id"].startswith(kind) for r in ROWS[c])]
    after = verdicts(TABLES.changed(table, value, **keys), checks)
    assert after[id] == verdict
    if (id, verdict) not in UNMOVED:
        assert FOUND["verdict"].get(id, "no row of its own") != verdict


UNMOVED = {
    ("chr.table2.ratio.mmlu", IMPOSSIBLE),
    ("chr.pool.union", IN_TENSION),
    ("chr.pool.one.llama", CONSISTENT),
    ("contra.documents", IN_TENSION),
    ("contra.figure2.rises", IN_TENSION),
}
"""A change that is just too small: the verdict must stay."""


def test_a_mended_average_joins_those_that_agree():
    name = "rag2.table2.averages.llama-3-8b-instruct-instructrag-icl"
    keys = {"model": LLAMA, "method": "InstructRAG-ICL", "dataset": "Average"}
    after = audit(TABLES.changed("rag2_table2", "61.0", **keys)).set_index("id")
    assert name not in after.index
    assert after.loc["rag2.table2.averages", "printed"] == "29 numbers (of 30)"
    moved = show.what_moved(FOUND.reset_index(), after.reset_index())
    assert list(moved.index) == ["rag2.table2.averages", name]
    assert (
        moved.loc[name, "verdict before"] == IMPOSSIBLE and moved.loc[name, "verdict after"] == ""
    )


def test_a_folder_is_read_as_the_tables_are(tmp_path):
    for path in paths.REPORTED.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    table = pd.read_csv(tmp_path / f"{T2}.csv", dtype=str, keep_default_na=False)
    table.loc[(table["dataset"] == "BioASQ") & (table["metric"] == "n"), "value"] = "479"
    table.to_csv(tmp_path / f"{T2}.csv", index=False)
    changed = TABLES.changed(T2, "479", dataset="BioASQ", metric="n")
    pd.testing.assert_frame_equal(audit(tmp_path), audit(changed))


def test_what_is_not_there_is_named():
    with pytest.raises(KeyError, match=r"no row of claims\.csv has .*look into data/reported"):
        TABLES.changed("claims", "1", id="nothing")
    with pytest.raises(KeyError, match="more than one row"):
        TABLES.changed(T2, "1", dataset="MMLU-Med")
    with pytest.raises(ValueError, match="'many' is not a number"):
        audit(TABLES.changed("claims", "many", id="chr.comparisons"))


# rounding ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unit", "kind", "low", "high"),
    [
        ("38.2", "percent", "exact", "38.15", "38.25"),
        ("38.0", "percent", "exact", "37.95", "38.05"),
        ("172", "cases", "exact", "172", "172"),
        ("20", "percent", "exact", "19.5", "20.5"),
        ("400", "GB", "exact", "399.5", "400.5"),
        ("1500", "tokens_per_sample", "approx", "1450", "1550"),
        ("400000", "count", "approx", "350000", "450000"),
        ("13.96", "documents", "exact", "13.955", "13.965"),
        ("-0.32", "percent", "exact", "-0.325", "-0.315"),
    ],
)
def test_what_a_printed_number_stands_for(text, unit, kind, low, high):
    assert printed_range(text, unit, kind) == Range(Fraction(low), Fraction(high), text)


def rounded(value: Fraction, places: int, rule: str = ROUND_HALF_UP) -> str:
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return str(exact.quantize(Decimal(1).scaleb(-places), rounding=rule))


number = st.fractions(0, 100, max_denominator=5000)
rule = st.sampled_from([ROUND_HALF_UP, ROUND_HALF_EVEN])


@settings(deadline=None)
@given(st.lists(st.tuples(number, st.integers(1, 5)), min_size=1, max_size=8), rule, st.booleans())
def test_a_mean_that_was_printed_is_never_impossible(parts, rule, before):
    """Averaged before or after rounding, by either rule for halves, weighted or not."""
    exact = [value for value, _ in parts]
    weights = [weight for _, weight in parts]
    shown = [rounded(value, 1, rule) for value in exact]
    averaged = exact if before else [Fraction(text) for text in shown]
    weighted = [value * weight for value, weight in zip(averaged, weights, strict=True)]
    true = sum(weighted) / sum(weights)
    again = mean([printed_range(text, "percent") for text in shown], weights)
    assert again.low <= true <= again.high
    comparison = Comparison("x", printed_range(rounded(true, 1, rule)), again)
    (row,) = compare_all(TABLES, "chr.table1.averages", [comparison])
    assert row["verdict"] == CONSISTENT


@settings(deadline=None)
@given(st.fractions(1, 100, max_denominator=999), number, rule, st.booleans())
def test_a_relative_change_that_was_printed_is_never_impossible(old, new, rule, before):
    old_shown = rounded(old, 2, rule)
    new_shown = rounded(new, 2, rule)
    ratio = new / old if before else Fraction(new_shown) / Fraction(old_shown)
    again = relative_change(
        printed_range(old_shown, "percent"), printed_range(new_shown, "percent")
    )
    true = printed_range(rounded((ratio - 1) * 100, 2, rule), "percent")
    assert again.may_equal(true)


@settings(deadline=None)
@given(st.fractions(-10, 10), st.fractions(-10, 10), st.fractions(-10, 10), st.fractions(-10, 10))
def test_ranges_hold_every_difference_and_product_of_their_ends(a, b, c, d):
    one, two = Range(min(a, b), max(a, b)), Range(min(c, d), max(c, d))
    for x, y in product((a, b), (c, d)):
        difference, product_ = one - two, one * c
        assert difference.low <= x - y <= difference.high
        assert product_.low <= x * c <= product_.high
        if two.low > 0:
            assert (one / two).low <= x / y <= (one / two).high
    assert one.may_equal(two) == two.may_equal(one) == (one - two).may_equal(exactly(0))
    assert one.may_exceed(two) == ((one - two).high > 0)


@settings(deadline=None)
@given(st.integers(1, 1500), st.integers(0, 1500), rule)
def test_counts_are_all_whole_numbers_that_print_so(n, k, rule):
    k = min(k, n)
    text = rounded(Fraction(100 * k, n), 1, rule)
    found = possible_counts(printed_range(text, "percent"), n)
    either = {
        rounded(Fraction(100 * c, n), 1, r) == text
        for r in (ROUND_HALF_UP, ROUND_HALF_EVEN)
        for c in found
    }
    assert k in found and True in either
    outside = [c for c in range(n + 1) if c not in found]
    assert all(rounded(Fraction(100 * c, n), 1) != text for c in outside)


def test_where_no_count_prints_so_the_two_nearest_stand_in():
    assert list(possible_counts(printed_range("41.8", "percent"), 618)) == [258, 259]


# a world made by chance, printed and audited -----------------------------------------------------


def world(seed: int, reading: str) -> Tables:
    """Tables 1 and 2 as a paper would print them that did what ``reading`` says, with real data."""
    rng = np.random.default_rng(seed)
    right = {}
    for generator, dataset in product(GENERATORS, DATASETS):
        n = margins.question_count(TABLES, dataset)
        for method in (*BASELINES, "CHR"):
            right[generator, dataset, method] = rng.random(n) < rng.uniform(0.2, 0.9)
    overlaps = {}
    for name, dataset in overlap.TABLE1_NAMES.items():
        wins = {g: right[g, dataset, "CHR"] & ~right[g, dataset, "HyDE"] for g in GENERATORS}
        n = max(1, pooled(wins, reading))
        overlaps[name] = rng.binomial(5, rng.uniform(0, 0.5), size=n) / 5
    overlaps["Combined"] = np.concatenate(list(overlaps.values()))
    return with_overlaps(with_accuracies(TABLES, right), overlaps)


def pooled(wins: dict[str, np.ndarray], reading: str) -> int:
    """How many cases there are, if pooled as ``reading`` says; a generator's name is its own."""
    generators = np.sum(list(wins.values()), axis=0)
    if reading == "sum":
        return int(generators.sum())
    if reading == "union":
        return int((generators >= 1).sum())
    if reading == "two":
        return int((generators >= 2).sum())
    if reading == "all":
        return int((generators == 3).sum())
    return int(wins[reading].sum())


def with_accuracies(tables: Tables, right: dict[tuple, np.ndarray]) -> Tables:
    """Table 1 as printed of these right answers."""
    for generator, method in product(GENERATORS, (*BASELINES, "CHR")):
        shares = []
        for dataset in DATASETS:
            answers = right[generator, dataset, method]
            shares.append(Fraction(100 * int(answers.sum()), len(answers)))
        printed = [*shares, sum(shares) / 3]
        for dataset, share in zip((*DATASETS, "Avg."), printed, strict=True):
            keys = {"generator": generator, "method": method, "dataset": dataset}
            tables = tables.changed(T1, rounded(share, 1), **keys)
    return tables


def with_overlaps(tables: Tables, overlaps: dict[str, np.ndarray]) -> Tables:
    """Table 2 as printed of these shares of five documents, one for each case."""
    for dataset, shares in overlaps.items():
        n = len(shares)
        none = Fraction(100 * int((shares == 0).sum()), n)
        shared = Fraction(round(5 * shares.sum()), 5)
        tables = tables.changed(T2, str(n), dataset=dataset, metric="n")
        tables = tables.changed(T2, rounded(none, 1), dataset=dataset, metric="zero_overlap")
        tables = tables.changed(T2, rounded(shared / n, 2), dataset=dataset, metric="mean_overlap")
    return tables


READINGS = {"sum": "sum", "union": "union", "two": "two", "all": "all"} | {
    g: f"one.{slug}" for g, slug in zip(GENERATORS, ("llama", "qwen2-5", "gemma"), strict=True)
}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(sorted(READINGS)))
@example(0, "sum")
@example(1, "two")
def test_a_paper_that_did_what_it_says_is_never_impossible(seed, reading):
    tables = world(seed, reading)
    found = verdicts(tables, [*overlap.CHECKS, chr_paper._averages])
    assert found[f"chr.pool.{READINGS[reading]}"] != IMPOSSIBLE
    # If the cases are another set of questions, other readings may well be impossible.
    others = [
        v for k, v in found.items() if not k.startswith("chr.pool.") and k != "chr.table2.count"
    ]
    assert set(others) == {CONSISTENT}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(DATASETS), st.floats(0, 1), st.floats(0, 1))
@example("MedQA-US", 0.5, 0.501)
def test_right_answers_that_were_printed_are_among_those_that_are_allowed(d, a, b):
    n = margins.question_count(TABLES, d)
    tables = TABLES
    k = [round(a * n), round(b * n)]
    for method, right in zip(("CHR", "HyDE"), k, strict=True):
        text = rounded(Fraction(100 * right, n), 1)
        tables = tables.changed(T1, text, generator=LLAMA, method=method, dataset=d)
    least, most = margins.extra_right(tables, LLAMA, "HyDE", d)
    assert least <= k[0] - k[1] <= most <= least + 4
    limits = overlap.case_limits(tables, LLAMA, d)
    assert limits.least <= max(0, k[0] - k[1])
    assert min(k[0], n - k[1]) <= limits.most


@pytest.mark.parametrize(
    ("n", "union", "others"),
    [
        (618, CONSISTENT, IN_TENSION),
        (617, IN_TENSION, IN_TENSION),  # one reply of HyDE's that could not be read is no case
        (619, IMPOSSIBLE, IMPOSSIBLE),  # more cases than questions
    ],
)
def test_where_every_question_is_a_case_only_the_sum_has_more(n, union, others):
    tables = TABLES.changed(T2, str(n), dataset="BioASQ", metric="n")
    for g, (method, text) in product(GENERATORS, (("CHR", "100.0"), ("HyDE", "0.0"))):
        tables = tables.changed(T1, text, generator=g, method=method, dataset=DATASETS[2])
    found = verdicts(tables, [overlap._pool])
    assert found["chr.pool.sum"] == IN_TENSION  # there may be three times as many
    assert found["chr.pool.union"] == union
    assert found["chr.pool.two"] == found["chr.pool.all"] == others


@pytest.mark.parametrize("n", ["74", "210", "300", "619"])
def test_that_one_generator_alone_is_meant_is_a_guess_that_contradicts_nothing(n):
    tables = TABLES.changed(T2, n, dataset="BioASQ", metric="n")
    found = verdicts(tables, [overlap._pool])
    assert {found[f"chr.pool.{READINGS[reading]}"] for reading in GENERATORS} == {CONSISTENT}


def test_prompts_of_their_own_are_consistent():
    """The same figures, had the two prompts differed in one word."""
    rows = [dict(row) for row in TABLES.files["slhyde_prompts"]]
    assert verdicts(TABLES, [slhyde._prompts]) == {"slhyde.prompts": IN_TENSION}
    for row in rows:
        if (row["prompt"], row["metric"]) == ("Passage Reranking Prompt", "fingerprint"):
            row["value"] = slhyde.fingerprint("Rank the passages.")
    changed = Tables({**TABLES.files, "slhyde_prompts": rows})
    assert verdicts(changed, [slhyde._prompts]) == {"slhyde.prompts": CONSISTENT}


def test_a_fingerprint_is_of_words_and_not_of_how_they_are_set():
    one = slhyde.fingerprint('- "similarity_score": a number\nbetween 0 and 1.')
    assert one == slhyde.fingerprint("Similarity\\_score:  A number between 0 and 1")
    assert one != slhyde.fingerprint("similarity_score: a number between 0 and 2")
    assert one != slhyde.fingerprint("score similarity: a number between 0 and 1")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=300), rule)
def test_a_mean_of_documents_per_query_is_never_impossible(documents, rule):
    """Some queries keep documents, of at least a sixth as many medicines."""
    mean_text = rounded(Fraction(sum(documents), len(documents)), 2, rule)
    table, tables = "contradiction_table1", TABLES
    for statistic, value in (
        ("pmids_after_selection", str(sum(documents))),
        ("medicines_with_documents", str(-(-len(documents) // 6))),
        ("avg_documents_per_query", mean_text),
    ):
        tables = tables.changed(table, value, statistic=statistic)
    checks = [c for c in CHECKS if any(r["id"] == "contra.documents" for r in ROWS[c])]
    assert verdicts(tables, checks)["contra.documents"] == CONSISTENT


# exact tests -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 80), st.integers(0, 80))
def test_mcnemar_is_the_exact_binomial_test(wins, losses):
    from scipy.stats import binomtest

    p = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert mcnemar_p(wins, losses) == pytest.approx(p) == mcnemar_p(losses, wins)


@settings(deadline=None)
@given(st.integers(-3, 40), st.integers(1, 200))
@example(6, 200)
@example(5, 200)
def test_the_largest_discordance_by_trying_all(more, n):
    tried = [
        d
        for d in range(max(more, 1), n + 1, 2)
        if mcnemar_p((d + more) // 2, (d - more) // 2) <= 0.05
    ]
    if more > n:
        return
    assert largest_discordance(more, n) == (max(tried, default=0) if more > 0 else 0)


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(30, 120))
def test_p_grows_with_discordance(more, n):
    line = margins.p_by_discordance(more, n)
    assert (np.diff(line["p"]) > -1e-9).all()
    one_by_one = [mcnemar_p((d + more) // 2, (d - more) // 2) for d in line["discordant"]]
    assert list(line["p"]) == pytest.approx(one_by_one)
    assert list(line["discordant"]) == list(range(more, n + 1, 2))


def test_the_margins_are_those_of_table_1():
    table = margins.margins(TABLES)
    assert len(table) == 45
    row = table.set_index(["generator", "dataset", "baseline"]).loc[
        (QWEN, DATASETS[2], "Query2Doc")
    ]
    assert (round(row["margin"], 1), row["extra_right"], row["most_significant"], row["n"]) == (
        10.4,
        64,
        618,
        618,
    )
    small = margins.next_best(table)
    assert len(small) == 9 and (small["margin"] > 0).all()
    assert Counter(FOUND["verdict"].filter(like="chr.margin."))[IN_TENSION] == 5


def test_a_margin_is_in_tension_exactly_if_independent_answers_would_undo_it():
    for row in margins.next_best(margins.margins(TABLES)).itertuples():
        losses = round((row.independent - row.extra_right) / 2)
        so = mcnemar_p(losses + row.extra_right, losses) <= 0.05
        name = f"{row.generator.split('-')[0]}-{row.dataset.split('-')[0]}".lower().replace(
            ".", "-"
        )
        assert FOUND.loc[f"chr.margin.{name}", "verdict"] == (CONSISTENT if so else IN_TENSION)


# facts and files ---------------------------------------------------------------------------------


def test_the_sizes_are_those_of_the_benchmark(mirror):
    from lib.datasets import load_questions

    for name, dataset in zip(("mmlu", "medqa", "bioasq"), DATASETS, strict=True):
        questions = load_questions(name)
        assert len(questions) == margins.question_count(TABLES, dataset)
    assert sum(q.answer == "A" for q in questions) == TABLES.text_number("yes.BioASQ-Y/N").middle


def test_the_table_is_stored_with_the_code_and_data_that_made_it(own_folders):
    origin = {"code": ["lib.studies.audit"], "data": sources()}
    table = provenance.make_or_reuse(lambda: audit(TABLES), "audit", "", **origin)
    path = own_folders / "out" / "results" / "audit.csv"
    assert path.exists() and tuple(table.columns) == COLUMNS
    assert read_manifest(path)["settings"]["data_files"] == sources()
    pd.testing.assert_frame_equal(table.fillna(""), audit(TABLES), check_dtype=False)


def test_the_committed_table_is_the_audit():
    path = paths.committed("") / "audit.csv"
    settings = read_manifest(path)["settings"]
    assert settings["code"] == provenance.code_hash(["lib.studies.audit"])
    assert (settings["data_files"], settings["data"]) == (
        sources(),
        provenance.data_hash(sources()),
    )
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(table, audit(), check_dtype=False)


def test_a_reader_can_skim_it_and_open_every_row():
    page = show.html_table(FOUND.reset_index())
    assert page.count("<details>") == page.count("</details>") == len(FOUND)
    assert re.findall(r'<th colspan="5">(.*?)</th>', page) == list(FOUND["paper"].unique())
    assert Counter(re.findall(rf">({'|'.join(VERDICTS)})</b>", page)) == Counter(FOUND["verdict"])
    assert show.count_verdicts(FOUND.reset_index()).to_numpy().sum() == len(FOUND)


@pytest.mark.parametrize("draw", ["plot_p", "plot_discordance"])
def test_the_figures_are_drawn_also_when_chr_loses(draw):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from lib.plots import audit as plots

    worse = TABLES.changed(
        *t1(LLAMA, "CHR", "MMLU-Med")[:1], "40.0", **t1(LLAMA, "CHR", "MMLU-Med")[1]
    )
    for tables in (TABLES, worse):
        figure = getattr(plots, draw)(margins.margins(tables))
        assert len(figure.axes) == 3
        plt.close(figure)
