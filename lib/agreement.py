"""Do two judges say the same? Agreement and Cohen's kappa, weighted, with intervals over groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from lib.stats import resampled_sums


def agreement_table(said: pd.DataFrame, between: str) -> pd.DataFrame:
    """Kappa and raw agreement of two judges, label by label.

    ``said`` has a row an item and label: label, group, weight, one, two (what either said, yes or
    no). ``between`` names the judges in the table. Columns: check, label, value, low, high, n; the
    interval resamples groups.
    """
    made = []
    for label, own in said.groupby("label", sort=True):
        counts = _tables(own)
        for name, measure in (("kappa", _kappa), ("agreement", _agreement)):
            row = {"check": f"{name} of {between}", "label": label}
            made.append(row | _resampled(counts, measure) | {"n": len(own)})
    return pd.DataFrame(made)


def _tables(said: pd.DataFrame) -> np.ndarray:
    """The 2 x 2 table of each group, shape (groups, 4): both, first, second, neither."""
    one, two = said["one"].to_numpy(bool), said["two"].to_numpy(bool)
    cells = np.stack([one & two, one & ~two, ~one & two, ~one & ~two], axis=1)
    weighted = pd.DataFrame(cells * said["weight"].to_numpy()[:, None])
    return weighted.groupby(said["group"].to_numpy()).sum().to_numpy(float)


def _kappa(table: np.ndarray) -> float:
    both, first, second, neither = table / table.sum()
    yes = (both + first) * (both + second)
    chance = yes + (1 - both - first) * (1 - both - second)
    return float((both + neither - chance) / (1 - chance)) if chance < 1 else 1.0


def _agreement(table: np.ndarray) -> float:
    return float((table[0] + table[3]) / table.sum())


def _resampled(counts: np.ndarray, measure: Callable, seed: int = 0) -> dict[str, float]:
    drawn = resampled_sums(counts, 1000, seed)
    values = [measure(table) for table in drawn if table.sum()]
    low, high = np.percentile(values, [2.5, 97.5])
    return {"value": measure(counts.sum(axis=0)), "low": float(low), "high": float(high)}
