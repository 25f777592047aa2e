"""The stored form of Tables 1 to 3, Figure 5 and the claims: one value a row, the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.report import verdict
from lib.studies.main_tables.experiment import Experiment
from lib.study import means

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
"""First columns of every stored table, empty where one does not apply; a table's own come after."""


def long_form(
    table: pd.DataFrame, metrics: Sequence[str], printed: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """One row for each metric and row of ``table``: metric, value, low, high, reported, the rest.

    ``low`` and ``high`` are the columns ``<metric>_low`` and ``<metric>_high``, and ``reported`` is
    the column that ``printed`` names for the metric; each is missing where there is none.
    """
    printed = printed or {}
    spread_out = set(printed.values())
    for metric in metrics:
        spread_out |= {metric, f"{metric}_low", f"{metric}_high"}
    repeated = table[[column for column in table if column not in spread_out]]

    def numbers(column: str | None) -> pd.Series | float:
        return table[column].astype(float) if column in table else np.nan

    parts = []
    for metric in metrics:
        part = repeated.assign(
            metric=metric,
            value=numbers(metric),
            low=numbers(f"{metric}_low"),
            high=numbers(f"{metric}_high"),
            reported=numbers(printed.get(metric)),
        )
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def means_table(values: pd.DataFrame, setup: str) -> pd.DataFrame:
    """The mean of every arm and metric, with its interval over questions, in ``COLUMNS``.

    ``values``: dataset, arm, qid, metric, value. Nothing printed stands beside them.
    """
    table = means(values).rename(columns={"arm": "method"})
    table = table.assign(answerer="", setup=setup, options_visible=False)
    return table.assign(reported=float("nan"), verdict="")[list(COLUMNS)]


def save_long(experiment: Experiment, table: pd.DataFrame, name: str) -> None:
    """Keep a long table as ``name`` with all of ``COLUMNS``; a verdict where a number is printed.

    ``same_setup`` (bool, a column that is not kept) says of which rows the setup is the paper's.
    ``setup`` says what made it: profile, encoder, who wrote the expansions, k.
    """
    grid = experiment.grid
    encoder = grid.retriever.encoder.name
    table = table.assign(setup=f"{grid.profile}, {encoder}, {grid.llm.name}, k = {grid.k}")
    for text in ("dataset", "answerer"):
        if text not in table:
            table[text] = ""
    for number in ("low", "high", "reported"):
        if number not in table:
            table[number] = np.nan
    if "options_visible" not in table:
        table["options_visible"] = table["method"].map(experiment.visible)
    if "verdict" not in table:
        table["verdict"] = [_verdict(row) for row in table.itertuples()]
        table = table.drop(columns="same_setup", errors="ignore")
    further = [column for column in table if column not in COLUMNS]
    experiment.save(table[[*COLUMNS, *further]], name)


def _verdict(row) -> str:
    """The verdict on one row; none where the paper prints no number."""
    if pd.isna(row.reported):
        return ""
    half_width = (row.high - row.low) / 2
    # Missing where rows of another kind stand in one table.
    same_setup = getattr(row, "same_setup", False) is True
    return verdict(row.value, half_width, row.reported, same_setup)
