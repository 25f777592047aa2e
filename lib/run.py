"""From hypotheses to a run: the one place that embeds, searches and merges, for every study.

A run is a DataFrame with columns ``RUN_COLUMNS``, one row per question and rank.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from lib.data.questions import Question
from lib.data.store import PassageStore
from lib.llm.chat import in_parallel
from lib.methods.base import Expansion, Fusion, Method, Request, Sparse
from lib.search import contrast, forms, spaces
from lib.search.bm25 import BM25Index
from lib.search.embed import Encoder
from lib.search.index import DenseIndex, Hits
from lib.search.lexical import contrast_terms
from lib.search.merge import merge_rrf, merge_scores
from lib.search.vectors import encode_small
from lib.ways import Hypotheses, Text, Way

__all__ = ["RUN_COLUMNS", "Retriever", "Unranked", "execute", "expand_all", "run_retrieval"]

RUN_COLUMNS = ("method", "qid", "rank", "pid", "score")
"""method, question id, rank from 1, passage id, score (inner product, BM25 or fused)."""

Unranked = str
"""Why a request could not be ranked: it stands where its Hits would."""

NO_DIRECTION = "zero or tiny query: H+ and H- are (nearly) the same text"
_FUSED_DEPTH = 100


@dataclass
class Retriever:
    """An index with its encoder and, where asked for, a BM25 index and the passages.

    ``bm25`` may be a function that builds the index of words when it is first searched.
    ``everyone`` is the H+ of all questions: the form ``csls`` needs it (see ``knowing``).
    """

    index: DenseIndex
    encoder: Encoder
    store: PassageStore | None = None
    bm25: BM25Index | Callable[[], BM25Index] | None = None
    everyone: tuple[Text, ...] = field(default=(), repr=False)
    _known: dict = field(default_factory=dict, repr=False)
    _spaces: dict = field(default_factory=dict, repr=False)
    _lock: object = field(default_factory=threading.Lock, repr=False)

    # vectors -------------------------------------------------------------------------------------

    def vectors(self, texts: Iterable[Text]) -> dict[tuple, np.ndarray]:
        """Unit vectors of these texts, and of all before, by (tower, text).

        Each text is encoded once in the retriever's life.
        """
        wanted = {(t.tower, t.text) for t in texts}
        with self._lock:  # methods that read first results search from several threads
            for tower in ("query", "article"):
                new = {text for side, text in wanted - self._known.keys() if side == tower}
                if new:
                    ordered = sorted(new, key=str)
                    rows = encode_small(ordered, self.encoder, tower)
                    keys = [(tower, text) for text in ordered]
                    self._known |= dict(zip(keys, rows, strict=True))
            return dict(self._known)

    def cosines(self, hypotheses: Sequence[Hypotheses]) -> np.ndarray:
        """c = cos(h+, h-) of each question's own pair, shape (n,); NaN where one is missing."""
        known = self.vectors(t for h in hypotheses for t in h.texts)
        pairs = [(h.of("target")[:1], h.of("mimic")[:1]) for h in hypotheses]
        found = np.full(len(pairs), np.nan)
        for i, (target, mimic) in enumerate(pairs):
            if target and mimic:
                plus, minus = _vector(target[0], known), _vector(mimic[0], known)
                found[i] = contrast.cosine(plus[None], minus[None])[0]
        return found

    def knowing(self, hypotheses: Iterable[Hypotheses]) -> Retriever:
        """This retriever, with the H+ of all these questions to tell hubs by."""
        targets = tuple(target for h in hypotheses for target in h.of("target")[:1])
        return replace(self, everyone=targets, _spaces={})

    def _hubs(self, neighbours: int = 10) -> np.ndarray:
        """How near each passage is to the nearest H+ of all questions, (rows,). Made once."""
        if not self.everyone:
            raise ValueError("the form csls needs all questions: use retriever.knowing(hypotheses)")
        known = self.vectors(self.everyone)
        with self._lock:
            if "hubs" not in self._spaces:
                plus = np.stack([_vector(target, known) for target in self.everyone])
                nearest = min(neighbours, len(plus))
                self._spaces["hubs"] = forms.hubness(self.index, plus, nearest)
            return self._spaces["hubs"]

    def space_of(self, way: Way) -> tuple[DenseIndex, Callable[[np.ndarray], np.ndarray]]:
        """The index in the way's space, and what takes vectors there. Made once, then kept."""
        if way.space == "cosine":
            return self.index, _as_it_is
        key = (way.space, way.shrink if way.space == "whitened" else 0.0)
        with self._lock:
            if key not in self._spaces:
                moments = self._moments()
                space = spaces.centred(moments)
                if way.space == "whitened":
                    space = spaces.whitened(moments, way.shrink)
                self._spaces[key] = spaces.transformed(self.index, space), space.apply
            return self._spaces[key]

    def _moments(self) -> spaces.Moments:
        if "moments" not in self._spaces:
            self._spaces["moments"] = spaces.moments(self.index)
        return self._spaces["moments"]

    # searching -----------------------------------------------------------------------------------

    def search_many(self, requests: Sequence[Request], k: int) -> list[Hits | Unranked]:
        """One Hits (of one row) per request, or the reason why a request could not be ranked.

        Requests searched in the same way share one search.
        """
        groups: dict[object, list[int]] = defaultdict(list)
        for i, request in enumerate(requests):
            groups[_group(request, i)].append(i)
        results: list[Hits | Unranked] = [NO_DIRECTION] * len(requests)
        for members in groups.values():
            found = self._search_alike([requests[i] for i in members], k)
            for i, hits in zip(members, found, strict=True):
                results[i] = hits
        return results

    def search(self, request: Request, k: int) -> list[tuple[str, str]]:
        """(passage id, text) of the top k: what feedback methods are given as ``search``."""
        if self.store is None:
            raise ValueError("this retriever has no passages: pass store= (see lib.corpus_index)")
        hits = self.search_many([request], k)[0]
        if isinstance(hits, Unranked):
            raise ValueError(hits)
        return [(p.pid, p.text) for p in self.store.get_many(hits.ids[0].tolist())]

    def _search_alike(self, requests: Sequence[Request], k: int) -> list[Hits | Unranked]:
        """Results of requests that differ in their texts, lambda and draw alone."""
        first = requests[0]
        if isinstance(first, Sparse):
            hits = self._lexical_index().search([r.text for r in requests], k)
            return [hits[i] for i in range(len(hits))]
        if isinstance(first, Fusion):
            return [self._fused(request, k) for request in requests]
        # Passages that may not be found are looked up too, and dropped: they are few.
        spare = max(len(h.excluded) for h in requests)
        found = self._search_hypotheses(requests, k + spare)
        return [
            hits if isinstance(hits, Unranked) else _without(hits, h.excluded, k)
            for h, hits in zip(requests, found, strict=True)
        ]

    def _search_hypotheses(self, asked: Sequence[Hypotheses], k: int) -> list[Hits | Unranked]:
        way = asked[0].way
        if way.form == "random":
            return [self._random(h, k) for h in asked]
        if way.form == "lexical":
            weights = [_terms(h) for h in asked]
            hits = self._lexical_index().search_weighted(weights, k)
            return [hits[i] for i in range(len(hits))]
        if way.form == "fused":
            parts = [(h.by(form="single"), h.by(form="lexical")) for h in asked]
            return [self._fused(Fusion(pair, depth=_FUSED_DEPTH), k) for pair in parts]
        known = self.vectors(t for h in asked for t in h.texts)
        index, to_space = self.space_of(way)
        vectors = [self._query(h, known, to_space) for h in asked]
        results: list[Hits | Unranked] = list(vectors)
        good = [i for i, v in enumerate(vectors) if not isinstance(v, Unranked)]
        if good:
            stacked = np.stack([vectors[i] for i in good])
            lam = np.array([asked[i].way.lam for i in good])
            hits = self._ranked(way, index, stacked, lam, k)
            for row, i in enumerate(good):
                results[i] = hits[row]
        return results

    def _query(self, h: Hypotheses, known: Mapping, to_space: Callable) -> np.ndarray | Unranked:
        """What one question is searched with, (m, d), or why it cannot be.

        The first m - 1 or all of them are inner products that ``_ranked`` puts together. With a
        pool, the vector that chooses the pool comes first.
        """
        try:
            vectors = _vectors(h, known, to_space)
        except LookupError as missing:
            return str(missing.args[0])
        if contrast.is_degenerate(vectors).any():
            return NO_DIRECTION
        return vectors

    def _ranked(
        self, way: Way, index: DenseIndex, vectors: np.ndarray, lam: np.ndarray, k: int
    ) -> Hits:
        """Top k of the passages, exactly, for queries (n, m, d) and their lambdas (n,)."""
        if way.pool:
            return forms.rerank_pool(index, vectors[:, 0], vectors[:, 1], way.pool, k)
        if way.form == "csls":
            return forms.search_with_penalty(index, vectors[:, 0], self._hubs(), lam, k)
        if vectors.shape[1] == 1:
            return index.search(vectors[:, 0], k)
        if way.form == "softmax":
            return forms.search_scored(index, vectors, forms.log_sum_exp(lam, way.tau), k)
        if way.form == "lda":
            pairs = vectors[:, 0], vectors[:, 1]
            query = spaces.lda_query(*pairs, self._moments(), way.shrink, lam)
            return index.search(query, k)
        offsets = np.zeros(vectors.shape[:2])
        if way.form == "margin":
            offsets[:, 1] = -lam * way.margin
        pairs = zip(vectors, offsets, strict=True)
        return forms.search_forms(index, [forms.LinearForms(v, b) for v, b in pairs], k)

    def _fused(self, request: Fusion, k: int) -> Hits | Unranked:
        parts = self.search_many(request.requests, request.depth or 2 * k)
        for part in parts:
            if isinstance(part, Unranked):
                return part
        if request.how == "rrf":
            return merge_rrf(parts, k, request.rrf_k)
        return merge_scores(parts, k)

    def _random(self, h: Hypotheses, k: int) -> Hits:
        """Any k passages, drawn by the question's id and the draw."""
        ids = np.sort(self.index.ids[self.index.kept])
        seed = f"random {h.qid}" + (f" {h.way.draw}" if h.way.draw else "")
        picked = random.Random(seed).sample(range(len(ids)), min(k, len(ids)))
        rows = np.full((1, len(picked)), -1)
        return Hits(np.zeros(rows.shape, np.float32), rows, ids[picked][None])

    def _lexical_index(self) -> BM25Index:
        if self.bm25 is None:
            raise ValueError("this retriever has no BM25 index: build one with BM25Index.build")
        if callable(self.bm25):
            self.bm25 = self.bm25()
        return self.bm25


