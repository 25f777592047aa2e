"""Train the small NLI head on SciFact: ``python -m lib.studies.nli.train_head`` makes it anew.

Of SciFact's pairs, three tenths of the groups are held out. The rest, and the same with the claim
turned around, train a logistic regression; how it was chosen, and how weak it is, says its card,
``data/nli-head/README.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base.files import atomic_write
from lib.search.embed import Encoder, load_encoder
from lib.search.vectors import encode_small
from lib.studies.nli.head import HEAD, FeatureBackend, any_of, features, opposites
from lib.studies.nli.labelled import NEAREST, SETS, Labelled, cited, quality, scifact

__all__ = ["SLICE", "fit", "flipped", "nearest", "save", "validation"]

SLICE = 120
_SEES = {
    "cosine": slice(0, 1),
    "cues": slice(1, 13),
    "vectors": slice(13, None),
    "all": slice(None),
}
_TURN = {"contradiction": "entailment", "entailment": "contradiction"}


def nearest(encoder: Encoder, first: int | None = None) -> pd.DataFrame:
    """What ``NEAREST`` holds, computed, or its ``first`` rows."""
    neutral = [c for c in cited() if not c[0].evidence_doc_id][:first]
    texts = list(dict.fromkeys(t for row, _, said in neutral for t in (row.claim, *said)))
    vector = dict(zip(texts, encode_small(texts, encoder, "article"), strict=True))
    rows = [
        (row.id, doc, int(np.argmax([vector[s] @ vector[row.claim] for s in said])))
        for row, doc, said in neutral
    ]
    return pd.DataFrame(rows, columns=["claim", "doc", "sentence"])


def flipped(pairs: Sequence[Labelled]) -> list[Labelled]:
    """Claims turned around, by a denial less or a cue word for its opposite: what contradicted is
    entailed and the other way round, so a head cannot just learn which claims are false ones."""
    deny, cue, words = (
        re.compile(r"\b(?:(?:does|do|did) not|not|no) "),
        any_of(opposites()),
        opposites(),
    )
    out = []
    for p in pairs:
        claim = deny.sub("", p.a, count=1)
        if claim == p.a:
            claim = cue.sub(lambda found: words[found[0]], p.a, count=1)
        if claim != p.a and p.label in _TURN:
            out.append(p._replace(a=claim, label=_TURN[p.label]))
    return out


def fit(
    pairs: Sequence[Labelled],
    encoder: Encoder,
    *,
    C: float = 3e-4,
    flips: bool = True,
    columns: slice = slice(None),
) -> tuple[np.ndarray, float]:
    """Weights (float32, one a feature) and bias of the logistic regression on ``features``.

    Columns are standardised, and that is folded into the weights; those outside ``columns`` weigh
    0. The problem is convex and solved to 1e-8, so there is one answer and no seed.
    """
    from sklearn.linear_model import LogisticRegression

    pairs = [*pairs, *flipped(pairs)] if flips else pairs
    rows = features([(p.a, p.b) for p in pairs], encoder).astype(float)
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    used, wanted = np.zeros(rows.shape[1]), [p.label == "contradiction" for p in pairs]
    used[columns] = 1
    model = LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
    weight = model.fit((rows - mean) / scale * used, wanted).coef_[0] * used / scale
    return weight.astype(np.float32), float(model.intercept_[0] - mean @ weight)


def _folds(
    pairs: Sequence[Labelled], encoder: Encoder, **how: Any
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Five folds over groups: which of ``pairs`` contradict, and their logits by the others."""
    from sklearn.model_selection import GroupKFold

    rows = features([(p.a, p.b) for p in pairs], encoder).astype(float)
    wanted = np.array([p.label == "contradiction" for p in pairs])
    split = GroupKFold(5, shuffle=True, random_state=0).split
    for train, test in split(rows, wanted, [p.group for p in pairs]):
        weight, bias = fit([pairs[i] for i in train], encoder, **how)
        yield wanted[test], rows[test] @ weight + bias


def validation(pairs: Sequence[Labelled], encoder: Encoder) -> pd.DataFrame:
    """What the head was chosen by: sees, flips, C, and mean AUROC over the folds of ``pairs``."""
    from sklearn.metrics import roc_auc_score

    out = []
    for (sees, columns), flips, C in product(_SEES.items(), (False, True), (1e-4, 3e-4, 1e-3)):
        folds = _folds(pairs, encoder, C=C, flips=flips, columns=columns)
        auroc = np.mean([roc_auc_score(*fold) for fold in folds])
        out.append({"sees": sees, "flips": flips, "C": C, "auroc": auroc})
    return pd.DataFrame(out)


def save(pairs: Sequence[Labelled], encoder: Encoder, file: Path = HEAD) -> None:
    """Train on ``pairs``, measure on those held out, write the weights with that note.

    The penalty shrinks the logits, so they are stretched to be probabilities on pairs that a fold
    has not seen (Platt scaling), which changes no order. ``check`` are the weights of the first
    ``SLICE`` pairs, by which a test sees that data, features and training are still the same.
    """
    from sklearn.linear_model import LogisticRegression

    weight, bias = fit(pairs, encoder)
    wanted, logits = map(np.concatenate, zip(*_folds(pairs, encoder), strict=True))
    stretch = LogisticRegression(C=np.inf, tol=1e-8).fit(logits[:, None], wanted)
    slope, shift = stretch.coef_[0, 0], stretch.intercept_[0]
    parts = {
        "weight": weight * np.float32(slope),
        "bias": bias * slope + shift,
        "note": "",
        "check": fit(pairs[:SLICE], encoder)[0],
        "sees": FeatureBackend("cues", encoder).sees,
    }
    for _ in range(2):  # the second time with the note
        atomic_write(file, partial(_write, parts))
        q = quality(FeatureBackend("head", encoder, file), "scifact held-out")
        parts["note"] = (
            f"AUROC {q['auroc']:.2f} [{q['auroc_low']:.2f}, {q['auroc_high']:.2f}], average "
            f"precision {q['ap']:.2f} (chance {q['positives'] / q['n']:.2f}) on {q['n']} pairs of "
            "SciFact held out from training"
        )


def _write(parts: dict, file: Path) -> None:
    np.savez(file, **parts)


if __name__ == "__main__":
    minilm = load_encoder("minilm", precision="float32")
    atomic_write(NEAREST, nearest(minilm).to_csv(index=False))
    training = scifact(held_out=False)
    print(validation(training, minilm).round({"auroc": 3}).to_string(index=False), flush=True)
    save(training, minilm)
    models = [FeatureBackend(name, minilm) for name in ("head", "cosine", "cues")]
    names = [*SETS, "scifact held-out, no neutral", "evidence-mini pairs, no neutral"]
    table = pd.DataFrame([quality(model, name) for name in names for model in models])
    print(table.round(3).to_string(index=False))
