"""Re-rankers: models that read a query and a passage together and score how well they fit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from lib.base.paths import ROOT
from lib.model_files import (
    ModelMissing,
    check_base,
    digest,
    hushed,
    merged,
    model_folder,
    pack_linear_layers,
    quiet,
    read_card,
)
from lib.search.label_tokens import LabelTokens

_BATCH_TOKENS = 4096


def load_scorer(name: str) -> PairScorer | LabelTokens:
    """What scores pairs, by "hub:" and its name there, or a folder, also of the project.

    A cross-encoder, such as "hub:ncbi/MedCPT-Cross-Encoder", or a T5 that was trained by
    ``tools.flan_t5``. ValueError for another name; ModelMissing where it is not to be had.
    """
    from transformers import AutoConfig

    kind, _, source = name.partition(":")
    if kind != "hub" or not source:
        raise ValueError(f"{name!r} names no scorer: write hub:<name on the hub, or folder>")
    own = ROOT / Path(source).expanduser()
    if source.startswith("data/") and not own.is_dir():
        raise ModelMissing(
            f"there is no folder {source}. Next: python -m tools.label_passages, then python -m "
            f"tools.flan_t5 --out {source} (see lib/profiles/rag2.toml)"
        )
    folder = model_folder(own if own.is_dir() else source)
    t5 = AutoConfig.from_pretrained(folder).is_encoder_decoder
    return LabelTokens(name, folder) if t5 else PairScorer(name, folder)


class PairScorer:
    """A cross-encoder: called with (query, passage) pairs it gives a score each, float64 (n,).

    The score is the model's one logit, or of several labels the probability of the last. Where a
    pair is too long the passage loses its end, never the query; a query that fills ``max_tokens``
    alone loses its beginning, because an exam question asks at its end. ``fingerprint`` covers all
    that changes a score. RAG2's own is
    ``PairScorer("medcpt", model_folder("ncbi/MedCPT-Cross-Encoder"))``: one score, 512 tokens.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        adapter: Path | None = None,
        max_tokens: int = 512,
    ):
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        quiet()
        self.name = name
        self.max_tokens = max_tokens
        files = digest(folder)
        self.fingerprint = f"{files}|{max_tokens} tokens|float32"
        labels = {}
        if adapter:
            check_base(adapter, {files})
            card = read_card(adapter)
            labels = {"num_labels": len(card["labels"])}
            self.fingerprint += f"|adapter {card['sha256'][:16]}"
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        options = {"dtype": torch.float32, **labels}
        with hushed() if adapter else nullcontext():
            net = AutoModelForSequenceClassification.from_pretrained(folder, **options)
            net = merged(net, adapter) if adapter else net
        self._net = net.to(self._device).eval()
        if self._device == "cpu":
            pack_linear_layers(self._net)

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """A score for each pair. Equal pairs are read once, long ones first."""
        unique = list(dict.fromkeys(pairs))
        encoded = [self._encoded(query, passage) for query, passage in unique]
        order = sorted(range(len(unique)), key=lambda i: -len(encoded[i]["input_ids"]))
        scores = np.empty(len(unique))
        for rows in self._batches(order, encoded):
            scores[rows] = self._scores([encoded[i] for i in rows])
        row_of = {pair: row for row, pair in enumerate(unique)}
        return scores[[row_of[pair] for pair in pairs]] if len(pairs) else np.zeros(0)

    def _encoded(self, query: str, passage: str) -> Any:
        room = self.max_tokens - self._tokenizer.num_special_tokens_to_add(pair=True)
        encoded = self._tokenizer(query, add_special_tokens=False, return_offsets_mapping=True)
        starts = [start for start, _ in encoded["offset_mapping"]]
        if len(starts) >= room:
            query = query[starts[-room + 1] :]
        return self._tokenizer(query, passage, truncation="only_second", max_length=self.max_tokens)

    def _batches(self, order: Sequence[int], encoded: Sequence[Any]) -> list[list[int]]:
        batches: list[list[int]] = []
        for i in order:
            longest = len(encoded[batches[-1][0]]["input_ids"]) if batches else 0
            if not batches or (len(batches[-1]) + 1) * longest > _BATCH_TOKENS:
                batches.append([])
            batches[-1].append(i)
        return batches

    def _scores(self, batch: Sequence[Any]) -> np.ndarray:
        import torch

        tokens = self._tokenizer.pad(list(batch), return_tensors="pt").to(self._device)
        with torch.inference_mode():
            logits = self._net(**tokens).logits.double().cpu()
        if logits.shape[1] == 1:
            return logits[:, 0].numpy()
        return logits.softmax(dim=1)[:, -1].numpy()
