"""Other spaces to contrast in: centred, whitened by the corpus, and the LDA direction.

Encoders put all texts of a field into a narrow cone: their vectors share a mean and a few strong
directions, and cosines are high whatever the texts say. Taking the mean away (centring) and
evening out the directions (whitening) leaves what tells passages apart. Mean and covariance are
those of the corpus; no question or hypothesis is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lib.search.candidates import BACKENDS
from lib.search.contrast import TINY
from lib.search.index import DenseIndex, refuse_approximate

BLOCK = 16_384
"""Vectors read and moved at a time, so that float64 copies stay small."""


@dataclass(frozen=True)
class Moments:
    """``mean`` (d,) and ``covariance`` (d, d, divided by n) of ``n`` passage vectors, float64."""

    mean: np.ndarray
    covariance: np.ndarray
    n: int


@dataclass(frozen=True)
class Space:
    """A linear change of space: ``mean`` (d,) is taken away, ``matrix`` (d, d) applied."""

    mean: np.ndarray
    matrix: np.ndarray

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """x -> unit((x - mean) @ matrix) for every row of (n, d), as float32.

        Raises ValueError for a row that is not finite or is the mean: it has no direction here.
        """
        shifted = np.asarray(vectors, dtype=np.float64) - self.mean
        moved = shifted @ self.matrix
        length = np.linalg.norm(moved, axis=-1)
        # Stored vectors are known to about 1e-7: what is nearer to the mean is rounding.
        away_from_mean = np.linalg.norm(shifted, axis=-1) > 1e-6
        has_direction = away_from_mean & np.isfinite(length) & (length > 0)
        if not has_direction.all():
            row = np.flatnonzero(~has_direction)[0]
            raise ValueError(
                f"vector row {row} is not finite or equals the corpus mean:"
                " it has no direction in this space"
            )
        return (moved / length[..., None]).astype(np.float32)


def moments(index: DenseIndex) -> Moments:
    """Mean and covariance of the passages that can be found, in one pass, block by block."""
    rows = np.flatnonzero(index.kept)
    total = np.zeros(index.dim)
    products = np.zeros((index.dim, index.dim))
    for block in np.split(rows, range(BLOCK, len(rows), BLOCK)):
        vectors = index.vectors(block).astype(np.float64)
        total += vectors.sum(axis=0)
        products += vectors.T @ vectors
    mean = total / len(rows)
    covariance = products / len(rows) - np.outer(mean, mean)
    return Moments(mean, covariance, len(rows))


def centred(of: Moments) -> Space:
    """The space without the corpus mean: x -> unit(x - mean)."""
    return Space(of.mean, np.eye(len(of.mean)))


def whitened(of: Moments, rho: float) -> Space:
    """Whitening by the corpus covariance, shrunk by ``rho`` in (0, 1].

    x -> unit((x - mean) A) with A symmetric (ZCA) and A A' = Sigma_rho^-1, where Sigma_rho =
    (1 - rho) Sigma + rho tr(Sigma) / d I (Ledoit & Wolf 2004 shrink to the same target). With rho
    = 1 only the mean is taken away; a small rho evens out even directions of noise. Raises
    ValueError for another rho or a singular Sigma_rho.
    """
    values, directions = np.linalg.eigh(_shrunk(of, rho))
    return Space(of.mean, (directions / np.sqrt(values)) @ directions.T)


def transformed(index: DenseIndex, space: Space) -> DenseIndex:
    """The same passages, ids and subset, with vectors moved to the space: a search there is exact.

    Queries are to be moved by ``space.apply`` before they are combined. One float32 copy of all
    vectors is held in memory (n x d x 4 bytes), in as many shards as the index has devices.
    ValueError for an approximate index, whose corpora are too large for that.
    """
    refuse_approximate(index, "another space is a copy of every vector")
    n = len(index.kept)
    vectors = np.empty((n, index.dim), dtype=np.float32)
    for start in range(0, n, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n))
        vectors[rows] = space.apply(index.vectors(rows))
    shards = np.array_split(vectors, min(n, len(index.devices)))
    backend = index.backend if index.backend in BACKENDS else "faiss"  # few, of a compressed one
    moved = DenseIndex(shards, index.ids, backend=backend, devices=index.devices)
    return moved.subset(index.kept)


def lda_query(
    h_plus: np.ndarray,
    h_minus_mean: np.ndarray,
    of: Moments,
    rho: float,
    beta: float | np.ndarray,
) -> np.ndarray:
    """h+ + beta unit(Sigma_rho^-1 (h+ - mean h-)), shape (n, d), float32: LDA contrast.

    Fisher's discriminant: the direction that best parts target from mimics when both scatter as the
    corpus does. ``h_minus_mean`` (n, d) is the mean of each question's mimics; ``beta`` is a number
    or one per question; Sigma_rho as in ``whitened``. Where h+ is its mimics' mean there is no such
    direction, and unless beta is 0 the query is zero, which ``is_degenerate`` finds.
    """
    beta = np.reshape(np.asarray(beta, dtype=np.float64), (-1, 1))
    difference = np.asarray(h_plus, dtype=np.float64) - h_minus_mean
    no_direction = np.linalg.norm(difference, axis=1, keepdims=True) < TINY
    # Ones stand in where there is no direction, so that nothing is divided by zero.
    difference = np.where(no_direction, 1.0, difference)
    direction = np.linalg.solve(_shrunk(of, rho), difference.T).T
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    query = h_plus + beta * direction
    return np.where(no_direction & (beta != 0), 0.0, query).astype(np.float32)


def _shrunk(of: Moments, rho: float) -> np.ndarray:
    """Sigma_rho = (1 - rho) Sigma + rho tr(Sigma) / d I, or a ValueError where it is singular."""
    if not 0 < rho <= 1:
        raise ValueError(f"rho is a share in (0, 1], not {rho}")
    d = len(of.mean)
    scale = np.trace(of.covariance) / d
    shrunk = (1 - rho) * of.covariance + rho * scale * np.eye(d)
    values = np.linalg.eigvalsh(shrunk)
    # 1e-14: a passage's squared length is 1, so less scatter than this is rounding.
    if scale <= 1e-14 or values[0] <= 1e-12 * values[-1]:
        raise ValueError(
            f"the covariance of {of.n} passages, shrunk by rho = {rho}, is singular:"
            " use more passages or a larger rho"
        )
    return shrunk
