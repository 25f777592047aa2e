"""Every kind of request against brute force, runs and traces, and the index behind them."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

from lib import index_build
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.methods import Expansion, Fusion, Hypotheses, SearchSpec, Sparse, Text
from lib.methods.base import Taken, register
from lib.methods.postprocess import Filter, Rerank
from lib.run import RUN_COLUMNS, Retriever, expand_all
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from tests.retrieved import run_retrieval

WORDS = [f"word{i}" for i in range(25)]
RNG = random.Random(1)
TEXTS = [" ".join(RNG.choices(WORDS, k=RNG.randint(6, 14))) for _ in range(50)]
IDS = [f"p{i:02d}" for i in random.Random(2).sample(range(50), 50)]


class Counting(HashEncoder):
    """The hash encoder with two different towers, which keeps what it was given to encode."""

    def __init__(self):
        super().__init__(dim=64)
        self.seen = Counter()

    def encode(self, items, tower="query", progress=True):
        self.seen.update((tower, item) for item in items)
        rows = super().encode(items, tower, progress)
        return np.roll(rows, 1, axis=1) if tower == "query" else rows


def source_of(pid: str) -> str:
    """Three sources of different sizes."""
    return "large" if int(pid[1:]) % 5 else ("small" if int(pid[1:]) % 2 else "middle")


PLAIN = HashEncoder(dim=64)
DOCS = PLAIN.encode(TEXTS, "article").astype(np.float64)


@pytest.fixture(scope="module")
def retriever(tmp_path_factory) -> Retriever:
    folder = tmp_path_factory.mktemp("retriever")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(folder))
        index = DenseIndex([PLAIN.encode(TEXTS[:20]), PLAIN.encode(TEXTS[20:])], IDS)
        passages = [
            Passage(i, "", t, source_of(i), {}) for i, t in sorted(zip(IDS, TEXTS, strict=True))
        ]
        store = PassageStore.build(folder / "store.sqlite", passages)
        yield Retriever(index, Counting(), store, BM25Index.build(TEXTS, IDS))


# brute force -------------------------------------------------------------------------------------


def embedded(text, tower: str = "article") -> np.ndarray:
    text = text if isinstance(text, str) else text[1]  # a (title, text) pair of the article tower
    row = PLAIN.encode([text])[0].astype(np.float64)
    return np.roll(row, 1) if tower == "query" else row


def dense_scores(request: Hypotheses, lam: float | None = None) -> np.ndarray:
    """w_1 cos(d, text_1) + w_2 cos(d, text_2) + ..., one cosine at a time; a mimic's w is -lambda.

    The other forms of a way have tests of their own.
    """
    lam = request.spec.lam if lam is None else lam
    weights = [-lam if t.role == "mimic" else t.weight for t in request.texts]
    cosines = [DOCS @ embedded(t.text, t.tower) for t in request.texts]
    return sum(w * c for w, c in zip(weights, cosines, strict=True))


def bm25_scores(query: str) -> np.ndarray:
    """Lucene's BM25 with k1 = 0.9 and b = 0.4, word by word."""
    bags = [Counter(text.split()) for text in TEXTS]
    mean = np.mean([b.total() for b in bags])
    scores = np.zeros(len(bags))
    for word in query.split():
        df = sum(word in b for b in bags)
        idf = math.log(1 + (len(bags) - df + 0.5) / (df + 0.5))
        norm = [b[word] + 0.9 * (0.6 + 0.4 * b.total() / mean) for b in bags]
        scores += [idf * b[word] / n for b, n in zip(bags, norm, strict=True)]
    return scores


def best(scores: np.ndarray, k: int, among=None, sources=()) -> list[tuple[str, float]]:
    """Rounded to 1e-5, the best k rows, ties by passage id."""
    rows = range(len(IDS)) if among is None else among
    rows = [i for i in rows if not sources or source_of(IDS[i]) in sources]
    order = sorted(rows, key=lambda i: (-round(float(scores[i]), 5), IDS[i]))
    return [(IDS[i], float(scores[i])) for i in order[:k]]


