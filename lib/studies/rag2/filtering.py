"""What filters do to retrieved passages: which they separate, which they keep and drop.

Candidates are what five arms found: the first ten passages on BioASQ's 618 questions, where the
experts' snippets are the truth, and the first five on the exam questions, where blind judging says
which option a passage supports. Nothing that was not judged is filtered there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.data.judgments import HELPFUL, Evidence, evidence, read_judgments
from lib.datasets import EXAMS, Question, load_real
from lib.methods.base import Request
from lib.methods.postprocess import shown
from lib.query_spec import Hypotheses, SearchSpec, Text
from lib.stats import Pair, auroc, auroc_interval, claims, long_values, measure, ratio_interval
from lib.studies.rag2.filters import FILTERS, KEEPS, cached_scores, lines_of
from lib.studies.rag2.heldout_eval import separation
from lib.studies.rag2.retrieval import Collection, rationale_in, without_verdicts
from lib.studies.real.arms import Sample, exam_outcome, runs_of
from lib.study import Arm, means, means_table, search_arm

ARMS = ("question", "rationale", "hplus", "chr@0.4", "chr@1")
"""Whose passages are filtered: the question's, RAG2's query's, and those of contrast."""

CROSSED = (0.4, 1.0)
"""Lambdas of contrast with the rationale as H+."""

FILTERED = ("cross-ppl-25", "head-ppl-25", "head-right", "cross-shuffled", "cosine")
"""Filters whose effect on outcomes is measured: RAG2's recipe, the same on vectors, labels by right
answers, shuffled labels, and cosine alone. All filters are compared with the known labels."""

K = 5
"""Passages that a reader is given: a filter drops some of these, and nothing takes their place."""

_DEPTH = {"bioasq": 10, "exams": 5}

_GROUPS = {
    "exams": (
        "medmcqa",
        ("supports_correct", "supports_wrong", "reads_right", "reads_right_or_guess"),
    ),
    "bioasq": ("bioasq", ("p_at_5",)),
}
"""Whose training pairs a group's lines are read from, and what is measured on it."""

_TRUTHS = {
    "is_gold": ("bioasq", "the experts gave it"),
    "right": ("exams", "it supports the right option"),
    "wrong": ("exams", "it supports a wrong option"),
}
"""What is known of a passage, by column: on which group, and in words."""

Judged = Mapping[tuple[str, str], Evidence]
Lines = Mapping[tuple[str, str], float]
"""The threshold by filter and one of ``KEEPS``."""


# outcomes -----------------------------------------------------------------------------------------


def candidates_of(
    questions: Sequence[Question],
    runs: pd.DataFrame,
    judged: Judged,
    gold: Mapping[str, frozenset[str]],
) -> pd.DataFrame:
    """The lists of ``ARMS`` with what is known of each passage.

    ``runs`` are ranked lists (``lib.studies.real.written.RUN_COLUMNS``). Columns: dataset (bioasq,
    medqa, mmlu), arm, qid, rank from 1, pid, given (the experts gave it; BioASQ), right, wrong (it
    supports the right option, a wrong one; exams).
    """
    answer_of = {question.qid: question.answer for question in questions}
    rows = []
    wanted = runs[runs["arm"].isin(ARMS)].sort_values(["dataset", "arm", "qid", "rank"])
    for row in wanted.itertuples():
        group = "exams" if row.dataset in EXAMS else "bioasq"
        known = judged.get((row.qid, row.pid))
        if row.rank > _DEPTH[group] or (group == "exams" and known is None):
            continue
        supports = known.supports if group == "exams" else frozenset()
        found = {"dataset": row.dataset, "arm": row.arm, "qid": row.qid, "rank": row.rank}
        found |= {"pid": row.pid, "is_gold": group == "bioasq" and row.pid in gold[row.qid]}
        answer = answer_of[row.qid]
        rows.append(found | {"right": answer in supports, "wrong": bool(supports - {answer})})
    return pd.DataFrame(rows)


