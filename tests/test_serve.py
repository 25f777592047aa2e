"""One model after another: stages, cards, a server for each, and going on after a stop."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from dataclasses import replace

import pytest

from lib import doctor, notebooks, serve
from lib import stages as models
from lib.base import paths
from lib.llm.chat import LLMError
from lib.llm.connect import connect
from lib.llm.recorder import RecordingMiss
from lib.profiles import load_profile

SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
name, port, log = sys.argv[1:]
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = {"role": "assistant", "content": f"{name} says yes"}
        choice = {"index": 0, "finish_reason": "stop", "message": said}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        sent = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": name,
                           "choices": [choice], "usage": usage}).encode()
        self.send_response(200 if body["model"] == name else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)
    def log_message(self, *_):
        pass
with open(log, "a") as file:
    import os
    print(name, os.environ.get("CUDA_VISIBLE_DEVICES", "-"), file=file)
HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def case(tmp_path, monkeypatch):
    """A profile with an expander and two answerers behind one address, and the command that serves
    each; ``log`` has a line for each server that was started."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(serve, "_GLANCE_S", 0.1)
    monkeypatch.delenv("CHR_LLM_URL", raising=False)
    monkeypatch.delenv(serve.SET_ASIDE, raising=False)
    (tmp_path / "server.py").write_text(SERVER)
    url = f"http://127.0.0.1:{free_port()}/v1"
    file = tmp_path / "r.jsonl"
    specs = [f"record:{file}=openai:org/{name}@{url}" for name in ("writer", "one", "two")]
    chats = tuple(
        {"kind": "chat", "name": spec[-8:], "llm": spec, "context_tokens": 4096}
        for spec in specs[1:]
    )
    p = replace(
        load_profile("mini"),
        llm=specs[0],
        judge=specs[0],
        answerers=chats,
        generated={},
        evidence={},
    )
    log = tmp_path / "started.log"
    form = f"{sys.executable} {tmp_path}/server.py {{model}} {{port}} {log}"

    def started() -> list[str]:
        return log.read_text().split("\n")[:-1] if log.exists() else []

    return p, specs, form, started


def ask_all(specs: list[str], order: list) -> None:
    """What notebooks do: they ask every model, and show what is missing as NOT RUN."""
    said = []
    for spec in specs:
        try:
            said.append(connect(spec).generate([{"role": "user", "content": "Is it?"}])[0].text)
        except RecordingMiss:
            said.append("NOT RUN")
    order.append(said)


def test_each_model_is_served_in_turn_and_the_others_are_not_run_until_theirs(case):
    p, specs, form, started = case
    seen: list = []
    ran = serve.run_stages(p, lambda: ask_all(specs, seen), form, serving="3,4")
    assert ran == ["org/writer", "org/one", "org/two"]
    assert seen == [
        ["org/writer says yes", "NOT RUN", "NOT RUN"],
        ["org/writer says yes", "org/one says yes", "NOT RUN"],
        ["org/writer says yes", "org/one says yes", "org/two says yes"],
    ]
    assert started() == ["org/writer 3,4", "org/one 3,4", "org/two 3,4"]
    assert serve.SET_ASIDE not in os.environ
    assert not serve.answers(serve.stages(p)[2]), "the last one was stopped"


def test_a_run_that_was_stopped_goes_on_with_the_stage_that_was_not_done(case):
    p, specs, form, started = case
    calls: list = []

    def stopped_in_the_second() -> None:
        ask_all(specs, calls)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve.run_stages(p, stopped_in_the_second, form)
    assert "(done)" in serve.plan(p, form, "", 0).splitlines()[2]
    assert serve.run_stages(p, lambda: ask_all(specs, calls), form) == ["org/one", "org/two"]
    assert serve.run_stages(p, lambda: ask_all(specs, calls), form) == []
    assert len(started()) == 4 and len(calls) == 4
    # A profile that asks something else, or a recording that is gone, is not done.
    other = replace(p, k=p.k + 1)
    assert not any(serve.is_done(other, stage) for stage in serve.stages(other))
    (paths.ROOT / "r.jsonl").unlink()
    assert not any(serve.is_done(p, stage) for stage in serve.stages(p))


