"""Every form of a way against its definition in float64, passage by passage, and who is a stranger.

The corpus is random: forty texts whose vectors lie in a narrow cone, as encoders put them.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import fractional_matrix_power

from lib.embed import HashEncoder
from lib.methods import Fusion, Hypotheses, SearchSpec, Sparse, Text
from lib.query_spec import DRAWS, Form, Space, with_random_mimics
from lib.run import Retriever
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

# definitions -------------------------------------------------------------------------------------


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def shrunk(docs: np.ndarray, rho: float) -> np.ndarray:
    covariance = np.cov(docs.T, bias=True)
    return (1 - rho) * covariance + rho * np.trace(covariance) / DIM * np.eye(DIM)


def moved(spec: SearchSpec, vectors: np.ndarray) -> np.ndarray:
    """Vectors in the way's space."""
    if spec.space == "cosine":
        return vectors
    if spec.space == "centred":
        return unit(vectors - DOCS.mean(axis=0))
    return unit((vectors - DOCS.mean(axis=0)) @ whitening(spec.shrink))


@cache
def whitening(rho: float) -> np.ndarray:
    return fractional_matrix_power(shrunk(DOCS, rho), -0.5)


def chosen(h: Hypotheses) -> list[Text]:
    """Every mimic of the kind; of strangers the one that is drawn."""
    mimics = [t for t in h.texts if t.role == "mimic" and t.kind == h.spec.mimic]
    if h.spec.mimic == "stranger":
        return [mimics[h.spec.draw % len(mimics)]]
    return mimics if h.spec.form in ("mean", "max", "softmax", "lda") else mimics[:1]


def dense_scores(h: Hypotheses, hub_queries: Sequence[Text] = ()) -> np.ndarray:
    """S(d) of every passage, (N,), from the definition of its form."""
    spec, docs = h.spec, moved(h.spec, DOCS)

    def near(text: Text) -> np.ndarray:
        return docs @ moved(spec, vector_of(text.text, text.tower))

    (asked,) = [t for t in h.texts if t.role == "question"]
    if spec.form == "question":
        return near(asked)
    plus = sum(t.weight * near(t) for t in h.texts if t.role != "mimic" and t.weight)
    added = spec.question_weight * near(asked)
    if spec.form == "csls":
        cosines = np.array([near(text) for text in hub_queries])
        return plus + added - spec.lam * np.sort(cosines, axis=0)[-10:].mean(axis=0)
    if not spec.lam:
        return plus + added
    minus = np.array([near(t) for t in chosen(h)])
    if spec.rotation:
        minus = (docs @ turned(h))[None]
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
        case "lda":
            return plus + added + spec.lam * (docs @ lda_direction(h, docs))
    return plus + added - spec.lam * worst


def written_vector(h: Hypotheses) -> np.ndarray:
    own = [t for t in h.texts if t.role != "mimic" and t.weight]
    return sum(t.weight * moved(h.spec, vector_of(t.text, t.tower)) for t in own)


def lda_direction(h: Hypotheses, docs: np.ndarray) -> np.ndarray:
    """Fisher's direction in the space that is searched."""
    mimics = [moved(h.spec, vector_of(t.text, t.tower)) for t in chosen(h)]
    mean = turned(h) if h.spec.rotation else np.mean(mimics, axis=0)
    inverse = np.linalg.inv(shrunk(docs, h.spec.shrink))
    return unit(inverse @ (written_vector(h) - mean))


def turned(h: Hypotheses) -> np.ndarray:
    """As near to h+ as h- is, in the plane of h+ and the drawn stranger."""
    strangers = [t for t in h.texts if t.role == "mimic" and t.kind == "stranger"]
    stranger = strangers[h.spec.draw % len(strangers)]
    (target,) = [t for t in h.texts if t.role == "target"]
    plus, minus, other = (
        moved(h.spec, vector_of(t.text, t.tower)) for t in (target, chosen(h)[0], stranger)
    )
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


