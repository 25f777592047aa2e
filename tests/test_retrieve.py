"""Runs and traces, the steps after a search, and the index behind it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from lib import index_build
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.expansion import execute, expand_all
from lib.methods import Expansion, Fusion, Hypotheses, SearchSpec, Sparse, Text
from lib.methods.base import Taken, register
from lib.methods.postprocess import Filter, Rerank
from lib.methods.standard import Hybrid
from lib.run import RUN_COLUMNS, Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex

RNG = random.Random(1)
TEXTS = [" ".join(f"word{RNG.randrange(25)}" for _ in range(RNG.randint(6, 14))) for _ in range(50)]
IDS = [f"p{i:02d}" for i in RNG.sample(range(50), 50)]
TEXT_OF = dict(zip(IDS, TEXTS, strict=True))
ENCODER = HashEncoder(dim=64)


@pytest.fixture
def retriever(own_folders) -> Retriever:
    passages = [Passage(pid, "", text, "books", {}) for pid, text in TEXT_OF.items()]
    store = PassageStore.build(own_folders / "store.sqlite", passages)
    index = DenseIndex([ENCODER.encode(TEXTS)], IDS)
    return Retriever(index, ENCODER, store, BM25Index.build(TEXTS, IDS))


def dense(*parts: tuple[str, float]) -> Hypotheses:
    return Hypotheses(tuple(Text(text, weight) for text, weight in parts))


PLUS = "word1 word2 word3"
TWINS = dense((PLUS, 1.0), (PLUS, -1.0))


def ask(n: int) -> list[Question]:
    return [Question(str(i), f"word{i}", {}, "", "mine") for i in range(n)]


def test_what_cannot_be_searched_says_why(retriever):
    with pytest.raises(ValueError, match="zero or tiny query"):
        retriever.search(TWINS, 3)
    with pytest.raises(ValueError, match=r"no BM25 index: build one with BM25Index\.build"):
        Retriever(retriever.index, ENCODER).search_many([Sparse("word1")], 3)
    with pytest.raises(ValueError, match="'guidelines'; there are: books"):
        retriever.search_many([replace(dense((PLUS, 1.0)), sources=("books", "guidelines"))], 3)


# several encoders ---------------------------------------------------------------------------------


def ranking(question: str, encoder: HashEncoder, ids: list[str]) -> list[str]:
    """All passages by their cosine with the question, ties by id."""
    scores = encoder.encode([TEXT_OF[pid] for pid in ids]) @ encoder.encode([question])[0]
    return [pid for _, pid in sorted(zip(-scores, ids, strict=True))]


def test_rankings_by_four_retrievers_are_merged_by_rank(retriever):
    """MedRAG's RRF of four, by brute force; also among some of the passages alone."""
    others = {"small": HashEncoder(dim=16), "large": HashEncoder(dim=512)}
    opened = []

    def beside(name: str) -> Retriever:
        opened.append(name)
        texts = [TEXT_OF[pid] for pid in IDS]
        return Retriever(DenseIndex([others[name].encode(texts)], IDS), others[name])

    method = Hybrid("rrf4", rrf_k=100, depth=20, encoders=("small", "large"))
    whole = replace(retriever, beside=beside)
    some = np.arange(50) % 3 > 0
    view = whole.subset(whole.index.subset(some))
    for within, ids in ((whole, IDS), (view, np.array(IDS)[some].tolist())):
        for question in ask(5):
            request = method.expand(question, None, lambda *_: []).request
            (words,) = within.search_many([Sparse(question.text)], 20)
            lists = [words.ids[0].tolist()]
            for encoder in (ENCODER, *others.values()):
                lists.append(ranking(question.text, encoder, ids)[:20])
            scores: dict[str, float] = {}
            for ranked in lists:
                for rank, pid in enumerate(ranked, 1):
                    scores[pid] = scores.get(pid, 0.0) + 1 / (100 + rank)
            best = sorted(scores, key=lambda pid: (-scores[pid], pid))[:5]
            (found,) = within.search_many([request], 5)
            assert found.ids[0].tolist() == best
    assert sorted(opened) == ["large", "small"], "each is opened once"
    with pytest.raises(ValueError, match="no other encoder: 'small'"):
        retriever.search_many([request], 5)


