"""Ten minutes on any CUDA card: what it computes, against the CPU, and how fast.

    python -m tools.gpu_check                  the first card; a row a check for docs/status.md
    python -m tools.gpu_check --device cpu     the same checks on the CPU: nothing is written

Encoding, exact searches (vectors on the card, and read through its buffers), a compressed search,
a batched generation. All weights are bundled. What was computed and what it should be is said in
each row; a ratio is the CPU's seconds to the device's.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.provenance import write_result
from lib.llm.engines import BUNDLED, TransformersEngine
from lib.llm.offline import Asked

COLUMNS = ("date", "card", "driver", "torch", "what", "result", "ratio")
"""Of the log of checks: ``result`` begins with OK, FAILED or NOT RUN."""

_K = 5
_REPEATS = 3


@dataclass
class Check:
    """One device, and how much it is given: passages to encode, rows to search with how many
    queries, prompts and tokens to generate. What several checks need is made once."""

    device: str
    texts: int = 600
    rows: int = 300_000
    queries: int = 300
    prompts: int = 16
    tokens: int = 48
    seed: int = 0
    model: str = BUNDLED
    chunks: int = 8
    layers: int = 12

    @cached_property
    def passages(self) -> list[tuple[str, str]]:
        """Bundled passages, with their titles."""
        from lib.corpora import load_passages

        return [(p.title, p.text) for p in load_passages("ddx-mini", self.texts)]

    @cached_property
    def vectors(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Shards of float16 (n, 384) that lie among passages, and float32 queries, some of them
        shifted as CHR's are."""
        rng = np.random.default_rng(self.seed)
        base = _encoder("cpu").encode(self.passages, "article", progress=False)
        shares = rng.dirichlet([0.6] * 4, size=self.rows).astype(np.float32)
        parents = rng.integers(0, len(base), size=(self.rows, 4))
        rows = np.concatenate(
            [
                np.einsum("nm,nmd->nd", shares[i : i + 10_000], base[parents[i : i + 10_000]])
                for i in range(0, self.rows, 10_000)
            ]
        )
        rows += 0.02 * rng.standard_normal(rows.shape, dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        near, far = rng.integers(0, self.rows, size=(2, self.queries))
        shift = np.where(np.arange(self.queries) % 2, 1.0, 0.0)[:, None]
        queries = (rows[near] - shift * rows[far]).astype(np.float32)
        stored = rows.astype(np.float16)
        return [stored[i : i + 65_536] for i in range(0, self.rows, 65_536)], queries

    @cached_property
    def ids(self) -> list[str]:
        """Passage ids of ``vectors``."""
        return [f"p{i:07d}" for i in range(self.rows)]

    @cached_property
    def exact(self) -> tuple[Any, float]:
        """The CPU's own search, and its seconds."""
        from lib.search.index import DenseIndex

        shards, queries = self.vectors
        index = DenseIndex(shards, self.ids, backend="torch", devices=["cpu"])
        return _timed(partial(index.search, queries, _K))


def _encoder(device: str) -> Any:
    from lib.embed import load_encoder

    return load_encoder("minilm", device=device)


def _timed(run: Callable[[], Any], repeats: int = _REPEATS) -> tuple[Any, float]:
    """What a call gives, and the median of its seconds; a first call is not counted. Results are
    on the CPU when it returns, so a card has ended its work."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = run()
        seconds.append(time.perf_counter() - start)
    return found, float(np.median(seconds))


# the checks ---------------------------------------------------------------------------------------


def encode(check: Check) -> tuple[str, float]:
    """MiniLM's vectors: cosines with the CPU's, and the five nearest passages of each passage."""
    vectors, seconds = {}, {}
    for device in ("cpu", check.device):
        run = partial(_encoder(device).encode, check.passages, "article", progress=False)
        vectors[device], seconds[device] = _timed(run, 1)
    here, there = vectors["cpu"], vectors[check.device]
    least = float((here * there).sum(axis=1).min())
    best = [np.argsort(-(rows @ rows.T), axis=1)[:, :_K] for rows in (here, there)]
    same = np.mean([np.isin(*pair).mean() for pair in zip(*best, strict=True)])
    said = f"{len(here)} passages, least cosine {least:.5f}, {same:.1%} of the top {_K}s"
    return _result(least > 0.999 and same > 0.98, said), seconds["cpu"] / seconds[check.device]


def encode_in_pool(check: Check) -> tuple[str, float]:
    """A BERT of MedCPT's size and random weights, read by the pool that encodes a corpus: passages
    of about 200 words a second, from the first chunk on, and cosines with the CPU's."""
    words = [word for _, text in check.passages for word in text.split()]
    with TemporaryDirectory() as folder:
        encoder = _of_medcpt_size(Path(folder), check.layers, check.device)
        size = encoder.chunk if check.device != "cpu" else len(check.passages)
        drawn = np.random.default_rng(check.seed).integers(len(words), size=(check.chunks, size))
        chunks = [[("", " ".join((words * 2)[i : i + 200])) for i in some] for some in drawn]
        ends, kept = [], []
        for vectors in encoder.encode_many(chunks, "article"):
            ends.append(time.perf_counter())
            kept.append(vectors[:16])
        seconds = ends[-1] - ends[0]
        few = chunks[0][: len(kept[0])]
        on_cpu = _of_medcpt_size(Path(folder), check.layers, "cpu")
        start = time.perf_counter()
        there = on_cpu.encode(few, "article", progress=False)
        cpu_s = (time.perf_counter() - start) / len(few)
    rate = (len(chunks) - 1) * size / seconds
    least = float((kept[0] * there).sum(axis=1).min())
    said = f"{rate:,.0f} passages of 200 words a second, random weights, least cosine {least:.5f}"
    return _result(least > 0.999, said), cpu_s * rate


def _of_medcpt_size(folder: Path, layers: int, device: str) -> Any:
    """The encoder MedCPT with weights that are drawn once and kept in a folder."""
    import torch
    from transformers import BertConfig, BertModel

    from lib.embed import load_encoder
    from lib.model_files import minilm_folder

    if not (folder / "config.json").exists():
        for file in minilm_folder().glob("*token*.json"):
            shutil.copy(file, folder)
        shutil.copy(minilm_folder() / "vocab.txt", folder)
        torch.manual_seed(0)
        BertModel(BertConfig(num_hidden_layers=layers)).save_pretrained(folder)
    return load_encoder("medcpt", query_model=folder, article_model=folder, device=device)


def search(check: Check, backend: str = "torch", streamed: bool = False) -> tuple[str, float]:
    """An exact search: the same passages and scores as on the CPU, and how far products are off.

    ``streamed``: the card is said to have room for a part, so the rest passes through buffers.
    """
    from lib.search.candidates import Torch
    from lib.search.index import DenseIndex

    shards, queries = check.vectors
    wanted, on_cpu = check.exact
    try:
        index = DenseIndex(shards, check.ids, backend=backend, devices=[check.device])
    except ValueError as error:  # a processor without the units for it
        return f"NOT RUN: {error}", np.nan
    size = sum(shard.nbytes for shard in shards)
    if streamed:
        index._search = Torch(shards, [check.device], room=size, halves=True)
    found, seconds = _timed(partial(index.search, queries, _K))
    same = np.array_equal(found.ids, wanted.ids) and np.array_equal(found.scores, wanted.scores)
    said = f"{check.rows:,} x {shards[0].shape[1]} float16, {len(queries)} queries: "
    said += "the CPU's passages and scores" if same else "other passages or scores than the CPU's"
    if backend == "torch":
        said += f"; products off by {_off(index._search, shards, queries):.1e} at most"
    if streamed:
        passes = sum(device.streamed for device in index._search.devices) / size
        said += f"; {passes:.0%} passes through buffers"
    return _result(same, said), on_cpu / seconds


def _off(backend: Any, shards: list[np.ndarray], queries: np.ndarray) -> float:
    """The largest difference of the best products from those in float64; DenseIndex allows 1e-5
    for queries of length 1 at most."""
    everything = [(i, np.arange(len(shard))) for i, shard in enumerate(shards)]
    worst = 0.0
    tops = backend.top(queries, everything, 32)
    for (i, _), (scores, positions) in zip(everything, tops, strict=True):
        for query, row, at in zip(queries.astype(np.float64), scores, positions, strict=True):
            exact = shards[i][at].astype(np.float64) @ query
            worst = max(worst, float(np.abs(exact - row).max() / max(1, np.linalg.norm(query))))
    return worst


def compressed(check: Check) -> tuple[str, float]:
    """The compressed search, which runs on the CPU alone, so it has no ratio: its recall of the
    exact search, and its seconds beside those of the exact search on the device."""
    from lib.search.compressed import CompressedIndex
    from lib.search.index import DenseIndex

    shards, queries = check.vectors
    wanted, _ = check.exact
    found, seconds = _timed(partial(CompressedIndex(shards, check.ids).search, queries, _K))
    device = DenseIndex(shards, check.ids, backend="torch", devices=[check.device])
    _, on_device = _timed(partial(device.search, queries, _K))
    pairs = zip(found.ids, wanted.ids, strict=True)
    recall = float(np.mean([np.isin(exact, own).mean() for own, exact in pairs]))
    said = f"on the CPU: recall@{_K} {recall:.3f}, half of it shifted; "
    said += f"{seconds / on_device:.2f} times the seconds of the exact search on {check.device}"
    return _result(recall >= 0.98, said), np.nan


def generate(check: Check) -> tuple[str, float]:
    """A batch of the bundled SmolLM2, greedy, float32 on both: the same tokens."""
    options = {"temperature": 0.0, "top_p": 1.0, "max_tokens": check.tokens, "seed": 0, "stop": []}
    asked = [
        Asked([{"role": "user", "content": f"In one sentence, what is {title}?"}], options)
        for title, _ in check.passages[: check.prompts]
    ]
    written, seconds = {}, {}
    for device in ("cpu", check.device):
        engine = TransformersEngine(check.model, device=device, dtype="float32", batch=len(asked))
        engine.write(asked[:1])
        start = time.perf_counter()
        written[device] = engine.write(asked)
        seconds[device] = time.perf_counter() - start
        engine.close()
    pairs = list(zip(written["cpu"], written[check.device], strict=True))
    same = sum(here.text == there.text for here, there in pairs)
    tokens = sum(one.output_tokens for one in written[check.device])
    said = f"{same} of {len(pairs)} texts are the CPU's, {tokens} tokens"
    # Sums in another order may turn a near tie, after which the texts go apart.
    return _result(same >= 0.75 * len(pairs), said), seconds["cpu"] / seconds[check.device]


def _result(is_right: bool, said: str) -> str:
    return f"{'OK' if is_right else 'FAILED'}: {said}"


CHECKS: dict[str, Callable[[Check], tuple[str, float]]] = {
    "encode: MiniLM": encode,
    "encode: MedCPT's size": encode_in_pool,
    "exact search": search,
    "exact search, larger than the card": partial(search, streamed=True),
    "exact search, int8": partial(search, backend="int8"),
    "compressed search": compressed,
    "batched generation: SmolLM2-135M": generate,
}
"""The checks, by what a row calls them."""


# the log ------------------------------------------------------------------------------------------


def run(check: Check) -> Iterator[dict[str, str]]:
    """``COLUMNS`` of each check, one after the other; one that breaks is FAILED, others go on."""
    about = _about(check.device)
    for what, one in CHECKS.items():
        try:
            result, ratio = one(check)
        except Exception as error:
            result, ratio = f"FAILED: {type(error).__name__}: {error}", np.nan
        told = "" if np.isnan(ratio) else f"{ratio:.2f}"
        yield about | {"what": what, "result": " ".join(result.split())[:300], "ratio": told}


def _about(device: str) -> dict[str, str]:
    import torch

    card, driver = "none (the CPU)", ""
    if device.startswith("cuda"):
        card = torch.cuda.get_device_name(device)
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            told = subprocess.run(asked, capture_output=True, text=True, timeout=30).stdout.split()
        except (OSError, subprocess.TimeoutExpired):
            told = []
        driver = told[0] if told else f"CUDA {torch.version.cuda}"
    date = datetime.now(UTC).date().isoformat()
    return {"date": date, "card": card, "driver": driver, "torch": torch.__version__}


def append(rows: list[dict[str, str]]) -> bool:
    """Add rows to the log of checks, if they are a card's: what a CPU did is no check of a GPU."""
    if not rows or any(row["card"].startswith("none") for row in rows):
        return False
    file = paths.results("scale") / "gpu_check.csv"
    before = pd.read_csv(file, dtype=str, keep_default_na=False) if file.exists() else None
    table = pd.concat([before, pd.DataFrame(rows, columns=COLUMNS)], ignore_index=True)
    write_result(table, "gpu_check", "scale", code=["tools.gpu_check"], data=[])
    return True


def main() -> int:
    """Command line: [--device cuda:1]."""
    import torch

    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_check", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--device", default="cuda:0")
    given = parser.parse_args()
    if given.device != "cpu" and not torch.cuda.is_available():
        print(
            "error: torch sees no CUDA card here. Next: on a machine with one, make setup and make "
            "gpu-check; or try the checks: make gpu-check DEVICE=cpu",
            file=sys.stderr,
        )
        return 1
    rows = []
    for row in run(Check(given.device)):
        rows.append(row)
        print(f"{row['what']}: {row['result']}; {row['ratio'] or '-'} times the CPU", flush=True)
    if append(rows):
        from lib.pages.__main__ import write

        write()
        file = paths.results("scale") / "gpu_check.csv"
        print(f"added to {paths.shown(file)} and docs/status.md")
    else:
        print("nothing was written: this was not on a GPU")
    return int(any(row["result"].startswith("FAILED") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
