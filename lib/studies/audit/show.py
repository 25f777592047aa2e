"""The audit as one table that can be skimmed: each row opens to its working (HTML, no script)."""

from __future__ import annotations

from html import escape

import pandas as pd

from lib.studies.audit.reported import CONSISTENT, IMPOSSIBLE, IN_TENSION, MISPRINT

COLOURS = {
    IMPOSSIBLE: "#D55E00",
    MISPRINT: "#CC79A7",
    IN_TENSION: "#E69F00",
    CONSISTENT: "#009E73",
}
"""A colour for each verdict, safe for colour-blind readers; the word stands beside the colour."""
_SHOWN = ("claim", "where", "printed", "recomputed")


def html_table(audit: pd.DataFrame) -> str:
    """HTML of the rows, paper by paper; a row's claim opens to its assumption and working."""
    heads = "".join(f"<th>{column}</th>" for column in ("verdict", *_SHOWN))
    lines = ["<table>", f"<tr>{heads}</tr>"]
    for paper, rows in audit.groupby("paper", sort=False):
        lines.append(f'<tr><th colspan="5">{escape(paper)}</th></tr>')
        lines += [_html_row(row) for row in rows.to_dict("records")]
    lines.append("</table>")
    return "\n".join(lines)


def _html_row(row: dict[str, str]) -> str:
    text = {column: escape(value) for column, value in row.items()}
    colour = COLOURS[row["verdict"]]
    verdict = f'<b style="border-left:8px solid {colour};padding-left:4px">{text["verdict"]}</b>'
    details = [
        f"<b>Assumption:</b> {text['assumption']}",
        f"<b>Working:</b> {text['working']}",
        f"<code>{text['id']}</code>",
    ]
    claim = f"<details><summary>{text['claim']}</summary>{'<br>'.join(details)}</details>"
    cells = [verdict, claim, text["where"], text["printed"], text["recomputed"]]
    return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"


def count_verdicts(audit: pd.DataFrame) -> pd.DataFrame:
    """How many rows: one line for each paper, one column for each verdict."""
    counts = audit.groupby(["paper", "verdict"], sort=False).size().unstack(fill_value=0)
    return counts.reindex(columns=list(COLOURS), fill_value=0).rename_axis(columns=None)


def what_moved(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """The rows whose verdict or arithmetic differs between two audits, by id.

    Columns: printed, recomputed and verdict, each before and after. A side without the row has "".
    """
    shown = ["printed", "recomputed", "verdict"]
    old = before.set_index("id")[shown]
    new = after.set_index("id")[shown]
    both = old.join(new, how="outer", lsuffix=" before", rsuffix=" after").fillna("")
    differs = pd.Series(False, index=both.index)
    for column in shown:
        differs |= both[f"{column} before"] != both[f"{column} after"]
    columns = [f"{column} {side}" for column in shown for side in ("before", "after")]
    return both.loc[differs, columns]
