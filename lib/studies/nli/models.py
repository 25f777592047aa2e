"""NLI models behind one contract: how likely does one sentence contradict another?

NLI cross-encoders of the hub, such as the paper's PubMedBERT-MNLI-MedNLI, and for laptops
``lib.studies.nli.head``. ``lib.studies.nli.labelled.quality`` says how good each is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np

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
from lib.studies.nli.agreement import AgreementBackend
from lib.studies.nli.head import FeatureBackend

Pairs = Sequence[tuple[str, str]]
"""Pairs of texts: of sentences for a model, of whole abstracts for CNT."""

_PUBMEDBERT = "pritamdeka/PubMedBERT-MNLI-MedNLI"
SHIPPED = {
    "bi": "contradiction",
    "shuffled": "contradiction-shuffled",
    "claim only": "contradiction-one-text",
    "cross": "contradiction-cross",
}
"""The adapter behind each name, trained by ``tools.train_contradiction``."""
# A contradiction and an entailment that any NLI model must tell apart: they show whether the column
# taken for "contradiction" is the right one.
_PROBE = (
    ("The drug lowers blood pressure.", "The drug does not lower blood pressure."),
    ("The drug lowers blood pressure.", "The drug lowers blood pressure."),
)


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

    single_spaced = " ".join(text.split())
    parts = [part.strip() for part in split_single(single_spaced)]
    return [part for part in parts if part]


def load_backend(name: str, **options: Any) -> Backend:
    """The NLI model of that name.

    ``pubmedbert`` (the paper's) and ``hub:<name or folder>``: cross-encoders of the hub; ``cross``:
    MiniLM as one, ``bi``: MiniLM tuned so that sentences that agree are near, both with an adapter
    of ``data/adapters``, or after a colon with that in a folder; ``shuffled`` and ``claim only``:
    as ``bi``, trained on labels in disorder and on one text alone; ``head``, ``cosine`` and
    ``cues``: see ``lib.studies.nli.head``.
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
        max_tokens: int = 256,
        batch_size: int = 32,
        device: str | None = None,
    ):
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        quiet()
        folder = model_folder(model)
        self.name = name
        self._batch_size = batch_size
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=max_tokens)
        self.fingerprint = f"{digest(folder)}|{max_tokens} tokens|float32"
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
        if adapter:
            self._column = labels.index("contradiction")
        self._net = net.to(self._device).eval()
        if not adapter:
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
