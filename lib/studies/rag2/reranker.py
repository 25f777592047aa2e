"""A re-ranker for laptops: MiniLM as a cross-encoder, tuned on what BioASQ's experts gave.

RAG2 re-ranks with MedCPT's cross-encoder, which needs the hub. This one stands in for it by name;
it was trained on BioASQ's other questions alone (not yes/no, no document of a test question), on
snippets of BioASQ alone: what the experts never saw is not known to be irrelevant. Beside it stands
the same trained on shuffled labels.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib.base.files import sha256_bytes
from lib.data.questions import load_bioasq_dev
from lib.data.real import load_real
from lib.methods.base import question_alone
from lib.run import Retriever
from lib.search.adapters import ADAPTERS
from lib.train.fit import Plan, fit

__all__ = ["LABELS", "PLAN", "RERANKERS", "examples", "train"]

RERANKERS = ("rag2-reranker", "rag2-reranker-shuffled")
LABELS = ("not given by the experts", "given")
PLAN = Plan("minilm", "pairs", LABELS, epochs=2, rank=16, max_tokens=128)

_QUESTIONS = 1000
_GIVEN, _OTHERS = 2, 4
"""Snippets a question that its experts gave, and as near ones that they did not."""

_DEPTH = 30
_DATA = (
    "BioASQ questions that are not yes/no and share no document with a test question, with "
    "snippets that their experts gave and the nearest that they did not (CC BY 2.5)"
)


def examples(retriever: Retriever) -> dict[str, list]:
    """Columns ``one`` (question), ``other`` (snippet), ``label``, as ``lib.train.fit`` takes them.

    The others are the nearest of BioASQ's snippets that the question's experts did not give.
    """
    own = retriever.of_sources(["bioasq"])
    given: dict[str, set[str]] = {}
    text_of = {}
    for passage in own.store:
        if passage.source == "bioasq":
            text_of[passage.pid] = passage.text
            for qid in passage.meta["qids"]:
                given.setdefault(qid, set()).add(passage.pid)
    kept_apart = {question.qid for question in load_real("dev")}
    asked = [q for q in load_bioasq_dev() if q.qid not in kept_apart and q.qid in given]
    asked.sort(key=lambda q: sha256_bytes(f"reranker {q.qid}".encode()))
    asked = asked[:_QUESTIONS]
    hits = own.search_many([question_alone(question) for question in asked], _DEPTH)
    columns: dict[str, list] = {"one": [], "other": [], "label": []}
    for question, hit in zip(asked, hits, strict=True):
        right = sorted(given[question.qid], key=lambda pid: sha256_bytes(pid.encode()))[:_GIVEN]
        near = [pid for pid in hit.ids[0].tolist() if pid not in given[question.qid]][:_OTHERS]
        for pid in right + near:
            columns["one"].append(question.text)
            columns["other"].append(text_of[pid])
            columns["label"].append(int(pid in given[question.qid]))
    return columns


def train(name: str, retriever: Retriever, work: Path | None = None) -> dict[str, Any]:
    """Train one of ``RERANKERS`` into ``data/adapters``; its card."""
    from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

    columns = examples(retriever)
    if name.endswith("shuffled"):
        random.Random(PLAN.seed).shuffle(columns["label"])
    return fit(PLAN, columns, CrossEntropyLoss, ADAPTERS / name, work, data=_DATA)


def main(names: Sequence[str]) -> None:
    """``python -m lib.studies.rag2.reranker [NAME ...]``"""
    from lib.place import open_retriever
    from lib.profiles import load_profile
    from lib.search.embed import load_encoder

    unknown = sorted(set(names) - set(RERANKERS))
    if unknown:
        sys.exit(f"error: no re-ranker {unknown[0]!r}; there are: {', '.join(RERANKERS)}")
    profile = load_profile("open")
    retriever = open_retriever(profile, load_encoder(profile.encoder, **profile.encoder_options))
    for name in names or RERANKERS:
        card = train(name, retriever)
        print(f"{name}: {card['minutes']} min, {card['peak_memory_mb']} MB of memory", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
