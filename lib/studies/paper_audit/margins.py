"""CHR's Tables 1 and 2, and the number nobody printed: how often two methods differ.

An exact McNemar test of a margin needs the *discordant* questions: those that one method has right
and the other wrong. A margin fixes only wins minus losses, and p grows with their sum. Table 2
counts *cases*, questions that CHR has right and HyDE wrong, and does not say whose they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd

from lib.stats import mcnemar_p
from lib.studies.paper_audit.printed import (
    CONSISTENT,
    IN_TENSION,
    Range,
    Row,
    Tables,
    compare_all,
    exactly,
    finding,
    holds_for_all,
    judge,
    mean,
    possible_counts,
)

GENERATORS = ("Llama-3-8B-Instruct", "Qwen2.5-7B-Instruct", "Gemma-2-9B-It")
DATASETS = ("MMLU-Med", "MedQA-US", "BioASQ-Y/N")
BASELINES = ("Standard RAG", "HyDE", "Query2Doc", "CSQE", "ThinkQE")
TABLE1_NAMES = {"MMLU-Med": "MMLU-Med", "MedQA": "MedQA-US", "BioASQ": "BioASQ-Y/N"}
"""The data sets as Table 2 names them, and as Table 1 does."""


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


# margins -----------------------------------------------------------------------------------------


def largest_discordance(difference: int, n: int, level: float = 0.05) -> int:
    """The most discordant questions of ``n`` that leave p at ``level`` or below; 0 if none do.

    ``difference`` is wins minus losses. At a given difference, p grows with every further pair of
    a win and a loss, so the last number of losses that is significant is found by bisection.
    """
    if difference < 1 or mcnemar_p(difference, 0) > level:
        return 0
    fewest_losses = 0
    most_losses = (n - difference) // 2
    while fewest_losses < most_losses:
        losses = (fewest_losses + most_losses + 1) // 2
        if mcnemar_p(losses + difference, losses) <= level:
            fewest_losses = losses
        else:
            most_losses = losses - 1
    return difference + 2 * fewest_losses


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


def next_best(margins: pd.DataFrame) -> pd.DataFrame:
    """The smallest margin of each generator and data set: that over the next best method."""
    smallest = margins.groupby(["generator", "dataset"], sort=False)["margin"].idxmin()
    return margins.loc[smallest]


def _margins(tables: Tables) -> Iterable[Row]:
    """Is each margin more than chance, if answers differ no more than independent ones?"""
    table = margins(tables)
    cases = {
        f"{row.generator}, {row.dataset}, {row.baseline}": (
            f"{row.margin:.1f} points, p ≤ 0.05 from {row.fewest_discordant} up to "
            f"{row.most_significant} of {row.n}, independent {row.independent}",
            row.most_significant >= row.independent,
        )
        for row in table.itertuples()
    }
    yield holds_for_all(tables, "chr.margins", cases, IN_TENSION, printed=f"{len(cases)} margins")
    for row in next_best(table).itertuples():
        limit = f"{row.most_significant} ({100 * row.most_significant / row.n:.1f} %)"
        independent = f"{row.independent} ({100 * row.independent / row.n:.1f} %)"
        yield finding(
            tables,
            "chr.margin",
            printed=f"{row.margin:.1f} points",
            recomputed=f"p ≤ 0.05 up to {row.most_significant} discordant of {row.n:,}",
            verdict=judge(True, row.most_significant < row.independent),
            working=f"{row.margin:.1f} points of {row.n:,} are at most {row.extra_right} "
            f"questions. Least discordance {row.fewest_discordant}: "
            f"p = {mcnemar_p(row.fewest_discordant, 0):.2g}. p ≤ 0.05 (exact McNemar) up to "
            f"{limit}. Independent answers would differ on {independent}",
            name=f"{short(row.generator)} {short(row.dataset)}",
            generator=row.generator,
            set=row.dataset,
            baseline=row.baseline,
        )


# Table 2 -----------------------------------------------------------------------------------------


def _column(tables: Tables, metric: str) -> dict[str, Range]:
    """A column of Table 2, by data set, "Combined" among them."""
    return tables.numbers("chr_table2_overlap", "dataset", metric=metric)


def _share_something(tables: Tables) -> dict[str, Range]:
    """By data set: the share of cases that share some passage."""
    none = _column(tables, "zero_overlap")
    return {dataset: exactly(1) - percent * Fraction(1, 100) for dataset, percent in none.items()}


def _ratio(tables: Tables) -> Iterable[Row]:
    """Can the mean overlap be a mean of ratios? At most what it is if all that is shared is 1."""
    none_shared, most_by_dataset = _column(tables, "zero_overlap"), _share_something(tables)
    for dataset, printed in _column(tables, "mean_overlap").items():
        none, most = none_shared[dataset], most_by_dataset[dataset]
        yield finding(
            tables,
            "chr.table2.ratio",
            printed=printed,
            recomputed=f"at most {most:.3f}",
            verdict=judge(printed.low <= most.high),
            working=f"{none} % of cases share nothing and have ratio 0, the others at most 1: the "
            f"mean is at most 1 − {none}/100 = {most:.3f} ({most.span('.4f')} with rounding); "
            f"{printed} stands for {printed.span('.3f')}",
            name=short(dataset),
            set=dataset,
        )


def _count(tables: Tables) -> Iterable[Row]:
    """Or is the mean overlap a mean number of documents?"""
    top_k = tables.text_number("chr.top_k").middle
    overlap, some_shared = _column(tables, "mean_overlap"), _share_something(tables)
    limits = {
        dataset: Range(share.low, share.high * top_k) for dataset, share in some_shared.items()
    }
    fits = all(printed.may_equal(limits[dataset]) for dataset, printed in overlap.items())
    may_be_ratio = all(printed.low <= some_shared[d].high for d, printed in overlap.items())
    shown = "; ".join(
        f"{dataset} {share:.3f} ≤ {overlap[dataset]} ≤ {float(top_k * share.middle):.3f}"
        for dataset, share in some_shared.items()
    )
    yield finding(
        tables,
        "chr.table2.count",
        printed="called a ratio",
        recomputed="fits" if fits else "does not fit",
        verdict=judge(fits, strained=not may_be_ratio),
        working=f"a case that shares something shares 1 to {top_k} documents: {shown}",
    )


def _combined(tables: Tables) -> Iterable[Row]:
    """Does the row Combined follow from the three data sets?"""
    n = _column(tables, "n")
    weights = [n[dataset].middle for dataset in TABLE1_NAMES]
    pairs = {"n": (n["Combined"], exactly(sum(weights)))}
    for metric in ("zero_overlap", "mean_overlap"):
        column = _column(tables, metric)
        again = mean([column[dataset] for dataset in TABLE1_NAMES], weights)
        pairs[metric] = column["Combined"], again
    yield from compare_all(tables, "chr.table2.combined", pairs, spec=".3f")


@dataclass(frozen=True)
class Limits:
    """The least and the most cases that Table 1 allows, whatever the methods' answers were."""

    least: int
    most: int


