"""Train the filters of RAG2: ``python -m lib.studies.rag2.train_filters [NAME ...]``.

Heads and cross-encoders learn from ``lib.studies.rag2.labels``, each by its recipe, from training
pairs alone. A run that was killed goes on where it stopped. Cards say what each cost, and the
thresholds that keep 25 % and 5 % of the training pairs; the two baselines have cards for that too.
The name ``flan-t5`` trains the paper's own filter, which needs the hub and a GPU.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write, sha256_bytes, sha256_file
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.embed import Encoder, load_encoder
from lib.index_build import corpus_store
from lib.profiles import load_profile
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
    share_threshold,
    threshold_key,
)
from lib.studies.rag2.labels import FOLDER, FRACTIONS, helpful, read_labels
from lib.studies.rag2.rationales import (
    Leak,
    Rationale,
    check_leaks,
    load_rationales,
    tested_questions,
)
from lib.studies.rag2.seq2seq import Examples, Settings, train_seq2seq
from lib.train.adapter import write_card
from lib.train.bases import base_folder
from lib.train.fit import Plan, fit

LABEL_NAMES = ("not helpful", "helpful")
"""The labels of a cross-encoder, in order."""

PLAN = Plan("minilm", "pairs", LABEL_NAMES, epochs=2, rank=8, max_tokens=512)
"""How each cross-encoder is trained. Nothing of it was tuned."""

PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""sklearn's C, the inverse penalty, that a head is chosen from."""

_FLAN_T5 = "flan-t5"
_FOLDS = 5
_DATA = (
    "BioASQ dev questions that share no document with the 618 (CC BY 2.5, BioASQ terms), MedMCQA's "
    "with explanations, the half to train on (MIT); passages of the open corpus; labels of "
    "data/perplexity"
)


@dataclass(frozen=True)
class Recipe:
    """What a filter calls helpful.

    ``label``: the greatest ``share`` of "delta_ppl" (the paper's) or "delta_log_ppl"; "right": the
    model answers right with the passage; "turned": and wrong without it (RAG2, section 3.2, on
    earlier work). ``rationale`` is whose text the difference is of; ``questions`` are "all", or
    those that have a rationale of the model's "own". With ``shuffled`` the labels are put in
    disorder over the training pairs, by seed 0.
    """

    label: Literal["delta_ppl", "delta_log_ppl", "right", "turned"]
    share: float = 0.25
    rationale: Literal["expert", "own"] = "expert"
    questions: Literal["all", "own"] = "all"
    shuffled: bool = False


RECIPES = {
    "head-ppl-25": Recipe("delta_ppl"),
    "head-log-25": Recipe("delta_log_ppl"),
    "head-ppl-05": Recipe("delta_ppl", 0.05),
    "head-log-05": Recipe("delta_log_ppl", 0.05),
    "head-own": Recipe("delta_ppl", rationale="own", questions="own"),
    "head-own-questions": Recipe("delta_ppl", questions="own"),
    "head-right": Recipe("right"),
    "head-turned": Recipe("turned"),
    "head-shuffled": Recipe("delta_ppl", shuffled=True),
    "cross-ppl-25": Recipe("delta_ppl"),
    "cross-shuffled": Recipe("delta_ppl", shuffled=True),
}
"""What each trained filter is trained on. A shuffled one is its ``ppl-25`` in all else."""


# what is trained on -------------------------------------------------------------------------------


def labelled(recipe: Recipe, labels: pd.DataFrame, part: str = "train") -> pd.DataFrame:
    """The pairs of a part with their label by a recipe: dataset, part, qid, pid, is_helpful (bool).

    ``labels`` are those of ``read_labels``. What counts as a great difference is always read off
    the training pairs, of each set by itself (``labels.helpful``).
    """
    chosen = labels[labels["rationale"] == recipe.rationale]
    if recipe.questions == "own":
        has_own = labels.loc[labels["rationale"] == "own", "qid"]
        chosen = chosen[chosen["qid"].isin(has_own)]
    if recipe.label in ("right", "turned"):
        chosen = chosen[chosen["right_with"].notna()]
        is_helpful = chosen["right_with"] == 1
        if recipe.label == "turned":
            is_helpful &= chosen["right_without"] == 0
    else:
        is_helpful = helpful(chosen, recipe.label, recipe.share)
    table = chosen[["dataset", "part", "qid", "pid"]].assign(is_helpful=is_helpful.astype(bool))
    table = table[table["part"] == part].reset_index(drop=True)
    if recipe.shuffled:
        order = np.random.default_rng(0).permutation(len(table))
        table["is_helpful"] = table["is_helpful"].to_numpy()[order]
    return table


