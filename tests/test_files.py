"""Whole files or none, manifests that cannot be fooled, and the folders everything goes to."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kill_write import NAMES, body, write_all

from lib.base import files, paths

CHILD = Path(__file__).with_name("kill_write.py")


# atomic writes -----------------------------------------------------------------------------------


def visible(folder: Path) -> set[str]:
    """Files that a person or a search for results would see, by path."""
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return {str(p) for p in found if not p.name.startswith(".")}


def test_old_temporary_files_of_the_same_file_are_swept(tmp_path):
    others = (".rows.lock", ".rows.json.lock", ".other.abcd1234.json", ".rows.json.abcd1234.txt")
    for name in (*others, ".rows.json.abcd1234.json"):
        (tmp_path / name).touch()
    files.atomic_write(tmp_path / "rows.json", "its writer may live: young ones stay")
    assert len(list(tmp_path.iterdir())) == 6
    for path in tmp_path.iterdir():
        os.utime(path, (time.time() - 100_000,) * 2)
    files.atomic_write(tmp_path / "rows.json", "whole")
    assert {p.name for p in tmp_path.iterdir()} == {"rows.json", *others}


@pytest.mark.fault("numbers", "A writer of files with manifests is killed")
def test_killed_at_any_moment_a_file_is_old_or_new_never_half(fault, tmp_path):
    rng, broken, whole_once = random.Random(4), 0, set()
    for attempt in fault.tries(20):
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(tmp_path), str(1000 * attempt)],
            stdout=subprocess.PIPE,
            text=True,
        )
        child.stdout.readline()
        time.sleep(rng.uniform(0.002, 0.12))
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        lost = wrong = 0
        for path in (tmp_path / name for name in NAMES):
            if not path.exists():
                lost += path in whole_once
                continue
            whole_once.add(path)
            version = int(path.read_bytes()[:9])
            manifest = files.read_manifest(path)
            lost += path.read_bytes() != body(str(path.relative_to(tmp_path)), version)
            wrong += manifest is not None and manifest["settings"]["version"] != version
            broken += manifest is None
        fault.came(lost=lost, wrong=wrong, said="nothing: the next run goes on")
    left = [p for p in tmp_path.rglob(".*") if p.is_file()]
    assert left or broken  # kills did fall into a write, or between a file and its manifest

    write_all(tmp_path, 7)
    write_all(tmp_path / "fresh", 7)
    for name in NAMES:
        assert files.sha256_file(tmp_path / name) == files.sha256_file(tmp_path / "fresh" / name)
        manifest = files.read_manifest(tmp_path / name)
        assert manifest["rows"] == 1 and manifest["settings"] == {"version": 7}
    wanted = {*NAMES, *(f"{name}.manifest.json" for name in NAMES)}
    assert visible(tmp_path) == wanted | {f"fresh/{name}" for name in wanted}
    assert all(files.read_manifest(p) is None for p in left)


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = files.atomic_write(tmp_path / "new folder" / "a.txt", "old")

    def fails(temporary: Path) -> None:
        assert temporary.parent == path.parent and temporary.suffix == ".txt"
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.atomic_write(path, fails)
    assert path.read_text() == "old" and list(path.parent.iterdir()) == [path]
    assert files.atomic_write(path, b"new").read_bytes() == b"new"


_WRITES = """
import resource, sys
from pathlib import Path
import numpy as np, pandas as pd
from lib.base import files, paths, provenance
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.search.vectors import encode_cached
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
texts = [f"text {i}" for i in range(300)]
try:
    if sys.argv[1] == "result":
        provenance.write_result(pd.DataFrame({"qid": texts}), "x", "t", code=[], data=[])
    elif sys.argv[1] == "vectors":
        encode_cached(texts, HashEncoder(8), "article")
    else:
        path = paths.cache("passages") / "x.sqlite"
        PassageStore.build(path, [Passage(t, "", t, "", {}) for t in texts])
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("what", ["result", "vectors", "passages"])
def test_a_full_disk_is_said_with_the_file_and_what_to_do(what, own_folders):
    """A file of more than 2,000 bytes cannot be written, as on a disk with no more room."""
    run = subprocess.run(
        [sys.executable, "-c", _WRITES, what], cwd=paths.ROOT, capture_output=True, text=True
    )
    assert "Nothing of it was kept: make room, or name another folder (CHR_OUT or" in run.stdout
    assert f"run it again: '{own_folders}" in run.stdout and len(run.stdout.splitlines()) == 1
    assert not [p for p in own_folders.rglob("*") if p.is_file() and p.suffix != ".lock"]


# hashes, JSON, JSON Lines ------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


@given(st.dictionaries(st.text(), values, max_size=4))
@settings(max_examples=40)
def test_canonical_json_does_not_depend_on_the_order_of_keys(value):
    text = files.canonical_json(value)
    assert text == files.canonical_json(dict(reversed(value.items())))
    assert json.loads(text) == value


