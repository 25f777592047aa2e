"""How well each filter ranks the held-out pairs: by its own kind of label, and by experts' choice.

The AUROC stands beside that within questions (``lib.studies.rag2.separation``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from lib.stats import auroc
from lib.studies.rag2.filters import Filter, card_of, features
from lib.studies.rag2.labels import RECIPES, Material, Recipe, labelled, texts_of
from lib.studies.rag2.separation import separation, within_questions
from lib.studies.real.arms import gold_passages

TRUTHS = {
    "delta_ppl, 25 %": Recipe("delta_ppl"),
    "delta_log_ppl, 25 %": Recipe("delta_log_ppl"),
    "delta_ppl, 5 %": Recipe("delta_ppl", 0.05),
    "right with it": Recipe("right"),
}
"""What is held to be helpful, beside "experts gave it" (BioASQ): labels by their recipes."""

_EXPERTS = "experts gave it"


def held_pairs(labels: pd.DataFrame, experts: Mapping[str, frozenset[str]]) -> pd.DataFrame:
    """The held pairs with every truth: dataset, part, qid, pid, then a column for each truth.

    ``experts`` are BioASQ's snippets by question (``lib.studies.real.arms.gold_passages``).
    Truths are 1.0 or 0.0, empty where a set does not have them.
    """
    key = ["dataset", "part", "qid", "pid"]
    expert = labels[(labels["part"] == "held") & (labels["rationale"] == "expert")]
    table = expert[key].reset_index(drop=True)
    for name, recipe in TRUTHS.items():
        found = labelled(recipe, labels, "held").rename(columns={"is_helpful": name})
        table = table.merge(found.astype({name: float}), on=key, how="left", validate="1:1")
    given = [
        float(pid in experts.get(qid, ())) for qid, pid in zip(table.qid, table.pid, strict=True)
    ]
    table[_EXPERTS] = np.where(table["dataset"] == "bioasq", given, np.nan)
    return table


def score_pairs(
    pairs: pd.DataFrame, texts: Sequence[tuple[str, str]], filters: Sequence[Filter]
) -> pd.DataFrame:
    """``pairs`` with a column of scores for each filter, called by its name."""
    return pairs.assign(**{one.name: one.scores(texts) for one in filters})


def held_table(scored: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The AUROC of each filter against each truth, for each set and for both together.

    ``scored`` is what ``score_pairs`` makes of ``held_pairs``, ``names`` are its filters. Columns:
    truth, dataset (bioasq, medmcqa, both), filter, and those of ``separation``.
    """
    rows = []
    for truth, dataset, own in _parts(scored):
        helpful = own[truth].to_numpy() == 1
        for name in names:
            row = {"truth": truth, "dataset": dataset, "filter": name}
            rows.append(row | separation(helpful, own[name].to_numpy(), own["qid"]))
    return pd.DataFrame(rows)


def _parts(pairs: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(truth, set, its pairs): every truth on each set that has it, and on both together."""
    for truth in (*TRUTHS, _EXPERTS):
        there = pairs[pairs[truth].notna()]
        sets = dict.fromkeys(there["dataset"])
        for dataset in sets:
            yield truth, dataset, there[there["dataset"] == dataset]
        if len(sets) > 1:
            yield truth, "both", there


def fit_head(rows: np.ndarray, helpful: np.ndarray, C: float) -> tuple[np.ndarray, float]:
    """Weights (float32, one a feature) and bias of the logistic regression.

    Columns are standardised, and that is folded into the weights. The problem is convex and solved
    to 1e-8, so there is one answer and no seed.
    """
    from sklearn.linear_model import LogisticRegression

    mean = rows.mean(axis=0)
    scale = rows.std(axis=0) + 1e-9
    model = LogisticRegression(C=C, tol=1e-8, max_iter=1000, solver="newton-cholesky")
    model.fit((rows - mean) / scale, helpful)
    weight = model.coef_[0] / scale
    return weight.astype(np.float32), float(model.intercept_[0] - mean @ weight)


def shuffled_draws(material: Material, pairs: pd.DataFrame, draws: int = 20) -> pd.DataFrame:
    """What heads on labels in disorder come to, one for each of ``draws`` seeds.

    One such head says little: most features go with the cosine, so it ranks by nearness or against
    it, by chance. ``pairs`` are ``held_pairs``; each head has the penalty of ``head-ppl-25`` and
    its labels in another order. Columns: draw, truth, dataset, auroc, within.
    """
    recipe = RECIPES["head-ppl-25"]
    C = card_of("head-ppl-25")["C"]
    training, texts = material.training(recipe)
    seen = features(texts, material.encoder).astype(float)
    held_texts = texts_of(pairs, material.rationales, material.store)
    unseen = features(held_texts, material.encoder).astype(float)
    is_helpful = training["is_helpful"].to_numpy()
    rows = []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(is_helpful))
        weight, bias = fit_head(seen, is_helpful[order], C)
        for truth, dataset, own in _parts(pairs.assign(score=unseen @ weight + bias)):
            helpful, scores = own[truth].to_numpy() == 1, own["score"].to_numpy()
            row = {"draw": draw, "truth": truth, "dataset": dataset}
            row |= {"auroc": auroc(helpful, scores)}
            row |= {"within": within_questions(helpful, scores, own["qid"], draws=1)[0]}
            rows.append(row)
    return pd.DataFrame(rows)


def held_scores(material: Material, filters: Mapping[str, Filter]) -> pd.DataFrame:
    """``held_pairs`` with the score of every filter."""
    pairs = held_pairs(material.labels, gold_passages(material.store))
    texts = texts_of(pairs, material.rationales, material.store)
    return score_pairs(pairs, texts, list(filters.values()))


def held_tables(
    scored: pd.DataFrame, lines: Mapping[tuple[str, str], float]
) -> dict[str, pd.DataFrame]:
    """``rag2_held`` and ``rag2_held_kept`` of ``held_scores``; ``lines`` are the thresholds by
    filter and by what they keep."""
    thresholds: dict[str, dict[str, float]] = {}
    for (name, keeps), threshold in lines.items():
        thresholds.setdefault(name, {})[keeps] = threshold
    return {
        "rag2_held": held_table(scored, list(thresholds)),
        "rag2_held_kept": kept_shares(scored, thresholds),
    }


def kept_shares(
    scored: pd.DataFrame, thresholds: Mapping[str, Mapping[str, float]]
) -> pd.DataFrame:
    """Which share of the held pairs each filter keeps, by set.

    ``thresholds`` by filter and by the name of the line. Columns: dataset, filter, keeps,
    threshold, kept (a share), emptied (the share of questions that keep nothing), n.
    """
    rows = []
    for dataset in (*dict.fromkeys(scored["dataset"]), "both"):
        own = scored if dataset == "both" else scored[scored["dataset"] == dataset]
        for name, lines in thresholds.items():
            for line, threshold in lines.items():
                kept = own[name] >= threshold
                emptied = 1 - kept.groupby(own["qid"]).any().mean()
                row = {"dataset": dataset, "filter": name, "keeps": line, "threshold": threshold}
                rows.append(row | {"kept": kept.mean(), "emptied": emptied, "n": len(own)})
    return pd.DataFrame(rows)
