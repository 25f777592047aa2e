"""The texts of the real sample as expansions, and what they retrieve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib import study
from lib.datasets import GROUPS, Question
from lib.llm.chat import ChatModel, tag
from lib.llm.recorder import RecordingMiss
from lib.methods.base import Expansion, Request
from lib.query_spec import DRAWS
from lib.run import Retriever
from lib.studies.real.arms import Arm, bases_of
from lib.studies.real.texts import KINDS, questions_for, writers_of

DEPTH = 10
"""Passages retrieved: judging looks at five, nDCG at ten."""

RUN_COLUMNS = ("dataset", "arm", "draw", "qid", "rank", "pid")


def written_for(
    questions: Sequence[Question], llm: ChatModel, retriever: Retriever
) -> dict[str, dict[str, Expansion]]:
    """Expansions by kind and question id; a question whose text nobody recorded is missing."""
    found: dict[str, dict[str, Expansion]] = {}
    for name, kind in KINDS.items():
        made = found[name] = {}
        for question in questions_for(kind, questions):
            method = writers_of(kind, question)
            with tag(method=method.name, qid=question.qid):
                try:
                    made[question.qid] = method.expand(question, llm, retriever.search)
                except RecordingMiss:
                    continue
    return found


def runs_of(
    questions: Sequence[Question],
    written: Mapping[str, Mapping[str, Expansion]],
    arms: Mapping[str, Sequence[Arm]],
    retriever: Retriever,
) -> pd.DataFrame:
    """What every arm retrieves, columns ``RUN_COLUMNS``: ``DEPTH`` passages a question and draw.

    ``arms`` are those of each group of sets (``GROUPS``); strangers are drawn within a group. A
    question for which an arm has no text, or no direction to search in, has no rows there.
    """
    rows = []
    for group, sets in GROUPS.items():
        asked = [q for q in questions if q.dataset in sets]
        dataset_of = {q.qid: q.dataset for q in asked}
        bases = bases_of(asked, written, DRAWS)
        for arm in arms[group]:
            of = bases.get(arm.of, {})

            def request(qid: str, draw: int, arm: Arm = arm, of: Mapping = of) -> Request:
                return arm.request(of[qid], draw)

            searched = study.Arm(arm.name, request, arm.draws(group))
            for draw, found in enumerate(study.search_arm(searched, of, retriever, DEPTH)):
                rows += [
                    (dataset_of[qid], arm.name, draw, qid, rank, pid)
                    for qid, pids in found.items()
                    for rank, pid in enumerate(pids, 1)
                ]
    return pd.DataFrame(rows, columns=list(RUN_COLUMNS))
