"""The paper profile end to end on this machine: everything is small but the path itself.

The same notebooks, methods, answerers and client as at the scale of the paper. For the models'
servers stands one that serves the bundled SmolLM2 under their names and keeps its own log, for
MedCorp and MedCPT stand ``tests.rehearsal.stand_ins``. The run is killed twice and resumed; then
every table is drawn, and the ledger stands beside the server's log. No number of it says anything
about medicine. The rehearsal may be stopped, or killed, at any time: it goes on where it was.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

from lib import notebooks
from lib.base import paths
from lib.base.files import atomic_write, read_manifest
from lib.cost.ledger import recorded
from lib.llm.chat import in_parallel
from lib.llm.connect import connect
from lib.profiles import Profile, load_profile
from tests.rehearsal import stand_ins
from tests.rehearsal.served import compare, served

TABLES = (
    "passages",
    "baselines",
    "validity",
    "runs",
    "retrieval",
    "answers",
    "table1",
    "claims",
    "table2",
    "table3",
    "runs_generated",
    "retrieval_generated",
    "figure5",
    "nli_quality",
    "contradiction_heatmap",
    "contradiction_table1",
    "contradiction_table2",
    "contradiction_table3",
)
"""Results of a whole run of the notebooks, beside those of each benchmark's study."""

SHORT = {
    "hyde": {"samples": 2, "max_tokens": 48},
    "fusion": {"max_tokens": 48},
    "query2doc": {"shots": 0, "max_tokens": 48},
    "chr": {"max_tokens": 160},
    "csqe": {"samples": 1, "depth": 3, "words": 40, "max_tokens": 48},
    "thinkqe": {"samples": 1, "shown": 2, "words": 40, "max_tokens": 48},
}
WINDOW, REPLY = 640, 40
"""Tokens of an answerer's window and of its reply: documents must be cut to fit them."""


@dataclass(frozen=True)
class Rehearsal:
    """Where things are: the profile, every generation, and the log that the server keeps."""

    folder: Path
    profile: Path
    recording: Path
    log: Path

    def environment(self, url: str) -> dict[str, str]:
        """What its processes are told: all that is written goes to the folder."""
        places = {"OUT": "out", "CACHE": "cache", "MIRROR": "mirror"}
        moved = {f"CHR_{name}": str(self.folder / place) for name, place in places.items()}
        return moved | {"CHR_PROFILE": str(self.profile), "CHR_LLM_URL": url}


def prepare(folder: Path, mirror: Path | None, *, sample: int = 1) -> Rehearsal:
    """Write the stand-ins, and the profile: the paper's but for the fields that are named here.

    With a ``mirror`` of the open data ``sample`` questions of each of the paper's sets are asked,
    and BioASQ snippets join the corpus; else ddx-mini's questions, and the title says so.
    """
    files = [folder / f for f in ("rehearsal.toml", "recording.jsonl", "served.jsonl")]
    here, paper = Rehearsal(folder, *files), load_profile("paper")
    (folder / "mirror").mkdir(parents=True, exist_ok=True)
    for entry in mirror.iterdir() if mirror else ():
        link = folder / "mirror" / entry.name
        if entry.name != "medrag" and not link.is_symlink():
            link.symlink_to(entry.resolve())
    stand_ins.corpora(folder / "mirror", stand_ins.judged_snippets(sample) if mirror else ())
    towers = [stand_ins.tower(folder / name, i) for i, name in enumerate(("query", "article"))]

    def recorded(spec: str) -> str:
        return f"record:{here.recording}={spec.partition('=')[2]}"

    short = {"context_tokens": WINDOW, "max_tokens": REPLY}
    answerers = [
        s | short | {"llm": recorded(s["llm"])} if "llm" in s else s for s in paper.answerers
    ]
    asked = "the paper's" if mirror else "ddx-mini's"
    fields = {
        "title": f"rehearsal: SmolLM2-135M under the paper's model names, {asked} questions",
        "questions": paper.questions if mirror else ["ddx-mini"],
        "benchmarks": ["ddx-mini"],
        "sample": sample,
        "asked": sample,
        "lambdas": [0.0, 0.4, 1.0],
        "methods": SHORT,
        "llm": recorded(paper.llm),
        "judge": recorded(paper.judge),
        "answerers": answerers,
        "evidence": {"name": "evidence-mini", "nli": "cues", "answerers": []},  # cues: no vectors
        "encoder_options": {"query_model": str(towers[0]), "article_model": str(towers[1])},
    }
    lines = [f"{name} = {_toml(value)}\n" for name, value in fields.items()]
    atomic_write(here.profile, 'base = "paper"\n' + "".join(lines))
    return here