def test_a_server_that_ends_or_is_another_models_is_named(case):
    p, specs, form, _ = case
    with pytest.raises(LLMError, match="org/writer does not answer: no weights"):
        serve.run_stages(p, lambda: None, f"{sys.executable} -c 'raise SystemExit(\"no weights\")'")
    with pytest.raises(LLMError, match="no program 'nobody-serves'.*Next"):
        serve.run_stages(p, lambda: None, "nobody-serves {model}")
    begin = time.monotonic()
    lying = form.replace("{model}", "another")
    with pytest.raises(LLMError, match="does not serve org/writer.*Next"):
        serve.run_stages(p, lambda: None, lying)
    assert time.monotonic() - begin < 60


def test_the_papers_plan_has_a_command_for_each_model_and_says_which_cards_do_what():
    two = ("cuda:0", "cuda:1")
    p = replace(load_profile("paper"), devices=two, encoder_options={"device": two})
    lines = serve.plan(p, serve.COMMAND, serve.cards_to_serve(p, None, 6), 6).splitlines()
    assert lines[:2] == [
        "encode and search: cuda:0, cuda:1",
        "serve: CUDA_VISIBLE_DEVICES=2,3,4,5",
    ]
    assert "Qwen2.5-72B-Instruct: texts of every method" in lines[2]
    assert "--tensor-parallel-size 4 --max-model-len 16384" in lines[3]
    models = [stage.model for stage in serve.stages(p)]
    assert len(models) == len(set(models)) == 9
    everywhere = replace(p, encoder_options={})
    told = serve.placement(everywhere, serve.cards_to_serve(everywhere, None, 2), 2)
    assert "cards 0, 1 do both" in told[-1] and "--cards" in told[-1]
    on_cpu = replace(p, devices=("cpu",), encoder_options={"device": "cpu"})
    assert serve.placement(on_cpu, serve.cards_to_serve(on_cpu, None, 1), 1) == [
        "encode and search: the CPU",
        "serve: CUDA_VISIBLE_DEVICES=0",
    ]


def test_servers_that_will_be_started_are_not_said_to_be_missing(case, monkeypatch, capsys):
    """One elsewhere that is down is, and it is not asked."""
    p, specs, form, started = case
    far = "record:far.jsonl=openai:org/far@http://192.0.2.1:9/v1"
    p = replace(p, judge=far, evidence=load_profile("mini").evidence | {"answerers": []})
    monkeypatch.setattr(serve, "load_profile", lambda *_, **__: p)
    monkeypatch.setattr(
        notebooks, "prepare", lambda _, __, to_start: doctor.missing_parts(p, to_start)
    )
    monkeypatch.setattr(models, "ANSWER_S", 0.2)
    monkeypatch.setattr(notebooks, "run", lambda *_: None)
    with pytest.raises(LLMError, match="org/far at http://192.0.2.1.*Next: start it there"):
        serve.main(["mini", "--run", "--serve", form])
    said = capsys.readouterr().err
    assert "NOT RUN" in said and said.count("NOT RUN") == said.count("server of org/far") == 1
    assert [line.split()[0] for line in started()] == ["org/writer", "org/one", "org/two"]


def test_a_model_in_this_process_is_a_stage_without_a_server(tmp_path, case):
    p, specs, form, started = case
    live = "vllm:org/q?max_model_len=4096"
    p = replace(p, llm=f"record:{tmp_path}/r.jsonl={live}", judge=specs[1])
    first = serve.stages(p)[0]
    assert (first.model, first.url) == ("org/q", "")
    assert "in this process: vllm:org/q" in serve.plan(p, form, "", 0)
    asides = []
    serve.run_stages(p, lambda: asides.append(json.loads(os.environ[serve.SET_ASIDE])), form)
    assert live not in asides[0] and all(live in later for later in asides[1:])
    assert len(started()) == 2
