"""Checking the notebooks changes nothing that is committed: they run on a copy of the results, with
the methods that the committed outputs are of."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from lib import lab
from lib.base import paths
from lib.base.files import locked

_FOLDER = paths.ROOT / "build" / "test"


@cache
def _copied() -> Path:
    """A copy of the committed results and figures, made anew once in a process."""
    with locked(_FOLDER):  # two processes check at once
        lab.seed(_FOLDER, ours=True)
    return _FOLDER


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The kernel starts with the first cell of a notebook, and inherits this."""
    os.environ["CHR_OUT"] = str(_copied())
    os.environ["CHR_METHODS"] = "shipped"


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Tests that come after notebooks in this process write where they are told to."""
    os.environ.pop("CHR_OUT", None)
