"""Searches of one corpus side by side in one run: how many times faster than FlatIP, and how right.

    make bench                         100,000 made passages, a few minutes
    make bench SIZE=1m                 a million, a quarter of an hour
    python -m tools.bench 100k --store PYTHON    also LanceDB, installed for that Python

Vectors are those of ``tools.bench_vectors``; queries the real sample's questions, and h+ - lambda
h-. Times are medians of five rounds, in each of which every search has its turn. Recall is the
share of FlatIP's top 5. Results: ``data/results/scale/bench.csv`` and ``bench_vectors.csv``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write
from lib.base.provenance import read_result, write_result
from lib.search.candidates import multiplies_int8
from lib.search.choose import memory
from lib.search.compressed import CompressedIndex
from lib.search.index import DenseIndex
from tools.bench_vectors import Sample, likeness, made, real_sample, widened

SIZES = {"100k": 100_000, "1m": 1_000_000, "5.8m": 5_800_000}
K, MANY, ROUNDS, SINGLE = 5, 300, 5, 10
SETS = {
    "ordinary": ("", 0.0),
    "own": ("own", 1.0),
    "own_04": ("own", 0.4),
    "near": ("near", 1.0),
    "random": ("random", 1.0),
}
"""The query sets by name: whose mimic, and lambda."""

LARGEST_GRAPH = 100_000
"""Passages up to which IVF and HNSW are built, which prune by the query."""


@dataclass
class Search:
    """One way to search: ``rows(queries)`` gives the top 5 (n, 5)."""

    rows: Callable[[np.ndarray], np.ndarray]
    build_s: float
    bytes_each: float
    open_s: float = float("nan")


def stored(sample: Sample, n: int) -> list[np.ndarray]:
    """The made passages as memory-mapped float16 shards; made once for a size."""
    folder = paths.cache("bench") / str(n)
    done = folder / "done"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for i, block in enumerate(made(sample, n)):
            np.save(folder / f"{i:04d}.npy", block.astype(np.float16))
        atomic_write(done, "")
    for codes in folder.glob("*.pq4*"):  # what an earlier run made: building is timed
        codes.unlink()
    return [np.load(file, mmap_mode="r") for file in sorted(folder.glob("*.npy"))]


def query_sets(sample: Sample) -> dict[str, np.ndarray]:
    """Up to 300 queries (m, 768) of each set."""
    found = {"ordinary": widened(sample.questions)}
    for name, (mimic, lam) in SETS.items():
        if mimic:
            found[name] = sample.shifted(mimic, lam)
    return {name: np.ascontiguousarray(queries[:MANY]) for name, queries in found.items()}


# the searches ------------------------------------------------------------------------------------


def timed(make: Callable[[], object]) -> tuple[object, float]:
    start = time.perf_counter()
    return make(), time.perf_counter() - start


def flat(shards: Sequence[np.ndarray]) -> tuple[object, float]:
    import faiss

    def build() -> object:
        index = faiss.IndexFlatIP(shards[0].shape[1])
        for shard in shards:
            index.add(np.asarray(shard, np.float32))
        return index

    return timed(build)


def in_blocks(index: object) -> Callable[[np.ndarray], np.ndarray]:
    """torch over the vectors of FlatIP: product and top 5 of 65,536 at a time."""
    import faiss
    import torch

    vectors = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
    blocks = torch.from_numpy(vectors.reshape(index.ntotal, index.d)).split(65_536)

    def rows(queries: np.ndarray) -> np.ndarray:
        asked = torch.from_numpy(queries)
        best = [torch.topk(asked @ block.T, K, dim=1) for block in blocks]
        scores = torch.cat([part.values for part in best], dim=1)
        places = torch.cat([part.indices + i * 65_536 for i, part in enumerate(best)], dim=1)
        return torch.gather(places, 1, torch.topk(scores, K, dim=1).indices).numpy()

    return rows


def tuned(
    search: Callable[[int], Callable], queries: np.ndarray, exact: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """``search(setting)`` at the least power of 2 that gives these queries a recall of 0.99."""
    for setting in 2 ** np.arange(3, 12):
        rows = search(int(setting))
        if recall(exact, rows(queries)) >= 0.99:
            break
    return rows


def pruning(shards: Sequence[np.ndarray], queries: np.ndarray, exact: np.ndarray) -> dict:
    """IVF and HNSW, set so that they are right on ordinary queries."""
    import faiss

    vectors = np.concatenate(shards).astype(np.float32)
    dim, cells = vectors.shape[1], int(np.sqrt(len(vectors)))
    ip = faiss.METRIC_INNER_PRODUCT

    def ivf() -> object:
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, cells, ip)
        index.train(vectors[:: max(1, len(vectors) // (50 * cells))])
        index.add(vectors)
        return index

    def hnsw() -> object:
        index = faiss.IndexHNSWFlat(dim, 32, ip)
        index.hnsw.efConstruction = 80
        index.add(vectors)
        return index

    def probing(index: object, setting: int) -> Callable[[np.ndarray], np.ndarray]:
        chosen = faiss.SearchParametersIVF(nprobe=setting)
        return lambda asked: index.search(asked, K, params=chosen)[1]

    def walking(index: object, setting: int) -> Callable[[np.ndarray], np.ndarray]:
        chosen = faiss.SearchParametersHNSW(efSearch=setting)
        return lambda asked: index.search(asked, K, params=chosen)[1]

    found = {}
    for name, make, search, extra in (("IVF", ivf, probing, 8), ("HNSW", hnsw, walking, 282)):
        index, seconds = timed(make)
        rows = tuned(partial(search, index), queries, exact)
        found[name] = Search(rows, seconds, 4 * dim + extra)
    return found


def searches(shards: Sequence[np.ndarray], ordinary: np.ndarray) -> dict[str, Search]:
    """All searches by name, FlatIP first: its rows are the truth."""
    n, dim = sum(map(len, shards)), shards[0].shape[1]
    ids = [f"p{i:08d}" for i in range(n)]
    index, seconds = flat(shards)
    found = {
        "FlatIP": Search(lambda queries: index.search(queries, K)[1], seconds, 4 * dim),
        "torch float32": Search(in_blocks(index), seconds, 4 * dim),
    }
    if multiplies_int8("cpu"):
        int8, seconds = timed(lambda: DenseIndex(shards, ids, backend="int8"))
        found["int8, exact"] = Search(lambda q: int8.search(q, K).rows, seconds, dim + 8)
    _, seconds = timed(lambda: CompressedIndex(shards, ids))
    codes, open_s = timed(lambda: CompressedIndex(shards, ids))
    found["compressed"] = Search(lambda q: codes.search(q, K).rows, seconds, dim / 8, open_s)
    if n <= LARGEST_GRAPH:
        found |= pruning(shards, ordinary, index.search(ordinary, K)[1])
    return found


# measuring ---------------------------------------------------------------------------------------


def recall(exact: np.ndarray, found: np.ndarray) -> float:
    """The mean share of the exact rows that are found."""
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))


def rounds(found: Mapping[str, Search], queries: np.ndarray) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of a search of one query and of all, ``ROUNDS`` times, all searches in turn."""
    times = {name: {"one": [], "many": []} for name in found}
    for number in range(ROUNDS):
        for name, search in found.items():
            one = queries[number * SINGLE : (number + 1) * SINGLE]
            _, seconds = timed(lambda s=search, one=one: [s.rows(query[None]) for query in one])
            times[name]["one"].append(1000 * seconds / len(one))
            _, seconds = timed(lambda s=search: s.rows(queries))
            times[name]["many"].append(1000 * seconds)
    return times


