"""A re-ranker for laptops: it learnt from which snippets BioASQ's experts gave for a question.

RAG2 re-ranks with MedCPT's cross-encoder (``lib.search.rerank``), which needs the hub. What stands
in for it here weighs three things that a pair shows: the cosine of question and passage, BM25, and
which share of the question's words the passage has. A LoRA cross-encoder on MiniLM was trained
first: it ranked at chance, and a regression on both vectors, trained on near misses, ranked worse
than the cosine alone; neither is shipped.

Training: what the question finds among BioASQ's snippets, for BioASQ's other questions (not yes/no,
no document of a test question). Beside it stands the same trained on labels in disorder.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base.files import atomic_write, sha256_bytes
from lib.base.paths import DATA
from lib.datasets import load_bioasq_dev, load_real
from lib.embed import Encoder
from lib.methods.base import question_alone
from lib.methods.postprocess import Scorer
from lib.run import Retriever
from lib.search.bm25 import words
from lib.studies.rag2.filters import Bm25Filter, CosineFilter

SHUFFLED = "reranker-shuffled"
DRAWS = 10
RERANKERS = ("reranker", SHUFFLED)

FEATURES = ("cosine", "bm25", "words in common")

_QUESTIONS = 400
_DEPTH = 32
"""Questions that are learnt from, and how many of the nearest snippets of each."""

_FOLDS = 5
_TOP = 5
_FOLDER = DATA / "rag2-filters"
_DATA = (
    "BioASQ questions that are not yes/no and share no document with a test question, each with "
    "the nearest snippets of BioASQ (CC BY 2.5, BioASQ terms)"
)

Examples = tuple[list[tuple[str, str]], np.ndarray, list[str]]
"""(question, snippet) pairs, whether the experts gave the snippet, and the questions' ids."""


def card_file(name: str) -> Path:
    """The card of a re-ranker: its weights are on it."""
    return _FOLDER / f"{name}.toml"


def card_of(name: str) -> dict[str, Any]:
    """What a re-ranker was trained on and what that cost."""
    card = card_file(name)
    if not card.is_file():
        raise FileNotFoundError(
            f"{card.name} is missing; run: python -m lib.studies.rag2.reranker {name}"
        )
    return tomllib.loads(card.read_text(encoding="utf-8"))


