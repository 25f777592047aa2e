"""Accuracy with intervals and paired tests (Table 1 and its claims), cost (Table 3): arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from lib.report import PAPER_NAMES, reported, verdict
from lib.stats import holm, judged, paired

__all__ = ["COSTS", "accuracy_table", "claims", "cost_table", "mcnemar", "paper_set"]

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
    own = rows[rows["generator"] == reader]
    return (own if len(own) else rows)["value"].mean() / 100


def accuracy_table(
    answers: pd.DataFrame, visible: Mapping[str, bool], *, same_setup: bool = False
) -> pd.DataFrame:
    """Table 1 in long form: dataset, answerer, method, metric, value, low, high, n, ...

    ``answers`` are the grid's, one row a question. Metrics: accuracy (a reply that cannot be read
    is wrong), accuracy_answered (without those), accuracy_mirage (MIRAGE's parser), unparsed, and
    for yes/no sets yes_rate and balanced_accuracy; intervals are Wilson's, for the last one joined
    from those of the two recalls (Newcombe's square and add). ``visible`` says which methods'
    expansions saw the options. ``p_holm`` compares accuracy with CHR's on the same questions (exact
    McNemar), Holm over the table; missing where CHR was not run.
    """
    rows = []
    for (dataset, reader, method), own in answers.groupby(
        ["dataset", "reader", "method"], sort=False
    ):
        label = {"dataset": dataset, "answerer": reader, "method": method}
        base = _of(answers, dataset, reader, "chr")
        for metric, *parts in _metrics(own):
            value, low, high = _share(parts)
            row = label | {"metric": metric, "value": value, "low": low, "high": high}
            row |= {"n": sum(map(len, parts)), "options_visible": visible.get(method)}
            if metric == "accuracy":
                row["reported"] = _printed(method, dataset, reader)
                row["verdict"] = verdict(value, (high - low) / 2, row["reported"], same_setup)
                row["p"] = mcnemar(_right(own), _right(base)) if method != "chr" else np.nan
            rows.append(row)
    table = pd.DataFrame(rows)
    table["p_holm"] = np.nan
    tested = table["p"].notna()
    if tested.any():
        table.loc[tested, "p_holm"] = holm(table.loc[tested, "p"])
    return table.drop(columns="p")


def _of(answers: pd.DataFrame, dataset: str, reader: str, method: str) -> pd.DataFrame:
    same = (answers["dataset"] == dataset) & (answers["reader"] == reader)
    return answers[same & (answers["method"] == method)]


def _right(answers: pd.DataFrame) -> pd.Series:
    return (answers["letter"] == answers["gold"]).set_axis(answers["qid"])


def _metrics(own: pd.DataFrame) -> Iterable[tuple]:
    """A metric's name and hits, a bool a question; for balanced accuracy, by right letter."""
    gold, letter = own["gold"].to_numpy(), own["letter"].fillna("").to_numpy()
    right, read = letter == gold, letter != ""
    yield "accuracy", right
    yield "accuracy_answered", right[read]
    yield "accuracy_mirage", own["mirage"].to_numpy() == gold
    yield "unparsed", ~read
    if own["dataset"].iloc[0].split()[-1] == "bioasq":
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
    down, up = (np.linalg.norm(shares - end) / len(parts) for end in (low, high))
    value = float(shares.mean())
    return value, max(value - float(down), 0.0), min(value + float(up), 1.0)


def mcnemar(a: pd.Series, b: pd.Series) -> float:
    """Exact two-sided McNemar p-value of two series of right answers, on the questions of both.

    NaN when they share no question.
    """
    from scipy.stats import binomtest

    a, b = a.align(b, join="inner")
    wins, losses = int((a & ~b).sum()), int((~a & b).sum())
    if not wins + losses:
        return 1.0 if len(a) else np.nan
    return float(binomtest(wins, wins + losses).pvalue)


def claims(answers: pd.DataFrame) -> pd.DataFrame:
    """CHR against each of the paper's baselines, for every question set and answerer that ran both.

    Columns: claim, dataset, answerer, difference, low, high, p, p_holm, n, least, verdict (see
    ``judged``; Holm over all of them); ``least`` is the smallest difference n could have shown.
    """
    rows = []
    baselines = [m for m in PAPER_NAMES if m != "chr"]
    for (dataset, reader), some in answers.groupby(["dataset", "reader"], sort=False):
        ours = _right(_of(some, dataset, reader, "chr"))
        for method in (m for m in baselines if m in set(some["method"])):
            theirs = _right(_of(some, dataset, reader, method))
            a, b = ours.align(theirs, join="inner")
            if not len(a):
                continue
            row = {"claim": f"CHR > {PAPER_NAMES[method]}", "dataset": dataset, "answerer": reader}
            rows.append(row | paired(a, b) | {"p": mcnemar(a, b)})
    table = pd.DataFrame(rows)
    if len(table):
        table.insert(table.columns.get_loc("p") + 1, "p_holm", holm(table["p"]))
        table["verdict"] = judged(table)
    return table


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
