"""The real sample: a capable writer's texts, judged evidence, and what contrast does there.

What shows the committed tables is here; what makes them is in ``study``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib.limit import makes_real
from lib.study import read_committed, run

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
)
"""All but the second encoder's, which has a command of its own (``make figures PROFILE=open
ENCODER=mpnet``)."""


def real_tables(profile: Profile) -> dict[str, pd.DataFrame]:
    """``lib.study.run`` of the study, which is opened only by a profile that makes its tables."""
    if not makes_real(profile):
        return read_committed(TABLES, profile, "the real sample")
    from lib.studies.real.study import STUDY

    return run(STUDY, profile)
