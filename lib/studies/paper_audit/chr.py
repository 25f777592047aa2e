"""The derived claims of the CHR paper, but for what ``margins`` has: Table 2 and single margins."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import product
from math import comb

from lib.studies.paper_audit.margins import (
    BASELINES,
    DATASETS,
    GENERATORS,
    accuracy,
    question_count,
)
from lib.studies.paper_audit.printed import (
    CONSISTENT,
    IN_TENSION,
    Row,
    Tables,
    averages,
    compare_all,
    exactly,
    finding,
    first_is_higher,
    holds_for_all,
    judge,
    lines_of,
    possible_counts,
)

_COST = "chr_table3_cost"
_MIMIC_QUALITY = "chr_table4_mimic_quality"
_LAMBDA = "chr_fig5_lambda"
_BIOASQ = "BioASQ-Y/N"
_METHODS = (*BASELINES, "CHR")
_SETTINGS = list(product(GENERATORS, DATASETS))


def table1_averages(tables: Tables) -> Iterable[Row]:
    """Is each row's average the mean of its three accuracies?"""
    lines = lines_of(tables.rows("chr_table1_accuracy"), ("generator", "method"), "dataset")
    pairs = averages(lines, "Avg.")
    # 68.1 is not the mean of the three printed numbers, but may be that of what they stand for:
    # worth a row of its own, though it agrees.
    alone = [f"{GENERATORS[-1]}, CHR"]
    yield from compare_all(tables, "chr.table1.averages", pairs, always_alone=alone)


def _comparisons(tables: Tables) -> Iterable[Row]:
    """What are the 18 head-to-head comparisons? One reading counts all baselines."""
    printed = tables.text_number("chr.comparisons")
    with_every_baseline = len(_SETTINGS) * len(BASELINES)
    rows_of_table = len(GENERATORS) * len(_METHODS)
    may_be = [with_every_baseline, len(_SETTINGS) * 2, rows_of_table]
    yield finding(
        tables,
        "chr.table1.comparisons",
        printed=printed,
        recomputed=with_every_baseline,
        verdict=judge(
            any(printed.may_equal(exactly(n)) for n in may_be),
            strained=not printed.may_equal(exactly(with_every_baseline)),
        ),
        working=f"{len(GENERATORS)} generators × {len(DATASETS)} data sets × {len(BASELINES)} "
        f"baselines = {with_every_baseline}; Table 1 has {rows_of_table} rows, with CHR's own",
    )


def _best_everywhere(tables: Tables) -> Iterable[Row]:
    """Is CHR the highest everywhere, and so above any two baselines, if two are compared?"""
    pairs = {}
    for (generator, dataset), baseline in product(_SETTINGS, BASELINES):
        pairs[f"{generator}, {dataset}, {baseline}"] = (
            accuracy(tables, generator, "CHR", dataset),
            accuracy(tables, generator, baseline, dataset),
        )
    cases = first_is_higher(pairs)
    beaten = [
        baseline
        for baseline in BASELINES
        if all(holds for name, (_, holds) in cases.items() if name.endswith(f", {baseline}"))
    ]
    pairs_beaten = comb(len(beaten), 2)
    printed, n = tables.text_number("chr.comparisons"), len(_SETTINGS) * 2
    yield finding(
        tables,
        "chr.table1.comparisons.two",
        printed=printed,
        recomputed=n,
        # At best in tension: neither that two are meant nor which two is printed.
        verdict=judge(printed.may_equal(exactly(n)) and pairs_beaten > 0, strained=True),
        working=f"{len(_SETTINGS)} settings × 2 baselines = {n}; CHR is higher in every setting "
        f"for {pairs_beaten} of the {comb(len(BASELINES), 2)} pairs of baselines, so the numbers "
        "do not say which two are meant",
    )
    yield holds_for_all(tables, "chr.table1.best", cases)


