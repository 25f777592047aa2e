"""What this machine has, and whether the bundled weights are what they should be."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import pandas as pd

__all__ = ["PACKAGES", "versions", "machine", "check_weights"]

PACKAGES = (
    "numpy",
    "torch",
    "transformers",
    "sentence-transformers",
    "faiss-cpu",
    "bm25s",
    "pandas",
    "openai",
    "xllamacpp",
    "papermill",
    "nbval",
)


def versions() -> pd.DataFrame:
    """The packages that move numbers, and their versions; "missing" where not installed."""
    rows = {"python": platform.python_version()} | dict.fromkeys(PACKAGES, "missing")
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            rows[name] = version(name)
    return pd.DataFrame(rows.items(), columns=["package", "version"])


def machine() -> str:
    """Cores, memory and GPUs in one line. Not for cells that nbval checks."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpus = torch.cuda.device_count()
    found = f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {gpus or 'no'} GPU"
    return found + "s" * (gpus > 1)


def check_weights() -> list[str]:
    """What is wrong with the bundled weights, each with the next command; empty if nothing is."""
    from lib.llm.small_model import weights
    from lib.search.model_files import minilm_folder

    problems = []
    for find in (minilm_folder, weights):
        try:
            find()
        except (OSError, ValueError, RuntimeError) as error:
            problems.append(str(error))
    return problems


if __name__ == "__main__":
    wrong = check_weights()
    print(*wrong or ["all-MiniLM-L6-v2 and SmolLM2-135M-Instruct: sha256 right."], sep="\n")
    sys.exit(bool(wrong))
