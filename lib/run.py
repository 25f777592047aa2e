"""Execute requests: the one place that turns an expansion into vectors, one search, and a run.

A run is a DataFrame with columns ``RUN_COLUMNS``, one row per question and rank.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from lib.data.questions import Question
from lib.llm.chat import in_parallel
from lib.methods.base import Dense, Expansion, Forms, Fusion, Method, Request, Sparse, Text
from lib.search.contrast import is_degenerate
from lib.search.forms import LinearForms, rerank_pool, search_forms
from lib.search.index import Hits
from lib.search.merge import merge_rrf, merge_scores
from lib.search.vectors import encode_small

__all__ = ["RUN_COLUMNS", "Retriever", "execute", "expand_all", "run_retrieval"]

RUN_COLUMNS = ("method", "qid", "rank", "pid", "score")
"""method, question id, rank from 1, passage id, score (inner product, BM25 or fused)."""


def _texts(request: Request) -> Iterable[Text]:
    if isinstance(request, Dense):
        yield from request.texts
        if request.pool:
            yield from request.pool.texts
    elif isinstance(request, Forms):
        for form in request.forms:
            yield from form.texts
    elif isinstance(request, Fusion):
        for part in request.requests:
            yield from _texts(part)


@dataclass
class Retriever:
    """An index with its encoder and, where asked for, a BM25 index and the passages."""

    index: object
    encoder: object
    store: object = None
    bm25: object = None
    _known: dict = field(default_factory=dict, repr=False)
    _lock: object = field(default_factory=threading.Lock, repr=False)

    def vectors(self, requests: Sequence[Request]) -> dict[tuple, np.ndarray]:
        """Unit vectors of every text the requests mention, by (tower, text), and of all before.

        Each text is encoded once in the retriever's life.
        """
        wanted = {(t.tower, t.text) for request in requests for t in _texts(request)}
        with self._lock:  # methods that read first results search from several threads
            for tower in ("query", "article"):
                new = {text for side, text in wanted - self._known.keys() if side == tower}
                texts = sorted(new, key=str)
                rows = encode_small(texts, self.encoder, tower) if texts else []
                self._known |= {(tower, text): row for text, row in zip(texts, rows, strict=True)}
            return dict(self._known)

    def search_many(self, requests: Sequence[Request], k: int) -> list[Hits | str]:
        """One Hits (of one row) per request, or the reason why a request could not be ranked."""
        known = self.vectors(requests)
        results: list[Hits | str | None] = [None] * len(requests)
        plain = [i for i, r in enumerate(requests) if isinstance(r, Dense) and not r.pool]
        if plain:
            stacked = np.stack([_combine(requests[i], known) for i in plain])
            good = ~is_degenerate(stacked)
            hits = self.index.search(stacked[good], k) if good.any() else None
            for i, row in zip(np.array(plain)[good], range(int(good.sum())), strict=True):
                results[i] = hits[row]
        for i, request in enumerate(requests):
            if results[i] is None:
                results[i] = self._one(request, known, k)
        return results

    def search(self, request: Request, k: int) -> list[tuple[str, str]]:
        """(passage id, text) of the top k: what feedback methods are given as ``search``."""
        if self.store is None:
            raise ValueError(
                "this retriever has no passages: pass store= (see lib.search.corpus_index)"
            )
        hits = self.search_many([request], k)[0]
        if isinstance(hits, str):
            raise ValueError(hits)
        return [(p.pid, p.text) for p in self.store.get_many(hits.ids[0].tolist())]

    def _one(self, request: Request, known: dict, k: int) -> Hits | str:
        if isinstance(request, Sparse):
            if self.bm25 is None:
                raise ValueError("this retriever has no BM25 index: build one with BM25Index.build")
            return self.bm25.search([request.text], k)
        if isinstance(request, Fusion):
            depth = request.depth or 2 * k
            parts = [self._one(r, known, depth) for r in request.requests]
            if broken := [p for p in parts if isinstance(p, str)]:
                return broken[0]
            if request.how == "rrf":
                return merge_rrf(parts, k, request.rrf_k)
            return merge_scores(parts, k)
        if isinstance(request, Forms):
            stacked = np.stack([_combine(f, known) for f in request.forms])
            if is_degenerate(stacked).any():
                return "zero or tiny query: H+ and H- are (nearly) the same text"
            forms = LinearForms(stacked, np.array(request.offsets))
            return search_forms(self.index, [forms], k)
        query = _combine(request, known)[None, :]
        if is_degenerate(query).any():
            return "zero or tiny query: H+ and H- are (nearly) the same text"
        if request.pool:
            pool = _combine(request.pool, known)[None, :]
            return rerank_pool(self.index, pool, query, request.pool_size, k)
        return self.index.search(query, k)


def _combine(request: Dense, known: dict) -> np.ndarray:
    """v = sum_i w_i e(text_i), shape (d,)."""
    parts = [np.float32(t.weight) * known[(t.tower, t.text)] for t in request.texts]
    return np.sum(parts, axis=0, dtype=np.float32)


def expand_all(
    method: Method,
    questions: Sequence[Question],
    llm=None,
    retriever: Retriever | None = None,
    *,
    workers: int = 8,
    progress: bool = False,
) -> list[Expansion]:
    """``method.expand`` for every question, several LLM calls in flight, order kept.

    Every LLM call is tagged with method and question, so a recording or a miss names both. The
    trace says how often it searched (``searches``), before the search that is its result.
    """
    if method.needs_llm and llm is None:
        raise ValueError(f"method {method.name} needs an LLM: pass llm=lib.llm.connect(...)")
    search = retriever.search if retriever else _no_search

    def one(question: Question) -> Expansion:
        searched = []

        def counted(request: Request, k: int) -> list[tuple[str, str]]:
            searched.append(k)
            return search(request, k)

        with llm.tag(method=method.name, qid=question.qid) if llm else nullcontext():
            made = method.expand(question, llm, counted)
        return replace(made, trace=made.trace | {"searches": len(searched)})

    return in_parallel(one, questions, workers=workers, label=method.name, progress=progress)


def _no_search(request: Request, k: int) -> list[tuple[str, str]]:
    raise ValueError("this method reads first results: pass retriever=lib.run.Retriever(...)")


def run_retrieval(
    method: Method,
    questions: Sequence[Question],
    retriever: Retriever,
    llm=None,
    k: int = 5,
    *,
    workers: int = 8,
    progress: bool = False,
) -> tuple[pd.DataFrame, dict[str, dict]]:
    """The run of one method and the trace of every question, by qid (see ``execute``)."""
    expansions = expand_all(method, questions, llm, retriever, workers=workers, progress=progress)
    return execute(method.name, questions, expansions, retriever, k)


def execute(
    name: str,
    questions: Sequence[Question],
    expansions: Sequence[Expansion],
    retriever: Retriever,
    k: int = 5,
) -> tuple[pd.DataFrame, dict[str, dict]]:
    """Search for every expansion: the run, labelled ``name``, and the traces by qid.

    A question whose expansion failed, or whose search finds nothing, has no rows in the run and an
    ``error`` in its trace: it counts as retrieving nothing, and is never answered some other way.
    """
    traces = {q.qid: dict(e.trace) for q, e in zip(questions, expansions, strict=True)}
    ready = [i for i, e in enumerate(expansions) if e.request is not None]
    found = retriever.search_many([expansions[i].request for i in ready], k)
    rows = []
    for i, hits in zip(ready, found, strict=True):
        qid = questions[i].qid
        if isinstance(hits, str) or not hits.ids.size:
            traces[qid]["error"] = hits if isinstance(hits, str) else "no passage was found"
            continue
        pairs = zip(hits.ids[0].tolist(), hits.scores[0].tolist(), strict=True)
        rows += [(name, qid, rank, pid, score) for rank, (pid, score) in enumerate(pairs, 1)]
    return pd.DataFrame(rows, columns=list(RUN_COLUMNS)), traces
