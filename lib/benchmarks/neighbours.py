"""Who is a near, middle or random mimic of whom, by the cosine of unit vectors."""

from __future__ import annotations

import numpy as np

__all__ = ["DISTANCES", "neighbour_ranks", "pick"]

DISTANCES = ("nearest", "middle", "random")


def neighbour_ranks(vectors: np.ndarray, depth: int) -> np.ndarray:
    """The ``depth`` nearest other rows of each row, nearest first, ties by row: shape (n, depth),
    or (n, n - 1) when there are fewer others.

    Cosines are rounded to 1e-5 first, so that processors agree on ties.
    """
    similarity = np.round(vectors @ vectors.T, 5)
    np.fill_diagonal(similarity, -2)
    order = np.argsort(-similarity, axis=1, kind="stable")
    return order[:, : min(depth, len(vectors) - 1)]


def pick(ranks: np.ndarray, n: int, distance: str, seed: int = 0) -> np.ndarray:
    """One other row for each row, shape (n,): the nearest, one of ranks 10 to 49, or any other.

    ``ranks`` is ``neighbour_ranks(..., depth >= 50)``; draws are seeded.
    """
    rng = np.random.default_rng(seed)
    if distance == "nearest":
        return ranks[:, 0]
    if distance == "middle":
        low, high = min(9, ranks.shape[1] - 1), min(49, ranks.shape[1])
        return ranks[np.arange(n), rng.integers(low, high, size=n)]
    if distance == "random":
        return (np.arange(n) + rng.integers(1, n, size=n)) % n
    raise ValueError(f"no distance {distance!r}; there are: {', '.join(DISTANCES)}")
