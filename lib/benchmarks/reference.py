"""Put ddx-mini's reference hypotheses into the recording that the mini profile replays."""

from __future__ import annotations

import json
from pathlib import Path

from lib.benchmarks.ddx_mini import read
from lib.datasets import load_questions
from lib.llm import ScriptedChat
from lib.methods import METHODS
from lib.paths import RECORDINGS
from lib.recorder import Recorder
from lib.retrieve import expand_all

__all__ = ["record_reference"]


def record_reference(path: Path = RECORDINGS / "reference.jsonl") -> Path:
    """Record CHR's call for every question with the reference text as reply; returns the path."""
    hypotheses = {h["qid"]: h for h in read("hypotheses")}
    questions = load_questions("ddx-mini")
    rules = [
        {
            "match": q.text,
            "text": json.dumps({k: hypotheses[q.qid][k] for k in ("H_plus", "H_minus")}),
        }
        for q in questions
    ]
    with Recorder(ScriptedChat(rules), path, "refresh") as recorder:
        expand_all(METHODS["chr"], questions, recorder)
    return path


if __name__ == "__main__":
    print(record_reference())
