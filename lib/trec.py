"""The judged sets for other programs: questions, passages, judgments and runs, in TREC's form.

``load_judged_set("exams-test")`` has ``queries_iter``, ``docs_iter``, ``qrels_iter`` and
``scoreddocs_iter``, named tuples with the fields of ir_datasets. ``python -m lib.trec build/trec``
writes judgments and runs of every set as files that trec_eval and ir_measures read.

Committed are ids and labels alone (``data/trec``, packed): judgments and runs need no download,
texts do. ``python -m tools.trec_runs`` makes the packed files, by searching. A run keeps the order
of ten passages; its scores are 10 to 1.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write, read_manifest
from lib.base.parameters import one_of, refuse_unknown
from lib.data.passages import Passage

FOLDER = paths.DATA / "trec"
DEPTH = 10
"""Passages that a run keeps of a question."""


class Query(NamedTuple):
    """A question; ``options`` by letter, empty where it has none."""

    query_id: str
    text: str
    options: dict[str, str]


class Doc(NamedTuple):
    """A passage."""

    doc_id: str
    title: str
    text: str


class Qrel(NamedTuple):
    """What a label says of a passage for a question; ``iteration`` is TREC's unused column."""

    query_id: str
    doc_id: str
    relevance: int
    iteration: str = "0"


class ScoredDoc(NamedTuple):
    """A passage that a run has for a question; a higher score stands first."""

    query_id: str
    doc_id: str
    score: float


@dataclass(frozen=True)
class JudgedSet:
    """Questions, what was judged for them, and what was found: one block of ``sets.toml``."""

    name: str
    what: str
    questions: str
    corpora: tuple[str, ...]
    judged_as: str = ""
    """The set that has its judgments; empty for its own."""
    values: str = ""
    """The committed outcomes that follow from judgments and runs; empty where there are no runs."""

    @cached_property
    def _judged(self) -> pd.DataFrame:
        return _unpacked(f"{self.judged_as or self.name}.qrels.csv.xz")

    @cached_property
    def _found(self) -> pd.DataFrame:
        if not self.values:
            return pd.DataFrame(columns=["arm", "draw", "qid", "pids"])
        return _unpacked(f"{self.name}.runs.csv.xz")

    @property
    def labels(self) -> tuple[str, ...]:
        """What was judged: "right.both" is *supports the right option*, by both passes."""
        return tuple(self._judged.columns.drop(["qid", "pid"]))

    @cached_property
    def runs(self) -> dict[str, pd.DataFrame]:
        """The runs by name: an arm, or ``<arm>.draw<i>`` of a control with random texts."""
        groups = self._found.groupby(["arm", "draw"], sort=True)
        return {f"{arm}.draw{draw}" if draw else arm: rows for (arm, draw), rows in groups}

    def qrels_iter(self, label: str) -> Iterator[Qrel]:
        """The judgments under one of ``labels``; what was not judged under it is left out."""
        refuse_unknown(f"{self.name} has no label", [label], self.labels)
        given = self._judged[self._judged[label] != ""]
        for qid, pid, relevance in zip(given["qid"], given["pid"], given[label], strict=True):
            yield Qrel(qid, pid, int(relevance))

    def scoreddocs_iter(self, run: str) -> Iterator[ScoredDoc]:
        """One of ``runs``, best passage first."""
        refuse_unknown(f"{self.name} has no run", [run], self.runs)
        rows = self.runs[run]
        for qid, pids in zip(rows["qid"], rows["pids"], strict=True):
            for rank, pid in enumerate(pids.split()):
                yield ScoredDoc(qid, pid, float(DEPTH - rank))

    def queries_iter(self) -> Iterator[Query]:
        """The questions that were judged; reads the open data."""
        judged = set(self._judged["qid"])
        return (query for query in self._queries() if query.query_id in judged)

    def _queries(self) -> Iterator[Query]:
        kind, *which = self.questions.split()
        if kind == "real":
            from lib.datasets import GROUPS, load_real

            half, group = which
            for question in load_real(half):
                if question.dataset in GROUPS[group]:
                    yield Query(question.qid, question.text, question.options)
        elif kind in ("masked", "set"):
            from lib.datasets import load_questions
            from lib.studies.masked.sample import load_masked

            for question in {"masked": load_masked, "set": load_questions}[kind](which[0]):
                yield Query(question.qid, question.text, question.options)
        elif kind == "benchmark":
            from lib.benchmarks import load_benchmark
            from lib.embed import HashEncoder

            # Which questions there are does not depend on the encoder, only whose mimic is near.
            benchmark = load_benchmark(which[0], HashEncoder())
            for qid, text in zip(benchmark.qids, benchmark.questions, strict=True):
                yield Query(qid, text, {})
        elif kind == "task":
            from lib.studies.slhyde.tasks import TASKS

            for qid, text in TASKS[which[0]]().queries.items():
                yield Query(qid, text, {})
        else:  # pairs of passages: the first is what is asked with
            for doc in self.docs_iter():
                yield Query(doc.doc_id, doc.text, {})

    def docs_iter(self) -> Iterator[Doc]:
        """Every passage that could be found; reads the open data."""
        for name in self.corpora:
            for passage in _passages(name):
                yield Doc(passage.pid, passage.title, passage.text)

    def write(self, folder: Path) -> None:
        """Judgments and runs as TREC has them: ``qrels/<label>.txt``, ``runs/<run>.run``."""
        for label in self.labels:
            lines = (f"{q} {it} {d} {r}\n" for q, d, r, it in self.qrels_iter(label))
            atomic_write(folder / "qrels" / f"{label}.txt", "".join(lines))
        for run in self.runs:
            name = run.replace(" ", "_")
            lines = (
                f"{qid} Q0 {pid} {DEPTH + 1 - score:.0f} {score:.0f} {name}\n"
                for qid, pid, score in self.scoreddocs_iter(run)
            )
            atomic_write(folder / "runs" / f"{name}.run", "".join(lines))


