"""The tables of the real sample: made by a profile that asks it, read under any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from lib.base.provenance import read_result
from lib.embed import load_encoder
from lib.limit import makes_real, not_run
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.studies.real.choice import choices
from lib.studies.real.study import (
    dev_results,
    quality_results,
    results_of_test,
)

MADE_BY = "open"
"""The profile whose results everyone sees."""

SECOND = "real_mpnet"
"""The second encoder's table."""

TABLES = (
    "judge_quality",
    "real_dev_lambda",
    "real_least",
    "real_dev",
    "claims_real",
    "real_arms",
    "real_purity",
    "real_lambda",
    "real_where",
    "real_cases",
    "real_case_texts",
    "real_case_counts",
    "real_texts",
    SECOND,
)


@dataclass(frozen=True)
class RealTables:
    """Tables by name (``tables["real_lambda"]``), and where they came from."""

    tables: Mapping[str, pd.DataFrame]
    origin: dict

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.tables[name]

    @property
    def chosen(self) -> dict[str, float]:
        """The lambda that dev chose for each group of questions."""
        return choices(self["real_dev_lambda"])


def real_tables(profile: Profile) -> RealTables:
    """All tables of the real sample (``TABLES``).

    A profile that asks the whole sample makes them first, from recordings and labels, but for
    ``SECOND``, which has a command of its own (``make figures PROFILE=open ENCODER=mpnet``). Any
    other reads those that are committed for ``MADE_BY``.
    """
    asked = makes_real(profile)
    if "real" in profile.questions and not asked:
        print(not_run(profile, "the real sample"))
    if asked:
        encoder = load_encoder(profile.encoder, **profile.encoder_options)
        retriever = open_retriever(profile, encoder)
        quality_results(profile, retriever)
        dev_results(profile, retriever)
        results_of_test(profile, retriever)
    read = {}
    for name in TABLES:
        own = asked and name != SECOND
        read[name] = read_result(name, profile.name if own else MADE_BY, committed=not own)
    return RealTables({name: table for name, (table, _) in read.items()}, read["real_arms"][1])
