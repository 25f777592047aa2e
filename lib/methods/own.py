"""A method in a file of one's own, loaded where it stands: ``rocchio.py:Rocchio``."""

from __future__ import annotations

import sys
from importlib.abc import FileLoader, SourceLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from lib.base.files import sha256_bytes
from lib.base.paths import ROOT, shown
from lib.methods.base import METHODS, Method, check_method


class _AsItStands(FileLoader, SourceLoader):  # type: ignore[misc]
    """Loads a file as it was read, and keeps no compiled copy beside it.

    ``content`` is what was read: results hang on it (see ``lib.base.provenance.code_hash``).
    """

    def __init__(self, name: str, path: str, content: bytes):
        super().__init__(name, path)
        self.content = content

    def get_data(self, path: str) -> bytes:
        """The text of the file."""
        return self.content


def file_of(named: object, folder: Path) -> str:
    """``file.py:Class`` with the whole path of a file in ``folder`` or, else, in the project.

    ValueError for what names no class of a file, and for a file that is not there.
    """
    file, _, name = str(named).rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise ValueError(
            f'{named!r} names no method\'s file: write "file.py:Class". The built-in methods all '
            "run, without those in skip"
        )
    found = [path for path in (folder / file, ROOT / file) if path.is_file()]
    if not found:
        raise ValueError(f"no file {file}, neither in {shown(folder)} nor in the project's root")
    return f"{found[0].resolve()}:{name}"


def load_method(place: str) -> Method:
    """The method of a place that ``file_of`` gives, with its default settings.

    A file that has changed since is loaded anew; what was made of it before stays what it was.
    ValueError, in one line, for a file that does not load, has no such class or no method.
    """
    file, _, name = place.rpartition(":")
    path = Path(file)
    where = f"{shown(path)}:{name}"
    made = getattr(_module(path), name, None)
    if not isinstance(made, type):
        raise ValueError(f"{where}: the file has no class {name}. Next: name the method's class")
    try:
        method = made()
        check_method(method)
    except TypeError as error:
        raise ValueError(f"{where}: {error}. Next: give every setting a default") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return method


def _module(path: Path) -> ModuleType:
    """The file as a module, loaded once for each text that it has had."""
    content = path.read_bytes()
    name = f"{path.stem}_{sha256_bytes(content + str(path).encode())[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path, loader=_AsItStands(name, str(path), content))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    before = dict(METHODS)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(
            f"{shown(path)} does not load: {said}. Next: mend it; a method is one file, and what "
            "it imports must be installed"
        ) from error
    finally:
        # A file that also registers its method is a method of this profile alone.
        METHODS.clear()
        METHODS.update(before)
    return module
