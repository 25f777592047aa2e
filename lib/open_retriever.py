"""Open what is searched: a profile's own corpora, or those of one benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lib import limit, run_files
from lib.base.files import sha256_of
from lib.base.paths import DATA, JUDGMENTS, cache, is_own
from lib.base.provenance import code_hash, data_hash
from lib.benchmarks.base import Benchmark
from lib.data.store import PassageStore
from lib.embed import Encoder, load_encoder
from lib.index_build import build_index, corpus_store, named, only, without
from lib.profiles import Profile
from lib.run import Retriever
from lib.search.bm25 import BM25Index

_KEEPERS = ("lib.limit", "lib.benchmarks", "lib.corpora", "lib.data", "lib.datasets")
"""The modules that decide which passages are kept although there is a limit."""


def store_of(profile: Profile, encoder: Encoder, corpora: Sequence[str] = ()) -> PassageStore:
    """The profile's passages, or those of other ``corpora``; with a limit few (``lib.limit``)."""
    corpora = corpora or profile.corpora
    if not profile.limit:
        return corpus_store(corpora)
    return corpus_store(
        corpora,
        limit.PASSAGES * profile.limit,
        lambda: limit.labelled(profile, encoder),
        questions=[*named(profile.questions), profile.per_set],
        asked=[sha256_of(Path(it)) for it in (*profile.questions, profile.qrels) if is_own(it)],
        benchmarks=list(profile.benchmarks),
        encoder=encoder.fingerprint,
        labels=data_hash([JUDGMENTS.relative_to(DATA).as_posix()]),
        chosen_by=code_hash(_KEEPERS, core=()),
    )


def open_retriever(profile: Profile, encoder: Encoder, corpora: Sequence[str] = ()) -> Retriever:
    """The profile's passages, or those of other ``corpora``, by meaning and by words.

    The BM25 index is built when it is first searched, and kept; so are the passages' vectors by
    another encoder that a request names.
    """
    store = store_of(profile, encoder, corpora)

    def words() -> BM25Index:
        texts = (f"{passage.title} {passage.text}" for passage in store)
        keep = cache("words") / store.content
        return BM25Index.build(texts, store.ids(), keep, store.content)

    def by(encoder: Encoder) -> Retriever:
        if run_files.replaying():
            return Retriever(run_files.TextIndex(store, encoder), encoder, store)
        places = {"backend": profile.backend, "devices": profile.devices, "dtype": profile.vectors}
        return Retriever(build_index(store, encoder, **places), encoder, store)

    return replace(by(encoder), bm25=words, beside=lambda name: by(load_encoder(name)))


def retriever_for(benchmark: Benchmark, profile: Profile, encoder: Encoder) -> Retriever:
    """The passages that the benchmark is searched in, without those that it leaves out.

    A profile whose corpora do not hold the benchmark's passages (MedCorp has no BioASQ snippets),
    or hold passages of your own too, gets a store and an index of the benchmark's own corpora.
    """
    here = set(benchmark.corpora) <= set(profile.corpora) and not any(map(is_own, profile.corpora))
    whole = open_retriever(profile, encoder, () if here else benchmark.corpora)
    return whole.subset(without(only(whole.index, benchmark.corpora), benchmark.excluded_sources))