def ranked(scores: np.ndarray, h: Hypotheses, k: int, among=None) -> list[str]:
    """The k best ids by score rounded to 1e-5, ties by id, without what may not be found."""
    allowed = [i for i in range(N) if IDS[i] not in h.excluded]
    if among is not None:
        allowed = [i for i in allowed if IDS[i] in among]
    return [IDS[i] for i in sorted(allowed, key=lambda i: (-round(scores[i], 5), IDS[i]))][:k]


def expected(h: Hypotheses, k: int, hub_queries: Sequence[Text] = ()) -> list[str]:
    """What the way finds, by brute force."""
    form = h.spec.form
    if form == "lexical":
        scores = lexical_scores(h)
        return ranked(scores, h, k, {IDS[i] for i in np.flatnonzero(scores.round(5) > 0)})
    if form == "fused":
        total: Counter[str] = Counter()
        for part in ("single", "lexical"):
            for rank, pid in enumerate(expected(h.by(form=part), N), 1):
                total[pid] += 1 / (60 + rank)
        return sorted(total, key=lambda pid: (-round(total[pid], 12), pid))[:k]
    among = None
    if h.spec.pool:
        (target,) = [t for t in h.texts if t.role == "target"]
        first = moved(h.spec, DOCS) @ moved(h.spec, vector_of(target.text))
        among = ranked(first, h, h.spec.pool)
    return ranked(dense_scores(h, hub_queries), h, k, among)


# the corpus and the questions --------------------------------------------------------------------


def written(qid: str, n: int = 3, **changes) -> Hypotheses:
    """H+, one mimic of the question's own, ``n`` of a differential, and the question."""

    def said(what: str) -> str:
        seed = int.from_bytes(hashlib.sha256(f"{qid} {what}".encode()).digest()[:8], "big")
        return " ".join(np.random.default_rng(seed).choice(WORDS, size=6))

    texts = [Text(said("H+"), 1.0, "article", "target"), Text(said("H-"), role="mimic")]
    texts += [Text(said(f"other {i}"), role="mimic", kind="several") for i in range(n)]
    texts.append(Text(said("?"), 0.0, "query", "question"))
    return Hypotheses(tuple(texts), SearchSpec(**changes), qid=qid)


ASKED = with_random_mimics({f"q{i}": written(f"q{i}") for i in range(14)})
EVERYONE = tuple(h.of("target")[0] for h in ASKED.values())


@pytest.fixture(scope="module")
def retriever(tmp_path_factory) -> Retriever:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("ways")))
        index = DenseIndex([DOCS[:25].astype(np.float32), DOCS[25:].astype(np.float32)], IDS)
        plain = Retriever(index, Cone(), None, BM25Index.build(TEXTS, IDS))
        yield plain.with_hub_queries(ASKED.values())


def found(retriever: Retriever, h: Hypotheses, k: int) -> list[str]:
    (hits,) = retriever.search_many([h], k)
    assert not isinstance(hits, str), hits
    return hits.ids[0].tolist()


# every form --------------------------------------------------------------------------------------

DENSE = ("single", "mean", "max", "softmax", "margin", "lda", "csls", "question")
CONTRASTS = ("single", "mean", "max", "softmax", "margin", "lda", "csls")
SPACES = get_args(Space)


def kind_for(form: str) -> str:
    return "several" if form in ("mean", "max", "softmax", "lda") else ""


def test_no_form_is_left_out_here():
    assert {*DENSE, "lexical", "fused", "random"} == set(get_args(Form))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("form", DENSE)
