"""How near an answer is to the leaflet's own: the measures of the paper's Table 2 (section 4).

ROUGE comes from rouge-score (F1, no stemming); cosines are of unit sentence vectors; Word2Vec is
trained on the corpus at hand. JSD and KLD compare unigrams; their base, direction and smoothing,
which the paper does not state, are arguments. The paper prints cosine and dot product side by side:
of BERT's unit vectors they are the same, of word vectors (VSIM) they are not, and the dot product,
34.07 where the cosine is .708, also grows with the vectors' lengths.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.search.vectors import encode_small

METRICS = (
    "rouge1",
    "rouge2",
    "rougeL",
    "bert_cosine",
    "vsim_cosine",
    "vsim_dot",
    "jsd",
    "kld",
    "bertscore",
)
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

    of_reference, of_answer = Counter(words(reference)), Counter(words(answer))
    if not of_reference or not of_answer or direction not in ("reference", "answer"):
        raise ValueError(f"a text without words, or no direction {direction!r}")
    vocabulary = sorted(of_reference | of_answer)
    p = np.array([of_reference[word] for word in vocabulary], float)
    q = np.array([of_answer[word] for word in vocabulary], float)
    # scipy normalises the counts to shares
    if direction == "reference":
        kld = entropy(p + epsilon, q + epsilon, base=base)
    else:
        kld = entropy(q + epsilon, p + epsilon, base=base)
    return {"jsd": float(jensenshannon(p, q, base=base) ** 2), "kld": float(kld)}


def word_vectors(texts: Sequence[str], *, size: int = 100, seed: int = 0) -> Any:
    """gensim's Word2Vec vectors of a corpus: skip-gram, window 5, words seen twice, 20 epochs.

    One worker and a seed, so that the same texts give the same vectors. Trained on what is at hand,
    they know few words; the paper does not name its vectors.
    """
    from gensim.models import Word2Vec

    return Word2Vec(
        [words(text) for text in texts],
        vector_size=size,
        window=5,
        min_count=2,
        sg=1,
        epochs=20,
        seed=seed,
        workers=1,
    ).wv


def vsim(answer: str, reference: str, vectors: Any) -> dict[str, float]:
    """``vsim_cosine`` and ``vsim_dot``, the dot product, of the mean word vectors of two texts.

    Means are over the words that have a vector; both are NaN where a text has none.
    """
    rows_a = [vectors[word] for word in words(answer) if word in vectors]
    rows_b = [vectors[word] for word in words(reference) if word in vectors]
    if not rows_a or not rows_b:
        return {"vsim_cosine": float("nan"), "vsim_dot": float("nan")}
    a, b = np.mean(rows_a, axis=0), np.mean(rows_b, axis=0)
    cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
    return {"vsim_cosine": float(cosine), "vsim_dot": float(a @ b)}


def bertscore(answers: Sequence[str], references: Sequence[str], model: str) -> np.ndarray:
    """BERTScore F1 (Zhang et al. 2020) with the token vectors of a sentence-transformers folder.

    Greedy matching, no idf, no rescaling, without [CLS] and [SEP]. Its usual model: roberta-large.
    """
    from sentence_transformers import SentenceTransformer

    texts = sorted({*answers, *references})
    encoded = SentenceTransformer(model, device="cpu").encode(
        texts, output_value="token_embeddings", show_progress_bar=False, batch_size=8
    )
    tokens = {}
    for text, rows in zip(texts, encoded, strict=True):
        rows = rows.numpy()[1:-1]  # without [CLS] and [SEP]
        tokens[text] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    f1 = []
    for answer, reference in zip(answers, references, strict=True):
        cosines = tokens[answer] @ tokens[reference].T
        precision = cosines.max(axis=1).mean()  # of each token of the answer, its nearest
        recall = cosines.max(axis=0).mean()
        f1.append(2 * precision * recall / (precision + recall))
    return np.array(f1)


def score_answers(
    answers: pd.DataFrame,
    references: Mapping[str, str],
    encoder: Any,
    vectors: Any,
    bert: str | None = None,
    **divergence: Any,
) -> pd.DataFrame:
    """``answers`` (columns qid, answer, ...) with a column for each of METRICS.

    ``references`` are by qid. Missing values where an answer or its reference has no word. ``bert``
    is the folder of BERTScore's model, without one that column is missing values; ``divergence``
    goes to ``divergences``.
    """
    from rouge_score.rouge_scorer import RougeScorer

    texts = answers["answer"].fillna("")
    has_words = [
        bool(words(text)) and bool(words(references[qid]))
        for qid, text in zip(answers["qid"], texts, strict=True)
    ]
    measurable = answers[has_words]
    if measurable.empty:
        return answers.assign(**dict.fromkeys(METRICS, np.nan))
    given = measurable["answer"].tolist()
    wanted = [references[qid] for qid in measurable["qid"]]
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    rows = []
    for answer, reference in zip(given, wanted, strict=True):
        rouge = {name: s.fmeasure for name, s in scorer.score(reference, answer).items()}
        row = rouge | divergences(answer, reference, **divergence)
        rows.append(row | vsim(answer, reference, vectors))
    measured = pd.DataFrame(rows, index=measurable.index)
    vectors_given = encode_small(given, encoder, "article")
    vectors_wanted = encode_small(wanted, encoder, "article")
    measured["bert_cosine"] = (vectors_given * vectors_wanted).sum(axis=1)
    measured["bertscore"] = bertscore(given, wanted, bert) if bert else np.nan
    return answers.join(measured[list(METRICS)])
