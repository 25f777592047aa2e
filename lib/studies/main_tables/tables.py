"""The paper's Tables 1 to 3, its Figure 5 and its claims, each kept as a result file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from lib.base.paths import say_once
from lib.data.looks import Look, note_look
from lib.datasets import dev_of
from lib.llm.recorder import RecordingMiss
from lib.methods.base import has_lambda
from lib.parse import named_option
from lib.query_spec import Hypotheses, Request
from lib.readers import EvidenceReader, Reader
from lib.report import reported, verdict
from lib.stats import mean_interval
from lib.studies.main_tables import accuracy
from lib.studies.main_tables.accuracy import overlap_table, same_setup, whole_benchmarks
from lib.studies.main_tables.experiment import (
    ANSWER_COLUMNS,
    CHOSEN,
    HYPOTHESES,
    NAMED,
    Experiment,
)
from lib.study import Found

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
        dataset: float(
            np.mean([len(question.right) / len(question.options) for question in questions])
        )
        for dataset, questions in experiment.answerable.items()
        if questions
    }
    table = accuracy.accuracy_table(everything, chance)
    return save_long(experiment, table, "table1").drop(columns="setup")


def _answers_without_reader(experiment: Experiment) -> list[pd.DataFrame]:
    """Answers without a reader: for each set the commonest letter, then the option that H+ names.

    Where H+ names no option, or several, a reader without an LLM answers from H+ and H-. An
    expander that failed has no answer. A set whose hypotheses nobody recorded has the majority's
    answers only.
    """
    tables = []
    answerable = {name: asked for name, asked in experiment.answerable.items() if asked}
    for dataset, questions in answerable.items():
        rows = [(dataset, question.qid, question.right) for question in questions]
        answers = pd.DataFrame(rows, columns=["dataset", "qid", "gold"])
        commonest = pd.Series(list("".join(answers["gold"]))).mode()[0]
        tables.append(answers.assign(method="majority", letter=commonest))
        read = experiment.answers_of(HYPOTHESES, dataset, _reader_without_llm(experiment))
        if read is None:
            continue
        letters = []
        asked = [question.qid for question in experiment.sets[dataset]]
        made = dict(zip(asked, experiment.expansions("chr", dataset), strict=True))
        for question, by_reader in zip(questions, read["letter"], strict=True):
            h_plus = made[question.qid].trace.get("H_plus", "")
            letters.append(named_option(h_plus, question.options) or (h_plus and by_reader))
        tables.append(answers.assign(method=NAMED, letter=letters))
    return [table.assign(reader="no reader", mirage=table["letter"]) for table in tables]


def claims(experiment: Experiment, answers: pd.DataFrame) -> pd.DataFrame:
    """CHR, and every other method with a lambda, > each method without one, as paired tests (see
    ``accuracy.claims``)."""
    methods = [name for name in experiment.methods if name != CHOSEN]
    table = accuracy.claims(answers, _contrasts(experiment), methods)
    table["options_visible"] = table["arm"].map(experiment.visible)
    table["options_visible_baseline"] = table["baseline"].map(experiment.visible)
    return experiment.save(table, "claims")


def _contrasts(experiment: Experiment) -> list[str]:
    """The methods that subtract a mimic: those that have a lambda, which for CHR is the paper's."""
    methods = experiment.methods.items()
    return [name for name, method in methods if has_lambda(method) and name != CHOSEN]


# Table 2 ------------------------------------------------------------------------------------------


def table2(experiment: Experiment, answers: pd.DataFrame, other: str = "hyde") -> pd.DataFrame:
    """Overlap of CHR's passages with each method's; by outcome and reader for ``other``.

    ``other`` also with itself from other samples, the noise floor. Where a reader answered all
    three sets of the paper, also of these together: ``combined``.
    """
    parts = []
    for dataset in experiment.sets:
        ours = experiment.found("chr", dataset)
        runs = {arm: experiment.found(arm, dataset) for arm in experiment.searched if arm != "chr"}
        compared = {arm: (ours, theirs) for arm, theirs in runs.items() if ours and theirs}
        if runs.get(other):
            halves = experiment.search(other, dataset, _every_second, experiment.k, draws=2)
            both = sorted(halves[0].keys() & halves[1].keys())
            if both:
                compared["noise floor"] = tuple({qid: half[qid] for qid in both} for half in halves)
        for name, (first, second) in compared.items():
            table = overlap_table(first, second, experiment.k)
            parts.append(table.assign(dataset=dataset, method=name, reader=""))
    for reader in experiment.readers:
        parts += _by_outcome(experiment, answers[answers["reader"] == reader.name], other)
    columns = ["outcome", "n", *_OVERLAPS, "dataset", "method", "reader", "asked"]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    save_long(experiment, _beside_the_papers(table), "table2", beside=["chr"])
    return table.drop(columns="asked", errors="ignore")


