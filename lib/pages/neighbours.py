"""Blocks on the neighbouring papers: RAG2, SL-HyDE, and the HyDE lesson."""

from __future__ import annotations

import pandas as pd

from lib.pages import rag2 as rag2_page
from lib.pages import selflearn as slhyde_page
from lib.pages.committed import between, folded, markdown, read
from lib.pages.readable import words

_RAG2 = (
    "rag2_filters_auroc",
    "rag2_filters_claims",
    "rag2_filters_kept",
    "rag2_held_shuffled",
    "rag2_labels",
    "rag2_strategies_claims",
    "rag2_top_1",
)


def rag2() -> str:
    """What RAG2's filter tells apart, what its strategies find, and both beside the paper."""
    tables = {name: read(name, "open")[0] for name in _RAG2}
    beside = rag2_page.beside(tables)
    rows = []
    for row in beside.itertuples(index=False):
        step, printed, dataset, metric, difference, low, high, n = row
        rows.append((step, printed, f"{dataset}, {words(metric)}", _gap(difference, low, high), n))
    head = ("step", "printed: points of accuracy", "measured: set, metric", "difference", "n")
    text = folded("What each step adds, printed and measured", markdown(head, rows))
    return f"{rag2_page.found(tables)}\n\n{rag2_page.filters_found(tables)}\n\n{text}"


def slhyde() -> str:
    """What self-learning brings, the declared tests, and its parts beside the paper's."""
    claims = read("slhyde_claims", "open")[0]
    rows = []
    for row in slhyde_page.declared(claims).itertuples():
        gap = _gap(row.difference, row.low, row.high)
        rows.append((row.claim, f"`{row.arm}` − `{row.against}`", gap, row.n, row.verdict))
    declared = markdown(("declared", "arms", "nDCG@10", "n", "verdict"), rows)
    beside = slhyde_page.beside(read("slhyde_table", "open")[0])
    beside["metric"] = beside["metric"].map(words)
    parts = markdown(tuple(map(words, beside.columns)), beside.to_numpy().tolist())
    return "\n\n".join(
        [
            slhyde_page.found(claims),
            folded("The four declared tests", declared),
            folded("Its parts, in points of the metric: printed (Chinese, CMIRB), measured", parts),
        ]
    )


def lesson() -> str:
    """The lesson's claims on all 618 questions, a row each."""
    claims = read("hyde_lesson_claims", "open")[0]
    own = claims[claims["kind"].isin(["all", "reasoning minus lookup"])]
    rows = [
        (row.claim, words(row.metric), _gap(row.difference, row.low, row.high), row.n)
        for row in own.itertuples()
    ]
    return folded("The lesson's claims", markdown(("claim", "metric", "difference", "n"), rows))


def _gap(value: float, low: float, high: float) -> str:
    return "–" if pd.isna(value) else between(value, low, high, "+")
