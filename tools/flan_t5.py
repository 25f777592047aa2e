"""RAG2's own filter: Flan-T5-large that answers with one of two added label tokens.

    python -m tools.flan_t5    into adapters/rag2-flan-t5 of the cache
    python -m tools.flan_t5 --labels data/own/rag2-labels --out data/own/rag2-flan-t5

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

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write, canonical_json, sha256_bytes
from lib.model_files import digest, model_folder, quiet
from lib.search.label_tokens import LABEL_TOKENS, encoded
from lib.stats import auroc
from lib.studies.rag2.labels import RECIPES, Recipe
from tools.train_filters import Training, open_training
from tools.training import resume


@dataclass(frozen=True)
class Settings:
    """How Flan-T5 is trained; the defaults are those of RAG2's code, on the model it names."""

    base: str = "google/flan-t5-large"
    learning_rate: float = 3e-5
    weight_decay: float = 0.0
    epochs: int = 40
    batch_size: int = 16
    max_tokens: int = 512
    seed: int = 0


OWN = Recipe("delta_ppl", rationale="own")
"""The paper's recipe, on rationales that the labelling model wrote itself."""


def train_flan_t5(
    training: Training,
    out: Path,
    settings: Settings | None = None,
    work: Path | None = None,
    recipe: Recipe = RECIPES["cross-ppl-25"],
) -> dict[str, Any]:
    """Train the paper's own filter into ``out``, by the paper's ``recipe``; its card.

    All weights are trained, by AdamW, the rate falling in a line from the first step on. Best is
    the epoch with the highest AUROC on one training question in ten, by the hash of its id; the
    paper does not say by what. A killed run resumes from checkpoints in ``work``.
    """
    settings = settings or Settings()
    pairs, texts = training.pairs(recipe)
    kept = [int(sha256_bytes(f"validation {q}".encode())[:8], 16) % 10 == 0 for q in pairs["qid"]]
    examples = pd.DataFrame({"texts": texts, "helpful": pairs["is_helpful"], "kept": kept})
    for part, group in examples.groupby("kept"):
        if group["helpful"].nunique() < 2:
            raise ValueError(f"both labels are needed among the pairs that are kept apart: {part}")
    base = digest(model_folder(settings.base))
    settled = [asdict(settings), base, examples.astype(object).values.tolist()]
    key = sha256_bytes(canonical_json(settled).encode())[:16]
    work = (work or paths.cache("train")) / key
    trainer, tokenizer = _flan_t5_trainer(settings, examples, work)
    resume(trainer, work)
    history = [entry for entry in trainer.state.log_history if "eval_auroc" in entry]
    best = max(history, key=lambda entry: (entry["eval_auroc"], -entry["epoch"]))
    out.mkdir(parents=True, exist_ok=True)
    trainer.model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    card = asdict(settings) | {"epoch": best["epoch"], "auroc": best["eval_auroc"]}
    card |= {"pairs": int((~examples["kept"]).sum()), "validation_pairs": int(sum(kept))}
    atomic_write(out / "card.json", json.dumps(card, indent=1, sort_keys=True) + "\n")
    return card


def _flan_t5_trainer(settings: Settings, examples: pd.DataFrame, work: Path) -> tuple[Any, Any]:
    """The base with the two label tokens in its trainer, and its tokenizer."""
    from transformers import (
        AutoModelForSeq2SeqLM,
        AutoTokenizer,
        DataCollatorForSeq2Seq,
        Seq2SeqTrainer,
        enable_full_determinism,
    )

    quiet()
    enable_full_determinism(settings.seed, warn_only=True)
    folder = model_folder(settings.base)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(LABEL_TOKENS), special_tokens=True)
    # T5 has more rows than tokens, so its matrix grows only where that is not so.
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    label_ids = tokenizer.convert_tokens_to_ids(list(LABEL_TOKENS))

    def first_step(logits: Any, _: Any) -> Any:
        """Of all that the model says, the two label logits at the first step."""
        logits = logits[0] if isinstance(logits, tuple) else logits
        return logits[:, 0, label_ids]

    def measure(evaluated: Any) -> dict[str, float]:
        helpful = evaluated.label_ids[:, 0] == label_ids[0]
        return {"auroc": auroc(helpful, evaluated.predictions[:, 0] - evaluated.predictions[:, 1])}

    prompts = {
        part: _prompts(group, tokenizer, label_ids, settings.max_tokens)
        for part, group in examples.groupby("kept")
    }
    trainer = Seq2SeqTrainer(
        model=model,
        args=_flan_t5_arguments(settings, work),
        train_dataset=prompts[False],
        eval_dataset=prompts[True],
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        preprocess_logits_for_metrics=first_step,
        compute_metrics=measure,
    )
    return trainer, tokenizer


def _prompts(
    group: pd.DataFrame, tokenizer: Any, label_ids: Sequence[int], max_tokens: int
) -> list[dict[str, list[int]]]:
    """What the trainer reads: each prompt, and its label token with the end mark behind it."""
    rows = []
    for (question, passage), is_helpful in zip(group["texts"], group["helpful"], strict=True):
        tokens = encoded(tokenizer, question, passage, max_tokens)
        labels = [label_ids[0 if is_helpful else 1], tokenizer.eos_token_id]
        mask = [1] * len(tokens)
        rows.append({"input_ids": tokens, "attention_mask": mask, "labels": labels})
    return rows


def _flan_t5_arguments(settings: Settings, work: Path) -> Any:
    import torch
    from transformers import Seq2SeqTrainingArguments

    return Seq2SeqTrainingArguments(
        output_dir=str(work),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        lr_scheduler_type="linear",
        warmup_steps=0,
        seed=settings.seed,
        save_strategy="epoch",
        eval_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=2,  # the best and the last
        load_best_model_at_end=True,
        metric_for_best_model="eval_auroc",
        greater_is_better=True,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train Flan-T5-large at the paper's size."""
    parser = argparse.ArgumentParser(prog="python -m tools.flan_t5")
    parser.add_argument("--labels", type=Path, help="a folder of tools.label_passages --sets")
    parser.add_argument("--base", default=Settings.base, help="of the hub, or a folder")
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--out", type=Path, default=paths.cache("adapters") / "rag2-flan-t5")
    asked = parser.parse_args(arguments)
    settings = Settings(base=asked.base, epochs=asked.epochs)
    training = open_training(asked.labels) if asked.labels else open_training()
    recipe = OWN if asked.labels else RECIPES["cross-ppl-25"]
    train_flan_t5(training, asked.out, settings, recipe=recipe)
    print(f'in a profile: judge = "hub:{asked.out}"', flush=True)


if __name__ == "__main__":
    main()
