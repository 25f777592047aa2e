"""Filters and re-rankers: models that read a question and a passage (RAG2, section 3.2).

A filter scores (question, passage) pairs, higher is more helpful; a passage is kept whose score is
at or above a threshold (``lines_of``). RAG2 takes the likelier of two labels: probability .5. Where
few passages were labelled helpful, that keeps next to nothing, so each filter also has thresholds
that keep a given share of the pairs it was trained on.

Questions are read as they are shown, with their options where they have some; passages without
their titles. ``tools.train_filters`` trains what is loaded here.

RAG2 re-ranks with MedCPT's cross-encoder (``lib.search.rerank``), which needs the hub. What stands
in for it here weighs three things that a pair shows: the cosine of question and passage, BM25, and
which share of the question's words the passage has. A LoRA cross-encoder on MiniLM was trained
first: it ranked at chance, and a regression on both vectors, trained on near misses, ranked worse
than the cosine alone; neither is shipped. It learnt from which snippets BioASQ's experts gave for
BioASQ's other questions (not yes/no, no document of a test question).
"""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lib.base.files import atomic_write, canonical_json, sha256_bytes, sha256_file
from lib.base.parameters import refuse_unknown
from lib.base.paths import DATA, cache
from lib.embed import Encoder, load_encoder
from lib.methods.postprocess import Scorer
from lib.model_files import ADAPTERS, CARD, adapter_folder, base_folder
from lib.search.bm25 import words
from lib.search.rerank import PairScorer
from lib.search.vectors import encode_small
from lib.studies.rag2.labels import FRACTIONS, RECIPES

Pairs = Sequence[tuple[str, str]]
"""(question as it is shown, passage text)."""

BASELINES = ("cosine", "bm25")
"""Untrained filters: the cosine of question and passage, and their word overlap."""

HEADS = tuple(name for name in RECIPES if name.startswith("head-"))
"""Logistic regressions on MiniLM's vectors."""

CROSSES = tuple(name for name in RECIPES if name.startswith("cross-"))
"""MiniLM as a cross-encoder with a LoRA adapter; ``cross-ppl-25`` is RAG2's recipe."""

FILTERS = (*BASELINES, *HEADS, *CROSSES)

SHUFFLED = "reranker-shuffled"
RERANKERS = ("reranker", SHUFFLED)
"""The re-ranker, and the same trained on shuffled labels."""

FEATURES = ("cosine", "bm25", "words in common")
"""What a re-ranker weighs."""

PASSAGE_TOKENS = 128
"""A cross-encoder reads the first tokens of a passage, in training and after: all of half of the
open corpus. A question is read whole."""

KEEPS = ("likelier than not", "as 25 % of training", "as 5 % of training")
"""The thresholds of a filter: probability .5, as in RAG2, or the score that keeps a quarter, or a
twentieth, of the pairs that it was trained on."""

_FOLDER = DATA / "rag2-filters"


@dataclass(frozen=True)
class Filter:
    """``scores(pairs)``: how helpful each passage is to its question, float64 (n,), higher is more.

    ``fingerprint`` names all that moves a score.
    """

    name: str
    fingerprint: str
    scores: Scorer


def load_filter(name: str, *, encoder: Encoder | None = None, texts: Sequence[str] = ()) -> Filter:
    """The filter called ``name``, one of ``FILTERS``; ``lib.search.rerank`` opens the paper's own.

    ``encoder`` (default: MiniLM in float32) is that of cosine and the heads, ``texts`` are all
    passages of the corpus whose word counts BM25 takes.
    """
    refuse_unknown("no filter", [name], FILTERS)
    if name == "bm25":
        return bm25_filter(texts)
    if name in CROSSES:
        return _cross_filter(name)
    encoder = encoder or load_encoder("minilm", precision="float32")
    return cosine_filter(encoder) if name == "cosine" else _head_filter(name, encoder)


def cached_scores(judge: Filter, pairs: Pairs) -> np.ndarray:
    """``judge.scores(pairs)``, kept in the cache under the filter's fingerprint and the pairs."""
    key = sha256_bytes(canonical_json([judge.fingerprint, list(pairs)]).encode())[:24]
    file = cache("rag2") / f"{key}.json"
    if not file.is_file():
        atomic_write(file, json.dumps(judge.scores(pairs).tolist()))
    return np.array(json.loads(file.read_text(encoding="utf-8")), dtype=float)


