"""What filters do to the passages that were found: whom they tell apart, what they keep and drop.

Candidates are what five arms found: the first ten passages on BioASQ's 618 questions, where the
experts' snippets are the truth, and the first five on the exam questions, where blind judging says
which option a passage supports. Nothing that was not judged is filtered there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lib.base.files import atomic_write, canonical_json, sha256_bytes
from lib.base.paths import cache
from lib.data.judgments import Evidence
from lib.datasets import EXAMS, Question
from lib.methods.postprocess import shown
from lib.stats import Pair, mean_interval, ratio_interval
from lib.studies.rag2.filters import Filter
from lib.studies.rag2.separation import separation
from lib.studies.real.arms import exam_outcome

ARMS = ("question", "rationale", "hplus", "chr@0.4", "chr@1")
"""Whose passages are filtered: the question's, RAG2's query's, and those of contrast."""

_DEPTH = {"bioasq": 10, "exams": 5}

K = 5
"""Passages that a reader is given: a filter drops some of these, and nothing takes their place."""

KEEPS = ("likelier than not", "as 25 % of training", "as 5 % of training")
"""Where a filter draws the line: at probability .5, as RAG2 does, or at the score that keeps a
quarter, or a twentieth, of the pairs that it was trained on."""


@dataclass(frozen=True)
class Candidates:
    """Ranked lists with what is known of each passage, columns ``COLUMNS`` of ``table``.

    ``table``: dataset (bioasq, medqa, mmlu), arm, qid, rank from 1, pid, given (the experts gave
    it; BioASQ), right, wrong (it supports the right option, a wrong one; exams).
    """

    questions: Mapping[str, Question]
    table: pd.DataFrame
    judged: Mapping[tuple[str, str], Evidence]

    @classmethod
    def of(
        cls,
        questions: Sequence[Question],
        runs: pd.DataFrame,
        judged: Mapping[tuple[str, str], Evidence],
        targets: Mapping[str, frozenset[str]],
    ) -> Candidates:
        """From ranked lists (``lib.studies.real.arms.RUN_COLUMNS``), those of ``ARMS``."""
        by_qid = {question.qid: question for question in questions}
        rows = []
        wanted = runs[runs["arm"].isin(ARMS)].sort_values(["dataset", "arm", "qid", "rank"])
        for row in wanted.itertuples():
            group = "exams" if row.dataset in EXAMS else "bioasq"
            known = judged.get((row.qid, row.pid))
            if row.rank > _DEPTH[group] or (group == "exams" and known is None):
                continue
            supports = known.supports if known and group == "exams" else frozenset()
            answer = by_qid[row.qid].answer
            rows.append(
                {
                    "dataset": row.dataset,
                    "arm": row.arm,
                    "qid": row.qid,
                    "rank": row.rank,
                    "pid": row.pid,
                    "given": group == "bioasq" and row.pid in targets[row.qid],
                    "right": answer in supports,
                    "wrong": bool(supports - {answer}),
                }
            )
        return cls(by_qid, pd.DataFrame(rows), judged)

    def of_group(self, group: str) -> Candidates:
        """The lists of one group: "exams" or "bioasq"."""
        return replace(self, table=self.table[of_group(self.table, group)])

    @property
    def pairs(self) -> pd.DataFrame:
        """Each question and passage once: dataset, qid, pid, given, right, wrong."""
        columns = ["dataset", "qid", "pid", "given", "right", "wrong"]
        return self.table[columns].drop_duplicates(["qid", "pid"]).reset_index(drop=True)


