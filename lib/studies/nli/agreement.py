"""A bi-encoder as an NLI model: sentences on one matter whose tuned vectors are far apart.

MiniLM's own vectors say whether two sentences are on one matter. Tuned by an adapter
(``tools.train_contradiction``), they say whether the two agree. The product of two vectors does
what a cross-encoder of this size would have to learn: whether two directions are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lib.embed import Encoder, load_encoder
from lib.model_files import adapter_folder, hushed, read_card
from lib.search.vectors import encode_small

ALONE = "finding"
"""What the adapter that reads one text is given in place of the other."""


_REMEMBERED = 100_000  # sentences, some 300 MB


def reads_one_text(folder: Path) -> bool:
    """Whether an adapter was trained on one text of each pair, by its name."""
    return "-one-text" in folder.name


class AgreementBackend:
    """P(contradiction) of two sentences by two cosines: the model's own, and of tuned vectors.

    A logistic regression on both, whose three weights (constant, own, tuned) stand on the adapter's
    card, fitted on pairs that the adapter was not trained on. ``weights`` take their place;
    ValueError without either. The adapter that reads one text takes the likelier of the
    two texts.
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

    def contradiction(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """See ``lib.studies.nli.models.Backend``."""
        if not len(pairs):
            return np.zeros(0)
        bias, near, agreeing = self._weights
        cosines = self.cosines(pairs)
        return 1 / (1 + np.exp(-(bias + near * cosines[:, 0] + agreeing * cosines[:, 1])))

    def cosines(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """MiniLM's cosine and the tuned one of each pair, shape (n, 2)."""
        near = self._cosines(pairs, self._base)
        if not self._alone:
            return np.column_stack([near, self._cosines(pairs, self._tuned)])
        alone = [[(pair[side], ALONE) for pair in pairs] for side in (0, 1)]
        return np.column_stack([near, np.minimum(*(self._cosines(a, self._tuned) for a in alone))])

    def _cosines(self, pairs: Sequence[tuple[str, str]], encoder: Encoder) -> np.ndarray:
        """The cosine of each pair by an encoder, shape (n,), to five places: what is behind them
        differs from processor to processor, and a model that learnt nothing has nothing else."""
        known = self._vectors.setdefault(encoder.name, {})
        if len(known) > _REMEMBERED:
            known.clear()
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        new = [text for text in texts if text not in known]
        with hushed():
            known.update(zip(new, encode_small(new, encoder, "article"), strict=True))
        vectors = np.array([known[text] for text in texts], dtype=float)
        row_of = {text: row for row, text in enumerate(texts)}
        left, right = ([row_of[pair[side]] for pair in pairs] for side in (0, 1))
        return (vectors[left] * vectors[right]).sum(axis=1).round(5)
