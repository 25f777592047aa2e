"""The re-ranker for laptops: what it learns, what it refuses, and that disorder teaches nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest

from lib.embed import HashEncoder
from lib.stats import auroc
from lib.studies.rag2 import reranker
from lib.studies.rag2.filters import Bm25Filter
from tools import train_filters

WORDS = [f"word{i}" for i in range(40)]
ENCODER = HashEncoder(dim=64)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(reranker, "_FOLDER", tmp_path)
    return tmp_path


def made(seed: int = 0) -> train_filters.Examples:
    """Snippets that share words with their question were given; the others share none."""
    rng = random.Random(seed)
    pairs, given, qids = [], [], []
    for number in range(60):
        asked = rng.sample(WORDS, 3)
        for place in range(8):
            said = rng.sample(asked, 2) if place in (2, 5) else []
            filler = rng.sample([word for word in WORDS if word not in asked], 4)
            pairs.append((" ".join(asked), " ".join(said + filler)))
            given.append(place in (2, 5))
            qids.append(f"q{number}")
    return pairs, np.array(given), qids


TEXTS = [passage for _, passage in made()[0]]


def test_it_ranks_what_experts_would_give_first(folder):
    card = train_filters.train_reranker("reranker", made(), ENCODER, TEXTS)
    unseen, given, _ = made(seed=9)
    scores = reranker.Reranker("reranker", ENCODER, TEXTS)(unseen)
    assert auroc(given, scores) > 0.9
    assert card["p_at_5"] == pytest.approx(0.4, abs=0.02)  # both of two, in five places
    assert card["examples"] == 480
    assert len(card["weights"]) == len(reranker.FEATURES)


def test_disorder_teaches_nothing(folder):
    """The mean over draws is that of any order by chance; the tuned one is above."""
    cards = [
        train_filters.train_reranker(name, made(), ENCODER, TEXTS) for name in reranker.RERANKERS
    ]
    tuned, shuffled = cards
    assert len(shuffled["weights"]) == train_filters.DRAWS
    assert shuffled["p_at_5"] == pytest.approx(shuffled["base_rate"], abs=0.06)
    assert shuffled["p_at_5"] < tuned["p_at_5"] - 0.05
    assert shuffled["cosine_p_at_5"] == tuned["cosine_p_at_5"]


def test_every_draw_of_disorder_is_a_reranker_of_its_own(folder):
    card = train_filters.train_reranker(reranker.SHUFFLED, made(), ENCODER, TEXTS)
    pairs = [("word1 word2", "word2 word3"), ("word4", "word4 word5")]
    rows = reranker.PairFeatures(ENCODER, TEXTS)(pairs)
    scorers = reranker.shuffled_rerankers(ENCODER, TEXTS)
    assert len(scorers) == train_filters.DRAWS
    for weights, scorer in zip(card["weights"], scorers, strict=True):
        assert np.allclose(scorer(pairs), rows @ np.array(weights))
    with pytest.raises(ValueError):
        reranker.Reranker(reranker.SHUFFLED, ENCODER, TEXTS)  # it has many weights


def test_its_features_are_what_they_are_called():
    pairs = [("word1 word2 word1", "word2 word3"), ("word4", "word5")]
    bm25 = Bm25Filter(TEXTS, threshold=0.0)
    rows = reranker.PairFeatures(ENCODER, TEXTS)(pairs)
    assert rows.shape == (2, 3)
    vectors = ENCODER.encode(["word1 word2 word1", "word2 word3"])
    assert rows[0, 0] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    assert rows[0, 1] == bm25.scores(pairs)[0] > 0
    assert rows[:, 2].tolist() == [0.5, 0.0]


def test_a_score_is_that_of_its_pair_whatever_else_is_asked(folder):
    train_filters.train_reranker("reranker", made(), ENCODER, TEXTS)
    score = reranker.Reranker("reranker", ENCODER, TEXTS)
    pairs, _, _ = made(seed=3)
    together = score(pairs)
    assert score(pairs[::-1])[::-1] == pytest.approx(together, abs=1e-6)
    assert score(pairs[7:8])[0] == pytest.approx(together[7], abs=1e-6)
    assert score([]).shape == (0,)


def test_a_card_that_is_missing_or_of_another_encoder_is_refused(folder):
    with pytest.raises(FileNotFoundError, match="python -m tools.train_filters reranker"):
        reranker.Reranker("reranker", ENCODER, TEXTS)
    train_filters.train_reranker("reranker", made(), ENCODER, TEXTS)
    with pytest.raises(ValueError, match="was trained on"):
        reranker.Reranker("reranker", HashEncoder(dim=32), TEXTS)


def test_what_is_shipped_is_no_worse_than_the_cosine_on_unseen_questions():
    card = reranker.card_of("reranker")
    assert card["p_at_5"] >= card["cosine_p_at_5"]
    control = reranker.card_of(reranker.SHUFFLED)
    assert len(control["weights"]) == train_filters.DRAWS
    assert control["p_at_5"] < card["p_at_5"]
