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
from lib.embed import Encoder
from lib.model_files import ADAPTERS, CARD
from lib.search.vectors import encode_small
from lib.studies.contradiction import near
from lib.studies.contradiction.cnt import PairScore, Scorer, document_cnt
from lib.studies.contradiction.select import balanced, rank
from lib.studies.evidence.load import files_of, load_evidence, load_needs
from lib.studies.evidence.records import Evidence, Need
from lib.studies.nli.labelled import FILES

BINS = ("[0,0.2)", "[0.2,0.4)", "[0.4,0.6)", "[0.6,0.8)", "[0.8,1]")
"""The paper's bins of CNT and of S."""

PERIODS = ("<2000", "2000-2005", "2005-2010", "2010-2015", "2015-2020", "2020-2025")
"""The paper's periods; the first year belongs to a period, the last to the next one."""


@dataclass(frozen=True)
class Study:
    """One set of evidence, with every question's abstracts ranked and every couple scored.

    ``evidence`` by id, ``needs`` (the questions) by qid. ``ranked``: what ``rank`` gives for every
    question with evidence, with ``qid`` and ``cnt``, CNT(d) in its pool. ``pairs``: a, b and the
    PairScore of every two abstracts that share a pool. ``score``: what scored them, its threshold
    set.
    """

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
    index: str = "exact",
    limit: int = 0,
    selection: Mapping[str, Any] = MappingProxyType({}),
    **ranking: Any,
) -> Study:
    """Each question's abstracts, chosen (``balanced``), ranked (``rank``), scored by CNT.

    Candidates are what PubMed found for the question (``tga:``), all abstracts on its medicine
    (evidence-mini), or the ``nearest`` to it by an ``index`` of ``near.INDEXES`` (open, labels).
    A question without any has no pool; ValueError where no question has one. ``selection`` goes to
    ``balanced``, ``ranking`` to ``rank``; ``limit`` takes the first questions (0 = all).
    """
    needs = load_needs(name)[: limit or None]
    evidence = load_evidence(name, needs)
    pools: dict[str, list[str]] = {}
    for need, abstracts in zip(
        needs, _candidates(name, needs, evidence, encoder, nearest, index), strict=True
    ):
        chosen = balanced(abstracts, **selection)
        if chosen:
            pools[need.qid] = sorted(abstract.id for abstract in chosen)
    if not pools:
        raise ValueError(f"{name}: no abstract was found for any of {len(needs)} questions")
    print(f"{name}: {len(pools):,} of {len(needs):,} questions have abstracts", file=sys.stderr)
    by_id = {abstract.id: abstract for abstract in evidence}
    couples = _couples(pools.values())
    score = score.fitted([(by_id[a].text, by_id[b].text) for a, b in sorted(couples)])
    pairs = score_couples(couples, by_id, score, progress=True)
    value = pairs.set_index(["a", "b"])["value"].to_dict()
    rows = []
    for qid, ids in pools.items():
        rows += [(qid, i, cnt) for i, cnt in document_cnt(value, ids).items()]
    with_cnt = pd.DataFrame(rows, columns=["qid", "id", "cnt"])
    unranked = Study(by_id, {need.qid: need for need in needs}, with_cnt, pairs, score)
    return replace(unranked, ranked=reranked(unranked, encoder, **ranking))


