"""RAG2's figures: whom filters tell apart, what strategies find, what a reader makes of k."""

from __future__ import annotations

import pandas as pd

from lib.plots.curves import plot_curves
from lib.plots.dots import plot_dots
from lib.plots.palette import COLOURS, GREY
from lib.report import pooled

FILTERS = {
    "cross-ppl-25": "RAG²'s recipe: cross-encoder, ΔPPL, top 25 %",
    "cross-shuffled": "cross-encoder, labels in disorder",
    "head-ppl-25": "on vectors, ΔPPL, top 25 %",
    "head-ppl-05": "on vectors, ΔPPL, top 5 %",
    "head-log-25": "on vectors, Δlog-PPL, top 25 %",
    "head-log-05": "on vectors, Δlog-PPL, top 5 %",
    "head-own": "on vectors, the model's own rationales",
    "head-own-questions": "on vectors, experts' rationales, the same questions",
    "head-right": "on vectors, answered right with it",
    "head-turned": "on vectors, turned from wrong to right",
    "head-shuffled": "on vectors, labels in disorder",
    "cosine": "cosine of question and passage",
    "bm25": "BM25 of question and passage",
}
"""What each filter is called, in the order in which they are drawn."""

_CONTROLS = ("cross-shuffled", "head-shuffled")
_BASELINES = ("cosine", "bm25")
_STRATEGIES = (
    "stacked",
    "stacked, re-ranked",
    "stacked, re-ranked (shuffled)",
    "balanced",
    "balanced, re-ranked",
    "balanced, re-ranked (shuffled)",
    "balanced, re-ranked by the rationale",
    "stacked, re-ranked by the rationale",
)
_QUERIES = {"question": "searched with the question", "rationale": "with the rationale"}
_SAME = "bioasq, with a rationale"
"""All arms on the questions that have a rationale, which re-ranked arms need."""

_SET_NAMES = {
    "bioasq": "BioASQ",
    _SAME: "BioASQ",
    "ddx-mini": "ddx-mini",
    "medqa": "MedQA",
    "mmlu": "MMLU-Med",
}


def filter_rows(auroc: pd.DataFrame) -> pd.DataFrame:
    """``rag2_filters_auroc`` as ``plot_dots`` takes it, filters in the order of ``FILTERS``."""
    place = {name: number for number, name in enumerate(FILTERS)}
    rows = auroc.sort_values("filter", key=lambda names: names.map(place), kind="stable")
    colour = dict.fromkeys(_CONTROLS, GREY) | dict.fromkeys(_BASELINES, "black")
    sets = rows["dataset"].map({"bioasq": "BioASQ", "exams": "exams"})
    return rows.assign(
        panel=sets + ": " + rows["truth"],
        row=rows["filter"].map(FILTERS),
        colour=[colour.get(name, COLOURS["SUPPORTED"]) for name in rows["filter"]],
    )


def plot_filters(rows: pd.DataFrame):
    """The AUROC of every filter, a panel a truth. Grey: labels in disorder; black: untrained."""
    experts = rows[rows["panel"] == rows["panel"].iloc[0]].set_index("filter")["value"]
    trained = experts.drop([*_BASELINES, *_CONTROLS])
    above = int((trained > experts["cosine"]).sum())
    title = (
        f"Of {len(trained)} trained filters {above or 'none'} tell{'s' if above < 2 else ''} an "
        f"expert's snippet better than the cosine ({experts['cosine']:.2f}); RAG²'s recipe has "
        f"{experts['cross-ppl-25']:.2f}"
    )
    levels = {"guessing": 0.5}
    lowest = min(0.4, rows["low"].min())
    return plot_dots(rows, title, "AUROC, 95 % intervals", levels=levels, xlim=(lowest, 1))


def strategy_rows(table: pd.DataFrame, metric: str = "precision_at_5") -> pd.DataFrame:
    """``rag2_strategies`` as ``plot_dots`` takes it: a row a strategy, question and rationale as
    series, a panel a set."""
    own = table[(table["metric"] == metric) & (table["dataset"] != "bioasq")].copy()
    own["series"] = own["method"].str.partition(", ")[0].map(_QUERIES)
    own["row"] = own["method"].str.partition(", ")[2]
    alone = own["row"].str.endswith(" alone")
    order = [*own.loc[alone, "row"].unique(), *_STRATEGIES]
    own["row"] = pd.Categorical(own["row"], order, ordered=True)
    own["panel"] = own["dataset"].map(_SET_NAMES)
    return own.sort_values(["panel", "row", "series"]).reset_index(drop=True)


def plot_strategies(rows: pd.DataFrame):
    """What every strategy finds, on each set; two colours for question and rationale."""
    found = rows.set_index(["panel", "row", "series"])["value"]
    told = []
    for panel in dict.fromkeys(rows["panel"]):
        stacked = found[panel, "stacked", _QUERIES["question"]]
        gain = found[panel, "balanced, re-ranked", _QUERIES["question"]] - stacked
        told.append(f"{gain:+.2f} on {panel}")
    title = f"Balanced and re-ranked against stacked, searched with the question: {', '.join(told)}"
    return plot_dots(rows, title, "P@5, 95 % intervals", together=True)


def k_rows(by_k: pd.DataFrame, metric: str = "reads_right_or_guess") -> pd.DataFrame:
    """``rag2_by_k`` as ``plot_curves`` takes it, without the arms that keep a best passage."""
    own = by_k[(by_k["metric"] == metric) & ~by_k["arm"].str.endswith("(best kept)")]
    names = own["arm"].map(_arm_words)
    return own.assign(study=own["dataset"].map(_SET_NAMES), family=names)


def _arm_words(arm: str) -> str:
    searched, _, rest = arm.partition(" | ")
    if not rest:
        return searched
    _, _, keeps = rest.partition(", ")
    return f"{searched}, filtered ({keeps})"


def plot_reading_by_k(rows: pd.DataFrame):
    """The judged reader over k, a panel a set, as RAG2's Figures 3 and A1."""
    most = rows["k"].max()
    best = pooled(rows[rows["k"] == most], ["value"], by="family")["value"].idxmax()
    title = f"With {most} passages the judged reader is right most often with the {best}"
    title = title if "filtered" in best else f"{title}, unfiltered"
    return plot_curves(rows, title, x="k", xlabel="passages given", ylabel="right, or guessing")
