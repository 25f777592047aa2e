"""BM25 over passages with bm25s: the same search and the same Hits as the dense index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lib.index import Hits, PassageIndex, top_rows

__all__ = ["BM25Index"]

_WORD = r"(?u)\b\w+\b"  # one letter is a word too: hepatitis B, vitamin K


class BM25Index(PassageIndex):
    """Lucene's BM25 over lower-cased words, English stop words removed, no stemming.

    Make one with ``build``. A repeated word of a query counts each time, which is what Query2Doc's
    repeated question relies on.
    """

    def __init__(self, ids: Sequence[str], model: Any, tokenize: Callable[..., Any]):
        super().__init__(ids)
        self._model, self._tokenize = model, tokenize

    @classmethod
    def build(
        cls, texts: Sequence[str], ids: Sequence[str], *, k1: float = 0.9, b: float = 0.4,
        stopwords: str = "english", progress: bool = False,
    ) -> BM25Index:  # fmt: skip
        """Index passages (title and text as one string); k1 and b default to Pyserini's."""
        import bm25s

        tokenize = partial(bm25s.tokenize, stopwords=stopwords, token_pattern=_WORD)
        model = bm25s.BM25(k1=k1, b=b, method="lucene")
        model.index(tokenize(list(texts), show_progress=progress), show_progress=progress)
        return cls(ids, model, tokenize)

    def search(self, texts: Sequence[str], k: int) -> Hits:
        """The k best passages per text, scores rounded to 1e-5, ties by id.

        A passage that shares no word with the text is not a result, so there may be fewer than k.
        """
        if k < 1:
            raise ValueError(f"k is {k}: ask for at least one passage")
        words = self._tokenize(list(texts), return_ids=False, show_progress=False)
        return Hits.stack([self._best(own, k) for own in words])

    def _best(self, words: list[str], k: int) -> Hits:
        known = self._model.get_tokens_ids(words)
        scores = np.round(self._model.get_scores_from_ids(known).astype(np.float64), 5) * self.kept
        kth = np.partition(scores, -k)[-k] if k < len(scores) else 0.0
        rows = np.flatnonzero((scores >= kth) & (scores > 0))
        return top_rows(scores[None, rows], rows, self, k)
