"""Every lambda at once beside one search for each lambda, in one run: how many times as fast.

    python -m tools.bench_path     100,000 made passages, 600 questions, 100 lambdas; minutes

H+ and H- are the real sample's, 300 questions with their own mimics and 300 with random ones; the
passages are those of ``tools.bench``. In each of five rounds all lambdas are searched at once, and
a fifth of them one by one: after five rounds each lambda was, and every result is compared, bit for
bit. Result: ``data/results/scale/lambda_path.csv``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base.provenance import write_result
from lib.search.candidates import multiplies_int8
from lib.search.index import DenseIndex, Hits
from lib.search.lambda_path import certified, search_path
from tools.bench import MANY, ROUNDS, SIZES, K, machine, numbered, stored, timed
from tools.bench_vectors import Sample, real_sample, saved

PASSAGES = "100k"
LAMBDAS = np.linspace(0, 2, 101)[1:]


def lines_of(sample: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries (n, 768) at every lambda, lambda by lambda, and the line and lambda (n,) of each."""
    pairs = [[texts[:MANY] for texts in sample.pairs(mimic)] for mimic in ("own", "random")]
    plus, minus = (np.concatenate(texts) for texts in zip(*pairs, strict=True))
    queries = [plus - np.float32(lam) * minus for lam in LAMBDAS]
    line = np.tile(np.arange(len(plus)), len(LAMBDAS))
    return np.concatenate(queries), line, np.repeat(LAMBDAS, len(plus))


def is_same(found: Hits, wanted: Hits, members: np.ndarray) -> bool:
    """Whether these queries have the same scores, to the last bit, and passages in both."""
    scores = found.scores[members].tobytes() == wanted.scores.tobytes()
    return scores and bool((found.rows[members] == wanted.rows).all())


def measured(index: DenseIndex, sample: Sample) -> dict:
    """A row: times as fast as one search a lambda, the share of results that were certified, the
    searches that a question took, seconds with their spread. ValueError where a result differs.
    """
    queries, line, lam = lines_of(sample)
    index.search(queries[:8], K)  # memory is touched, threads are started
    at_once, ratios = [], []
    for number in range(ROUNDS):
        found, seconds = timed(lambda: search_path(index, queries, line, lam, K))
        at_once.append(seconds)
        one_by_one = 0.0
        for at in LAMBDAS[number::ROUNDS]:
            members = np.flatnonzero(lam == at)
            wanted, seconds = timed(lambda some=members: index.search(queries[some], K))
            one_by_one += seconds
            if not is_same(found, wanted, members):
                raise ValueError(f"{index.backend} finds something else at lambda {at:g}")
        ratios.append(ROUNDS * one_by_one / at_once[-1])
    parts = list(certified(index, queries, line, lam, K))
    return {
        "lambdas": len(LAMBDAS),
        "questions": int(line.max()) + 1,
        "times_one_by_one": float(np.median(ratios)),
        "times_least": min(ratios),
        "times_most": max(ratios),
        "certified": sum(len(members) for members, _, _ in parts) / len(lam),
        "searches_each": sum(searches for _, _, searches in parts) / (line.max() + 1),
        "s_at_once": float(np.median(at_once)),
    }


def main() -> None:
    """The command: measures every exact index that this processor has, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=Path, help="as of tools.bench")
    asked = parser.parse_args()
    sample = saved(asked.sample) if asked.sample else real_sample()
    shards = stored(sample, SIZES[PASSAGES], "cpu", in_memory=False)
    rows = []
    for backend in ("torch", *["int8"] * multiplies_int8("cpu")):
        index = DenseIndex(shards, numbered(SIZES[PASSAGES]), backend=backend)
        about = {"machine": machine("cpu"), "passages": SIZES[PASSAGES], "search": backend}
        rows.append(about | measured(index, sample))
    table = pd.DataFrame(rows)
    print(table.round(3).T.to_string(header=False))
    write_result(table, "lambda_path", "scale", code=["tools.bench_path"], data=[])


if __name__ == "__main__":
    main()
