"""Fit one LoRA adapter by a plan; a killed run resumes from transformers' own checkpoints.

The trainers are those of transformers and sentence-transformers, the adapters peft's. Examples,
losses and what becomes of the adapter are the caller's.
"""

from __future__ import annotations

import json
import resource
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sentence_transformers.base.sampler import DefaultBatchSampler

from lib.base import paths
from lib.base.files import atomic_write, canonical_json, sha256_bytes, sha256_file
from lib.model_files import CARD, WEIGHTS, base_folder, digest, model_folder, quiet
from tools.causal import BUNDLED, plain_causal

_UNREAD = -100
"""The label of a token that no loss is taken of."""

_PREFIX = "base_model.model."
"""Before the names of an adapter's weights, as peft's own models have it."""

WHOLE = "model.safetensors"
"""The weights of a model that was trained whole."""

_WINDOW = 50
"""Batches whose examples are sorted by length together."""


@dataclass(frozen=True)
class Plan:
    """All that fixes a run beside its examples.

    ``base``: "minilm", "mpnet", "smollm2", or a model of the hub or folder. ``reads``: "pairs" (a
    cross-encoder with one score for each of ``labels``), "texts" (a bi-encoder) or "chats" (a
    causal model that learns replies). ``rank`` is LoRA's, its alpha is twice that, its ``dropout``
    on every linear layer; with rank 0 all weights of a bi-encoder are trained. The learning rate
    rises over the first ``warmup`` of all steps (1 or more: so many steps), then falls by
    ``schedule``. Examples are cut at ``max_tokens``.
    """

    base: str
    reads: Literal["pairs", "texts", "chats"]
    labels: tuple[str, ...] = ()
    epochs: float = 1
    rank: int = 8
    learning_rate: float = 1e-3
    batch_size: int = 32
    max_tokens: int = 128
    dropout: float = 0.05
    warmup: float = 0.06
    schedule: str = "linear"
    seed: int = 0
    save_steps: int = 50
    log_steps: int = 50


def fit(
    plan: Plan,
    examples: Mapping[str, Sequence],
    out: Path,
    loss: Callable[[Any], Any] | None = None,
    work: Path | None = None,
    **trained_on: Any,
) -> dict[str, Any]:
    """Train by ``plan`` on columns of ``examples``, write adapter (or model) and card to ``out``.

    ``loss`` takes the model, and gives one of sentence-transformers' losses; chats have none, and
    the columns ``messages`` and ``reply``. Checkpoints lie in a folder of ``work`` (default: the
    cache) that belongs to this plan, base, loss and these examples: the same call resumes a killed
    one, and comes to the same weights. ``trained_on`` is added to the card, which is returned.
    Adapters are written as float16.
    """
    started = time.monotonic()
    base = base_digest(plan)
    bf16 = plan.reads != "chats" and multiplies_bf16()
    columns = {name: list(column) for name, column in examples.items()}
    settled = [asdict(plan), base, bf16, loss.__name__ if loss else "", columns]
    key = sha256_bytes(canonical_json(settled).encode())[:16]
    work = (work or paths.cache("train")) / key
    model, trainer = _trainer(plan, columns, loss, work, bf16)
    resume(trainer, work)
    if plan.rank:
        # A bare encoder with an adapter names its parts otherwise than a model of peft's own.
        write_adapter(model, out, "" if plan.reads == "chats" else _PREFIX)
    else:
        model.save_pretrained(str(out), create_model_card=False)
    card = {
        "base_digest": base,
        **asdict(plan),
        **trained_on,
        "examples": len(next(iter(columns.values()))),
        "losses": [round(row["loss"], 4) for row in trainer.state.log_history if "loss" in row],
        "minutes": round((time.monotonic() - started) / 60, 1),
        "peak_memory_mb": peak_memory_mb(),
        "precision": "bfloat16 products, float32 weights" if bf16 else "float32",
    }
    write_card(card, out, WEIGHTS if plan.rank else WHOLE)
    return card


def resume(trainer: Any, work: Path) -> None:
    """Train from the last whole checkpoint in ``work``, or from the start if there is none."""
    # The state is a checkpoint's last file: a folder without it was torn by a kill.
    whole = [path.parent for path in work.glob("checkpoint-*/trainer_state.json")]
    last = max(whole, key=lambda path: int(path.name.split("-")[1]), default=None)
    trainer.train(resume_from_checkpoint=str(last) if last else None)


