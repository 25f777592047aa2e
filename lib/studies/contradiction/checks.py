"""Does CNT find disagreement that is known, and what does contrast do to it?

Pairs whose answer is known are scored once (``check_values``). Each row of ``checks_table`` is an
AUROC of them: of two kinds of pairs, does the kind that disagrees score higher?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lib.query_spec import SearchSpec
from lib.stats import Pair, claims, resampled_sums
from lib.studies.contradiction.cnt import Scorer, strangers
from lib.studies.contradiction.evidence import DIRECTIONS
from lib.studies.contradiction.labelled import SETS, is_held_out, judged_couples
from lib.studies.contradiction.nli import score_pairs
from lib.studies.contradiction.pools import Pools
from lib.studies.lambda_sweep.arms import H_PLUS, OpenBenchmark
from lib.study import search_arm

DRAWS = 3
"""Random mimics behind the matched rotation's mean; few, because every passage pair is scored."""


def check_values(pools: Pools) -> pd.DataFrame:
    """The pairs of every check that the evidence allows: check, group, positive, value.

    *sentences*: contradictions against entailments of the labelled pairs of evidence-mini, by the
    NLI model alone. *length*: abstracts of one pool against as long ones of another pool; of those
    few sentences are near enough to be compared, so beside it *length, as many compared* takes as
    many of their sentence pairs, the nearest. *stance*: abstracts on one topic that take opposite
    sides against the same side. *statement*: an abstract and a sentence that turns its effect round
    against one that states it (written by a template, so that intervention and outcome are the
    same). *judged*: couples of abstracts that the judge says disagree, against those that agree.
    ``positive`` says which pairs should score higher, ``value`` is the score, and what is resampled
    is ``group``, a number.
    """
    parts = [_sentences(pools), *_lengths(pools), _stances(pools), _statements(pools)]
    return pd.concat([*parts, _judged(pools)], ignore_index=True)


def checks_table(values: pd.DataFrame) -> pd.DataFrame:
    """One row (see ``auroc_row``) for each check of ``check_values``."""
    rows = [
        auroc_row(check, own["value"], own["positive"] == 1, own["group"])
        for check, own in values.groupby("check", sort=False)
    ]
    return pd.DataFrame(rows)


def _pairs(
    check: str, values: Sequence[float], positive: Sequence[bool], groups: Sequence[str]
) -> pd.DataFrame:
    """Rows of ``check_values``: 1 or 0 for ``positive``."""
    number = pd.factorize(np.asarray(groups, str), sort=True)[0]
    columns = {"check": check, "group": number, "positive": np.asarray(positive, int)}
    return pd.DataFrame(columns | {"value": np.asarray(values, float)})


def _sentences(pools: Pools) -> pd.DataFrame:
    pairs = [pair for pair in SETS["evidence-mini pairs"]() if pair.label != "neutral"]
    values = score_pairs([(pair.a, pair.b) for pair in pairs], pools.score.backend)
    contradicts = [pair.label == "contradiction" for pair in pairs]
    return _pairs("sentences", values, contradicts, [pair.group for pair in pairs])


def _sample(pools: Pools) -> pd.DataFrame:
    return pools.pairs.sample(min(2000, len(pools.pairs)), random_state=0)


def _lengths(pools: Pools) -> list[pd.DataFrame]:
    """Pairs of one pool against length-matched pairs across pools, compared in both ways."""
    together = list(pools.ids_of.values())
    if len(set(map(frozenset, together))) < 2:
        return []  # one medicine alone has no strangers
    pairs, texts = _sample(pools), pools.texts
    couples = strangers(pairs[["a", "b"]].to_numpy().tolist(), texts, together)
    null_texts = [(texts[a], texts[b]) for a, b in couples]
    group_of = [pools.evidence[i].medicine or i for i in pairs["a"]]
    is_real = np.repeat([True, False], len(pairs))
    parts = []
    counted = {"length": None, "length, as many compared": pairs["passed"].tolist()}
    for name, counts in counted.items():
        null_values = [score.value for score in pools.score(null_texts, counts)]
        parts.append(_pairs(name, [*pairs["value"], *null_values], is_real, group_of * 2))
    return parts


