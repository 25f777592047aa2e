"""One contract for every method, and what each of them says to search with."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections import Counter
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.expansion import hypotheses, validity
from lib.llm.chat import (
    REFERENCE,
    Reply,
    ScriptedChat,
    current_tag,
    sample_seed,
    tag,
    without_thinking,
)
from lib.llm.prompts import load_prompt
from lib.llm.replies import checked, is_in, quoted
from lib.methods import (
    METHODS,
    Budget,
    Expansion,
    Fusion,
    Hypotheses,
    Method,
    SearchSpec,
    Sparse,
    Text,
)
from lib.methods.base import Step
from lib.methods.rag2 import RAG2
from lib.profiles import load_profile, methods_of
from lib.run import Retriever, expand_all
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from tests.retrieved import run_retrieval

OPTIONS = {"B": "colchicine", "A": "allopurinol", "C": "", "D": "febuxostat"}
QUESTION = Question("q1", "What stops an attack of gout?", OPTIONS, "B", "mine")
HIDDEN = (
    "answer",
    "gold_pmids",
    "gold_snippets",
    "snippet_pmids",
    "ideal_answer",
    "target",
    "mimic",
    "check",
)


class Sealed(Question):
    """A question that does not let anyone look at what an expansion must not know."""

    def __getattribute__(self, name):
        assert name not in HIDDEN, f"expand looked at question.{name}"
        return super().__getattribute__(name)


class Script:
    """A chat model that keeps what it is asked; JSON where a schema asks for it, else passages."""

    name = "script"
    tag = staticmethod(tag)

    def __init__(self, *texts: str, end: str = "stop"):
        self.texts, self.asked, self.options, self.end = list(texts), [], [], end

    def generate(self, messages, *, n=1, schema=None, **options):
        self.asked.append(list(messages))
        self.options.append({"n": n, "schema": schema} | options)
        if self.texts:
            texts = [self.texts.pop(0) for _ in range(n)]
        elif schema:
            value = {k: f"{k} is gout of the toe" for k in schema["required"]}
            lists = [k for k in value if schema["properties"][k]["type"] == "array"]
            texts = [json.dumps(value | {k: [value[k]] for k in lists})] * n
        else:
            texts = [f"passage {i} about gout" for i in range(n)]
        return [without_thinking(Reply(t, self.end, 5, 3, 0.1, self.name)) for t in texts]

    @property
    def prompts(self) -> str:
        return "\n".join(m["content"] for messages in self.asked for m in messages)


def no_search(request, k):
    return [("d0", "Gout is an arthritis."), ("d1", "Colchicine treats gout.")][:k]


def asked_of(method: Method, question: Question = QUESTION) -> tuple[Expansion, Script]:
    llm = Script()
    return method.expand(question, llm if method.needs_llm else None, no_search), llm


def texts_of(request) -> list[str]:
    """Every text of a request, whatever its kind."""
    match request:
        case Hypotheses():
            inner = [x.text for x in request.texts]
            return [t if isinstance(t, str) else " ".join(t) for t in inner]
        case Sparse():
            return [request.text]
        case Fusion():
            return [t for part in request.requests for t in texts_of(part)]


class Towers(HashEncoder):
    """The hash encoder with two different towers."""

    def encode(self, items, tower="query", progress=True):
        rows = super().encode(items, tower, progress)
        return np.roll(rows, 1, axis=1) if tower == "query" else rows


TEXTS = [f"passage {i} on {'gout' if i % 2 else 'sepsis'} and toe number {i}" for i in range(12)]
IDS = [f"d{i}" for i in range(12)]


@pytest.fixture
def retriever(own_folders) -> Retriever:
    encoder = Towers()
    passages = [Passage(i, "", t, "mine", {}) for i, t in zip(IDS, TEXTS, strict=True)]
    store = PassageStore.build(own_folders / "store.sqlite", passages)
    index = DenseIndex([encoder.encode(TEXTS, "article")], IDS)
    return Retriever(index, encoder, store, BM25Index.build(TEXTS, IDS))


# the contract ------------------------------------------------------------------------------------


def by_length(pairs) -> np.ndarray:
    return np.array([-float(len(text)) for _, text in pairs])


# With all its steps; it is no method of the paper's tables, so it is not in METHODS.
RAG2_WHOLE = RAG2(reranker=by_length, judge=by_length, threshold=-45.0)
EVERY = {**METHODS, "rag2": RAG2_WHOLE}


@pytest.fixture(params=sorted(EVERY))
def method(request) -> Method:
    return EVERY[request.param]


def test_a_method_is_a_frozen_set_of_settings_under_its_own_name(method):
    assert isinstance(method, Method) and EVERY[method.name] is method
    assert all(hasattr(method, name) for name in ("name", "needs_llm", "options_visible"))
    assert replace(method, name="mine").name == "mine" and hash(method)
    with pytest.raises(FrozenInstanceError):
        method.name = "other"
    assert type(method).__doc__ and method.expand.__doc__


def test_expand_never_looks_at_the_answer_or_what_experts_found(method):
    sealed = Sealed("q1", "What stops an attack of gout?", OPTIONS, "B", "mine")
    expansion, llm = asked_of(method, sealed)
    other = replace(
        QUESTION, answer="A", ideal_answer="Colchicine.", gold_snippets=("x",), target="gout"
    )
    twin, again = asked_of(method, other)
    assert expansion.request == twin.request is not None
    assert llm.asked == again.asked and llm.options == again.options


def test_a_request_is_of_a_known_kind_with_weights_and_towers(method):
    request = asked_of(method)[0].request
    assert isinstance(request, (Hypotheses, Sparse, Fusion))
    assert texts_of(request) and all(text.strip() for text in texts_of(request))
    parts = request.requests if isinstance(request, Fusion) else (request,)
    assert all(isinstance(part, (Hypotheses, Sparse)) for part in parts)
    for part in (part for part in parts if isinstance(part, Hypotheses)):
        assert all(isinstance(t, Text) and t.role for t in part.texts)
        assert {t.tower for t in part.texts} <= {"query", "article"}
        assert all(math.isfinite(t.weight) for t in part.texts)
        # A question of weight 0 is there for a way that adds it.
        assert all(t.weight or t.role == "question" for t in part.texts)
        assert any(t.weight for t in part.texts if t.role != "mimic")


@pytest.mark.parametrize("visible", [False, True])
def test_options_are_read_only_where_they_may_be_seen(method, visible):
    expansion, llm = asked_of(replace(method, options_visible=visible))
    everything = "\n".join([llm.prompts, *texts_of(expansion.request)])
    assert QUESTION.text in everything
    for letter, option in OPTIONS.items():
        if option:
            assert (f"{letter}. {option}" in everything) == visible
            assert (option in everything) == visible
    if method.needs_llm:
        assert not any(
            option in t
            for t in texts_of(expansion.request)
            for option in filter(None, OPTIONS.values())
        )


def test_without_an_llm_a_method_that_needs_one_says_so(method, retriever):
    if method.needs_llm:
        with pytest.raises(ValueError, match=f"method {method.name} needs an LLM: pass llm="):
            expand_all(method, [QUESTION])
    else:
        assert expand_all(method, [QUESTION], None, retriever)[0].request is not None


def test_ten_thousand_words_no_options_and_odd_signs_break_nothing(method, retriever):
    asked = [
        replace(QUESTION, qid="long", text="gout of the big toe " * 2000),
        replace(QUESTION, qid="bare", options={}, answer=""),
        replace(QUESTION, qid="odd", text='Is "{question}" \\1 {H_plus} a ≥ 5 µg dose?\n\n{}'),
    ]
    run, traces = run_retrieval(method, asked, retriever, Script(), k=3, workers=1)
    found = run.groupby("qid").size().to_dict()
    if method.name == "bm25":  # passages that share no word are not found
        found["odd"] += 1
    assert found == {"long": 3, "bare": 3, "odd": 3}
    assert list(traces) == ["long", "bare", "odd"]
    assert not any(t.get("error") for t in traces.values())


ASKING = [m.name for m in EVERY.values() if m.needs_llm]


@pytest.mark.parametrize("name", ASKING)
def test_every_call_says_which_method_and_question_it_is_for(name):
    seen = []

    class Given:
        search = staticmethod(no_search)

    class Tagged(Script):
        def generate(self, messages, **options):
            seen.append((current_tag()["method"], current_tag()["qid"]))
            return super().generate(messages, **options)

    asked = [replace(QUESTION, qid=f"q{i}") for i in range(20)]
    expand_all(EVERY[name], asked, Tagged(), Given(), workers=4)
    calls = len(EVERY[name].budget().prompts)
    assert Counter(seen) == {(name, q.qid): calls for q in asked}


SETTINGS = {name: EVERY[name] for name in ASKING} | {
    "csqe, single call": replace(METHODS["csqe"], mode="single_call", samples=1),
    "csqe, three samples": replace(METHODS["csqe"], samples=3, depth=1, words=7),
    "thinkqe, two rounds": replace(METHODS["thinkqe"], rounds=2, samples=1, shown=1),
    "thinkqe, prompted": replace(METHODS["thinkqe"], thinking="prompted"),
    "query2doc, no examples": replace(METHODS["query2doc"], shots=0, max_tokens=512),
    "hyde, one": replace(METHODS["hyde"], samples=1, temperature=0.2, seed=5),
    "a profile's": methods_of(replace(load_profile("mini"), **load_profile("mini").generated))[
        "csqe"
    ],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_budget_is_what_is_really_asked_for(name):
    method = SETTINGS[name]
    budget = method.budget()
    assert isinstance(budget, Budget) and hash(budget)
    llm = asked_of(method)[1]
    assert len(llm.asked) == len(budget.prompts)
    assert sum(options["n"] for options in llm.options) == budget.texts
    assert {o["max_tokens"] for o in llm.options} == {budget.max_tokens}
    assert {o["temperature"] for o in llm.options} == {budget.temperature}
    assert llm.options[0]["seed"] == budget.seed


@pytest.mark.parametrize("name", SETTINGS)
def test_a_budget_names_the_prompts_and_the_passages_they_show(name):
    many = [(f"d{i}", f"marked{i} " + "word " * 300) for i in range(40)]
    llm = Script()
    SETTINGS[name].expand(QUESTION, llm, lambda request, k: many[:k])
    budget = SETTINGS[name].budget()
    for messages, (prompt, shown) in zip(llm.asked, budget.prompts, strict=True):
        said = "\n".join(m["content"] for m in messages)
        # What stands in the prompt's file before its first blank is in what was asked.
        blank = {"question": "\0", "documents": "\0"}
        wanted = {v for v in ("question", "documents") if "{" + v + "}" in str(load_prompt(prompt))}
        start = load_prompt(prompt).messages(**{v: blank[v] for v in wanted or {"question"}})
        assert start[0]["content"].split("\0")[0] in said
        listed = [i for i in range(40) if f"marked{i} " in said]
        # ThinkQE shows at most as many; where the same come again, fewer.
        assert len(listed) <= shown and (messages is not llm.asked[0] or not shown or listed)
        if listed:
            line = next(x for x in said.split("\n") if "marked" in x)
            assert len(line.split()) <= budget.words + 1  # its number


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("end", ["stop", "length"])
def test_a_trace_has_every_reply_so_that_validity_and_cost_can_be_counted(name, end):
    llm = Script(end=end)
    trace = EVERY[name].expand(QUESTION, llm, no_search).trace
    assert len(trace["replies"]) == sum(o["n"] for o in llm.options)
    assert all(isinstance(reply, Reply) for reply in trace["replies"])
    assert int(trace["cut"]) == (len(trace["replies"]) if end == "length" else 0)


@pytest.mark.parametrize("name", ASKING)
def test_empty_replies_fail_the_question_and_are_not_answered_another_way(name, retriever):
    silent = ScriptedChat([{"match": "", "text": " \n"}])
    expansion = EVERY[name].expand(QUESTION, silent, no_search)
    assert expansion.request is None and expansion.trace["error"] and expansion.trace["replies"]
    run, traces = run_retrieval(EVERY[name], [QUESTION], retriever, silent)
    assert run.empty and traces["q1"]["error"] == expansion.trace["error"]


@pytest.mark.parametrize("name", ASKING)
def test_no_two_generations_share_a_seed_and_the_seed_moves_them_all(name):
    def seeds(seed: int) -> list[int]:
        llm = asked_of(replace(EVERY[name], seed=seed))[1]
        return [sample_seed(o["seed"], i) for o in llm.options for i in range(o["n"])]

    assert len(set(seeds(7))) == len(seeds(7)) and 7 in seeds(7)
    assert seeds(8) == [seed + 1 for seed in seeds(7)]


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("query2doc", {"shots": 3}),
        ("csqe", {"mode": "single"}),
        ("thinkqe", {"thinking": "on"}),
    ],
)
def test_a_setting_that_does_not_exist_is_refused(name, setting):
    ((field, value),) = setting.items()
    with pytest.raises(ValueError, match=f"{name}: {field} is one of .*, not {value!r}"):
        replace(METHODS[name], **setting)


# standard ----------------------------------------------------------------------------------------


# CHR and its control -----------------------------------------------------------------------------


def weights(request: Hypotheses) -> list[tuple[str, float, str]]:
    return [(t.role, t.weight, t.tower) for t in request.texts]


PAIR = [("target", 1.0, "article"), ("mimic", 1.0, "article"), ("question", 0.0, "query")]


@pytest.mark.parametrize("lam", [1.0, 0.4])
def test_chr_is_h_plus_minus_lambda_h_minus_from_one_call(lam):
    expansion, llm = asked_of(replace(METHODS["chr"], lam=lam))
    assert weights(expansion.request) == PAIR and expansion.request.spec == SearchSpec(lam=lam)
    assert [t.text for t in expansion.request.texts] == [
        "H_plus is gout of the toe",
        "H_minus is gout of the toe",
        QUESTION.text,
    ]
    assert len(llm.asked) == 1
    assert METHODS["chr"].lam == 1.0 and llm.options[0]["temperature"] == 0.0


def test_the_control_has_the_identical_texts_and_subtracts_nothing():
    chr_, plus = (asked_of(METHODS[name])[0] for name in ("chr", "hplus"))
    assert plus.request == chr_.request.by(lam=0.0)
    zero, llm = asked_of(replace(METHODS["chr"], lam=0.0))
    assert zero.request == plus.request
    assert llm.asked == asked_of(METHODS["hplus"])[1].asked  # so one recording serves both


@pytest.mark.parametrize("settings", [{}, {"lam": 0.4}, {"question_weight": 0.7}, {"lam": -0.5}])
def test_chr_finds_what_its_equation_says(settings, retriever):
    method = replace(METHODS["chr"], **settings)
    said = json.dumps({"H_plus": "gout toe number 3", "H_minus": "sepsis number 4"})
    run, _ = run_retrieval(method, [QUESTION], retriever, Script(said), k=12)
    encoder = Towers()
    plus, minus = encoder.encode(["gout toe number 3", "sepsis number 4"], "article")
    (asked,) = encoder.encode([QUESTION.text], "query")
    vector = plus - method.lam * minus + method.question_weight * asked
    scores = dict(zip(IDS, encoder.encode(TEXTS, "article") @ vector, strict=True))
    assert run["score"].tolist() == pytest.approx([scores[pid] for pid in run["pid"]], abs=1e-5)
    assert run["score"].tolist() == pytest.approx(sorted(scores.values())[::-1], abs=1e-5)


GOOD = json.dumps({"H_plus": "It is gout.", "H_minus": "It is pseudogout."})


@pytest.mark.parametrize("name", ["chr", "hplus"])
@pytest.mark.parametrize(
    "broken", ["no json", '{"H_plus": "only"}', '{"H_plus": "", "H_minus": "x"}']
)
def test_a_reply_broken_twice_fails_the_question_and_one_repaired_is_flagged(
    name, broken, retriever
):
    llm = Script(broken, broken)
    expansion = METHODS[name].expand(QUESTION, llm, no_search)
    assert expansion.request is None and expansion.trace["error"] and len(llm.asked) == 2
    assert expansion.trace["repaired"] and len(expansion.trace["replies"]) == 2
    run, traces = run_retrieval(METHODS[name], [QUESTION], retriever, Script(broken, broken))
    assert run.empty and traces["q1"]["error"] == expansion.trace["error"]

    mended = METHODS[name].expand(QUESTION, Script(broken, GOOD), no_search)
    assert mended.trace["repaired"] and mended.trace["error"] == ""
    assert mended.request.texts[0].text == mended.trace["H_plus"] == "It is gout."


# HyDE --------------------------------------------------------------------------------------------


def test_hyde_drops_and_counts_empty_passages_and_fails_without_any():
    hyde = replace(METHODS["hyde"], samples=4)
    expansion = hyde.expand(QUESTION, Script("one", "", " \n", "two "), no_search)
    assert [t.text for t in expansion.request.texts] == [QUESTION.text, "one", "two"]
    assert expansion.trace["passages"] == ["one", "two"] and expansion.trace["empty"] == 2
    failed = hyde.expand(QUESTION, Script("", " ", "", "\t"), no_search)
    assert failed.request is None and "empty" in failed.trace["error"]
    assert failed.trace["empty"] == 4


# the vector that is searched with, by hand -----------------------------------------------------

Q = QUESTION.text
EXTRACT = 'No [2] helps, but [1] says "Gout is of the toe." and “sepsis is "not" gout”'
SPANS = 'Gout is of the toe. sepsis is "not" gout'
BOTH = json.dumps({"passage": " A gout attack. ", "sentences": ["One toe.", Q, " ", "Two toes."]})
THOUGHT = ["<think>a</think>one gout", "b</think> two toes", "", "three", "<think>four", "five"]
VECTORS = {
    "hyde": (
        "hyde",
        {"samples": 3},
        ["a toe", "", "gout b"],
        [(1, "query", Q), (1, "article", "a toe"), (1, "article", "gout b")],
    ),
    "pair": ("query2doc", {}, ["a toe\n"], [(1, "query", (Q, "a toe"))]),
    "article pair": (
        "query2doc",
        {"dense": "pair_article"},
        ["a toe"],
        [(1, "article", (Q, "a toe"))],
    ),
    "query2doc's mean": (
        "query2doc",
        {"dense": "mean"},
        ["a toe"],
        [(1, "query", Q), (1, "article", "a toe")],
    ),
    "csqe": (
        "csqe",
        {},
        ["a toe", "gout b", EXTRACT, '"passage 3"'],
        [
            (2, "query", Q),
            (1, "article", "a toe"),
            (1, "article", "gout b"),
            (1, "article", SPANS),
            (1, "article", "passage 3"),
        ],
    ),
    "csqe, verified": (
        "csqe",
        {"verify_extracts": True, "depth": 12},
        ["a toe", "gout b", f'"made up" "{TEXTS[3]}!"', EXTRACT],
        [
            (2, "query", Q),
            (1, "article", "a toe"),
            (1, "article", "gout b"),
            (1, "article", f"{TEXTS[3]}!"),
        ],
    ),
    "csqe, single call": (
        "csqe",
        {"mode": "single_call"},
        [BOTH],
        [(1, "query", Q), (1, "article", "A gout attack."), (1, "article", "One toe. Two toes.")],
    ),
    "thinkqe": (
        "thinkqe",
        {},
        list("abcdef"),
        [(0.25, "query", Q), *((0.125, "article", t) for t in "abcdef")],
    ),
    "thinkqe, prompted": (
        "thinkqe",
        {"thinking": "prompted"},
        THOUGHT,
        [
            (0.25, "query", Q),
            *((0.1875, "article", t) for t in ("one gout", "two toes", "three", "five")),
        ],
    ),
}


@pytest.mark.parametrize("case", VECTORS)
def test_a_method_searches_with_the_vector_its_paper_describes(case, retriever):
    name, changes, said, parts = VECTORS[case]
    llm = Script(*said)
    run, traces = run_retrieval(replace(METHODS[name], **changes), [QUESTION], retriever, llm, k=12)
    assert not llm.texts and not traces["q1"].get("error")
    encoder = Towers()
    vector = sum(weight * encoder.encode([text], tower)[0] for weight, tower, text in parts)
    scores = dict(zip(IDS, encoder.encode(TEXTS, "article") @ vector, strict=True))
    assert run["score"].tolist() == pytest.approx([scores[pid] for pid in run["pid"]], abs=1e-5)
    assert run["score"].tolist() == pytest.approx(sorted(scores.values())[::-1], abs=1e-5)


# Query2Doc ---------------------------------------------------------------------------------------


def test_query2doc_for_bm25_is_the_question_five_times_and_the_passage():
    sparse = replace(METHODS["query2doc"], sparse=True)
    request = sparse.expand(QUESTION, Script("a toe"), no_search).request
    assert request == Sparse(f"{Q} {Q} {Q} {Q} {Q} a toe")


# fusion ------------------------------------------------------------------------------------------


def test_fusion_is_two_rankings_twice_as_deep_merged_by_reciprocal_rank(retriever):
    run, traces = run_retrieval(METHODS["fusion"], [QUESTION], retriever, Script("a toe"), k=3)
    encoder, total = Towers(), Counter()
    for text, tower in ((Q, "query"), ("a toe", "article")):
        scores = encoder.encode(TEXTS, "article") @ encoder.encode([text], tower)[0]
        order = sorted(range(12), key=lambda i: (-round(float(scores[i]), 5), IDS[i]))
        for rank, i in enumerate(order[:6], 1):
            total[IDS[i]] += 1 / (60 + rank)
    best = sorted(total, key=lambda pid: (-round(total[pid], 12), pid))[:3]
    assert run["pid"].tolist() == best and traces["q1"]["passages"] == ["a toe"]
    assert run["score"].tolist() == pytest.approx([total[pid] for pid in best])
    (options,) = asked_of(METHODS["fusion"])[1].options
    assert (options["n"], options["max_tokens"]) == (1, 300)


# CSQE --------------------------------------------------------------------------------------------


def test_csqe_asks_two_prompts_for_two_samples_each_about_the_first_documents():
    searched = []

    def search(request, k):
        searched.append((request, k))
        return [(f"d{i}", f"text{i} " + "word " * 300) for i in range(k)]

    csqe = METHODS["csqe"]
    llm = Script("p1", "p2", "none", '"x"')
    trace = csqe.expand(QUESTION, llm, search).trace
    assert searched == [(Hypotheses((Text(Q, 1.0, "query", "question"),)), 10)]
    assert [(o["n"], o["temperature"], o["max_tokens"]) for o in llm.options] == [
        (2, 1.0, 1024)
    ] * 2
    roles = [[m["role"] for m in messages] for messages in llm.asked]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"]]
    shown = [text for _, text in trace["documents"]]
    assert [len(text.split()) for text in shown] == [128] * 10
    listed = llm.asked[1][-1]["content"]
    assert all(f"[{i}] {text}" in listed for i, text in enumerate(shown, 1))
    assert not any(text in llm.asked[0][-1]["content"] for text in shown)
    assert (trace["passages"], trace["extracts"]) == (["p1", "p2"], ["", "x"])
    assert (trace["empty_passages"], trace["empty_extracts"], trace["found_share"]) == (0, 1, 0.0)

    replace(csqe, first_stage="bm25", depth=4).expand(QUESTION, Script(), search)
    assert searched[1] == (Sparse(Q), 4)


def test_a_single_call_that_stays_broken_fails_and_one_repaired_is_flagged():
    single = replace(METHODS["csqe"], mode="single_call")
    failed = single.expand(QUESTION, Script('{"passage": "a"}', '{"sentences": []}'), no_search)
    assert failed.request is None and failed.trace["error"] and len(failed.trace["replies"]) == 2
    mended = single.expand(QUESTION, Script("sorry", BOTH), no_search)
    assert mended.trace["repaired"] and [t.role for t in mended.request.texts] == [
        "question",
        "passage",
        "extract",
    ]
    bare = single.expand(QUESTION, Script('{"passage": "a", "sentences": []}'), no_search)
    assert [t.role for t in bare.request.texts] == ["question", "passage"]


@pytest.mark.parametrize(
    ("reply", "spans"),
    [
        ('[1] "One." "Two."\n[3] "Three."', ["One.", "Two.", "Three."]),
        ("[1] “One.” and “ Two. ”", ["One.", "Two."]),
        ('"straight" and “curly”', ["straight", "curly"]),
        ('“the "best" drug”', ['the "best" drug']),
        ("“the “best” drug” “b”", ["the “best” drug", "b"]),
        ('"forgotten\n[2] "Two."', ["Two."]),
        ("It's 'single', the patient's.", []),
        ('"" “”', []),
        ("", []),
    ],
)
def test_spans_are_what_stands_between_double_quotes(reply, spans):
    assert quoted(reply) == spans


@pytest.mark.parametrize(
    "copy", [Q, Q.lower(), Q.rstrip("?"), f" {Q.replace(' ', '  ')} ", "...", ""]
)
def test_copies_of_the_question_and_empty_spans_are_dropped(copy):
    assert checked([copy, "a toe", copy], Q, ["A toe."]) == [("a toe", True)]
    assert checked([f"{Q} Colchicine."], Q, []) == [(f"{Q} Colchicine.", False)]


@given(
    st.lists(st.sampled_from("abcde"), min_size=1), st.lists(st.sampled_from("abcde"), min_size=1)
)
def test_a_span_is_found_where_the_token_f1_with_a_sentence_is_four_fifths(span, sentence):
    rest, both = list(sentence), 0
    for word in span:
        if word in rest:
            rest.remove(word)
            both += 1
    precision, recall = both / len(span), both / len(sentence)
    f1 = 2 * precision * recall / (precision + recall) if both else 0.0
    text = f"Before it. {' '.join(sentence)}! After it"
    assert is_in(" ".join(span), ["other", text]) == (f1 > 0.8 - 1e-9)


# ThinkQE -----------------------------------------------------------------------------------------


def filtered(rankings: list[list[str]], top: int) -> list[list[str]]:
    """The redundancy filter as METHODS 5 tells it, over whole rankings."""
    blacklist, shown = set(), []
    for r, ranking in enumerate(rankings):
        before = rankings[r - 1][:top] if r else []
        kept, at = [], 0
        while len(kept) < top and at < len(ranking):
            pid = ranking[at]
            at += 1
            if pid in blacklist:
                continue
            if pid in before:
                blacklist.add(pid)
                continue
            kept.append(pid)
        shown.append(kept)
    return shown


@given(st.integers(1, 5), st.lists(st.permutations("abcdefghijklmnop"), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_the_redundancy_filter_shows_what_was_not_at_the_top_before(top, rankings):
    turns = iter(rankings)
    thinkqe = replace(METHODS["thinkqe"], rounds=len(rankings), shown=top)
    trace = thinkqe.expand(
        QUESTION, Script(), lambda request, k: [(p, f"text {p}") for p in next(turns)[:k]]
    ).trace
    shown = [[pid for pid, _ in r["shown"]] for r in trace["rounds"]]
    assert shown == filtered(rankings, top) and shown[0] == rankings[0][:top]


def test_thinkqe_searches_four_times_with_all_it_has_written(retriever):
    said = ["gout a", "toe b", "", "", "sepsis c", "gout d"]
    searched = []

    def search(request, k):
        searched.append([(t.role, t.weight, t.text) for t in request.texts])
        return retriever.search(request, k)

    llm = Script(*said)
    expansion = METHODS["thinkqe"].expand(QUESTION, llm, search)
    first = [("question", 0.25, Q), ("expansion", 0.375, "gout a"), ("expansion", 0.375, "toe b")]
    assert searched == [[("question", 1.0, Q)], first, first]
    assert [t.text for t in expansion.request.texts] == [Q, "gout a", "toe b", "sepsis c", "gout d"]
    assert [(o["n"], o["temperature"]) for o in llm.options] == [(2, 0.7)] * 3
    trace = expansion.trace
    assert trace["empty"] == 2 and [r["texts"] for r in trace["rounds"]] == [
        ["gout a", "toe b"],
        ["", ""],
        ["sepsis c", "gout d"],
    ]
    for messages, round_ in zip(llm.asked, trace["rounds"], strict=True):
        listed = [f"[{i}] {text}" for i, (_, text) in enumerate(round_["shown"], 1)]
        assert "\n".join(listed) in messages[-1]["content"]
    shown = [pid for round_ in trace["rounds"][:2] for pid, _ in round_["shown"]]
    assert len(set(shown)) == 10  # the second search was the third: what came again is not shown


# a method of your own ----------------------------------------------------------------------------

MINE = '''
from dataclasses import dataclass
from lib.methods.base import Expansion, Fusion
from lib.query_spec import Hypotheses, Text

@dataclass(frozen=True)
class Echo:
    """Search with the question, then with the best passage it found, and fuse."""
    name: str = "echo"
    needs_llm: bool = False
    options_visible: bool = False

    def expand(self, question, llm, search):
        """Read the first result."""
        first = Hypotheses((Text(question.text, 1.0, "query"),))
        pid, text = search(first, 1)[0]
        return Expansion(Fusion((first, Hypotheses((Text(text),)))), {"read": pid})

    def budget(self):
        """Nobody is asked."""
        return None
'''


def test_a_new_method_in_one_file_works_everywhere(retriever, tmp_path, monkeypatch):
    (tmp_path / "echo.py").write_text(MINE)
    spec = importlib.util.spec_from_file_location("echo", tmp_path / "echo.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "echo", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(METHODS, "echo", module.Echo())
    assert isinstance(METHODS["echo"], Method)

    class Store:
        def get_many(self, pids):
            return [type("P", (), {"pid": p, "text": f"passage {p[1:]} on gout"}) for p in pids]

    retriever.encoder, retriever.store = HashEncoder(), Store()
    run, traces = run_retrieval(METHODS["echo"], [replace(QUESTION, text="gout")], retriever, k=4)
    assert run["rank"].tolist() == [1, 2, 3, 4] and (run["method"] == "echo").all()
    best = retriever.index.search(retriever.encoder.encode(["gout"]), 1).ids[0, 0]
    assert traces["q1"] == {"read": best, "searches": 1} and run["pid"].iloc[0] == best


# what the LLM said, as tables --------------------------------------------------------------------


def test_hypotheses_are_a_table_with_failures_and_whether_the_answer_is_named():
    asked = [
        replace(QUESTION, qid="named", text="one?"),
        replace(QUESTION, qid="failed", text="two?"),
        replace(QUESTION, qid="yes", text="three?", options={"A": "yes", "B": "no"}, answer="A"),
    ]
    rules = [
        {"match": "one?", "text": GOOD.replace("It is gout", "Give Colchicine")},
        {"match": "two?", "text": "sorry"},
        {"match": "three?", "text": GOOD},
    ]
    table = hypotheses(METHODS["chr"], asked, ScriptedChat(rules))
    assert table["qid"].tolist() == ["named", "failed", "yes"]
    assert table["H_plus"].tolist() == ["Give Colchicine.", "", "It is gout."]
    assert table["names_answer"].tolist() == [True, False, None]
    assert (table["error"] == "").tolist() == [True, False, True]

    shown = validity({"mine": table}, REFERENCE).iloc[0]
    assert (shown["n"], shown["valid"], shown["repaired"], shown["cut"]) == (3, 2, 1, 0)
    assert shown["names_answer"] == 0.5
    assert shown[["calls", "prompt_tokens", "output_tokens"]].isna().all()


# RAG2 --------------------------------------------------------------------------------------------


def test_rag2_searches_with_the_rationale_alone_and_every_source_gives_as_many():
    method = replace(RAG2_WHOLE, sources=("books", "articles", "notes"), depth=24)
    expansion, llm = asked_of(method)
    assert len(llm.asked) == 1
    assert "A. allopurinol" in llm.prompts
    request = expansion.request
    assert (request.how, request.depth) == ("balanced", 8)
    assert [part.sources for part in request.requests] == [("books",), ("articles",), ("notes",)]
    assert texts_of(request) == ["passage 0 about gout"] * 3
    assert [step.name for step in expansion.after] == ["rerank", "filter"]
    assert expansion.depth == 24
    assert all(isinstance(step, Step) for step in expansion.after)


@pytest.mark.parametrize(
    ("settings", "query", "asks"),
    [
        ({}, "", True),
        ({"rerank_by": "rationale"}, "passage 0 about gout", True),
        ({"query": "question"}, "", False),
        ({"query": "question", "rerank_by": "rationale"}, "passage 0 about gout", True),
    ],
)
def test_rag2_asks_for_a_rationale_only_where_something_reads_it(settings, query, asks):
    method = replace(RAG2_WHOLE, **settings)
    assert method.needs_llm == asks == (method.budget() is not None)
    expansion, llm = asked_of(method)
    assert bool(llm.asked) == asks
    assert expansion.after[0].query == query
    (searched,) = texts_of(expansion.request)
    assert searched == (QUESTION.text if method.query == "question" else "passage 0 about gout")


def test_rag2_ends_with_what_its_steps_leave(retriever):
    run, traces = run_retrieval(RAG2_WHOLE, [QUESTION], retriever, Script(), k=3)
    rerank, kept = traces["q1"]["after"]
    assert (rerank["pairs"], kept["pairs"]) == (12, 3)
    lengths = [len(TEXTS[IDS.index(pid)]) for pid in run["pid"]]
    assert lengths == sorted(lengths)
    assert max(lengths) <= 45
