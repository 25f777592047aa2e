"""The models that adapters are trained on."""

from __future__ import annotations

from pathlib import Path

from lib.model_files import minilm_folder, model_folder, mpnet_folder

_BUNDLED = {"minilm": minilm_folder, "mpnet": mpnet_folder}


def base_folder(name: str) -> Path:
    """Where the files of a base are: "minilm", "mpnet", or a model of the hub or folder."""
    return _BUNDLED[name]() if name in _BUNDLED else model_folder(name)
