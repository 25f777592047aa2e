"""One contract for every method, and what each of them says to search with."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from lib import methods
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.expansion import hypotheses, validity
from lib.index import DenseIndex
from lib.llm import REFERENCE, Reply, ScriptedChat, current_tag, tag
from lib.methods import METHODS, Dense, Expansion, Forms, Fusion, Method, Sparse, Text
from lib.methods.base import stem
from lib.retrieve import Retriever, expand_all, run_retrieval

OPTIONS = {"B": "colchicine", "A": "allopurinol", "C": "", "D": "febuxostat"}
QUESTION = Question("q1", "What stops an attack of gout?", OPTIONS, "B", "mine")
HIDDEN = (
    "answer", "gold_pmids", "gold_snippets", "snippet_pmids", "ideal_answer", "target", "mimic",
    "check",
)  # fmt: skip


class Sealed(Question):
    """A question that does not let anyone look at what an expansion must not know."""

    def __getattribute__(self, name):
        assert name not in HIDDEN, f"expand looked at question.{name}"
        return super().__getattribute__(name)


class Script:
    """A chat model that keeps what it is asked; JSON where a schema asks for it, else passages."""

    name = "script"
    tag = staticmethod(tag)

    def __init__(self, *texts: str):
        self.texts, self.asked, self.options = list(texts), [], []

    def generate(self, messages, *, n=1, schema=None, **options):
        self.asked.append(list(messages))
        self.options.append({"n": n, "schema": schema} | options)
        if self.texts:
            texts = [self.texts.pop(0) for _ in range(n)]
        elif schema:
            keys = schema["required"]
            texts = [json.dumps({k: f"{k} is gout of the toe" for k in keys})] * n
        else:
            texts = [f"passage {i} about gout" for i in range(n)]
        return [Reply(t, "stop", 5, 3, 0.1, self.name) for t in texts]

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
        case Dense():
            inner = [*request.texts, *(request.pool.texts if request.pool else ())]
            return [t if isinstance(t, str) else " ".join(t) for t in (x.text for x in inner)]
        case Sparse():
            return [request.text]
        case Forms():
            return [t for form in request.forms for t in texts_of(form)]
        case Fusion():
            return [t for part in request.requests for t in texts_of(part)]


@pytest.fixture
def retriever(own_folders) -> Retriever:
    encoder = HashEncoder()
    texts = [
        f"passage {i} on {'gout' if i % 2 else 'sepsis'} and toe number {i}" for i in range(12)
    ]
    index = DenseIndex([encoder.encode(texts)], [f"d{i}" for i in range(12)])
    return Retriever(index, encoder)


# the contract ------------------------------------------------------------------------------------


@pytest.fixture(params=sorted(METHODS))
def method(request) -> Method:
    return METHODS[request.param]


def test_a_method_is_a_frozen_set_of_settings_under_its_own_name(method):
    assert isinstance(method, Method) and METHODS[method.name] is method
    assert {"name", "needs_llm", "options_visible"} <= {f.name for f in fields(method)}
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
    assert isinstance(request, (Dense, Sparse, Forms, Fusion))
    assert texts_of(request) and all(text.strip() for text in texts_of(request))
    if isinstance(request, Dense):
        assert all(isinstance(t, Text) and t.role for t in request.texts)
        assert {t.tower for t in request.texts} <= {"query", "article"}
        assert all(math.isfinite(t.weight) and t.weight for t in request.texts)


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


def test_without_an_llm_a_method_that_needs_one_says_so(method):
    if method.needs_llm:
        with pytest.raises(ValueError, match=f"method {method.name} needs an LLM: pass llm="):
            expand_all(method, [QUESTION])
    else:
        assert expand_all(method, [QUESTION])[0].request is not None


def test_ten_thousand_words_no_options_and_odd_signs_break_nothing(method, retriever):
    asked = [
        replace(QUESTION, qid="long", text="gout of the big toe " * 2000),
        replace(QUESTION, qid="bare", options={}, answer=""),
        replace(QUESTION, qid="odd", text='Is "{question}" \\1 {H_plus} a ≥ 5 µg dose?\n\n{}'),
    ]
    run, traces = run_retrieval(method, asked, retriever, Script(), k=3, workers=1)
    assert run.groupby("qid").size().to_dict() == {"long": 3, "bare": 3, "odd": 3}
    assert list(traces) == ["long", "bare", "odd"]
    assert not any(t.get("error") for t in traces.values())


@pytest.mark.parametrize("name", [m.name for m in METHODS.values() if m.needs_llm])
def test_every_call_says_which_method_and_question_it_is_for(name):
    seen = []

    class Tagged(Script):
        def generate(self, messages, **options):
            seen.append(current_tag())
            return super().generate(messages, **options)

    asked = [replace(QUESTION, qid=f"q{i}") for i in range(20)]
    expand_all(METHODS[name], asked, Tagged(), workers=4)
    assert sorted(seen, key=str) == sorted(({"method": name, "qid": q.qid} for q in asked), key=str)


def test_the_stem_lists_options_by_letter():
    assert stem(QUESTION, False) == QUESTION.text
    assert stem(QUESTION, True).split("\n")[1:] == [
        "A. allopurinol", "B. colchicine", "C. ", "D. febuxostat",
    ]  # fmt: skip


# standard ----------------------------------------------------------------------------------------


def test_standard_is_the_question_on_the_query_tower_or_for_bm25():
    dense = asked_of(METHODS["standard"])[0].request
    assert dense == Dense((Text(QUESTION.text, 1.0, "query", "question"),))
    sparse = asked_of(methods.standard.Standard(sparse=True))[0].request
    assert sparse == Sparse(QUESTION.text)


# CHR and its control -----------------------------------------------------------------------------


def weights(request: Dense) -> list[tuple[str, float, str]]:
    return [(t.role, t.weight, t.tower) for t in request.texts]


@pytest.mark.parametrize("lam", [1.0, 0.4])
def test_chr_is_h_plus_minus_lambda_h_minus_from_one_call(lam):
    expansion, llm = asked_of(replace(METHODS["chr"], lam=lam))
    assert weights(expansion.request) == [("H+", 1.0, "article"), ("H-", -lam, "article")]
    assert [t.text for t in expansion.request.texts] == [
        "H_plus is gout of the toe", "H_minus is gout of the toe",
    ]  # fmt: skip
    assert expansion.request.pool is None and len(llm.asked) == 1
    assert METHODS["chr"].lam == 1.0 and llm.options[0]["temperature"] == 0.0


def test_the_control_has_the_identical_target_and_no_mimic():
    chr_, plus = (asked_of(METHODS[name])[0] for name in ("chr", "hplus"))
    assert plus.request.texts == chr_.request.texts[:1]
    assert weights(plus.request) == [("H+", 1.0, "article")]
    zero, llm = asked_of(replace(METHODS["chr"], lam=0.0))
    assert zero.request == plus.request
    assert llm.asked == asked_of(METHODS["hplus"])[1].asked  # so one recording serves both


def test_chr_with_the_question_a_pool_and_another_tower():
    chr_ = replace(METHODS["chr"], lam=0.5, question_weight=0.3, pool=50, tower="query")
    request = asked_of(chr_)[0].request
    assert weights(request) == [
        ("H+", 1.0, "query"), ("H-", -0.5, "query"), ("question", 0.3, "query"),
    ]  # fmt: skip
    assert request.texts[2].text == QUESTION.text
    assert weights(request.pool) == [("H+", 1.0, "query")] and request.pool_size == 50


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


def test_hyde_is_the_question_and_eight_passages_of_one_request():
    expansion, llm = asked_of(METHODS["hyde"])
    roles = [(t.role, t.weight, t.tower) for t in expansion.request.texts]
    assert roles == [("question", 1.0, "query")] + [("passage", 1.0, "article")] * 8
    assert [(o["n"], o["temperature"]) for o in llm.options] == [(8, 0.7)]
    bare = asked_of(replace(METHODS["hyde"], include_question=False, samples=3))[0].request
    assert [t.role for t in bare.texts] == ["passage"] * 3


def test_hyde_drops_and_counts_empty_passages_and_fails_without_any():
    hyde = replace(METHODS["hyde"], samples=4)
    expansion = hyde.expand(QUESTION, Script("one", "", " \n", "two "), no_search)
    assert [t.text for t in expansion.request.texts] == [QUESTION.text, "one", "two"]
    assert expansion.trace["passages"] == ["one", "two"] and expansion.trace["empty"] == 2
    failed = hyde.expand(QUESTION, Script("", " ", "", "\t"), no_search)
    assert failed.request is None and "empty" in failed.trace["error"]
    assert failed.trace["empty"] == 4


# a method of your own ----------------------------------------------------------------------------

MINE = '''
from dataclasses import dataclass
from lib.methods.base import Dense, Expansion, Fusion, Text

@dataclass(frozen=True)
class Echo:
    """Search with the question, then with the best passage it found, and fuse."""
    name: str = "echo"
    needs_llm: bool = False
    options_visible: bool = False

    def expand(self, question, llm, search):
        """Read the first result."""
        first = Dense((Text(question.text, 1.0, "query"),))
        pid, text = search(first, 1)[0]
        return Expansion(Fusion((first, Dense((Text(text),)))), {"read": pid})
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

    retriever.store = Store()
    run, traces = run_retrieval(METHODS["echo"], [replace(QUESTION, text="gout")], retriever, k=4)
    assert run["rank"].tolist() == [1, 2, 3, 4] and (run["method"] == "echo").all()
    best = retriever.index.search(retriever.encoder.encode(["gout"]), 1).ids[0, 0]
    assert traces["q1"] == {"read": best} and run["pid"].iloc[0] == best


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


def test_costs_stand_beside_real_generations_only():
    table = hypotheses(METHODS["chr"], [QUESTION, replace(QUESTION, qid="q2")], Script("bad"))
    shown = validity({"mine": table}, "script").iloc[0]
    assert (shown["calls"], shown["prompt_tokens"], shown["output_tokens"]) == (3, 15, 9)
    assert (shown["valid"], shown["repaired"]) == (2, 1)
