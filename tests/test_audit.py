"""The audit: computed from the reported numbers, fair to rounding, and right by brute force."""

from __future__ import annotations

import csv
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.base import paths
from lib.stats import mcnemar_p
from lib.studies.paper_audit import CHECKS, audit, others
from lib.studies.paper_audit import chr as margins
from lib.studies.paper_audit.chr import BASELINES, DATASETS, GENERATORS, largest_discordance
from lib.studies.paper_audit.printed import (
    CONSISTENT,
    IMPOSSIBLE,
    MISPRINT,
    NOT_TESTED,
    Range,
    Tables,
    audit_row,
    compare_all,
    exactly,
    mean,
    possible_counts,
    printed_range,
    read_tables,
)

TABLES = read_tables()
IDS = {check: {found.id for found in check(TABLES)} for check in CHECKS}
FOUND = audit(TABLES).set_index("id")
T1, T2 = "chr_table1_accuracy", "chr_table2_overlap"
LLAMA, QWEN, GEMMA = GENERATORS


def verdicts(tables: Tables, checks=CHECKS) -> dict[str, str]:
    rows = (audit_row(tables, found) for check in checks for found in check(tables))
    return {row["id"]: row["verdict"] for row in rows}


# the table ---------------------------------------------------------------------------------------


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


def test_what_cannot_be_is_exactly_this():
    """Every other row accuses nobody: an accusation needs a list."""
    hard = FOUND["verdict"][FOUND["verdict"].isin([IMPOSSIBLE, MISPRINT])]
    assert hard.to_dict() == HARD


HARD = {
    "chr.table2.ratio.mmlu": IMPOSSIBLE,
    "chr.table2.ratio.medqa": IMPOSSIBLE,
    "chr.table2.ratio.combined": IMPOSSIBLE,
    "rag2.table2.averages.llama-3-8b-instruct-instructrag-icl": IMPOSSIBLE,
    "rag2.table2.averages.gpt-4o-instructrag-icl": IMPOSSIBLE,
    "rag2.text.order": MISPRINT,
    "slhyde.averages.table-6-qwen2-bge-w-o-qwen-ft": IMPOSSIBLE,
    "slhyde.table12.bold.dubaike": MISPRINT,
}


def test_what_no_paper_tests_is_not_in_tension():
    """Rule 4: whether a difference is more than chance is asked by the audit, not by the papers."""
    asked = FOUND["claim"].str.contains("more than chance")
    asked |= FOUND["assumption"].str.contains("more than chance of")
    assert set(FOUND["verdict"][asked]) == {CONSISTENT, NOT_TESTED}
    assert (asked | (FOUND["verdict"] != NOT_TESTED)).all()


# a changed number moves the verdict --------------------------------------------------------------

with open(paths.ROOT / "tests" / "audit_changes.csv", encoding="utf-8", newline="") as stream:
    CHANGES = list(csv.DictReader(stream))
"""One printed number changed: the verdict that follows, and whether it is another one than before
(a change that is just too small moves nothing)."""


@pytest.mark.parametrize("paper", ["chr", "rag2", "slhyde", "contra"])
def test_a_changed_number_moves_its_verdict(paper):
    for change in [change for change in CHANGES if change["id"].startswith(f"{paper}.")]:
        id = change["id"]
        keys = dict(key.split("=", 1) for key in change["keys"].split(" & "))
        texts = TABLES.values("audit_texts", "id")
        kind = max((text for text in texts if f"{id}.".startswith(f"{text}.")), key=len)
        checks = [check for check in CHECKS if kind in IDS[check]]
        after = verdicts(TABLES.changed(change["table"], change["value"], **keys), checks)
        assert after[id] == change["verdict"], change
        moved = FOUND["verdict"].get(id, "no row of its own") != change["verdict"]
        assert moved == (change["moves"] == "yes"), change


def test_what_is_not_there_is_named():
    with pytest.raises(KeyError, match=r"no row of claims\.csv has .*look into data/reported"):
        TABLES.changed("claims", "1", id="nothing")
    with pytest.raises(KeyError, match="more than one row"):
        TABLES.changed(T2, "1", dataset="MMLU-Med")
    with pytest.raises(ValueError, match="'many' is not a number"):
        audit(TABLES.changed("claims", "many", id="chr.comparisons"))


# rounding ----------------------------------------------------------------------------------------


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
    pairs = {"x": (printed_range(rounded(true, 1, rule)), again)}
    (found,) = compare_all("chr.table1.averages", pairs)
    assert found.verdict == CONSISTENT


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
    for name, dataset in margins.TABLE1_NAMES.items():
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
    if reading in wins:
        return int(wins[reading].sum())
    return int((generators >= {"union": 1, "two": 2, "all": 3}[reading]).sum())


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
    found = verdicts(tables, [*margins.TABLE2, margins.table1_averages])
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
    least, most = margins.case_limits(tables, LLAMA, d)
    assert least <= max(0, k[0] - k[1])
    assert min(k[0], n - k[1]) <= most


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
    assert verdicts(tables, [others.documents_per_query])["contra.documents"] == CONSISTENT


# exact tests -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(-3, 40), st.integers(1, 200))
@example(6, 200)
@example(5, 200)
def test_the_largest_discordance_by_trying_all(more, n):
    tried = [0]
    for d in range(more, n + 1, 2) if more > 0 else ():
        if mcnemar_p((d + more) // 2, (d - more) // 2) <= 0.05:
            tried.append(d)
    assert largest_discordance(more, n) == max(tried)


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(30, 120))
def test_p_grows_with_discordance(more, n):
    line = margins.p_by_discordance(more, n)
    assert (np.diff(line["p"]) > -1e-9).all()
    one_by_one = [mcnemar_p((d + more) // 2, (d - more) // 2) for d in line["discordant"]]
    assert list(line["p"]) == pytest.approx(one_by_one)
    assert list(line["discordant"]) == list(range(more, n + 1, 2))


def test_the_sizes_are_those_of_the_benchmark(mirror):
    from lib.datasets import load_questions

    for name, dataset in zip(("mmlu", "medqa", "bioasq"), DATASETS, strict=True):
        questions = load_questions(name)
        assert len(questions) == margins.question_count(TABLES, dataset)
    assert sum(q.answer == "A" for q in questions) == TABLES.text_number("yes.BioASQ-Y/N").middle
