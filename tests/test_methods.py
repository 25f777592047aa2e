"""One contract for every method, and what each of them says to search with."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import methods
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.expansion import expand_all, hypotheses, validity
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
    SHIPPED,
    Expansion,
    Fusion,
    Hypotheses,
    Method,
    SearchSpec,
    Sparse,
    Text,
)
from lib.methods.base import Step
from lib.methods.differential import Differential
from lib.methods.rag2 import RAG2
from lib.plots.labels import label_of
from lib.profiles import load_profile, methods_of
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from tests.retrieved import run_retrieval

OPTIONS = {"B": "colchicine", "A": "allopurinol", "C": "", "D": "febuxostat"}
QUESTION = Question("q1", "What stops an attack of gout?", OPTIONS, "B", "mine")
HIDDEN = ("answer", "gold_pmids", "gold_snippets", "snippet_pmids", "ideal_answer", "target")
HIDDEN += ("mimic", "check")


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


RAG2_WHOLE = RAG2(reranker=by_length, judge=by_length, threshold=-45.0)
GENERATED = load_profile("mini").generated
EVERY = {name: METHODS[name] for name in SHIPPED}
EVERY |= {"rag2": RAG2_WHOLE, "differential": Differential()}
ASKING = [name for name, method in EVERY.items() if method.needs_llm]
SETTINGS = {name: EVERY[name] for name in ASKING} | {
    "csqe, single call": replace(METHODS["csqe"], mode="single_call", samples=1),
    "csqe, three samples": replace(METHODS["csqe"], samples=3, depth=1, words=7),
    "thinkqe, two rounds": replace(METHODS["thinkqe"], rounds=2, samples=1, shown=1),
    "thinkqe, prompted": replace(METHODS["thinkqe"], thinking="prompted"),
    "query2doc, no examples": replace(METHODS["query2doc"], shots=0, max_tokens=512),
    "a profile's": methods_of(replace(load_profile("mini"), **GENERATED))["csqe"],
}


@pytest.fixture(params=EVERY)
def method(request) -> Method:
    return EVERY[request.param]


def test_a_method_is_settings_and_a_request_that_no_answer_moves(method):
    assert isinstance(method, Method) and hash(method) and method.expand.__doc__
    with pytest.raises(FrozenInstanceError):
        method.name = "other"
    sealed = Sealed("q1", QUESTION.text, OPTIONS, "B", "mine")
    expansion, llm = asked_of(method, sealed)
    other = replace(QUESTION, answer="A", ideal_answer="Colchicine.", target="gout")
    twin, again = asked_of(method, other)
    assert expansion.request == twin.request is not None
    assert llm.asked == again.asked and llm.options == again.options
    request = expansion.request
    assert texts_of(request) and all(text.strip() for text in texts_of(request))
    parts = request.requests if isinstance(request, Fusion) else (request,)
    for part in (part for part in parts if isinstance(part, Hypotheses)):
        assert {t.tower for t in part.texts} <= {"query", "article"}
        assert all(t.role and math.isfinite(t.weight) for t in part.texts)
        # A question of weight 0 is there for a specification that adds it.
        assert all(t.weight or t.role == "question" for t in part.texts)
        assert any(t.weight for t in part.texts if t.role != "mimic")


def test_options_are_read_only_where_they_may_be_seen(method):
    for visible in (False, True):
        expansion, llm = asked_of(replace(method, options_visible=visible))
        searched = texts_of(expansion.request)
        everything = "\n".join([llm.prompts, *searched])
        assert QUESTION.text in everything
        for letter, option in OPTIONS.items():
            if option:
                assert (f"{letter}. {option}" in everything) == (option in everything) == visible
                assert not method.needs_llm or not any(option in text for text in searched)


def test_odd_questions_break_nothing_and_silence_fails_the_question(method, retriever):
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
    if not method.needs_llm:
        assert method.budget() is None
        return
    with pytest.raises(ValueError, match=f"method {method.name} needs an LLM: pass llm="):
        expand_all(method, [QUESTION])
    silent = ScriptedChat([{"match": "", "text": " \n"}])
    run, traces = run_retrieval(method, [QUESTION], retriever, silent)
    assert run.empty and traces["q1"]["error"] and traces["q1"]["replies"]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_budget_is_what_is_really_asked_and_a_trace_has_every_reply(name):
    method = SETTINGS[name]
    budget, llm = method.budget(), Script(end="length")
    many = [(f"d{i}", f"marked{i} " + "word " * 300) for i in range(40)]
    trace = method.expand(QUESTION, llm, lambda request, k: many[:k]).trace
    assert len(llm.asked) == len(budget.prompts)
    assert sum(options["n"] for options in llm.options) == budget.texts == len(trace["replies"])
    assert int(trace["cut"]) == (1 if name == "differential" else budget.texts)
    for option in ("max_tokens", "temperature"):
        assert {options[option] for options in llm.options} == {getattr(budget, option)}
    for messages, (prompt, shown) in zip(llm.asked, budget.prompts, strict=True):
        said = "\n".join(m["content"] for m in messages)
        # What stands in the prompt's file before its first blank is in what was asked.
        names = ("question", "documents")
        wanted = [name for name in names if "{" + name + "}" in str(load_prompt(prompt))]
        start = load_prompt(prompt).messages(**dict.fromkeys(wanted, "\0"))
        assert start[0]["content"].split("\0")[0] in said
        lines = [line for line in said.split("\n") if "marked" in line]
        # ThinkQE shows at most as many; where the same come again, fewer.
        assert len(lines) <= shown and (messages is not llm.asked[0] or not shown or lines)
        assert all(len(line.split()) <= budget.words + 1 for line in lines)  # its number


@pytest.mark.parametrize("name", ASKING)
def test_every_call_has_a_seed_of_its_own_and_says_what_it_is_for(name):
    seen = []

    class Given:
        search = staticmethod(no_search)

    class Tagged(Script):
        def generate(self, messages, **options):
            seen.append((current_tag()["method"], current_tag()["qid"]))
            return super().generate(messages, **options)

    method = EVERY[name]
    asked = [replace(QUESTION, qid=f"q{i}") for i in range(20)]
    expand_all(method, asked, Tagged(), Given(), workers=4)
    calls = len(method.budget().prompts)
    assert Counter(seen) == {(method.name, q.qid): calls for q in asked}

    def seeds(seed: int) -> list[int]:
        llm = asked_of(replace(method, seed=seed))[1]
        return [sample_seed(o["seed"], i) for o in llm.options for i in range(o["n"])]

    assert seeds(7)[0] == 7 == method.seed + 7 and seeds(8) == [seed + 1 for seed in seeds(7)]
    # Two calls with other prompts may share one: only the differential's do.
    assert len(set(seeds(7))) == len(seeds(7)) or method.name == "differential"


def test_a_setting_that_does_not_exist_is_refused():
    for name, field, value in (
        ("query2doc", "shots", 3),
        ("csqe", "mode", "single"),
        ("thinkqe", "thinking", "on"),
    ):
        with pytest.raises(ValueError, match=f"{name}: {field} is one of .*, not {value!r}"):
            replace(METHODS[name], **{field: value})


# CHR and its control -----------------------------------------------------------------------------


def test_chr_is_one_call_and_its_control_the_identical_texts_without_subtraction():
    for lam in (1.0, 0.4):
        expansion, llm = asked_of(replace(METHODS["chr"], lam=lam))
        request = expansion.request
        assert [(t.role, t.weight, t.tower, t.text) for t in request.texts] == [
            ("target", 1.0, "article", "H_plus is gout of the toe"),
            ("mimic", 1.0, "article", "H_minus is gout of the toe"),
            ("question", 0.0, "query", QUESTION.text),
        ]
        assert request.spec == SearchSpec(lam=lam) and len(llm.asked) == 1
        control, heard = asked_of(METHODS["hplus"])
        assert control.request == request.by(lam=0.0)
        assert heard.asked == llm.asked and heard.options == llm.options  # one recording for both
    assert METHODS["chr"].lam == 1.0 and llm.options[0]["temperature"] == 0.0


def check_ranking(run, vector: np.ndarray) -> None:
    """The run has the passages' products with the vector, best first."""
    scores = dict(zip(IDS, Towers().encode(TEXTS, "article") @ vector, strict=True))
    assert run["score"].tolist() == pytest.approx([scores[pid] for pid in run["pid"]], abs=1e-5)
    assert run["score"].tolist() == pytest.approx(sorted(scores.values())[::-1], abs=1e-5)


