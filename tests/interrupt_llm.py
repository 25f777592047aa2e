"""Child of test_llm: ask a server on four threads, interrupted by Ctrl-C at a random moment.

Run as: python interrupt_llm.py <server's address> <folder> <tries> <seed>. It forks, because
importing the client anew for every try would take most of the time. Prints one JSON object:
tries, how many took longer than ten seconds to end, and how many replies that were given are not in
the recording. The server leaves one question without a reply for much longer.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import openai  # noqa: F401  (imported once, before the forks)

from lib.llm.chat import in_parallel
from lib.llm.openai_chat import OpenAIChat
from lib.llm.recorder import Recorder


def ask(url: str, file: Path, given: Path) -> None:
    """Ask twelve questions, and write down apart what was given."""
    told = os.open(given, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Recorder(OpenAIChat("m", url), file) as llm:

        def one(i: int) -> None:
            reply = llm.generate([{"role": "user", "content": f"question {i}"}])[0]
            os.write(told, f"{json.dumps([i, reply.text])}\n".encode())

        in_parallel(one, range(12), workers=4)


def forked(*arguments) -> int:
    """The id of a process that asks; its status is 130 where it was interrupted."""
    pid = os.fork()
    if pid == 0:
        try:
            ask(*arguments)
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return pid


def lines(file: Path) -> list:
    """The rows of a file of JSON lines; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def replies(given: Path) -> int:
    """How many replies were given until now."""
    return given.read_bytes().count(b"\n") if given.exists() else 0


def main() -> None:
    """Interrupt, look at the clock, look for what was given."""
    url, folder, tries, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    chance = random.Random(seed)
    told = {"tries": 0, "slow": 0, "lost": 0, "given": 0}
    while told["tries"] < tries:
        file, given = (folder / f"{told['tries']}.{end}" for end in ("jsonl", "given"))
        pid = forked(url, file, given)
        aim = chance.randrange(9)  # on a slow machine, too, something was answered
        while replies(given) < aim:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.1, 0.3))
        os.kill(pid, signal.SIGINT)
        start = time.monotonic()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == 130, f"status {status}: nobody was at work"
        told["slow"] += time.monotonic() - start > 10
        kept = {row["request"]["messages"][0]["content"]: row["reply"] for row in lines(file)}
        rows = lines(given)
        told["given"] += len(rows)
        told["lost"] += sum(kept.get(f"question {i}", {}).get("text") != text for i, text in rows)
        told["tries"] += 1
    print(json.dumps(told))


if __name__ == "__main__":
    main()
