"""Fit one LoRA adapter; a run that is killed goes on from its last whole checkpoint.

The trainers are those of sentence-transformers, the adapters peft's. What is fixed beforehand is a
``Plan``; examples, losses and what becomes of the adapter are the caller's.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from lib.base import paths
from lib.base.files import atomic_write, canonical_json, sha256_bytes, sha256_file
from lib.search.adapters import CARD, WEIGHTS
from lib.search.model_files import digest, minilm_folder, model_folder, mpnet_folder, quiet

__all__ = ["Plan", "base_folder", "fit", "write_card"]

_TRAINED = "trained.safetensors"
_BUNDLED = {"minilm": minilm_folder, "mpnet": mpnet_folder}


@dataclass(frozen=True)
class Plan:
    """All that fixes a run beside its examples.

    ``base``: "minilm", "mpnet", or a model of the hub or folder. ``reads``: "pairs" (a
    cross-encoder: both texts at once, one score a label) or "texts" (a bi-encoder: a vector each).
    ``labels`` are a cross-encoder's, in order. ``rank`` is LoRA's, its alpha is twice that.
    """

    base: str
    reads: Literal["pairs", "texts"]
    labels: tuple[str, ...] = ()
    epochs: float = 1
    rank: int = 8
    learning_rate: float = 1e-3
    batch_size: int = 32
    max_tokens: int = 128
    seed: int = 0
    save_steps: int = 50


def base_folder(name: str) -> Path:
    """Where the files of a plan's base model are."""
    return _BUNDLED[name]() if name in _BUNDLED else model_folder(name)


