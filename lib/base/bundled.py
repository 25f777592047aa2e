"""What a row of each bundled file is known by: of two such rows both would count, or the last."""

from __future__ import annotations

from pathlib import Path

KNOWN_BY: dict[str, tuple[str, ...]] = {
    "ddx-mini/passages.jsonl": ("pid",),
    "ddx-mini/questions.jsonl": ("qid",),
    "ddx-mini/hypotheses.jsonl": ("qid",),
    "ddx-mini/expansions.jsonl": ("qid",),
    "ddx-mini/qrels.jsonl": ("qid", "pid"),
    "ddx-mini/mimic_grades.jsonl": ("qid",),
    "ddx-mini/known_errors.jsonl": ("qid", "part"),
    "ddx-mini/readings.jsonl": ("key",),
    "evidence-mini/questions.jsonl": ("qid",),
    "evidence-mini/abstracts.jsonl": ("id",),
    "evidence-mini/labels.jsonl": ("pid",),
    "evidence-mini/pairs.jsonl": ("pid",),
    "judgments/real.jsonl.gz": ("qid", "pid", "judge"),
    "judgments/contradiction.jsonl.gz": ("pool", "a", "b", "judge"),
    "judgments/plants.jsonl.gz": ("qid", "item"),
    "judgments/fresh_pairs.jsonl": ("pid",),
    "data/mimic_cases.jsonl": ("case",),
}
"""By folder and name. Add a file: one line here; every reader of it is told of a repetition."""


def known_by(path: Path) -> tuple[str, ...]:
    """The fields that a row of this file is known by; none for a file that may repeat itself."""
    return KNOWN_BY.get("/".join(path.parts[-2:]), ())
