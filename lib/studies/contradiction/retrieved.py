"""What CHR's mimic does to the contradiction among the passages that are retrieved."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pandas as pd

from lib.query_spec import SearchSpec
from lib.stats import paired
from lib.studies.contradiction.cnt import Scorer, strangers
from lib.studies.lambda_sweep.arms import H_PLUS, OpenBenchmark
from lib.study import search_arm

CODE = (
    "lib.open_retriever",
    "lib.corpora",
)
"""What its results depend on beside the study's own code and the benchmark's."""

DRAWS = 3
"""Strangers that the matched rotation is averaged over: every pair of passages is scored."""


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


def mimics_table(values: pd.DataFrame, name: str, lam: float) -> pd.DataFrame:
    """``mimic_values`` as paired differences with intervals; none was declared.

    Columns: benchmark (``name``), measure, arm, against, value and passed of both, difference, low,
    high, n, least.
    """
    by_qid = values.sort_values("qid").set_index("qid")
    of = {key: own["value"] for key, own in by_qid.groupby(["metric", "arm"])}
    rows = []
    for at in (lam, 1.0):
        arm = f"chr@{at:g}"
        for against in ("hplus", f"chr+rotation@{at:g}"):
            for measure in ("cnt", "excess"):
                row = {"benchmark": name, "measure": measure, "arm": arm, "against": against}
                for suffix, which in (("", arm), ("_against", against)):
                    row[f"value{suffix}"] = of[measure, which].mean()
                    row[f"passed{suffix}"] = of["passed", which].mean()
                rows.append(row | paired(of[measure, arm], of[measure, against]))
    return pd.DataFrame(rows).drop(columns="p")


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