@pytest.mark.parametrize("settings", [{}, {"lam": 0.4}, {"question_weight": 0.7}, {"lam": -0.5}])
def test_chr_finds_what_its_equation_says(settings, retriever):
    method = replace(METHODS["chr"], **settings)
    said = json.dumps({"H_plus": "gout toe number 3", "H_minus": "sepsis number 4"})
    run, _ = run_retrieval(method, [QUESTION], retriever, Script(said), k=12)
    plus, minus = Towers().encode(["gout toe number 3", "sepsis number 4"], "article")
    (asked,) = Towers().encode([QUESTION.text], "query")
    check_ranking(run, plus - method.lam * minus + method.question_weight * asked)


def test_a_differential_pays_for_the_nearest_of_several_mimics():
    mimics = json.dumps({"mimics": ["gout b", " ", "sepsis"]})
    request = Differential().expand(QUESTION, Script(GOOD, mimics), no_search).request
    assert request.spec == SearchSpec("max", lam=0.4)
    assert [t.text for t in request.of("mimic")] == ["gout b", "sepsis"]
    assert [t.text for t in request.of("target")] == ["It is gout."]


GOOD = json.dumps({"H_plus": "It is gout.", "H_minus": "It is pseudogout."})


@pytest.mark.parametrize(
    "broken", ["no json", '{"H_plus": "only"}', '{"H_plus": "", "H_minus": "x"}']
)
def test_a_reply_broken_twice_fails_the_question_and_one_repaired_is_flagged(broken):
    for name in ("chr", "hplus"):
        llm = Script(broken, broken)
        expansion = METHODS[name].expand(QUESTION, llm, no_search)
        assert expansion.request is None and expansion.trace["error"] and len(llm.asked) == 2
        assert expansion.trace["repaired"] and len(expansion.trace["replies"]) == 2
        mended = METHODS[name].expand(QUESTION, Script(broken, GOOD), no_search)
        assert mended.trace["repaired"] and mended.trace["error"] == ""
        assert mended.request.texts[0].text == mended.trace["H_plus"] == "It is gout."
        silent = METHODS[name].expand(QUESTION, Script(GOOD.replace("It is gout", "..")), no_search)
        assert silent.request is None and silent.trace["error"] == "H_plus is empty"


