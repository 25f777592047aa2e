"""Fixtures shared by all tests: the mirror of open data, and folders of a test's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.faults import Fault

# Who starts the tests with nohup or & leaves Ctrl-C ignored, for them and for what they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests count the methods of the committed tables, whatever a reader has put beside them.
os.environ["CHR_METHODS"] = "shipped"

# No property holds or fails by the speed of the machine. Loaded before any test is decorated.
settings.register_profile(
    "any speed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any speed")

LONGEST_FIRST = (
    "09_",
    "07_",
    "08_",
    "04_",
    "03_",
    "00_",
    "05_",
    "06_",
    "02_",
    "01_",
    "12_",
    "test_notebooks",
    "test_rehearsal",
    "test_main_tables",
    "test_corpora",
)
"""How the names of files begin that take long, so that no process is left alone with one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest go first, the others stay in their order."""

    def place(item: pytest.Item) -> int:
        begins = (i for i, start in enumerate(LONGEST_FIRST) if item.path.name.startswith(start))
        return next(begins, len(LONGEST_FIRST))

    items.sort(key=place)


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder that CHR_MIRROR names, or a skip that says how to get one."""
    folder = os.environ.get("CHR_MIRROR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("no data mirror: set CHR_MIRROR to a folder with the files of registry.toml")
    return Path(folder)


@pytest.fixture
def own_folders(tmp_path, monkeypatch) -> Path:
    """Send the cache, results and figures of one test to its own folder."""
    monkeypatch.setenv("CHR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CHR_OUT", str(tmp_path / "out"))
    return tmp_path


@pytest.fixture
def fault(request, tmp_path) -> Iterator[Fault]:
    """What a test marked ``fault`` adds to the table of ``tests.faults``; checked if it passes."""
    group, name, *_ = request.node.get_closest_marker("fault").args
    row = Fault(group, name, tmp_path, request.node.nodeid)
    yield row
    if getattr(request.node, "passed", False):
        row.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Tell the fixture ``fault`` whether the test has passed; without it, the case is a try."""
    report = yield
    if report.when == "call":
        item.passed = report.passed
        marker = item.get_closest_marker("fault")
        if marker and report.passed and "fault" not in item.fixturenames:
            group, name, *said = marker.args
            row = Fault(group, name, item.path.parent, item.nodeid)
            row.came(said="".join(said))
            row.end()
    return report
