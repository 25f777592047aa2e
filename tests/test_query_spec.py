"""Search specifications against their definitions in float64, passage by passage; random mimics.

The corpus is random: forty texts whose vectors lie in a narrow cone, as encoders put them.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import fractional_matrix_power

from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.methods import Fusion, Hypotheses, SearchSpec, Sparse, Text
from lib.query_spec import DRAWS, Form, Request, Space, with_random_mimics
from lib.run import Retriever
from lib.search import scoring, whitening
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex

# That a negative lambda is said has a test of its own, with the profiles.
pytestmark = pytest.mark.filterwarnings("ignore:lam = .* adds the mimic")

DIM, N = 12, 40
WORDS = [f"word{i}" for i in range(18)]
CONE = np.random.default_rng(0).normal(size=DIM)
SPREAD = np.linspace(0.3, 2.0, DIM)
"""How far the cone opens in each direction: unevenly, so that whitening changes rankings."""


@cache
def vector_of(text: str, tower: str = "article") -> np.ndarray:
    """A random direction for each text, float64 of a float32; the towers read differently."""
    seed = int.from_bytes(hashlib.sha256(f"{tower} {text}".encode()).digest()[:8], "big")
    raw = CONE + SPREAD * np.random.default_rng(seed).normal(size=DIM)
    return (raw / np.linalg.norm(raw)).astype(np.float32).astype(np.float64)


class Cone(HashEncoder):
    """An encoder that gives ``vector_of``."""

    def __init__(self):
        super().__init__(dim=DIM)

    def encode(self, items, tower="query", progress=True):
        rows = [vector_of(item, tower) for item in items]
        return np.array(rows, np.float32).reshape(-1, DIM)


RNG = np.random.default_rng(1)
TEXTS = [" ".join(RNG.choice(WORDS, size=9)) + f" number{i}" for i in range(N)]
IDS = [f"p{i:02d}" for i in RNG.permutation(N)]
DOCS = np.array([vector_of(text) for text in TEXTS])


def source_of(pid: str) -> str:
    """Three sources of different sizes."""
    return "large" if int(pid[1:]) % 5 else ("small" if int(pid[1:]) % 2 else "middle")


# definitions -------------------------------------------------------------------------------------


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def shrunk(docs: np.ndarray, rho: float) -> np.ndarray:
    covariance = np.cov(docs.T, bias=True)
    return (1 - rho) * covariance + rho * np.trace(covariance) / DIM * np.eye(DIM)


def moved(spec: SearchSpec, vectors: np.ndarray) -> np.ndarray:
    """Vectors in the specification's space."""
    if spec.space == "cosine":
        return vectors
    if spec.space == "centred":
        return unit(vectors - DOCS.mean(axis=0))
    return unit((vectors - DOCS.mean(axis=0)) @ inverse_root(spec.shrink))


@cache
def inverse_root(rho: float) -> np.ndarray:
    return fractional_matrix_power(shrunk(DOCS, rho), -0.5)


def chosen(h: Hypotheses) -> list[Text]:
    """Every mimic of the kind; of strangers the one that is drawn."""
    mimics = [t for t in h.texts if t.role == "mimic" and t.kind == h.spec.mimic]
    if h.spec.mimic == "stranger":
        return [mimics[h.spec.draw % len(mimics)]]
    return mimics if h.spec.form in ("mean", "max", "softmax", "lda") else mimics[:1]


def at(h: Hypotheses, text: Text) -> np.ndarray:
    return moved(h.spec, vector_of(text.text, text.tower))


