"""The forms in which servers refuse, fail and reply, each as somebody has met it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lib.datasets import Question
from lib.llm.chat import LLMError, in_parallel
from lib.llm.connect import connect
from lib.llm.openai_chat import OpenAIChat, server_address
from lib.readers import ChoiceReader

ASK = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is gout?"}]
QUESTION = Question("q1", "What is it?", {"A": "Gout", "B": "Sepsis"}, "A", "own")


def completion(content="fine", **message) -> dict:
    said = {"role": "assistant", "content": content} | message
    choice = {"index": 0, "finish_reason": "stop", "message": said}
    cost = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    about = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
    return about | {"choices": [choice], "usage": cost}


class Server(ThreadingHTTPServer):
    """Answers each request as ``answer(body, path)`` says: a reply, or a status and a body."""

    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.bodies, self.paths = answer, [], []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.paths.append(self.path)
        answer = self.server.answer(body, self.path)
        status, said = answer if isinstance(answer, tuple) else (200, answer)
        data = (said if isinstance(said, str) else json.dumps(said)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def chat(server: Server) -> OpenAIChat:
    return OpenAIChat("m", server.url, timeout_s=5, max_retries=0)


# refused settings --------------------------------------------------------------------------------

REFUSALS = {
    "max_tokens": (
        400,
        {
            "error": {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead.",
                "param": "max_tokens",
            }
        },
    ),
    "seed": (
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "not permitted"}]},
    ),
    "temperature": (
        400,
        {"error": {"message": "Unsupported value: 'temperature' does not support 0.0."}},
    ),
    "top_p": (
        400,
        {"error": {"message": "`temperature` and `top_p` cannot both be specified for this model"}},
    ),
    "stop": (400, {"error": "Unknown parameter: stop"}),
}
OTHER_WORDS = {
    "temperature": (422, {"error": "Input validation error: `temperature` must be positive"}),
    "top_p": (400, {"message": "Extra inputs are not permitted: top_p"}),
    "seed": (400, "no field seed"),
}


@pytest.mark.parametrize("field", OTHER_WORDS)
def test_a_refusal_in_other_words_is_one_too(field):
    with Server(lambda body, _: OTHER_WORDS[field] if field in body else completion()) as server:
        (reply,) = chat(server).generate(ASK)
    assert reply.text == "fine" and field in reply.note


def refusing(*fields: str):
    """A server that refuses the first of these that a request holds."""

    def answer(body, path):
        for field in fields:
            if field in body:
                return REFUSALS[field]
        return completion()

    return answer


@pytest.mark.parametrize("field", REFUSALS)
def test_a_refused_setting_is_left_out_once_and_for_all_with_a_note(field):
    with Server(refusing(field)) as server:
        model = chat(server)
        replies = [model.generate(ASK, stop="END")[0] for _ in range(3)]
    assert [reply.text for reply in replies] == ["fine"] * 3
    assert all(field in reply.note for reply in replies)
    assert len(server.bodies) == 4
    asked = server.bodies[-1]
    assert field not in asked and asked.get("max_completion_tokens", asked.get("max_tokens")) == 512


def test_several_are_left_out_one_after_the_other():
    with Server(refusing(*REFUSALS)) as server:
        (reply,) = chat(server).generate(ASK, stop="END")
    assert reply.note.count(";") == len(REFUSALS) - 1 and len(server.bodies) == len(REFUSALS) + 1


@pytest.mark.parametrize(
    "status, said",
    [
        (400, "System role not supported"),
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        (400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
        (500, "Jinja Exception: System role not supported"),
    ],
)
def test_a_template_without_a_system_turn_gets_its_text_before_the_question(status, said):
    def answer(body, path):
        if body["messages"][0]["role"] == "system":
            return status, {"error": {"message": said}}
        return completion()

    with Server(answer) as server:
        (reply,) = chat(server).generate(ASK)
    assert server.bodies[-1]["messages"] == [
        {"role": "user", "content": "Be short.\n\nWhat is gout?"}
    ]
    assert "system" in reply.note


def test_a_value_that_is_too_large_is_an_error_and_not_left_out():
    said = {"error": {"message": "max_tokens is too large: 512. It supports at most 100 tokens."}}
    with Server(lambda body, path: (400, said)) as server, pytest.raises(LLMError, match="at most"):
        chat(server).generate(ASK)
    assert len(server.bodies) == 1


def test_log_probabilities_are_asked_for_without_what_is_refused():
    entry = {"token": "B", "logprob": -0.1, "bytes": None}
    first = entry | {"top_logprobs": [entry]}

    def answer(body, path):
        made = completion("B")
        made["choices"][0]["logprobs"] = {"content": [first], "refusal": None}
        return REFUSALS["max_tokens"] if "max_tokens" in body else made

    with Server(answer) as server:
        (reply,) = chat(server).generate(ASK, choices=["A", "B"])
    assert json.loads(reply.text)["B"] == -0.1


@pytest.mark.parametrize("schema", [None, {"type": "object"}], ids=["text", "schema"])
def test_requests_that_are_refused_at_one_time_are_all_asked_again(schema):
    """Eight workers send their first request before any of them knows what is refused."""
    together = threading.Barrier(8)

    def answer(body, path):
        if "max_tokens" not in body:
            return completion()
        together.wait(5)
        return REFUSALS["max_tokens"]

    with Server(answer) as server:
        model = chat(server)
        replies = in_parallel(lambda _: model.generate(ASK, schema=schema)[0], range(8))
    assert {reply.text for reply in replies} == {"fine"} and len(server.bodies) == 16
    assert {reply.note for reply in replies} == {"max_completion_tokens in place of max_tokens"}
    assert all(("response_format" in body) == bool(schema) for body in server.bodies)


# errors ------------------------------------------------------------------------------------------

BODIES = [
    {"detail": "the words of the server"},
    {"error": "the words of the server"},
    {"message": "the words of the server"},
    {"errors": [{"title": "the words of the server"}]},
    [{"error": {"message": "the words of the server"}}],
    "the words of the server",
    "<html><title>the words of the server</title></html>",
]


@pytest.mark.parametrize("body", BODIES, ids=str)
@pytest.mark.parametrize("status", [400, 404, 422, 500])
def test_what_a_server_says_of_its_error_is_shown(status, body):
    with (
        Server(lambda *_: (status, body)) as server,
        pytest.raises(LLMError, match=f"{status}.*words of the server"),
    ):
        chat(server).generate(ASK)


def test_a_key_in_an_error_of_any_form_is_not_shown(monkeypatch):
    monkeypatch.setenv("CHR_LLM_KEY", "sk-secret-0123456789")
    body = {"detail": "no such key: sk-secret-0123456789"}
    with Server(lambda *_: (401, body)) as server, pytest.raises(LLMError) as error:
        chat(server).generate(ASK)
    assert "no such key" in str(error.value) and "0123456789" not in str(error.value)


# replies -----------------------------------------------------------------------------------------

PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Sepsis?"}]},
    {"type": "text", "text": "Gout."},
]
REPLIES = {
    "a field of its own": completion("Gout.", reasoning_content="Sepsis?"),
    "a field of another name": completion("Gout.", reasoning="Sepsis?"),
    "parts": completion(PARTS),
    "in its text": completion("<think>Sepsis?</think>Gout."),
}


@pytest.mark.parametrize("form", REPLIES)
def test_thinking_stands_beside_the_text_however_a_server_tells_it(form):
    with Server(lambda *_: REPLIES[form]) as server:
        (reply,) = chat(server).generate(ASK)
    assert (reply.text, reply.thinking) == ("Gout.", "Sepsis?")


def test_a_reply_that_is_all_thinking_is_empty():
    with Server(lambda *_: completion(None, reasoning_content="Sepsis? Or")) as server:
        (reply,) = chat(server).generate(ASK)
    assert (reply.text, reply.thinking) == ("", "Sepsis? Or")


@pytest.mark.parametrize(
    "tokens, letter",
    [
        (["<think>", "\n"], ""),
        (["The", "Based"], ""),
        (["Answer", "**"], ""),
        (["\u2581B", "\u2581A"], "B"),
        (["\u0120B", "\u0120A"], "B"),
        (["(B", "(A"], "B"),
        (["**B", "A"], "B"),
        (['"B"', "A"], "B"),
        (["\nB", "A"], "B"),
        (["The", "B", "A"], "B"),
        (["<think>", "B", "A"], ""),
        (["<unused94>", "B", "A"], ""),
        (["Bacteria", "A"], "A"),
    ],
)
def test_a_first_token_is_a_letter_or_no_answer(tokens, letter):
    listed = [{"token": t, "logprob": -0.1 - i, "bytes": None} for i, t in enumerate(tokens)]
    made = completion(tokens[0])
    content = [listed[0] | {"top_logprobs": listed}]
    made["choices"][0]["logprobs"] = {"content": content, "refusal": None}
    with Server(lambda *_: made) as server:
        (answer,) = ChoiceReader(chat(server), "r").answer_all([QUESTION], [[]])
    assert answer.letter == letter
    assert (answer.rule == "none") == (letter == "")


# addresses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "http://h:8000",
        "http://h:8000/",
        "http://h:8000/v1",
        "http://h:8000/v1/",
        " http://h:8000/v1\r\n",
        "http://h:8000/v1/chat/completions",
        "http://h:8000/v1/completions/",
    ],
)
def test_an_address_is_understood_as_people_have_it(said):
    assert server_address(said) == "http://h:8000/v1"


def test_a_path_of_its_own_stays():
    assert server_address("https://h/api/openai/v3") == "https://h/api/openai/v3"


@pytest.mark.parametrize("said", ["h:8000/v1", "localhost:8000", "", "ftp://h/v1", "http://"])
def test_what_is_no_address_is_refused_at_once_with_what_to_write(said):
    with pytest.raises(ValueError, match="http://localhost:8000/v1"):
        OpenAIChat("m", said)


def test_an_address_without_http_is_never_taken_for_a_models_name(monkeypatch):
    monkeypatch.setenv("CHR_LLM_URL", "http://elsewhere/v1")
    for spec in ("openai:m@localhost:8000/v1", "openai:m@10.0.0.1:8000", "openai:m@host/v1"):
        with pytest.raises(ValueError, match="http://"):
            connect(spec)
    assert connect("openai:claude@20240229").name == "claude@20240229"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_server_on_this_machine_is_never_asked_through_a_proxy(host, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Server(lambda *_: completion()) as server:
        model = OpenAIChat("m", server.url.replace("127.0.0.1", host), timeout_s=5, max_retries=0)
        assert model.generate(ASK)[0].text == "fine"


def test_who_vouches_for_a_local_server_is_as_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
    with pytest.raises(FileNotFoundError):
        OpenAIChat("m", "https://localhost:8000/v1")