# runs --------------------------------------------------------------------------------------------


def test_a_run_has_one_row_per_question_and_rank_and_failures_have_none(retriever):
    requests = [Sparse("word1 word2 word8"), dense((PLUS, 1.0)), TWINS, Sparse("unheard of"), None]
    made = [Expansion(request, {"seen": i}) for i, request in enumerate(requests)]
    run, traces = execute("mine", ask(5), made, retriever, k=4)
    assert tuple(run.columns) == RUN_COLUMNS and set(run["method"]) == {"mine"}
    assert set(run["qid"]) == {"0", "1"}
    for qid, request in zip("01", requests, strict=False):
        rows = run[run["qid"] == qid]
        (hits,) = retriever.search_many([request], 4)
        assert rows["rank"].tolist() == [1, 2, 3, 4]
        assert rows["pid"].tolist() == hits.ids[0].tolist()
        assert rows["score"].tolist() == hits.scores[0].tolist()
    assert [traces[qid]["seen"] for qid in "01234"] == [0, 1, 2, 3, 4]
    assert "zero or tiny" in traces["2"]["error"]
    assert traces["3"]["error"] == "no passage was found"


@dataclass(frozen=True)
class Given:
    """A method that answers with what was made beforehand."""

    requests: tuple
    name: str = "given"
    needs_llm: bool = False
    options_visible: bool = False

    def budget(self) -> None:
        return None

    def expand(self, question, llm, search) -> Expansion | None:
        request = self.requests[int(question.qid)]
        return Expansion(request) if request else None


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
    made = expand_all(Given((*EMPTY, Sparse("word1"))), ask(5))
    assert [bool(it.request) for it in made] == [False] * 4 + [True]
    run, traces = execute("given", ask(5), made, retriever, k=3)
    ranked = len(set(run["qid"]) & set("0123"))
    fault.came(tries=4, lost="4" not in set(run["qid"]), wrong=ranked, said=traces["0"]["error"])


@pytest.mark.fault(
    "numbers", "An own method gives nothing or an empty text, or has a name that is taken"
)
def test_a_method_that_gives_nothing_or_has_a_name_that_is_taken_is_named(fault):
    with pytest.raises(TypeError, match="method silent, question 0: expand gave None") as error:
        expand_all(Given((None,), "silent"), ask(1))
    with pytest.raises(ValueError, match="two methods are called 'chr'"):
        register(Given((), name="chr"))
    fault.came(tries=2, said=error.value)


# passages by their id ----------------------------------------------------------------------------


class Towers(HashEncoder):
    """The hash encoder with two different towers, which counts the texts that it reads."""

    read = 0

    def encode(self, items, tower="query", progress=True):
        self.read += len(items)
        rows = super().encode(items, tower, progress)
        return np.roll(rows, 1, axis=1) if tower == "query" else rows


def test_an_index_opens_again_without_a_passage_being_read_and_heals(own_folders):
    passages = [Passage(f"p{i}", "", f"text {i}", "s", {}) for i in range(20)]
    store = PassageStore.build(own_folders / "again.sqlite", passages)
    first = index_build.build_index(store, ENCODER, progress=False)
    query = ENCODER.encode(["text 7"])

    class Unread(PassageStore):
        def __iter__(self):
            raise AssertionError("a passage was read")

    unread = Unread.open(store.path)
    again = index_build.build_index(unread, ENCODER, progress=False)
    assert again.search(query, 5).ids.tolist() == first.search(query, 5).ids.tolist()
    (shard,) = (own_folders / "cache" / "vectors").glob("*.npy")
    shard.unlink()
    with pytest.raises(AssertionError, match="was read"):
        index_build.build_index(unread, ENCODER, progress=False)
    healed = index_build.build_index(store, ENCODER, progress=False)
    assert healed.search(query, 5).ids.tolist() == first.search(query, 5).ids.tolist()


