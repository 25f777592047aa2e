"""Vectors that resemble text, as many as are asked for, and shifted queries of the real sample.

A made passage is ``unit(0.8 p_i + 0.4 p_j + 0.3 (p_a - p_b))``: p_i a passage of the open corpus
as MiniLM encodes it, p_j one of its 30 nearest, p_a and p_b any two. So it has neighbours as a
text has, and no two are alike. The 384 numbers x of a passage, hypothesis or question become 768
as ``unit([0.8 x, 0.6 unit(tanh(2 W x))])``, W a fixed Gaussian matrix: what a second encoder adds,
without one. ``likeness`` says how well it comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NEIGHBOURS = 30
BLOCK = 65_536
NARROW, WIDE = 384, 768


def widened(rows: np.ndarray) -> np.ndarray:
    """Vectors (n, 384) as (n, 768), float32: see above."""
    import torch

    return _widened(torch.from_numpy(rows)).numpy()


def _widened(rows: Any) -> Any:
    import torch

    matrix = np.random.default_rng(1).normal(size=(NARROW, NARROW)).astype(np.float32)
    second = _unit(torch.tanh(2 * rows @ torch.from_numpy(matrix).to(rows.device)))
    return _unit(torch.cat([0.8 * rows, 0.6 * second], dim=1))


def _unit(rows: Any) -> Any:
    return rows / rows.norm(dim=1, keepdim=True)


@dataclass(frozen=True)
class Sample:
    """What is real: ``passages`` (n, 384); ``questions``, ``plus`` (H+) and ``minus`` (H-)
    (m, 384) of the same m questions, by MiniLM."""

    passages: np.ndarray
    questions: np.ndarray
    plus: np.ndarray
    minus: np.ndarray

    def neighbours(self) -> np.ndarray:
        """Rows (n, 30) of each passage's nearest others."""
        import faiss

        _, near = faiss.knn(
            self.passages, self.passages, NEIGHBOURS + 1, metric=faiss.METRIC_INNER_PRODUCT
        )
        return near[:, 1:]

    def shifted(self, mimic: str, lam: float) -> np.ndarray:
        """h+ - lam h- (m', 768) of ``pairs``; those without a direction are left out."""
        plus, minus = self.pairs(mimic)
        queries = plus - np.float32(lam) * minus
        return queries[np.linalg.norm(queries, axis=1) > 1e-3]

    def pairs(self, mimic: str) -> tuple[np.ndarray, np.ndarray]:
        """h+ and h-, both (m, 768): the question's ``own`` mimic, one of the 10th to 49th
        ``near``est of other questions, or a ``random`` one of them."""
        generator = np.random.default_rng(2)
        cosines = self.plus @ self.minus.T
        np.fill_diagonal(cosines, 2)  # first in the order: its own
        order = np.argsort(-cosines, axis=1)
        first, last = {"own": (0, 1), "near": (10, 50), "random": (1, len(order))}[mimic]
        places = generator.integers(first, last, len(order))
        chosen = np.take_along_axis(order, places[:, None], axis=1)[:, 0]
        return widened(self.plus), widened(self.minus[chosen])


def real_sample() -> Sample:
    """The open corpus and the recorded hypotheses of the real sample, encoded or from the cache."""
    from lib.datasets import in_full, load_real
    from lib.embed import load_encoder
    from lib.open_retriever import open_retriever
    from lib.profiles import load_profile
    from lib.search.vectors import encode_small
    from lib.studies.real.expansions import KINDS
    from lib.studies.travel import recorded_pairs

    profile = load_profile("open")
    encoder = load_encoder(profile.encoder)
    index = open_retriever(profile, encoder).index
    asked = in_full(load_real("test"))
    pairs = recorded_pairs(asked, KINDS["hypotheses"].method, "real-hypotheses.jsonl.gz")

    def encoded(role: str) -> np.ndarray:
        texts = [pairs[question.qid].of(role)[0].text for question in asked]
        return encode_small(texts, encoder, "article")

    questions = encode_small([question.text for question in asked], encoder, "query")
    passages = index.vectors(np.arange(len(index)))
    return Sample(passages, questions, encoded("target"), encoded("mimic"))


def saved(file: Path) -> Sample:
    """``real_sample``, kept in a file (.npz) as float16, so that another machine can read it."""
    if not file.exists():
        halves = {name: rows.astype(np.float16) for name, rows in vars(real_sample()).items()}
        np.savez(file, **halves)
    with np.load(file) as kept:
        return Sample(**{name: kept[name].astype(np.float32) for name in kept})


def made(sample: Sample, n: int, device: str = "cpu", wide: bool = True) -> Iterator[np.ndarray]:
    """n made passages in blocks of float16 (65,536, 768), the same for any n as far as they go;
    not ``wide``: (65,536, 384)."""
    import torch

    near = torch.from_numpy(sample.neighbours()).to(device)
    real = torch.from_numpy(sample.passages).to(device)
    for number, start in enumerate(range(0, n, BLOCK)):
        generator = np.random.default_rng([3, number])
        drawn = generator.integers([NEIGHBOURS, len(real), len(real)], size=(BLOCK, 3))
        which, a, b = torch.from_numpy(drawn.T).to(device)
        parent = (start + torch.arange(BLOCK, device=device)) % len(real)
        other = near[parent, which]
        mixed = _unit(0.8 * real[parent] + 0.4 * real[other] + 0.3 * (real[a] - real[b]))
        rows = _widened(mixed) if wide else mixed
        yield rows[: n - start].half().cpu().numpy()


def likeness(rows: np.ndarray, questions: np.ndarray) -> dict[str, float]:
    """How text-like (n, d) are: the median cosine with the nearest other, that of a question with
    its best, and the participation ratio of their covariance."""
    import faiss

    probes = rows[:: max(1, len(rows) // 1000)]
    nearest, _ = faiss.knn(probes, rows, 2, metric=faiss.METRIC_INNER_PRODUCT)
    best, _ = faiss.knn(questions, rows, 1, metric=faiss.METRIC_INNER_PRODUCT)
    spread = np.linalg.eigvalsh(np.cov(rows[:20_000].T))
    return {
        "nearest_cosine": float(np.median(nearest[:, 1])),
        "question_cosine": float(np.median(best)),
        "participation": float(spread.sum() ** 2 / (spread**2).sum()),
    }
