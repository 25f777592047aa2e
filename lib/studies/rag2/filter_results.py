"""RAG2's filters, measured: what they keep, what is found and read after them, what they cost."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.data.judgments import HELPFUL, evidence, read_judgments
from lib.datasets import load_real
from lib.methods.postprocess import shown
from lib.model_files import WEIGHTS
from lib.query_spec import Hypotheses, SearchSpec, Text
from lib.run import RetrievalFailure, Retriever
from lib.stats import Pair, auroc, auroc_interval, claims, long_values, measure
from lib.studies.main_tables.long_tables import means_table
from lib.studies.rag2.filtering import (
    ARMS,
    KEEPS,
    Candidates,
    K,
    by_k,
    cached_scores,
    filter_pairs,
    filtered_values,
    kept_table,
    of_group,
    reading_values,
    score_candidates,
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
from lib.studies.rag2.labels import FRACTIONS, open_material, texts_of
from lib.studies.rag2.reranker import RERANKERS
from lib.studies.rag2.reranker import card_file as reranker_card_file
from lib.studies.rag2.reranker import card_of as reranker_card
from lib.studies.rag2.separation import separation
from lib.studies.rag2.shared import rationale_in, without_verdicts
from lib.studies.real.arms import Sample, gold_passages, runs_of
from lib.studies.real.expansions import recorded, written_for

FILTERED = ("cross-ppl-25", "head-ppl-25", "head-right", "cross-shuffled", "cosine")
"""Filters whose outcome is measured: RAG2's recipe, the same on vectors, labels by right answers,
shuffled labels, and nearness alone. All of them are held against the truth."""

CROSSED = (0.4, 1.0)
"""Lambdas of contrast with the rationale as H+."""

_GROUPS = {
    "exams": ("medmcqa", ("hit_right", "misled", "reads_right", "reads_right_or_guess")),
    "bioasq": ("bioasq", ("p_at_5",)),
}
"""What is measured on each group, and whose training pairs its lines are read from."""


def filter_scores(retriever: Retriever) -> pd.DataFrame:
    """Every passage that ``ARMS`` found, with its rank in each list and every filter's score.

    Columns: dataset, qid, pid, given, right, wrong (see ``Candidates``), a rank for each arm
    (missing where it did not find the passage) and a score for each filter. The pairs that a
    language model was asked about (``HELPFUL``) are rows of the dataset "helpful".
    """
    questions = load_real("test")
    targets = gold_passages(retriever.store)
    written = written_for(questions, recorded(), retriever)
    runs = runs_of(Sample(questions, written, retriever), ARMS)
    candidates = Candidates.of(questions, runs, evidence(read_judgments()), targets)
    texts = {passage.pid: passage.text for passage in retriever.store}
    filters = load_filters(retriever, list(texts.values()))
    ranks = candidates.table.pivot(index=["qid", "pid"], columns="arm", values="rank")
    scores = score_candidates(candidates, texts, filters)
    asked = _asked().assign(dataset="helpful")
    asked["given"] = [row.pid in targets[row.qid] for row in asked.itertuples()]
    read = [(shown(candidates.questions[row.qid]), texts[row.pid]) for row in asked.itertuples()]
    for name, judge in filters.items():
        asked[name] = cached_scores(judge, read)
    scores = scores.merge(ranks.reset_index(), on=["qid", "pid"], validate="1:1")
    table = pd.concat([scores, asked.drop(columns="helpful")], ignore_index=True)
    truths = {name: table[name].fillna(False).astype(int) for name in ("given", "right", "wrong")}
    return table.assign(**truths)


def _asked() -> pd.DataFrame:
    """The pairs of ``HELPFUL``: qid, pid, helpful (what the language model said, 1.0 or 0.0)."""
    with open(HELPFUL, encoding="utf-8", newline="") as stream:
        rows = pd.DataFrame(csv.DictReader(stream))
    return rows[["qid", "pid", "helpful"]].astype({"helpful": float})


def filter_tables(
    scores: pd.DataFrame, crossed: pd.DataFrame, setup: str
) -> dict[str, pd.DataFrame]:
    """What every filter tells apart and keeps, and what is found and read after ``FILTERED``.

    ``scores`` are ``filter_scores``, ``crossed`` ``crossed_values``. ``rag2_filters`` is in the
    form of Table 1.
    """
    filters = tuple(name for name in (*BASELINES, *HEADS, *CROSSES) if name in scores)
    asked = scores[scores["dataset"] == "helpful"]
    scores = scores[scores["dataset"] != "helpful"].astype(dict.fromkeys(_TRUTHS, bool))
    lists = scores.melt(["dataset", "qid", "pid", *_TRUTHS], ARMS, "arm", "rank").dropna()
    candidates = Candidates(
        {question.qid: question for question in load_real("test")},
        lists.sort_values(["dataset", "arm", "qid", "rank"], ignore_index=True),
        evidence(read_judgments()),
    )
    values, tested, kept = [], [], []
    for group, (trained_on, metrics) in _GROUPS.items():
        lines = lines_of(filters, trained_on)
        few = {key: value for key, value in lines.items() if key[0] in FILTERED}
        own = filtered_values(candidates.of_group(group), scores, few)
        pairs = filter_pairs(few, FILTERED[0], metrics) + _query_pairs(metrics)
        if group == "bioasq":
            own = pd.concat([own, crossed], ignore_index=True)
            pairs += _crossed_pairs()
        else:
            read = reading_values(candidates, scores, few)
            top_1 = _at_one(read, few)
            values.append(own.assign(dataset=group))
        values.append(own)
        tested.append(claims(own, pairs).assign(dataset=group))
        kept.append(kept_table(scores[of_group(scores, group)], lines))
    table = means_table(pd.concat(values), f"{setup}, recorded texts, k = {K}")
    # Whoever wrote a hypothesis saw the options, and on exams every filter reads them.
    filtered_exam = table["method"].str.contains(" | ", regex=False) & (
        table["dataset"] != "bioasq"
    )
    table["options_visible"] = filtered_exam | ~table["method"].str.startswith("question")
    headline = read["arm"].isin([f"{arm}{name}" for arm in ARMS for name in _shown_over_k()])
    return {
        "rag2_filters": table,
        "rag2_filters_claims": without_verdicts(*tested),
        "rag2_filters_auroc": tells_apart(scores, filters),
        "rag2_filters_kept": pd.concat(kept, ignore_index=True),
        "rag2_filters_judge": judge_table(
            asked.merge(_asked(), on=["qid", "pid"]), filters, lines_of(filters, "bioasq")
        ),
        "rag2_by_k": by_k(read[headline]),
        "rag2_top_1": without_verdicts(top_1),
    }


_TRUTHS = ["given", "right", "wrong"]


def _shown_over_k() -> list[str]:
    """How the names of arms that are shown over k end: unfiltered, and after the recipe."""
    return ["", *(f" | {FILTERED[0]}, {keeps}" for keeps in KEEPS)]


def _at_one(read: pd.DataFrame, lines: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """RAG2's Table 3: one passage, found by the question; each filter against none."""
    values = read[read["k"] == 1].drop(columns="k")
    pairs = [
        Pair("a filter of one passage", metric, f"question | {name}, {keeps}", "question")
        for name, keeps in lines
        for metric in ("reads_right", "reads_right_or_guess", "emptied")
    ]
    return claims(values, pairs).assign(dataset="exams")


