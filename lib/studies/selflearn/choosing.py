"""Which of several written passages is kept: the one that finds the document it was written from.

Source: Li et al., AutoMIR, arXiv:2410.20050, section 3.3, "Self-Learning Generator".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from lib.search.index import DenseIndex

COPIED = 25
"""Words in a row of the document that make a passage a copy."""

NOT_FOUND = 1000
"""How deep is searched, and the rank of a document that is not found there."""


def mean_vectors(queries: np.ndarray, passages: np.ndarray) -> np.ndarray:
    """Equation 8 with N = 1: the mean of the unit vectors of queries and passages, (n, d).

    It is not brought to length 1 again.
    """
    return (queries + passages) / 2


def source_ranks(
    vectors: np.ndarray, sources: Sequence[str], index: DenseIndex, depth: int = NOT_FOUND
) -> np.ndarray:
    """The rank, from 1, at which each vector (n, d) finds its source document, int (n,).

    ``sources`` are passage ids. A document that is not among the first ``depth`` has rank
    ``depth``. Of passages with one score the smaller id comes first.
    """
    found = index.search(vectors, depth).ids
    hits = found == np.asarray(sources)[:, None]
    return np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, depth)


def best(ranks: Sequence[int]) -> int:
    """Which of several passages has the smallest rank; the first of them on ties."""
    return int(np.argmin(ranks))


def repeats(passage: str, document: str, least: int = COPIED) -> bool:
    """Whether a passage has ``least`` or more words in a row of the document it was written from.

    Case and punctuation do not count.
    """
    return not _runs(passage, least).isdisjoint(_runs(document, least))


def _runs(text: str, length: int) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}
