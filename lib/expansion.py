"""What the LLM said: hypotheses as a table, how many were valid, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.data.questions import Question
from lib.llm.chat import REFERENCE, ChatModel, ledger
from lib.methods.base import Method
from lib.run import expand_all

__all__ = ["hypotheses", "validity"]


def hypotheses(method: Method, questions: Sequence[Question], llm: ChatModel) -> pd.DataFrame:
    """One row per question: qid, H_plus, H_minus, repaired, cut, error, names_answer, replies.

    ``names_answer``: H+ contains the right option's text (missing for yes/no questions, where every
    hypothesis would). A failed question has empty hypotheses and its error.
    """
    out = []
    for question, expansion in zip(questions, expand_all(method, questions, llm), strict=True):
        row = {"qid": question.qid, "H_plus": "", "H_minus": ""} | expansion.trace
        right = question.options[question.answer].lower()
        named = right in row["H_plus"].lower() if right not in ("yes", "no", "maybe") else None
        out.append(row | {"names_answer": named})
    return pd.DataFrame(out)


def validity(replies: Mapping[str, pd.DataFrame], author: str) -> pd.DataFrame:
    """Per question set: n, valid, repaired, cut, names_answer, calls, prompt_tokens, output_tokens.

    The last three are sums, empty for reference text. Latency is in the ledger: it varies.
    """
    out = []
    for dataset, table in replies.items():
        cost = ledger(r for row in table["replies"] for r in row).sum(numeric_only=True)
        free = author == REFERENCE
        out.append(
            {
                "dataset": dataset,
                "author": author,
                "n": len(table),
                "valid": int((table["error"] == "").sum()),
                "repaired": int(table["repaired"].sum()),
                "cut": int(table["cut"].sum()),
                "names_answer": table["names_answer"].dropna().mean(),
                **{
                    c: None if free else cost[c]
                    for c in ("calls", "prompt_tokens", "output_tokens")
                },
            }
        )
    return pd.DataFrame(out)
