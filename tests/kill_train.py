"""Train a tiny adapter, slowly: the child that test_train.py kills.

Usage: python tests/kill_train.py BASE_FOLDER WORK_FOLDER OUT_FOLDER SECONDS_PER_STEP
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lib.train.fit import Plan, fit  # noqa: E402

LABELS = ("contradiction", "entailment", "neutral")
WORDS = ("fever", "pain", "heart", "kidney", "drug", "dose", "treat", "test", "sign")


def plan(base: Path) -> Plan:
    """30 steps of a cross-encoder, a checkpoint every fifth."""
    return Plan(str(base), "pairs", LABELS, epochs=2, rank=4, batch_size=4, save_steps=5)


def examples() -> dict[str, list]:
    """60 pairs of a few words of the tiny vocabulary."""
    one = [" ".join(WORDS[i % 7 : i % 7 + 1 + i % 3]) for i in range(60)]
    other = [WORDS[i * 5 % 9] for i in range(60)]
    return {"one": one, "other": other, "label": [i % 3 for i in range(60)]}


def loss(pause: float):
    """Cross-entropy that waits before every step."""
    from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

    class Slow(CrossEntropyLoss):
        def forward(self, *args, **kwargs):
            time.sleep(pause)
            return super().forward(*args, **kwargs)

    return Slow


if __name__ == "__main__":
    base, work, out = map(Path, sys.argv[1:4])
    fit(plan(base), examples(), loss(float(sys.argv[4])), out, work)