def judged_sets() -> dict[str, JudgedSet]:
    """Every judged set by name."""
    blocks = tomllib.loads((FOLDER / "sets.toml").read_text(encoding="utf-8"))
    return {
        name: JudgedSet(name, **block | {"corpora": tuple(block["corpora"])})
        for name, block in blocks.items()
    }


def load_judged_set(name: str) -> JudgedSet:
    """A judged set; ValueError for another name."""
    return one_of("no judged set", name, judged_sets())


def _unpacked(name: str) -> pd.DataFrame:
    """A packed file of ids and labels, all text; FileNotFoundError where it is not whole."""
    path = FOLDER / name
    if read_manifest(path) is None:
        raise FileNotFoundError(
            f"{paths.shown(path)} is missing or not what its manifest says. Next: git checkout "
            f"{paths.shown(FOLDER)}, or python -m tools.trec_runs"
        )
    return pd.read_csv(path, dtype=str, keep_default_na=False, lineterminator="\n")


def _passages(corpus: str) -> Iterator[Passage]:
    if corpus == "scifact":
        from lib.studies.slhyde.tasks import TASKS

        yield from TASKS[corpus]().corpus
    elif corpus.startswith("evidence-"):
        from lib.studies.contradiction.evidence import load_evidence

        for abstract in load_evidence("open" if corpus == "evidence-open" else corpus):
            yield Passage(abstract.id, abstract.title, abstract.text, corpus, {})
    else:
        from lib.corpora import load_passages

        yield from load_passages(corpus)


def main() -> None:
    """Command line: write the judgments and runs of every set, or of some, to a folder."""
    parser = argparse.ArgumentParser(prog="python -m lib.trec", description=__doc__)
    parser.add_argument("folder", type=Path, help="such as build/trec")
    parser.add_argument("--set", action="append", choices=list(judged_sets()), dest="sets")
    given = parser.parse_args()
    for name in given.sets or judged_sets():
        judged = load_judged_set(name)
        judged.write(given.folder / name)
        print(f"{given.folder / name}: {len(judged.labels)} qrels, {len(judged.runs)} runs")


if __name__ == "__main__":
    main()
