"""What a notebook shows of a study: one question's passages, its lines in lambda."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.search.contrast import rotation
from lib.stats import class_of
from lib.studies.lam.study import Condition, Study, retrieve

__all__ = ["top_table", "lines_table", "pair_table", "mark", "story", "pick"]


def _found(study: Study, qid: str, lam: float, k: int) -> list[str]:
    return retrieve(study, Condition(), lam, study.rows([qid]), depth=k)[0].get(qid, [])


def _class(study: Study, qid: str, pid: str) -> str:
    b = study.benchmark
    return class_of(pid, b.targets[qid], b.mimics[qid])


def top_table(study: Study, store, qid: str, lambdas: Sequence[float], k: int) -> pd.DataFrame:
    """The top k of one question at several lambdas: lambda, rank, class, title, how it begins."""
    rows = [
        (lam, rank, _class(study, qid, p.pid), p.title or p.text[:60], p.pid)
        for lam in lambdas
        for rank, p in enumerate(store.get_many(_found(study, qid, lam, k)), 1)
    ]
    return pd.DataFrame(rows, columns=["lambda", "rank", "class", "passage", "pid"])


def lines_table(study: Study, qid: str, lam: float, k: int, depth: int = 30) -> pd.DataFrame:
    """The passages that matter for one question: pid, class, s_plus, s_minus, score at ``lam``.

    They are the best ``depth`` at lambda 0, at 1 and at ``lam``.
    """
    tops = [_found(study, qid, at, max(depth, k)) for at in (0.0, 1.0, lam)]
    pids = sorted(set().union(*tops))
    (i,) = study.rows([qid])
    pair = np.stack([study.h_plus[i], study.h_minus["nearest"][i]])
    table = pd.DataFrame({"pid": pids, "class": [_class(study, qid, pid) for pid in pids]})
    table["s_plus"], table["s_minus"] = study.index.score(pair, pids)
    table["score"] = table["s_plus"] - lam * table["s_minus"]
    return table.sort_values("score", ascending=False, ignore_index=True)


def pair_table(study: Study, lam: float) -> pd.DataFrame:
    """Every question's pair: c = cos(h+, h-), and the query's turn in degrees at two lambdas."""
    c = study.c()
    turns = {f"turn at {x:g}": rotation(c, x) for x in (lam, 1.0)}
    return pd.DataFrame({"qid": study.benchmark.qids, "c": c} | turns)


def pick(curves: pd.DataFrame, wanted: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """The curves called ``{label: (hypotheses, mode)}``, with the label as first column."""
    groups = dict(iter(curves.groupby(["hypotheses", "mode"])))
    parts = [groups[key].assign(label=label) for label, key in wanted.items() if key in groups]
    return pd.concat(parts, ignore_index=True)[["label", *curves.columns]]


def mark(table: pd.DataFrame, lam: float) -> pd.DataFrame:
    """The table with the reader's lambda in a column, so that a figure's CSV says where it is."""
    return table.assign(lambda_marked=lam)


def story(curves: pd.DataFrame) -> pd.DataFrame:
    """Three rows for the first screen: H+ alone, these questions' own best lambda, lambda = 1."""
    rows = curves[(curves["hypotheses"] == "nearest") & (curves["mode"] == "full search")]
    best = rows.loc[rows["p_at_5"].idxmax()]
    none, one = (rows[rows["lambda"] == x].iloc[0] for x in (0, 1))
    names = ["H+ alone", "best on these questions", "the paper's"]
    picked = pd.DataFrame([none, best, one], index=names)
    shown = ["lambda", "p_at_5", "p_at_5_low", "p_at_5_high", "contamination_at_5"]
    return picked[[*shown, "neither_at_5", "n"]]
