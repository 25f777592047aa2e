"""How likely does one sentence contradict another? NLI models behind one contract.

Cross-encoders of the hub, such as the paper's PubMedBERT-MNLI-MedNLI; a bi-encoder of our own; and
for laptops ``head``. ``labelled.quality`` says how good each is. ``score_pairs`` keeps what a model
says, so that no pair is scored twice.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lib.base import paths
from lib.base.files import CheckedRows, canonical_json, sha256_bytes
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
from lib.studies.contradiction.head import FeatureBackend

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

_PUBMEDBERT = "pritamdeka/PubMedBERT-MNLI-MedNLI"
# A contradiction and an entailment that any NLI model must tell apart: they show whether the column
# taken for "contradiction" is the right one.
_PROBE = (
    ("The drug lowers blood pressure.", "The drug does not lower blood pressure."),
    ("The drug lowers blood pressure.", "The drug lowers blood pressure."),
)
_REMEMBERED = 100_000  # sentences, some 300 MB
_CHUNK = 1024  # pairs scored between two commits: at most so many are lost when a run is killed
_LOOKUP = 65_536  # pairs looked up at a time
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


def load_backend(name: str, **options: Any) -> Backend:
    """The NLI model of that name.

    ``pubmedbert`` (the paper's) and ``hub:<name or folder>``: cross-encoders of the hub; ``cross``:
    MiniLM as one, ``bi``: MiniLM tuned so that sentences that agree are near, both with an adapter
    of ``data/adapters``, or after a colon with that in a folder; ``shuffled`` and ``claim only``:
    as ``bi``, trained on labels in disorder and on one text alone; ``head``, ``cosine`` and
    ``cues``: see ``FeatureBackend``.
    """
    if name == "pubmedbert" or name.startswith("hub:"):
        model = _PUBMEDBERT if name == "pubmedbert" else name.removeprefix("hub:")
        return HubBackend(name, model, **options)
    kind, _, adapter = name.partition(":")
    adapter = adapter or SHIPPED.get(kind, "")
    if kind == "cross":
        base = base_folder(read_card(adapter_folder(adapter))["base"])
        return HubBackend(name, base, adapter=adapter, **options)
    if kind in SHIPPED:
        return AgreementBackend(name, adapter)
    return FeatureBackend(name, **options)


class HubBackend:
    """A sequence classifier of the hub, or of a folder, that has a label "contradiction".

    Which column that is comes from the config (``column`` where the config has no names) and is
    then tried on a contradiction and an entailment: ValueError when the model does not agree. With
    an ``adapter`` of ours the labels are those of its card, and nothing is tried: how good it is,
    is measured.
    """

    symmetric = False

    def __init__(
        self,
        name: str,
        model: str | Path,
        *,
        adapter: str | None = None,
        column: int | None = None,
        batch_size: int = 32,
    ):
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        quiet()
        folder = model_folder(model)
        self.name = name
        self._batch_size = batch_size
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
        if adapter:
            self._column = labels.index("contradiction")
        else:
            self._column = self._column_of_hub(model, column)
        self.fingerprint += f"|column {self._column}"

    def _column_of_hub(self, model: str | Path, column: int | None) -> int:
        """Which column is contradiction, by the config or as given, once the probe agrees."""
        labels = {int(i): str(label).lower() for i, label in self._net.config.id2label.items()}
        candidates = [i for i, label in labels.items() if label.startswith("contradict")]
        if column is None and len(candidates) != 1:
            raise ValueError(
                f"{model}: its config has the labels {labels}; see its model card and "
                "pass column=<the number of contradiction>"
            )
        column = candidates[0] if column is None else column
        likeliest = self._probabilities(_PROBE).argmax(axis=1).tolist()
        if likeliest[0] != column or likeliest[1] == column:
            raise ValueError(
                f"{model}: column {column} of {labels} should be contradiction, but for "
                f"{_PROBE} the likeliest are {likeliest}: the labels are in another order, or this "
                "is no NLI model; see its model card, then pass column=<number> or another model"
            )
        return column

    def contradiction(self, pairs: Pairs) -> np.ndarray:
        """See Backend; of a pair that is too long the longer sentence loses its end."""
        return self._probabilities(pairs)[:, self._column]

    def _probabilities(self, pairs: Pairs) -> np.ndarray:
        import torch

        parts = [np.zeros((0, self._net.config.num_labels))]
        for start in range(0, len(pairs), self._batch_size):
            batch = pairs[start : start + self._batch_size]
            tokens = self._tokenizer(
                [premise for premise, _ in batch],
                [hypothesis for _, hypothesis in batch],
                truncation="longest_first",
                padding=True,
                return_tensors="pt",
            )
            with torch.no_grad():
                logits = self._net(**tokens.to(self._device)).logits
            parts.append(logits.double().softmax(dim=1).cpu().numpy())
        return np.concatenate(parts)


def reads_one_text(folder: Path) -> bool:
    """Whether an adapter was trained on one text of each pair, by its name."""
    return "-one-text" in folder.name


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
        # A study asks for the same sentences in thousands of pairs: by encoder, vectors by text.
        self._vectors: dict[str, dict[str, np.ndarray]] = {}

    def contradiction(self, pairs: Pairs) -> np.ndarray:
        """See ``Backend``."""
        if not len(pairs):
            return np.zeros(0)
        bias, near, agreeing = self._weights
        cosines = self.cosines(pairs)
        return 1 / (1 + np.exp(-(bias + near * cosines[:, 0] + agreeing * cosines[:, 1])))

    def cosines(self, pairs: Pairs) -> np.ndarray:
        """MiniLM's cosine and the tuned one of each pair, shape (n, 2)."""
        near = self._cosines(pairs, self._base)
        if not self._alone:
            return np.column_stack([near, self._cosines(pairs, self._tuned)])
        alone = [[(pair[side], ALONE) for pair in pairs] for side in (0, 1)]
        return np.column_stack([near, np.minimum(*(self._cosines(a, self._tuned) for a in alone))])

    def _cosines(self, pairs: Pairs, encoder: Encoder) -> np.ndarray:
        """The cosine of each pair by an encoder, shape (n,), rounded to five places: later digits
        differ between processors, and a model that learnt nothing would rank by them alone."""
        known = self._vectors.setdefault(encoder.name, {})
        if len(known) > _REMEMBERED:
            known.clear()
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        new = [text for text in texts if text not in known]
        with hushed():
            known.update(zip(new, encode_small(new, encoder, "article"), strict=True))
        left, right = (np.array([known[pair[side]] for pair in pairs], float) for side in (0, 1))
        return (left * right).sum(axis=1).round(5)


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
    parts = [np.zeros(0)]
    for start in range(0, len(pairs), _LOOKUP):
        parts.append(_look_up_or_score(pairs[start : start + _LOOKUP], backend, kept))
    return np.concatenate(parts)


def _look_up_or_score(pairs: Pairs, backend: Backend, kept: CheckedRows) -> np.ndarray:
    keys = [_key(pair, backend) for pair in pairs]
    values = {key: _SCORE.unpack(row)[0] for key, row in kept.get(keys).items()}
    missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in values}
    # Pairs of one length together: a batch is as slow as its longest pair.
    to_score = sorted(missing.items(), key=lambda item: (len("".join(item[1])), item))
    for start in range(0, len(to_score), _CHUNK):
        chunk = to_score[start : start + _CHUNK]
        scores = backend.contradiction([pair for _, pair in chunk])
        if not ((scores >= 0) & (scores <= 1)).all():  # NaN fails too
            raise ValueError(f"{backend.name} gave a probability that is not in [0, 1]")
        new = {key: float(score) for (key, _), score in zip(chunk, scores, strict=True)}
        kept.put({key: _SCORE.pack(score) for key, score in new.items()})
        values.update(new)
    return np.array([values[key] for key in keys], dtype=np.float64)


def _key(pair: tuple[str, str], backend: Backend) -> bytes:
    """What a score is stored under: 128 bits of a hash of the model and both texts."""
    text = canonical_json([backend.fingerprint, *pair])
    return bytes.fromhex(sha256_bytes(text.encode())[:32])
