"""The paper's Tables 1 to 3 and Figure 5 from an experiment, each kept as a result file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lib.answer import EvidenceReader, Reader
from lib.evaluate import mean_interval
from lib.grid import accuracy
from lib.grid.experiment import Experiment
from lib.grid.shift import shift_table
from lib.methods.base import Dense, Expansion
from lib.mimics.naming import named_option
from lib.retrieve import execute

__all__ = ["claims", "figure5", "table1", "table2", "table3"]


def table1(experiment: Experiment, answers: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of every arm with every reader, the majority's and the expander's own answer."""
    visible = {name: m.options_visible for name, m in experiment.grid.methods.items()}
    told = pd.concat([answers, *_without_reader(experiment)], ignore_index=True)
    return experiment.save(accuracy.accuracy_table(told, visible), "table1")


def claims(experiment: Experiment, answers: pd.DataFrame) -> pd.DataFrame:
    """CHR > each baseline, as paired tests (see ``lib.grid.accuracy.claims``)."""
    return experiment.save(accuracy.claims(answers), "claims")


def table2(experiment: Experiment, answers: pd.DataFrame, other: str = "hyde") -> pd.DataFrame:
    """Overlap of CHR's passages with each method's; by outcome and reader for ``other``."""
    rows, k = [], experiment.grid.k
    for d in experiment.grid.sets:
        ours = _ids(experiment, "chr", d)
        for arm in [a for a in experiment.searched if a != "chr"]:
            if (theirs := _ids(experiment, arm, d)) and ours:
                rows.append(shift_table(ours, theirs, k).assign(dataset=d, method=arm, reader=""))
        if halves := _halves(experiment, other, d):
            floor = shift_table(*halves, k)
            rows.append(floor.assign(dataset=d, method="noise floor", reader=""))
        for reader in experiment.readers:
            right = [_right(answers, d, reader.name, m) for m in ("chr", other)]
            if all(len(r) for r in right) and ours:
                read = {q: ours[q] for q in right[0].index}
                some = shift_table(read, _ids(experiment, other, d), k, tuple(right))
                rows.append(some.assign(dataset=d, method=other, reader=reader.name))
    first = ["dataset", "method", "reader"]
    table = pd.concat(rows, ignore_index=True)
    return experiment.save(table[[*first, *(c for c in table if c not in first)]], "table2")


def table3(experiment: Experiment) -> pd.DataFrame:
    """Calls and tokens of the expansions a model generated, beside the paper's."""
    return experiment.save(accuracy.cost_table(experiment.expanded()), "table3")


def figure5(experiment: Experiment, lambdas: Sequence[float], targets: Mapping) -> pd.DataFrame:
    """Accuracy (the reader without an LLM) and P@k of CHR over lambda: long form, by set.

    ``targets`` are the relevant passages of each question id; P@k is over the questions that have
    any, and a set without one has no P@k.
    """
    rows, reader = [], _without_llm(experiment)
    store = experiment.grid.retriever.store
    for d in experiment.grid.sets:
        questions = experiment.grid.questions("chr", d)
        for lam in lambdas:
            method = replace(experiment.grid.methods["chr"], lam=lam)
            pairs = [_at(e, method.lam) for e in experiment.grid.expansions("chr", d)]
            found, _ = execute(
                "chr", questions, pairs, experiment.grid.retriever, experiment.grid.k
            )
            ids = {q: list(r["pid"]) for q, r in found.groupby("qid")}
            contexts = [store.get_many(ids.get(q.qid, [])) for q in questions]
            told = reader.answer_all(questions, contexts)
            right = [a.letter == q.answer for a, q in zip(told, questions, strict=True)]
            hits = [
                sum(p in targets[q.qid] for p in ids.get(q.qid, [])) / experiment.grid.k
                for q in questions if targets.get(q.qid)
            ]  # fmt: skip
            for metric, values in ((f"accuracy, {reader.name}", right), ("P@k", hits)):
                if not values:
                    continue
                value, low, high = mean_interval(values)
                rows.append({"series": d, "metric": metric, "lambda": lam, "value": value,
                             "low": low, "high": high, "n": len(values)})  # fmt: skip
    return experiment.save(pd.DataFrame(rows), "figure5")


