"""Rows of a cache: whatever happens to the file, what comes out is what was put in, or nothing."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from threading import Timer

import numpy as np
import pytest

from lib.base import paths, rows
from lib.base.rows import CheckedRows
from lib.embed import HashEncoder
from lib.search.vectors import encode_small

ROWS = {bytes([i]) * 16: bytes(range(i, i + 60)) for i in range(1, 150)}

WRITER = """
import random, sys
from pathlib import Path
from lib.base.rows import CheckedRows
kept, chance = CheckedRows(Path(sys.argv[1]), short=True), random.Random(int(sys.argv[2]))
while True:
    some = chance.sample(range(1, 150), 10)
    kept.put({bytes([i]) * 16: bytes(range(i, i + 60)) for i in some})
    print(*some, flush=True)
"""
"""Puts some of ``ROWS`` again and again, and says which are there by now."""


def in_sql(file: Path, *statements: tuple) -> None:
    with closing(sqlite3.connect(file)) as store:
        for statement in statements:
            store.execute(*statement)
        store.commit()


@pytest.mark.parametrize("short", [True, False])
def test_rows_come_back_and_a_row_that_was_altered_does_not(short, tmp_path):
    kept = CheckedRows(tmp_path / "rows.sqlite", short=short)
    kept.put(ROWS)
    assert kept.get([*ROWS, b"unknown"]) == ROWS
    a, b = list(ROWS)[:2]
    in_sql(kept.file, ("UPDATE kept SET value = (SELECT value FROM kept WHERE key = ?)", (a,)))
    assert kept.get(ROWS) == {a: ROWS[a]}
    kept.put({b: ROWS[b]})
    assert kept.get([a, b]) == {a: ROWS[a], b: ROWS[b]}


def test_a_file_that_is_no_cache_is_named_with_what_to_do(tmp_path):
    file = tmp_path / "rows.sqlite"
    file.write_bytes(b"no database at all " * 100)
    with pytest.raises(OSError, match=r"rows\.sqlite: .*not a database.*delete it"):
        CheckedRows(file).get([b"a"])


def test_changed_vectors_are_made_again(tmp_path):
    encoder, texts = HashEncoder(32), [f"text {i}" for i in range(30)]
    vectors = encode_small(texts, encoder, "query", cache_dir=tmp_path)
    in_sql(tmp_path / "texts.sqlite", ("UPDATE kept SET value = ?", (b"x" * 16,)))
    assert np.array_equal(encode_small(texts, encoder, "query", cache_dir=tmp_path), vectors)


@pytest.mark.fault("numbers", "Two processes that fill one cache are killed")
def test_what_two_killed_processes_leave_is_whole(fault, tmp_path):
    chance = random.Random(0)
    for seed in fault.tries(10):
        file = tmp_path / f"{seed}.sqlite"
        command = [sys.executable, "-c", WRITER, str(file)]
        two = [
            subprocess.Popen([*command, str(i)], cwd=paths.ROOT, stdout=subprocess.PIPE, text=True)
            for i in range(2)
        ]
        told = [one.stdout.readline() for one in two]  # both are at work from here
        time.sleep(chance.uniform(0, 0.05))
        for one in two:
            one.kill()
        told += [one.stdout.read() for one in two]
        assert [one.wait() for one in two] == [-signal.SIGKILL] * 2
        there = {bytes([int(i)]) * 16 for i in "".join(told).split()}
        found = CheckedRows(file, short=True).get(ROWS)
        wrong = sum(ROWS[key] != value for key, value in found.items())
        lost = len(there - found.keys())
        fault.came(lost=lost, wrong=wrong, said="nothing: the next run goes on")


def test_a_full_disk_is_said_with_what_to_do(tmp_path):
    file = tmp_path / "rows.sqlite"
    kept = CheckedRows(file)
    kept.put({b"a": b"value"})
    with closing(sqlite3.connect(file)) as store:
        store.execute("BEGIN EXCLUSIVE")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows, "_GLANCE_S", 0.1)
            patch.setattr(rows, "_BUSY_S", 0.1)
            with pytest.raises(OSError, match="database is locked.*CHR_CACHE=folder"):
                kept.put({b"b": b"value"})
        store.rollback()
    assert kept.get([b"a", b"b"]) == {b"a": b"value"}


HOLDER = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1])
store.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    """A file that another process holds, and that process; it lets go when its input ends."""
    file = tmp_path / "rows.sqlite"
    CheckedRows(file).put({b"key": b"value"})
    command = [sys.executable, "-c", HOLDER, str(file)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        yield file, holder


def test_a_wait_for_another_process_is_said_and_goes_on(held, monkeypatch, capsys):
    file, holder = held
    assert rows.LONG_WAIT_S == 5
    monkeypatch.setattr(rows, "LONG_WAIT_S", 0)
    monkeypatch.setattr(rows, "_GLANCE_S", 0.1)
    monkeypatch.setattr(rows, "_BUSY_S", 20)  # where nothing is said, nobody lets go
    say = rows.say_waiting

    def say_and_let_go(place: Path) -> None:
        say(place)
        Timer(0.5, holder.stdin.close).start()

    monkeypatch.setattr(rows, "say_waiting", say_and_let_go)
    assert CheckedRows(file).get([b"key"]) == {b"key": b"value"}
    assert capsys.readouterr().err.count(f"which uses {file}; to see which: fuser {file}") == 1


def test_a_file_that_is_held_too_long_is_an_error(held, monkeypatch):
    file, holder = held
    monkeypatch.setattr(rows, "_GLANCE_S", 0.1)
    monkeypatch.setattr(rows, "_BUSY_S", 0.3)
    with pytest.raises(OSError, match="database is locked"):
        CheckedRows(file).get([b"key"])
    holder.stdin.close()
