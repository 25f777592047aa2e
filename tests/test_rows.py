"""Rows of a cache: whatever happens to the file, what comes out is what was put in, or nothing."""

from __future__ import annotations

import os
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
from lib.studies.nli.scores import score_pairs

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


def filled(file: Path, order: random.Random, short: bool = True) -> dict[bytes, bytes]:
    """Every row, as a user of the cache gets them: those that are missing are made and kept."""
    kept = CheckedRows(file, short=short)
    keys = order.sample(sorted(ROWS), len(ROWS))
    found = {}
    for start in range(0, len(keys), 10):
        chunk = keys[start : start + 10]
        there = kept.get(chunk)
        kept.put({key: ROWS[key] for key in chunk if key not in there})
        found |= {key: there.get(key, ROWS[key]) for key in chunk}
    return found


def flip_a_bit(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def zero_a_page(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    page = 4096 * chance.randrange(len(data) // 4096)
    data[page : page + 4096] = bytes(4096)
    file.write_bytes(data)


def cut_short(file: Path, chance: random.Random) -> None:
    os.truncate(file, chance.randrange(file.stat().st_size))


def in_sql(file: Path, *statements: tuple) -> None:
    with closing(sqlite3.connect(file)) as store:
        for statement in statements:
            store.execute(*statement)
        store.commit()


def swap_two(file: Path, chance: random.Random) -> None:
    a, b = chance.sample(sorted(ROWS), 2)
    swap = "UPDATE kept SET key = ? WHERE key = ?"
    in_sql(file, (swap, (b"x", a)), (swap, (a, b)), (swap, (b, b"x")))


def another_value(file: Path, chance: random.Random) -> None:
    value = chance.choice([0.99, 7, "text", b"", b"short", chance.randbytes(68)])
    key = chance.choice(sorted(ROWS))
    in_sql(file, ("UPDATE kept SET value = ? WHERE key = ?", (value, key)))


def another_table(file: Path, chance: random.Random) -> None:
    in_sql(file, ("DROP TABLE kept",), ("CREATE TABLE kept (a, b, c)",))


def no_database(file: Path, chance: random.Random) -> None:
    file.write_bytes(chance.randbytes(chance.randrange(1, 9000)))


DAMAGES = (
    flip_a_bit,
    zero_a_page,
    cut_short,
    swap_two,
    another_value,
    another_table,
    no_database,
)


@pytest.mark.fault("numbers", "The file of a cache is damaged")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda it: it.__name__)
def test_no_damage_changes_a_value_and_none_is_for_ever(damage, fault, tmp_path, capsys):
    said = 0
    for seed in fault.tries(40):
        chance, short = random.Random(seed // 2), seed % 2 == 0
        file = tmp_path / f"{seed}.sqlite"
        filled(file, chance, short)
        capsys.readouterr()
        damage(file, chance)
        found = filled(file, chance, short)
        told = capsys.readouterr().err
        said += str(file) in told
        fault.came(wrong=found != ROWS, said=told)
        # What was read before the damage was met is made again, and then all is as it was.
        assert filled(file, chance, short) == ROWS == CheckedRows(file, short=short).get(ROWS)
        assert capsys.readouterr().err == ""
    if damage in (swap_two, another_value, another_table, no_database):
        assert said == 40, "named each time"


@pytest.mark.fault("numbers", "A bit of a stored vector is flipped")
def test_a_changed_vector_is_made_again_and_named(fault, tmp_path, capsys):
    encoder, texts = HashEncoder(32), [f"text {i}" for i in range(30)]
    right = encode_small(texts, encoder, "query", cache_dir=tmp_path)
    file = tmp_path / "texts.sqlite"
    for seed in fault.tries(20):
        at = random.Random(seed).randrange(128)
        with closing(sqlite3.connect(file)) as store:
            key, value = store.execute("SELECT key, value FROM kept LIMIT 1").fetchone()
            changed = bytearray(value)
            changed[at] ^= 1 << seed % 8
            store.execute("UPDATE kept SET value = ? WHERE key = ?", (bytes(changed), key))
            store.commit()
        found = encode_small(texts, encoder, "query", cache_dir=tmp_path)
        told = capsys.readouterr().err
        assert "texts.sqlite: 1 row is damaged" in told
        fault.came(wrong=not np.array_equal(found, right), said=told)


class Length:
    """A model of contradiction that counts what it was asked."""

    name, fingerprint, symmetric, asked = "length", "length", True, 0

    def contradiction(self, pairs):
        self.asked += len(pairs)
        return np.array([len(a) / (len(a) + len(b)) for a, b in pairs])


@pytest.mark.fault("numbers", "Scores in the cache of sentence pairs are replaced")
@pytest.mark.parametrize("value", [0.99, 7.0, b"x" * 16, "x"], ids=["0.99", "7", "bytes", "text"])
def test_a_score_that_was_altered_is_not_used(value, fault, tmp_path, capsys):
    model, pairs = Length(), [(f"a{'x' * i}", "b") for i in range(20)]
    right = score_pairs(pairs, model, cache_dir=tmp_path)
    in_sql(tmp_path / "pairs.sqlite", ("UPDATE kept SET value = ?", (value,)))
    found = score_pairs(pairs, model, cache_dir=tmp_path)
    told = capsys.readouterr().err
    assert model.asked == 40 and "20 rows are damaged" in told
    fault.came(tries=20, wrong=(found != right).sum(), said=told)


@pytest.mark.fault("numbers", "Two processes that fill one cache are killed")
def test_what_two_killed_processes_leave_is_whole(fault, tmp_path):
    chance = random.Random(0)
    for seed in fault.tries(20):
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
        assert filled(file, chance) == ROWS
        assert not file.with_name(f"{file.name}.damaged").exists()


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
    with pytest.raises(ValueError, match="empty value"):
        kept.put({b"c": b""})


HOLDER = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1])
store.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""
ASKER = """
import lib, sys
from pathlib import Path
from lib.base.rows import CheckedRows
print("asks", flush=True)
print(len(CheckedRows(Path(sys.argv[1])).get([b"key"])), flush=True)
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


@pytest.mark.fault(
    "waiting", "Another process holds a cache", "what is waited for, after five seconds"
)
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


@pytest.mark.fault("waiting", "Ctrl-C while another process is waited for", "nothing: it ends")
def test_ctrl_c_is_heard_while_another_process_is_waited_for(held):
    file, holder = held
    command = [sys.executable, "-c", ASKER, str(file)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=paths.ROOT, **pipes) as asker:
        assert asker.stdout.readline() == "asks\n"
        time.sleep(0.3)
        asker.send_signal(signal.SIGINT)
        try:
            _, said = asker.communicate(timeout=30)  # SQLite alone would wait for ten minutes
        finally:
            asker.kill()
    holder.stdin.close()
    assert asker.returncode == 130 and said.startswith("stopped; what is finished is kept")
