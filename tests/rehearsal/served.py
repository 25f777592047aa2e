"""The log of ``tests.rehearsal.server`` beside the ledger of what was recorded."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lib.base.files import read_jsonl
from lib.cost import recorded

COUNTS = ["calls", "prompt_tokens", "output_tokens"]


def served(log: Path) -> pd.DataFrame:
    """A row a request that was answered, in its order.

    ``kept`` is False for a request that was answered once more later: its first reply never came
    to the disk, because the client was killed while it was in flight.
    """
    rows = pd.DataFrame([row for row in read_jsonl(log) if row["status"] == 200])
    return rows.assign(kept=~rows["request"].duplicated(keep="last"))


def compare(recording: Path, log: Path) -> pd.DataFrame:
    """Per model: calls and tokens as recorded, as served and kept; whether they are ``equal``."""
    ours = recorded(recording).groupby("model")[COUNTS].sum()
    rows = served(log).assign(calls=1)
    theirs = rows[rows["kept"]].groupby("model")[COUNTS].sum().add_prefix("served_")
    table = ours.join(theirs, how="outer").fillna(0).astype(int)
    table["equal"] = (table[COUNTS].to_numpy() == table[theirs.columns].to_numpy()).all(axis=1)
    return table.reset_index()
