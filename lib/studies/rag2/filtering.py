"""What filters do to retrieved passages: which they separate, which they keep and drop.

Candidates are what five arms found: the first ten passages on BioASQ's 618 questions, where the
experts' snippets are the truth, and the first five on the exam questions, where blind judging says
which option a passage supports. Nothing that was not judged is filtered there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lib.data.judgments import HELPFUL
from lib.datasets import EXAMS
from lib.methods.postprocess import shown
from lib.query_spec import Hypotheses, Request, SearchSpec, Text
from lib.stats import Pair, auroc, auroc_interval, claims, long_values, measure, ratio_interval
from lib.studies.rag2.filters import FILTERS, KEEPS, lines_of
from lib.studies.rag2.heldout_eval import separations
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

RECIPE = FILTERED[0]

K = 5
"""Passages that a reader is given: a filter drops some of these, and nothing takes their place."""

METRICS = {
    "exams": ("supports_correct", "supports_wrong", "reads_right", "reads_right_or_guess"),
    "bioasq": ("p_at_5",),
}
"""What is measured of what a filter leaves."""

READS = ("reads_right", "reads_right_or_guess", "emptied")
"""What the judged reader makes of the passages that are left."""

TRUTHS = {
    "is_gold": ("bioasq", "the experts gave it"),
    "right": ("exams", "it supports the right option"),
    "wrong": ("exams", "it supports a wrong option"),
}
"""What is known of a passage, by column: on which questions, and in words."""

Lines = Mapping[tuple[str, str], float]
"""The threshold by filter and one of ``KEEPS``."""


# outcomes -----------------------------------------------------------------------------------------


def candidates_of(sample: Sample, runs: pd.DataFrame) -> pd.DataFrame:
    """The lists of ``ARMS`` with what is known of each passage.

    ``runs`` are ranked lists (``lib.studies.real.arms.RUN_COLUMNS``). Columns: dataset (bioasq,
    medqa, mmlu), arm, qid, rank from 1, pid, is_gold (the experts gave it; BioASQ), right, wrong
    (it supports the right option, a wrong one; exams).
    """
    rows = []
    wanted = runs[runs["arm"].isin(ARMS)].sort_values(["dataset", "arm", "qid", "rank"])
    for row in wanted.itertuples():
        found = {"dataset": row.dataset, "arm": row.arm, "qid": row.qid, "rank": row.rank}
        found |= {"pid": row.pid, "is_gold": False, "right": False, "wrong": False}
        if row.dataset in EXAMS:
            known = sample.judged.get((row.qid, row.pid))
            if row.rank > K or known is None:
                continue
            answer = sample.by_qid[row.qid].answer
            found["right"] = answer in known.supports
            found["wrong"] = bool(known.supports - {answer})
        else:
            found["is_gold"] = row.pid in sample.experts[row.qid]
        rows.append(found)
    return pd.DataFrame(rows)


def filter_outcomes(collection: Collection) -> pd.DataFrame:
    """Every passage that ``ARMS`` found, with its rank in each list and every filter's score.

    Columns: dataset, qid, pid, is_gold, right, wrong (see ``candidates_of``), a score for each
    filter and a rank for each arm (missing where it did not find the passage). The pairs that a
    language model was asked about (``HELPFUL``) are rows of the dataset "helpful".
    """
    sample = collection.sample
    runs = runs_of(replace(sample, written=collection.written), ARMS)
    lists = candidates_of(sample, runs)
    ranks = lists.pivot(index=["qid", "pid"], columns="arm", values="rank").reset_index()
    pairs = lists[["dataset", "qid", "pid", *TRUTHS]].drop_duplicates(["qid", "pid"])
    asked = _asked()[["qid", "pid"]].assign(dataset="helpful", right=False, wrong=False)
    asked["is_gold"] = collection.is_gold(asked)
    table = pd.concat([pairs.merge(ranks, on=["qid", "pid"]), asked], ignore_index=True)
    table = table.astype(dict.fromkeys(TRUTHS, int))
    texts = [
        (shown(sample.by_qid[qid]), collection.texts[pid])
        for qid, pid in zip(table["qid"], table["pid"], strict=True)
    ]
    table = table.assign(**collection.scores(texts))
    return table[["dataset", "qid", "pid", *TRUTHS, *FILTERS, *sorted(ARMS)]]


def _asked() -> pd.DataFrame:
    """The pairs of ``HELPFUL``: qid, pid, helpful (what the language model said, 1.0 or 0.0)."""
    rows = pd.read_csv(HELPFUL, dtype={"qid": str, "pid": str, "helpful": float})
    return rows[["qid", "pid", "helpful"]]


def crossed_outcomes(collection: Collection) -> pd.DataFrame:
    """P@5 of contrast with the rationale as H+, on BioASQ's questions that have both.

    Columns arm ("rationale@<lambda>"), qid, metric, value, dataset.
    """
    sample = collection.sample
    rationales, hypotheses = collection.written["rationale"], collection.written["hypotheses"]
    mimics = {
        question.qid: hypotheses[question.qid].request.of("mimic")
        for question in sample.questions
        if question.dataset == "bioasq" and question.qid in rationales
    }
    mimics = {qid: texts for qid, texts in mimics.items() if texts}
    gold = {qid: sample.experts[qid] for qid in mimics}
    parts = []
    for lam in CROSSED:

        def request(qid: str, _: int, lam: float = lam) -> Request:
            target = Text(rationale_in(rationales[qid]), role="target")
            return Hypotheses((target, *mimics[qid]), SearchSpec(lam=lam))

        arm = Arm(f"rationale@{lam:g}", request)
        (found,) = search_arm(arm, mimics, collection.retriever, 10)
        measured = measure(found, gold, {})[["p_at_5"]]
        parts.append(long_values(arm.name, measured).assign(dataset="bioasq"))
    return pd.concat(parts, ignore_index=True)


# what follows -------------------------------------------------------------------------------------


def filter_tables(
    collection: Collection, scores: pd.DataFrame, crossed: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """What every filter tells apart and keeps, and what is found and read after ``FILTERED``.

    ``scores`` are ``filter_outcomes``, ``crossed`` ``crossed_outcomes``. ``rag2_filters`` is in the
    form of Table 1. MedMCQA's training pairs stand for the exams'.
    """
    asked = scores[scores["dataset"] == "helpful"].merge(_asked(), on=["qid", "pid"])
    pairs = scores[scores["dataset"] != "helpful"].astype(dict.fromkeys(TRUTHS, bool))
    lists = pairs.melt(["dataset", "qid", "pid", *TRUTHS], ARMS, "arm", "rank").dropna()
    lists = lists.sort_values(["dataset", "arm", "qid", "rank"], ignore_index=True)
    lines = {"exams": lines_of(FILTERS, "medmcqa"), "bioasq": lines_of(FILTERS, "bioasq")}
    few = {
        group: {key: line for key, line in every.items() if key[0] in FILTERED}
        for group, every in lines.items()
    }

    def after(group: str, arms: Sequence[str] = ARMS, **options: Any) -> pd.DataFrame:
        found = lists[of_group(lists, group) & lists["arm"].isin(arms)]
        return values_after(collection.sample, found, pairs, few[group], **options)

    exams, bioasq = (after(group).drop(columns="k") for group in lines)
    bioasq = pd.concat([bioasq, crossed], ignore_index=True)
    read = after("exams", ("question", "rationale"), ks=range(1, K + 1), metrics=READS)
    # Stated for each set, and for the exams together.
    values = pd.concat([exams.assign(dataset="exams"), exams, bioasq])
    tested = [
        claims(measured, filter_pairs(few[group], group)).assign(dataset=group)
        for group, measured in (("exams", exams), ("bioasq", bioasq))
    ]
    top_1 = claims(read[read["k"] == 1], _top_1_pairs(few["exams"])).assign(dataset="exams")
    truths = [
        ({"dataset": group, "truth": truth}, pairs[of_group(pairs, group)], column)
        for column, (group, truth) in TRUTHS.items()
    ]
    auroc = separations(truths, FILTERS).set_index(["dataset", "filter", "truth"])
    kept = [kept_table(pairs[of_group(pairs, group)], lines[group], group) for group in lines]
    return {
        "rag2_filters": _filters_table(values, collection.setup),
        "rag2_filters_claims": without_verdicts(*tested),
        "rag2_filters_auroc": auroc.reset_index(),
        "rag2_filters_kept": pd.concat(kept, ignore_index=True),
        "rag2_filters_judge": judge_table(asked, lines["bioasq"]),
        "rag2_by_k": _by_k(read),
        "rag2_top_1": without_verdicts(top_1),
    }


def of_group(table: pd.DataFrame, group: str) -> pd.Series:
    """Which rows are of a group, "exams" (MedQA and MMLU-Med) or "bioasq"."""
    return table["dataset"].isin(EXAMS if group == "exams" else (group,))


def values_after(
    sample: Sample,
    lists: pd.DataFrame,
    scores: pd.DataFrame,
    lines: Lines,
    ks: Sequence[int] = (K,),
    metrics: Sequence[str] = (),
) -> pd.DataFrame:
    """Every outcome of every arm before and after each filter: dataset, arm, k, qid, metric, value.

    ``lists`` are ``candidates_of``; each is cut to k, then filtered. An arm after a filter is named
    "<arm> | <filter>, <operating point>"; with " (best kept)" behind it the best passage stays
    where none would, as for a reader that cannot do without. On exams outcomes are as
    ``lib.studies.real.arms.exam_outcome`` has them, on BioASQ ``p_at_5`` and others. ``kept``
    is the share that was left, ``emptied`` 1 where nothing was: a chat model would answer without
    documents there. ``metrics``: these alone.
    """
    score_of = scores.set_index(["qid", "pid"])
    parts = []
    for (dataset, arm), group in lists.groupby(["dataset", "arm"]):
        whole = {qid: rows["pid"].tolist() for qid, rows in group.groupby("qid")}
        gold = set(group.loc[group["is_gold"], ["qid", "pid"]].itertuples(index=False, name=None))
        for k in ks:
            before = {qid: pids[:k] for qid, pids in whole.items()}
            for name, after in _after(before, score_of, lines):
                rows = {}
                for qid, pids in after.items():
                    row = {"kept": len(pids) / len(before[qid]), "emptied": float(not pids)}
                    if dataset in EXAMS:
                        row |= exam_outcome(sample.by_qid[qid], pids, sample.judged)
                        row.pop("judged_share")  # of candidates it is always 1
                    else:
                        row |= _bioasq_outcome([(qid, pid) in gold for pid in pids])
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
        left, best = {}, {}
        for qid, pids in lists.items():
            left[qid] = [pid for pid in pids if known[qid, pid] >= threshold]
            best[qid] = left[qid] or [max(pids, key=lambda pid, qid=qid: known[qid, pid])]
        yield f" | {filter_name}, {operating_point}", left
        yield f" | {filter_name}, {operating_point} (best kept)", best


def _bioasq_outcome(right: Sequence[bool]) -> dict[str, float]:
    row = {"p_at_5": sum(right) / K, "hit_at_5": float(any(right))}
    # Of what is left, the share that experts gave; a question of which nothing is left has none.
    return row | ({"precision_of_kept": sum(right) / len(right)} if right else {})


def filter_pairs(lines: Lines, group: str) -> list[Pair]:
    """Comparisons on a group: every arm after a filter with the same arm before; RAG2's recipe with
    the other filters at the same operating point; the rationale with other queries."""
    pairs = []
    for metric in METRICS[group]:
        for arm in ARMS:
            for name, operating_point in lines:
                after = f"{arm} | {name}, {operating_point}"
                pairs.append(Pair("what a filter changes", metric, after, arm))
        for name, operating_point in lines:
            if (RECIPE, operating_point) in lines and name != RECIPE:
                after, other = (f"question | {f}, {operating_point}" for f in (RECIPE, name))
                pairs.append(Pair("the recipe's filter against another", metric, after, other))
    for metric in METRICS[group]:
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
    names = ("", *(f" | {RECIPE}, {operating_point}" for operating_point in KEEPS))
    headline = read["arm"].isin([f"{arm}{name}" for arm in ARMS for name in names])
    return means(read[headline], ("dataset", "arm", "k", "metric"))


def kept_table(pairs: pd.DataFrame, lines: Lines, group: str) -> pd.DataFrame:
    """Which share of the passages of each kind is kept, by filter and operating point.

    Columns: dataset (the group), filter, operating_point, kind, value, low, high, n. Kinds on
    BioASQ: given, not given; on exams: for the right option, for a wrong one alone, for none.
    Intervals resample questions.
    """
    right, wrong, gold = pairs["right"], pairs["wrong"], pairs["is_gold"]
    kinds = {"all": pd.Series(True, pairs.index)}
    if group == "bioasq":
        kinds |= {"given": gold, "not given": ~gold}
    else:
        kinds |= {"for the right option": right, "for a wrong option alone": wrong & ~right}
        kinds["for no option"] = ~wrong & ~right
    rows = []
    for (name, operating_point), threshold in lines.items():
        kept = pairs[name] >= threshold
        for kind, members in kinds.items():
            by_question = kept[members].groupby(pairs.loc[members, "qid"]).agg(["sum", "size"])
            value, low, high = ratio_interval(*by_question.to_numpy().T)
            row = {"dataset": group, "filter": name, "operating_point": operating_point}
            row |= {"kind": kind, "value": value, "low": low, "high": high, "n": members.sum()}
            rows.append(row)
    return pd.DataFrame(rows)


def judge_table(asked: pd.DataFrame, lines: Lines) -> pd.DataFrame:
    """The language model that was asked whether a passage helps, beside every filter.

    ``asked``: qid, is_gold (truth: the experts gave the passage), helpful, and a score for each
    filter of ``lines``. Columns: filter, operating_point, precision, recall, kept (all shares),
    auroc, auroc_low, auroc_high, n.
    """
    gold = asked["is_gold"].to_numpy() == 1
    rows = []
    for (name, operating_point), threshold in {("helpful", ""): 0.5, **lines}.items():
        scores = asked[name].to_numpy(float)
        kept = scores >= threshold
        low, high = auroc_interval(gold, scores, asked["qid"].tolist())
        row = {
            "filter": "a large language model" if name == "helpful" else name,
            "operating_point": operating_point,
            "precision": gold[kept].mean() if kept.any() else np.nan,
            "recall": kept[gold].mean(),
            "kept": kept.mean(),
            "auroc": auroc(gold, scores),
            "auroc_low": low,
            "auroc_high": high,
            "n": len(gold),
        }
        rows.append(row)
    return pd.DataFrame(rows)
