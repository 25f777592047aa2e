"""Where a result came from: the code, data and settings behind it, and whether they still hold.

Every result is a CSV with a manifest, packed (xz) where it is large. The manifest's ``code`` is one
hash over the numeric core (``CORE``) and the files that a study names as its own: what their
definitions do, not where they stand or how they are imported and described. Moving a file makes
nothing stale; changing a formula does. ``data`` is a hash of the registered files that were read,
``versions`` says which libraries computed it. Whether the numbers themselves still come out is what
``make verify`` says.
"""

from __future__ import annotations

import ast
import json
import lzma
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base import files, paths

_NAMES = ("dataset", "method", "arm", "baseline", "reader")
TEXTS = (*_NAMES, "qid", "pid", "letter", "gold", "mirage", "error", "H_plus", "H_minus")
"""Columns of results that are text, whatever their values look like."""

CORE = (
    "lib.run",
    "lib.stats",
    "lib.query_spec",
    "lib.search.blocks",
    "lib.search.bm25",
    "lib.search.candidates",
    "lib.search.compressed",
    "lib.search.contrast",
    "lib.search.ids",
    "lib.search.index",
    "lib.search.lambda_path",
    "lib.search.merge",
    "lib.search.postings",
    "lib.search.scoring",
    "lib.search.whitening",
)
"""The modules that rank and measure: behind every result."""

_LIBRARIES = ("faiss-cpu", "numpy", "pandas", "scipy", "torch", "transformers")
_ASIDE = ("code_roots", "measured_by", "versions")
"""Settings that are recorded with a result, but do not make it stale when they alone differ."""


def code_hash(own: Iterable[str], core: Sequence[str] = CORE) -> str:
    """One hash over the numeric ``core`` and ``own``, a study's modules and packages, by name.

    Each top-level definition counts by its syntax tree without docstrings. Imports do not count,
    nor does the file that a definition is in. A package counts with all its files, prompts
    (``.txt``) and rows (``.csv``) included. A module outside the project, such as a method of your
    own, counts by its text. StaleInput where a file was edited since it was loaded: the code that
    runs is then not the code on disk.
    """
    own = list(own)
    parts = [_own_text(name) for name in own if name.split(".")[0] != "lib"]
    for path in sorted({path for name in (*core, *own) for path in _sources(name)}):
        if path.suffix != ".py":
            parts.append(files.sha256_file(path))
            continue
        if _was_edited(path):
            raise files.StaleInput(
                f"{paths.shown(path)} was edited while this ran: what the old code made would "
                "count as the new code's. Run it again; in a notebook, restart the kernel first"
            )
        parts += _definitions(path, path.stat().st_mtime_ns)
    return files.sha256_bytes(files.canonical_json(sorted(parts)).encode())[:16]


def _sources(name: str) -> list[Path]:
    """The files of a module or package of this project; none for any other name."""
    if name.split(".")[0] != "lib":
        return []
    path = paths.ROOT.joinpath(*name.split("."))
    if path.is_dir():
        return [file for kind in ("py", "txt", "csv") for file in path.rglob(f"*.{kind}")]
    return [file for file in [path.with_suffix(".py")] if file.exists()]


@cache
def _definitions(path: Path, changed: int) -> list[str]:
    """A hash of each top-level definition of a file. ``changed``, its modification time, makes the
    cache miss for a file that was edited."""
    return _hashes_of(path.read_bytes())


def _hashes_of(text: bytes) -> list[str]:
    tree = _DropDocstrings().visit(ast.parse(text))
    imports = (ast.Import, ast.ImportFrom)
    doing = [ast.dump(node) for node in tree.body if not isinstance(node, imports)]
    return [files.sha256_bytes(what.encode()) for what in doing]


