"""Search by words: BM25 over passages, and the words that tell H+ from H- as weights.

``contrast_terms`` gives the weights that ``BM25Index.search_weighted`` searches with;
``lib.search.merge`` fuses such a list with a dense one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from lib.search.index import Hits, PassageIndex, top_rows
from lib.search.postings import Postings

_PRIOR = 0.5


class BM25Index(PassageIndex):
    """Lucene's BM25 over lower-cased words, English stop words removed, no stemming.

    Make one with ``build``. A repeated word of a query counts each time, which is what Query2Doc's
    repeated question relies on.
    """

    _postings: Postings

    @classmethod
    def build(
        cls, texts: Iterable[str], ids: Sequence[str], keep: Path | None = None, content: str = ""
    ) -> Self:
        """Index passages (title and text as one string), a text for each id.

        ``keep`` is the folder in which the index stays, of passages called ``content``; without it
        the index goes with the process. Of a finished one no text is read; a killed run goes on.
        OSError where it cannot be written.
        """
        index = cls(ids)
        index._postings = Postings(keep, content, len(index.ids))
        index._postings.write(texts, _tokenized)
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
        if not np.isfinite(np.array([*query.values()], dtype=np.float64)).all():
            raise ValueError(f"weights must be finite: {dict(query)}")
        best_scores, best_rows = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
        for part, found in self._postings.find(query):
            kept = self.kept[part]
            rows = np.concatenate([rows for _, rows, _ in found])
            # In float64, so that the order of the words changes no rounded score.
            values = np.concatenate([np.float64(query[word]) * scores for word, _, scores in found])
            scores = np.bincount(rows, values, len(kept)) * kept
            # All that tie with the k-th best stay: their ids decide, in ``top_rows``.
            kth_score = np.partition(scores, -k)[-k] if k < len(scores) else 0.0
            rows = np.flatnonzero((scores > kth_score - 1e-5) & (scores > 0))
            rounded = np.round(scores[rows], 5)
            best_scores.append(rounded[rounded > 0])
            best_rows.append(part.start + rows[rounded > 0])
        return top_rows(np.concatenate(best_scores)[None], np.concatenate(best_rows), self, k)


def words(text: str) -> list[str]:
    """The words of a text as BM25 reads it, in order, repeated ones as often as they occur."""
    return _tokenized([text], return_ids=False)[0]


def _tokenized(texts: Sequence[str], return_ids: bool):
    """The words of each text: numbered, or as lists of strings."""
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
