"""Do the labels measure helpfulness, and how do filters score pairs held out of training?

Perplexity labels differ more between questions than within one: some rationales become likelier
with any passage. So the AUROC over all couples of pairs is reported with the AUROC over couples of
the same question. The second is what matters: a filter chooses among one question's passages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from lib.model_files import WEIGHTS
from lib.stats import auroc, auroc_interval
from lib.studies.rag2.filters import (
    BASELINES,
    CROSSES,
    FILTERS,
    HEADS,
    RERANKERS,
    cached_scores,
    card_file,
    card_of,
    features,
    fit_head,
    head_file,
    lines_of,
)
from lib.studies.rag2.labels import RECIPES, Material, Recipe, labelled
from lib.studies.rag2.retrieval import Collection


def separation(positive: np.ndarray, scores: np.ndarray, question_of: Sequence[str]) -> dict:
    """The columns in which every table says how well ``scores`` tell ``positive`` pairs apart.

    ``value``, ``low``, ``high``: the AUROC and its 95 % interval over 1,000 draws of questions.
    ``within``, ``within_low``, ``within_high``: see ``within_questions``. ``n`` pairs,
    ``positives`` among them, of ``questions``.
    """
    questions = list(question_of)
    low, high = auroc_interval(positive, scores, questions)
    within, within_low, within_high = within_questions(positive, scores, questions)
    return {
        "value": auroc(positive, scores),
        "low": low,
        "high": high,
        "within": within,
        "within_low": within_low,
        "within_high": within_high,
        "n": len(scores),
        "positives": int(positive.sum()),
        "questions": len(set(questions)),
    }


def within_questions(
    positive: np.ndarray, scores: np.ndarray, question_of: Sequence[str], draws: int = 1000
) -> tuple[float, float, float]:
    """The AUROC over couples of one question alone, and its 95 % interval over questions.

    Every couple counts the same, ties half. NaN where no question has both kinds.
    """
    wins, couples = [], []
    for rows in pd.Series(range(len(scores))).groupby(list(question_of)).groups.values():
        group = rows.to_numpy()
        n = int(positive[group].sum() * (~positive[group]).sum())
        if n:
            couples.append(n)
            wins.append(n * auroc(positive[group], scores[group]))
    if not couples:
        return float("nan"), float("nan"), float("nan")
    won, total = np.array(wins), np.array(couples)
    drawn = np.random.default_rng(0).integers(0, len(total), (draws, len(total)))
    low, high = np.percentile(won[drawn].sum(axis=1) / total[drawn].sum(axis=1), [2.5, 97.5])
    return float(won.sum() / total.sum()), float(low), float(high)


# labels and training ------------------------------------------------------------------------------

LABEL_SCORES = ("delta_ppl", "delta_log_ppl", *BASELINES)


def label_outcomes(collection: Collection) -> pd.DataFrame:
    """BioASQ's labelled pairs with what they are held against.

    Columns: rationale, part, qid, pid, given (the experts gave it: 1 or 0), and ``LABEL_SCORES``;
    no label went into the baselines' scores.
    """
    material = collection.material
    bioasq = material.labels[material.labels["dataset"] == "bioasq"]
    expert = bioasq[bioasq["rationale"] == "expert"].reset_index(drop=True)
    texts = material.texts(expert)
    scored = expert[["qid", "pid"]].assign(
        **{name: cached_scores(collection.filters[name], texts) for name in BASELINES}
    )
    labels = bioasq.merge(scored, on=["qid", "pid"])
    gold = collection.gold
    labels["is_gold"] = [int(row.pid in gold.get(row.qid, ())) for row in labels.itertuples()]
    return labels[["rationale", "part", "qid", "pid", "is_gold", *LABEL_SCORES]]


def label_tables(_: Collection, labels: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Whether the labels are an instrument, and what every trained piece cost."""
    return {"rag2_labels": label_table(labels), "rag2_trainings": trainings()}


def label_table(labels: pd.DataFrame) -> pd.DataFrame:
    """Is the label an instrument? Its AUROC against the experts' own choice of snippets, BioASQ.

    ``labels`` are ``label_outcomes``. Columns: rationale (expert; own; "expert, own's questions":
    where the model wrote one too), score (one of ``LABEL_SCORES``), part, those of ``separation``,
    and ``positive_share``: how often a passage makes the rationale likelier at all.
    """
    has_own = set(labels.loc[labels["rationale"] == "own", "qid"])
    same = labels[(labels["rationale"] == "expert") & labels["qid"].isin(has_own)]
    everything = pd.concat([labels, same.assign(rationale="expert, own's questions")])
    rows = []
    for (rationale, part), group in everything.groupby(["rationale", "part"]):
        given = group["is_gold"].to_numpy() == 1
        for score in LABEL_SCORES:
            values = group[score].to_numpy(float)
            row = {"rationale": rationale, "score": score, "part": part}
            row |= separation(given, values, group["qid"])
            share = np.nan if score in BASELINES else (values > 0).mean()
            rows.append(row | {"positive_share": share})
    return pd.DataFrame(rows)


