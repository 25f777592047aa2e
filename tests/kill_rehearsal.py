"""Child of test_rehearsal: the notebooks of a rehearsal, killed at given places and run again.

Run as: python kill_rehearsal.py <folder> <server's address> <lines of its log> ... It forks, so
that a kill costs no imports, and executes the notebooks' cells itself, 03 first, so that the kills
hit generations. Prints one JSON object: after each kill the time, what was served, what recorded.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

from lib import notebooks, plots
from lib.base import paths
from lib.cost import recorded
from lib.profiles import load_profile
from lib.studies.lambda_sweep import study  # noqa: F401
from lib.studies.main_tables import experiment, tables  # noqa: F401
from tests.rehearsal import run as rehearsal
from tests.student import only_the_table

every_set = experiment.question_sets
# Of a sample one of ddx-mini's three sets: a third of the cells.
experiment.question_sets = lambda names, n: dict(list(every_set(names, n).items())[: 1 if n else 3])
HEAVY = (
    "IPython.display",
    "faiss",
    "ir_measures",
    "matplotlib.pyplot",
    "openai",
    "scipy.stats",
    "sentence_transformers",
    "statsmodels.stats.multitest",
    "torch",
)
"""What the forked runs import: once, before they fork."""


def notebook(name: str) -> None:
    """Execute the code cells of one notebook, in order, in a namespace of their own."""
    import matplotlib.pyplot as plt

    scope: dict = {}
    for cell in json.loads((paths.ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), name, "exec"), scope)
            if "parameters" in cell["metadata"].get("tags", []):
                scope["profile"] = os.environ["CHR_PROFILE"]
    plt.close("all")


def run() -> None:
    """All notebooks but 09, which asks no LLM here; what they print goes nowhere."""
    import matplotlib

    matplotlib.use("agg")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    plots.save = only_the_table
    rehearsal.at_once(load_profile())
    for name in sorted(notebooks.ORDER, key=lambda name: name != "03_run_methods"):
        if name != "09_contradictions":
            notebook(name)


class Forked:
    """A run in a process and group of its own, as ``interrupted`` wants it."""

    def __init__(self) -> None:
        self.status, self.pid = None, os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            try:
                run()
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)

    def poll(self) -> int | None:
        """The exit status, None while it runs, negative when it was killed."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status

    def wait(self) -> int:
        """The exit status, once there is one."""
        while self.poll() is None:
            time.sleep(0.01)
        return self.status


def main() -> None:
    """Kill, look, resume; the last run is left in peace."""
    folder, url, *at = sys.argv[1:]
    names = ("rehearsal.toml", "recording.jsonl", "served.jsonl")
    here = rehearsal.Rehearsal(Path(folder), *(Path(folder) / name for name in names))
    os.environ |= here.environment(url)
    os.chdir(paths.ROOT / "notebooks")
    seen = []
    for name in HEAVY:
        importlib.import_module(name)

    def start() -> Forked:
        if here.recording.exists():
            killed, lines = time.time(), -1
            while lines != (lines := len(here.log.read_bytes().splitlines())):
                time.sleep(1)  # the server ends what it has begun, which takes less than that
            calls = int(recorded(here.recording)["calls"].sum())
            seen.append({"at": killed, "served": lines, "recorded": calls})
        return Forked()

    hit = rehearsal.interrupted(start, here.log, [int(n) for n in at])
    lab = experiment.open_experiment(load_profile())
    lab.answers()
    told = {"hit": hit, "seen": seen, "arms": lab.arms, "not_run": len(lab.not_run())}
    print(json.dumps(told | {"undrawn": rehearsal.undrawn(load_profile())}))


if __name__ == "__main__":
    main()