def load_filters(retriever: Retriever, texts: Sequence[str]) -> dict[str, Filter]:
    """Every filter by name; ``texts`` are all passages, for BM25's statistics."""
    names = (*BASELINES, *HEADS, *CROSSES)
    return {name: load_filter(name, 0.25, encoder=retriever.encoder, texts=texts) for name in names}


def lines_of(names: Sequence[str], trained_on: str = "") -> dict[tuple[str, str], float]:
    """Where each filter draws each of the lines ``KEEPS``; a baseline gives no probability.

    ``trained_on``: the set whose training pairs a line keeps a share of, "bioasq" or "medmcqa";
    without one, of both together.
    """
    lines = {}
    for name in names:
        card = card_of(name)
        own = (0.5, *(card[threshold_key(share, trained_on)] for share in FRACTIONS))
        for keeps, threshold in zip(KEEPS, own, strict=True):
            if keeps != KEEPS[0] or name not in BASELINES:
                lines[name, keeps] = threshold
    return lines


def crossed_values(retriever: Retriever) -> pd.DataFrame:
    """P@5 of contrast with the rationale as H+, on BioASQ's questions that have both.

    Columns dataset, arm ("rationale@<lambda>"), qid, metric, value.
    """
    questions = load_real("test")
    targets = gold_passages(retriever.store)
    written = written_for(questions, recorded(), retriever)
    asked = [q.qid for q in questions if q.dataset == "bioasq" and q.qid in written["rationale"]]
    parts = []
    for lam in CROSSED:
        requests = {}
        for qid in asked:
            mimic = written["hypotheses"][qid].request.of("mimic")
            if mimic:
                target = Text(rationale_in(written["rationale"][qid].request), role="target")
                requests[qid] = Hypotheses((target, *mimic), SearchSpec(lam=lam))
        hits = retriever.search_many(list(requests.values()), 10)
        found = {
            qid: [] if isinstance(hit, RetrievalFailure) else hit.ids[0].tolist()
            for qid, hit in zip(requests, hits, strict=True)
        }
        asked_for = {qid: targets[qid] for qid in requests}
        values = long_values(f"rationale@{lam:g}", measure(found, asked_for, {})[["p_at_5"]])
        parts.append(values.assign(dataset="bioasq"))
    return pd.concat(parts, ignore_index=True)