def test_a_form_in_a_space_is_its_definition(retriever, form, space):
    for lam in (0.3, 1.0):
        spec = SearchSpec(form, kind_for(form), lam, space, shrink=0.4, tau=0.05, margin=0.1)
        requests = [replace(h, spec=spec) for h in ASKED.values()]
        for h, hits in zip(requests, retriever.search_many(requests, 7), strict=True):
            assert hits.ids[0].tolist() == expected(h, 7, EVERYONE)
            scores = dict(zip(IDS, dense_scores(h, EVERYONE), strict=True))
            own = [scores[pid] for pid in hits.ids[0].tolist()]
            assert hits.scores[0].tolist() == pytest.approx(own, abs=3e-5)


@pytest.mark.parametrize("form", ["lexical", "fused"])
@pytest.mark.parametrize("lam", [-0.5, 0.0, 0.4, 1.0])
def test_words_are_weighted_by_how_much_more_they_are_the_targets(retriever, form, lam):
    for h in ASKED.values():
        h = replace(h, spec=SearchSpec(form, lam=lam))
        assert found(retriever, h, 9) == expected(h, 9)


@st.composite
def specs(draw) -> SearchSpec:
    """Any way whose parts go together."""
    form = draw(st.sampled_from([*DENSE, "fused"]))
    pool = draw(st.sampled_from([0, 0, 6, 15])) if form in ("single", "mean", "lda") else 0
    least = 0.0 if form in ("max", "margin") else -1.0
    rotation = form in CONTRASTS and form != "csls" and draw(st.booleans())
    kinds = ["", "stranger"] if rotation or not kind_for(form) else ["", "several", "stranger"]
    return SearchSpec(
        form,
        "" if rotation else draw(st.sampled_from(kinds)),
        lam=draw(st.sampled_from([x for x in (-1.0, -0.3, 0.0, 0.4, 1.0, 2.5) if x >= least])),
        space="cosine" if form == "fused" else draw(st.sampled_from(SPACES)),
        rotation=rotation,
        pool=pool,
        question_weight=draw(st.sampled_from([0.0, 0.0, 0.5, -0.2])) * (form != "fused"),
        draw=draw(st.integers(0, 2 * DRAWS)),
        shrink=draw(st.sampled_from([0.1, 0.5, 1.0])),
        tau=draw(st.sampled_from([0.02, 0.1, 1.0])),
        margin=draw(st.sampled_from([0.0, 0.1])),
    )


@given(
    specs(),
    st.sampled_from(sorted(ASKED)),
    st.frozensets(st.sampled_from(IDS), max_size=5),
    st.integers(1, 12),
)
@settings(max_examples=250, deadline=None)
def test_any_way_is_its_definition_whatever_may_not_be_found(retriever, spec, qid, excluded, k):
    h = replace(ASKED[qid], spec=spec, excluded=excluded)
    assert found(retriever, h, k) == expected(h, k, EVERYONE)


def test_a_negative_lambda_adds_the_mimic(retriever):
    (h, *_) = ASKED.values()
    minus = replace(h, texts=tuple(t for t in h.texts if t.role == "mimic" and not t.kind))
    (mimic,) = minus.texts
    towards = found(retriever, h.by(lam=-1e5), 5)
    assert towards == found(retriever, Hypotheses((replace(mimic, role="target"),)), 5)


@pytest.mark.parametrize("form", ["max", "margin"])
def test_a_minimum_of_forms_takes_no_negative_lambda(form):
    with pytest.raises(ValueError, match="lambda"):
        SearchSpec(form, lam=-0.1)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("form", CONTRASTS)
def test_at_lambda_zero_every_form_is_h_plus_alone(retriever, form, space):
    for h in ASKED.values():
        alone = replace(h, texts=h.of("target"), spec=SearchSpec(space=space))
        zero = replace(h, spec=SearchSpec(form, kind_for(form), space=space, margin=0.2))
        (one,), (other,) = (retriever.search_many([x], 6) for x in (alone, zero))
        assert one.ids.tolist() == other.ids.tolist()
        assert one.scores == pytest.approx(other.scores, abs=2e-5)


