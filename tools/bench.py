"""Searches of one corpus side by side in one run: how many times faster than FlatIP, and how right.

    make bench                         100,000 made passages, a few minutes
    make bench SIZE=1m                 a million, a quarter of an hour
    make bench SIZE=5.8m DEVICE=cuda:0       searches on a card too
    python -m tools.bench 100k --store PYTHON    also LanceDB, installed for that Python

Vectors are those of ``tools.bench_vectors``; queries the real sample's questions, and h+ - lambda
h-. Times are medians of five rounds, in each of which every search has its turn; what needs a card
for itself has its rounds alone. Recall is the share of the exact top 5. Results:
``data/results/scale/bench.csv`` and ``bench_vectors.csv``, a row a machine, size and search.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write
from lib.base.provenance import read_result, write_result
from lib.llm.engines import free_card
from lib.search.candidates import multiplies_int8
from lib.search.choose import memory
from lib.search.compressed import CANDIDATES, FEW, CompressedIndex
from lib.search.ids import Ids
from lib.search.index import DenseIndex
from tools.bench_vectors import Sample, likeness, made, real_sample, saved, widened

SIZES = {
    "10k": 10_000,
    "100k": 100_000,
    "1m": 1_000_000,
    "5.8m": 5_800_000,
    "54.2m": 54_200_000,
}
"""Passages: the last two are the papers' subset and MedCorp."""

K, MANY, ROUNDS, SINGLE = 5, 300, 5, 10
SETS = {
    "ordinary": ("", 0.0),
    "own": ("own", 1.0),
    "own_04": ("own", 0.4),
    "near": ("near", 1.0),
    "random": ("random", 1.0),
}
"""The query sets by name: whose mimic, and lambda."""

ENOUGH_S, LONG_S = 1.0, 20.0
"""Seconds after which single searches of a round, and rounds of many, are enough."""

FEWER = 100
"""Queries of a set whose recall is measured where memory has no room for FlatIP."""

LARGEST_GRAPH = 100_000
"""Passages up to which IVF and HNSW are built, which prune by the query."""

LARGEST_EXACT = 5_800_000
"""Passages up to which a processor is asked for exact searches."""


@dataclass
class Search:
    """One way to search: ``rows(queries)`` gives the top 5 (n, 5)."""

    rows: Callable[[np.ndarray], np.ndarray]
    build_s: float
    bytes_each: float
    open_s: float = float("nan")


def stored(sample: Sample, n: int, device: str, in_memory: bool) -> list[np.ndarray]:
    """The made passages as float16 shards: memory-mapped, made once for a size, or in memory."""
    if in_memory:
        return list(made(sample, n, device))
    folder = paths.cache("bench") / str(n)
    done = folder / "done"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for i, block in enumerate(made(sample, n, device)):
            np.save(folder / f"{i:04d}.npy", block)
        atomic_write(done, "")
    for codes in folder.glob("*.pq4*"):  # what an earlier run made: building is timed
        codes.unlink()
    return [np.load(file, mmap_mode="r") for file in sorted(folder.glob("*.npy"))]


