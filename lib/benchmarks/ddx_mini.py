"""ddx-mini: the bundled target/mimic set, our own text (see ``data/ddx-mini/README.md``).

Five files of JSON Lines were frozen before the first retrieval run:

- ``passages``: pid, source, title, text, topic, aspect, check
- ``questions``: qid, style, question, options, answer, target, mimic, split, check
- ``hypotheses``: qid, author, H_plus, H_minus
- ``expansions``: qid, author, hyde, query2doc, csqe_knowledge, rationale (what methods that see no
  passage write)
- ``qrels``: qid, pid, class (target, both or mimic; a pair that is not listed is *neither*)

Beside them, written later:

- ``readings``: key, method, qid, text (written after reading passages)
- ``mimic_grades``: qid, first, second, h_plus, why
- ``known_errors``: qid, part, describes, meant, why (a text on another topic than its question's)
"""

from __future__ import annotations

from collections import defaultdict

from lib.base import paths
from lib.base.files import read_jsonl
from lib.benchmarks.base import Benchmark

FILES = ("passages", "questions", "hypotheses", "expansions", "qrels")
"""What was frozen before the first retrieval run."""


def read(name: str) -> list[dict]:
    """Rows of one file of the set; ``name`` is without its ending."""
    return list(read_jsonl(paths.DDX_MINI / f"{name}.jsonl"))


def known_errors() -> frozenset[str]:
    """Ids of the questions with a hypothesis on another topic than the one the qrels judge.

    They stay in the set, as it was frozen; a result is shown with and without them.
    """
    return frozenset(row["qid"] for row in read("known_errors"))


def build(encoder=None) -> Benchmark:
    """The set as a benchmark, with the mimics that were written for it.

    ``encoder`` is taken as every benchmark's maker takes one, and not used: the mimics are written,
    not searched for.
    """
    questions = read("questions")
    hypotheses = {row["qid"]: row for row in read("hypotheses")}
    judged: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in read("qrels"):
        judged[row["qid"], row["class"]].add(row["pid"])
    qids = tuple(question["qid"] for question in questions)
    return Benchmark(
        name="ddx-mini",
        title="ddx-mini: bundled target/mimic questions, reference hypotheses",
        corpora=("ddx-mini",),
        files=tuple(
            f"ddx-mini/{name}.jsonl" for name in (*FILES, "known_errors") if name != "expansions"
        ),
        qids=qids,
        questions=tuple(question["question"] for question in questions),
        h_plus=tuple(hypotheses[qid]["H_plus"] for qid in qids),
        h_minus={"nearest": tuple(hypotheses[qid]["H_minus"] for qid in qids)},
        targets={qid: frozenset(judged[qid, "target"] | judged[qid, "both"]) for qid in qids},
        mimics={qid: frozenset(judged[qid, "mimic"] | judged[qid, "both"]) for qid in qids},
        dev=frozenset(question["qid"] for question in questions if question["split"] == "dev"),
        topics={q["qid"]: frozenset((q["target"], q["mimic"])) for q in questions},
        errata=known_errors(),
        code=("lib.benchmarks.ddx_mini",),
        counts={"passages": len(read("passages")), "questions": len(qids)},
    )
