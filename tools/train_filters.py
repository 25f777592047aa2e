"""Train the filters and re-rankers of RAG2.

    python -m tools.train_filters [NAME ...]    into data/rag2-filters and data/adapters

Heads and cross-encoders learn from ``data/perplexity``, each by its recipe
(``lib.studies.rag2.labels``), from training pairs alone. Cards say what each cost, and the
thresholds that keep 25 % and 5 % of the training pairs; the two baselines have cards for that too.
Re-rankers learn from which snippets BioASQ's experts gave. ``flan-t5`` is the paper's own filter,
which needs the hub and a GPU with 24 GB: with Flan-T5-large it was NOT RUN; tests train a tiny T5.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write, canonical_json, sha256_bytes, sha256_file
from lib.datasets import load_bioasq_dev, load_real
from lib.embed import Encoder, load_encoder
from lib.methods.base import question_alone
from lib.model_files import base_folder, digest, model_folder, quiet
from lib.open_retriever import open_retriever
from lib.profiles import load_profile
from lib.run import Retriever
from lib.studies.rag2.filters import (
    BASELINES,
    CROSSES,
    HEADS,
    Bm25Filter,
    CosineFilter,
    Filter,
    PassageStart,
    card_file,
    features,
    head_file,
    load_filter,
    threshold_key,
)
from lib.studies.rag2.held import fit_head
from lib.studies.rag2.labels import (
    FRACTIONS,
    RECIPES,
    Material,
    Recipe,
    labelled,
    open_material,
    threshold,
)
from lib.studies.rag2.reranker import FEATURES, RERANKERS, SHUFFLED, PairFeatures
from lib.studies.rag2.reranker import card_file as reranker_card_file
from lib.studies.rag2.seq2seq import LABEL_TOKENS, encoded
from tools.training import (
    Plan,
    fit,
    fit_logistic,
    peak_memory_mb,
    resume,
    write_card,
    write_npz,
    write_toml,
)

PLAN = Plan("minilm", "pairs", ("not helpful", "helpful"), epochs=2, rank=8, max_tokens=512)
"""How each cross-encoder is trained. Nothing of it was tuned."""

PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""sklearn's C, the inverse penalty, that a head is chosen from."""

DRAWS = 10
"""Disorders of the labels that ``SHUFFLED`` has weights of."""

_FLAN_T5 = "flan-t5"
_FOLDS = 5
_DATA = (
    "BioASQ dev questions that share no document with the 618 (CC BY 2.5, BioASQ terms), MedMCQA's "
    "with explanations, the half to train on (MIT); passages of the open corpus; labels of "
    "data/perplexity"
)
_RERANKER_DATA = (
    "BioASQ questions that are not yes/no and share no document with a test question, each with "
    "the nearest snippets of BioASQ (CC BY 2.5, BioASQ terms)"
)


# filters ------------------------------------------------------------------------------------------


def train(name: str, material: Material) -> dict[str, Any]:
    """Train one filter (a baseline: find its thresholds), and write it and its card.

    Returns the card. The thresholds are over all training pairs with an expert's rationale, and
    over those of each set, for all filters alike.
    """
    started = time.monotonic()
    card: dict[str, Any] = {}
    if name in CROSSES:
        card = _train_cross(name, material)
    elif name in HEADS:
        card = _train_head(name, material)
    pairs, texts = material.training(Recipe("delta_ppl"))
    scores = pd.Series(_opened(name, material).scores(texts))
    for share in FRACTIONS:
        card[threshold_key(share)] = threshold(scores, share)
        for dataset, of_set in scores.groupby(pairs["dataset"]):
            card[threshold_key(share, dataset)] = threshold(of_set, share)
    if name in CROSSES:
        write_card(card, card_file(name).parent)
        return card
    card |= _cost(started)
    write_toml(card, card_file(name))
    return card


def _cost(started: float) -> dict[str, Any]:
    minutes = round((time.monotonic() - started) / 60, 2)
    return {"minutes": minutes, "peak_memory_mb": peak_memory_mb()}


def _opened(name: str, material: Material) -> Filter:
    """The filter whose thresholds are not yet known."""
    if name == "cosine":
        return CosineFilter(material.encoder, np.nan)
    if name == "bm25":
        return Bm25Filter([passage.text for passage in material.store], np.nan)
    return load_filter(name, encoder=material.encoder)


