"""What a run needs, what of it is there, and what it will cost: before anything dear starts.

    make doctor PROFILE=my-paper.toml
    python -m lib.doctor --profile my-paper.toml --gpu-hour 2.5 --million-in 0.5 --million-out 1.5

A line a need, with the next command where it is not met and what is then NOT RUN; the bill, at the
prices that are given; exit status 1 where anything is missing. ``make figures`` asks the same
before it starts: it ends where every notebook would, and sets the rest aside by name.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from lib import cost
from lib.base import paths
from lib.base.downloads import DownloadError, Resource, check_answers, load_registry
from lib.base.files import read_manifest
from lib.base.paths import ROOT
from lib.data.medrag import DIM, NAMES, local_files, source_of
from lib.data.passages import CORPORA
from lib.embed import sources
from lib.llm.chat import LLMError, in_parallel
from lib.llm.engines import BUNDLED, weights_of
from lib.model_files import check_files
from lib.profiles import Profile, load_profile, methods_of
from lib.search.choose import memory, memory_of
from lib.search.vectors import BLOCK_ROWS
from lib.stages import Stage, ask, cards_of, encoding_on, stages
from lib.studies.contradiction.evidence import load_needs
from lib.studies.contradiction.pubmed import EUTILS, PubMed, PubMedError

EVERYTHING = "every notebook"
CONTRADICTION = "09_contradictions"
DAYS = 3
"""Days of encoding without a GPU that are still taken for a plan."""
_MEMORY_GB = 4.0
"""What the notebooks take beside the index."""


@dataclass(frozen=True)
class Need:
    """One thing that a run needs: what was ``found``, or why it is ``missing``, with what to do.

    ``stops`` is what is NOT RUN without it (``EVERYTHING``, a notebook, or rows of tables); empty
    for what a run may find out by itself. ``live`` is what stands behind "record:<file>=" of a
    language model's.
    """

    what: str
    found: str = ""
    missing: str = ""
    stops: str = ""
    live: str = ""

    def line(self) -> str:
        """For a terminal: one line."""
        told = " ".join((self.missing or self.found).split()).rstrip(".")
        without = f". NOT RUN without it: {self.stops}" if self.missing and self.stops else ""
        return f"{'MISSING' if self.missing else 'ok':8}{self.what}: {told}{without}"


def _need(what: str, stops: str, look: Callable[[], str]) -> Need:
    """The need as ``look`` finds it, or with the error by which it says what is missing."""
    try:
        return Need(what, look(), stops=stops)
    except (DownloadError, LLMError, PubMedError, OSError, ValueError) as error:
        return Need(what, missing=str(error), stops=stops)


# data and models ----------------------------------------------------------------------------------


def data(p: Profile) -> list[Need]:
    """The corpora, and the files of questions and benchmarks."""
    found = [_need(f"corpus {it}", EVERYTHING, partial(_corpus, p, it)) for it in p.corpora]
    files = [file for name in p.questions for file in load_registry(f"{name}-")]
    for name in p.benchmarks:
        read = "medquad" if name.startswith(("ddx-real", "ddx-fresh")) else name
        files += load_registry(f"{read}-")
    return found + ([_need("questions", EVERYTHING, partial(_registered, files))] if files else [])


def _corpus(p: Profile, name: str) -> str:
    if paths.is_own(name):
        return "your own"
    if name not in NAMES:
        files = [file for file in CORPORA[name].files if file in load_registry()]
        return _registered(files) if files else "bundled"
    if _is_stored(p):
        return "stored"
    size = cost.sizes(p).set_index("source").loc[name]
    mirror = paths.mirror_folder()
    if mirror and not local_files(name):
        folder = mirror / "medrag" / source_of(name)
        raise DownloadError(
            f"nothing in {folder}. Next: put a copy of it there, or run without MIRROR, which "
            "downloads it"
        )
    if not mirror:
        from huggingface_hub.constants import ENDPOINT

        check_answers(ENDPOINT)
    where = "in the mirror" if mirror else f"{size['download_gb']:.1f} GB to download"
    return f"{size['rows']:,.0f} passages, {where}"


def _is_stored(p: Profile) -> bool:
    """Whether all passages of this profile were read already."""
    wanted = {"corpora": list(p.corpora), "limit": cost.PASSAGES * p.limit}
    stores = paths.cache("passages").glob("*.sqlite")
    kept = ((read_manifest(store, verify=False) or {}).get("settings", {}) for store in stores)
    return any(wanted.items() <= settings.items() for settings in kept)


def _registered(names: list[str]) -> str:
    """What of these downloads is there; DownloadError where one is missing and nobody has it."""
    items = [load_registry()[name] for name in dict.fromkeys(names)]
    mirror = paths.mirror_folder()
    if mirror:
        absent = [item.path for item in items if not (mirror / item.path).is_file()]
        if absent:
            raise DownloadError(
                f"{len(absent)} of {len(items)} files are not in {mirror}, such as {absent[0]}. "
                "Next: put them there, or run without MIRROR, which downloads them"
            )
        return f"{len(items)} files in the mirror"
    folder = paths.cache("downloads")
    to_come = [i for i in items if not ((folder / i.path).is_file() or _archive(i).is_file())]
    if to_come:
        check_answers(to_come[0].archive or to_come[0].url)
    return f"{len(items)} files, {sum(i.bytes for i in to_come) / 1e6:.0f} MB to download"


def _archive(item: Resource) -> Path:
    return paths.cache("downloads", "archives") / f"{item.commit or '-'}.tar.gz"


def models(p: Profile) -> list[Need]:
    """The weights that run on this machine: the encoder's, those that a method names and, for
    leaflets, the NLI model's."""
    folders = dict.fromkeys(sources(p.encoder, p.encoder_options), EVERYTHING)
    for kind in ("encoder", "sentence_encoder"):  # the contradiction study's own
        named = sources(p.evidence.get(kind, ""), {})
        folders = dict.fromkeys(named, CONTRADICTION) | folders
    found = [_need(f"encoder {it}", of, partial(_weights, it)) for it, of in folders.items()]
    for row, method in methods_of(p).items():
        scorers = [getattr(method, name, None) for name in ("reranker", "judge")]
        scorers = [getattr(scorer, "name", "") for scorer in scorers]
        named = [it.removeprefix("hub:") for it in scorers if it.startswith("hub:")]
        named += [it for name in getattr(method, "encoders", ()) for it in sources(name, {})]
        of_row = f"the row {row}"
        found += [_need(f"{it}, for {row}", of_row, partial(_weights, it)) for it in named]
    nli = p.evidence["nli"]
    if nli == "pubmedbert" or nli.startswith("hub:"):
        from lib.studies.contradiction.nli import PUBMEDBERT

        folder = PUBMEDBERT if nli == "pubmedbert" else nli.removeprefix("hub:")
        found.append(_need(f"NLI model {folder}", CONTRADICTION, lambda: _weights(folder)))
    return found


