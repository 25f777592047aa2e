"""Why a passage counts: the options that its judges say it supports, and their words in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from lib.data.judgments import evidence, read_judgments


@cache
def reasons() -> Mapping[tuple[str, str], Mapping[str, tuple[int, int]]]:
    """By question and passage id: each option that both passes say the passage supports, with where
    the words that the first pass copied begin and end in title and text (``shown_text``)."""
    judged = read_judgments()
    agreed = evidence(judged)
    found: dict[tuple[str, str], dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in judged:
        key = row["qid"], row["pid"]
        if row["judge"] == "first" and key in agreed:
            for i, option in enumerate(row["supports"]):
                if option in agreed[key].supports:
                    start = row["start"][i]
                    found[key][option] = start, start + row["length"][i]
    return found
