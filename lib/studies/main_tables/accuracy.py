"""Accuracy with intervals and paired tests (Table 1 and its claims), cost (Table 3): arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from lib import stats
from lib.methods import METHODS
from lib.report import PAPER_NAMES, reported, verdict
from lib.stats import Pair, mean_interval, ratio_interval
from lib.studies.main_tables.paper_setup import EXAMS, SETS, whole_benchmarks

COSTS = ("calls", "retrieval_rounds", "prompt_tokens", "output_tokens", "latency_s")
"""Of a question's expansion: LLM requests, searches, tokens, seconds of waiting for replies."""
PRINTED_COSTS = {
    "calls": "llm_calls",
    "output_tokens": "output_tokens",
    "token_reduction": "token_reduction_vs_hyde",
}
"""The columns of Table 3 that the paper prints, and what they are called among its numbers."""

AVERAGE = "average"
"""The metric, and the last word of the set, of what Table 1 calls Avg."""
_COLUMNS = {**SETS, AVERAGE: "Avg."}
_CLAIMS = (
    "dataset",
    "answerer",
    "claim",
    "metric",
    "arm",
    "against",
    "value",
    "value_against",
    "difference",
    "low",
    "high",
    "p",
    "n",
    "least",
    "status",
    "p_holm",
    "verdict",
)


def _printed(method: str, dataset: str, reader: str) -> float:
    """What Table 1 prints, as a share: for its own answerer, or the mean of its three."""
    rows = reported("table1_accuracy")
    kind = _COLUMNS.get(dataset.split()[-1])
    # The paper's Table 1 calls its row "HyDE (H+ only)"; elsewhere HyDE is eight texts.
    name = PAPER_NAMES.get("hyde" if method == "hplus" else method)
    rows = rows[(rows["method"] == name) & (rows["dataset"] == kind)]
    of_reader = rows[rows["generator"] == reader]
    if len(of_reader):
        rows = of_reader
    return rows["value"].mean() / 100


