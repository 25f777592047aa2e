"""The models of contradiction: what each is trained on, and how.

    python -m tools.train_contradiction [--base MODEL] [NAME ...]

MiniLM is tuned as a bi-encoder: two sentences that agree get near vectors, two that contradict each
other far ones. Beside it stand the same trained on shuffled labels, the same that reads one
sentence alone, a cross-encoder, and ``head``, a logistic regression on features. On another base an
adapter goes into the cache. ``data/nli-head/README.md`` says how the head was chosen, and how weak
it is.
"""

from __future__ import annotations

import argparse
import random
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write, sha256_bytes
from lib.embed import Encoder, load_encoder
from lib.model_files import ADAPTERS
from lib.search.vectors import encode_small
from lib.studies.contradiction.labelled import (
    NEAREST,
    WORDINGS,
    Finding,
    LabelledPair,
    Wording,
    cited_abstracts,
    findings,
    quality,
    quality_table,
    quality_values,
    scifact,
    stated,
    statements,
)
from lib.studies.contradiction.nli import (
    ALONE,
    CUES,
    HEAD,
    AgreementBackend,
    FeatureBackend,
    any_of,
    features,
    reads_one_text,
)
from tools.training import Plan, add_names, fit, fit_logistic, write_card, write_npz

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

CHECKED_PAIRS = 120
"""How many of the head's training pairs a test trains on again (see ``make_head``)."""

_DATA = (
    "SciFact train claims outside data/nli-head/held_out.txt, and the same turned round (claims "
    "CC BY 4.0, abstracts ODC-By 1.0); Evidence Inference 2.0 training articles outside those held "
    "out by lib/studies/contradiction/labelled.py, quotes against statements by grammar "
    "(annotations MIT)"
)
_CALIBRATION = 0.15
_OPPOSITE_LABEL = {"contradiction": "entailment", "entailment": "contradiction"}
# what is learnt from ------------------------------------------------------------------------------


def part(calibration: bool) -> list[LabelledPair]:
    """The pairs that adapters are trained on, or those kept to calibrate them (15 % of the claims'
    groups and articles, by hash). SciFact's stand in twice: they are few.

    Findings on different matters are of no group and all trained on. To calibrate, half as many
    pairs as are kept are made again of texts of two groups: most sentences that a study compares
    are on different matters.
    """
    claims = scifact(held_out=False)
    everything = 2 * (claims + turned_around(claims)) + finding_pairs()
    chosen = [pair for pair in everything if _calibrates(pair) == calibration]
    if not calibration:
        return chosen
    rng, mixed = random.Random(0), []
    while len(mixed) < len(chosen) // 2:
        one, other = rng.sample(chosen, 2)
        if one.group != other.group:
            mixed.append(LabelledPair(one.a, other.b, "neutral", one.group))
    return chosen + mixed


def _calibrates(pair: LabelledPair) -> bool:
    share = int(sha256_bytes(f"calibration {pair.group}".encode())[:12], 16) / 16**12
    return share < _CALIBRATION


def turned_around(pairs: Sequence[LabelledPair]) -> list[LabelledPair]:
    """Claims turned round, by removing a negation or by swapping a cue word for its opposite: a
    contradiction becomes an entailment and vice versa, so a claim alone does not tell the label."""
    denial = re.compile(r"\b(?:(?:does|do|did) not|not|no) ")
    opposite: dict[str, str] = {}
    for one, other in tomllib.loads(CUES.read_text(encoding="utf-8"))["opposites"]:
        opposite.setdefault(one, other)
        opposite.setdefault(other, one)
    cue = any_of(opposite)
    turned = []
    for pair in pairs:
        claim = denial.sub("", pair.a, count=1)
        if claim == pair.a:
            claim = cue.sub(lambda match: opposite[match[0]], pair.a, count=1)
        if claim != pair.a and pair.label in _OPPOSITE_LABEL:
            turned.append(pair._replace(a=claim, label=_OPPOSITE_LABEL[pair.label]))
    return turned


