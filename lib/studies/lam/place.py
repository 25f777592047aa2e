"""Where a benchmark is searched: in the profile's own corpus, or in the benchmark's alone."""

from __future__ import annotations

from lib.data.benchmark import Benchmark
from lib.data.store import PassageStore
from lib.profiles import Profile
from lib.search.corpus_index import build_index, corpus_store, only, without
from lib.search.embed import Encoder
from lib.search.index import DenseIndex

__all__ = ["place"]


def place(
    benchmark: Benchmark, profile: Profile, encoder: Encoder
) -> tuple[PassageStore, DenseIndex]:
    """The store, and the index of the benchmark's passages in it.

    A profile whose corpora do not hold the benchmark's passages (MedCorp has no BioASQ snippets)
    gets a store and an index of the benchmark's own corpora.
    """
    here = set(benchmark.corpora) <= set(profile.corpora)
    store = corpus_store(profile.corpora if here else benchmark.corpora, profile.limit)
    index = build_index(
        store, encoder, backend=profile.backend, devices=profile.devices, dtype=profile.vectors
    )
    return store, without(only(index, benchmark.corpora), benchmark.excluded_sources)
