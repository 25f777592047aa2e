"""Contrast on real questions: what the five passages support over lambda, and what is ruled out."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib.plots import said
from lib.plots.curves import plot_curves
from lib.plots.palette import COLOURS
from lib.plots.stack import plot_composition

ARMS_OF = {
    "own": "chr",
    "matched rotation": "chr+rotation",
    "another question's": "chr+stranger",
}
"""Whose mimic it is, and the arm that it makes."""

SUPPORTS = {
    "right": ("for the right option", COLOURS["target"]),
    "wrong": ("for a wrong option", COLOURS["mimic"]),
    "topic": ("on the topic,\nfor no option", COLOURS["on the topic"]),
    "rest": ("off the topic", COLOURS["neither"]),
}
"""Bands of what the five passages support, from the bottom."""

OUTCOMES = {
    ("exams", "hit_right"): "right option",
    ("exams", "misled"): "a wrong option",
    ("bioasq", "p_at_5"): "BioASQ: P@5",
}
"""What the panels of ``plot_outcomes`` show, by data set and metric."""


def outcome_rows(curves: pd.DataFrame) -> pd.DataFrame:
    """Outcomes over lambda by arm: columns panel, family, lambda, value, low, high, n.

    ``curves`` are rows of ``real_lambda`` of one form and visibility. The controls start at lambda
    0, where all are H+ alone.
    """
    parts = []
    for (dataset, metric), panel in OUTCOMES.items():
        rows = curves[(curves["dataset"] == dataset) & (curves["metric"] == metric)]
        rows = rows[rows["lambda"] >= 0]
        alone = rows[(rows["mimic"] == "own") & (rows["lambda"] == 0)]
        for mimic, family in ARMS_OF.items():
            own = rows[rows["mimic"] == mimic]
            own = own if mimic == "own" else pd.concat([alone, own])
            parts.append(own.sort_values("lambda").assign(panel=panel, family=family))
    columns = ["panel", "family", "lambda", "value", "low", "high", "n"]
    return pd.concat(parts, ignore_index=True)[columns]


def plot_outcomes(rows: pd.DataFrame, lam: float, chosen: Mapping[str, float] | None = None):
    """Of how many questions the five passages support the right option, or a wrong one; P@5.

    ``rows`` is ``outcome_rows``, or the rows of some panels, a panel of exam questions among them;
    ``chosen`` are dev's lambdas by data set.
    """
    told = []
    words = {
        "right option": "the right option {} of questions",
        "a wrong option": "a wrong one {}",
    }
    for panel, own in rows[rows["family"] == "chr"].groupby("panel", sort=False):
        if panel in words:
            values = own.set_index("lambda")["value"]
            told.append(words[panel].format(said.moved(values[0.0], values[1.0])))
    dev = {panel: (chosen or {}).get(dataset) for (dataset, _), panel in OUTCOMES.items()}
    title = f"At λ = 1 support for {', for '.join(told)}"
    ylabel = "share, or P@5" if OUTCOMES["bioasq", "p_at_5"] in set(rows["panel"]) else "share"
    return plot_curves(rows, title, panel="panel", ylabel=ylabel, lam=lam, dev=dev)


def support_rows(curves: pd.DataFrame) -> pd.DataFrame:
    """Shares of the top five on exam questions, adding up to one: a row an arm and lambda.

    ``curves`` are rows of ``real_lambda`` of one form and visibility. Columns: family, lambda,
    right, wrong, topic, rest, then the share for the right option with its interval as ``p_at_5``,
    ``p_at_5_low``, ``p_at_5_high``, and n. Controls start at lambda 0, where all are H+ alone.
    """
    rows = curves[(curves["dataset"] == "exams") & (curves["lambda"] >= 0)]
    wide = rows.pivot(index=["mimic", "lambda"], columns="metric", values="value").reset_index()
    right = rows[rows["metric"] == "supports_right_at_5"]
    told = right[["mimic", "lambda", "value", "low", "high", "n"]]
    told.columns = ["mimic", "lambda", "p_at_5", "p_at_5_low", "p_at_5_high", "n"]
    wide = wide.merge(told, on=["mimic", "lambda"])
    wide["right"], wide["wrong"] = wide["supports_right_at_5"], wide["supports_wrong_at_5"]
    wide["topic"] = (wide["on_topic_at_5"] - wide["right"] - wide["wrong"]).clip(lower=0)
    wide["rest"] = 1 - wide[["right", "wrong", "topic"]].sum(axis=1)
    alone = wide[(wide["mimic"] == "own") & (wide["lambda"] == 0)]
    wide = pd.concat([wide, *(alone.assign(mimic=mimic) for mimic in ARMS_OF if mimic != "own")])
    wide["family"] = wide["mimic"].map(ARMS_OF)
    columns = ["family", "lambda", *SUPPORTS, *told.columns[2:]]
    return wide.sort_values(["family", "lambda"], ignore_index=True)[columns]


def plot_support(rows: pd.DataFrame, lam: float, chosen: Mapping[str, float] | None = None):
    """What the five passages of an exam question are made of over lambda; ``support_rows``."""
    mine = rows[rows["family"] == "chr"].set_index("lambda")
    told = said.moved(mine.loc[0.0, "right"], mine.loc[1.0, "right"])
    off = said.moved(mine.loc[0.0, "rest"], mine.loc[1.0, "rest"])
    return plot_composition(
        rows,
        f"At λ = 1 the share for the right option {told}; what is off the topic {off}",
        bands=SUPPORTS,
        lam=lam,
        dev=(chosen or {}).get("exams"),
        measure="for the right option,",
    )
