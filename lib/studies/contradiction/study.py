"""The contradiction study: what is measured on one set of evidence, and the tables that follow.

``load`` opens the evidence, its couples scored by a model and, where a judge read them, judged.
``TABLES`` makes Tables 1 and 3 and Figure 2 and asks whether CNT finds disagreement that is known,
``ANSWERS`` Table 2, ``QUALITY`` how good the models are, ``mimic_study`` what CHR's mimic does to
CNT. Each runs on ``lib.study.make``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from lib.base.files import canonical_json
from lib.base.parameters import refuse_unknown
from lib.base.paths import DATA, REPORTED
from lib.base.provenance import make_or_reuse
from lib.embed import Encoder, load_encoder
from lib.llm.prompts import load_prompt
from lib.model_files import ADAPTERS, CARD
from lib.profiles import Profile
from lib.report import nine_digits
from lib.studies.contradiction import answers, checks, labelled
from lib.studies.contradiction.answers import PROMPT
from lib.studies.contradiction.cnt import Scorer
from lib.studies.contradiction.evidence import PERIODS, files_of, period_of
from lib.studies.contradiction.labelled import with_sentences
from lib.studies.contradiction.nli import load_backend
from lib.studies.contradiction.pools import Pools, open_pools, recall, vectors_of, with_judged
from lib.study import Study

BINS = ("[0,0.2)", "[0.2,0.4)", "[0.4,0.6)", "[0.6,0.8)", "[0.8,1]")
"""The paper's bins of CNT and of S."""

CODE = "lib.studies.contradiction"

SETTINGS: dict[str, dict[str, Any]] = {
    "scoring": {
        "sentence_filter": "percentile",
        "percentile": 90,
        "direction": "max",
        "top": 1,
    },
    "ranking": {"mmr": "static", "temporal": "recency"},
    "selection": {"above": 20, "fill": True, "check_inside": True},
    "measures": {"bert": None, "direction": "reference", "epsilon": 1e-9, "base": 2},
}
"""How evidence is scored (``Scorer``), ranked (``rank``) and selected (``balanced``), and answers
measured (``measured_answers``), where neither a profile's [evidence] nor the caller says more."""

_FURTHER = {
    "scoring": ("theta",),
    "ranking": ("lam", "alpha"),
    "selection": ("limit", "gap"),
    "measures": ("word2vec",),
}


