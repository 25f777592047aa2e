"""The paper's Tables 1 to 3, its Figure 5 and its claims, each kept as a result file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from lib.datasets import Question
from lib.llm.recorder import RecordingMiss
from lib.methods.base import Expansion
from lib.parse import named_option
from lib.query_spec import Hypotheses
from lib.readers import EvidenceReader, Reader
from lib.report import reported, verdict
from lib.run import execute
from lib.stats import mean_interval
from lib.studies.main_tables import accuracy
from lib.studies.main_tables.accuracy import overlap_table, whole_benchmarks
from lib.studies.main_tables.experiment import CHOSEN, NAMED, Experiment, ids_by_question

_OVERLAPS = ("count", "fraction", "jaccard", "zero", "rbo")
_SECONDS = "latency_s"
"""The cost that differs from run to run."""
_COMBINED = "combined"
_PRINTED_SETS = {
    "mmlu": "MMLU-Med",
    "medqa": "MedQA",
    "bioasq": "BioASQ",
    _COMBINED: "Combined",
}
"""What the paper's Table 2 calls the sets."""

# Table 1 and its claims ---------------------------------------------------------------------------


def table1(experiment: Experiment, answers: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of every arm with every reader, the majority's and the expander's own answer."""
    everything = pd.concat([answers, *_answers_without_reader(experiment)], ignore_index=True)
    chance = {
        dataset: float(np.mean([1 / len(question.options) for question in asked]))
        for dataset, asked in experiment.sets.items()
    }
    table = accuracy.accuracy_table(everything, chance)
    stored = save_long(
        experiment,
        table,
        "table1",
        lambda row: experiment.is_papers(row.method, row.asked, row.answerer),
    )
    return stored.drop(columns="setup")


def _answers_without_reader(experiment: Experiment) -> list[pd.DataFrame]:
    """Answers without a reader: for each set the commonest letter, then the option that H+ names.

    A reader without an LLM answers from H+ and H- where H+ names no option. A set whose hypotheses
    nobody recorded has the majority's answers only.
    """
    tables = []
    for dataset, questions in experiment.sets.items():
        rows = [(dataset, question.qid, question.answer) for question in questions]
        answers = pd.DataFrame(rows, columns=["dataset", "qid", "gold"])
        commonest = answers["gold"].mode()[0]
        tables.append(answers.assign(method="majority", letter=commonest, mirage=commonest))
        reader = _reader_without_llm(experiment)
        read = experiment.answers_of("hypotheses_as_context", dataset, reader)
        if read is not None:
            asked = experiment.questions("chr", dataset)
            by_reader = dict(zip(read["qid"], read["letter"], strict=True))
            letters = named_letters(asked, experiment.expansions("chr", dataset), by_reader)
            answers = answers[answers["qid"].isin(letters)]
            named = answers["qid"].map(letters)
            tables.append(answers.assign(method=NAMED, letter=named, mirage=named))
    return [table.assign(reader="no reader", rule="", documents_cut=0) for table in tables]


def named_letters(
    questions: Sequence[Question],
    expansions: Sequence[Expansion],
    by_reader: Mapping[str, str],
) -> dict[str, str]:
    """By question id, the letter whose option alone stands in H+; else the reader's letter.

    Yes and no are answers only where H+ begins with them. An expander that failed has no answer.
    """
    letters = {}
    for question, expansion in zip(questions, expansions, strict=True):
        h_plus = expansion.trace.get("H_plus", "")
        letter = named_option(h_plus, question.options)
        if h_plus and not letter:
            letter = by_reader.get(question.qid, "")
        letters[question.qid] = letter
    return letters


def claims(experiment: Experiment, answers: pd.DataFrame) -> pd.DataFrame:
    """CHR > each other method, as paired tests (see ``accuracy.claims``)."""
    table = accuracy.claims(answers, _contrasts(experiment))
    table["options_visible"] = table["arm"].map(experiment.visible)
    table["options_visible_baseline"] = table["baseline"].map(experiment.visible)
    return experiment.save(table, "claims")


def _contrasts(experiment: Experiment) -> list[str]:
    """The methods that subtract a mimic: those with a lambda of their own, the paper's for CHR."""
    methods = experiment.methods.items()
    return [name for name, m in methods if getattr(m, "lam", 0) and name != CHOSEN]


# Table 2 ------------------------------------------------------------------------------------------


def table2(experiment: Experiment, answers: pd.DataFrame, other: str = "hyde") -> pd.DataFrame:
    """Overlap of CHR's passages with each method's; by outcome and reader for ``other``.

    ``other`` also with itself from other samples, the noise floor. Where a reader answered all
    three sets of the paper, also of these together: ``combined``.
    """
    parts = []
    k = experiment.k
    for dataset in experiment.sets:
        ours = _passage_ids(experiment, "chr", dataset)
        for arm in experiment.searched:
            theirs = _passage_ids(experiment, arm, dataset)
            if arm != "chr" and ours and theirs:
                table = overlap_table(ours, theirs, k)
                parts.append(table.assign(dataset=dataset, method=arm, reader=""))
        odd, even = _runs_of_half_the_samples(experiment, other, dataset)
        if odd:
            table = overlap_table(odd, even, k)
            parts.append(table.assign(dataset=dataset, method="noise floor", reader=""))
    for reader in experiment.readers:
        parts += _by_outcome(experiment, answers, reader, other)
    columns = ["outcome", "n", *_OVERLAPS, "dataset", "method", "reader", "asked"]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    both = ("chr", other)
    save_long(
        experiment,
        _beside_the_papers(table),
        "table2",
        lambda row: all(experiment.is_papers(m, row.asked, row.answerer) for m in both),
    )
    return table.drop(columns="asked", errors="ignore")


def _by_outcome(
    experiment: Experiment, answers: pd.DataFrame, reader: Reader, other: str
) -> list[pd.DataFrame]:
    """Overlap of CHR and ``other`` by what a reader had right: of each set that it answered from
    both, then of the paper's three together."""
    rows = answers[answers["reader"] == reader.name]
    is_right = (rows["letter"] == rows["gold"]).set_axis(rows["qid"])
    right = {}
    for dataset in experiment.sets:
        of_set = (rows["dataset"] == dataset).to_numpy()
        of_both = [is_right[of_set & (rows["method"] == m).to_numpy()] for m in ("chr", other)]
        if all(map(len, of_both)):
            right[dataset] = of_both
    groups = {dataset: [dataset] for dataset in right}
    for before, three in whole_benchmarks(right).items():
        groups[f"{before} {_COMBINED}".strip()] = three
    tables = []
    for name, datasets in groups.items():
        both_right = tuple(pd.concat([right[d][i] for d in datasets]) for i in (0, 1))
        ours, theirs = {}, {}
        for dataset in datasets:
            ours |= _passage_ids(experiment, "chr", dataset)
            theirs |= _passage_ids(experiment, other, dataset)
        # A reader may have answered only a sample of the questions.
        answered = {qid: ours[qid] for qid in both_right[0].index}
        table = overlap_table(answered, theirs, experiment.k, both_right)
        asked = {dataset: len(right[dataset][0]) for dataset in datasets}
        labels = {"dataset": name, "method": other, "reader": reader.name}
        tables.append(table.assign(**labels, asked=[asked] * len(table)))
    return tables


def _passage_ids(experiment: Experiment, arm: str, dataset: str) -> dict[str, list[str]]:
    """What an arm found, best first, by question id; empty if it is NOT RUN."""
    run = experiment.run_of(arm, dataset)
    return {} if run is None else ids_by_question(run)


def _runs_of_half_the_samples(
    experiment: Experiment, method: str, dataset: str
) -> list[dict[str, list[str]]]:
    """What a method that samples finds with its odd and with its even samples, for the questions
    that have both; empty if there are none."""
    found: list[dict[str, list[str]]] = [{}, {}]
    if method in experiment.methods and experiment.run_of(method, dataset) is not None:
        expansions = experiment.expansions(method, dataset)
        halves = [[_every_second(e, start) for e in expansions] for start in (0, 1)]
        found = [_found_by(experiment, method, dataset, half) for half in halves]
    in_both = sorted(found[0].keys() & found[1].keys())
    return [{qid: half[qid] for qid in in_both} for half in found]


def _every_second(expansion: Expansion, start: int) -> Expansion:
    """An expansion with every second of its sampled passages; without one it has no request."""
    texts = expansion.request.texts if expansion.request else ()
    sampled = [text for text in texts if text.role == "passage"][start::2]
    others = [text for text in texts if text.role != "passage"]
    return Expansion(Hypotheses((*others, *sampled)) if sampled else None)


def _found_by(
    experiment: Experiment, method: str, dataset: str, expansions: Sequence[Expansion]
) -> dict[str, list[str]]:
    """The top k of a method's questions, searched with these expansions: ids by question id."""
    questions = experiment.questions(method, dataset)
    return ids_by_question(
        execute(method, questions, expansions, experiment.retriever, experiment.k)[0]
    )


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


# Table 3 ------------------------------------------------------------------------------------------


def table3(experiment: Experiment) -> pd.DataFrame:
    """What the expansions that a model generated cost a question, beside the paper's."""
    expanded = experiment.expanded()
    table = accuracy.cost_table(expanded)
    asked = []
    for row in table.itertuples():
        n = expanded.loc[expanded["method"] == row.method, "dataset"].value_counts()
        asked.append({dataset: int(n[dataset]) for dataset in row.dataset.split(", ")})
    printed = {cost: f"reported_{cost}" for cost in accuracy.PRINTED_COSTS}
    counted = [*(cost for cost in accuracy.COSTS if cost != _SECONDS), "token_reduction"]
    seconds = [_SECONDS, f"{_SECONDS}_low", f"{_SECONDS}_high"]
    save_long(
        experiment,
        long_form(table.drop(columns=seconds).assign(asked=asked), [*counted, "failed"], printed),
        "table3",
        lambda row: experiment.is_papers(row.method, row.asked),
    )
    # A machine's seconds are no two times the same: in a file of their own, which is not compared.
    of_machine = table[["dataset", "method", "n", *seconds]]
    save_long(experiment, long_form(of_machine, [_SECONDS]), "table3_seconds")
    ends = [f"{name}_{end}" for name in (*counted, _SECONDS) for end in ("low", "high")]
    return table.drop(columns=ends)


def accuracy_without_llm(experiment: Experiment) -> pd.DataFrame:
    """method, value, value_n: accuracy of the reader without an LLM, over all question sets."""
    reader = _reader_without_llm(experiment)
    pairs = product(experiment.methods, experiment.sets)
    found = (experiment.answers_of(method, dataset, reader) for method, dataset in pairs)
    tables = [table for table in found if table is not None]
    if not tables:
        return pd.DataFrame(columns=["method", "value", "value_n"])
    answers = pd.concat(tables)
    right = answers["letter"] == answers["gold"]
    by_method = right.groupby(answers["method"], sort=False)
    return by_method.agg(value="mean", value_n="size").reset_index()


def _reader_without_llm(experiment: Experiment) -> Reader:
    """The profile's reader that needs no LLM, or one on the encoder that searches."""
    without = [reader for reader in experiment.readers if not reader.needs_llm]
    return without[0] if without else EvidenceReader(experiment.retriever.encoder)


# Figure 5 -----------------------------------------------------------------------------------------


def figure5(experiment: Experiment, lambdas: Sequence[float], targets: Mapping) -> pd.DataFrame:
    """Accuracy (the reader without an LLM) and P@k over lambda, of CHR and of every other method
    with a lambda: long form, by set.

    ``targets`` are the relevant passages of each question id; P@k is over the questions that have
    any, and a set without one has no P@k. Where the reader would need what nobody judged, there is
    no accuracy. ``series`` is the set, and for other methods than CHR also their name.
    """
    reader = _reader_without_llm(experiment)
    rows = []
    for dataset, method, lam in product(experiment.sets, _contrasts(experiment), lambdas):
        try:
            found = _found_at(experiment, method, dataset, lam)
        except RecordingMiss:
            continue
        questions = experiment.questions(method, dataset)
        outcomes = {
            f"accuracy, {reader.name}": _answered_right(experiment, questions, reader, found),
            "P@k": [
                sum(pid in targets[q.qid] for pid in found.get(q.qid, [])) / experiment.k
                for q in questions
                if targets.get(q.qid)
            ],
        }
        series = dataset if method == "chr" else f"{dataset}, {method}"
        for metric, values in outcomes.items():
            if values:
                interval = mean_interval(values)
                rows.append((series, dataset, method, metric, lam, *interval, len(values)))
    columns = ["series", "dataset", "method", "metric", "lambda", "value", "low", "high", "n"]
    table = pd.DataFrame(rows, columns=columns)
    is_accuracy = table["metric"] != "P@k"
    long = table.drop(columns="series").assign(answerer="")
    long.loc[is_accuracy, ["metric", "answerer"]] = ["accuracy", reader.name]
    save_long(experiment, long, "figure5")
    return table.drop(columns="dataset")


def _found_at(
    experiment: Experiment, method: str, dataset: str, lam: float
) -> dict[str, list[str]]:
    """A method's passages at another lambda: ids, best first, by question id."""
    expansions = [
        expansion if expansion.request is None else Expansion(expansion.request.by(lam=lam))
        for expansion in experiment.expansions(method, dataset)
    ]
    return _found_by(experiment, method, dataset, expansions)


def _answered_right(
    experiment: Experiment,
    questions: Sequence[Question],
    reader: Reader,
    found: Mapping[str, list[str]],
) -> list[bool]:
    """Whether a reader answers each question right from the passages found for it; empty where it
    cannot read them."""
    store = experiment.retriever.store
    contexts = [store.get_many(found.get(question.qid, [])) for question in questions]
    try:
        answers = reader.answer_all(questions, contexts)
    except RecordingMiss:
        return []
    pairs = zip(answers, questions, strict=True)
    return [answer.letter == question.answer for answer, question in pairs]


# their stored form --------------------------------------------------------------------------------


def long_form(
    table: pd.DataFrame, metrics: Sequence[str], printed: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """One row for each metric and row of ``table``: metric, value, low, high, reported, the rest.

    ``low`` and ``high`` are the columns ``<metric>_low`` and ``<metric>_high``, and ``reported`` is
    the column that ``printed`` names for the metric; each is missing where there is none.
    """
    printed = printed or {}
    spread_out = {*printed.values()}
    for metric in metrics:
        spread_out |= {metric, f"{metric}_low", f"{metric}_high"}
    repeated = table[[column for column in table if column not in spread_out]]
    parts = []
    for metric in metrics:
        part = repeated.assign(metric=metric, value=table[metric].astype(float))
        sources = {"low": f"{metric}_low", "high": f"{metric}_high"}
        for name, column in (sources | {"reported": printed.get(metric)}).items():
            part[name] = table[column].astype(float) if column in table else np.nan
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


COLUMNS = (
    "dataset",
    "answerer",
    "method",
    "metric",
    "value",
    "low",
    "high",
    "n",
    "setup",
    "options_visible",
    "reported",
    "verdict",
)
"""First columns of a long table, empty where one does not apply; a table's own come after."""


def save_long(
    experiment: Experiment,
    table: pd.DataFrame,
    name: str,
    is_papers: Callable[..., bool] = lambda row: False,
) -> pd.DataFrame:
    """Keep a long table as ``name`` with all of ``COLUMNS``, and a verdict where a number is
    printed; returns it.

    ``is_papers`` says of a row whether it comes from the paper's setup (by its ``asked``, which is
    not kept). ``setup`` says what made it: profile, encoder, who wrote the expansions, k.
    """
    encoder, llm = experiment.retriever.encoder.name, experiment.llm.name
    setup = f"{experiment.profile.name}, {encoder}, {llm}, k = {experiment.k}"
    empty = {"answerer": "", "low": np.nan, "high": np.nan, "reported": np.nan}
    table = table.assign(
        setup=setup,
        options_visible=table["method"].map(experiment.visible),
        **{column: value for column, value in empty.items() if column not in table},
    )
    table["verdict"] = [
        ""
        if pd.isna(row.reported)
        else verdict(row.value, (row.high - row.low) / 2, row.reported, is_papers(row))
        for row in table.itertuples()
    ]
    further = [column for column in table if column not in (*COLUMNS, "asked")]
    return experiment.save(table[[*COLUMNS, *further]], name)
