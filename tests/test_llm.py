"""The client against a server that refuses and fails in every form that somebody has met."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import subprocess
import sys
import time
import traceback
from itertools import product
from urllib.parse import quote

import pytest

from lib.base.command import BLOT
from lib.base.paths import ROOT
from lib.datasets import Question
from lib.llm.chat import (
    REFERENCE,
    ChatModel,
    LLMError,
    Reply,
    ScriptedChat,
    ask_json,
    current_tag,
    in_parallel,
    ledger,
    sample_seed,
    tag,
)
from lib.llm.connect import connect
from lib.llm.openai_chat import OpenAIChat, server_address
from lib.llm.recorder import Recorder
from lib.readers import ChoiceReader
from tests.fault_server import FaultServer, completion

ASK = [{"role": "user", "content": "What is gout?"}]
WITH_SYSTEM = [{"role": "system", "content": "Be short."}, *ASK]
QUESTION = Question("q1", "What is it?", {"A": "Gout", "B": "Sepsis"}, "A", "own")
SCHEMA = {
    "type": "object",
    "properties": {"target": {"type": "string"}, "mimic": {"type": "string"}},
    "required": ["target", "mimic"],
    "additionalProperties": False,
}


def chat(server: FaultServer, **options) -> OpenAIChat:
    return OpenAIChat("m", server.url, **{"timeout_s": 5, **options})


# the request -------------------------------------------------------------------------------------


def test_a_reply_keeps_text_tokens_latency_and_the_name_the_server_gives():
    with FaultServer("cut") as server, tag(method="hyde", qid="q1"):
        reply = chat(server).generate(ASK, temperature=0.7, seed=3, stop=["END"])[0]
    assert (reply.text, reply.finish_reason, reply.model) == ("fine", "length", "served-name")
    assert (reply.prompt_tokens, reply.output_tokens, reply.method) == (7, 3, "hyde")
    assert 0 < reply.latency_s < 5
    sampling = {"temperature": 0.7, "top_p": 1.0, "max_tokens": 512, "seed": 3, "stop": ["END"]}
    assert server.bodies == [{"model": "m", "messages": ASK} | sampling]


def test_a_model_is_asked_where_an_event_loop_runs_as_in_a_notebook():
    async def cell(server: FaultServer) -> list[str]:
        model = chat(server)
        return in_parallel(lambda _: model.generate(ASK)[0].text, range(3))

    with FaultServer() as server:
        assert asyncio.run(cell(server)) == ["fine"] * 3


@pytest.mark.parametrize("how", [{}, {"refuse": ("n",)}, {"several": False}])
def test_several_replies_have_seeds_of_their_own_and_a_cost_that_counts_once(how):
    with FaultServer(text=lambda body: str(body["seed"]), **how) as server:
        model = chat(server)
        replies = model.generate(ASK, n=3, seed=5)
        asked = len(server.bodies)
        model.generate(ASK, n=3, seed=5)
    cost = ledger(replies).iloc[0]
    if how:
        assert [reply.text for reply in replies] == [str(sample_seed(5, i)) for i in range(3)]
        assert len(server.bodies) == asked + 3
        assert not any("n" in body for body in server.bodies[asked:])
    else:
        assert [body["n"] for body in server.bodies] == [3, 3]
        assert (cost.calls, cost.prompt_tokens, cost.output_tokens) == (1, 7, 9)
    assert cost.replies == 3


# keys and addresses ------------------------------------------------------------------------------

PLANTED = ("sk-planted-0123456789", 'sk-"planted"/0123+789')
"""Keys: a plain one, and one that reads otherwise in JSON and in an address."""


def forms_of(key: str) -> set[str]:
    return {key, json.dumps(key)[1:-1], repr(key)[1:-1], quote(key, safe="")}


def test_the_key_is_chr_llm_key_and_nothing_that_openai_reads_is_sent(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "someone-elses")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: someone-elses")
    for key, sent in ((" mine\r\n", "mine"), ("", "none")):
        monkeypatch.setenv("CHR_LLM_KEY", key)
        with FaultServer() as server:
            chat(server).generate(ASK)
        (headers,) = server.headers
        assert headers["authorization"] == f"Bearer {sent}" and "someone-elses" not in str(headers)
    monkeypatch.setenv("CHR_LLM_KEY", "“sk-planted-0123456789”")
    with pytest.raises(ValueError, match="CHR_LLM_KEY holds.*Next: export") as caught:
        OpenAIChat("m", "http://127.0.0.1:9/v1")
    assert "sk-pl" not in str(caught.value)


@pytest.mark.fault("secrets", "A server says the key again")
def test_a_server_that_echoes_the_key_in_an_error_shows_it_to_nobody(fault, monkeypatch):
    for key, status in product(PLANTED, (400, 401, 500)):
        monkeypatch.setenv("CHR_LLM_KEY", key)
        for options in ({}, {"choices": ["A", "B"]}, {"schema": SCHEMA}):
            with FaultServer(forever=f"echo {status}") as server, pytest.raises(LLMError) as caught:
                chat(server, max_retries=0).generate(ASK, **options)
            assert server.headers[0]["authorization"] == f"Bearer {key}", "it was sent"
            error = caught.value
            shown = "".join(traceback.format_exception(error)) + repr(error) + str(error)
            assert BLOT in shown
            fault.came(wrong=any(form in shown for form in forms_of(key)), said=error)


@pytest.mark.fault("secrets", "The password of a proxy holds #, / or ?", "write # as %23")
@pytest.mark.parametrize("variable", ["http_proxy", "HTTPS_PROXY"])
def test_a_proxys_password_is_not_taken_for_its_address(variable, monkeypatch):
    monkeypatch.setenv(variable, "http://me:hunter2#hunter2@127.0.0.1:9")
    with pytest.raises(ValueError, match=f"{variable}.*%23") as caught:
        OpenAIChat("m", "http://nowhere.invalid/v1")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_server_on_this_machine_is_never_asked_through_a_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        with FaultServer() as server:
            model = OpenAIChat("m", server.url.replace("127.0.0.1", host), max_retries=0)
            assert model.generate(ASK)[0].text == "fine"


def test_who_vouches_for_a_server_is_as_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
    with pytest.raises(FileNotFoundError):
        OpenAIChat("m", "https://localhost:8000/v1")


ADDRESSES = {
    "http://h:8000": "http://h:8000/v1",
    " http://h:8000/v1/\r\n": "http://h:8000/v1",
    "http://h:8000/v1/chat/completions": "http://h:8000/v1",
    "http://h:8000/v1/completions/": "http://h:8000/v1",
    "https://h/api/openai/v3": "https://h/api/openai/v3",
}
NO_ADDRESS = {
    **dict.fromkeys(("h:8000/v1", "", "ftp://h/v1", "http://"), "http://localhost:8000/v1"),
    **dict.fromkeys(("http://me:secret@h/v1", "http://h/v1?key=secret"), "CHR_LLM_KEY"),
}
NO_SPEC = {
    "openai:m@localhost:8000/v1": "http://",
    "openai:m@10.0.0.1:8000": "http://",
    "openai:m@ftp://me:secret@host/v1": "http://",
    "openai:m@HTTP://me:secret@host/v1": "no user",
    "record:file=opena:m@http://me:secret@host/v1": "help",
    **dict.fromkeys(("gpt", "replay:", "record:file", "small:x"), "help"),
}


def test_an_address_is_understood_as_people_have_it_and_nothing_else_is_taken_for_one(monkeypatch):
    assert {given: server_address(given) for given in ADDRESSES} == ADDRESSES
    monkeypatch.setenv("CHR_LLM_URL", "http://localhost:2/v1")
    opens = [(server_address, NO_ADDRESS), (connect, NO_SPEC)]
    for open_, given, says in ((o, g, s) for o, table in opens for g, s in table.items()):
        with pytest.raises(ValueError, match=says) as caught:
            open_(given)
        assert "secret" not in str(caught.value)


def test_connect_reads_specs_and_environment(monkeypatch, tmp_path):
    for name in ("CHR_LLM_URL", "CHR_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)
    for spec in (None, "openai:", "openai:a/b"):
        with pytest.raises(LLMError, match=r"CHR_LLM_URL.*connect\('small'\)"):
            connect(spec)
    model = connect("openai:@cf/a:b@http://localhost:1/v1")
    assert (model.name, model.base_url) == ("@cf/a:b", "http://localhost:1/v1")
    monkeypatch.setenv("CHR_LLM_URL", "http://localhost:2/v1")
    monkeypatch.setenv("CHR_LLM_MODEL", "env")
    names = [connect(spec).name for spec in (None, "openai:a/b", "openai:claude@20240229")]
    assert names == ["env", "a/b", "claude@20240229"]
    recorder = connect(f"record:{tmp_path}/r.jsonl=openai:a/b")
    assert (recorder.name, recorder.mode, recorder.path) == ("a/b", "record", tmp_path / "r.jsonl")


# what is refused ---------------------------------------------------------------------------------

EXTRA = {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "not permitted"}]}
REFUSALS = [
    ("max_tokens", 400, "'max_tokens' is not supported. Use 'max_completion_tokens' instead."),
    ("seed", 422, EXTRA),
    ("seed", 400, "no field seed"),
    ("temperature", 422, {"error": "Input validation error: `temperature` must be positive"}),
    ("top_p", 400, "`temperature` and `top_p` cannot both be specified for this model"),
    ("top_p", 500, {"message": "Extra inputs are not permitted: top_p"}),
    ("stop", 400, {"error": "Unknown parameter: stop"}),
    ("response_format", 501, "response_format is not supported"),
    ("response_format", 400, "Internal error"),
    ("response_format", 503, "Internal error"),
    ("system", 400, "System role not supported"),
    ("system", 400, "Conversation roles must alternate user/assistant/user/assistant/..."),
    ("system", 500, "Developer instruction is not enabled for models/gemma-3-27b-it"),
]


@pytest.mark.parametrize(("field", "status", "said"), REFUSALS)
def test_a_refused_field_is_left_out_once_and_for_all_with_a_note(field, status, said):
    def answer(body):
        parts = {*body, *(message["role"] for message in body["messages"])}
        return (status, said) if field in parts else completion("fine")

    with FaultServer(answer=answer) as server:
        model = chat(server, max_retries=0)
        ask = [model.generate(WITH_SYSTEM, stop="END", schema=SCHEMA)[0] for _ in range(3)]
        (plain,) = model.generate(ASK)
    assert [reply.text for reply in ask] == ["fine"] * 3
    note = "schema not enforced" if field == "response_format" else field
    assert all(note in reply.note for reply in ask) and len(server.bodies) == 5
    if field in ("response_format", "system"):
        assert plain.note == ""  # it was not asked for
    if field == "system":
        moved = [{"role": "user", "content": "Be short.\n\nWhat is gout?"}]
        assert server.bodies[-2]["messages"] == moved
    asked = server.bodies[-1]
    assert field not in asked and asked.get("max_completion_tokens", asked.get("max_tokens")) == 512


def test_a_value_that_is_too_large_is_an_error_and_not_left_out():
    said = {"error": {"message": "max_tokens is too large: 512. It supports at most 100 tokens."}}
    with FaultServer(answer=lambda b: (400, said)) as s, pytest.raises(LLMError, match="at most"):
        chat(s).generate(ASK)
    assert len(s.bodies) == 1


# choices -----------------------------------------------------------------------------------------


def test_choices_are_weighed_by_the_first_token_and_nothing_is_generated():
    likely = {" B": -0.25, "The": -1.0, "A": -2.123456, "B": -3.0, "D ": -9.5}
    server = FaultServer("500", refuse=("max_tokens",), likely=likely)
    with server, tag(method="choice", qid="q1"):
        (reply,) = chat(server).generate(ASK, n=1, choices=["D", "A", "B", "C"], seed=3)
    # The likelier of " B" and "B" counts; C is not listed.
    assert json.loads(reply.text) == {"A": -2.1235, "B": -0.25, "D": -9.5}
    assert (reply.prompt_tokens, reply.method, reply.model) == (7, "choice", "served-name")
    asked = {"logprobs": True, "top_logprobs": 20, "temperature": 0.0, "max_completion_tokens": 1}
    assert server.bodies[-1] == {"model": "m", "messages": ASK} | asked
    for likely in (None, {"A": math.nan, "B": -1.0}):  # an error, and not a guess
        with (
            FaultServer(likely=likely) as server,
            pytest.raises(LLMError, match="m at .*no log-prob.*Next: "),
        ):
            chat(server).generate(ASK, choices=["A", "B"])
        assert len(server.bodies) == 1


FIRST_TOKENS = {
    ("Answer", "**"): "",
    ("\u2581B", "\u2581A"): "B",
    ("(B", "(A"): "B",
    ("The", "B", "A"): "B",
    ("<think>", "B", "A"): "",
    ("Bacteria", "A"): "A",
}


def test_a_first_token_is_a_letter_or_no_answer():
    for tokens, letter in FIRST_TOKENS.items():
        likely = {token: -0.1 - i for i, token in enumerate(tokens)}
        with FaultServer(likely=likely) as server:
            (answer,) = ChoiceReader(chat(server), "r").answer_all([QUESTION], [[]])
        assert (answer.letter, answer.rule == "none") == (letter, letter == ""), tokens


# failures ----------------------------------------------------------------------------------------


def test_a_passing_failure_is_retried():
    steps = ("503", "500", "truncated", "drop")
    with FaultServer(*steps) as server:
        assert chat(server).generate(ASK)[0].text == "fine"
    assert len(server.bodies) == len(steps) + 1


WORDS = "the words of the server"
CONTEXT = {"error": {"message": "maximum context length is 512 tokens"}}
ESCAPES = {"error": "\x1b[2J\x1b[31mgone\n" * 100_000}
LASTING = {
    "busy": (500, "", "curl"),
    "too many": (429, "", "fewer workers"),
    "no key": (401, "", "CHR_LLM_KEY"),
    "a detail": (422, {"detail": WORDS}, r"422.*the \[key\] the server"),
    "a page": (500, f"<html><title>{WORDS}</title></html>", r"500.*the \[key\] the server"),
    "too long a prompt": (400, CONTEXT, "shorten the prompt"),
    "half a text": (200, '{"id": "x", "cho', "cannot be read"),
    "no choices": (200, completion(), "no choices"),
    "lists in lists": (200, "[" * 200_000, "cannot be read"),
    "an error with status 200": (200, {"error": {"message": "out of memory"}}, "out of memory"),
    "escapes of a terminal": (400, ESCAPES, "gone"),
    "no usage": (200, completion("fine") | {"usage": {"prompt_tokens": "7"}}, "cannot be read"),
}
"""What a server answers, whatever is asked of it, and what is said of it."""


@pytest.mark.fault("waiting", "An answer is of no use")
def test_an_answer_that_is_none_is_one_plain_line_with_the_next_step(fault, monkeypatch):
    monkeypatch.setenv("CHR_LLM_KEY", "words of")
    for status, body, says in LASTING.values():
        refused = pytest.raises(LLMError, match=f"m at http.*{says}")
        with FaultServer(answer=lambda _, it=(status, body): it) as server, refused as caught:
            chat(server, max_retries=0).generate(ASK, n=2, schema=SCHEMA)
        assert caught.value.status == (status if status != 200 else None)
        said = str(caught.value)
        is_wrong = not said.isprintable() or len(said) > 1000 or "Next: " not in said
        fault.came(wrong=is_wrong, said=said)


def test_a_redirect_is_not_followed_so_that_no_other_server_sees_the_question():
    with FaultServer() as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost") + "/chat/completions"
        moved = FaultServer(answer=lambda _: (307, "", {"Location": elsewhere}))
        with moved, pytest.raises(LLMError, match="307.*localhost.*Next: .*CHR_LLM_URL"):
            chat(moved).generate(ASK)
    assert len(moved.bodies) == 1 and not other.bodies


# waiting -----------------------------------------------------------------------------------------


@pytest.mark.fault("waiting", "An answer has no end")
@pytest.mark.parametrize("step", ["drip", "drip head", "silent", "hundreds"])
def test_an_answer_without_end_is_left_at_the_limit_and_its_server_told(step, fault):
    with FaultServer(forever=step) as server:
        for _ in fault.tries(3):
            start = time.perf_counter()
            refused = rf"m at {server.url}: timed out.* 0\.2 s.*Next: "
            with pytest.raises(LLMError, match=refused) as error:
                chat(server, timeout_s=0.2, max_retries=0).generate(ASK)
            fault.came(wrong=time.perf_counter() - start > 10, said=error.value)
        ends = time.monotonic() + 5
        while server.now and step != "silent" and time.monotonic() < ends:
            time.sleep(0.02)  # one that says nothing does not see that nobody listens
        assert server.now == 0 or step == "silent"


def test_a_wait_that_the_server_asks_for_is_kept_and_said_once_for_all_who_wait(capsys):
    with FaultServer(*["429 after 1"] * 4, together=4) as server:
        model = chat(server)
        start = time.perf_counter()
        replies = in_parallel(lambda _: model.generate(ASK)[0], range(4), workers=4)
    assert time.perf_counter() - start >= 1 and all(reply.latency_s >= 1 for reply in replies)
    (said,) = capsys.readouterr().err.splitlines()
    assert f"m at {server.url}: the server says wait: 1.0 s before try 2 of 6 (" in said


@pytest.mark.fault("waiting", "A server says wait for longer than the deadline")
def test_a_wait_that_is_longer_than_the_deadline_is_refused_at_once(fault, capsys):
    for step, says in {
        "429 after 120": "120 s",
        "429 after 1e999": "inf s",
        "503 after 9999": "9,999 s",
        "429 after Fri, 31 Dec 2100 23:59:59 GMT": "2,.* s",
    }.items():
        refused = f"says wait: {says}.* s are left of 60 s.*Next: "
        with FaultServer(forever=step) as server, pytest.raises(LLMError, match=refused) as caught:
            chat(server, timeout_s=10).generate(ASK)
        assert caught.value.status == int(step[:3]) and len(server.bodies) == 1
        assert capsys.readouterr().err == ""
        fault.came(said=caught.value)


ASKING = """
import sys
from lib.llm.chat import in_parallel
from lib.llm.connect import connect

