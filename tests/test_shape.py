"""The project's shape: arrows point one way, and every public name says what it is."""

from __future__ import annotations

import ast

import pytest

from lib.base import paths

LIB = paths.ROOT / "lib"
MODULES = {
    path.relative_to(paths.ROOT).with_suffix("").as_posix().replace("/", "."): path
    for path in sorted(LIB.rglob("*.py"))
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def imports_of(path) -> set[str]:
    """The project modules that a file imports, at its top or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    packages = {name.removesuffix(".__init__") for name in found}
    return {name for name in MODULES if name.removesuffix(".__init__") in packages}


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """Names along one circle of a graph; empty where there is none."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph.get(name, ())):
            if found := walk(other, [*way, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := walk(name, []))), [])


def test_a_circle_is_found():
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_no_module_imports_itself_by_way_of_others():
    graph = {name: imports_of(path) - {name} for name, path in MODULES.items()}
    assert circle_in(graph) == []


def test_no_room_imports_itself_by_way_of_others():
    def room(module: str) -> str:
        parts = module.removesuffix(".__init__").split(".")
        return ".".join(parts[:2])

    graph: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        graph.setdefault(room(name), set()).update(map(room, imports_of(path)))
    graph = {name: others - {name} for name, others in graph.items()}
    assert circle_in(graph) == []


@pytest.mark.parametrize("name", MODULES)
def test_lib_needs_no_test_and_every_public_name_is_documented(name):
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "a module says what it is for"
    for node in ast.walk(tree):
        module = getattr(node, "module", "") if isinstance(node, ast.ImportFrom) else ""
        assert not (module or "").startswith("tests"), "lib/ stands without tests/"
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"
