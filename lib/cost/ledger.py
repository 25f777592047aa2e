"""What a recording cost, by method and model.

python -m lib.cost.ledger data/recordings/live/paper.jsonl
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from lib.base.files import read_jsonl
from lib.llm.chat import Reply, ledger


def recorded(recording: Path) -> pd.DataFrame:
    """The ledger of a recording (see ``lib.llm.chat.ledger``), by method and the model asked for.

    A generation is charged to the method that asked for it first; other methods that need the same
    one reuse it at no cost.
    """
    beside = recording.with_suffix(".times.jsonl")
    times = {row["key"]: row for row in read_jsonl(beside)} if beside.exists() else {}
    replies = []
    for row in read_jsonl(recording):
        time = times.get(row["key"], {})
        latency, method = time.get("latency_s"), time.get("method", "")
        replies.append(Reply(**row["reply"], model=row["model"], latency_s=latency, method=method))
    return ledger(replies)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lib.cost.ledger")
    parser.add_argument("recording", type=Path)
    print(recorded(parser.parse_args().recording).to_string(index=False))
