"""Rows of Table 1 that nobody read: always the commonest letter, and the option that H+ names."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.methods.base import Expansion
from lib.readers import Reader
from lib.studies.grid.experiment import NAMED, Experiment
from lib.studies.naming import named_option

__all__ = ["unread"]


def unread(experiment: Experiment, judge: Reader) -> list[pd.DataFrame]:
    """One table a set and kind, as the grid's answers; ``judge`` is a reader without an LLM."""
    out = []
    for d, questions in experiment.grid.sets.items():
        gold = pd.Series([q.answer for q in questions])
        own = experiment.grid.answers("hypotheses_as_context", d, judge)
        base = pd.DataFrame({"dataset": d, "qid": [q.qid for q in questions], "gold": gold})
        most = gold.mode()[0]
        out.append(base.assign(method="majority", letter=most, mirage=most))
        if own is not None:
            asked = experiment.grid.questions("chr", d)
            letters = dict(
                zip(
                    (q.qid for q in asked),
                    _named(asked, experiment.grid.expansions("chr", d), own),
                    strict=True,
                )
            )
            base = base[base["qid"].isin(letters)]
            named = base["qid"].map(letters)
            out.append(base.assign(method=NAMED, letter=named, mirage=named))
    return [table.assign(reader="no reader", rule="", documents_cut=0) for table in out]


def _named(questions: Sequence, expansions: Sequence[Expansion], judged: pd.DataFrame) -> list[str]:
    """The letter whose option alone stands in H+; else what the reader makes of H+ and H-.

    Yes and no are answers only where H+ begins with them. An expander that failed has no answer.
    """
    by_reader = dict(zip(judged["qid"], judged["letter"], strict=True))
    letters = []
    for q, e in zip(questions, expansions, strict=True):
        text = e.trace.get("H_plus", "")
        letters.append(named_option(text, q.options) or (by_reader.get(q.qid, "") if text else ""))
    return letters
