"""How likely does one sentence contradict another? NLI models behind one contract.

Cross-encoders of the hub, such as the paper's PubMedBERT-MNLI-MedNLI; a bi-encoder of our own; and
for laptops ``head``, a logistic regression on vectors and cue words, which is weak
(``data/nli-head/README.md`` is its model card). ``labelled.quality`` says how good each is.
``score_pairs`` keeps what a model says, so that no pair is scored twice.
"""

from __future__ import annotations

import re
import struct
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from lib.base import paths
from lib.base.files import CheckedRows, canonical_json, sha256_bytes, sha256_file
from lib.embed import Encoder, load_encoder
from lib.model_files import (
    adapter_folder,
    base_folder,
    check_base,
    digest,
    hushed,
    merged,
    model_folder,
    quiet,
    read_card,
)
from lib.search.vectors import encode_small

Pairs = Sequence[tuple[str, str]]
"""Pairs of texts: of sentences for a model, of whole abstracts for CNT."""

SHIPPED = {
    "bi": "contradiction",
    "shuffled": "contradiction-shuffled",
    "claim only": "contradiction-one-text",
    "cross": "contradiction-cross",
}
"""The adapter behind each name, trained by ``tools.train_contradiction``."""

DIRECTIONS = ("max", "mean", "forward")
"""Which order of a pair counts: the larger or the mean of P(a, b) and P(b, a), or P(a, b) alone
(``forward``, as in the paper)."""

ALONE = "finding"
"""What the adapter that reads one text is given in place of the other."""

HEAD = paths.DATA / "nli-head" / "weights.npz"
"""The trained weights of ``head``."""

CUES = paths.DATA / "nli-head" / "cues.toml"
"""The cue words: pairs of opposites, and words that deny."""

PUBMEDBERT = "pritamdeka/PubMedBERT-MNLI-MedNLI"
# A contradiction and an entailment that any NLI model must tell apart: they show whether the column
# taken for "contradiction" is the right one.
_PROBE = (
    ("The drug lowers blood pressure.", "The drug does not lower blood pressure."),
    ("The drug lowers blood pressure.", "The drug lowers blood pressure."),
)
_BATCH = 32  # pairs that a cross-encoder reads at a time
_CHUNK = 1024  # pairs scored between two commits: at most so many are lost when a run is killed
_SCORE = struct.Struct("<d")  # how a score is stored


class Backend(Protocol):
    """An NLI model.

    ``fingerprint`` names everything that can move a score; ``symmetric`` says that the order of a
    pair cannot.
    """

    name: str
    fingerprint: str
    symmetric: bool

    def contradiction(self, pairs: Pairs) -> np.ndarray:
        """P(contradiction) of each (premise, hypothesis): in [0, 1], float64, shape (n,)."""
        ...


def sentences(text: str) -> list[str]:
    """The sentences of a text in order, with single spaces; the library segtok finds their ends."""
    from segtok.segmenter import split_single

    parts = [part.strip() for part in split_single(" ".join(text.split()))]
    return [part for part in parts if part]


def load_backend(name: str) -> Backend:
    """The NLI model of that name.

    ``pubmedbert`` (the paper's) and ``hub:<name or folder>``: cross-encoders of the hub; ``cross``:
    MiniLM as one, ``bi``: MiniLM tuned so that sentences that agree are near, both with an adapter
    of ``data/adapters``, or after a colon with that in a folder; ``shuffled`` and ``claim only``:
    as ``bi``, trained on labels in disorder and on one text alone; ``head``, ``cosine`` and
    ``cues``: see ``FeatureBackend``.
    """
    if name == "pubmedbert" or name.startswith("hub:"):
        return HubBackend(name, PUBMEDBERT if name == "pubmedbert" else name[4:])
    kind, _, adapter = name.partition(":")
    adapter = adapter or SHIPPED.get(kind, "")
    if kind == "cross":
        base = base_folder(read_card(adapter_folder(adapter))["base"])
        return HubBackend(name, base, adapter)
    if kind in SHIPPED:
        return AgreementBackend(name, adapter)
    return FeatureBackend(name)


# cross-encoders -----------------------------------------------------------------------------------


