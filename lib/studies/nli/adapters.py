"""The adapters of contradiction: what each is trained on, and how.

MiniLM is tuned as a bi-encoder: two sentences that agree get near vectors, two that contradict each
other far ones. Beside it stand the same trained on shuffled labels, the same that reads one
sentence alone, and a cross-encoder. ``make train`` trains them all; ``make train BASE=mpnet``, or
any model of the hub, trains the same on another model, into the cache.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.files import sha256_bytes
from lib.model_files import ADAPTERS, WEIGHTS, read_card
from lib.studies.nli.agreement import ALONE, AgreementBackend, reads_one_text
from lib.studies.nli.findings import training_pairs
from lib.studies.nli.labelled import scifact
from lib.studies.nli.pairs import LabelledPair
from lib.studies.nli.train_head import turned_around
from lib.train.adapter import write_card
from lib.train.fit import Plan, fit

LABELS = ("contradiction", "entailment", "neutral")

_BI = Plan("minilm", "texts", rank=16, max_tokens=96)

PLANS = {
    "contradiction": _BI,
    "contradiction-shuffled": _BI,
    "contradiction-one-text": _BI,
    "contradiction-cross": Plan("minilm", "pairs", LABELS, rank=16, max_tokens=128),
}
"""How each adapter is trained, by name. One epoch each; no plan was tuned on a measured set. (The
calibration was made a second time after the first numbers: see ``data/adapters/README.md``.)"""

_DATA = (
    "SciFact train claims outside data/nli-head/held_out.txt, and the same turned round (claims "
    "CC BY 4.0, abstracts ODC-By 1.0); Evidence Inference 2.0 training articles outside those held "
    "out by lib/studies/nli/findings.py, quotes against statements by grammar (annotations MIT)"
)
_CALIBRATION = 0.15


def part(calibration: bool) -> list[LabelledPair]:
    """The pairs that adapters are trained on, or those kept to calibrate them (15 % of the claims'
    groups and articles, by hash). SciFact's stand in twice: they are few.

    Findings on different matters are of no group and all trained on. To calibrate, half as many
    pairs as are kept are made again of texts of two groups: most sentences that a study compares
    are on different matters.
    """
    claims = scifact(held_out=False)
    own = 2 * (claims + turned_around(claims)) + training_pairs()
    chosen = [pair for pair in own if _calibrates(pair) == calibration]
    return chosen + _on_other_matters(chosen) if calibration else chosen


def _on_other_matters(pairs: Sequence[LabelledPair]) -> list[LabelledPair]:
    """Half as many neutral pairs: the first text of one and the second of another group's."""
    rng, made = random.Random(0), []
    while len(made) < len(pairs) // 2:
        one, other = rng.sample(pairs, 2)
        if one.group != other.group:
            made.append(LabelledPair(one.a, other.b, "neutral", one.group))
    return made


def _calibrates(pair: LabelledPair) -> bool:
    share = int(sha256_bytes(f"calibration {pair.group}".encode())[:12], 16) / 16**12
    return share < _CALIBRATION


def train(name: str, base: str = "minilm") -> tuple[Path, dict[str, Any]]:
    """Train one of PLANS on ``base`` (see ``Plan``): its folder and its card. Bi-encoders are
    calibrated.

    On MiniLM it is one of those that are shipped; on another model it goes into the cache.
    """
    plan, own = replace(PLANS[name], base=base), part(calibration=False)
    out = ADAPTERS / name
    if base != "minilm":
        out = paths.cache("adapters") / f"{name}-{Path(base).name}"
    if plan.reads == "pairs":
        from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

        return out, fit(plan, _columns(own, LABELS.index), CrossEntropyLoss, out, data=_DATA)
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss

    pairs = [pair for pair in own if pair.label != "neutral"]
    columns = _columns(pairs, lambda label: float(label == "entailment"))
    if name.endswith("shuffled"):
        random.Random(plan.seed).shuffle(columns["label"])
    if name.endswith("one-text"):
        columns = _one_text(columns)
    card = fit(plan, columns, CoSENTLoss, out, data=_DATA)
    card["calibration"] = _calibrated(out)
    write_card(card, out)
    return out, card


def cards() -> pd.DataFrame:
    """What the shipped adapters are and cost, a row each.

    Columns: adapter, reads, examples, minutes, precision, memory_mb (the highest so far of the
    process that trained one after the other), kilobytes.
    """
    rows = []
    for name, plan in PLANS.items():
        card = read_card(ADAPTERS / name)
        row = {"adapter": name, "reads": plan.reads}
        row |= {key: card[key] for key in ("examples", "minutes", "precision")}
        row["memory_mb"] = card["peak_memory_mb"]
        row["kilobytes"] = (ADAPTERS / name / WEIGHTS).stat().st_size // 1000
        rows.append(row)
    return pd.DataFrame(rows)


def _columns(pairs: Sequence[LabelledPair], number: Any) -> dict[str, list]:
    """Both texts in either order, by a seed, and the label as a number."""
    rng = random.Random(0)
    texts = [(pair.a, pair.b) if rng.random() < 0.5 else (pair.b, pair.a) for pair in pairs]
    return {
        "one": [one for one, _ in texts],
        "other": [other for _, other in texts],
        "label": [number(pair.label) for pair in pairs],
    }


def _one_text(columns: dict[str, list]) -> dict[str, list]:
    """One text of each pair, against the same word: what one sentence gives away by itself."""
    return columns | {"other": [ALONE] * len(columns["label"])}


def _calibrated(folder: Path) -> list[float]:
    """Bias and two weights of a logistic regression on the calibration part's two cosines.

    The adapter that reads one text does without MiniLM's cosine, which reads both: its weight is 0.
    """
    from sklearn.linear_model import LogisticRegression

    pairs = part(calibration=True)
    contradicts = [pair.label == "contradiction" for pair in pairs]
    cosines = AgreementBackend("bi", str(folder), weights=(0, 0, -1)).cosines(
        [(pair.a, pair.b) for pair in pairs]
    )
    # Columns of one scale, or the solver stops at once; one that never changes gets no weight.
    mean, scale = cosines.mean(axis=0), cosines.std(axis=0)
    scale[scale < 1e-9] = 1
    used = [0, 1] if reads_one_text(folder) else [1, 1]
    fitted = LogisticRegression(C=np.inf, tol=1e-8).fit(
        (cosines - mean) / scale * used, contradicts
    )
    weights = fitted.coef_[0] * used / scale
    return [float(fitted.intercept_[0] - mean @ weights), *map(float, weights)]


def main() -> None:
    """``python -m lib.studies.nli.adapters [--base MODEL] [NAME ...]``"""
    parser = argparse.ArgumentParser(prog="make train")
    parser.add_argument("--base", default="minilm", help="minilm, mpnet, or a model of the hub")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PLANS)}; default: all")
    told = parser.parse_args()
    unknown = sorted(set(told.names) - PLANS.keys())
    if unknown:
        sys.exit(f"error: no adapter {unknown[0]!r}; there are: {', '.join(PLANS)}")
    names = told.names or list(PLANS)
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}", flush=True)
        folder, card = train(name, told.base)
        cost = f"{card['minutes']} min, {card['peak_memory_mb']} MB of memory"
        print(f"  {cost}: {paths.shown(folder)}", flush=True)


if __name__ == "__main__":
    main()
