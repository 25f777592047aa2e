"""Memory, seconds and open files of the paper profile, against the size of its corpus.

    python -m tests.rehearsal.scale 300000 600000 1200000

For each size: encode, build, search, and all notebooks by ``make figures``, on docs/my-paper.toml
as ``tests.rehearsal.run`` fills it in, where no process may have more than 256 files open. Memory
does not depend on what is written or how well it is found, so a passage is 16 random words in
MedCorp's form and proportions, the encoder hashes words to 768 numbers, and the language models'
server answers at once. A size that was stopped goes on where it was; what was measured of others is
kept. What was not measured has the line through what was, and says so.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import numpy as np
import pandas as pd
import psutil

from lib.base import paths
from lib.base.files import atomic_write
from lib.base.provenance import write_result
from lib.data.medrag import SOURCES
from lib.data.passages import CORPORA
from lib.embed import load_encoder
from lib.open_retriever import open_retriever
from lib.profiles import load_profile
from lib.search import contrast
from tests.rehearsal import run as rehearsal
from tests.rehearsal import stand_ins
from tests.rehearsal.server import LogServer, Scripted, limits

FOLDER = paths.ROOT / "build" / "scale"
OPEN_FILES = 256
"""As many as ``ulimit -n`` allows here; most systems allow 1,024."""
WORDS, DIM = 16, 768
SAMPLE = 10
"""Questions of each set: memory for passages is measured, not for questions."""
BENCHMARKS = 'benchmarks = ["ddx-mini"]'
BACKEND = "compressed"
"""By what a machine without cards searches MedCorp."""
TIMED = 50
"""Single searches, and sets of five passages."""
MEDCORP = sum(CORPORA[name].passages for name in SOURCES)
SIZES = (5_800_000, MEDCORP)
"""What the papers search; the table has the line where they were not measured."""

COLUMNS = ["rows", "step", "seconds", "peak_mb", "own_mb", "open_files"]
"""``peak_mb``: the most that one process had in memory (VmHWM), the files that it maps included,
which the system takes back where it needs room; ``own_mb``: the most that all processes together
had of their own, which it cannot; ``open_files``: the most of one process."""

ENCODING = r"passages: [\d,]+ texts to (encode)"
NOTEBOOK = r"\[(\d\d_\w+)\] running"
"""Lines on stderr with which another step begins, and its name."""


# one size -----------------------------------------------------------------------------------------


def rows_of(size: int) -> dict[str, int]:
    """So many passages, shared out over the sources as MedCorp's are."""
    return {name: round(size * CORPORA[name].passages / MEDCORP) for name in SOURCES}


def prepare(folder: Path, mirror: Path | None, url: str, size: int) -> rehearsal.Rehearsal:
    """Write the passages and the profile: the rehearsal's, but for its encoder and index."""
    here = rehearsal.prepare(folder, mirror, url, rows_of(size), SAMPLE, WORDS)
    text = here.profile.read_text(encoding="utf-8")
    if mirror:  # BioASQ's lambda study has passages of its own, as many at every size
        text = text.replace(f"\nsample = {SAMPLE}\n", f"\nsample = {SAMPLE}\n{BENCHMARKS}\n", 1)
    for before, now in (
        (r'(?m)^base = "paper"$', f'base = "paper"\nencoder = "hash"\nbackend = "{BACKEND}"'),
        (r"(?ms)^\[encoder_options\]\n.*?\n\n", f"[encoder_options]\ndim = {DIM}\n\n"),
        (r'(?m)^title = ".*"', f'title = "scale: {size:,} made passages, hashed words"'),
    ):
        text, changed = re.subn(before, now, text)
        if changed != 1:
            raise ValueError(f"{here.profile} has no {before}")
    atomic_write(here.profile, text)
    return here


def measured(size: int) -> pd.DataFrame:
    """``COLUMNS`` of one size; kept in its folder, with what ``search`` found of it."""
    folder = FOLDER / str(size)
    kept = folder / "memory.csv"
    if kept.exists():
        return pd.read_csv(kept)
    before, mirror = dict(os.environ), os.environ.get("CHR_MIRROR")
    shipped = load_profile(str(rehearsal.SHIPPED))
    with LogServer(Scripted(), folder / "served.jsonl", *limits(shipped)) as server:
        here = prepare(folder, Path(mirror) if mirror else None, server.url, size)
        os.environ |= here.environment() | {"PYTHONPATH": str(paths.ROOT)}
        stand_ins.pubmed(folder / "leaflets")
        profile = str(here.profile)
        itself = ["tests.rehearsal.scale", "--search", profile]
        parts = [
            watched(["lib.encode", profile], "read and store", ENCODING),
            watched(itself, "build"),
            watched(itself, "search"),
            watched(["lib.notebooks", "figures", "--profile", profile], "prepare", NOTEBOOK),
        ]
    os.environ.clear()
    os.environ |= before
    table = pd.concat(parts, ignore_index=True)
    table.insert(0, "rows", size)
    atomic_write(kept, table.to_csv(index=False))
    return table