def _stances(pools: Pools) -> pd.DataFrame:
    """Couples on one topic whose stances are known; there may be none."""
    values, opposite, medicines = [], [], []
    for pair in pools.pairs.itertuples():
        a, b = pools.evidence[pair.a], pools.evidence[pair.b]
        stances = {a.meta.get("stance"), b.meta.get("stance")}
        if a.topic and a.topic == b.topic and stances <= {"for", "against"}:
            values.append(pair.value)
            opposite.append(len(stances) == 2)
            medicines.append(a.medicine)
    return _pairs("stance", values, opposite, medicines)


def _statements(pools: Pools) -> pd.DataFrame:
    """Each abstract with a sentence that states its effect and with one that turns it round.

    Only effects that doctors read off an abstract and that have a direction, of articles that no
    model here was trained on; there may be none.
    """
    pairs, turned, articles = [], [], []
    for i, abstract in pools.evidence.items():
        if not is_held_out(i.removeprefix("pmc:").removeprefix("PMC")):
            continue
        for effect in abstract.meta.get("effects", ()):
            if effect["effect"] == DIRECTIONS["0"]:
                continue
            for direction in (DIRECTIONS["1"], DIRECTIONS["-1"]):
                claim = f"{effect['intervention']} significantly {direction} {effect['outcome']}"
                pairs.append((abstract.text, f"{claim} compared with {effect['comparator']}."))
                turned.append(direction != effect["effect"])
                articles.append(i)
    values = [score.value for score in pools.score(pairs)]
    return _pairs("statement", values, turned, articles)


def _judged(pools: Pools) -> pd.DataFrame:
    texts = pools.texts
    pairs = judged_couples(texts, ("mini", "query", "near"))
    pairs = pairs[pairs["stance"].isin(["agree", "disagree"])]
    couples = [(texts[a], texts[b]) for a, b in zip(pairs["a"], pairs["b"], strict=True)]
    values = [score.value for score in pools.score(couples)]
    return _pairs("judged", values, pairs["value"] == 1, pairs["pool"].tolist())


def maxima(pools: Pools) -> pd.DataFrame:
    """CNT of the same couples as the highest score and as the mean of the three highest.

    Columns: top, mean, with_compared (rank correlation with how many sentence pairs were compared:
    how far CNT counts opportunities), with_top_1 (rank correlation with the paper's maximum), n.
    """
    pairs = _sample(pools)
    ranks = pairs[["passed", "top_1", "top_3"]].rank()
    rows = []
    for top in (1, 3):
        own = ranks[f"top_{top}"]
        row = {"top": top, "mean": pairs[f"top_{top}"].mean()}
        row |= {"with_compared": own.corr(ranks["passed"]), "with_top_1": own.corr(ranks["top_1"])}
        rows.append(row | {"n": len(pairs)})
    return pd.DataFrame(rows)


def auroc_row(
    check: str,
    values: np.ndarray,
    positive: np.ndarray,
    groups: Sequence[str],
) -> dict[str, Any]:
    """One row: AUROC of ``values`` with its 95 % interval, a bootstrap over ``groups``; means, n.

    Without both kinds the AUROC is missing. Draws of groups that lack one kind are left out of the
    interval.
    """
    values, positive = np.asarray(values, float), np.asarray(positive, bool)
    names, group_of = np.unique(np.asarray(groups), return_inverse=True)
    row = {"check": check, "positives": int(positive.sum())}
    row |= {"negatives": int((~positive).sum()), "groups": len(names)}
    measured = ("mean_positive", "mean_negative", "auroc", "low", "high")
    if positive.all() or not positive.any():
        return row | dict.fromkeys(measured, np.nan)
    above, below = values[positive][:, None], values[~positive]
    wins = (above > below) + (above == below) / 2  # shape (positives, negatives)
    # A couple counts as often as both its groups were drawn. Summed by couples of groups first, a
    # draw is two small products of matrices instead of a pass over all couples.
    member = np.eye(len(names))[group_of]
    times_drawn = resampled_sums(np.eye(len(names)))
    won = times_drawn @ (member[positive].T @ wins @ member[~positive])
    one, other = (times_drawn @ member[kind].sum(axis=0) for kind in (positive, ~positive))
    couples = one * other
    drawn = (won * times_drawn).sum(axis=1)[couples > 0] / couples[couples > 0]
    low, high = np.percentile(drawn, [2.5, 97.5])
    means = (values[positive].mean(), values[~positive].mean())
    return row | dict(zip(measured, (*means, wins.mean(), low, high), strict=True))


