"""The check of a CUDA card, on the CPU: what it finds, and what it writes down and where."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lib.base.files import read_manifest
from lib.pages import render
from lib.search.candidates import BACKENDS, Torch
from tests.tiny_models import save_causal
from tools import gpu_check
from tools.gpu_check import COLUMNS, Check

SMALL = {
    "texts": 20,
    "rows": 3000,
    "queries": 20,
    "prompts": 3,
    "tokens": 4,
    "chunks": 2,
    "layers": 1,
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Of a run with a tiny model in the place of the bundled one, which takes long to unpack."""
    tiny = save_causal(tmp_path_factory.mktemp("models") / "tiny")
    return list(gpu_check.run(Check("cpu", **SMALL, model=str(tiny))))


def test_every_check_of_a_card_comes_out_right_on_the_cpu(rows):
    results = {row["what"]: row["result"] for row in rows}
    assert list(results) == list(gpu_check.CHECKS)
    for what in (
        "encode: MiniLM",
        "encode: MedCPT's size",
        "exact search",
        "exact search, larger than the card",
    ):
        assert results[what].startswith("OK"), results[what]
    assert "least cosine 1.00000" in results["encode: MiniLM"]
    assert "passes through buffers" in results["exact search, larger than the card"]
    assert results["batched generation: SmolLM2-135M"].startswith("OK: 3 of 3 texts")
    assert not any(result.startswith("FAILED") for result in results.values()), results
    timed = [
        row for row in rows if row["result"].startswith("OK") and "compressed" not in row["what"]
    ]
    assert timed and all(float(row["ratio"]) > 0 for row in timed)
    (codes,) = (row for row in rows if "compressed" in row["what"])
    assert codes["result"].startswith("OK: on the CPU") and not codes["ratio"], "no card has run it"


class Wrong(Torch):
    """Proposes the first passages of each shard, whatever was asked."""

    def top(self, queries, searched, depth):
        found = super().top(queries, searched, depth)
        return [(scores, np.zeros_like(at) + np.arange(at.shape[1])) for scores, at in found]


def test_a_card_that_computes_wrongly_or_breaks_has_failed_and_the_others_go_on(monkeypatch):
    def breaks(check):
        raise RuntimeError("CUDA error: an illegal memory access")

    check = Check("cpu", **SMALL)
    assert check.exact[0].ids.shape == (20, 5)
    checks = {"broken": breaks, "exact search": gpu_check.search}
    monkeypatch.setattr(gpu_check, "CHECKS", checks)
    broken, right = gpu_check.run(check)
    assert broken["result"].startswith("FAILED: RuntimeError: CUDA error") and not broken["ratio"]
    assert right["result"].startswith("OK")
    monkeypatch.setitem(BACKENDS, "torch", Wrong)
    _, wrong = gpu_check.run(check)
    assert wrong["result"].startswith("FAILED") and "other passages" in wrong["result"]


def test_the_status_page_says_not_run_until_a_card_has_rows(rows, tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    folder = tmp_path / "results" / "scale"
    monkeypatch.setattr(render.paths, "committed", lambda profile: folder)
    assert not gpu_check.append(rows), "what the CPU did is no check of a GPU"
    assert not (folder / "gpu_check.csv").exists()
    assert "NOT RUN" in render.block("gpu")
    card = [row | {"card": "Card X", "driver": "1.2", "date": "2026-01-01"} for row in rows]
    later = [row | {"card": "Card X", "driver": "1.3", "date": "2026-02-01"} for row in rows[:1]]
    assert gpu_check.append(card) and gpu_check.append(later)
    table = pd.read_csv(folder / "gpu_check.csv", dtype=str)
    assert tuple(table) == COLUMNS and len(table) == len(rows) + 1
    assert read_manifest(folder / "gpu_check.csv"), "make check wants one of every table"
    told = render.block("gpu")
    assert "`make gpu-check`" in told and told.count("Card X") == 2
    assert "driver 1.3, " in told and told.count("2026-02-01") == 1, "of a check its last time"
    assert told.count("| OK") == len(rows)


def test_queries_are_shifted_and_vectors_lie_among_passages():
    shards, queries = Check("cpu", **SMALL).vectors
    rows = np.concatenate(shards).astype(np.float32)
    norms = np.linalg.norm(queries, axis=1)
    assert np.allclose(norms[::2], 1, atol=1e-3) and (norms[1::2] > 0.1).all()
    assert not np.allclose(norms[1::2], 1, atol=1e-3)
    nearest = np.sort(rows[:200] @ rows.T, axis=1)[:, -2]
    assert 0.6 < np.median(nearest) < 0.999
