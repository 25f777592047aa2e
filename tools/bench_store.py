"""LanceDB's part of ``tools.bench``, for a Python that has it: milliseconds of one search.

python tools/bench_store.py FOLDER    reads FOLDER/in.npz, prints one line of JSON
"""

import json
import sys
import time
from pathlib import Path

import lancedb
import numpy as np
import pyarrow

folder = Path(sys.argv[1])
given = np.load(folder / "in.npz")
vectors = given["vectors"]
start = time.perf_counter()
column = pyarrow.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
rows = pyarrow.table({"row": np.arange(len(vectors)), "vector": column})
table = lancedb.connect(folder / "store").create_table("passages", rows)
built = time.perf_counter() - start
taken = []
for query in given["queries"]:
    start = time.perf_counter()
    table.search(query).distance_type("dot").select(["row"]).limit(5).to_list()
    taken.append(1000 * (time.perf_counter() - start))
print(
    json.dumps(
        {
            "ms_one": float(np.median(taken)),
            "ms_one_least": min(taken),
            "ms_one_most": max(taken),
            "build_s": built,
            "bytes_each": 4 * vectors.shape[1],
        }
    )
)
