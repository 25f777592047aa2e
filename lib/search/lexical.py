"""Contrast between words: which words of H+ tell it from H-, as weights for BM25.

``BM25Index.search_weighted`` searches with them; ``lib.search.merge`` fuses that with a dense list.
"""

from __future__ import annotations

import math
from collections import Counter

from lib.search.bm25 import words


def contrast_terms(
    target: str, mimic: str, lam: float = 1.0, *, smoothing: float = 0.5
) -> dict[str, float]:
    """The words of H+ (as BM25 reads them), weighted by y+ max(0, 1 + lambda delta).

    Words whose weight is 0 are left out.

    delta is the log-odds of the word in H+ against H-, with a Dirichlet prior of ``smoothing`` for
    each of the V words of both texts (Monroe, Colaresi & Quinn 2008, *Fightin' Words*, their
    log-odds ratio, with a uniform prior):

        delta = log (y+ + a) / (n+ + aV - y+ - a)  -  log (y- + a) / (n- + aV - y- - a)

    y counts the word and n all words of a text. A word equally at home in both keeps its count, one
    that H- lacks gains, one that H- uses more loses, down to 0; a negative lambda turns this round.
    At lambda = 0, and where H- has no words, these are the word counts of H+: BM25's own query. The
    prior makes a short H- weak evidence: words hardly gain or lose by its shortness. Raises
    ValueError for a smoothing that is not positive.
    """
    if not 0 < smoothing < math.inf:
        raise ValueError(f"smoothing is {smoothing}: it must be positive and finite")
    plus, minus = Counter(words(target)), Counter(words(mimic))
    vocabulary = len(plus | minus)
    # Without a second word there are no odds: nothing else could have been said.
    if not minus or vocabulary < 2:
        return {word: float(count) for word, count in plus.items()}

    def log_odds(count: int, total: int) -> float:
        all_other_words = total - count + smoothing * (vocabulary - 1)
        return math.log((count + smoothing) / all_other_words)

    weights = {}
    for word, count in plus.items():
        delta = log_odds(count, plus.total()) - log_odds(minus[word], minus.total())
        weight = count * max(0.0, 1 + lam * delta)
        if weight > 0:
            weights[word] = weight
    return weights