def _leads(tables: Tables) -> Iterable[Row]:
    """Are the quoted gains over the next best method those of Table 1?"""
    lead = {}
    for generator, dataset in _SETTINGS:
        others = [accuracy(tables, generator, baseline, dataset) for baseline in BASELINES]
        best = max(others, key=lambda other: other.middle)
        lead[generator, dataset] = accuracy(tables, generator, "CHR", dataset) - best
    largest = max(lead, key=lambda setting: lead[setting].middle)
    llama_medqa = lead["Llama-3-8B-Instruct", "MedQA-US"]
    pairs = {
        f"largest: {', '.join(largest)}": (tables.text_number("chr.gain.best"), lead[largest]),
        "Llama on MedQA": (tables.text_number("chr.gain.medqa_llama"), llama_medqa),
    }
    yield from compare_all(tables, "chr.text.gains", pairs, spec=".1f")

    cases = {}
    for generator in GENERATORS:
        gains = {dataset: lead[generator, dataset] for dataset in DATASETS}
        numbers = ", ".join(f"{dataset} {gain:.1f}" for dataset, gain in gains.items())
        surely_less = any(gain.low > gains[_BIOASQ].high for gain in gains.values())
        cases[generator] = numbers, not surely_less
    yield holds_for_all(tables, "chr.text.bioasq", cases)


def _bioasq(tables: Tables) -> Iterable[Row]:
    """Are BioASQ's accuracies above what no retrieval is needed for, and of 618 questions?"""
    n = question_count(tables, _BIOASQ)
    yes = tables.text_number(f"yes.{_BIOASQ}")
    always_yes = yes / exactly(n) * 100
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
        yield holds_for_all(
            tables,
            id,
            {name: (f"{value}", value.may_exceed(bound)) for name, value in accuracies.items()},
            CONSISTENT,
            note=f"always yes: {yes} of {n} = {always_yes:.1f} %",
            printed=f"{len(accuracies)} accuracies",
        )

    cases = {}
    for name, value in every.items():
        shares = {count: exactly(Fraction(100 * count, n)) for count in possible_counts(value, n)}
        text = " or ".join(f"{count}/{n} = {share:.2f}" for count, share in shares.items())
        fits = any(value.may_equal(share) for share in shares.values())
        cases[name] = f"{value}: {text}", fits
    printed = f"{len(every)} accuracies"
    yield holds_for_all(tables, "chr.bioasq.whole", cases, IN_TENSION, printed=printed)


