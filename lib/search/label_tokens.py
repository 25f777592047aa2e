"""RAG2's own filter: a T5 that answers with one of two added label tokens.

It reads an instruction, the evidence and the question with its options. A score is the softmax over
the two labels at the first step of decoding. Too long a pair loses the end of its evidence, where
the paper's code cuts it into several examples, which no longer fit its labels. ``tools.flan_t5``
trains one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lib.llm.prompts import load_prompt
from lib.model_files import digest, quiet

LABEL_TOKENS = ("[HELPFUL]", "[NOT_HELPFUL]")

_BATCH = 16


def encoded(tokenizer: Any, question: str, passage: str, max_tokens: int) -> list[int]:
    """The tokens of a prompt, at most ``max_tokens``: only the evidence is ever cut.

    ValueError where the question leaves it no room.
    """
    prompt = load_prompt("rag2_filter")

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


class LabelTokens:
    """A trained T5 as a filter: called with (question, evidence) pairs it gives the probability of
    "[HELPFUL]" against "[NOT_HELPFUL]", float64 (n,).

    ``folder`` has its files, as ``tools.flan_t5`` writes them. ``fingerprint`` covers all that
    changes a score. ValueError where its tokenizer does not know the label tokens.
    """

    def __init__(self, name: str, folder: Path, max_tokens: int = 512):
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        quiet()
        self.name, self.max_tokens = name, max_tokens
        self.fingerprint = f"seq2seq|{digest(folder)}|{max_tokens} tokens|float32"
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        known = self._tokenizer.get_vocab()
        if not set(LABEL_TOKENS) <= set(known):
            raise ValueError(
                f"{folder} does not know {LABEL_TOKENS[0]}; run: python -m tools.flan_t5"
            )
        self._label_ids = [known[token] for token in LABEL_TOKENS]
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
        self._model = model.to(self._device).eval()

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """A score for each pair, long ones first."""
        prompts = [encoded(self._tokenizer, *pair, self.max_tokens) for pair in pairs]
        by_length = sorted(range(len(prompts)), key=lambda i: (-len(prompts[i]), i))
        found = np.zeros(len(pairs))
        for start in range(0, len(prompts), _BATCH):
            rows = by_length[start : start + _BATCH]
            found[rows] = self._scores([prompts[i] for i in rows])
        return found

    def _scores(self, prompts: list[list[int]]) -> np.ndarray:
        import torch

        batch = self._tokenizer.pad({"input_ids": prompts}, return_tensors="pt").to(self._device)
        begin = self._model.config.decoder_start_token_id
        start = torch.full((len(prompts), 1), begin, device=self._device)
        with torch.inference_mode():
            logits = self._model(**batch, decoder_input_ids=start).logits
        return logits[:, 0, self._label_ids].double().cpu().softmax(dim=1)[:, 0].numpy()
