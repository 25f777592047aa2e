"""The project's shape: arrows point one way, and every public name says what it is."""

from __future__ import annotations

import ast

from lib.base import paths

LIB = paths.ROOT / "lib"
MODULES = {
    path.relative_to(paths.ROOT).with_suffix("").as_posix().replace("/", "."): path
    for path in sorted(LIB.rglob("*.py"))
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def known(module: str) -> str:
    """The name under which ``MODULES`` has a module or a package; empty where it has neither."""
    return next((name for name in (module, f"{module}.__init__") if name in MODULES), "")


def imports_of(path) -> set[str]:
    """The project modules that a file imports, at its top or inside its functions.

    Of a package its modules are taken; the package itself only where it has the name.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                found.add(known(f"{node.module}.{name.name}") or known(node.module))
        elif isinstance(node, ast.Import):
            found |= {known(name.name) for name in node.names}
    return found - {""}


def room_of(module: str) -> str:
    """The folder or single file of lib/ that a module is in; every study is a room of its own."""
    parts = module.removesuffix(".__init__").split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["studies"] else 2])


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """Names along one circle of a graph; empty where there is none."""
    done: set[str] = set()

    def walk(name: str, spec: list[str]) -> list[str]:
        if name in spec:
            return [*spec[spec.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph.get(name, ())):
            if found := walk(other, [*spec, name]):
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
    graph: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        graph.setdefault(room_of(name), set()).update(map(room_of, imports_of(path)))
    graph = {name: others - {name} for name, others in graph.items()}
    assert "lib.studies.real" in graph and circle_in(graph) == []


def test_lib_needs_no_test_and_every_public_name_is_documented():
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), f"{name} says what it is for"
        for node in ast.walk(tree):
            module = getattr(node, "module", "") if isinstance(node, ast.ImportFrom) else ""
            assert not (module or "").startswith(("tests", "tools")), f"{name} stands by itself"
        for node in tree.body:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{name}.{node.name} has no docstring"