# the vector that is searched with, by hand -----------------------------------------------------

Q = QUESTION.text
EXTRACT = 'No [2] helps, but [1] says "Gout is of the toe." and “sepsis is "not" gout”'
SPANS = 'Gout is of the toe. sepsis is "not" gout'
BOTH = json.dumps({"passage": " A gout attack. ", "sentences": ["One toe.", Q, " ", "Two toes."]})
THOUGHT = ["<think>a</think>one gout", "b</think> two toes", "", "three", "<think>four", "five"]
QUOTING = ["a toe", "gout b", f'"made up" "{TEXTS[3]}!"', EXTRACT]
VECTORS = [
    ("hyde", {"samples": 3}, ["a toe", "", "gout b"], (1, Q), ["a toe", "gout b"]),
    ("query2doc", {}, ["a toe\n"], (1, (Q, "a toe")), []),
    ("query2doc", {"dense": "pair_article"}, ["a toe"], (0, Q), [(Q, "a toe")]),
    ("query2doc", {"dense": "mean"}, ["a toe"], (1, Q), ["a toe"]),
    (
        "csqe",
        {},
        ["a toe", "gout b", EXTRACT, '"passage 3"'],
        (2, Q),
        ["a toe", "gout b", SPANS, "passage 3"],
    ),
    (
        "csqe",
        {"verify_extracts": True, "depth": 12},
        QUOTING,
        (2, Q),
        ["a toe", "gout b", f"{TEXTS[3]}!"],
    ),
    ("csqe", {"mode": "single_call"}, [BOTH], (1, Q), ["A gout attack.", "One toe. Two toes."]),
    ("thinkqe", {}, list("abcdef"), (2, Q), list("abcdef")),
    (
        "thinkqe",
        {"thinking": "prompted"},
        THOUGHT,
        (4 / 3, Q),
        ["one gout", "two toes", "three", "five"],
    ),
]
"""Method, settings, what the model says; the question's weight, and texts of weight 1."""


@pytest.mark.parametrize(("name", "changes", "said", "asked", "written"), VECTORS)
def test_a_method_searches_with_the_vector_its_paper_describes(
    name, changes, said, asked, written, retriever
):
    llm = Script(*said)
    run, traces = run_retrieval(replace(METHODS[name], **changes), [QUESTION], retriever, llm, k=12)
    assert not llm.texts and not traces["q1"].get("error")
    weight, question = asked
    vector = weight * Towers().encode([question], "query")[0]
    vector += sum(Towers().encode([text], "article")[0] for text in written)
    if name == "thinkqe":  # a quarter for the question, the rest in equal parts
        vector *= 0.75 / len(written)
    check_ranking(run, vector)
    if name == "hyde":
        assert traces["q1"]["empty"] == 1 and traces["q1"]["passages"] == ["a toe", "gout b"]


