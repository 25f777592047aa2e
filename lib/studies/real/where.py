"""Where contrast gains or loses: the same paired difference on parts of the exam questions.

Parts are by what is known before anything is retrieved: the set, how alike H+ and H- are, whether
H+ is right, what the question asks for, whether its writer knows it by heart. All of it is
exploratory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.datasets import EXAMS, Question, asks_for_the_exception
from lib.methods.base import Expansion
from lib.run import Retriever
from lib.search.contrast import rotation
from lib.stats import Pair, claims

PAIRS = (("chr@0.4", "hplus"), ("chr@1", "hplus"))
"""The differences that are taken apart: arm, against."""

METRICS = ("hit_right", "misled", "supports_right_at_5")

_THIRDS = (1 / 3, 2 / 3)


def about_questions(
    questions: Sequence[Question],
    hypotheses: Mapping[str, Expansion],
    options_read: Mapping[str, str],
    known_by_heart: Mapping[str, bool],
    retriever: Retriever,
) -> pd.DataFrame:
    """What is known of each exam question before retrieval, index qid, a column for each kind of
    part: set, likeness, h_plus, asks_for, by_heart.

    ``options_read`` and ``known_by_heart`` are the probes' (see ``probes``), by question id.
    """
    exams = [q for q in questions if q.dataset in EXAMS and hypotheses[q.qid].request is not None]
    cosines = retriever.cosines([hypotheses[q.qid].request for q in exams])
    edges = np.quantile(cosines, _THIRDS)
    rows = []
    for question, c in zip(exams, cosines, strict=True):
        letter = options_read.get(question.qid, "")
        reading = "speaks for no option"
        if letter:
            reading = "right" if letter == question.answer else "wrong"
        known = {True: "known", False: "not known", None: "too short to tell"}
        rows.append(
            {
                "qid": question.qid,
                "set": question.dataset,
                "likeness": _third(c, edges),
                "h_plus": reading,
                "asks_for": "exception" if asks_for_the_exception(question) else "what fits",
                "by_heart": known[known_by_heart.get(question.qid)],
            }
        )
    return pd.DataFrame(rows).set_index("qid")


def _third(c: float, edges: np.ndarray) -> str:
    """In which third of the likenesses c stands, with how far contrast turns at its edge."""
    low, high = (f"{edge:.2f} (turned by {rotation(edge, 1.0):.0f}° at λ = 1)" for edge in edges)
    if c <= edges[0]:
        return f"1: c up to {low}"
    return f"2: c up to {high}" if c <= edges[1] else f"3: c above {high}"


def where_table(values: pd.DataFrame, about: pd.DataFrame) -> pd.DataFrame:
    """``PAIRS`` on every part of the questions: metric, arm, against, part, level, value,
    value_against, difference, low, high, n."""
    made = []
    for part in about.columns:
        for level, members in about.groupby(part, sort=True):
            own = values[values["qid"].isin(members.index)]
            pairs = [Pair("", metric, *pair) for metric in METRICS for pair in PAIRS]
            made.append(claims(own, pairs).assign(part=part, level=level))
    shown = ["metric", "arm", "against", "part", "level", "value", "value_against"]
    table = pd.concat(made, ignore_index=True)
    return table[[*shown, "difference", "low", "high", "n"]]
