"""Your own answerer: a reader's model answers the masked questions, beside the recorded one.

    export CHR_LLM_URL=... CHR_LLM_MODEL=...
    python -m tools.own_answerer [--questions N] [--arms hplus chr@1 ...]

It is asked the same requests as the recorded answerer: the same questions, passages and code names.
What it said is recorded in ``data/recordings/live``, and not asked again; its means are kept there,
and notebook 04 shows them. A reply that cannot be read counts as a guess, and is counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
from tqdm.auto import tqdm

from lib.base.files import atomic_write
from lib.base.paths import RECORDINGS
from lib.data.passages import Passage
from lib.datasets import Question
from lib.llm.chat import ChatModel
from lib.llm.connect import connect
from lib.llm.recorder import Recorder
from lib.profiles import load_profile
from lib.report import pivot
from lib.studies.masked.answering import answer
from lib.studies.masked.arms import NEIGHBOURS
from lib.studies.masked.grid import OWN
from lib.studies.masked.study import Half, both_sets, search_in, test_arms, test_lambdas
from lib.studies.masked.texts import recorded

ARMS = ("none", "question", "hyde", *NEIGHBOURS, "hplus", "chr@0.4", "chr@1")
"""What is asked unless other arms are named."""
SHOWN = ["accuracy", "right", "told", "unread"]

Item = tuple[str, Question, list[Passage]]


def answers_of(llm: ChatModel, items: Sequence[Item], workers: int = 8) -> pd.DataFrame:
    """What a model answers, as means: dataset, arm, metric, value, low, high, n, answerer.
    ``unread`` is among the metrics."""

    def one(item: Item) -> list[tuple]:
        arm, question, passages = item
        said = answer(question, passages, llm)
        values = said.metrics(question) | {"unread": float(not said.letter)}
        return [(question.dataset, arm, question.qid, *pair) for pair in values.items()]

    with ThreadPoolExecutor(workers) as pool:
        made = list(tqdm(pool.map(one, items), total=len(items), desc=llm.name))
    columns = ["dataset", "arm", "qid", "metric", "value"]
    values = pd.DataFrame([row for rows in made for row in rows], columns=columns)
    return both_sets(values).assign(answerer=llm.name)


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
        own = answers_of(llm, items, profile.workers)
    atomic_write(OWN, own.to_csv(index=False, lineterminator="\n"))
    beside = pd.concat([answers_of(recorded(), items, profile.workers), own])
    beside = beside[beside["dataset"] == "exams"]
    print(pivot(beside, ["arm", "answerer", "n"], "metric")[SHOWN].round(3).to_string())
    print("Notebook 04 now shows it beside the paper's Table 1.")
    if (beside.loc[beside["metric"] == "unread", "value"] > 0.5).any():
        print("More than half of the replies cannot be read: does the model think past 64 tokens?")


if __name__ == "__main__":
    main()
