"""How far two methods retrieve different passages (the paper's Table 2), with what it leaves out.

The paper looks only at questions that CHR answers and HyDE does not, and prints a "mean overlap
ratio" that can only be a mean count. Here every outcome has its row, the overlap is a
count, a fraction and a Jaccard index, rank-biased overlap stands beside it, and so does the overlap
of HyDE with itself from other samples, the noise floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.stats import mean_interval

OUTCOMES = ("all", "both right", "only the first right", "only the second right", "both wrong")
"""Rows of a shift table; the last four part the questions."""


def rbo(a: Sequence[str], b: Sequence[str], p: float = 0.9) -> float:
    """Rank-biased overlap of two lists, extrapolated from the shorter depth (Webber et al. 2010).

    1 for equal lists, 0 where nothing is shared, as with an empty list; p weighs the first ranks.
    """
    depth = min(len(a), len(b))
    if not depth:
        return 0.0
    shared = [len(set(a[:d]) & set(b[:d])) / d for d in range(1, depth + 1)]
    weights = p ** np.arange(1, depth + 1)
    return float(shared[-1] * p**depth + (1 - p) / p * np.dot(shared, weights))


def overlap(a: Sequence[str], b: Sequence[str], k: int) -> dict[str, float]:
    """Shared passages of two top-k lists: count, fraction of k, jaccard, zero (none), rbo.

    Two empty lists share nothing.
    """
    a, b = list(a)[:k], list(b)[:k]
    count, union = len(set(a) & set(b)), len(set(a) | set(b))
    return {
        "count": count,
        "fraction": count / k,
        "jaccard": count / max(union, 1),
        "zero": float(count == 0),
        "rbo": rbo(a, b),
    }


def shift_table(
    first: Mapping[str, Sequence[str]],
    second: Mapping[str, Sequence[str]],
    k: int,
    right: tuple[pd.Series, pd.Series] | None = None,
) -> pd.DataFrame:
    """Mean overlap of two runs ({qid: passage ids}) by outcome: outcome, n, count, fraction, ...,
    and of each of these the ends of its 95 % interval (``count_low``, ``count_high``, ...).

    The questions are those of ``first``. ``right`` are the right answers (bool by qid) from the
    first and the second run's passages; without them only the row "all" is there. An outcome
    without questions has n = 0.
    """
    table = pd.DataFrame({q: overlap(first[q], second.get(q, ()), k) for q in first}).T
    masks = {"all": pd.Series(True, index=table.index)}
    if right is not None:
        a = right[0].reindex(table.index).astype("boolean")
        b = right[1].reindex(table.index).astype("boolean")
        masks["both right"] = a & b
        masks["only the first right"] = a & ~b
        masks["only the second right"] = ~a & b
        masks["both wrong"] = ~a & ~b
    rows = []
    for outcome, mask in masks.items():
        # A question that one run did not answer is in no outcome but "all".
        questions = table[mask.fillna(False).astype(bool)]
        row = {"outcome": outcome, "n": len(questions)} | questions.mean().to_dict()
        if len(questions):
            for measure in questions:
                _, low, high = mean_interval(questions[measure])
                row[f"{measure}_low"] = low
                row[f"{measure}_high"] = high
        rows.append(row)
    return pd.DataFrame(rows)
