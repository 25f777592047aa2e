# mypy: disable-error-code="attr-defined"
"""From hypotheses to a run: the one place that embeds, searches and merges, for every study.

A run is a DataFrame with columns ``RUN_COLUMNS``, one row per question and rank.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lib import run_files
from lib.base.parameters import check_k, refuse_unknown
from lib.data.store import PassageStore
from lib.embed import Encoder, as_queries, metric_of
from lib.query_spec import By, Fusion, Hit, Hypotheses, Request, SearchSpec, Sparse, Text
from lib.search import contrast, scoring, whitening
from lib.search.bm25 import BM25Index, contrast_terms
from lib.search.index import DenseIndex, Hits
from lib.search.lambda_path import search_path
from lib.search.merge import merge_balanced, merge_rrf
from lib.search.vectors import encode_small

RUN_COLUMNS = ("method", "qid", "rank", "pid", "score")
"""method, question id, rank from 1, passage id, score (inner product, BM25 or fused)."""

RetrievalFailure = str
"""Why a request could not be ranked; returned in place of its Hits."""

NO_DIRECTION = "zero or tiny query: H+ and H- are (nearly) the same text"
_FUSED_DEPTH = 100
_HUB_NEIGHBOURS = 10


@dataclass
class Retriever:
    """An index with its encoder and, where asked for, a BM25 index and the passages.

    ``bm25`` may be a function that builds the index of words when it is first searched; ``beside``
    opens the same passages by another encoder, for requests that name one (``By``).
    ``hub_queries`` is the H+ of all questions: the form ``csls`` needs it.
    """

    index: DenseIndex
    encoder: Encoder
    store: PassageStore | None = None
    bm25: BM25Index | Callable[[], BM25Index] | None = None
    hub_queries: tuple[Text, ...] = field(default=(), repr=False)
    beside: Callable[[str], Retriever] | None = field(default=None, repr=False)
    _known: dict = field(default_factory=dict, repr=False)
    _spaces: dict = field(default_factory=dict, repr=False)
    _lock: object = field(default_factory=threading.RLock, repr=False)

    # vectors -------------------------------------------------------------------------------------

    def vectors(self, texts: Iterable[Text]) -> dict[tuple, np.ndarray]:
        """Vectors of these texts to search with, and of all before, by (tower, text); of length 1
        where the encoder's metric is the cosine.

        Each text is encoded once in the retriever's life; what names a passage is not encoded.
        """
        wanted = {(t.tower, t.text) for t in texts if not t.pid}
        with self._lock:  # methods that read first results search from several threads
            for tower in ("query", "article"):
                new = {text for side, text in wanted - self._known.keys() if side == tower}
                if new:
                    ordered = sorted(new, key=str)
                    rows = encode_small(ordered, self.encoder, tower, as_searched=True)
                    rows = as_queries(rows, self.encoder)
                    keys = [(tower, text) for text in ordered]
                    self._known |= dict(zip(keys, rows, strict=True))
        return self._known

    def _embedded(self, texts: Sequence[Text]) -> np.ndarray:
        """The vectors of these texts, (n, d). ValueError for a passage that is not here."""
        known = self.vectors(texts)
        pids = list(dict.fromkeys(text.pid for text in texts if text.pid))
        if not pids:
            return np.stack([known[text.tower, text.text] for text in texts])
        stored = self.index.vectors(self.index.rows_of(pids))
        if metric_of(self.encoder) == "cosine":  # as float16 it is not quite of length 1
            stored = stored / np.linalg.norm(stored, axis=1, keepdims=True)
        stored = as_queries(stored, self.encoder)
        of_pid = dict(zip(pids, stored, strict=True))
        return np.stack([of_pid[t.pid] if t.pid else known[t.tower, t.text] for t in texts])

    def cosines(self, hypotheses: Sequence[Hypotheses]) -> np.ndarray:
        """c = cos(h+, h-) of each question's own pair, shape (n,); NaN where one is missing."""
        pairs = [(h.of("target")[:1], h.of("mimic")[:1]) for h in hypotheses]
        self.vectors(text for target, mimic in pairs for text in (*target, *mimic))
        found = np.full(len(pairs), np.nan)
        for i, (target, mimic) in enumerate(pairs):
            if target and mimic:
                found[i] = contrast.cosine(self._embedded(target), self._embedded(mimic))[0]
        return found

    def with_hub_queries(self, hypotheses: Iterable[Hypotheses]) -> Retriever:
        """This retriever with the H+ of all these questions, from which hubs are computed."""
        targets = tuple(target for h in hypotheses for target in h.of("target")[:1])
        return replace(self, hub_queries=targets, _spaces={})

    def subset(self, index: DenseIndex) -> Retriever:
        """This retriever on a view of its index: only passages in the view can be found."""

        def lexical() -> BM25Index:
            return self._lexical_index().subset(index.kept)

        def beside(encoder: str) -> Retriever:
            other = self._by(encoder)
            return other.subset(other.index.subset(index.kept))

        other = beside if self.beside else None
        return replace(self, index=index, bm25=lexical, beside=other, _spaces={})

    def of_sources(self, sources: Sequence[str]) -> Retriever:
        """This retriever on the passages of some sources alone. Made once for each choice.

        ValueError for a source without passages, and where the retriever has no passages at all.
        """

        def view() -> Retriever:
            of_store = self._passages().sources()
            refuse_unknown("no passage of the source", sorted(sources), sorted(of_store.categories))
            wanted = np.isin(of_store.codes, of_store.categories.get_indexer(list(sources)))
            if (ids := self._passages().ids()) is not self.index.ids:
                wanted = wanted[ids.rows_of(self.index.ids)]
            return self.subset(self.index.subset(wanted))

        return self._once(("sources", *sorted(sources)), view)

    def _passages(self) -> PassageStore:
        if self.store is None:
            raise ValueError("this retriever has no passages: pass store= (see lib.corpus_index)")
        return self.store

    def _hubs(self, spec: SearchSpec) -> np.ndarray:
        """Hubness: how near each passage is to its nearest H+ of all questions, (rows,).

        Cosines are taken in the specification's space; made once for each space.
        """
        if not self.hub_queries:
            raise ValueError(
                "the form csls needs all questions: use retriever.with_hub_queries(hypotheses)"
            )

        def hubness() -> np.ndarray:
            index, to_space = self.space_of(spec)
            plus = to_space(self._embedded(self.hub_queries))
            return scoring.hubness(index, plus, min(_HUB_NEIGHBOURS, len(plus)))

        return self._once(("hubs", *_space_key(spec)), hubness)

    def space_of(self, spec: SearchSpec) -> tuple[DenseIndex, Callable[[np.ndarray], np.ndarray]]:
        """The index in the specification's space, and the map of vectors to it. Made once."""
        if spec.space == "cosine":
            return self.index, np.asarray

        def transformed() -> tuple[DenseIndex, Callable]:
            moments = self._moments(replace(spec, space="cosine"))
            space = whitening.centred(moments)
            if spec.space == "whitened":
                space = whitening.whitened(moments, spec.shrink)
            return whitening.transformed(self.index, space), space.apply

        return self._once(_space_key(spec), transformed)

    def _moments(self, spec: SearchSpec) -> whitening.Moments:
        """Mean and covariance of the passages in the specification's space. Made once for each."""
        key = ("moments", *_space_key(spec))
        return self._once(key, lambda: whitening.moments(self.space_of(spec)[0]))

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made at the first call and then kept. It takes the lock, because
        methods that read first results search from several threads."""
        with self._lock:
            if key not in self._spaces:
                self._spaces[key] = make()
            return self._spaces[key]

    # searching -----------------------------------------------------------------------------------

    def search_many(self, requests: Sequence[Request], k: int) -> list[Hits | RetrievalFailure]:
        """One Hits (of one row) per request, or the reason why a request could not be ranked.

        Requests searched in the same way share one search. Raises ValueError unless k is a count.
        """
        check_k(k)

        def place() -> str:
            return run_files.place_of(self.index, self.encoder, self.hub_queries)

        return run_files.through(
            lambda some: self._search_many(some, k), requests, k, lambda: self._once("place", place)
        )

    def _search_many(self, requests: Sequence[Request], k: int) -> list[Hits | RetrievalFailure]:
        groups: dict[tuple, list[int]] = defaultdict(list)
        for i, request in enumerate(requests):
            groups[_group(request)].append(i)
        results: list[Hits | RetrievalFailure] = [NO_DIRECTION] * len(requests)
        for (*_, sources), members in groups.items():
            within = self.of_sources(sources) if sources else self
            found = within._search_alike([requests[i] for i in members], k)
            for i, hits in zip(members, found, strict=True):
                results[i] = hits
        return results

    def search(self, request: Request, k: int) -> list[tuple[str, str]]:
        """(passage id, text) of the top k: what feedback methods are given as ``search``."""
        self._passages()
        hits = self.search_many([request], k)[0]
        if isinstance(hits, RetrievalFailure):
            raise ValueError(hits)
        return self.texts_of(hits.ids[0].tolist())

    def texts_of(self, pids: Sequence[str], titles: bool = False) -> list[Hit]:
        """(passage id, text) of these passages, in their order; ``titles`` stand before it."""
        passages = self._passages().get_many(pids)
        return [(it.pid, it.titled if titles else it.text) for it in passages]

    def _search_alike(self, requests: Sequence[Request], k: int) -> list[Hits | RetrievalFailure]:
        """Results of requests that differ in their texts, lambda and draw alone."""
        first = requests[0]
        if isinstance(first, Sparse):
            hits = self._lexical_index().search([r.text for r in requests], k)
            return [hits[i] for i in range(len(hits))]
        if isinstance(first, Fusion):
            return self._fused(requests, k)
        if isinstance(first, By):
            return self._by(first.encoder).search_many([r.request for r in requests], k)
        if first.spec.form == "random":
            return [self._random(h, k) for h in requests]
        # Passages that may not be found are looked up too, and dropped: they are few.
        spare = max(len(h.excluded) for h in requests)
        found = self._search_hypotheses(requests, k + spare)
        return [
            hits if isinstance(hits, RetrievalFailure) else _without(hits, h.excluded, k)
            for h, hits in zip(requests, found, strict=True)
        ]

    def _search_hypotheses(
        self, asked: Sequence[Hypotheses], k: int
    ) -> list[Hits | RetrievalFailure]:
        spec = asked[0].spec
        if spec.form == "lexical":
            return [self._by_words(h, k) for h in asked]
        if spec.form == "fused":
            parts = [(h.by(form="single"), h.by(form="lexical")) for h in asked]
            return self._fused([Fusion(pair, depth=_FUSED_DEPTH) for pair in parts], k)
        self.vectors(t for h in asked for t in h.texts)  # all in one go
        _, to_space = self.space_of(spec)

        def embedded(texts: Sequence[Text]) -> np.ndarray:
            return to_space(self._embedded(texts))

        results: list[Hits | RetrievalFailure] = [NO_DIRECTION] * len(asked)
        queries: dict[int, np.ndarray] = {}
        for i, h in enumerate(asked):
            try:
                queries[i] = _vectors(h, embedded)
            except LookupError as missing:
                results[i] = str(missing.args[0])
        if not queries:
            return results
        ready = np.array(list(queries))
        lam = np.array([asked[i].spec.lam for i in ready])
        vectors = self._joined(spec, np.stack(list(queries.values())), lam)
        clear = ~contrast.is_degenerate(vectors).any(axis=1)
        if clear.any():
            searched = [asked[i] for i in ready[clear]]
            hits = self._ranked(spec, vectors[clear], lam[clear], k, searched)
            for row, i in enumerate(ready[clear]):
                results[i] = hits[row]
        return results

    def _joined(self, spec: SearchSpec, vectors: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """Queries (n, m, d) with h+ and its mimics' mean made one, for the form ``lda``."""
        alone = 2 if spec.pool else 1
        if spec.form != "lda" or vectors.shape[1] == alone:
            return vectors
        moments = self._moments(spec)
        query = whitening.lda_query(vectors[:, -2], vectors[:, -1], moments, spec.shrink, lam)
        return np.concatenate([vectors[:, :-2], query[:, None]], axis=1)

    def _ranked(
        self,
        spec: SearchSpec,
        vectors: np.ndarray,
        lam: np.ndarray,
        k: int,
        asked: Sequence[Hypotheses],
    ) -> Hits:
        """Top k of the passages, exactly, for queries (n, m, d) and their lambdas (n,).

        With a pool, the vector that chooses it comes first; what may not be found is not in it.
        """
        index, _ = self.space_of(spec)
        if spec.pool:
            excluded = [h.excluded for h in asked]
            return scoring.rerank_pool(index, vectors[:, 0], vectors[:, 1], spec.pool, k, excluded)
        if spec.form == "csls":
            return scoring.search_with_penalty(index, vectors[:, 0], self._hubs(spec), lam, k)
        if vectors.shape[1] == 1:
            return search_path(index, vectors[:, 0], _lines(asked), lam, k)
        if spec.form == "softmax":
            return scoring.search_scored(index, vectors, scoring.log_sum_exp(lam, spec.tau), k)
        offsets = np.zeros(vectors.shape[:2])
        if spec.form == "margin":
            offsets = contrast.margin_offsets(lam, spec.margin)
        return scoring.search_forms(index, vectors, offsets, k)

    def _by_words(self, h: Hypotheses, k: int) -> Hits | RetrievalFailure:
        pids = [text.pid for text in h.texts if text.pid]
        words = dict(self.texts_of(pids)) if pids else {}
        try:
            weights = _terms(h, words)
        except LookupError as missing:
            return str(missing.args[0])
        return self._lexical_index().search_weighted([weights], k)[0]

    def _fused(self, requests: Sequence[Fusion], k: int) -> list[Hits | RetrievalFailure]:
        """Fusions of one depth: all their parts are searched together, then merged one by one."""
        parts = [part for request in requests for part in request.requests]
        found = iter(self.search_many(parts, requests[0].depth or 2 * k))
        merged = []
        for request in requests:
            lists = list(itertools.islice(found, len(request.requests)))
            merged.append(_merged(request, lists, k))
        return merged

    def _random(self, h: Hypotheses, k: int) -> Hits:
        """Any k passages that may be found, drawn by the question's id and the draw."""
        rows = self._once("in order", self.index.in_order)
        if h.excluded:
            rows = rows[~np.isin(rows, self.index.ids.find(sorted(h.excluded)))]
        seed = f"random {h.qid}" + (f" {h.spec.draw}" if h.spec.draw else "")
        picked = random.Random(seed).sample(range(len(rows)), min(k, len(rows)))
        ids = self.index.ids[rows[picked]][None]
        return Hits(np.zeros(ids.shape, np.float32), np.full(ids.shape, -1), ids)

    def _by(self, encoder: str) -> Retriever:
        """The retriever of the same passages by another encoder. Opened once."""
        if self.beside is None:
            raise ValueError(f"this retriever has no other encoder: {encoder!r} is asked for")
        return self._once(("beside", encoder), lambda: self.beside(encoder))

    def _lexical_index(self) -> BM25Index:
        if self.bm25 is None:
            raise ValueError("this retriever has no BM25 index: build one with BM25Index.build")
        with self._lock:
            if callable(self.bm25):
                self.bm25 = self.bm25()
        return self.bm25


