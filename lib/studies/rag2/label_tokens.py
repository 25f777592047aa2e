"""RAG2's own filter: a T5 that answers with one of two added label tokens.

It reads an instruction, the evidence and the question with its options. A score is the softmax over
the two labels at the first step of decoding. Too long a pair loses the end of its evidence, where
the paper's code cuts it into several examples, which no longer fit its labels. ``tools.flan_t5``
trains one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lib.llm.prompts import load_prompt
from lib.model_files import digest, quiet
from lib.studies.rag2.filters import Filter, Pairs

LABEL_TOKENS = ("[HELPFUL]", "[NOT_HELPFUL]")

_PROMPTS = Path(__file__).with_name("prompts")
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


def load_label_tokens(folder: Path, max_tokens: int = 512) -> Filter:
    """A trained T5 as a filter: the probability of "[HELPFUL]" against "[NOT_HELPFUL]".

    ``folder`` has its files, as ``tools.flan_t5`` writes them. ValueError where its tokenizer does
    not know the label tokens.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    quiet()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    known = tokenizer.get_vocab()
    if not set(LABEL_TOKENS) <= set(known):
        raise ValueError(f"{folder} does not know {LABEL_TOKENS[0]}; run: python -m tools.flan_t5")
    label_ids = [known[token] for token in LABEL_TOKENS]
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()

    def scores_of(prompts: list[list[int]]) -> np.ndarray:
        batch = tokenizer.pad({"input_ids": prompts}, return_tensors="pt").to(device)
        start = torch.full((len(prompts), 1), model.config.decoder_start_token_id, device=device)
        with torch.inference_mode():
            logits = model(**batch, decoder_input_ids=start).logits
        return logits[:, 0, label_ids].double().cpu().softmax(dim=1)[:, 0].numpy()

    def scores(pairs: Pairs) -> np.ndarray:
        prompts = [encoded(tokenizer, question, text, max_tokens) for question, text in pairs]
        by_length = sorted(range(len(prompts)), key=lambda i: (-len(prompts[i]), i))
        found = np.zeros(len(pairs))
        for start in range(0, len(prompts), _BATCH):
            rows = by_length[start : start + _BATCH]
            found[rows] = scores_of([prompts[i] for i in rows])
        return found

    fingerprint = f"seq2seq|{digest(folder)}|{max_tokens} tokens|float32"
    return Filter(f"seq2seq:{folder.name}", fingerprint, scores)
