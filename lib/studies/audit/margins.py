"""CHR's margins in its Table 1, and the number nobody printed: how often two methods differ.

An exact McNemar test of a margin needs the *discordant* questions: those that one method has right
and the other wrong. A margin fixes only wins minus losses, and p grows with their sum.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from lib.stats import mcnemar_p
from lib.studies.audit.arithmetic import Range, largest_discordance, possible_counts
from lib.studies.audit.reported import (
    IN_TENSION,
    Case,
    Tables,
    finding,
    holds_for_all,
    judge,
)

GENERATORS = ("Llama-3-8B-Instruct", "Qwen2.5-7B-Instruct", "Gemma-2-9B-It")
DATASETS = ("MMLU-Med", "MedQA-US", "BioASQ-Y/N")
BASELINES = ("Standard RAG", "HyDE", "Query2Doc", "CSQE", "ThinkQE")


def short(name: str) -> str:
    """The first part of a printed name: "Llama" of "Llama-3-8B-Instruct"."""
    return name.split("-")[0]


def accuracy(tables: Tables, generator: str, method: str, dataset: str) -> Range:
    """A cell of CHR's Table 1, in percent."""
    return tables.number("chr_table1_accuracy", generator=generator, method=method, dataset=dataset)


def question_count(tables: Tables, dataset: str) -> int:
    """How many questions a data set has."""
    return int(tables.text_number(f"questions.{dataset}").middle)


def extra_right(tables: Tables, generator: str, baseline: str, dataset: str) -> tuple[int, int]:
    """How many more questions CHR has right than a baseline: least and most within rounding."""
    n = question_count(tables, dataset)
    chr_right = possible_counts(accuracy(tables, generator, "CHR", dataset), n)
    baseline_right = possible_counts(accuracy(tables, generator, baseline, dataset), n)
    least = chr_right[0] - baseline_right[-1]
    most = chr_right[-1] - baseline_right[0]
    return least, most


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
    for generator in GENERATORS:
        for dataset in DATASETS:
            for baseline in BASELINES:
                rows.append(_margin(tables, generator, dataset, baseline))
    return pd.DataFrame(rows)


def _margin(tables: Tables, generator: str, dataset: str, baseline: str) -> dict:
    n = question_count(tables, dataset)
    _, most = extra_right(tables, generator, baseline, dataset)
    chr_accuracy = accuracy(tables, generator, "CHR", dataset)
    baseline_accuracy = accuracy(tables, generator, baseline, dataset)
    p = float(chr_accuracy.middle) / 100
    q = float(baseline_accuracy.middle) / 100
    return {
        "generator": generator,
        "dataset": dataset,
        "baseline": baseline,
        "n": n,
        "margin": float((chr_accuracy - baseline_accuracy).middle),
        "extra_right": most,
        "fewest_discordant": abs(most),
        "most_significant": largest_discordance(most, n),
        "independent": round(n * (p * (1 - q) + q * (1 - p))),
    }


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


def _all_margins(tables: Tables) -> Iterable[dict]:
    cases = {
        f"{row.generator}, {row.dataset}, {row.baseline}": Case(
            f"{row.margin:.1f} points, p ≤ 0.05 from {row.fewest_discordant} up to "
            f"{row.most_significant} of {row.n}, independent {row.independent}",
            row.most_significant >= row.independent,
        )
        for row in margins(tables).itertuples()
    }
    yield holds_for_all(tables, "chr.margins", cases, IN_TENSION, printed=f"{len(cases)} margins")


def _smallest_margins(tables: Tables) -> Iterable[dict]:
    for row in next_best(margins(tables)).itertuples():
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


CHECKS = [_all_margins, _smallest_margins]
