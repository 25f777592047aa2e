"""The contradiction study on one set of evidence: pools, scores, Tables 1 and 3, Figure 2.

A document's S and CNT depend on the question it was found for; the paper collapses them in a way
it does not say, here they are averaged.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from lib.base.paths import DATA, REPORTED
from lib.search.embed import Encoder
from lib.search.vectors import encode_small
from lib.studies.contradiction.cnt import PairScore, Scorer, document_cnt
from lib.studies.contradiction.select import balanced, rank
from lib.studies.evidence.load import files_of, load_evidence, load_needs
from lib.studies.evidence.records import Evidence, Need
from lib.studies.nli.labelled import FILES

__all__ = [
    "BINS",
    "PERIODS",
    "Scorer",
    "Study",
    "behind",
    "documents",
    "heatmap",
    "open_study",
    "reported",
    "reranked",
    "score_couples",
    "table1",
    "table3",
    "timeline",
]

BINS = ("[0,0.2)", "[0.2,0.4)", "[0.4,0.6)", "[0.6,0.8)", "[0.8,1]")
PERIODS = ("<2000", "2000-2005", "2005-2010", "2010-2015", "2015-2020", "2020-2025")


@dataclass(frozen=True)
class Study:
    """``ranked``: what ``rank`` gives for every question with evidence, with ``qid`` and ``cnt``,
    CNT(d) in its pool. ``pairs``: a, b and the PairScore of every two abstracts that share a pool.
    ``score``: what scored them, its threshold set."""

    evidence: Mapping[str, Evidence]
    needs: Mapping[str, Need]
    ranked: pd.DataFrame
    pairs: pd.DataFrame
    score: Scorer

    def pools(self) -> list[set[str]]:
        """The ids of each question's abstracts."""
        return [set(ids) for _, ids in self.ranked.groupby("qid", sort=False)["id"]]


def open_study(
    name: str,
    encoder: Encoder,
    score: Scorer,
    *,
    nearest: int = 10,
    limit: int = 0,
    selection: Mapping[str, Any] = MappingProxyType({}),
    **ranking: Any,
) -> Study:
    """Pools by Algorithm 1, ranked by Algorithm 2 (``ranking`` goes to ``rank``), scored by CNT.

    Candidates are what PubMed found for the question (``tga:``), all abstracts on its medicine
    (evidence-mini), or the ``nearest`` to it (open). A question without any has no pool.
    ``selection`` goes to ``balanced``; ``limit`` takes the first questions (0 = all).
    """
    needs = load_needs(name)[: limit or None]
    evidence = load_evidence(name, needs)
    found = zip(needs, _candidates(name, needs, evidence, encoder, nearest), strict=True)
    kept = {n.qid: sorted(d.id for d in balanced(some, **selection)) for n, some in found}
    pools = {qid: ids for qid, ids in kept.items() if ids}
    if not pools:
        raise ValueError(f"{name}: no abstract was found for any of {len(needs)} questions")
    known = {d.id: d for d in evidence}
    couples = list(dict.fromkeys(c for ids in pools.values() for c in combinations(ids, 2)))
    print(f"{name}: {len(pools):,} of {len(needs):,} questions have abstracts", file=sys.stderr)
    score = score.fitted([(known[a].text, known[b].text) for a, b in sorted(couples)])
    pairs = score_couples(couples, known, score, progress=True)
    value = pairs.set_index(["a", "b"])["value"].to_dict()
    cnt = [(q, d, v) for q, ids in pools.items() for d, v in document_cnt(value, ids).items()]
    cnt = pd.DataFrame(cnt, columns=["qid", "id", "cnt"])
    unranked = Study(known, {n.qid: n for n in needs}, cnt, pairs, score)
    return replace(unranked, ranked=reranked(unranked, encoder, **ranking))


