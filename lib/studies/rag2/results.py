"""RAG2's results of a profile: how it retrieves, what its filters do, who writes, what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lib.base.downloads import load_registry
from lib.base.paths import DATA, RECORDINGS
from lib.benchmarks import ddx_mini
from lib.data.judgments import HELPFUL, JUDGMENTS
from lib.data.looks import Look
from lib.datasets import GROUPS, load_real
from lib.embed import load_encoder
from lib.index_build import files_of
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.report import nine_digits
from lib.studies.rag2 import filtering, heldout_eval, long_answers, retrieval, writers
from lib.studies.rag2.filters import FILTERS, HEADS, RERANKERS, card_file, head_file
from lib.studies.rag2.labels import FOLDER as LABELS
from lib.studies.rag2.retrieval import Collection
from lib.study import Study


def open_collection(profile: Profile) -> Collection:
    """The profile's passages with its encoder, and the files behind all studies."""
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    recordings = [*RECORDINGS.glob("real-*.jsonl.gz"), *RECORDINGS.glob("rag2-*.jsonl.gz")]
    labels = [file for file in LABELS.iterdir() if file.suffix != ".md"]
    cards = [card_file(name) for name in (*FILTERS, *RERANKERS)]
    heads = [head_file(name) for name in HEADS]
    data = _data(profile, [*recordings, *labels, *cards, *heads, JUDGMENTS, HELPFUL])
    return Collection(profile, open_retriever(profile, encoder), data)


def _data(profile: Profile, files: Iterable[Path]) -> list[str]:
    """The corpora, the question sets and these files, as ``lib.base.provenance`` takes them."""
    sets = [name for sets in GROUPS.values() for d in sets for name in load_registry(f"{d}-")]
    own = [path.relative_to(DATA).as_posix() for path in files]
    return [*files_of(profile.corpora), *sets, *load_registry("medmcqa-"), *own]


def _of_strategies(collection: Collection) -> dict[str, list[str]]:
    """The files behind the strategies: no filters, labels or judgments, but the bundled set too."""
    bundled = [DATA / "ddx-mini" / f"{name}.jsonl" for name in ddx_mini.FILES]
    cards = [card_file(name) for name in RERANKERS]
    files = [*RECORDINGS.glob("real-*.jsonl.gz"), *cards, *bundled]
    return {"data": _data(collection.profile, files)}


# the studies --------------------------------------------------------------------------------------


def _looks(table: str, *test_sets: str) -> Callable[..., list[Look]]:
    """The look at all questions of these sets that gave a ``table`` of means."""

    def looks(collection: Collection, made: Mapping[str, pd.DataFrame]) -> list[Look]:
        qids = [q.qid for q in load_real("test") if q.dataset in test_sets]
        return [Look(" and ".join(test_sets), qids, made[table]["method"])]

    return looks


def _stored(measured: Callable[[Collection], pd.DataFrame]) -> Callable:
    """Outcomes as they are stored: numbers with nine digits."""

    def outcomes(collection: Collection) -> pd.DataFrame:
        table = measured(collection)
        return nine_digits(table, list(table.select_dtypes(float)))

    return outcomes


def _study(name: str, values: Mapping[str, Callable], *more: Any, **options: Any) -> Study:
    kept = {result: _stored(measured) for result, measured in values.items()}
    code = "lib.studies.rag2"
    return Study(f"rag2, {name}", code, open_collection, kept, *more, **options)


STUDIES = (
    _study(
        "strategies",
        {"values_rag2_strategies": retrieval.strategy_outcomes},
        ("rag2_strategies", "rag2_strategies_claims"),
        retrieval.strategy_tables,
        looks=_looks("rag2_strategies", "bioasq"),
        origin=_of_strategies,
    ),
    _study(
        "filters",
        {
            "values_rag2_filters": filtering.filter_outcomes,
            "values_rag2_crossed": filtering.crossed_outcomes,
        },
        (
            "rag2_filters",
            "rag2_filters_claims",
            "rag2_filters_auroc",
            "rag2_filters_kept",
            "rag2_filters_judge",
            "rag2_by_k",
            "rag2_top_1",
        ),
        filtering.filter_tables,
        looks=_looks("rag2_filters", "medqa", "mmlu", "bioasq"),
    ),
    _study(
        "held out",
        {"values_rag2_held": heldout_eval.heldout_outcomes},
        ("rag2_held", "rag2_held_kept", "rag2_held_shuffled"),
        heldout_eval.heldout_tables,
    ),
    _study(
        "labels",
        {"values_rag2_labels": heldout_eval.label_outcomes},
        ("rag2_labels", "rag2_trainings"),
        heldout_eval.label_tables,
    ),
    _study(
        "writers",
        {"values_rag2_writers": writers.writer_outcomes},
        ("rag2_writers", "rag2_writers_claims"),
        writers.writer_tables,
        looks=_looks("rag2_writers", "bioasq"),
    ),
    _study(
        "long answers",
        {"values_rag2_long_answers": long_answers.long_answer_outcomes},
        (
            "rag2_long_answers",
            "rag2_long_answers_claims",
            "rag2_long_answers_instrument",
        ),
        long_answers.long_answer_tables,
    ),
    _study(
        "case",
        {},
        ("rag2_case", "rag2_case_named"),
        retrieval.case_tables,
        origin=lambda collection: {"data": [*collection.data, retrieval.CASE_FILE]},
    ),
)