# cards and thresholds -----------------------------------------------------------------------------


def card_file(name: str) -> Path:
    """Where the card of a filter or re-ranker is, or is to be."""
    return ADAPTERS / f"rag2-{name}" / CARD if name in CROSSES else _FOLDER / f"{name}.toml"


def card_of(name: str) -> dict[str, Any]:
    """What is written down about a filter or re-ranker: what it was trained on, what that cost, and
    its thresholds or weights."""
    file = card_file(name)
    if not file.is_file():
        raise FileNotFoundError(
            f"{file.name} of {name} is missing; run: python -m tools.train_filters {name}"
        )
    return tomllib.loads(file.read_text(encoding="utf-8"))


def head_file(name: str) -> Path:
    """The weights of a head."""
    return _FOLDER / f"{name}.npz"


def _check_encoder(name: str, card: dict[str, Any], encoder: Encoder) -> None:
    if card["encoder"] != encoder.fingerprint:
        raise ValueError(
            f"{name} was trained on {card['encoder']}, not on {encoder.fingerprint}; "
            f"run: python -m tools.train_filters {name}"
        )


def threshold_key(share: float, dataset: str = "") -> str:
    """How a card calls the threshold of a share: "threshold_25" for .25.

    With ``dataset`` (bioasq, medmcqa), over its training pairs alone: "threshold_25_bioasq".
    """
    key = f"threshold_{round(100 * share):02d}"
    return f"{key}_{dataset}" if dataset else key


def lines_of(names: Sequence[str], trained_on: str = "") -> dict[tuple[str, str], float]:
    """The threshold by filter and one of ``KEEPS``; a baseline gives no probability.

    ``trained_on``: the set whose training pairs a threshold keeps a share of, "bioasq" or
    "medmcqa"; without one, of both together.
    """
    lines = {}
    for name in names:
        if name not in BASELINES:
            lines[name, KEEPS[0]] = 0.5
        for operating_point, share in zip(KEEPS[1:], FRACTIONS, strict=True):
            lines[name, operating_point] = card_of(name)[threshold_key(share, trained_on)]
    return lines


# each filter --------------------------------------------------------------------------------------


def cosine_filter(encoder: Encoder) -> Filter:
    """The cosine of question and passage."""

    def scores(pairs: Pairs) -> np.ndarray:
        question, passage = _vectors(pairs, encoder)
        return (question * passage).sum(axis=1).astype(float)

    return Filter("cosine", f"cosine|{encoder.fingerprint}", scores)