def test_a_form_without_any_mimic_written_searches_with_what_there_is(retriever):
    """HyDE beside CHR in one batch: a way's lambda has nothing to subtract there."""
    plain = Hypotheses((Text("word1 word2", 1.0, "article", "passage"),))
    whole = ASKED["q0"]
    for form in CONTRASTS[:-1]:
        spec = SearchSpec(form, lam=0.7)
        hits = retriever.search_many([replace(plain, spec=spec), replace(whole, spec=spec)], 5)
        assert hits[0].ids[0].tolist() == found(retriever, plain, 5)
        assert hits[1].ids[0].tolist() == expected(replace(whole, spec=spec), 5)


# what a batch changes: nothing -------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            specs(),
            st.sampled_from(sorted(ASKED)),
            st.frozensets(st.sampled_from(IDS), max_size=4),
        ),
        min_size=2,
        max_size=8,
    ),
    st.integers(1, 8),
)
@settings(max_examples=25, deadline=None)
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


# what may not be found ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", get_args(Form))
def test_excluded_passages_never_come_back_and_k_are_still_found(retriever, form):
    for h in ASKED.values():
        spec = SearchSpec(form, lam=0.5)
        top = found(retriever, replace(h, spec=spec), 9)
        out = frozenset(top[::2])
        rest = found(retriever, replace(h, spec=spec, excluded=out), 9)
        assert out.isdisjoint(rest) and len(set(rest)) == 9
        assert [pid for pid in rest if pid in top] == [pid for pid in top if pid not in out] or (
            form in ("fused", "random", "lexical")
        )


def test_a_pool_is_of_passages_that_may_be_found(retriever):
    h = ASKED["q3"].by(lam=1.0, pool=6)
    out = frozenset(found(retriever, h.by(lam=0.0, pool=0), 4))
    left = found(retriever, replace(h, excluded=out), 6)
    assert len(left) == 6 and out.isdisjoint(left)
    assert left == expected(replace(h, excluded=out), 6)


# what has no direction ---------------------------------------------------------------------------


def pair(target: str, *mimics: str, **changes) -> Hypotheses:
    texts = [Text(target, 1.0, "article", "target")]
    texts += [Text(m, role="mimic") for m in mimics]
    return Hypotheses(tuple(texts), SearchSpec(lam=1.0, **changes))


SAME = "word1 word2"
NOWHERE = {
    "H+ = H-": pair(SAME, SAME),
    "nearly": pair(SAME, SAME).by(lam=0.9995),
    "in a pool": pair(SAME, SAME, pool=9),
    "centred": pair(SAME, SAME, space="centred"),
    "whitened": pair(SAME, SAME, space="whitened"),
    "the mean of mimics": pair(SAME, SAME, SAME, form="mean"),
    "one of several": pair(SAME, "word5", SAME, form="max"),
    "softmax of the same": pair(SAME, SAME, SAME, form="softmax"),
    "Fisher's direction": pair(SAME, SAME, form="lda"),
    "Fisher's direction in a pool": pair(SAME, SAME, form="lda", pool=9),
    "fused": pair(SAME, SAME, form="fused"),
    "weights that cancel": Hypotheses((Text(SAME, 1.0), Text(SAME, -1.0))),
    "in a fusion": Fusion((pair(SAME), pair(SAME, SAME))),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_a_query_without_direction_is_named_and_ranked_by_no_noise(retriever, name):
    good = ASKED["q1"].by(lam=0.4)
    hits = retriever.search_many([NOWHERE[name], good], 4)
    assert isinstance(hits[0], str) and "zero or tiny query" in hits[0]
    assert hits[1].ids[0].tolist() == expected(good, 4)


def test_a_direction_of_fisher_that_takes_h_plus_away_is_named(retriever):
    """With S shrunk to a multiple of the identity, the direction of h+ - (-h+) is h+ itself."""

    class Opposite(Cone):
        def encode(self, items, tower="query", progress=True):
            return np.array(
                [vector_of(SAME) * (-1 if item == "opposite" else 1) for item in items], np.float32
            )

    # Without a cache of vectors in common: this encoder says other things of the same texts.
    mine = Retriever(retriever.index, Opposite())
    mine._known |= {
        ("article", SAME): vector_of(SAME).astype(np.float32),
        ("article", "opposite"): -vector_of(SAME).astype(np.float32),
    }
    for pool in (0, 5):
        h = pair(SAME, "opposite", form="lda", shrink=1.0, pool=pool).by(lam=-1.0)
        (hits,) = mine.search_many([h], 3)
        assert isinstance(hits, str) and "zero or tiny query" in hits


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (SearchSpec(lam=0.5, mimic="stranger"), "stranger"),
        (SearchSpec(lam=0.5, mimic="nearest"), "no mimic of the kind 'nearest'"),
        (SearchSpec("lexical", lam=0.5, mimic="stranger"), "stranger"),
        (SearchSpec("fused", lam=0.5, mimic="stranger"), "stranger"),
        (SearchSpec(lam=0.5, rotation=True), "no other question has a mimic"),
        (SearchSpec("question"), "no question among the texts"),
    ],
)
def test_what_a_way_asks_for_and_nobody_wrote_is_said(retriever, spec, reason):
    (hits,) = retriever.search_many([replace(pair("word1", "word2"), spec=spec)], 3)
    assert isinstance(hits, str) and reason in hits