def check_training(
    pairs: pd.DataFrame, rationales: Sequence[Rationale], tested: Iterable[Question]
) -> None:
    """``Leak`` unless all pairs may be trained on.

    Refused are pairs and questions of another part than "train", a question that is unknown, and
    one that shares a document or its words with a tested one (``rationales.check_leaks``).
    """
    other = pairs[pairs["part"] != "train"]
    if len(other):
        raise Leak(f"{len(other)} pairs, {other['qid'].iloc[0]} first, are not of the part 'train'")
    of_key = {(rationale.dataset, rationale.qid): rationale for rationale in rationales}
    used = []
    for key in sorted(set(zip(pairs["dataset"], pairs["qid"], strict=True))):
        if key not in of_key or of_key[key].part != "train":
            raise Leak(f"{key[0]}'s question {key[1]} is none to train on")
        used.append(of_key[key])
    check_leaks(used, tested)


def texts_of(
    pairs: pd.DataFrame, rationales: Sequence[Rationale], store: PassageStore
) -> list[tuple[str, str]]:
    """Each pair's question as it is shown and its passage, in the order of the rows."""
    asked = {(r.dataset, r.qid): r.asked for r in rationales}
    text = {passage.pid: passage.text for passage in store.get_many(sorted(set(pairs["pid"])))}
    rows = zip(pairs["dataset"], pairs["qid"], pairs["pid"], strict=True)
    return [(asked[dataset, qid], text[pid]) for dataset, qid, pid in rows]


# heads --------------------------------------------------------------------------------------------


def fit_head(rows: np.ndarray, helpful: np.ndarray, C: float) -> tuple[np.ndarray, float]:
    """Weights (float32, one a feature) and bias of the logistic regression.

    Columns are standardised, and that is folded into the weights. The problem is convex and solved
    to 1e-8, so there is one answer and no seed.
    """
    from sklearn.linear_model import LogisticRegression

    mean = rows.mean(axis=0)
    scale = rows.std(axis=0) + 1e-9
    model = LogisticRegression(C=C, tol=1e-8, max_iter=1000, solver="newton-cholesky")
    model.fit((rows - mean) / scale, helpful)
    weight = model.coef_[0] / scale
    return weight.astype(np.float32), float(model.intercept_[0] - mean @ weight)


def choose_penalty(
    rows: np.ndarray, helpful: np.ndarray, questions: Sequence[str]
) -> tuple[float, dict[float, float]]:
    """The C of ``PENALTIES`` with the best AUROC over folds of questions, and the AUROC of each.

    Of equals the strongest penalty. The folds are five, and no question is in two.
    """
    auroc = {C: validated(rows, helpful, questions, C) for C in PENALTIES}
    return max(PENALTIES, key=lambda C: (auroc[C], -C)), auroc


