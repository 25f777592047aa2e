"""The stored form of Tables 1 to 3, Figure 5 and the claims: one value a row, the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.report import verdict
from lib.studies.grid.experiment import Experiment

__all__ = ["COLUMNS", "long_form", "save_long"]

COLUMNS = (
    "dataset",
    "answerer",
    "method",
    "metric",
    "value",
    "low",
    "high",
    "n",
    "setup",
    "options_visible",
    "reported",
    "verdict",
)
"""What every stored table has, "" or missing where it does not apply; further ones stand behind."""


def long_form(
    table: pd.DataFrame, metrics: Sequence[str], printed: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """One row for each metric and row of ``table``: a value, low and high (``<metric>_low`` and
    ``<metric>_high`` where the table has them), reported (the column that ``printed`` names)."""
    printed, parts = printed or {}, []
    aside = {f"{m}{end}" for m in metrics for end in ("", "_low", "_high")} | {*printed.values()}
    for metric in metrics:
        of = {
            "value": metric,
            "low": f"{metric}_low",
            "high": f"{metric}_high",
            "reported": printed.get(metric, ""),
        }
        values = {name: table[c].astype(float) if c in table else np.nan for name, c in of.items()}
        parts.append(table[[c for c in table if c not in aside]].assign(metric=metric, **values))
    return pd.concat(parts, ignore_index=True)


def save_long(experiment: Experiment, table: pd.DataFrame, name: str) -> None:
    """Keep a long table as ``name`` with all of ``COLUMNS``; a verdict where a number is printed.

    ``setup`` says what made it: profile, encoder, who wrote the expansions, k.
    """
    grid = experiment.grid
    made = f"{grid.profile}, {grid.retriever.encoder.name}, {grid.llm.name}, k = {grid.k}"
    none = {"dataset": "", "answerer": "", "low": np.nan, "high": np.nan, "reported": np.nan}
    table = table.assign(setup=made, **{c: v for c, v in none.items() if c not in table})
    if "options_visible" not in table:
        table["options_visible"] = table["method"].map(experiment.visible)
    if "verdict" not in table:
        table["verdict"] = [
            verdict(row.value, (row.high - row.low) / 2, row.reported, same_setup=False)
            if pd.notna(row.reported)
            else ""
            for row in table.itertuples()
        ]
    more = [c for c in table if c not in COLUMNS]
    experiment.save(table[[*COLUMNS, *more]], name)
