"""How well a score tells two kinds of pairs apart: over all couples, and within questions.

A label of perplexity differs between questions more than within one: some rationales gain from any
passage. So beside the AUROC over all couples of pairs stands that over couples of one question,
which is what a filter is for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.stats import auroc, auroc_interval


def separation(positive: np.ndarray, scores: np.ndarray, question_of: Sequence[str]) -> dict:
    """The columns in which every table says how well ``scores`` tell ``positive`` pairs apart.

    ``value``, ``low``, ``high``: the AUROC and its 95 % interval over 1,000 draws of questions.
    ``within``, ``within_low``, ``within_high``: see ``within_questions``. ``n`` pairs,
    ``positives`` among them, of ``questions``.
    """
    questions = list(question_of)
    low, high = auroc_interval(positive, scores, questions)
    within, within_low, within_high = within_questions(positive, scores, questions)
    return {
        "value": auroc(positive, scores),
        "low": low,
        "high": high,
        "within": within,
        "within_low": within_low,
        "within_high": within_high,
        "n": len(scores),
        "positives": int(positive.sum()),
        "questions": len(set(questions)),
    }


def within_questions(
    positive: np.ndarray,
    scores: np.ndarray,
    question_of: Sequence[str],
    *,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """The AUROC over couples of one question alone, and its 95 % interval over questions.

    Every couple counts the same, ties half. NaN where no question has both kinds.
    """
    wins, couples = [], []
    for _, rows in pd.Series(range(len(scores))).groupby(list(question_of)):
        own = rows.to_numpy()
        n = int(positive[own].sum() * (~positive[own]).sum())
        if n:
            couples.append(n)
            wins.append(n * auroc(positive[own], scores[own]))
    if not couples:
        return float("nan"), float("nan"), float("nan")
    won, total = np.array(wins), np.array(couples)
    drawn = np.random.default_rng(seed).integers(0, len(total), (draws, len(total)))
    found = won[drawn].sum(axis=1) / total[drawn].sum(axis=1)
    low, high = np.percentile(found, [2.5, 97.5])
    return float(won.sum() / total.sum()), float(low), float(high)
