"""RAG2 as its notebook tells it: what was found, and measured differences beside printed ones.

The paper prints accuracies of language models; measured here is what is found, and what the judged
reader makes of it. So what stands side by side are differences: what one step adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from lib.base.paths import REPORTED
from lib.pages.committed import between
from lib.plots.labels import names_of
from lib.report import pivot

RECIPE = "cross-ppl-25"
VECTORS = "head-ppl-25"
"""RAG2's label, learnt by a cross-encoder, and by a regression on vectors."""
BASELINES = ("cosine", "bm25")
FILTERS = names_of("filter")
_SCORES = {"delta_ppl": "ΔPPL", "delta_log_ppl": "Δlog-PPL", "cosine": "cosine", "bm25": "BM25"}

_LINE = "as 25 % of training"


def _accuracies(table: str, model_column: str, row_column: str) -> pd.DataFrame:
    """Printed accuracies: model, row, dataset, value; averages left out."""
    printed = pd.read_csv(REPORTED / f"rag2_{table}.csv")
    printed = printed.rename(columns={model_column: "model", row_column: "row"})
    return printed[printed["dataset"] != "Average"][["model", "row", "dataset", "value"]]


def _gain(printed: pd.DataFrame, row: str, against: str) -> tuple[float, float, float, int]:
    """Points that one row has over another: mean, least and most, over models and sets, and n."""
    wide = pivot(printed, ["model", "dataset"], "row")
    gains = (wide[row] - wide[against]).dropna()
    return float(gains.mean()), float(gains.min()), float(gains.max()), len(gains)


@dataclass(frozen=True)
class _Step:
    """One step of RAG2: where the paper prints its effect, and where it is measured here.

    ``columns`` name the model and the row of a printed table. ``measured`` has (dataset, metric).
    """

    name: str
    printed: str
    columns: tuple[str, str]
    row: str
    against_row: str
    claims: str
    arm: str
    against: str
    measured: tuple[tuple[str, str], ...]


_NO_FILTER = "Llama-3-8B (MedCPT w/o Filtering)"
_READ = (("exams", "reads_right_or_guess"),)

_STEPS = (
    _Step(
        "the rationale as the query",
        "table2",
        ("model", "method"),
        "MedCPT+Rationale",
        "MedCPT",
        "rag2_filters_claims",
        "rationale",
        "question",
        (("exams", "hit_right"), *_READ, ("bioasq", "p_at_5")),
    ),
    _Step(
        "balanced and re-ranked, one passage",
        "table4",
        ("model", "retrieval"),
        "balanced retrieval",
        "MedRAG",
        "rag2_strategies_claims",
        "question, balanced, re-ranked",
        "question, stacked",
        (("bioasq", "precision_at_1"), ("ddx-mini", "precision_at_1")),
    ),
    _Step(
        "the filter of rationales, one passage; where it drops it, a guess",
        "table3",
        ("model", "filter"),
        "Rationale-guided Filtering",
        _NO_FILTER,
        "rag2_top_1",
        f"question | {RECIPE}, {_LINE}",
        "question",
        _READ,
    ),
    _Step(
        "the filter of right answers (on vectors), one passage; where it drops it, a guess",
        "table3",
        ("model", "filter"),
        "Adaptive-RAG",
        _NO_FILTER,
        "rag2_top_1",
        f"question | head-right, {_LINE}",
        "question",
        _READ,
    ),
)


