"""RAG2's filters, measured: what they keep, what is found and read after them, what they cost."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.base.paths import DATA
from lib.data.judgments import evidence, read_judgments
from lib.data.questions import Question
from lib.data.real import GROUPS, load_real
from lib.profiles import Profile
from lib.run import Retriever
from lib.search.adapters import WEIGHTS
from lib.stats import Pair, auroc, auroc_interval, claims
from lib.studies.grid.long_tables import means_table
from lib.studies.rag2.filtering import (
    ARMS,
    KEEPS,
    Candidates,
    by_k,
    cached_scores,
    filter_pairs,
    filtered_values,
    kept_table,
    reading_values,
    score_candidates,
    shown,
    tells_apart,
)
from lib.studies.rag2.filters import (
    BASELINES,
    CROSSES,
    HEADS,
    Filter,
    card_file,
    card_of,
    head_file,
    load_filter,
    threshold_key,
)
from lib.studies.rag2.labels import read_labels
from lib.studies.rag2.reranker import RERANKERS
from lib.studies.rag2.reranker import card_file as reranker_card_file
from lib.studies.rag2.reranker import card_of as reranker_card
from lib.studies.rag2.shared import rationale_in, without_verdicts
from lib.studies.real.arms import arms_of
from lib.studies.real.study import experts_passages, recorded
from lib.studies.real.written import runs_of, written_for
from lib.ways import Hypotheses, Text, Way

__all__ = [
    "CROSSED",
    "FILTERED",
    "HELPFUL",
    "filter_tables",
    "judge_table",
    "label_table",
    "lines_of",
    "load_filters",
    "training_tables",
]

FILTERED = ("cross-ppl-25", "head-ppl-25", "head-right", "cross-shuffled", "cosine")
"""Filters whose outcome is measured: RAG2's recipe, the same on vectors, labels by right answers,
shuffled labels, and nearness alone. All of them are held against the truth."""

CROSSED = (0.4, 1.0)
"""Lambdas of contrast with the rationale as H+."""

HELPFUL = DATA / "judgments" / "helpful.csv"


def filter_tables(profile: Profile, retriever: Retriever) -> dict[str, pd.DataFrame]:
    """What every filter tells apart and keeps, and what is found and read after ``FILTERED``.

    ``rag2_filters`` is in the form of Table 1.
    """
    questions = load_real("test")
    candidates = _candidates(questions, retriever)
    texts = {passage.pid: passage.text for passage in retriever.store}
    filters = load_filters(retriever, list(texts.values()))
    scores = score_candidates(candidates, texts, filters)
    lines = lines_of(tuple(filters))
    few = {key: value for key, value in lines.items() if key[0] in FILTERED}
    values = filtered_values(candidates, scores, few)
    there = set(zip(values["arm"], values["metric"], strict=True))
    pairs = [
        pair
        for pair in (*filter_pairs(few, FILTERED[0]), *_crossed_pairs())
        if {(pair.arm, pair.metric), (pair.against, pair.metric)} <= there
    ]
    exams = values["dataset"] != "bioasq"
    tested = [
        claims(
            values[part], [pair for pair in pairs if (pair.metric == "p_at_5") != is_exam]
        ).assign(dataset="exams" if is_exam else "bioasq")
        for part, is_exam in ((exams, True), (~exams, False))
    ]
    setup = f"{profile.name}, {retriever.encoder.name}, recorded texts, k = 5"
    both = values[exams].assign(dataset="exams")
    table = means_table(pd.concat([both, values]), setup)
    table["options_visible"] = ~table["method"].str.startswith("question")
    read = reading_values(candidates, scores, few)
    headline = read["arm"].isin([f"{arm}{name}" for arm in ARMS for name in _shown_over_k()])
    return {
        "rag2_filters": table,
        "rag2_filters_claims": without_verdicts(*tested),
        "rag2_filters_auroc": tells_apart(scores, tuple(filters)),
        "rag2_filters_kept": kept_table(scores, lines),
        "rag2_filters_judge": judge_table(
            questions, texts, experts_passages(retriever.store), filters, lines
        ),
        "rag2_by_k": by_k(read[headline]),
        "rag2_top_1": without_verdicts(_at_one(read, few)),
    }


def _shown_over_k() -> list[str]:
    """How the names of arms that are shown over k end: unfiltered, and after the recipe."""
    return ["", *(f" | {FILTERED[0]}, {keeps}" for keeps in KEEPS)]


def _at_one(read: pd.DataFrame, lines: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """RAG2's Table 3: one passage, found by the question; each filter against none."""
    values = read[read["k"] == 1].drop(columns="k")
    pairs = [
        Pair("a filter of one passage", metric, f"question | {name}, {keeps}", "question")
        for name, keeps in lines
        for metric in ("reads_right", "reads_right_or_guess")
    ]
    return claims(values, pairs).assign(dataset="exams")