def settings_of(profile: Profile, **given: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """``SETTINGS`` with what the profile's [evidence] and then ``given`` say instead, by name;
    ValueError for a setting that there is not."""
    found = {}
    for name, usual in SETTINGS.items():
        changes = dict(profile.evidence.get(name, {})) | dict(given.get(name) or {})
        refuse_unknown(f"{name} of [evidence] has no setting", changes, (*usual, *_FURTHER[name]))
        found[name] = usual | changes
    return found


# what is measured on ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Collection:
    """One set of evidence, opened: ``pools`` as ``with_judged`` gives them.

    ``encoder`` is that of abstracts, questions and answers. ``settings`` are what every result
    depends on beside ``data``, the files behind it. ``models`` are compared on the labelled
    ``sets``; ``answerers`` (name, llm) are asked with ``k`` abstracts and ``prompt``.
    """

    pools: Mapping[str, Pools]
    encoder: Encoder
    settings: Mapping[str, Any]
    data: Sequence[str]
    models: Sequence[str]
    sets: Sequence[str]
    answerers: Sequence[Mapping[str, Any]]
    k: int
    measures: Mapping[str, Any]
    prompt: str = PROMPT

    @property
    def modelled(self) -> Pools:
        """The pools as the model of contradiction scores them."""
        return self.pools["modelled"]


def load(
    profile: Profile,
    encoder: Encoder,
    *,
    evidence: str,
    model: str,
    scoring: Mapping[str, Any],
    ranking: Mapping[str, Any],
    selection: Mapping[str, Any],
    answerers: Iterable[Mapping[str, Any]],
    measures: Mapping[str, Any],
) -> Collection:
    """Open ``evidence`` and score its couples by ``model``; the scores are kept.

    The profile's [evidence] may name an ``encoder`` of abstracts and questions, a
    ``sentence_encoder``, which says which sentences are near, and the answerers' ``prompt``; an
    encoder that it does not name is ``encoder``, the search's. ``scoring`` goes to ``Scorer``,
    ``ranking`` to ``rank``, ``selection`` to ``balanced``. The labelled sets of the open data are
    measured where all of that data is the evidence.
    """
    answerers = list(answerers)
    search, prompt = encoder, profile.evidence.get("prompt", PROMPT)
    encoder = _own_encoder(profile, "encoder", search)
    of_sentences = _own_encoder(profile, "sentence_encoder", search)
    score = Scorer(load_backend(model), of_sentences, **scoring)
    whole_open = evidence == "open" and not profile.limit
    sets = tuple(labelled.SETS) if whole_open else ("evidence-mini pairs", "judged")
    settings = {
        "evidence": evidence,
        "nli": score.backend.fingerprint,
        "switches": dict(scoring),
        "sentence_encoder": score.encoder.fingerprint,
        # Where a model is served is no part of a result.
        "answerers": {one["name"]: one["llm"].partition("@http")[0] for one in answerers},
        "ranking": dict(ranking),
        "selection": dict(selection),
        "k": profile.k,
    }
    if encoder.fingerprint != score.encoder.fingerprint:
        settings["encoder"] = encoder.fingerprint
    data = data_of(evidence, answerers, sets)

    def kept(make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        origin = {"code": [CODE], "data": data, "limit": profile.limit, **settings}
        return make_or_reuse(make, "values_contradiction_pairs", profile.name, dear=True, **origin)

    how = {"selection": selection, "ranking": ranking}
    how |= {"limit": profile.limit, "email": profile.evidence.get("email", "")}
    modelled = open_pools(evidence, encoder, score, kept=kept, **how)
    pools = with_judged(modelled, encoder, ranking)
    names = (model, "bi", "cross", "head", "cosine", "cues", "claim only", "shuffled")
    models = tuple(dict.fromkeys(names))
    return Collection(
        pools, encoder, settings, data, models, sets, answerers, profile.k, dict(measures), prompt
    )


def _own_encoder(profile: Profile, kind: str, search: Encoder) -> Encoder:
    """The encoder that the profile's [evidence] names under ``kind``, else the search's."""
    name = profile.evidence.get(kind)
    return load_encoder(name) if name else search


def data_of(
    evidence: str, answerers: Iterable[Mapping[str, Any]], sets: Iterable[str]
) -> list[str]:
    """The files behind the study: the evidence, the models, the recordings, the labelled sets and
    the paper's tables."""
    files = {*files_of(evidence), "nli-head/weights.npz", "nli-head/cues.toml"}
    files.add("judgments/contradiction.jsonl.gz")
    # A card has the hash of its adapter's weights.
    cards = ADAPTERS.glob(f"contradiction*/{CARD}")
    files.update(card.relative_to(DATA).as_posix() for card in cards)
    for answerer in answerers:
        recording = answerer["llm"].partition("replay:data/")[2]
        if recording and (DATA / recording).exists():
            files.add(recording)
    for labelled_set in sets:
        files.update(labelled.FILES[labelled_set])
    files.update(f"reported/{path.name}" for path in REPORTED.glob("contradiction_*.csv"))
    return sorted(files)


def with_answers(collection: Collection) -> Collection:
    """What answers are measured on: ``open``'s own questions have no answers apart from its
    abstracts, so there the questions are those of real labels, whose abstracts nobody judged."""
    if collection.settings["evidence"] != "open":
        return collection
    how = {name: collection.settings[name] for name in ("selection", "ranking")}
    score = replace(collection.modelled.score, threshold=None)
    pools = {"modelled": open_pools("labels", collection.encoder, score, **how)}
    return replace(collection, pools=pools, data=sorted({*collection.data, *files_of("labels")}))


# tables -------------------------------------------------------------------------------------------


def beside(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Tables of one form, one below the other; the column ``contradiction`` says which is which
    (judged or modelled)."""
    table = pd.concat(tables, names=["contradiction"])
    return table.reset_index("contradiction").reset_index(drop=True)


def documents(pools: Pools) -> pd.DataFrame:
    """Unique documents: id, year, period, score and cnt (means over its pools), cnt_bin."""
    table = pools.ranked.groupby("id", as_index=False)[["year", "score", "cnt"]].mean()
    periods = [period_of(int(year)) for year in table["year"]]
    table["period"] = pd.Categorical(periods, PERIODS, ordered=True)
    return table.assign(cnt_bin=_binned(table["cnt"]))


def _binned(values: pd.Series) -> pd.Series:
    """The bin of each value; what is below 0 or above 1 is in the first or the last."""
    return pd.cut(values, [-np.inf, 0.2, 0.4, 0.6, 0.8, np.inf], right=False, labels=BINS)


def table1(pools: Pools) -> pd.DataFrame:
    """Table 1: statistic, value, reported (the paper's, another setup).

    The average is over questions that have documents; how many have none is a row of its own.
    """
    needs, ranked = pools.needs, pools.ranked
    years = [abstract.year for abstract in pools.evidence.values()]
    n_pools = ranked["qid"].nunique()
    measured = {
        "medicines_tga": len({need.medicine for need in needs.values()} - {""}),
        "queries": len(needs),
        "abstract_year_first": min(years),
        "abstract_year_last": max(years),
        "pubmed_documents_raw": len(years),
        "medicines_with_documents": len({needs[qid].medicine for qid in ranked["qid"]} - {""}),
        "pmids_after_selection": len(ranked),
        "unique_pmids": ranked["id"].nunique(),
        "avg_documents_per_query": len(ranked) / n_pools,
        "queries_without_documents": len(needs) - n_pools,
    }
    paper = answers.reported("table1").set_index("statistic")["value"].reindex(list(measured))
    table = pd.DataFrame(measured.items(), columns=["statistic", "value"])
    return table.assign(reported=paper.to_numpy())


def heatmap(pools: Pools) -> pd.DataFrame:
    """Figure 2: cnt_bin, period, documents, share (of a period), reported."""
    table = documents(pools)
    cells = _cells(table["cnt_bin"], table["period"], "fig2_heatmap", "year_bin")
    of_period = cells.groupby("period")["documents"].transform("sum")
    cells.insert(3, "share", cells["documents"] / of_period)
    return cells


def table3(pools: Pools) -> pd.DataFrame:
    """Table 3: binning, cnt_bin, score_bin, documents, reported.

    Under the paper's encoder S hardly reaches 0.6, so its last bins are empty. S is therefore
    binned by its own quintiles too, which the paper does not do. The first of the fixed bins holds
    what is below 0 as well.
    """
    table = documents(pools)
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
    paper = answers.reported(paper_table).set_index(["cnt_bin", key])["value"]
    places = pd.MultiIndex.from_frame(cells[[rows.name, columns.name]])
    return cells.assign(reported=paper.reindex(places).to_numpy())


def timeline(pools: Pools, qid: str = "", top: int = 3) -> tuple[str, pd.DataFrame, pd.DataFrame]:
    """One question's text, its abstracts (id, year, cnt, side) and most contradictory ``pairs``.

    Without ``qid`` the first question whose pool has the most contradictory pair of all. ``side``
    is an abstract's stance where that is known, else its source.
    """
    most_first = pools.pairs.sort_values(["value", "a", "b"], ascending=[False, True, True])
    if not qid:
        most = {most_first["a"].iloc[0], most_first["b"].iloc[0]}
        qid = next(name for name, ids in pools.ids_of.items() if most <= set(ids))
    nodes = pools.ranked.loc[pools.ranked["qid"] == qid, ["id", "year", "cnt"]]
    abstracts = [pools.evidence[i] for i in nodes["id"]]
    sides = [abstract.meta.get("stance", abstract.source) for abstract in abstracts]
    inside = most_first["a"].isin(nodes["id"]) & most_first["b"].isin(nodes["id"])
    links = with_sentences(most_first[inside].head(top), pools.texts)
    return pools.needs[qid].question, nodes.assign(side=sides), links


# studies ------------------------------------------------------------------------------------------


def _follow(collection: Collection, checked: pd.DataFrame) -> dict[str, pd.DataFrame]:
    pools, modelled, encoder = collection.pools, collection.modelled, collection.encoder
    return {
        "contradiction_table1": table1(modelled),
        "contradiction_hnsw": recall(*vectors_of(modelled.needs, modelled.evidence, encoder)),
        "contradiction_heatmap": beside({name: heatmap(own) for name, own in pools.items()}),
        "contradiction_table3": beside({name: table3(own) for name, own in pools.items()}),
        "contradiction_checks": beside({"modelled": checks.checks_table(checked)}),
    }


TABLES = Study(
    name="contradiction",
    code=CODE,
    load=load,
    values={"values_contradiction_checks": lambda c: nine_digits(checks.check_values(c.modelled))},
    tables=(
        "contradiction_table1",
        "contradiction_hnsw",
        "contradiction_heatmap",
        "contradiction_table3",
        "contradiction_checks",
    ),
    follow=_follow,
    origin=lambda c: c.settings,
)


def _follow_answers(collection: Collection) -> dict[str, pd.DataFrame]:
    """Answers from the contexts of each condition. LLMs are asked on the first of the pools."""
    described, scored = {}, {}
    llms = list(collection.answerers)
    for name, pools in collection.pools.items():
        chosen = answers.contexts(pools, collection.k)
        described[name] = answers.describe_contexts(pools, chosen)
        scored[name] = answers.measured_answers(
            pools, chosen, collection.encoder, llms, prompt=collection.prompt, **collection.measures
        )
        llms = []
    # As they are on file, so that what follows is made of the numbers that stand there.
    measured = {
        name: table.round(dict.fromkeys(answers.METRICS, 3)) for name, table in scored.items()
    }
    return {
        "contradiction_conditions": beside(described),
        "contradiction_answers": beside(measured),
        "contradiction_table2": beside({n: answers.table2(own) for n, own in measured.items()}),
        "contradiction_tests": beside({n: answers.tests(own) for n, own in measured.items()}),
    }


ANSWERS = Study(
    name="contradiction, answers",
    code=CODE,
    load=load,
    values={},
    tables=(
        "contradiction_conditions",
        "contradiction_answers",
        "contradiction_table2",
        "contradiction_tests",
    ),
    follow=_follow_answers,
    origin=lambda c: {
        **c.settings,
        "measures": c.measures,
        "prompt": None if c.prompt == PROMPT else canonical_json(vars(load_prompt(c.prompt))),
    },
)


def _quality_values(collection: Collection) -> pd.DataFrame:
    backends = [load_backend(name) for name in collection.models]
    return nine_digits(labelled.quality_values(backends, collection.sets))


QUALITY = Study(
    name="models of contradiction",
    code=CODE,
    load=load,
    values={"values_nli": _quality_values},
    tables=("nli_quality",),
    follow=lambda c, by_pair: {"nli_quality": labelled.quality_table(by_pair)},
    origin=lambda c: {**c.settings, "models": list(c.models)},
)


def mimic_study(benchmark: Any, collection: Collection, lam: float) -> tuple[Study, Collection]:
    """The study of a benchmark's passages (one of ``lambda_sweep.benchmarks``), and the collection
    it is made on: what contrast does to the model's CNT."""
    name = benchmark.benchmark.name
    table = f"contradiction_mimics_{name.replace('-', '_')}"
    score, store = collection.modelled.score, benchmark.retriever.store

    def values(c: Collection) -> pd.DataFrame:
        return nine_digits(checks.mimic_values(benchmark, store, score, lam, c.k))

    def follow(_: Collection, by_question: pd.DataFrame) -> dict[str, pd.DataFrame]:
        made = checks.mimics_table(by_question, name, lam)
        return {table: made.assign(contradiction="modelled")}

    study = Study(
        name=f"contradiction, {name}",
        code=CODE,
        load=load,
        values={f"values_{table}": values},
        tables=(table,),
        follow=follow,
        origin=lambda c: {**c.settings, "lam": lam, "code": [CODE, *benchmark.benchmark.code]},
    )
    return study, replace(collection, data=[*collection.data, *benchmark.benchmark.files])
