"""Fit one LoRA adapter; a run that is killed goes on from its last whole checkpoint.

The trainers are those of sentence-transformers, the adapters peft's. What is fixed beforehand is a
``Plan``; examples, losses and what becomes of the adapter are the caller's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from lib.base import paths
from lib.base.files import canonical_json, sha256_bytes
from lib.model_files import digest, quiet
from lib.train.adapter import peak_memory_mb, write_adapter, write_card
from lib.train.bases import base_folder
from lib.train.resume import KeepsTrained, go_on, minutes_counted, minutes_so_far


@dataclass(frozen=True)
class Plan:
    """All that fixes a run beside its examples.

    ``base``: "minilm", "mpnet", or a model of the hub or folder. ``reads``: "pairs" (a
    cross-encoder: both texts at once, one score a label) or "texts" (a bi-encoder: a vector each).
    ``labels`` are a cross-encoder's, in order. ``rank`` is LoRA's, its alpha is twice that, its
    ``dropout`` on every linear layer. The learning rate rises over the first ``warmup`` of all
    steps, then falls in a line.
    """

    base: str
    reads: Literal["pairs", "texts"]
    labels: tuple[str, ...] = ()
    epochs: float = 1
    rank: int = 8
    learning_rate: float = 1e-3
    batch_size: int = 32
    max_tokens: int = 128
    dropout: float = 0.05
    warmup: float = 0.06
    seed: int = 0
    save_steps: int = 50


def fit(
    plan: Plan,
    examples: Mapping[str, Sequence],
    loss: Callable[[Any], Any],
    out: Path,
    work: Path | None = None,
    **trained_on: Any,
) -> dict[str, Any]:
    """Train by ``plan`` on columns of ``examples``, write the adapter and its card into ``out``.

    ``loss`` takes the model, and gives one of sentence-transformers' losses; it is defined in a
    file. Checkpoints lie in a folder of ``work`` (default: the cache) that belongs to this plan,
    base, loss, precision and these examples: the same call goes on where a killed one stopped, and
    comes to the same weights. ``trained_on`` is added to the card, which is returned. A processor
    that multiplies bfloat16 does so (said on the card); weights are kept in float32 while they are
    trained, and written as float16.
    """
    base = digest(base_folder(plan.base))
    precision = "bfloat16 products, float32 weights" if _has_bf16() else "float32"
    key = _key([asdict(plan), base, precision], loss, examples)
    work = (work or paths.cache("train")) / key
    with minutes_counted(work):
        model = _trained(plan, examples, loss, work, bf16=precision != "float32")
    # Under the names that peft gives the parts of a whole model.
    write_adapter(model[0].model, out, prefix="base_model.model.")
    card = {
        "base_digest": base,
        **asdict(plan),
        **trained_on,
        "examples": len(next(iter(examples.values()))),
        "minutes": round(minutes_so_far(work), 1),
        "peak_memory_mb": peak_memory_mb(),
        "precision": precision,
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
        warmup_steps=plan.warmup,  # below 1: a share of all steps
        seed=plan.seed,
        batch_sampler=ByLength,
        bf16=bf16,
        save_steps=plan.save_steps,
        save_total_limit=2,
        logging_steps=plan.save_steps,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )
    run = type("Trainer", (KeepsTrained, trainer), {})(
        model=model,
        args=settings,
        train_dataset=Dataset.from_dict({name: list(own) for name, own in examples.items()}),
        loss=loss(model),
    )
    go_on(run, work)
    return model


def _untrained(plan: Plan) -> tuple[Any, type, type]:
    """The base with a fresh adapter, and its trainer with the trainer's arguments."""
    from peft import LoraConfig

    quiet()
    folder = str(base_folder(plan.base))
    # Every linear layer of the encoder; a new head, where there is one, is trained whole.
    lora = {"r": plan.rank, "lora_alpha": 2 * plan.rank, "lora_dropout": plan.dropout}
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


def _key(settled: list[Any], loss: Callable, examples: Mapping[str, Sequence]) -> str:
    """A name for what is settled, this loss (its name and its whole file) and these examples."""
    source = Path(inspect.getsourcefile(loss)).read_text(encoding="utf-8")
    columns = {name: list(own) for name, own in examples.items()}
    text = canonical_json([*settled, loss.__name__, source, columns])
    return sha256_bytes(text.encode())[:16]


def _has_bf16() -> bool:
    """Whether the processor multiplies bfloat16 itself; emulated it would be slower."""
    import torch

    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16")) or torch.cuda.is_available()