def _query_pairs(metrics: Sequence[str]) -> list[Pair]:
    """The rationale as the query against the question."""
    claim = "the rationale against the question"
    return [Pair(claim, metric, "rationale", "question") for metric in metrics]


def _crossed_pairs() -> list[Pair]:
    """The rationale against H+, and contrast with it in the place of H+; on BioASQ."""
    pairs = [Pair("the rationale against H+", "p_at_5", "rationale", "hplus")]
    for lam in CROSSED:
        arm = f"rationale@{lam:g}"
        pairs.append(Pair("contrast with the rationale as H+", "p_at_5", arm, "rationale"))
        pairs.append(Pair("the rationale in place of H+", "p_at_5", arm, f"chr@{lam:g}"))
    return pairs


def judge_table(
    asked: pd.DataFrame, filters: Sequence[str], lines: Mapping[tuple[str, str], float]
) -> pd.DataFrame:
    """The language model that was asked whether a passage helps, beside every filter.

    ``asked``: qid, given (truth: the experts gave the passage), helpful, and a score for each of
    ``filters``. Columns: filter, keeps, precision, recall, kept (all shares), auroc, auroc_low,
    auroc_high, n.
    """
    qids = asked["qid"].tolist()
    given = asked["given"].to_numpy() == 1
    helpful = asked["helpful"].to_numpy(float)
    found = [
        _against(given, helpful, 0.5, qids) | {"filter": "a large language model", "keeps": ""}
    ]
    for (name, keeps), threshold in lines.items():
        if name in filters:
            row = _against(given, asked[name].to_numpy(float), threshold, qids)
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


def label_values(retriever: Retriever) -> pd.DataFrame:
    """BioASQ's labelled pairs with what they are held against.

    Columns: rationale, part, qid, pid, given (the experts gave it: 1 or 0), delta_ppl,
    delta_log_ppl, and a score for each of ``BASELINES``, which no label went into.
    """
    material = open_material()
    texts = [passage.text for passage in retriever.store]
    bioasq = material.labels[material.labels["dataset"] == "bioasq"]
    expert = bioasq[bioasq["rationale"] == "expert"].reset_index(drop=True)
    read = texts_of(expert, material.rationales, material.store)
    scored = expert[["qid", "pid"]]
    for name in BASELINES:
        judge = load_filter(name, 0.25, encoder=retriever.encoder, texts=texts)
        scored = scored.assign(**{name: cached_scores(judge, read)})
    experts = gold_passages(retriever.store)
    labels = bioasq.merge(scored, on=["qid", "pid"])
    labels["given"] = [int(row.pid in experts.get(row.qid, ())) for row in labels.itertuples()]
    return labels[["rationale", "part", "qid", "pid", "given", *LABEL_SCORES]]


LABEL_SCORES = ["delta_ppl", "delta_log_ppl", *BASELINES]


def training_tables(labels: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Whether the labels are an instrument, and what every trained piece cost."""
    return {"rag2_labels": label_table(labels), "rag2_trainings": _cards()}


def label_table(labels: pd.DataFrame) -> pd.DataFrame:
    """Is the label an instrument? Its AUROC against the experts' own choice of snippets, BioASQ.

    ``labels`` are ``label_values``. Columns: rationale (expert; own; "expert, own's questions":
    where the model wrote one too), score (one of ``LABEL_SCORES``), part, those of ``separation``,
    and ``positive_share``: how often a passage makes the rationale likelier at all.
    """
    has_own = set(labels.loc[labels["rationale"] == "own", "qid"])
    same = labels[(labels["rationale"] == "expert") & labels["qid"].isin(has_own)]
    everything = pd.concat([labels, same.assign(rationale="expert, own's questions")])
    rows = []
    for (rationale, part), own in everything.groupby(["rationale", "part"], sort=True):
        given = own["given"].to_numpy() == 1
        for score in LABEL_SCORES:
            values = own[score].to_numpy(float)
            row = {"rationale": rationale, "score": score, "part": part}
            row |= separation(given, values, own["qid"])
            share = np.nan if score in BASELINES else (values > 0).mean()
            rows.append(row | {"positive_share": share})
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