class HubBackend:
    """A sequence classifier of the hub, or of a folder, that has a label "contradiction".

    Which column that is comes from the config and is then tried on a contradiction and an
    entailment: ValueError when the model does not agree. With an ``adapter`` of ours the labels are
    those of its card, and nothing is tried: how good it is, is measured.
    """

    symmetric = False

    def __init__(self, name: str, model: str | Path, adapter: str = ""):
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        quiet()
        folder = model_folder(model)
        self.name = name
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=256)
        self.fingerprint = f"{digest(folder)}|256 tokens|float32"
        options = {"dtype": torch.float32}
        if adapter:
            changes = adapter_folder(adapter)
            check_base(changes, {digest(folder)})
            labels = read_card(changes)["labels"]
            options["num_labels"] = len(labels)
            self.fingerprint += f"|adapter {read_card(changes)['sha256'][:16]}"
        with hushed() if adapter else nullcontext():
            net = AutoModelForSequenceClassification.from_pretrained(folder, **options)
            net = merged(net, changes) if adapter else net
        self._net = net.to(self._device).eval()
        self._column = labels.index("contradiction") if adapter else self._column_of_hub(model)
        self.fingerprint += f"|column {self._column}"

    def _column_of_hub(self, model: str | Path) -> int:
        """Which column is contradiction by the config, once the probe agrees."""
        labels = {int(i): str(label).lower() for i, label in self._net.config.id2label.items()}
        candidates = [i for i, label in labels.items() if label.startswith("contradict")]
        likeliest = self._probabilities(_PROBE).argmax(axis=1).tolist()
        if likeliest[:1] != candidates or likeliest[1:] == candidates:
            raise ValueError(
                f"{model}: of its labels {labels} one should be contradiction, and the likeliest "
                f"for the first of {_PROBE}; the likeliest columns are {likeliest}: its labels are "
                "in another order, or it is no NLI model. Take another model"
            )
        return candidates[0]

    def contradiction(self, pairs: Pairs) -> np.ndarray:
        """See Backend; of a pair that is too long the longer sentence loses its end."""
        return self._probabilities(pairs)[:, self._column]

    def _probabilities(self, pairs: Pairs) -> np.ndarray:
        import torch

        parts = [np.zeros((0, self._net.config.num_labels))]
        for start in range(0, len(pairs), _BATCH):
            premises, hypotheses = zip(*pairs[start : start + _BATCH], strict=True)
            tokens = self._tokenizer(
                list(premises),
                list(hypotheses),
                truncation="longest_first",
                padding=True,
                return_tensors="pt",
            )
            with torch.no_grad():
                logits = self._net(**tokens.to(self._device)).logits
            parts.append(logits.double().softmax(dim=1).cpu().numpy())
        return np.concatenate(parts)


# vectors of either sentence -----------------------------------------------------------------------


def _both(pairs: Pairs, encoder: Encoder) -> tuple[np.ndarray, np.ndarray]:
    """The unit vectors of the first and of the second sentences, both of shape (n, dim)."""
    texts = [a for a, _ in pairs] + [b for _, b in pairs]
    with hushed():
        rows = encode_small(texts, encoder, "article")
    return rows[: len(pairs)], rows[len(pairs) :]


class AgreementBackend:
    """P(contradiction) of two sentences by two cosines: the model's own, and of tuned vectors.

    MiniLM's own vectors say whether two sentences are on one matter; tuned by an adapter, whether
    the two agree. The product of two vectors does what a cross-encoder of this size would have to
    learn: whether two directions are the same. A logistic regression on both cosines, whose three
    weights (constant, own, tuned) stand on the adapter's card, fitted on pairs that the adapter was
    not trained on. ``weights`` take their place; ValueError without either. The adapter that reads
    one text takes the likelier of the two texts.
    """

    symmetric = True

    def __init__(
        self, name: str, adapter: str = "contradiction", weights: Sequence[float] | None = None
    ):
        folder = adapter_folder(adapter)
        self.name = name
        card = read_card(folder)
        base = card["base"] if card["base"] in ("minilm", "mpnet") else f"st:{card['base']}"
        self._base = load_encoder(base, precision="float32")
        self._tuned = load_encoder(f"{base}+{folder}", precision="float32")
        self._alone = reads_one_text(folder)
        if weights is None and "calibration" not in card:
            raise ValueError(
                f"{folder} is not calibrated: its training was stopped; run: make train"
            )
        self._weights = np.array(card["calibration"] if weights is None else weights)
        weights = ",".join(f"{w:g}" for w in self._weights)
        self.fingerprint = f"{name}|{self._base.fingerprint}|{self._tuned.fingerprint}|{weights}"

    def contradiction(self, pairs: Pairs) -> np.ndarray:
        """See ``Backend``."""
        bias, near, agreeing = self._weights
        cosines = self.cosines(pairs)
        return 1 / (1 + np.exp(-(bias + near * cosines[:, 0] + agreeing * cosines[:, 1])))

    def cosines(self, pairs: Pairs) -> np.ndarray:
        """MiniLM's cosine and the tuned one of each pair, shape (n, 2)."""
        own = _cosine(pairs, self._base)
        if not self._alone:
            return np.column_stack([own, _cosine(pairs, self._tuned)])
        first, second = (
            _cosine([(pair[side], ALONE) for pair in pairs], self._tuned) for side in (0, 1)
        )
        return np.column_stack([own, np.minimum(first, second)])


