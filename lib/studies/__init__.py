"""The studies: what each compares, on what, and the tables that follow (see ``lib.study``)."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    import pandas as pd

    from lib.profiles import Profile


def further() -> dict[str, ModuleType]:
    """The studies that no notebook shows, by name: files beside this one with a ``STUDY`` and a
    ``draw``. ``make figures`` and ``make verify`` run them after the notebooks."""
    found = {}
    for file in pkgutil.iter_modules(__path__):
        if not file.ispkg:
            module = import_module(f"{__name__}.{file.name}")
            if hasattr(module, "STUDY") and hasattr(module, "draw"):
                found[file.name] = module
    return found


def tables(name: str, profile: Profile) -> dict[str, pd.DataFrame]:
    """``lib.study.run`` of a package's ``study.STUDY``.

    It is only imported by a profile that makes its tables: ``TABLES`` of the package are committed.
    """
    from lib.limit import makes_real
    from lib.study import read_committed, run

    package = f"{__name__}.{name}"
    if not makes_real(profile):
        return read_committed(import_module(package).TABLES, profile, name)
    return run(import_module(f"{package}.study").STUDY, profile)


def show(name: str, module: ModuleType, profile: Profile) -> None:
    """Make a study of ``further`` under any profile, and save under ``name`` the figure that
    ``draw(results)`` gives with the rows drawn."""
    from lib.plots.style import save
    from lib.study import make

    study = module.STUDY
    figure, rows = module.draw(make(study, profile, study.load(profile)))
    save(figure, name, profile.name, rows)