def accuracy_table(
    answers: pd.DataFrame,
    visible: Mapping[str, bool],
    *,
    same_setup: Callable[..., bool] = lambda *cell: False,
    chance: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Table 1 in long form: dataset, answerer, method, metric, value, low, high, n, ...

    ``answers`` are the grid's, one row a question. Metrics: accuracy (a reply that cannot be read
    is wrong), accuracy_answered (without those), accuracy_or_guess (those count as ``chance``, by
    set, where that is given), accuracy_mirage (MIRAGE's parser), unparsed, and
    for yes/no sets yes_rate and balanced_accuracy; intervals are Wilson's, for the last one joined
    from those of the two recalls (Newcombe's square and add). ``visible`` says which methods'
    expansions saw the options. Differences from CHR on the same questions are in ``claims``.

    Where a reader answered all three sets of the paper there is their ``average``, as Table 1 has
    it: each set counts once. ``same_setup`` takes (method, {set: questions}, reader).
    """
    rows = []

    def cell(
        dataset: str, reader: str, method: str, metric: str, parts: Sequence[np.ndarray]
    ) -> dict:
        value, low, high = _share(parts)
        row = {"dataset": dataset, "answerer": reader, "method": method, "metric": metric}
        row |= {"value": value, "low": low, "high": high}
        return row | {"n": sum(map(len, parts)), "options_visible": visible.get(method)}

    def beside_printed(row: dict, asked: Mapping[str, int]) -> dict:
        printed = _printed(row["method"], row["dataset"], row["answerer"])
        same = same_setup(row["method"], asked, row["answerer"])
        half_width = (row["high"] - row["low"]) / 2
        judged = verdict(row["value"], half_width, printed, same)
        return row | {"reported": printed, "verdict": judged}

    right: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for key, of_cell in answers.groupby(["dataset", "reader", "method"], sort=False):
        dataset, *who = key
        for metric, *parts in _metrics(of_cell):
            row = cell(*key, metric, parts)  # type: ignore[call-arg]
            if metric == "accuracy":
                right.setdefault(tuple(who), {})[dataset] = parts[0]
                row = beside_printed(row, {dataset: row["n"]})
            rows.append(row)
        if chance is not None:
            value, low, high = stats.mean_interval(_or_guess(of_cell, chance[dataset]))
            row = {"dataset": dataset, "answerer": who[0], "method": who[1]}
            row |= {"metric": "accuracy_or_guess", "value": value, "low": low, "high": high}
            rows.append(row | {"n": len(of_cell), "options_visible": visible.get(who[1])})
    for who, by_set in right.items():
        for before, three in whole_benchmarks(by_set).items():
            row = cell(f"{before} {AVERAGE}".strip(), *who, AVERAGE, [by_set[d] for d in three])
            rows.append(beside_printed(row, {d: len(by_set[d]) for d in three}))
    return pd.DataFrame(rows)


def _or_guess(answers: pd.DataFrame, chance: float) -> np.ndarray:
    """1 where an answer is right, 0 where it is wrong, ``chance`` where none can be read."""
    letter = answers["letter"].fillna("")
    right = (letter == answers["gold"]).astype(float)
    return right.mask(letter == "", chance).to_numpy()


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


def claims(answers: pd.DataFrame, contrasts: Sequence[str] = ("chr",)) -> pd.DataFrame:
    """Each method of contrast against every other method, by question set and answerer.

    A pair is there where both were answered from. Columns: dataset, answerer, then those of
    ``lib.stats.claims``. All are exploratory: these questions have been looked at before.
    """
    parts = []
    for (dataset, reader), _ in answers.groupby(["dataset", "reader"], sort=False):
        values = answer_values(answers, dataset, reader)
        measured = set(values["arm"])
        pairs = [
            Pair(f"{arm} > {method}", "right", arm, method)
            for arm in contrasts
            for method in METHODS
            if method not in contrasts and {arm, method} <= measured
        ]
        tested = stats.claims(values, pairs)
        if len(tested):
            tested.insert(0, "answerer", reader)
            tested.insert(0, "dataset", dataset)
            parts.append(tested)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_CLAIMS)


def cost_table(expanded: pd.DataFrame) -> pd.DataFrame:
    """Table 3, per question: ``COSTS`` of what a model generated, beside the paper's.

    ``expanded`` are the grid's rows. As in the paper the means are over the exam questions; over
    all where there are none. ``dataset`` names the sets. Reference text has no cost: its rows hold
    calls and rounds alone, and one question that was not measured leaves its method without a mean.
    ``token_reduction`` is HyDE's output tokens divided by the method's. All but ``failed`` have the
    ends of their 95 % interval (``calls_low``, ...). The seconds are those of the machine that
    generated, and of as many requests at a time as it was asked.
    """
    is_exam = expanded["dataset"].str.split().str[-1].isin(EXAMS)
    own = expanded[is_exam] if is_exam.any() else expanded
    tokens = {m: rows.set_index(["dataset", "qid"])["output_tokens"] for m, rows in _by_method(own)}
    rows = []
    for method, of_method in _by_method(own):
        row = {"dataset": ", ".join(of_method["dataset"].unique()), "method": method}
        for cost in COSTS:
            values = of_method[cost].to_numpy(dtype=float)
            row |= _named(cost, mean_interval(values) if not np.isnan(values).any() else ())
        row |= _named("token_reduction", _reduction(tokens.get("hyde"), tokens[method]))
        row |= {"n": len(of_method), "failed": (of_method["error"].fillna("") != "").sum()}
        rows.append(row)
    measured = [f"{name}{end}" for name in (*COSTS, "token_reduction") for end in _ENDS]
    table = pd.DataFrame(rows, columns=["dataset", "method", *measured, "n", "failed"])
    printed = reported("table3_cost").pivot(index="method", columns="metric", values="value")
    names = table["method"].map(PAPER_NAMES)
    for ours, theirs in PRINTED_COSTS.items():
        table[f"reported_{ours}"] = printed[theirs].reindex(names).to_numpy()
    return table


_ENDS = ("", "_low", "_high")


def _by_method(expanded: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    return expanded.groupby("method", sort=False)


def _named(name: str, interval: Sequence[float]) -> dict[str, float]:
    """A mean and the ends of its interval as columns; NaN for a mean that there is not."""
    values = interval or (np.nan, np.nan, np.nan)
    return {f"{name}{end}": value for end, value in zip(_ENDS, values, strict=True)}


def _reduction(hyde: pd.Series | None, own: pd.Series) -> Sequence[float]:
    """HyDE's mean tokens over the method's, with its 95 % bootstrap interval over the questions
    of both; () where either was not measured on one of them, or wrote nothing."""
    if hyde is None:
        return ()
    both = pd.DataFrame({"hyde": hyde, "own": own}).dropna()
    if len(both) < max(len(hyde), len(own)) or not both["own"].sum():
        return ()
    return ratio_interval(both["hyde"].to_numpy(), both["own"].to_numpy())
