"""What the top five of every arm say: for the right option, for a wrong one, or on the topic.

On exam questions by blind judging, on BioASQ by the experts' snippets. One long table holds every
outcome, a row for a question: ``dataset, arm, qid, metric, value``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from lib.data.judgments import Evidence, read_option
from lib.datasets import EXAMS, Question
from lib.stats import measure

TOP = 5
ON_TOPIC = 2
"""From which label on a passage counts as on topic."""

EXAM_METRICS = (
    "supports_right_at_5",
    "supports_wrong_at_5",
    "on_topic_at_5",
    "hit_right",
    "misled",
    "hit_right_any",
    "misled_any",
    "reads_right",
    "reads_right_or_guess",
    "abstains",
    "judged_share",
)
"""Of a question's top five. ``..._any`` counts what a single pass said, too: the bound on the other
side. ``reads_right`` and ``abstains`` are the judged reader's (see ``read_option``), and
``reads_right_or_guess`` gives it chance where it abstains."""
BIOASQ_METRICS = ("p_at_5", "ndcg_at_10")

JUDGED_P = "p_at_5_snippets"
"""Precision in the condensed list (Sakai 2007): the share of the first five BioASQ snippets among
the ten passages found. Passages of other corpora were shown to no expert, and are left out; where
nothing else was found it is 0."""

POOL = "whole pool"
"""The arm that returns everything that any arm found: no ranking of it, and no arm to compare."""

OWN_ANSWER = "what H+ says"
MAJORITY = "majority"
"""Rows without retrieval: the option that H+ speaks for, and always the commonest letter."""

Judged = Mapping[tuple[str, str], Evidence]


def exam_outcome(question: Question, pids: Sequence[str], judged: Judged) -> dict[str, float]:
    """``EXAM_METRICS`` of one ranked list: shares of five places, and whether there is any.

    A place that is empty or unjudged says nothing and counts as a place all the same;
    ``judged_share`` tells how many of those that were filled were judged.
    """
    found = [judged.get((question.qid, pid)) for pid in pids[:TOP]]
    seen = [evidence for evidence in found if evidence is not None]
    right = sum(question.answer in evidence.supports for evidence in seen)
    wrong = sum(bool(evidence.supports - {question.answer}) for evidence in seen)
    on_topic = sum(evidence.on_topic >= ON_TOPIC for evidence in seen)
    said = frozenset[str]().union(*(evidence.supports_any for evidence in seen))
    option = read_option(found)
    values = (
        right / TOP,
        wrong / TOP,
        on_topic / TOP,
        right > 0,
        wrong > 0,
        question.answer in said,
        bool(said - {question.answer}),
        option == question.answer,
        1 / len(question.options) if option is None else option == question.answer,
        option is None,
        len(seen) / max(len(found), 1),
    )
    return dict(zip(EXAM_METRICS, map(float, values), strict=True))


def headroom(questions: Sequence[Question], judged: Judged) -> pd.DataFrame:
    """Whether anything in a question's whole pool supports the right option, or a wrong one.

    Outcomes as ``values_of`` has them, under the arm ``POOL``: what no ranking can exceed.
    """
    said: dict[str, set[str]] = {q.qid: set() for q in questions if q.dataset in EXAMS}
    for (qid, pid), evidence in judged.items():
        if qid in said and not pid.startswith("plant:"):
            said[qid] |= evidence.supports
    rows = []
    for question in questions:
        if question.dataset in EXAMS:
            letters = said[question.qid]
            for metric, value in (
                ("hit_right", question.answer in letters),
                ("misled", bool(letters - {question.answer})),
            ):
                rows.append((question.dataset, POOL, question.qid, metric, float(value)))
    return pd.DataFrame(rows, columns=["dataset", "arm", "qid", "metric", "value"])


def own_answers(questions: Sequence[Question], read: Mapping[str, str]) -> pd.DataFrame:
    """Whether the option that H+ speaks for is right, and whether the commonest letter is.

    ``read`` are letters by question id, empty where H+ speaks for none: wrong. Outcomes as
    ``values_of`` has them, metric ``reads_right``, of the questions in ``read``.
    """
    asked = [question for question in questions if question.qid in read]
    rows = []
    for dataset in dict.fromkeys(question.dataset for question in asked):
        own = [question for question in asked if question.dataset == dataset]
        commonest = Counter(sorted(question.answer for question in own)).most_common(1)[0][0]
        for question in own:
            for arm, letter in ((OWN_ANSWER, read[question.qid]), (MAJORITY, commonest)):
                right = float(letter == question.answer)
                rows.append((dataset, arm, question.qid, "reads_right", right))
    return pd.DataFrame(rows, columns=["dataset", "arm", "qid", "metric", "value"])


def _bioasq_outcomes(
    found: Mapping[str, Sequence[str]], targets: Mapping[str, frozenset[str]]
) -> pd.DataFrame:
    """``BIOASQ_METRICS`` and ``JUDGED_P`` of ranked lists, a row a question."""
    table = measure(found, targets, {}, TOP)[list(BIOASQ_METRICS)]
    condensed = {}
    for qid, pids in found.items():
        snippets = [pid for pid in pids if pid.startswith("bioasq:")][:TOP]
        condensed[qid] = sum(pid in targets[qid] for pid in snippets) / max(len(snippets), 1)
    return table.assign(**{JUDGED_P: pd.Series(condensed)})


def values_of(
    questions: Sequence[Question],
    runs: pd.DataFrame,
    judged: Judged,
    targets: Mapping[str, frozenset[str]],
) -> pd.DataFrame:
    """Every outcome of every arm (columns dataset, arm, qid, metric, value).

    ``runs`` are ranked lists (``written.RUN_COLUMNS``), ``targets`` the passages that the experts
    gave, by BioASQ question. What was drawn several times has the mean of its draws.
    """
    by_qid = {question.qid: question for question in questions}
    rows = []
    ordered = runs.sort_values("rank")
    for (dataset, arm), own in ordered.groupby(["dataset", "arm"], sort=True):
        tables = []
        for _, drawn in own.groupby("draw"):
            found = drawn.groupby("qid")["pid"].agg(list).to_dict()
            if dataset in EXAMS:
                made = {qid: exam_outcome(by_qid[qid], pids, judged) for qid, pids in found.items()}
                tables.append(pd.DataFrame.from_dict(made, orient="index"))
            else:
                tables.append(_bioasq_outcomes(found, {qid: targets[qid] for qid in found}))
        mean = pd.concat(tables).groupby(level=0).mean().rename_axis("qid")
        long = mean.reset_index().melt("qid", var_name="metric")
        rows.append(long.assign(dataset=dataset, arm=arm))
    return pd.concat(rows, ignore_index=True)[["dataset", "arm", "qid", "metric", "value"]]
