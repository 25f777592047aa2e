"""What contrast does to contradiction among real passages, and what filtering it would do.

The paper recommends to filter retrieved evidence by contradiction, and does not measure it. Here
the filter is the best that any could be, for it reads the judge's labels: of two passages of one
top five that disagree, the one ranked lower is removed, and nothing takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.data.judgments import Evidence, evidence, read_judgments
from lib.data.pair_judgments import Verdict
from lib.data.questions import Question
from lib.data.real import EXAMS, GROUPS, load_real
from lib.run import Retriever
from lib.stats import paired
from lib.studies.judged.sample import ARMS, REAL_QUESTIONS
from lib.studies.judged.tables import arms_table
from lib.studies.real.arms import arms_of
from lib.studies.real.measures import exam_outcome
from lib.studies.real.study import recorded
from lib.studies.real.written import runs_of, written_for

__all__ = ["contrast_tables", "filter_table", "filtered", "judged_runs"]

RULES = ("both passes", "any pass")
"""Which pairs are filtered: those of which both passes say that they disagree, or either."""

METRICS = (
    "supports_right_at_5",
    "supports_wrong_at_5",
    "hit_right",
    "misled",
)

Found = Mapping[tuple[str, str, str], Verdict]


def contrast_tables(found: Found, retriever: Retriever) -> dict[str, pd.DataFrame]:
    """``contradiction_arms`` (``arms_table``) and ``contradiction_filter`` (``filter_table``)."""
    questions, runs = judged_runs(retriever)
    return {
        "contradiction_arms": arms_table(found, runs),
        "contradiction_filter": filter_table(found, runs, questions, evidence(read_judgments())),
    }


def judged_runs(retriever: Retriever) -> tuple[list[Question], pd.DataFrame]:
    """The 60 judged questions, and what the judged arms retrieve for them (``RUN_COLUMNS``)."""
    asked = []
    for dataset in EXAMS:
        asked += [q for q in load_real("test") if q.dataset == dataset][:REAL_QUESTIONS]
    arms = [arm for arm in arms_of() if arm.name in ARMS]
    written = written_for(asked, recorded(), retriever)
    by_group = dict.fromkeys(GROUPS, []) | {"exams": arms}
    return asked, runs_of(asked, written, by_group, retriever)


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


def filter_table(
    found: Found,
    runs: pd.DataFrame,
    questions: Sequence[Question],
    judged: Mapping[tuple[str, str], Evidence],
) -> pd.DataFrame:
    """What the filter does to each arm's top five: is the right option still supported, the wrong?

    Columns: rule, arm, metric, before, value (after), difference, low, high, p, least, n
    (questions), touched (questions that lose a passage), removed (passages).
    """
    by_qid = {question.qid: question for question in questions}
    rows = []
    for rule in RULES:
        for arm in ARMS:
            own = runs[(runs["arm"] == arm) & (runs["rank"] <= 5)].sort_values("rank")
            before, after, removed = {}, {}, []
            for qid, pids in own.groupby("qid")["pid"].agg(list).items():
                stays = filtered(pids, qid, found, rule)
                removed.append(len(pids) - len(stays))
                before[qid] = exam_outcome(by_qid[qid], pids, judged)
                after[qid] = exam_outcome(by_qid[qid], stays, judged)
            was, then = (pd.DataFrame.from_dict(x, orient="index") for x in (before, after))
            for metric in METRICS:
                row = {"rule": rule, "arm": arm, "metric": metric, "before": was[metric].mean()}
                row |= {"value": then[metric].mean()} | paired(then[metric], was[metric])
                rows.append(row | {"touched": sum(map(bool, removed)), "removed": sum(removed)})
    return pd.DataFrame(rows)