def _couples(pools: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """Every two ids that share a pool, once, in the order of the pools."""
    found: dict[tuple[str, str], None] = {}  # a set that keeps its order
    for ids in pools:
        found |= dict.fromkeys(combinations(ids, 2))
    return list(found)


def _candidates(
    name: str,
    needs: list[Need],
    evidence: list[Evidence],
    encoder: Encoder,
    n: int,
    index: str,
) -> Iterator[list[Evidence]]:
    """Of each need the abstracts that Algorithm 1 chooses from."""
    if name.startswith("tga:"):  # PubMed was asked question by question
        of_topic = defaultdict(list)
        for abstract in evidence:
            of_topic[abstract.topic].append(abstract)
        for need in needs:
            yield of_topic[need.qid]
    elif all(abstract.medicine for abstract in evidence):
        of_medicine = defaultdict(list)
        for abstract in evidence:
            of_medicine[abstract.medicine].append(abstract)
        for need in needs:
            yield of_medicine[need.medicine]
    else:
        for rows in near.nearest(*_vectors(needs, evidence, encoder)[::-1], n, index):
            yield [evidence[i] for i in rows]


def _vectors(
    needs: Sequence[Need], evidence: Sequence[Evidence], encoder: Encoder
) -> tuple[np.ndarray, np.ndarray]:
    """Of the questions and of the abstracts."""
    return (
        encode_small([need.question for need in needs], encoder, "query"),
        encode_small([abstract.text for abstract in evidence], encoder, "article"),
    )


def index_recall(study: Study, encoder: Encoder) -> pd.DataFrame:
    """What the paper's index finds of the abstracts nearest to each question (``near.recall``)."""
    queries, vectors = _vectors([*study.needs.values()], [*study.evidence.values()], encoder)
    return near.recall(vectors, queries)


def reranked(study: Study, encoder: Encoder, **ranking: Any) -> pd.DataFrame:
    """``study.ranked`` under other settings of ``rank``; pools and CNT stay as they are."""
    parts = []
    for qid, pool in study.ranked.groupby("qid", sort=False):
        abstracts = [study.evidence[i] for i in pool["id"]]
        (query,) = encode_small([study.needs[qid].question], encoder, "query")
        vectors = encode_small([abstract.text for abstract in abstracts], encoder, "article")
        ids = [abstract.id for abstract in abstracts]
        years = [abstract.year for abstract in abstracts]
        table = rank(query, vectors, ids, years, **ranking)
        parts.append(table.assign(qid=qid).merge(pool[["id", "cnt"]], on="id"))
    return pd.concat(parts, ignore_index=True)


def score_couples(
    couples: Sequence[tuple[str, str]],
    evidence: Mapping[str, Evidence],
    score: Scorer,
    progress: bool = False,
) -> pd.DataFrame:
    """a, b and the fields of PairScore for each couple of ids, sorted by a and b.

    They are scored in the order given: couples of one pool in one block share their sentences.
    """
    texts = [(evidence[a].text, evidence[b].text) for a, b in couples]
    scores = pd.DataFrame(score(texts, progress=progress), columns=PairScore._fields)
    table = pd.DataFrame(couples, columns=["a", "b"]).join(scores)
    return table.sort_values(["a", "b"], ignore_index=True)


def documents(study: Study) -> pd.DataFrame:
    """Unique documents: id, year, period, score and cnt (means over its pools), cnt_bin."""
    table = study.ranked.groupby("id", as_index=False)[["year", "score", "cnt"]].mean()
    last_years = [0, *range(1999, 2020, 5), 9999]
    table["period"] = pd.cut(table["year"], last_years, labels=PERIODS)
    return table.assign(cnt_bin=_binned(table["cnt"]))


def _binned(values: pd.Series) -> pd.Series:
    """The bin of each value; what is below 0 or above 1 is in the first or the last."""
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
    years = [abstract.year for abstract in study.evidence.values()]
    medicines = {need.medicine for need in needs.values()}
    with_documents = {needs[qid].medicine for qid in ranked["qid"]}
    n_pools = ranked["qid"].nunique()
    measured = {
        "medicines_tga": len(medicines - {""}),
        "queries": len(needs),
        "abstract_year_first": min(years),
        "abstract_year_last": max(years),
        "pubmed_documents_raw": len(years),
        "medicines_with_documents": len(with_documents - {""}),
        "pmids_after_selection": len(ranked),
        "unique_pmids": ranked["id"].nunique(),
        "avg_documents_per_query": len(ranked) / n_pools,
        "queries_without_documents": len(needs) - n_pools,
    }
    paper = reported("table1").set_index("statistic")["value"].reindex(list(measured))
    table = pd.DataFrame(measured.items(), columns=["statistic", "value"])
    return table.assign(reported=paper.to_numpy())


def table4(answerers: Iterable[Mapping[str, Any]] = ()) -> pd.DataFrame:
    """Table 4, the paper's answerers: model, architecture, parameters (billions), context (thousand
    tokens), license, and ``runs_as``: the model that an answerer of that name is asked as here."""
    printed = pd.read_csv(REPORTED / "contradiction_table4_models.csv", dtype=str)
    table = printed.pivot(index="model", columns="metric", values="value")
    table = table[["architecture", "parameters", "context", "license"]].reset_index()
    asked = {a["name"].casefold(): a["llm"].rpartition("openai:")[2] for a in answerers}
    names = table["model"].str.replace(" (MLX)", "", regex=False).str.casefold()
    return table.assign(runs_as=names.map(asked).fillna("")).rename_axis(columns=None)


def heatmap(table: pd.DataFrame) -> pd.DataFrame:
    """Figure 2 of ``documents``: cnt_bin, period, documents, share (of a period), reported."""
    cells = _cells(table["cnt_bin"], table["period"], "fig2_heatmap", "year_bin")
    of_period = cells.groupby("period")["documents"].transform("sum")
    cells.insert(3, "share", cells["documents"] / of_period)
    return cells


def table3(table: pd.DataFrame) -> pd.DataFrame:
    """Table 3 of ``documents``: binning, cnt_bin, score_bin, documents, reported.

    Under the paper's encoder S hardly reaches 0.6, so its last bins are empty. S is therefore
    binned by its own quintiles too, which the paper does not do. The first of the fixed bins holds
    what is below 0 as well.
    """
    quintiles = pd.qcut(table["score"], 5)
    quintiles = quintiles.cat.rename_categories(lambda x: f"{x.left:.2f} to {x.right:.2f}")
    parts = []
    for binning, bins in (("fixed", _binned(table["score"])), ("quintile", quintiles)):
        cells = _cells(table["cnt_bin"], bins.rename("score_bin"), "table3", "score_bin")
        parts.append(cells.assign(binning=binning))
    columns = ["binning", "cnt_bin", "score_bin", "documents", "reported"]
    return pd.concat(parts, ignore_index=True)[columns]


def _cells(rows: pd.Series, columns: pd.Series, paper_table: str, key: str) -> pd.DataFrame:
    """Documents in every cell, in long form, with what the paper's table has there.

    ``key`` is the paper's name for the columns.
    """
    counts = pd.crosstab(rows, columns, dropna=False).stack().rename("documents")
    cells = counts.reset_index().astype({rows.name: str, columns.name: str})
    paper = reported(paper_table).set_index(["cnt_bin", key])["value"]
    places = pd.MultiIndex.from_frame(cells[[rows.name, columns.name]])
    return cells.assign(reported=paper.reindex(places).to_numpy())


def timeline(study: Study, qid: str = "", top: int = 3) -> tuple[str, pd.DataFrame, pd.DataFrame]:
    """One question's text, its abstracts (id, year, cnt, side) and most contradictory ``pairs``.

    Without ``qid`` the first question whose pool has the most contradictory pair of all. ``side``
    is an abstract's stance where that is known, else its source.
    """
    most_first = study.pairs.sort_values(["value", "a", "b"], ascending=[False, True, True])
    if not qid:
        most = {most_first["a"].iloc[0], most_first["b"].iloc[0]}
        pools = study.ranked.groupby("qid", sort=False)["id"].agg(set)
        qid = next(name for name, pool in pools.items() if most <= pool)
    nodes = study.ranked.loc[study.ranked["qid"] == qid, ["id", "year", "cnt"]]
    sides = []
    for i in nodes["id"]:
        abstract = study.evidence[i]
        sides.append(abstract.meta.get("stance", abstract.source))
    inside = most_first["a"].isin(nodes["id"]) & most_first["b"].isin(nodes["id"])
    return study.needs[qid].question, nodes.assign(side=sides), most_first[inside].head(top)


def provenance(
    name: str,
    score: Scorer,
    answerers: Iterable[Mapping[str, Any]] = (),
    labelled: Iterable[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """What results of the study depend on, as ``lib.base.provenance.make_or_reuse`` takes it.

    ``name`` of the evidence, the ``answerers`` (each with ``name`` and ``llm``), and the
    ``labelled`` sets that are read; ``settings`` are passed on.
    """
    answerers = list(answerers)
    files = {*files_of(name), "nli-head/weights.npz", "nli-head/cues.toml"}
    # A card has the hash of its adapter's weights.
    files.update(
        card.relative_to(DATA).as_posix() for card in ADAPTERS.glob(f"contradiction*/{CARD}")
    )
    for answerer in answerers:
        recording = answerer["llm"].partition("replay:data/")[2]
        if recording and (DATA / recording).exists():
            files.add(recording)
    for labelled_set in labelled:
        files.update(FILES[labelled_set])
    files.update(f"reported/{path.name}" for path in REPORTED.glob("contradiction_*.csv"))
    return {
        "code": ["lib.studies.contradiction", "lib.studies.nli"],
        "data": sorted(files),
        "evidence": name,
        "nli": score.backend.fingerprint,
        "switches": dict(score.switches),
        "sentence_encoder": score.encoder.fingerprint,
        "answerers": {answerer["name"]: answerer["llm"] for answerer in answerers},
        **settings,
    }
