"""CHR's Table 2: what its overlap "ratio" can be, and which questions its 587 cases can be.

A *case* is a question that CHR has right and HyDE wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from lib.stats import mcnemar_p
from lib.studies.audit.arithmetic import Range, exactly, mean, possible_counts
from lib.studies.audit.margins import (
    GENERATORS,
    accuracy,
    extra_right,
    question_count,
    short,
)
from lib.studies.audit.reported import (
    CONSISTENT,
    Comparison,
    Tables,
    compare_all,
    finding,
    judge,
)

TABLE1_NAMES = {"MMLU-Med": "MMLU-Med", "MedQA": "MedQA-US", "BioASQ": "BioASQ-Y/N"}
"""The data sets as Table 2 names them, and as Table 1 does."""


def _column(tables: Tables, metric: str) -> dict[str, Range]:
    """A column of Table 2, by data set, "Combined" among them."""
    return tables.numbers("chr_table2_overlap", "dataset", metric=metric)


def _ratio(tables: Tables) -> Iterable[dict]:
    """Can the mean overlap be a mean of ratios, or is it a mean number of documents?"""
    top_k = tables.text_number("chr.top_k").middle
    overlap = _column(tables, "mean_overlap")
    none_shared = _column(tables, "zero_overlap")
    some_shared = {
        dataset: exactly(1) - percent * Fraction(1, 100) for dataset, percent in none_shared.items()
    }
    # Cases that share nothing have ratio 0, all others at most 1.
    may_be_ratio = {
        dataset: printed.low <= some_shared[dataset].high for dataset, printed in overlap.items()
    }
    for dataset, printed in overlap.items():
        most = some_shared[dataset]
        none = none_shared[dataset]
        yield finding(
            tables,
            "chr.table2.ratio",
            printed=printed,
            recomputed=f"at most {most:.3f}",
            verdict=judge(may_be_ratio[dataset]),
            working=f"{none} % of cases share nothing and have ratio 0, the others at most 1: the "
            f"mean is at most 1 − {none}/100 = {most:.3f} ({most.span('.4f')} with rounding); "
            f"{printed} stands for {printed.span('.3f')}",
            name=short(dataset),
            set=dataset,
        )

    may_be_number = all(
        some_shared[dataset].low <= printed.high
        and printed.low <= top_k * some_shared[dataset].high
        for dataset, printed in overlap.items()
    )
    limits = "; ".join(
        f"{dataset} {some_shared[dataset]:.3f} ≤ {printed} ≤ "
        f"{float(top_k * some_shared[dataset].middle):.3f}"
        for dataset, printed in overlap.items()
    )
    yield finding(
        tables,
        "chr.table2.count",
        printed="called a ratio",
        recomputed="fits" if may_be_number else "does not fit",
        verdict=judge(may_be_number, strained=not all(may_be_ratio.values())),
        working=f"a case that shares something shares 1 to {top_k} documents: {limits}",
    )


def _combined(tables: Tables) -> Iterable[dict]:
    """Does the row Combined follow from the three data sets?"""
    n = _column(tables, "n")
    weights = [n[dataset].middle for dataset in TABLE1_NAMES]
    comparisons = [Comparison("n", n["Combined"], exactly(sum(weights)))]
    for metric in ("zero_overlap", "mean_overlap"):
        column = _column(tables, metric)
        weighted = mean([column[dataset] for dataset in TABLE1_NAMES], weights)
        comparisons.append(Comparison(metric, column["Combined"], weighted))
    yield from compare_all(tables, "chr.table2.combined", comparisons, spec=".3f")


@dataclass(frozen=True)
class Limits:
    """The least and the most cases that Table 1 allows, whatever the methods' answers were."""

    least: int
    most: int

    def include(self, cases: Fraction | int) -> bool:
        """Whether there may be so many cases."""
        return self.least <= cases <= self.most


