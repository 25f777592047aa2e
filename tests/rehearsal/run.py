"""The paper profile end to end on this machine: everything is small but the path itself.

The profile is docs/my-paper.toml as it is shipped; addresses, folders and weights are filled in.
The doctor looks at it, and ``make figures`` runs it on one question of each set and 20,000
passages in MedCorp's form, killed twice on the way. For the models' servers stands one that serves
the bundled SmolLM2 under their names and keeps its own log, for MedCorp, MedCPT, the NLI model,
leaflets and PubMed stand ``tests.rehearsal.stand_ins``. Every table is drawn, and the ledger stands
beside the server's log. No number of it says anything about medicine. The rehearsal may be stopped,
or killed, at any time: started again, it goes on where it was.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen, run

import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write, read_jsonl, read_manifest
from lib.cost import recorded
from lib.data.medrag import SOURCES
from lib.limit import PASSAGES
from lib.llm.chat import in_parallel
from lib.llm.connect import connect, model_at
from lib.llm.openai_chat import OpenAIChat
from lib.profiles import Profile, load_profile
from lib.studies.main_tables.experiment import open_experiment
from tests.rehearsal import stand_ins
from tests.tiny_models import save_nli

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
    "figure5",
    "nli_quality",
    "contradiction_heatmap",
    "contradiction_table1",
    "contradiction_table2",
    "contradiction_table3",
)
"""Results of a whole run of the notebooks, beside those of each benchmark's study. (A profile whose
texts are all generated has none of a generator beside the reference text.)"""

SHIPPED = paths.ROOT / "docs" / "my-paper.toml"
"""What a reader copies and fills in."""
LIMIT = 50
"""Questions of a benchmark; so ``PASSAGES * LIMIT`` passages of each source are read."""
SAMPLE = 1
"""Questions of each set, and of a leaflet: what a laptop's language model can be asked."""
KILLED_AFTER = (5, 40)
"""The run is killed after the server has answered so many of its requests, and once more."""


@dataclass(frozen=True)
class Rehearsal:
    """Where things are: the profile, every generation, and the log that the server keeps."""

    folder: Path

    @property
    def profile(self) -> Path:
        return self.folder / "rehearsal.toml"

    @property
    def recordings(self) -> list[Path]:
        files = sorted((self.folder / "recordings").glob("*.jsonl"))
        return [file for file in files if ".times" not in file.suffixes]

    @property
    def log(self) -> Path:
        return self.folder / "served.jsonl"

    def environment(self) -> dict[str, str]:
        """What its processes are told: all that is written goes to the folder."""
        places = {"OUT": "out", "CACHE": "cache", "MIRROR": "mirror"}
        moved = {f"CHR_{name}": str(self.folder / place) for name, place in places.items()}
        return moved | {"CHR_PROFILE": str(self.profile)}


def prepare(
    folder: Path,
    mirror: Path | None,
    url: str,
    rows: Mapping[str, int] | None = None,
    sample: int = 0,
    words: int = 0,
) -> Rehearsal:
    """Write the stand-ins, with so many ``rows`` of each source at least (``stand_ins.corpora``),
    and the profile: the shipped one with their addresses and folders, and ``sample`` questions of
    each set (0: all).

    With a ``mirror`` of the open data the paper's questions are asked, and BioASQ snippets join the
    corpus; else ddx-mini's questions, and the title says so.
    """
    here = Rehearsal(folder)
    (folder / "mirror").mkdir(parents=True, exist_ok=True)
    for entry in mirror.iterdir() if mirror else ():
        link = folder / "mirror" / entry.name
        if entry.name != "medrag" and not link.is_symlink():
            link.symlink_to(entry.resolve())
    snippets = stand_ins.judged_snippets(sample) if mirror else ()
    stand_ins.corpora(folder / "mirror", snippets, rows, words)
    stand_ins.leaflets(folder / "leaflets", sample)
    asked = f"sample = {sample}\n{'' if mirror else _BUNDLED}"
    atomic_write(here.profile, filled_in(here, url, asked))
    return here


_BUNDLED = 'questions = ["ddx-mini"]\nbenchmarks = ["ddx-mini"]\n'


def filled_in(here: Rehearsal, url: str, questions: str) -> str:
    """The shipped profile, of which nothing is changed but these places."""
    names = ("query", "article", "abstracts", "sentences")
    towers = [stand_ins.tower(here.folder / name, i) for i, name in enumerate(names)]
    asked = "ddx-mini's questions" if _BUNDLED in questions else "the paper's questions"
    title = f"rehearsal: SmolLM2-135M under the paper's model names, {asked}"
    text = SHIPPED.read_text(encoding="utf-8")
    for shipped, ours in (
        (r"http://localhost:\d+/v1", url),
        (r"data/recordings/live/", f"{here.folder}/recordings/"),
        (r"data/leaflets", f"{here.folder}/leaflets"),
        (r'(?m)^email = ""', 'email = "rehearsal@example.org"'),
        (r'"pubmedbert"', f'"hub:{save_nli(here.folder / "nli")}"'),
        (r"# (encoder = .bge-small=).*", rf'\1{towers[2]}"'),
        (r"# (sentence_encoder = .specter=).*", rf'\1{towers[3]}"'),
        (r"# query_model = .*", f'query_model = "{towers[0]}"'),
        (r"# article_model = .*", f'article_model = "{towers[1]}"'),
        (r"(?m)^title = .*", f'title = "{title}"'),
        (r"(?m)^(base = .*\n)", rf"\1{questions}"),
    ):
        text, changed = re.subn(shipped, ours, text)
        if not changed:
            raise ValueError(f"{paths.shown(SHIPPED)} has no {shipped}")
    return text