def cached_scores(judge: Filter, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """``judge.scores(pairs)``, kept in the cache under the filter's fingerprint and the pairs."""
    key = sha256_bytes(canonical_json([judge.fingerprint, list(pairs)]).encode())[:24]
    file = cache("rag2") / f"{key}.txt"
    if file.is_file():
        lines = file.read_text(encoding="utf-8").splitlines()
        if len(lines) == len(pairs) + 1 and lines[-1] == "end":
            return np.array([float.fromhex(line) for line in lines[:-1]])
    scores = np.asarray(judge.scores(pairs), dtype=float)
    if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
        raise ValueError(f"the filter {judge.name} gave {scores.shape} scores, or no numbers")
    atomic_write(file, "\n".join([*(float(s).hex() for s in scores), "end"]) + "\n")
    return scores


def score_candidates(
    candidates: Candidates, texts: Mapping[str, str], filters: Mapping[str, Filter]
) -> pd.DataFrame:
    """``candidates.pairs`` with a column for each filter's score; ``texts`` by passage id."""
    pairs = candidates.pairs
    read = [(shown(candidates.questions[row.qid]), texts[row.pid]) for row in pairs.itertuples()]
    return pairs.assign(**{name: cached_scores(judge, read) for name, judge in filters.items()})


# whom they tell apart -----------------------------------------------------------------------------

_TRUTHS = (
    ("bioasq", "given", "the experts gave it"),
    ("exams", "right", "it supports the right option"),
    ("exams", "wrong", "it supports a wrong option"),
)


def tells_apart(scores: pd.DataFrame, filters: Sequence[str]) -> pd.DataFrame:
    """AUROC of each filter's score against each truth, a row each, resampled by question.

    Columns: dataset, filter, truth, and those of ``separation``.
    """
    rows = []
    for dataset, column, truth in _TRUTHS:
        own = scores[of_group(scores, dataset)]
        positive = own[column].to_numpy(bool)
        for name in filters:
            values = own[name].to_numpy(float)
            row = {"dataset": dataset, "filter": name, "truth": truth}
            rows.append(row | separation(positive, values, own["qid"]))
    return pd.DataFrame(rows)


def of_group(table: pd.DataFrame, group: str) -> pd.Series:
    """Which rows are of a group, "exams" (MedQA and MMLU-Med) or "bioasq"."""
    return table["dataset"].isin(EXAMS if group == "exams" else (group,))


# what they keep -----------------------------------------------------------------------------------


def kept_table(scores: pd.DataFrame, thresholds: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Which share of the passages of each kind is kept, by filter and line.

    ``scores`` are of one group, ``thresholds`` by (filter, one of ``KEEPS``). Columns: dataset,
    filter, keeps, kind, value, low, high, n. Kinds on BioASQ: given, not given; on exams: for the
    right option, for a wrong one alone, for none. Intervals resample questions.
    """
    rows = []
    for (name, keeps), threshold in thresholds.items():
        kept = scores[name] >= threshold
        for dataset, kinds in _kinds(scores).items():
            for kind, members in kinds.items():
                if not members.any():
                    continue
                value, low, high = _share(kept[members], scores.loc[members, "qid"])
                row = {"dataset": dataset, "filter": name, "keeps": keeps, "kind": kind}
                rows.append(row | {"value": value, "low": low, "high": high, "n": members.sum()})
    return pd.DataFrame(rows)


def _kinds(scores: pd.DataFrame) -> dict[str, dict[str, pd.Series]]:
    bioasq, exams = of_group(scores, "bioasq"), of_group(scores, "exams")
    right, wrong, given = (scores[name].astype(bool) for name in ("right", "wrong", "given"))
    return {
        "bioasq": {"all": bioasq, "given": bioasq & given, "not given": bioasq & ~given},
        "exams": {
            "all": exams,
            "for the right option": exams & right,
            "for a wrong option alone": exams & wrong & ~right,
            "for no option": exams & ~wrong & ~right,
        },
    }


def _share(kept: pd.Series, qids: pd.Series) -> tuple[float, float, float]:
    """The share of pairs that are kept, and its 95 % interval over questions."""
    by_question = kept.groupby(qids).agg(["sum", "size"]).sort_index()
    return ratio_interval(by_question["sum"].to_numpy(), by_question["size"].to_numpy())


# what is left -------------------------------------------------------------------------------------


def filtered_values(
    candidates: Candidates,
    scores: pd.DataFrame,
    thresholds: Mapping[tuple[str, str], float],
) -> pd.DataFrame:
    """Every outcome of every arm before and after each filter.

    Columns dataset, arm, qid, metric, value. An arm after a filter is named
    "<arm> | <filter>, <keeps>". The list is cut to ``K``, then filtered. On exams outcomes are as
    ``lib.studies.real.arms.exam_outcome`` has them, on BioASQ ``p_at_5`` and others. ``kept``
    is the share that was left, ``emptied`` 1 where nothing was: a chat model would answer without
    documents there. With " (best kept)" behind the name the best passage stays instead, as for a
    reader that cannot.
    """
    score_of = scores.set_index(["qid", "pid"])
    table = candidates.table
    parts = []
    for (dataset, arm), own in table.groupby(["dataset", "arm"], sort=True):
        lists = {qid: rows["pid"].tolist()[:K] for qid, rows in own.groupby("qid")}
        given = {qid: set(rows.loc[rows["given"], "pid"]) for qid, rows in own.groupby("qid")}
        for name, left in _after(lists, score_of, thresholds):
            outcomes = {
                qid: _outcome(candidates, dataset, qid, pids, len(lists[qid]), given[qid])
                for qid, pids in left.items()
            }
            wide = pd.DataFrame.from_dict(outcomes, orient="index").rename_axis("qid")
            long = wide.reset_index().melt("qid", var_name="metric").dropna(subset=["value"])
            parts.append(long.assign(dataset=dataset, arm=f"{arm}{name}"))
    return pd.concat(parts, ignore_index=True)[["dataset", "arm", "qid", "metric", "value"]]


def _after(
    lists: Mapping[str, list[str]],
    score_of: pd.DataFrame,
    thresholds: Mapping[tuple[str, str], float],
):
    """("", the lists), then for each threshold (its name, what is left of each list)."""
    yield "", lists
    for (filter_name, keeps), threshold in thresholds.items():
        known = score_of[filter_name].to_dict()
        left = {
            qid: [pid for pid in pids if known[qid, pid] >= threshold]
            for qid, pids in lists.items()
        }
        yield f" | {filter_name}, {keeps}", left
        best = {
            qid: left[qid] or [max(pids, key=lambda pid, qid=qid: known[qid, pid])]
            for qid, pids in lists.items()
        }
        yield f" | {filter_name}, {keeps} (best kept)", best


def _outcome(
    candidates: Candidates,
    dataset: str,
    qid: str,
    pids: Sequence[str],
    found: int,
    given: set[str],
) -> dict[str, float]:
    row = {"kept": len(pids) / found, "emptied": float(not pids)}
    if dataset in EXAMS:
        measured = exam_outcome(candidates.questions[qid], pids, candidates.judged)
        return row | {name: value for name, value in measured.items() if name != "judged_share"}
    right = [pid in given for pid in pids]
    row |= {"p_at_5": sum(right) / K, "hit_at_5": float(any(right))}
    # Of what is left, the share that experts gave; a question of which nothing is left has none.
    return row | ({"precision_of_kept": sum(right) / len(right)} if right else {})


def reading_values(
    candidates: Candidates, scores: pd.DataFrame, thresholds: Mapping[tuple[str, str], float]
) -> pd.DataFrame:
    """What the judged reader makes of the first k passages.

    Columns dataset, arm, k, qid, metric, value. RAG2's Figures 3 and A1, and at k = 1 its Table 3:
    the first k passages of an exam question, and what each filter leaves of them. Arms are the
    question's and the rationale's; metrics ``reads_right``, ``reads_right_or_guess`` and
    ``emptied``: nothing was left, so the reader can only guess.
    """
    score_of = scores.set_index(["qid", "pid"])
    rows = []
    table = candidates.table
    table = table[table["arm"].isin(("question", "rationale")) & table["dataset"].isin(EXAMS)]
    for (dataset, arm), own in table.groupby(["dataset", "arm"], sort=True):
        lists = {qid: part["pid"].tolist() for qid, part in own.groupby("qid")}
        for k in range(1, _DEPTH["exams"] + 1):
            short = {qid: pids[:k] for qid, pids in lists.items()}
            for name, left in _after(short, score_of, thresholds):
                for qid, pids in left.items():
                    outcome = exam_outcome(candidates.questions[qid], pids, candidates.judged)
                    told = {m: outcome[m] for m in ("reads_right", "reads_right_or_guess")}
                    for metric, value in (told | {"emptied": float(not pids)}).items():
                        rows.append((dataset, f"{arm}{name}", k, qid, metric, value))
    return pd.DataFrame(rows, columns=["dataset", "arm", "k", "qid", "metric", "value"])


def by_k(values: pd.DataFrame) -> pd.DataFrame:
    """``reading_values`` as means with their intervals: dataset, arm, k, metric, value, ..., n."""
    rows = []
    for key, own in values.groupby(["dataset", "arm", "k", "metric"], sort=False):
        value, low, high = mean_interval(own.sort_values("qid")["value"].to_numpy())
        row = dict(zip(("dataset", "arm", "k", "metric"), key, strict=True))
        rows.append(row | {"value": value, "low": low, "high": high, "n": len(own)})
    return pd.DataFrame(rows)


def filter_pairs(
    thresholds: Mapping[tuple[str, str], float], headline: str, metrics: Sequence[str]
) -> list[Pair]:
    """What is compared on these metrics: every arm after a filter with itself before; and
    ``headline``, the filter that RAG2's recipe gives, with the others at the same line."""
    pairs = []
    for metric in metrics:
        for arm in ARMS:
            for name, keeps in thresholds:
                after = f"{arm} | {name}, {keeps}"
                pairs.append(Pair("what a filter changes", metric, after, arm))
        for name, keeps in thresholds:
            if (headline, keeps) in thresholds and name != headline:
                after, other = (f"question | {f}, {keeps}" for f in (headline, name))
                pairs.append(Pair("the recipe's filter against another", metric, after, other))
    return pairs