def _group(request: Request, place: int) -> object:
    """What requests must share to be searched together."""
    if isinstance(request, Hypotheses):
        kinds = len(_chosen_mimics(request)) if request.way.searches_many else 0
        alike = replace(request.way, lam=0.0, draw=0, question_weight=0.0)
        return alike, kinds, bool(request.way.lam)
    return type(request) if isinstance(request, Sparse) else place


def _as_it_is(vectors: np.ndarray) -> np.ndarray:
    return vectors


def _vector(text: Text, known: Mapping) -> np.ndarray:
    return known[text.tower, text.text]


def _chosen_mimics(h: Hypotheses) -> tuple[Text, ...]:
    """The mimic texts that the way asks for; of strangers the one that is drawn."""
    mimics = h.of("mimic", h.way.mimic)
    if h.way.mimic == "stranger" and mimics:
        return (mimics[h.way.draw % len(mimics)],)
    return mimics if h.way.searches_many else mimics[:1]


def _vectors(h: Hypotheses, known: Mapping, to_space: Callable) -> np.ndarray:
    """The vectors (m, d) of one question under its way; LookupError where a text is missing."""

    def embedded(texts: Sequence[Text]) -> np.ndarray:
        return to_space(np.stack([_vector(text, known) for text in texts]))

    way = h.way
    question = h.of("question")
    if way.form == "question":
        if not question:
            raise LookupError("no question among the texts to search with")
        return embedded(question[:1])
    plus = _written_sum(h, embedded)
    vectors = plus[None]
    mimics = _chosen_mimics(h)
    wanted = way.lam != 0 and way.form != "csls" and bool(h.of("mimic"))
    if wanted and not mimics:
        raise LookupError(f"no mimic of the kind {way.mimic!r} among the texts to search with")
    if wanted:
        minus = embedded(mimics)
        if way.rotation:
            minus = _rotated(h, embedded, minus)
        vectors = _contrasted(way, plus, minus)
    if way.question_weight and question:
        vectors = vectors + np.float32(way.question_weight) * embedded(question[:1])
    if way.pool:
        target = h.of("target")[:1]
        chooses = embedded(target) if target else plus[None]
        vectors = np.concatenate([chooses, vectors])
    return vectors.astype(np.float32)