def fit(
    plan: Plan,
    examples: Mapping[str, Sequence],
    loss: Callable[[Any], Any],
    out: Path,
    work: Path | None = None,
    **trained_on: Any,
) -> dict[str, Any]:
    """Train by ``plan`` on columns of ``examples``, write the adapter and its card into ``out``.

    ``loss`` takes the model, and gives one of sentence-transformers' losses. Checkpoints lie in a
    folder of ``work`` (default: the cache) that belongs to this plan and these examples: the same
    call goes on where a killed one stopped, and comes to the same weights. ``trained_on`` is added
    to the card, which is returned. A processor that multiplies bfloat16 does so (said on the card);
    weights are kept in float32 while they are trained, and written as float16.
    """
    base = digest(base_folder(plan.base))
    work = (work or paths.cache("train")) / _name(plan, examples, base, loss)
    bf16 = _has_bf16()
    started = time.monotonic()
    before = _minutes_so_far(work)
    try:
        model = _trained(plan, examples, loss, work, bf16)
    finally:  # stopped or not, the minutes count; what a kill -9 took is not known
        atomic_write(work / "minutes", f"{before + (time.monotonic() - started) / 60:.2f}")
    _write_adapter(model, out)
    card = {
        "base_digest": base,
        **asdict(plan),
        **trained_on,
        "examples": len(next(iter(examples.values()))),
        "minutes": round(_minutes_so_far(work), 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "precision": "bfloat16 products, float32 weights" if bf16 else "float32",
    }
    write_card(card, out)
    return card


def _trained(
    plan: Plan, examples: Mapping[str, Sequence], loss: Callable, work: Path, bf16: bool
) -> Any:
    """The model with its adapter trained, from the last whole checkpoint on if there is one."""
    import torch
    from datasets import Dataset
    from transformers import enable_full_determinism

    from lib.train.batches import ByLength

    enable_full_determinism(plan.seed, warn_only=True)
    model, trainer, arguments = _untrained(plan)
    settings = arguments(
        output_dir=str(work),
        num_train_epochs=plan.epochs,
        per_device_train_batch_size=plan.batch_size,
        learning_rate=plan.learning_rate,
        warmup_steps=0.06,  # below 1: a share of all steps
        seed=plan.seed,
        batch_sampler=ByLength,
        bf16=bf16,
        save_steps=plan.save_steps,
        save_total_limit=2,
        logging_steps=plan.save_steps,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )
    run = type("Trainer", (_GoesOn, trainer), {})(
        model=model,
        args=settings,
        train_dataset=Dataset.from_dict({name: list(own) for name, own in examples.items()}),
        loss=loss(model),
    )
    last = _last_whole_checkpoint(work)
    if last:
        print(f"going on from {last}", file=sys.stderr)
    run.train(resume_from_checkpoint=str(last) if last else None)
    return model


class _GoesOn:
    """How a trainer keeps what is trained: its own way back from a checkpoint wants a whole model,
    not one with an adapter."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        from safetensors.torch import save_file

        super()._save(output_dir, state_dict)
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        save_file(trained, Path(output_dir) / _TRAINED)

    def _load_from_checkpoint(self, checkpoint: str, *_: Any) -> None:
        from safetensors.torch import load_file

        trained = load_file(Path(checkpoint) / _TRAINED)
        unknown = self.model.load_state_dict(trained, strict=False).unexpected_keys
        if unknown:
            raise ValueError(f"{checkpoint} is of another model: {unknown[0]}; remove its folder")


def _untrained(plan: Plan) -> tuple[Any, type, type]:
    """The base with a fresh adapter, and its trainer with the trainer's arguments."""
    from peft import LoraConfig

    quiet()
    folder = str(base_folder(plan.base))
    # Every linear layer of the encoder; a new head, where there is one, is trained whole.
    lora = {"r": plan.rank, "lora_alpha": 2 * plan.rank, "lora_dropout": 0.05}
    if plan.reads == "pairs":
        from sentence_transformers import CrossEncoder
        from sentence_transformers.cross_encoder import (
            CrossEncoderTrainer,
            CrossEncoderTrainingArguments,
        )

        model = CrossEncoder(folder, num_labels=len(plan.labels), max_length=plan.max_tokens)
        lora |= {"task_type": "SEQ_CLS", "modules_to_save": ["classifier"]}
        model.add_adapter(LoraConfig(target_modules="all-linear", **lora))
        return model, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    model = SentenceTransformer(folder)
    model.max_seq_length = plan.max_tokens
    lora |= {"task_type": "FEATURE_EXTRACTION"}
    model.add_adapter(LoraConfig(target_modules="all-linear", **lora))
    return model, SentenceTransformerTrainer, SentenceTransformerTrainingArguments


def _name(plan: Plan, examples: Mapping[str, Sequence], base: str, loss: Callable) -> str:
    """A name for this plan, with this loss, on this base and these examples."""
    columns = {name: list(own) for name, own in examples.items()}
    text = canonical_json([asdict(plan), base, loss.__name__, columns])
    return sha256_bytes(text.encode())[:16]


def _has_bf16() -> bool:
    """Whether the processor multiplies bfloat16 itself; emulated it would be slower."""
    import torch

    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16")) or torch.cuda.is_available()


def _last_whole_checkpoint(work: Path) -> Path | None:
    """The newest checkpoint whose last file is there and readable; a torn one is passed over."""
    numbered = [(int(path.name.split("-")[1]), path) for path in work.glob("checkpoint-*")]
    for _, path in sorted(numbered, reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return path
    return None


def _minutes_so_far(work: Path) -> float:
    file = work / "minutes"
    return float(file.read_text()) if file.is_file() else 0.0


def _write_adapter(model: Any, out: Path) -> None:
    """The adapter's weights as float16, and its settings without a path of this machine."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save

    net = model[0].model
    weights = get_peft_model_state_dict(net)
    halves = {  # under the names that peft gives a whole model's parts
        f"base_model.model.{name}": tensor.half().contiguous()
        for name, tensor in sorted(weights.items())
    }
    out.mkdir(parents=True, exist_ok=True)
    atomic_write(out / WEIGHTS, save(halves))
    settings = net.peft_config["default"].to_dict() | {
        "base_model_name_or_path": None,
        "inference_mode": True,
    }
    settings = {name: sorted(v) if isinstance(v, set) else v for name, v in settings.items()}
    text = json.dumps(settings, indent=1, sort_keys=True, default=str)
    atomic_write(out / "adapter_config.json", text + "\n")


def write_card(card: Mapping[str, Any], out: Path) -> None:
    """``card.toml`` of the adapter in ``out``, with the hash of its weights."""
    rows = {**card, "sha256": sha256_file(out / WEIGHTS)}
    # Of texts, numbers and lists of them, JSON's form is TOML's.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows.items()]
    atomic_write(out / CARD, "".join(lines))
