"""Where a benchmark is searched: in the profile's own corpus, or in the benchmark's alone."""

from __future__ import annotations

from lib.data.benchmark import Benchmark
from lib.data.corpus_index import build_index, corpus_store, only, without
from lib.profiles import Profile
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.embed import Encoder

__all__ = ["retriever_for"]


def retriever_for(benchmark: Benchmark, profile: Profile, encoder: Encoder) -> Retriever:
    """The passages that the benchmark is searched in, by meaning and by words.

    A profile whose corpora do not hold the benchmark's passages (MedCorp has no BioASQ snippets)
    gets a store and an index of the benchmark's own corpora. The index of words is built when it is
    first searched: it takes as long as all else together.
    """
    here = set(benchmark.corpora) <= set(profile.corpora)
    store = corpus_store(profile.corpora if here else benchmark.corpora, profile.limit)
    whole = build_index(
        store, encoder, backend=profile.backend, devices=profile.devices, dtype=profile.vectors
    )
    index = without(only(whole, benchmark.corpora), benchmark.excluded_sources)

    def words() -> BM25Index:
        texts = [f"{passage.title} {passage.text}" for passage in store]
        return BM25Index.build(texts, store.ids()).subset(index.kept)

    return Retriever(index, encoder, store, words)
