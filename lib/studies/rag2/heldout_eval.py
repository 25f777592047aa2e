"""Do the labels measure helpfulness, and how do filters score pairs held out of training?

Perplexity labels differ more between questions than within one: some rationales become likelier
with any passage. So the AUROC over all couples of pairs is reported with the AUROC over couples of
the same question. The second is what matters: a filter chooses among one question's passages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

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


def separations(
    groups: Iterable[tuple[Mapping[str, str], pd.DataFrame, str]], scores: Sequence[str]
) -> pd.DataFrame:
    """A row for each group of pairs and each column of ``scores``, called ``filter``.

    A group is (what the row says of it, its pairs, the column with the truth: 1 or True where the
    passage helps). Columns: those that are said, ``filter``, and those of ``separation``.
    """
    rows = []
    for said, pairs, truth in groups:
        positive = pairs[truth].to_numpy() == 1
        for name in scores:
            row = {**said, "filter": name}
            rows.append(row | separation(positive, pairs[name].to_numpy(float), pairs["qid"]))
    return pd.DataFrame(rows)


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

    Columns: rationale, part, qid, pid, is_gold (the experts gave it: 1 or 0), and ``LABEL_SCORES``;
    no label went into the baselines' scores.
    """
    material = collection.material
    bioasq = material.labels[material.labels["dataset"] == "bioasq"]
    expert = bioasq[bioasq["rationale"] == "expert"].reset_index(drop=True)
    scores = collection.scores(material.texts(expert), BASELINES)
    labels = bioasq.merge(expert[["qid", "pid"]].assign(**scores), on=["qid", "pid"])
    labels["is_gold"] = collection.is_gold(labels).astype(int)
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
    groups = everything.groupby(["rationale", "part"])
    named = [({"rationale": r, "part": part}, group, "is_gold") for (r, part), group in groups]
    shares = []
    for _, group, _ in named:
        raised = (group[list(LABEL_SCORES)] > 0).mean()
        shares += raised.where(~raised.index.isin(BASELINES)).tolist()
    table = separations(named, LABEL_SCORES).rename(columns={"filter": "score"})
    table = table.set_index(["rationale", "score", "part"]).reset_index()
    return table.assign(positive_share=shares)


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


# pairs held out of training -----------------------------------------------------------------------

TRUTHS = {
    "delta_ppl, 25 %": Recipe("delta_ppl"),
    "delta_log_ppl, 25 %": Recipe("delta_log_ppl"),
    "delta_ppl, 5 %": Recipe("delta_ppl", 0.05),
    "right with it": Recipe("right"),
}
"""What is held to be helpful, beside ``EXPERTS`` (BioASQ): labels by their recipes."""

EXPERTS = "experts gave it"


def heldout_outcomes(collection: Collection) -> pd.DataFrame:
    """The pairs held out of training: dataset, part, qid, pid, a column for each truth, 1.0 or 0.0,
    empty where a set does not have it, and one of scores for each filter, called by its name."""
    labels = collection.material.labels
    key = ["dataset", "part", "qid", "pid"]
    heldout = (labels["part"] == "held") & (labels["rationale"] == "expert")
    table = labels.loc[heldout, key].reset_index(drop=True)
    for name, recipe in TRUTHS.items():
        found = labelled(recipe, labels, "held").rename(columns={"is_helpful": name})
        table = table.merge(found.astype({name: float}), on=key, how="left", validate="1:1")
    is_gold = collection.is_gold(table).astype(float)
    table[EXPERTS] = is_gold.where(table["dataset"] == "bioasq")
    return table.assign(**collection.scores(collection.material.texts(table)))


def heldout_tables(collection: Collection, scored: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What every filter makes of ``heldout_outcomes``, and what heads on labels in disorder do."""
    return {
        "rag2_held": separations(_by_truth(scored), FILTERS),
        "rag2_held_kept": kept_shares(scored, lines_of(FILTERS)),
        "rag2_held_shuffled": shuffled_draws(collection.material, scored),
    }


def _by_truth(scored: pd.DataFrame) -> Iterator[tuple[dict[str, str], pd.DataFrame, str]]:
    """Groups for ``separations``: every truth on each set that has it, and on both together."""
    for truth in (*TRUTHS, EXPERTS):
        for dataset, group in _by_set(scored[scored[truth].notna()]):
            yield {"truth": truth, "dataset": dataset}, group, truth


def _by_set(pairs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(set, its pairs): each set and, where there are two, both together."""
    sets = dict.fromkeys(pairs["dataset"])
    for dataset in sets:
        yield dataset, pairs[pairs["dataset"] == dataset]
    if len(sets) > 1:
        yield "both", pairs


def kept_shares(scored: pd.DataFrame, lines: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Which share of the held pairs each filter keeps, by set.

    ``lines``: the threshold by filter and operating point. Columns: dataset, filter,
    operating_point, threshold, kept (a share), emptied (the share of questions that keep nothing),
    n.
    """
    rows = []
    for dataset, group in _by_set(scored):
        for (name, operating_point), threshold in lines.items():
            kept = group[name] >= threshold
            row = {"dataset": dataset, "filter": name, "operating_point": operating_point}
            row |= {"threshold": threshold, "kept": kept.mean()}
            row["emptied"] = 1 - kept.groupby(group["qid"]).any().mean()
            rows.append(row | {"n": len(group)})
    return pd.DataFrame(rows)


def shuffled_draws(material: Material, pairs: pd.DataFrame, draws: int = 20) -> pd.DataFrame:
    """Results of heads trained on shuffled labels, one for each of ``draws`` seeds.

    A single one says little: most features correlate with the cosine, so by chance it ranks with
    the cosine or against it. ``pairs`` are ``heldout_outcomes``; each head has the penalty of
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
        scored = pairs.assign(score=unseen @ weight + bias)
        for row, group, truth in _by_truth(scored):
            helpful, scores = group[truth].to_numpy() == 1, group["score"].to_numpy()
            within, _, _ = within_questions(helpful, scores, group["qid"], draws=1)
            rows.append({"draw": draw, **row, "auroc": auroc(helpful, scores), "within": within})
    return pd.DataFrame(rows)
