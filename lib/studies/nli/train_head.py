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
from lib.embed import Encoder, load_encoder
from lib.search.vectors import encode_small
from lib.studies.nli.head import HEAD, FeatureBackend, any_of, features, opposites
from lib.studies.nli.labelled import (
    NEAREST,
    LabelledPair,
    cited_abstracts,
    quality,
    quality_table,
    quality_values,
    scifact,
)

CHECKED_PAIRS = 120
"""How many of the training pairs a test trains on again (see ``save``)."""

_COLUMNS = {
    "cosine": slice(0, 1),
    "cues": slice(1, 13),
    "vectors": slice(13, None),
    "all": slice(None),
}
"""The columns of ``features`` that were tried alone and together."""

_OPPOSITE_LABEL = {"contradiction": "entailment", "entailment": "contradiction"}


def nearest(encoder: Encoder, first: int | None = None) -> pd.DataFrame:
    """What ``NEAREST`` holds, computed, or its ``first`` rows."""
    neutral = [entry for entry in cited_abstracts() if not entry[0].evidence_doc_id][:first]
    texts: dict[str, None] = {}  # a set that keeps its order
    for claim, _, sentences in neutral:
        texts |= dict.fromkeys([claim.claim, *sentences])
    vector = dict(zip(texts, encode_small(list(texts), encoder, "article"), strict=True))
    rows = []
    for claim, doc, sentences in neutral:
        cosines = [vector[sentence] @ vector[claim.claim] for sentence in sentences]
        rows.append((claim.id, doc, int(np.argmax(cosines))))
    return pd.DataFrame(rows, columns=["claim", "doc", "sentence"])


def turned_around(pairs: Sequence[LabelledPair]) -> list[LabelledPair]:
    """Claims turned around, by a denial less or a cue word for its opposite: what contradicted is
    entailed and the other way round, so a head cannot just learn which claims are false ones."""
    denial = re.compile(r"\b(?:(?:does|do|did) not|not|no) ")
    opposite = opposites()
    cue = any_of(opposite)
    turned = []
    for pair in pairs:
        claim = denial.sub("", pair.a, count=1)
        if claim == pair.a:
            claim = cue.sub(lambda match: opposite[match[0]], pair.a, count=1)
        if claim != pair.a and pair.label in _OPPOSITE_LABEL:
            turned.append(pair._replace(a=claim, label=_OPPOSITE_LABEL[pair.label]))
    return turned


def fit(
    pairs: Sequence[LabelledPair],
    encoder: Encoder,
    *,
    C: float = 3e-4,
    flips: bool = True,
    columns: slice = slice(None),
) -> tuple[np.ndarray, float]:
    """Weights (float32, one a feature) and bias of the logistic regression on ``features``.

    ``C`` is sklearn's inverse penalty; ``flips`` adds the claims turned around. Columns are
    standardised, and that is folded into the weights; those outside ``columns`` weigh 0. The
    problem is convex and solved to 1e-8, so there is one answer and no seed.
    """
    from sklearn.linear_model import LogisticRegression

    if flips:
        pairs = [*pairs, *turned_around(pairs)]
    rows = _features_of(pairs, encoder)
    contradicts = [pair.label == "contradiction" for pair in pairs]
    mean = rows.mean(axis=0)
    scale = rows.std(axis=0) + 1e-9
    used = np.zeros(rows.shape[1])
    used[columns] = 1
    model = LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
    model.fit((rows - mean) / scale * used, contradicts)
    weight = model.coef_[0] * used / scale
    return weight.astype(np.float32), float(model.intercept_[0] - mean @ weight)


def _features_of(pairs: Sequence[LabelledPair], encoder: Encoder) -> np.ndarray:
    return features([(pair.a, pair.b) for pair in pairs], encoder).astype(float)


def _folds(
    pairs: Sequence[LabelledPair], encoder: Encoder, **how: Any
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Five folds over groups: which of ``pairs`` contradict, and their logits by the others."""
    from sklearn.model_selection import GroupKFold

    rows = _features_of(pairs, encoder)
    contradicts = np.array([pair.label == "contradiction" for pair in pairs])
    groups = [pair.group for pair in pairs]
    folds = GroupKFold(5, shuffle=True, random_state=0)
    for train, test in folds.split(rows, contradicts, groups):
        weight, bias = fit([pairs[i] for i in train], encoder, **how)
        yield contradicts[test], rows[test] @ weight + bias


def validation(pairs: Sequence[LabelledPair], encoder: Encoder) -> pd.DataFrame:
    """What the head was chosen by: sees, flips, C, and mean AUROC over the folds of ``pairs``."""
    from sklearn.metrics import roc_auc_score

    rows = []
    for sees, flips, C in product(_COLUMNS, (False, True), (1e-4, 3e-4, 1e-3)):
        folds = _folds(pairs, encoder, C=C, flips=flips, columns=_COLUMNS[sees])
        auroc = np.mean([roc_auc_score(contradicts, logits) for contradicts, logits in folds])
        rows.append({"sees": sees, "flips": flips, "C": C, "auroc": auroc})
    return pd.DataFrame(rows)


def save(pairs: Sequence[LabelledPair], encoder: Encoder, file: Path = HEAD) -> None:
    """Train on ``pairs``, measure on those held out, write the weights with that note.

    The penalty shrinks the logits, so they are stretched to be probabilities on pairs that a fold
    has not seen (Platt scaling), which changes no order. ``check`` are the weights of the first
    ``CHECKED_PAIRS`` pairs, by which a test sees that data, features and training are still the
    same.
    """
    from sklearn.linear_model import LogisticRegression

    weight, bias = fit(pairs, encoder)
    folds = list(_folds(pairs, encoder))
    contradicts = np.concatenate([fold[0] for fold in folds])
    logits = np.concatenate([fold[1] for fold in folds])
    stretch = LogisticRegression(C=np.inf, tol=1e-8).fit(logits[:, None], contradicts)
    slope = stretch.coef_[0, 0]
    shift = stretch.intercept_[0]
    parts = {
        "weight": weight * np.float32(slope),
        "bias": bias * slope + shift,
        "note": "",
        "check": fit(pairs[:CHECKED_PAIRS], encoder)[0],
        "sees": FeatureBackend("cues", encoder).inputs,
    }
    for _ in range(2):  # the note is measured with the file, so it is written a second time
        atomic_write(file, partial(_write, parts))
        backend = FeatureBackend("head", encoder, file)
        q = quality(quality_values([backend], ["scifact held-out"]))
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
    print(quality_table(quality_values(models)).round(3).to_string(index=False))
