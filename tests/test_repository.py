"""What is committed: the same bytes on every machine, and code that runs nothing it has read."""

from __future__ import annotations

import subprocess

import pytest

from lib.base import paths


def git(*arguments: str) -> list[str]:
    """What git prints, a line each; skipped where the project is no clone (an unpacked archive)."""
    if not (paths.ROOT / ".git").exists():
        pytest.skip("no git here to say what is committed")
    command = ["git", "-c", "core.quotepath=off", *arguments]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


# files -------------------------------------------------------------------------------------------


def test_no_machine_turns_line_ends_of_what_is_committed():
    """git does where it is told to (core.autocrlf): no sha256 of a manifest would hold."""
    turned = [line for line in git("ls-files", "--eol") if "attr/-text" not in line.split()]
    assert not turned, f".gitattributes leaves out {turned[:3]}"