def _train_head(name: str, material: Material) -> dict[str, Any]:
    recipe = RECIPES[name]
    pairs, texts = material.training(recipe)
    rows = features(texts, material.encoder).astype(float)
    # A shuffled head gets the penalty of its twin: the labels alone are to differ.
    true_labels = labelled(replace(recipe, shuffled=False), material.labels)["is_helpful"]
    auroc = {C: validated(rows, true_labels.to_numpy(), pairs["qid"], C) for C in PENALTIES}
    # Of equals the strongest penalty.
    C = max(PENALTIES, key=lambda C: (auroc[C], -C))
    helpful = pairs["is_helpful"].to_numpy()
    if recipe.shuffled:
        auroc[C] = validated(rows, helpful, pairs["qid"], C)
    weight, bias = fit_head(rows, helpful, C)
    file = head_file(name)
    write_npz({"weight": weight, "bias": np.float32(bias)}, file)
    card = {
        **_source(recipe, pairs, material),
        "examples": len(pairs),
        "C": C,
        "validation_auroc": round(auroc[C], 4),
        "encoder": material.encoder.fingerprint,
        "sha256": sha256_file(file),
    }
    write_toml(card, card_file(name))  # its thresholds are found with the head as it is loaded
    return card


def validated(rows: np.ndarray, helpful: np.ndarray, questions: Sequence[str], C: float) -> float:
    """The mean AUROC of heads on questions that they have not seen, over five folds."""
    from sklearn.metrics import roc_auc_score

    found = []
    for seen, unseen in _question_folds(rows, questions):
        weight, bias = fit_head(rows[seen], helpful[seen], C)
        found.append(roc_auc_score(helpful[unseen], rows[unseen] @ weight + bias))
    return float(np.mean(found))