def _candidates(
    name: str, needs: list[Need], evidence: list[Evidence], encoder: Encoder, nearest: int
) -> Iterator[list[Evidence]]:
    """Of each need the abstracts that Algorithm 1 chooses from."""
    key = "topic" if name.startswith("tga:") else "medicine"
    if key == "topic" or all(n.medicine for n in needs):
        by = defaultdict(list)
        for d in evidence:
            by[getattr(d, key)].append(d)
        yield from (by[n.qid if key == "topic" else n.medicine] for n in needs)
        return
    rows = encode_small([d.text for d in evidence], encoder, "article")
    for query in encode_small([n.question for n in needs], encoder, "query"):
        near = np.argsort(-(rows @ query), kind="stable")[:nearest]
        yield [evidence[i] for i in near]


def reranked(study: Study, encoder: Encoder, **ranking: Any) -> pd.DataFrame:
    """``study.ranked`` under other settings of ``rank``."""
    parts = []
    for qid, pool in study.ranked.groupby("qid", sort=False):
        some = [study.evidence[i] for i in pool["id"]]
        (query,) = encode_small([study.needs[qid].question], encoder, "query")
        rows = encode_small([d.text for d in some], encoder, "article")
        table = rank(query, rows, [d.id for d in some], [d.year for d in some], **ranking)
        parts.append(table.assign(qid=qid).merge(pool[["id", "cnt"]], on="id"))
    return pd.concat(parts, ignore_index=True)


def score_couples(
    couples: Sequence[tuple[str, str]],
    evidence: Mapping[str, Evidence],
    score: Scorer,
    progress: bool = False,
) -> pd.DataFrame:
    """a, b and the fields of PairScore for each couple of ids, sorted; scored in the order given,
    since couples of one pool in one block share their sentences."""
    texts = [(evidence[a].text, evidence[b].text) for a, b in couples]
    scores = pd.DataFrame(score(texts, progress=progress), columns=PairScore._fields)
    found = pd.DataFrame(couples, columns=["a", "b"]).join(scores)
    return found.sort_values(["a", "b"], ignore_index=True)


def documents(study: Study) -> pd.DataFrame:
    """Unique documents: id, year, period, score and cnt (means over its pools), cnt_bin."""
    table = study.ranked.groupby("id", as_index=False)[["year", "score", "cnt"]].mean()
    ends = [0, *range(1999, 2020, 5), 9999]
    table["period"] = pd.cut(table["year"], ends, labels=PERIODS)
    return table.assign(cnt_bin=_binned(table["cnt"]))


def _binned(values: pd.Series) -> pd.Series:
    return pd.cut(values, [-np.inf, 0.2, 0.4, 0.6, 0.8, np.inf], right=False, labels=BINS)


def reported(table: str) -> pd.DataFrame:
    """One of the paper's tables, such as "table2", with its values as numbers."""
    rows = pd.read_csv(REPORTED / f"contradiction_{table}.csv")
    return rows.assign(value=pd.to_numeric(rows["value"], errors="coerce"))


def table1(study: Study) -> pd.DataFrame:
    """Table 1: statistic, value, reported (the paper's, another setup).

    The average is over questions that have documents; how many have none is a row of its own.
    """
    needs, ranked = study.needs, study.ranked
    years = [d.year for d in study.evidence.values()]
    measured = {
        "medicines_tga": len({n.medicine for n in needs.values()} - {""}),
        "queries": len(needs),
        "abstract_year_first": min(years),
        "abstract_year_last": max(years),
        "pubmed_documents_raw": len(years),
        "medicines_with_documents": len({needs[q].medicine for q in ranked["qid"]} - {""}),
        "pmids_after_selection": len(ranked),
        "unique_pmids": ranked["id"].nunique(),
        "avg_documents_per_query": len(ranked) / ranked["qid"].nunique(),
        "queries_without_documents": len(needs) - ranked["qid"].nunique(),
    }
    told = reported("table1").set_index("statistic")["value"].reindex(list(measured))
    table = pd.DataFrame(measured.items(), columns=["statistic", "value"])
    return table.assign(reported=told.to_numpy())


