"""The derived numbers of SL-HyDE: averages over ten data sets and five tasks, relative gains.

And its prompts: two that are for different steps are the same text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from lib.studies.audit.arithmetic import Range, exactly, mean, relative_change
from lib.studies.audit.reported import (
    MISPRINT,
    Case,
    Comparison,
    Tables,
    compare_all,
    finding,
    holds_for_all,
    judge,
)

_TASKS = {
    "Knowledge": ("MedExam", "DuBaike", "DXYDisease"),
    "Consultation": ("MedicalRetrieval", "CmedqaRetrieval", "DXYConsult"),
    "News": ("CovidRetrieval",),
    "Post": ("IIYiPost",),
    "Literature": ("CSLCite", "CSLRel"),
}
"""The tasks, and the data sets of each."""
_DATASETS = [dataset for datasets in _TASKS.values() for dataset in datasets]
_WITH_HYPOTHESES = "with hypothetical documents"
_WITHOUT = "base retrievers"
"""The two parts of Table 2."""
_BY_DATASET = {
    "2": ["part", "model"],
    "8": ["model"],
    "12": ["model"],
    "13": ["configuration", "method"],
}
"""Tables with a column for each data set, and the keys that name their rows."""
_BY_TASK = ("3", "4", "5", "6")
"""Tables with a column for each task; "configuration" and "method" name their rows."""

RowName = tuple[str, ...]


def _scores(
    tables: Tables, n: str, column: str, keys: list[str]
) -> dict[RowName, dict[str, Range]]:
    """Every row of Table ``n`` by its name: its scores by ``column`` (data set or task)."""
    table = f"slhyde_table{n}"
    names = [
        tuple(row[key] for key in keys)
        for row in tables.rows(table)
        if row["metric"] != "relative_improvement"
    ]
    return {
        name: tables.numbers(table, column, **dict(zip(keys, name, strict=True)))
        for name in dict.fromkeys(names)
    }


def _averages(tables: Tables) -> Iterable[dict]:
    """Is each average over data sets the mean of the row?"""
    comparisons = []
    for n, keys in _BY_DATASET.items():
        for name, row in _scores(tables, n, "dataset", keys).items():
            again = mean([score for dataset, score in row.items() if dataset != "Average"])
            comparisons.append(Comparison(f"Table {n}, {', '.join(name)}", row["Average"], again))
    sizes = [len(datasets) for datasets in _TASKS.values()]
    for n in _BY_TASK:
        for name, row in _scores(tables, n, "task", ["configuration", "method"]).items():
            again = mean([row[task] for task in _TASKS], sizes)
            comparisons.append(
                Comparison(f"Table {n}, {', '.join(name)}", row["Average(All)"], again)
            )
    yield from compare_all(tables, "slhyde.averages", comparisons)


def _tasks(tables: Tables) -> Iterable[dict]:
    """Is each task's number the mean of its data sets, which stand in other tables?"""
    table2 = _scores(tables, "2", "dataset", _BY_DATASET["2"])
    table13 = _scores(tables, "13", "dataset", _BY_DATASET["13"])
    comparisons = []
    for n in _BY_TASK:
        for name, row in _scores(tables, n, "task", ["configuration", "method"]).items():
            if n in ("3", "4"):
                by_dataset = table13.get(name)
            else:
                _, method = name
                by_dataset = table2.get((_WITH_HYPOTHESES, method))
            if by_dataset is None:  # a variant that no table shows by data set
                continue
            for task, datasets in _TASKS.items():
                again = mean([by_dataset[dataset] for dataset in datasets])
                label = f"Table {n}, {', '.join(name)}, {task}"
                comparisons.append(Comparison(label, row[task], again))
    yield from compare_all(tables, "slhyde.tasks", comparisons)


