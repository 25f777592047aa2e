"""A server on this machine that fails as it is told, for the tests of whatever asks one.

with FaultServer("429", "500") as server:      # then "ok" for ever
    OpenAIChat("m", server.url).generate(...)
server.bodies, server.headers, server.peak     # what it was asked, and how much at once
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(*texts, reason: str = "stop", **message) -> dict:
    """A chat completion with one choice a text; 7 prompt tokens, 3 output tokens a choice."""
    choices = [
        {
            "index": i,
            "finish_reason": reason,
            "message": {"role": "assistant", "content": text} | message,
        }
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 7, "completion_tokens": 3 * len(texts), "total_tokens": 0}
    about = {"id": "x", "object": "chat.completion", "created": 0, "model": "served-name"}
    return about | {"choices": choices, "usage": usage}


def embedded(texts: list[str], vector: Callable[[str], list[float]]) -> dict:
    """An answer of OpenAI's endpoint for embeddings, the last text's vector first."""
    data = [
        {"object": "embedding", "index": i, "embedding": vector(text)}
        for i, text in enumerate(texts)
    ]
    return {"object": "list", "model": "served-name", "data": data[::-1]}


class FaultServer(ThreadingHTTPServer):
    """Takes one step a request, then answers ``text``; ``refuse`` names fields that get a 400.

    ``answer(body)`` decides instead where it is given: a completion, or (status, body, headers).
    ``pages`` are what it gives by path to who fetches one; ``asked`` their paths in order.
    Asked for log-probabilities it gives ``likely``, {token: log-probability}, likeliest first;
    without any it gives none, like a server that does not know of them. With ``together`` no
    request is answered before so many are there. Asked for embeddings it gives each text's
    ``vector``.

    Steps: "ok", a status ("500"), "429 after 120" (Retry-After), "cut" (finish_reason "length"),
    "slow" (after ``pause_s``), "truncated" (fewer bytes than promised), "drop" (no answer), "drip"
    (a byte each ``pause_s``, without end), "drip head" (the same before the headers have ended),
    "silent" (only headers), "hundreds" (100 Continue without end), "echo 401" (a status whose
    message has the request's Authorization header), "echo" (H+ and H- that have it, as have the
    reply's names and headers).
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        *steps: str,
        answer: Callable[[dict], dict | tuple] | None = None,
        text: str | Callable[[dict], str] = "fine",
        forever: str = "ok",
        refuse: tuple[str, ...] = (),
        several: bool = True,
        pause_s: float = 0.05,
        together: int = 0,
        likely: dict[str, float] | None = None,
        vector: Callable[[str], list[float]] | None = None,
        pages: dict[str, bytes | tuple] | None = None,
    ):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.steps, self.answer, self.text, self.forever = list(steps), answer, text, forever
        self.refuse, self.several, self.pause_s, self.likely = refuse, several, pause_s, likely
        self.pages, self.vector = pages or {}, vector
        self.closed = threading.Event()
        self.bodies: list[dict] = []
        self.headers: list[dict] = []
        self.peak = self.now = 0
        self.lock = threading.Lock()
        self.together = threading.Barrier(together) if together else None
        self.root = f"http://127.0.0.1:{self.server_port}"
        self.url = f"{self.root}/v1"
        self.asked: list[str] = []

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

    def do_GET(self) -> None:
        """A page: its bytes, or (status, bytes, bytes promised, seconds it takes)."""
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path, (404, b"", 0, 0))
        status, data, promised, seconds = page if isinstance(page, tuple) else (200, page, 0, 0)
        self.begin(status, {"Content-Length": promised or len(data)})
        step = len(data) // 20 + 1
        for start in range(0, len(data), step):
            self.wfile.write(data[start : start + step])
            time.sleep(seconds / 20)
        self.close_connection = True

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
        server, key = self.server, self.headers["Authorization"]
        if server.answer:
            answer = server.answer(body)
            self.send(*(answer if isinstance(answer, tuple) else (200, answer)))
        elif refused := [field for field in server.refuse if field in body]:
            self.send(400, {"error": {"message": f"{refused[0]} is not supported"}})
        elif step.isdigit():
            self.send(int(step), {"error": {"message": f"planned {step}"}})
        elif " after " in step:
            status, _, seconds = step.split(maxsplit=2)
            said = {"error": {"message": f"planned {status}"}}
            self.send(int(status), said, {"Retry-After": seconds})
        elif step == "echo":
            text = json.dumps({"H_plus": f"{key} it is", "H_minus": f"{key} it is not"})
            answer = completion(text, reason=key) | {"model": f"m {key}", "id": key}
            self.send(200, answer, {"X-You-Said": key, "Set-Cookie": f"key={key}"})
        elif step.startswith("echo "):
            self.send(int(step.split()[1]), {"error": {"message": f"refused: {key}"}})
        elif step == "drop":
            self.close_connection = True
        elif step in ("drip", "drip head", "silent", "hundreds"):
            self.never_end(step)
        else:
            if step == "slow":
                server.closed.wait(server.pause_s)
            self.send(200, self.reply(step, body), short=20 if step == "truncated" else 0)

    def reply(self, step: str, body: dict) -> dict:
        """The completion, or the vectors, that were asked for."""
        server = self.server
        if server.vector:
            return embedded(body["input"], server.vector)
        text = server.text(body) if callable(server.text) else server.text
        count = body.get("n", 1) if server.several else 1
        answer = completion(*[text] * count, reason="length" if step == "cut" else "stop")
        if body.get("logprobs") and server.likely is not None:
            first = {"token": text, "logprob": -0.1, "bytes": None}
            first["top_logprobs"] = [
                {"token": t, "logprob": p, "bytes": None} for t, p in server.likely.items()
            ]
            answer["choices"][0]["logprobs"] = {"content": [first], "refusal": None}
        return answer

    def never_end(self, step: str) -> None:
        """What goes on until the client has gone or the server is closed."""
        server = self.server
        part, pause_s = b" ", server.pause_s
        if step == "hundreds":
            part, pause_s = b"HTTP/1.1 100 Continue\r\n\r\n", 0.001
        elif step == "drip head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            part = b"x"
        else:
            self.begin(200, {})
        while not server.closed.wait(pause_s):
            if step != "silent":
                self.wfile.write(part)
        self.close_connection = True

    def send(
        self, status: int, body: dict | list | str, headers: dict | None = None, short: int = 0
    ) -> None:
        """One answer; ``short`` bytes of it stay unsent."""
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        length = {} if "Transfer-Encoding" in (headers or {}) else {"Content-Length": len(data)}
        self.begin(status, length | (headers or {}))
        self.wfile.write(data[: len(data) - short])
        self.close_connection = bool(short) or not length

    def begin(self, status: int, headers: dict) -> None:
        """Status and headers of an answer."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