def brute(request, k: int) -> list[tuple[str, float]]:
    match request:
        case Hypotheses(spec=SearchSpec(pool=0)):
            return best(dense_scores(request), k, sources=request.sources)
        case Hypotheses():
            pool = best(dense_scores(request, 0.0), request.spec.pool)
            return best(dense_scores(request), k, [IDS.index(pid) for pid, _ in pool])
        case Sparse():
            scores = bm25_scores(request.text)
            return best(scores, k, np.flatnonzero(scores > 0), request.sources)
        case Fusion(how="balanced"):
            lists = [brute(part, request.depth or 2 * k) for part in request.requests]
            points = {}
            for turn in range(max(map(len, lists))):
                for number, ranked in enumerate(lists):
                    if turn < len(ranked):
                        points.setdefault(ranked[turn][0], -((turn + 1) * len(lists) + number))
            return list(points.items())[:k]
        case Fusion():
            total = Counter()
            for part in request.requests:
                ranked = brute(part, request.depth or 2 * k)
                for rank, (pid, _) in enumerate(ranked, 1):
                    total[pid] += 1 / (request.rrf_k + rank)
            order = sorted(total, key=lambda pid: (-round(total[pid], 12), pid))
            return [(pid, total[pid]) for pid in order[:k]]


def dense(*parts: tuple[str, float]) -> Hypotheses:
    return Hypotheses(tuple(Text(text, weight) for text, weight in parts))


def contrasted(target: str, mimic: str, **spec) -> Hypotheses:
    return Hypotheses((Text(target, role="target"), Text(mimic, role="mimic")), SearchSpec(**spec))


PLUS, MINUS, THIRD = "word1 word2 word3", "word3 word4 word5", "word6 word7"
REQUESTS = {
    "one text": dense((PLUS, 1.0)),
    "contrast": contrasted(PLUS, MINUS, lam=0.7),
    "contrast by weights": dense((PLUS, 1.0), (MINUS, -0.7)),
    "mean of three": dense((PLUS, 1.0), (MINUS, 1.0), (THIRD, 1.0)),
    "query tower": Hypotheses((Text(PLUS, 1.0, "query"), Text(THIRD, 0.4, "article"))),
    "titles are not read": Hypotheses((Text(("word9", PLUS)),)),
    "pool": contrasted(PLUS, MINUS, lam=1.0, pool=12),
    "whole pool": contrasted(PLUS, MINUS, lam=1.0, pool=500),
    "sparse": Sparse("word1 word2 word2 word8"),
    "sparse, nothing found": Sparse("unheard of"),
    "rrf": Fusion((dense((PLUS, 1.0)), Sparse("word1 word9"), dense((THIRD, 1.0)))),
    "rrf, shallow": Fusion((dense((PLUS, 1.0)), Sparse("word1")), rrf_k=1, depth=3),
    "one source": replace(dense((PLUS, 1.0)), sources=("small",)),
    "two sources": replace(contrasted(PLUS, MINUS, lam=0.7), sources=("small", "middle")),
    "words of one source": Sparse("word1 word2 word8", ("middle",)),
    "balanced": Fusion(
        tuple(replace(dense((PLUS, 1.0)), sources=(s,)) for s in ("large", "small", "middle")),
        "balanced",
        depth=3,
    ),
    "fusion of fusions": Fusion(
        (Fusion((dense((PLUS, 1.0)), Sparse("word3"))), contrasted(MINUS, THIRD, lam=0.5, pool=9)),
    ),
}


@pytest.mark.parametrize("k", [1, 7])
def test_every_kind_of_request_is_its_brute_force(retriever, k):
    found = retriever.search_many(list(REQUESTS.values()), k)
    assert len(found) == len(REQUESTS)
    for (name, request), hits in zip(REQUESTS.items(), found, strict=True):
        want = brute(request, k)
        assert hits.ids[0].tolist() == [pid for pid, _ in want], name
        assert hits.scores[0].tolist() == pytest.approx([s for _, s in want], abs=2e-5), name
        alone = retriever.search_many([request], k)[0]
        assert alone.ids.tolist() == hits.ids.tolist(), name
    assert len(brute(REQUESTS["sparse, nothing found"], k)) == 0