def trainings() -> pd.DataFrame:
    """What every trained piece cost: trained, examples, minutes, memory_mb, kilobytes."""
    rows = []
    for name in (*HEADS, *CROSSES, *RERANKERS):
        card, file = card_of(name), card_file(name)
        if name in HEADS:
            file = head_file(name)
        elif name in CROSSES:
            file = file.parent / WEIGHTS
        row = {"trained": name, "examples": card["examples"], "minutes": card["minutes"]}
        row["memory_mb"] = card["peak_memory_mb"]
        rows.append(row | {"kilobytes": file.stat().st_size // 1000})
    return pd.DataFrame(rows)


# pairs that were held out -------------------------------------------------------------------------

TRUTHS = {
    "delta_ppl, 25 %": Recipe("delta_ppl"),
    "delta_log_ppl, 25 %": Recipe("delta_log_ppl"),
    "delta_ppl, 5 %": Recipe("delta_ppl", 0.05),
    "right with it": Recipe("right"),
}
"""What is held to be helpful, beside ``EXPERTS`` (BioASQ): labels by their recipes."""

EXPERTS = "experts gave it"


def heldout_pairs(labels: pd.DataFrame, gold: Mapping[str, frozenset[str]]) -> pd.DataFrame:
    """The pairs held out of training with every truth: dataset, part, qid, pid, then a column for
    each truth, 1.0 or 0.0, empty where a set does not have it. ``gold`` are BioASQ's snippets."""
    key = ["dataset", "part", "qid", "pid"]
    held = (labels["part"] == "held") & (labels["rationale"] == "expert")
    table = labels.loc[held, key].reset_index(drop=True)
    for name, recipe in TRUTHS.items():
        found = labelled(recipe, labels, "held").rename(columns={"is_helpful": name})
        table = table.merge(found.astype({name: float}), on=key, how="left", validate="1:1")
    given = [float(row.pid in gold.get(row.qid, ())) for row in table.itertuples()]
    table[EXPERTS] = np.where(table["dataset"] == "bioasq", given, np.nan)
    return table


def heldout_outcomes(collection: Collection) -> pd.DataFrame:
    """``heldout_pairs`` with a column of scores for each filter, called by its name."""
    pairs = heldout_pairs(collection.material.labels, collection.gold)
    texts = collection.material.texts(pairs)
    return pairs.assign(
        **{name: cached_scores(judge, texts) for name, judge in collection.filters.items()}
    )


def heldout_tables(collection: Collection, scored: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What every filter makes of ``heldout_outcomes``, and what heads on labels in disorder do."""
    material = collection.material
    pairs = heldout_pairs(material.labels, collection.gold)
    return {
        "rag2_held": heldout_table(scored, FILTERS),
        "rag2_held_kept": kept_shares(scored, lines_of(FILTERS)),
        "rag2_held_shuffled": shuffled_draws(material, pairs),
    }


def heldout_table(scored: pd.DataFrame, filters: Sequence[str]) -> pd.DataFrame:
    """The AUROC of each filter against each truth, for each set and for both together.

    Columns: truth, dataset (bioasq, medmcqa, both), filter, and those of ``separation``.
    """
    rows = []
    for truth, dataset, group in _by_truth(scored):
        helpful = group[truth].to_numpy() == 1
        for name in filters:
            row = {"truth": truth, "dataset": dataset, "filter": name}
            rows.append(row | separation(helpful, group[name].to_numpy(), group["qid"]))
    return pd.DataFrame(rows)


def _by_truth(pairs: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(truth, set, its pairs): every truth on each set that has it, and on both together."""
    for truth in (*TRUTHS, EXPERTS):
        known = pairs[pairs[truth].notna()]
        sets = dict.fromkeys(known["dataset"])
        for dataset in sets:
            yield truth, dataset, known[known["dataset"] == dataset]
        if len(sets) > 1:
            yield truth, "both", known


def kept_shares(scored: pd.DataFrame, lines: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Which share of the held pairs each filter keeps, by set.

    ``lines``: the threshold by filter and by what it keeps. Columns: dataset, filter, keeps,
    threshold, kept (a share), emptied (the share of questions that keep nothing), n.
    """
    rows = []
    for dataset in (*dict.fromkeys(scored["dataset"]), "both"):
        group = scored if dataset == "both" else scored[scored["dataset"] == dataset]
        for (name, operating_point), threshold in lines.items():
            kept = group[name] >= threshold
            emptied = 1 - kept.groupby(group["qid"]).any().mean()
            row = {
                "dataset": dataset,
                "filter": name,
                "operating_point": operating_point,
                "threshold": threshold,
            }
            rows.append(row | {"kept": kept.mean(), "emptied": emptied, "n": len(group)})
    return pd.DataFrame(rows)


def shuffled_draws(material: Material, pairs: pd.DataFrame, draws: int = 20) -> pd.DataFrame:
    """Results of heads trained on shuffled labels, one for each of ``draws`` seeds.

    A single one says little: most features correlate with the cosine, so by chance it ranks with
    the cosine or against it. ``pairs`` are ``heldout_pairs``; each head has the penalty of
    ``head-ppl-25`` and its own shuffle. Columns: draw, truth, dataset, auroc, within.
    """
    C = card_of("head-ppl-25")["C"]
    training = labelled(RECIPES["head-ppl-25"], material.labels)
    seen = features(material.texts(training), material.encoder).astype(float)
    unseen = features(material.texts(pairs), material.encoder).astype(float)
    is_helpful = training["is_helpful"].to_numpy()
    rows = []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(is_helpful))
        weight, bias = fit_head(seen, is_helpful[order], C)
        for truth, dataset, group in _by_truth(pairs.assign(score=unseen @ weight + bias)):
            helpful, scores = group[truth].to_numpy() == 1, group["score"].to_numpy()
            row = {"draw": draw, "truth": truth, "dataset": dataset}
            row |= {"auroc": auroc(helpful, scores)}
            row |= {"within": within_questions(helpful, scores, group["qid"], draws=1)[0]}
            rows.append(row)
    return pd.DataFrame(rows)
