"""A model in the physician's place: the paper's tiers, asked of any chat model, for larger runs."""

from __future__ import annotations

import pandas as pd

from lib.datasets import Question
from lib.llm.chat import ChatModel, JsonReply, ask_json, in_parallel
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.studies.main_tables.experiment import Experiment
from lib.studies.mimics.items import expanded
from lib.studies.mimics.tier_statistics import TIERS

GRADE = {
    "type": "object",
    "properties": {"why": {"type": "string"}, "grade": {"enum": list(TIERS)}},
    "required": ["why", "grade"],
    "additionalProperties": False,
}
"""JSON schema of the judge's reply: the reason first, so that the grade follows from it."""


def grade_mimic(
    question: Question, h_plus: str, h_minus: str, llm: ChatModel, max_tokens: int = 200
) -> JsonReply:
    """The judge's reply on one mimic; the judge sees the key, as the paper's physician did."""
    options = "\n".join(f"{x}. {o}" for x, o in sorted(question.options.items()))
    messages = load_prompt("mimic_judge").messages(
        question=question.text,
        options=options,
        answer=f"{question.answer}. {question.options[question.answer]}",
        h_plus=h_plus,
        h_minus=h_minus,
    )
    return ask_json(llm, messages, GRADE, max_tokens=max_tokens)


def judged(experiment: Experiment, llm: ChatModel, *, max_tokens: int = 200) -> pd.DataFrame:
    """The judge's grade of every question's H-: qid, grade, why, error, how.

    ``grade`` is empty where there is none: a reply that stays broken (``error``), or a generation
    that nobody recorded (``how`` records it).
    """

    def one(item: tuple) -> dict:
        _, q, expansion = item
        row = {"qid": q.qid, "grade": "", "why": "", "error": "", "how": ""}
        try:
            with llm.tag(method="judge of mimics", qid=q.qid):
                trace = expansion.trace
                pair = trace["H_plus"], trace["H_minus"]
                reply = grade_mimic(q, *pair, llm, max_tokens)
        except RecordingMiss as miss:
            return row | {"how": str(miss).rsplit("Next: ", 1)[-1]}
        return row | {"error": reply.error} | (reply.value or {})

    rows = in_parallel(one, expanded(experiment, "chr"))
    return pd.DataFrame(rows, columns=["qid", "grade", "why", "error", "how"])