def test_hashes_are_sha256(tmp_path):
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    assert files.sha256_bytes(b"abc") == abc
    assert files.sha256_file(files.atomic_write(tmp_path / "abc", "abc")) == abc


# These names have a meaning: the hash of the row, and ids, whose form is checked.
names = st.text().filter(lambda name: name not in ("digest", "qid", "pid"))


@given(rows=st.lists(st.dictionaries(names, st.text() | st.integers()), max_size=4))
@settings(max_examples=20, deadline=None)
def test_json_lines_come_back_as_they_were(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(files.read_jsonl(path)) == rows


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_line_that_is_not_utf8_is_named(name, tmp_path):
    data = b'{"a": "na\xc3\xafve"}\n\n{"a": "na\xefve"}\n'
    path = tmp_path / name
    files.atomic_write(path, gzip.compress(data) if name.endswith(".gz") else data)
    rows = files.read_jsonl(path)
    assert next(rows) == {"a": "na\u00efve"}
    with pytest.raises(ValueError, match=rf"{re.escape(name)}, line 3: not UTF-8"):
        next(rows)


def test_a_broken_line_is_named_with_its_number(tmp_path):
    path = files.atomic_write(tmp_path / "rows.jsonl", '{"a": 1}\n\n{"a": \n{"a": 2}\n')
    rows = files.read_jsonl(path)
    assert next(rows) == {"a": 1}
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 3: not JSON"):
        next(rows)


@pytest.mark.fault(
    "numbers",
    "A line of a file cannot be read",
    "the file and the line",
)
@pytest.mark.parametrize("line", ["[" * 100_000, '{"a":' * 50_000, "9" * 10_000])
def test_a_line_that_no_reader_can_take_is_named_too(line, tmp_path):
    path = files.atomic_write(tmp_path / "rows.jsonl", '{"a": 1}\n' + line)
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: not JSON"):
        list(files.read_jsonl(path))


@pytest.mark.parametrize("qid", ["q1 ", "\u00a0q1", 7, None])
def test_an_id_that_would_belong_to_nothing_is_named(qid, tmp_path):
    lines = json.dumps({"qid": "café"}) + "\n" + json.dumps({"qid": qid}) + "\n"
    rows = files.read_jsonl(files.atomic_write(tmp_path / "rows.jsonl", lines))
    assert next(rows) == {"qid": "café"}
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: qid is .*, not a text without"):
        next(rows)


def test_a_file_that_an_editor_began_with_a_mark_is_read(tmp_path):
    path = files.atomic_write(tmp_path / "rows.jsonl", '\ufeff{"qid": "q1"}\r\n')
    assert list(files.read_jsonl(path)) == [{"qid": "q1"}]


KNOWN_BY = {
    "ddx-mini/passages.jsonl": ("pid",),
    "ddx-mini/questions.jsonl": ("qid",),
    "ddx-mini/hypotheses.jsonl": ("qid",),
    "ddx-mini/expansions.jsonl": ("qid",),
    "ddx-mini/qrels.jsonl": ("qid", "pid"),
    "ddx-mini/mimic_grades.jsonl": ("qid",),
    "ddx-mini/known_errors.jsonl": ("qid", "part"),
    "ddx-mini/readings.jsonl": ("key",),
    "evidence-mini/questions.jsonl": ("qid",),
    "evidence-mini/abstracts.jsonl": ("id",),
    "evidence-mini/labels.jsonl": ("pid",),
    "evidence-mini/pairs.jsonl": ("pid",),
    "judgments/real.jsonl.gz": ("qid", "pid", "judge"),
    "judgments/contradiction.jsonl.gz": ("pool", "a", "b", "judge"),
    "judgments/plants.jsonl.gz": ("qid", "item"),
    "judgments/fresh_pairs.jsonl": ("pid",),
    "mimic_cases.jsonl": ("case",),
}
"""The fields that tell the rows of each bundled file apart."""


@pytest.mark.parametrize("name", KNOWN_BY)
def test_no_row_of_a_bundled_file_stands_twice(name):
    """A second label of a passage made it target and mimic; of two gold letters the last was it."""
    rows = list(files.read_jsonl(paths.DATA / name))
    keys = [tuple(repr(row[field]) for field in KNOWN_BY[name]) for row in rows]
    assert len(set(keys)) == len(keys) > 1


# manifests ---------------------------------------------------------------------------------------

BESIDE = "data.csv.manifest.json"


@pytest.fixture
def made(tmp_path) -> Path:
    """A file of 100 bytes with its manifest."""
    path = files.atomic_write(tmp_path / "data.csv", bytes(range(100)))
    files.write_manifest(path, rows=3, settings={"k": 5, "corpora": ("a", "b"), "limit": None})
    return path


def test_a_manifest_says_rows_bytes_hash_and_settings(made):
    manifest = files.read_manifest(made)
    assert (manifest["rows"], manifest["bytes"]) == (3, 100)
    assert manifest["sha256"] == files.sha256_file(made)
    assert manifest["settings"] == {"k": 5, "corpora": ["a", "b"], "limit": None}


DAMAGES = {
    "a byte changed": lambda p: p.write_bytes(b"x" + p.read_bytes()[1:]),
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:50]),
    "file missing": lambda p: p.unlink(),
    "manifest missing": lambda p: p.with_name(BESIDE).unlink(),
    "manifest cut": lambda p: p.with_name(BESIDE).write_text('{"bytes": 100, '),
    "manifest without a hash": lambda p: p.with_name(BESIDE).write_text('{"bytes": 100}'),
    "manifest without settings": lambda p: p.with_name(BESIDE).write_text(
        json.dumps({"bytes": 100, "sha256": files.sha256_file(p)})
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_whole_has_no_manifest(made, damage):
    DAMAGES[damage](made)
    assert files.read_manifest(made) is None


OPEN_IT = """
import sys; from pathlib import Path; from lib.base import files
print(files.read_manifest(Path(sys.argv[1]), verify=False) is not None)
"""


def found_sound(path: Path, **settings: str) -> bool:
    """Whether a process of its own finds a large file to be what its manifest says."""
    env = {**os.environ, **settings}
    run = [sys.executable, "-c", OPEN_IT, str(path)]
    return subprocess.run(run, env=env, text=True, capture_output=True, check=True).stdout == (
        "True\n"
    )


def test_a_large_file_is_hashed_when_its_time_changes_and_always_on_request(made):
    assert found_sound(made)
    before = made.stat()
    made.write_bytes(bytes(100))
    assert not found_sound(made)
    # Another program put the time back: only who asks for it hashes the file once more.
    os.utime(made, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found_sound(made)
    assert not found_sound(made, CHR_VERIFY="1")


@pytest.mark.parametrize("record", [b"", b"{", b"\xff\xfe\x00", b"[1]", b"null"])
def test_a_broken_record_of_hashing_costs_a_hashing(made, record):
    beside = made.with_name(f".{made.name}.verified")
    beside.write_bytes(record)
    assert found_sound(made)
    assert beside.read_bytes() != record
    made.write_bytes(bytes(100))
    beside.write_bytes(record)
    assert not found_sound(made)


# folders -----------------------------------------------------------------------------------------


def test_outputs_move_with_the_environment_and_committed_results_do_not(own_folders, monkeypatch):
    assert paths.cache("a", "b") == own_folders / "cache" / "a" / "b"
    assert paths.results("mini") == own_folders / "out" / "results" / "mini"
    assert paths.figures("mini") == own_folders / "out" / "figures" / "mini"
    assert all(f.is_dir() for f in (paths.cache("a", "b"), paths.results("mini")))
    monkeypatch.setattr(paths, "ROOT", own_folders)
    monkeypatch.setattr(paths, "DATA", own_folders / "data")
    assert paths.committed("mini") == own_folders / "data" / "results" / "mini"
    monkeypatch.delenv("CHR_OUT")
    assert paths.results("mini") == paths.committed("mini")
    assert paths.figures("mini") == own_folders / "figures" / "mini"


def test_a_path_is_shown_without_the_machine_it_is_on(tmp_path):
    assert paths.shown(paths.DATA / "registry.toml") == "data/registry.toml"
    assert paths.shown(tmp_path / "x.csv") == "x.csv"


# waiting -----------------------------------------------------------------------------------------


HOLDER = """
import sys
from pathlib import Path
from lib.base.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.fault(
    "waiting",
    "Another process holds a lock and is stopped",
    "what is waited for, after five seconds",
)
def test_a_lock_of_a_process_that_is_stopped_is_waited_for_aloud(tmp_path, monkeypatch, capsys):
    file = tmp_path / "results.csv"
    assert files.LONG_WAIT_S == 5
    monkeypatch.setattr(files, "LONG_WAIT_S", 0.2)
    say = files.say_waiting
    command = [sys.executable, "-c", HOLDER, str(file)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=paths.ROOT, **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        holder.stdin.close()

        def say_and_let_go(place: Path) -> None:
            say(place)
            holder.send_signal(signal.SIGCONT)

        monkeypatch.setattr(files, "say_waiting", say_and_let_go)
        last = Timer(20, holder.send_signal, [signal.SIGCONT])  # where nothing is said
        last.start()
        with files.locked(file):
            said = capsys.readouterr().err
        last.cancel()
    assert said.count(f"which uses {tmp_path}/.results.csv.lock") == 1
    with files.locked(file):
        pass
    assert capsys.readouterr().err == ""
