"""Waiting that ends: at a limit, or with Ctrl-C, whichever thread it is in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

_STOP: ContextVar[Event | None] = ContextVar("stop", default=None)

_GLANCE_S = 0.2
"""How often a wait looks whether the work was stopped."""


@contextmanager
def stop_on_interrupt() -> Iterator[Event]:
    """Ctrl-C in this block ends the waits of every thread that runs in a copy of its context.

    Only the main thread is told of Ctrl-C. The event that is given ends the waits as well. Blocks
    inside of one another share it.
    """
    stop = _STOP.get() or Event()
    token = _STOP.set(stop)
    try:
        yield stop
    except KeyboardInterrupt:
        stop.set()
        raise
    finally:
        _STOP.reset(token)


def pause(seconds: float) -> None:
    """Sleep; KeyboardInterrupt as soon as the work is stopped."""
    if (_STOP.get() or Event()).wait(seconds):
        raise KeyboardInterrupt


def within(seconds: float, call: Callable[[], T]) -> T:
    """What ``call()`` returns or raises; TimeoutError after so many seconds.

    KeyboardInterrupt as soon as the work is stopped. It runs on a thread of its own, for a read
    from a network cannot be ended: it is left behind, and neither its result nor the end of the
    process waits for it.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    ends = time.monotonic() + seconds
    while not done.done():
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer in {seconds:g} s")
        wait([done], timeout=min(left, _GLANCE_S))
        pause(0)
    return done.result()
