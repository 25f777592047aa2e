"""A re-ranker for laptops: it learnt from which snippets BioASQ's experts gave for a question.

RAG2 re-ranks with MedCPT's cross-encoder (``lib.search.rerank``), which needs the hub. What stands
in for it here is a logistic regression on the vectors of question and passage, the head that RAG2's
filters have too. A LoRA cross-encoder on MiniLM was trained first, on the same 5,752 pairs for two
epochs: it ranked at chance, so it is not shipped.

Training: BioASQ's other questions (not yes/no, no document of a test question), and snippets of
BioASQ alone, for what the experts never saw is not known to be irrelevant. Beside it stands the
same trained on labels in disorder.
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

from lib.base.files import atomic_write, sha256_bytes, sha256_file
from lib.base.paths import DATA
from lib.data.questions import load_bioasq_dev
from lib.data.real import load_real
from lib.methods.base import question_alone
from lib.run import Retriever
from lib.search.embed import Encoder
from lib.stats import auroc as auroc_of
from lib.studies.rag2.filters import features
from lib.studies.rag2.train_filters import choose_penalty, fit_head, validated

__all__ = ["RERANKERS", "Examples", "Reranker", "card_of", "examples", "files_of", "train"]

RERANKERS = ("reranker", "reranker-shuffled")

_QUESTIONS = 1000
_GIVEN, _OTHERS = 2, 4
"""Snippets a question that its experts gave, and as near ones that they did not."""

_DEPTH = 30
_FOLDER = DATA / "rag2-filters"
_DATA = (
    "BioASQ questions that are not yes/no and share no document with a test question, with "
    "snippets that their experts gave and the nearest that they did not (CC BY 2.5, BioASQ terms)"
)

Examples = tuple[list[tuple[str, str]], np.ndarray, list[str]]
"""(question, snippet) pairs, whether the experts gave the snippet, and the questions' ids."""


def files_of(name: str) -> tuple[Path, Path]:
    """The weights of a re-ranker and its card."""
    return _FOLDER / f"{name}.npz", _FOLDER / f"{name}.toml"


def card_of(name: str) -> dict[str, Any]:
    """What a re-ranker was trained on and what that cost."""
    _, card = files_of(name)
    if not card.is_file():
        raise FileNotFoundError(
            f"{card.name} is missing; run: python -m lib.studies.rag2.reranker {name}"
        )
    return tomllib.loads(card.read_text(encoding="utf-8"))


class Reranker:
    """Scores of (query, passage) pairs, float64 (n,): the logit of "an expert would give it".

    ValueError where its weights are of another encoder, or not those of its card.
    """

    def __init__(self, name: str, encoder: Encoder):
        weights, _ = files_of(name)
        card = card_of(name)
        if sha256_file(weights) != card["sha256"]:
            raise ValueError(f"{weights.name} is not what its card says (its sha256 differs)")
        if card["encoder"] != encoder.fingerprint:
            raise ValueError(f"{name} was trained on {card['encoder']}, not {encoder.fingerprint}")
        self.name = name
        self._encoder = encoder
        with np.load(weights, allow_pickle=False) as saved:
            self._weight = saved["weight"].astype(float)
            self._bias = float(saved["bias"])

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """See ``lib.methods.after.Scorer``."""
        if not pairs:
            return np.zeros(0)
        return features(pairs, self._encoder).astype(float) @ self._weight + self._bias


def examples(retriever: Retriever) -> Examples:
    """What re-rankers are trained on; the others are the nearest snippets that were not given."""
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
        right = sorted(given[question.qid], key=lambda pid: sha256_bytes(pid.encode()))[:_GIVEN]
        near = [pid for pid in hit.ids[0].tolist() if pid not in given[question.qid]][:_OTHERS]
        for pid in right + near:
            pairs.append((question.text, text_of[pid]))
            labels.append(pid in given[question.qid])
            qids.append(question.qid)
    return pairs, np.array(labels), qids


def train(name: str, made: Examples, encoder: Encoder) -> dict[str, Any]:
    """Train one of ``RERANKERS``; its card. A shuffled one has the penalty of its twin."""
    started = time.monotonic()
    pairs, given, qids = made
    rows = features(pairs, encoder).astype(float)
    cosine = auroc_of(given, rows[:, -1])
    penalty, auroc = choose_penalty(rows, given, qids)
    if name.endswith("shuffled"):
        given = np.random.default_rng(0).permutation(given)
        auroc[penalty] = validated(rows, given, qids, penalty)
    weight, bias = fit_head(rows, given, penalty)
    weights, card = files_of(name)

    def save(file: Path) -> None:
        with open(file, "wb") as stream:  # given a name, numpy would add an ending to it
            np.savez(stream, weight=weight, bias=np.float32(bias))

    atomic_write(weights, save)
    told = {
        "data": _DATA,
        "examples": len(pairs),
        "C": penalty,
        "validation_auroc": round(auroc[penalty], 4),
        "cosine_auroc": round(cosine, 4),
        "minutes": round((time.monotonic() - started) / 60, 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "encoder": encoder.fingerprint,
        "sha256": sha256_file(weights),
    }
    # Of texts and numbers, JSON's form is TOML's.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in told.items()]
    atomic_write(card, "".join(lines))
    return told


def main(names: Sequence[str]) -> None:
    """``python -m lib.studies.rag2.reranker [NAME ...]``"""
    from lib.place import open_retriever
    from lib.profiles import load_profile
    from lib.search.embed import load_encoder

    unknown = sorted(set(names) - set(RERANKERS))
    if unknown:
        sys.exit(f"error: no re-ranker {unknown[0]!r}; there are: {', '.join(RERANKERS)}")
    profile = load_profile("open")
    encoder = load_encoder(profile.encoder, precision="float32")
    made = examples(open_retriever(profile, encoder))
    for name in names or RERANKERS:
        card = train(name, made, encoder)
        print(f"{name}: AUROC {card['validation_auroc']} on unseen questions", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