def _toml(value) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def at_once(profile: Profile, n: int = 40) -> None:
    """``n`` tiny requests at once, as many in flight as the profile allows: the log counts them."""
    llm = connect(profile.llm)

    def ask(i: int) -> None:
        with llm.tag(method=f"{n} at once", qid=str(i)):
            llm.generate([{"role": "user", "content": f"Say {i}."}], max_tokens=1)

    in_parallel(ask, range(n), workers=profile.workers)


def perform() -> None:
    """A run: what it will cost, then the notebooks in order, as ``make figures`` has them."""
    from lib.studies.main_tables.experiment import open_experiment

    threading.Thread(target=_end_with_parent, daemon=True).start()
    name, out = os.environ["CHR_PROFILE"], Path(os.environ["CHR_OUT"])
    notebooks.prepare(name, {})
    print(open_experiment(load_profile(name)).plan().to_string(index=False), flush=True)
    at_once(load_profile(name))
    for book in notebooks.ORDER:
        notebooks.run(book, out / "notebooks" / f"{book}.ipynb", {"profile": name})


def _end_with_parent() -> None:
    sys.stdin.read()  # ends when whoever holds the other end does, killed or not
    os.killpg(0, signal.SIGKILL)


def interrupted(start: Callable[[], Popen], log: Path, at: Sequence[int]) -> int:
    """Run, kill when the log has so many lines, run again, ...; how many kills hit a run at work.

    ``start`` starts a process that leads a group of its own, which dies as a whole. The last run is
    left in peace. RuntimeError when one fails by itself.
    """
    hit = 0
    for wanted in (*at, None):
        if wanted is not None and _lines(log) >= wanted:
            continue  # a rehearsal that was stopped came so far
        run = start()
        while run.poll() is None:
            if wanted is not None and _lines(log) >= wanted:
                os.killpg(run.pid, signal.SIGKILL)
                hit += 1
                break
            time.sleep(0.02)
        if run.wait() > 0:
            raise RuntimeError("the run failed: see above. Once mended, make rehearsal goes on")
        if run.poll() == 0:
            break
    return hit


def undrawn(profile: Profile) -> list[str]:
    """Result tables of a whole run that are missing, or not what their manifests say."""
    stems = [name.replace("-", "_") for name in profile.benchmarks]
    studies = [f"{stem}_lambda" for stem in stems]
    studies += [f"{kind}_{stem}" for stem in stems for kind in ("values", "choices", "claims")]
    folder = paths.results(profile.name)

    def is_whole(table: str) -> bool:
        path = folder / f"{table}.csv"
        return any(read_manifest(p) for p in (path, path.with_suffix(".csv.xz")))

    return [table for table in (*TABLES, *studies) if not is_whole(table)]


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _report(here: Rehearsal, kills: int, seconds: float) -> bool:
    profile = load_profile(str(here.profile))
    beside, log = compare(here.recording, here.log), served(here.log)
    missing, again = undrawn(profile), int((~log["kept"]).sum())
    print("\nThe ledger:\n" + recorded(here.recording).round(1).to_string(index=False))
    print("\nThe ledger beside the server's own log:\n" + beside.to_string(index=False))
    print(
        f"\n{kills} kills, {seconds:.0f} s; {len(log)} requests answered, {again} of them again "
        f"after a kill; at most {log['in_flight'].max()} in flight"
    )
    print(f"tables: {paths.shown(paths.results(profile.name))}; not drawn: {missing or 'none'}")
    return bool(beside["equal"].all()) and not missing


def main(seed: int = 0) -> int:
    """``make rehearsal``; 0 when every table is drawn and the ledger is what the server served."""
    mirror, started = os.environ.get("CHR_MIRROR"), time.monotonic()
    here = prepare(paths.ROOT / "build" / "rehearsal", Path(mirror) if mirror else None)
    python, files = [sys.executable, "-m"], [str(here.profile), str(here.log)]
    with Popen(
        [*python, "tests.rehearsal.server", *files], stdin=PIPE, stdout=PIPE, text=True
    ) as server:
        os.environ |= here.environment(server.stdout.readline().strip())
        at = sorted(random.Random(seed).sample(range(45, 150), 2))
        run = [*python, "tests.rehearsal.run", "perform"]
        kills = interrupted(lambda: Popen(run, stdin=PIPE, start_new_session=True), here.log, at)
        server.stdin.close()
    return not _report(here, kills, time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(perform() if sys.argv[1:] == ["perform"] else main())
