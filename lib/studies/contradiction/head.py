"""The small NLI model for laptops: what it sees of two sentences, and two baselines beside it.

It is a logistic regression on the vectors of the bundled encoder and on cue words, trained by
``tools.train_contradiction head``; ``data/nli-head/README.md`` is its model card. It is weak.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib.base.files import sha256_file
from lib.base.paths import DATA
from lib.embed import Encoder, load_encoder
from lib.search.vectors import encode_small

HEAD = DATA / "nli-head" / "weights.npz"
"""The trained weights."""

CUES = DATA / "nli-head" / "cues.toml"
"""The cue words: pairs of opposites, and words that deny."""

_BASELINES = {"cosine": 0, "cues": 1}
"""Columns of ``features`` that are scores by themselves."""

_BATCH = 4096


class FeatureBackend:
    """``head``: logistic regression on ``features``; ``cosine``, ``cues``: one column of them.

    ``note`` says how good the head is on pairs held out from its training; ``inputs`` names the
    encoder and the cue words that ``features`` are made with. ValueError when the weights were
    trained on another encoder or other cue words.
    """

    symmetric = True
    note = "a baseline, not trained"

    def __init__(self, name: str, encoder: Encoder | None = None, file: Path = HEAD):
        if name != "head" and name not in _BASELINES:
            raise ValueError(f"no NLI model {name!r}: pubmedbert, hub:<name>, head, cosine or cues")
        self.name = name
        self._encoder = encoder or load_encoder("minilm", precision="float32")
        self.inputs = f"{self._encoder.fingerprint}|cues {sha256_file(CUES)[:16]}"
        self.fingerprint = f"{name}|{self.inputs}"
        if name == "head":
            self._load_weights(file)

    def _load_weights(self, file: Path) -> None:
        with np.load(file, allow_pickle=False) as saved:
            self._weight = saved["weight"].astype(float)
            self._bias = float(saved["bias"])
            self.note = str(saved["note"])
            trained_on = str(saved["sees"])
        self.fingerprint += f"|{sha256_file(file)[:16]}"
        if trained_on != self.inputs:
            raise ValueError(
                f"{file.name} was trained on {trained_on}, not on {self.inputs}; run: "
                "python -m tools.train_contradiction head"
            )

    def contradiction(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """See ``lib.studies.contradiction.nli.Backend``."""
        batches = [pairs[start : start + _BATCH] for start in range(0, len(pairs), _BATCH)]
        return np.concatenate([np.zeros(0), *(self._score(batch) for batch in batches)])

    def _score(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        rows = features(pairs, self._encoder).astype(float)
        if self.name in _BASELINES:
            return np.clip(rows[:, _BASELINES[self.name]], 0, 1)
        return 1 / (1 + np.exp(-rows @ self._weight - self._bias))


def features(pairs: list[tuple[str, str]], encoder: Encoder) -> np.ndarray:
    """What the head sees of each pair of sentences: float32, shape (n, 13 + 2 dim).

    With u and v the unit vectors of the two sentences, the columns are: (1 + u·v) / 2; the twelve
    of ``_cues``, of which the first says that the two go in opposite directions; the dim products
    of u and v; the dim differences abs(u - v). All are the same for (a, b) and (b, a).
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    row_of = {text: row for row, text in enumerate(texts)}
    vectors = encode_small(texts, encoder, "article")
    u = vectors[[row_of[a] for a, _ in pairs]]
    v = vectors[[row_of[b] for _, b in pairs]]
    cosine = (1 + (u * v).sum(axis=1, keepdims=True)) / 2
    cues = np.array([_cues(a, b) for a, b in pairs], np.float32).reshape(len(pairs), 12)
    return np.hstack([cosine, cues, u * v, np.abs(u - v)])


def _cues(a: str, b: str) -> list[float]:
    """Twelve simple signs of agreement and disagreement, each 0 or 1 but for the last two.

    "Reduces" against "does not increase" agree: one denial turns the product of the directions.
    """
    one, other = _reading(a), _reading(b)
    one_denies = one.denies != other.denies
    product = one.direction * other.direction
    agreement = -product if one_denies else product
    shared_words = len(one.words & other.words)
    shared_numbers = one.numbers & other.numbers
    return [
        agreement < 0,
        agreement > 0,
        one_denies,
        one.denies or other.denies,
        one.denies and other.denies,
        product < 0,
        one.direction + other.direction == 2,
        one.direction + other.direction == -2,
        one_denies and (one.direction != 0 or other.direction != 0),
        bool(one.numbers and other.numbers and not shared_numbers),
        shared_words / max(1, len(one.words | other.words)),
        shared_words / max(1, min(len(one.words), len(other.words))),
    ]


class _Reading(NamedTuple):
    """What is read off one sentence without a model.

    ``direction`` is 1 where words that go up (increases) outnumber those that go down (reduces),
    -1 the other way round, else 0; ``denies`` says that it holds a word such as "not".
    """

    direction: int
    denies: bool
    words: frozenset[str]
    numbers: frozenset[str]


@lru_cache(maxsize=100_000)
def _reading(text: str) -> _Reading:
    up, down, denial = _patterns()
    text = text.lower()
    return _Reading(
        direction=int(np.sign(len(up.findall(text)) - len(down.findall(text)))),
        denies=bool(denial.search(text)),
        words=frozenset(re.findall(r"[a-z][a-z0-9-]{3,}", text)),
        numbers=frozenset(re.findall(r"\d+(?:\.\d+)?", text)),
    )


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """What finds words that go up, words that go down, and denials."""
    cues = tomllib.loads(CUES.read_text(encoding="utf-8"))
    up = any_of(rising for rising, _ in cues["opposites"])
    down = any_of(falling for _, falling in cues["opposites"])
    return up, down, re.compile(any_of(cues["negations"]).pattern + r"|n't\b")


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds any of the words, the longest first."""
    longest_first = sorted(set(words), key=len)[::-1]
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b")
