"""Quotes: found in the passages they are from, and kept as places in them."""

from __future__ import annotations

import pytest

from lib.llm.quotes import quoted, with_words
from tools.texts import as_places

PASSAGE = "It improves with “regular\nexercise” – at any age. Rest does no good at all."


def test_quotes_kept_as_places_come_back_word_for_word():
    documents = {"a:1": "Nothing of the kind is known here.", "b:2": PASSAGE}
    reply = (
        '[2] "Rest does no good at all." "It heals by itself in a week."\n[1] “nothing of the kind”'
    )
    kept = as_places(reply, documents)
    assert "Rest" not in kept and "heals" not in kept and kept.count("⟨not found⟩") == 1
    assert quoted(with_words(kept, documents)) == [
        "Rest does no good at all",
        "Nothing of the kind",
    ]


def test_a_quote_with_quotes_in_it_stays_one_quote():
    kept = as_places(
        '"improves with regular exercise"', {"p": PASSAGE.replace("“", "").replace("”", "")}
    )
    shifted = {"p": PASSAGE.replace("“", '"').replace("”", '"')}
    assert len(quoted(with_words(kept, shifted))) == 1


def test_a_reply_without_places_is_left_as_it_is():
    reply = '[1] "Rest does no good at all."'
    assert with_words(reply, {}) == reply


def test_a_place_in_a_passage_that_was_not_shown_is_refused():
    with pytest.raises(LookupError, match="b:2"):
        with_words('"⟨b:2 0 4⟩"', {"a:1": "text"})
