"""What CHR's mimic does to the contradiction among the passages that are retrieved."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pandas as pd

from lib.stats import holm, paired
from lib.studies.contradiction.cnt import Scorer, strangers
from lib.studies.lam.arms import Arm
from lib.studies.lam.study import found_by
from lib.ways import Way

__all__ = ["CODE", "mimics"]

CODE = (
    "lib.studies.contradiction.retrieved",
    "lib.studies.lam",
    "lib.studies.lam.place",
    "lib.data.corpora",
)
"""What its results depend on beside the study's own code."""


def mimics(bench: Any, store: Any, score: Scorer, lam: float, k: int = 5) -> pd.DataFrame:
    """Mean pairwise CNT among the top k of a benchmark's test questions, H+ alone against contrast.

    Columns: benchmark, measure, arm, against, value and passed (share of sentence pairs that were
    compared) of both, and the paired test of the difference; Holm over the table. ``excess`` is CNT
    less that of a passage as long (C8) that was retrieved for other questions alone, of which as
    many sentence pairs are compared, the nearest: passages with less in common have fewer of them,
    and so a lower maximum; without any, CNT and ``excess`` are 0. The matched rotation turns the
    query as far towards another question's mimic. Questions without two passages drop out.
    """
    arms = {"H+ alone": (0.0, False)}
    for at in (lam, 1.0):
        arms |= {f"CHR, λ = {at:g}": (at, False), f"matched rotation, λ = {at:g}": (at, True)}
    tall = []
    for arm, (at, rotated) in arms.items():
        arm_way = Arm(Way(lam=at, rotation=rotated))
        found = found_by(bench, arm_way, bench.benchmark.test, depth=k)
        tall += [(arm, q, *sorted(c)) for q, ids in found.items() for c in combinations(ids, 2)]
    tall = pd.DataFrame(tall, columns=["arm", "qid", "a", "b"])
    wide = tall.merge(_scored(tall, store, score), on=["a", "b"]).drop(columns=["a", "b"])
    wide, out = wide.groupby(["qid", "arm"]).mean().unstack().dropna(), []
    for arm in (x for x in arms if x.startswith("CHR")):
        for other in ("H+ alone", arm.replace("CHR", "matched rotation")):
            for measure in ("cnt", "excess"):
                row = {"benchmark": bench.benchmark.name, "measure": measure, "arm": arm}
                row |= {
                    "against": other,
                    "value": wide[measure, arm].mean(),
                    "value_against": wide[measure, other].mean(),
                    "passed": wide["passed", arm].mean(),
                    "passed_against": wide["passed", other].mean(),
                }
                out.append(row | paired(wide[measure, arm], wide[measure, other]))
    return pd.DataFrame(out).assign(p_holm=holm([row["p"] for row in out]))


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
