"""The HTTP client below ``openai``: an answer has an end, and is the chosen server's own."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import openai

MOST_BYTES = 50_000_000
"""No answer is a hundredth of it. More is not read: a server that never ends would fill memory."""

_OF_THE_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")


class TooLong(RuntimeError):
    """An answer, unpacked, of more than ``MOST_BYTES``."""


class Connection:
    """The connection of the one request that is sent by ``BoundedClient`` inside ``with``.

    Another thread may ``close`` it: the read that waits there ends, and the server knows that
    nobody waits for its answer.
    """

    def __init__(self) -> None:
        self._stream: Any = None
        self._closed = False

    def __enter__(self) -> None:
        _CONNECTION.set(self)

    def __exit__(self, *_: object) -> None:
        _CONNECTION.set(None)

    def close(self) -> None:
        """End it, now or as soon as it is made."""
        self._closed = True
        if self._stream is not None:
            # Of a socket in use only this wakes the thread that reads from it.
            with suppress(OSError):
                socket.socket.shutdown(self._stream.get_extra_info("socket"), socket.SHUT_RDWR)

    def follow(self, event: str, told: dict) -> None:
        """What httpcore's extension "trace" calls: keep the stream that an event has made."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._stream = told["return_value"]
            if self._closed:
                self.close()


_CONNECTION: ContextVar[Connection | None] = ContextVar("connection", default=None)


class BoundedClient(openai.DefaultHttpxClient):
    """Reads at most ``MOST_BYTES`` of an answer, for as long as the request's timeout.

    A redirect is not followed: whoever is there was not chosen to see the questions. Each request
    has a connection of its own, so that it can be closed.
    """

    def __init__(self, **options: Any):
        super().__init__(follow_redirects=False, **options)
        self.headers["Connection"] = "close"

    def send(self, request: Any, **options: Any) -> Any:
        """The whole answer; raises TooLong and TimeoutError, else as httpx does."""
        ends = time.monotonic() + request.extensions["timeout"]["read"]
        if connection := _CONNECTION.get():
            request.extensions["trace"] = connection.follow
        answer = super().send(request, **options | {"stream": True})
        body = bytearray()
        try:
            for part in answer.iter_bytes():
                body += part
                if len(body) > MOST_BYTES:
                    raise TooLong(f"an answer of more than {MOST_BYTES // 10**6} MB")
                if time.monotonic() > ends:
                    raise TimeoutError("an answer without end")
        finally:
            answer.close()
        headers = [h for h in answer.headers.multi_items() if h[0] not in _OF_THE_TRANSFER]
        kind = type(answer)
        return kind(answer.status_code, headers=headers, content=bytes(body), request=request)
