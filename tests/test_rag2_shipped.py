"""RAG2's shipped filters: a card for every recipe, and the same score in any company."""

from __future__ import annotations

import numpy as np

from lib.studies.rag2.filters import BASELINES, CROSSES, HEADS, card_of, head_file, load_filter
from lib.studies.rag2.labels import RECIPES, Recipe


def test_every_filter_has_a_recipe_and_its_card_tells_the_same():
    assert set(RECIPES) == {*HEADS, *CROSSES}
    for name, recipe in RECIPES.items():
        card = card_of(name)
        told = {key: card[key] for key in ("label", "share", "rationale", "questions", "shuffled")}
        assert Recipe(**told) == recipe, name
        assert card["minutes"] >= 0 and card["peak_memory_mb"] > 50
        assert card["threshold_25"] < card["threshold_05"]
    sizes = [head_file(name).stat().st_size for name in HEADS]
    assert max(sizes) < 5000
    for name in BASELINES:
        assert card_of(name)["threshold_25"] < card_of(name)["threshold_05"]


def test_shipped_filters_read_any_pair_alike(own_folders):
    pairs = [
        ("What treats scurvy?\nA. vitamin C\nB. iron", "Vitamin C cures scurvy within days."),
        ("What treats scurvy?\nA. vitamin C\nB. iron", "The heart has four chambers. " * 60),
    ]
    for name in (*HEADS, *CROSSES):
        one = load_filter(name)
        together = one.scores(pairs)
        assert ((together > 0) & (together < 1)).all()
        assert np.allclose(together, [one.scores([pair])[0] for pair in pairs], atol=1e-5)
