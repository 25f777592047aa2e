"""Does CNT find disagreement, and what does CHR's mimic do to it? Checks with known answers.

Each row of a check is an AUROC: of two kinds of pairs, does the kind that disagrees score higher?
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lib.benchmarks.study import Condition, retrieve
from lib.contradiction.study import Scorer, Study
from lib.evaluate import holm, paired
from lib.evidence.load import DIRECTIONS
from lib.nli.labelled import SETS
from lib.nli.models import Backend
from lib.nli.scores import score_pairs
from lib.vectors import encode_small

__all__ = ["agreement", "checks", "mimics", "precision"]

_MATCH, _SAMPLE, _SIDES = 0.6, 2000, {"for", "against"}


def checks(study: Study, score: Scorer, encoder: Any) -> pd.DataFrame:
    """Every check that the evidence allows, one row each (see ``agreement``).

    *sentences*: contradictions against entailments of the hand-labelled pairs of evidence-mini.
    *length* (C8): abstracts of one pool against what their lengths alone would give. *stance*:
    abstracts on one topic that take opposite sides against the same side. *direction*: trials of
    one intervention and outcome that report opposite effects against the same effect. *statement*:
    an abstract and a sentence that turns its effect round against one that states it (written by a
    template, so that intervention and outcome are the same).
    """
    known = study.evidence
    pairs = study.pairs.sample(min(_SAMPLE, len(study.pairs)), random_state=0)
    texts = [(known[a].text, known[b].text) for a, b in pairs[["a", "b"]].to_numpy()]
    values = [*(s.value for s in score(texts)), *score.null(texts)]
    where, real = [known[a].medicine or a for a in pairs["a"]], np.repeat([True, False], len(pairs))
    rows = [_labelled(score.backend), agreement("length", values, real, where * 2)]
    sides = [(known[pair.a], known[pair.b], pair.value) for pair in study.pairs.itertuples()]
    same = [
        (value, a.meta["stance"] != b.meta["stance"], a.medicine)
        for a, b, value in sides
        if a.topic == b.topic != "" and {a.meta.get("stance"), b.meta.get("stance")} <= _SIDES
    ]
    if same:
        rows.append(agreement("stance", *zip(*same, strict=True)))
    found = [(i, e) for i, d in known.items() for e in d.meta.get("effects", ())
             if e["effect"] != DIRECTIONS["0"]]  # fmt: skip
    if found:
        rows += [_directions(found, known, score, encoder), _statements(found, known, score)]
    return pd.DataFrame(rows)


def agreement(
    check: str, values: Sequence[float], positive: Sequence[bool], groups: Sequence[str],
    draws: int = 2000, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """One row: AUROC of ``values`` with its 95 % interval, a bootstrap over ``groups``; means, n.

    NOT RUN without both kinds. Draws of groups that lack one kind are left out of the interval.
    """
    v, p = np.asarray(values, float), np.asarray(positive, bool)
    names, code = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    row = {"check": check, "positives": int(p.sum()), "negatives": int((~p).sum()),
           "groups": len(names), "mean_positive": np.nan, "mean_negative": np.nan,
           "auroc": np.nan, "low": np.nan, "high": np.nan, "verdict": "NOT RUN"}  # fmt: skip
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
    return row | {"mean_positive": v[p].mean(), "mean_negative": v[~p].mean(), "low": low,
                  "high": high, "auroc": higher.mean(), "verdict": clear}  # fmt: skip


def _labelled(backend: Backend) -> dict[str, Any]:
    some = [p for p in SETS["evidence-mini pairs"]() if p.label != "neutral"]
    values = score_pairs([(p.a, p.b) for p in some], backend)
    opposite = [p.label == "contradiction" for p in some]
    return agreement("sentences", values, opposite, [p.group for p in some])


def precision(backend: Backend, tops: Sequence[int] = (10, 25, 50, 100)) -> pd.DataFrame:
    """Of the hand-labelled pairs of evidence-mini that score highest, how many contradict (C10).

    Columns: backend, top, right, value, low, high (Wilson), base (the share among all), n.
    """
    from statsmodels.stats.proportion import proportion_confint

    pairs = SETS["evidence-mini pairs"]()
    order = np.argsort(-score_pairs([(p.a, p.b) for p in pairs], backend), kind="stable")
    right, rows = np.array([pairs[i].label == "contradiction" for i in order]), []
    for top in tops:
        low, high = proportion_confint(right[:top].sum(), top, method="wilson")
        rows.append({"backend": backend.name, "top": top, "right": int(right[:top].sum()),
                     "value": right[:top].mean(), "low": low, "high": high,
                     "base": right.mean(), "n": len(pairs)})  # fmt: skip
    return pd.DataFrame(rows)


def _directions(found: list, known: dict, score: Scorer, encoder: Any) -> dict[str, Any]:
    """Two articles whose interventions and outcomes both have a cosine of at least ``_MATCH``."""
    near = np.ones((len(found), len(found)), bool)
    for part in ("intervention", "outcome"):
        rows = encode_small([e[part] or "-" for _, e in found], encoder, "article")
        near &= rows @ rows.T >= _MATCH
    couples: dict[tuple[str, str], bool] = {}
    for x, y in np.argwhere(np.triu(near, 1)):
        (a, one), (b, other) = sorted((found[x], found[y]), key=lambda own: own[0])
        if a != b:
            couples[a, b] = couples.get((a, b), False) or one["effect"] != other["effect"]
    values = [s.value for s in score([(known[a].text, known[b].text) for a, b in couples])]
    return agreement("direction", values, list(couples.values()), [a for a, _ in couples])


def _statements(found: list, known: dict, score: Scorer) -> dict[str, Any]:
    pairs, turned = [], []
    for i, e in found:
        for effect in (DIRECTIONS["1"], DIRECTIONS["-1"]):
            said = f"{e['intervention']} significantly {effect} {e['outcome']}"
            pairs.append((known[i].text, f"{said} compared with {e['comparator']}."))
            turned.append(effect != e["effect"])
    articles = [i for i, _ in found for _ in range(2)]
    return agreement("statement", [s.value for s in score(pairs)], turned, articles)


def mimics(bench: Any, store: Any, score: Scorer, lam: float, k: int = 5) -> pd.DataFrame:
    """Mean pairwise CNT among the top k of a benchmark's test questions, H+ alone against contrast.

    Columns: benchmark, measure, arm, against, value and passed (share of sentence pairs that were
    compared) of both, and the paired test of the difference; Holm over the table. ``excess`` is CNT
    less what the numbers and lengths of the compared sentences alone would give: passages with
    less in common have fewer of them, and so a lower maximum. The matched rotation turns the query
    as far towards another question's mimic. Questions without two passages drop out.
    """
    arms = {"H+ alone": (0.0, False)}
    for at in (lam, 1.0):
        arms |= {f"CHR, λ = {at:g}": (at, False), f"matched rotation, λ = {at:g}": (at, True)}
    tall, rows = [], bench.rows(bench.benchmark.test)
    for arm, (at, rotated) in arms.items():
        found, _ = retrieve(bench, Condition(rotation=rotated), at, rows, depth=k)
        tall += [(arm, q, *sorted(c)) for q, ids in found.items() for c in combinations(ids, 2)]
    tall = pd.DataFrame(tall, columns=["arm", "qid", "a", "b"])
    texts = {p.pid: p.text for p in store.get_many(sorted({*tall["a"], *tall["b"]}))}
    met = tall[["a", "b"]].drop_duplicates()
    couples = [(texts[a], texts[b]) for a, b in met.to_numpy()]
    scores = score(couples)
    met["cnt"], met["passed"] = zip(*((s.value, s.passed / s.pairs) for s in scores), strict=True)
    met["excess"] = met["cnt"] - score.null(couples)
    tall = tall.merge(met, on=["a", "b"]).drop(columns=["a", "b"])
    wide, out = tall.groupby(["qid", "arm"]).mean().unstack().dropna(), []
    for arm in (x for x in arms if x.startswith("CHR")):
        for other in ("H+ alone", arm.replace("CHR", "matched rotation")):
            for measure in ("cnt", "excess"):
                row = {"benchmark": bench.benchmark.name, "measure": measure, "arm": arm}
                row |= {"against": other, "value": wide[measure, arm].mean(),
                        "value_against": wide[measure, other].mean(),
                        "passed": wide["passed", arm].mean(),
                        "passed_against": wide["passed", other].mean()}  # fmt: skip
                out.append(row | paired(wide[measure, arm], wide[measure, other]))
    return pd.DataFrame(out).assign(p_holm=holm([row["p"] for row in out]))