def base_digest(plan: Plan) -> str:
    """One hash of the files of a plan's base: for SmolLM2, that of its GGUF file."""
    if plan.base == BUNDLED:
        from lib.llm.small_model import SHA256, weights

        weights()  # checks that the file is the one with this hash
        return SHA256[:16]
    return digest(_folder(plan))


def _folder(plan: Plan) -> Path:
    return model_folder(plan.base) if plan.reads == "chats" else base_folder(plan.base)


def multiplies_bf16() -> bool:
    """Whether the processor multiplies bfloat16 itself; emulated it would be slower."""
    import torch

    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16")) or torch.cuda.is_available()


# models and their trainers ------------------------------------------------------------------------


def _trainer(
    plan: Plan, examples: dict[str, list], loss: Callable | None, work: Path, bf16: bool
) -> tuple[Any, Any]:
    """The model with a fresh adapter, as ``write_adapter`` takes it, and its trainer."""
    import torch
    from transformers import enable_full_determinism

    quiet()
    enable_full_determinism(plan.seed, warn_only=True)
    settings = {
        "output_dir": str(work),
        "num_train_epochs": plan.epochs,
        "per_device_train_batch_size": plan.batch_size,
        "learning_rate": plan.learning_rate,
        "lr_scheduler_type": plan.schedule,
        "warmup_steps": plan.warmup,  # below 1: a share of all steps
        "seed": plan.seed,
        "bf16": bf16,
        "save_steps": plan.save_steps,
        "save_total_limit": 2,
        "logging_steps": plan.log_steps,
        "report_to": [],
        "use_cpu": not torch.cuda.is_available(),
    }
    if plan.reads == "chats":
        return _chat_trainer(plan, examples, settings)
    return _encoder_trainer(plan, examples, loss, settings)


def _lora(plan: Plan, **more: Any) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=plan.rank,
        lora_alpha=2 * plan.rank,
        lora_dropout=plan.dropout,
        target_modules="all-linear",
        **more,
    )


def _encoder_trainer(
    plan: Plan, examples: dict[str, list], loss: Callable, settings: dict
) -> tuple[Any, Any]:
    from datasets import Dataset

    folder = str(_folder(plan))
    if plan.reads == "pairs":
        from sentence_transformers import CrossEncoder
        from sentence_transformers.cross_encoder import (
            CrossEncoderTrainer as Trainer,
        )
        from sentence_transformers.cross_encoder import (
            CrossEncoderTrainingArguments as Arguments,
        )

        model = CrossEncoder(folder, num_labels=len(plan.labels), max_length=plan.max_tokens)
        # The new head is trained whole.
        model.add_adapter(_lora(plan, task_type="SEQ_CLS", modules_to_save=["classifier"]))
    else:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers import SentenceTransformerTrainer as Trainer
        from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

        model = SentenceTransformer(folder)
        model.max_seq_length = plan.max_tokens
        if plan.rank:
            model.add_adapter(_lora(plan, task_type="FEATURE_EXTRACTION"))
    trainer = (_resuming(Trainer) if plan.rank else Trainer)(
        model=model,
        args=Arguments(batch_sampler=ByLength, **settings),
        train_dataset=Dataset.from_dict(examples),
        loss=loss(model),
    )
    return (model[0].model if plan.rank else model), trainer


def _resuming(trainer: type) -> type:
    """The trainer, reading an adapter back from a checkpoint; its own way wants a whole model."""

    class Resuming(trainer):
        def _load_from_checkpoint(self, checkpoint_path: str, *_: Any) -> None:
            from peft import set_peft_model_state_dict
            from safetensors.torch import load_file

            weights = load_file(Path(checkpoint_path) / WEIGHTS)
            bare = {name.removeprefix(_PREFIX): tensor for name, tensor in weights.items()}
            read = set_peft_model_state_dict(self.model[0].model, bare)
            if read.unexpected_keys:
                raise ValueError(f"{checkpoint_path} is of another model; remove its folder")

    return Resuming


