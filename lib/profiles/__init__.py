"""Profiles: which data, corpus, encoder, LLM and sizes. Code never asks which profile it is.

A profile is the file ``<name>.toml`` beside this one, or a file of your own whose ``base`` names
the profile it changes; keyword arguments override its fields. A file that is put beside this one
is a built-in profile: nothing else lists them.

An unknown name in a profile is refused with an error of one line. A misspelt method, setting or
entry would otherwise be ignored without notice, and the run would not be the one that was asked
for. Names of corpora, question sets and encoders are not checked here: the code that opens one
refuses an unknown name.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from lib.base.parameters import (
    check_count,
    check_k,
    check_lam,
    check_limit,
    first_error,
    refuse_unknown,
)
from lib.base.paths import ROOT, shown

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


# what a profile is -------------------------------------------------------------------------------


def _counted(name: str, least: int) -> BeforeValidator:
    return BeforeValidator(lambda value: check_count(name, value, least))


def _names_of_methods(names: tuple[str, ...]) -> tuple[str, ...]:
    from lib.methods import METHODS

    refuse_unknown("no method", names, tuple(METHODS))
    if "chr" in names:
        raise ValueError("chr cannot be skipped: every table compares with it")
    return names


def check_methods(methods: Mapping[str, Any]) -> Mapping[str, Any]:
    """ValueError for a method that is not registered, or a setting that a method does not have."""
    from lib.methods import METHODS

    refuse_unknown("no method", methods, tuple(METHODS))
    if methods.get("hplus"):
        raise ValueError("H+ alone is CHR's own H+. Next: set methods.chr, for both")
    if "lam" in methods.get("chr", ()):
        raise ValueError(
            "the row chr is at the paper's lambda, 1. Next: set lam in the notebooks, for the row "
            "chr_given"
        )
    for name, settings in methods.items():
        # What it is called and whether it needs an LLM is the method's own, not a reader's.
        own = [f.name for f in fields(METHODS[name]) if f.name not in ("name", "needs_llm")]
        refuse_unknown(f"{name} has no setting", settings, own)
        _check_values(name, type(METHODS[name]), settings)
    return methods


def _check_values(where: str, settled: type, settings: Mapping[str, Any]) -> None:
    """ValueError for a setting whose value is not of the type that the class gives the field."""
    hints = get_type_hints(settled)
    for name, value in settings.items():
        try:
            TypeAdapter(hints[name]).validate_python(value, strict=True)
        except ValidationError as error:
            raise ValueError(f"{where}.{name}{first_error(error)}") from None


def _recorded(spec: str) -> str:
    """ValueError for a server whose replies would not be recorded: its cells could not be
    distinguished from those of another model of the same name."""
    if spec.startswith("openai:"):
        raise ValueError(
            "it must say where its replies are kept. "
            f'Next: llm = "record:data/recordings/live/mine.jsonl={spec}"'
        )
    return spec


def _answerer(settings: dict) -> dict:
    from lib.readers import READERS

    kind = settings.get("kind")
    refuse_unknown("no kind of answerer", [kind], tuple(READERS))
    _recorded(str(settings.get("llm", "")))
    # The encoder and the number of workers are the profile's, for all of its answerers.
    own = [f.name for f in fields(READERS[kind]) if f.init and not f.name.startswith("_")]
    own = [name for name in own if name not in ("encoder", "needs_llm", "workers")]
    refuse_unknown(f"the {kind} answerer has no setting", settings, ["kind", "sample", *own])
    values = {name: value for name, value in settings.items() if name in own and name != "llm"}
    _check_values(f"the {kind} answerer", READERS[kind], values)
    return settings


def _evidence(settings: dict) -> dict:
    refuse_unknown("[evidence] has no field", settings, ("name", "nli", "answerers"))
    for answerer in TypeAdapter(list[dict]).validate_python(settings.get("answerers", [])):
        known = ("name", "llm", "every")
        refuse_unknown("an answerer of [evidence] has no setting", answerer, known)
        _recorded(str(answerer.get("llm", "")))
    return settings


Spec = Annotated[str, AfterValidator(_recorded)]
Methods = Annotated[dict[str, dict], AfterValidator(check_methods)]
Lambda = Annotated[float, BeforeValidator(check_lam)]


@dataclass(frozen=True)
class Profile:
    """Everything that differs between a laptop run and a paper-scale run.

    Raises ValueError for a value that is of no use and for a name that is unknown.
    """

    name: str
    title: str
    """What tables and figures of this profile are headed with."""
    questions: tuple[str, ...]
    """Names for ``load_questions``."""
    sample: Annotated[int, _counted("sample", 0)]
    """Questions per set; 0 = all."""
    asked: Annotated[int, _counted("asked", 0)]
    """Questions per set that an LLM is asked about; 0 = all of them."""
    corpora: tuple[str, ...]
    """Names for ``load_passages``, in index order."""
    limit: Annotated[int, BeforeValidator(check_limit)]
    """A quick look at so many questions of each set; 0 = all. See ``lib.limit``."""
    encoder: str
    encoder_options: dict
    llm: Spec
    """A ``connect`` spec; ``replay`` = the committed recordings."""
    benchmarks: tuple[str, ...]
    """Which target/mimic benchmarks the lambda study runs on."""
    k: Annotated[int, BeforeValidator(check_k)]
    lambdas: Annotated[tuple[Lambda, ...], Field(min_length=1)]
    vectors: str
    """Stored as float32 or float16."""
    methods: Methods
    """Settings of retrieval methods that differ from their defaults, by method."""
    skip: Annotated[tuple[str, ...], AfterValidator(_names_of_methods)]
    """Retrieval methods that are not run."""
    workers: Annotated[int, _counted("workers", 1)]
    """Requests to an LLM server in flight at once."""
    answerers: tuple[Annotated[dict, AfterValidator(_answerer)], ...]
    """Who answers: settings for ``lib.readers.load_reader``, and ``sample`` questions per set."""
    judge: str
    """Who grades mimics: a ``connect`` spec."""
    generated: dict
    """What a model really writes: its ``llm``, the ``sample`` per set, ``methods`` settings."""
    evidence: Annotated[dict, AfterValidator(_evidence)]
    """For the contradiction study: ``name`` of its evidence, ``nli`` model, ``answerers``."""
    backend: str
    devices: tuple[str, ...]
    """``()`` = the CPU, or every CUDA device when there is one."""
    needs: str
    """What a run needs, in a sentence, shown before it starts."""

    def __post_init__(self) -> None:
        """``generated`` is checked as the profile that it makes of this one."""
        if self.generated:
            known = tuple(name for name in FIELDS if name not in ("name", "generated"))
            refuse_unknown("[generated] has no field", self.generated, known)
            try:
                replace(self, **self.generated, generated={})
            except ValidationError as error:
                raise ValueError(f"[generated]: {first_error(error)}") from None

    @property
    def per_set(self) -> int:
        """Questions of each set: ``sample``, or fewer with a limit; 0 = all."""
        return min(filter(None, (self.sample, self.limit)), default=0)


FIELDS = tuple(field.name for field in fields(Profile))
"""What a profile's file may say, and ``name``, which is the file's own name."""


# reading one -------------------------------------------------------------------------------------


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
    """Every field but the name: from the file, or from its base where the file lacks it."""
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
