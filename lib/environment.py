"""What this machine has, and whether the bundled weights are what they should be."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import pandas as pd

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

    from lib.search.choose import memory

    gpus = torch.cuda.device_count()
    gpu_text = f"{gpus or 'no'} GPU" + ("s" if gpus > 1 else "")
    return f"{os.cpu_count()} cores, {memory() / 2**30:.0f} GiB of memory, {gpu_text}"


def check_weights() -> list[str]:
    """What is wrong with the bundled weights, one line a problem, each with the next command.

    Empty if both models' weights are there and have the sha256 they should have.
    """
    from lib.llm.small_model import weights
    from lib.model_files import minilm_folder

    problems = []
    for check in (minilm_folder, weights):
        try:
            check()
        except (OSError, ValueError, RuntimeError) as error:
            problems.append(str(error))
    return problems


if __name__ == "__main__":
    problems = check_weights()
    for line in problems or ["all-MiniLM-L6-v2 and SmolLM2-135M-Instruct: sha256 right."]:
        print(line)
    sys.exit(1 if problems else 0)
