"""Two processes on one cache and one recording, killed at random moments: what is left at the end?

Run as: python -m tests.kill_shared <seconds> [seed] (``make soak`` takes five minutes). A round
begins with an empty folder. Two processes do the same work, each in its own order: they record
replies, encode texts into the file and the shards of the vector cache, score pairs of sentences and
build a passage store. One or both are killed, again and again, and started anew. After every kill
all that was there before must still be there, and every reply that was given. In the end they are
left in peace. Then the recording, the vectors, the scores and the store are compared by sha256 with
those that one process made undisturbed. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import warnings
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from sqlite3 import connect
from tempfile import TemporaryDirectory

import numpy as np
import tqdm.auto  # noqa: F401  (imported once, before the forks)

from lib.base.files import locked, read_manifest
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.llm.chat import Reply, in_parallel
from lib.llm.recorder import Recorder
from lib.search.vectors import encode_cached, encode_small
from lib.studies.nli.scores import score_pairs

TEXTS = [f"passage {i} on disease {i % 17}" for i in range(400)]
PAIRS = [(f"finding {i}", f"finding {i % 29}") for i in range(600)]
QUESTIONS = [f"question {i}" for i in range(80)]
CACHES = ("texts.sqlite", "pairs.sqlite")
KILLS = 10
"""In a round; each hits a process at work."""


class Echo:
    """A slow model whose text follows from what it is asked."""

    name = "echo"

    def generate(self, messages, *, n=1, seed=0, **options) -> list[Reply]:
        time.sleep(random.uniform(0.001, 0.01))
        text = f"{messages[0]['content']} é\n" * 9
        return [Reply(text, "stop", 5, len(text), random.random(), "echo-1", i) for i in range(n)]


class Slow(HashEncoder):
    """The hash encoder, with a pause now and then."""

    def encode(self, items, tower="query", progress=True) -> np.ndarray:
        time.sleep(random.uniform(0, 0.01))
        return super().encode(items, tower, progress)


class Length:
    """A model of contradiction that sees how long two sentences are."""

    name, fingerprint, symmetric = "length", "length", False

    def contradiction(self, pairs) -> np.ndarray:
        time.sleep(random.uniform(0, 0.01))
        return np.array([len(a) / (len(a) + len(b)) for a, b in pairs])


def record(folder: Path) -> None:
    """Every question, on four threads, closing and opening the recording as it goes."""
    told = os.open(folder / "given", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    questions = random.sample(QUESTIONS, len(QUESTIONS))
    for start in range(0, len(questions), 8):
        with Recorder(Echo(), folder / "said.jsonl") as llm:

            def one(question: str, llm: Recorder = llm) -> None:
                llm.generate([{"role": "user", "content": question}], n=2)
                os.write(told, f"{question}\n".encode())

            in_parallel(one, questions[start : start + 8], workers=4)


def embed(folder: Path) -> None:
    """The texts one selection after another, and all of them in shards."""
    texts, encoder = random.sample(TEXTS, len(TEXTS)), Slow(32)
    for start in range(0, len(texts), 25):
        encode_small(texts[start : start + 25], encoder, "query", cache_dir=folder)
    encode_cached(TEXTS, encoder, "article", cache_dir=folder, shard_rows=16, progress=False)


def score(folder: Path) -> None:
    """The pairs, one selection after another."""
    pairs = random.sample(PAIRS, len(PAIRS))
    for start in range(0, len(pairs), 50):
        score_pairs(pairs[start : start + 50], Length(), cache_dir=folder)


def store(folder: Path) -> None:
    """The passages in one file, unless it is there."""
    file = folder / "passages.sqlite"
    if not file.exists() or read_manifest(file, verify=False) is None:
        passages = (Passage(f"p{i}", "", text, "made", {}) for i, text in enumerate(TEXTS))
        PassageStore.build(file, passages)


def work(folder: Path, order: int) -> None:
    """All of it, in an order of its own."""
    random.seed(order)
    parts = [record, embed, score, store]
    for part in random.sample(parts, len(parts)):
        part(folder)


def forked(folder: Path, order: int) -> int:
    """The id of a process that does the work and ends."""
    pid = os.fork()
    if pid == 0:
        warnings.simplefilter("ignore")  # a torn line is said
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            work(folder, order)
        except BaseException as error:
            (folder / f"failed.{os.getpid()}").write_text(repr(error))
            os._exit(1)
        os._exit(0)
    return pid


def rows(file: Path) -> dict[bytes, bytes]:
    """The rows of a cache; none where it has not been made."""
    if not file.exists():
        return {}
    with closing(connect(file, timeout=60)) as store:
        if not store.execute("SELECT name FROM sqlite_master").fetchall():
            return {}  # killed between the file and its table
        return dict(store.execute("SELECT key, value FROM kept ORDER BY key"))


def kept(folder: Path) -> set:
    """What is finished by now: rows of caches, shards, recorded questions."""
    found = {(name, key) for name in CACHES for key in rows(folder / name)}
    found |= {path.name for path in folder.glob("*.npy") if read_manifest(path)}
    said = folder / "said.jsonl"
    with locked(said):
        lines = said.read_bytes().splitlines(keepends=True) if said.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return found | {row["request"]["messages"][0]["content"] for row in whole}


def given(folder: Path) -> set[str]:
    """The questions whose replies were given to who asked."""
    file = folder / "given"
    return set(file.read_text().splitlines()) if file.exists() else set()


def one_round(folder: Path, chance: random.Random) -> tuple[int, int]:
    """Two processes, killed ``KILLS`` times in all, then left to end; kills, and pieces lost."""
    kills = lost = 0
    before: set = set()
    pids = [forked(folder, chance.randrange(2**32)) for _ in range(2)]
    while kills < KILLS:
        time.sleep(chance.uniform(0.02, 0.3))
        for i in chance.choice([[0], [1], [0, 1]])[: KILLS - kills]:
            os.kill(pids[i], signal.SIGKILL)  # one that has ended waits to be asked, so it is there
            kills += os.WIFSIGNALED(os.waitpid(pids[i], 0)[1])
            pids[i] = forked(folder, chance.randrange(2**32))
        must_be = before | given(folder)
        before = kept(folder)
        lost += len(must_be - before)
    for pid in pids:
        os.waitpid(pid, 0)
    return kills, lost


def made(folder: Path) -> dict[str, str]:
    """The sha256 of everything that was made; of a cache that of its rows in order."""
    found = {}
    for name in CACHES:
        parts = [key + value for key, value in rows(folder / name).items()]
        found[name] = sha256(b"".join(parts)).hexdigest()
    whole = [*folder.glob("[0-9a-f]*.npy"), folder / "said.jsonl", folder / "passages.sqlite"]
    for file in whole:
        found[file.name] = sha256(file.read_bytes()).hexdigest()
    return dict(sorted(found.items()))


def play(seconds: float, seed: int = 0, least: int = 1) -> dict[str, int]:
    """Rounds until the time is over, and at least so many; what came of them."""
    chance, ends = random.Random(seed), time.monotonic() + seconds
    told = {"rounds": 0, "kills": 0, "lost": 0, "failed": 0, "differ": 0}
    with TemporaryDirectory() as place:
        alone = Path(place) / "alone"
        alone.mkdir()
        # In a process of its own, too: tqdm's lock is shared by forks, and a killed one keeps it.
        os.waitpid(forked(alone, seed), 0)
        right = made(alone)
        while told["rounds"] < least or time.monotonic() < ends:
            folder = Path(place) / str(told["rounds"])
            folder.mkdir()
            kills, lost = one_round(folder, chance)
            told["kills"] += kills
            told["lost"] += lost
            told["failed"] += len(list(folder.glob("failed.*")))
            found = made(folder)
            names = {*right, *found}
            told["differ"] += sum(found.get(name) != right.get(name) for name in names)
            told["rounds"] += 1
    return told | {"files": len(right), "sha256": sha256(json.dumps(right).encode()).hexdigest()}


if __name__ == "__main__":
    print(json.dumps(play(float(sys.argv[1]), *map(int, sys.argv[2:]))))
