"""CHR's margins in Table 1, and the number nobody printed: how often two methods differ.

An exact McNemar test of a margin needs the discordance, the questions that one method has right and
the other wrong. The margin fixes only wins minus losses; p grows with their sum.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from lib.studies.audit.arithmetic import Range, counts, largest_discordance, mcnemar
from lib.studies.audit.reported import IN_TENSION, Tables, finding, holds, judge

__all__ = [
    "BASELINES",
    "CHECKS",
    "DATASETS",
    "GENERATORS",
    "accuracy",
    "curve",
    "margins",
    "more",
    "next_best",
    "size",
]

GENERATORS = ("Llama-3-8B-Instruct", "Qwen2.5-7B-Instruct", "Gemma-2-9B-It")
DATASETS = ("MMLU-Med", "MedQA-US", "BioASQ-Y/N")
BASELINES = ("Standard RAG", "HyDE", "Query2Doc", "CSQE", "ThinkQE")


def accuracy(t: Tables, generator: str, method: str, dataset: str) -> Range:
    """A cell of Table 1, in percent."""
    return t.number("chr_table1_accuracy", generator=generator, method=method, dataset=dataset)


def size(t: Tables, dataset: str) -> int:
    """Questions of a data set."""
    return int(t.said(f"questions.{dataset}").middle)


def more(t: Tables, generator: str, baseline: str, dataset: str) -> tuple[int, int]:
    """How many more questions CHR has right than a baseline: least and most within rounding."""
    n = size(t, dataset)
    ours, theirs = (counts(accuracy(t, generator, m, dataset), n) for m in ("CHR", baseline))
    return ours[0] - theirs[-1], ours[-1] - theirs[0]


def margins(t: Tables) -> pd.DataFrame:
    """One row per margin: generator, dataset, baseline, n, margin (points), more (questions, the
    most that rounding allows), and three numbers of discordant questions.

    ``forced`` is the least there can be, that of a CHR which loses nothing; ``limit`` the most with
    p <= 0.05 (0: none); ``independent`` that of answers which have nothing to do with each other.
    The same reader answering the same questions is discordant on fewer.
    """
    rows = []
    for generator, dataset, baseline in (
        (g, d, b) for g in GENERATORS for d in DATASETS for b in BASELINES
    ):
        n, (_, most) = size(t, dataset), more(t, generator, baseline, dataset)
        ours, theirs = (accuracy(t, generator, m, dataset) for m in ("CHR", baseline))
        a, b = float(ours.middle) / 100, float(theirs.middle) / 100
        rows.append(
            {
                "generator": generator,
                "dataset": dataset,
                "baseline": baseline,
                "n": n,
                "margin": float((ours - theirs).middle),
                "more": most,
                "forced": abs(most),
                "limit": largest_discordance(most, n),
                "independent": round(n * (a * (1 - b) + b * (1 - a))),
            }
        )
    return pd.DataFrame(rows)


def curve(more: int, n: int) -> pd.DataFrame:
    """p over discordance for a difference of ``more``: columns ``discordant, share, p``."""
    from scipy.stats import binom

    discordant = np.arange(abs(more), n + 1, 2)
    p = np.minimum(1, 2 * binom.cdf((discordant - abs(more)) // 2, discordant, 0.5))
    return pd.DataFrame({"discordant": discordant, "share": discordant / n, "p": p})


def next_best(margins: pd.DataFrame) -> pd.DataFrame:
    """The smallest margin of each setting, that over the next best method."""
    return margins.loc[margins.groupby(["generator", "dataset"], sort=False)["margin"].idxmin()]


def _chance(t: Tables) -> Iterable[dict]:
    every = margins(t)
    cases = {
        f"{r.generator}, {r.dataset}, {r.baseline}": (
            f"{r.margin:.1f} points, p ≤ 0.05 from {r.forced} up to {r.limit} of {r.n}, "
            f"independent {r.independent}",
            r.limit >= r.independent,
        )
        for r in every.itertuples()
    }
    yield holds(t, "chr.margins", cases, IN_TENSION, told=f"{len(cases)} margins")
    for row in next_best(every).itertuples():
        limit, independent = (
            f"{x} ({100 * x / row.n:.1f} %)" for x in (row.limit, row.independent)
        )
        yield finding(
            t,
            "chr.margin",
            f"{row.margin:.1f} points",
            f"p ≤ 0.05 up to {row.limit} discordant of {row.n:,}",
            judge(True, row.limit < row.independent),
            f"{row.margin:.1f} points of {row.n:,} are at most {row.more} questions. Least "
            f"discordance {row.forced}: p = {mcnemar(row.forced, 0):.2g}. p ≤ 0.05 (exact McNemar) "
            f"up to {limit}. Independent answers would differ on {independent}",
            f"{row.generator.split('-')[0]} {row.dataset.split('-')[0]}",
            generator=row.generator,
            set=row.dataset,
            baseline=row.baseline,
        )


CHECKS = [_chance]
