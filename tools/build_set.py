"""A retrieval set of your own by CMIRB's Algorithm 1, or by any of its six tasks.

    python -m tools.build_set FOLDER --llm openai:MODEL@URL --out data/own/my-set
    python -m tools.build_set FOLDER --llm ... --out ... --task medical relevance

FOLDER has ``corpus.jsonl`` and ``queries.jsonl`` in the form of BEIR, and may have ``qrels``. A
query that has a passage there keeps it; for one that has none passages are searched, and its known
answer stands in the query's record as ``answer``. The tasks (``lib.studies.slhyde.building`` says
what each asks) run in the paper's order; those that are not named are left out:

- ``medical``, ``relevance``: judge each query with its passage.
- ``rank``: finds and ranks passages for queries without one.
- ``extract``, ``answer``, ``validate``: without ``rank`` they judge the passages that queries came
  with. ``answer`` alone reads the whole passage; ``validate`` needs ``answer``.

The set is written to ``--out`` in the form of BEIR, beside ``pairs.csv`` (every pair, and where and
why it was dropped) and ``counts.csv``. Replies are recorded there too: a run that was stopped goes
on. Source: Li et al., AutoMIR, arXiv:2410.20050, Appendix B.1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lib.base.files import atomic_write
from lib.data.passages import Passage
from lib.forms import read_passages, read_qrels, read_questions
from lib.llm.chat import ChatModel, LLMError, in_parallel
from lib.llm.connect import connect
from lib.llm.recorder import Recorder
from lib.studies.contradiction.nli import sentences
from lib.studies.slhyde.building import (
    CANDIDATES,
    NOT_MEDICAL,
    STEPS,
    Pair,
    Query,
    counts,
    search_in,
    take_step,
    task_of,
)

OF_PASSAGES = ("extract", "answer", "validate")
"""Tasks on a query's passage and its known answer."""

_QRELS = "qrels/test.tsv"


def read_queries(folder: Path, passages: Sequence[Passage], tasks: Sequence[str]) -> list[Query]:
    """The queries of a folder, each on the route on which these tasks are done, with the passage
    that is judged best for it; how many others are left out is printed.

    ValueError names the first query that lacks what a task needs.
    """
    by_id = {passage.pid: passage for passage in passages}
    judged = read_qrels(folder)[0] if (folder / "qrels").exists() else {}
    queries, others = [], 0
    for question in read_questions(folder)[0]:
        scores = judged.get(question.qid, {})
        best_first = sorted(scores.items(), key=lambda pair: -pair[1])
        own = [by_id[pid] for pid, score in best_first if score > 0 and pid in by_id]
        others += len(own[1:])
        answer = question.ideal_answer
        matched = not own or ("rank" not in tasks and not {*OF_PASSAGES}.isdisjoint(tasks))
        if not own and "rank" not in tasks:
            raise ValueError(f"query {question.qid} has no passage in qrels. Next: --task rank ...")
        if matched and not answer and not {"extract", "validate"}.isdisjoint(tasks):
            raise ValueError(f"query {question.qid} has no known answer in queries.jsonl")
        source = own[0] if own else Passage("", "", answer, "", {})
        route = "matched" if matched else "given"
        queries.append(Query(question.qid, question.text, source, answer, route))
    if others:
        print(f"{others} further judged passages are left out: one a query", file=sys.stderr)
    return queries


def take_tasks(
    queries: Sequence[Query],
    passages: Sequence[Passage],
    llm: ChatModel,
    tasks: Sequence[str],
    workers: int = 8,
) -> list[Pair]:
    """Every pair that was made, dropped ones too, after the tasks that are named."""
    if "validate" in tasks and "answer" not in tasks:
        raise ValueError("validate compares an answer that the task answer writes: name both")
    pairs = [Pair(query, query.source) for query in queries]
    search = search_in(passages) if "rank" in tasks else None
    for step in [step for step in STEPS if step in tasks]:
        if step == "rank":
            gone = {pair.passage.pid for pair in pairs if pair.dropped == NOT_MEDICAL}
            for i, pair in enumerate(pairs):
                if pair.query.route == "matched" and not pair.dropped:
                    found = search(pair.query.text, CANDIDATES + len(gone))
                    left = [passage for passage in found if passage.pid not in gone]
                    pairs[i] = replace(pair, candidates=tuple(left[:CANDIDATES]))
        if step == "answer" and "extract" not in tasks:
            pairs = [replace(p, evidence=tuple(sentences(p.passage.text))) for p in pairs]
        made = in_parallel(lambda pair, step=step: take_step(step, [pair], llm), pairs, workers)
        pairs = [pair for after in made for pair in after]
    return pairs


def write_set(pairs: Sequence[Pair], passages: Sequence[Passage], out: Path) -> None:
    """The set in the form of BEIR, every pair, and what each step dropped."""
    kept = [pair for pair in pairs if not pair.dropped]
    if not kept:
        raise ValueError("no pair is left: see pairs.csv for where each was dropped")
    task = task_of(out.name, pairs, passages)
    corpus = [{"_id": p.pid, "title": p.title, "text": p.text} for p in task.corpus]
    queries = [{"_id": qid, "text": text} for qid, text in task.queries.items()]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        atomic_write(out / f"{name}.jsonl", lines)
    judged = "".join(
        f"{qid}\t{pid}\t{score}\n" for qid, of in task.qrels.items() for pid, score in of.items()
    )
    (out / "qrels").mkdir(exist_ok=True)
    atomic_write(out / _QRELS, "query-id\tcorpus-id\tscore\n" + judged)


def pair_table(pairs: Sequence[Pair]) -> pd.DataFrame:
    """Every pair: qid, route, pid, place, evidence (sentences), written, similarity, quality, step
    (where it was dropped), dropped (why)."""
    columns = ("place", "written", "similarity", "quality", "step", "dropped")
    rows = []
    for pair in pairs:
        row = {"qid": pair.query.qid, "route": pair.query.route, "pid": pair.passage.pid}
        row["evidence"] = len(pair.evidence)
        rows.append(row | {column: getattr(pair, column) for column in columns})
    return pd.DataFrame(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.build_set")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--llm", required=True, help="who judges: a spec of lib.llm.connect")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", nargs="+", choices=[*STEPS], default=[*STEPS])
    parser.add_argument("--workers", type=int, default=8)
    given = parser.parse_args(arguments)
    try:
        passages, report = read_passages(given.folder)
        print(report, file=sys.stderr)
        queries = read_queries(given.folder, passages, given.task)
        given.out.mkdir(parents=True, exist_ok=True)
        with Recorder(connect(given.llm), given.out / "replies.jsonl") as llm:
            pairs = take_tasks(queries, passages, llm, given.task, given.workers)
        atomic_write(given.out / "pairs.csv", pair_table(pairs).to_csv(index=False))
        table = counts(pairs)
        table = table[table["step"].isin(given.task)]
        atomic_write(given.out / "counts.csv", table.to_csv(index=False))
        print(table.to_string(index=False))
        write_set(pairs, passages, given.out)
    except (ValueError, FileNotFoundError, LLMError) as problem:
        sys.exit(f"error: {problem}")


if __name__ == "__main__":
    main()