def _every_second(request: Request, start: int) -> Hypotheses | None:
    """A request with every second of its sampled passages; None without one."""
    sampled = [text for text in request.texts if text.role == "passage"][start::2]
    others = [text for text in request.texts if text.role != "passage"]
    return Hypotheses((*others, *sampled)) if sampled else None


def _by_outcome(experiment: Experiment, answers: pd.DataFrame, other: str) -> list[pd.DataFrame]:
    """Overlap of CHR and ``other`` by what a reader had right: of each set that it answered from
    both, then of the paper's three together."""
    rows = answers.assign(right=accuracy.is_right(answers)).set_index("qid")
    right = dict(iter(rows.groupby(["dataset", "method"])["right"]))
    sets = [name for name in experiment.sets if {(name, "chr"), (name, other)} <= right.keys()]
    groups = {dataset: [dataset] for dataset in sets}
    for before, three in whole_benchmarks(sets).items():
        groups[f"{before} {_COMBINED}".strip()] = three
    tables = []
    for name, datasets in groups.items():
        found: dict[str, Found] = {"chr": {}, other: {}}
        for method, dataset in product(found, datasets):
            found[method] |= experiment.found(method, dataset)
        both = [pd.concat([right[dataset, method] for dataset in datasets]) for method in found]
        # In the order of the answers, by which the intervals resample.
        ours = {qid: found["chr"][qid] for qid in both[0].index}
        table = overlap_table(ours, found[other], experiment.k, (both[0], both[1]))
        table["asked"] = [{d: len(right[d, "chr"]) for d in datasets}] * len(table)
        reader = answers["reader"].iloc[0]
        tables.append(table.assign(dataset=name, method=other, reader=reader))
    return tables


def _beside_the_papers(table: pd.DataFrame) -> pd.DataFrame:
    """Table 2 in long form; the paper prints count and zero for what CHR has right and HyDE not."""
    table = table.rename(columns={"reader": "answerer"})
    is_printed = (table["method"] == "hyde") & (table["outcome"] == "only the first right")
    paper = reported("table2_overlap").pivot(index="dataset", columns="metric", values="value")
    names = table["dataset"].str.split().str[-1].map(_PRINTED_SETS)
    table["printed_count"] = names.map(paper["mean_overlap"]).where(is_printed)
    # The paper's zero is in per cent, ours is a share.
    table["printed_zero"] = names.map(paper["zero_overlap"] / 100).where(is_printed)
    return long_form(table, _OVERLAPS, {"count": "printed_count", "zero": "printed_zero"})


# Table 3 ------------------------------------------------------------------------------------------


def table3(experiment: Experiment) -> pd.DataFrame:
    """What the expansions that a model generated cost a question, beside the paper's."""
    table = accuracy.cost_table(experiment.expanded())
    counted = [cost for cost in accuracy.MEASURED if cost != _SECONDS]
    ends = [f"{name}_{end}" for name in accuracy.MEASURED for end in ("low", "high")]
    # A machine's seconds are no two times the same: in a file of their own, which is not compared.
    seconds = [_SECONDS, f"{_SECONDS}_low", f"{_SECONDS}_high"]
    printed = {cost: f"reported_{cost}" for cost in accuracy.PRINTED_COSTS}
    costs = long_form(table.drop(columns=seconds), [*counted, "failed"], printed)
    save_long(experiment, costs, "table3")
    of_machine = long_form(table[["dataset", "method", "n", *seconds]], [_SECONDS])
    save_long(experiment, of_machine, "table3_seconds")
    return table.drop(columns=[*ends, "asked"])