def case_limits(tables: Tables, generator: str, dataset: str) -> Limits:
    """How many cases one generator can have.

    At least CHR's right answers less HyDE's; at most what CHR has right, or HyDE wrong.
    """
    n = question_count(tables, dataset)
    fewest_more, _ = extra_right(tables, generator, "HyDE", dataset)
    ours = _right(tables, generator, "CHR", dataset)
    theirs = _right(tables, generator, "HyDE", dataset)
    return Limits(max(0, fewest_more), min(ours[-1], n - theirs[0]))


def _limits_of_pools(each: list[Limits], n: int) -> dict[str, Limits]:
    """What Table 1 allows if the three generators' cases are pooled in one way or another.

    ``each`` are the generators' own limits on a data set of ``n`` questions.
    """
    least = sum(limits.least for limits in each)
    most = sum(limits.most for limits in each)
    return {
        "sum": Limits(least, most),
        "union": Limits(max(limits.least for limits in each), min(n, most)),
        # With u questions that are cases for two or three generators, the sum of the cases is at
        # most n + 2u (so u is at least half of what the sum is above n), and at least 2u.
        "two": Limits(max(0, -((n - least) // 2)), min(n, most // 2)),
        # With u that are cases for all three, the sum is at most 2n + u.
        "all": Limits(max(0, least - 2 * n), min(limits.most for limits in each)),
    }


def _limits_by_reading(tables: Tables) -> dict[str, dict[str, Limits]]:
    """By reading (a way to pool the cases, or a generator alone), then by data set of Table 2."""
    limits: dict[str, dict[str, Limits]] = {}
    for dataset, table1_name in TABLE1_NAMES.items():
        alone = {generator: case_limits(tables, generator, table1_name) for generator in GENERATORS}
        n = question_count(tables, table1_name)
        pooled = _limits_of_pools(list(alone.values()), n)
        for reading, allowed in (pooled | alone).items():
            limits.setdefault(reading, {})[dataset] = allowed
    return limits


def pool(tables: Tables) -> Iterable[Row]:
    """Whose are the cases? One row for each way to pool them, and one for each generator alone."""
    printed = _column(tables, "n")
    cases = {dataset: printed[dataset].middle for dataset in TABLE1_NAMES}
    printed_sum = " + ".join(f"{printed[dataset]}" for dataset in TABLE1_NAMES)
    for reading, limits in _limits_by_reading(tables).items():
        misfits = [
            dataset
            for dataset, allowed in limits.items()
            if not allowed.least <= cases[dataset] <= allowed.most
        ]
        allowed_cases = "; ".join(
            f"{dataset} {allowed.least} to {allowed.most}, {printed[dataset]} printed"
            for dataset, allowed in limits.items()
        )
        columns = {
            "printed": f"{printed_sum} = {printed['Combined']}",
            "recomputed": f"does not fit {', '.join(misfits)}" if misfits else "fits Table 1",
            "working": "cases that Table 1 allows (at least CHR's right answers less HyDE's): "
            + allowed_cases,
        }
        if reading in GENERATORS:
            # A guess of the reader's: the paper says "pooled" and names no generator.
            words = {"name": short(reading), "generator": reading}
            yield finding(tables, "chr.pool.one", verdict=CONSISTENT, **columns, **words)
            continue
        # Where HyDE's reply could not be read, Table 1 counts it as wrong. Left out of the cases,
        # there may be any smaller number of them.
        may_be = all(cases[dataset] <= allowed.most for dataset, allowed in limits.items())
        # Every case, counted once or once a generator, is what the paper's words say.
        strained = bool(misfits) or reading not in ("sum", "union")
        yield finding(tables, f"chr.pool.{reading}", verdict=judge(may_be, strained), **columns)


def _implied_p(tables: Tables) -> Iterable[Row]:
    """If the cases are one generator's, they are CHR's wins over HyDE, and so fix the p-value."""
    column = _column(tables, "n")
    wins = {dataset: int(column[dataset].middle) for dataset in TABLE1_NAMES}
    for generator in GENERATORS:
        losses, fits = {}, True
        for dataset, table1_name in TABLE1_NAMES.items():
            _, gain = extra_right(tables, generator, "HyDE", table1_name)
            most = case_limits(tables, generator, table1_name).most
            losses[dataset] = wins[dataset] - gain
            fits = fits and losses[dataset] >= 0 and wins[dataset] <= most
        if not fits:
            continue
        p = {dataset: mcnemar_p(wins[dataset], losses[dataset]) for dataset in wins}
        yield finding(
            tables,
            "chr.pool.p",
            printed="no test",
            recomputed=", ".join(f"{dataset} p = {value:.2g}" for dataset, value in p.items()),
            verdict=judge(True, strained=max(p.values()) > 0.05),
            working="; ".join(f"{d}: {wins[d]} wins, {losses[d]} losses" for d in wins),
            name=short(generator),
            generator=generator,
        )


CHECKS = [_ratio, _count, _combined, pool, _implied_p, _margins]
