"""Do the committed tables still come out? ``make verify`` makes them anew and compares by value.

It runs the notebooks' cells in one process, with an output folder of their own. On ``mini``
everything is made from nothing. On other profiles the searches are replayed from the studies' runs
on file (``lib.run_files``), so that the cheap half of each study is remade on a machine that has
embedded nothing; ``DEAR=1`` searches again. ``python -m lib.verify stamp``, after a green run on
the same code, writes into each manifest by which code its table came out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from lib import run_files
from lib import studies as all_studies
from lib.base import files, paths
from lib.base.provenance import code_hash, dear_as_committed, differences, tables
from lib.profiles import load_profile

STUDIES = {
    "passages": ("01_build_index",),
    "hypotheses": ("02_hypotheses",),
    "main_tables": (
        "03_run_methods",
        "04_accuracy_grid",
        "05_retrieval_shift",
        "06_token_cost",
    ),
    "mimics": ("07_mimic_quality",),
    "lambda": ("08_lambda", "19_variants_and_checks"),
    "contradiction": ("09_contradictions",),
    "rag2": ("10_rag2",),
    "slhyde": ("11_self_learning_hyde",),
    "audit": ("12_paper_audit",),
    "real": ("13_real_questions", "20_real_questions_in_full"),
    "masked": ("15_masked_answers",),
}
"""The notebooks whose cells make a study's tables, in their order."""

SHARES = {"mimics": ("main_tables",)}
"""Studies that replay searches from other studies' run files."""

ELSEWHERE = {
    "faults": "make faults",
    "needs": "python -m tools.measure_needs",
    "slhyde_cmedir": "python -m lib.studies.slhyde.cmedir",
    "slhyde_cmedir_claims": "python -m lib.studies.slhyde.cmedir",
    "slhyde_rates": "python -m tools.slhyde_retriever --rates",
    "slhyde_rates_disorder": "python -m tools.slhyde_retriever --rates",
    "real_mpnet": "make figures PROFILE=open ENCODER=mpnet",
    "travel_lengths": "python -m lib.studies.travel minilm",
    "values_travel_e5": "python -m lib.studies.travel e5",
    "values_travel_minilm": "python -m lib.studies.travel minilm",
    "values_travel_mpnet": "python -m lib.studies.travel mpnet",
}
"""Committed tables that no notebook makes, and what makes them."""

_REPORT = "report.json"


@dataclass
class Verified:
    """What one run made and how it compares: a line a table, as it is printed."""

    profile: str
    out: Path
    same: dict[str, str] = field(default_factory=dict)
    """The files of the tables that came out the same, by table name."""
    different: list[str] = field(default_factory=list)
    _seen: set[Path] = field(default_factory=set, repr=False)

    def compare_new(self, seconds: float) -> None:
        """Compare what has been written since the last call; print a line for each table."""
        for kind, committed in self._folders().items():
            made = self.out / kind / self.profile
            for path in tables(made) if made.is_dir() else []:
                if path not in self._seen:
                    self._seen.add(path)
                    self._compare(kind, path, committed, seconds)
        # The audit belongs to no profile.
        audit = self.out / "results" / "audit.csv"
        if audit.exists() and audit not in self._seen:
            self._seen.add(audit)
            self._compare("results", audit, paths.DATA / "results", seconds)

    def _folders(self) -> dict[str, Path]:
        return {
            "results": paths.committed(self.profile),
            "figures": paths.ROOT / "figures" / self.profile,
        }

    def _compare(self, kind: str, made: Path, folder: Path, seconds: float) -> None:
        name = made.name.split(".")[0]
        shown = name if kind == "results" else f"figures/{name}"
        found = [folder / made.name, folder / f"{name}.csv", folder / f"{name}.csv.xz"]
        committed = next((path for path in found if path.exists()), None)
        if committed is None and name.startswith("runs"):
            return  # every passage of every question: on file as the study's runs
        if committed is None:
            why = "made, but not committed. If it is as you want it: "
            why += f"copy {paths.shown(made)} to {paths.shown(folder)}"
            self.fail(shown, seconds, why)
            return
        where = differences(pd.read_csv(committed), pd.read_csv(made))
        if where:
            self.fail(shown, seconds, f"{len(where)} differences, such as {where[0]}")
            return
        if kind == "results":
            self.same[name] = str(committed.relative_to(paths.ROOT))
        _say("OK", shown, seconds)

    def fail(self, what: str, seconds: float, why: str) -> None:
        """A line for what did not come out."""
        self.different.append(f"{what}: {why}")
        _say("FAIL", what, seconds, why)

    def not_remade(self) -> list[str]:
        """The committed tables of the profile that this run has not made."""
        names = {path.name.split(".")[0] for path in tables(paths.committed(self.profile))}
        made = {path.name.split(".")[0] for path in self._seen}
        return sorted(names - made)