def _weights(source: str) -> str:
    """Where the weights are; an error for a folder that cannot be used, or without the hub."""
    folder = ROOT / Path(source).expanduser()
    if folder.is_dir():
        check_files(folder)
        return "in a folder"
    if source.startswith(("/", "~", ".", "data/")):  # no name of the hub's
        made = source.startswith("data/")
        how = "make it, as its profile says" if made else "mend its path in the profile"
        raise FileNotFoundError(f"there is no such folder. Next: {how}")
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.constants import ENDPOINT

    if isinstance(try_to_load_from_cache(source, "config.json"), str):
        return "downloaded before"
    try:
        check_answers(ENDPOINT)
    except DownloadError:
        raise FileNotFoundError(
            f"no folder, and {ENDPOINT} gives no answer. Next: connect to the network, or say in "
            "the profile where a copy is, as docs/my-paper.toml does"
        ) from None
    return "to download from the hub"


def leaflets(p: Profile) -> list[Need]:
    """The contradiction study's leaflets, and who asks PubMed about them."""
    name = p.evidence["name"]
    if not name.startswith("tga:"):
        return []

    def pubmed() -> str:
        PubMed(p.evidence.get("email", ""))  # refuses to be without an address
        if any(paths.cache("pubmed").glob("esearch/*.json")):
            return "some replies are kept"
        check_answers(EUTILS)
        return "answers"

    folder = name.removeprefix("tga:")
    return [
        _need(f"leaflets in {folder}", CONTRADICTION, lambda: f"{len(load_needs(name))} questions"),
        _need("PubMed", CONTRADICTION, pubmed),
    ]