def accuracy_without_llm(experiment: Experiment) -> pd.DataFrame:
    """method, value, value_n: accuracy of the reader without an LLM, over all question sets."""
    reader = _reader_without_llm(experiment)
    pairs = product(experiment.methods, experiment.sets)
    found = [experiment.answers_of(method, dataset, reader) for method, dataset in pairs]
    tables = [table for table in found if table is not None]
    if not tables:
        return pd.DataFrame(columns=["method", "value", "value_n"])
    answers = pd.concat(tables)
    right = answers.assign(right=accuracy.is_right(answers))
    by_method = right.groupby("method", sort=False)["right"]
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
    no accuracy. ``series`` is the set, and for other methods than CHR also their name. What the
    profile's ``sweep`` answers comes with its halves dev and test, and what could not be read.
    """
    reader = _reader_without_llm(experiment)
    rows = []
    answered = over_lambda(experiment, lambdas)
    for (dataset, lam, name), whole in answered.groupby(["dataset", "lambda", "reader"]):
        halves = [(f"{dataset}, {half}", part) for half, part in whole.groupby("half")]
        for named, part in [(dataset, whole), *halves]:
            measures = {"accuracy": accuracy.is_right(part), "unparsed": part["letter"] == ""}
            for metric, values in measures.items():
                interval = mean_interval(np.asarray(values, dtype=float))
                rows.append((named, "chr", metric, lam, *interval, len(part), name))
    for dataset, method, lam in product(experiment.sets, _contrasts(experiment), lambdas):
        try:
            found = experiment.found_at(lam, method, dataset)
        except RecordingMiss:
            continue
        judged = [q.qid for q in experiment.sets[dataset] if targets.get(q.qid)]
        shares = [len({*targets[q]} & {*found.get(q, [])}) / experiment.k for q in judged]
        right = _answered_right(experiment, dataset, reader, found)
        for metric, answerer, values in (("accuracy", reader.name, right), ("P@k", "", shares)):
            if values:
                interval = mean_interval(values)
                rows.append((dataset, method, metric, lam, *interval, len(values), answerer))
    columns = ["dataset", "method", "metric", "lambda", "value", "low", "high", "n", "answerer"]
    table = pd.DataFrame(rows, columns=columns)
    save_long(experiment, _beside_figure5(table), "figure5")
    of_reader = table["metric"] + ", " + table["answerer"]
    table["metric"] = of_reader.where(table["answerer"] != "", table["metric"])
    named = table["dataset"] + ", " + table["method"]
    table.insert(0, "series", table["dataset"].where(table["method"] == "chr", named))
    return table.drop(columns=["dataset", "answerer"])


def _beside_figure5(table: pd.DataFrame) -> pd.DataFrame:
    """Figure 5 with the two values that the paper's text states, of its answerer on its set."""
    printed = reported("fig5_lambda")
    exact = printed[printed["kind"] == "exact"].set_index("lambda")["value"] / 100
    is_papers = table["answerer"].eq("Gemma-2-9B-It") & table["metric"].eq("accuracy")
    is_papers &= table["dataset"].str.split().str[-1].eq("medqa")
    asked = [{row.dataset: row.n} for row in table.itertuples()]
    return table.assign(reported=table["lambda"].map(exact).where(is_papers), asked=asked)


