"""The fresh sample of the study of masked answers: its draw, what dev chose, and in which order.

    python -m tools.fresh_sample draw            data/masked/questions.csv, names.jsonl, drawn.csv
    python -m tools.fresh_sample choose          choices.csv, from what was read on dev
    python -m tools.fresh_sample step NAME FILE ...

``order.csv`` is a chain: each step has the hash of its files and of the step before, so that a file
that was changed afterwards, or put in before another, no longer fits.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from lib.base.files import atomic_write, canonical_json, sha256_bytes
from lib.base.paths import DATA, ROOT
from lib.corpora import load_passages
from lib.profiles import load_profile
from lib.studies.masked import study
from lib.studies.masked.mask import NAMES, names_of, other_names
from lib.studies.masked.sample import SAMPLE, NameCounts, draw, load_masked
from lib.studies.masked.texts import recorded

ORDER = DATA / "masked" / "order.csv"
DECLARATION = DATA / "primary_tests_masked.toml"


def draw_sample() -> None:
    """Write the sample, how many questions each part of its rule leaves, and what options are
    called."""
    passages = [p for source in load_profile("open").corpora for p in load_passages(source)]
    rows, steps = draw(NameCounts(passages))
    _write(SAMPLE, pd.DataFrame(rows))
    _write(SAMPLE.with_name("drawn.csv"), pd.DataFrame(steps))
    others = other_names(passages)
    asked = [q for part in ("judged", "dev", "test") for q in load_masked(part)]
    lines = [{"dataset": q.dataset, "qid": q.qid, "names": names_of(q, others)} for q in asked]
    atomic_write(NAMES, "".join(canonical_json(line) + "\n" for line in lines))


def choose() -> None:
    """Write what dev chose, and the least difference that each test can show."""
    half = study.Half.open("dev", study.search_in(load_profile("open")), study.DEV_LAMBDAS)
    values = study.half_values(half, recorded())
    table = study.choose(values)
    print(table.to_string())
    chosen = table.loc[table["chosen"], ["choice", "picks"]]
    _write(study.CHOICES, chosen.set_axis(["name", "value"], axis=1))
    n = len(load_masked("test"))
    _write(study.CHOICES.with_name("least.csv"), study.least_differences(values, n).round(4))


def add_step(name: str, files: Iterable[Path]) -> None:
    """Add a step to the chain."""
    before = pd.read_csv(ORDER, dtype=str) if ORDER.exists() else pd.DataFrame()
    files = sorted(files)
    row = {
        "step": name,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "files": " ".join(path.resolve().relative_to(ROOT).as_posix() for path in files),
        "sha256": hash_of(files),
    }
    row["chain"] = link(before["chain"].iloc[-1] if len(before) else "", row)
    _write(ORDER, pd.concat([before, pd.DataFrame([row])], ignore_index=True))


def hash_of(files: Iterable[Path]) -> str:
    """One hash over the contents of files; of the declarations only the blocks that were declared
    before dev, or, where ``#after-dev`` or ``#grid`` stands behind the name, those then."""
    return sha256_bytes(b"".join(sha256_bytes(_content(path)).encode() for path in sorted(files)))


def _content(path: Path) -> bytes:
    if not path.name.startswith(DECLARATION.name):
        return path.read_bytes()
    whole = DECLARATION.read_text(encoding="utf-8").split("\n[masked]\n")[1]
    before, later = whole.split("\n[masked-after-dev]\n")
    after_dev, grid = later.split("\n[masked-grid]\n")
    parts = {"": "\n".join(before.split("\n\n[")), "#after-dev": after_dev, "#grid": grid}
    return parts[path.name.removeprefix(DECLARATION.name)].strip().encode()


def link(before: str, row: dict) -> str:
    """The chain's hash after a row."""
    return sha256_bytes(canonical_json([before, row["step"], row["date"], row["sha256"]]).encode())


def _write(path: Path, table: pd.DataFrame) -> None:
    atomic_write(path, table.to_csv(index=False, lineterminator="\n"))


def main() -> None:
    """Draw, choose, or note a step."""
    parser = argparse.ArgumentParser(prog="python -m tools.fresh_sample")
    parser.add_argument("do", choices=["draw", "choose", "step"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    if given.do == "draw":
        draw_sample()
    elif given.do == "choose":
        choose()
    else:
        add_step(given.name, given.files)


if __name__ == "__main__":
    main()
