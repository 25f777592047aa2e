"""What was written, measured before any result is read: lengths, repeats, validity, copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from lib.benchmarks.base import shared_ngrams
from lib.datasets import Question
from lib.methods.base import Expansion

COLUMNS = (
    "kind",
    "dataset",
    "questions",
    "texts",
    "words",
    "longest",
    "repeated",
    "invalid",
    "copied",
)
"""``words`` is the mean length; ``repeated`` counts texts that stand there more than once,
``invalid`` replies that gave no hypotheses, ``copied`` is the mean share of a text's 8-word
sequences that stand in its question or its options."""


def texts_table(
    questions: Sequence[Question], written: Mapping[str, Mapping[str, Expansion]]
) -> pd.DataFrame:
    """One row a kind and set, columns ``COLUMNS``; a kind that nobody wrote has no row."""
    rows = []
    for kind, expansions in written.items():
        for dataset in dict.fromkeys(q.dataset for q in questions):
            asked = [q for q in questions if q.dataset == dataset and q.qid in expansions]
            if not asked:
                continue
            texts = {q.qid: _own_texts(expansions[q.qid]) for q in asked}
            every = [text for own in texts.values() for text in own]
            lengths = [len(text.split()) for text in every]
            copied = [
                shared_ngrams(text, [q.text, *q.options.values()])
                for q in asked
                for text in texts[q.qid]
            ]
            counts = Counter(every)
            rows.append(
                {
                    "kind": kind,
                    "dataset": dataset,
                    "questions": len(asked),
                    "texts": len(every),
                    "words": _mean(lengths),
                    "longest": max(lengths, default=0),
                    "repeated": sum(n for n in counts.values() if n > 1),
                    "invalid": sum(expansions[q.qid].request is None for q in asked),
                    "copied": _mean(copied),
                }
            )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _own_texts(expansion: Expansion) -> list[str]:
    """The texts that were written for one question, without the question itself.

    A differential's H+ is another kind's, so that its mimics alone are counted; CSQE's extracts are
    quotes, and nobody's own.
    """
    trace = expansion.trace
    if "mimics" in trace:
        return list(trace["mimics"])
    if "H_plus" in trace:
        return [trace["H_plus"], trace["H_minus"]]
    rounds = [text for one in trace.get("rounds", ()) for text in one["texts"]]
    return [text for text in (*trace.get("passages", ()), *rounds) if text]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