class _DropDocstrings(ast.NodeTransformer):
    """Removes texts that stand alone: docstrings, also those under constants and fields."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def _was_edited(path: Path) -> bool:
    """Whether the code in a file has changed since this process began."""
    before, now = _AT_START.get(path), path.read_bytes()
    return before not in (None, now) and _hashes_of(before) != _hashes_of(now)


_AT_START = {path: path.read_bytes() for path in paths.ROOT.glob("lib/**/*.py")}


def _own_text(module: str) -> str:
    """The text of a loaded module outside the project: its file's hash, or a notebook's cells.

    A loader that keeps the ``content`` it read is asked for it: the file may have changed since.
    A cell that is run again counts once. With neither file nor cells, no text can tell two runs
    apart, so a result holds no longer than its process.
    """
    loaded = sys.modules.get(module)
    content = getattr(getattr(loaded, "__loader__", None), "content", None)
    if content is not None:
        return files.sha256_bytes(content)
    file = getattr(loaded, "__file__", None)
    if file:
        return files.sha256_file(Path(file))
    cells = getattr(loaded, "In", [f"{os.getpid()} {_STARTED}"])
    return "\n".join(dict.fromkeys(cells))


_STARTED = time.time_ns()


def data_hash(names: Iterable[str]) -> str:
    """Hash of data files: the bytes of project files, the registered sha256 of downloads."""
    from lib.base.downloads import load_registry

    registry = load_registry()
    parts = {}
    for name in names:
        if name in registry:
            parts[name] = registry[name].sha256
        else:
            parts[name] = files.sha256_file(paths.DATA / name)
    return files.sha256_bytes(files.canonical_json(parts).encode())[:16]


USUAL_K = 5
"""The k in the code's metric names (p_at_5); a file made with another k has that k in its names."""

_COUNTED = re.compile(r"\b((?:dev_)?(?:p|hit|target|both|mimic|neither|contamination)_at_)(\d+)")
"""Names of what is counted among the k passages; nDCG and recall always look at ten."""


def with_true_k(table: pd.DataFrame, k: int) -> pd.DataFrame:
    """A table as it is written: what the code calls ``p_at_5`` is ``p_at_10`` where k is 10."""
    return _renamed(table, USUAL_K, k)


def _renamed(table: pd.DataFrame, before: int, after: int) -> pd.DataFrame:
    """The table with another k in the names of columns and in the column ``metric``."""
    if before == after:
        return table

    def name(text):
        found = _COUNTED.match(text) if isinstance(text, str) else None
        if found is None or int(found[2]) != before:
            return text
        return f"{found[1]}{after}{text[found.end() :]}"

    renamed = table.rename(columns=name)
    if "metric" in renamed:
        renamed = renamed.assign(metric=renamed["metric"].map(name))
    return renamed


LARGE = 1_000_000
"""Bytes from which a result is kept packed."""


def write_result(
    table: pd.DataFrame,
    name: str,
    profile: str,
    *,
    code: Sequence[str],
    data: Sequence[str],
    **settings,
) -> Path:
    """Write ``<results>/<name>.csv`` (numbers to 3 decimals) with its manifest; returns the path.

    ``code`` are the study's own modules and ``data`` the files behind it (see ``code_hash`` and
    ``data_hash``); ``settings`` are kept as given.
    A table of more than ``LARGE`` bytes becomes ``<name>.csv.xz``, the same bytes every time.
    """
    return _write(table, name, profile, _origin(profile, code, data, **settings))


