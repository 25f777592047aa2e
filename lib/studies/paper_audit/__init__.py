"""The papers against themselves: every number that follows from other printed numbers, recomputed.

Each claim gets one of four verdicts:

- IMPOSSIBLE: no values within the rounding of what is printed satisfy the claim, under the
  assumption beside it.
- MISPRINT: the same, but the paper itself prints elsewhere what must have been meant, and no
  statement rests on the slip.
- IN TENSION: some do, but only with something the paper does not say, or says otherwise. A word
  such as "consistently", "most stable" or "steadily" is no number, so it is never more than in
  tension. So is a reading that the paper does not state.
- CONSISTENT: the rest. A comparison that the paper does not make, such as that of BioASQ's
  accuracies with always answering yes, contradicts nothing, whatever comes out.

A claim that can be read in several ways has a row for each reading; none of them is IMPOSSIBLE
while another fits the very words that are printed.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lib.base.paths import REPORTED
from lib.studies.paper_audit import chr as chr_paper
from lib.studies.paper_audit import margins, others
from lib.studies.paper_audit.printed import (
    COLUMNS,
    CONSISTENT,
    IMPOSSIBLE,
    IN_TENSION,
    MISPRINT,
    Tables,
    read_tables,
)

CHECKS = [*chr_paper.CHECKS, *margins.CHECKS, *others.CHECKS]
"""One function for each kind of claim. It takes the tables and yields rows of the audit."""

COLOURS = {
    IMPOSSIBLE: "#D55E00",
    MISPRINT: "#CC79A7",
    IN_TENSION: "#E69F00",
    CONSISTENT: "#009E73",
}
"""A colour for each verdict, safe for colour-blind readers; the word stands beside the colour."""


def sources() -> list[str]:
    """The files that the audit reads, as ``lib.base.provenance`` names them."""
    return sorted(f"reported/{path.name}" for path in REPORTED.glob("*.csv"))


def audit(reported: Path | Tables = REPORTED) -> pd.DataFrame:
    """One row for each claim and reading, with the columns ``COLUMNS``.

    ``reported`` is a folder of the papers' tables, or the tables themselves, maybe with a number
    changed (``Tables.changed``).
    """
    tables = reported if isinstance(reported, Tables) else read_tables(reported)
    rows = [row for check in CHECKS for row in check(tables)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


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
