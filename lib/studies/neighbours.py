"""What notebooks 10 and 11 show: RAG2, SL-HyDE and CMIRB's Algorithm 1.

A profile that asks the whole real sample makes the results first, from shipped adapters, labels and
recordings. Any other reads those that are committed for ``MADE_BY``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pandas as pd

from lib.base.provenance import read_result
from lib.embed import load_encoder
from lib.limit import makes_real, not_run
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.run import Retriever
from lib.studies.rag2 import results as rag2
from lib.studies.slhyde import building_study as building
from lib.studies.slhyde import cmedir_study as cmedir
from lib.studies.slhyde import study as slhyde
from lib.study import MADE_BY


def rag2_tables(profile: Profile) -> dict[str, pd.DataFrame]:
    """All of ``lib.studies.rag2.results.TABLES`` by name."""
    names = [name for group in rag2.TABLES.values() for name in group]
    return _tables(profile, "RAG2", names, lambda: rag2.rag2_results(profile, _retriever(profile)))


def slhyde_tables(profile: Profile) -> dict[str, pd.DataFrame]:
    """All of ``lib.studies.slhyde.study.TABLES`` by name."""
    return _tables(profile, "SL-HyDE", slhyde.TABLES, lambda: slhyde.slhyde_results(profile))


def building_tables(profile: Profile) -> dict[str, pd.DataFrame]:
    """All of ``lib.studies.slhyde.building_study.TABLES`` by name."""
    return _tables(
        profile, "Algorithm 1", building.TABLES, lambda: building.building_results(profile)
    )


def cmedir_tables() -> dict[str, pd.DataFrame]:
    """Those of ``lib.studies.slhyde.cmedir_study.TABLES`` that are committed.

    They need an encoder that is no part of the installation (``make chinese``), so they have a
    command of their own: ``python -m lib.studies.slhyde.cmedir_study``.
    """
    return {name: read_result(name, MADE_BY, committed=True)[0] for name in cmedir.TABLES}


def _retriever(profile: Profile) -> Retriever:
    return open_retriever(profile, load_encoder(profile.encoder, **profile.encoder_options))


def _tables(
    profile: Profile, what: str, names: Iterable[str], make: Callable[[], object]
) -> dict[str, pd.DataFrame]:
    """These results by name, made first where the profile asks the whole real sample."""
    if makes_real(profile):
        make()
        return {name: read_result(name, profile.name)[0] for name in names}
    if "real" in profile.questions:
        print(not_run(profile, what))
    return {name: read_result(name, MADE_BY, committed=True)[0] for name in names}
