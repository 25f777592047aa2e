"""Single questions, found by a rule that was written down before anything was judged.

Of every kind it is the first question of each exam set, in the order of the hashes of the ids,
which nobody chose. A kind that has no question has no case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.data.judgments import Evidence
from lib.datasets import EXAMS, Question
from lib.methods.base import Expansion
from lib.studies.real.measures import TOP

KINDS: Mapping[str, tuple[tuple[str, str, float], ...]] = {
    "contrast finds the right option": (("hplus", "hit_right", 0), ("chr@1", "hit_right", 1)),
    "contrast loses the right option": (("hplus", "hit_right", 1), ("chr@1", "hit_right", 0)),
    "contrast rules a wrong option out": (("hplus", "misled", 1), ("chr@1", "misled", 0)),
    "contrast brings a wrong option in": (("hplus", "misled", 0), ("chr@1", "misled", 1)),
    "HyDE has it, contrast has not": (("hyde", "hit_right", 1), ("chr@1", "hit_right", 0)),
}
"""What must be true of a question to be a case of the kind: arm, metric, value. The last one is the
kind of the paper's Table 5."""

SHOWN = ("hplus", "chr@0.4", "chr@1", "hyde")


def case_counts(values: pd.DataFrame) -> pd.DataFrame:
    """How many questions are of each kind: kind, dataset, questions, n."""
    wide = _wide(values)
    rows = []
    for kind, wanted in KINDS.items():
        for dataset, own in wide.groupby(level="dataset"):
            rows.append((kind, dataset, int(_fits(own, wanted).sum()), len(own)))
    return pd.DataFrame(rows, columns=["kind", "dataset", "questions", "n"])


def case_table(
    questions: Sequence[Question],
    runs: pd.DataFrame,
    values: pd.DataFrame,
    judged: Mapping[tuple[str, str], Evidence],
) -> pd.DataFrame:
    """What ``SHOWN`` found for the case of each kind and set, by rank, with its labels.

    Columns: kind, dataset, qid, arm, rank, pid, on_topic, says: "right", "wrong", "both" or "".
    """
    wide = _wide(values)
    by_qid = {question.qid: question for question in questions}
    rows = []
    for kind, wanted in KINDS.items():
        fit = _fits(wide, wanted)
        for dataset in EXAMS:
            # ``questions`` come in the order of the hashes.
            found = [q.qid for q in questions if q.dataset == dataset and fit.get((dataset, q.qid))]
            for qid in found[:1]:
                own = runs[(runs["qid"] == qid) & runs["arm"].isin(SHOWN) & (runs["rank"] <= TOP)]
                for row in own.sort_values(["arm", "rank"]).itertuples():
                    about = judged.get((qid, row.pid))
                    says = "" if about is None else _says(about, by_qid[qid].answer)
                    topic = None if about is None else about.on_topic
                    rows.append((kind, dataset, qid, row.arm, row.rank, row.pid, topic, says))
    columns = ["kind", "dataset", "qid", "arm", "rank", "pid", "on_topic", "says"]
    return pd.DataFrame(rows, columns=columns)


def case_texts(cases: pd.DataFrame, hypotheses: Mapping[str, Expansion]) -> pd.DataFrame:
    """What was written about the question of each case: kind, dataset, qid, h_plus, h_minus.

    ``hypotheses`` are the writer's by question id.
    """
    table = cases[["kind", "dataset", "qid"]].drop_duplicates(ignore_index=True)
    for column, part in (("h_plus", "target"), ("h_minus", "mimic")):
        table[column] = [hypotheses[qid].request.of(part)[0].text for qid in table["qid"]]
    return table


def _wide(values: pd.DataFrame) -> pd.DataFrame:
    own = values[values["dataset"].isin(EXAMS) & values["metric"].isin(["hit_right", "misled"])]
    return own.pivot(index=["dataset", "qid"], columns=["arm", "metric"], values="value")


def _fits(wide: pd.DataFrame, wanted: Sequence[tuple[str, str, float]]) -> pd.Series:
    fits = pd.Series(True, index=wide.index)
    for arm, metric, value in wanted:
        fits &= wide[arm, metric] == value
    return fits


def _says(about: Evidence, answer: str) -> str:
    right, wrong = answer in about.supports, bool(about.supports - {answer})
    if right and wrong:
        return "both"
    return "right" if right else "wrong" if wrong else ""