def test_a_stranger_parallel_to_h_plus_is_no_control(retriever):
    stranger = Text("word1", role="mimic", kind="stranger")
    h = pair("word1", "word2")
    h = replace(h, texts=(*h.texts, stranger)).by(rotation=True)
    (hits,) = retriever.search_many([h], 3)
    assert isinstance(hits, str) and "parallel" in hits


def test_a_rotation_keeps_the_angle_and_leaves_the_mimic(retriever):
    """Subtracting it changes what is found, and not as the right mimic does."""
    rows = [
        [found(retriever, h.by(lam=1.0, rotation=r), 5) for r in (False, True)]
        for h in ASKED.values()
    ]
    assert any(own != turned for own, turned in rows)
    draws = {
        tuple(found(retriever, ASKED["q0"].by(lam=1.0, rotation=True, draw=d), 5))
        for d in range(DRAWS)
    }
    assert len(draws) > 1


# settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"form": "sum"},
        {"space": "sphere"},
        {"form": "max", "pool": 5},
        {"form": "lexical", "pool": 5},
        {"pool": -1},
        {"pool": 2.5},
        {"lam": None},
        {"lam": float("nan")},
        {"question_weight": float("inf")},
        {"shrink": 0.0},
        {"tau": 0.0},
        {"draw": -1},
    ],
)
def test_a_way_that_does_not_exist_is_refused(wrong):
    with pytest.raises(ValueError):
        SearchSpec(**wrong)


@pytest.mark.parametrize("k", [0, -2, 2.5, None])
def test_k_is_a_count(retriever, k):
    for request in (ASKED["q0"], ASKED["q0"].by(form="random"), Sparse("word1")):
        with pytest.raises(ValueError, match="^k must be a whole number of at least 1"):
            retriever.search_many([request], k)


def test_csls_says_what_it_needs(retriever):
    bare = Retriever(retriever.index, retriever.encoder)
    with pytest.raises(ValueError, match=r"retriever\.with_hub_queries"):
        bare.search_many([ASKED["q0"].by(form="csls", lam=0.5)], 3)


def test_random_passages_are_any_the_same_for_a_question_and_others_for_another_draw(retriever):
    h = ASKED["q0"].by(form="random")
    first = found(retriever, h, 8)
    assert first == found(retriever, h.by(lam=0.4), 8) and len(set(first)) == 8
    others = {tuple(found(retriever, h.by(draw=d), 8)) for d in range(10)}
    assert len(others) == 10 and tuple(first) in others
    counts: Counter[str] = Counter()
    for i in range(400):
        counts.update(found(retriever, replace(h, qid=f"{i}"), 4))
    assert set(counts) == set(IDS) and max(counts.values()) < 80  # 40 expected of each