@pytest.fixture(params=["float32", "float16"])
def titled(own_folders, request) -> tuple[Retriever, dict[str, tuple[str, str]], str]:
    """A retriever of passages with titles, the (title, text) of each, and how they are stored."""
    pair_of = {pid: (f"word{i} of title", text) for i, (pid, text) in enumerate(TEXT_OF.items())}
    passages = [
        Passage(pid, *pair, "books" if pid < "p25" else "notes", {})
        for pid, pair in pair_of.items()
    ]
    store = PassageStore.build(own_folders / "titled.sqlite", passages)
    encoder = Towers(dim=64)
    index = index_build.build_index(store, encoder, dtype=request.param, progress=False)
    words = BM25Index.build([" ".join(pair) for pair in pair_of.values()], list(pair_of))
    return Retriever(index, encoder, store, words), pair_of, request.param


def scores_of(retriever: Retriever, h: Hypotheses, k: int = 50) -> dict[str, float]:
    (hits,) = retriever.search_many([h], k)
    return dict(zip(hits.ids[0].tolist(), hits.scores[0].tolist(), strict=True))


def test_a_passage_that_is_named_is_searched_with_as_its_encoded_text_would_be(titled):
    retriever, pair_of, stored = titled
    asked = Text("word3 word4", 30.0, "query", "question")
    scores_of(retriever, Hypotheses((asked,)))
    for pid, other in (("p07", "p31"), ("p40", "p02")):
        weights = {pid: 100.0, other: -40.0}
        named = Hypotheses((asked, *(Text(pid=p, weight=w) for p, w in weights.items())))
        before = retriever.encoder.read
        found = scores_of(retriever, named)
        assert retriever.encoder.read == before, "nothing is encoded"
        said = Hypotheses((asked, *(Text(pair_of[p], w) for p, w in weights.items())))
        # Of a weight of 100, 1e-4 is 1e-6; half as many bits are good for a thousandth.
        exact = 1e-4 if stored == "float32" else 0.2
        assert found == pytest.approx(scores_of(retriever, said), abs=exact)
        # Also as a mimic, in another space, and from a view that cannot find it.
        for spec in (SearchSpec(lam=0.4), SearchSpec(lam=0.4, space="whitened")):
            both = [Text(pid=pid, role="target"), Text(pid=other, role="mimic")]
            pair = [Text(pair_of[pid], role="target"), Text(pair_of[other], role="mimic")]
            for sources in ((), ("notes",)):
                one, two = (Hypotheses(tuple(ts), spec, sources=sources) for ts in (both, pair))
                near = 3e-5 if stored == "float32" else 5e-3
                want = scores_of(retriever, two)
                assert scores_of(retriever, one) == pytest.approx(want, abs=near)


def test_a_passage_that_is_named_has_words_too_and_one_that_is_not_there_is_named(titled):
    retriever, pair_of, _ = titled
    spec = SearchSpec(form="lexical", lam=0.4)
    by_id = (Text(pid="p07", role="target"), Text(pid="p31", role="mimic"))
    said = (Text(pair_of["p07"][1], role="target"), Text(pair_of["p31"][1], role="mimic"))
    found = scores_of(retriever, Hypotheses(by_id, spec))
    assert found and found == scores_of(retriever, Hypotheses(said, spec))
    with pytest.raises(ValueError, match="no passage 'p99' in this index of 50"):
        retriever.search(Hypotheses((Text("word1"), Text(pid="p99"))), 3)
    for more in ({"text": "word1"}, {"tower": "query"}):
        with pytest.raises(ValueError, match="'p07'.* no text, and no other tower"):
            Text(pid="p07", **more)


# after the search --------------------------------------------------------------------------------

ASKED = Question("q", PLUS, {"A": "word1", "B": "word9"}, "A", "mine")


def shorter_is_better(pairs) -> np.ndarray:
    return np.array([-float(len(text)) for _, text in pairs])


def taken(retriever: Retriever, *steps, depth: int = 0, k: int = 3):
    """The rows of one question whose list goes through some steps, and its trace."""
    made = [Expansion(dense((ASKED.text, 1.0)), {}, steps, depth)]
    run, traces = execute("mine", [ASKED], made, retriever, k)
    return run, traces["q"]


