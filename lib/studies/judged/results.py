"""The tables of judged contradiction, kept as results of a profile. Labels are bundled, so every
profile can make them; only periods of real abstracts need the open data."""

from __future__ import annotations

import pandas as pd

from lib.base.paths import DATA
from lib.base.provenance import make_or_reuse
from lib.data.pair_judgments import PAIR_JUDGMENTS, read_pair_judgments, verdicts
from lib.studies.evidence.load import files_of, load_evidence
from lib.studies.judged.plants import PLANTS, read_plants
from lib.studies.judged.quality import pair_quality
from lib.studies.judged.tables import by_period, shares

__all__ = ["judged_tables"]

GROUPS = {"evidence-mini": "mini", "open": "near"}
"""Which judged group tells of the periods of which evidence."""


def judged_tables(profile: str, evidence: str) -> dict[str, pd.DataFrame]:
    """``contradiction_judge`` (is the judge an instrument?), ``contradiction_judged`` (how much
    contradiction there is) and, for evidence-mini and open, ``contradiction_periods``."""
    rows = read_pair_judgments()
    found = verdicts(rows)
    files = [path.relative_to(DATA).as_posix() for path in (PAIR_JUDGMENTS, PLANTS)]
    origin = {
        "code": ["lib.studies.judged.quality", "lib.studies.judged.tables"],
        "data": [*files, *files_of("evidence-mini")],
        "judged": True,
    }
    makers = {
        "contradiction_judge": lambda: pair_quality(rows, read_plants()),
        "contradiction_judged": lambda: shares(found),
    }
    made = {name: make_or_reuse(make, name, profile, **origin) for name, make in makers.items()}
    if group := GROUPS.get(evidence):
        origin["data"] = [*files, *files_of(evidence)]
        made["contradiction_periods"] = make_or_reuse(
            lambda: by_period(found, {e.id: e.year for e in load_evidence(evidence)}, group),
            "contradiction_periods",
            profile,
            **origin,
        )
    return made
