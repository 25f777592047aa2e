"""Which of the passages that a profile searches are known to be relevant to its questions."""

from __future__ import annotations

from collections.abc import Mapping

from lib.benchmarks import load_benchmark
from lib.benchmarks.base import Benchmark
from lib.corpora import load_passages
from lib.data.store import PassageStore
from lib.embed import Encoder
from lib.profiles import Profile

Judged = Mapping[str, frozenset[str]]
"""Passage ids by question id."""


def relevance(profile: Profile, encoder: Encoder, store: PassageStore) -> tuple[Judged, Judged]:
    """Passages on the target and on the mimic: ddx-mini's judgments, or BioASQ's gold snippets.

    They name passages of their own corpus. In any other a passage counts when it is of the same
    PubMed document (MedRAG's records have PMIDs), which costs one pass through the store. Where
    there is no such passage nothing is known: a question without judged passages is left out.
    """
    sources = {"ddx-mini": "ddx-mini", "bioasq": "bioasq", "real": "bioasq"}
    for asked, name in sources.items():
        if asked in profile.questions:
            known = load_benchmark(name, encoder)
            if set(known.corpora) <= set(profile.corpora):
                return known.targets, known.mimics
            return _by_document(known, store)
    return {}, {}


def _by_document(known: Benchmark, store: PassageStore) -> tuple[Judged, Judged]:
    """The judgments of a benchmark, carried over to passages of the same PubMed documents."""
    judged = frozenset().union(*known.targets.values(), *known.mimics.values())
    documents = {
        p.pid: p.meta["pmids"]
        for corpus in known.corpora
        for p in load_passages(corpus)
        if p.pid in judged and p.meta.get("pmids")
    }
    searched: dict[str, list[str]] = {pmid: [] for pmids in documents.values() for pmid in pmids}
    if searched:  # else the pass through the store would be for nothing
        for passage in store:
            for pmid in passage.meta.get("pmids", ()):
                if pmid in searched:
                    searched[pmid].append(passage.pid)

    def carried_over(judgments: Judged) -> Judged:
        found = {}
        for qid, pids in judgments.items():
            pmids = {pmid for pid in pids for pmid in documents.get(pid, ())}
            found[qid] = frozenset().union(*(searched[pmid] for pmid in pmids))
        return found

    return carried_over(known.targets), carried_over(known.mimics)
