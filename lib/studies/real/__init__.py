"""The real sample: a capable writer's texts, judged evidence, and what contrast does there.

What a notebook needs to show the tables is here; what makes them is in ``study``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib.base.provenance import read_result
from lib.limit import makes_real, not_run

if TYPE_CHECKING:
    import pandas as pd

    from lib.profiles import Profile

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
    "real_mpnet",
)
"""What notebook 13 shows."""


def real_tables(profile: Profile) -> dict[str, pd.DataFrame]:
    """All tables of the real sample by name (``TABLES``).

    A profile that asks the whole sample makes them first, from recordings and labels, but for the
    second encoder's, which have a command of their own (``make figures PROFILE=open
    ENCODER=mpnet``). Any other reads those that are committed for ``open``.
    """
    made: dict[str, pd.DataFrame] = {}
    if makes_real(profile):
        from lib.studies.real.study import make_tables

        made = make_tables(profile)
    elif "real" in profile.questions:
        print(not_run(profile, "the real sample"))
    rest = [name for name in TABLES if name not in made]
    return made | {name: read_result(name, "open", committed=True)[0] for name in rest}
