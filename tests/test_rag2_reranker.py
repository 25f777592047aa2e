"""The re-ranker for laptops: what it learns, what it refuses, and that disorder teaches nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest

from lib.search.embed import HashEncoder
from lib.stats import auroc
from lib.studies.rag2 import reranker

WORDS = [f"word{i}" for i in range(40)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(reranker, "_FOLDER", tmp_path)
    return tmp_path


def made(seed: int = 0) -> reranker.Examples:
    """Snippets that share a word with their question were given; all share some other text."""
    rng = random.Random(seed)
    pairs, given, qids = [], [], []
    for number in range(120):
        asked = rng.sample(WORDS, 3)
        for is_given in (True, False, False):
            said = rng.sample(asked, 2) if is_given else []
            filler = rng.sample([word for word in WORDS if word not in asked], 4)
            pairs.append((" ".join(asked), " ".join(said + filler)))
            given.append(is_given)
            qids.append(f"q{number}")
    return pairs, np.array(given), qids


def test_it_ranks_what_experts_would_give_first_and_disorder_does_not(folder):
    encoder = HashEncoder(dim=64)
    cards = {name: reranker.train(name, made(), encoder) for name in reranker.RERANKERS}
    unseen, given, _ = made(seed=9)
    tuned, shuffled = (reranker.Reranker(name, encoder)(unseen) for name in reranker.RERANKERS)
    assert auroc(given, tuned) > 0.8
    assert auroc(given, shuffled) < auroc(given, tuned) - 0.1
    first, second = (cards[name] for name in reranker.RERANKERS)
    assert first["validation_auroc"] > second["validation_auroc"]
    assert first["C"] == second["C"]
    assert first["cosine_auroc"] == second["cosine_auroc"]
    assert first["examples"] == 360


def test_a_score_is_that_of_its_pair_whatever_else_is_asked(folder):
    encoder = HashEncoder(dim=64)
    reranker.train("reranker", made(), encoder)
    score = reranker.Reranker("reranker", encoder)
    pairs, _, _ = made(seed=3)
    together = score(pairs)
    assert together.shape == (360,)
    assert score(pairs[::-1])[::-1] == pytest.approx(together, abs=1e-6)
    assert score(pairs[7:8])[0] == pytest.approx(together[7], abs=1e-6)
    assert score([]).shape == (0,)


def test_weights_that_were_changed_or_are_of_another_encoder_are_refused(folder):
    encoder = HashEncoder(dim=64)
    with pytest.raises(FileNotFoundError, match="python -m lib.studies.rag2.reranker reranker"):
        reranker.Reranker("reranker", encoder)
    reranker.train("reranker", made(), encoder)
    with pytest.raises(ValueError, match="was trained on"):
        reranker.Reranker("reranker", HashEncoder(dim=32))
    file = folder / "reranker.npz"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match="not what its card says"):
        reranker.Reranker("reranker", encoder)


def test_what_is_shipped_is_whole_and_better_than_the_cosine_on_unseen_questions():
    for name in reranker.RERANKERS:
        weights, _ = reranker.files_of(name)
        assert weights.stat().st_size < 10_000
    card = reranker.card_of("reranker")
    assert card["validation_auroc"] > card["cosine_auroc"] + 0.05
    assert abs(reranker.card_of("reranker-shuffled")["validation_auroc"] - 0.5) < 0.05