def one(i):
    return llm.generate([{"role": "user", "content": f"question {i}"}])

with connect(sys.argv[1]) as llm:
    in_parallel(one, range(8), workers=4)
"""


@pytest.mark.fault(
    "waiting", "Ctrl-C while a server is asked", "nothing: what was received is kept"
)
@pytest.mark.parametrize("step", ["silent", "429 after 100"])
def test_ctrl_c_ends_at_once_and_what_was_answered_is_kept(step, tmp_path):
    file = tmp_path / "said.jsonl"
    with FaultServer("ok", "ok", "ok", forever=step) as server:
        command = [sys.executable, "-c", ASKING, f"record:{file}=openai:m@{server.url}"]
        asking = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        while len(server.bodies) < 7 or file.read_bytes().count(b"\n") < 3:
            assert asking.poll() is None  # three are answered, four workers wait
            time.sleep(0.02)
        asking.send_signal(signal.SIGINT)
        try:
            said = asking.communicate(timeout=20)[1]
        finally:
            asking.kill()
        assert "stopped; what is finished is kept" in said and "Task" not in said
        assert asking.returncode in (-signal.SIGINT, 130)
        kept = file.read_text(encoding="utf-8").splitlines()
        server.forever = "ok"
        with Recorder(chat(server), file) as llm:
            for i in range(8):
                llm.generate([{"role": "user", "content": f"question {i}"}])
    assert len(kept) == 3 and len(server.bodies) == 7 + 5
    assert set(kept) < set(file.read_text(encoding="utf-8").splitlines())


# replies -----------------------------------------------------------------------------------------

PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Sepsis?"}]},
    {"type": "text", "text": "Gout."},
]
REPLIES = {
    "a field of its own": (completion("Gout.", reasoning_content="Sepsis?"), "Gout."),
    "a field of another name": (completion("Gout.", reasoning="Sepsis?"), "Gout."),
    "parts": (completion(PARTS), "Gout."),
    "in its text": (completion("<think>Sepsis?</think>Gout."), "Gout."),
    "all of it": (completion(None, reasoning_content="Sepsis?"), ""),
}


def test_thinking_stands_beside_the_text_however_a_server_tells_it():
    for form, (answer, text) in REPLIES.items():
        with FaultServer(answer=lambda _, it=answer: it) as server:
            (reply,) = chat(server).generate(ASK)
        assert (reply.text, reply.thinking) == (text, "Sepsis?"), form


@pytest.mark.fault("waiting", "A reply is of megabytes, or signs without end")
def test_a_reply_without_end_is_an_empty_one_and_is_not_kept(fault, tmp_path):
    for text in ("x " * 200_000, "[" * 100_000, '{"a":' * 30_000, f"The answer{'*' * 100_000} ?"):
        file = tmp_path / "r.jsonl"
        with FaultServer(text=text) as server, Recorder(chat(server), file) as llm:
            (reply,) = llm.generate(ASK)
        assert "without end, dropped" in reply.note
        kept = (reply.text, reply.finish_reason) != ("", "no text") or file.stat().st_size > 1000
        fault.came(wrong=kept, said=reply.note)
        file.unlink()
    for text in ("[1] " * 200, "a " + "-" * 900 + " b", '{"a": [1, 2]}' * 100):
        with FaultServer(text=text) as server:  # many signs, but a text
            assert chat(server).generate(ASK)[0].text == text


# many at once, and what it costs -----------------------------------------------------------------


def test_as_many_requests_are_in_flight_as_there_are_workers_each_with_the_callers_tag(capsys):
    with FaultServer(together=32) as server:
        model = chat(server, timeout_s=30, max_retries=0)
        replies = in_parallel(lambda _: model.generate(ASK)[0], range(32), workers=32)
    assert server.peak == 32 and [r.text for r in replies] == ["fine"] * 32

    def one(i: int):
        time.sleep(0.02 * (5 - i))
        return i, current_tag()["qid"]

    with tag(qid="q7"):
        assert in_parallel(one, range(5), workers=5) == [(i, "q7") for i in range(5)]
    assert current_tag() == {"method": "", "qid": ""}
    assert in_parallel(one, []) == [] and capsys.readouterr().err == ""


def test_the_ledger_adds_up_by_method_and_model_and_never_guesses():
    replies = [
        Reply("a", "stop", 10, 4, 0.5, "x", method="chr"),
        Reply("b", "length", 20, 6, 1.5, "x", method="chr"),
        Reply("c", "stop", None, None, None, REFERENCE, method="chr"),
        Reply("d", "stop", 5, 1, None, "x", method="hyde"),
    ]
    table = ledger(replies).set_index(["method", "model"])
    real = table.loc["chr", "x"]
    assert (real.calls, real.replies, real.prompt_tokens, real.output_tokens) == (2, 2, 30, 10)
    assert real.latency_s == 2.0 and real.finish_reasons == "length 1, stop 1"
    assert table.loc["chr", REFERENCE][["prompt_tokens", "latency_s"]].isna().all()
    assert table.loc["hyde", "x"].isna()["latency_s"] and len(table) == 3
    assert list(ledger([]).columns) == list(ledger(replies).columns)


# one interface -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OpenAIChat, ScriptedChat, Recorder])
def test_every_chat_model_keeps_the_protocol(kind, tmp_path):
    with FaultServer() as server:
        scripted = ScriptedChat([{"match": "gout", "text": "fine"}])
        model = {
            OpenAIChat: lambda: chat(server),
            ScriptedChat: lambda: scripted,
            Recorder: lambda: Recorder(scripted, tmp_path / "r.jsonl"),
        }[kind]()
        assert isinstance(model, ChatModel) and isinstance(model.name, str)
        with model.tag(method="chr", qid="q"):
            replies = model.generate(
                ASK, n=2, temperature=1.0, top_p=0.9, max_tokens=9, seed=1, stop="x", schema=SCHEMA
            )
        assert [(r.text, r.method) for r in replies] == [("fine", "chr")] * 2


# the bundled model -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> OpenAIChat:
    return connect("small")


def test_the_bundled_model_answers_the_same_whoever_else_asks(small):
    asks = [[{"role": "user", "content": f"Name one cause of {x}."}] for x in ("fever", "cough")]

    def say(ask, **options) -> str:
        return small.generate(ask, max_tokens=12, **options)[0].text

    alone = [say(ask) for ask in asks]
    sampled = say(asks[0], temperature=1.0, seed=1)
    assert in_parallel(say, asks, workers=2) == alone
    assert say(asks[0], temperature=1.0, seed=1) == sampled != say(asks[0], temperature=1.0, seed=2)
    assert all(alone) and connect("small").base_url == small.base_url


def test_the_bundled_model_is_held_to_a_schema_weighs_letters_and_says_its_limit(small):
    ask = [{"role": "user", "content": "A disease and its mimic, as JSON: target, mimic."}]
    reply = ask_json(small, ask, SCHEMA, max_tokens=120)
    assert reply.value and not reply.repaired and not reply.cut
    told = reply.replies[0]
    assert told.model == small.name == "SmolLM2-135M-Instruct-Q4_1" and told.note == ""
    assert told.prompt_tokens > 10 and 0 < told.output_tokens <= 120 and told.latency_s > 0
    asked = "Question: which is a fruit?\nA. apple\nB. iron\nThe letter of the best option is"
    messages = [{"role": "user", "content": asked}]
    one, two = (small.generate(messages, choices=["A", "B"])[0] for _ in range(2))
    scores = json.loads(one.text)
    assert one.text == two.text and list(scores) == ["A", "B"] and scores["A"] != scores["B"]
    assert sum(math.exp(score) for score in scores.values()) < 1
    with pytest.raises(LLMError, match="8192.*shorten the prompt"):
        small.generate([{"role": "user", "content": "word " * 8192}])
