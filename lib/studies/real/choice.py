"""What dev chooses, and what the test could show: decided before a test text is written.

Lambda comes from ``LAMBDAS``: on exams by the mean share of the top five that supports the right
option, on BioASQ by P@5, of equals the smaller. How firm the choice is says the bootstrap: in what
share of resampled dev sets each lambda would have been chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.datasets import GROUPS
from lib.report import pivot
from lib.stats import resampled_sums
from lib.studies.real.arms import LAMBDAS
from lib.study import declared_pairs

CHOSEN_BY = {"exams": "supports_right_at_5", "bioasq": "p_at_5"}
"""The dev metric that chooses lambda, by group of sets."""

_RESAMPLES = 2000


def lambda_table(values: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Dev's mean at each lambda, and in how many resamples it would have been chosen.

    ``values`` are dev's outcomes (``measures.values_of``). Columns: group, metric, lambda, value,
    chosen_in (share of resampled dev sets), chosen, n.
    """
    rows = []
    for group, metric in CHOSEN_BY.items():
        table = _by_lambda(values, group, metric)
        n = len(table)
        # Rounded, so that equal means are equal: the first of them is the smallest lambda.
        means = np.round(resampled_sums(table.to_numpy(), _RESAMPLES, seed) / n, 12)
        shares = np.bincount(means.argmax(axis=1), minlength=len(LAMBDAS)) / _RESAMPLES
        value = table.mean()
        best = value.round(12).to_numpy().argmax()
        for i, lam in enumerate(LAMBDAS):
            row = {"group": group, "metric": metric, "lambda": lam, "value": value.iloc[i]}
            rows.append(row | {"chosen_in": shares[i], "chosen": i == best, "n": n})
    return pd.DataFrame(rows)


def choices(table: pd.DataFrame) -> dict[str, float]:
    """The chosen lambda of each group, from ``lambda_table``."""
    chosen = table[table["chosen"].astype(bool)]
    return dict(zip(chosen["group"], chosen["lambda"], strict=True))


def _by_lambda(values: pd.DataFrame, group: str, metric: str) -> pd.DataFrame:
    """One row a question, one column a lambda."""
    own = values[(values["metric"] == metric) & values["dataset"].isin(GROUPS[group])]
    wide = own.pivot(index="qid", columns="arm", values="value")
    return wide[["hplus" if lam == 0 else f"chr@{lam:g}" for lam in LAMBDAS]].sort_index()


def chosen_lambdas(chosen: Mapping[str, float]) -> dict[str, str]:
    """What dev chose, as ``lib.study.declared_pairs`` takes it: {"exams:lambda": "0.4"}."""
    return {f"{group}:lambda": f"{lam:g}" for group, lam in chosen.items()}


def least_differences(
    values: pd.DataFrame, chosen: Mapping[str, float], n: Mapping[str, int]
) -> pd.DataFrame:
    """For each primary test the smallest difference it could show, from dev's spread.

    ``n`` are the test questions by group. 2.8 standard errors are seen in four of five cases at
    5 %, before Holm; ``least_holm`` takes the strictest level of Holm's procedure, 5 % over the
    number of tests. Arms that dev does not have are left out.
    """
    from scipy.stats import norm

    pairs = declared_pairs("real", chosen_lambdas(chosen))
    wide = pivot(values, ["metric", "qid"], "arm")
    strict = norm.ppf(1 - 0.025 / len(pairs)) + norm.ppf(0.8)
    rows = []
    for pair in pairs:
        if not {pair.arm, pair.against} <= set(wide.columns):
            continue
        both = wide.loc[pair.metric, [pair.arm, pair.against]].dropna()
        difference = both[pair.arm] - both[pair.against]
        group = "bioasq" if pair.metric == "p_at_5" else "exams"
        error = difference.std(ddof=1) / np.sqrt(n[group])
        row = {"claim": pair.claim, "metric": pair.metric, "arm": pair.arm}
        row |= {"against": pair.against, "dev_n": len(both), "test_n": n[group]}
        row |= {"dev_sd": difference.std(ddof=1)}
        rows.append(row | {"least": 2.8 * error, "least_holm": strict * error})
    return pd.DataFrame(rows)