def _merged(
    request: Fusion, parts: Sequence[Hits | RetrievalFailure], k: int
) -> Hits | RetrievalFailure:
    """The lists of a fusion as one; where a part could not be ranked, its reason."""
    for part in parts:
        if isinstance(part, RetrievalFailure):
            return part
    if request.how == "balanced":
        return merge_balanced(parts, k)
    return merge_rrf(parts, k, request.rrf_k)


def _group(request: Request) -> tuple:
    """What requests must share to be searched together; the sources that they name come last."""
    if isinstance(request, Fusion):  # its parts have sources of their own
        return Fusion, request.depth, ()
    if isinstance(request, By):
        return By, request.encoder, ()
    sources = tuple(sorted(set(request.sources)))
    if isinstance(request, Sparse):
        return Sparse, sources
    # Vectors are stacked: requests need equally many mimics; either all or none have mimics.
    mimics = len(_chosen_mimics(request)) if request.spec.searches_many else 0
    alike = replace(request.spec, lam=0.0, draw=0, question_weight=0.0)
    return alike, mimics, bool(request.of("mimic")), bool(request.spec.lam), sources


def _lines(asked: Sequence[Hypotheses]) -> np.ndarray:
    """A number for each request (n,), equal where they differ in lambda alone."""
    known: dict[tuple, int] = {}
    # ``Hypotheses.by`` keeps the texts, so that they need not be compared.
    keys = [(id(h.texts), h.spec.draw, h.spec.question_weight) for h in asked]
    return np.array([known.setdefault(key, len(known)) for key in keys])