def _ids(experiment: Experiment, arm: str, dataset: str) -> dict[str, list[str]]:
    found = experiment.grid.run(arm, dataset)
    if found is None:
        return {}
    return {q: [p for p in r["pid"] if p] for q, r in found.groupby("qid")}


def _halves(experiment: Experiment, method: str, dataset: str) -> tuple[dict, dict] | None:
    """Two runs of a method that samples, from its odd and its even samples: of the questions that
    have both, None if there are none."""
    if experiment.grid.run(method, dataset) is None:
        return None
    questions, runs = experiment.grid.questions(method, dataset), []
    for start in (0, 1):
        some = []
        for e in experiment.grid.expansions(method, dataset):
            texts = e.request.texts if e.request else ()
            own = [t for t in texts if t.role == "passage"][start::2]
            rest = [t for t in texts if t.role != "passage"]
            some.append(Expansion(Dense((*rest, *own)) if own else None))
        found, _ = execute(method, questions, some, experiment.grid.retriever, experiment.grid.k)
        runs.append({q: list(r["pid"]) for q, r in found.groupby("qid")})
    both = runs[0].keys() & runs[1].keys()
    first, second = ({q: run[q] for q in sorted(both)} for run in runs)
    return (first, second) if both else None


def _without_llm(experiment: Experiment) -> Reader:
    """The profile's reader that needs no LLM, or one on the encoder that searches."""
    own = (r for r in experiment.readers if not r.needs_llm)
    return next(own, None) or EvidenceReader(experiment.grid.retriever.encoder)


def _without_reader(experiment: Experiment) -> list[pd.DataFrame]:
    """Rows of Table 1 that nobody read: the majority's letter, the option that H+ names."""
    out, judge = [], _without_llm(experiment)
    for d, questions in experiment.grid.sets.items():
        gold = pd.Series([q.answer for q in questions])
        own = experiment.grid.answers("hypotheses as context", d, judge)
        base = pd.DataFrame({"dataset": d, "qid": [q.qid for q in questions], "gold": gold})
        most = gold.mode()[0]
        out.append(base.assign(method="always the commonest letter", letter=most, mirage=most))
        if own is not None:
            asked = experiment.grid.questions("chr", d)
            letters = dict(zip((q.qid for q in asked), _named(
                asked, experiment.grid.expansions("chr", d), own), strict=True))  # fmt: skip
            base = base[base["qid"].isin(letters)]
            named = base["qid"].map(letters)
            out.append(base.assign(method="the expander's own answer", letter=named, mirage=named))
    return [table.assign(reader="no reader", rule="", documents_cut=0) for table in out]


def _at(expansion: Expansion, lam: float) -> Expansion:
    """The same hypotheses at another lambda."""
    if expansion.request is None:
        return expansion
    plus, minus, *rest = expansion.request.texts
    texts = (plus, *([replace(minus, weight=-lam)] if lam else ()), *rest)
    return Expansion(replace(expansion.request, texts=texts))


def _right(answers: pd.DataFrame, dataset: str, reader: str, method: str) -> pd.Series:
    own = answers[(answers["dataset"] == dataset) & (answers["reader"] == reader)]
    own = own[own["method"] == method]
    return (own["letter"] == own["gold"]).set_axis(own["qid"])


def _named(questions: Sequence, expansions: Sequence[Expansion], judged: pd.DataFrame) -> list[str]:
    """The letter whose option alone stands in H+; else what the reader makes of H+ and H-.

    Yes and no are answers only where H+ begins with them. An expander that failed has no answer.
    """
    by_reader = dict(zip(judged["qid"], judged["letter"], strict=True))
    letters = []
    for q, e in zip(questions, expansions, strict=True):
        text = e.trace.get("H_plus", "")
        letters.append(named_option(text, q.options) or (by_reader.get(q.qid, "") if text else ""))
    return letters