def _question_folds(
    rows: np.ndarray, questions: Sequence[str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import GroupKFold

    folds = GroupKFold(_FOLDS, shuffle=True, random_state=0)
    return folds.split(rows, groups=list(questions))


def _train_cross(name: str, material: Material) -> dict[str, Any]:
    from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

    pairs, texts = material.training(RECIPES[name])
    clip = PassageStart(base_folder(PLAN.base))
    columns = {
        "question": [question for question, _ in texts],
        "passage": [clip(passage) for _, passage in texts],
        "label": pairs["is_helpful"].astype(int).tolist(),
    }
    source = _source(RECIPES[name], pairs, material)
    return fit(PLAN, columns, card_file(name).parent, CrossEntropyLoss, **source)


def _source(recipe: Recipe, pairs: pd.DataFrame, material: Material) -> dict[str, Any]:
    """What a card says of what was trained on."""
    return {
        "data": _DATA,
        "labels_sha256": material.labels_sha256,
        **asdict(recipe),
        "questions_in_all": int(pairs[["dataset", "qid"]].drop_duplicates().shape[0]),
        "helpful": int(pairs["is_helpful"].sum()),
    }


# re-rankers ---------------------------------------------------------------------------------------

Examples = tuple[list[tuple[str, str]], np.ndarray, list[str]]
"""(question, snippet) pairs, whether the experts gave the snippet, and the questions' ids."""


def reranker_examples(retriever: Retriever, count: int = 400, depth: int = 32) -> Examples:
    """What re-rankers learn from: of ``count`` questions the ``depth`` nearest BioASQ snippets."""
    snippets = retriever.of_sources(["bioasq"])
    given: dict[str, set[str]] = {}
    text_of = {}
    for passage in snippets.store:
        if passage.source == "bioasq":
            text_of[passage.pid] = passage.text
            for qid in passage.meta["qids"]:
                given.setdefault(qid, set()).add(passage.pid)
    kept_apart = {question.qid for question in load_real("dev")}
    asked = [q for q in load_bioasq_dev() if q.qid not in kept_apart and q.qid in given]
    asked.sort(key=lambda q: sha256_bytes(f"reranker {q.qid}".encode()))
    asked = asked[:count]
    hits = snippets.search_many([question_alone(question) for question in asked], depth)
    pairs, labels, qids = [], [], []
    for question, hit in zip(asked, hits, strict=True):
        for pid in hit.ids[0].tolist():
            pairs.append((question.text, text_of[pid]))
            labels.append(pid in given[question.qid])
            qids.append(question.qid)
    return pairs, np.array(labels), qids


def train_reranker(
    name: str, made: Examples, encoder: Encoder, texts: Sequence[str]
) -> dict[str, Any]:
    """Train one of ``RERANKERS``; its card. ``texts`` are all passages, for BM25.

    The card has P@5 of the lists that it re-ranked without having seen their questions, in five
    folds, that of the same lists by the cosine, and ``base_rate``, that of any order by chance.
    ``SHUFFLED`` has the weights of ``DRAWS`` disorders and the mean P@5 of all.
    """
    started = time.monotonic()
    pairs, given, qids = made
    rows = PairFeatures(encoder, texts)(pairs)
    labels = [given]
    if name == SHUFFLED:
        labels = [np.random.default_rng(draw).permutation(given) for draw in range(DRAWS)]
    # The bias moves no ranking and is left out.
    weights = [fit_logistic(rows, drawn)[0].tolist() for drawn in labels]
    unseen = [_p_at_5(_out_of_fold(rows, drawn, qids), given, qids) for drawn in labels]
    card = {
        "data": _RERANKER_DATA,
        "examples": len(pairs),
        "features": list(FEATURES),
        "weights": weights if name == SHUFFLED else weights[0],
        "p_at_5": round(float(np.mean(unseen)), 4),
        "cosine_p_at_5": round(_p_at_5(rows[:, 0], given, qids), 4),
        "base_rate": round(float(given.mean()), 4),
        **_cost(started),
        "encoder": encoder.fingerprint,
    }
    write_toml(card, reranker_card_file(name))
    return card


def _out_of_fold(rows: np.ndarray, labels: np.ndarray, qids: Sequence[str]) -> np.ndarray:
    """Scores of every pair by weights that have not seen its question."""
    scores = np.empty(len(rows))
    for seen, unseen in _question_folds(rows, qids):
        scores[unseen] = rows[unseen] @ fit_logistic(rows[seen], labels[seen])[0]
    return scores


def _p_at_5(scores: np.ndarray, given: np.ndarray, qids: Sequence[str]) -> float:
    """The mean share of the five best of each question that experts gave."""
    table = pd.DataFrame({"qid": qids, "score": scores, "given": given})
    best = table.sort_values("score", ascending=False, kind="stable").groupby("qid").head(5)
    return float(best.groupby("qid")["given"].sum().mean() / 5)


# the paper's own filter ---------------------------------------------------------------------------


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


def train_flan_t5(
    material: Material, out: Path, settings: Settings | None = None, work: Path | None = None
) -> dict[str, Any]:
    """Train the paper's own filter into ``out``, by the recipe of ``cross-ppl-25``; its card.

    All weights are trained, by AdamW, the rate falling in a line from the first step on. Best is
    the epoch with the highest AUROC on one training question in ten, by the hash of its id; the
    paper does not say by what. A killed run resumes from checkpoints in ``work``.
    """
    settings = settings or Settings()
    pairs, texts = material.training(RECIPES["cross-ppl-25"])
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

    sets = {
        part: _prompts(group, tokenizer, label_ids, settings.max_tokens)
        for part, group in examples.groupby("kept")
    }
    trainer = Seq2SeqTrainer(
        model=model,
        args=_flan_t5_arguments(settings, work),
        train_dataset=sets[False],
        eval_dataset=sets[True],
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        preprocess_logits_for_metrics=first_step,
        compute_metrics=_auroc_of(label_ids),
    )
    return trainer, tokenizer


def _auroc_of(label_ids: Sequence[int]) -> Callable[[Any], dict[str, float]]:
    from sklearn.metrics import roc_auc_score

    def auroc(evaluated: Any) -> dict[str, float]:
        helpful = evaluated.label_ids[:, 0] == label_ids[0]
        scores = evaluated.predictions[:, 0] - evaluated.predictions[:, 1]
        return {"auroc": roc_auc_score(helpful, scores)}

    return auroc


def _prompts(
    group: pd.DataFrame, tokenizer: Any, label_ids: Sequence[int], max_tokens: int
) -> list[dict[str, list[int]]]:
    """What the trainer reads: each prompt, and its label token with the end mark behind it."""
    rows = []
    for (question, passage), is_helpful in zip(group["texts"], group["helpful"], strict=True):
        tokens = encoded(tokenizer, question, passage, max_tokens)
        label = label_ids[0] if is_helpful else label_ids[1]
        mask = [1] * len(tokens)
        labels = [label, tokenizer.eos_token_id]
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


def main() -> None:
    """Train what is named, or all but Flan-T5."""
    filters = (*BASELINES, *HEADS, *CROSSES)
    parser = argparse.ArgumentParser(prog="python -m tools.train_filters")
    everything = [*RERANKERS, *filters, _FLAN_T5]
    parser.add_argument("names", nargs="*", choices=everything, help="default: all but flan-t5")
    names = parser.parse_args().names or everything[:-1]
    profile = load_profile("open")
    if set(names) & set(RERANKERS):
        encoder = load_encoder(profile.encoder, precision="float32")
        retriever = open_retriever(profile, encoder)
        made = reranker_examples(retriever)
        texts = [passage.text for passage in retriever.store]
    material = open_material()
    for name in names:
        if name == _FLAN_T5:
            out = paths.cache("adapters") / f"rag2-{_FLAN_T5}"
            train_flan_t5(material, out)
            print(f'load_filter("seq2seq:{out}")', flush=True)
            continue
        if name in RERANKERS:
            card = train_reranker(name, made, encoder, texts)
        else:
            card = train(name, material)
        print(f"{name}: {card['minutes']} min, {card['peak_memory_mb']} MB", flush=True)


if __name__ == "__main__":
    main()
