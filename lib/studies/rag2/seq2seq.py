"""RAG2's own filter: Flan-T5-large that answers with one of two added label tokens.

It reads an instruction, the evidence and the question with its options, and is trained to write
``[HELPFUL]`` or ``[NOT_HELPFUL]``. A score is the softmax over these two at the first step of
decoding. The settings are those of the paper's code (METHODS.md, section 7). Three things differ:
too long a pair loses the end of its evidence, where the code cuts it into several examples, which
no longer fit its labels; the tokens are added to the model that is trained, where the code's
notebook opens another class; and the epoch is chosen by the AUROC on validation pairs, because the
paper does not say by what.

At the paper's size this was NOT RUN: the weights are on the hub (google/flan-t5-large, 3 GB), and
40 epochs need a GPU with 24 GB. Tests train a tiny T5 with the same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lib.llm.prompts import load_prompt
from lib.model_files import digest, quiet

LABEL_TOKENS = ("[HELPFUL]", "[NOT_HELPFUL]")

_PROMPTS = Path(__file__).parent / "prompts"
_BATCH = 16


def encoded(tokenizer: Any, question: str, passage: str, max_tokens: int) -> list[int]:
    """The tokens of a prompt, at most ``max_tokens``: only the evidence is ever cut.

    ValueError where the question leaves it no room.
    """
    prompt = load_prompt("filter", _PROMPTS)

    def tokens_of(evidence: str) -> list[int]:
        (message,) = prompt.messages(evidence=evidence, question=question)
        return tokenizer(message["content"])["input_ids"]

    tokens = tokens_of(passage)
    spans = tokenizer(passage, add_special_tokens=False, return_offsets_mapping=True)
    ends = [end for _, end in spans["offset_mapping"]]
    kept = len(ends)
    while len(tokens) > max_tokens:
        # Cutting may join or part tokens at the end, so it is done until the whole fits.
        kept -= len(tokens) - max_tokens
        if kept < 1:
            raise ValueError(f"the question leaves no room for evidence: {question[:60]!r} ...")
        tokens = tokens_of(passage[: ends[kept - 1]])
    return tokens


class Seq2SeqFilter:
    """A trained T5 as a filter: the softmax over both label tokens at the first decoding step.

    ``folder`` is what ``train_seq2seq`` wrote. ValueError where a tokenizer does not know the two
    label tokens. See ``lib.studies.rag2.filters.Filter``.
    """

    def __init__(
        self,
        folder: Path,
        threshold: float = 0.5,
        max_tokens: int = 512,
        device: str | None = None,
    ):
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        quiet()
        self.name = f"seq2seq:{folder.name}"
        self.threshold = threshold
        self.fingerprint = f"seq2seq|{digest(folder)}|{max_tokens} tokens|float32"
        self._max_tokens = max_tokens
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        known = self._tokenizer.get_vocab()
        missing = [token for token in LABEL_TOKENS if token not in known]
        if missing:
            raise ValueError(f"{folder} does not know {missing[0]}: train it with train_seq2seq")
        self._label_ids = [known[token] for token in LABEL_TOKENS]
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
        self._model = model.to(self._device).eval()

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """The probability of "[HELPFUL]" against "[NOT_HELPFUL]": float64 (n,)."""
        prompts = [encoded(self._tokenizer, q, p, self._max_tokens) for q, p in pairs]
        found = np.zeros(len(pairs))
        for rows in _batches([len(prompt) for prompt in prompts]):
            found[rows] = self._helpful([prompts[i] for i in rows])
        return found

    def _helpful(self, prompts: list[list[int]]) -> np.ndarray:
        import torch

        batch = self._tokenizer.pad({"input_ids": prompts}, return_tensors="pt").to(self._device)
        start = torch.full((len(prompts), 1), self._model.config.decoder_start_token_id)
        with torch.inference_mode():
            logits = self._model(**batch, decoder_input_ids=start.to(self._device)).logits
        both = logits[:, 0, self._label_ids].double().cpu()
        return both.softmax(dim=1)[:, 0].numpy()


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions in batches of like length, the longest first."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    for start in range(0, len(order), _BATCH):
        yield order[start : start + _BATCH]
