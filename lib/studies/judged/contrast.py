"""What contrast does to contradiction among real passages, and what filtering it would do.

The paper recommends to filter retrieved evidence by contradiction, and does not measure it. Here
the filter is the best that any could be, for it reads the judge's labels: of two passages of one
top five that disagree, the one ranked lower is removed, and nothing takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.data.judgments import Evidence, Verdict, evidence, read_judgments
from lib.datasets import EXAMS, Question, load_real
from lib.run import Retriever
from lib.stats import paired
from lib.studies.judged.sample import ARMS, REAL_QUESTIONS
from lib.studies.judged.tables import pair_values
from lib.studies.real.arms import Sample, exam_outcome, runs_of
from lib.studies.real.expansions import recorded, written_for

RULES = ("both passes", "any pass")
"""Which pairs are filtered: those of which both passes say that they disagree, or either."""

METRICS = (
    "supports_right_at_5",
    "supports_wrong_at_5",
    "hit_right",
    "misled",
)

Found = Mapping[tuple[str, str, str], Verdict]


def contrast_values(found: Found, retriever: Retriever) -> pd.DataFrame:
    """``arm, qid, metric, value`` of the judged arms, before and after the filter.

    Of an arm the shares of its top five's pairs (``tables.pair_values``) and ``METRICS``; of
    "<arm> | <rule>" ``METRICS`` of what the filter leaves, and ``removed``, how many it takes.
    """
    questions, runs = judged_runs(retriever)
    judged = evidence(read_judgments())
    filtered_too = filter_values(found, runs, questions, judged)
    return pd.concat([pair_values(found, runs), filtered_too], ignore_index=True)


def judged_runs(retriever: Retriever) -> tuple[list[Question], pd.DataFrame]:
    """The 60 judged questions, and what the judged arms retrieve for them (``RUN_COLUMNS``)."""
    asked = []
    for dataset in EXAMS:
        asked += [q for q in load_real("test") if q.dataset == dataset][:REAL_QUESTIONS]
    written = written_for(asked, recorded(), retriever)
    return asked, runs_of(Sample(asked, written, retriever), ARMS)


def filtered(pids: Sequence[str], qid: str, found: Found, rule: str) -> list[str]:
    """A ranked list without every passage that disagrees with a better one that stays."""
    stays: list[str] = []
    for pid in pids:
        verdicts = [found.get((f"real/{qid}", *sorted((pid, better)))) for better in stays]
        if not any(verdict and _disagree(verdict, rule) for verdict in verdicts):
            stays.append(pid)
    return stays


def _disagree(verdict: Verdict, rule: str) -> bool:
    return verdict.disagree_any if rule == "any pass" else verdict.stance == "disagree"


def filter_values(
    found: Found,
    runs: pd.DataFrame,
    questions: Sequence[Question],
    judged: Mapping[tuple[str, str], Evidence],
) -> pd.DataFrame:
    """What each arm's top five supports, and what is left of it after the filter by each rule."""
    by_qid = {question.qid: question for question in questions}
    rows = []
    for arm in ARMS:
        own = runs[(runs["arm"] == arm) & (runs["rank"] <= 5)].sort_values("rank")
        for qid, pids in own.groupby("qid")["pid"].agg(list).items():
            outcome = exam_outcome(by_qid[qid], pids, judged)
            rows += [(arm, qid, metric, outcome[metric]) for metric in METRICS]
            for rule in RULES:
                stays = filtered(pids, qid, found, rule)
                outcome = exam_outcome(by_qid[qid], stays, judged)
                outcome |= {"removed": len(pids) - len(stays)}
                rows += [
                    (f"{arm} | {rule}", qid, metric, outcome[metric])
                    for metric in (*METRICS, "removed")
                ]
    return pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])


def filter_table(values: pd.DataFrame) -> pd.DataFrame:
    """What the filter does to each arm's top five: is the right option still supported, the wrong?

    ``values`` are ``filter_values``. Columns: rule, arm, metric, before, value (after), difference,
    low, high, n (questions), least, touched (questions that lose a passage), removed (passages).
    """
    by_qid = values.sort_values("qid").set_index("qid")
    of = {key: own["value"] for key, own in by_qid.groupby(["arm", "metric"])}
    rows = []
    for rule in RULES:
        for arm in ARMS:
            after = f"{arm} | {rule}"
            removed = of[after, "removed"]
            for metric in METRICS:
                was, then = of[arm, metric], of[after, metric]
                row = {"rule": rule, "arm": arm, "metric": metric, "before": was.mean()}
                row |= {"value": then.mean()} | paired(then, was)
                rows.append(row | {"touched": int((removed > 0).sum()), "removed": removed.sum()})
    return pd.DataFrame(rows).drop(columns="p")
