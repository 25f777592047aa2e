"""RAG2's results of a profile: how it retrieves, what its filters do, who writes, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from lib.base.downloads import load_registry
from lib.base.paths import DATA, RECORDINGS
from lib.base.provenance import make_all_or_reuse
from lib.data import ddx_mini
from lib.data.corpus_index import files_of
from lib.data.judgments import HELPFUL, JUDGMENTS
from lib.data.looks import note_look
from lib.data.real import GROUPS, load_real
from lib.profiles import Profile
from lib.run import Retriever
from lib.studies.rag2.case import case_tables
from lib.studies.rag2.filter_results import (
    filter_tables,
    lines_of,
    load_filters,
    training_tables,
)
from lib.studies.rag2.filters import BASELINES, CROSSES, HEADS, card_file, head_file, load_filter
from lib.studies.rag2.held import held_tables
from lib.studies.rag2.labels import FOLDER as LABELS
from lib.studies.rag2.long_answers import FILTER, SHARE, long_answer_tables
from lib.studies.rag2.reranker import RERANKERS, Reranker
from lib.studies.rag2.reranker import card_file as reranker_card_file
from lib.studies.rag2.strategy_results import strategy_tables
from lib.studies.rag2.train_filters import open_material
from lib.studies.rag2.writers import writer_tables

__all__ = ["TABLES", "group_results", "rag2_results"]


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
    "held": ("rag2_held", "rag2_held_shuffled", "rag2_held_kept"),
    "training": ("rag2_labels", "rag2_trainings"),
    "writers": ("rag2_writers", "rag2_writers_claims"),
    "long answers": (
        "rag2_long_answers",
        "rag2_long_answers_claims",
        "rag2_long_answers_instrument",
    ),
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
    """The tables of one group of ``TABLES``."""
    make = _MAKERS[group]
    sets = [name for sets in GROUPS.values() for d in sets for name in load_registry(f"{d}-")]
    behind = [path.relative_to(DATA).as_posix() for path in _behind(group)]

    def looked_at() -> dict[str, pd.DataFrame]:
        tables = make(profile, retriever)
        if group in _TESTED_ON:
            own = [q.qid for q in load_real("test") if q.dataset in _TESTED_ON[group]]
            tested_on, arms = " and ".join(_TESTED_ON[group]), tables[TABLES[group][0]]["method"]
            note_look(f"rag2, {group}", tested_on, own, profile.name, arms)
        return tables

    return make_all_or_reuse(
        looked_at,
        TABLES[group],
        profile.name,
        code=["lib.studies.rag2"],
        data=[*files_of(profile.corpora), *sets, *load_registry("medmcqa-"), *behind],
        encoder=retriever.encoder.fingerprint,
        limit=profile.limit,
    )


def _held(_: Profile, retriever: Retriever) -> dict[str, pd.DataFrame]:
    filters = load_filters(retriever, [passage.text for passage in retriever.store])
    return held_tables(open_material(), filters, lines_of(tuple(filters)))


def _long_answers(_: Profile, retriever: Retriever) -> dict[str, pd.DataFrame]:
    texts = [passage.text for passage in retriever.store]
    reranker = Reranker(RERANKERS[0], retriever.encoder, texts)
    return long_answer_tables(retriever, reranker, load_filter(FILTER, SHARE))


def _case(_: Profile, retriever: Retriever) -> dict[str, pd.DataFrame]:
    return case_tables(retriever, [load_filter(FILTER), load_filter(FILTER, SHARE)])


_MAKERS: dict[str, Callable[[Profile, Retriever], dict[str, pd.DataFrame]]] = {
    "strategies": strategy_tables,
    "filters": filter_tables,
    "held": _held,
    "training": lambda _, retriever: training_tables(retriever),
    "writers": lambda _, retriever: writer_tables(retriever),
    "long answers": _long_answers,
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
