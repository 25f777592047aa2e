"""Work that is killed while it is done, at random moments, and what it leaves behind.

Run as ``python -m tests.killed WORK FOLDER KILLS SEED``. The work is forked and killed until so
many kills hit it: forking spares the imports of every attempt. What was done before it was killed
begins anew, and the last run is left in peace. One JSON object says how many kills hit, and what
was wrong after them. ``interrupted`` is the same for Ctrl-C, once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pooch  # noqa: F401  (imported once, before the forks)
import tqdm.auto  # noqa: F401

from lib.base import downloads, paths
from lib.embed import HashEncoder
from lib.llm.chat import Reply, in_parallel, sample_seed, tag
from lib.llm.recorder import Recorder
from lib.search.vectors import encode_cached

# recording ---------------------------------------------------------------------------------------


class Echo:
    """A model whose text is a function of what it is asked; slow, and never as slow twice."""

    name = "echo"

    def generate(self, messages, *, n=1, seed=0, **options) -> list[Reply]:
        time.sleep(random.uniform(0.001, 0.02))
        texts = [f"{messages[0]['content']} é {sample_seed(seed, i)}\n" * 9 for i in range(n)]
        return [Reply(t, "stop", 5, len(t), random.random(), "echo-1") for t in texts]


def record(folder: Path, last: bool) -> None:
    """150 questions with 4 threads, in an order of its own."""
    questions = [f"question {i}" for i in range(150)]
    random.shuffle(questions)
    warnings.simplefilter("ignore")
    with Recorder(Echo(), folder / "r.jsonl") as llm:

        def one(question: str) -> None:
            with tag(method="chr", qid=question):
                llm.generate([{"role": "user", "content": question}], n=3, temperature=0.7)

        in_parallel(one, questions, workers=4)


def torn(folder: Path) -> int:
    """At times bytes are cut off the file, as a power failure may. Nothing can be wrong yet."""
    file = folder / "r.jsonl"
    if random.random() < 0.4 and file.exists() and (size := file.stat().st_size) > 2000:
        os.truncate(file, size - random.randrange(1, 2000))
    return 0


# embedding ---------------------------------------------------------------------------------------

TEXTS = [f"passage {i} on disease {i % 17}" for i in range(900)]


class SlowHash(HashEncoder):
    """The hash encoder, with a pause per text."""

    def __init__(self, pause: float):
        super().__init__(dim=32)
        self.pause = pause

    def encode(self, items, tower="query", progress=True):
        time.sleep(self.pause * len(items))
        return super().encode(items, tower, progress)


WHOLE = [128 + rows * 32 * 4 for rows in (4, 12)]
"""Bytes of a part and of a block: the head of a .npy file, and vectors of 32 float32."""


def embed(folder: Path, last: bool) -> None:
    """Texts into blocks of twelve, by parts of four."""
    encoder = SlowHash(0 if last else 0.0005)
    rows = {"part_rows": 4, "block_rows": 12}
    encode_cached(TEXTS, encoder, "article", cache_dir=folder, **rows, progress=False)


def half_written(folder: Path) -> int:
    """How many files that stand under their own name are not whole."""
    sizes = {path.stat().st_size for path in folder.glob("[!.]*.npy")}
    return len(sizes - set(WHOLE))


# downloading -------------------------------------------------------------------------------------


def download(folder: Path, last: bool) -> None:
    """The registered file ``file`` and the folder ``folder``."""
    downloads.REGISTRY = folder.parent / "registry.toml"
    downloads.fetch("file")
    list(downloads.members("folder"))


def half_downloaded(folder: Path) -> int:
    """How many finished files are not whole; they go, so that the next run has work to do."""
    sizes = json.loads((folder.parent / "sizes.json").read_text())
    wrong = 0
    for done in paths.cache("downloads").rglob("[!.]*.*"):  # no temporary name is like it
        wrong += done.stat().st_size != sizes[done.name.partition(".")[2]]
        done.unlink()
    return wrong


# killing -----------------------------------------------------------------------------------------


WORK: dict[str, tuple[Callable[[Path, bool], None], Callable[[Path], int]]] = {
    "record": (record, torn),
    "embed": (embed, half_written),
    "download": (download, half_downloaded),
}
"""What is done, and how what a kill left is looked at."""


def attempt(work: Callable[[Path, bool], None], folder: Path, seconds: float) -> bool:
    """True when the child was killed at work, False when it was done before."""
    pid = os.fork()
    if pid == 0:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            work(folder, False)
        os._exit(0)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def main() -> None:
    """Kill, look, resume."""
    name, folder, kills, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    work, checked = WORK[name]
    folder.mkdir(exist_ok=True)
    random.seed(seed)
    hit = wrong = 0
    while hit < kills:
        is_hit = attempt(work, folder, random.uniform(0.002, 0.3))
        wrong += checked(folder)
        hit += is_hit
        if not is_hit:
            shutil.rmtree(folder)
            folder.mkdir()
    work(folder, True)
    print(json.dumps({"hit": hit, "wrong": wrong}))


def killed(name: str, folder: Path, kills: int) -> dict[str, int]:
    """What ``main`` says: ``hit``, the kills that hit, and ``wrong``."""
    command = [sys.executable, "-m", "tests.killed", name, str(folder), str(kills), "1"]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Ctrl-C ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """The exit status, what was said on stderr, and the seconds from Ctrl-C to the end."""

    status: int
    said: str
    seconds: float


def interrupted(code: str, argument: Path, seconds: float) -> Ended:
    """Run Python code that prints a line when it begins; Ctrl-C comes so many seconds after it."""
    command = [sys.executable, "-c", code, str(argument)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(command, cwd=paths.ROOT, **pipes)
    try:
        child.stdout.readline()
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()  # one that does not hear Ctrl-C would stay
    return Ended(child.returncode, said, time.monotonic() - start)


if __name__ == "__main__":
    main()
