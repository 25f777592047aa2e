"""The derived claims of the CHR paper, and the number nobody printed: how often two methods differ.

An exact McNemar test of a margin needs the *discordant* questions: those that one method has right
and the other wrong. A margin fixes only wins minus losses, and p grows with their sum. Table 2
counts *cases*, questions that CHR has right and HyDE wrong, and does not say whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pandas as pd

from lib.stats import mcnemar_p
from lib.studies.paper_audit.printed import (
    CONSISTENT,
    IN_TENSION,
    NOT_TESTED,
    Finding,
    Range,
    Tables,
    averages,
    compare_all,
    exactly,
    first_is_higher,
    formulas,
    holds_for_all,
    judge,
    lines_of,
    mean,
    more_than_chance,
    possible_counts,
)

GENERATORS = ("Llama-3-8B-Instruct", "Qwen2.5-7B-Instruct", "Gemma-2-9B-It")
DATASETS = ("MMLU-Med", "MedQA-US", "BioASQ-Y/N")
BASELINES = ("Standard RAG", "HyDE", "Query2Doc", "CSQE", "ThinkQE")
TABLE1_NAMES = {"MMLU-Med": "MMLU-Med", "MedQA": "MedQA-US", "BioASQ": "BioASQ-Y/N"}
"""The data sets as Table 2 names them, and as Table 1 does."""
_METHODS = (*BASELINES, "CHR")
_SETTINGS = list(product(GENERATORS, DATASETS))
_BIOASQ = "BioASQ-Y/N"


def short(name: str) -> str:
    """The first part of a printed name: "Llama" of "Llama-3-8B-Instruct"."""
    return name.split("-")[0]


def accuracy(tables: Tables, generator: str, method: str, dataset: str) -> Range:
    """A cell of CHR's Table 1, in percent."""
    return tables.number("chr_table1_accuracy", generator=generator, method=method, dataset=dataset)


def question_count(tables: Tables, dataset: str) -> int:
    """How many questions a data set has."""
    return int(tables.text_number(f"questions.{dataset}").middle)


def _right(tables: Tables, generator: str, method: str, dataset: str) -> range:
    """How many questions a method may have right, within rounding."""
    percent = accuracy(tables, generator, method, dataset)
    return possible_counts(percent, question_count(tables, dataset))


def extra_right(tables: Tables, generator: str, baseline: str, dataset: str) -> tuple[int, int]:
    """How many more questions CHR has right than a baseline: least and most within rounding."""
    ours = _right(tables, generator, "CHR", dataset)
    theirs = _right(tables, generator, baseline, dataset)
    return ours[0] - theirs[-1], ours[-1] - theirs[0]


# Table 1 -----------------------------------------------------------------------------------------


def table1_averages(tables: Tables) -> Iterator[Finding]:
    """Is each row's average the mean of its three accuracies?"""
    lines = lines_of(tables.rows("chr_table1_accuracy"), ("generator", "method"), "dataset")
    # 68.1 is not the mean of the three printed numbers, but may be that of what they stand for:
    # worth a row of its own, though it agrees.
    alone = [f"{GENERATORS[-1]}, CHR"]
    yield from compare_all("chr.table1.averages", averages(lines, "Avg."), always_alone=alone)


def _comparisons(tables: Tables) -> Iterator[Finding]:
    """What are the 18 head-to-head comparisons, and is CHR the highest in all of them?"""
    printed = tables.text_number("chr.comparisons")
    every = len(_SETTINGS) * len(BASELINES)
    rows = len(GENERATORS) * len(_METHODS)
    two = len(_SETTINGS) * 2
    possible = any(printed.may_equal(exactly(n)) for n in (every, two, rows))
    values = {"printed": printed, "every": every, "rows": rows, "two": two}
    verdict = judge(possible, strained=not printed.may_equal(exactly(every)))
    yield Finding("chr.table1.comparisons", verdict, values)

    pairs = {}
    for (generator, dataset), baseline in product(_SETTINGS, BASELINES):
        ours, theirs = (accuracy(tables, generator, m, dataset) for m in ("CHR", baseline))
        pairs[f"{generator}, {dataset}, {baseline}"] = ours, theirs
    cases = first_is_higher(pairs)
    unbeaten = {name.rpartition(", ")[2] for name, (_, holds) in cases.items() if not holds}
    beaten = comb(len(BASELINES) - len(unbeaten), 2)
    # At best in tension: neither that two are meant nor which two is printed.
    verdict = judge(printed.may_equal(exactly(two)) and beaten > 0, strained=True)
    values |= {"beaten": beaten, "of": comb(len(BASELINES), 2)}
    yield Finding("chr.table1.comparisons.two", verdict, values)
    yield holds_for_all("chr.table1.best", cases)


