"""How a command ends: one line for what is known to go wrong, a traceback for a mistake of ours."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import nbformat
import pytest
from huggingface_hub import constants

from lib import doctor, notebooks
from lib.base import downloads, paths
from lib.base.command import line_for
from lib.data.store import PassageStore
from lib.profiles import load_profile


def ended(*arguments: str, **options) -> subprocess.CompletedProcess:
    """A command that was run to its end, from the project's folder."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, **options)


FIGURES = ("-m", "lib.notebooks", "figures")
LEDGER = ("-m", "lib.cost")
EMPTY_MIRROR = "import lib; from lib.corpora import load_passages as p; list(p('medquad'))"
REFUSED = {
    "a profile that there is not": ((*FIGURES, "--profile", "nosuch"), "there are: mini.* Run: "),
    "a limit below zero": ((*FIGURES, "--limit", "-1"), "limit must be a whole number"),
    "a profile that is no UTF-8": ((*FIGURES, "--profile", "{here}/latin.toml"), "latin.toml is "),
    "an encoder that there is not": ((*FIGURES, "--encoder", "nosuch"), "unknown encoder 'nosuch'"),
    "a file that there is not": ((*LEDGER, "{here}/none"), "No such file.*none. Next: "),
    "a folder for a file": ((*LEDGER, "{here}"), "folder is where a file should be"),
    "a file that is no UTF-8": ((*LEDGER, "{here}/latin.toml"), "line 1: not UTF-8"),
    "a mirror that is empty": (("-c", EMPTY_MIRROR), "CHR_MIRROR is set.* run: "),
    "no results to compare": (("-m", "lib.pages", "log", "--profile", "nosuch"), "run: make "),
}


@pytest.mark.fault(
    "waiting", "A setting, a profile or a file is wrong", "one line with what to mend"
)
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_known_to_go_wrong_is_one_line_with_the_next_step(what, tmp_path):
    (tmp_path / "latin.toml").write_bytes('title = "für"\n'.encode("latin-1"))
    arguments, said = REFUSED[what]
    places = {"CHR_MIRROR": tmp_path / "mirror", "CHR_CACHE": tmp_path, "CHR_OUT": tmp_path / "out"}
    env = os.environ | {name: str(place) for name, place in places.items()}
    done = ended(*(part.format(here=tmp_path) for part in arguments), env=env)
    *_, last = done.stderr.splitlines()
    assert done.returncode == 1 and done.stderr.count("error:") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert last.startswith("error: ") and re.search(said, last), last


@pytest.mark.fault("waiting", "A package is missing", "make setup")
def test_a_package_that_is_missing_is_installed_by_make_setup():
    done = ended("-c", "import lib, nosuch.part")
    assert done.stderr == "error: No module named 'nosuch'. Next: make setup\n"


@pytest.mark.fault(
    "waiting",
    "The system refuses: disk full, read-only, not permitted, out of memory",
    "one line with the place",
)
def test_what_the_system_refuses_is_said_with_the_place():
    for number, said in {
        errno.ENOSPC: "CHR_OUT=folder .*CHR_CACHE=folder",
        errno.EROFS: "CHR_OUT=folder",
        errno.EACCES: "may read and write",
        errno.EISDIR: "move it away",
        errno.EIO: "the same command again",
    }.items():
        line = line_for(OSError(number, os.strerror(number), "/some/place"))
        assert re.fullmatch(f"{os.strerror(number)}: /some/place. Next: .*{said}.*", line), line
    assert "LIMIT=n" in line_for(MemoryError("Unable to allocate 9 GiB"))


def test_a_misspelt_setting_is_said_and_a_letter_that_no_terminal_has_is_a_number():
    env = os.environ | {"CHR_MIROR": "/secret", "PYTHONIOENCODING": "ascii"}
    done = ended("-c", "import lib; print('λ')", env=env)
    assert (done.returncode, done.stdout) == (0, "\\u03bb\n") and "secret" not in done.stderr
    assert done.stderr.startswith("warning: CHR_MIROR is not read; there are: CHR_CACHE, ")


@pytest.mark.fault("secrets", "A library's error, or a traceback, holds a key", "[key]")
@pytest.mark.parametrize("kind", ["ValueError", "AssertionError"])
def test_a_key_in_an_error_of_another_library_is_blotted_out(kind):
    env = os.environ | {"HF_TOKEN": "hf_planted0123456789"}
    code = f"import lib, os; raise {kind}('401: ' + os.environ['HF_TOKEN'])"
    done = ended("-c", code, env=env)
    assert "401: [key]" in done.stderr and "planted" not in done.stderr


