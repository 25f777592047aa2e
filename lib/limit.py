"""``LIMIT=n``: a quick look at any profile, in minutes. It is defined here and nowhere else.

- *Questions*: n of each set, and n test and n dev questions of each benchmark.
- *Passages*: 100 n of each corpus by the hash of their ids, and with them every passage that has a
  label for one of these questions: on its target, on its mimic, or judged. So a judged passage in
  the whole run's top five can be found here too. MedCorp cannot be hashed without downloading all
  of it, so the first 100 n passages of each of its sources are taken.
- *Studies of whole samples* (the real sample, RAG2, SL-HyDE, the HyDE lesson, accuracy on ddx-real)
  are NOT RUN: their committed results are shown, and named as such.

Whatever is chosen is chosen by its id, so it is the same for everybody, and a larger n holds all
that a smaller one has. Results go to a folder of their own, ``<profile>-<n>``, and titles say so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lib.benchmarks.base import Benchmark
    from lib.embed import Encoder
    from lib.profiles import Profile

PASSAGES = 100
"""Passages of each corpus for each question."""

LABELLED_IN = {"ddx-mini": "ddx-mini", "bioasq": "bioasq", "real": "bioasq"}
"""The benchmark that knows the relevant passages of a question set."""


def limited(benchmark: Benchmark, n: int) -> Benchmark:
    """The benchmark with ``n`` test and ``n`` dev questions, all of them if n is 0."""
    from lib.datasets import few

    if not n:
        return benchmark
    chosen = {*few(benchmark.test, n), *few(benchmark.dev, n)}
    rows = [row for row, qid in enumerate(benchmark.qids) if qid in chosen]

    def of_chosen(values: tuple) -> tuple:
        return tuple(values[row] for row in rows) if values else ()

    return replace(
        benchmark,
        qids=of_chosen(benchmark.qids),
        questions=of_chosen(benchmark.questions),
        h_plus=of_chosen(benchmark.h_plus),
        h_minus={kind: of_chosen(texts) for kind, texts in benchmark.h_minus.items()},
        several=of_chosen(benchmark.several),
        dev=benchmark.dev & chosen,
    )


def labelled(profile: Profile, encoder: Encoder) -> frozenset[str]:
    """Ids of all passages with a label for a question that a limited profile asks."""
    from lib.benchmarks import load_benchmark
    from lib.data.judgments import read_judgments
    from lib.datasets import question_sets
    from lib.forms import read_qrels

    asked = {
        question.qid
        for questions in question_sets(profile.questions, profile.per_set).values()
        for question in questions
    }
    names = [*profile.benchmarks, *(LABELLED_IN.get(name, "") for name in profile.questions)]
    pids = {row["pid"] for row in read_judgments() if row["qid"] in asked}
    judged = read_qrels(profile.qrels)[0] if profile.qrels else {}
    pids |= {pid for qid in asked for pid in judged.get(qid, ())}
    # A name-blind benchmark has the labels of the one that it was made from.
    for name in sorted({name.removesuffix("-blind") for name in names if name}):
        benchmark = load_benchmark(name, encoder)
        for qid in {*limited(benchmark, profile.limit).qids, *asked}:
            pids |= benchmark.targets.get(qid, frozenset()) | benchmark.mimics.get(qid, frozenset())
    return frozenset(pids)


def makes_real(profile: Profile) -> bool:
    """Whether a run makes the studies of the real sample anew: its profile asks it, and whole."""
    return "real" in profile.questions and not profile.limit


def not_run(profile: Profile, what: str) -> str:
    """The line above committed results that a limited profile shows instead of its own."""
    return (
        f"NOT RUN with LIMIT={profile.limit}: {what}, committed results are shown. "
        "Next: the same command without LIMIT"
    )
