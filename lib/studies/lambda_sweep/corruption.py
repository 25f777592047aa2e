"""How good must the hypotheses be? H+ and H- exchanged for a growing share of the questions.

An expander that believes the wrong option writes the mimic as its target and rules the right answer
out. Shares are nested (whoever is wrong at 10 % is wrong at 20 % too), and drawn several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.query_spec import Hypotheses, SearchSpec
from lib.stats import mean_interval
from lib.studies.lambda_sweep.arms import Arm
from lib.studies.lambda_sweep.study import Study, measured

_OTHER = {"target": "mimic", "mimic": "target"}


def exchanged(study: Study, share: float, seed: int) -> Study:
    """The study with H+ and the nearest H- exchanged for a share of the test questions."""
    tested = study.benchmark.test
    order = np.random.default_rng(seed).permutation(len(tested))
    wrong = [tested[i] for i in order[: round(share * len(tested))]]
    turned = {qid: _turned(study.hypotheses[qid]) for qid in wrong}
    return replace(study, hypotheses={**study.hypotheses, **turned})


def _turned(hypotheses: Hypotheses) -> Hypotheses:
    texts = [
        replace(text, role=_OTHER[text.role]) if text.role in _OTHER and not text.kind else text
        for text in hypotheses.texts
    ]
    return replace(hypotheses, texts=tuple(texts))


def corruption_table(
    study: Study,
    lambdas: Sequence[float],
    shares: Sequence[float] = (0, 0.1, 0.2, 0.3, 0.4),
    draws: int = 5,
) -> pd.DataFrame:
    """P@k on the test questions over the share of exchanged pairs, one row per share and lambda.

    Columns ``wrong, lambda, p_at_5, low, high, mimic_at_5, n``; values are means over ``draws``
    random choices of who is wrong, intervals are over questions.
    """
    tested, rows = study.benchmark.test, []
    for share in shares:
        studies = [exchanged(study, share, seed) for seed in range(draws if share else 1)]
        for lam in lambdas:
            arm = Arm(SearchSpec(lam=lam))
            tables = [measured(wrong, arm, tested, ("p_at_5", "mimic_at_5")) for wrong in studies]
            each = sum(tables) / len(tables)
            mean, low, high = mean_interval(each["p_at_5"].to_numpy())
            rows.append(
                {
                    "wrong": share,
                    "lambda": lam,
                    "p_at_5": mean,
                    "low": low,
                    "high": high,
                    "mimic_at_5": each["mimic_at_5"].mean(),
                    "n": len(tested),
                }
            )
    return pd.DataFrame(rows)
