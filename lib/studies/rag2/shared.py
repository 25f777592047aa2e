"""What RAG2's results have in common: the rationale in a request, and tests as they are stored."""

from __future__ import annotations

import pandas as pd

from lib.query_spec import Hypotheses


def rationale_in(request: Hypotheses) -> str:
    """The rationale that a recorded request searches with; ValueError where it has none, or two."""
    (passage,) = request.of("passage")
    return str(passage.text)


def without_verdicts(*tested: pd.DataFrame) -> pd.DataFrame:
    """Tests of ``lib.stats.claims`` in one table, without p and verdict: none was declared."""
    table = pd.concat(tested, ignore_index=True)
    return table.drop(columns=["p", "p_holm", "verdict", "status"])
