"""``make audit``: known vulnerabilities of the locked packages, their licences, changed files.

pip-audit asks for the vulnerabilities, from an environment of its own (build/audit). What it could
not ask about counts as not checked, whatever its own verdict: it says "none found" where it found
none of the packages.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from importlib.metadata import Distribution, distributions
from pathlib import Path

from lib import lock
from lib.base import paths

PIP_AUDIT = paths.ROOT / "build" / "audit" / "bin" / "pip-audit"
LOCKED = lock.FOLDER / lock.BUILDS[""]
"""The lock with CUDA's torch: all of the other, and under the versions that advisories name."""

PERMISSIVE = {
    *("0bsd", "bsd", "bsd license", "bsd 2 clause", "bsd 3 clause", "2 clause bsd", "3 clause bsd"),
    *("new bsd", "modified bsd", "apache", "apache 2", "apache 2 0", "apache software license"),
    *("apache license 2 0", "apache license version 2 0", "apache 2 0 license", "apache software"),
    *("mit", "mit license", "mit 0", "mit cmu", "isc", "isc license", "isc license iscl"),
    *("psf", "psf 2 0", "python 2 0", "python software foundation license", "hpnd", "zlib"),
    *("cc0 1 0", "unlicense", "the unlicense unlicense", "bsl 1 0", "llvm exception"),
}
"""Licences that ask for no more than their notice, in small letters, without punctuation."""


class Audit:
    """What pip-audit answered: how many packages it ``asked`` about, ``found`` and ``skipped``."""

    def __init__(self, answer: str, said: str = "") -> None:
        """``answer`` is pip-audit's JSON (empty where it failed), ``said`` its messages."""
        try:
            rows = json.loads(answer)["dependencies"]
        except (ValueError, KeyError, TypeError):
            rows = []
            self.reason = (said.strip().splitlines() or ["pip-audit gave no answer"])[-1]
        else:
            self.reason = next((r["skip_reason"] for r in rows if "skip_reason" in r), "")
        self.skipped = [row["name"] for row in rows if "skip_reason" in row]
        self.asked = len(rows) - len(self.skipped)
        self.found = [
            f"{row['name']} {row['version']}: {it['id']}, "
            + (
                f"mended in {', '.join(it['fix_versions'])}"
                if it["fix_versions"]
                else "no mend yet"
            )
            for row in rows
            for it in row.get("vulns", [])
        ]

    def lines(self) -> list[str]:
        """The outcome, a line each. One begins with "Vulnerabilities" and gives the verdict."""
        if not self.asked:
            return [
                f"Vulnerabilities were NOT checked: {self.reason}. "
                "Run make audit where pip-audit reaches its vulnerability service"
            ]
        lines = [f"Vulnerabilities: {len(self.found)} known in {self.asked} locked packages"]
        lines += [f"  {it}" for it in self.found]
        if self.skipped:
            names = ", ".join(self.skipped)
            lines.append(f"{len(self.skipped)} packages were NOT checked ({self.reason}): {names}")
        if self.found:
            lines.append("For newer versions: pin them in requirements.txt, then run: make lock")
        return lines

    @property
    def clean(self) -> bool:
        """Whether every package was asked about and none is vulnerable."""
        return bool(self.asked) and not self.skipped and not self.found


def audit(command: Path = PIP_AUDIT, locked: Path = LOCKED) -> Audit:
    """Ask pip-audit about a lock. Neither pip nor this environment takes part."""
    options = ["--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(
            [command, "-r", locked, *options], capture_output=True, text=True, timeout=900
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Audit("", f"{error}")
    return Audit(done.stdout, done.stderr)


# licences ----------------------------------------------------------------------------------------


def licence_of(package: Distribution) -> str:
    """A package's licence as its metadata gives it, in one line; "not stated" where it does not."""
    meta = package.metadata
    if meta["License-Expression"]:
        return meta["License-Expression"]
    classes = [it for it in meta.get_all("Classifier", []) if it.startswith("License ::")]
    named = [it.rsplit(" :: ", 1)[-1] for it in classes]
    if named := [it for it in named if it != "OSI Approved"]:
        return " AND ".join(named)
    stated = (meta["License"] or "").strip().splitlines()
    return stated[0][:80] if stated and stated[0] != "UNKNOWN" else "not stated"


def is_permissive(licence: str) -> bool:
    """Whether every part that binds (AND, WITH) is on the list, or one choice (OR) of it."""
    flat = re.sub(r"[()]", " ", licence)
    return all(
        any(_plain(choice) in PERMISSIVE for choice in re.split(r"\bOR\b", part))
        for part in re.split(r"\b(?:AND|WITH)\b", flat)
    )


def _plain(licence: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", licence.lower()))


def licences() -> dict[str, str]:
    """Every installed package, ``name version`` -> licence, by name."""
    found = {f"{it.metadata['Name']} {it.version}": licence_of(it) for it in distributions()}
    return dict(sorted(found.items(), key=lambda it: it[0].lower()))


def main() -> int:
    """Print all parts; returns 1 where a package is vulnerable, was not checked, or has changed."""
    every = licences()
    other = {name: it for name, it in every.items() if not is_permissive(it)}
    print(f"Licences: {len(every)} packages installed, {len(every) - len(other)} permissive")
    permissive = Counter(it for name, it in every.items() if name not in other)
    for licence, count in permissive.most_common():
        print(f"  {count:4} {licence}")
    print(f"To look at: {len(other)} that are not on the list of lib/audit.py")
    for name, licence in other.items():
        print(f"  {name}: {licence}")
    problems = lock.problems()
    print(f"Installed files: {'NOT all ' if problems else ''}as recorded at their installation")
    for it in problems:
        print(f"  {it}; run: make setup")
    outcome = audit()
    print("\n".join(outcome.lines()))
    return 0 if outcome.clean and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