def filter_outcomes(collection: Collection) -> pd.DataFrame:
    """Every passage that ``ARMS`` found, with its rank in each list and every filter's score.

    Columns: dataset, qid, pid, given, right, wrong (see ``candidates_of``), a score for each filter
    and a rank for each arm (missing where it did not find the passage). The pairs that a language
    model was asked about (``HELPFUL``) are rows of the dataset "helpful".
    """
    questions = load_real("test")
    runs = runs_of(Sample(questions, collection.written, collection.retriever), ARMS)
    lists = candidates_of(questions, runs, evidence(read_judgments()), collection.gold)
    ranks = lists.pivot(index=["qid", "pid"], columns="arm", values="rank").reset_index()
    pairs = lists[["dataset", "qid", "pid", *_TRUTHS]].drop_duplicates(["qid", "pid"])
    asked = _asked()[["qid", "pid"]].assign(dataset="helpful")
    asked["is_gold"] = [row.pid in collection.gold[row.qid] for row in asked.itertuples()]
    table = pd.concat([pairs.merge(ranks, on=["qid", "pid"]), asked], ignore_index=True)
    table = table.assign(**{name: table[name].fillna(False).astype(int) for name in _TRUTHS})
    by_qid = {question.qid: question for question in questions}
    texts = [(shown(by_qid[r.qid]), collection.texts[r.pid]) for r in table.itertuples()]
    scores = {name: cached_scores(judge, texts) for name, judge in collection.filters.items()}
    return table.assign(**scores)[["dataset", "qid", "pid", *_TRUTHS, *FILTERS, *sorted(ARMS)]]


def _asked() -> pd.DataFrame:
    """The pairs of ``HELPFUL``: qid, pid, helpful (what the language model said, 1.0 or 0.0)."""
    rows = pd.read_csv(HELPFUL, dtype={"qid": str, "pid": str, "helpful": float})
    return rows[["qid", "pid", "helpful"]]


def crossed_outcomes(collection: Collection) -> pd.DataFrame:
    """P@5 of contrast with the rationale as H+, on BioASQ's questions that have both.

    Columns arm ("rationale@<lambda>"), qid, metric, value, dataset.
    """
    written, gold = collection.written, collection.gold
    asked = [q.qid for q in load_real("test") if q.dataset == "bioasq"]
    mimics = {
        qid: written["hypotheses"][qid].request.of("mimic")
        for qid in asked
        if qid in written["rationale"]
    }
    both = {qid: mimic for qid, mimic in mimics.items() if mimic}
    parts = []
    for lam in CROSSED:

        def request(qid: str, _: int, lam: float = lam) -> Request:
            target = Text(rationale_in(written["rationale"][qid]), role="target")
            return Hypotheses((target, *both[qid]), SearchSpec(lam=lam))

        arm = Arm(f"rationale@{lam:g}", request)
        (found,) = search_arm(arm, both, collection.retriever, 10)
        measured = measure(found, {qid: gold[qid] for qid in both}, {})[["p_at_5"]]
        parts.append(long_values(arm.name, measured).assign(dataset="bioasq"))
    return pd.concat(parts, ignore_index=True)


# what follows -------------------------------------------------------------------------------------


