"""BM25 over passages with bm25s: the same search and the same Hits as the dense index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from lib.search.index import Hits, PassageIndex, top_rows

__all__ = ["BM25Index"]


class BM25Index(PassageIndex):
    """Lucene's BM25 over lower-cased words, English stop words removed, no stemming.

    Make one with ``build``. A repeated word of a query counts each time, which is what Query2Doc's
    repeated question relies on.
    """

    @classmethod
    def build(cls, texts: Sequence[str], ids: Sequence[str]) -> Self:
        """Index passages (title and text as one string); k1 and b are Pyserini's."""
        import bm25s

        index = cls(ids)
        index._model = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
        index._model.index(_words(texts, return_ids=True), show_progress=False)
        return index

    def search(self, texts: Sequence[str], k: int) -> Hits:
        """The k best passages per text, scores rounded to 1e-5, ties by id.

        A passage that shares no word with the text is not a result, so there may be fewer than k.
        """
        if k < 1:
            raise ValueError(f"k is {k}: ask for at least one passage")
        return Hits.stack([self._best(words, k) for words in _words(texts, return_ids=False)])

    def _best(self, words: list[str], k: int) -> Hits:
        known = self._model.get_tokens_ids(words)
        scores = np.round(self._model.get_scores_from_ids(known).astype(np.float64), 5) * self.kept
        kth = np.partition(scores, -k)[-k] if k < len(scores) else 0.0
        rows = np.flatnonzero((scores >= kth) & (scores > 0))
        return top_rows(scores[None, rows], rows, self, k)


def _words(texts: Sequence[str], return_ids: bool):
    import bm25s

    # One letter is a word too: hepatitis B, vitamin K.
    return bm25s.tokenize(
        list(texts),
        stopwords="english",
        token_pattern=r"(?u)\b\w+\b",
        return_ids=return_ids,
        show_progress=False,
    )
