"""The derived numbers of RAG²: averages, gains, totals."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from lib.studies.audit.arithmetic import Range, mean, total
from lib.studies.audit.reported import IN_TENSION, Tables, family, finding, holds, judge

__all__ = ["CHECKS"]

_MODELS = ("Llama-3-8B-Instruct", "Meerkat-7B", "GPT-4o")
_SETS = ("MedQA", "MedMCQA", "MMLU-Med")
_MILLIONS = {"million": Fraction(1), "thousand": Fraction(1, 1000), "count": Fraction(1, 10**6)}


def _cell(t: Tables, model: str, method: str, dataset: str) -> Range:
    return t.number("rag2_table2", model=model, method=method, dataset=dataset)


def _gain(t: Tables, model: str, dataset: str, over: str = "no retrieval") -> Range:
    return _cell(t, model, "RAG2", dataset) - _cell(t, model, over, dataset)


def _averages(t: Tables) -> Iterable[dict]:
    rows = [(r["model"], r["method"]) for r in t.rows("rag2_table2", dataset="Average")]
    members = [
        (f"{m}, {how}", _cell(t, m, how, "Average"), mean([_cell(t, m, how, d) for d in _SETS]))
        for m, how in rows
    ]
    yield from family(t, "rag2.table2.averages", members)


def _gains(t: Tables) -> Iterable[dict]:
    gain = {m: _gain(t, m, "Average") for m in _MODELS}
    members = [(f"{m}, average", t.said(f"rag2.gain.{m}"), gain[m]) for m in _MODELS]
    for m in _MODELS[:2]:
        members.append((f"{m}, MMLU-Med", t.said(f"rag2.mmlu.{m}"), _gain(t, m, "MMLU-Med")))
    over = _gain(t, _MODELS[0], "Average", "MedRAG")
    members.append(("over MedRAG, Llama", t.said("rag2.medrag"), over))
    for d in _SETS[:2]:
        ours, other = (
            t.number("rag2_table3", filter=f, dataset=d)
            for f in ("Rationale-guided Filtering", "Adaptive-RAG")
        )
        members.append((f"filter over Adaptive-RAG, {d}", t.said(f"rag2.filter.{d}"), ours - other))
    yield from family(t, "rag2.text.gains", members, spec=".1f")
    order = {m: (t.said(f"rag2.order.{m}"), gain[m]) for m in (_MODELS[2], *_MODELS[:2])}
    told, again = (", ".join(f"{x[i]:.1f}" for x in order.values()) for i in (0, 1))
    yield finding(
        t,
        "rag2.text.order",
        told,
        again,
        judge(all(a.meets(b) for a, b in order.values())),
        "; ".join(f"{m}: {a} said, {b:.1f} in Table 2" for m, (a, b) in order.items()),
    )
    cells = {f"{m}, {d}": _gain(t, m, d) for m in _MODELS for d in _SETS}
    cases = {k: (f"{x:+.1f}", x.high >= 0) for k, x in cells.items()}
    yield holds(t, "rag2.text.every", cases, IN_TENSION)
    best = [
        (f"{m}, {d}", t.said(f"rag2.figure3.{m}.{d}"), _gain(t, m, d))
        for m in _MODELS[:2]
        for d in _SETS[:2]
    ]
    yield from family(t, "rag2.figure3", best, spec=".1f", otherwise=IN_TENSION)


def _balanced(t: Tables) -> Iterable[dict]:
    cases = {}
    for r in t.rows("rag2_table4", retrieval="balanced retrieval"):
        a, b = (
            t.number("rag2_table4", retrieval=how, model=r["model"], dataset=r["dataset"])
            for how in ("balanced retrieval", "MedRAG")
        )
        cases[f"{r['model']}, {r['dataset']}"] = (f"{a} against {b}", a.may_exceed(b))
    yield holds(t, "rag2.table4.best", cases)


def _totals(t: Tables) -> Iterable[dict]:
    members = []
    for collection in ("MedCorp", "RAG2 corpus"):
        for metric in ("raw_documents", "chunks", "index_size"):
            keys = {"collection": collection, "metric": metric}
            own = t.numbers("rag2_tableA1", "corpus", **keys)
            units = {r["corpus"]: r["unit"] for r in t.rows("rag2_tableA1", **keys)}
            parts = [x * _MILLIONS.get(units[c], 1) for c, x in own.items() if c != "Total"]
            members.append((f"{collection}, {metric}", own["Total"], total(parts)))
    yield from family(t, "rag2.tableA1.totals", members)


CHECKS = [_averages, _gains, _balanced, _totals]