def numbered(n: int) -> Ids:
    """The ids 00000000, 00000001, ... of n passages, which are in order already."""
    rows = np.arange(n)
    digits = np.stack([rows // 10**place % 10 for place in range(7, -1, -1)], axis=1)
    return Ids((digits + ord("0")).astype(np.uint8).view("S8")[:, 0], rows, rows)


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


def on_processor(shards: Sequence[np.ndarray], ordinary: np.ndarray) -> dict[str, Search]:
    """The searches of a processor by name, FlatIP first where half of the memory holds it: else
    the exact search that reads the vectors where they are, up to a tenth of MedCorp."""
    n, dim = sum(map(len, shards)), shards[0].shape[1]
    ids = numbered(n)
    found = {}
    index = None
    if 4 * dim * n <= memory() / 2:
        index, seconds = flat(shards)
        found["FlatIP"] = Search(lambda queries: index.search(queries, K)[1], seconds, 4 * dim)
        found["torch float32"] = Search(in_blocks(index), seconds, 4 * dim)
    elif n <= LARGEST_EXACT and not multiplies_int8("cpu"):
        found["torch, from files"] = dense(shards, ids, 0, "torch")
    if multiplies_int8("cpu") and n <= LARGEST_EXACT:
        found["int8, exact"] = dense(shards, ids, dim + 8, "int8")
    if n > FEW * CANDIDATES:  # of fewer, codes score every passage
        codes, seconds = timed(lambda: CompressedIndex(shards, ids))
        open_s = float("nan")
        if isinstance(shards[0], np.memmap):  # codes are kept beside their vectors
            codes, open_s = timed(lambda: CompressedIndex(shards, ids))
        found["compressed"] = Search(lambda q: codes.search(q, K).rows, seconds, dim / 8, open_s)
    if index and n <= LARGEST_GRAPH:
        found |= pruning(shards, ordinary, index.search(ordinary, K)[1])
    return found


def dense(shards: Sequence[np.ndarray], ids: Ids, bytes_each: float, *where: str) -> Search:
    """An exact search by a backend, on a device if one is named."""
    backend, *devices = where
    index, seconds = timed(lambda: DenseIndex(shards, ids, backend=backend, devices=devices))
    return Search(lambda queries: index.search(queries, K).rows, seconds, bytes_each)


def on_card(shards: Sequence[np.ndarray], device: str) -> Iterator[dict[str, Search]]:
    """The exact searches of a card, each alone with its memory."""
    dim = shards[0].shape[1]
    ids = numbered(sum(map(len, shards)))
    yield {"int8 on the card, exact": dense(shards, ids, dim + 8, "int8", device)}
    free_card()
    yield {"float16 on the card, exact": dense(shards, ids, 2 * dim, "torch", device)}


# measuring ---------------------------------------------------------------------------------------


def recall(exact: np.ndarray, found: np.ndarray) -> float:
    """The mean share of the exact rows that are found."""
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))


@dataclass
class Truth:
    """The exact rows of every query set, and the milliseconds of FlatIP where it was searched."""

    rows: dict[str, np.ndarray]
    ms: dict[str, list[float]]


def alone(search: Search, queries: np.ndarray) -> float:
    """Seconds of a search of one query, the mean over these or as many as take ``ENOUGH_S``."""
    taken: list[float] = []
    for query in queries:
        _, seconds = timed(partial(search.rows, query[None]))
        taken.append(seconds)
        if sum(taken) > ENOUGH_S:
            break
    return float(np.mean(taken))


