"""RAG2's results of a profile: how it retrieves, what its filters do, who writes, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from lib.base.downloads import load_registry
from lib.base.paths import DATA, RECORDINGS
from lib.base.provenance import make_all_or_reuse, make_or_reuse
from lib.benchmarks import ddx_mini
from lib.data.judgments import HELPFUL, JUDGMENTS
from lib.data.looks import note_look
from lib.datasets import GROUPS, load_real
from lib.index_build import files_of
from lib.profiles import Profile
from lib.report import nine_digits
from lib.run import Retriever
from lib.studies.rag2.case import case_tables
from lib.studies.rag2.filter_results import (
    crossed_values,
    filter_scores,
    filter_tables,
    label_values,
    lines_of,
    load_filters,
    training_tables,
)
from lib.studies.rag2.filters import BASELINES, CROSSES, HEADS, card_file, head_file, load_filter
from lib.studies.rag2.held import held_pairs, held_scores, held_tables, shuffled_draws
from lib.studies.rag2.labels import FOLDER as LABELS
from lib.studies.rag2.labels import open_material
from lib.studies.rag2.long_answers import (
    FILTER,
    SHARE,
    instrument_couples,
    long_answer_outcomes,
    long_answer_tables,
)
from lib.studies.rag2.long_scores import TokenScorer, instrument
from lib.studies.rag2.reranker import RERANKERS, Reranker
from lib.studies.rag2.reranker import card_file as reranker_card_file
from lib.studies.rag2.strategy_results import strategy_outcomes, strategy_tables
from lib.studies.rag2.writers import writer_outcomes, writer_tables
from lib.studies.real.arms import gold_passages

VALUES = {
    "strategies": ("values_rag2_strategies",),
    "filters": ("values_rag2_filters", "values_rag2_crossed"),
    "held": ("values_rag2_held",),
    "training": ("values_rag2_labels",),
    "writers": ("values_rag2_writers",),
    "long answers": ("values_rag2_long_answers",),
}
"""Outcomes by question or pair, by what is made together: the dear half, from which ``TABLES``
follow."""

TABLES = {
    "strategies": ("rag2_strategies", "rag2_strategies_claims"),
    "filters": (
        "rag2_filters",
        "rag2_filters_claims",
        "rag2_filters_auroc",
        "rag2_filters_kept",
        "rag2_filters_judge",
        "rag2_by_k",
        "rag2_top_1",
    ),
    "held": ("rag2_held", "rag2_held_kept"),
    "held draws": ("rag2_held_shuffled",),
    "training": ("rag2_labels", "rag2_trainings"),
    "writers": ("rag2_writers", "rag2_writers_claims"),
    "long answers": ("rag2_long_answers", "rag2_long_answers_claims"),
    "instrument": ("rag2_long_answers_instrument",),
    "case": ("rag2_case", "rag2_case_named"),
}
"""What is made together. The first of a group with means is in the form of Table 1."""

_TESTED_ON = {
    "strategies": ("bioasq",),
    "filters": ("medqa", "mmlu", "bioasq"),
    "writers": ("bioasq",),
}
"""The groups that open labels of test questions, and the sets of these."""


def rag2_results(profile: Profile, retriever: Retriever) -> dict[str, pd.DataFrame]:
    """All of ``TABLES`` by name, kept as results of the profile; what holds is reused."""
    tables: dict[str, pd.DataFrame] = {}
    for group in TABLES:
        tables |= group_results(group, profile, retriever)
    return tables


def group_results(group: str, profile: Profile, retriever: Retriever) -> dict[str, pd.DataFrame]:
    """The tables of one group of ``TABLES``, from its ``VALUES`` where it has some."""
    sets = [name for sets in GROUPS.values() for d in sets for name in load_registry(f"{d}-")]
    behind = [path.relative_to(DATA).as_posix() for path in _behind(group)]
    origin = {
        "code": ["lib.studies.rag2"],
        "data": [*files_of(profile.corpora), *sets, *load_registry("medmcqa-"), *behind],
        "encoder": retriever.encoder.fingerprint,
        "limit": profile.limit,
    }
    values = [
        make_or_reuse(
            partial(_measured, name, profile, retriever), name, profile.name, dear=True, **origin
        )
        for name in VALUES.get(group, ())
    ]
    setup = f"{profile.name}, {retriever.encoder.name}"
    tables = partial(_TABLES_OF[group], *values) if values else partial(_MADE[group], retriever)
    make = partial(tables, setup) if group in _WITH_SETUP else tables

    def looked_at() -> dict[str, pd.DataFrame]:
        made = make()
        if group in _TESTED_ON:
            own = [q.qid for q in load_real("test") if q.dataset in _TESTED_ON[group]]
            tested_on, arms = " and ".join(_TESTED_ON[group]), made[TABLES[group][0]]["method"]
            note_look(f"rag2, {group}", tested_on, own, profile.name, arms)
        return made

    return make_all_or_reuse(looked_at, TABLES[group], profile.name, **origin)


def _measured(name: str, profile: Profile, retriever: Retriever) -> pd.DataFrame:
    """One of ``VALUES``, as it is stored: its numbers with nine digits."""
    table = _MEASURED[name](profile, retriever)
    return nine_digits(table, [c for c, own in table.items() if own.dtype == float])


def _held(_: Profile, retriever: Retriever) -> pd.DataFrame:
    filters = load_filters(retriever, [passage.text for passage in retriever.store])
    return held_scores(open_material(), filters)


def _held_tables(scored: pd.DataFrame) -> dict[str, pd.DataFrame]:
    filters = [name for name in (*BASELINES, *HEADS, *CROSSES) if name in scored]
    return held_tables(scored, lines_of(filters))


def _held_draws(_: Retriever) -> dict[str, pd.DataFrame]:
    material = open_material()
    pairs = held_pairs(material.labels, gold_passages(material.store))
    return {"rag2_held_shuffled": shuffled_draws(material, pairs)}


def _long_answers(_: Profile, retriever: Retriever) -> pd.DataFrame:
    texts = [passage.text for passage in retriever.store]
    reranker = Reranker(RERANKERS[0], retriever.encoder, texts)
    return long_answer_outcomes(retriever, reranker, load_filter(FILTER, SHARE))


def _instrument(retriever: Retriever) -> dict[str, pd.DataFrame]:
    couples = instrument_couples(retriever.store)
    return {"rag2_long_answers_instrument": instrument(couples, TokenScorer())}


def _case(retriever: Retriever) -> dict[str, pd.DataFrame]:
    return case_tables(retriever, [load_filter(FILTER), load_filter(FILTER, SHARE)])


_MEASURED: dict[str, Callable[[Profile, Retriever], pd.DataFrame]] = {
    "values_rag2_strategies": strategy_outcomes,
    "values_rag2_filters": lambda _, retriever: filter_scores(retriever),
    "values_rag2_crossed": lambda _, retriever: crossed_values(retriever),
    "values_rag2_held": _held,
    "values_rag2_labels": lambda _, retriever: label_values(retriever),
    "values_rag2_writers": lambda _, retriever: writer_outcomes(retriever),
    "values_rag2_long_answers": _long_answers,
}
_TABLES_OF: dict[str, Callable[..., dict[str, pd.DataFrame]]] = {
    "strategies": strategy_tables,
    "filters": filter_tables,
    "held": _held_tables,
    "training": training_tables,
    "writers": writer_tables,
    "long answers": long_answer_tables,
}
_WITH_SETUP = ("strategies", "filters", "writers")
_MADE: dict[str, Callable[[Retriever], dict[str, pd.DataFrame]]] = {
    "held draws": _held_draws,
    "instrument": _instrument,
    "case": _case,
}


def _behind(group: str) -> list[Path]:
    """The files behind a group, beside the corpus and the question sets."""
    recordings = sorted(RECORDINGS.glob("real-*.jsonl.gz"))
    rerankers = [reranker_card_file(name) for name in RERANKERS]
    if group == "strategies":
        bundled = [DATA / "ddx-mini" / f"{name}.jsonl" for name in ddx_mini.FILES]
        return [*recordings, *rerankers, *bundled]
    written = sorted(RECORDINGS.glob("rag2-*.jsonl.gz"))
    trained = [head_file(name) for name in HEADS]
    trained += [card_file(name) for name in (*HEADS, *CROSSES, *BASELINES)]
    labels = sorted(file for file in LABELS.iterdir() if file.suffix != ".md")
    return [*recordings, *written, JUDGMENTS, HELPFUL, *trained, *rerankers, *labels]