def _write(table: pd.DataFrame, name: str, profile: str, origin: dict) -> Path:
    for column, values in table.select_dtypes("number").items():
        infinite = np.isinf(values)
        if infinite.any():
            raise ValueError(
                f"{name}: the column {column} has an infinite number in row {infinite.argmax()}: "
                "something overflowed, or was divided by 0; nothing was written"
            )
    told = with_true_k(table, origin.get("k", USUAL_K))
    content = told.to_csv(index=False, float_format="%.3f", lineterminator="\n").encode()
    plain = paths.results(profile) / f"{name}.csv"
    packed = plain.with_suffix(".csv.xz")
    if len(content) > LARGE:
        path, old = packed, plain
        # No timestamp inside: the same table gives the same bytes. On these tables preset 2 is as
        # quick as gzip and a third of its size; 6 would take twenty times as long.
        content = lzma.compress(content, preset=2)
    else:
        path, old = plain, packed
    files.atomic_write(path, content)
    files.write_manifest(path, rows=len(table), settings=origin, content=content)
    # A table that crossed ``LARGE`` has an old file of the other kind: delete it. Its manifest goes
    # first, so that a kill in between leaves no file that counts as complete.
    files.manifest_path(old).unlink(missing_ok=True)
    old.unlink(missing_ok=True)
    return path


def named(settings: dict) -> str:
    """The line under a figure that says which run it shows, made of a result's settings."""
    return f"profile {settings['profile']}, data {settings['data']}"


def _origin(profile: str, code: Sequence[str], data: Sequence[str], **settings) -> dict:
    """What a manifest keeps as settings, in the form in which JSON gives it back."""
    origin = {
        "profile": profile,
        "code_roots": sorted(code),
        "code": code_hash(code),
        "data_files": sorted(data),
        "data": data_hash(data),
        "versions": _versions(),
    }
    return json.loads(files.canonical_json(origin | settings))


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in _LIBRARIES}


def make_or_reuse(
    make: Callable[[], pd.DataFrame], name: str, profile: str, *, dear: bool = False, **origin
) -> pd.DataFrame:
    """The stored result where it still holds, else what ``make()`` gives, written and read back.

    It holds while ``origin`` (code, data and settings, as ``write_result`` takes them) is what its
    manifest has. Either way the numbers are those of the file, with 3 decimals. ``dear`` marks
    outcomes of searches that are too many to store: see ``dear_as_committed``.
    """
    if dear and _as_committed:
        return _committed_copy(name, profile, _origin(profile, **origin))
    return make_all_or_reuse(lambda: {name: make()}, [name], profile, **origin)[name]


def make_all_or_reuse(
    make: Callable[[], Mapping[str, pd.DataFrame]], names: Sequence[str], profile: str, **origin
) -> dict[str, pd.DataFrame]:
    """Results that are made together: the stored ones if all still hold, else all of ``make()``.

    As ``make_or_reuse``. KeyError if ``make`` gives no table for one of ``names``.
    """
    wanted = _origin(profile, **origin)  # before ``make``: code or data may be edited meanwhile
    found = {name: _found(name, profile) for name in names}
    stored = {name: path for name, (path, manifest) in found.items() if _holds(manifest, wanted)}
    if len(stored) < len(names):
        made = make()
        stored = {name: _write(made[name], name, profile, wanted) for name in names}
    return {name: _read(stored[name], wanted.get("k", USUAL_K)) for name in names}


_as_committed = False


@contextmanager
def dear_as_committed() -> Iterator[None]:
    """While it is open, results marked ``dear`` are taken from the committed files.

    What is computed from them is made anew, also on a machine that could not measure them.
    """
    global _as_committed
    before, _as_committed = _as_committed, True
    try:
        yield
    finally:
        _as_committed = before


def _committed_copy(name: str, profile: str, wanted: dict) -> pd.DataFrame:
    """A committed result, copied to the results of this run, and read.

    The code may have changed since: ``measured_by`` then keeps the hash of the code that measured
    it. StaleInput where its data or settings have changed.
    """
    table, before = read_result(name, profile, committed=True)
    code = {"code": wanted["code"]}
    if _compared(before | code) != _compared(wanted):
        raise files.StaleInput(f"{name}.csv was measured with other data or settings than today's")
    measured_by = before.get("measured_by", before["code"])
    if measured_by != wanted["code"]:
        wanted = wanted | {"measured_by": measured_by}
    path, _ = _stored(paths.committed(profile), name)
    content, copy = path.read_bytes(), paths.results(profile) / path.name
    files.atomic_write(copy, content)
    files.write_manifest(copy, rows=len(table), settings=wanted, content=content)
    return table


