"""Your own writer: a reader's model writes H+ and H- for the same sample, beside the recorded one.

    export CHR_LLM_URL=... CHR_LLM_MODEL=...
    python -m tools.own_writer

Its passages may be others than those that were judged, so every row says which share of its top
five is. A passage that nobody judged counts as silent: with a small share the row is a lower bound.
A question for which the model wrote no hypotheses retrieves nothing, and counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import pandas as pd

from lib.base.paths import RECORDINGS
from lib.datasets import EXAMS, GROUPS, Question, load_real
from lib.embed import load_encoder
from lib.expansion import expand_all
from lib.llm.chat import ChatModel
from lib.llm.connect import connect
from lib.llm.recorder import Recorder
from lib.methods.base import Expansion
from lib.open_retriever import open_retriever
from lib.profiles import load_profile
from lib.run import Retriever
from lib.studies.real.arms import (
    BIOASQ_METRICS,
    JUDGED_P,
    OUTCOME_COLUMNS,
    Sample,
    exam_outcome,
    outcomes,
    searches,
)
from lib.studies.real.expansions import KINDS, recorded, written_for
from lib.studies.real.study import arm_table

SHOWN = ("hplus", "chr@0.4", "chr@1")
METRICS = ("supports_correct", "supports_wrong", "share_correct_at_5", "p_at_5", "judged_share")


def written_by(
    llm: ChatModel, questions: Sequence[Question], workers: int = 8
) -> dict[str, dict[str, Expansion]]:
    """A model's hypotheses, as ``written_for`` has the recorded ones; none are replaced."""
    method = KINDS["hypotheses"].method
    made = expand_all(method, questions, llm, workers=workers, progress=True)
    if failed := sum(one.request is None for one in made):
        print(
            f"{failed} of {len(made)} replies of {llm.name} could not be used. To ask for them "
            "once more: python -m tools.own_writer --again",
            file=sys.stderr,
        )
    return {"hypotheses": {q.qid: one for q, one in zip(questions, made, strict=True)}}


def ask_again(llm: Recorder, questions: Sequence[Question], workers: int = 8) -> None:
    """Ask once more for the hypotheses that could not be used of what is recorded."""
    made = written_by(llm, questions, workers)["hypotheses"]
    with llm.again() as once_more:
        written_by(once_more, [q for q in questions if made[q.qid].request is None], workers)


def beside_the_recorded(
    llm: ChatModel, questions: Sequence[Question], retriever: Retriever, workers: int = 8
) -> pd.DataFrame:
    """``SHOWN`` with either writer's texts: dataset, arm, metric, value, low, high, n, writer."""
    wanted = {name: search for name, search in searches().items() if name in SHOWN}
    parts = []
    for written in (
        written_for(questions, recorded(), retriever),
        written_by(llm, questions, workers),
    ):
        failed = [q for q in questions if written["hypotheses"][q.qid].request is None]
        found = outcomes(Sample(questions, written, retriever), dict.fromkeys(GROUPS, wanted))
        values = [table for table in (nothing_found(failed, SHOWN), found) if len(table)]
        parts.append(arm_table(pd.concat(values, ignore_index=True)))
    writers = ("recorded", llm.name)
    tables = [part.assign(writer=name) for part, name in zip(parts, writers, strict=True)]
    return pd.concat(tables, ignore_index=True)


def nothing_found(questions: Sequence[Question], arms: Sequence[str]) -> pd.DataFrame:
    """Outcomes, as ``outcomes`` has them, of questions for which these arms retrieved nothing."""
    rows = []
    for question in questions:
        found = dict.fromkeys((*BIOASQ_METRICS, JUDGED_P), 0.0)
        if question.dataset in EXAMS:
            found = exam_outcome(question, [], {})
        for arm in arms:
            rows += [(question.dataset, arm, question.qid, *outcome) for outcome in found.items()]
    return pd.DataFrame(rows, columns=OUTCOME_COLUMNS)


def main() -> None:
    """Command line: ask the model, record what it says, print both rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--profile", default="open")
    parser.add_argument("--questions", type=int, default=0, help="of each set; all if left out")
    parser.add_argument("--again", action="store_true", help="ask once more for what failed")
    given = parser.parse_args()
    profile = load_profile(given.profile)
    questions = load_real("test")
    if given.questions:
        sets = [*EXAMS, "bioasq"]
        own = {name: [q for q in questions if q.dataset == name] for name in sets}
        questions = [q for name in sets for q in own[name][: given.questions]]
    retriever = open_retriever(profile, load_encoder(profile.encoder, **profile.encoder_options))
    file = RECORDINGS / "live" / "own-writer.jsonl"
    if given.again:
        with Recorder(connect(), file) as llm:
            ask_again(llm, questions, profile.workers)
    with Recorder(connect(), file) as llm:
        table = beside_the_recorded(llm, questions, retriever, profile.workers)
    wide = table[table["metric"].isin(METRICS) & table["dataset"].isin(["exams", "bioasq"])]
    columns = ["dataset", "metric", "arm"]
    print(wide.pivot(index=columns, columns="writer", values="value").round(3).to_string())


if __name__ == "__main__":
    main()