def test_query2doc_for_bm25_is_the_question_five_times_and_the_passage():
    sparse = replace(METHODS["query2doc"], sparse=True)
    request = sparse.expand(QUESTION, Script("a toe"), no_search).request
    assert request == Sparse(f"{Q} {Q} {Q} {Q} {Q} a toe")


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


def test_csqe_asks_two_prompts_and_the_second_shows_the_first_words_of_the_first_documents():
    searched = []

    def search(request, k):
        searched.append((request, k))
        return [(f"d{i}", f"text{i} " + "word " * 300) for i in range(k)]

    llm = Script("p1", "p2", "none", '"x"')
    trace = METHODS["csqe"].expand(QUESTION, llm, search).trace
    shown = [text for _, text in trace["documents"]]
    assert [len(text.split()) for text in shown] == [128] * 10
    for i, text in enumerate(shown, 1):
        assert f"[{i}] {text}" in llm.asked[1][-1]["content"]
        assert text not in llm.asked[0][-1]["content"]
    assert (trace["passages"], trace["extracts"]) == (["p1", "p2"], ["", "x"])
    assert (trace["empty_passages"], trace["empty_extracts"], trace["found_share"]) == (0, 1, 0.0)
    replace(METHODS["csqe"], first_stage="bm25", depth=4).expand(QUESTION, Script(), search)
    assert searched == [(Hypotheses((Text(Q, 1.0, "query", "question"),)), 10), (Sparse(Q), 4)]


def test_a_single_call_that_stays_broken_fails_and_one_repaired_is_flagged():
    single = replace(METHODS["csqe"], mode="single_call")
    failed = single.expand(QUESTION, Script('{"passage": "a"}', '{"sentences": []}'), no_search)
    assert failed.request is None and failed.trace["error"] and len(failed.trace["replies"]) == 2
    mended = single.expand(QUESTION, Script("sorry", BOTH), no_search)
    roles = [t.role for t in mended.request.texts]
    assert mended.trace["repaired"] and roles == ["question", "passage", "extract"]
    bare = single.expand(QUESTION, Script('{"passage": "a", "sentences": []}'), no_search)
    assert [t.role for t in bare.request.texts] == ["question", "passage"]


def test_spans_are_what_stands_between_double_quotes():
    for reply, spans in (
        ('[1] "One." "Two."\n[3] "Three."', ["One.", "Two.", "Three."]),
        ("[1] “One.” and “ Two. ”", ["One.", "Two."]),
        ('"straight" and “curly”', ["straight", "curly"]),
        ('“the "best" drug”', ['the "best" drug']),
        ("“the “best” drug” “b”", ["the “best” drug", "b"]),
        ('"forgotten\n[2] "Two."', ["Two."]),
        ("It's 'single', the patient's.", []),
        ('"" “”', []),
    ):
        assert quoted(reply) == spans
    # Copies of the question and empty spans are dropped.
    for copy in (Q, Q.lower(), Q.rstrip("?"), f" {Q.replace(' ', '  ')} ", "...", ""):
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


def filtered(rankings: list[list[str]], top: int) -> list[list[str]]:
    """The redundancy filter as METHODS 5 tells it, over whole rankings."""
    blacklist, shown, before = set(), [], []
    for ranking in rankings:
        kept = []
        for pid in ranking:
            if len(kept) == top:
                break
            if pid in before:
                blacklist.add(pid)
            elif pid not in blacklist:
                kept.append(pid)
        shown.append(kept)
        before = ranking[:top]
    return shown


@given(st.integers(1, 5), st.lists(st.permutations("abcdefghijklmnop"), min_size=1, max_size=5))
@settings(max_examples=200)
def test_the_redundancy_filter_shows_what_was_not_at_the_top_before(top, rankings):
    turns = iter(rankings)
    thinkqe = replace(METHODS["thinkqe"], rounds=len(rankings), shown=top)
    trace = thinkqe.expand(
        QUESTION, Script(), lambda request, k: [(p, f"text {p}") for p in next(turns)[:k]]
    ).trace
    shown = [[pid for pid, _ in r["shown"]] for r in trace["rounds"]]
    assert shown == filtered(rankings, top) and shown[0] == rankings[0][:top]


