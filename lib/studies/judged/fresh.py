"""Twenty fresh pairs: written by a role that saw neither the code nor any training text.

``data/judgments/fresh_pairs.jsonl`` has one row a pair: pid, a and b (invented study summaries),
intended (what the writer was asked for: disagree, agree or other), the numbers of the sentences
that carry it, and what each pass of the judge said, who saw the texts alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.studies.nli.models import Backend, sentences
from lib.studies.nli.scores import score_pairs

FRESH = DATA / "judgments" / "fresh_pairs.jsonl"


def fresh_pairs() -> list[dict]:
    """The rows of ``FRESH``."""
    return list(read_jsonl(FRESH))


def fresh_table(backends: Sequence[Backend]) -> pd.DataFrame:
    """Every pair with what the judge and each model say of it.

    Columns: pid, intended, first, second (passes of the judge), and a column a backend with
    P(contradiction) of the two sentences that carry the findings.
    """
    rows = fresh_pairs()
    table = pd.DataFrame(rows)[["pid", "intended", "first", "second"]]
    carrying = [
        (sentences(r["a"])[r["sentence_a"] - 1], sentences(r["b"])[r["sentence_b"] - 1])
        for r in rows
    ]
    for backend in backends:
        table[backend.name] = score_pairs(carrying, backend)
    return table


def fresh_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Who got how many right, and which they missed: by, right, of, ranked, missed.

    A pass of the judge is right where it says what was intended. A model is right on a disagreement
    that it scores above .5, and on any other pair at or below that; as a ranking it is judged by
    ``ranked``, the share of (disagreement, agreement) couples in the right order.
    """
    disagree = table["intended"] == "disagree"
    rows = []
    for name in table.columns[2:]:
        judge = name in ("first", "second")
        right = table[name] == table["intended"] if judge else (table[name] > 0.5) == disagree
        row = {"by": f"judge, {name} pass" if judge else name, "right": int(right.sum())}
        row |= {"of": len(table), "ranked": float("nan")}
        if not judge:
            high = table.loc[disagree, name].to_numpy()[:, None]
            low = table.loc[table["intended"] == "agree", name].to_numpy()
            row["ranked"] = float(((high > low) + (high == low) / 2).mean())
        missed = table.loc[~right, "pid"].str.removeprefix("fresh-")
        rows.append(row | {"missed": ", ".join(missed)})
    return pd.DataFrame(rows)
