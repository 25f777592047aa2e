"""Accuracy with intervals and paired tests (Table 1 and its claims), cost (Table 3): arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from lib import stats
from lib.report import PAPER_NAMES, reported, verdict
from lib.stats import Pair

__all__ = ["COSTS", "accuracy_table", "answer_values", "claims", "cost_table", "paper_set"]

COSTS = ("calls", "retrieval_rounds", "prompt_tokens", "output_tokens", "latency_s")
"""Of a question's expansion: LLM requests, searches, tokens, seconds of waiting for replies."""

_DATASETS = {"mmlu": "MMLU-Med", "medqa": "MedQA-US", "bioasq": "BioASQ-Y/N"}


def paper_set(dataset: str) -> str | None:
    """The paper's name for a question set, None if it has none like it."""
    return _DATASETS.get(dataset.split()[-1])


def _printed(method: str, dataset: str, reader: str) -> float:
    """What Table 1 prints, as a share: for its own answerer, or the mean of its three."""
    rows = reported("table1_accuracy")
    kind = paper_set(dataset)
    # The paper's Table 1 calls its row "HyDE (H+ only)"; elsewhere HyDE is eight texts.
    name = PAPER_NAMES.get("hyde" if method == "hplus" else method)
    rows = rows[(rows["method"] == name) & (rows["dataset"] == kind)]
    of_reader = rows[rows["generator"] == reader]
    if len(of_reader):
        rows = of_reader
    return rows["value"].mean() / 100


def accuracy_table(
    answers: pd.DataFrame, visible: Mapping[str, bool], *, same_setup: bool = False
) -> pd.DataFrame:
    """Table 1 in long form: dataset, answerer, method, metric, value, low, high, n, ...

    ``answers`` are the grid's, one row a question. Metrics: accuracy (a reply that cannot be read
    is wrong), accuracy_answered (without those), accuracy_mirage (MIRAGE's parser), unparsed, and
    for yes/no sets yes_rate and balanced_accuracy; intervals are Wilson's, for the last one joined
    from those of the two recalls (Newcombe's square and add). ``visible`` says which methods'
    expansions saw the options. Differences from CHR on the same questions are in ``claims``.
    """
    rows = []
    cells = answers.groupby(["dataset", "reader", "method"], sort=False)
    for (dataset, reader, method), of_cell in cells:
        label = {"dataset": dataset, "answerer": reader, "method": method}
        for metric, *parts in _metrics(of_cell):
            value, low, high = _share(parts)
            row = label | {"metric": metric, "value": value, "low": low, "high": high}
            row |= {"n": sum(map(len, parts)), "options_visible": visible.get(method)}
            if metric == "accuracy":
                row["reported"] = _printed(method, dataset, reader)
                row["verdict"] = verdict(value, (high - low) / 2, row["reported"], same_setup)
            rows.append(row)
    return pd.DataFrame(rows)


def _metrics(answers: pd.DataFrame) -> Iterable[tuple]:
    """A metric's name and hits, a bool a question; for balanced accuracy, by right letter."""
    gold = answers["gold"].to_numpy()
    letter = answers["letter"].fillna("").to_numpy()
    right = letter == gold
    parsed = letter != ""
    yield "accuracy", right
    yield "accuracy_answered", right[parsed]
    yield "accuracy_mirage", answers["mirage"].to_numpy() == gold
    yield "unparsed", ~parsed
    if answers["dataset"].iloc[0].split()[-1] == "bioasq":
        yield "yes_rate", letter == "A"
        yield "balanced_accuracy", *(right[gold == g] for g in np.unique(gold))


def _share(parts: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """The mean of the parts' shares, with its interval."""
    from statsmodels.stats.proportion import proportion_confint

    if not all(map(len, parts)):
        return np.nan, np.nan, np.nan
    shares = np.array([np.mean(hits) for hits in parts])
    low, high = proportion_confint(
        [hits.sum() for hits in parts], [len(hits) for hits in parts], method="wilson"
    )
    down = float(np.linalg.norm(shares - low)) / len(parts)
    up = float(np.linalg.norm(shares - high)) / len(parts)
    value = float(shares.mean())
    return value, max(value - down, 0.0), min(value + up, 1.0)


def answer_values(answers: pd.DataFrame, dataset: str, reader: str) -> pd.DataFrame:
    """``arm, qid, metric, value`` of one question set and reader: right (1) or not (0)."""
    one = answers[(answers["dataset"] == dataset) & (answers["reader"] == reader)]
    right = (one["letter"] == one["gold"]).astype(float)
    columns = {"arm": one["method"], "qid": one["qid"], "metric": "right", "value": right}
    return pd.DataFrame(columns).reset_index(drop=True)


def claims(answers: pd.DataFrame) -> pd.DataFrame:
    """CHR against each of the paper's baselines, for every question set and answerer that ran both.

    Columns: dataset, answerer, then those of ``lib.stats.claims``. All are exploratory: these
    questions have been looked at before.
    """
    parts = []
    for (dataset, reader), _ in answers.groupby(["dataset", "reader"], sort=False):
        values = answer_values(answers, dataset, reader)
        measured = set(values["arm"])
        pairs = [
            Pair(f"chr > {method}", "right", "chr", method)
            for method in PAPER_NAMES
            if method != "chr" and {"chr", method} <= measured
        ]
        tested = stats.claims(values, pairs)
        if len(tested):
            tested.insert(0, "answerer", reader)
            tested.insert(0, "dataset", dataset)
            parts.append(tested)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def cost_table(expanded: pd.DataFrame) -> pd.DataFrame:
    """Table 3, per question: ``COSTS`` of what a model generated, beside the paper's.

    ``expanded`` are the grid's rows. Reference text has no cost: its rows hold calls and rounds
    alone, and one question that was not measured leaves its method without a mean. The seconds are
    those of the machine that generated, and of as many requests at a time as it was asked.
    """
    table = expanded.groupby("method", sort=False)[list(COSTS)].mean(skipna=False)
    table["n"] = expanded.groupby("method", sort=False).size()
    table["failed"] = (expanded["error"].fillna("") != "").groupby(expanded["method"]).sum()
    printed = reported("table3_cost").pivot(index="method", columns="metric", values="value")
    names = table.index.map(PAPER_NAMES)
    table["reported_calls"] = printed["llm_calls"].reindex(names).to_numpy()
    table["reported_output_tokens"] = printed["output_tokens"].reindex(names).to_numpy()
    return table.reset_index()