def finding_pairs(times: int = 6, swapped: float = 0.1, seed: int = 0) -> list[LabelledPair]:
    """Pairs of findings that are not held out: ``times`` statements a finding, as many true as not
    in every wording; as many couples of two statements; and half as many on different matters.

    ``swapped`` is the share of statements with the arms in the other order. With a half of them no
    single word tells anything, and a small model learns nothing; with none it need not read who
    got what.
    """
    used = findings(held_out=False)
    with_quotes = statements(used, times, swapped, seed)
    rng = random.Random(seed)
    couples = [_couple(rng.choice(used), swapped, rng) for _ in with_quotes]
    others = []
    while len(others) < len(with_quotes) // 2:
        one, other = rng.sample(used, 2)
        if one.article != other.article:
            wording = _drawn(WORDINGS, swapped, rng)
            others.append(LabelledPair(one.sentence, stated(other, wording), "neutral", ""))
    return with_quotes + couples + others


def _couple(finding: Finding, swapped: float, rng: random.Random) -> LabelledPair:
    """Two statements on one matter that agree or, as often, cannot both be true."""
    direction = rng.choice((-1, 0, 1))
    label = rng.choice(("entailment", "contradiction"))
    full = [w for w in WORDINGS if not w.says.startswith("not")]
    true = [w for w in full if w.label(direction) == "entailment"]
    one = _drawn(true, swapped, rng)
    other = _drawn([w for w in WORDINGS if w.label(direction) == label], swapped, rng)
    texts = [stated(finding, one), stated(finding, other)]
    rng.shuffle(texts)
    return LabelledPair(*texts, label, finding.article)


def _drawn(wordings: Sequence[Wording], swapped: float, rng: random.Random) -> Wording:
    want = rng.random() < swapped
    return rng.choice([wording for wording in wordings if wording.swapped == want])


# adapters -----------------------------------------------------------------------------------------


def train(name: str, base: str = "minilm") -> tuple[Path, dict[str, Any]]:
    """Train one of PLANS on ``base`` (see ``Plan``): its folder and its card. Bi-encoders are
    calibrated.

    On MiniLM it is one of those that are shipped; on another model it goes into the cache.
    """
    plan, pairs = replace(PLANS[name], base=base), part(calibration=False)
    out = ADAPTERS / name
    if base != "minilm":
        out = paths.cache("adapters") / f"{name}-{Path(base).name}"
    if plan.reads == "pairs":
        from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

        columns = _columns(pairs, [LABELS.index(pair.label) for pair in pairs])
        return out, fit(plan, columns, out, CrossEntropyLoss, data=_DATA)
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss

    pairs = [pair for pair in pairs if pair.label != "neutral"]
    columns = _columns(pairs, [float(pair.label == "entailment") for pair in pairs])
    if name.endswith("shuffled"):
        random.Random(plan.seed).shuffle(columns["label"])
    if name.endswith("one-text"):
        # A control: one text of each pair against a fixed word, so one sentence alone must tell.
        columns["other"] = [ALONE] * len(pairs)
    card = fit(plan, columns, out, CoSENTLoss, data=_DATA)
    card["calibration"] = _calibrated(out)
    write_card(card, out)
    return out, card


def _columns(pairs: Sequence[LabelledPair], labels: list) -> dict[str, list]:
    """Both texts in either order, by a seed, and the label as a number."""
    rng = random.Random(0)
    texts = [(pair.a, pair.b) if rng.random() < 0.5 else (pair.b, pair.a) for pair in pairs]
    return {
        "one": [one for one, _ in texts],
        "other": [other for _, other in texts],
        "label": labels,
    }


def _calibrated(folder: Path) -> list[float]:
    """Bias and two weights of a logistic regression on the calibration part's two cosines.

    The adapter that reads one text does without MiniLM's cosine, which reads both: its weight is 0.
    """
    pairs = part(calibration=True)
    backend = AgreementBackend("bi", str(folder), weights=(0, 0, -1))
    cosines = backend.cosines([(pair.a, pair.b) for pair in pairs])
    used = np.array([0, 1] if reads_one_text(folder) else [1, 1])
    contradicts = [pair.label == "contradiction" for pair in pairs]
    weights, bias = fit_logistic(cosines, contradicts, used=used)
    return [bias, *map(float, weights)]


