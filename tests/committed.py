"""What git says of the project; a test that asks is skipped where there is no git to ask."""

from __future__ import annotations

import subprocess

import pytest

from lib.base import paths


def git(*arguments: str) -> list[str]:
    """What git prints, a line each. An archive that was unpacked is no clone: skipped."""
    if not (paths.ROOT / ".git").exists():
        pytest.skip("no git here to say what is committed")
    command = ["git", "-c", "core.quotepath=off", *arguments]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def committed(*folders: str) -> list[str]:
    """The committed files, all or those in some folders, that are there."""
    return [name for name in git("ls-files", *folders) if (paths.ROOT / name).exists()]
