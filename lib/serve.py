"""One language model after another on the same cards: start, ask all it is needed for, stop.

    python -m lib.serve PROFILE          the plan: stages, commands, cards
    python -m lib.serve PROFILE --run    runs it; the same command again goes on from there

A stage runs the notebooks that ask models, with one model reachable; what needs another is NOT RUN
until its own stage. Models that generate in this process ("vllm:", "transformers:") need no server:
their stage is the notebooks alone. Once all stages are done ``make figures`` asks nobody.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from lib.base import paths
from lib.base.command import redacted
from lib.base.files import atomic_write, canonical_json, read_jsonl, sha256_bytes
from lib.base.provenance import code_hash
from lib.llm.chat import LLMError
from lib.llm.connect import SET_ASIDE
from lib.llm.openai_chat import is_local
from lib.profiles import Profile, load_profile
from lib.stages import COMMAND, AnotherModel, Stage, ask, cards_of, encoding_on, stages

ASKING = re.compile("0[2-9]_")
"""The notebooks that ask models, by their names."""

_START_S, _STOP_S, _GLANCE_S = 3600, 60, 2.0


# cards --------------------------------------------------------------------------------------------


def cards_to_serve(p: Profile, given: str | None, count: int) -> str:
    """CUDA_VISIBLE_DEVICES of the servers: as given, else the cards that do not encode or search;
    where a profile leaves none, all. Empty where there is no card."""
    if given is not None:
        return given
    searching = _searching(p, count)
    left = [str(card) for card in range(count) if card not in searching]
    return ",".join(left or map(str, range(count)))


def _searching(p: Profile, count: int) -> set[int]:
    """The cards that encode and search: those that are named, or every one where the encoder names
    none."""
    encoding = encoding_on(p)
    return cards_of([*encoding, *p.devices] if encoding else [], count)


def placement(p: Profile, serving: str, count: int) -> list[str]:
    """Which cards encode and search, which serve, and whether some do both, in lines."""
    searching = _searching(p, count)
    named = ", ".join(f"cuda:{card}" for card in sorted(searching))
    lines = [
        f"encode and search: {named or 'the CPU'}",
        f"serve: CUDA_VISIBLE_DEVICES={serving}" if serving else "serve: no card is visible here",
    ]
    both = searching & {int(card) for card in serving.split(",") if card.isdigit()}
    if both:
        lines.append(
            f"cards {', '.join(map(str, sorted(both)))} do both. Next: name others in device and "
            'devices of the profile ("cpu": none), or in --cards'
        )
    return lines


# one stage ----------------------------------------------------------------------------------------


def answers(stage: Stage) -> bool:
    """Whether the model's server answers a request. AnotherModel where another model does."""
    try:
        ask(stage.model, stage.url)
    except AnotherModel:
        raise
    except LLMError:
        return False
    return True


@contextmanager
def served(stage: Stage, form: str, serving: str) -> Iterator[None]:
    """The model's server, running: one that answers already is used and left; else one is started
    on this machine, with its output in build/servers, and stopped at the end.

    LLMError where a server elsewhere does not answer, or one ends or takes an hour to start.
    """
    if not stage.url or answers(stage):
        yield
        return
    if not is_local(stage.url):
        raise LLMError(f"{stage.model} at {stage.url} does not answer. Next: start it there")
    log = paths.ROOT / "build" / "servers" / f"{stage.model.replace('/', '--')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as out:
        server = _started(stage.command(form), serving, out)
        try:
            _wait_until_it_answers(stage, server, log)
            yield
        finally:
            _stop(server)