def search(profile: str) -> None:
    """Open what is searched, or build it, and time single searches and the texts of five passages;
    kept beside the profile."""
    p = load_profile(profile)
    encoder = load_encoder(p.encoder, **p.encoder_options)
    start = time.perf_counter()
    opened = open_retriever(p, encoder)
    took = {"open_s": time.perf_counter() - start}
    index, store = opened.index, opened.store
    drawn = np.random.default_rng(0).integers(len(index), size=(TIMED, 5))
    pairs = index.vectors(drawn[:, :2].ravel()).reshape(TIMED, 2, -1)
    shifted = contrast.shifted_query(pairs[:, 0], pairs[:, 1], 1.0)
    took["search_ms"] = _median_ms([lambda q=q: index.search(q[None], 5) for q in shifted])
    pids = [index.ids[rows].tolist() for rows in drawn]
    took["texts_ms"] = _median_ms([lambda five=five: store.get_many(five) for five in pids])
    atomic_write(Path(profile).with_name("opened.json"), json.dumps(took))


def _median_ms(calls: Sequence[Callable[[], object]]) -> float:
    """The median of the calls, each made once, in thousandths of a second."""
    found = []
    for call in calls:
        start = time.perf_counter()
        call()
        found.append(1000 * (time.perf_counter() - start))
    return float(np.median(found))


# watching -----------------------------------------------------------------------------------------


def watched(module: Sequence[str], first: str, then: str = "(?!)") -> pd.DataFrame:
    """Run a module with few open files, and measure each of its steps, the ``first`` and those that
    ``then`` finds begun on stderr: ``COLUMNS`` without ``rows``. RuntimeError where it fails."""
    command = [sys.executable, "-m", *module]
    limited = ["sh", "-c", f'ulimit -n {OPEN_FILES} && exec "$@"', "sh", *command]
    steps = [_Step(first)]
    with Popen(limited, cwd=paths.ROOT, stdin=DEVNULL, stderr=PIPE, text=True) as process:

        def read() -> None:
            for line in process.stderr:
                print(line, end="", file=sys.stderr, flush=True)
                if begun := re.match(then, line):
                    steps.append(_Step(begun[1]))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        while process.poll() is None:
            steps[-1].look(process.pid)
            time.sleep(0.2)
        reader.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    ends = [*(step.start for step in steps[1:]), time.monotonic()]
    rows = [
        (step.name, end - step.start, step.peak_mb, step.own_mb, step.open_files)
        for step, end in zip(steps, ends, strict=True)
    ]
    return pd.DataFrame(rows, columns=COLUMNS[1:])


class _Step:
    """A step of a run, and the most that its processes took while somebody looked."""

    def __init__(self, name: str):
        self.name, self.start = name, time.monotonic()
        self.peak_mb = self.own_mb = 0.0
        self.open_files = 0
        self._seen: set[int] = set()

    def look(self, pid: int) -> None:
        """Note the process and all that it started."""
        own = 0.0
        for it in _family(pid):
            place = Path("/proc") / str(it)
            with suppress(OSError):  # it has ended
                if it not in self._seen:  # what it took in the step before does not count
                    (place / "clear_refs").write_text("5")
                    self._seen.add(it)
                status = (place / "status").read_text()
                self.peak_mb = max(self.peak_mb, _mb(status, "VmHWM"))
                own += _mb(status, "RssAnon")
                self.open_files = max(self.open_files, len(os.listdir(place / "fd")))
        self.own_mb = max(self.own_mb, own)


def _family(pid: int) -> list[int]:
    """A process and what it started, and what those started."""
    try:
        return [pid, *(it.pid for it in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _mb(status: str, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


# all sizes ----------------------------------------------------------------------------------------


def line(table: pd.DataFrame, size: int) -> pd.DataFrame:
    """For ``size`` what the line through the measured rows says, step by step: so much memory for
    the step and so much a passage, never less than nothing. Seconds and files are not said."""
    rows = []
    for step, own in table.groupby("step", sort=False):
        row = {"rows": size, "step": step}
        for column in ("peak_mb", "own_mb"):
            slope = max(0.0, np.polyfit(own["rows"], own[column], 1)[0])
            row[column] = own[column].mean() + slope * (size - own["rows"].mean())
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def main(arguments: Sequence[str]) -> None:
    """The command line: sizes, or ``--search`` and a profile."""
    if arguments[:1] == ["--search"]:
        search(arguments[1])
        return
    for size in map(int, arguments):
        measured(size)
    sizes = sorted(int(file.parent.name) for file in FOLDER.glob("*/memory.csv"))
    table = pd.concat([measured(size) for size in sizes], ignore_index=True)
    parts = [table.assign(how="measured")]
    if len(sizes) > 1:
        parts += [line(table, size).assign(how="line") for size in SIZES if size not in sizes]
    opened = [
        {"rows": size} | json.loads((FOLDER / str(size) / "opened.json").read_text())
        for size in sizes
    ]
    origin = {"code": ["tests.rehearsal.scale"], "data": [], "sample": SAMPLE, "dim": DIM}
    for name, made in (("memory", pd.concat(parts)), ("opened", pd.DataFrame(opened))):
        print(made.round(1).to_string(index=False))
        write_result(made, name, "scale", backend=BACKEND, **origin)


if __name__ == "__main__":
    main(sys.argv[1:])