def test_what_cannot_be_searched_says_why(retriever):
    with pytest.raises(ValueError, match="zero or tiny query"):
        retriever.search(TWINS, 3)
    with pytest.raises(ValueError, match=r"no BM25 index: build one with BM25Index\.build"):
        Retriever(retriever.index, PLAIN).search_many([Sparse("word1")], 3)
    with pytest.raises(ValueError, match="'guidelines'; there are: large, middle, small"):
        retriever.search_many([replace(dense((PLUS, 1.0)), sources=("small", "guidelines"))], 3)


# runs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A method that answers with requests made beforehand."""

    requests: tuple
    name: str = "given"
    needs_llm: bool = False
    options_visible: bool = False

    def budget(self) -> None:
        return None

    def expand(self, question, llm, search) -> Expansion:
        request = self.requests[int(question.qid)]
        return Expansion(request, {"seen": question.qid} | ({} if request else {"error": "broken"}))


def ask(n: int) -> list[Question]:
    return [Question(str(i), f"word{i}", {}, "", "mine") for i in range(n)]


def test_a_run_has_one_row_per_question_and_rank(retriever):
    given_ = Given((REQUESTS["sparse"], REQUESTS["contrast"], REQUESTS["rrf"]))
    run, traces = run_retrieval(given_, ask(3), retriever, k=4)
    assert tuple(run.columns) == RUN_COLUMNS and (run["method"] == "given").all()
    for qid, request in zip("012", given_.requests, strict=True):
        rows = run[run["qid"] == qid]
        assert rows["rank"].tolist() == [1, 2, 3, 4]
        assert rows["pid"].tolist() == [pid for pid, _ in brute(request, 4)]
    assert traces == {q: {"seen": q, "searches": 0} for q in "012"}


TWINS = dense((PLUS, 1.0), (PLUS, -1.0))


EMPTY = (
    Hypotheses((Text(" ", 1.0, "query", "target"),)),
    Hypotheses((Text("gout", 1.0, "query", "target"), Text(("", "\n"), 1.0, "article", "mimic"))),
    Sparse(""),
    Fusion((Sparse("gout"), Sparse("\t"))),
)


@pytest.mark.fault(
    "numbers", "An own method gives nothing or an empty text, or has a name that is taken"
)
def test_an_empty_text_is_a_failure_and_never_ranked(retriever, fault):
    run, traces = run_retrieval(Given((*EMPTY, REQUESTS["sparse"])), ask(5), retriever, k=3)
    assert ["empty" in traces[qid].get("error", "") for qid in "01234"] == [True] * 4 + [False]
    ranked = len(set(run["qid"]) & set("0123"))
    fault.came(tries=4, lost="4" not in set(run["qid"]), wrong=ranked, said=traces["0"]["error"])


@pytest.mark.fault(
    "numbers", "An own method gives nothing or an empty text, or has a name that is taken"
)
def test_a_method_that_gives_nothing_or_has_a_name_that_is_taken_is_named(fault):
    @dataclass(frozen=True)
    class Silent(Given):
        def expand(self, question, llm, search):
            return None

    with pytest.raises(TypeError, match="method silent, question 0: expand gave None") as error:
        expand_all(Silent((), "silent"), ask(1))
    with pytest.raises(ValueError, match="two methods are called 'chr'"):
        register(Given((), name="chr"))
    fault.came(tries=2, said=error.value)


# after the search --------------------------------------------------------------------------------


ASKED = Question("q", PLUS, {"A": "word1", "B": "word9"}, "A", "mine")


def shorter_is_better(pairs) -> np.ndarray:
    return np.array([-float(len(text)) for _, text in pairs])


@dataclass(frozen=True)
class Then:
    """A method that searches with the question and then takes some steps."""

    after: tuple
    depth: int = 0
    name: str = "then"
    needs_llm: bool = False
    options_visible: bool = False

    def budget(self):
        return None

    def expand(self, question, llm, search) -> Expansion:
        return Expansion(dense((question.text, 1.0)), {}, self.after, self.depth)


