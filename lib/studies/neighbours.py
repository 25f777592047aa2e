"""What notebook 10 shows: RAG2.

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
from lib.studies.real.results import MADE_BY


def rag2_tables(profile: Profile) -> dict[str, pd.DataFrame]:
    """All of ``lib.studies.rag2.results.TABLES`` by name."""
    names = [name for group in rag2.TABLES.values() for name in group]
    return _tables(profile, "RAG2", names, lambda: rag2.rag2_results(profile, _retriever(profile)))


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
