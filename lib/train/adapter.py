"""What is shipped of a training: the adapter's weights and settings, and its card."""

from __future__ import annotations

import json
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.base.files import atomic_write, sha256_file
from lib.model_files import CARD, WEIGHTS

_SETTINGS = "adapter_config.json"


def write_adapter(model: Any, out: Path, prefix: str = "") -> None:
    """The adapter of a model of peft: its weights as float16, each name after ``prefix``, and its
    settings without a path of this machine."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save

    weights = sorted(get_peft_model_state_dict(model).items())
    halves = {f"{prefix}{name}": tensor.half().contiguous() for name, tensor in weights}
    out.mkdir(parents=True, exist_ok=True)
    atomic_write(out / WEIGHTS, save(halves))
    settings = model.peft_config["default"].to_dict()
    settings |= {"base_model_name_or_path": None, "inference_mode": True}
    told = {name: sorted(v) if isinstance(v, set) else v for name, v in settings.items()}
    atomic_write(out / _SETTINGS, json.dumps(told, indent=1, sort_keys=True, default=str) + "\n")


def write_card(card: Mapping[str, Any], out: Path) -> None:
    """``card.toml`` of the adapter in ``out``, with the hash of its weights."""
    rows = {**card, "sha256": sha256_file(out / WEIGHTS)}
    # Of texts, numbers and lists of them, JSON's form is TOML's.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows.items()]
    atomic_write(out / CARD, "".join(lines))


def peak_memory_mb() -> int:
    """The most memory that this process has held so far, so of its largest training."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
