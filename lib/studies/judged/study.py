"""The contradiction study on judged pairs: the same pools, ranks and tables, other values.

A couple's value is 1 where both passes say that the two disagree, and 0 else, so CNT(d) is the
share of a pool's other abstracts that contradict d. Whatever reads a ``Study`` reads this one too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pandas as pd

from lib.data.pair_judgments import read_pair_judgments
from lib.search.embed import Encoder
from lib.studies.contradiction.cnt import document_cnt
from lib.studies.contradiction.study import Study, reranked
from lib.studies.nli.pairs import judged_pairs

__all__ = ["by_both", "judged_study", "most_contradictory"]


def judged_study(study: Study, encoder: Encoder, **ranking: Any) -> Study:
    """``study`` with judged couples in place of scored ones.

    Of evidence-mini every pool stays as it is; a couple on two topics of a medicine is on two
    questions and has the value 0. Of ``open`` the pools are those of the 60 judged queries, each
    with the seven abstracts that were judged. ValueError where none of a study's couples is judged.
    """
    texts = {i: abstract.text for i, abstract in study.evidence.items()}
    judged = judged_pairs(texts, ("mini", "query")).drop(columns="pool")
    pools = _judged_queries(study) or {
        qid: sorted(ids) for qid, ids in study.ranked.groupby("qid", sort=False)["id"]
    }
    couples = {couple for ids in pools.values() for couple in combinations(ids, 2)}
    pairs = pd.DataFrame(sorted(couples), columns=["a", "b"]).merge(judged, "left", on=["a", "b"])
    if pairs["value"].isna().all():
        raise ValueError("none of these abstracts was judged: see data/judgments/README.md")
    pairs = pairs.assign(value=pairs["value"].fillna(0.0), same=pairs["same"].eq(True))
    pairs = pairs.fillna(dict.fromkeys(("stance", "reason", "sentence_a", "sentence_b"), ""))
    value = pairs.set_index(["a", "b"])["value"].to_dict()
    cnt = [
        (qid, i, own) for qid, ids in pools.items() for i, own in document_cnt(value, ids).items()
    ]
    with_cnt = pd.DataFrame(cnt, columns=["qid", "id", "cnt"])
    needs = {qid: study.needs[qid] for qid in pools}
    unranked = replace(study, needs=needs, ranked=with_cnt, pairs=pairs)
    return replace(unranked, ranked=reranked(unranked, encoder, **ranking))


def _judged_queries(study: Study) -> dict[str, list[str]]:
    """The pools of ``open`` that were judged, by question id, ids in order; of others none."""
    pools: dict[str, set[str]] = {}
    for row in read_pair_judgments():
        group, _, qid = row["pool"].partition("/")
        if group == "query" and qid in study.needs and "plant:" not in row["a"] + row["b"]:
            pools.setdefault(qid, set()).update((row["a"], row["b"]))
    return {qid: sorted(ids & study.evidence.keys()) for qid, ids in pools.items()}


def by_both(make: Callable[[Study], pd.DataFrame], judged: Study, modelled: Study) -> pd.DataFrame:
    """A table of either study, one below the other; ``contradiction`` says which is whose."""
    parts = [
        make(study).assign(contradiction=name)
        for name, study in (("judged", judged), ("modelled", modelled))
    ]
    table = pd.concat(parts, ignore_index=True)
    return table[["contradiction", *table.columns.drop("contradiction")]]


def most_contradictory(study: Study, limit: int = 12) -> pd.DataFrame:
    """Couples that disagree, to be read: topic, years, both sentences, and why they differ.

    One a topic at most, the first by ids; topics in order.
    """
    rows, seen = [], set()
    for pair in study.pairs[study.pairs["value"] > 0].itertuples():
        a, b = study.evidence[pair.a], study.evidence[pair.b]
        topic = f"{a.medicine}, {a.topic}" if a.topic else a.title
        if topic in seen:
            continue
        seen.add(topic)
        row = {"topic": topic, "why": pair.reason}
        row |= {"year_a": a.year, "says_a": pair.sentence_a}
        rows.append(row | {"year_b": b.year, "says_b": pair.sentence_b})
    return pd.DataFrame(rows[:limit])