def test_what_was_cut_while_still_thinking_is_no_text():
    for thinking in ("prompted", "none"):
        method = replace(METHODS["thinkqe"], thinking=thinking)
        request = method.expand(QUESTION, Script(end="length"), no_search).request
        assert (request is None) == (thinking == "prompted")


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
    trace = expansion.trace
    assert trace["empty"] == 2
    assert [r["texts"] for r in trace["rounds"]] == [said[:2], said[2:4], said[4:]]
    for messages, round_ in zip(llm.asked, trace["rounds"], strict=True):
        listed = [f"[{i}] {text}" for i, (_, text) in enumerate(round_["shown"], 1)]
        assert "\n".join(listed) in messages[-1]["content"]
    shown = [pid for round_ in trace["rounds"][:2] for pid, _ in round_["shown"]]
    assert len(set(shown)) == 10  # the second search was the third: what came again is not shown


# a method of your own ----------------------------------------------------------------------------

MINE = '''
from dataclasses import dataclass
from lib.methods.base import Expansion, register
from lib.query_spec import Fusion, Hypotheses, Text

@dataclass(frozen=True)
class Echo:
    """Search with the question, then with the best passage it found, and fuse."""
    name: str = "echo"
    depth: int = 0
    needs_llm: bool = False
    options_visible: bool = False

    def expand(self, question, llm, search):
        """Read the first result."""
        first = Hypotheses((Text(question.text, 1.0, "query"),))
        pid, text = search(first, 1)[0]
        fused = Fusion((first, Hypotheses((Text(text),))), depth=self.depth)
        return Expansion(fused, {"read": pid})

    def budget(self):
        """Nobody is asked."""
        return None

register(Echo())
'''


def test_a_new_file_in_the_folder_is_a_method_everywhere(retriever, tmp_path, monkeypatch):
    (tmp_path / "echo.py").write_text(MINE)
    before = list(METHODS)
    assert before == list(SHIPPED), "tests count these alone"
    monkeypatch.delenv("CHR_METHODS")
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    try:
        methods.load_methods()
        assert list(METHODS) == [*before, "echo"] and isinstance(METHODS["echo"], Method)
        echo = METHODS["echo"]
        monkeypatch.setenv("CHR_METHODS", "shipped")
        methods.load_methods()
        assert list(METHODS) == before
        monkeypatch.setenv("CHR_METHODS", "mine")
        with pytest.raises(ValueError, match="CHR_METHODS is 'mine'"):
            methods.load_methods()
        methods.register(echo)
        assert label_of("echo") == "echo", "until labels.csv has a row for it"
        mine = methods_of(load_profile("mini"), echo={"depth": 5})["echo"]
    finally:
        del METHODS["echo"], sys.modules["lib.methods.echo"]
    run, traces = run_retrieval(mine, [replace(QUESTION, text="gout")], retriever, k=4)
    assert mine.depth == 5 and run["rank"].tolist() == [1, 2, 3, 4]
    asked = retriever.encoder.encode(["gout"], "query")
    best = retriever.index.search(asked, 1).ids[0, 0]
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


def test_rag2_asks_for_a_rationale_only_where_something_reads_it():
    rationale = "passage 0 about gout"
    for changes, query, asks in (
        ({}, "", True),
        ({"rerank_by": "rationale"}, rationale, True),
        ({"query": "question"}, "", False),
        ({"query": "question", "rerank_by": "rationale"}, rationale, True),
    ):
        method = replace(RAG2_WHOLE, **changes)
        expansion, llm = asked_of(method)
        assert method.needs_llm == asks == (method.budget() is not None) == bool(llm.asked)
        assert expansion.after[0].query == query
        (searched,) = texts_of(expansion.request)
        assert searched == (Q if method.query == "question" else rationale)


def test_rag2_ends_with_what_its_steps_leave(retriever):
    run, traces = run_retrieval(RAG2_WHOLE, [QUESTION], retriever, Script(), k=3)
    rerank, kept = traces["q1"]["after"]
    assert (rerank["pairs"], kept["pairs"]) == (12, 3)
    lengths = [len(TEXTS[IDS.index(pid)]) for pid in run["pid"]]
    assert lengths == sorted(lengths)
    assert max(lengths) <= 45