@pytest.mark.parametrize("depth", [0, 5, 20])
def test_a_reranker_orders_the_deeper_list_and_the_best_k_of_it_are_left(retriever, depth):
    steps = (Rerank(shorter_is_better),)
    found, traces = run_retrieval(Then(steps, depth), [ASKED], retriever, k=3)
    text_of = dict(zip(IDS, TEXTS, strict=True))
    searched = dict(brute(dense((PLUS, 1.0)), max(depth, 3)))
    want = sorted(searched, key=lambda pid: (len(text_of[pid]), pid))[:3]
    assert found["pid"].tolist() == want
    assert found["score"].tolist() == pytest.approx([searched[pid] for pid in want], abs=2e-5)
    (record,) = traces["q"]["after"]
    assert record["step"] == "rerank"
    assert record["pairs"] == len(record["given"]) == max(depth, 3)


def test_a_filter_keeps_what_is_at_the_threshold_and_says_where_it_keeps_nothing(retriever):
    plain, _ = run_retrieval(Then(()), [ASKED], retriever, k=8)
    text_of = dict(zip(IDS, TEXTS, strict=True))
    threshold = -float(sorted(len(text_of[pid]) for pid in plain["pid"])[3])
    step = Filter(shorter_is_better, threshold)
    found, traces = run_retrieval(Then((step,)), [ASKED], retriever, k=8)
    want = [pid for pid in plain["pid"] if -len(text_of[pid]) >= threshold]
    assert 4 <= len(want) < 8 and found["pid"].tolist() == want
    assert found["rank"].tolist() == list(range(1, len(want) + 1))
    assert traces["q"]["after"][0]["emptied"] is False
    nothing = Filter(shorter_is_better, threshold=1.0)
    found, traces = run_retrieval(Then((nothing,)), [ASKED], retriever, k=4)
    assert found.empty and traces["q"]["after"][0]["emptied"] is True
    assert traces["q"]["error"] == "every passage was filtered out"
    best = replace(nothing, if_none="best")
    found, traces = run_retrieval(Then((best,)), [ASKED], retriever, k=4)
    shortest = min(plain["pid"][:4], key=lambda pid: len(text_of[pid]))
    assert found["pid"].tolist() == [shortest] and "error" not in traces["q"]


def test_a_step_that_makes_a_passage_up_or_repeats_one_is_refused(retriever):
    class Repeats:
        name = "repeats"

        def __call__(self, question, hits):
            return Taken([hits[0], hits[0]])

    class MakesUp:
        name = "makes up"

        def __call__(self, question, hits):
            return Taken([("p99", "a passage of my own")])

    for step in (Repeats(), MakesUp()):
        with pytest.raises(ValueError, match=step.name):
            run_retrieval(Then((step,)), [ASKED], retriever, k=2)


# from corpora to an index ------------------------------------------------------------------------


@pytest.fixture
def two_corpora(tmp_path, own_folders) -> PassageStore:
    passages = [
        Passage(pid, "title", f"text of {pid}", source, {})
        for pid, source in (
            ("medquad:3_GHR_QA/a-1", "medquad"),
            ("medquad:3_GHR_QA/a-2#0", "medquad"),
            ("medquad:30_OTHER/a-1", "medquad"),
            ("bioasq:000001", "bioasq"),
            ("pubmedqa:7", "pubmedqa"),
            ("GOUT-1", "handbook"),
        )
    ]
    return PassageStore.build(tmp_path / "two.sqlite", passages)


def test_an_index_is_the_store_and_views_leave_out_corpora_or_subsets(two_corpora):
    index = index_build.build_index(two_corpora, PLAIN, progress=False)
    assert index.ids.tolist() == two_corpora.ids()
    vectors = PLAIN.encode([p.text for p in two_corpora])
    assert np.array_equal(index.vectors(np.arange(6)), vectors)

    def kept(view) -> set[str]:
        hits = view.search(vectors[:1], 9)
        assert set(hits.ids[0].tolist()) == set(view.ids[view.kept].tolist())
        return set(hits.ids[0].tolist())

    everything = set(two_corpora.ids())
    assert kept(index_build.only(index, ["bioasq"])) == {"bioasq:000001", "GOUT-1"}
    assert kept(index_build.without(index, [])) == everything
    assert kept(index_build.without(index, ["medquad:3_GHR_QA"])) == everything - {
        "medquad:3_GHR_QA/a-1",
        "medquad:3_GHR_QA/a-2#0",
    }
    both = index_build.without(index_build.only(index, ["medquad"]), ["medquad:3_GHR_QA"])
    assert kept(both) == {"medquad:30_OTHER/a-1", "GOUT-1"}