def _leads(tables: Tables) -> Iterator[Finding]:
    """Are the quoted gains over the next best method those of Table 1?"""
    lead = {}
    for generator, dataset in _SETTINGS:
        others = [accuracy(tables, generator, baseline, dataset) for baseline in BASELINES]
        best = max(others, key=lambda other: other.middle)
        lead[generator, dataset] = accuracy(tables, generator, "CHR", dataset) - best
    largest = max(lead, key=lambda setting: lead[setting].middle)
    on_medqa = lead["Llama-3-8B-Instruct", "MedQA-US"]
    pairs = {
        f"largest: {', '.join(largest)}": (tables.text_number("chr.gain.best"), lead[largest]),
        "Llama on MedQA": (tables.text_number("chr.gain.medqa_llama"), on_medqa),
    }
    yield from compare_all("chr.text.gains", pairs, spec=".1f")

    cases = {}
    for generator in GENERATORS:
        gains = {dataset: lead[generator, dataset] for dataset in DATASETS}
        numbers = ", ".join(f"{dataset} {gain:.1f}" for dataset, gain in gains.items())
        surely_less = any(gain.low > gains[_BIOASQ].high for gain in gains.values())
        cases[generator] = numbers, not surely_less
    yield holds_for_all("chr.text.bioasq", cases)


def _bioasq(tables: Tables) -> Iterator[Finding]:
    """Are BioASQ's accuracies above what no retrieval is needed for, and of 618 questions?"""
    n = question_count(tables, _BIOASQ)
    yes = tables.text_number(f"yes.{_BIOASQ}")
    always_yes = yes / exactly(n) * 100
    note = f"always yes: {yes} of {n} = {always_yes:.1f} %"
    every = {
        f"{generator}, {method}": accuracy(tables, generator, method, _BIOASQ)
        for generator, method in product(GENERATORS, _METHODS)
    }
    ours = {name: value for name, value in every.items() if name.endswith("CHR")}
    for id, accuracies, bound in (
        ("chr.bioasq.yes", every, always_yes),
        ("chr.bioasq.yes_chr", ours, always_yes),
        ("chr.bioasq.half", every, exactly(50)),
    ):
        cases = {name: (f"{value}", value.may_exceed(bound)) for name, value in accuracies.items()}
        yield holds_for_all(id, cases, CONSISTENT, note, f"{len(cases)} accuracies")

    cases = {}
    for name, value in every.items():
        shares = {count: exactly(Fraction(100 * count, n)) for count in possible_counts(value, n)}
        text = " or ".join(f"{count}/{n} = {share:.2f}" for count, share in shares.items())
        fits = any(value.may_equal(share) for share in shares.values())
        cases[name] = f"{value}: {text}", fits
    yield holds_for_all("chr.bioasq.whole", cases, IN_TENSION, printed=f"{len(every)} accuracies")


# margins -----------------------------------------------------------------------------------------


def p_by_discordance(extra_right: int, n: int) -> pd.DataFrame:
    """McNemar's p for a difference of ``extra_right`` questions, over how many are discordant.

    Columns ``discordant`` (questions), ``share`` (of ``n``) and ``p``. Discordance goes up in steps
    of 2, a win and a loss.
    """
    from scipy.stats import binom

    discordant = np.arange(abs(extra_right), n + 1, 2)
    fewer = (discordant - abs(extra_right)) // 2  # losses, or wins if CHR has fewer right
    p = np.minimum(1, 2 * binom.cdf(fewer, discordant, 0.5))
    return pd.DataFrame({"discordant": discordant, "share": discordant / n, "p": p})


def largest_discordance(difference: int, n: int) -> int:
    """The most discordant questions of ``n`` that leave p at 0.05 or below; 0 if none do.

    ``difference`` is wins minus losses; 0 where CHR does not win.
    """
    if difference < 1:
        return 0
    curve = p_by_discordance(difference, n)
    return max(curve.loc[curve["p"] <= 0.05, "discordant"].tolist(), default=0)


