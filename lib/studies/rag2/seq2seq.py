"""RAG2's own filter: Flan-T5-large that answers with one of two added label tokens.

It reads an instruction, the evidence and the question with its options, and is trained to write
``[HELPFUL]`` or ``[NOT_HELPFUL]``. A score is the softmax over these two at the first step of
decoding. The settings are those of the paper's code (METHODS.md, section 7). Three things differ:
too long a pair loses the end of its evidence, where the code cuts it into several examples, which
no longer fit its labels; the tokens are added to the model that is trained, where the code's
notebook opens another class; and the epoch is chosen by the AUROC on validation pairs, because the
paper does not say by what.

At the paper's size this was NOT RUN: the weights are on the hub (google/flan-t5-large, 3 GB), and
40 epochs need a GPU with 24 GB. Tests train a tiny T5 with the same code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lib.base import paths
from lib.base.files import atomic_write, canonical_json, sha256_bytes
from lib.llm.prompts import load_prompt
from lib.model_files import digest, model_folder, quiet
from lib.train.resume import go_on

LABEL_TOKENS = ("[HELPFUL]", "[NOT_HELPFUL]")

_PROMPTS = Path(__file__).parent / "prompts"
_CARD = "card.json"
_BATCH = 16


@dataclass(frozen=True)
class Settings:
    """How it is trained; the defaults are those of RAG2's code, on the model it names."""

    base: str = "google/flan-t5-large"
    learning_rate: float = 3e-5
    weight_decay: float = 0.0
    epochs: int = 40
    batch_size: int = 16
    max_tokens: int = 512
    seed: int = 0


@dataclass(frozen=True)
class Examples:
    """Pairs (question as it is shown, passage text), and whether each passage is helpful."""

    pairs: Sequence[tuple[str, str]]
    helpful: Sequence[bool]

    def __post_init__(self) -> None:
        if len(self.pairs) != len(self.helpful) or len(set(map(bool, self.helpful))) < 2:
            raise ValueError("a label for each pair is needed, and both labels among them")


