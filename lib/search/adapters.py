"""LoRA adapters: small trained changes to a model, in a folder of their own with a card.

``data/adapters/<name>/`` has ``adapter_config.json`` and ``adapter_model.safetensors``, as peft
writes them, and ``card.toml``: what it was trained on and from, how long that took, and the hash of
its weights. ``tools.training`` makes them; here they are read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lib.base.files import sha256_file
from lib.base.paths import DATA

ADAPTERS = DATA / "adapters"
WEIGHTS = "adapter_model.safetensors"
CARD = "card.toml"


def adapter_folder(name: str) -> Path:
    """The folder of the adapter called ``name`` in ``ADAPTERS``, or of that path.

    FileNotFoundError, with the names there are, where there is none; ValueError where its weights
    are not those of its card.
    """
    folder = ADAPTERS / name if (ADAPTERS / name).is_dir() else Path(name)
    if not (folder / CARD).is_file():
        there = sorted(path.parent.name for path in ADAPTERS.glob(f"*/{CARD}"))
        raise FileNotFoundError(f"no adapter {name!r}; there are: {', '.join(there)}")
    wanted = read_card(folder)["sha256"]
    if sha256_file(folder / WEIGHTS) != wanted:
        raise ValueError(
            f"{folder / WEIGHTS} is not what its card says (its sha256 differs); "
            f"run: git checkout {folder}, or make train"
        )
    return folder


def read_card(folder: Path) -> dict[str, Any]:
    """What the card of an adapter says (``tools.training.write_card`` wrote it)."""
    return tomllib.loads((folder / CARD).read_text(encoding="utf-8"))


def cards(names: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """What shipped adapters are and cost, a row each.

    Columns: adapter, those ``columns`` of their cards (empty where a card lacks one), memory_mb
    (the highest so far of the process that trained one after the other), kilobytes.
    """
    rows = []
    for name in names:
        card = read_card(ADAPTERS / name)
        row = {"adapter": name} | {column: card.get(column) for column in columns}
        row["memory_mb"] = card["peak_memory_mb"]
        row["kilobytes"] = (ADAPTERS / name / WEIGHTS).stat().st_size // 1000
        rows.append(row)
    return pd.DataFrame(rows)


def check_base(folder: Path, digests: set[str]) -> None:
    """ValueError unless the model, by the digests of its files, is the one that was trained on."""
    wanted = read_card(folder)["base_digest"]
    if digests != {wanted}:
        raise ValueError(f"{folder.name} was trained on another model (its files' hash: {wanted})")


def merged(model: Any, folder: Path) -> Any:
    """``model`` with the adapter's changes added to its weights: as fast as it was without.

    ValueError where a change has no place in the model, or a place no change.
    """
    from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
    from safetensors.torch import load_file

    adapted = get_peft_model(model, PeftConfig.from_pretrained(folder))
    loaded = set_peft_model_state_dict(adapted, load_file(folder / WEIGHTS))
    trained = ("lora_", "modules_to_save")
    without = [name for name in loaded.missing_keys if any(part in name for part in trained)]
    if without or loaded.unexpected_keys:
        raise ValueError(
            f"{folder}: {[*without, *loaded.unexpected_keys][0]} does not fit the model"
        )
    return adapted.merge_and_unload()