def at_once(profile: Profile, n: int = 40) -> None:
    """``n`` tiny requests at once, as many in flight as the profile allows: the log counts them."""
    llm = connect(profile.llm)

    def ask(i: int) -> None:
        with llm.tag(method=f"{n} at once", qid=str(i)):
            llm.generate([{"role": "user", "content": f"Say {i}."}], max_tokens=AT_ONCE)

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


AT_ONCE = 2
"""Tokens of each of the tiny requests at once."""
FIGURES = (sys.executable, "-m", "lib.notebooks", "figures", "--limit", str(LIMIT), "--profile")
COUNTS = ["calls", "prompt_tokens", "output_tokens"]


def ledger(here: Rehearsal) -> pd.DataFrame:
    """What was recorded, of all recordings together."""
    return pd.concat([recorded(file) for file in here.recordings], ignore_index=True)


def compare(here: Rehearsal) -> pd.DataFrame:
    """Per model: calls and tokens as recorded, as the server's log has them; are they ``equal``?

    Of a request that was answered more than once the last reply counts: where the client was killed
    while it waited, the first never came to the disk. The doctor's own requests, of one token, are
    no generations.
    """
    ours = ledger(here).groupby("model")[COUNTS].sum()
    served = [row for row in read_jsonl(here.log) if row["status"] == 200 and row["max_tokens"] > 1]
    kept = pd.DataFrame(served).drop_duplicates("request", keep="last").assign(calls=1)
    theirs = kept.groupby("model")[COUNTS].sum().add_prefix("served_")
    table = ours.join(theirs, how="outer").fillna(0).astype(int)
    table["equal"] = (table[COUNTS].to_numpy() == table[theirs.columns].to_numpy()).all(axis=1)
    return table.reset_index()


def killed(here: Rehearsal, answered: int) -> bool:
    """Start the run as ``make figures`` does, and kill it once the server has ``answered`` so many
    of its requests; False where it ended before. A kernel ends when whoever started it is gone.

    The server answers one request after the other, and what it still has of the killed run first.
    """
    before = _served(here)
    with Popen([*FIGURES, str(here.profile)], start_new_session=True) as run:
        while run.poll() is None:
            time.sleep(0.2)
            if _served(here) - before >= answered:
                os.killpg(run.pid, signal.SIGKILL)
                model, url = model_at(load_profile(str(here.profile)).llm.rpartition("openai:")[2])
                OpenAIChat(model, url, timeout_s=3600).generate(_TINY, max_tokens=1)
                return True
    return False


_TINY = [{"role": "user", "content": "Say yes."}]


def _served(here: Rehearsal) -> int:
    """Requests in the server's log, but for the doctor's."""
    rows = read_jsonl(here.log) if here.log.exists() else ()
    return sum(row["max_tokens"] > 1 for row in rows)


def main() -> int:
    """``make rehearsal``; 0 when the doctor finds nothing missing, every table is drawn, and the
    ledger is what the server served."""
    mirror, started = os.environ.get("CHR_MIRROR"), time.monotonic()
    here = Rehearsal(paths.ROOT / "build" / "rehearsal")
    command = [sys.executable, "-m", "tests.rehearsal.server", str(SHIPPED), str(here.log)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as server:
        url = server.stdout.readline().strip()
        rows = dict.fromkeys(SOURCES, PASSAGES * LIMIT)
        prepare(here.folder, Path(mirror) if mirror else None, url, rows, SAMPLE)
        os.environ |= here.environment()
        stand_ins.pubmed(here.folder / "leaflets")
        whole = run([sys.executable, "-m", "lib.doctor", "--profile", str(here.profile)]).returncode
        profile = load_profile(str(here.profile), limit=LIMIT)
        print(open_experiment(profile).plan().to_string(index=False), flush=True)
        at_once(profile)
        kills = [killed(here, answered) for answered in KILLED_AFTER]
        ended = run([*FIGURES, str(here.profile)]).returncode
        server.stdin.close()
    beside, missing = compare(here), undrawn(profile)
    print("\nThe ledger:\n" + ledger(here).round(1).to_string(index=False))
    print("\nThe ledger beside the server's own log:\n" + beside.to_string(index=False))
    print(f"\n{time.monotonic() - started:.0f} s; killed {sum(kills)} times on the way; ", end="")
    print(f"tables not drawn: {missing or 'none'}")
    return int(bool(whole or ended or missing) or not beside["equal"].all())


if __name__ == "__main__":
    sys.exit(main())