def dense_scores(h: Hypotheses, hub_queries: Sequence[Text] = ()) -> np.ndarray:
    """S(d) of every passage, (N,), from the definition of its form."""
    spec, docs = h.spec, moved(h.spec, DOCS)
    question = docs @ at(h, *[t for t in h.texts if t.role == "question"])
    if spec.form == "question":
        return question
    target = sum(t.weight * at(h, t) for t in h.texts if t.role != "mimic" and t.weight)
    plus = docs @ target
    added = plus + spec.question_weight * question
    if spec.form == "csls":
        cosines = np.array([docs @ at(h, text) for text in hub_queries])
        return added - spec.lam * np.sort(cosines, axis=0)[-10:].mean(axis=0)
    if not spec.lam:
        return added
    mimics = np.array([turned(h)] if spec.rotation else [at(h, t) for t in chosen(h)])
    minus = mimics @ docs.T
    match spec.form:
        case "single":
            worst = minus[0]
        case "mean":
            worst = minus.mean(axis=0)
        case "max":
            worst = minus.max(axis=0)
        case "softmax":
            worst = spec.tau * np.log(np.exp(minus / spec.tau).mean(axis=0))
        case "margin":
            worst = np.maximum(0, minus[0] - plus + spec.margin)
        case "lda":  # Fisher's direction in the space that is searched, which is added
            inverse = np.linalg.inv(shrunk(docs, spec.shrink))
            worst = -(docs @ unit(inverse @ (target - mimics.mean(axis=0))))
    return added - spec.lam * worst


def turned(h: Hypotheses) -> np.ndarray:
    """As near to h+ as h- is, in the plane of h+ and the drawn stranger."""
    strangers = [t for t in h.texts if t.role == "mimic" and t.kind == "stranger"]
    stranger = strangers[h.spec.draw % len(strangers)]
    (target,) = [t for t in h.texts if t.role == "target"]
    plus, minus, other = (at(h, t) for t in (target, chosen(h)[0], stranger))
    cosine = plus @ minus
    return cosine * plus + math.sqrt(1 - cosine**2) * unit(other - (plus @ other) * plus)


BAGS = [Counter(text.split()) for text in TEXTS]
LENGTH = np.mean([bag.total() for bag in BAGS])


def bm25(word: str) -> np.ndarray:
    """Lucene's BM25 of one word with every passage, k1 = 0.9 and b = 0.4."""
    df = sum(word in bag for bag in BAGS)
    idf = math.log(1 + (N - df + 0.5) / (df + 0.5))
    norms = [bag[word] + 0.9 * (0.6 + 0.4 * bag.total() / LENGTH) for bag in BAGS]
    return np.array([idf * bag[word] / n for bag, n in zip(BAGS, norms, strict=True)])


def lexical_scores(h: Hypotheses) -> np.ndarray:
    """BM25 with the words of H+, each by 1 + lambda times its log-odds against H-."""
    target = " ".join(t.text for t in h.texts if t.role != "mimic" and t.weight)
    plus, minus = Counter(target.split()), Counter(chosen(h)[0].text.split())
    size = len({*plus, *minus})

    def odds(count: int, total: int) -> float:
        return math.log((count + 0.5) / (total - count + 0.5 * (size - 1)))

    total = np.zeros(N)
    for word, count in plus.items():
        delta = odds(count, plus.total()) - odds(minus[word], minus.total())
        total += count * max(0.0, 1 + h.spec.lam * delta) * bm25(word)
    return total


def ranked(scores: np.ndarray, h: Hypotheses | Sparse, k: int, among=None) -> list[str]:
    """The k best ids by score rounded to 1e-5, ties by id, without what may not be found."""
    excluded = h.excluded if isinstance(h, Hypotheses) else ()
    allowed = [i for i in range(N) if IDS[i] not in excluded]
    allowed = [i for i in allowed if not h.sources or source_of(IDS[i]) in h.sources]
    if among is not None:
        allowed = [i for i in allowed if IDS[i] in among]
    return [IDS[i] for i in sorted(allowed, key=lambda i: (-round(scores[i], 5), IDS[i]))][:k]


