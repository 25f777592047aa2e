"""The paper's Table 1 beside answerers of the masked questions: the recorded one, and your own."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib.base.paths import RECORDINGS
from lib.report import verdict
from lib.studies.main_tables.accuracy import SETS, printed

METHODS: Mapping[str, str] = {
    "none": "closed_book",
    "random": "random",
    "question": "standard",
    "hyde": "hyde",
    "query2doc": "query2doc",
    "csqe": "csqe",
    "thinkqe": "thinkqe",
    "hplus": "hplus",
    "chr@1": "chr",
}
"""Arms of the study, and the methods of Table 1 that they are."""

RECORDED = "a large language model"
OWN = RECORDINGS / "live" / "own-answerer.csv"
"""What ``tools.own_answerer`` measured of a reader's model, in the form of ``masked_arms`` with the
model's name as answerer; there is none before it ran."""


def grid(arms: pd.DataFrame) -> pd.DataFrame:
    """Table 1 with masked names: dataset, answerer, method, metric, value, low, high, n, reported,
    verdict.

    ``arms`` is ``masked_arms``. Metrics are ``right`` (as it fell, which is what the paper counts)
    and ``accuracy`` (a guess counts as its chance). ``reported`` is the mean of the paper's three
    answerers; as nothing here is the paper's setup, no number is judged by it.
    """
    parts = [arms.assign(answerer=RECORDED)]
    if OWN.exists():
        parts.append(pd.read_csv(OWN))
    table = pd.concat(parts, ignore_index=True)
    asked = table["dataset"].isin(SETS) & table["metric"].isin(["right", "accuracy"])
    table = table[asked & table["arm"].isin(METHODS)]
    table = table.assign(method=table["arm"].map(METHODS))
    table["reported"] = [
        printed(row.dataset, row.method, row.answerer) for row in table.itertuples()
    ]
    half = (table["high"] - table["low"]) / 2
    table["verdict"] = [
        verdict(value, width, paper, same_setup=False)
        for value, width, paper in zip(table["value"], half, table["reported"], strict=True)
    ]
    columns = ["dataset", "answerer", "method", "metric", "value", "low", "high", "n"]
    return table[[*columns, "reported", "verdict"]]