def measured(size: str, found: Mapping[str, Search], sets: Mapping[str, np.ndarray]) -> list[dict]:
    """A row a search: times as fast as FlatIP, recall, milliseconds with their spread, size."""
    for search in found.values():
        search.rows(sets["own"][:8])  # memory is touched, threads are started
    times = rounds(found, sets["own"])
    exact = {name: found["FlatIP"].rows(queries) for name, queries in sets.items()}
    rows = []
    for name, search in found.items():
        row = {"passages": size, "search": name}
        for kind in ("one", "many"):
            ratios = np.divide(times["FlatIP"][kind], times[name][kind])
            row[f"times_flat_{kind}"] = float(np.median(ratios))
        for queries in sets:
            row[f"recall_{queries}"] = recall(exact[queries], search.rows(sets[queries]))
        for kind, taken in times[name].items():
            row |= {f"ms_{kind}": np.median(taken), f"ms_{kind}_least": min(taken)}
            row[f"ms_{kind}_most"] = max(taken)
        row |= {"bytes_each": search.bytes_each, "build_s": search.build_s}
        rows.append(row | {"open_s": search.open_s})
    return rows


def lancedb(
    python: str, shards: Sequence[np.ndarray], sets: Mapping[str, np.ndarray], flat: Mapping
) -> dict:
    """A row of LanceDB as it is without an index, in a process of another Python: it is exact, and
    was timed right after the others, against FlatIP's median."""
    with tempfile.TemporaryDirectory() as folder:
        vectors = np.concatenate(shards).astype(np.float32)
        np.savez(Path(folder) / "in.npz", vectors=vectors, queries=sets["own"][: ROUNDS * SINGLE])
        script = Path(__file__).with_name("bench_store.py")
        command = [python, str(script), folder]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer = json.loads(told.splitlines()[-1])
    row = {"search": "LanceDB, no index", "times_flat_one": flat["ms_one"] / answer["ms_one"]}
    return row | answer