def over_lambda(experiment: Experiment, lambdas: Sequence[float]) -> pd.DataFrame:
    """Answers (``ANSWER_COLUMNS``) over lambda as the profile's ``sweep`` has them, with ``lambda``
    and ``half``: dev for the questions that choose lambda, else test.

    Each lambda is a cell of the grid. Empty without a sweep; what is NOT RUN is said by name.
    """
    sweep, parts = experiment.profile.sweep, []
    name = sweep.get("answerer", "")
    readers = [reader for reader in experiment.readers if reader.name == name]
    if sweep and not (readers and experiment.swept):
        say_once(f"Figure 5: NOT RUN, this profile has no {name} or no {sweep['dataset']}")
    given: Any = experiment.methods["chr"]
    arms = {f"chr@{lam:g}": replace(given, name=f"chr@{lam:g}", lam=lam) for lam in lambdas}
    grid = replace(experiment, methods=arms)
    for reader, dataset, arm in product(readers, experiment.swept, arms):
        answers = grid.answers_of(arm, dataset, reader)
        if answers is None:
            how = grid.missing[dataset, arm, name]
            say_once(f"Figure 5, {dataset}, {arm}: NOT RUN with {name}. Next: {how}")
            continue
        dev = {q.qid for q in dev_of(experiment.answerable[dataset], sweep["dev"])}
        half = ["dev" if qid in dev else "test" for qid in answers["qid"]]
        parts.append(answers.assign(**{"lambda": arms[arm].lam}, half=half))
    columns = [*ANSWER_COLUMNS, "lambda", "half"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def figure5_choice(experiment: Experiment, lambdas: Sequence[float]) -> pd.DataFrame:
    """The lambda with the best accuracy on dev, the smallest of equals, on the test questions:
    against H+ alone, the paper's lambda, HyDE and Standard RAG.

    Columns: those of ``accuracy.claims``, lambda, dev_right (its accuracy on dev) and dev_n. Empty
    where some lambda is NOT RUN, or a half has no question.
    """
    answered, parts = over_lambda(experiment, lambdas), []
    for (dataset, name), rows in answered.groupby(["dataset", "reader"]):
        halves = dict(iter(rows.groupby("half")))
        if rows["lambda"].nunique() < len(set(lambdas)) or len(halves) < 2:
            continue
        right = pd.Series(accuracy.is_right(halves["dev"]), halves["dev"]["lambda"])
        means = right.groupby(level=0).mean().round(9)
        lam = float(means.idxmax())
        (reader,) = (reader for reader in experiment.readers if reader.name == name)
        others = [*(["hplus"] if lam else []), "hyde", "standard"]
        tables = [experiment.answers_of(other, str(dataset), reader) for other in others]
        answers = pd.concat([halves["test"], *(table for table in tables if table is not None)])
        answers = answers[answers["qid"].isin(halves["test"]["qid"])]
        claimed = accuracy.claims(answers, [f"chr@{lam:g}"], ["hplus", "chr@1", "hyde", "standard"])
        about = {"lambda": lam, "dev_right": means.max(), "dev_n": halves["dev"]["qid"].nunique()}
        parts.append(claimed.assign(**about))
        look = Look(str(dataset), answers["qid"], answers["method"])
        note_look("figure5", experiment.profile.name, look)
    columns = ["dataset", "answerer", "arm", "baseline", "lambda", "dev_right", "dev_n"]
    columns += ["difference", "low", "high", "mde", "n"]
    if not parts:
        return pd.DataFrame(columns=columns)
    return experiment.save(pd.concat(parts, ignore_index=True), "figure5_choice")


def _answered_right(
    experiment: Experiment, dataset: str, reader: Reader, found: Found
) -> list[bool]:
    """Whether a reader answers each question right from the passages found for it; empty where it
    cannot read them."""
    store, questions = experiment.retriever.store, experiment.answerable[dataset]
    contexts = [store.get_many(found.get(question.qid, [])) for question in questions]
    try:
        answers = reader.answer_all(questions, contexts)
    except RecordingMiss:
        return []
    pairs = zip(answers, questions, strict=True)
    return [question.is_right(answer.letter) for answer, question in pairs]


# their stored form --------------------------------------------------------------------------------


def long_form(
    table: pd.DataFrame, metrics: Sequence[str], printed: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """One row for each metric and row of ``table``: metric, value, low, high, reported, the rest.

    ``low`` and ``high`` are the columns ``<metric>_low`` and ``<metric>_high``, and ``reported`` is
    the column that ``printed`` names for the metric; each is missing where there is none.
    """
    printed = printed or {}
    spread_out = [*metrics, *printed.values()]
    spread_out += [f"{metric}_{end}" for metric in metrics for end in ("low", "high")]
    repeated = table.drop(columns=spread_out, errors="ignore")
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
    experiment: Experiment, table: pd.DataFrame, name: str, beside: Sequence[str] = ()
) -> pd.DataFrame:
    """Keep a long table as ``name`` with all of ``COLUMNS``, and a verdict where a number is
    printed; returns it.

    A verdict needs the paper's setup (``accuracy.same_setup``) of the row's method and of those
    ``beside`` it; ``asked``, which is not kept, says how many questions of each set a row is of.
    ``setup`` says what made the table: profile, encoder, who wrote the expansions, k.
    """
    encoder, llm = experiment.retriever.encoder.name, experiment.llm.name  # type: ignore[union-attr]
    setup = f"{experiment.profile.name}, {encoder}, {llm}, k = {experiment.k}"
    empty = {"answerer": "", "low": np.nan, "high": np.nan, "reported": np.nan}
    table = table.assign(
        setup=setup,
        options_visible=table["method"].map(experiment.visible),
        **{column: value for column, value in empty.items() if column not in table},
    )
    models = {reader.name: reader.llm.name for reader in experiment.readers if reader.needs_llm}  # type: ignore[attr-defined]
    verdicts = []
    for row in table.itertuples():
        if pd.isna(row.reported):
            verdicts.append("")
            continue
        is_papers = all(
            same_setup(
                experiment.profile,
                row.asked,
                expander=llm,
                method=method,
                answerer=row.answerer or None,
                answered_by=models.get(row.answerer, ""),
            )
            for method in (row.method, *beside)
        )
        half_width = (row.high - row.low) / 2
        verdicts.append(verdict(row.value, half_width, row.reported, is_papers))
    table["verdict"] = verdicts
    further = [column for column in table if column not in (*COLUMNS, "asked")]
    return experiment.save(table[[*COLUMNS, *further]], name)
