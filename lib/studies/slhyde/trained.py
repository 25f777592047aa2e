"""What was trained and written for SL-HyDE, as it is read here; ``tools`` made it.

The retrievers are MiniLM with LoRA adapters that learnt from queries that SmolLM2 wrote. Beside the
method stand the same on pairs in disorder, on MedQuAD's own questions (what labels would bring),
with random negatives, and on less. At the method's rate pairs in disorder ruin the retriever, so a
pair of trainings has a lower one.

Not as in the paper: a LoRA adapter of a small English encoder, not all weights of BGE-large; one
mined negative a query, not seven; 16 queries a step, not 20; 160 tokens a text, not 512; and so a
higher learning rate (``slhyde_rates``). As in the paper: one epoch, linear decay, temperature .02,
in-batch negatives, no labels.
"""

from __future__ import annotations

from typing import Any

from lib.base import paths
from lib.base.files import read_jsonl, read_manifest
from lib.model_files import ADAPTERS

BASE = "minilm"

LOW_RATE = 1e-4
"""The learning rate of a control that does not collapse (``slhyde_rates_disorder``)."""

TRAININGS = (
    "slhyde-query",
    "slhyde-query-1",
    "slhyde-query-2",
    "slhyde-shuffled",
    "slhyde-shuffled-1",
    "slhyde-shuffled-2",
    "slhyde-query-low",
    "slhyde-shuffled-low",
    "slhyde-supervised",
    "slhyde-supervised-shuffled",
    "slhyde-random",
    "slhyde-half",
    "slhyde-quarter",
    "slhyde-mean",
)
"""Every retriever's adapter. The mean is trained on the passages that the tuned generator wrote
for: half of them, so ``slhyde-half`` is what it is to be held against."""

ADAPTER = ADAPTERS / "slhyde-generator"

PASSAGES = 3
"""L, the passages written for a query to choose from; the paper's code writes 5."""

NOT_FOUND = 1000
"""How deep a passage's document is searched, and its rank where it is not found there."""


def read_texts(name: str) -> list[dict[str, Any]]:
    """The rows of ``data/selflearn/<name>.jsonl.gz``: queries, passages, tuned, hyde-scifact or
    hyde-bioasq.

    FileNotFoundError, with the command that writes it, where it is not there whole.
    """
    path = paths.DATA / "selflearn" / f"{name}.jsonl.gz"
    if read_manifest(path) is None:
        command = "python -m tools.slhyde_writer"
        raise FileNotFoundError(f"{paths.shown(path)} is missing or not whole; run: {command}")
    return list(read_jsonl(path))


CARD_COLUMNS = ("examples", "negatives", "seed", "minutes", "precision")
"""What ``slhyde_trainings`` says of each adapter; the generator has no negatives."""