def margins(tables: Tables) -> pd.DataFrame:
    """One row for each of CHR's margins over a baseline, with what a test of it would need.

    Columns: ``generator``, ``dataset``, ``baseline``; ``n`` questions; ``margin`` in points;
    ``extra_right``, the most questions that it can be within rounding; and three numbers of
    discordant questions:

    - ``fewest_discordant``: the least there can be, those of a CHR that loses no question.
    - ``most_significant``: the most there can be with p <= 0.05; 0 if there is no such number.
    - ``independent``: how many there would be if the two methods' answers had nothing to do with
      each other. The same reader, asked the same questions, is discordant on fewer.
    """
    rows = []
    for generator, dataset, baseline in product(GENERATORS, DATASETS, BASELINES):
        n = question_count(tables, dataset)
        _, most = extra_right(tables, generator, baseline, dataset)
        ours = accuracy(tables, generator, "CHR", dataset)
        theirs = accuracy(tables, generator, baseline, dataset)
        p, q = float(ours.middle) / 100, float(theirs.middle) / 100
        row = {
            "generator": generator,
            "dataset": dataset,
            "baseline": baseline,
            "n": n,
            "margin": float((ours - theirs).middle),
            "extra_right": most,
            "fewest_discordant": abs(most),
            "most_significant": largest_discordance(most, n),
            "independent": round(n * (p * (1 - q) + q * (1 - p))),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def next_best(margins: pd.DataFrame) -> pd.DataFrame:
    """The smallest margin of each generator and data set: that over the next best method."""
    smallest = margins.groupby(["generator", "dataset"], sort=False)["margin"].idxmin()
    return margins.loc[smallest]


def _margins(tables: Tables) -> Iterator[Finding]:
    """Is each margin significant if answers are no more discordant than independent ones?"""
    table = margins(tables)
    cases = {
        f"{row.generator}, {row.dataset}, {row.baseline}": (
            f"{row.margin:.1f} points, p ≤ 0.05 from {row.fewest_discordant} up to "
            f"{row.most_significant} of {row.n}, independent {row.independent}",
            row.most_significant >= row.independent,
        )
        for row in table.itertuples()
    }
    yield holds_for_all("chr.margins", cases, NOT_TESTED, printed=f"{len(cases)} margins")
    for row in next_best(table).to_dict("records"):
        values = row | {
            "set": row["dataset"],
            "most_percent": 100 * row["most_significant"] / row["n"],
            "independent_percent": 100 * row["independent"] / row["n"],
            "least_p": mcnemar_p(row["fewest_discordant"], 0),
        }
        verdict = more_than_chance(row["most_significant"] >= row["independent"])
        name = f"{short(row['generator'])} {short(row['dataset'])}"
        yield Finding("chr.margin", verdict, values, name)


# Table 2 -----------------------------------------------------------------------------------------


def _column(tables: Tables, metric: str) -> dict[str, Range]:
    """A column of Table 2, by data set, "Combined" among them."""
    return tables.numbers("chr_table2_overlap", "dataset", metric=metric)


def _overlap(tables: Tables) -> Iterator[Finding]:
    """Can the mean overlap be a mean of ratios, at most 1 each? Or a mean number of documents?"""
    none, overlap = _column(tables, "zero_overlap"), _column(tables, "mean_overlap")
    some = {name: exactly(1) - percent * Fraction(1, 100) for name, percent in none.items()}
    for name, printed in overlap.items():
        most = some[name]
        values = {"printed": printed, "none": none[name], "most": most, "set": name}
        values |= {"most_span": most.span(".4f"), "printed_span": printed.span(".3f")}
        yield Finding("chr.table2.ratio", judge(printed.low <= most.high), values, name=short(name))

    top_k = tables.text_number("chr.top_k").middle
    fits = all(
        printed.may_equal(Range(some[name].low, some[name].high * top_k))
        for name, printed in overlap.items()
    )
    may_be_ratio = all(printed.low <= some[name].high for name, printed in overlap.items())
    shown = [
        f"{name} {share:.3f} ≤ {overlap[name]} ≤ {float(top_k * share.middle):.3f}"
        for name, share in some.items()
    ]
    values = {"recomputed": "fits" if fits else "does not fit", "k": top_k}
    values |= {"shown": "; ".join(shown)}
    yield Finding("chr.table2.count", judge(fits, strained=not may_be_ratio), values)


def _combined(tables: Tables) -> Iterator[Finding]:
    """Does the row Combined follow from the three data sets?"""
    n = _column(tables, "n")
    weights = [n[dataset].middle for dataset in TABLE1_NAMES]
    pairs = {"n": (n["Combined"], exactly(sum(weights)))}
    for metric in ("zero_overlap", "mean_overlap"):
        column = _column(tables, metric)
        again = mean([column[dataset] for dataset in TABLE1_NAMES], weights)
        pairs[metric] = column["Combined"], again
    yield from compare_all("chr.table2.combined", pairs, spec=".3f")


def case_limits(tables: Tables, generator: str, dataset: str) -> tuple[int, int]:
    """The least and the most cases that Table 1 allows a generator, whatever was answered: CHR's
    right answers less HyDE's, and what CHR has right, or HyDE wrong."""
    n = question_count(tables, dataset)
    fewest_more, _ = extra_right(tables, generator, "HyDE", dataset)
    ours = _right(tables, generator, "CHR", dataset)
    theirs = _right(tables, generator, "HyDE", dataset)
    return max(0, fewest_more), min(ours[-1], n - theirs[0])


def _limits_by_reading(tables: Tables, dataset: str) -> dict[str, tuple[int, int]]:
    """The least and the most cases that Table 1 allows if the generators' are pooled in one way or
    another, or are those of one generator alone."""
    alone = {generator: case_limits(tables, generator, dataset) for generator in GENERATORS}
    n = question_count(tables, dataset)
    fewest, highest = ([ends[i] for ends in alone.values()] for i in (0, 1))
    least, most = sum(fewest), sum(highest)
    return {
        "sum": (least, most),
        "union": (max(fewest), min(n, most)),
        # With u questions that are cases for two or three generators, the sum of the cases is at
        # most n + 2u (so u is at least half of what the sum is above n), and at least 2u.
        "two": (max(0, -((n - least) // 2)), min(n, most // 2)),
        # With u that are cases for all three, the sum is at most 2n + u.
        "all": (max(0, least - 2 * n), min(highest)),
    } | alone


def pool(tables: Tables) -> Iterator[Finding]:
    """Which generators have the cases? A row for each way to pool them, and for each one alone."""
    printed = _column(tables, "n")
    limits = {name: _limits_by_reading(tables, of) for name, of in TABLE1_NAMES.items()}
    sums = " + ".join(f"{printed[name]}" for name in limits) + f" = {printed['Combined']}"
    for reading in limits["BioASQ"]:
        allowed = {name: by_reading[reading] for name, by_reading in limits.items()}
        too_many, misfits, shown = False, [], []
        for name, (least, most) in allowed.items():
            n = printed[name].middle
            too_many = too_many or n > most
            misfits += [] if least <= n <= most else [name]
            shown.append(f"{name} {least} to {most}, {printed[name]} printed")
        fits = f"does not fit {', '.join(misfits)}" if misfits else "fits Table 1"
        values = {"printed": sums, "recomputed": fits, "allowed": "; ".join(shown)}
        if reading in GENERATORS:
            # A guess of the reader's: the paper says "pooled" and names no generator.
            values["generator"] = reading
            yield Finding("chr.pool.one", CONSISTENT, values, short(reading))
            continue
        # Where HyDE's reply could not be read, Table 1 counts it as wrong. Left out of the cases,
        # there may be any smaller number of them. Every case, counted once or once a generator, is
        # what the paper's words say.
        strained = bool(misfits) or reading not in ("sum", "union")
        yield Finding(f"chr.pool.{reading}", judge(not too_many, strained), values)


def _implied_p(tables: Tables) -> Iterator[Finding]:
    """If the cases are one generator's, they are CHR's wins over HyDE, and so fix the p-value."""
    column = _column(tables, "n")
    wins = {dataset: int(column[dataset].middle) for dataset in TABLE1_NAMES}
    for generator in GENERATORS:
        losses, fits = {}, True
        for name, dataset in TABLE1_NAMES.items():
            losses[name] = wins[name] - extra_right(tables, generator, "HyDE", dataset)[1]
            _, most = case_limits(tables, generator, dataset)
            fits = fits and losses[name] >= 0 and wins[name] <= most
        if not fits:
            continue
        p = {name: mcnemar_p(wins[name], losses[name]) for name in wins}
        values = {
            "generator": generator,
            "recomputed": ", ".join(f"{name} p = {value:.2g}" for name, value in p.items()),
            "working": "; ".join(f"{d}: {wins[d]} wins, {losses[d]} losses" for d in wins),
        }
        verdict = more_than_chance(max(p.values()) <= 0.05)
        yield Finding("chr.pool.p", verdict, values, short(generator))


# the rest ----------------------------------------------------------------------------------------


def _lambda(tables: Tables) -> Iterator[Finding]:
    """Does the curve over lambda agree with Table 1?"""
    table1, hyde = (accuracy(tables, "Gemma-2-9B-It", m, "MedQA-US") for m in ("CHR", "HyDE"))
    low, plateau, exact = (
        tables.numbers("chr_fig5_lambda", "lambda", series="CHR", kind=kind)
        for kind in ("upper_bound", "lower_bound", "exact")
    )
    yield Finding("chr.lambda.low", CONSISTENT, {"hyde": hyde, "lambdas": ", ".join(low)})
    bounds = sorted({f"{bound}" for bound in plateau.values()})
    yield holds_for_all(
        "chr.lambda.plateau",
        {
            f"λ = {lam}": (f"above {bound}, HyDE {hyde}", bound.high >= hyde.low)
            for lam, bound in plateau.items()
        },
        IN_TENSION,
        note="a value between the bound and HyDE is above the one and below the other; as a bound "
        "it contradicts nothing, as the plateau's lowest value it would",
        printed=" and ".join(f"above {bound}" for bound in bounds),
    )
    peak = max(exact, key=lambda lam: exact[lam].middle)
    values = {"peak": exact[peak], "at": peak, "table1": table1, "gain": exact[peak] - hyde}
    yield Finding("chr.lambda.peak", judge(exact[peak].may_equal(table1)), values)


def _cost(tables: Tables) -> Iterator[Finding]:
    """Do the reductions follow from the token counts, and is CHR the cheapest?"""
    table = "chr_table3_cost"
    tokens = tables.numbers(table, "method", metric="output_tokens")
    reductions = formulas(tables, "chr.table3.reductions")
    yield from compare_all("chr.table3.reductions", reductions)

    ours = tokens["CHR"]
    others = [name for name in reductions if name != "CHR"]
    cases = {name: (f"{tokens[name]}", tokens[name].may_exceed(ours)) for name in others}
    yield holds_for_all("chr.table3.cheapest", cases, printed=ours)

    texts = tables.text_number("chr.hyde_texts")
    calls = tables.number(table, metric="llm_calls", method="HyDE")
    verdict = judge(True, strained=not texts.may_equal(calls))
    yield Finding("chr.table3.hyde", verdict, {"texts": texts, "calls": calls})


def _mimic_quality(tables: Tables) -> Iterator[Finding]:
    """Do the counts by the mimic's quality add up, and is the trend more than chance?"""
    from scipy.stats import fisher_exact

    table = "chr_table4_mimic_quality"
    tiers = {
        tier: tables.numbers(table, "metric", quality=tier)
        for tier in ("Excellent", "Good", "Poor")
    }
    yield from compare_all("chr.table4.sums", formulas(tables, "chr.table4.sums"))

    counts = {t: (int(row["correct"].middle), int(row["n"].middle)) for t, row in tiers.items()}
    extremes = [counts["Excellent"], counts["Poor"]]
    p = float(fisher_exact([[right, n - right] for right, n in extremes]).pvalue)
    values = {
        "printed": " > ".join(f"{row['accuracy']}" for row in tiers.values()),
        "counts": "; ".join(f"{tier} {right} of {n}" for tier, (right, n) in counts.items()),
        "p": p,
    }
    yield Finding("chr.table4.trend", more_than_chance(p <= 0.05), values)

    generators = tables.text_number("chr.generators")
    sampled = tables.number(table, quality="sampled")
    each, over = divmod(int(sampled.middle), int(generators.middle))
    values = {"sampled": sampled, "generators": generators, "each": each, "over": over}
    yield Finding("chr.table4.equal", judge(True, strained=over > 0), values)


def _corpus(tables: Tables) -> Iterator[Finding]:
    """Is MedCorp as large as RAG² counts it?"""
    printed = tables.text_number("chr.chunks")
    whole = tables.number("rag2_tableA1", collection="MedCorp", corpus="Total", metric="chunks")
    verdict = judge(True, strained=not printed.may_equal(whole))
    yield Finding("chr.corpus", verdict, {"printed": printed, "whole": whole, "t": whole / printed})


TABLE2 = (_overlap, _combined, pool, _implied_p)
"""What Table 2 says, and what of Table 1 follows from it."""
CHECKS = (
    table1_averages,
    _comparisons,
    _leads,
    _bioasq,
    _lambda,
    _cost,
    _mimic_quality,
    _corpus,
    *TABLE2,
    _margins,
)
