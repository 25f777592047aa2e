"""Your own answerer: a reader's model answers the masked questions, beside the recorded one.

    export CHR_LLM_URL=... CHR_LLM_MODEL=...
    python -m tools.own_answerer [--questions N] [--arms hplus chr@1 ...]

It is asked the same requests as the recorded answerer: the same questions, passages and code names.
What it said is recorded in ``data/recordings/live``, and not asked again. A reply that cannot be
read counts as a guess, and the table says how many there were.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
from tqdm.auto import tqdm

from lib.base.paths import RECORDINGS
from lib.data.passages import Passage
from lib.datasets import Question
from lib.llm.chat import ChatModel
from lib.llm.connect import connect
from lib.llm.recorder import Recorder
from lib.profiles import load_profile
from lib.stats import mean_interval
from lib.studies.masked.answering import answer
from lib.studies.masked.study import Half, search_in, test_arms, test_lambdas
from lib.studies.masked.texts import recorded

ARMS = ("none", "question", "hyde", "hplus", "chr@0.4", "chr@1")
"""What is asked unless other arms are named."""

Item = tuple[str, Question, list[Passage]]


def answers_of(llm: ChatModel, items: Sequence[Item], workers: int = 8) -> pd.DataFrame:
    """What a model answers: arm, qid, metric, value, with ``unread`` among the metrics."""

    def one(item: Item) -> list[tuple]:
        arm, question, passages = item
        said = answer(question, passages, llm)
        values = said.metrics(question) | {"unread": float(not said.letter)}
        return [(arm, question.qid, metric, value) for metric, value in values.items()]

    with ThreadPoolExecutor(workers) as pool:
        made = list(tqdm(pool.map(one, items), total=len(items), desc=llm.name))
    rows = [row for rows in made for row in rows]
    return pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])


def beside_the_recorded(llm: ChatModel, items: Sequence[Item], workers: int = 8) -> pd.DataFrame:
    """Accuracy by arm of either answerer: arm, answerer, value, low, high, n, unread."""
    rows = []
    for name, model in (("recorded", recorded()), (llm.name, llm)):
        values = answers_of(model, items, workers)
        for arm, group in values.groupby("arm", sort=False):
            accuracy = group[group["metric"] == "accuracy"].sort_values("qid")["value"]
            value, low, high = mean_interval(accuracy.to_numpy())
            row = {"arm": arm, "answerer": name, "value": value, "low": low, "high": high}
            unread = group.loc[group["metric"] == "unread", "value"].sum()
            rows.append(row | {"n": len(accuracy), "unread": int(unread)})
    return pd.DataFrame(rows)


def main() -> None:
    """Ask the model, record what it says, print both rows."""
    parser = argparse.ArgumentParser(prog="python -m tools.own_answerer")
    parser.add_argument(
        "--questions",
        type=int,
        default=0,
        help="the first so many, MedQA's 150 before MMLU-Med's 60; 0 for all",
    )
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    given = parser.parse_args()
    if unknown := set(given.arms) - set(test_arms()):
        parser.error(f"no arm {min(unknown)!r}; there are: {', '.join(test_arms())}")
    model = connect()  # first: without a server nothing else has to be opened
    profile = load_profile("open")
    half = Half.open("test", search_in(profile), test_lambdas())
    asked = {q.qid for q in half.questions[: given.questions or None]}
    items = [it for it in half.shown() if it[0] in given.arms and it[1].qid in asked]
    with Recorder(model, RECORDINGS / "live" / "own-answerer.jsonl") as llm:
        table = beside_the_recorded(llm, items, profile.workers)
    print(table.round(3).to_string(index=False))
    if (table["unread"] > table["n"] / 2).any():
        print("More than half of the replies cannot be read: does the model think past 64 tokens?")


if __name__ == "__main__":
    main()