def case_limits(tables: Tables, generator: str, dataset: str) -> Limits:
    """How many cases one generator can have.

    At least CHR's right answers less HyDE's; at most what CHR has right, or HyDE wrong.
    """
    n = question_count(tables, dataset)
    chr_right = possible_counts(accuracy(tables, generator, "CHR", dataset), n)
    hyde_right = possible_counts(accuracy(tables, generator, "HyDE", dataset), n)
    fewest_more, _ = extra_right(tables, generator, "HyDE", dataset)
    return Limits(max(0, fewest_more), min(chr_right[-1], n - hyde_right[0]))


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
    """By reading (a way to pool the cases, or a generator alone), then by data set."""
    limits: dict[str, dict[str, Limits]] = {
        reading: {} for reading in ("sum", "union", "two", "all", *GENERATORS)
    }
    for dataset, table1_name in TABLE1_NAMES.items():
        alone = {generator: case_limits(tables, generator, table1_name) for generator in GENERATORS}
        n = question_count(tables, table1_name)
        pooled = _limits_of_pools(list(alone.values()), n)
        for reading, allowed in (pooled | alone).items():
            limits[reading][dataset] = allowed
    return limits


def _pool(tables: Tables) -> Iterable[dict]:
    """Whose are the cases? One row for each way to pool them, and one for each generator alone."""
    printed = _column(tables, "n")
    printed_sum = " + ".join(f"{printed[dataset]}" for dataset in TABLE1_NAMES)
    limits = _limits_by_reading(tables)
    misfits = {
        reading: [
            dataset
            for dataset, allowed in by_dataset.items()
            if not allowed.include(printed[dataset].middle)
        ]
        for reading, by_dataset in limits.items()
    }
    for reading, by_dataset in limits.items():
        fits = not misfits[reading]
        allowed_cases = "; ".join(
            f"{dataset} {allowed.least} to {allowed.most}, {printed[dataset]} printed"
            for dataset, allowed in by_dataset.items()
        )
        columns = {
            "printed": f"{printed_sum} = {printed['Combined']}",
            "recomputed": "fits Table 1" if fits else f"does not fit {', '.join(misfits[reading])}",
            "working": "cases that Table 1 allows (at least CHR's right answers less HyDE's): "
            + allowed_cases,
        }
        if reading in GENERATORS:
            # A guess of the reader's: the paper says "pooled" and names no generator.
            columns["verdict"] = CONSISTENT
            yield finding(tables, "chr.pool.one", **columns, name=short(reading), generator=reading)
            continue
        # Where HyDE's reply could not be read, Table 1 counts it as wrong. Left out of the cases,
        # there may be any smaller number of them.
        may_be = all(
            printed[dataset].middle <= allowed.most for dataset, allowed in by_dataset.items()
        )
        # Every case, counted once or once a generator, is what the paper's words say.
        stated = reading in ("sum", "union")
        columns["verdict"] = judge(may_be, strained=not (fits and stated))
        yield finding(tables, f"chr.pool.{reading}", **columns)


def _implied_p(tables: Tables) -> Iterable[dict]:
    """If the cases are one generator's, they are CHR's wins over HyDE, and so fix the p-value."""
    cases = {
        dataset: int(n.middle)
        for dataset, n in _column(tables, "n").items()
        if dataset in TABLE1_NAMES
    }
    for generator in GENERATORS:
        losses = {}
        fits = True
        for dataset, table1_name in TABLE1_NAMES.items():
            _, gain = extra_right(tables, generator, "HyDE", table1_name)
            most = case_limits(tables, generator, table1_name).most
            losses[dataset] = cases[dataset] - gain
            fits = fits and losses[dataset] >= 0 and cases[dataset] <= most
        if not fits:
            continue
        p = {dataset: mcnemar_p(cases[dataset], losses[dataset]) for dataset in cases}
        yield finding(
            tables,
            "chr.pool.p",
            printed="no test",
            recomputed=", ".join(f"{dataset} p = {value:.2g}" for dataset, value in p.items()),
            verdict=judge(True, strained=max(p.values()) > 0.05),
            working="; ".join(
                f"{dataset}: {cases[dataset]} wins, {losses[dataset]} losses" for dataset in cases
            ),
            name=short(generator),
            generator=generator,
        )


CHECKS = [_ratio, _combined, _pool, _implied_p]
