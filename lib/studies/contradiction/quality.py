"""How near an answer is to the leaflet's own: the measures of seed 004's Table 2 (section 4).

ROUGE comes from rouge-score (F1, no stemming); cosines are of unit sentence vectors; Word2Vec is
trained on the corpus at hand. JSD and KLD compare unigrams; their base, direction and smoothing,
which the paper does not state, are arguments (C14). A dot product of unit vectors is the cosine
again (C13), so it is not repeated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.search.vectors import encode_small

__all__ = ["METRICS", "bertscore", "divergences", "score_answers", "vsim", "word_vectors", "words"]

METRICS = ("rouge1", "rouge2", "rougeL", "bert_cosine", "vsim_cosine", "jsd", "kld", "bertscore")
"""The measures of an answer; of JSD and KLD the lower is the closer."""


def words(text: str) -> list[str]:
    """Lower-case words of a text."""
    return re.findall(r"\w+", text.lower())


def divergences(
    answer: str,
    reference: str,
    *,
    direction: str = "reference",
    epsilon: float = 1e-9,
    base: float = 2,
) -> dict[str, float]:
    """``jsd`` in [0, 1] for base 2, and ``kld``, of the unigrams of two texts; lower is closer.

    KLD is KL(reference || answer), or the other way round for ``direction="answer"``; every word of
    either text gets ``epsilon`` added to its count before normalising.
    """
    from scipy.spatial.distance import jensenshannon
    from scipy.stats import entropy

    counts = Counter(words(reference)), Counter(words(answer))
    if not all(counts) or direction not in ("reference", "answer"):
        raise ValueError(f"a text without words, or no direction {direction!r}")
    known = sorted(counts[0] | counts[1])
    p, q = (np.array([c[w] for w in known], float) for c in counts)
    smooth = p + epsilon, q + epsilon  # scipy normalises
    kld = entropy(*(smooth if direction == "reference" else smooth[::-1]), base=base)
    return {"jsd": float(jensenshannon(p, q, base=base) ** 2), "kld": float(kld)}


def word_vectors(texts: Sequence[str], *, size: int = 100, seed: int = 0) -> Any:
    """gensim's Word2Vec vectors of a corpus: skip-gram, window 5, words seen twice, 20 epochs.

    One worker and a seed, so that the same texts give the same vectors. Trained on what is at hand,
    they know few words; the paper does not name its vectors.
    """
    from gensim.models import Word2Vec

    return Word2Vec(
        [words(t) for t in texts],
        vector_size=size,
        window=5,
        min_count=2,
        sg=1,
        epochs=20,
        seed=seed,
        workers=1,
    ).wv


def vsim(answer: str, reference: str, vectors: Any) -> float:
    """Cosine of the mean word vectors of two texts, over the words that have one; NaN for none."""
    means = [[vectors[w] for w in words(text) if w in vectors] for text in (answer, reference)]
    if not all(means):
        return float("nan")
    a, b = (np.mean(rows, axis=0) for rows in means)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def bertscore(answers: Sequence[str], references: Sequence[str], model: str) -> np.ndarray:
    """BERTScore F1 (Zhang et al. 2020) with the token vectors of a sentence-transformers folder.

    Greedy matching, no idf, no rescaling, without [CLS] and [SEP]. Its usual model: roberta-large.
    """
    from sentence_transformers import SentenceTransformer

    texts = sorted({*answers, *references})
    rows = SentenceTransformer(model, device="cpu").encode(
        texts, output_value="token_embeddings", show_progress_bar=False, batch_size=8
    )
    unit = [r / np.linalg.norm(r, axis=1, keepdims=True) for r in (x.numpy()[1:-1] for x in rows)]
    tokens = dict(zip(texts, unit, strict=True))
    near = [tokens[a] @ tokens[b].T for a, b in zip(answers, references, strict=True)]
    precision, recall = (np.array([m.max(axis=x).mean() for m in near]) for x in (1, 0))
    return 2 * precision * recall / (precision + recall)


def score_answers(
    answers: pd.DataFrame,
    references: Mapping[str, str],
    encoder: Any,
    vectors: Any,
    bert: str | None = None,
    **divergence: Any,
) -> pd.DataFrame:
    """``answers`` (columns qid, answer, ...) with a column for each of METRICS.

    Missing values where an answer or its reference has no word. ``bert`` is the folder of
    BERTScore's model, without one that column is missing values; ``divergence`` goes to
    ``divergences``.
    """
    from rouge_score.rouge_scorer import RougeScorer

    spoken = [
        bool(words(a)) and bool(words(references[q]))
        for q, a in zip(answers["qid"], answers["answer"].fillna(""), strict=True)
    ]
    some = answers[spoken]
    if some.empty:
        return answers.assign(**dict.fromkeys(METRICS, np.nan))
    said, wanted = some["answer"].tolist(), [references[q] for q in some["qid"]]
    scorer, rows = RougeScorer(["rouge1", "rouge2", "rougeL"]), []
    for pair in zip(said, wanted, strict=True):
        rouge = {k: v.fmeasure for k, v in scorer.score(*pair[::-1]).items()}
        known = divergences(*pair, **divergence)
        rows.append(rouge | known | {"vsim_cosine": vsim(*pair, vectors)})
    a, b = (encode_small(texts, encoder, "article") for texts in (said, wanted))
    more = {"bert_cosine": (a * b).sum(axis=1), "bertscore": np.nan}
    if bert:
        more["bertscore"] = bertscore(said, wanted, bert)
    return answers.join(pd.DataFrame(rows, index=some.index).assign(**more)[list(METRICS)])
