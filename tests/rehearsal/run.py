"""The paper profile end to end on this machine: everything is small but the path itself.

The same notebooks, methods, answerers and client as at the scale of the paper. For the models'
servers stands one that serves the bundled SmolLM2 under their names and keeps its own log, for
MedCorp and MedCPT stand ``tests.rehearsal.stand_ins``. Every table is drawn, and the ledger stands
beside the server's log. No number of it says anything about medicine. The rehearsal may be stopped,
or killed, at any time: started again, it goes on where it was.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

import pandas as pd

from lib import notebooks
from lib.base import paths
from lib.base.files import atomic_write, read_jsonl, read_manifest
from lib.cost import recorded
from lib.llm.chat import in_parallel
from lib.llm.connect import connect
from lib.profiles import Profile, load_profile
from lib.studies.main_tables.experiment import open_experiment
from tests.rehearsal import stand_ins

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

    @property
    def profile(self) -> Path:
        return self.folder / "rehearsal.toml"

    @property
    def recording(self) -> Path:
        return self.folder / "recording.jsonl"

    @property
    def log(self) -> Path:
        return self.folder / "served.jsonl"

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
    here, paper = Rehearsal(folder), load_profile("paper")
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


def undrawn(profile: Profile) -> list[str]:
    """Result tables of a whole run that are missing, or not what their manifests say."""
    names = list(TABLES)
    for stem in (name.replace("-", "_") for name in profile.benchmarks):
        names += [f"{stem}_lambda", f"values_{stem}", f"choices_{stem}", f"claims_{stem}"]
    folder = paths.results(profile.name)
    return [
        name
        for name in names
        if not any(read_manifest(folder / f"{name}.{kind}") for kind in ("csv", "csv.xz"))
    ]


COUNTS = ["calls", "prompt_tokens", "output_tokens"]


def compare(here: Rehearsal) -> pd.DataFrame:
    """Per model: calls and tokens as recorded, as the server's log has them; are they ``equal``?

    Of a request that was answered more than once the last reply counts: where the client was killed
    while it waited, the first never came to the disk.
    """
    ours = recorded(here.recording).groupby("model")[COUNTS].sum()
    log = pd.DataFrame([row for row in read_jsonl(here.log) if row["status"] == 200])
    kept = log.drop_duplicates("request", keep="last").assign(calls=1)
    theirs = kept.groupby("model")[COUNTS].sum().add_prefix("served_")
    table = ours.join(theirs, how="outer").fillna(0).astype(int)
    table["equal"] = (table[COUNTS].to_numpy() == table[theirs.columns].to_numpy()).all(axis=1)
    return table.reset_index()


def main() -> int:
    """``make rehearsal``; 0 when every table is drawn and the ledger is what the server served."""
    mirror, started = os.environ.get("CHR_MIRROR"), time.monotonic()
    here = prepare(paths.ROOT / "build" / "rehearsal", Path(mirror) if mirror else None)
    command = [sys.executable, "-m", "tests.rehearsal.server", str(here.profile), str(here.log)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as server:
        os.environ |= here.environment(server.stdout.readline().strip())
        name = str(here.profile)
        profile = load_profile(name)
        notebooks.prepare(name, {})
        print(open_experiment(profile).plan().to_string(index=False), flush=True)
        at_once(profile)
        for book in notebooks.ORDER:
            out = here.folder / "out" / "notebooks" / f"{book}.ipynb"
            notebooks.run(book, out, {"profile": name})
        server.stdin.close()
    beside, missing = compare(here), undrawn(profile)
    print("\nThe ledger:\n" + recorded(here.recording).round(1).to_string(index=False))
    print("\nThe ledger beside the server's own log:\n" + beside.to_string(index=False))
    print(f"\n{time.monotonic() - started:.0f} s; tables not drawn: {missing or 'none'}")
    return int(bool(missing) or not beside["equal"].all())


if __name__ == "__main__":
    sys.exit(main())
