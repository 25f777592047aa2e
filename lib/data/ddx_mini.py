"""ddx-mini: the bundled target/mimic set, our own text (see ``data/ddx-mini/README.md``).

Five files of JSON Lines: ``passages`` (pid, source, title, text, topic, aspect, check),
``questions`` (qid, style, question, options, answer, target, mimic, split, check), ``hypotheses``
(qid, author, H_plus, H_minus), ``expansions`` (what methods that see no passage write: qid, author,
hyde, query2doc, csqe_knowledge, rationale) and ``qrels`` (qid, pid, class: target, both or mimic; a
pair that is not listed is *neither*). Beside them ``readings`` (what was written after reading
passages: key, method, qid, text) and ``mimic_grades`` (qid, first, second, h_plus, why).
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

from lib.base import paths
from lib.base.files import read_jsonl
from lib.data.benchmark import Benchmark

__all__ = ["FILES", "build", "read"]

FILES = ("passages", "questions", "hypotheses", "expansions", "qrels")
"""What was frozen before the first retrieval run."""


def read(name: str, folder: Path = paths.DDX_MINI) -> list[dict]:
    """Rows of one file of the set."""
    return list(read_jsonl(Path(folder) / f"{name}.jsonl"))


def build(encoder=None, folder: Path = paths.DDX_MINI, seed: int = 0) -> Benchmark:
    """The set as a benchmark: "nearest" is the written mimic, "random" another pair's."""
    questions = read("questions", folder)
    hypotheses = {h["qid"]: h for h in read("hypotheses", folder)}
    classes: dict[str, dict[str, set[str]]] = {q["qid"]: defaultdict(set) for q in questions}
    for row in read("qrels", folder):
        classes[row["qid"]][row["class"]].add(row["pid"])
    qids = tuple(q["qid"] for q in questions)
    stranger = _strangers(questions, seed)
    return Benchmark(
        name="ddx-mini",
        title="ddx-mini: bundled target/mimic questions, reference hypotheses",
        corpora=("ddx-mini",),
        files=tuple(f"ddx-mini/{name}.jsonl" for name in FILES if name != "expansions"),
        qids=qids,
        questions=tuple(q["question"] for q in questions),
        h_plus=tuple(hypotheses[q]["H_plus"] for q in qids),
        h_minus={
            "nearest": tuple(hypotheses[q]["H_minus"] for q in qids),
            "random": tuple(hypotheses[stranger[q]]["H_minus"] for q in qids),
        },
        targets={q: frozenset(classes[q]["target"] | classes[q]["both"]) for q in qids},
        mimics={q: frozenset(classes[q]["mimic"] | classes[q]["both"]) for q in qids},
        dev=frozenset(q["qid"] for q in questions if q["split"] == "dev"),
        counts={"passages": len(read("passages", folder)), "questions": len(qids)},
    )


def _strangers(questions: list[dict], seed: int) -> dict[str, str]:
    """For each question another one on neither its target nor its mimic."""
    rng = random.Random(seed)
    pairs = {q["qid"]: {q["target"], q["mimic"]} for q in questions}
    return {q: rng.choice([o for o in sorted(pairs) if not pairs[o] & pairs[q]]) for q in pairs}