def load_filters(retriever: Retriever, texts: Sequence[str]) -> dict[str, Filter]:
    """Every filter by name; ``texts`` are all passages, for BM25's statistics."""
    names = (*BASELINES, *HEADS, *CROSSES)
    return {name: load_filter(name, 0.25, encoder=retriever.encoder, texts=texts) for name in names}


def lines_of(names: Sequence[str]) -> dict[tuple[str, str], float]:
    """Where each filter draws each of the lines ``KEEPS``; a baseline gives no probability."""
    lines = {}
    for name in names:
        card = card_of(name)
        own = (0.5, card[threshold_key(0.25)], card[threshold_key(0.05)])
        for keeps, threshold in zip(KEEPS, own, strict=True):
            if keeps != KEEPS[0] or name not in BASELINES:
                lines[name, keeps] = threshold
    return lines


def _candidates(questions: Sequence[Question], retriever: Retriever) -> Candidates:
    """What ``ARMS`` found, and on BioASQ contrast with the rationale as H+ too."""
    written = written_for(questions, recorded(), retriever)
    wanted = [arm for arm in arms_of() if arm.name in ARMS]
    runs = runs_of(questions, written, dict.fromkeys(GROUPS, wanted), retriever)
    rows = []
    for lam in CROSSED:
        requests = {}
        for qid, made in written["rationale"].items():
            question = next(q for q in questions if q.qid == qid)
            mimic = written["hypotheses"][qid].request.of("mimic")
            if question.dataset == "bioasq" and mimic:
                target = Text(rationale_in(made.request), role="target")
                requests[qid] = Hypotheses((target, *mimic), Way(lam=lam))
        hits = retriever.search_many(list(requests.values()), 10)
        for qid, found in zip(requests, hits, strict=True):
            for rank, pid in enumerate(found.ids[0].tolist(), 1):
                rows.append(("bioasq", f"rationale@{lam:g}", 0, qid, rank, pid))
    crossed = pd.DataFrame(rows, columns=list(runs.columns))
    everything = pd.concat([runs, crossed], ignore_index=True)
    return Candidates.of(
        questions, everything, evidence(read_judgments()), experts_passages(retriever.store)
    )


def _crossed_pairs() -> list[Pair]:
    """The rationale against the question and H+, and contrast with it in the place of H+."""
    pairs = []
    for lam in CROSSED:
        arm = f"rationale@{lam:g}"
        pairs.append(Pair("contrast with the rationale as H+", "p_at_5", arm, "rationale"))
        pairs.append(Pair("the rationale in place of H+", "p_at_5", arm, f"chr@{lam:g}"))
    pairs.append(Pair("the rationale against H+", "p_at_5", "rationale", "hplus"))
    for metric in ("hit_right", "misled", "reads_right", "reads_right_or_guess", "p_at_5"):
        pairs.append(Pair("the rationale against the question", metric, "rationale", "question"))
    return pairs


