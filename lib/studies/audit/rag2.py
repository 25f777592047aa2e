"""The derived numbers of RAG²: averages, gains, totals."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import permutations

from lib.studies.audit.arithmetic import Range, mean, total
from lib.studies.audit.reported import (
    CONSISTENT,
    IMPOSSIBLE,
    IN_TENSION,
    MISPRINT,
    Case,
    Comparison,
    Tables,
    compare_all,
    finding,
    holds_for_all,
)

_LLAMA = "Llama-3-8B-Instruct"
_MEERKAT = "Meerkat-7B"
_GPT = "GPT-4o"
_MODELS = (_LLAMA, _MEERKAT, _GPT)
_DATASETS = ("MedQA", "MedMCQA", "MMLU-Med")
_IN_MILLIONS = {
    "million": Fraction(1),
    "thousand": Fraction(1, 1000),
    "count": Fraction(1, 10**6),
}
"""Table A1 prints parts in several units, and totals in millions (sizes are all in GB)."""


def _cell(tables: Tables, model: str, method: str, dataset: str) -> Range:
    """A cell of Table 2, in percent."""
    return tables.number("rag2_table2", model=model, method=method, dataset=dataset)


def _gain(tables: Tables, model: str, dataset: str, over: str = "no retrieval") -> Range:
    """Points that RAG² gains over another row of Table 2."""
    return _cell(tables, model, "RAG2", dataset) - _cell(tables, model, over, dataset)


def _averages(tables: Tables) -> Iterable[dict]:
    """Is each row's average the mean of its three accuracies?"""
    comparisons = []
    for row in tables.rows("rag2_table2", dataset="Average"):
        model = row["model"]
        method = row["method"]
        cells = [_cell(tables, model, method, dataset) for dataset in _DATASETS]
        average = _cell(tables, model, method, "Average")
        comparisons.append(Comparison(f"{model}, {method}", average, mean(cells)))
    yield from compare_all(tables, "rag2.table2.averages", comparisons)


def _gains(tables: Tables) -> Iterable[dict]:
    """Are the gains that the text quotes those of the tables?"""
    comparisons = [
        Comparison(
            f"{model}, average",
            tables.text_number(f"rag2.gain.{model}"),
            _gain(tables, model, "Average"),
        )
        for model in _MODELS
    ]
    for model in (_LLAMA, _MEERKAT):
        comparisons.append(
            Comparison(
                f"{model}, MMLU-Med",
                tables.text_number(f"rag2.mmlu.{model}"),
                _gain(tables, model, "MMLU-Med"),
            )
        )
    over_medrag = _gain(tables, _LLAMA, "Average", over="MedRAG")
    comparisons.append(
        Comparison("over MedRAG, Llama", tables.text_number("rag2.medrag"), over_medrag)
    )
    for dataset in ("MedQA", "MedMCQA"):
        ours = tables.number("rag2_table3", filter="Rationale-guided Filtering", dataset=dataset)
        other = tables.number("rag2_table3", filter="Adaptive-RAG", dataset=dataset)
        comparisons.append(
            Comparison(
                f"filter over Adaptive-RAG, {dataset}",
                tables.text_number(f"rag2.filter.{dataset}"),
                ours - other,
            )
        )
    yield from compare_all(tables, "rag2.text.gains", comparisons, spec=".1f")


def _order_of_gains(tables: Tables) -> Iterable[dict]:
    """Are three gains given "respectively" in the order of the models they are said of?

    The text on Table 2 names each with its model, so the right gains in a wrong order are a slip.
    """
    ordered = [
        Comparison(
            model, tables.text_number(f"rag2.order.{model}"), _gain(tables, model, "Average")
        )
        for model in (_GPT, _LLAMA, _MEERKAT)
    ]
    in_some_order = any(
        all(c.printed.may_equal(gain.recomputed) for c, gain in zip(ordered, other, strict=True))
        for other in permutations(ordered)
    )
    verdict = MISPRINT if in_some_order else IMPOSSIBLE
    yield finding(
        tables,
        "rag2.text.order",
        printed=", ".join(f"{c.printed:.1f}" for c in ordered),
        recomputed=", ".join(f"{c.recomputed:.1f}" for c in ordered),
        verdict=CONSISTENT if all(c.agrees for c in ordered) else verdict,
        working="; ".join(
            f"{c.name}: {c.printed} said, {c.recomputed:.1f} in Table 2" for c in ordered
        ),
    )


def _every_gain(tables: Tables) -> Iterable[dict]:
    """Does every model gain on every data set?"""
    cases = {}
    for model in _MODELS:
        for dataset in _DATASETS:
            gain = _gain(tables, model, dataset)
            cases[f"{model}, {dataset}"] = Case(f"{gain:+.1f}", gain.high >= 0)
    yield holds_for_all(tables, "rag2.text.every", cases, IN_TENSION)


def _figure3(tables: Tables) -> Iterable[dict]:
    """Are the best gains quoted from Figure 3 those of Table 2?"""
    comparisons = []
    for model in (_LLAMA, _MEERKAT):
        for dataset in ("MedQA", "MedMCQA"):
            printed = tables.text_number(f"rag2.figure3.{model}.{dataset}")
            gain = _gain(tables, model, dataset)
            comparisons.append(Comparison(f"{model}, {dataset}", printed, gain))
    yield from compare_all(tables, "rag2.figure3", comparisons, spec=".1f", otherwise=IN_TENSION)


def _balanced(tables: Tables) -> Iterable[dict]:
    """Is balanced retrieval above MedRAG's everywhere?"""
    cases = {}
    for row in tables.rows("rag2_table4", retrieval="balanced retrieval"):
        where = {"model": row["model"], "dataset": row["dataset"]}
        balanced = tables.number("rag2_table4", retrieval="balanced retrieval", **where)
        medrag = tables.number("rag2_table4", retrieval="MedRAG", **where)
        cases[f"{row['model']}, {row['dataset']}"] = Case(
            f"{balanced} against {medrag}", balanced.may_exceed(medrag)
        )
    yield holds_for_all(tables, "rag2.table4.best", cases)


def _totals(tables: Tables) -> Iterable[dict]:
    """Are Table A1's totals the sums of the corpora?"""
    comparisons = []
    for collection in ("MedCorp", "RAG2 corpus"):
        for metric in ("raw_documents", "chunks", "index_size"):
            keys = {"collection": collection, "metric": metric}
            numbers = tables.numbers("rag2_tableA1", "corpus", **keys)
            printed_total = numbers.pop("Total")
            units = {row["corpus"]: row["unit"] for row in tables.rows("rag2_tableA1", **keys)}
            parts = [
                number * _IN_MILLIONS.get(units[corpus], 1) for corpus, number in numbers.items()
            ]
            comparisons.append(Comparison(f"{collection}, {metric}", printed_total, total(parts)))
    yield from compare_all(tables, "rag2.tableA1.totals", comparisons)


CHECKS = [_averages, _gains, _order_of_gains, _every_gain, _figure3, _balanced, _totals]