class PairFeatures:
    """``FEATURES`` of (query, passage) pairs, float64 (n, 3); each pair is read once.

    ``texts`` are all passages that are searched: how rare a word is, BM25 takes from them.
    """

    def __init__(self, encoder: Encoder, texts: Sequence[str]):
        self._cosine = CosineFilter(encoder, threshold=0.0)
        self._bm25 = Bm25Filter(texts, threshold=0.0)
        self._known: dict[tuple[str, str], np.ndarray] = {}

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if new:
            self._known |= dict(zip(new, self._read(new), strict=True))
        return np.array([self._known[pair] for pair in pairs]).reshape(-1, len(FEATURES))

    def _read(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        shared = []
        for query, passage in pairs:
            asked = set(words(query))
            shared.append(len(asked & set(words(passage))) / max(len(asked), 1))
        return np.column_stack([self._cosine.scores(pairs), self._bm25.scores(pairs), shared])


class Reranker:
    """Scores of (query, passage) pairs, float64 (n,): the logit of "an expert would give it".

    ``texts`` are all passages that are searched. ValueError where the card is of another encoder.
    """

    def __init__(self, name: str, encoder: Encoder, texts: Sequence[str]):
        self.name = name
        (self._weights,) = _weights_of(name, encoder)
        self._features = PairFeatures(encoder, texts)

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """See ``lib.methods.postprocess.Scorer``."""
        return self._features(pairs) @ self._weights


def shuffled_rerankers(encoder: Encoder, texts: Sequence[str]) -> list[Scorer]:
    """``SHUFFLED``, one for each of its draws. One draw alone may rank well, or backwards."""
    features = PairFeatures(encoder, texts)

    def scorer(weights: np.ndarray) -> Scorer:
        return lambda pairs: features(pairs) @ weights

    return [scorer(weights) for weights in _weights_of(SHUFFLED, encoder)]


def _weights_of(name: str, encoder: Encoder) -> np.ndarray:
    """The weights on a card, float64 (draws, 3)."""
    card = card_of(name)
    if card["encoder"] != encoder.fingerprint:
        raise ValueError(f"{name} was trained on {card['encoder']}, not {encoder.fingerprint}")
    return np.atleast_2d(np.array(card["weights"], dtype=float))


def examples(retriever: Retriever) -> Examples:
    """What re-rankers are trained on: of each question the nearest of BioASQ's snippets."""
    own = retriever.of_sources(["bioasq"])
    given: dict[str, set[str]] = {}
    text_of = {}
    for passage in own.store:
        if passage.source == "bioasq":
            text_of[passage.pid] = passage.text
            for qid in passage.meta["qids"]:
                given.setdefault(qid, set()).add(passage.pid)
    kept_apart = {question.qid for question in load_real("dev")}
    asked = [q for q in load_bioasq_dev() if q.qid not in kept_apart and q.qid in given]
    asked.sort(key=lambda q: sha256_bytes(f"reranker {q.qid}".encode()))
    asked = asked[:_QUESTIONS]
    hits = own.search_many([question_alone(question) for question in asked], _DEPTH)
    pairs, labels, qids = [], [], []
    for question, hit in zip(asked, hits, strict=True):
        for pid in hit.ids[0].tolist():
            pairs.append((question.text, text_of[pid]))
            labels.append(pid in given[question.qid])
            qids.append(question.qid)
    return pairs, np.array(labels), qids


def train(name: str, made: Examples, encoder: Encoder, texts: Sequence[str]) -> dict[str, Any]:
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
    weights = [_fitted(rows, own).tolist() for own in labels]
    unseen = [_p_at_top(_out_of_fold(rows, own, qids), given, qids) for own in labels]
    told = {
        "data": _DATA,
        "examples": len(pairs),
        "features": list(FEATURES),
        "weights": weights if name == SHUFFLED else weights[0],
        "p_at_5": round(float(np.mean(unseen)), 4),
        "cosine_p_at_5": round(_p_at_top(rows[:, 0], given, qids), 4),
        "base_rate": round(float(given.mean()), 4),
        "minutes": round((time.monotonic() - started) / 60, 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "encoder": encoder.fingerprint,
    }
    # Of texts, numbers and lists of them, JSON's form is TOML's.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in told.items()]
    atomic_write(card_file(name), "".join(lines))
    return told


def _fitted(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Weights of a logistic regression; the bias moves no ranking and is left out."""
    from sklearn.linear_model import LogisticRegression

    scale = rows.std(axis=0) + 1e-9
    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
    model.fit((rows - rows.mean(axis=0)) / scale, labels)
    return model.coef_[0] / scale


def _out_of_fold(rows: np.ndarray, labels: np.ndarray, qids: Sequence[str]) -> np.ndarray:
    """Scores of every pair by weights that have not seen its question."""
    from sklearn.model_selection import GroupKFold

    scores = np.empty(len(rows))
    folds = GroupKFold(_FOLDS, shuffle=True, random_state=0)
    for seen, unseen in folds.split(rows, labels, list(qids)):
        scores[unseen] = rows[unseen] @ _fitted(rows[seen], labels[seen])
    return scores


def _p_at_top(scores: np.ndarray, given: np.ndarray, qids: Sequence[str]) -> float:
    """The mean share of the five best of each question that experts gave."""
    table = pd.DataFrame({"qid": qids, "score": scores, "given": given})
    best = table.sort_values("score", ascending=False, kind="stable").groupby("qid").head(_TOP)
    return float(best.groupby("qid")["given"].sum().mean() / _TOP)


def main(names: Sequence[str]) -> None:
    """``python -m lib.studies.rag2.reranker [NAME ...]``"""
    from lib.embed import load_encoder
    from lib.place import open_retriever
    from lib.profiles import load_profile

    unknown = sorted(set(names) - set(RERANKERS))
    if unknown:
        sys.exit(f"error: no re-ranker {unknown[0]!r}; there are: {', '.join(RERANKERS)}")
    profile = load_profile("open")
    encoder = load_encoder(profile.encoder, precision="float32")
    retriever = open_retriever(profile, encoder)
    made = examples(retriever)
    texts = [passage.text for passage in retriever.store]
    for name in names or RERANKERS:
        card = train(name, made, encoder, texts)
        told = f"P@5 {card['p_at_5']} on unseen questions, by the cosine {card['cosine_p_at_5']}"
        print(f"{name}: {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