def reads_one_text(folder: Path) -> bool:
    """Whether an adapter was trained on one text of each pair, by its name."""
    return "-one-text" in folder.name


def _cosine(pairs: Pairs, encoder: Encoder) -> np.ndarray:
    """The cosine of each pair, shape (n,), rounded to five places: later digits differ between
    processors, and a model that learnt nothing would rank by them alone."""
    u, v = _both(pairs, encoder)
    return (u.astype(float) * v).sum(axis=1).round(5)


_BASELINES = {"cosine": 0, "cues": 1}
"""Columns of ``features`` that are scores by themselves."""


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
        if name != "head":
            return
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

    def contradiction(self, pairs: Pairs) -> np.ndarray:
        """See ``Backend``."""
        rows = features(pairs, self._encoder).astype(float)
        if self.name in _BASELINES:
            return np.clip(rows[:, _BASELINES[self.name]], 0, 1)
        return 1 / (1 + np.exp(-rows @ self._weight - self._bias))


def features(pairs: Pairs, encoder: Encoder) -> np.ndarray:
    """What the head sees of each pair of sentences: float32, shape (n, 13 + 2 dim).

    With u and v the unit vectors of the two sentences, the columns are: (1 + u·v) / 2; the twelve
    of ``_cues``, of which the first says that the two go in opposite directions; the dim products
    of u and v; the dim differences abs(u - v). All are the same for (a, b) and (b, a).
    """
    u, v = _both(pairs, encoder)
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


# scores that are kept -----------------------------------------------------------------------------


def score_pairs(pairs: Pairs, backend: Backend, *, direction: str = "max") -> np.ndarray:
    """P(contradiction) of each pair, float64, shape (n,); ``direction`` is one of DIRECTIONS.

    A pair is scored once and stored in one SQLite file under its texts and the model's fingerprint:
    a run that was killed goes on where it stopped. ValueError for another direction, or when the
    model gives something that is no probability.
    """
    if direction not in DIRECTIONS:
        raise ValueError(f"no direction {direction!r}; there are: {', '.join(DIRECTIONS)}")
    forward = _scores_one_way(pairs, backend)
    if direction == "forward" or backend.symmetric:
        return forward
    backward = _scores_one_way([(b, a) for a, b in pairs], backend)
    return np.maximum(forward, backward) if direction == "max" else (forward + backward) / 2


def _scores_one_way(pairs: Pairs, backend: Backend) -> np.ndarray:
    """P(contradiction) of each pair in the order given, from the file or made and stored there."""
    kept = CheckedRows(paths.cache("nli") / "pairs.sqlite", short=True)
    keys = []
    for pair in pairs:  # 128 bits of a hash of the model and both texts
        text = canonical_json([backend.fingerprint, *pair])
        keys.append(bytes.fromhex(sha256_bytes(text.encode())[:32]))
    score_of = kept.get(keys)
    missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in score_of}
    # Pairs of one length together: a batch is as slow as its longest pair.
    to_score = sorted(missing.items(), key=lambda item: (len("".join(item[1])), item))
    for start in range(0, len(to_score), _CHUNK):
        chunk = to_score[start : start + _CHUNK]
        scores = backend.contradiction([pair for _, pair in chunk])
        if not ((scores >= 0) & (scores <= 1)).all():  # NaN fails too
            raise ValueError(f"{backend.name} gave a probability that is not in [0, 1]")
        new = {key: _SCORE.pack(score) for (key, _), score in zip(chunk, scores, strict=True)}
        kept.put(new)
        score_of |= new
    return np.array([_SCORE.unpack(score_of[key])[0] for key in keys], dtype=np.float64)
