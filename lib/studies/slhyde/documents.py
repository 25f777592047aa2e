"""The unlabelled corpus that SL-HyDE learns from, and what may not be in it.

The paper draws 10,000 documents from a medical encyclopedia. Here it is MedQuAD, the answers of NIH
institutes to questions on health, without their questions. Two benchmarks of this project are made
of MedQuAD: no passage on a disease of ddx-real or ddx-fresh is read, searched or learnt from.
Source: Li et al., AutoMIR, arXiv:2410.20050, sections 3.3 and 5.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from lib.base.files import sha256_bytes
from lib.benchmarks import ddx_real
from lib.benchmarks.base import Benchmark, name_words
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.embed import HashEncoder

CORPUS = "medquad"

DOCUMENTS = 2000
"""Passages that a question is written for."""

LEAST_WORDS = 40
"""A shorter passage says too little to be asked about."""


@dataclass(frozen=True)
class Tested:
    """The diseases that benchmarks test: their concepts (UMLS CUIs), names and passages.

    A name is the words that ``lib.benchmarks.base.name_words`` makes of it.
    """

    cuis: frozenset[str]
    names: frozenset[tuple[str, ...]]
    pids: frozenset[str]

    def covers(self, passage: Passage) -> bool:
        """Whether a passage is one of theirs, or on one by any concept, title or synonym."""
        meta = passage.meta
        if passage.pid in self.pids or self.cuis & set(meta["cuis"]):
            return True
        titles = (meta["focus"], *meta["synonyms"])
        return any(name_words(title) in self.names for title in titles)


@cache
def tested_diseases() -> Tested:
    """The diseases of ddx-real and ddx-fresh, dev and test, with every mimic: mimics are diseases
    of the same sets."""
    # Which diseases there are does not depend on the encoder, only which is near to which.
    encoder = HashEncoder()
    return tested_in([ddx_real.build(encoder), ddx_real.build_fresh(encoder)])


def tested_in(benchmarks: Iterable[Benchmark]) -> Tested:
    """The diseases of benchmarks whose question ids are CUIs."""
    cuis: set[str] = set()
    names: set[tuple[str, ...]] = set()
    pids: set[str] = set()
    for benchmark in benchmarks:
        cuis.update(benchmark.qids)
        for own in benchmark.names.values():
            names.update(name_words(name) for name in own)
        for found in (benchmark.targets, benchmark.excluded):
            pids.update(*found.values())
    return Tested(frozenset(cuis), frozenset(names - {()}), frozenset(pids))


def unlabelled(
    passages: Iterable[Passage] | None = None, tested: Tested | None = None
) -> list[Passage]:
    """The passages that may be learnt from, in the corpus' order; by default those of MedQuAD.

    This is the corpus D: questions are asked of it, ranks are counted in it, and hard negatives
    come from it.
    """
    tested = tested or tested_diseases()
    passages = load_passages(CORPUS) if passages is None else passages
    return [passage for passage in passages if not tested.covers(passage)]


def check_no_leak(passages: Iterable[Passage], tested: Tested | None = None) -> None:
    """ValueError that names the first passage on a disease that a benchmark tests."""
    tested = tested or tested_diseases()
    for passage in passages:
        if tested.covers(passage):
            title = passage.meta["focus"]
            raise ValueError(f"{passage.pid} ({title}) is on a disease that a benchmark tests")


def sample(passages: Iterable[Passage], n: int = DOCUMENTS) -> list[Passage]:
    """``n`` passages of ``LEAST_WORDS`` or more, at most one of a page, in the order of hashes.

    ValueError where there are fewer such pages.
    """
    pages: dict[tuple[str, str], list[Passage]] = defaultdict(list)
    for passage in passages:
        if len(passage.text.split()) >= LEAST_WORDS:
            pages[passage.meta["subset"], passage.meta["document"]].append(passage)
    if len(pages) < n:
        raise ValueError(f"{len(pages)} pages have a passage of {LEAST_WORDS} words, wanted {n}")
    return sorted((min(own, key=_hash) for own in pages.values()), key=_hash)[:n]


def _hash(passage: Passage) -> str:
    return sha256_bytes(f"selflearn {passage.pid}".encode())