# the tables --------------------------------------------------------------------------------------


def machine() -> str:
    """The processor, cores and memory that were measured."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        model = next((s.split(":")[1].strip() for s in lines if s.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, {memory() / 2**30:.0f} GiB"


def vectors_table(size: str, sample: Sample, shards: Sequence[np.ndarray]) -> pd.DataFrame:
    """Real and made vectors side by side: how alike they are."""
    wide = widened(sample.questions)
    first = np.concatenate(shards[:2])[: len(sample.passages)].astype(np.float32)
    rows = [
        {"vectors": "real, 384"} | likeness(sample.passages, sample.questions),
        {"vectors": "real, widened to 768"} | likeness(widened(sample.passages), wide),
        {"vectors": "made, 768"} | likeness(first, wide),
    ]
    return pd.DataFrame(rows)


def with_others(table: pd.DataFrame, name: str, size: str) -> pd.DataFrame:
    """The table with the committed rows of other sizes."""
    try:
        before, _ = read_result(name, "scale")
    except FileNotFoundError:
        return table
    return pd.concat([before[before["passages"].astype(str) != size], table], ignore_index=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: measures one size, prints and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("size", nargs="?", default="100k", choices=SIZES)
    parser.add_argument("--store", help="a Python that has lancedb")
    asked = parser.parse_args(arguments)
    sample = real_sample()
    shards = stored(sample, SIZES[asked.size])
    sets = query_sets(sample)
    alike = vectors_table(asked.size, sample, shards)
    print(alike.round(3).to_string(index=False), flush=True)
    found = searches(shards, sets["ordinary"])
    rows = measured(asked.size, found, sets)
    if asked.store:
        rows.append({"passages": asked.size} | lancedb(asked.store, shards, sets, rows[0]))
    table = pd.DataFrame(rows)
    print(table.round(3).T.to_string(header=False))
    origin = {"code": ["tools.bench"], "data": [], "machine": machine()}
    write_result(with_others(table, "bench", asked.size), "bench", "scale", **origin)
    write_result(alike, "bench_vectors", "scale", **origin)


if __name__ == "__main__":
    main()