def _holds(manifest: dict | None, wanted: dict) -> bool:
    """Whether a result was made with these settings, wherever its code stood."""
    return manifest is not None and _compared(manifest["settings"]) == _compared(wanted)


def _compared(settings: dict) -> dict:
    return {name: value for name, value in settings.items() if name not in _ASIDE}


def _found(name: str, profile: str) -> tuple[Path, dict | None]:
    """``_stored`` in the results of this run; where a notebook is played with and has not made it,
    the committed one."""
    path, manifest = _stored(paths.results(profile), name)
    if manifest is None and paths.is_played(profile):
        return _stored(paths.committed(profile), name)
    return path, manifest


def _stored(folder: Path, name: str) -> tuple[Path, dict | None]:
    """A result's file and manifest, whether it is packed or not; no manifest if incomplete."""
    plain = folder / f"{name}.csv"
    for path in (plain, plain.with_suffix(".csv.xz")):
        manifest = files.read_manifest(path)
        if manifest is not None:
            return path, manifest
    return plain, None


def _read(path: Path, k: int) -> pd.DataFrame:
    """A result as it was: ids stay text (0007 is no number), and "N/A" is a text too."""
    columns = pd.read_csv(path, nrows=0).columns
    texts = {column: str for column in columns if column in TEXTS}
    # A text may hold a carriage return, which does not end a row here: write_result ends none so.
    options = {"keep_default_na": False, "na_values": [""], "lineterminator": "\n"}
    return _renamed(pd.read_csv(path, dtype=texts, **options), k, USUAL_K)


def read_result(name: str, profile: str, *, committed: bool = False) -> tuple[pd.DataFrame, dict]:
    """A result and its settings, from the working folder or, if ``committed``, the committed one.

    FileNotFoundError, with the command that makes it, when it is missing or incomplete.
    """
    folder = paths.committed(profile) if committed else paths.results(profile)
    path, manifest = _stored(folder, name) if committed else _found(name, profile)
    if manifest is None:
        raise FileNotFoundError(
            f"{paths.shown(folder / name)}.csv is missing or does not match its manifest; "
            f"run: make figures PROFILE={profile}"
        )
    settings = manifest["settings"]
    return _read(path, settings.get("k", USUAL_K)), settings


# comparing: what make check and the log of reproductions ask

SECONDS = "_seconds"
"""The ending of names of tables that hold running times, which differ from run to run."""


def tables(folder: Path) -> list[Path]:
    """The result files of a folder that can be compared, sorted.

    Left out are times, and names that start with a dot: what a killed write left behind.
    """
    found = [*folder.glob("[!.]*.csv"), *folder.glob("[!.]*.csv.xz")]
    return sorted(path for path in found if not path.name.split(".")[0].endswith(SECONDS))


def differences(old: pd.DataFrame, new: pd.DataFrame) -> list[str]:
    """Where they differ: shape, texts, or numbers by more than one unit in the third decimal."""
    if list(old.columns) != list(new.columns) or len(old) != len(new):
        return [f"shape or columns differ: {old.shape} committed, {new.shape} made"]
    found = []
    for column in old:
        before = old[column]
        after = new[column]
        if _is_number(before) and _is_number(after):
            # One unit in the third decimal: a value on a rounding edge may fall either way.
            same = (before - after).abs() < 0.00101
        else:
            same = before == after
        same |= before.isna() & after.isna()
        for row in same[~same].index:
            found.append(f"{column}, row {row}: {before[row]} committed, {after[row]} made")
    return found


def _is_number(column: pd.Series) -> bool:
    """Whether a column holds numbers; to pandas, True and False are numbers too."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