def merged(lists: list[list[str]], how: str, rrf_k: int, k: int) -> list[str]:
    """Lists of ids as one, by reciprocal rank or in turns."""
    points: dict[str, list[float]] = defaultdict(list)
    for number, ids in enumerate(lists):
        for rank, pid in enumerate(ids, 1):
            turn = rank * len(lists) + number
            points[pid].append(1 / (rrf_k + rank) if how == "rrf" else -turn)
    join = sum if how == "rrf" else max
    total = {pid: round(join(given), 12) for pid, given in points.items()}
    return sorted(total, key=lambda pid: (-total[pid], pid))[:k]


def expected(h: Request, k: int, hub_queries: Sequence[Text] = ()) -> list[str]:
    """What is found, by brute force."""
    if isinstance(h, Sparse):
        scores = sum(bm25(word) for word in h.text.split())
        return ranked(scores, h, k, {IDS[i] for i in np.flatnonzero(scores > 0)})
    if isinstance(h, Fusion):
        lists = [expected(part, h.depth or 2 * k, hub_queries) for part in h.requests]
        return merged(lists, h.how, h.rrf_k, k)
    form = h.spec.form
    if form == "lexical":
        scores = lexical_scores(h)
        return ranked(scores, h, k, {IDS[i] for i in np.flatnonzero(scores.round(5) > 0)})
    if form == "fused":
        lists = [expected(h.by(form=part), N) for part in ("single", "lexical")]
        return merged(lists, "rrf", 60, k)
    among = None
    if h.spec.pool:
        (target,) = [t for t in h.texts if t.role == "target"]
        first = moved(h.spec, DOCS) @ moved(h.spec, vector_of(target.text))
        among = ranked(first, h, h.spec.pool)
    return ranked(dense_scores(h, hub_queries), h, k, among)


# the corpus and the questions --------------------------------------------------------------------


def written(qid: str, n: int = 3, **changes) -> Hypotheses:
    """H+, one mimic of the question's own, ``n`` of a differential, and the question."""

    def said(what: str, words: int = 6) -> str:
        seed = int.from_bytes(hashlib.sha256(f"{qid} {what}".encode()).digest()[:8], "big")
        return " ".join(np.random.default_rng(seed).choice(WORDS, size=words))

    texts = [Text(said("H+"), 1.0, "article", "target"), Text(said("H-", 9), role="mimic")]
    texts += [Text(said(f"other {i}"), role="mimic", kind="several") for i in range(n)]
    texts.append(Text(said("?"), 0.0, "query", "question"))
    return Hypotheses(tuple(texts), SearchSpec(**changes), qid=qid)


ASKED = with_random_mimics({f"q{i}": written(f"q{i}") for i in range(14)})
EVERYONE = tuple(h.of("target")[0] for h in ASKED.values())


@pytest.fixture(scope="module")
def retriever(tmp_path_factory) -> Retriever:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("specs")))
        # Blocks of a few passages, fewer where questions have many vectors.
        patch.setattr(scoring, "BLOCK", 7)
        patch.setattr(scoring, "PRODUCTS", 100)
        patch.setattr(whitening, "BLOCK", 7)
        index = DenseIndex([DOCS[:25].astype(np.float32), DOCS[25:].astype(np.float32)], IDS)
        pairs = zip(IDS, TEXTS, strict=True)
        passages = [Passage(pid, "", text, source_of(pid), {}) for pid, text in pairs]
        store = PassageStore.build(tmp_path_factory.mktemp("store") / "p.sqlite", passages)
        plain = Retriever(index, Cone(), store, BM25Index.build(TEXTS, IDS))
        yield plain.with_hub_queries(ASKED.values())


def found(retriever: Retriever, h: Hypotheses, k: int) -> list[str]:
    (hits,) = retriever.search_many([h], k)
    assert not isinstance(hits, str), hits
    return hits.ids[0].tolist()


# every form --------------------------------------------------------------------------------------