# language models ---------------------------------------------------------------------------------


def language_models(p: Profile, to_start: Collection[str] = ()) -> list[Need]:
    """Each model that is asked, but for those ``to_start``: one behind a server for one token, one
    in this process for its weights."""

    def one(stage: Stage) -> Need:
        stops = "; ".join(stage.uses) + ", but what is recorded"
        if not stage.url:
            found = _need(f"model {stage.model}", stops, lambda: _in_process(stage.live))
        else:
            found = _need(f"server of {stage.model}", stops, lambda: _served(stage))
        return replace(
            found, missing=found.missing.removeprefix(f"{stage.model} "), live=stage.live
        )

    return in_parallel(one, [stage for stage in stages(p) if stage.live not in to_start])


def _served(stage: Stage) -> str:
    if not stage.address:
        raise LLMError(f"no address. Next: write @http://... behind {stage.live} in the profile")
    return ask(stage.model, stage.address)


def _in_process(live: str) -> str:
    model = weights_of(live)
    return "bundled" if model == BUNDLED else _weights(model)


# the machine --------------------------------------------------------------------------------------


def machine(p: Profile, bill: pd.DataFrame) -> list[Need]:
    """Disk, memory, open files and GPUs, against what is still to be done. A run is not stopped."""
    return [
        _need("disk", "", lambda: _disk(p, bill)),
        _need("memory", "", lambda: _memory(p)),
        _need("open files", "", lambda: _open_files(p)),
        _need("GPUs", "", lambda: _gpus_for(p, bill)),
    ]


def _disk(p: Profile, bill: pd.DataFrame) -> str:
    """Weights of the servers' models are not counted: they are elsewhere, or loaded already."""
    needed = bill[bill["million_in"].isna()].set_index("what")["disk_gb"]
    if _is_stored(p):
        needed = needed.drop(["downloads", "texts"], errors="ignore")
    made = min(needed.get("vectors", 0.0), _vectors_gb(p))
    free, left = shutil.disk_usage(paths.cache()).free / 1e9, needed.sum() - made
    told = f"{left:,.1f} GB to come in {paths.shown(paths.cache())}, {free:,.0f} GB are free"
    if left > free:
        raise OSError(f"{told}. Next: put the cache on a larger disk: export CHR_CACHE=...")
    return told


def _vectors_gb(p: Profile) -> float:
    """What is kept of passages' vectors by this profile's encoder, as it stores them."""
    size = 0
    for file in paths.cache("vectors").glob("*.npy"):
        made = (read_manifest(file, verify=False) or {}).get("settings", {})
        of_encoder = made.get("encoder", "").partition("|")[0] == p.encoder
        if of_encoder and (made["tower"], made["dtype"]) == ("article", p.vectors):
            size += file.stat().st_size
    return size / 1e9


def _memory(p: Profile) -> str:
    cards = _cards(p.devices or encoding_on(p))
    name, kept = memory_of(p.backend, cost.rows(p), DIM, p.vectors, cards)
    needed, there = _MEMORY_GB + kept / 1e9, memory() / 1e9
    told = f"{needed:.1f} GB, {kept / 1e9:.1f} of them for the index ({name})"
    if there < needed:
        how = 'another machine, or backend = "compressed"'
        raise OSError(f"{there:.0f} GB, needed are {told}. Next: {how}")
    return f"{there:.0f} GB, needed are {told}"


