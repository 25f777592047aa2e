"""Single claims, by a rule: where SL-HyDE gains most over HyDE, changes nothing, and loses most.

The paper's Tables 7 and 11 show one case of each kind. Ours are those of SciFact with the greatest,
no, and the least change of 1 / rank of the first abstract that the claim cites. A case by its
extreme is no evidence: how many claims rise and fall stands beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.run import RetrievalFailure, Retriever
from lib.studies.slhyde.cmirb import Task
from lib.studies.slhyde.evaluate import request_of

DEEP = 1000
"""Ranks beyond it count as not found, and 1 / rank as 0."""

CASES = ("the greatest gain", "no change", "the greatest loss")


def first_ranks(
    task: Task, retriever: Retriever, passages: Mapping[str, Sequence[str]]
) -> pd.Series:
    """The rank from 1 of the first relevant passage, by query id; ``DEEP`` + 1 if not found.

    Searched with the mean of query and written passages, for the queries that have some.
    """
    requests = [request_of("mean", task.queries[qid], texts) for qid, texts in passages.items()]
    ranks = {}
    for qid, hits in zip(passages, retriever.search_many(requests, DEEP), strict=True):
        ids = [] if isinstance(hits, RetrievalFailure) else hits.ids[0].tolist()
        found = [rank for rank, pid in enumerate(ids, 1) if task.qrels[qid].get(pid, 0) > 0]
        ranks[qid] = found[0] if found else DEEP + 1
    return pd.Series(ranks, name="rank", dtype=int)


def case_counts(before: pd.Series, after: pd.Series) -> pd.DataFrame:
    """How many queries rose, stayed and fell: columns change, n. Ranks as ``first_ranks`` has."""
    moved = before - after.reindex(before.index)
    counts = {"rose": (moved > 0).sum(), "stayed": (moved == 0).sum(), "fell": (moved < 0).sum()}
    return pd.DataFrame([{"change": name, "n": int(n)} for name, n in counts.items()])


def case_rows(
    task: Task,
    before: pd.Series,
    after: pd.Series,
    written: Mapping[str, Mapping[str, Sequence[str]]],
) -> pd.DataFrame:
    """One query for each of ``CASES``: case, qid, query, rank_before, rank_after, and what the
    generator wrote before its tuning and after (``base``, ``tuned``; empty where it wrote nothing).

    Ties go to the smaller id; of those that stay, the first by rank is shown, then by id.
    """
    table = pd.DataFrame({"rank_before": before, "rank_after": after.reindex(before.index)})
    table["gain"] = _reciprocal(table["rank_after"]) - _reciprocal(table["rank_before"])
    table = table.rename_axis("qid").reset_index().sort_values("qid", kind="stable")
    still = table[table["rank_before"] == table["rank_after"]].sort_values(
        "rank_before", kind="stable"
    )
    chosen = [
        table.sort_values("gain", ascending=False, kind="stable").head(1),
        still.head(1),
        table.sort_values("gain", kind="stable").head(1),
    ]
    rows = []
    for case, own in zip(CASES, chosen, strict=True):
        for row in own.itertuples():
            said = {who: " ".join(written[who].get(row.qid, ())) for who in ("base", "tuned")}
            found = {"case": case, "qid": row.qid, "query": task.queries[row.qid]}
            found |= {"rank_before": row.rank_before, "rank_after": row.rank_after}
            rows.append(found | said)
    return pd.DataFrame(rows)


def _reciprocal(ranks: pd.Series) -> pd.Series:
    """1 / rank, 0 where nothing was found."""
    return (1 / ranks).where(ranks <= DEEP, 0.0)
