"""Profiles: which data, corpus, encoder, LLM and sizes. Code never asks which profile it is.

A profile is the file ``<name>.toml`` beside this one, or a file of your own whose ``base`` names
the profile it changes; keyword arguments override its fields. A file that is put beside this one
is a built-in profile: nothing else lists them.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lib.base.parameters import check_limit, first_error, refuse_unknown
from lib.base.paths import ROOT, shown
from lib.profiles.profile import FIELDS, Profile, check_methods

_FOLDER = Path(__file__).parent

_OTHER_RESULTS = ("scale",)
"""Folders of ``data/results`` that belong to no profile."""


ROWS = (
    "chr_given",
    "named_option",
    "closed_book",
    "hypotheses_as_context",
    "random",
    "chr+stranger",
    "chr+rotation",
)
"""Rows of the tables that are no methods; a method of such a name would be counted with them."""


def profile_names() -> tuple[str, ...]:
    """The built-in profiles, by name: one for each TOML file of this folder."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def load_profile(name: str | None = None, **overrides) -> Profile:
    """The profile of that name (default: ``CHR_PROFILE``, else mini), with fields replaced.

    A name that ends in ``.toml`` is a file, from the project's root. What it leaves out is taken
    from its ``base``: tables are merged, at any depth; a list replaces the base's list. With an
    ``llm`` of its own it has neither the base's ``generated``, which another model wrote, nor its
    title. Overrides that are None are ignored, so a notebook can pass its parameters as they are,
    and what it leaves None is the profile's own. A limit becomes part of the name, and so of where
    results go. Raises ValueError, in one line, naming what is unknown and what there is.
    """
    name = name or os.environ.get("CHR_PROFILE") or "mini"
    path = ROOT / name if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if not path.exists():
        known = ", ".join(profile_names())
        raise ValueError(f"no profile {name!r}; there are: {known}. Run: make figures PROFILE=mini")
    settings = _settings(path)
    given = {field: value for field, value in overrides.items() if value is not None}
    refuse_unknown("a profile has no field", given, FIELDS)
    if "llm" in given:
        given = _by_another_writer(path.stem, given)
    if check_limit(given.get("limit")):
        # A quick look must not overwrite the results of the whole profile.
        given["name"] = f"{path.stem}-{given['limit']}"
        given.setdefault("title", f"{settings['title']} (a quick look: LIMIT={given['limit']})")
    try:
        return Profile(**{"name": path.stem} | settings | given)
    except ValidationError as error:
        raise ValueError(f"profile {path.stem}: {first_error(error)}") from None


def methods_of(profile: Profile, **settings) -> dict:
    """``lib.methods.METHODS`` with the profile's settings, and ``settings`` = {method: {...}}.

    H+ alone is CHR as it is set here, at lambda 0. Raises ValueError for a method or a setting that
    there is not, and for a method that is called like another row of the tables. Capitals do not
    count: not every file system tells them apart.
    """
    from lib.methods import METHODS
    from lib.methods.chr import HPlus

    check_methods(settings)
    taken = {row.casefold(): row for row in ROWS}
    for name in METHODS:
        if other := taken.get(name.casefold()):
            raise ValueError(
                f"a method is called {name!r}, but {other!r} is a row of the tables already: "
                "give yours another name"
            )
        taken[name.casefold()] = name
    found = {
        name: replace(method, **profile.methods.get(name, {}) | settings.get(name, {}))
        for name, method in METHODS.items()
    }
    found["hplus"] = HPlus.of(found["chr"])
    return {name: method for name, method in found.items() if name not in profile.skip}


def profile_table():
    """What each built-in profile runs on and needs, as a DataFrame."""
    import pandas as pd

    rows = [load_profile(name) for name in profile_names()]
    return pd.DataFrame(
        {
            "profile": p.name,
            "passages": ", ".join(p.corpora),
            "encoder": p.encoder,
            "llm": p.llm.partition(":")[2] or p.llm,
            "needs": p.needs,
        }
        for p in rows
    )


def _settings(path: Path) -> dict[str, Any]:
    """Every field but the name: as the file says, and where it is silent, as its base does."""
    settings = _read(path)
    if not path.resolve().is_relative_to(_FOLDER.resolve()):
        _check_own_name(path)
    base = settings.pop("base", None)
    known = [field for field in FIELDS if field != "name"]
    refuse_unknown(f"{shown(path)}: a profile has no field", settings, ["base", *known])
    if base is not None:
        refuse_unknown(f"{shown(path)}: base names no built-in profile", [base], profile_names())
        behind = _settings(_FOLDER / f"{base}.toml")
        if "llm" in settings:
            behind |= _by_another_writer(f"{path.stem}: as {base}", {"llm": settings["llm"]})
        settings = _merged(behind, settings)
    if missing := [field for field in known if field not in settings]:
        raise ValueError(
            f'{shown(path)} does not say {", ".join(missing)}; begin it with: base = "mini"'
        )
    return settings


def _by_another_writer(named: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` that name an ``llm``, with the title and ``generated`` that go with it."""
    from lib.llm.connect import writer_of

    title = f"{named}, texts by {writer_of(str(settings['llm']))}"
    return {"title": title, "generated": {}} | settings


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{shown(path)} is not UTF-8 ({error}); save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{shown(path)} is not TOML: {error}") from None


def _check_own_name(path: Path) -> None:
    """Results go to a folder of the profile's name: it must not be one that is taken.

    Capitals do not count: on some file systems they do not tell two folders apart.
    """
    name = path.stem.casefold()
    for taken in (*profile_names(), *_OTHER_RESULTS):
        if name == taken or re.fullmatch(rf"{re.escape(taken)}-\d+", name):
            raise ValueError(
                f"{shown(path)}: its results would overwrite those of {name}; rename the file"
            )


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with what ``own`` says instead, table by table at any depth."""
    merged = dict(base)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merged(base[key], value) if both else value
    return merged