def validated(rows: np.ndarray, helpful: np.ndarray, questions: Sequence[str], C: float) -> float:
    """The mean AUROC over five folds of questions of heads that have not seen the fold."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold

    found = []
    folds = GroupKFold(_FOLDS, shuffle=True, random_state=0)
    for seen, unseen in folds.split(rows, helpful, list(questions)):
        weight, bias = fit_head(rows[seen], helpful[seen], C)
        found.append(roc_auc_score(helpful[unseen], rows[unseen] @ weight + bias))
    return float(np.mean(found))


# all of it ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Material:
    """What is trained from: labels and their file's hash, questions with rationales, passages,
    and the encoder of heads and cosine."""

    labels: pd.DataFrame
    labels_sha256: str
    rationales: Sequence[Rationale]
    tested: Sequence[Question]
    store: PassageStore
    encoder: Encoder

    def training(self, recipe: Recipe) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
        """The pairs of a recipe, checked for leaks, and their texts."""
        pairs = labelled(recipe, self.labels)
        check_training(pairs, self.rationales, self.tested)
        return pairs, texts_of(pairs, self.rationales, self.store)


def open_material() -> Material:
    """Everything, from the open data."""
    return Material(
        read_labels(),
        sha256_file(FOLDER / "labels.csv.xz"),
        load_rationales(),
        tested_questions(),
        corpus_store(load_profile("open").corpora),
        load_encoder("minilm", precision="float32"),
    )


def train(name: str, material: Material) -> dict[str, Any]:
    """Train one filter (a baseline: find its thresholds), and write it and its card.

    Returns the card. The thresholds are over all training pairs with an expert's rationale, and
    over those of each set, for all filters alike.
    """
    started = time.monotonic()
    if name in CROSSES:
        card = _train_cross(name, material)
    elif name in HEADS:
        card = _train_head(name, material)
    else:
        card = {}
    pairs, texts = material.training(Recipe("delta_ppl"))
    scores = pd.Series(_opened(name, material).scores(texts))
    for share in FRACTIONS:
        card[threshold_key(share)] = share_threshold(scores, share)
        for dataset, own in scores.groupby(pairs["dataset"]):
            card[threshold_key(share, dataset)] = share_threshold(own, share)
    if name in CROSSES:
        write_card(card, card_file(name).parent)
        return card
    card["minutes"] = round((time.monotonic() - started) / 60, 2)
    card["peak_memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    _write_toml(card, card_file(name))
    return card


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
    C, auroc = choose_penalty(rows, true_labels.to_numpy(), pairs["qid"])
    helpful = pairs["is_helpful"].to_numpy()
    if recipe.shuffled:
        auroc[C] = validated(rows, helpful, pairs["qid"], C)
    weight, bias = fit_head(rows, helpful, C)
    file = head_file(name)
    atomic_write(file, partial(_save_head, weight, bias))
    card = {
        **_told(recipe, pairs, material),
        "examples": len(pairs),
        "C": C,
        "validation_auroc": round(auroc[C], 4),
        "encoder": material.encoder.fingerprint,
        "sha256": sha256_file(file),
    }
    _write_toml(card, card_file(name))
    return card


def _save_head(weight: np.ndarray, bias: float, file: Path) -> None:
    with open(file, "wb") as stream:  # given a name, numpy would add an ending to it
        np.savez(stream, weight=weight, bias=np.float32(bias))


def _train_cross(name: str, material: Material) -> dict[str, Any]:
    from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

    pairs, texts = material.training(RECIPES[name])
    clip = PassageStart(base_folder(PLAN.base))
    columns = {
        "question": [question for question, _ in texts],
        "passage": [clip(passage) for _, passage in texts],
        "label": pairs["is_helpful"].astype(int).tolist(),
    }
    told = _told(RECIPES[name], pairs, material)
    return fit(PLAN, columns, CrossEntropyLoss, card_file(name).parent, **told)


def train_flan_t5(
    material: Material, out: Path, settings: Settings | None = None, work: Path | None = None
) -> dict[str, Any]:
    """Train the paper's own filter into ``out``, by the recipe of ``cross-ppl-25``; its card.

    One training question in ten, by the hash of its id, is kept to choose the epoch by. This was
    NOT RUN with Flan-T5-large (see ``lib.studies.rag2.seq2seq``).
    """
    pairs, texts = material.training(RECIPES["cross-ppl-25"])
    validates = [int(sha256_bytes(f"validation {q}".encode())[:8], 16) % 10 == 0 for q in pairs.qid]
    parts = []
    for wanted in (False, True):
        rows = [i for i, own in enumerate(validates) if own == wanted]
        is_helpful = pairs["is_helpful"].to_numpy()[rows].tolist()
        parts.append(Examples([texts[i] for i in rows], is_helpful))
    return train_seq2seq(*parts, out, settings, work)


def _told(recipe: Recipe, pairs: pd.DataFrame, material: Material) -> dict[str, Any]:
    """What a card says of what was trained on."""
    return {
        "data": _DATA,
        "labels_sha256": material.labels_sha256,
        **asdict(recipe),
        "questions_in_all": int(pairs[["dataset", "qid"]].drop_duplicates().shape[0]),
        "helpful": int(pairs["is_helpful"].sum()),
    }


def _write_toml(card: dict[str, Any], file: Path) -> None:
    # Of texts, numbers and truth values, JSON's form is TOML's.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in card.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, "".join(lines))


def main() -> None:
    """``python -m lib.studies.rag2.train_filters [NAME ...]``"""
    everything = (*BASELINES, *HEADS, *CROSSES)
    parser = argparse.ArgumentParser(prog="python -m lib.studies.rag2.train_filters")
    names_help = f"of {', '.join(everything)}, {_FLAN_T5}; default: all but the last"
    parser.add_argument("names", nargs="*", help=names_help)
    told = parser.parse_args()
    unknown = sorted(set(told.names) - {*everything, _FLAN_T5})
    if unknown:
        sys.exit(f"error: no filter {unknown[0]!r}; there are: {', '.join(everything)}, {_FLAN_T5}")
    names = told.names or list(everything)
    material = open_material()
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}", flush=True)
        if name == _FLAN_T5:
            out = paths.cache("adapters") / f"rag2-{_FLAN_T5}"
            train_flan_t5(material, out)
            print(f'  load_filter("seq2seq:{out}")', flush=True)
            continue
        card = train(name, material)
        cost = f"{card['minutes']} min, {card['peak_memory_mb']} MB of memory"
        print(f"  {cost}: {paths.shown(card_file(name))}", flush=True)


if __name__ == "__main__":
    main()