def _space_key(spec: SearchSpec) -> tuple[str, float]:
    return spec.space, spec.shrink if spec.space == "whitened" else 0.0


def _chosen_mimics(h: Hypotheses) -> tuple[Text, ...]:
    """The mimic texts that the specification asks for; of random mimics, the one drawn."""
    mimics = h.of("mimic", h.spec.mimic)
    if h.spec.mimic == "stranger" and mimics:
        return (mimics[h.spec.draw % len(mimics)],)
    return mimics if h.spec.searches_many else mimics[:1]


def _subtracted(h: Hypotheses) -> tuple[Text, ...]:
    """The mimics to subtract: none at lambda 0, or where none was written.

    LookupError where there are mimics, but none of the kind that the specification asks for.
    """
    if not h.spec.lam or not h.of("mimic"):
        return ()
    mimics = _chosen_mimics(h)
    if not mimics:
        raise LookupError(f"no mimic of the kind {h.spec.mimic!r} among the texts to search with")
    return mimics


def _vectors(h: Hypotheses, embedded: Callable) -> np.ndarray:
    """The vectors (m, d) of one question under its specification, for ``Retriever._ranked``.

    ``embedded`` gives texts' vectors in the specification's space. With a pool, the vector that
    chooses the pool comes first. LookupError where a text is missing or nothing is left to search
    with.
    """
    if h.spec.form != "question":
        vectors = _written(h, embedded)
    elif question := h.of("question")[:1]:
        vectors = embedded(question)
    else:
        raise LookupError("no question among the texts to search with")
    if h.spec.pool:
        target = h.of("target")[:1]
        chooses = embedded(target) if target else vectors[:1]
        vectors = np.concatenate([chooses, vectors])
    return vectors.astype(np.float32)