def _improvements(tables: Tables) -> Iterable[dict]:
    """Do the relative improvements follow from the scores of HyDE and SL-HyDE?"""
    comparisons = []
    for n, column, group, method in (
        ("2", "dataset", "part", "model"),
        ("3", "task", "configuration", "method"),
        ("4", "task", "configuration", "method"),
        ("13", "dataset", "configuration", "method"),
    ):
        table = f"slhyde_table{n}"
        for row in tables.rows(table, metric="relative_improvement"):
            cell = {group: row[group], column: row[column]}
            old = tables.number(table, **cell, **{method: "HyDE"})
            new = tables.number(table, **cell, **{method: "SL-HyDE"})
            printed = tables.number(table, **cell, **{method: row[method]})
            label = f"Table {n}, {row[group]}, {row[column]}"
            comparisons.append(Comparison(label, printed, relative_change(old, new)))
    average = {
        model: tables.number("slhyde_table2", part=_WITH_HYPOTHESES, model=model, dataset="Average")
        for model in ("SL-HyDE", "HyDE", "BGE(large)")
    }
    for model in ("HyDE", "BGE(large)"):
        printed = tables.text_number(f"slhyde.gain.{model}")
        again = relative_change(average[model], average["SL-HyDE"])
        comparisons.append(Comparison(f"text, over {model}", printed, again))
    yield from compare_all(tables, "slhyde.improvements", comparisons)


def _best_retrievers(tables: Tables) -> Iterable[dict]:
    """On how many data sets is each base retriever the best?"""
    winners = []
    for dataset in _DATASETS:
        scores = tables.numbers("slhyde_table2", "model", part=_WITHOUT, dataset=dataset)
        winners.append(_highest(scores))
    prefix = "slhyde.best."
    ids = [id for id in tables.values("claims", "id") if id.startswith(prefix)]
    comparisons = []
    for id in ids:
        model = id.removeprefix(prefix)
        wins = exactly(winners.count(model))
        comparisons.append(Comparison(model, tables.text_number(id), wins))
    yield from compare_all(tables, "slhyde.best", comparisons, spec=".0f")


def _highest(scores: dict[str, Range]) -> str:
    return max(scores, key=lambda name: scores[name].middle)


def _above_hyde(tables: Tables) -> Iterable[dict]:
    """Is SL-HyDE above HyDE on every data set?"""
    ours, hyde = (
        tables.numbers("slhyde_table2", "dataset", part=_WITH_HYPOTHESES, model=model)
        for model in ("SL-HyDE", "HyDE")
    )
    improvements = tables.rows("slhyde_table13", metric="relative_improvement")
    by_dataset = [row["value"] for row in improvements if row["dataset"] != "Average"]
    falls = [value for value in by_dataset if value.startswith("-")]
    cases = {
        dataset: Case(
            f"{ours[dataset]} against {hyde[dataset]}", ours[dataset].may_exceed(hyde[dataset])
        )
        for dataset in _DATASETS
    }
    yield holds_for_all(
        tables,
        "slhyde.every",
        cases,
        note=f"with other models (Table 13) lower on {len(falls)} of {len(by_dataset)}, as printed "
        "there",
    )


def _bold(tables: Tables) -> Iterable[dict]:
    """Does Table 12 print the highest number of each column in bold? The numbers say which is."""
    comparisons = []
    for dataset in (*_DATASETS, "Average"):
        column = tables.numbers("slhyde_table12", "model", dataset=dataset)
        in_bold = tables.text_number(f"slhyde.bold.{dataset}")
        comparisons.append(Comparison(dataset, in_bold, column[_highest(column)]))
    yield from compare_all(tables, "slhyde.table12.bold", comparisons, otherwise=MISPRINT)


def fingerprint(text: str) -> str:
    """Two texts have the same fingerprint if they are the same word for word.

    The sha256 of the words (letters and digits, in lower case, one space between them), so that
    line breaks, punctuation and markup do not count. The prompts of ``slhyde_prompts.csv`` are
    known by it: a paper's text may be compared here, but not reprinted.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def _prompts(tables: Tables) -> Iterable[dict]:
    """Has each step of the data processing a prompt of its own?"""
    names: dict[str, list[str]] = {}
    for row in tables.rows("slhyde_prompts", metric="fingerprint"):
        names.setdefault(row["value"], []).append(f"{row['prompt']} (Figure {row['figure']})")
    words = tables.numbers("slhyde_prompts", "prompt", metric="words")
    same = [" and ".join(prompts) for prompts in names.values() if len(prompts) > 1]
    working = "number of words: " + "; ".join(f"{name} {n}" for name, n in words.items())
    if same:
        working += f". Word for word the same: {'; '.join(same)}"
    yield finding(
        tables,
        "slhyde.prompts",
        printed=f"{len(words)} prompts",
        recomputed=f"{len(names)} different texts",
        verdict=judge(True, strained=bool(same)),
        working=working,
    )


CHECKS = [
    _averages,
    _tasks,
    _improvements,
    _best_retrievers,
    _above_hyde,
    _bold,
    _prompts,
]
