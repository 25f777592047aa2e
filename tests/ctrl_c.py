"""A program that is interrupted while it works: how it ends, what it says, how long it takes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from lib.base.paths import ROOT


@dataclass(frozen=True)
class Ended:
    """The exit status, what was said on stderr, and the seconds from Ctrl-C to the end."""

    status: int
    said: str
    seconds: float


def interrupted(code: str, argument: Path, seconds: float) -> Ended:
    """Run Python code that prints a line when it begins; Ctrl-C comes so many seconds after it."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(argument)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        child.stdout.readline()
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()  # one that does not hear Ctrl-C would stay
    return Ended(child.returncode, said, time.monotonic() - start)
