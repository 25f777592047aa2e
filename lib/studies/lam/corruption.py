"""How good must the hypotheses be? H+ and H- exchanged for a growing share of the questions.

An expander that believes the wrong option writes the mimic as its target and rules the right answer
out. Shares are nested (whoever is wrong at 10 % is wrong at 20 % too), and drawn several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.stats import mean_interval
from lib.studies.lam.study import Condition, Study, measured

__all__ = ["corruption_table", "exchanged"]


def exchanged(study: Study, share: float, seed: int) -> Study:
    """The study with h+ and nearest h- exchanged for a share of the test questions."""
    rows = study.rows(study.benchmark.test)
    wrong = np.random.default_rng(seed).permutation(rows)[: round(share * len(rows))]
    plus, minus = study.h_plus.copy(), study.h_minus["nearest"].copy()
    plus[wrong], minus[wrong] = minus[wrong], plus[wrong]
    return replace(study, h_plus=plus, h_minus={**study.h_minus, "nearest": minus})


def corruption_table(
    study: Study,
    lambdas: Sequence[float],
    shares: Sequence[float] = (0, 0.1, 0.2, 0.3, 0.4),
    k: int = 5,
    draws: int = 5,
) -> pd.DataFrame:
    """P@k on the test questions over the share of exchanged pairs, one row per share and lambda.

    Columns ``wrong, lambda, p_at_5, low, high, mimic_at_5, n``; values are means over ``draws``
    random choices of who is wrong, intervals are over questions.
    """
    rows, out = study.rows(study.benchmark.test), []
    for share in shares:
        studies = [exchanged(study, share, seed) for seed in range(draws if share else 1)]
        for lam in lambdas:
            tables = [measured(some, Condition(), lam, rows, k)[0] for some in studies]
            each = sum(t[["p_at_5", "mimic_at_5"]] for t in tables) / len(tables)
            mean, low, high = mean_interval(each["p_at_5"])
            out.append(
                {
                    "wrong": share,
                    "lambda": lam,
                    "p_at_5": mean,
                    "low": low,
                    "high": high,
                    "mimic_at_5": each["mimic_at_5"].mean(),
                    "n": len(rows),
                }
            )
    return pd.DataFrame(out)
