"""The abstracts nearest to a question: exactly, or by the graph index that the paper searches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

INDEXES = ("exact", "hnsw")
"""``hnsw`` is the paper's: faiss's HNSW with M = 16 and efConstruction = 200."""

_M, _CONSTRUCTION, _SEARCH = 16, 200, 64


def nearest(
    vectors: np.ndarray, queries: np.ndarray, n: int, index: str = "exact", search: int = _SEARCH
) -> np.ndarray:
    """Rows of the ``n`` unit ``vectors`` nearest to each query by cosine, best first: (queries, n).

    Exact search breaks ties by row. ``hnsw`` looks at ``search`` candidates (efSearch, which the
    paper does not state) and may miss some; the graph is built by one thread, so it is the same
    every time. ValueError for another index.
    """
    if index not in INDEXES:
        raise ValueError(f"no index {index!r}; there are: {', '.join(INDEXES)}")
    if index == "exact":
        return np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :n]
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        graph = faiss.IndexHNSWFlat(vectors.shape[1], _M, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = _CONSTRUCTION
        graph.hnsw.efSearch = max(search, n)
        graph.add(np.ascontiguousarray(vectors, dtype=np.float32))
        return graph.search(np.ascontiguousarray(queries, dtype=np.float32), n)[1]
    finally:
        faiss.omp_set_num_threads(threads)


def recall(
    vectors: np.ndarray, queries: np.ndarray, n: int = 10, searches: Sequence[int] = (10, 16, 64)
) -> pd.DataFrame:
    """What ``hnsw`` finds of the exact ``n`` nearest: index, search, recall, worst (of a query)."""
    wanted = nearest(vectors, queries, n)
    rows = [("exact", 0, 1.0, 1.0)]
    for search in searches:
        found = nearest(vectors, queries, n, "hnsw", search)
        shares = [len(set(a) & set(b)) / n for a, b in zip(wanted, found, strict=True)]
        rows.append(("hnsw", search, float(np.mean(shares)), min(shares)))
    return pd.DataFrame(rows, columns=["index", "search", "recall", "worst"])