def _say(word: str, what: str, seconds: float, why: str = "") -> None:
    print(f"{word:<5}{seconds:7.1f} s  {what}{f': {why}' if why else ''}", flush=True)


def verify(profile: str, studies: list[str], *, dear: bool, record: bool) -> Verified:
    """Make the tables of these studies anew and compare them with the committed ones.

    ``dear`` searches again, which needs the passages embedded, and compares the runs as well;
    ``record`` keeps these runs as the studies' committed ones.
    """
    out = paths.ROOT / "build" / "verify" / profile
    shutil.rmtree(out, ignore_errors=True)
    os.environ["CHR_OUT"] = str(out)
    os.environ["CHR_PROFILE"] = profile
    run = Verified(profile, out)
    further = all_studies.further()
    for study in studies:
        if study in further:
            started = time.monotonic()
            print(f"{study}: lib/studies/{study}.py", flush=True)
            with _searching(run, study, dear=dear, record=record):
                all_studies.show(study, further[study], load_profile(profile))
            run.compare_new(time.monotonic() - started)
            continue
        print(f"{study}: {', '.join(STUDIES[study])}", flush=True)
        with _searching(run, study, dear=dear, record=record):
            for notebook in STUDIES[study]:
                _run_cells(run, notebook)
    return run


@contextmanager
def _searching(run: Verified, study: str, *, dear: bool, record: bool) -> Iterator[None]:
    """While it is open, searches are made, or replayed from the study's runs on file."""
    path = run_files.run_file(run.profile, study)
    if run.profile == "mini":
        yield
        return
    with ExitStack() as stack:
        if not (dear or record):
            committed = run_files.RunFile({})
            for name in (study, *SHARES.get(study, ())):
                if (file := run_files.run_file(run.profile, name)).exists():
                    committed.found |= run_files.RunFile.read(file).found
            stack.enter_context(run_files.using(committed))
            stack.enter_context(dear_as_committed())
            yield
            return
        if record:
            stack.enter_context(dear_as_committed())
        started = time.monotonic()
        made = stack.enter_context(run_files.using(run_files.RunFile()))
        yield
    if made.found and record:
        made.write(path, {"profile": run.profile, "study": study})
        _say("KEPT", paths.shown(path), time.monotonic() - started)
    elif path.exists():
        wrong = run_files.RunFile.read(path).differences(made)
        if wrong:
            run.fail(paths.shown(path), time.monotonic() - started, wrong)
        else:
            _say("OK", paths.shown(path), time.monotonic() - started)


