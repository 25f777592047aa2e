"""The audit as one table that can be skimmed: each row opens to its working (HTML, no script)."""

from __future__ import annotations

from html import escape

import pandas as pd

from lib.studies.audit.reported import CONSISTENT, IMPOSSIBLE, IN_TENSION

__all__ = ["COLOURS", "moved", "summary", "table"]

COLOURS = {IMPOSSIBLE: "#D55E00", IN_TENSION: "#E69F00", CONSISTENT: "#009E73"}
"""Okabe-Ito, as everywhere; the word stands beside the colour."""
_SHOWN = ("claim", "where", "printed", "recomputed")


def table(audit: pd.DataFrame) -> str:
    """HTML of the rows, paper by paper; a row's claim opens to its assumption and working."""
    head = "".join(f"<th>{c}</th>" for c in ("verdict", *_SHOWN))
    rows = []
    for paper, own in audit.groupby("paper", sort=False):
        rows.append(f'<tr><th colspan="5">{escape(paper)}</th></tr>')
        rows += [_row(r) for r in own.to_dict("records")]
    return "\n".join(["<table>", f"<tr>{head}</tr>", *rows, "</table>"])


def _row(row: dict[str, str]) -> str:
    text = {k: escape(v) for k, v in row.items()}
    colour = COLOURS[row["verdict"]]
    verdict = f'<b style="border-left:8px solid {colour};padding-left:4px">{text["verdict"]}</b>'
    opened = "<br>".join(
        (
            f"<b>Assumption:</b> {text['assumption']}",
            f"<b>Working:</b> {text['working']}",
            f"<code>{text['id']}</code>",
        )
    )
    claim = f"<details><summary>{text['claim']}</summary>{opened}</details>"
    cells = (verdict, claim, *(text[c] for c in _SHOWN[1:]))
    return "<tr>" + "".join(f'<td style="text-align:left">{c}</td>' for c in cells) + "</tr>"


def summary(audit: pd.DataFrame) -> pd.DataFrame:
    """Rows by paper and verdict."""
    counts = audit.groupby(["paper", "verdict"], sort=False).size().unstack(fill_value=0)
    return counts.reindex(columns=list(COLOURS), fill_value=0).rename_axis(columns=None)


def moved(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """The rows whose verdict or arithmetic differs between two audits, by id; "" where one has no
    such row."""
    shown = ["printed", "recomputed", "verdict"]
    sides = [a.set_index("id")[["claim", *shown]] for a in (before, after)]
    both = sides[0].join(sides[1], how="outer", lsuffix=" before", rsuffix=" after").fillna("")
    differ = [both[f"{c} before"] != both[f"{c} after"] for c in shown]
    return both.loc[
        pd.concat(differ, axis=1).any(axis=1),
        [f"{c} {x}" for c in shown for x in ("before", "after")],
    ]
