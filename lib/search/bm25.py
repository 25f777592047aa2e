"""Search by words: BM25 over passages with bm25s, and the words that tell H+ from H- as weights.

``contrast_terms`` gives the weights that ``BM25Index.search_weighted`` searches with;
``lib.search.merge`` fuses such a list with a dense one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from lib.base.files import atomic_write
from lib.search.index import Hits, PassageIndex, top_rows

_PRIOR = 0.5
_CONTENT = "content"
"""The file that says of which passages a kept index is."""


class BM25Index(PassageIndex):
    """Lucene's BM25 over lower-cased words, English stop words removed, no stemming.

    Make one with ``build``. A repeated word of a query counts each time, which is what Query2Doc's
    repeated question relies on.
    """

    _scores: Any
    _column_of: dict[str, int]

    @classmethod
    def build(
        cls, texts: Sequence[str], ids: Sequence[str], keep: Path | None = None, content: str = ""
    ) -> Self:
        """Index passages (title and text as one string); k1 and b are Pyserini's.

        ``keep`` is a folder in which bm25s saves the index, for ``open`` with the same ``content``.
        """
        import bm25s

        model = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
        model.index(_tokenized(texts, return_ids=True), show_progress=False)
        if keep is not None:
            (keep / _CONTENT).unlink(missing_ok=True)
            model.save(keep, show_progress=False)
            atomic_write(keep / _CONTENT, content)
        return cls._of(model, ids)

    @classmethod
    def open(cls, folder: Path, ids: Sequence[str], content: str) -> Self | None:
        """The index that ``build`` kept for this content; None where there is none."""
        import bm25s

        written = folder / _CONTENT  # the last file that is written, so the others are whole
        if not written.exists() or written.read_text(encoding="utf-8") != content:
            return None
        return cls._of(bm25s.BM25.load(folder), ids)

    @classmethod
    def _of(cls, model: Any, ids: Sequence[str]) -> Self:
        from scipy.sparse import csc_array

        index = cls(ids)
        # bm25s scores every word in every passage beforehand: a column a word, a row a passage.
        matrix = model.scores
        n_columns = len(matrix["indptr"]) - 1
        index._scores = csc_array(
            (matrix["data"], matrix["indices"], matrix["indptr"]),
            shape=(len(index.ids), n_columns),
        )
        # The empty word that bm25s adds to its vocabulary has no column.
        index._column_of = {
            word: column for word, column in model.vocab_dict.items() if word and column < n_columns
        }
        return index

    def search(self, texts: Sequence[str], k: int) -> Hits:
        """The k best passages per text, scores rounded to 1e-5, ties by id.

        A passage that shares no word with the text is not a result, so there may be fewer than k.
        """
        return self.search_weighted([Counter(words(text)) for text in texts], k)

    def search_weighted(self, queries: Sequence[Mapping[str, float]], k: int) -> Hits:
        """The k best passages per query: words, as ``words`` gives them, each with a weight.

        A passage scores sum over words of weight x bm25(word, passage), in float64, rounded to
        1e-5, ties by id; a word that no passage has counts nothing. Only passages with a score
        above 0 are results, so there may be fewer than k, none for a query without words. A weight
        may be negative. Raises ValueError for one that is not finite.
        """
        if k < 1:
            raise ValueError(f"k is {k}: ask for at least one passage")
        return Hits.stack([self._best(query, k) for query in queries])

    def _best(self, query: Mapping[str, float], k: int) -> Hits:
        known = [word for word in query if word in self._column_of]
        weights = np.array([query[word] for word in known], dtype=np.float64)
        if not np.isfinite(weights).all():
            raise ValueError(f"weights must be finite: {dict(query)}")
        columns = np.array([self._column_of[word] for word in known], dtype=np.int64)
        # A sum in float64, so that the order of the words changes no rounded score.
        scores = np.round(self._scores[:, columns] @ weights, 5) * self.kept
        # All that tie with the k-th best stay: their ids decide, in ``top_rows``.
        kth_score = np.partition(scores, -k)[-k] if k < len(scores) else 0.0
        rows = np.flatnonzero((scores >= kth_score) & (scores > 0))
        return top_rows(scores[None, rows], rows, self, k)


def words(text: str) -> list[str]:
    """The words of a text as BM25 reads it, in order, repeated ones as often as they occur."""
    return _tokenized([text], return_ids=False)[0]


def _tokenized(texts: Sequence[str], return_ids: bool):
    """The words of each text: as bm25s numbers them to index them, or as lists of strings."""
    import bm25s

    # One letter is a word too: hepatitis B, vitamin K.
    return bm25s.tokenize(
        list(texts),
        stopwords="english",
        token_pattern=r"(?u)\b\w+\b",
        return_ids=return_ids,
        show_progress=False,
    )


def contrast_terms(target: str, mimic: str, lam: float = 1.0) -> dict[str, float]:
    """The words of H+ (as BM25 reads them), weighted by y+ max(0, 1 + lambda delta).

    Words whose weight is 0 are left out.

    delta is the log-odds of the word in H+ against H-, with a Dirichlet prior of a = 0.5 for each
    of the V words of both texts (Monroe, Colaresi & Quinn 2008, *Fightin' Words*, their log-odds
    ratio, with a uniform prior):

        delta = log (y+ + a) / (n+ + aV - y+ - a)  -  log (y- + a) / (n- + aV - y- - a)

    y counts the word and n all words of a text. A word as frequent in one as in the other keeps its
    count, one that H- lacks gains, one that H- uses more loses, down to 0; lambda < 0 reverses it.
    At lambda = 0, and where H- has no words, these are the word counts of H+: BM25's own query. The
    prior makes a short H- weak evidence: words hardly gain or lose by its shortness.
    """
    plus, minus = Counter(words(target)), Counter(words(mimic))
    vocabulary = len(plus | minus)
    # If both texts have only one distinct word, its odds are not defined.
    if not minus or vocabulary < 2:
        return {word: float(count) for word, count in plus.items()}

    def log_odds(count: int, total: int) -> float:
        all_other_words = total - count + _PRIOR * (vocabulary - 1)
        return math.log((count + _PRIOR) / all_other_words)

    weights = {}
    for word, count in plus.items():
        delta = log_odds(count, plus.total()) - log_odds(minus[word], minus.total())
        weight = count * max(0.0, 1 + lam * delta)
        if weight > 0:
            weights[word] = weight
    return weights