class ByLength(DefaultBatchSampler):
    """Batches of examples of about one length: a batch costs what its longest text costs.

    The examples are shuffled, every ``_WINDOW`` batches of them are sorted by length and cut, and
    the batches are shuffled again. The order depends on the seed and the epoch alone, so a resumed
    run sees the batches that it had not seen.
    """

    def __init__(self, dataset: Any, batch_size: int, drop_last: bool, seed: int = 0, **_: Any):
        self.batch_size, self.drop_last, self.seed, self.epoch = batch_size, drop_last, seed, 0
        texts = [name for name in dataset.column_names if name != "label"]
        self._lengths = [
            sum(map(len, row)) for row in zip(*(dataset[t] for t in texts), strict=True)
        ]

    def __len__(self) -> int:
        return -(-len(self._lengths) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        import torch

        random = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self._lengths), generator=random).tolist()
        batches = []
        for start in range(0, len(order), self.batch_size * _WINDOW):
            window = order[start : start + self.batch_size * _WINDOW]
            window.sort(key=self._lengths.__getitem__)
            for first in range(0, len(window), self.batch_size):
                batches.append(window[first : first + self.batch_size])
        for i in torch.randperm(len(batches), generator=random).tolist():
            yield batches[i]


def _chat_trainer(plan: Plan, examples: dict[str, list], settings: dict) -> tuple[Any, Any]:
    from peft import get_peft_model
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    model, tokenizer = plain_causal(plan.base)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tokenizer.padding_side = "right"
    # From a GGUF file or not, the weights are float32 by now; the trainer goes by this mark.
    model.is_quantized = False
    model = get_peft_model(model, _lora(plan, task_type="CAUSAL_LM"))
    chats = zip(examples["messages"], examples["reply"], strict=True)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(remove_unused_columns=False, **settings),
        train_dataset=[encoded(m, reply, tokenizer, plan.max_tokens) for m, reply in chats],
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )
    return model, trainer


def encoded(
    messages: Sequence[Mapping[str, str]], reply: str, tokenizer: Any, max_tokens: int
) -> dict[str, list[int]]:
    """``input_ids`` of a chat and its reply, and ``labels``: the same where a token is learnt.

    ValueError where nothing of the reply is left within ``max_tokens``.
    """
    text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    tokens = prompt + tokenizer(reply, add_special_tokens=False)["input_ids"]
    tokens = tokens[:max_tokens]
    if len(tokens) <= len(prompt):
        raise ValueError(f"no token of the reply is within {max_tokens}: {reply[:40]!r}")
    return {"input_ids": tokens, "labels": [_UNREAD] * len(prompt) + tokens[len(prompt) :]}


def fit_logistic(
    rows: np.ndarray,
    labels: Sequence[bool],
    C: float = np.inf,
    used: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Weights (one a column of ``rows``) and bias of a logistic regression.

    ``C`` is sklearn's inverse penalty. Columns are standardised, and that is folded into the
    weights; those whose ``used`` is 0 weigh 0. The problem is convex and solved to 1e-8, so there
    is one answer and no seed.
    """
    from sklearn.linear_model import LogisticRegression

    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    used = np.ones(rows.shape[1]) if used is None else used
    model = LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
    model.fit((rows - mean) / scale * used, labels)
    weights = model.coef_[0] * used / scale
    return weights, float(model.intercept_[0] - mean @ weights)


# commands -----------------------------------------------------------------------------------------


def add_names(parser: ArgumentParser, argument: str, names: Iterable[str]) -> None:
    """An argument that takes any of ``names``, or none: then it is "all".

    A default is needed: without one argparse refuses the empty list, as it is no choice.
    """
    choices = [*names, "all"]
    parser.add_argument(argument, nargs="*", choices=choices, default="all", help="default: all")


# what is shipped ----------------------------------------------------------------------------------


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
    plain = {name: sorted(v) if isinstance(v, set) else v for name, v in settings.items()}
    text = json.dumps(plain, indent=1, sort_keys=True, default=str)
    atomic_write(out / "adapter_config.json", text + "\n")


def write_card(card: Mapping[str, Any], out: Path, weights: str = WEIGHTS) -> None:
    """``card.toml`` of the adapter, or whole model, in ``out``, with the hash of its weights."""
    write_toml({**card, "sha256": sha256_file(out / weights)}, out / CARD)


def write_toml(card: Mapping[str, Any], file: Path) -> None:
    """A card as TOML. Of texts, numbers, truth values and lists of them, JSON's form is TOML's."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in card.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, "".join(lines))


def write_npz(arrays: Mapping[str, Any], file: Path) -> None:
    """Arrays by name as one file of numpy's."""

    def save(temporary: Path) -> None:
        with open(temporary, "wb") as stream:  # given a name, numpy would add an ending to it
            np.savez(stream, **arrays)

    atomic_write(file, save)


def peak_memory_mb() -> int:
    """The most memory that this process has held so far, so of its largest training."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