# what contrast does to CNT ------------------------------------------------------------------------


def mimic_values(
    bench: OpenBenchmark, store: Any, score: Scorer, lam: float, k: int = 5
) -> pd.DataFrame:
    """Mean pairwise CNT among the top k of a benchmark's test questions: arm, qid, metric, value.

    Arms are H+ alone, contrast at ``lam`` and 1, and the matched rotation, which turns the query as
    far towards another question's mimic. Metrics: ``cnt``; ``passed``, the share of sentence pairs
    that were compared; and ``excess``, CNT less that of a passage as long that was retrieved for
    other questions alone, of which as many sentence pairs are compared, the nearest: passages with
    less in common have fewer of them, and so a lower maximum. Without any, CNT and ``excess`` are
    0. Questions without two passages by every arm drop out.
    """
    specs = [H_PLUS]
    for at in (lam, 1.0):
        specs += [SearchSpec(lam=at), SearchSpec(lam=at, rotation=True)]
    couples = []
    for arm in map(bench.arm, specs):
        arm = replace(arm, draws=min(arm.draws, DRAWS))
        for found in search_arm(arm, bench.benchmark.test, bench.retriever, k):
            for qid, pids in found.items():
                couples += [(arm.name, qid, *sorted(pair)) for pair in combinations(pids, 2)]
    couples = pd.DataFrame(couples, columns=["arm", "qid", "a", "b"])
    scored = couples.merge(_scored(couples, store, score), on=["a", "b"]).drop(columns=["a", "b"])
    means = scored.groupby(["qid", "arm"]).mean()
    whole = means.unstack().dropna().index
    means = means[means.index.get_level_values("qid").isin(whole)]
    long = means.reset_index().melt(["arm", "qid"], var_name="metric")
    return long.sort_values(["metric", "arm", "qid"], ignore_index=True)


def _scored(tall: pd.DataFrame, store: Any, score: Scorer) -> pd.DataFrame:
    """Every couple of passages once: a, b, cnt, passed, excess."""
    texts = {p.pid: p.text for p in store.get_many(sorted({*tall["a"], *tall["b"]}))}
    met = tall[["a", "b"]].drop_duplicates(ignore_index=True)
    couples = met.to_numpy().tolist()
    pools = [{*own["a"], *own["b"]} for _, own in tall.groupby("qid", sort=False)]
    real = score([(texts[a], texts[b]) for a, b in couples])
    others = [(texts[a], texts[b]) for a, b in strangers(couples, texts, pools)]
    null = score(others, [s.passed for s in real])
    return met.assign(
        cnt=[s.value for s in real],
        passed=[s.passed / max(1, s.pairs) for s in real],
        excess=[s.value - other.value for s, other in zip(real, null, strict=True)],
    )


def mimics_table(values: pd.DataFrame, name: str, lam: float) -> pd.DataFrame:
    """``mimic_values`` as paired differences with intervals; none was declared.

    Columns: benchmark (``name``), measure, arm, baseline, value and passed of both, difference,
    low, high, n, mde.
    """
    pairs = [
        Pair("", measure, f"chr@{at:g}", baseline)
        for at in (lam, 1.0)
        for baseline in ("hplus", f"chr+rotation@{at:g}")
        for measure in ("cnt", "excess")
    ]
    table = claims(values, pairs).rename(columns={"metric": "measure"})
    passed = values[values["metric"] == "passed"].groupby("arm")["value"].mean()
    table = table.assign(
        benchmark=name,
        passed=table["arm"].map(passed),
        passed_baseline=table["baseline"].map(passed),
    )
    columns = ["benchmark", "measure", "arm", "baseline", "value", "passed", "value_baseline"]
    return table[[*columns, "passed_baseline", "difference", "low", "high", "n", "mde"]]