def filter_tables(
    collection: Collection, scores: pd.DataFrame, crossed: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """What every filter tells apart and keeps, and what is found and read after ``FILTERED``.

    ``scores`` are ``filter_outcomes``, ``crossed`` ``crossed_outcomes``. ``rag2_filters`` is in the
    form of Table 1.
    """
    asked = scores[scores["dataset"] == "helpful"].merge(_asked(), on=["qid", "pid"])
    scores = scores[scores["dataset"] != "helpful"].astype(dict.fromkeys(_TRUTHS, bool))
    lists = scores.melt(["dataset", "qid", "pid", *_TRUTHS], ARMS, "arm", "rank").dropna()
    lists = lists.sort_values(["dataset", "arm", "qid", "rank"], ignore_index=True)
    questions = {question.qid: question for question in load_real("test")}
    judged = evidence(read_judgments())
    values, tested, kept = [], [], []
    for group, (trained_on, _) in _GROUPS.items():
        lines = lines_of(FILTERS, trained_on)
        few = {key: line for key, line in lines.items() if key[0] in FILTERED}
        found = lists[of_group(lists, group)]
        measured = values_after(found, scores, few, questions, judged).drop(columns="k")
        if group == "bioasq":
            measured = pd.concat([measured, crossed], ignore_index=True)
        else:
            # Stated for each set, and for the exams together.
            values.append(measured.assign(dataset=group))
            found = found[found["arm"].isin(("question", "rationale"))]
            ks = range(1, _DEPTH[group] + 1)
            read = values_after(found, scores, few, questions, judged, ks, READS)
            top_1 = claims(read[read["k"] == 1], _top_1_pairs(few)).assign(dataset=group)
        values.append(measured)
        tested.append(claims(measured, filter_pairs(few, group)).assign(dataset=group))
        kept.append(kept_table(scores[of_group(scores, group)], lines))
    return {
        "rag2_filters": _filters_table(pd.concat(values), collection.setup),
        "rag2_filters_claims": without_verdicts(*tested),
        "rag2_filters_auroc": auroc_table(scores, FILTERS),
        "rag2_filters_kept": pd.concat(kept, ignore_index=True),
        "rag2_filters_judge": judge_table(asked, lines_of(FILTERS, "bioasq")),
        "rag2_by_k": _by_k(read),
        "rag2_top_1": without_verdicts(top_1),
    }


def of_group(table: pd.DataFrame, group: str) -> pd.Series:
    """Which rows are of a group, "exams" (MedQA and MMLU-Med) or "bioasq"."""
    return table["dataset"].isin(EXAMS if group == "exams" else (group,))


READS = ("reads_right", "reads_right_or_guess", "emptied")
"""What the judged reader makes of the passages that are left."""


def values_after(
    lists: pd.DataFrame,
    scores: pd.DataFrame,
    lines: Lines,
    questions: Mapping[str, Question],
    judged: Judged,
    ks: Sequence[int] = (K,),
    metrics: Sequence[str] = (),
) -> pd.DataFrame:
    """Every outcome of every arm before and after each filter: dataset, arm, k, qid, metric, value.

    ``lists`` are ``candidates_of``; each is cut to k, then filtered. An arm after a filter is named
    "<arm> | <filter>, <keeps>"; with " (best kept)" behind it the best passage stays where none
    would, as for a reader that cannot do without. On exams outcomes are as
    ``lib.studies.real.measures.exam_outcome`` has them, on BioASQ ``p_at_5`` and others. ``kept``
    is the share that was left, ``emptied`` 1 where nothing was: a chat model would answer without
    documents there. ``metrics``: these alone.
    """
    score_of = scores.set_index(["qid", "pid"])
    parts = []
    for (dataset, arm), group in lists.groupby(["dataset", "arm"]):
        whole = {qid: rows["pid"].tolist() for qid, rows in group.groupby("qid")}
        given = set(group.loc[group["is_gold"], ["qid", "pid"]].itertuples(index=False, name=None))
        for k in ks:
            before = {qid: pids[:k] for qid, pids in whole.items()}
            for name, after in _after(before, score_of, lines):
                rows = {}
                for qid, pids in after.items():
                    row = {"kept": len(pids) / len(before[qid]), "emptied": float(not pids)}
                    if dataset in EXAMS:
                        row |= exam_outcome(questions[qid], pids, judged)
                        row.pop("judged_share")
                    else:
                        row |= _bioasq_outcome([(qid, pid) in given for pid in pids])
                    rows[qid] = row
                wide = pd.DataFrame.from_dict(rows, orient="index")
                long = long_values(f"{arm}{name}", wide[list(metrics)] if metrics else wide)
                parts.append(long.dropna(subset=["value"]).assign(dataset=dataset, k=k))
    return pd.concat(parts, ignore_index=True)[["dataset", "arm", "k", "qid", "metric", "value"]]


def _after(
    lists: Mapping[str, list[str]], score_of: pd.DataFrame, lines: Lines
) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """("", the lists), then for each line (its name, what is left of each list)."""
    yield "", lists
    for (filter_name, operating_point), threshold in lines.items():
        known = score_of[filter_name].to_dict()
        left = {
            qid: [pid for pid in pids if known[qid, pid] >= threshold]
            for qid, pids in lists.items()
        }
        yield f" | {filter_name}, {operating_point}", left
        best = {
            qid: left[qid] or [max(pids, key=lambda pid, qid=qid: known[qid, pid])]
            for qid, pids in lists.items()
        }
        yield f" | {filter_name}, {operating_point} (best kept)", best


def _bioasq_outcome(right: Sequence[bool]) -> dict[str, float]:
    row = {"p_at_5": sum(right) / K, "hit_at_5": float(any(right))}
    # Of what is left, the share that experts gave; a question of which nothing is left has none.
    return row | ({"precision_of_kept": sum(right) / len(right)} if right else {})


def filter_pairs(lines: Lines, group: str) -> list[Pair]:
    """Comparisons on a group: every arm after a filter with the same arm before; ``FILTERED[0]``,
    RAG2's recipe, with the others at the same threshold; the rationale with other queries."""
    recipe = FILTERED[0]
    _, metrics = _GROUPS[group]
    pairs = []
    for metric in metrics:
        for arm in ARMS:
            for name, operating_point in lines:
                after = f"{arm} | {name}, {operating_point}"
                pairs.append(Pair("what a filter changes", metric, after, arm))
        for name, operating_point in lines:
            if (recipe, operating_point) in lines and name != recipe:
                after, other = (f"question | {f}, {operating_point}" for f in (recipe, name))
                pairs.append(Pair("the recipe's filter against another", metric, after, other))
    for metric in metrics:
        pairs.append(Pair("the rationale against the question", metric, "rationale", "question"))
    if group == "bioasq":
        pairs.append(Pair("the rationale against H+", "p_at_5", "rationale", "hplus"))
        for lam in CROSSED:
            arm = f"rationale@{lam:g}"
            pairs.append(Pair("contrast with the rationale as H+", "p_at_5", arm, "rationale"))
            pairs.append(Pair("the rationale in place of H+", "p_at_5", arm, f"chr@{lam:g}"))
    return pairs


def _top_1_pairs(lines: Lines) -> list[Pair]:
    """RAG2's Table 3: one passage, found by the question; each filter compared with no filter."""
    return [
        Pair("a filter of one passage", metric, f"question | {name}, {operating_point}", "question")
        for name, operating_point in lines
        for metric in READS
    ]


def _filters_table(values: pd.DataFrame, setup: str) -> pd.DataFrame:
    table = means_table(values, f"{setup}, recorded texts, k = {K}")
    # Hypotheses were written with the options shown, and on exams every filter reads them.
    is_filtered = table["method"].str.contains(" | ", regex=False)
    sees_options = is_filtered & (table["dataset"] != "bioasq")
    return table.assign(options_visible=sees_options | ~table["method"].str.startswith("question"))


def _by_k(read: pd.DataFrame) -> pd.DataFrame:
    """RAG2's Figures 3 and A1: unfiltered, and after the recipe."""
    names = ("", *(f" | {FILTERED[0]}, {operating_point}" for operating_point in KEEPS))
    headline = read["arm"].isin([f"{arm}{name}" for arm in ARMS for name in names])
    return means(read[headline], ("dataset", "arm", "k", "metric"))


def auroc_table(scores: pd.DataFrame, filters: Sequence[str]) -> pd.DataFrame:
    """AUROC of each filter's score against each truth, a row each, resampled by question.

    Columns: dataset, filter, truth, and those of ``separation``.
    """
    rows = []
    for column, (group, truth) in _TRUTHS.items():
        pairs = scores[of_group(scores, group)]
        positive = pairs[column].to_numpy(bool)
        for name in filters:
            row = {"dataset": group, "filter": name, "truth": truth}
            rows.append(row | separation(positive, pairs[name].to_numpy(float), pairs["qid"]))
    return pd.DataFrame(rows)


def kept_table(scores: pd.DataFrame, lines: Lines) -> pd.DataFrame:
    """Which share of the passages of each kind is kept, by filter and line.

    ``scores`` are of one group. Columns: dataset (the group), filter, operating_point, kind,
    value, low, high, n. Kinds on BioASQ: given, not given; on exams: for the right option, for a
    wrong one alone, for none. Intervals resample questions.
    """
    bioasq, exams = of_group(scores, "bioasq"), of_group(scores, "exams")
    right, wrong, given = scores["right"], scores["wrong"], scores["is_gold"]
    kinds = {
        ("bioasq", "all"): bioasq,
        ("bioasq", "given"): bioasq & given,
        ("bioasq", "not given"): bioasq & ~given,
        ("exams", "all"): exams,
        ("exams", "for the right option"): exams & right,
        ("exams", "for a wrong option alone"): exams & wrong & ~right,
        ("exams", "for no option"): exams & ~wrong & ~right,
    }
    rows = []
    for (name, operating_point), threshold in lines.items():
        kept = scores[name] >= threshold
        for (group, kind), members in kinds.items():
            if members.any():
                by_question = kept[members].groupby(scores.loc[members, "qid"]).agg(["sum", "size"])
                value, low, high = ratio_interval(*by_question.to_numpy().T)
                row = {
                    "dataset": group,
                    "filter": name,
                    "operating_point": operating_point,
                    "kind": kind,
                }
                rows.append(row | {"value": value, "low": low, "high": high, "n": members.sum()})
    return pd.DataFrame(rows)


def judge_table(asked: pd.DataFrame, lines: Lines) -> pd.DataFrame:
    """The language model that was asked whether a passage helps, beside every filter.

    ``asked``: qid, given (truth: the experts gave the passage), helpful, and a score for each
    filter of ``lines``. Columns: filter, keeps, precision, recall, kept (all shares), auroc,
    auroc_low, auroc_high, n.
    """
    given = asked["is_gold"].to_numpy() == 1

    def against(column: str, threshold: float) -> dict[str, Any]:
        scores = asked[column].to_numpy(float)
        kept = scores >= threshold
        low, high = auroc_interval(given, scores, asked["qid"].tolist())
        return {
            "precision": given[kept].mean() if kept.any() else np.nan,
            "recall": kept[given].mean(),
            "kept": kept.mean(),
            "auroc": auroc(given, scores),
            "auroc_low": low,
            "auroc_high": high,
            "n": len(given),
        }

    rows = [{"filter": "a large language model", "operating_point": ""} | against("helpful", 0.5)]
    for (name, operating_point), threshold in lines.items():
        rows.append({"filter": name, "operating_point": operating_point} | against(name, threshold))
    return pd.DataFrame(rows)
