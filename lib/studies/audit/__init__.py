"""The papers against themselves: every number that follows from other printed numbers, recomputed.

Verdicts: IMPOSSIBLE, no values within the rounding of what is printed satisfy the claim under the
assumption beside it; IN TENSION, some do, but only with something the paper does not say, or says
otherwise; CONSISTENT. A claim that can be read in several ways has a row for each reading.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lib.base.paths import REPORTED
from lib.studies.audit import chr, contradiction, margins, overlap, rag2, slhyde
from lib.studies.audit.reported import COLUMNS, Tables, read_tables

__all__ = ["CHECKS", "audit", "read_tables", "sources"]

CHECKS = [
    check
    for paper in (chr, overlap, margins, rag2, slhyde, contradiction)
    for check in paper.CHECKS
]
"""One small function for each kind of claim: tables in, rows out."""


def sources() -> list[str]:
    """The files that the audit reads, as ``lib.base.provenance`` names them."""
    return sorted(f"reported/{path.name}" for path in REPORTED.glob("*.csv"))


def audit(reported: Path | Tables = REPORTED) -> pd.DataFrame:
    """One row for each claim and reading, columns ``COLUMNS``; ``reported`` is a folder of the
    papers' tables, or the tables, maybe with a number changed."""
    tables = reported if isinstance(reported, Tables) else read_tables(reported)
    rows = [row for check in CHECKS for row in check(tables)]
    return pd.DataFrame(rows, columns=list(COLUMNS))