def _vectors(pairs: Pairs, encoder: Encoder) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of the questions and of the passages, each (n, dim)."""
    questions = encode_small([question for question, _ in pairs], encoder, "query")
    passages = encode_small([passage for _, passage in pairs], encoder, "article")
    return questions, passages


def bm25_filter(texts: Sequence[str], k1: float = 0.9, b: float = 0.4) -> Filter:
    """Lucene's BM25 of the passage for the question, as ``lib.search.bm25`` computes it.

    How rare a word is, and how long a passage usually is, are those of ``texts``; the passage that
    is scored need not be among them. A word that the question repeats counts each time.
    """
    if not texts:
        raise ValueError("BM25 needs the passages of the corpus: pass texts=[...]")
    passages_with: Counter[str] = Counter()
    length = 0
    for text in texts:
        tokens = words(text)
        length += len(tokens)
        passages_with.update(set(tokens))
    n = len(texts)

    def score(question: str, passage: str) -> float:
        counts = Counter(words(passage))
        relative_length = counts.total() / (length / n)
        total = 0.0
        for word, times in Counter(words(question)).items():
            rarity = math.log(1 + (n - passages_with[word] + 0.5) / (passages_with[word] + 0.5))
            weight = counts[word] / (counts[word] + k1 * (1 - b + b * relative_length))
            total += times * rarity * weight
        return total

    def scores(pairs: Pairs) -> np.ndarray:
        return np.array([score(question, passage) for question, passage in pairs], float)

    counted = [k1, b, n, length, sorted(passages_with.items())]
    digest = sha256_bytes(canonical_json(counted).encode())[:16]
    return Filter("bm25", f"bm25|{digest}", scores)


def _head_filter(name: str, encoder: Encoder) -> Filter:
    """A logistic regression on ``features``: the probability of "helpful".

    ValueError where its weights are of another encoder, or not those of its card.
    """
    file, card = head_file(name), card_of(name)
    if sha256_file(file) != card["sha256"]:
        raise ValueError(f"{file.name} is not what its card says (its sha256 differs)")
    _check_encoder(name, card, encoder)
    with np.load(file, allow_pickle=False) as saved:
        weight, bias = saved["weight"].astype(float), float(saved["bias"])

    def scores(pairs: Pairs) -> np.ndarray:
        logits = features(pairs, encoder).astype(float) @ weight + bias
        return 1 / (1 + np.exp(-logits))

    return Filter(name, f"{name}|{encoder.fingerprint}|{card['sha256'][:16]}", scores)


def features(pairs: Pairs, encoder: Encoder) -> np.ndarray:
    """What a head sees of each pair: float32 (n, 2 dim + 1).

    With u and v the unit vectors of question and passage, the dim products of u and v, the dim
    differences abs(u - v), and their cosine.
    """
    u, v = _vectors(pairs, encoder)
    cosine = (u * v).sum(axis=1, keepdims=True)
    return np.hstack([u * v, np.abs(u - v), cosine])


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


def _cross_filter(name: str) -> Filter:
    """MiniLM as a cross-encoder, with an adapter: the probability of "helpful"."""
    from transformers import AutoTokenizer

    base = base_folder(card_of(name)["base"])
    model = PairScorer(name, base, adapter=adapter_folder(str(card_file(name).parent)))
    tokenizer = AutoTokenizer.from_pretrained(base)

    def scores(pairs: Pairs) -> np.ndarray:
        return model([(question, passage_start(text, tokenizer)) for question, text in pairs])

    return Filter(name, f"{name}|{model.fingerprint}|passage {PASSAGE_TOKENS} tokens", scores)


def passage_start(passage: str, tokenizer: Any, tokens: int = PASSAGE_TOKENS) -> str:
    """The start of a passage that fills so many tokens, cut behind the last whole one."""
    options = {"add_special_tokens": False, "truncation": True, "max_length": tokens}
    read = tokenizer(passage, return_offsets_mapping=True, **options)
    ends = [end for _, end in read["offset_mapping"]]
    return passage[: ends[-1]] if ends else ""


# re-rankers ---------------------------------------------------------------------------------------


def pair_features(encoder: Encoder, texts: Sequence[str]) -> Callable[[Pairs], np.ndarray]:
    """A function that gives ``FEATURES`` of pairs, float64 (n, 3), and reads each pair once.

    ``texts`` are all passages that are searched: how rare a word is, BM25 takes from them.
    """
    cosine, bm25 = cosine_filter(encoder), bm25_filter(texts)
    known: dict[tuple[str, str], np.ndarray] = {}

    def read(pairs: Pairs) -> np.ndarray:
        shared = []
        for query, passage in pairs:
            asked = set(words(query))
            shared.append(len(asked & set(words(passage))) / max(len(asked), 1))
        return np.column_stack([cosine.scores(pairs), bm25.scores(pairs), shared])

    def rows_of(pairs: Pairs) -> np.ndarray:
        new = [pair for pair in dict.fromkeys(pairs) if pair not in known]
        if new:
            known.update(zip(new, read(new), strict=True))
        return np.array([known[pair] for pair in pairs]).reshape(-1, len(FEATURES))

    return rows_of


def load_rerankers(name: str, encoder: Encoder, texts: Sequence[str]) -> list[Scorer]:
    """The re-ranker called ``name``; of ``SHUFFLED`` one for each of its draws, as one draw alone
    may rank well, or backwards.

    It gives the logit of "an expert would give it". ``texts`` are all passages that are searched.
    ValueError where the card is of another encoder.
    """
    card = card_of(name)
    _check_encoder(name, card, encoder)
    rows_of = pair_features(encoder, texts)

    def scorer(weights: np.ndarray) -> Scorer:
        return lambda pairs: rows_of(pairs) @ weights

    return [scorer(weights) for weights in np.atleast_2d(np.array(card["weights"], dtype=float))]
