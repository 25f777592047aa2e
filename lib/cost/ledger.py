"""What a recording cost, by method and model, and whether the server's own log says the same.

python -m lib.cost.ledger data/recordings/live/paper.jsonl
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from lib.base.files import read_jsonl
from lib.llm.chat import Reply, ledger

COUNTS = ["calls", "prompt_tokens", "output_tokens"]


def recorded(recording: Path) -> pd.DataFrame:
    """The ledger of a recording (see ``lib.llm.chat.ledger``), by method and the model asked for.

    The method is that for which a generation was asked first; others that need the same have it
    for nothing.
    """
    beside = recording.with_suffix(".times.jsonl")
    times = {row["key"]: row for row in read_jsonl(beside)} if beside.exists() else {}
    replies = []
    for row in read_jsonl(recording):
        told = times.get(row["key"], {})
        replies.append(
            Reply(
                **row["reply"],
                model=row["model"],
                latency_s=told.get("latency_s"),
                method=told.get("method", ""),
            )
        )
    return ledger(replies)


def served(log: Path) -> pd.DataFrame:
    """The log of ``tests.rehearsal.server``, a row a request that was answered, in its order.

    ``kept`` is False for a request that was answered once more later: its first reply never came
    to the disk, because the client was killed while it was in flight.
    """
    rows = pd.DataFrame([row for row in read_jsonl(log) if row["status"] == 200])
    return rows.assign(kept=~rows["request"].duplicated(keep="last"))


def compare(recording: Path, log: Path) -> pd.DataFrame:
    """Per model: calls and tokens as recorded and as served and kept, whether they are equal.

    ``again`` counts what was answered and lost to a kill; it is not in the ledger.
    """
    ours = recorded(recording).groupby("model")[COUNTS].sum()
    rows = served(log).assign(calls=1)
    theirs = rows[rows["kept"]].groupby("model")[COUNTS].sum().add_prefix("served_")
    table = ours.join(theirs, how="outer").fillna(0).astype(int)
    same = [table[c] == table[f"served_{c}"] for c in COUNTS]
    lost = rows[~rows["kept"]].groupby("model")
    table["equal"] = same[0] & same[1] & same[2]
    table["again"] = lost["calls"].sum().reindex(table.index, fill_value=0)
    table["again_tokens"] = (
        lost[["prompt_tokens", "output_tokens"]]
        .sum()
        .sum(axis=1)
        .reindex(table.index, fill_value=0)
    )
    return table.reset_index()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lib.cost.ledger")
    parser.add_argument("recording", type=Path)
    print(recorded(parser.parse_args().recording).to_string(index=False))