# the head -----------------------------------------------------------------------------------------


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


def fit_head(pairs: Sequence[LabelledPair], encoder: Encoder) -> tuple[np.ndarray, float]:
    """Weights (float32, one a feature) and bias of the logistic regression on ``features``.

    The claims turned around are learnt from as well. The model card says how the penalty was chosen
    by five folds over the training claims.
    """
    pairs = [*pairs, *turned_around(pairs)]
    contradicts = [pair.label == "contradiction" for pair in pairs]
    weight, bias = fit_logistic(_features_of(pairs, encoder), contradicts, 3e-4)
    return weight.astype(np.float32), bias


def _features_of(pairs: Sequence[LabelledPair], encoder: Encoder) -> np.ndarray:
    return features([(pair.a, pair.b) for pair in pairs], encoder).astype(float)


def make_head() -> None:
    """Make ``data/nli-head`` anew: train, measure on the pairs held out, write the weights with
    that note, and print the tables of its README.

    The penalty shrinks the logits, so they are stretched to be probabilities on pairs that a fold
    has not seen (Platt scaling), which changes no order. ``check`` are the weights of the first
    ``CHECKED_PAIRS`` pairs, by which a test sees that data, features and training are still the
    same.
    """
    from sklearn.model_selection import GroupKFold

    encoder = load_encoder("minilm", precision="float32")
    atomic_write(NEAREST, nearest(encoder).to_csv(index=False))
    pairs = scifact(held_out=False)
    weight, bias = fit_head(pairs, encoder)
    rows = _features_of(pairs, encoder)
    contradicts = np.array([pair.label == "contradiction" for pair in pairs])
    logits = np.zeros(len(pairs))
    folds = GroupKFold(5, shuffle=True, random_state=0)
    for seen, unseen in folds.split(rows, contradicts, [pair.group for pair in pairs]):
        of_fold, bias_of_fold = fit_head([pairs[i] for i in seen], encoder)
        logits[unseen] = rows[unseen] @ of_fold + bias_of_fold
    (slope,), shift = fit_logistic(logits[:, None], contradicts)
    baselines = [FeatureBackend(name, encoder) for name in ("cosine", "cues")]
    parts = {
        "weight": weight * np.float32(slope),
        "bias": bias * slope + shift,
        "note": "",
        "check": fit_head(pairs[:CHECKED_PAIRS], encoder)[0],
        "sees": baselines[0].inputs,
    }
    for _ in range(2):  # the note is measured with the file, so it is written a second time
        write_npz(parts, HEAD)
        head = FeatureBackend("head", encoder)
        q = quality(quality_values([head], ["scifact held-out"]))
        parts["note"] = (
            f"AUROC {q['auroc']:.2f} [{q['auroc_low']:.2f}, {q['auroc_high']:.2f}], average "
            f"precision {q['ap']:.2f} (chance {q['positives'] / q['n']:.2f}) on {q['n']} pairs of "
            "SciFact held out from training"
        )
    print(quality_table(quality_values([head, *baselines])).round(3).to_string(index=False))


def main() -> None:
    """Train the models that are named, or all adapters."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_contradiction")
    parser.add_argument("--base", default="minilm", help="minilm, mpnet, or a model of the hub")
    add_names(parser, "names", [*PLANS, "head"])
    given = parser.parse_args()
    for name in PLANS if "all" in given.names else given.names:
        if name == "head":
            make_head()
            continue
        folder, card = train(name, given.base)
        cost = f"{card['minutes']} min, {card['peak_memory_mb']} MB of memory"
        print(f"{name}: {cost}: {paths.shown(folder)}", flush=True)


if __name__ == "__main__":
    main()
