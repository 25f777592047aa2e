"""Whole files or none, manifests that cannot be fooled, and the folders everything goes to."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from lib.base import files, paths
from lib.base.files import CheckedRows

# atomic writes -----------------------------------------------------------------------------------


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


# JSON Lines --------------------------------------------------------------------------------------


def test_json_lines_come_back_as_they_were(tmp_path):
    lines = [{"qid": "café", "n": 1}, {"a": ["\u2028", None]}]
    text = "\ufeff" + "\r\n\n".join(json.dumps(row) for row in lines)  # as an editor may write it
    assert list(files.read_jsonl(files.atomic_write(tmp_path / "r.jsonl", text))) == lines
    files.write_jsonl_gz(tmp_path / "r.jsonl.gz", lines)
    assert list(files.read_jsonl(tmp_path / "r.jsonl.gz")) == lines


BROKEN_LINES = {
    b'{"a": "na\xefve"}': "not UTF-8",
    b'{"a": ': "not JSON",
    b"[" * 100_000: "not JSON",
    b"9" * 10_000: "not JSON",
    b'{"qid": "q1 "}': "qid is 'q1 ', not a text without",
    b'{"pid": 7}': "pid is 7, not a text without",
    b'{"a": 1, "digest": "0"}': "edited since",
}


@pytest.mark.fault("numbers", "A line of a file cannot be read", "the file and the line")
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_line_that_cannot_be_read_is_named_with_its_number(name, tmp_path):
    for line, says in BROKEN_LINES.items():
        data = b'{"a": 1}\n\n' + line
        path = tmp_path / name
        files.atomic_write(path, gzip.compress(data) if name.endswith(".gz") else data)
        found = files.read_jsonl(path)
        assert next(found) == {"a": 1}
        with pytest.raises(ValueError, match=rf"{re.escape(name)}, line 3: {says}"):
            next(found)


# manifests ---------------------------------------------------------------------------------------

BESIDE = "data.csv.manifest.json"


@pytest.fixture
def made(tmp_path) -> Path:
    """A file of 100 bytes with its manifest."""
    path = files.atomic_write(tmp_path / "data.csv", bytes(range(100)))
    files.write_manifest(path, rows=3, settings={"k": 5, "corpora": ("a", "b"), "limit": None})
    return path


DAMAGES = {
    "a byte changed": lambda p: p.write_bytes(b"x" + p.read_bytes()[1:]),
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:50]),
    "file missing": lambda p: p.unlink(),
    "manifest missing": lambda p: p.with_name(BESIDE).unlink(),
    "manifest cut": lambda p: p.with_name(BESIDE).write_text('{"bytes": 100, '),
    "manifest without a hash": lambda p: p.with_name(BESIDE).write_text('{"bytes": 100}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_manifest_says_what_a_file_is_and_what_is_not_whole_has_none(made, damage):
    manifest = files.read_manifest(made)
    assert (manifest["rows"], manifest["bytes"]) == (3, 100)
    assert manifest["sha256"] == files.sha256_file(made)
    assert manifest["settings"] == {"k": 5, "corpora": ["a", "b"], "limit": None}
    DAMAGES[damage](made)
    assert files.read_manifest(made) is None


OPEN_IT = """
import sys; from pathlib import Path; from lib.base import files
print(files.read_manifest(Path(sys.argv[1]), verify=False) is not None)
"""


def found_sound(path: Path, **settings: str) -> bool:
    """Whether a process of its own finds a large file to be what its manifest says."""
    command = [sys.executable, "-c", OPEN_IT, str(path)]
    run = subprocess.run(command, env=os.environ | settings, text=True, capture_output=True)
    return run.stdout == "True\n"


def test_a_large_file_is_hashed_when_its_time_changes_and_always_on_request(made):
    assert found_sound(made)
    before = made.stat()
    made.write_bytes(bytes(100))
    assert not found_sound(made)
    # Another program put the time back: only who asks for it hashes the file once more.
    os.utime(made, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found_sound(made)
    assert not found_sound(made, CHR_VERIFY="1")


# rows of a cache ---------------------------------------------------------------------------------


@pytest.mark.parametrize("short", [True, False])
def test_rows_come_back_and_a_file_that_is_no_cache_is_named(short, tmp_path):
    some = {bytes([i]) * 16: bytes(range(i, i + 60)) for i in range(1, 150)}
    kept = CheckedRows(tmp_path / "rows.sqlite", short=short)
    kept.put(some)
    kept.put({b"a": b"old"})
    kept.put({b"a": b"new"})
    assert kept.get([*some, b"a", b"unknown"]) == some | {b"a": b"new"}
    kept.file.write_bytes(b"no database at all " * 100)
    with pytest.raises(OSError, match=r"rows\.sqlite: .*not a database.*delete it"):
        kept.get([b"a"])


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
def test_a_process_that_is_stopped_is_waited_for_aloud(tmp_path, monkeypatch, capsys):
    file = tmp_path / "held.sqlite"
    say = files.say_waiting
    assert files.LONG_WAIT_S == 5
    monkeypatch.setattr(files, "LONG_WAIT_S", 0.2)
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
        CheckedRows(file).put({b"key": b"value"})
        last.cancel()
    assert capsys.readouterr().err.count("waiting for another process, which uses") == 1
    assert CheckedRows(file).get([b"key"]) == {b"key": b"value"}  # let go of, and not waited for
    assert capsys.readouterr().err == ""


# folders -----------------------------------------------------------------------------------------


def test_outputs_move_with_the_environment_and_committed_results_do_not(own_folders, monkeypatch):
    assert paths.cache("a", "b") == own_folders / "cache" / "a" / "b"
    assert paths.results("mini") == own_folders / "out" / "results" / "mini"
    assert paths.figures("mini") == own_folders / "out" / "figures" / "mini"
    assert paths.committed("mini") == paths.DATA / "results" / "mini"
    assert paths.shown(paths.REGISTRY) == "data/registry.toml"
    assert paths.shown(own_folders / "x.csv") == "x.csv"
    monkeypatch.setenv("CHR_MIRROR", "")
    assert paths.mirror_folder() is None
    # A relative place is the project's, whichever folder a notebook runs in.
    monkeypatch.setenv("CHR_OUT", "build/a place")
    monkeypatch.setenv("CHR_MIRROR", "build/a place")
    monkeypatch.chdir(own_folders)
    place = paths.ROOT / "build" / "a place"
    assert paths.figures("mini") == place / "figures" / "mini" and paths.mirror_folder() == place
    (own_folders / "file").touch()
    for name in ("file", "file/below"):
        monkeypatch.setenv("CHR_OUT", str(own_folders / name))
        with pytest.raises(OSError, match=f"name another folder.*{own_folders}/{name}"):
            paths.results("mini")
