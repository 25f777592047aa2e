"""A model in the physician's place: the paper's tiers, asked of any chat model, for larger runs."""

from __future__ import annotations

import pandas as pd

from lib.llm.chat import ChatModel, in_parallel
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.llm.replies import ask_json
from lib.studies.grid.experiment import Experiment
from lib.studies.mimics.items import expanded
from lib.studies.mimics.tier_statistics import TIERS

__all__ = ["GRADE", "judged"]

GRADE = {
    "type": "object",
    "properties": {"why": {"type": "string"}, "grade": {"enum": list(TIERS)}},
    "required": ["why", "grade"],
    "additionalProperties": False,
}
"""JSON schema of the judge's reply: the reason first, so that the grade follows from it."""


def judged(experiment: Experiment, llm: ChatModel, *, max_tokens: int = 200) -> pd.DataFrame:
    """The judge's grade of every question's H-: qid, grade, why, error, how.

    The judge sees the key, as the paper's physician did. ``grade`` is empty where there is none: a
    reply that stays broken (``error``), or a generation that nobody recorded (``how`` records it).
    """
    prompt = load_prompt("mimic_judge")

    def one(item: tuple) -> dict:
        _, q, expansion = item
        options = "\n".join(f"{x}. {o}" for x, o in sorted(q.options.items()))
        messages = prompt.messages(
            question=q.text,
            options=options,
            answer=f"{q.answer}. {q.options[q.answer]}",
            h_plus=expansion.trace["H_plus"],
            h_minus=expansion.trace["H_minus"],
        )
        row = {"qid": q.qid, "grade": "", "why": "", "error": "", "how": ""}
        try:
            with llm.tag(method="judge of mimics", qid=q.qid):
                reply = ask_json(llm, messages, GRADE, max_tokens=max_tokens)
        except RecordingMiss as miss:
            return row | {"how": str(miss).rsplit("Next: ", 1)[-1]}
        return row | {"error": reply.error} | (reply.value or {})

    return pd.DataFrame(in_parallel(one, expanded(experiment, "chr")))