def _written(h: Hypotheses, embedded: Callable) -> np.ndarray:
    """All texts but mimics summed by their weights, mimics subtracted, the question added."""
    spec = h.spec
    texts = [t for t in h.texts if t.role != "mimic" and t.weight]
    if not texts:
        raise LookupError("no text to search with")
    weights = np.array([t.weight for t in texts], np.float32)
    weighted = weights[:, None] * embedded(texts)
    vectors = np.sum(weighted, axis=0, dtype=np.float32)[None]
    mimics = () if spec.form == "csls" else _subtracted(h)
    if mimics:
        minus = embedded(mimics)
        if spec.rotation:
            minus = _rotated(h, embedded, minus)
        vectors = _contrasted(spec, vectors, minus)
    question = h.of("question")[:1]
    if spec.question_weight and question:
        added = np.float32(spec.question_weight) * embedded(question)
        if spec.form == "softmax":
            # The question is added to H+ only: the other vectors are the mimics themselves.
            vectors = np.concatenate([vectors[:1] + added, vectors[1:]])
        else:
            vectors = vectors + added
    if spec.form == "softmax" and mimics:
        # If each mimic alone cancels H+, all of them together do too.
        alone = contrast.shifted_query(vectors[:1], vectors[1:], spec.lam)
        if contrast.is_degenerate(alone).all():
            raise LookupError(NO_DIRECTION)
    return vectors


