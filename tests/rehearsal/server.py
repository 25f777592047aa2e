"""An OpenAI-compatible chat server on this machine that writes down what it serves.

What it counts it counts itself, from the engine, and writes to its log before it answers; what it
tells the client as ``usage`` is another matter. Like the servers of the models it stands in for, it
refuses a prompt that leaves no room for the reply, and a system role where the model's chat
template has none.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lib.base.files import canonical_json, sha256_bytes
from lib.llm.chat import sample_seed
from lib.llm.connect import model_at
from tools.measure_needs import Generated, SmallEngine


class LogServer(ThreadingHTTPServer):
    """``engine`` behind /v1/chat/completions; a line a request in ``log`` (JSON Lines).

    An engine has ``count(messages)``, the tokens of a prompt with its chat template, and
    ``generate(body)``, one reply to a request without ``n``.

    A line: ``request`` (sha256 of what was sent), ``model``, ``status``, ``prompt_tokens``,
    ``output_tokens``, ``in_flight`` (with this one), ``start`` and ``end`` (seconds). ``windows``
    are tokens by model, prompt and reply together; ``no_system`` models without a system role.
    With ``models`` it says that it serves these, and knows no other.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self,
        engine: Any,
        log: Path,
        windows: Mapping[str, int] | None = None,
        no_system: Container[str] = (),
        author: str = "",
        models: Sequence[str] = (),
    ):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.engine, self.author, self.models = engine, author, models
        self.windows, self.no_system = windows or {}, no_system
        self.in_flight, self.lock = 0, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists():  # a line that a kill tore was never answered
            os.truncate(log, log.read_bytes().rfind(b"\n") + 1)
        self.log = log

    def __enter__(self) -> LogServer:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, body: dict) -> tuple[int, dict, list[Generated]]:
        """HTTP status, what is sent back, and the replies it holds."""
        messages, model = body["messages"], body["model"]
        if self.models and model not in self.models:
            return 404, _error(f"The model {model} does not exist"), []
        if model in self.no_system and any(m["role"] == "system" for m in messages):
            return 400, _error("System role not supported by this model's chat template"), []
        prompt, window = self.engine.count(messages), self.windows.get(model)
        if window and prompt + body["max_tokens"] > window:
            said = f"maximum context length is {window} tokens, not {prompt} + {body['max_tokens']}"
            return 400, _error(said), []
        n, seed = body.get("n", 1), body.get("seed", 0)
        one = {name: value for name, value in body.items() if name != "n"}
        made = [self.engine.generate(one | {"seed": sample_seed(seed, i)}) for i in range(n)]
        choices = [
            {
                "index": i,
                "finish_reason": g.reason,
                "message": {"role": "assistant", "content": g.text},
            }
            for i, g in enumerate(made)
        ]
        told = prompt, sum(g.output_tokens for g in made)
        usage = dict(zip(("prompt_tokens", "completion_tokens"), told, strict=True))
        author = f"{self.author} as {model}" if self.author else model
        head = {"id": "reply", "object": "chat.completion", "created": 0, "model": author}
        usage |= {"total_tokens": sum(told)}
        return 200, head | {"choices": choices, "usage": usage}, made

    def note(self, **line) -> None:
        """One line of the log, written before the client hears anything."""
        with self.lock, open(self.log, "a", encoding="utf-8") as stream:
            stream.write(canonical_json(line) + "\n")

    def handle_error(self, *_) -> None:
        """A client that was killed while it waited is what a rehearsal is about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        """Which models there are."""
        listed = [{"id": model, "object": "model"} for model in self.server.models]
        self._reply(200, {"object": "list", "data": listed})

    def do_POST(self) -> None:
        body, server = json.loads(self.rfile.read(int(self.headers["Content-Length"]))), self.server
        start = time.time()
        with server.lock:
            server.in_flight += 1
            busy = server.in_flight
        try:
            status, told, made = server.answer(body)
        except (OSError, ValueError, LookupError) as error:
            status, told, made = 500, _error(repr(error)), []
        finally:
            with server.lock:
                server.in_flight -= 1
        server.note(
            request=sha256_bytes(canonical_json(body).encode()),
            model=body["model"],
            status=status,
            prompt_tokens=made[0].prompt_tokens if made else 0,
            output_tokens=sum(g.output_tokens for g in made),
            in_flight=busy,
            start=round(start, 3),
            end=round(time.time(), 3),
            system=body["messages"][0]["role"] == "system",
            max_tokens=body["max_tokens"],
        )
        self._reply(status, told)

    def _reply(self, status: int, told: dict) -> None:
        data = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _error(said: str) -> dict:
    return {"error": {"message": said}}


@dataclass(frozen=True)
class Short:
    """An engine whose replies are as short as a laptop can wait for, and end like whole ones."""

    engine: Any

    def count(self, messages: list[dict]) -> int:
        return self.engine.count(messages)

    def generate(self, body: dict) -> Generated:
        most = 160 if "response_format" in body else 48
        made = self.engine.generate(body | {"max_tokens": min(most, body["max_tokens"])})
        return replace(made, reason="stop")


_LETTERS = re.compile(r"\w{1,5}|[^\w\s]")
"""A token of the scripted engine: up to five letters, or a sign."""


@dataclass(frozen=True)
class Scripted:
    """An engine that writes at once what kind of reply is asked for, each prompt its own, and
    counts by its own rule. With ``pause`` it waits, so that many requests are in flight."""

    pause: bool = False

    def count(self, messages: list[dict]) -> int:
        return sum(4 + len(_LETTERS.findall(m["content"])) for m in messages)

    def generate(self, body: dict) -> Generated:
        if self.pause:
            all_at_once = body["max_tokens"] == 1
            time.sleep(0.8 if all_at_once else 0.01)  # a busy machine has sent all of them by then
        asked = json.dumps([body["messages"], body.get("seed", 0)])
        mark = sha256_bytes(asked.encode())
        text = f"A passage on the {mark[:4]} of kidney pain and heart fever."
        if "response_format" in body:
            hypotheses = {"H_plus": f"gout of {mark[:3]}", "H_minus": f"sepsis of {mark[3:6]}"}
            text = json.dumps(hypotheses)
        elif "answer_choice" in asked:
            text = json.dumps({"answer_choice": "ABCD"[int(mark[0], 16) % 4]})
        return Generated(text, "stop", self.count(body["messages"]), len(_LETTERS.findall(text)))


def serve(profile: str, log: Path) -> None:
    """SmolLM2 under a profile's model names; prints the address, ends when its stdin does.

    The windows and templates of the answerers are those that the profile states.
    """
    from lib.llm.small_model import NAME
    from lib.profiles import load_profile
    from lib.stages import stages

    p = load_profile(profile)
    models = [stage.model for stage in stages(p)]
    with LogServer(Short(SmallEngine()), log, *limits(p), author=NAME, models=models) as server:
        print(server.url, flush=True)
        sys.stdin.read()  # whoever started it holds the other end, killed or not
        os._exit(0)  # generations under way are of no use to anyone


def limits(profile) -> tuple[dict[str, int], set[str]]:
    """Context window by model, and the models without a system role, of a profile's answerers."""
    asked = [s for s in profile.answerers if "llm" in s]
    named = {model_at(s["llm"].rpartition("openai:")[2])[0]: s for s in asked}
    windows = {model: s["context_tokens"] for model, s in named.items()}
    return windows, {model for model, s in named.items() if not s.get("system_role", True)}


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
