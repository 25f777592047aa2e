"""Who is a near or a middling mimic of whom, by the cosine of unit vectors."""

from __future__ import annotations

import numpy as np


def neighbour_ranks(vectors: np.ndarray) -> np.ndarray:
    """The 50 (or all, if fewer) nearest other rows of each row, nearest first, ties by row.

    Cosines are rounded to 1e-5 first, so that processors agree on ties.
    """
    similarity = np.round(vectors @ vectors.T, 5)
    np.fill_diagonal(similarity, -2)  # below every cosine: no row is its own neighbour
    order = np.argsort(-similarity, axis=1, kind="stable")
    return order[:, : min(50, len(vectors) - 1)]


def pick(ranks: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """For each row the number of one other row: its "nearest", and a "middle" one.

    The middle one is drawn from its neighbours of ranks 10 to 49. ``ranks`` is what
    ``neighbour_ranks`` gives.
    """
    n, depth = ranks.shape
    generator = np.random.default_rng(seed)
    # Columns 9 to 48 are ranks 10 to 49; with fewer rows, what there is of them.
    first = min(9, depth - 1)
    end = min(49, depth)
    drawn = generator.integers(first, end, size=n)
    return {"nearest": ranks[:, 0], "middle": ranks[np.arange(n), drawn]}
