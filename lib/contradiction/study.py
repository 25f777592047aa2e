"""The contradiction study on one set of evidence: pools, scores, Tables 1 and 3, Figure 2.

A document's S and CNT depend on the question it was found for; the paper collapses them in a way
it does not say, here they are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lib.contradiction.cnt import PairScore, document_cnt, length_matched_null, pair_scores
from lib.contradiction.select import balanced, rank
from lib.embed import Encoder
from lib.evidence.load import FILES, load_evidence, load_needs
from lib.evidence.records import Evidence, Need
from lib.nli.models import Backend, Pairs
from lib.paths import DATA, REPORTED
from lib.vectors import encode_small

__all__ = [
    "BINS", "PERIODS", "Scorer", "Study", "behind", "documents", "heatmap", "open_study",
    "reported", "reranked", "score_couples", "table1", "table3", "timeline",
]  # fmt: skip

BINS = ("[0,0.2)", "[0.2,0.4)", "[0.4,0.6)", "[0.6,0.8)", "[0.8,1]")
PERIODS = ("<2000", "2000-2005", "2005-2010", "2010-2015", "2015-2020", "2020-2025")


@dataclass(frozen=True)
class Scorer:
    """CNT of pairs of texts: an NLI backend, an encoder, switches of ``pair_scores``."""

    backend: Backend
    encoder: Encoder
    switches: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, couples: Pairs) -> list[PairScore]:
        return pair_scores(couples, self.backend, self.encoder, progress=False, **self.switches)

    def null(self, couples: Pairs) -> np.ndarray:
        """What their lengths alone would give (C8), one draw."""
        drawn = length_matched_null(couples, self.backend, self.encoder, draws=1, **self.switches)
        return drawn[0]


@dataclass(frozen=True)
class Study:
    """``ranked``: what ``rank`` gives for every question, with ``qid`` and ``cnt``, CNT(d) in its
    pool. ``pairs``: a, b and the PairScore of every two abstracts that share a pool."""

    evidence: Mapping[str, Evidence]
    needs: Mapping[str, Need]
    ranked: pd.DataFrame
    pairs: pd.DataFrame


def open_study(
    name: str, encoder: Encoder, score: Scorer, *, nearest: int = 10, limit: int = 0,
    **ranking: Any,
) -> Study:  # fmt: skip
    """Pools by Algorithm 1, ranked by Algorithm 2 (``ranking`` goes to ``rank``), scored by CNT.

    Candidates are what was searched for the question (PubMed), or else the abstracts on its
    medicine, or, where there is none (open), the ``nearest`` to it. ``limit`` takes the first
    questions (0 = all).
    """
    evidence, needs, pools = load_evidence(name), load_needs(name)[: limit or None], {}
    rows = encode_small([d.text for d in evidence], encoder, "article")
    asked = encode_small([n.question for n in needs], encoder, "query")
    for need, query in zip(needs, asked, strict=True):
        found = [d for d in evidence if d.topic == need.qid]
        found = found or [d for d in evidence if d.medicine == need.medicine != ""]
        near = np.argsort(-(rows @ query), kind="stable")[:nearest].tolist()
        pools[need.qid] = sorted(d.id for d in balanced(found or [evidence[i] for i in near]))
    known, by_id = {d.id: d for d in evidence}, {n.qid: n for n in needs}
    pairs = score_couples({c for ids in pools.values() for c in combinations(ids, 2)}, known, score)
    value = pairs.set_index(["a", "b"])["value"].to_dict()
    cnt = [(q, d, v) for q, ids in pools.items() for d, v in document_cnt(value, ids).items()]
    unranked = Study(known, by_id, pd.DataFrame(cnt, columns=["qid", "id", "cnt"]), pairs)
    return replace(unranked, ranked=reranked(unranked, encoder, **ranking))


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
    couples: Iterable[tuple[str, str]], evidence: Mapping[str, Evidence], score: Scorer
) -> pd.DataFrame:
    """a, b and the fields of PairScore for each couple of ids, sorted."""
    found = pd.DataFrame(sorted(couples), columns=["a", "b"])
    scores = score([(evidence[a].text, evidence[b].text) for a, b in found.to_numpy()])
    return found.join(pd.DataFrame([vars(s) for s in scores]))


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
    """Table 1: statistic, value, reported (the paper's, another setup)."""
    needs, ranked = study.needs, study.ranked
    years = [d.year for d in study.evidence.values()]
    measured = {
        "medicines_tga": len({n.medicine for n in needs.values()} - {""}), "queries": len(needs),
        "abstract_year_first": min(years), "abstract_year_last": max(years),
        "pubmed_documents_raw": len(years),
        "medicines_with_documents": len({needs[q].medicine for q in ranked["qid"]} - {""}),
        "pmids_after_selection": len(ranked), "unique_pmids": ranked["id"].nunique(),
        "avg_documents_per_query": len(ranked) / len(needs),
    }  # fmt: skip
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

    C3: S cannot reach 0.6, so it is binned by its own quintiles as well, which the paper is not.
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
    name: str, score: Scorer, answerers: Iterable[Mapping[str, Any]] = (), **settings: Any
) -> dict[str, Any]:
    """What results of the study depend on, as ``lib.provenance.result`` takes it."""
    replayed = (a["llm"].partition("replay:data/")[2] for a in answerers)
    more = [f for f in replayed if f and (DATA / f).exists()]
    more += ["nli-head/weights.npz", "nli-head/cues.toml"]
    known = {"evidence": name, "nli": score.backend.fingerprint, "switches": {**score.switches},
             "sentence_encoder": score.encoder.fingerprint,
             "answerers": {a["name"]: a["llm"] for a in answerers}}  # fmt: skip
    return {"code": ["lib.contradiction.checks", "lib.contradiction.outcomes"],
            "data": [*FILES.get(name, ()), *more], **known, **settings}  # fmt: skip
