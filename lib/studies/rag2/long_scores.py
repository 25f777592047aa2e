"""How like two long texts are: ROUGE-L and a BERTScore (RAG2, appendix A.5.1), and a check of both.

ROUGE-L counts the longest common subsequence of words. The BERTScore takes for each token of one
text its nearest token of the other by cosine, as the paper prints the formula: no weights for rare
tokens, no rescaling. Its token vectors are the last hidden states of MiniLM, which is also the
retriever here; the paper does not name its model. Cosines of such states are high for any two
texts of medicine, so no value means anything without that of a text on another question beside it.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lib.base.files import sha256_bytes
from lib.data.passages import Passage
from lib.stats import auroc, auroc_interval, mean_interval

SCORES = ("rouge_l", "bert_score")

KINDS = (
    "itself",
    "its own words in disorder",
    "another institute on the same question",
    "another question",
)
"""What a text is compared with to check the measures; the last is chance."""

AUROC = "AUROC, the same question against another"

_MAX_TOKENS = 512
_BATCH = 16


@dataclass(frozen=True)
class Score:
    """How much of the candidate is in the reference (``precision``), and the other way round."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 where both are 0."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def rouge_l(candidate: str, reference: str) -> Score:
    """ROUGE-L by the package ``rouge-score``: words in lower case, without stemming."""
    found = _rouge_scorer().score(reference, candidate)["rougeL"]
    return Score(found.precision, found.recall)


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"])


class TokenScorer:
    """The BERTScore of couples of texts; each text is read once.

    A text is read up to 512 tokens. The model's marks of beginning and end are no tokens of it.
    """

    def __init__(self, device: str = "cpu"):
        from transformers import AutoModel, AutoTokenizer

        from lib.model_files import minilm_folder, quiet

        quiet()
        self._tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
        self._net = AutoModel.from_pretrained(minilm_folder()).to(device).eval()
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, couples: Sequence[tuple[str, str]]) -> list[Score]:
        """The score of each (candidate, reference)."""
        vectors = self.vectors(text for couple in couples for text in couple)
        return [greedy(vectors[candidate], vectors[other]) for candidate, other in couples]

    def vectors(self, texts: Iterable[str]) -> dict[str, np.ndarray]:
        """Unit vectors of the tokens of each text, float32 (tokens, 384)."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        new.sort(key=lambda text: (-len(text), text))
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            self._known |= dict(zip(batch, self._read(batch), strict=True))
        return self._known

    def _read(self, texts: list[str]) -> list[np.ndarray]:
        import torch

        tokens: Any = self._tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=_MAX_TOKENS,
            return_special_tokens_mask=True,
            return_tensors="pt",
        )
        # Padding counts as special too, so what is left are the tokens of the text.
        own = tokens.pop("special_tokens_mask").numpy() == 0
        with torch.inference_mode():
            states = self._net(**tokens.to(self._net.device)).last_hidden_state
            states = torch.nn.functional.normalize(states, dim=-1).cpu().numpy()
        return [states[row][own[row]] for row in range(len(texts))]


def greedy(candidate: np.ndarray, reference: np.ndarray) -> Score:
    """Each token with its nearest of the other text, unit vectors (n, d) and (m, d).

    A text without tokens is like no other: 0.
    """
    if not len(candidate) or not len(reference):
        return Score(0.0, 0.0)
    cosines = candidate @ reference.T
    return Score(float(cosines.max(axis=1).mean()), float(cosines.max(axis=0).mean()))


# the measures themselves, on known truth ----------------------------------------------------------


def same_question(
    passages: Iterable[Passage], types: Collection[str], count: int = 0
) -> list[tuple[Passage, Passage]]:
    """Couples of answers of two MedQuAD institutes to one question, in the order of a hash.

    One question: of one of the ``types``, on topics that share a UMLS concept or their name, and at
    least half of the words of both names: MedQuAD's concepts take PMD for periodontal disease. No
    passage is in two couples. ``count``: the first of them (0 = all).
    """
    about: dict[tuple[str, str], dict[str, Passage]] = defaultdict(dict)
    for passage in passages:
        asked = passage.meta["question_type"]
        if asked in types:
            for topic in (*passage.meta["cuis"], passage.title.casefold()):
                about[topic, asked][passage.pid] = passage
    couples = {}
    for answers in about.values():
        for one, other in combinations([answers[pid] for pid in sorted(answers)], 2):
            if one.meta["subset"] != other.meta["subset"] and _alike(one.title, other.title):
                couples[one.pid, other.pid] = (one, other)
    chosen: list[tuple[Passage, Passage]] = []
    used: set[str] = set()
    for pids in sorted(couples, key=lambda pids: sha256_bytes(f"same {pids}".encode())):
        if not used & set(pids):
            used |= set(pids)
            chosen.append(couples[pids])
    return chosen[: count or None]


def _alike(name: str, other: str) -> bool:
    one, two = (set(re.findall(r"\w+", text.casefold())) for text in (name, other))
    return 2 * len(one & two) >= len(one | two)


def instrument(couples: Sequence[tuple[str, str]], scorer: TokenScorer) -> pd.DataFrame:
    """What both measures give where the truth is known, F1, a row each.

    ``couples`` are two answers to one question each. Columns: check, score, value, low, high, n
    (couples). Checks are ``KINDS``, the last a mean over all other couples' second answers; then
    ``AUROC``: how well a score tells an answer to the same question from one to another question,
    .5 is chance. Intervals draw couples.
    """
    numbers = range(len(couples))
    others = [(i, j) for i in numbers for j in numbers if i != j]
    rows = []
    for name in SCORES:
        same = _f1(name, couples, scorer)
        other = _f1(name, [(couples[i][0], couples[j][1]) for i, j in others], scorer)
        found = {
            KINDS[0]: _f1(name, [(one, one) for one, _ in couples], scorer),
            KINDS[1]: _f1(name, [(_in_disorder(one), one) for one, _ in couples], scorer),
            KINDS[2]: same,
            KINDS[3]: other.reshape(len(couples), -1).mean(axis=1),
        }
        for kind, values in found.items():
            value, low, high = mean_interval(values)
            row = {"check": kind, "score": name, "value": value, "low": low, "high": high}
            rows.append(row | {"n": len(couples)})
        scores = np.concatenate([same, other])
        is_same = np.arange(len(scores)) < len(same)
        groups = [str(i) for i in numbers] + [str(i) for i, _ in others]
        low, high = auroc_interval(is_same, scores, groups)
        row = {"check": AUROC, "score": name, "value": auroc(is_same, scores)}
        rows.append(row | {"low": low, "high": high, "n": len(couples)})
    return pd.DataFrame(rows)


def _f1(name: str, couples: Sequence[tuple[str, str]], scorer: TokenScorer) -> np.ndarray:
    if name == "rouge_l":
        return np.array([rouge_l(*couple).f1 for couple in couples])
    return np.array([score.f1 for score in scorer(couples)])


def _in_disorder(text: str) -> str:
    words = text.split()
    random.Random(sha256_bytes(text.encode())).shuffle(words)
    return " ".join(words)
