"""Controls for contrast: CHR's own expansions, with the mimic of another question in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lib.methods.base import Dense, Expansion
from lib.run import Retriever
from lib.search.contrast import TINY, cosine

__all__ = ["CONTROLS", "controlled"]

CONTROLS = ("another question's mimic", "matched rotation")
"""What takes the place of h-: another question's h-, or that turned until it has the same cosine to
h+ as the right one (``lib.search.contrast.matched_rotation``)."""


def controlled(
    kind: str, expansions: Sequence[Expansion], retriever: Retriever, seed: int = 0
) -> list[Expansion]:
    """CHR's expansions with another mimic; those without one (failed, lambda 0) stay as they are.

    A question whose other mimic says the same as its own, or as its H+, has no control: it fails.

    A rotation c h+ + s (o - to h+) / sqrt(1 - to^2), with s = sqrt(1 - c^2), o the other mimic and
    to = cos(h+, o), is a weighted sum of two texts, so it stays one search like any other request.
    """
    if kind not in CONTROLS:
        raise ValueError(f"no control {kind!r}; there are: {', '.join(CONTROLS)}")
    whole = [i for i, e in enumerate(expansions) if e.request and _has_mimic(e.request)]
    known = retriever.vectors([expansions[i].request for i in whole])
    turn = int(np.random.default_rng(seed).integers(1, max(len(whole), 2)))
    out = list(expansions)
    for i, j in zip(whole, whole[turn:] + whole[:turn], strict=True):
        plus, mimic, *rest = expansions[i].request.texts
        other = replace(expansions[j].request.texts[1], weight=mimic.weight)
        h, m, o = (known[t.tower, t.text][None] for t in (plus, mimic, other))
        c, to = float(cosine(h, m)[0]), float(cosine(h, o)[0])
        trace, aside = dict(expansions[i].trace), float(np.sqrt(1 - to * to))
        if other.text == mimic.text or aside < TINY:
            trace["error"] = "no control: the other question's mimic is this one's own, or its H+"
            out[i] = Expansion(None, trace)
            continue
        if kind == "matched rotation":
            share = float(np.sqrt(1 - c * c)) / aside
            plus = replace(plus, weight=plus.weight + mimic.weight * (c - share * to))
            other = replace(other, weight=mimic.weight * share)
        out[i] = Expansion(replace(expansions[i].request, texts=(plus, other, *rest)), trace)
    return out


def _has_mimic(request: Dense) -> bool:
    return [t.role for t in request.texts[:2]] == ["H+", "H-"]
