"""The studies: what each compares, on what, and the tables that follow (see ``lib.study``)."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lib.profiles import Profile
    from lib.study import Study


def further() -> dict[str, Study]:
    """The studies that draw a figure of their own, by their module: ``STUDY`` in a file beside this
    one. ``make figures`` and ``make verify`` run them after the notebooks."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.ispkg:
            study = getattr(import_module(f"{__name__}.{module.name}"), "STUDY", None)
            if study is not None and study.draw is not None:
                found[module.name] = study
    return found


def show(name: str, study: Study, profile: Profile) -> None:
    """Make a study of ``further`` under any profile, and save its figure under ``name``."""
    from lib.plots.style import save
    from lib.study import make

    figure, rows = study.draw(make(study, profile, study.load(profile)))  # type: ignore[misc]
    save(figure, name, profile.name, rows)
