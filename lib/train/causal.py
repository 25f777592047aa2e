"""Fit one LoRA adapter of a causal language model on replies; a killed run goes on.

``lib.train.fit`` does the same for encoders. The trainer is transformers', the adapter peft's, and
the loss is that of the reply's tokens alone: a prompt is read, not learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lib.base import paths
from lib.base.files import canonical_json, sha256_bytes
from lib.llm.causal import BUNDLED, plain_causal
from lib.model_files import digest, model_folder
from lib.train.adapter import peak_memory_mb, write_adapter, write_card
from lib.train.resume import KeepsTrained, go_on, minutes_counted, minutes_so_far

_UNREAD = -100
"""The label of a token that is not learnt, as transformers' loss has it."""


@dataclass(frozen=True)
class Example:
    """A chat up to where the reply begins, and the reply."""

    messages: tuple[dict[str, str], ...]
    reply: str


@dataclass(frozen=True)
class CausalPlan:
    """All that fixes a run beside its examples.

    ``base`` is a name that ``lib.llm.causal.plain_causal`` takes. ``rank`` is LoRA's, its alpha is
    twice that, its ``dropout`` on every linear layer but the last. The learning rate rises over
    the first ``warmup`` of all steps, then falls by a cosine. Longer examples than ``max_tokens``
    are cut at their end.
    """

    base: str = BUNDLED
    epochs: float = 1
    rank: int = 8
    learning_rate: float = 2e-4
    batch_size: int = 2
    warmup: float = 0.05
    max_tokens: int = 1024
    dropout: float = 0.05
    seed: int = 0
    save_steps: int = 20
    log_steps: int = 5


def fit_causal(
    plan: CausalPlan,
    examples: Sequence[Example],
    out: Path,
    work: Path | None = None,
    **trained_on: Any,
) -> dict[str, Any]:
    """Train by ``plan``, write the adapter and its card into ``out``; the card is returned.

    Checkpoints lie in a folder of ``work`` (default: the cache) that belongs to this plan, base and
    these examples: the same call goes on where a killed one stopped, and comes to the same weights.
    ``trained_on`` is added to the card. ``losses`` of the card has the mean loss of a token over
    every ``log_steps`` steps: the learning curve. All is float32; the adapter is written as
    float16.
    """
    base = causal_digest(plan.base)
    told = canonical_json([asdict(plan), base, [asdict(example) for example in examples]])
    work = (work or paths.cache("train")) / sha256_bytes(told.encode())[:16]
    with minutes_counted(work):
        model, losses = _trained(plan, examples, work)
    write_adapter(model, out)
    card = {
        "base_digest": base,
        **asdict(plan),
        **trained_on,
        "examples": len(examples),
        "losses": losses,
        "minutes": round(minutes_so_far(work), 1),
        "peak_memory_mb": peak_memory_mb(),
        "precision": "float32",
    }
    write_card(card, out)
    return card


def causal_digest(name: str) -> str:
    """One hash of the files of a model: for the bundled one, that of its GGUF file."""
    if name == BUNDLED:
        from lib.llm.small_model import SHA256, weights

        weights()  # checks that the file is the one with this hash
        return SHA256[:16]
    return digest(model_folder(name))


def encoded(example: Example, tokenizer: Any, max_tokens: int) -> dict[str, list[int]]:
    """``input_ids`` of the chat and its reply, and ``labels``: the same where a token is learnt.

    ValueError where nothing of the reply is left within ``max_tokens``.
    """
    text = tokenizer.apply_chat_template(
        list(example.messages), tokenize=False, add_generation_prompt=True
    )
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    reply = tokenizer(example.reply, add_special_tokens=False)["input_ids"]
    tokens = (prompt + reply)[:max_tokens]
    if len(tokens) <= len(prompt):
        raise ValueError(f"no token of the reply is within {max_tokens}: {example.reply[:40]!r}")
    return {"input_ids": tokens, "labels": [_UNREAD] * len(prompt) + tokens[len(prompt) :]}


def _trained(plan: CausalPlan, examples: Sequence[Example], work: Path) -> tuple[Any, list[float]]:
    """The model with its adapter trained, from the last whole checkpoint on, and the losses."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Trainer, TrainingArguments, enable_full_determinism

    enable_full_determinism(plan.seed, warn_only=True)
    model, tokenizer = plain_causal(plan.base)
    # From a GGUF file or not, the weights are float32 by now; the trainer goes by this mark.
    model.is_quantized = False
    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=plan.rank,
        lora_alpha=2 * plan.rank,
        lora_dropout=plan.dropout,
        target_modules="all-linear",
    )
    settings = TrainingArguments(
        output_dir=str(work),
        num_train_epochs=plan.epochs,
        per_device_train_batch_size=plan.batch_size,
        learning_rate=plan.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=plan.warmup,  # below 1: a share of all steps
        seed=plan.seed,
        save_steps=plan.save_steps,
        save_total_limit=2,
        logging_steps=plan.log_steps,
        remove_unused_columns=False,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )
    run = type("CausalTrainer", (KeepsTrained, Trainer), {})(
        model=get_peft_model(model, lora),
        args=settings,
        train_dataset=[encoded(example, tokenizer, plan.max_tokens) for example in examples],
        data_collator=_padded,
    )
    go_on(run, work)
    losses = [round(row["loss"], 4) for row in run.state.log_history if "loss" in row]
    return run.model, losses


def _padded(rows: Sequence[dict[str, list[int]]]) -> dict[str, Any]:
    """One batch, filled up behind its texts by tokens that are neither read nor learnt."""
    import torch

    longest = max(len(row["input_ids"]) for row in rows)
    shape = (len(rows), longest)
    batch = {
        "input_ids": torch.zeros(shape, dtype=torch.long),
        "attention_mask": torch.zeros(shape, dtype=torch.long),
        "labels": torch.full(shape, _UNREAD, dtype=torch.long),
    }
    for i, row in enumerate(rows):
        own = slice(0, len(row["input_ids"]))
        batch["input_ids"][i, own] = torch.tensor(row["input_ids"])
        batch["attention_mask"][i, own] = 1
        batch["labels"][i, own] = torch.tensor(row["labels"])
    return batch
