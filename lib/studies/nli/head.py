"""The small NLI model for laptops: what it sees of two sentences, and two baselines beside it.

It is a logistic regression on the vectors of the bundled encoder and on cue words, trained by
``lib.studies.nli.train_head``; ``data/nli-head/README.md`` is its model card. It is weak.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from lib.base import paths
from lib.base.files import sha256_file
from lib.search.embed import Encoder, load_encoder
from lib.search.vectors import encode_small

__all__ = ["CUES", "FeatureBackend", "HEAD", "features", "opposites"]

HEAD = paths.DATA / "nli-head" / "weights.npz"
CUES = paths.DATA / "nli-head" / "cues.toml"
_BASELINES = {"cosine": 0, "cues": 1}
"""Columns of ``features`` that are scores by themselves."""
_ROWS = 4096
_WORD, _NUMBER = re.compile(r"[a-z][a-z0-9-]{3,}"), re.compile(r"\d+(?:\.\d+)?")


class FeatureBackend:
    """``head``: logistic regression on ``features``; ``cosine``, ``cues``: one column of them.

    ``note`` says how good the head is on pairs held out from its training. ValueError when its
    weights were trained on another encoder or other cue words.
    """

    symmetric, note = True, "a baseline, not trained"

    def __init__(self, name: str, encoder: Encoder | None = None, file: Path = HEAD):
        if name != "head" and name not in _BASELINES:
            raise ValueError(f"no NLI model {name!r}: pubmedbert, hub:<name>, head, cosine or cues")
        self.name, self._encoder = name, encoder or load_encoder("minilm", precision="float32")
        self.sees = f"{self._encoder.fingerprint}|cues {sha256_file(CUES)[:16]}"
        self.fingerprint = f"{name}|{self.sees}"
        if name != "head":
            return
        with np.load(file, allow_pickle=False) as saved:
            self._weight, self._bias = saved["weight"].astype(float), float(saved["bias"])
            self.note, trained_on = str(saved["note"]), str(saved["sees"])
        self.fingerprint += f"|{sha256_file(file)[:16]}"
        if trained_on != self.sees:
            raise ValueError(
                f"{file.name} was trained on {trained_on}, not on {self.sees}; run: "
                "python -m lib.studies.nli.train_head"
            )

    def contradiction(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """See ``lib.studies.nli.models.Backend``."""
        parts = [pairs[start : start + _ROWS] for start in range(0, len(pairs), _ROWS)]
        return np.concatenate([np.zeros(0), *map(self._score, parts)])

    def _score(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        rows = features(pairs, self._encoder).astype(float)
        if self.name in _BASELINES:
            return np.clip(rows[:, _BASELINES[self.name]], 0, 1)
        return 1 / (1 + np.exp(-rows @ self._weight - self._bias))


def features(pairs: list[tuple[str, str]], encoder: Encoder) -> np.ndarray:
    """float32 (n, 13 + 2 dim), the same for (b, a): (1 + cosine) / 2; do the two say opposite
    directions; eleven more of words, negations, numbers; the products u v; |u - v|."""
    place = {text: i for i, text in enumerate(dict.fromkeys(t for pair in pairs for t in pair))}
    rows = encode_small(list(place), encoder, "article")
    u, v = (rows[[place[pair[side]] for pair in pairs]] for side in (0, 1))
    cosine = (1 + (u * v).sum(axis=1, keepdims=True)) / 2
    cues = np.array([_cues(a, b) for a, b in pairs], np.float32).reshape(len(pairs), 12)
    return np.hstack([cosine, cues, u * v, np.abs(u - v)])


def _cues(a: str, b: str) -> list[float]:
    (goes_a, not_a, words_a, numbers_a), (goes_b, not_b, words_b, numbers_b) = _said(a), _said(b)
    one, shared = not_a != not_b, len(words_a & words_b)
    agree = goes_a * goes_b * (-1 if one else 1)
    return [
        agree < 0,
        agree > 0,
        one,
        not_a or not_b,
        not_a and not_b,
        goes_a * goes_b < 0,
        goes_a + goes_b == 2,
        goes_a + goes_b == -2,
        one and (goes_a != 0 or goes_b != 0),
        bool(numbers_a and numbers_b and not numbers_a & numbers_b),
        shared / max(1, len(words_a | words_b)),
        shared / max(1, min(len(words_a), len(words_b))),
    ]


@lru_cache(maxsize=100_000)
def _said(text: str) -> tuple[int, bool, frozenset[str], frozenset[str]]:
    """Up (1), down (-1) or neither (0); is anything denied; long words; numbers."""
    up, down, denial = _patterns()
    text = text.lower()
    goes = int(np.sign(len(up.findall(text)) - len(down.findall(text))))
    words, numbers = frozenset(_WORD.findall(text)), frozenset(_NUMBER.findall(text))
    return goes, bool(denial.search(text)), words, numbers


@cache
def opposites() -> dict[str, str]:
    """Cue words, each with its opposite (the first that ``CUES`` gives it)."""
    pairs = _lexicon()["opposites"]
    return {a: b for one, other in reversed(pairs) for a, b in ((one, other), (other, one))}


@cache
def _lexicon() -> dict[str, list]:
    return tomllib.loads(CUES.read_text(encoding="utf-8"))


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    up, down = zip(*_lexicon()["opposites"], strict=True)
    return any_of(up), any_of(down), re.compile(any_of(_lexicon()["negations"]).pattern + r"|n't\b")


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds any of the words, the longest first."""
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(set(words), key=len)[::-1]))})\b")
