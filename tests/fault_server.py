"""A chat server on this machine that fails as it is told, for the tests of the LLM client.

with FaultServer("429", "500") as server:      # then "ok" for ever
    OpenAIChat("m", server.url).generate(...)
server.bodies, server.headers, server.peak     # what it was asked, and how much at once
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(*texts: str, reason: str = "stop") -> dict:
    """A chat completion with one choice a text; 7 prompt tokens, 3 output tokens a choice."""
    choices = [
        {"index": i, "finish_reason": reason, "message": {"role": "assistant", "content": text}}
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 7, "completion_tokens": 3 * len(texts), "total_tokens": 0}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "served-name",
        "choices": choices,
        "usage": usage,
    }


class FaultServer(ThreadingHTTPServer):
    """Takes one step a request, then answers ``text``; ``refuse`` names fields that get a 400.

    Asked for log-probabilities it gives ``likely``, {token: log-probability}, likeliest first;
    without any it gives none, like a server that does not know of them.

    Steps: "ok", a status ("500"; "429" comes with Retry-After), "truncated" (fewer bytes than
    promised), "garbled" (half a JSON text), "empty" (no choices), "slow" (``pause_s``), "drop" (no
    answer), "cut" (finish_reason "length"), "overflow" (a 400 about the context), "echo 401" (a
    status whose message has the request's Authorization header), "echo" (a reply that has it),
    "echo all" (H+ and H- that have it, as have the reply's names and headers).

    "429 after 120" (Retry-After: 120, or whatever the third word says), "drip" (a byte each
    ``pause_s``, without end), "drip head" (the same before the headers have ended), "silent" (only
    headers), "hundreds" (100 Continue without end), "deep" (lists in lists), "chunks" (a chunk of
    a length that is no number), "failed 200" (an error with status 200), "escapes" (a 400 of much
    text that moves a terminal's cursor), "moved" (a redirect to ``elsewhere``), "told" (``told``,
    whatever it is).
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        *steps: str,
        text: str = "fine",
        forever: str = "ok",
        refuse: tuple[str, ...] = (),
        several: bool = True,
        pause_s: float = 1.0,
        together: int = 0,
        likely: dict[str, float] | None = None,
        elsewhere: str = "",
    ):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.steps, self.text, self.forever = list(steps), text, forever
        self.refuse, self.several, self.pause_s = refuse, several, pause_s
        self.likely, self.elsewhere = likely, elsewhere
        self.told: dict = {}
        self.closed = threading.Event()
        self.bodies: list[dict] = []
        self.headers: list[dict] = []
        self.peak = self.now = 0
        self.lock = threading.Lock()
        self.together = threading.Barrier(together) if together else None
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> FaultServer:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.closed.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_) -> None:
        """A client that gave up is what the tests want: no traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.bodies.append(body)
            server.headers.append({k.lower(): v for k, v in self.headers.items()})
            step = server.steps.pop(0) if server.steps else server.forever
            server.now += 1
            server.peak = max(server.peak, server.now)
        try:
            if server.together:
                server.together.wait(timeout=20)
            self.play(step, body)
        finally:
            with server.lock:
                server.now -= 1

    def play(self, step: str, body: dict) -> None:
        server = self.server
        refused = [field for field in server.refuse if field in body]
        if refused:
            self.send(400, {"error": {"message": f"{refused[0]} is not supported"}})
        elif step.isdigit():
            wait = {"Retry-After": "1"} if step == "429" else {}
            self.send(int(step), {"error": {"message": f"planned {step}"}}, wait)
        elif " after " in step:
            status, _, wait = step.split(maxsplit=2)
            said = {"error": {"message": f"planned {status}"}}
            self.send(int(status), said, {"Retry-After": wait})
        elif step == "echo all":
            key = self.headers["Authorization"]
            text = json.dumps({"H_plus": f"{key} it is", "H_minus": f"{key} it is not"})
            answer = completion(text, reason=key) | {"model": key, "id": key}
            self.send(200, answer, {"X-You-Said": key, "Set-Cookie": f"key={key}"})
        elif step.startswith("echo "):
            said = f"refused: {self.headers['Authorization']}"
            self.send(int(step.removeprefix("echo ")), {"error": {"message": said}})
        elif step == "echo":
            answer = completion(f"You said {self.headers['Authorization']}", reason="stop")
            self.send(200, answer | {"model": f"m {self.headers['Authorization']}"})
        elif step == "overflow":
            self.send(400, {"error": {"message": "maximum context length is 512 tokens"}})
        elif step == "drop":
            self.close_connection = True
        elif step == "truncated":
            self.send(200, completion(server.text), short=20)
        elif step == "garbled":
            self.send(200, '{"id": "x", "cho')
        elif step == "empty":
            self.send(200, completion())
        elif step in ("drip", "drip head", "silent", "hundreds"):
            self.never_end(step)
        elif step == "deep":
            self.send(200, "[" * 200_000)
        elif step == "chunks":
            self.begin(200, {"Transfer-Encoding": "chunked"})
            self.wfile.write(b"zz\r\nnot a length\r\n")
            self.close_connection = True
        elif step == "failed 200":
            self.send(200, {"error": {"message": "out of memory", "code": 500}})
        elif step == "escapes":
            self.send(400, {"error": {"message": "\x1b[2J\x1b[31mgone\n" * 100_000}})
        elif step == "told":
            self.send(200, server.told)
        elif step == "moved":
            self.send(307, "", {"Location": server.elsewhere})
        else:
            if step == "slow":
                server.closed.wait(server.pause_s)
            reason = "length" if step == "cut" else "stop"
            count = body.get("n", 1) if server.several else 1
            text = server.text(body) if callable(server.text) else server.text
            answer = completion(*[text] * count, reason=reason)
            if body.get("logprobs") and server.likely is not None:
                listed = [
                    {"token": t, "logprob": p, "bytes": None} for t, p in server.likely.items()
                ]
                first = {"token": text, "logprob": -0.1, "bytes": None, "top_logprobs": listed}
                answer["choices"][0]["logprobs"] = {"content": [first], "refusal": None}
            self.send(200, answer)

    def never_end(self, step: str) -> None:
        """What goes on until the client has gone or the server is closed."""
        server = self.server
        part, pause_s = b" ", server.pause_s
        if step == "hundreds":
            part, pause_s = b"HTTP/1.1 100 Continue\r\n\r\n", 0.001
        elif step == "drip head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            part = b"x"
        if step in ("drip", "silent"):
            self.begin(200, {})
        while not server.closed.wait(pause_s):
            if step != "silent":
                self.wfile.write(part)
        self.close_connection = True

    def send(
        self, status: int, body: dict | str | bytes, headers: dict | None = None, short: int = 0
    ) -> None:
        """One answer; ``short`` bytes of it stay unsent."""
        data = body
        if not isinstance(body, bytes):
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.begin(status, {"Content-Length": str(len(data))} | (headers or {}))
        self.wfile.write(data[: len(data) - short])
        self.close_connection = bool(short)

    def begin(self, status: int, headers: dict) -> None:
        """Status and headers of an answer."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
