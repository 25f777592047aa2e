"""Train the filters and re-rankers of RAG2.

    python -m tools.train_filters [NAME ...]    into data/rag2-filters and data/adapters

Heads and cross-encoders learn from ``data/perplexity``, each by its recipe
(``lib.studies.rag2.labels``), from training pairs alone. Cards say what each cost, and the
thresholds that keep 25 % and 5 % of the training pairs; the two baselines have cards for that too.
Re-rankers learn from which snippets BioASQ's experts gave.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base.files import sha256_bytes, sha256_file
from lib.datasets import Question, load_bioasq_dev, load_real, question_sets
from lib.embed import Encoder, load_encoder
from lib.methods.base import question_alone
from lib.model_files import base_folder
from lib.open_retriever import open_retriever, store_of
from lib.profiles import load_profile
from lib.run import Retriever
from lib.stats import auroc
from lib.studies.rag2.filters import (
    CROSSES,
    FEATURES,
    FILTERS,
    HEADS,
    RERANKERS,
    SHUFFLED,
    card_file,
    features,
    fit_head,
    head_file,
    load_filter,
    pair_features,
    passage_start,
    threshold_key,
)
from lib.studies.rag2.labels import (
    CARD,
    FOLDER,
    FRACTIONS,
    LABELS,
    RECIPES,
    Material,
    Recipe,
    asked_of,
    labelled,
    open_material,
    read_labels,
    threshold,
)
from tools.label_passages import Leak, check_leaks, load_parts, tested_questions
from tools.training import (
    Plan,
    add_names,
    fit,
    fit_logistic,
    peak_memory_mb,
    write_card,
    write_npz,
    write_toml,
)

PLAN = Plan("minilm", "pairs", ("not helpful", "helpful"), epochs=2, rank=8, max_tokens=512)
"""How each cross-encoder is trained. Nothing of it was tuned."""

PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""sklearn's C, the inverse penalty, that a head is chosen from."""

DRAWS = 10
"""Shuffles of the labels that ``SHUFFLED`` has weights for."""

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


@dataclass(frozen=True)
class Training:
    """What filters are trained from: the labels with what their questions ask, their file's hash,
    the questions to train on, and all questions that a filter may be tested on."""

    material: Material
    labels_sha256: str
    questions: Sequence[Question]
    tested: Sequence[Question]

    def pairs(self, recipe: Recipe) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
        """The pairs of a recipe and their texts; ``Leak`` unless all may be trained on."""
        pairs = labelled(recipe, self.material.labels)
        known = {(question.dataset, question.qid) for question in self.questions}
        for key in zip(pairs["dataset"], pairs["qid"], strict=True):
            if key not in known:
                raise Leak(f"{key[1]} is none to train on")
        check_leaks({"train": self.questions}, self.tested)
        return pairs, self.material.texts(pairs)


def open_training(folder: Path = FOLDER) -> Training:
    """Everything, from the open data; or of the labels that ``tools.label_passages`` put into
    another folder, from the sets and the profile of their card, with titles."""
    digest = sha256_file(folder / LABELS)
    if folder == FOLDER:
        return Training(open_material(), digest, load_parts()["train"], tested_questions())
    card = tomllib.loads((folder / CARD).read_text(encoding="utf-8"))
    sets = question_sets(card["sets"], card["questions"])
    labels = read_labels(folder)
    labelled_ids = set(labels["qid"])
    questions = [q for of_set in sets.values() for q in of_set if q.qid in labelled_ids]
    asked = {(question.dataset, question.qid): asked_of(question) for question in questions}
    profile = load_profile(card["profile"])
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    store = store_of(profile, encoder)
    material = Material(labels, asked, store, encoder, titles=True)
    return Training(material, digest, questions, tested_questions())


def train(name: str, training: Training) -> dict[str, Any]:
    """Train one filter (a baseline: find its thresholds), and write it and its card.

    Returns the card. The thresholds are over all training pairs with an expert's rationale, and
    over those of each set, for all filters alike.
    """
    started = time.monotonic()
    card: dict[str, Any] = {}
    if name in CROSSES:
        card = _train_cross(name, training)
    elif name in HEADS:
        card = _train_head(name, training)
    pairs, texts = training.pairs(Recipe("delta_ppl"))
    passages = [passage.text for passage in training.material.store] if name == "bm25" else []
    judge = load_filter(name, encoder=training.material.encoder, texts=passages)
    scores = pd.Series(judge.scores(texts))
    for share in FRACTIONS:
        card[threshold_key(share)] = threshold(scores, share)
        for dataset, of_set in scores.groupby(pairs["dataset"]):
            card[threshold_key(share, dataset)] = threshold(of_set, share)
    if name in CROSSES:
        write_card(card, card_file(name).parent)
    else:
        card |= _cost(started)
        write_toml(card, card_file(name))
    return card


def _cost(started: float) -> dict[str, Any]:
    minutes = round((time.monotonic() - started) / 60, 2)
    return {"minutes": minutes, "peak_memory_mb": peak_memory_mb()}