DENSE = ("single", "mean", "max", "softmax", "margin", "lda", "csls", "question")
CONTRASTS = DENSE[:-2]
SPACES = get_args(Space)
assert {*DENSE, "lexical", "fused", "random"} == set(get_args(Form)), (
    "a form has no definition here"
)


def kind_for(form: str) -> str:
    return "several" if form in ("mean", "max", "softmax", "lda") else ""


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("form", DENSE)
def test_a_form_in_a_space_has_the_scores_of_its_definition(retriever, form, space):
    for lam in (0.0, 0.3, 1.0):
        spec = SearchSpec(form, kind_for(form), lam, space, shrink=0.4, tau=0.05, margin=0.1)
        requests = [replace(h, spec=spec) for h in ASKED.values()]
        for h, hits in zip(requests, retriever.search_many(requests, 7), strict=True):
            assert hits.ids[0].tolist() == expected(h, 7, EVERYONE)
            scores = dict(zip(IDS, dense_scores(h, EVERYONE), strict=True))
            own = [scores[pid] for pid in hits.ids[0].tolist()]
            assert hits.scores[0].tolist() == pytest.approx(own, abs=3e-5)


@st.composite
def specs(draw) -> SearchSpec:
    """Any specification whose parts go together."""
    form = draw(st.sampled_from([*DENSE, "lexical", "fused"]))
    of_words = form in ("lexical", "fused")
    pool = draw(st.sampled_from([0, 0, 6, 15])) if form in ("single", "mean", "lda") else 0
    least = 0.0 if form in ("max", "margin") else -1.0
    rotation = form in CONTRASTS and draw(st.booleans())
    kinds = ["", "stranger"] if rotation or not kind_for(form) else ["", "several", "stranger"]
    return SearchSpec(
        form,
        "" if rotation else draw(st.sampled_from(kinds)),
        lam=draw(st.sampled_from([x for x in (-1.0, -0.3, 0.0, 0.4, 1.0, 2.5) if x >= least])),
        space="cosine" if of_words else draw(st.sampled_from(SPACES)),
        rotation=rotation,
        pool=pool,
        question_weight=draw(st.sampled_from([0.0, 0.0, 0.5, -0.2])) * (not of_words),
        draw=draw(st.integers(0, 2 * DRAWS)),
        shrink=draw(st.sampled_from([0.1, 0.5, 1.0])),
        tau=draw(st.sampled_from([0.02, 0.1, 1.0])),
        margin=draw(st.sampled_from([0.0, 0.1])),
    )


out_of_reach = st.frozensets(st.sampled_from(IDS), max_size=5)
qids = st.sampled_from(sorted(ASKED))


@given(specs(), qids, out_of_reach, st.integers(1, 12))
@settings(max_examples=300)
def test_any_specification_is_its_definition(retriever, spec, qid, excluded, k):
    h = replace(ASKED[qid], spec=spec, excluded=excluded)
    assert found(retriever, h, k) == expected(h, k, EVERYONE)


@given(st.lists(st.tuples(specs(), qids, out_of_reach), min_size=2, max_size=8), st.integers(1, 8))
@settings(max_examples=25)
def test_requests_of_one_batch_equal_each_alone(retriever, asked, k):
    requests = [replace(ASKED[qid], spec=spec, excluded=out) for spec, qid, out in asked]
    # Every request again at further lambdas: these share one search.
    requests += [h.by(lam=lam) for h in requests for lam in (0.0, 0.2, 1.7)]
    requests += [h.by(form="random", pool=0) for h in requests]
    together = retriever.search_many(requests, k)
    for request, hits in zip(requests, together, strict=True):
        (alone,) = retriever.search_many([request], k)
        assert hits.ids.tolist() == alone.ids.tolist()
        assert np.array_equal(hits.scores, alone.scores)


