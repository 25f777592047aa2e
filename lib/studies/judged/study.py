"""The contradiction study on judged pairs: the same pools, ranks and tables, other values.

A couple's value is 1 where both passes say that the two disagree, and 0 else, so CNT(d) is the
share of a pool's other abstracts that contradict d. Whatever reads a ``Study`` reads this one too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import pandas as pd

from lib.data.judgments import read_pair_judgments
from lib.embed import Encoder
from lib.studies.contradiction.checks import check_values as values_of_models
from lib.studies.contradiction.checks import pairs_of
from lib.studies.contradiction.cnt import document_cnt
from lib.studies.contradiction.study import Study, reranked
from lib.studies.nli.pairs import judged_pairs


def studies_of(modelled: Study, encoder: Encoder, **ranking: Any) -> dict[str, Study]:
    """The study on judged couples, where any was judged, and the modelled one, in that order."""
    judged = judged_study(modelled, encoder, **ranking)
    return {"judged": judged, "modelled": modelled} if judged else {"modelled": modelled}


def judged_study(study: Study, encoder: Encoder, **ranking: Any) -> Study | None:
    """``study`` with judged couples in place of scored ones; None where none of them is judged.

    Of evidence-mini every pool stays as it is; a couple on two topics of a medicine is on two
    questions and has the value 0. Of ``open`` the pools are those of the 60 judged queries, each
    with the seven abstracts that were judged.
    """
    texts = {i: abstract.text for i, abstract in study.evidence.items()}
    judged = judged_pairs(texts, ("mini", "query")).drop(columns="pool")
    pools = _judged_queries(study)
    if all(abstract.topic for abstract in study.evidence.values()):
        pools = {qid: sorted(ids) for qid, ids in study.ranked.groupby("qid", sort=False)["id"]}
    couples = {couple for ids in pools.values() for couple in combinations(ids, 2)}
    pairs = pd.DataFrame(sorted(couples), columns=["a", "b"]).merge(judged, "left", on=["a", "b"])
    if pairs["value"].notna().sum() == 0:
        return None
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


def beside(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Tables of one form, one below the other; the column ``contradiction`` says which is which
    (judged or modelled)."""
    parts = [table.assign(contradiction=name) for name, table in tables.items()]
    table = pd.concat(parts, ignore_index=True)
    return table[["contradiction", *table.columns.drop("contradiction")]]


def by_all(make: Callable[[Study], pd.DataFrame], studies: Mapping[str, Study]) -> pd.DataFrame:
    """A table of each study, ``beside`` each other."""
    return beside({name: make(study) for name, study in studies.items()})


def each(make: Callable[[pd.DataFrame], pd.DataFrame], table: pd.DataFrame) -> pd.DataFrame:
    """What ``make`` makes of the judged rows of a table and of the modelled ones, ``beside``."""
    parts = table.groupby("contradiction", sort=False)
    return beside({name: make(rows.drop(columns="contradiction")) for name, rows in parts})


def check_values(modelled: Study) -> pd.DataFrame:
    """``lib.studies.contradiction.checks.check_values``, and *judged*: couples of abstracts that
    the judge says disagree, against those that agree, by CNT."""
    texts = {i: abstract.text for i, abstract in modelled.evidence.items()}
    pairs = judged_pairs(texts, ("mini", "query", "near"))
    pairs = pairs[pairs["stance"].isin(["agree", "disagree"])]
    couples = pairs[["a", "b"]].to_numpy().tolist()
    values = [score.value for score in modelled.score([(texts[a], texts[b]) for a, b in couples])]
    judged = pairs_of("judged", values, pairs["value"] == 1, pairs["pool"].tolist())
    return pd.concat([values_of_models(modelled), judged], ignore_index=True)


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