def _written_sum(h: Hypotheses, embedded: Callable) -> np.ndarray:
    """v = sum of weight times e(text) over all texts but mimics, shape (d,)."""
    texts = [t for t in h.texts if t.role != "mimic" and t.weight]
    weights = np.array([t.weight for t in texts], np.float32)
    return np.sum(weights[:, None] * embedded(texts), axis=0, dtype=np.float32)


def _rotated(h: Hypotheses, embedded: Callable, minus: np.ndarray) -> np.ndarray:
    """The matched rotation of h-, towards the stranger that is drawn."""
    strangers = h.of("mimic", "stranger")
    if not strangers:
        raise LookupError("no control: no other question has a mimic that says something else")
    stranger = strangers[h.way.draw % len(strangers)]
    target = embedded(h.of("target")[:1])
    try:
        return contrast.matched_rotation(target, minus[:1], embedded([stranger]))
    except ValueError as error:
        raise LookupError(f"no control: {error}") from error


def _contrasted(way: Way, plus: np.ndarray, minus: np.ndarray) -> np.ndarray:
    """h+ (d,) and mimics (m, d) under a form, as vectors (m', d) for ``Retriever._ranked``."""
    if way.form == "max":
        return contrast.max_mimic_forms(plus[None], minus[None], way.lam)[0]
    if way.form == "margin":
        found, _ = contrast.margin_forms(plus[None], minus[:1], way.lam, way.margin)
        return found[0]
    if way.form == "softmax":
        return np.concatenate([plus[None], minus])
    mean = minus.mean(axis=0, keepdims=True)
    if way.form == "lda":
        if np.linalg.norm(plus - mean[0]) < contrast.TINY:
            raise LookupError(NO_DIRECTION)
        return np.concatenate([plus[None], mean])
    return contrast.shifted_query(plus[None], mean, way.lam)