PLUS, MINUS = ASKED["q0"], ASKED["q1"].by(lam=0.7)
REQUESTS = {
    "words": Sparse("word1 word2 word2 word8"),
    "words that no passage has": Sparse("unheard of"),
    "words of one source": Sparse("word1 word2 word8", ("middle",)),
    "two sources": replace(MINUS, sources=("small", "middle")),
    "ranks": Fusion((PLUS, Sparse("word1 word9"), MINUS)),
    "ranks, shallow": Fusion((PLUS, Sparse("word1")), rrf_k=1, depth=3),
    "turns": Fusion(
        tuple(replace(PLUS, sources=(source,)) for source in ("large", "small", "middle")),
        "balanced",
        depth=3,
    ),
    "fusion of fusions": Fusion((Fusion((PLUS, Sparse("word3"))), MINUS.by(pool=9))),
}


@pytest.mark.parametrize("k", [1, 7])
def test_every_other_kind_of_request_is_its_definition(retriever, k):
    hits = retriever.search_many(list(REQUESTS.values()), k)
    found = dict(zip(REQUESTS, (it.ids[0].tolist() for it in hits), strict=True))
    assert found == {name: expected(request, k) for name, request in REQUESTS.items()}
    assert not found["words that no passage has"]


# what has no direction, or is not there -----------------------------------------------------------


def pair(target: str, *mimics: str, **changes) -> Hypotheses:
    texts = [Text(target, 1.0, "article", "target")]
    texts += [Text(m, role="mimic") for m in mimics]
    return Hypotheses(tuple(texts), SearchSpec(lam=1.0, **changes))


SAME = "word1 word2"
TWINS, TRIPLET = pair(SAME, SAME), pair(SAME, SAME, SAME)
PARALLEL = replace(TWINS, texts=(*TWINS.texts, Text(SAME, role="mimic", kind="stranger")))
ALONE = with_random_mimics({"q0": written("q0")})["q0"]
NOWHERE = {
    "zero or tiny query": [
        TWINS,
        TWINS.by(lam=0.9995),
        TWINS.by(pool=9),
        *(TWINS.by(space=space) for space in SPACES),
        TRIPLET.by(form="mean"),
        TRIPLET.by(form="softmax"),
        pair(SAME, "word5", SAME, form="max"),
        TWINS.by(form="lda"),
        TWINS.by(form="lda", pool=9),
        TWINS.by(form="fused"),
        Hypotheses((Text(SAME, 1.0), Text(SAME, -1.0))),
        Fusion((pair(SAME), TWINS)),
    ],
    "no mimic of the kind 'stranger'": [
        ALONE.by(lam=0.5, mimic="stranger", form=form) for form in ("single", "lexical", "fused")
    ],
    "no mimic of the kind 'nearest'": [ALONE.by(lam=0.5, mimic="nearest")],
    "no other question has a mimic": [ALONE.by(lam=0.5, rotation=True)],
    "no question among the texts": [TWINS.by(form="question")],
    "parallel": [PARALLEL.by(rotation=True)],
}


@pytest.mark.parametrize("reason", NOWHERE)
def test_what_has_no_direction_or_is_not_there_is_named_and_ranked_by_no_noise(retriever, reason):
    good = ASKED["q1"].by(lam=0.4)
    for request in NOWHERE[reason]:
        hits = retriever.search_many([request, good], 4)
        assert isinstance(hits[0], str) and reason in hits[0]
        assert hits[1].ids[0].tolist() == expected(good, 4)