def _source(recipe: Recipe, pairs: pd.DataFrame, training: Training) -> dict[str, Any]:
    """What a card says of what was trained on."""
    return {
        "data": _DATA,
        "labels_sha256": training.labels_sha256,
        **asdict(recipe),
        "questions_in_all": int(pairs[["dataset", "qid"]].drop_duplicates().shape[0]),
        "helpful": int(pairs["is_helpful"].sum()),
    }


def _train_cross(name: str, training: Training) -> dict[str, Any]:
    from sentence_transformers.cross_encoder.losses import CrossEntropyLoss
    from transformers import AutoTokenizer

    pairs, texts = training.pairs(RECIPES[name])
    tokenizer = AutoTokenizer.from_pretrained(base_folder(PLAN.base))
    columns = {
        "question": [question for question, _ in texts],
        "passage": [passage_start(passage, tokenizer) for _, passage in texts],
        "label": pairs["is_helpful"].astype(int).tolist(),
    }
    source = _source(RECIPES[name], pairs, training)
    return fit(PLAN, columns, card_file(name).parent, CrossEntropyLoss, **source)


def _train_head(name: str, training: Training) -> dict[str, Any]:
    recipe = RECIPES[name]
    pairs, texts = training.pairs(recipe)
    rows = features(texts, training.material.encoder).astype(float)
    # A shuffled head gets the penalty of the unshuffled one: only the labels may differ.
    true_labels = labelled(replace(recipe, shuffled=False), training.material.labels)["is_helpful"]
    found = {C: validated(rows, true_labels.to_numpy(), pairs["qid"], C) for C in PENALTIES}
    # Of equals the strongest penalty.
    C = max(PENALTIES, key=lambda C: (found[C], -C))
    helpful = pairs["is_helpful"].to_numpy()
    if recipe.shuffled:
        found[C] = validated(rows, helpful, pairs["qid"], C)
    weight, bias = fit_head(rows, helpful, C)
    file = head_file(name)
    write_npz({"weight": weight, "bias": np.float32(bias)}, file)
    card = {
        **_source(recipe, pairs, training),
        "examples": len(pairs),
        "C": C,
        "validation_auroc": round(found[C], 4),
        "encoder": training.material.encoder.fingerprint,
        "sha256": sha256_file(file),
    }
    write_toml(card, card_file(name))  # its thresholds are found with the head as it is loaded
    return card


def validated(rows: np.ndarray, helpful: np.ndarray, questions: Sequence[str], C: float) -> float:
    """The mean AUROC of heads on questions that they have not seen, over five folds."""
    found = []
    for seen, unseen in _question_folds(rows, questions):
        weight, bias = fit_head(rows[seen], helpful[seen], C)
        found.append(auroc(helpful[unseen], rows[unseen] @ weight + bias))
    return float(np.mean(found))


def _question_folds(
    rows: np.ndarray, questions: Sequence[str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import GroupKFold

    folds = GroupKFold(5, shuffle=True, random_state=0)
    return folds.split(rows, groups=list(questions))


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
    ``SHUFFLED`` has the weights of ``DRAWS`` shuffles and the mean P@5 of all.
    """
    started = time.monotonic()
    pairs, given, qids = made
    rows = pair_features(encoder, texts)(pairs)
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
    write_toml(card, card_file(name))
    return card


def _out_of_fold(rows: np.ndarray, labels: np.ndarray, qids: Sequence[str]) -> np.ndarray:
    """Scores of every pair by weights that have not seen its question."""
    scores = np.empty(len(rows))
    for seen, unseen in _question_folds(rows, qids):
        scores[unseen] = rows[unseen] @ fit_logistic(rows[seen], labels[seen])[0]
    return scores


def _p_at_5(scores: np.ndarray, given: np.ndarray, qids: Sequence[str]) -> float:
    """The mean share of the five best of each question that experts gave."""
    table = pd.DataFrame({"qid": qids, "score": scores, "is_gold": given})
    best = table.sort_values("score", ascending=False, kind="stable").groupby("qid").head(5)
    return float(best.groupby("qid")["is_gold"].sum().mean() / 5)


def main() -> None:
    """Train what is named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_filters")
    everything = [*RERANKERS, *FILTERS]
    add_names(parser, "names", everything)
    named = parser.parse_args().names
    names = everything if "all" in named else named
    profile = load_profile("open")
    if set(names) & set(RERANKERS):
        encoder = load_encoder(profile.encoder, precision="float32")
        retriever = open_retriever(profile, encoder)
        examples = reranker_examples(retriever)
        texts = [passage.text for passage in retriever.store]
    training = open_training()
    for name in names:
        if name in RERANKERS:
            card = train_reranker(name, examples, encoder, texts)
        else:
            card = train(name, training)
        print(f"{name}: {card['minutes']} min, {card['peak_memory_mb']} MB", flush=True)


if __name__ == "__main__":
    main()
