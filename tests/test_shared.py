"""Several processes on one cache and one recording leave what one process leaves."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lib.base import paths


@pytest.mark.fault("numbers", "Two processes on one cache and one recording are killed")
def test_two_processes_that_are_killed_leave_what_one_leaves(fault):
    """For longer: ``make soak``."""
    command = [sys.executable, "-m", "tests.kill_shared", "0", "1", "2"]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rounds"] == 2 and told["files"] > 20
    fault.came(
        tries=told["kills"],
        lost=told["lost"],
        wrong=told["differ"] + told["failed"],
        said="nothing: the next run goes on",
    )