def judge_table(
    questions: Sequence[Question],
    texts: Mapping[str, str],
    targets: Mapping[str, frozenset[str]],
    filters: Mapping[str, Filter],
    lines: Mapping[tuple[str, str], float],
) -> pd.DataFrame:
    """The language model that was asked whether a passage helps, beside every filter.

    Truth is that the experts gave the passage. Columns: filter, keeps, precision, recall, kept (all
    shares), auroc, auroc_low, auroc_high, n. Pairs are those of ``data/judgments/helpful.csv``.
    """
    with open(HELPFUL, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    by_qid = {question.qid: question for question in questions}
    qids = [row["qid"] for row in rows]
    given = np.array([row["pid"] in targets[row["qid"]] for row in rows])
    read = [(shown(by_qid[row["qid"]]), texts[row["pid"]]) for row in rows]
    helpful = np.array([float(row["helpful"]) for row in rows])
    found = [
        _against(given, helpful, 0.5, qids) | {"filter": "a large language model", "keeps": ""}
    ]
    scores = {name: cached_scores(judge, read) for name, judge in filters.items()}
    for (name, keeps), threshold in lines.items():
        row = _against(given, scores[name], threshold, qids)
        found.append(row | {"filter": name, "keeps": keeps})
    columns = ["filter", "keeps", "precision", "recall", "kept", "auroc", "auroc_low", "auroc_high"]
    return pd.DataFrame(found)[[*columns, "n"]]


def _against(
    given: np.ndarray, scores: np.ndarray, threshold: float, qids: Sequence[str]
) -> dict[str, Any]:
    kept = scores >= threshold
    low, high = auroc_interval(given, scores, qids)
    return {
        "precision": given[kept].mean() if kept.any() else np.nan,
        "recall": kept[given].mean(),
        "kept": kept.mean(),
        "auroc": auroc(given, scores),
        "auroc_low": low,
        "auroc_high": high,
        "n": len(given),
    }


# labels and training ------------------------------------------------------------------------------


def training_tables(retriever: Retriever) -> dict[str, pd.DataFrame]:
    """Whether the labels are an instrument, and what every trained piece cost."""
    labels = label_table(read_labels(), experts_passages(retriever.store))
    return {"rag2_labels": labels, "rag2_trainings": _cards()}


def label_table(labels: pd.DataFrame, experts: Mapping[str, frozenset[str]]) -> pd.DataFrame:
    """Is the label an instrument? Its AUROC against the experts' own choice of snippets, BioASQ.

    Columns: rationale (expert, own), difference (delta_ppl, delta_log_ppl), part, value, low, high,
    n, positives, and ``positive_share``: how often a passage makes the rationale likelier at all.
    """
    rows = []
    bioasq = labels[labels["dataset"] == "bioasq"]
    for (rationale, part), own in bioasq.groupby(["rationale", "part"], sort=True):
        given = np.array([row.pid in experts.get(row.qid, ()) for row in own.itertuples()])
        for difference in ("delta_ppl", "delta_log_ppl"):
            values = own[difference].to_numpy(float)
            low, high = auroc_interval(given, values, own["qid"].tolist())
            row = {"rationale": rationale, "difference": difference, "part": part}
            row |= {"value": auroc(given, values), "low": low, "high": high, "n": len(own)}
            row |= {"positives": int(given.sum()), "positive_share": (values > 0).mean()}
            rows.append(row)
    return pd.DataFrame(rows)


def _cards() -> pd.DataFrame:
    """What every trained piece cost: name, examples, minutes, memory_mb, kilobytes."""
    rows = []
    for name in (*HEADS, *CROSSES):
        card = card_of(name)
        file = head_file(name) if name in HEADS else card_file(name).parent / WEIGHTS
        rows.append(_cost(name, card, file.stat().st_size))
    for name in RERANKERS:
        size = reranker_card_file(name).stat().st_size
        rows.append(_cost(name, reranker_card(name), size))
    return pd.DataFrame(rows)


def _cost(name: str, card: Mapping[str, Any], size: int) -> dict[str, Any]:
    return {
        "trained": name,
        "examples": card["examples"],
        "minutes": card["minutes"],
        "memory_mb": card["peak_memory_mb"],
        "kilobytes": size // 1000,
    }