def _lambda(tables: Tables) -> Iterable[Row]:
    """Does the curve over lambda agree with Table 1?"""
    generator = "Gemma-2-9B-It"
    table1 = accuracy(tables, generator, "CHR", "MedQA-US")
    hyde = accuracy(tables, generator, "HyDE", "MedQA-US")
    low, plateau, exact = (
        tables.numbers(_LAMBDA, "lambda", series="CHR", kind=kind)
        for kind in ("upper_bound", "lower_bound", "exact")
    )
    yield finding(
        tables,
        "chr.lambda.low",
        printed="no value",
        recomputed=f"HyDE {hyde}",
        verdict=CONSISTENT,
        working=f"λ = {', '.join(low)}: said to be below HyDE; a bound contradicts nothing",
    )
    bounds = sorted({f"{bound}" for bound in plateau.values()})
    yield holds_for_all(
        tables,
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
    yield finding(
        tables,
        "chr.lambda.peak",
        printed=f"{exact[peak]} at λ = {peak}",
        recomputed=f"{table1} in Table 1",
        verdict=judge(exact[peak].may_equal(table1)),
        working=f"peak less HyDE: {exact[peak] - hyde:.1f} points",
    )


def _cost(tables: Tables) -> Iterable[Row]:
    """Do the reductions follow from the token counts, and is CHR the cheapest?"""
    tokens = tables.numbers(_COST, "method", metric="output_tokens")
    reductions = tables.numbers(_COST, "method", metric="token_reduction_vs_hyde", kind="exact")
    pairs = {
        method: (printed, tokens["HyDE"] / tokens[method]) for method, printed in reductions.items()
    }
    yield from compare_all(tables, "chr.table3.reductions", pairs)

    cases = {
        method: (f"{tokens[method]}", tokens[method].may_exceed(tokens["CHR"]))
        for method in reductions
        if method != "CHR"
    }
    yield holds_for_all(tables, "chr.table3.cheapest", cases, printed=f"{tokens['CHR']}")

    texts = tables.text_number("chr.hyde_texts")
    calls = tables.number(_COST, metric="llm_calls", method="HyDE")
    yield finding(
        tables,
        "chr.table3.hyde",
        printed=f"{texts} text in Table 1",
        recomputed=f"{calls} calls in Table 3",
        verdict=judge(True, strained=not texts.may_equal(calls)),
        working=f"one text a call: {texts} and {calls}",
    )


def _mimic_quality(tables: Tables) -> Iterable[Row]:
    """Do the counts by the mimic's quality add up, and is the trend more than chance?"""
    from scipy.stats import fisher_exact

    qualities = {
        quality: tables.numbers(_MIMIC_QUALITY, "metric", quality=quality)
        for quality in ("Excellent", "Good", "Poor")
    }
    sampled, excluded, rated = (
        tables.number(_MIMIC_QUALITY, quality=group)
        for group in ("sampled", "excluded", "evaluated")
    )
    pairs = {
        quality: (row["accuracy"], row["correct"] / row["n"] * 100)
        for quality, row in qualities.items()
    }
    pairs["rated"] = rated, exactly(sum(row["n"].middle for row in qualities.values()))
    pairs["sampled less excluded"] = rated, sampled - excluded
    yield from compare_all(tables, "chr.table4.sums", pairs)

    right = {quality: int(row["correct"].middle) for quality, row in qualities.items()}
    n = {quality: int(row["n"].middle) for quality, row in qualities.items()}
    extremes = [[right[q], n[q] - right[q]] for q in ("Excellent", "Poor")]
    p = float(fisher_exact(extremes).pvalue)
    counts = "; ".join(f"{quality} {right[quality]} of {n[quality]}" for quality in qualities)
    yield finding(
        tables,
        "chr.table4.trend",
        printed=" > ".join(f"{row['accuracy']}" for row in qualities.values()),
        recomputed=f"Excellent against Poor p = {p:.2f}",
        verdict=judge(True, strained=p > 0.05),
        working=f"{counts}; Fisher's exact test p = {p:.3f}",
    )


def _equal_shares(tables: Tables) -> Iterable[Row]:
    """May the items be sampled equally from the generators?"""
    sampled = tables.number(_MIMIC_QUALITY, quality="sampled")
    generators = tables.text_number("chr.generators")
    each, over = divmod(int(sampled.middle), int(generators.middle))
    yield finding(
        tables,
        "chr.table4.equal",
        printed=f"{sampled} items",
        recomputed=f"{each} each and {over} over",
        verdict=judge(True, strained=over > 0),
        working=f"{sampled} = {generators} × {each} + {over}",
    )


def _corpus(tables: Tables) -> Iterable[Row]:
    """Is MedCorp as large as RAG² counts it?"""
    printed = tables.text_number("chr.chunks")
    whole = tables.number("rag2_tableA1", collection="MedCorp", corpus="Total", metric="chunks")
    yield finding(
        tables,
        "chr.corpus",
        printed=f"{printed} million",
        recomputed=f"{whole} million (RAG² Table A1)",
        verdict=judge(True, strained=not printed.may_equal(whole)),
        working=f"{whole} ÷ {printed} = {whole / printed:.1f}",
    )


CHECKS = [
    table1_averages,
    _comparisons,
    _best_everywhere,
    _leads,
    _bioasq,
    _lambda,
    _cost,
    _mimic_quality,
    _equal_shares,
    _corpus,
]