def _run_cells(run: Verified, notebook: str) -> None:
    """Run a notebook's cells here, and compare what each of them makes.

    A cell that needs an index is passed over. What builds on such a cell, or on one that failed,
    cannot run either.
    """
    import matplotlib
    import nbformat
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    matplotlib.use("agg")
    warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
    shell = InteractiveShell.instance()
    shell.reset(new_session=True)
    folder = paths.ROOT / "notebooks"
    os.chdir(folder)
    book = nbformat.read(folder / f"{notebook}.ipynb", as_version=4)
    without = False
    for cell in (cell for cell in book.cells if cell.cell_type == "code"):
        started = time.monotonic()
        with capture_output():
            done = shell.run_cell(cell.source, silent=True)
            if "parameters" in cell.metadata.get("tags", []):
                shell.user_ns["profile"] = run.profile
        error = done.error_before_exec or done.error_in_exec
        seconds = time.monotonic() - started
        run.compare_new(seconds)
        if isinstance(error, run_files.NeedsIndex):
            without = True
            _say("PASS", notebook, seconds, f"DEAR=1 remakes this cell: {error}")
        elif isinstance(error, NameError) and without:
            _say("PASS", notebook, seconds, f"it builds on such a cell: {error}")
        elif error is not None:
            without = True
            run.fail(notebook, seconds, f"{type(error).__name__}: {error}")


def _all_code() -> str:
    return code_hash(["lib"])


def stamp(profile: str, why: str) -> None:
    """Write by which code each table came out, where the last ``verify`` of the profile was green.

    ValueError where it was not, or where code has changed since. A row of
    ``data/results/stamps.csv`` says what was stamped.
    """
    out = paths.ROOT / "build" / "verify" / profile
    report = out / _REPORT
    again = f"run: make verify PROFILE={profile}"
    if not report.exists():
        raise ValueError(f"nothing was verified; {again}")
    said = json.loads(report.read_text(encoding="utf-8"))
    if said["different"]:
        raise ValueError(f"the last run was not green: {said['different'][0]}; {again}")
    if said["code"] != _all_code():
        raise ValueError(f"code has changed since; {again}")
    changed = 0
    for name, committed in said["same"].items():
        path = paths.ROOT / committed
        manifest = files.read_manifest(path)
        folder = out / "results" if name == "audit" else out / "results" / profile
        made = next(m for m in map(files.read_manifest, folder.glob(f"{name}.csv*")) if m)
        if manifest["settings"] != made["settings"]:
            files.write_manifest(path, rows=manifest["rows"], settings=made["settings"])
            changed += 1
    row = [datetime.date.today().isoformat(), profile, str(changed), "by value", why]
    log = paths.DATA / "results" / "stamps.csv"
    table = pd.read_csv(log, dtype=str)
    table.loc[len(table)] = row
    files.atomic_write(log, table.to_csv(index=False, lineterminator="\n"))
    print(f"stamped: {changed} of {len(said['same'])} tables of {profile}")


def main() -> None:
    """Command line: verify, or stamp after it."""
    parser = argparse.ArgumentParser(prog="python -m lib.verify", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["tables", "stamp"], default="tables")
    parser.add_argument("--profile", default=os.environ.get("CHR_PROFILE") or "mini")
    parser.add_argument("--study", choices=[*STUDIES, *all_studies.further()], action="append")
    parser.add_argument("--dear", action="store_true", help="search again (passages embedded)")
    parser.add_argument("--record", action="store_true", help="keep the runs of these searches")
    parser.add_argument("--why", default="", help="of a stamp: what changed in the code")
    given = parser.parse_args()
    if given.what == "stamp":
        stamp(given.profile, given.why)
        return
    started = time.monotonic()
    studies = given.study or [*STUDIES, *all_studies.further()]
    run = verify(given.profile, studies, dear=given.dear, record=given.record)
    left = run.not_remade() if not given.study else []
    for name in left:
        print(f"not remade: {name} ({ELSEWHERE.get(name, 'DEAR=1')})")
    report = {"same": run.same, "different": run.different, "code": _all_code()}
    files.atomic_write(run.out / _REPORT, json.dumps(report, indent=1))
    minutes = (time.monotonic() - started) / 60
    print(
        f"{len(run.same)} tables as committed, {len(run.different)} not, {len(left)} not remade; "
        f"{minutes:.1f} minutes"
    )
    sys.exit(bool(run.different))


if __name__ == "__main__":
    main()