def with_label_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Add ``LABEL_TOKENS`` to tokenizer and model where they are missing; their two ids.

    T5 has more rows than tokens, so its matrix grows only where that is not so.
    """
    tokenizer.add_tokens(list(LABEL_TOKENS), special_tokens=True)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    return tokenizer.convert_tokens_to_ids(list(LABEL_TOKENS))


def encoded(tokenizer: Any, question: str, passage: str, max_tokens: int) -> list[int]:
    """The tokens of a prompt, at most ``max_tokens``: only the evidence is ever cut.

    ValueError where the question leaves it no room.
    """
    prompt = load_prompt("filter", _PROMPTS)

    def tokens_of(evidence: str) -> list[int]:
        (message,) = prompt.messages(evidence=evidence, question=question)
        return tokenizer(message["content"])["input_ids"]

    tokens = tokens_of(passage)
    spans = tokenizer(passage, add_special_tokens=False, return_offsets_mapping=True)
    ends = [end for _, end in spans["offset_mapping"]]
    kept = len(ends)
    while len(tokens) > max_tokens:
        # Cutting may join or part tokens at the end, so it is done until the whole fits.
        kept -= len(tokens) - max_tokens
        if kept < 1:
            raise ValueError(f"the question leaves no room for evidence: {question[:60]!r} ...")
        tokens = tokens_of(passage[: ends[kept - 1]])
    return tokens


# training -----------------------------------------------------------------------------------------


def train_seq2seq(
    training: Examples,
    validation: Examples,
    out: Path,
    settings: Settings | None = None,
    work: Path | None = None,
) -> dict[str, Any]:
    """Train all weights, and write the model of the best epoch into ``out`` with its card.

    AdamW, the rate falling in a line from the first step on. Every epoch ends with a checkpoint in
    a folder of ``work`` (default: the cache) that belongs to these settings and examples, so the
    same call goes on where a killed one stopped. Best is the epoch with the highest AUROC on
    ``validation``, the first of equals. Returns the card: settings, ``epoch`` and ``auroc``.
    """
    settings = settings or Settings()
    base = digest(model_folder(settings.base))
    work = (work or paths.cache("train")) / _name(settings, training, validation, base)
    trainer, tokenizer = _untrained(settings, training, validation, work)
    go_on(trainer, work)
    history = [entry for entry in trainer.state.log_history if "eval_auroc" in entry]
    best = max(history, key=lambda entry: (entry["eval_auroc"], -entry["epoch"]))
    out.mkdir(parents=True, exist_ok=True)
    trainer.model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    card = asdict(settings) | {"epoch": best["epoch"], "auroc": best["eval_auroc"]}
    card |= {"pairs": len(training.pairs), "validation_pairs": len(validation.pairs)}
    atomic_write(out / _CARD, json.dumps(card, indent=1, sort_keys=True) + "\n")
    return card


def _untrained(
    settings: Settings, training: Examples, validation: Examples, work: Path
) -> tuple[Any, Any]:
    """The base with the two label tokens in its trainer, and its tokenizer."""
    from transformers import (
        AutoModelForSeq2SeqLM,
        AutoTokenizer,
        DataCollatorForSeq2Seq,
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
        enable_full_determinism,
    )

    quiet()
    enable_full_determinism(settings.seed, warn_only=True)
    folder = model_folder(settings.base)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    label_ids = with_label_tokens(model, tokenizer)

    def first_step(logits: Any, _: Any) -> Any:
        """Of all that the model says, the two label logits at the first step."""
        logits = logits[0] if isinstance(logits, tuple) else logits
        return logits[:, 0, label_ids]

    def auroc(told: Any) -> dict[str, float]:
        from sklearn.metrics import roc_auc_score

        helpful = told.label_ids[:, 0] == label_ids[0]
        return {"auroc": roc_auc_score(helpful, told.predictions[:, 0] - told.predictions[:, 1])}

    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(output_dir=str(work), **_arguments(settings)),
        train_dataset=_dataset(training, tokenizer, label_ids, settings.max_tokens),
        eval_dataset=_dataset(validation, tokenizer, label_ids, settings.max_tokens),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        preprocess_logits_for_metrics=first_step,
        compute_metrics=auroc,
    )
    return trainer, tokenizer


def _arguments(settings: Settings) -> dict[str, Any]:
    """The settings as the trainer calls them."""
    import torch

    return {
        "num_train_epochs": settings.epochs,
        "per_device_train_batch_size": settings.batch_size,
        "per_device_eval_batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0,
        "seed": settings.seed,
        "save_strategy": "epoch",
        "eval_strategy": "epoch",
        "logging_strategy": "epoch",
        "save_total_limit": 2,  # the best and the last
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_auroc",
        "greater_is_better": True,
        "disable_tqdm": True,
        "report_to": [],
        "use_cpu": not torch.cuda.is_available(),
    }


def _dataset(examples: Examples, tokenizer: Any, label_ids: list[int], max_tokens: int) -> Any:
    """What the trainer reads: the prompt, and a label token with the end mark behind it."""
    from datasets import Dataset

    prompts = [encoded(tokenizer, q, p, max_tokens) for q, p in examples.pairs]
    helpful, not_helpful = label_ids
    targets = [
        [helpful if is_helpful else not_helpful, tokenizer.eos_token_id]
        for is_helpful in examples.helpful
    ]
    masks = [[1] * len(prompt) for prompt in prompts]
    return Dataset.from_dict({"input_ids": prompts, "attention_mask": masks, "labels": targets})


def _name(settings: Settings, training: Examples, validation: Examples, base: str) -> str:
    """A name for these settings on this base and these examples."""
    parts = [[list(part.pairs), list(map(bool, part.helpful))] for part in (training, validation)]
    return sha256_bytes(canonical_json([asdict(settings), base, parts]).encode())[:16]


# reading ------------------------------------------------------------------------------------------


class Seq2SeqFilter:
    """A trained T5 as a filter: the softmax over both label tokens at the first decoding step.

    ``folder`` is what ``train_seq2seq`` wrote. ValueError where a tokenizer does not know the two
    label tokens. See ``lib.studies.rag2.filters.Filter``.
    """

    def __init__(
        self,
        folder: Path,
        threshold: float = 0.5,
        max_tokens: int = 512,
        device: str | None = None,
    ):
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        quiet()
        self.name = f"seq2seq:{folder.name}"
        self.threshold = threshold
        self.fingerprint = f"seq2seq|{digest(folder)}|{max_tokens} tokens|float32"
        self._max_tokens = max_tokens
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        known = self._tokenizer.get_vocab()
        missing = [token for token in LABEL_TOKENS if token not in known]
        if missing:
            raise ValueError(f"{folder} does not know {missing[0]}: train it with train_seq2seq")
        self._label_ids = [known[token] for token in LABEL_TOKENS]
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
        self._model = model.to(self._device).eval()

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """The probability of "[HELPFUL]" against "[NOT_HELPFUL]": float64 (n,)."""
        prompts = [encoded(self._tokenizer, q, p, self._max_tokens) for q, p in pairs]
        found = np.zeros(len(pairs))
        for rows in _batches([len(prompt) for prompt in prompts]):
            found[rows] = self._helpful([prompts[i] for i in rows])
        return found

    def _helpful(self, prompts: list[list[int]]) -> np.ndarray:
        import torch

        batch = self._tokenizer.pad({"input_ids": prompts}, return_tensors="pt").to(self._device)
        start = torch.full((len(prompts), 1), self._model.config.decoder_start_token_id)
        with torch.inference_mode():
            logits = self._model(**batch, decoder_input_ids=start.to(self._device)).logits
        both = logits[:, 0, self._label_ids].double().cpu()
        return both.softmax(dim=1)[:, 0].numpy()


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions in batches of like length, the longest first."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    for start in range(0, len(order), _BATCH):
        yield order[start : start + _BATCH]
