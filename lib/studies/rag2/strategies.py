"""How RAG2 retrieves: question or rationale, single sources, stacked or balanced, re-ranked or not.

The paper's Table 4 and Figure A3, by what is found in place of what a model answers. Every
re-ranked arm scores the same number of pairs, ``DEPTH`` a question: balanced retrieval takes a
quarter of them from each of four sources, stacked retrieval the best of all.

BioASQ's experts gave snippets of BioASQ alone, so whatever another source brings counts as wrong
there, and balanced retrieval can only lose; ddx-mini judged all four of its sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lib.datasets import Question
from lib.methods.postprocess import Scorer
from lib.methods.rag2 import RAG2
from lib.run import Retriever, execute
from lib.stats import Pair, measure

DEPTH = 32
"""Passages that are re-ranked."""

_CUTS = (1, 3, 5, 10)

METRICS = tuple(f"precision_at_{k}" for k in _CUTS) + ("hit_at_5", "ndcg_at_10")


@dataclass(frozen=True)
class Set:
    """Questions with their rationales (by id; some may have none) and what is relevant to them."""

    name: str
    questions: Sequence[Question]
    rationales: Mapping[str, str]
    targets: Mapping[str, frozenset[str]]
    sources: tuple[str, ...]


@dataclass
class MemoizedScorer:
    """A scorer that scores no pair twice."""

    score: Scorer
    known: dict = field(default_factory=dict, repr=False)

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """See ``lib.methods.postprocess.Scorer``."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self.known]
        if new:
            self.known |= dict(zip(new, self.score(new).tolist(), strict=True))
        return np.array([self.known[pair] for pair in pairs])


def strategies(sources: Sequence[str], rerankers: Mapping[str, Scorer]) -> dict[str, RAG2]:
    """Every arm by name, such as "question, balanced, re-ranked" or "rationale, stacked".

    The first of ``rerankers`` is the re-ranker; any other is a control, and its name is in the
    arm's: "question, balanced, re-ranked (shuffled)".
    """
    every = tuple(sources)
    first, *others = rerankers
    arms: dict[str, RAG2] = {}
    for query in ("question", "rationale"):
        for source in every:
            arms[f"{query}, {source} alone"] = RAG2(query=query, sources=(source,), depth=DEPTH)
        for how, chosen in (("stacked", ()), ("balanced", every)):
            plain = {"query": query, "sources": chosen, "depth": DEPTH}
            arms[f"{query}, {how}"] = RAG2(**plain)
            arms[f"{query}, {how}, re-ranked"] = RAG2(**plain, reranker=rerankers[first])
            for other in others:
                name = f"{query}, {how}, re-ranked ({other})"
                arms[name] = RAG2(**plain, reranker=rerankers[other])
            if query == "rationale":
                arms[f"{query}, {how}, re-ranked by the rationale"] = RAG2(
                    **plain, reranker=rerankers[first], rerank_by="rationale"
                )
    return {name: RAG2(**{**vars(arm), "name": name}) for name, arm in arms.items()}


def strategy_values(asked: Set, arms: Mapping[str, RAG2], retriever: Retriever) -> pd.DataFrame:
    """Every outcome: ``dataset, arm, qid, metric, value``.

    Beside ``METRICS`` stand the cost, ``pairs_scored``, and ``share of <source>``, of the top
    five. An arm that reads the rationale is run on the questions that have one, a re-ranked one too
    so that all of these have the same questions.
    """
    source_of = _sources_of(retriever)
    parts = []
    for name, arm in arms.items():
        questions = list(asked.questions)
        if arm.needs_llm or arm.reranker:
            questions = [q for q in questions if q.qid in asked.rationales]
        expansions = [arm.given(q, asked.rationales.get(q.qid, "")) for q in questions]
        run, traces = execute(name, questions, expansions, retriever, max(_CUTS))
        found = run.groupby("qid")["pid"].agg(list).to_dict()
        rows = {}
        for question in questions:
            pids = found.get(question.qid, [])
            pairs = sum(step["pairs"] for step in traces[question.qid].get("after", ()))
            rows[question.qid] = _outcomes(pids, asked.targets[question.qid])
            rows[question.qid]["pairs_scored"] = float(pairs)
            for source in asked.sources:
                own = [source_of[pid] == source for pid in pids[:5]]
                rows[question.qid][f"share of {source}"] = sum(own) / 5
        wide = pd.DataFrame.from_dict(rows, orient="index").rename_axis("qid")
        long = wide.reset_index().melt("qid", var_name="metric")
        parts.append(long.assign(dataset=asked.name, arm=name))
    return pd.concat(parts, ignore_index=True)[["dataset", "arm", "qid", "metric", "value"]]


def _outcomes(pids: Sequence[str], targets: frozenset[str]) -> dict[str, float]:
    """``METRICS`` of one ranked list; an empty place is a place all the same."""
    row = {f"precision_at_{k}": len(targets & set(pids[:k])) / k for k in _CUTS}
    measured = measure({"q": list(pids)}, {"q": targets}, {}, 5).loc["q"]
    return row | {name: float(measured[name]) for name in ("hit_at_5", "ndcg_at_10")}


def _sources_of(retriever: Retriever) -> dict[str, str]:
    store = retriever.store
    return dict(zip(store.ids(), store.sources(), strict=True))


def strategy_pairs() -> list[Pair]:
    """What is compared, each an exploratory difference: these questions have been looked at."""
    pairs = []
    for metric in ("precision_at_1", "precision_at_5"):
        for query in ("question", "rationale"):
            stacked, balanced = f"{query}, stacked", f"{query}, balanced"
            again, even = f"{stacked}, re-ranked", f"{balanced}, re-ranked"
            # Merged by turns, the first of a balanced list is always the first source's best.
            if metric != "precision_at_1":
                pairs.append(Pair("balanced finds more than stacked", metric, balanced, stacked))
            pairs += [
                Pair("re-ranking a stacked list finds more", metric, again, stacked),
                Pair("balanced and re-ranked finds more than stacked", metric, even, stacked),
                Pair("so it does where stacked is re-ranked too", metric, even, again),
                Pair(
                    "the tuned re-ranker finds more than those tuned on shuffled labels",
                    metric,
                    even,
                    f"{even} (shuffled)",
                ),
            ]
        even = "rationale, balanced, re-ranked"
        pairs += [
            Pair(
                "the rationale finds more than the question",
                metric,
                "rationale, stacked",
                "question, stacked",
            ),
            Pair(
                "re-ranking by the rationale finds more than by the question",
                metric,
                f"{even} by the rationale",
                even,
            ),
        ]
    return pairs