def _rotated(h: Hypotheses, embedded: Callable, minus: np.ndarray) -> np.ndarray:
    """The matched rotation of h-, towards the random mimic that is drawn."""
    strangers = h.of("mimic", "stranger")
    if not strangers:
        raise LookupError("no control: no other question has a mimic that says something else")
    stranger = strangers[h.spec.draw % len(strangers)]
    target = embedded(h.of("target")[:1])
    try:
        return contrast.matched_rotation(target, minus[:1], embedded([stranger]))
    except ValueError as error:
        raise LookupError(f"no control: {error}") from error


def _contrasted(spec: SearchSpec, plus: np.ndarray, minus: np.ndarray) -> np.ndarray:
    """h+ (1, d) and mimics (m, d) under a form, as vectors (m', d) for ``Retriever._ranked``."""
    if spec.form == "max":
        return contrast.shifted_query(plus, minus, spec.lam)
    if spec.form == "margin":
        return contrast.margin_forms(plus, minus[:1], spec.lam)[0]
    if spec.form == "softmax":
        return np.concatenate([plus, minus])
    mean = minus.mean(axis=0, keepdims=True)
    if spec.form == "lda":
        if np.linalg.norm(plus - mean) < contrast.TINY:
            raise LookupError(NO_DIRECTION)
        return np.concatenate([plus, mean])
    return contrast.shifted_query(plus, mean, spec.lam)


def _terms(h: Hypotheses, words: Mapping[str, str]) -> dict[str, float]:
    """Words of H+ with their weights; of the question where there is no H+. ``words`` are the texts
    of passages that are named."""
    target = [str(words.get(t.pid, t.text)) for t in h.texts if t.role != "mimic" and t.weight]
    mimics = " ".join(str(words.get(t.pid, t.text)) for t in _subtracted(h))
    return contrast_terms(" ".join(target), mimics, h.spec.lam)


def _without(hits: Hits, excluded: frozenset[str], k: int) -> Hits:
    keep = np.flatnonzero([pid not in excluded for pid in hits.ids[0].tolist()])[:k]
    return Hits(hits.scores[:, keep], hits.rows[:, keep], hits.ids[:, keep])