@pytest.mark.parametrize("depth", [0, 5, 20])
def test_a_reranker_orders_the_deeper_list_and_the_best_k_of_it_are_left(retriever, depth):
    found, trace = taken(retriever, Rerank(shorter_is_better), depth=depth)
    searched, _ = taken(retriever, k=max(depth, 3))
    score_of = dict(zip(searched["pid"], searched["score"], strict=True))
    want = sorted(score_of, key=lambda pid: (len(TEXT_OF[pid]), pid))[:3]
    assert found["pid"].tolist() == want
    assert found["score"].tolist() == [score_of[pid] for pid in want]
    (record,) = trace["after"]
    assert record["step"] == "rerank"
    assert record["pairs"] == len(record["given"]) == max(depth, 3)


def test_a_filter_keeps_what_is_at_the_threshold_and_says_where_it_keeps_nothing(retriever):
    plain, _ = taken(retriever, k=8)
    threshold = -float(sorted(len(TEXT_OF[pid]) for pid in plain["pid"])[3])
    found, trace = taken(retriever, Filter(shorter_is_better, threshold), k=8)
    want = [pid for pid in plain["pid"] if -len(TEXT_OF[pid]) >= threshold]
    assert 4 <= len(want) < 8 and found["pid"].tolist() == want
    assert found["rank"].tolist() == list(range(1, len(want) + 1))
    assert trace["after"][0]["emptied"] is False
    # It is given the k passages that a reader would get, not the deeper list.
    _, trace = taken(retriever, Filter(shorter_is_better, threshold), depth=8, k=4)
    assert trace["after"][0]["given"] == plain["pid"].tolist()[:4]
    nothing = Filter(shorter_is_better, threshold=1.0)
    found, trace = taken(retriever, nothing, k=4)
    assert found.empty and trace["after"][0]["emptied"] is True
    assert trace["error"] == "every passage was filtered out"
    found, trace = taken(retriever, replace(nothing, if_none="best"), k=4)
    shortest = min(plain["pid"][:4], key=lambda pid: len(TEXT_OF[pid]))
    assert found["pid"].tolist() == [shortest] and "error" not in trace


def test_a_step_that_makes_a_passage_up_or_repeats_one_is_refused(retriever):
    class Own:
        name = "own step"

        def __init__(self, change):
            self.change = change

        def __call__(self, question, hits):
            return Taken(self.change(hits))

    for change in (lambda hits: [hits[0], hits[0]], lambda hits: [("p99", "a passage of my own")]):
        with pytest.raises(ValueError, match="own step"):
            taken(retriever, Own(change))


# from corpora to an index ------------------------------------------------------------------------


def test_an_index_is_the_store_and_views_leave_out_corpora_or_subsets(own_folders):
    source_of = {
        "medquad:3_GHR_QA/a-1": "medquad",
        "medquad:3_GHR_QA/a-2#0": "medquad",
        "medquad:30_OTHER/a-1": "medquad",
        "bioasq:000001": "bioasq",
        "GOUT-1": "handbook",
    }
    passages = [Passage(pid, "", f"text of {pid}", of, {}) for pid, of in source_of.items()]
    store = PassageStore.build(own_folders / "store.sqlite", passages)
    index = index_build.build_index(store, ENCODER, progress=False)
    vectors = ENCODER.encode([p.text for p in store])
    assert list(index.ids) == list(store.ids())
    assert np.array_equal(index.vectors(np.arange(5)), vectors)

    def kept(view) -> set[str]:
        return set(view.search(vectors[:1], 9).ids[0].tolist())

    others = {"medquad:30_OTHER/a-1", "bioasq:000001", "GOUT-1"}
    assert kept(index_build.only(index, ["bioasq"])) == {"bioasq:000001", "GOUT-1"}
    assert kept(index_build.without(index, [])) == set(source_of)
    assert kept(index_build.without(index, ["medquad:3_GHR_QA"])) == others
    both = index_build.without(index_build.only(index, ["medquad"]), ["medquad:3_GHR_QA"])
    assert kept(both) == {"medquad:30_OTHER/a-1", "GOUT-1"}
