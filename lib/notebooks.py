"""Run the notebooks without a browser: draw the figures, refresh the committed notebooks."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Collection
from pathlib import Path

from lib.base import paths
from lib.base.command import redacted
from lib.base.files import atomic_write

_FOLDER = paths.ROOT / "notebooks"
NOTEBOOKS = tuple(sorted(path.stem for path in _FOLDER.glob("*.ipynb")))
"""In reading order. 00 is run last: it shows what the others have made."""
ORDER = (*NOTEBOOKS[1:], NOTEBOOKS[0])
HIDDEN = "hide-input"
"""The tag by which books fold a cell's code; JupyterLab does it by ``jupyter.source_hidden``."""


def run(name: str, output: Path, parameters: dict) -> None:
    """Execute one notebook with papermill in its own folder, up to the first cell that fails.

    RuntimeError says what failed, and where the executed copy lies.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    started = time.monotonic()
    print(f"[{name}] running", file=sys.stderr, flush=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    # The kernel does not inherit sys.path: `import lib` works from any folder this way.
    os.environ["PYTHONPATH"] = str(paths.ROOT)
    os.environ.setdefault("CHR_OUT", "")  # the committed folders: nobody plays
    try:
        papermill.execute_notebook(
            str(_FOLDER / f"{name}.ipynb"),
            str(output),
            parameters=parameters,
            cwd=str(_FOLDER),
            progress_bar=False,
            log_output=False,
            extra_arguments=["--log-level=CRITICAL"],  # papermill's log is not a cell's output
        )
    except PapermillExecutionError as error:
        # A traceback in it may hold what a server has said, and so a key.
        atomic_write(output, redacted(output.read_text(encoding="utf-8")))
        problem = f"{error.ename}: {error.evalue}"
        raise RuntimeError(f"{name}: {problem}. As far as it came: {output}") from None
    except (LookupError, RuntimeError) as error:  # no kernel of that name; or it was killed
        raise RuntimeError(
            f"{name}: {error} (is memory short?). Next: the same command, which goes on from what "
            "is kept; if no kernel starts: make setup"
        ) from None
    print(f"[{name}] done in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def prepare(profile: str, parameters: dict, to_start: Collection[str] = ()) -> dict[str, str]:
    """Read, cut and embed the passages first, in this terminal, where size, time and progress show.

    The notebooks then find the vectors in the cache. Whatever else a run needs is looked for before
    that (``lib.doctor``), but for the servers that are yet ``to_start``: the notebooks that are NOT
    RUN are returned, with the reason.
    """
    from lib import cost, doctor
    from lib.embed import load_encoder
    from lib.index_build import build_index, corpus_table
    from lib.open_retriever import store_of
    from lib.profiles import load_profile
    from lib.studies.contradiction.evidence import load_needs
    from lib.studies.slhyde.study import open_both

    p = load_profile(profile, **parameters)
    print(f"{p.title}\nneeds: {p.needs}", file=sys.stderr)
    for size in cost.sizes(p).itertuples():
        print(
            f"{size.source}: {size.rows:,} passages, download {size.download_gb:.2f} GB, vectors "
            f"{size.float16_gb:.2f} GB as float16; memory: a block of each at a time",
            file=sys.stderr,
        )
    not_run = doctor.missing_parts(p, to_start)
    if doctor.CONTRADICTION not in not_run:
        asked, name = load_needs(p.evidence["name"]), p.evidence["name"]
        print(f"contradiction study: {name}, {len(asked):,} questions", file=sys.stderr)
    encoder = load_encoder(p.encoder, **p.encoder_options)
    store = store_of(p, encoder)
    print(corpus_table(store).to_string(index=False), file=sys.stderr, flush=True)
    build_index(store, encoder, backend=p.backend, devices=p.devices, dtype=p.vectors)
    open_both(p)  # notebook 11 searches the bundled passages with a retriever of its own
    return not_run


def measure_benchmarks(profile: str, parameters: dict) -> None:
    """Measure every benchmark of the lambda study: the longest part, with a bar in this terminal.

    What is stored and still holds is not measured again; notebooks 04 and 08 read it.
    """
    from lib.embed import load_encoder
    from lib.profiles import load_profile
    from lib.studies.lambda_sweep.study import Benchmarks

    p = load_profile(profile, **parameters)
    encoder = load_encoder(p.encoder, **p.encoder_options)
    benchmarks = Benchmarks(p, encoder)
    for name in p.benchmarks:
        print(f"lambda study: {name}", file=sys.stderr, flush=True)
        benchmarks.results(name)


def run_all(
    profile: str, parameters: dict, in_place: bool = False, encoder: str | None = None
) -> None:
    """Every notebook in order; executed copies go to ``build/notebooks/<profile>``.

    ``encoder`` is a second one, with which the real sample's texts are measured on BioASQ's
    snippets first: notebook 13 shows it. Interrupting is safe: whatever was embedded, downloaded or
    generated is kept, so the next run goes on from there.
    """
    from lib import studies
    from lib.embed import load_encoder
    from lib.profiles import load_profile
    from lib.studies.real import study as real

    if encoder:
        load_encoder(encoder)  # one that there is not is refused before anything is measured
    not_run = prepare(profile, parameters)
    measure_benchmarks(profile, parameters)
    if encoder:
        print(f"second encoder: {encoder}, on BioASQ's snippets", file=sys.stderr, flush=True)
        real.measure_encoder(load_profile(profile), encoder)
    made = load_profile(profile, **parameters).name
    build = paths.ROOT / "build" / "notebooks" / made
    for name in ORDER:
        if name in not_run:
            print(f"[{name}] NOT RUN: {not_run[name]}", file=sys.stderr, flush=True)
            continue
        run(name, build / f"{name}.ipynb", {"profile": profile} | parameters)
        if in_place:
            _commit(build / f"{name}.ipynb", _FOLDER / f"{name}.ipynb")
    for name, one in studies.further().items():
        print(f"[{name}] a study of its own", file=sys.stderr, flush=True)
        studies.show(name, one, load_profile(profile, **parameters))
    for what, place in (("figures", paths.figures(made)), ("tables", paths.results(made))):
        print(f"{what}: {paths.shown(place) if place.is_relative_to(paths.ROOT) else place}")


def _commit(executed: Path, target: Path) -> None:
    """Copy an executed notebook over its source, without what papermill and the machine left.

    A widget works only with a running kernel, so only its static picture is kept.
    """
    import nbformat

    book = nbformat.read(executed, as_version=4)
    # papermill adds a cell with the parameters it was given: fold back into the defaults.
    book.cells = [c for c in book.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    for part in (book, *book.cells):
        for key in ("papermill", "widgets", "execution"):
            part.metadata.pop(key, None)
    for count, cell in enumerate((c for c in book.cells if c.cell_type == "code"), 1):
        cell.execution_count = count
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata["tags"] = list(dict.fromkeys([*cell.metadata.get("tags", []), HIDDEN]))
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    text = nbformat.writes(book)
    if left := [str(home) for home in (paths.ROOT, Path.home()) if f"{home}/" in text]:
        raise ValueError(f"{target.name} shows a path of this machine: {left[0]}")
    atomic_write(target, text + "\n")


def main() -> None:
    """Command line: figures | commit."""
    parser = argparse.ArgumentParser(prog="python -m lib.notebooks", description=__doc__)
    parser.add_argument("what", choices=["figures", "commit"])
    parser.add_argument("--profile", default=os.environ.get("CHR_PROFILE") or "mini")
    parser.add_argument("--limit", type=int, help="a quick look at n questions of each set")
    parser.add_argument("--encoder", help="a second encoder, such as mpnet (make mpnet)")
    given = parser.parse_args()
    profile = "mini" if given.what == "commit" else given.profile
    parameters = {"limit": given.limit} if given.limit else {}
    run_all(profile, parameters, given.what == "commit", given.encoder)
    if given.what == "commit":
        from lib.pages.__main__ import write

        print(*(f"written: {paths.shown(page)}" for page in write()), sep="\n")


if __name__ == "__main__":
    main()