def beside(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What each step adds: printed (points of accuracy) and measured (shares), a row each.

    Columns: step, printed (mean; least to most over models and sets), dataset, metric, difference,
    low, high, n. ``tables`` are those of ``lib.studies.rag2.results``.
    """
    rows = []
    for step in _STEPS:
        mean, least, most, count = _gain(
            _accuracies(step.printed, *step.columns), step.row, step.against_row
        )
        printed = f"{mean:+.1f} ({least:+.1f} to {most:+.1f}, {count} cells)"
        claims = tables[step.claims].set_index(["dataset", "metric", "arm", "against"])
        for dataset, metric in step.measured:
            own = claims.loc[(dataset, metric, step.arm, step.against)]
            row = {"step": step.name, "printed, points": printed}
            row |= {"dataset": dataset, "metric": metric}
            rows.append(row | own[["difference", "low", "high", "n"]].to_dict())
    return pd.DataFrame(rows)


def found(tables: Mapping[str, pd.DataFrame]) -> str:
    """The finding: does any trained filter tell helpful passages better than the cosine does, and
    how much of that is in the labels?

    Reads ``rag2_filters_auroc``, ``rag2_labels`` and ``rag2_held_shuffled``.
    """
    auroc = tables["rag2_filters_auroc"].set_index(["filter", "truth"])
    experts, right = "the experts gave it", "it supports the right option"

    def told(name: str, truth: str = experts) -> str:
        row = auroc.loc[(name, truth)]
        return between(row["value"], row["low"], row["high"])

    trained = [
        name
        for name in auroc.index.unique("filter")
        if name not in BASELINES and "shuffled" not in name
    ]
    cosine = auroc.loc[("cosine", experts), "value"]
    above = sum(auroc.loc[(name, experts), "value"] > cosine for name in trained)
    return (
        f"**Of {len(trained)} trained filters {above or 'none'} tell{'s' if above < 2 else ''} an "
        f"expert's snippet from others better than the cosine of question and passage. By RAG²'s "
        f"label the AUROC is {told(VECTORS)} on vectors and {told(RECIPE)} as a cross-encoder; the "
        f"cosine has {told('cosine')}.** For the right option of exam questions: "
        f"{told(VECTORS, right)}, {told(RECIPE, right)}, cosine {told('cosine', right)}. "
        f"{_disorder(tables)} "
        f"{_labels_found(tables['rag2_labels'])} 95 % intervals over questions; .5 is guessing."
    )


def _disorder(tables: Mapping[str, pd.DataFrame]) -> str:
    """What filters on labels in disorder come to, on pairs held out of training."""
    draws = tables["rag2_held_shuffled"]
    own = draws.loc[draws["truth"] == "experts gave it", "auroc"]
    return (
        f"{len(own)} filters on labels in disorder have {own.min():.3f} to {own.max():.3f} on held "
        f"pairs, {own.mean():.3f} in the mean, so one of them alone says little."
    )


def _labels_found(labels: pd.DataFrame) -> str:
    """Do the labels themselves tell an expert's snippet, by whose rationale it is? Within the
    questions for which the model wrote a rationale too."""
    own = labels[labels["part"] == "train"].set_index(["rationale", "score"])
    expert = own.loc[("expert, own's questions", "delta_ppl")]
    small = own.loc[("own", "delta_ppl")]
    cosine = own.loc[("own", "cosine")]
    said = "tell" if small["low"] > 0.5 else "do not tell"
    return (
        "The labels that filters learn from, on the same questions: with an expert's rationale "
        f"{between(expert['value'], expert['low'], expert['high'])}; with the small model's own "
        f"rationale, as in the paper, they {said} such snippets, "
        f"{between(small['value'], small['low'], small['high'])}; the cosine of the same pairs has "
        f"{between(cosine['value'], cosine['low'], cosine['high'])}."
    )


def filters_found(tables: Mapping[str, pd.DataFrame]) -> str:
    """What the recipe's filter keeps at the line of 25 %, by kind of passage."""
    kept = tables["rag2_filters_kept"]
    own = kept[(kept["filter"] == RECIPE) & (kept["keeps"] == _LINE)].set_index("kind")
    shares = {
        kind: f"{own.loc[kind, 'value']:.0%}".replace("%", " %")
        for kind in own.index
        if kind != "all"
    }
    return (
        f"At the score that keeps a quarter of its training pairs the filter keeps "
        f"{shares['given']} of the experts' snippets and {shares['not given']} of the others; of "
        f"passages for the right option {shares['for the right option']}, for a wrong one alone "
        f"{shares['for a wrong option alone']}, for none {shares['for no option']}."
    )


def named(table: pd.DataFrame) -> pd.DataFrame:
    """The table with filters, labels and scores called as the figures call them."""
    named = table.copy()
    for column in {"filter", "trained", "score", "truth"} & set(table):
        named[column] = [_SCORES.get(name, FILTERS.get(name, name)) for name in table[column]]
    for column in {"arm", "against", "truth"} & set(table):
        named[column] = [_in_words(name) for name in named[column]]
    # Where a table says how well pairs are told apart, its value is an AUROC.
    return named.rename(columns={"value": "auroc"}) if "within" in named else named


def _in_words(name: str) -> str:
    """An arm after a filter, "question | cosine, as 25 % of training", or a label, in words."""
    arm, bar, rest = name.partition(" | ")
    first, comma, line = (rest or arm).partition(", ")
    told = f"{_SCORES.get(first) or FILTERS.get(first, first)}{comma}{line}"
    return f"{arm}{bar}{told}" if bar else told
