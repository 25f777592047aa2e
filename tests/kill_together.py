"""Child of test_recorder: processes that record into one file at once, each killed at some moment.

Run as: python kill_together.py <file> <rounds> <seed>. In every round two processes record some of
the same questions and some of their own, closing and opening the recording as they go. What a
process was given (so what is on the disk) it writes down apart. One or both are killed once they
have been given a random number of replies; at times half a line is left behind, as a writer leaves
it that is killed while it writes. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from lib.base.files import locked
from lib.llm.chat import Reply
from lib.llm.recorder import Recorder

ASKED, A_SESSION = 16, 4
"""Questions of a process in a round, and how many of them it asks before it closes the file."""


class Never:
    """A model that never says the same twice, so that a text tells who asked for it, and when."""

    name = "never the same"

    def generate(self, messages, *, n=1, **options) -> list[Reply]:
        time.sleep(random.uniform(0, 0.002))
        text = f"{messages[0]['content']} {os.urandom(8).hex()}"
        return [Reply(text, "stop", 1, 1, random.random(), "never") for _ in range(n)]


def work(file: Path, given: Path, questions: list[str]) -> None:
    """Ask the questions in an order of its own, and write down every reply once it is given."""
    random.seed(os.urandom(8))
    random.shuffle(questions)
    told = os.open(given, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for start in range(0, len(questions), A_SESSION):
        with Recorder(Never(), file) as llm:
            for question in questions[start : start + A_SESSION]:
                reply = llm.generate([{"role": "user", "content": question}])[0]
                os.write(told, f"{json.dumps([question, reply.text])}\n".encode())


def forked(*arguments) -> int:
    """The id of a process that does the work and ends."""
    pid = os.fork()
    if pid == 0:
        warnings.simplefilter("ignore")
        try:
            work(*arguments)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return pid


def lines(file: Path) -> list:
    """The rows of a file of JSON lines; none where there is no file. A torn last line is no row."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def replies(given: Path) -> int:
    """How many replies were given until now, by all processes."""
    return given.read_bytes().count(b"\n") if given.exists() else 0


def lost(file: Path, given: Path) -> int:
    """How many replies were given that the recording does not have, or has otherwise."""
    recorded = {
        row["request"]["messages"][0]["content"]: row["reply"]["text"] for row in lines(file)
    }
    return sum(recorded.get(question) != text for question, text in lines(given))


def play(file: Path, given: Path, number: int, chance: random.Random) -> tuple[int, int]:
    """One round: how many processes were killed at work, and how many failed."""
    first = number * ASKED
    pids = [forked(file, given, [f"q{first + own + i}" for i in range(ASKED)]) for own in (0, 8)]
    aim = replies(given) + chance.randrange(2 * ASKED)
    doomed = chance.choice([pids[:1], pids[1:], pids])
    statuses = {}
    while replies(given) < aim and len(statuses) < 2:
        time.sleep(0.001)
        for pid in set(pids) - set(statuses):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                statuses[pid] = status
    time.sleep(chance.uniform(0, 0.003))
    for pid in set(doomed) - set(statuses):
        os.kill(pid, signal.SIGKILL)
    if chance.random() < 0.5 and file.exists():
        with locked(file), open(file, "ab") as stream:
            stream.write(b'{"author":"a writer that was killed')
    for pid in set(pids) - set(statuses):
        statuses[pid] = os.waitpid(pid, 0)[1]
    codes = [os.waitstatus_to_exitcode(status) for status in statuses.values()]
    return codes.count(-signal.SIGKILL), codes.count(1)


def main() -> None:
    """Play the rounds, looking for what was lost after each; the last process is left in peace."""
    file, rounds, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    given = file.with_name("given")
    told = Counter()
    for number in range(rounds):
        killed, failed = play(file, given, number, chance)
        told.update(killed=killed, failed=failed, lost=lost(file, given))
    warnings.simplefilter("ignore")
    Recorder(Never(), file).close()
    keys = [row["key"] for row in lines(file)]
    times = {row["key"] for row in lines(file.with_suffix(".times.jsonl"))}
    told["lost"] += lost(file, given)
    told["twice"] = len(keys) - len(set(keys))
    told["without_time"] = len(set(keys) - times)
    told["rows"] = len(keys)
    print(json.dumps(told | {"sorted": keys == sorted(keys)}))


if __name__ == "__main__":
    main()