def _open_files(p: Profile) -> str:
    """Sockets of the requests in flight, blocks of vectors, and what Python opens itself. The soft
    limit is raised by who opens vectors, so the hard one counts."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 256 + 2 * p.workers + cost.rows(p) // BLOCK_ROWS
    if hard != resource.RLIM_INFINITY and hard < needed:
        told = f"{hard} may be open, needed are {needed}"
        raise OSError(f"{told}. Next: sudo prlimit --pid $$ --nofile={needed}")
    return f"{needed:,} are needed, and may be open"


def _gpus_for(p: Profile, bill: pd.DataFrame) -> str:
    found, hours = gpus(p), bill.loc[bill["what"] == "vectors", "hours"].sum()
    told = f"{found or 'none'}; vectors take {hours:,.1f} hours"
    if not found and hours > DAYS * 24 and p.encoder != "hash":
        raise OSError(f"{told} on this processor. Next: a machine with a GPU, or LIMIT=n")
    return told


def gpus(p: Profile) -> int:
    """How many CUDA devices encode."""
    return len(_cards(encoding_on(p)))


def _cards(named: Sequence[str]) -> list[str]:
    """The CUDA devices among those named that there are; all where none is named."""
    import torch

    there = torch.cuda.device_count()
    return [f"cuda:{card}" for card in sorted(cards_of(named, there)) if card < there]


# all of it ----------------------------------------------------------------------------------------


def needs(p: Profile, to_start: Collection[str] = ()) -> list[Need]:
    """Every need of a run that can stop a part of it, but for servers that are yet ``to_start``."""
    return [*data(p), *models(p), *leaflets(p), *language_models(p, to_start)]


def missing_parts(p: Profile, to_start: Collection[str] = ()) -> dict[str, str]:
    """Before a run: the notebooks that are NOT RUN and why. What else is missing is printed.

    RuntimeError where every notebook would stop. Models that nobody serves are set aside for the
    notebooks to come, in the environment (see ``lib.llm.connect``).
    """
    import json

    from lib.llm.connect import SET_ASIDE

    absent = [need for need in needs(p, to_start) if need.missing]
    if fatal := [need for need in absent if need.stops == EVERYTHING]:
        others = f" ({len(fatal) - 1} more: make doctor says which)" if fatal[1:] else ""
        raise RuntimeError(f"{fatal[0].what}: {fatal[0].missing}{others}")
    for need in absent:
        print(f"NOT RUN: {need.stops}: {need.what}: {need.missing}", file=sys.stderr, flush=True)
    os.environ.pop(SET_ASIDE, None)
    if aside := {need.live: need.missing for need in absent if need.live}:
        os.environ[SET_ASIDE] = json.dumps(aside)
    return {need.stops: f"{need.what}: {need.missing}" for need in absent if not need.live}


def priced(bill: pd.DataFrame, prices: Mapping[str, float]) -> pd.DataFrame:
    """The bill with money: ``gpu`` (hours on cards) and ``tokens`` (bought), where priced."""
    bill = bill.copy()
    if prices["gpu_hour"]:
        bill["gpu"] = bill["hours"].fillna(0) * bill["gpus"] * prices["gpu_hour"]
    if prices["million_in"] or prices["million_out"]:
        read, written = (bill[f"million_{way}"] * prices[f"million_{way}"] for way in ("in", "out"))
        bill["tokens"] = read + written
    return bill


def _lines(bill: pd.DataFrame, n_gpus: int) -> Iterator[str]:
    if bill.empty:
        yield "\nThe bill: nothing but this machine's time"
        return
    total = bill.drop(columns="what").sum().to_dict()
    total |= {"what": "all, one after the other", "gpus": bill["gpus"].max()}
    whole = pd.DataFrame([total])
    table = pd.concat([bill, whole], ignore_index=True)
    yield f"\nThe bill (python -m lib.cost says how it is counted; {n_gpus} GPUs encode):"
    yield table.round(1).to_string(index=False, na_rep="")


def main() -> int:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m lib.doctor")
    parser.add_argument("--profile", default=os.environ.get("CHR_PROFILE") or "mini")
    parser.add_argument("--limit", type=int, help="as LIMIT=n")
    for price in ("gpu-hour", "million-in", "million-out"):
        parser.add_argument(f"--{price}", type=float, default=0.0, metavar="PRICE")
    parser.add_argument("--gpus", type=int, help="that encode, for the bill of another machine")
    given = vars(parser.parse_args())
    p = load_profile(given.pop("profile"), limit=given.pop("limit"))
    print(p.title)
    here, absent = gpus(p), 0
    for need in [*needs(p), *machine(p, cost.bill(p, here))]:
        print(need.line(), flush=True)
        absent += bool(need.missing)
    encoding = here if given["gpus"] is None else given["gpus"]
    print(*_lines(priced(cost.bill(p, encoding), given), encoding), sep="\n")
    print(f"\n{absent or 'nothing'} missing")
    return int(absent > 0)


if __name__ == "__main__":
    sys.exit(main())
