"""Controls for contrast in the grid: CHR's own texts, searched in another way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lib.methods.base import Expansion
from lib.query_spec import DRAWS, Hypotheses, with_random_mimics

CONTROLS: dict[str, dict] = {
    "chr+stranger": {"mimic": "stranger"},
    "chr+rotation": {"rotation": True},
}
"""By name, what differs from CHR's own way: another question's mimic takes the place of h-, or h-
is turned towards it until it has the same cosine to h+ as the right one. Add a control: one line
here."""


def with_drawn_strangers(
    expansions: Mapping[str, Sequence[tuple[str, Expansion]]],
) -> dict[str, Hypotheses]:
    """CHR's hypotheses by question id, with strangers drawn among all sets together.

    ``expansions`` are (question id, expansion) by set; failed ones are left out.
    """
    population = {
        qid: expansion.request
        for pairs in expansions.values()
        for qid, expansion in pairs
        if expansion.request is not None
    }
    return with_random_mimics(population, DRAWS)


def controlled(
    control: str,
    pairs: Sequence[tuple[str, Expansion]],
    drawn: Mapping[str, Hypotheses],
    draw: int = 0,
) -> list[Expansion]:
    """CHR's expansions of one set, searched as the control says; a failed one stays failed."""
    if control not in CONTROLS:
        raise ValueError(f"no control {control!r}; there are: {', '.join(CONTROLS)}")
    out = []
    for qid, expansion in pairs:
        if expansion.request is not None:
            request = drawn[qid].by(**CONTROLS[control], draw=draw)
            expansion = replace(expansion, request=request)
        out.append(expansion)
    return out
