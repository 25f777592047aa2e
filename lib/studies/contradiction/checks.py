# mypy: disable-error-code="attr-defined"
"""Does CNT find disagreement that is known? Checks with known answers.

Pairs are scored once (``check_values``). Each row of ``checks_table`` is an AUROC of them: of two
kinds of pairs, does the kind that disagrees score higher?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lib.studies.contradiction.cnt import strangers
from lib.studies.contradiction.study import Study, score_couples
from lib.studies.evidence.load import DIRECTIONS
from lib.studies.nli.findings import is_held_out
from lib.studies.nli.labelled import SETS
from lib.studies.nli.models import Backend
from lib.studies.nli.pairs import numbered
from lib.studies.nli.scores import score_pairs

_SAMPLE = 2000
_OPPOSITE_SIDES = {"for", "against"}


def check_values(study: Study) -> pd.DataFrame:
    """The pairs of every check that the evidence allows: check, group, positive, value.

    *sentences*: contradictions against entailments of the labelled pairs of evidence-mini.
    *length*: abstracts of one pool against as long ones of another pool; of those few sentences are
    near enough to be compared, so beside it *length, as many compared* takes as many of their
    sentence pairs, the nearest. *stance*: abstracts on one topic that take opposite sides against
    the same side. *statement*: an abstract and a sentence that turns its effect round against one
    that states it (written by a template, so that intervention and outcome are the same).
    ``positive`` says which pairs should score higher, ``value`` is the score, and what is resampled
    is ``group``, a number.
    """
    parts = [_sentences(study.score.backend), *_lengths(study), _stances(study)]
    effects = _reported_effects(study)
    if effects:
        parts.append(_statements(effects, study))
    return pd.concat(parts, ignore_index=True)


def checks_table(values: pd.DataFrame) -> pd.DataFrame:
    """One row (see ``auroc_row``) for each check of ``check_values``."""
    rows = [
        auroc_row(check, own["value"], own["positive"] == 1, own["group"])
        for check, own in values.groupby("check", sort=False)
    ]
    return pd.DataFrame(rows)


def pairs_of(
    check: str, values: Sequence[float], positive: Sequence[bool], groups: Sequence[str]
) -> pd.DataFrame:
    """Rows of ``check_values``: 1 or 0 for ``positive``."""
    columns = {"check": check, "group": numbered(groups), "positive": np.asarray(positive, int)}
    return pd.DataFrame(columns | {"value": np.asarray(values, float)})


def _sentences(backend: Backend) -> pd.DataFrame:
    """The NLI model alone: labelled sentence pairs, without those on different matters."""
    pairs = [pair for pair in SETS["evidence-mini pairs"]() if pair.label != "neutral"]
    values = score_pairs([(pair.a, pair.b) for pair in pairs], backend)
    contradicts = [pair.label == "contradiction" for pair in pairs]
    return pairs_of("sentences", values, contradicts, [pair.group for pair in pairs])


def _sample(study: Study) -> pd.DataFrame:
    return study.pairs.sample(min(_SAMPLE, len(study.pairs)), random_state=0)


def _lengths(study: Study) -> list[pd.DataFrame]:
    """Real couples against couples that only length makes alike, compared in both ways."""
    different_pools = {frozenset(pool) for pool in study.pools()}
    if len(different_pools) < 2:  # one medicine alone has no strangers
        return []
    pairs = _sample(study)
    texts = {i: abstract.text for i, abstract in study.evidence.items()}
    couples = strangers(pairs[["a", "b"]].to_numpy().tolist(), texts, study.pools())
    null_texts = [(texts[a], texts[b]) for a, b in couples]
    group_of = [study.evidence[i].medicine or i for i in pairs["a"]]
    is_real = np.repeat([True, False], len(pairs))
    parts = []
    for name, counts in (
        ("length", None),
        ("length, as many compared", pairs["passed"].tolist()),
    ):
        null_values = [score.value for score in study.score(null_texts, counts)]
        values = [*pairs["value"], *null_values]
        parts.append(pairs_of(name, values, is_real, group_of * 2))
    return parts


def _stances(study: Study) -> pd.DataFrame:
    """Couples on one topic whose stances are known; there may be none."""
    values, opposite, medicines = [], [], []
    for pair in study.pairs.itertuples():
        a, b = study.evidence[pair.a], study.evidence[pair.b]
        stances = {a.meta.get("stance"), b.meta.get("stance")}
        if a.topic and a.topic == b.topic and stances <= _OPPOSITE_SIDES:
            values.append(pair.value)
            opposite.append(len(stances) == 2)
            medicines.append(a.medicine)
    return pairs_of("stance", values, opposite, medicines)


def _reported_effects(study: Study) -> list[tuple[str, dict[str, str]]]:
    """(id, effect) of every effect that doctors read off an abstract and that has a direction, of
    articles that no model here was trained on."""
    found = []
    for i, abstract in study.evidence.items():
        if not is_held_out(i.removeprefix("pmc:").removeprefix("PMC")):
            continue
        for effect in abstract.meta.get("effects", ()):
            if effect["effect"] != DIRECTIONS["0"]:
                found.append((i, effect))
    return found


def _statements(effects: list[tuple[str, dict[str, str]]], study: Study) -> pd.DataFrame:
    """Each abstract with a sentence that states its effect and with one that turns it round."""
    pairs, turned, articles = [], [], []
    for i, effect in effects:
        for direction in (DIRECTIONS["1"], DIRECTIONS["-1"]):
            claim = f"{effect['intervention']} significantly {direction} {effect['outcome']}"
            sentence = f"{claim} compared with {effect['comparator']}."
            pairs.append((study.evidence[i].text, sentence))
            turned.append(direction != effect["effect"])
            articles.append(i)
    values = [score.value for score in study.score(pairs)]
    return pairs_of("statement", values, turned, articles)


def maxima(study: Study, tops: Sequence[int] = (1, 3)) -> pd.DataFrame:
    """CNT of the same couples as the mean of the ``tops`` highest scores.

    Columns: top, mean, with_compared (rank correlation with how many sentence pairs were compared:
    how far CNT counts opportunities), with_top_1 (rank correlation with the paper's maximum), n.
    """
    pairs = _sample(study)
    couples = pairs[["a", "b"]].to_numpy().tolist()
    scored: dict[int, pd.DataFrame] = {}
    for top in dict.fromkeys((1, *tops)):
        score = replace(study.score, switches={**study.score.switches, "top": top})
        scored[top] = score_couples(couples, study.evidence, score)
    rank_of_compared = scored[1]["passed"].rank()
    rank_of_maximum = scored[1]["value"].rank()
    rows = []
    for top in tops:
        ranks = scored[top]["value"].rank()
        rows.append(
            {
                "top": top,
                "mean": scored[top]["value"].mean(),
                "with_compared": ranks.corr(rank_of_compared),
                "with_top_1": ranks.corr(rank_of_maximum),
                "n": len(pairs),
            }
        )
    return pd.DataFrame(rows)


def auroc_row(
    check: str,
    values: Sequence[float],
    positive: Sequence[bool],
    groups: Sequence[str],
    draws: int = 2000,
    seed: int = 0,
) -> dict[str, Any]:
    """One row: AUROC of ``values`` with its 95 % interval, a bootstrap over ``groups``; means, n.

    Without both kinds the AUROC is missing. Draws of groups that lack one kind are left out of the
    interval.
    """
    values, positive = np.asarray(values, float), np.asarray(positive, bool)
    names, group_of = np.unique(np.asarray(groups), return_inverse=True)
    row = {
        "check": check,
        "positives": int(positive.sum()),
        "negatives": int((~positive).sum()),
        "groups": len(names),
        "mean_positive": np.nan,
        "mean_negative": np.nan,
        "auroc": np.nan,
        "low": np.nan,
        "high": np.nan,
    }
    if positive.all() or not positive.any():
        return row
    above, below = values[positive][:, None], values[~positive]
    wins = (above > below) + (above == below) / 2  # shape (positives, negatives)
    low, high = _interval(wins, group_of[positive], group_of[~positive], len(names), draws, seed)
    return row | {
        "mean_positive": values[positive].mean(),
        "mean_negative": values[~positive].mean(),
        "low": low,
        "high": high,
        "auroc": wins.mean(),
    }


def _interval(
    wins: np.ndarray,
    group_of_positive: np.ndarray,
    group_of_negative: np.ndarray,
    n_groups: int,
    draws: int,
    seed: int,
) -> tuple[float, float]:
    """The 95 % interval of the mean of ``wins`` when groups are drawn again, with replacement.

    A couple counts as often as both its groups were drawn. Summed by couples of groups first, a
    draw is two small products of matrices instead of a pass over all couples.
    """
    membership_positive = np.eye(n_groups)[group_of_positive]
    membership_negative = np.eye(n_groups)[group_of_negative]
    wins_of_groups = membership_positive.T @ wins @ membership_negative
    times_drawn = np.random.default_rng(seed).multinomial(
        n_groups, [1 / n_groups] * n_groups, draws
    )
    won = ((times_drawn @ wins_of_groups) * times_drawn).sum(axis=1)
    positives = times_drawn @ membership_positive.sum(axis=0)
    negatives = times_drawn @ membership_negative.sum(axis=0)
    couples = positives * negatives
    low, high = np.percentile(won[couples > 0] / couples[couples > 0], [2.5, 97.5])
    return low, high
