"""The paper's Tables 1 to 3 and Figure 5 from an experiment, each kept as a result file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.methods.base import Expansion
from lib.readers import EvidenceReader, Reader
from lib.report import reported
from lib.run import execute
from lib.stats import mean_interval
from lib.studies.grid import accuracy
from lib.studies.grid.experiment import Experiment
from lib.studies.grid.kept import long_form, save_long
from lib.studies.grid.shift import shift_table
from lib.studies.grid.unread import unread
from lib.ways import Hypotheses

SECONDS = "latency_s"

__all__ = ["claims", "figure5", "read", "table1", "table2", "table3"]


def table1(experiment: Experiment, answers: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of every arm with every reader, the majority's and the expander's own answer."""
    told = pd.concat([answers, *unread(experiment, _without_llm(experiment))], ignore_index=True)
    table = accuracy.accuracy_table(told, experiment.visible)
    save_long(experiment, table.fillna({"verdict": ""}), "table1")
    return table


def claims(experiment: Experiment, answers: pd.DataFrame) -> pd.DataFrame:
    """CHR > each baseline, as paired tests (see ``lib.studies.grid.accuracy.claims``)."""
    table = accuracy.claims(answers)
    for side, name in (("arm", "options_visible"), ("against", "options_visible_against")):
        table[name] = table[side].map(experiment.visible)
    return experiment.save(table, "claims")


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
    table = pd.concat(rows, ignore_index=True)
    save_long(experiment, _beside_overlap(table), "table2")
    return table


def table3(experiment: Experiment) -> pd.DataFrame:
    """What the expansions that a model generated cost a question, beside the paper's."""
    table = accuracy.cost_table(experiment.expanded())
    printed = {"calls": "reported_calls", "output_tokens": "reported_output_tokens"}
    counted = [cost for cost in accuracy.COSTS if cost != SECONDS]
    save_long(experiment, long_form(table, [*counted, "failed"], printed), "table3")
    # A machine's seconds are no two times the same: in a file of their own, which is not compared.
    save_long(experiment, long_form(table, [SECONDS]), "table3_seconds")
    return table


def read(experiment: Experiment) -> pd.DataFrame:
    """method, value, value_n: accuracy of the reader without an LLM, over all question sets."""
    reader = _without_llm(experiment)
    found = (
        experiment.grid.answers(arm, d, reader)
        for arm in experiment.grid.methods
        for d in experiment.grid.sets
    )
    told = pd.concat([table for table in found if table is not None])
    right = (told["letter"] == told["gold"]).groupby(told["method"], sort=False)
    return right.agg(value="mean", value_n="size").reset_index()


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
            pairs = [_at(e, lam) for e in experiment.grid.expansions("chr", d)]
            found, _ = execute(
                "chr", questions, pairs, experiment.grid.retriever, experiment.grid.k
            )
            ids = {q: list(r["pid"]) for q, r in found.groupby("qid")}
            contexts = [store.get_many(ids.get(q.qid, [])) for q in questions]
            told = reader.answer_all(questions, contexts)
            right = [a.letter == q.answer for a, q in zip(told, questions, strict=True)]
            hits = [
                sum(p in targets[q.qid] for p in ids.get(q.qid, [])) / experiment.grid.k
                for q in questions
                if targets.get(q.qid)
            ]
            for metric, values in ((f"accuracy, {reader.name}", right), ("P@k", hits)):
                if not values:
                    continue
                value, low, high = mean_interval(values)
                rows.append(
                    {
                        "series": d,
                        "metric": metric,
                        "lambda": lam,
                        "value": value,
                        "low": low,
                        "high": high,
                        "n": len(values),
                    }
                )
    table = pd.DataFrame(rows)
    long = table.rename(columns={"series": "dataset"}).assign(method="chr", answerer="")
    read = long["metric"] != "P@k"
    long.loc[read, ["metric", "answerer"]] = ["accuracy", reader.name]
    save_long(experiment, long, "figure5")
    return table


def _beside_overlap(table: pd.DataFrame) -> pd.DataFrame:
    """Table 2 in long form; the paper prints count and zero for what CHR has right and HyDE not."""
    table = table.rename(columns={"reader": "answerer"})
    theirs = (table["method"] == "hyde") & (table["outcome"] == "only the first right")
    rows = reported("table2_overlap").pivot(index="dataset", columns="metric", values="value")
    for name, printed, unit in (("count", "mean_overlap", 1), ("zero", "zero_overlap", 100)):
        table[f"printed_{name}"] = (
            table["dataset"].map(accuracy.paper_set).map(rows[printed] / unit).where(theirs)
        )
    beside = {"count": "printed_count", "zero": "printed_zero"}
    return long_form(table, ("count", "fraction", "jaccard", "zero", "rbo"), beside)


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
            some.append(Expansion(Hypotheses((*rest, *own)) if own else None))
        found, _ = execute(method, questions, some, experiment.grid.retriever, experiment.grid.k)
        runs.append({q: list(r["pid"]) for q, r in found.groupby("qid")})
    both = runs[0].keys() & runs[1].keys()
    first, second = ({q: run[q] for q in sorted(both)} for run in runs)
    return (first, second) if both else None


def _without_llm(experiment: Experiment) -> Reader:
    """The profile's reader that needs no LLM, or one on the encoder that searches."""
    own = (r for r in experiment.readers if not r.needs_llm)
    return next(own, None) or EvidenceReader(experiment.grid.retriever.encoder)


def _at(expansion: Expansion, lam: float) -> Expansion:
    """The same hypotheses at another lambda."""
    if expansion.request is None:
        return expansion
    return Expansion(expansion.request.by(lam=lam))


def _right(answers: pd.DataFrame, dataset: str, reader: str, method: str) -> pd.Series:
    own = answers[(answers["dataset"] == dataset) & (answers["reader"] == reader)]
    own = own[own["method"] == method]
    return (own["letter"] == own["gold"]).set_axis(own["qid"])
