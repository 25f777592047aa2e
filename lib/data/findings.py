"""What doctors read off trial reports: Evidence Inference 2.0 (DeYoung et al., 2020; MIT)."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from lib.base.downloads import fetch
from lib.data.documents import tidy


def read_findings() -> Iterator[dict[str, Any]]:
    """What doctors read off every article: article, prompt, intervention, comparator, outcome,
    direction (1, -1 or 0) and quote, one row a quoted passage.

    A reading counts when the doctor who checked it accepted both its label and its reasoning, and a
    prompt only where every reading agrees on the direction.
    """
    codes, quotes = defaultdict(set), defaultdict(dict)
    for row in _table("evidence-inference-annotations"):
        if row["Valid Label"] == row["Valid Reasoning"] == "True":
            codes[row["PromptID"]].add(row["Label Code"])
            quotes[row["PromptID"]][row["Annotations"]] = None  # each once, in order
    for row in _table("evidence-inference-prompts"):
        prompt = row["PromptID"]
        if len(codes[prompt]) == 1:
            (code,) = codes[prompt]
            finding = {
                "article": row["PMCID"],
                "prompt": prompt,
                "intervention": tidy(row["Intervention"]),
                "comparator": tidy(row["Comparator"]),
                "outcome": tidy(row["Outcome"]),
                "direction": int(code),
            }
            for quote in quotes[prompt]:
                yield finding | {"quote": quote}


def _table(name: str) -> list[dict[str, str]]:
    with open(fetch(name), encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))
