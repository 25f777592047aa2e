"""The paper's Tables 1 to 3 and Figure 5 from an experiment, each kept as a result file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from lib.llm.recorder import RecordingMiss
from lib.methods.base import Expansion
from lib.query_spec import Hypotheses
from lib.readers import EvidenceReader, Reader
from lib.report import reported
from lib.run import execute
from lib.stats import mean_interval
from lib.studies.main_tables import accuracy
from lib.studies.main_tables.experiment import CHOSEN, Experiment
from lib.studies.main_tables.long_tables import long_form, save_long
from lib.studies.main_tables.no_reader import answers_without_reader
from lib.studies.main_tables.paper_setup import whole_benchmarks
from lib.studies.main_tables.shift import shift_table

_OVERLAPS = ("count", "fraction", "jaccard", "zero", "rbo")
SECONDS = "latency_s"
"""The cost that no two runs share."""
_COMBINED = "combined"
_PRINTED_SETS = {
    "mmlu": "MMLU-Med",
    "medqa": "MedQA",
    "bioasq": "BioASQ",
    _COMBINED: "Combined",
}
"""What the paper's Table 2 calls the sets."""


def table1(experiment: Experiment, answers: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of every arm with every reader, the majority's and the expander's own answer."""
    further = answers_without_reader(experiment, _reader_without_llm(experiment))
    all_answers = pd.concat([answers, *further], ignore_index=True)
    chance = {
        dataset: float(np.mean([1 / len(question.options) for question in asked]))
        for dataset, asked in experiment.grid.sets.items()
    }
    table = accuracy.accuracy_table(
        all_answers, experiment.visible, same_setup=experiment.is_papers, chance=chance
    )
    save_long(experiment, table.fillna({"verdict": ""}), "table1")
    return table


def claims(experiment: Experiment, answers: pd.DataFrame) -> pd.DataFrame:
    """CHR > each other method, as paired tests (see ``accuracy.claims``)."""
    table = accuracy.claims(answers, _contrasts(experiment))
    table["options_visible"] = table["arm"].map(experiment.visible)
    table["options_visible_against"] = table["against"].map(experiment.visible)
    return experiment.save(table, "claims")


def table2(experiment: Experiment, answers: pd.DataFrame, other: str = "hyde") -> pd.DataFrame:
    """Overlap of CHR's passages with each method's; by outcome and reader for ``other``.

    Where a reader answered all three sets of the paper, also of these together: ``combined``.
    """
    parts = []
    k = experiment.grid.k
    for dataset in experiment.grid.sets:
        ours = _passage_ids(experiment, "chr", dataset)
        for arm in experiment.searched:
            theirs = _passage_ids(experiment, arm, dataset)
            if arm != "chr" and ours and theirs:
                table = shift_table(ours, theirs, k)
                parts.append(table.assign(dataset=dataset, method=arm, reader=""))
        halves = _runs_of_half_the_samples(experiment, other, dataset)
        if halves is not None:
            table = shift_table(*halves, k)
            parts.append(table.assign(dataset=dataset, method="noise floor", reader=""))
    for reader in experiment.readers:
        parts += _by_outcome(experiment, answers, reader, other)
    columns = ["outcome", "n", *_OVERLAPS, "dataset", "method", "reader"]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    save_long(experiment, _beside_the_papers(table), "table2")
    return table.drop(columns="same_setup", errors="ignore")


def table3(experiment: Experiment) -> pd.DataFrame:
    """What the expansions that a model generated cost a question, beside the paper's."""
    expanded = experiment.expanded()
    table = accuracy.cost_table(expanded)
    same = []
    for row in table.itertuples():
        own = expanded[expanded["method"] == row.method]
        asked = own[own["dataset"].isin(row.dataset.split(", "))]["dataset"].value_counts()
        same.append(experiment.is_papers(row.method, asked.to_dict()))
    table = table.assign(same_setup=same)
    printed = {cost: f"reported_{cost}" for cost in accuracy.PRINTED_COSTS}
    costs = [cost for cost in accuracy.COSTS if cost != SECONDS]
    counted = [*costs, "token_reduction"]
    seconds = [SECONDS, f"{SECONDS}_low", f"{SECONDS}_high"]
    save_long(
        experiment,
        long_form(table.drop(columns=seconds), [*counted, "failed"], printed),
        "table3",
    )
    # A machine's seconds are no two times the same: in a file of their own, which is not compared.
    save_long(
        experiment,
        long_form(table[["dataset", "method", "n", *seconds]], [SECONDS]),
        "table3_seconds",
    )
    ends = [f"{name}_{end}" for name in (*counted, SECONDS) for end in ("low", "high")]
    return table.drop(columns=[*ends, "same_setup"])


def accuracy_without_llm(experiment: Experiment) -> pd.DataFrame:
    """method, value, value_n: accuracy of the reader without an LLM, over all question sets."""
    reader = _reader_without_llm(experiment)
    tables = []
    for arm in experiment.grid.methods:
        for dataset in experiment.grid.sets:
            table = experiment.grid.answers(arm, dataset, reader)
            if table is not None:
                tables.append(table)
    if not tables:
        return pd.DataFrame(columns=["method", "value", "value_n"])
    answers = pd.concat(tables)
    right = answers["letter"] == answers["gold"]
    by_method = right.groupby(answers["method"], sort=False)
    return by_method.agg(value="mean", value_n="size").reset_index()


def _contrasts(experiment: Experiment) -> list[str]:
    """The methods that subtract a mimic: those with a lambda of their own, the paper's for CHR."""
    methods = experiment.grid.methods.items()
    return [name for name, m in methods if getattr(m, "lam", 0) and name != CHOSEN]


def figure5(experiment: Experiment, lambdas: Sequence[float], targets: Mapping) -> pd.DataFrame:
    """Accuracy (the reader without an LLM) and P@k over lambda, of CHR and of every other method
    with a lambda: long form, by set.

    ``targets`` are the relevant passages of each question id; P@k is over the questions that have
    any, and a set without one has no P@k. Where the reader would need what nobody judged, there is
    no accuracy. ``series`` is the set, and for other methods than CHR also their name.
    """
    reader = _reader_without_llm(experiment)
    rows = []
    for dataset, method, lam in product(experiment.grid.sets, _contrasts(experiment), lambdas):
        found = _found_at(experiment, method, dataset, lam)
        if found is None:
            continue
        outcomes = {
            f"accuracy, {reader.name}": _answered_right(experiment, method, dataset, reader, found),
            "P@k": _precisions(experiment, method, dataset, found, targets),
        }
        for metric, values in outcomes.items():
            if not values:
                continue
            value, low, high = mean_interval(values)
            rows.append(
                {
                    "series": dataset if method == "chr" else f"{dataset}, {method}",
                    "dataset": dataset,
                    "method": method,
                    "metric": metric,
                    "lambda": lam,
                    "value": value,
                    "low": low,
                    "high": high,
                    "n": len(values),
                }
            )
    columns = ("series", "dataset", "method", "metric", "lambda", "value", "low", "high", "n")
    table = pd.DataFrame(rows, columns=list(columns))
    long = table.drop(columns="series").assign(answerer="")
    is_accuracy = long["metric"] != "P@k"
    long.loc[is_accuracy, ["metric", "answerer"]] = ["accuracy", reader.name]
    save_long(experiment, long, "figure5")
    return table.drop(columns="dataset")


def _found_at(
    experiment: Experiment, method: str, dataset: str, lam: float
) -> dict[str, list[str]] | None:
    """A method's passages at another lambda: ids, best first, by question id; None if NOT RUN."""
    grid = experiment.grid
    try:
        expanded = grid.expansions(method, dataset)
    except RecordingMiss:
        return None
    expansions = []
    for expansion in expanded:
        if expansion.request is not None:
            expansion = Expansion(expansion.request.by(lam=lam))
        expansions.append(expansion)
    run, _ = execute(method, grid.questions(method, dataset), expansions, grid.retriever, grid.k)
    return _ids_by_question(run)


def _answered_right(
    experiment: Experiment,
    method: str,
    dataset: str,
    reader: Reader,
    found: Mapping[str, list[str]],
) -> list[bool]:
    """Whether a reader answers each question right from the passages found for it; empty where it
    cannot read them."""
    questions = experiment.grid.questions(method, dataset)
    store = experiment.grid.retriever.store
    contexts = [store.get_many(found.get(question.qid, [])) for question in questions]
    try:
        answers = reader.answer_all(questions, contexts)
    except RecordingMiss:
        return []
    pairs = zip(answers, questions, strict=True)
    return [answer.letter == question.answer for answer, question in pairs]


def _precisions(
    experiment: Experiment,
    method: str,
    dataset: str,
    found: Mapping[str, list[str]],
    targets: Mapping,
) -> list[float]:
    """P@k of each question with a relevant passage."""
    precisions = []
    for question in experiment.grid.questions(method, dataset):
        relevant = targets.get(question.qid)
        if relevant:
            hits = [pid in relevant for pid in found.get(question.qid, [])]
            precisions.append(sum(hits) / experiment.grid.k)
    return precisions


def _beside_the_papers(table: pd.DataFrame) -> pd.DataFrame:
    """Table 2 in long form; the paper prints count and zero for what CHR has right and HyDE not."""
    table = table.rename(columns={"reader": "answerer"})
    is_printed = (table["method"] == "hyde") & (table["outcome"] == "only the first right")
    paper = reported("table2_overlap").pivot(index="dataset", columns="metric", values="value")
    names = table["dataset"].str.split().str[-1].map(_PRINTED_SETS)
    # The paper's zero is in per cent, ours is a share.
    for metric, column, unit in (("count", "mean_overlap", 1), ("zero", "zero_overlap", 100)):
        of_set = names.map(paper[column] / unit)
        table[f"printed_{metric}"] = of_set.where(is_printed)
    return long_form(table, _OVERLAPS, {"count": "printed_count", "zero": "printed_zero"})


def _by_outcome(
    experiment: Experiment, answers: pd.DataFrame, reader: Reader, other: str
) -> list[pd.DataFrame]:
    """Overlap of CHR and ``other`` by what a reader had right: of each set that it answered from
    both, then of the paper's three together."""
    methods = ("chr", other)
    right = {}
    for dataset in experiment.grid.sets:
        of_both = [_right_answers(answers, dataset, reader.name, m) for m in methods]
        if all(map(len, of_both)):
            right[dataset] = of_both
    groups = {dataset: [dataset] for dataset in right}
    for before, three in whole_benchmarks(right).items():
        groups[f"{before} {_COMBINED}".strip()] = three
    tables = []
    for name, datasets in groups.items():
        ours_right, theirs_right = (pd.concat([right[d][i] for d in datasets]) for i in (0, 1))
        ours, theirs = {}, {}
        for dataset in datasets:
            ours |= _passage_ids(experiment, "chr", dataset)
            theirs |= _passage_ids(experiment, other, dataset)
        # A reader may have answered only a sample of the questions.
        answered = {qid: ours[qid] for qid in ours_right.index}
        table = shift_table(answered, theirs, experiment.grid.k, (ours_right, theirs_right))
        asked = {dataset: len(right[dataset][0]) for dataset in datasets}
        same = all(experiment.is_papers(method, asked, reader.name) for method in methods)
        labels = {"dataset": name, "method": other, "reader": reader.name}
        tables.append(table.assign(**labels, same_setup=same))
    return tables


def _passage_ids(experiment: Experiment, arm: str, dataset: str) -> dict[str, list[str]]:
    """What an arm found, best first, by question id; empty if it is NOT RUN."""
    run = experiment.grid.run(arm, dataset)
    return {} if run is None else _ids_by_question(run)


def _ids_by_question(run: pd.DataFrame) -> dict[str, list[str]]:
    """Passage ids of a run by question id; an empty id stands for "nothing was found"."""
    by_question = {}
    for qid, rows in run.groupby("qid"):
        by_question[qid] = [pid for pid in rows["pid"] if pid]
    return by_question


def _runs_of_half_the_samples(
    experiment: Experiment, method: str, dataset: str
) -> tuple[dict, dict] | None:
    """Two runs of a method that samples, from its odd and from its even samples.

    They hold the questions that both runs have; None if there are none.
    """
    grid = experiment.grid
    if method not in grid.methods or grid.run(method, dataset) is None:
        return None
    questions = grid.questions(method, dataset)
    runs = []
    for start in (0, 1):
        expansions = [_every_second(e, start) for e in grid.expansions(method, dataset)]
        run, _ = execute(method, questions, expansions, grid.retriever, grid.k)
        runs.append(_ids_by_question(run))
    odd, even = runs
    in_both = sorted(odd.keys() & even.keys())
    if not in_both:
        return None
    return {qid: odd[qid] for qid in in_both}, {qid: even[qid] for qid in in_both}


def _every_second(expansion: Expansion, start: int) -> Expansion:
    """An expansion with every second of its sampled passages; without one it has no request."""
    texts = expansion.request.texts if expansion.request else ()
    sampled = [text for text in texts if text.role == "passage"][start::2]
    others = [text for text in texts if text.role != "passage"]
    return Expansion(Hypotheses((*others, *sampled)) if sampled else None)


def _reader_without_llm(experiment: Experiment) -> Reader:
    """The profile's reader that needs no LLM, or one on the encoder that searches."""
    for reader in experiment.readers:
        if not reader.needs_llm:
            return reader
    return EvidenceReader(experiment.grid.retriever.encoder)


def _right_answers(answers: pd.DataFrame, dataset: str, reader: str, method: str) -> pd.Series:
    """Whether each question was answered right (bool by question id)."""
    rows = answers[answers["dataset"] == dataset]
    rows = rows[(rows["reader"] == reader) & (rows["method"] == method)]
    return (rows["letter"] == rows["gold"]).set_axis(rows["qid"])
