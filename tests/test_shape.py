"""The project's shape: a small core, studies in rooms of their own, short modules and functions."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from lib import paths

MODULES = sorted((paths.ROOT / "lib").rglob("*.py"))
CORE = ("methods", "prompts", "profiles")
"""Packages of the core; every other one is a study."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def said(tree: ast.AST) -> set[int]:
    """Line numbers of docstrings, those under constants and fields among them."""
    texts = (n.value for n in ast.walk(tree) if isinstance(n, ast.Expr))
    lines = (t for t in texts if isinstance(t, ast.Constant) and isinstance(t.value, str))
    return {i for t in lines for i in range(t.lineno, t.end_lineno + 1)}


def code_lines(text: str) -> int:
    """Lines that are not blank, comment or docstring."""
    aside = said(ast.parse(text))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and i not in aside
        for i, line in enumerate(text.splitlines(), 1)
    )


def test_what_counts_as_code():
    text = '"""Doc\n\nmore."""\n\nx = 1\n"""Of x."""\n\n\n'
    text += 'def f():\n    """Doc."""\n    # why\n    return x\n'
    assert code_lines(text) == 3


def test_the_core_and_every_study_keep_to_their_size():
    size = Counter()
    for path in MODULES:
        room = path.relative_to(paths.ROOT / "lib").parts[0]
        study = path.parent.name != "lib" and room not in CORE
        size[room if study else "core"] += code_lines(path.read_text(encoding="utf-8"))
    assert size.pop("core") <= 3200
    assert max(size.values()) <= 820, size


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(paths.ROOT)))
def test_modules_and_functions_are_short_and_documented(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 250
    assert ast.get_docstring(tree), "a module says what it is for"
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            own = ast.get_docstring(node, clean=False) or ""
            assert node.end_lineno - node.lineno + 1 - own.count("\n") <= 40, node.name
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"
