"""The papers against themselves: every number that follows from other printed numbers, recomputed.

Each claim gets one of five verdicts:

- IMPOSSIBLE: no values within the rounding of what is printed satisfy the claim, under the
  assumption beside it.
- MISPRINT: the same, but the paper itself prints elsewhere what must have been meant, and no
  statement rests on the slip.
- IN TENSION: some do, but only with something the paper does not say, or says otherwise. A word
  such as "consistently", "most stable" or "steadily" is no number, so it is never more than in
  tension. So is a reading that the paper does not state.
- NOT TESTED: whether a difference is more than chance, where the paper prints no test of it and
  the printed numbers alone cannot say.
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
from lib.studies.paper_audit import others
from lib.studies.paper_audit.printed import Tables, audit_row, read_tables

CHECKS = (*chr_paper.CHECKS, *others.CHECKS)
"""One function for each kind of claim. It takes the tables and yields what it finds."""


def sources() -> list[str]:
    """The files that the audit reads, as ``lib.base.provenance`` names them."""
    return sorted(f"reported/{path.name}" for path in REPORTED.glob("*.csv"))


def audit(reported: Path | Tables = REPORTED) -> pd.DataFrame:
    """One row for each claim and reading: id, paper, where, claim, printed, recomputed, assumption,
    verdict, working.

    ``reported`` is a folder of the papers' tables, or the tables themselves, maybe with a number
    changed (``Tables.changed``).
    """
    tables = reported if isinstance(reported, Tables) else read_tables(reported)
    findings = (finding for check in CHECKS for finding in check(tables))
    return pd.DataFrame([audit_row(tables, finding) for finding in findings])