def rounds(found: Mapping[str, Search], queries: np.ndarray) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of a search of one query and of all, ``ROUNDS`` times or for ``LONG_S``, all
    searches in turn."""
    times = {name: {"one": [], "many": []} for name in found}
    for number in range(ROUNDS):
        for name, search in found.items():
            one = queries[number * SINGLE : (number + 1) * SINGLE]
            times[name]["one"].append(1000 * alone(search, one))
            if sum(times[name]["many"]) > 1000 * LONG_S:
                continue
            _, seconds = timed(partial(search.rows, queries))
            times[name]["many"].append(1000 * seconds)
    return times


def measured(
    found: Mapping[str, Search], sets: Mapping[str, np.ndarray], truth: Truth | None
) -> tuple[list[dict], Truth]:
    """A row a search: times as fast as FlatIP, recall, milliseconds with their spread, size. The
    first search is the truth, if none is given."""
    for search in found.values():
        search.rows(sets["own"][:8])  # memory is touched, threads are started
        search.rows(sets["own"][:1])
    times = rounds(found, sets["own"])
    if truth is None:
        first = next(iter(found))
        most = MANY if "FlatIP" in found else FEWER
        exact = {name: found[first].rows(queries[:most]) for name, queries in sets.items()}
        unknown = {"one": [float("nan")] * ROUNDS, "many": [float("nan")] * ROUNDS}
        truth = Truth(exact, times.get("FlatIP", unknown))
    rows = []
    for name, search in found.items():
        row = {"search": name}
        for kind, taken in times[name].items():
            pairs = zip(truth.ms[kind], taken, strict=False)
            row[f"times_flat_{kind}"] = float(np.median([flat / own for flat, own in pairs]))
        for queries in sets:
            exact = truth.rows[queries]
            row[f"recall_{queries}"] = recall(exact, search.rows(sets[queries][: len(exact)]))
        for kind, taken in times[name].items():
            row |= {f"ms_{kind}": np.median(taken), f"ms_{kind}_least": min(taken)}
            row[f"ms_{kind}_most"] = max(taken)
        row |= {"bytes_each": search.bytes_each, "build_s": search.build_s}
        rows.append(row | {"open_s": search.open_s})
    return rows, truth


def all_measured(
    shards: Sequence[np.ndarray], sets: Mapping[str, np.ndarray], device: str
) -> Iterator[dict]:
    """The rows of the processor's searches, and of a card's unless ``device`` is the processor.
    What a processor cannot search exactly, the card does first."""
    truth = None
    groups = on_card(shards, device) if device != "cpu" else iter(())
    if sum(map(len, shards)) > LARGEST_EXACT:
        for found in groups:
            rows, truth = measured(found, sets, truth)
            del found
            yield from rows
    rows, truth = measured(on_processor(shards, sets["ordinary"]), sets, truth)
    yield from rows
    for found in groups:
        rows, _ = measured(found, sets, truth)
        del found
        yield from rows


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


def machine(device: str) -> str:
    """The processor, cores, memory and card that were measured."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        model = next((s.split(":")[1].strip() for s in lines if s.startswith("model name")), model)
    found = f"{model}, {os.cpu_count()} cores, {memory() / 2**30:.0f} GiB"
    if device == "cpu":
        return found
    import torch

    return f"{found}, {torch.cuda.get_device_name(device)}"


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


def with_others(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The table with the rows of other sizes and machines that are on file."""
    try:
        before, _ = read_result(name, "scale")
    except FileNotFoundError:
        return table
    keys = ["machine", "passages"]
    here = pd.MultiIndex.from_frame(before[keys]).isin(pd.MultiIndex.from_frame(table[keys]))
    return pd.concat([before[~here], table], ignore_index=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: measures one size, prints and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("size", nargs="?", default="100k", choices=SIZES)
    parser.add_argument("--store", help="a Python that has lancedb")
    parser.add_argument("--device", default="cpu", help="a card to search on as well: cuda:0")
    parser.add_argument("--sample", type=Path, help="the real vectors are kept in this file")
    parser.add_argument("--in-memory", action="store_true", help="made passages are not on disk")
    asked = parser.parse_args(arguments)
    sample = saved(asked.sample) if asked.sample else real_sample()
    shards = stored(sample, SIZES[asked.size], asked.device, asked.in_memory)
    sets = query_sets(sample)
    alike = vectors_table(asked.size, sample, shards)
    print(alike.round(3).to_string(index=False), flush=True)
    origin = {"code": ["tools.bench"], "data": []}
    write_result(alike, "bench_vectors", "scale", **origin)
    rows: list[dict] = []

    def keep(row: dict) -> None:
        rows.append({"machine": machine(asked.device), "passages": SIZES[asked.size]} | row)
        print(json.dumps(rows[-1]), flush=True)
        write_result(with_others(pd.DataFrame(rows), "bench"), "bench", "scale", **origin)

    for row in all_measured(shards, sets, asked.device):
        keep(row)
    if asked.store:
        flat = next(row for row in rows if row["search"] == "FlatIP")
        keep(lancedb(asked.store, shards, sets, flat))


if __name__ == "__main__":
    main()