def test_wrong_settings_are_refused(retriever):
    for wrong in (
        {"form": "sum"},
        {"space": "sphere"},
        {"form": "max", "pool": 5},
        {"form": "lexical", "pool": 5},
        {"form": "lexical", "rotation": True},
        {"form": "max", "lam": -0.1},
        {"form": "margin", "lam": -0.1},
        {"pool": 2.5},
        {"lam": None},
        {"lam": float("nan")},
        {"question_weight": float("inf")},
        {"shrink": 0.0},
        {"tau": 0.0},
        {"draw": -1},
    ):
        with pytest.raises(ValueError):
            SearchSpec(**wrong)
    for k in (0, 2.5, None):
        for request in (ASKED["q0"], ASKED["q0"].by(form="random"), Sparse("word1")):
            with pytest.raises(ValueError, match="^k must be a whole number of at least 1"):
                retriever.search_many([request], k)
    bare = Retriever(retriever.index, retriever.encoder)
    with pytest.raises(ValueError, match=r"retriever\.with_hub_queries"):
        bare.search_many([ASKED["q0"].by(form="csls", lam=0.5)], 3)


def test_random_passages_are_any_the_same_for_a_question_and_others_for_another_draw(retriever):
    h = ASKED["q0"].by(form="random")
    first = found(retriever, h, 8)
    assert first == found(retriever, h.by(lam=0.4), 8) and len(set(first)) == 8
    rest = found(retriever, replace(h, excluded=frozenset(first[::2])), 8)
    assert not set(first[::2]) & set(rest) and len(set(rest)) == 8
    others = {tuple(found(retriever, h.by(draw=d), 8)) for d in range(10)}
    assert len(others) == 10 and tuple(first) in others
    counts: Counter[str] = Counter()
    for i in range(400):
        counts.update(found(retriever, replace(h, qid=f"{i}"), 4))
    assert set(counts) == set(IDS) and max(counts.values()) < 80  # 40 expected of each


# random mimics -----------------------------------------------------------------------------------


def strangers(h: Hypotheses) -> list[str]:
    return [t.text for t in h.of("mimic", "stranger")]


said = st.sampled_from([f"text {i}" for i in range(7)])
topics = st.frozensets(st.sampled_from("abcdef"), max_size=2)
populations = st.dictionaries(
    st.sampled_from([f"q{i}" for i in range(9)]), st.tuples(said, said, topics), min_size=1
)


@given(populations, st.integers(1, 5), st.integers(0, 3), st.randoms())
@settings(max_examples=150)
def test_a_random_mimic_says_nothing_of_the_questions_own_and_shares_no_topic(
    asked, draws, seed, rng
):
    population = {
        # Letters and white space do not make another text.
        qid: replace(pair(target, rng.choice([mimic, f" {mimic.upper()} "])), topics=about)
        for qid, (target, mimic, about) in asked.items()
    }
    drawn = with_random_mimics(population, draws, seed)
    for qid, (target, mimic, about) in asked.items():
        # Whoever else says the same may know this question's topics: then it is no random one.
        fit = {m for _, m, _ in asked.values()} - {target, mimic}
        fit -= {m for _, m, other in asked.values() if other & about}
        got = [text.strip().lower() for text in strangers(drawn[qid])]
        assert set(got) <= fit
        assert len(got) == len(set(got)) == min(draws, len(fit))
        own = tuple(t for t in drawn[qid].texts if t.kind != "stranger")
        assert own == population[qid].texts and drawn[qid].spec == population[qid].spec
    order = list(population)
    rng.shuffle(order)
    assert with_random_mimics({q: population[q] for q in order}, draws, seed) == drawn


def test_another_seed_is_another_draw_and_few_questions_give_few():
    alone = {qid: written(qid) for qid in ASKED}
    drawn = [strangers(with_random_mimics(alone, 3, seed)["q0"]) for seed in range(6)]
    assert len({tuple(x) for x in drawn}) > 1
    few = with_random_mimics({q: alone[q] for q in ("q0", "q1", "q2")})
    assert [len(strangers(h)) for h in few.values()] == [2, 2, 2]
    # Three of the same twelve, but not the same three for every question.
    common = {qid: pair(f"target {qid}", f"mimic {i % 12}") for i, qid in enumerate(alone)}
    assert len({tuple(strangers(h)) for h in with_random_mimics(common, 3).values()}) > 5