def _started(command: list[str], serving: str, out) -> subprocess.Popen:
    environment = dict(os.environ)
    if serving:
        environment["CUDA_VISIBLE_DEVICES"] = serving
    try:
        return subprocess.Popen(
            command, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    except FileNotFoundError:
        raise LLMError(
            f"there is no program {command[0]!r}. Next: install it (python -m pip install vllm, in "
            "an environment of its own), or name yours: --serve 'program {model} {port}'"
        ) from None


def _wait_until_it_answers(stage: Stage, server: subprocess.Popen, log: Path) -> None:
    start = time.monotonic()
    while not answers(stage):
        if server.poll() is not None or time.monotonic() - start > _START_S:
            last = redacted(log.read_text(encoding="utf-8", errors="replace")).splitlines()[-1:]
            raise LLMError(f"{stage.model} does not answer: {''.join(last)}. Next: {log} says why")
        time.sleep(_GLANCE_S)


def _stop(server: subprocess.Popen) -> None:
    """End a server and the processes that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
            server.wait(_STOP_S)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def ask_notebooks(p: Profile, profile: str, limit: int | None, names: Iterable[str]) -> None:
    """Run the notebooks that ask models; executed copies go where ``make figures`` puts them."""
    from lib.notebooks import run

    parameters = {"profile": profile} | ({"limit": limit} if limit else {})
    for name in names:
        run(name, paths.ROOT / "build" / "notebooks" / p.name / f"{name}.ipynb", parameters)


# all stages ---------------------------------------------------------------------------------------


def _done_file(p: Profile) -> Path:
    return paths.ROOT / "build" / "stages" / f"{p.name}.json"


def _state(p: Profile, stage: Stage) -> dict:
    """What a finished stage depends on, and how many replies of its model are recorded."""
    code = code_hash(["lib.expansion", "lib.readers", "lib.methods", "lib.llm.prompts"])
    count = 0
    for file in (paths.ROOT / name for name in stage.files):
        rows = read_jsonl(file) if file.exists() else ()
        count += sum(row["model"] == stage.model for row in rows)
    return {"asked": sha256_bytes(canonical_json([asdict(p), code]).encode()), "recorded": count}


def is_done(p: Profile, stage: Stage) -> bool:
    """Whether the stage was finished by this profile and code, and its recordings are still there:
    then all its requests are recorded."""
    file = _done_file(p)
    done = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    then, now = done.get(stage.live), _state(p, stage)
    return bool(then) and then["asked"] == now["asked"] and then["recorded"] <= now["recorded"]


def run_stages(
    p: Profile, ask: Callable[[], None], form: str = COMMAND, serving: str = ""
) -> list[str]:
    """Run each stage that is not done: ``ask``, with its model alone reachable. Returns the models.

    A stage that fails ends the run with its error; those before it are done, and are skipped by the
    next run.
    """
    todo, ran = stages(p), []
    for stage in todo:
        if is_done(p, stage):
            print(f"[{stage.model}] done before: all is recorded", file=sys.stderr, flush=True)
            continue
        print(f"[{stage.model}] {', '.join(stage.uses)}", file=sys.stderr, flush=True)
        others = {other.live: "another stage asks it" for other in todo if other != stage}
        with _environment(stage, others), served(stage, form, serving):
            ask()
        file = _done_file(p)
        done = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, canonical_json(done | {stage.live: _state(p, stage)}))
        ran.append(stage.model)
    return ran


@contextmanager
def _environment(stage: Stage, others: dict[str, str]) -> Iterator[None]:
    """Only this model is asked; one without an address of its own is where it is started."""
    given = {SET_ASIDE: json.dumps(others)} | ({"CHR_LLM_URL": stage.url} if stage.url else {})
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def plan(p: Profile, form: str, serving: str, count: int) -> str:
    """The stages and the cards, in lines."""
    lines = placement(p, serving, count)
    for number, stage in enumerate(stages(p), 1):
        state = "done" if is_done(p, stage) else "to do"
        lines.append(f"{number}. {stage.model}: {', '.join(stage.uses)} ({state})")
        how = shlex.join(stage.command(form)) if stage.url else f"in this process: {stage.live}"
        lines.append(f"   {how}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: PROFILE [--run]."""
    import torch

    parser = argparse.ArgumentParser(
        prog="python -m lib.serve",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("profile")
    parser.add_argument("--run", action="store_true", help="run the stages, not only print them")
    parser.add_argument("--limit", type=int, help="a quick look at n questions of each set")
    parser.add_argument("--cards", help="CUDA_VISIBLE_DEVICES of the servers, such as 1,2,3,4")
    parser.add_argument("--serve", default=COMMAND, help="the command that starts a server")
    given = parser.parse_args(arguments)
    p = load_profile(given.profile, limit=given.limit)
    if not stages(p):
        raise ValueError(f"profile {p.name} only replays: it asks no model")
    count = torch.cuda.device_count()
    serving = cards_to_serve(p, given.cards, count)
    print(plan(p, given.serve, serving, count))
    if not given.run:
        return
    from lib.notebooks import NOTEBOOKS, prepare

    # A server on this machine that is not up yet is started when it is its turn.
    to_start = {stage.live for stage in stages(p) if is_local(stage.url)}
    not_run = prepare(given.profile, {"limit": given.limit} if given.limit else {}, to_start)
    asked = [name for name in NOTEBOOKS if ASKING.match(name) and name not in not_run]
    run_stages(p, lambda: ask_notebooks(p, given.profile, given.limit, asked), given.serve, serving)
    print(f"all stages are done. Next: make figures PROFILE={given.profile}")


if __name__ == "__main__":
    main()
