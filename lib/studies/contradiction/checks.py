"""Does CNT find disagreement that is known? Checks with known answers.

Each row of a check is an AUROC: of two kinds of pairs, does the kind that disagrees score higher?
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
from lib.studies.nli.labelled import SETS
from lib.studies.nli.models import Backend
from lib.studies.nli.scores import score_pairs

__all__ = ["agreement", "checks", "maxima", "precision"]

_SAMPLE, _SIDES = 2000, {"for", "against"}


def checks(study: Study) -> pd.DataFrame:
    """Every check that the evidence allows, one row each (see ``agreement``).

    *sentences*: contradictions against entailments of the labelled pairs of evidence-mini.
    *length* (C8): abstracts of one pool against as long ones of another pool; of those few
    sentences are near enough to be compared, so beside it *length, as many compared* takes as many
    of their sentence pairs, the nearest. *stance*: abstracts on one topic that take opposite sides
    against the same side. *statement*: an abstract and a sentence that turns its effect round
    against one that states it (written by a template, so that intervention and outcome are the
    same).
    """
    known = study.evidence
    rows = [_labelled(study.score.backend), *_lengths(study)]
    sides = [(known[pair.a], known[pair.b], pair.value) for pair in study.pairs.itertuples()]
    same = [
        (value, a.meta["stance"] != b.meta["stance"], a.medicine)
        for a, b, value in sides
        if a.topic == b.topic != "" and {a.meta.get("stance"), b.meta.get("stance")} <= _SIDES
    ]
    if same:
        rows.append(agreement("stance", *zip(*same, strict=True)))
    found = [
        (i, e)
        for i, d in known.items()
        for e in d.meta.get("effects", ())
        if e["effect"] != DIRECTIONS["0"]
    ]
    return pd.DataFrame([*rows, _statements(found, study)] if found else rows)


def _sample(study: Study) -> pd.DataFrame:
    return study.pairs.sample(min(_SAMPLE, len(study.pairs)), random_state=0)


def _lengths(study: Study) -> list[dict[str, Any]]:
    """Real couples against couples that only length makes alike, compared in both ways."""
    pairs, texts = _sample(study), {i: d.text for i, d in study.evidence.items()}
    pools, names = study.pools(), ("length", "length, as many compared")
    if len(set(map(frozenset, pools))) < 2:  # one medicine alone has no strangers
        return [agreement(name, [], [], []) for name in names]
    couples = strangers(pairs[["a", "b"]].to_numpy().tolist(), texts, pools)
    others = [(texts[a], texts[b]) for a, b in couples]
    where = [study.evidence[a].medicine or a for a in pairs["a"]] * 2
    real, rows = np.repeat([True, False], len(pairs)), []
    for name, counts in zip(names, (None, pairs["passed"].tolist()), strict=True):
        values = [*pairs["value"], *(s.value for s in study.score(others, counts))]
        rows.append(agreement(name, values, real, where))
    return rows


def maxima(study: Study, tops: Sequence[int] = (1, 3)) -> pd.DataFrame:
    """C8: CNT of the same couples as the mean of the ``tops`` highest scores.

    Columns: top, mean, with_compared (rank correlation with how many sentence pairs were compared:
    how far CNT counts opportunities), with_top_1 (rank correlation with the paper's maximum), n.
    """
    pairs, score = _sample(study), study.score
    couples, found = pairs[["a", "b"]].to_numpy().tolist(), {}
    for top in dict.fromkeys((1, *tops)):
        own = replace(score, switches={**score.switches, "top": top})
        found[top] = score_couples(couples, study.evidence, own)
    ranks = {top: table["value"].rank() for top, table in found.items()}
    compared = found[1]["passed"].rank()
    return pd.DataFrame(
        [
            {
                "top": top,
                "mean": found[top]["value"].mean(),
                "with_compared": ranks[top].corr(compared),
                "with_top_1": ranks[top].corr(ranks[1]),
                "n": len(pairs),
            }
            for top in tops
        ]
    )


def agreement(
    check: str,
    values: Sequence[float],
    positive: Sequence[bool],
    groups: Sequence[str],
    draws: int = 2000,
    seed: int = 0,
) -> dict[str, Any]:
    """One row: AUROC of ``values`` with its 95 % interval, a bootstrap over ``groups``; means, n.

    NOT RUN without both kinds. Draws of groups that lack one kind are left out of the interval.
    """
    v, p = np.asarray(values, float), np.asarray(positive, bool)
    names, code = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    row = {
        "check": check,
        "positives": int(p.sum()),
        "negatives": int((~p).sum()),
        "groups": len(names),
        "mean_positive": np.nan,
        "mean_negative": np.nan,
        "auroc": np.nan,
        "low": np.nan,
        "high": np.nan,
        "verdict": "NOT RUN",
    }
    if p.all() or not p.any():
        return row
    higher = (v[p][:, None] > v[~p]) + (v[p][:, None] == v[~p]) / 2
    one, other = (np.eye(len(names))[code[some]] for some in (p, ~p))  # whose group each is
    drawn = np.random.default_rng(seed).multinomial(
        len(names), [1 / len(names)] * len(names), draws
    )
    wins = ((drawn @ (one.T @ higher @ other)) * drawn).sum(axis=1)
    met = (drawn @ one.sum(axis=0)) * (drawn @ other.sum(axis=0))
    low, high = np.percentile(wins[met > 0] / met[met > 0], [2.5, 97.5])
    clear = "ABOVE CHANCE" if low > 0.5 else "BELOW CHANCE" if high < 0.5 else "INCONCLUSIVE"
    return row | {
        "mean_positive": v[p].mean(),
        "mean_negative": v[~p].mean(),
        "low": low,
        "high": high,
        "auroc": higher.mean(),
        "verdict": clear,
    }


def _labelled(backend: Backend) -> dict[str, Any]:
    some = [p for p in SETS["evidence-mini pairs"]() if p.label != "neutral"]
    values = score_pairs([(p.a, p.b) for p in some], backend)
    opposite = [p.label == "contradiction" for p in some]
    return agreement("sentences", values, opposite, [p.group for p in some])


def precision(backend: Backend, tops: Sequence[int] = (10, 25, 50, 100)) -> pd.DataFrame:
    """Of the labelled pairs of evidence-mini that score highest, how many contradict (C10).

    Columns: backend, top, right, value, low, high (Wilson), base (the share among all), n.
    """
    from statsmodels.stats.proportion import proportion_confint

    pairs = SETS["evidence-mini pairs"]()
    order = np.argsort(-score_pairs([(p.a, p.b) for p in pairs], backend), kind="stable")
    right, rows = np.array([pairs[i].label == "contradiction" for i in order]), []
    for top in tops:
        low, high = proportion_confint(right[:top].sum(), top, method="wilson")
        rows.append(
            {
                "backend": backend.name,
                "top": top,
                "right": int(right[:top].sum()),
                "value": right[:top].mean(),
                "low": low,
                "high": high,
                "base": right.mean(),
                "n": len(pairs),
            }
        )
    return pd.DataFrame(rows)


def _statements(found: list, study: Study) -> dict[str, Any]:
    pairs, turned, known = [], [], study.evidence
    for i, e in found:
        for effect in (DIRECTIONS["1"], DIRECTIONS["-1"]):
            said = f"{e['intervention']} significantly {effect} {e['outcome']}"
            pairs.append((known[i].text, f"{said} compared with {e['comparator']}."))
            turned.append(effect != e["effect"])
    articles = [i for i, _ in found for _ in range(2)]
    return agreement("statement", [s.value for s in study.score(pairs)], turned, articles)
