"""The tables of judged contradiction, kept as results of a profile. Labels are bundled, so every
profile can make them; only periods of real abstracts need the open data."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib.base.paths import DATA
from lib.base.provenance import make_or_reuse
from lib.data.pair_judgments import PAIR_JUDGMENTS, read_pair_judgments, verdicts
from lib.studies.evidence.load import files_of, load_evidence
from lib.studies.judged.plants import PLANTS, read_plants
from lib.studies.judged.quality import pair_quality
from lib.studies.judged.sample import share_drawn
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
        origin["code"] = [*origin["code"], "lib.studies.judged.sample"]
        made["contradiction_periods"] = make_or_reuse(
            lambda: _periods(found, evidence, group), "contradiction_periods", profile, **origin
        )
    return made


def _periods(found: Mapping, evidence: str, group: str) -> pd.DataFrame:
    """``by_period`` of these abstracts; those of ``open`` were drawn by period."""
    abstracts = load_evidence(evidence)
    drawn = share_drawn(abstracts) if group == "near" else None
    return by_period(found, {e.id: e.year for e in abstracts}, group, drawn)
