"""Approximate search of a large corpus: 4-bit codes find candidates, the vectors score them.

A passage is kept in memory as d/8 bytes (96 for 768 numbers), a thirty-second of its float32
vector: every 4 numbers are replaced by the nearest of 16 centroids (product quantisation, Jégou et
al. 2011), and faiss compares 32 passages at a time in registers (André et al. 2015). All codes are
compared with every query: nothing is pruned by the query, so that h+ - lambda h-, which lies
outside the passages' distribution, is found as well as an ordinary query. The candidates are then
scored as ``DenseIndex`` does. What the codes miss, ``CompressedIndex.recall`` measures.
"""

from __future__ import annotations

import copy
import io
import math
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from lib.base.files import (
    canonical_json,
    locked,
    manifest_path,
    read_manifest,
    sha256_bytes,
    write_manifest,
)
from lib.base.parameters import check_count
from lib.search.blocks import as_tensor
from lib.search.index import DenseIndex

CANDIDATES = 1000
"""Passages that are scored for a query, unless it is said otherwise."""

FEW = 10
"""Where at most so many times the candidates can be found, all are scored: that takes as long."""

_TRAINED = 16_384
"""Vectors that the centroids are fitted to, 1,024 for each: spread evenly over the rows."""

_BLOCK = 65_536
"""Rows coded at a time, and kept if the process is killed. faiss packs 32 together."""

_CODED = 60_000
"""Vectors of 768 numbers that a core codes in a second, roughly."""

_PART = 2**18
"""Codes that a core has at least, where a query is compared by several: fewer are not worth it."""

_LISTED = 2**24
"""Candidates in memory at a time, over all queries."""


