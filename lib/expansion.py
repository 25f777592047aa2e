"""What the LLM wrote: hypotheses as a table, how many were valid, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.datasets import Question
from lib.llm.chat import REFERENCE, ChatModel, ledger
from lib.llm.recorder import RecordingMiss
from lib.methods.base import Method
from lib.parse import YES_NO, names_option
from lib.run import expand_all

_COSTS = ("calls", "prompt_tokens", "output_tokens")


def hypotheses(method: Method, questions: Sequence[Question], llm: ChatModel) -> pd.DataFrame:
    """One row per question: qid, H_plus, H_minus, repaired, cut, error, names_answer, replies.

    ``names_answer``: H+ has the right option's text as whole words. It is missing for yes/no
    questions, whose options are no names. A failed question has empty hypotheses and its error.
    """
    rows = []
    for question, expansion in zip(questions, expand_all(method, questions, llm), strict=True):
        row = {"qid": question.qid, "H_plus": "", "H_minus": ""} | expansion.trace
        right_option = question.options[question.answer]
        row["names_answer"] = None
        if right_option.lower() not in YES_NO:
            row["names_answer"] = names_option(row["H_plus"], right_option)
        rows.append(row)
    return pd.DataFrame(rows)


def by_set(
    method: Method, sets: Mapping[str, Sequence[Question]], llm: ChatModel
) -> dict[str, pd.DataFrame]:
    """``hypotheses`` of each question set; a set without a recording is reported as NOT RUN."""
    replies = {}
    for name, questions in sets.items():
        try:
            replies[name] = hypotheses(method, questions, llm)
        except RecordingMiss as miss:
            print(f"NOT RUN, {name}: {miss}")
    return replies


def validity(replies: Mapping[str, pd.DataFrame], author: str) -> pd.DataFrame:
    """Per question set: n, valid, repaired, cut, names_answer, calls, prompt_tokens, output_tokens.

    ``replies`` has a table of ``hypotheses`` for each set, and ``author`` is who wrote them.
    ``names_answer`` is a share, and the last three columns are sums, empty for reference text.
    Latency is left to the ledger: it is never the same twice.
    """
    rows = []
    for dataset, table in replies.items():
        row = {
            "dataset": dataset,
            "author": author,
            "n": len(table),
            "valid": int((table["error"] == "").sum()),
            "repaired": int(table["repaired"].sum()),
            "cut": int(table["cut"].sum()),
            "names_answer": table["names_answer"].dropna().mean(),
        }
        all_replies = [reply for of_question in table["replies"] for reply in of_question]
        cost = ledger(all_replies).sum(numeric_only=True)
        for name in _COSTS:
            row[name] = None if author == REFERENCE else cost[name]
        rows.append(row)
    return pd.DataFrame(rows)
