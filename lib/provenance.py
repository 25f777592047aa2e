"""Where a result came from: the code, data and settings behind it, and whether they still hold.

Every result is a CSV with a manifest. The manifest's ``code`` is a hash of the modules the result
depends on, without comments and docstrings, so that only a change that could move a number makes
it stale; ``data`` is a hash of the registered files it read.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd

from lib import paths
from lib.files import (
    atomic_write,
    canonical_json,
    read_manifest,
    sha256_bytes,
    sha256_file,
    write_manifest,
)

__all__ = [
    "code_hash",
    "data_hash",
    "modules_behind",
    "save_result",
    "result",
    "load_result",
]


def modules_behind(roots: Iterable[str]) -> list[str]:
    """The project modules that ``roots`` (like "lib.contrast") import, directly or not, sorted."""
    seen, todo = set(), list(roots)
    while todo:
        name = todo.pop()
        path = _source(name)
        if name in seen or path is None:
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                todo += [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
            elif isinstance(node, ast.Import):
                todo += [a.name for a in node.names]
    return sorted(seen)


def _source(module: str) -> Path | None:
    if module != "lib" and not module.startswith("lib."):
        return None
    base = paths.ROOT.joinpath(*module.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.exists()), None)


class _Meaning(ast.NodeTransformer):
    """Drops what is said and not done: docstrings, also those under constants and fields."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def _meaning(path: Path) -> str:
    """The module's syntax tree without docstrings: comments and layout do not count."""
    return ast.dump(_Meaning().visit(ast.parse(path.read_text(encoding="utf-8"))))


def code_hash(roots: Iterable[str]) -> str:
    """Hash of everything in ``modules_behind(roots)`` that could move a number."""
    parts = {name: _meaning(_source(name)) for name in modules_behind(roots)}
    return sha256_bytes(canonical_json(parts).encode())[:16]


def data_hash(names: Iterable[str]) -> str:
    """Hash of data files: the bytes of project files, the registered sha256 of downloads."""
    from lib.downloads import load_registry

    registry = load_registry()
    parts = {}
    for name in sorted(names):
        registered = registry.get(name)
        parts[name] = registered.sha256 if registered else sha256_file(paths.DATA / name)
    return sha256_bytes(canonical_json(parts).encode())[:16]


def save_result(
    table: pd.DataFrame, name: str, profile: str, *,
    code: Sequence[str], data: Sequence[str], **settings,
) -> Path:  # fmt: skip
    """Write ``<results>/<name>.csv`` (numbers to 3 decimals) with its manifest; returns the path.

    ``code`` are the root modules and ``data`` the files behind it; ``settings`` are kept as given.
    """
    path = paths.results(profile) / f"{name}.csv"
    atomic_write(path, table.to_csv(index=False, float_format="%.3f", lineterminator="\n"))
    write_manifest(path, rows=len(table), settings=_origin(profile, code, data, settings))
    return path


def _origin(profile: str, code: Sequence[str], data: Sequence[str], settings: dict) -> dict:
    origin = {
        "profile": profile, "code_roots": sorted(code), "code": code_hash(code),
        "data_files": sorted(data), "data": data_hash(data),
    }  # fmt: skip
    return json.loads(canonical_json(origin | settings))


def result(
    make: Callable[[], pd.DataFrame], name: str, profile: str, *,
    code: Sequence[str], data: Sequence[str], **settings,
) -> pd.DataFrame:  # fmt: skip
    """The stored result when code, data and all settings behind it are the same, else ``make()``,
    saved. Either way the table is what the file says, so numbers have 3 decimals."""
    path = paths.results(profile) / f"{name}.csv"
    manifest = read_manifest(path)
    if manifest is None or manifest["settings"] != _origin(profile, code, data, settings):
        save_result(make(), name, profile, code=code, data=data, **settings)
    return pd.read_csv(path)


def load_result(name: str, profile: str, *, committed: bool = False) -> tuple[pd.DataFrame, dict]:
    """A result and its settings; FileNotFoundError naming the command when it is not complete."""
    folder = paths.committed(profile) if committed else paths.results(profile)
    path = folder / f"{name}.csv"
    manifest = read_manifest(path)
    if manifest is None:
        raise FileNotFoundError(
            f"{paths.shown(path)} is missing or does not match its manifest; "
            f"run: make figures PROFILE={profile}"
        )
    return pd.read_csv(path), manifest["settings"]