def _terms(h: Hypotheses) -> dict[str, float]:
    """Words of H+ with their weights; of the question where there is no H+."""
    target = [str(t.text) for t in h.texts if t.role != "mimic" and t.weight]
    mimics = " ".join(str(t.text) for t in _chosen_mimics(h))
    return contrast_terms(" ".join(target), mimics, h.way.lam)


def _without(hits: Hits, excluded: frozenset[str], k: int) -> Hits:
    keep = np.flatnonzero([pid not in excluded for pid in hits.ids[0].tolist()])[:k]
    return Hits(hits.scores[:, keep], hits.rows[:, keep], hits.ids[:, keep])


# runs --------------------------------------------------------------------------------------------


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
        request = made.request
        if isinstance(request, Hypotheses):
            topics = frozenset(filter(None, (question.target, question.mimic)))
            request = replace(request, qid=question.qid, topics=topics)
        return Expansion(request, made.trace | {"searches": len(searched)})

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
        if isinstance(hits, Unranked):
            traces[qid]["error"] = hits
        elif not hits.ids.size:
            traces[qid]["error"] = "no passage was found"
        else:
            pairs = zip(hits.ids[0].tolist(), hits.scores[0].tolist(), strict=True)
            rows += [(name, qid, rank, pid, score) for rank, (pid, score) in enumerate(pairs, 1)]
    return pd.DataFrame(rows, columns=list(RUN_COLUMNS)), traces
