"""Child of test_downloads: fetch a file again and again, killed at a random moment each time.

Run as: python kill_download.py <registry> <fetch|members> <name> <bytes> <kills> <seed>, where
bytes is the size of what travels. It forks, because importing pooch anew for every attempt would
take most of the time. Prints one JSON object.
"""

import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import tarfile
import time
from pathlib import Path

import pooch  # noqa: F401  (imported once, before the forks)

from lib.base import downloads


def run(how: str, name: str) -> bytes:
    """The bytes that the call under test gives."""
    if how == "fetch":
        return downloads.fetch(name).read_bytes()
    return b"".join(path.encode() + data for path, data in downloads.members(name))


def attempt(how: str, name: str, seconds: float) -> bool:
    """True when the child was killed at work, False when it was done before."""
    pid = os.fork()
    if pid == 0:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            run(how, name)
        os._exit(0)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1] != 0


def main() -> None:
    """Kill until enough runs were hit at work; whatever a run left must not be half a file."""
    registry, how, name, size, kills, seed = sys.argv[1:]
    downloads.REGISTRY = Path(registry)
    chance, hit, half = random.Random(int(seed)), 0, 0
    while hit < int(kills):
        hit += attempt(how, name, chance.uniform(0.0, 0.3))
        for done in downloads.cache("downloads").rglob("[!.]*.*"):  # no temporary name is like it
            if done.name == f"{name}.tar.gz":  # made here; raises when it is cut short
                with tarfile.open(done) as archive:
                    archive.getmembers()
            else:
                half += done.stat().st_size != int(size)
            done.unlink()  # so that the next run has work to do
    digest = hashlib.sha256(run(how, name)).hexdigest()
    print(json.dumps({"hit": hit, "half": half, "sha256": digest}))


if __name__ == "__main__":
    main()