# stopping ----------------------------------------------------------------------------------------


@pytest.mark.fault(
    "waiting",
    "Ctrl-C, once or twice, in each stage of a run",
    "stopped; the same command goes on from here",
)
@pytest.mark.parametrize(
    ("code", "marker", "times"),
    [
        ("import lib.base; print('on', flush=True); import time; time.sleep(60)", b"on", 2),
        ("import lib.base; print('on', flush=True); import torch, pandas, sklearn", b"on", 1),
        ("from lib.notebooks import prepare; prepare('mini', {})", b"texts to encode", 1),
        (
            "from lib.notebooks import run_all; run_all('mini', {'limit': 9})",
            b"build_index] run",
            2,
        ),
    ],
    ids=["sleeping", "importing", "embedding", "in a notebook"],
)
def test_ctrl_c_ends_within_seconds_without_a_traceback(code, marker, times, own_folders):
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=paths.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a terminal's Ctrl-C goes to all of them
    )
    said = b""
    while marker not in said:
        said += os.read(child.stdout.fileno(), 1000) or pytest.fail(said.decode())
    time.sleep(0.3)
    stopped = time.monotonic()
    for _ in range(times):
        os.killpg(child.pid, signal.SIGINT)
        time.sleep(0.1)
    rest, _ = child.communicate(timeout=60)
    said += rest
    assert time.monotonic() - stopped < 10  # two where nothing else runs
    assert child.returncode in (130, -signal.SIGINT) and b"Traceback" not in said, said.decode()
    assert times > 1 or b"the same command goes on from here" in said


SWALLOWED = """
import signal, time
import lib.base
from lib.base.command import set_up
set_up()
class Lock:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
lock = Lock()
del lock
print("went on", flush=True)
"""


def test_ctrl_c_in_a_finalizer_ends_the_process_too():
    """Python prints what a finalizer raises, and goes on: Ctrl-C would be lost."""
    ended = subprocess.run(
        [sys.executable, "-c", SWALLOWED], cwd=paths.ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 130 and "went on" not in ended.stdout
    assert "Traceback" not in ended.stderr and "stopped" in ended.stderr.casefold()


# notebooks ---------------------------------------------------------------------------------------

CELLS = {
    "import os; raise ValueError('401: ' + os.environ['HF_TOKEN'])": r"401: ",
    "import os; os.kill(os.getpid(), 9)": "Kernel died.* Next: the same command",
}


@pytest.mark.fault(
    "waiting",
    "A cell of a notebook fails, or its kernel dies",
    "the last line, and where the executed copy lies",
)
@pytest.mark.parametrize("source", CELLS)
def test_a_notebook_that_fails_says_its_last_line_and_where_it_lies(source, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_planted0123456789")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(book, tmp_path / "made.ipynb")
    monkeypatch.setattr(notebooks, "_FOLDER", tmp_path)
    output = tmp_path / "executed" / "made.ipynb"
    with pytest.raises(RuntimeError, match=CELLS[source]) as failed:
        notebooks.run("made", output, {})
    line = line_for(failed.value)
    assert line.startswith("made: ") and "\n" not in line
    assert "Kernel" in line or str(output) in line
    assert "planted" not in output.read_text()


# a network that is not there ---------------------------------------------------------------------


@pytest.fixture(params=["refuses", "says nothing"])
def nobody(request):
    """An address on this machine at which nobody answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "says nothing":
            listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.fault(
    "waiting", "A profile that needs a network is run without one", "the address, within seconds"
)
def test_a_profile_that_needs_the_hub_says_at_once_that_it_gives_no_answer(
    nobody, own_folders, monkeypatch
):
    monkeypatch.delenv("CHR_MIRROR", raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", nobody)
    monkeypatch.setattr(downloads, "_ANSWERS_S", 0.5)
    own = own_folders / "large.toml"
    own.write_text('base = "paper"\n[evidence]\nname = "evidence-mini"\nnli = "bi"\n')
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=f"{nobody} gives no answer.* Next: .*MIRROR=folder"):
        notebooks.prepare(str(own), {})
    assert time.monotonic() - started < 20
    # Passages that are stored need no hub.
    monkeypatch.setattr(doctor, "check_answers", pytest.fail)
    profile = replace(load_profile(str(own)), questions=("ddx-mini",), benchmarks=("ddx-mini",))
    settings = {"corpora": list(profile.corpora), "limit": 0}
    PassageStore.build(paths.cache("passages") / "made.sqlite", [], settings)
    assert [need.missing for need in doctor.data(profile)] == [""] * 4