class CompressedIndex(DenseIndex):
    """``DenseIndex`` but for ``search``, which is approximate: the best among ``candidates``.

    Scores, and the order of what is found, are exact. Codes of memory-mapped shards are made once
    and kept beside them; those of other arrays in memory alone. Where at most ``FEW`` times the
    candidates can be found, as in a subset, search is exact. ValueError unless vectors have a
    multiple of 4 numbers.
    """

    def __init__(
        self, shards: Sequence[np.ndarray], ids: Sequence[str], *, candidates: int = CANDIDATES
    ):
        super().__init__(shards, ids)
        self.backend = "compressed"
        self.candidates = check_count("candidates", candidates, 1)
        if self.dim % 4:
            raise ValueError(
                f"vectors of {self.dim} numbers: codes need a multiple of 4. "
                'Next: backend = "torch" in the profile'
            )
        file = _beside(shards)
        if file is None:
            codes = io.BytesIO()
            self._write(codes)
            self._scans = self._read(codes)
        else:
            self._make(file)
            with open(file, "rb") as stream:
                self._scans = self._read(stream)

    @property
    def approximate(self) -> bool:
        """Whether more passages can be found than are all scored."""
        return len(self) > FEW * self.candidates

    def recall(self, queries: np.ndarray, k: int) -> float:
        """The mean share of the exact top k that ``search`` finds, for these queries (n, d).

        Ask with queries as you will search: those that are shifted are harder than others.
        """
        pairs = zip(self.exact().search(queries, k).rows, self.search(queries, k).rows, strict=True)
        return float(np.mean([np.isin(exact, found).mean() for exact, found in pairs]))

    def exact(self) -> Self:
        """The same passages, searched in their vectors: every one is a candidate."""
        everything = copy.copy(self)
        everything.candidates = len(self.ids)
        return everything

    # searching -----------------------------------------------------------------------------------

    def longlist(self, queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """As of ``DenseIndex``, but the best float32 scores of what the codes propose."""
        wanted = max(self.candidates, depth)
        if len(self) <= FEW * wanted:
            return super().longlist(queries, depth)
        rows = np.empty((len(queries), depth), dtype=np.int64)
        worst_score = np.empty(len(queries), dtype=np.float32)
        for i, proposed in enumerate(self._proposed(queries, wanted)):
            scores = self._products(proposed, queries[i])
            best = np.argpartition(-scores, depth - 1)[:depth]
            rows[i], worst_score[i] = proposed[best], scores[best].min()
        return rows, worst_score

    def _products(self, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
        """float32 products (m,) of a query with rows in ascending order, copied as they are stored
        and multiplied by torch: a fifth of the time of numpy's conversion and product."""
        import torch

        cuts = np.searchsorted(rows, self._starts)
        stored = [
            shard.take(rows[first:last] - start, axis=0)
            for shard, start, (first, last) in zip(
                self._shards, self._starts, pairwise(cuts), strict=False
            )
            if first < last
        ]
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # others would wait for more, busily, and slow the next comparison
        try:
            vectors = torch.from_numpy(np.concatenate(stored)).float()
            return vectors.mv(torch.from_numpy(query)).numpy()
        finally:
            torch.set_num_threads(threads)

    def _proposed(self, queries: np.ndarray, wanted: int) -> Iterator[np.ndarray]:
        """Of each query the ``wanted`` rows that are best by their codes and can be found."""
        depth = math.ceil(wanted * len(self.kept) / len(self))
        some = max(1, _LISTED // (depth * len(self._scans)))
        for start in range(0, len(queries), some):
            listed = self._listed(queries[start : start + some], depth)
            for query, rows in zip(queries[start : start + some], listed, strict=True):
                deeper = depth
                while (kept := rows[self.kept[rows]]).size < wanted:
                    deeper = min(2 * deeper, len(self.kept))
                    rows = self._listed(query[None], deeper)[0]
                yield np.sort(kept[:wanted])  # in the order in which they lie in memory

    def _listed(self, queries: np.ndarray, depth: int) -> np.ndarray:
        """The rows (n, depth) whose codes are best, best first.

        faiss gives a query to one core. So where queries are few, each core has its part of the
        codes; else one part follows the other.
        """
        import faiss

        def search(start: int) -> tuple[np.ndarray, np.ndarray]:
            scan = self._scans[start]
            scores, rows = scan.search(queries, min(depth, scan.ntotal))
            return scores, rows + start

        if len(queries) < len(self._scans):
            # A thread of faiss for each of ours.
            pool = ThreadPoolExecutor(
                len(self._scans), initializer=faiss.omp_set_num_threads, initargs=(1,)
            )
            with pool:
                found = list(pool.map(search, self._scans))
        else:
            found = [search(start) for start in self._scans]
        if len(found) == 1:
            return found[0][1]
        scores, rows = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
        order = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        return np.take_along_axis(rows, order, axis=1)

    # codes ---------------------------------------------------------------------------------------

    @property
    def _bytes(self) -> int:
        """Of one passage's codes: two groups of 4 numbers a byte."""
        return math.ceil(self.dim / 8)

    def _empty_scan(self) -> Any:
        """What compares codes, without centroids or passages."""
        import faiss

        scan = faiss.IndexPQFastScan(self.dim, self.dim // 4, 4, faiss.METRIC_INNER_PRODUCT)
        scan.pq.cp.max_points_per_centroid = _TRAINED // 16
        scan.pq.cp.min_points_per_centroid = 1
        return scan

    def _make(self, file: Path) -> None:
        """Make the file of codes, unless it is there and sound; a killed run's blocks are kept."""
        with locked(file):
            if read_manifest(file, verify=False) is not None:
                return
            part = file.with_name(f"{file.name}.part")
            with open(part, "r+b" if part.exists() else "w+b") as stream:
                self._write(stream)
            manifest_path(file).unlink(missing_ok=True)
            os.replace(part, file)
            settings = {"dim": self.dim, "bits": 4}
            write_manifest(file, rows=len(self.ids), settings=settings)

    def _write(self, stream: io.BufferedIOBase) -> None:
        """Centroids, float32, and then the codes as faiss packs them, block by block.

        What of it stands in the stream already is kept: whole blocks only.
        """
        import faiss
        from tqdm.auto import tqdm

        rows, head = len(self.ids), 64 * self.dim
        whole_block = _BLOCK * self._bytes
        done = (stream.seek(0, os.SEEK_END) - head) // whole_block
        if done < 0:
            stream.seek(0)
            stream.write(self._centroids().tobytes())
            done = 0
        scan = self._scan_with(stream)
        stream.truncate(stream.seek(head + done * whole_block))
        mute = rows <= _BLOCK
        if not mute:
            print(self._plan(done * _BLOCK), file=sys.stderr, flush=True)
        starts = range(done * _BLOCK, rows, _BLOCK)
        for start in tqdm(starts, desc="codes", unit="block", disable=mute):
            scan.reset()
            scan.add(self._rows(start, min(start + _BLOCK, rows)))
            stream.write(faiss.rev_swig_ptr(scan.codes.get(), scan.codes.size()).tobytes())
            stream.flush()

    def _rows(self, start: int, stop: int) -> np.ndarray:
        """The stored vectors from one row to another, float32: converted by all threads."""
        import torch

        parts = [
            as_tensor(shard[max(0, start - first) : stop - first])
            for shard, first in zip(self._shards, self._starts, strict=False)
            if first < stop and start < first + len(shard)
        ]
        return torch.cat(parts).float().numpy()

    def _plan(self, done: int) -> str:
        rows, size = len(self.ids), len(self.ids) * self._bytes / 1e9
        again = f", {done:,} of them kept from before" if done else ""
        seconds = math.ceil((rows - done) / _CODED / (os.cpu_count() or 1))
        return (
            f"codes of {rows:,} passages{again}: {size:.2f} GB, about {seconds:,} s; "
            f"approximate search, {self.candidates:,} candidates scored"
        )

    def _centroids(self) -> np.ndarray:
        """The centroids, float32 (16 d,), fitted to vectors that are spread over the rows."""
        import faiss

        rows = np.linspace(0, len(self.ids) - 1, max(16, min(len(self.ids), _TRAINED)))
        scan = self._empty_scan()
        scan.train(self.vectors(rows.astype(np.int64)))
        return faiss.vector_to_array(scan.pq.centroids)

    def _scan_with(self, stream: io.BufferedIOBase) -> Any:
        """``_empty_scan`` with the centroids of the stream, which is then at the first code."""
        import faiss

        scan = self._empty_scan()
        stream.seek(0)
        faiss.copy_array_to_vector(
            np.frombuffer(stream.read(64 * self.dim), np.float32), scan.pq.centroids
        )
        scan.is_trained = True
        return scan

    def _read(self, stream: io.BufferedIOBase) -> dict[int, Any]:
        """All codes, read once to where faiss compares them: in a part for each core, by the row
        that it starts at."""
        import faiss

        rows = len(self.ids)
        cores = faiss.omp_get_max_threads()
        size = max(_PART, math.ceil(rows / cores / 32) * 32)  # faiss packs 32 together
        scans = {}
        for start in range(0, rows, size):
            count = min(size, rows - start)
            scans[start] = scan = self._scan_with(stream)
            scan.codes.resize(math.ceil(count / 32) * 32 * self._bytes)
            stream.seek(64 * self.dim + start * self._bytes)
            stream.readinto(faiss.rev_swig_ptr(scan.codes.get(), scan.codes.size()))
            scan.ntotal = scan.ntotal2 = count
        return scans


def _beside(shards: Sequence[np.ndarray]) -> Path | None:
    """Where codes of memory-mapped shards are kept: named by what the shards' manifests say that
    they hold; without one by name, size, time of change and first and last vector. None unless all
    are memory-mapped."""
    files = [Path(shard.filename) for shard in shards if isinstance(shard, np.memmap)]
    if len(files) < len(shards):
        return None
    import faiss

    behind: list = [faiss.__version__]
    for file, shard in zip(files, shards, strict=True):
        manifest = read_manifest(file, verify=False)
        if manifest is not None:  # a copy has other times, and the same vectors
            behind.append(manifest["sha256"])
            continue
        ends = sha256_bytes(shard[:1].tobytes() + shard[-1:].tobytes())
        behind.append([file.name, file.stat().st_mtime_ns, len(shard), ends])
    digest = sha256_bytes(canonical_json(behind).encode())
    return files[0].parent / f"{digest}.pq4"