# strangers ---------------------------------------------------------------------------------------


def strangers(h: Hypotheses) -> list[str]:
    return [t.text for t in h.of("mimic", "stranger")]


said = st.sampled_from([f"text {i}" for i in range(7)])
topics = st.frozensets(st.sampled_from("abcdef"), max_size=2)
populations = st.dictionaries(
    st.sampled_from([f"q{i}" for i in range(9)]), st.tuples(said, said, topics), min_size=1
)


def population_of(asked: dict) -> dict[str, Hypotheses]:
    return {
        qid: replace(pair(target, mimic), qid=qid, topics=about)
        for qid, (target, mimic, about) in asked.items()
    }


@given(populations, st.integers(1, 5), st.integers(0, 3), st.randoms())
@settings(max_examples=150, deadline=None)
def test_a_stranger_says_nothing_of_the_questions_own_and_shares_no_topic(asked, draws, seed, rng):
    population = population_of(asked)
    drawn = with_random_mimics(population, draws, seed)
    for qid, (target, mimic, about) in asked.items():
        # Whoever else says the same may know this question's topics: then it is no stranger's.
        fit = {m for _, m, _ in asked.values()} - {target, mimic}
        fit -= {m for _, m, other in asked.values() if other & about}
        got = strangers(drawn[qid])
        assert set(got) <= fit
        assert len(got) == len(set(got)) == min(draws, len(fit))
        own = tuple(t for t in drawn[qid].texts if t.kind != "stranger")
        assert own == population[qid].texts and drawn[qid].spec == population[qid].spec
    order = list(population)
    rng.shuffle(order)
    assert with_random_mimics({q: population[q] for q in order}, draws, seed) == drawn


def test_a_text_in_other_letters_is_the_same_text():
    population = {
        "one": pair("Gout.", "Sepsis."),
        "two": pair("x", " GOUT. "),
        "three": pair("y", "sepsis."),
    }
    assert strangers(with_random_mimics(population)["one"]) == []


def test_another_seed_is_another_draw_and_few_questions_give_few():
    drawn = [strangers(with_random_mimics(ASKED_ALONE, 3, seed)["q0"]) for seed in range(6)]
    assert len({tuple(x) for x in drawn}) > 1
    assert drawn[0] == strangers(with_random_mimics(ASKED_ALONE, 3)["q0"])
    assert len(strangers(with_random_mimics(ASKED_ALONE)["q0"])) == 13  # all others, of 14
    few = with_random_mimics({q: ASKED_ALONE[q] for q in ("q0", "q1", "q2")})
    assert [len(strangers(h)) for h in few.values()] == [2, 2, 2]


ASKED_ALONE = {qid: written(qid) for qid in ASKED}


def test_a_draw_depends_on_nobodys_way_and_round_it_goes():
    turned = {qid: h.by(lam=0.9, space="centred") for qid, h in ASKED_ALONE.items()}
    for qid, h in with_random_mimics(turned).items():
        assert strangers(h) == strangers(ASKED[qid])


@pytest.mark.parametrize("control", [{"mimic": "stranger"}, {"rotation": True}])
def test_without_a_stranger_a_control_is_not_ranked_and_says_why(retriever, control):
    alone = with_random_mimics({"q0": ASKED_ALONE["q0"]})["q0"]
    (hits,) = retriever.search_many([alone.by(lam=0.5, **control)], 3)
    assert isinstance(hits, str) and ("stranger" in hits or "no other question" in hits)
    two = with_random_mimics({q: ASKED_ALONE[q] for q in ("q0", "q1")})["q0"]
    assert found(retriever, two.by(lam=0.5, **control, draw=7), 3)
