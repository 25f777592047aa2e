"""Child of test_recorder: record, killed at random moments, until enough kills hit a run at work.

Run as: python -m tests.kill_record <file> <kills> <seed>; 0 kills = one run, undisturbed. It forks,
because starting Python anew for every attempt would take most of the time. After some kills it cuts
bytes off the file, as a power failure may. Prints one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

from lib.llm.chat import Reply, current_tag, in_parallel, sample_seed, tag
from lib.llm.recorder import Recorder

QUESTIONS = 150


class Echo:
    """A model whose text is a function of what it is asked; slow, and never as slow twice."""

    name = "echo"

    def generate(self, messages, *, n=1, seed=0, **options) -> list[Reply]:
        time.sleep(random.uniform(0.001, 0.02))
        texts = [f"{messages[0]['content']} é {sample_seed(seed, i)}\n" * 9 for i in range(n)]
        spent = random.random()
        return [Reply(t, "stop", 5, len(t), spent, "echo-1") for t in texts]


def run(file: Path, order: int) -> None:
    """Record everything, with 4 threads, in an order of its own."""
    questions = [f"question {i}" for i in range(QUESTIONS)]
    random.Random(order).shuffle(questions)
    with Recorder(Echo(), file) as llm:

        def one(question: str) -> None:
            with tag(method="chr", qid=question):
                assert current_tag()["qid"] == question
                llm.generate([{"role": "user", "content": question}], n=3, temperature=0.7)

        in_parallel(one, questions, workers=4)


def recorded(file: Path) -> int:
    """How many lines the file has."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def attempt(file: Path, order: int, lines: int, seconds: float) -> bool:
    """True when the child was killed at work, False when it was done before.

    It is killed so many seconds after it recorded so many lines: on a slow machine, too, there is
    something to kill, and something kept.
    """
    aim = recorded(file) + lines
    pid = os.fork()
    if pid == 0:
        warnings.simplefilter("ignore")
        run(file, order)
        os._exit(0)
    while recorded(file) < aim:
        time.sleep(0.001)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.WIFSIGNALED(status)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def main() -> None:
    """Kill, tear, resume; the last run is left in peace."""
    file, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance, hit, torn = random.Random(seed), 0, 0
    while hit < kills:
        hit += attempt(file, chance.random(), chance.randrange(12), chance.uniform(0.0, 0.01))
        if chance.random() < 0.4 and file.exists() and (size := file.stat().st_size) > 2000:
            os.truncate(file, size - chance.randrange(1, 2000))
            torn += 1
    kept = recorded(file)
    run(file, seed)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    print(json.dumps({"hit": hit, "torn": torn, "kept": kept, "sha256": digest}))


if __name__ == "__main__":
    main()
