"""RAG2 on one bundled question, step by step: what each step does to which passage."""

from __future__ import annotations

import pandas as pd

from lib.base.parameters import check_number, one_of
from lib.benchmarks import ddx_mini, load_benchmark
from lib.datasets import load_questions
from lib.methods.postprocess import Scorer
from lib.methods.rag2 import RAG2
from lib.run import Retriever, execute
from lib.stats import class_of

COLUMNS = ("title", "source", "class", "stacked", "balanced", "re_ranked", "helpful", "kept")


def one_question(
    qid: str, retriever: Retriever, reranker: Scorer, judge: Scorer, threshold: float, k: int = 5
) -> pd.DataFrame:
    """Every passage that is among the best ``k`` before or after some step, columns ``COLUMNS``.

    The rationale is the query, the re-ranker reads the question, both as RAG2's paper has it.
    ``stacked``, ``balanced`` and ``re_ranked`` are ranks from 1, missing where a passage was not
    found; ``helpful`` is the filter's score of the first ``k`` and ``kept`` what it says of them.
    In the order of the last step. ValueError for a question that ddx-mini does not have.
    """
    threshold = check_number("threshold", threshold)
    questions = {q.qid: q for q in load_questions("ddx-mini")}
    question = one_of("ddx-mini has no question", qid, questions)
    rationale = {row["qid"]: row["rationale"] for row in ddx_mini.read("expansions")}[qid]
    sources = tuple(dict.fromkeys(retriever.store.sources()))
    arms = {
        "stacked": RAG2(),
        "balanced": RAG2(sources=sources),
        "re_ranked": RAG2(sources=sources, reranker=reranker, judge=judge, threshold=threshold),
    }
    ranks: dict[str, dict[str, int]] = {}
    for name, arm in arms.items():
        expansion = arm.given(question, rationale)
        depth = k if name == "re_ranked" else RAG2().depth
        run, traces = execute(name, [question], [expansion], retriever, depth)
        ranks[name] = dict(zip(run["pid"], run["rank"], strict=True))
    reranked, filtered = traces[qid]["after"]
    # Ranks before the filter, so that what it drops is seen at its place.
    ranks["re_ranked"] = {pid: rank for rank, pid in enumerate(reranked["left"], 1)}
    score_of = dict(zip(filtered["given"], filtered["scores"], strict=True))
    kept = set(filtered["left"])
    benchmark = load_benchmark("ddx-mini")
    shown = [pid for pid in ranks["re_ranked"] if min(_ranks(pid, ranks)) <= k]
    shown += [pid for pid in ranks["stacked"] if pid not in shown and ranks["stacked"][pid] <= k]
    rows = []
    for passage in retriever.store.get_many(shown):
        pid = passage.pid
        row = {"title": passage.title, "source": passage.source}
        row["class"] = class_of(pid, benchmark.targets[qid], benchmark.mimics[qid])
        row |= {name: of.get(pid) for name, of in ranks.items()}
        found = pid in ranks["re_ranked"]
        row |= {"helpful": score_of.get(pid), "kept": _said(pid, found, score_of, kept)}
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.astype({"stacked": "Int64", "balanced": "Int64", "re_ranked": "Int64"})


def _ranks(pid: str, ranks: dict[str, dict[str, int]]) -> list[int]:
    return [of[pid] for of in ranks.values() if pid in of]


def _said(pid: str, found: bool, score_of: dict[str, float], kept: set[str]) -> str:
    if pid in score_of:
        return "kept" if pid in kept else "dropped"
    return "not among the first" if found else "not found"
