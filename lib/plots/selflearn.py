"""SL-HyDE's figures: what each training brings, how to use a passage, and how much it takes."""

from __future__ import annotations

import pandas as pd

from lib.plots.curves import plot_curves
from lib.plots.dots import plot_dots
from lib.plots.palette import COLOURS, GREY
from lib.studies.selflearn.evaluate import HOW
from lib.studies.selflearn.study import BASE, BM25

RETRIEVERS = {
    BM25: "BM25, by words",
    BASE: "the base, untrained",
    "slhyde": "self-written questions (3 seeds)",
    "shuffled": "the same, pairs in disorder (3 seeds)",
    "slhyde-query-low": "self-written, learnt slowly",
    "slhyde-shuffled-low": "the same, pairs in disorder",
    "slhyde-random": "self-written, random negatives",
    "slhyde-mean": "self-written, half, trained on the mean",
    "slhyde-supervised": "MedQuAD's own questions (labels)",
    "slhyde-supervised-shuffled": "labels, pairs in disorder",
}
"""What each retriever learnt from, in the order in which they are drawn."""

_CURVE = ("slhyde-quarter", "slhyde-half", "slhyde-query")
_SETS = {"scifact": "SciFact", "bioasq": "BioASQ"}
_WAYS = {
    "query": "the query alone",
    "mean": "the mean of query and passage",
    "passage": "the passage alone",
    "concatenation": "both as one text",
    "rrf": "both lists merged by rank",
}


def retriever_rows(table: pd.DataFrame, metric: str = "ndcg_at_10") -> pd.DataFrame:
    """``slhyde_table`` as ``plot_dots`` takes it: every retriever with the query alone."""
    own = table[(table["metric"] == metric) & table["dataset"].isin(_SETS)]
    rows = own[own["method"].isin(RETRIEVERS)].copy()
    place = {name: number for number, name in enumerate(RETRIEVERS)}
    rows = rows.sort_values("method", key=lambda names: names.map(place), kind="stable")
    colour = {BASE: "black", "slhyde": COLOURS["SUPPORTED"]}
    return rows.assign(
        panel=rows["dataset"].map(_SETS),
        row=rows["method"].map(RETRIEVERS),
        colour=[colour.get(name, GREY) for name in rows["method"]],
    ).sort_values("panel", ascending=False, kind="stable")


def plot_retrievers(rows: pd.DataFrame):
    """nDCG@10 of every retriever, a panel a set; the line is the untrained base."""
    value = rows.set_index(["panel", "method"])["value"]
    told = [
        f"{value[panel, 'slhyde'] - value[panel, BASE]:+.3f} on {panel}"
        for panel in dict.fromkeys(rows["panel"])
    ]
    title = f"What self-learning changes, searched with the query alone: {', '.join(told)}"
    base = rows[rows["method"] == BASE].set_index("panel")["value"].to_dict()
    return plot_dots(
        rows, title, "nDCG@10, 95 % intervals", levels={"untrained": base}, xlim=_around(rows)
    )


def _around(rows: pd.DataFrame) -> tuple[float, float]:
    """Limits a little wider than all intervals, so that small differences can be seen."""
    return max(0.0, rows["low"].min() - 0.02), min(1.0, rows["high"].max() + 0.02)


def way_rows(table: pd.DataFrame, metric: str = "ndcg_at_10") -> pd.DataFrame:
    """``slhyde_table`` as ``plot_dots`` takes it: each way to use a passage, base and SL-HyDE."""
    parts = {f"{dataset}, with passages": name for dataset, name in _SETS.items()}
    own = table[(table["metric"] == metric) & table["dataset"].isin(parts)]
    wanted = []
    for series, writer in ((BASE, "base"), ("slhyde", "tuned")):
        for how in HOW:
            name = series if how == "query" else f"{series}, {how}, {writer}"
            wanted.append((name, series, _WAYS[how]))
    places = pd.DataFrame(wanted, columns=["method", "series", "row"])
    rows = places.merge(own, on="method")
    rows["row"] = pd.Categorical(rows["row"], list(_WAYS.values()), ordered=True)
    return rows.assign(panel=rows["dataset"].map(parts)).sort_values(
        ["panel", "row"], ascending=[False, True], kind="stable"
    )


def plot_ways(rows: pd.DataFrame):
    """nDCG@10 of each way to use a written passage, before and after both sides learnt."""
    names = {BASE: "untrained retriever and generator", "slhyde": "both trained"}
    told = []
    for panel in dict.fromkeys(rows["panel"]):
        own = rows[(rows["panel"] == panel) & (rows["series"] == "slhyde")]
        best = own.loc[own["value"].idxmax()]
        told.append(f"{best['row']} ({best['value']:.3f}) on {panel}")
    title = f"After training, most is found with {', '.join(told)}"
    return plot_dots(
        rows, title, "nDCG@10, 95 % intervals", names=names, together=True, xlim=_around(rows)
    )


def learning_rows(
    table: pd.DataFrame, trainings: pd.DataFrame, metric: str = "ndcg_at_10"
) -> pd.DataFrame:
    """``slhyde_table`` as ``plot_curves`` takes it: over the number of pairs that were learnt from.

    ``trainings`` is ``slhyde_trainings``, which says how many each adapter had (``examples``).
    """
    own = table[(table["metric"] == metric) & table["dataset"].isin(_SETS)]
    examples = trainings.set_index("adapter")["examples"]
    learnt_from = {BASE: 0} | {name: int(examples[name]) for name in _CURVE}
    parts = []
    for method, pairs in learnt_from.items():
        rows = own[own["method"] == method]
        parts.append(rows.assign(pairs=pairs, family="self-written questions"))
    rows = pd.concat(parts, ignore_index=True)
    return rows.assign(study=rows["dataset"].map(_SETS)).sort_values(
        ["study", "pairs"], ascending=[False, True], kind="stable"
    )


def plot_learning(rows: pd.DataFrame):
    """nDCG@10 over the number of pairs that the retriever learnt from, one seed."""
    told = []
    for panel in dict.fromkeys(rows["study"]):
        value = rows[rows["study"] == panel].set_index("pairs")["value"]
        told.append(f"{value.iloc[0]:.3f} to {value.iloc[-1]:.3f} on {panel}")
    title = f"From no pair to {rows['pairs'].max():,} pairs: nDCG@10 {', '.join(told)}"
    lowest = max(0.0, rows["low"].min() - 0.05)
    return plot_curves(rows, title, x="pairs", xlabel="pairs", ylabel="nDCG@10", ylim=(lowest, 1))