def heatmap(table: pd.DataFrame) -> pd.DataFrame:
    """Figure 2 of ``documents``: cnt_bin, period, documents, share (of a period), reported."""
    out = _counted(table["cnt_bin"], table["period"], "fig2_heatmap", "year_bin")
    total = out.groupby("period")["documents"].transform("sum")
    out.insert(3, "share", out["documents"] / total)
    return out


def table3(table: pd.DataFrame) -> pd.DataFrame:
    """Table 3 of ``documents``: binning, cnt_bin, score_bin, documents, reported.

    C3: under the paper's encoder S hardly reaches 0.6, so it is binned by its own quintiles too,
    which the paper does not do. The first of the fixed bins holds what is below 0 as well.
    """
    fifths = pd.qcut(table["score"], 5)
    fifths = fifths.cat.rename_categories(lambda x: f"{x.left:.2f} to {x.right:.2f}")
    binned = {"fixed": _binned(table["score"]), "quintile": fifths}
    parts = [
        _counted(table["cnt_bin"], bins.rename("score_bin"), "table3", "score_bin").assign(
            binning=b
        )
        for b, bins in binned.items()
    ]
    columns = ["binning", "cnt_bin", "score_bin", "documents", "reported"]
    return pd.concat(parts, ignore_index=True)[columns]


def _counted(rows: pd.Series, columns: pd.Series, paper: str, key: str) -> pd.DataFrame:
    """Documents in every cell, in long form, with what the paper's table has there."""
    out = pd.crosstab(rows, columns, dropna=False).stack().rename("documents").reset_index()
    out = out.astype({rows.name: str, columns.name: str})
    told = reported(paper).set_index(["cnt_bin", key])["value"]
    return out.assign(reported=told.reindex(pd.MultiIndex.from_frame(out.iloc[:, :2])).to_numpy())


def timeline(study: Study, qid: str = "", top: int = 3) -> tuple[str, pd.DataFrame, pd.DataFrame]:
    """One question's text, its abstracts (id, year, cnt, side) and most contradictory ``pairs``.

    Without ``qid`` the first question whose pool has the most contradictory pair of all. ``side``
    is an abstract's stance where that is known, else its source.
    """
    pools = study.ranked.groupby("qid", sort=False)["id"].agg(set)
    best = study.pairs.sort_values(["value", "a", "b"], ascending=[False, True, True])
    qid = qid or next(q for q, pool in pools.items() if {*best.iloc[0][["a", "b"]]} <= pool)
    nodes = study.ranked.loc[study.ranked["qid"] == qid, ["id", "year", "cnt"]]
    sides = [d.meta.get("stance", d.source) for d in map(study.evidence.get, nodes["id"])]
    inside = best["a"].isin(nodes["id"]) & best["b"].isin(nodes["id"])
    return study.needs[qid].question, nodes.assign(side=sides), best[inside].head(top)


def behind(
    name: str,
    score: Scorer,
    answerers: Iterable[Mapping[str, Any]] = (),
    labelled: Iterable[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """What results of the study depend on, as ``lib.base.provenance.result`` takes it.

    ``labelled`` are the sets of labelled pairs that are read.
    """
    replayed = (a["llm"].partition("replay:data/")[2] for a in answerers)
    files = {*files_of(name), "nli-head/weights.npz", "nli-head/cues.toml"}
    files |= {f for f in replayed if f and (DATA / f).exists()}
    files |= {f for each in labelled for f in FILES[each]}
    files |= {f"reported/{path.name}" for path in REPORTED.glob("contradiction_*.csv")}
    known = {
        "evidence": name,
        "nli": score.backend.fingerprint,
        "switches": {**score.switches},
        "sentence_encoder": score.encoder.fingerprint,
        "answerers": {a["name"]: a["llm"] for a in answerers},
    }
    return {
        "code": ["lib.studies.contradiction.checks", "lib.studies.contradiction.outcomes"],
        "data": sorted(files),
        **known,
        **settings,
    }
