"""Profiles: which data, corpus, encoder, LLM and sizes. Code never asks which profile it is.

A profile is the file ``<name>.toml`` beside this one, or a file of your own whose ``base`` names
the profile it changes; keyword arguments override its fields. A file that is put beside this one
is a built-in profile: nothing else lists them.

An unknown name in a profile of one's own is refused with an error of one line. A misspelt method,
setting or entry would otherwise be ignored without notice, and the run would not be the one that
was asked for. Names of corpora, question sets and encoders are not checked here: the code that
opens one refuses an unknown name.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from lib.base.files import canonical_json, sha256_bytes, sha256_of
from lib.base.parameters import (
    check_count,
    check_k,
    check_lam,
    check_limit,
    first_error,
    refuse_unknown,
)
from lib.base.paths import ROOT, is_own, outputs, say_once, shown

_FOLDER = Path(__file__).parent

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


def registry(methods: Mapping[str, Any]) -> dict[str, Any]:
    """``lib.methods.METHODS``, and after them the methods that a profile adds, each called by its
    key: those in files of their own, and those ``like`` another with other settings.

    ValueError for one that is called like another, or like another row of the tables. Capitals do
    not count: not every file system tells them apart.
    """
    from lib.methods import METHODS
    from lib.methods.own import load_method

    found = dict(METHODS)
    for name, settings in methods.items():
        if not _adds(settings):
            continue
        if name in METHODS:
            where = f"{shown(Path(settings['file']))}: " if "file" in settings else ""
            raise ValueError(
                f"{where}another method is called {name!r}. Next: give yours another name"
            )
        if "file" in settings:
            added = load_method(settings["file"])
        else:
            refuse_unknown(f"methods.{name} is like no method", [settings["like"]], tuple(METHODS))
            added = METHODS[settings["like"]]
        found[name] = replace(added, name=name)
    taken = {row.casefold(): row for row in ROWS}
    for name in found:
        if other := taken.get(name.casefold()):
            raise ValueError(
                f"a method is called {name!r}, but {other!r} is a row of the tables already: "
                "give yours another name"
            )
        taken[name.casefold()] = name
    return found


def check_methods(methods: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """ValueError for a method that is not ``known``, or a setting that a method does not have."""
    refuse_unknown("no method", methods, tuple(known))
    if methods.get("hplus"):
        raise ValueError("H+ alone is CHR's own H+. Next: set methods.chr, for both")
    if "lam" in methods.get("chr", ()):
        raise ValueError(
            "the row chr is at the paper's lambda, 1. Next: set lam in the notebooks, for the row "
            "chr_given"
        )
    for name, given in methods.items():
        settings = _own_settings(given)
        # What it is called and whether it needs an LLM is the method's own, not a reader's.
        own = [f.name for f in fields(known[name]) if f.name not in ("name", "needs_llm")]
        refuse_unknown(f"{name} has no setting", settings, own)
        _check_values(name, type(known[name]), settings)


_ADDS = ("file", "like")


def _adds(settings: object) -> bool:
    """Whether a method's settings add it: they say which file it is in, or which it is like."""
    return isinstance(settings, dict) and not settings.keys().isdisjoint(_ADDS)


def _own_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a class is given: without what adds it; TOML's lists are tuples, which never change."""
    own = {name: value for name, value in settings.items() if name not in _ADDS}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in own.items()}


def _check_values(where: str, settled: type, settings: Mapping[str, Any]) -> None:
    """ValueError for a setting whose value is not of the type that the class gives the field."""
    hints = get_type_hints(settled)
    for name, value in settings.items():
        try:
            TypeAdapter(hints[name]).validate_python(value, strict=True)
        except ValidationError as error:
            raise ValueError(f"{where}.{name}{first_error(error)}") from None


def _recorded(spec: str) -> str:
    """ValueError for a model whose replies would not be recorded: its cells could not be
    distinguished from those of another model of the same name."""
    from lib.llm.connect import is_live

    if is_live(spec):
        raise ValueError(
            "it must say where its replies are kept. "
            f'Next: llm = "record:data/recordings/live/mine.jsonl={spec}"'
        )
    return spec


def _check_answerer(settings: Mapping[str, Any]) -> None:
    from lib.readers import READERS

    kind = settings.get("kind")
    refuse_unknown("no kind of answerer", [kind], tuple(READERS))
    _recorded(str(settings.get("llm", "")))
    # The encoder and the number of workers are the profile's, for all of its answerers.
    own = [f.name for f in fields(READERS[kind]) if f.init and not f.name.startswith("_")]
    own = [name for name in own if name not in ("encoder", "needs_llm", "workers")]
    refuse_unknown(f"the {kind} answerer has no setting", settings, ["kind", *own])
    values = {name: value for name, value in settings.items() if name in own and name != "llm"}
    _check_values(f"the {kind} answerer", READERS[kind], values)


def check_names(profile: Profile) -> None:
    """ValueError for a method, a kind of answerer or a setting of theirs that there is not."""
    known = registry(profile.methods)
    refuse_unknown("skip names no method", profile.skip, tuple(known))
    if "chr" in profile.skip:
        raise ValueError("skip: chr cannot be skipped: every table compares with it")
    check_methods(profile.methods, known)
    for answerer in profile.answerers:
        _check_answerer(answerer)
    if profile.generated:
        check_names(replace(profile, **profile.generated, generated={}))


_OF_EVIDENCE = (
    *("name", "nli", "email", "answerers", "prompt", "scoring", "ranking", "selection", "measures"),
    *("encoder", "sentence_encoder"),
)


def _evidence(settings: dict) -> dict:
    refuse_unknown("[evidence] has no field", settings, _OF_EVIDENCE)
    for answerer in TypeAdapter(list[dict]).validate_python(settings.get("answerers", [])):
        known = ("name", "llm", "every")
        refuse_unknown("an answerer of [evidence] has no setting", answerer, known)
        _recorded(str(answerer.get("llm", "")))
    return settings


def _sweep(settings: dict) -> dict:
    known = ("answerer", "dataset", "dev")
    refuse_unknown("[sweep] has no field", settings, known)
    dev = settings.get("dev")
    if settings and (set(settings) < set(known) or not isinstance(dev, float) or not 0 < dev < 1):
        raise ValueError(
            "[sweep] names an answerer, a dataset, and dev: the share of its questions that "
            f"chooses lambda, such as 0.25, not {dev!r}"
        )
    return settings


Spec = Annotated[str, AfterValidator(_recorded)]
Lambda = Annotated[float, BeforeValidator(check_lam)]


@dataclass(frozen=True)
class Profile:
    """Everything that differs between a laptop run and a paper-scale run.

    Raises ValueError for a value that is of no use; ``check_names`` for a name that is unknown.
    """

    name: str
    title: str
    """What tables and figures of this profile are headed with."""
    questions: tuple[str, ...]
    """Names for ``load_questions``, or paths of your own files."""
    sample: Annotated[int, _counted("sample", 0)]
    """Questions per set; 0 = all."""
    corpora: tuple[str, ...]
    """Names for ``load_passages``, in index order, or paths of your own files and folders."""
    qrels: str
    """A file of relevance judgments for questions of your own ("": none is known)."""
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
    methods: dict[str, dict]
    """Settings of retrieval methods that differ from their defaults, by method; ``file`` names the
    file and class of a method of one's own, ``like`` a method that is run once more with other
    settings: its defaults, or all that the profile says of one that it adds itself. Or a list of
    files: see ``load_profile``."""
    skip: tuple[str, ...]
    """Retrieval methods that are not run."""
    workers: Annotated[int, _counted("workers", 1)]
    """Requests to an LLM server in flight at once."""
    answerers: tuple[dict, ...]
    """Who answers: settings for ``lib.readers.load_reader``."""
    sweep: Annotated[dict, AfterValidator(_sweep)]
    """The paper's Figure 5: CHR at each of ``lambdas`` is answered by the ``answerer`` of that name
    on the ``dataset``, whose share ``dev`` chooses lambda. Empty: no language model answers it."""
    judge: str
    """Who grades mimics: a ``connect`` spec."""
    generated: dict
    """What a model really writes: its ``llm``, the ``sample`` per set, ``methods`` settings."""
    evidence: Annotated[dict, AfterValidator(_evidence)]
    """For the contradiction study: ``name`` of its evidence, ``nli`` model, ``answerers`` and their
    ``prompt``, the ``email`` that PubMed is told (else NCBI_EMAIL), the ``encoder`` of abstracts
    and the ``sentence_encoder`` (else the search's), changes to its ``SETTINGS``."""
    backend: Literal["faiss", "torch", "int8", "compressed", "auto"]
    """How passages are searched: faiss, torch or int8 (exact), compressed, or auto."""
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
    from its ``base``: tables are merged, at any depth; a list replaces the base's list. Its title,
    where it gives none, says what it changes. With an ``llm`` of its own it has not the base's
    ``generated``, which another model wrote.

    Questions, corpora and qrels may be paths. ``methods`` is a table of settings by method, in
    which ``file = "mine.py:Mine"`` adds a method of your own under that key; or a list of such
    files, whose methods are added under the names that their classes give them. Files are looked
    for beside the profile's (of an override: in the working folder), then in the root.

    Overrides that are None are ignored, so a notebook can pass its parameters as they are, and what
    it leaves None is the profile's own. What differs from the profile's own becomes part of the
    name, and so of where results go, which is printed: "mini-x1a2b3c4d", or "mini-50" for a limit.
    Raises ValueError, in one line, naming what is unknown and what there is.
    """
    name = name or os.environ.get("CHR_PROFILE") or "mini"
    path = ROOT / name if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if not path.exists():
        known = ", ".join(profile_names())
        raise ValueError(f"no profile {name!r}; there are: {known}. Run: make figures PROFILE=mini")
    settings = {"name": path.stem} | _settings(path)
    given = {field: value for field, value in overrides.items() if value is not None}
    refuse_unknown("a profile has no field", given, FIELDS)
    if "methods" in given:
        own, adds = _by_name(given["methods"], Path.cwd()), isinstance(given["methods"], list)
        given["methods"] = _merged(settings["methods"], own) if adds else own
    given = _with_whole_paths(given, Path.cwd())
    profile = _profile(settings)
    if given.get("llm", profile.llm) != profile.llm:
        settings |= _by_another_writer(path.stem, given["llm"])
    if given:
        profile = _under_its_own_name(profile, _profile(settings | given), given)
    # The built-in ones name what there is (a test says so), and need not load it for that.
    if path.parent != _FOLDER or given.keys() & {"methods", "skip", "answerers", "generated"}:
        try:
            check_names(profile)
        except ValueError as error:
            raise ValueError(f"profile {path.stem}: {error}") from None
    return profile


def _profile(settings: dict[str, Any]) -> Profile:
    try:
        return Profile(**_with_own_methods(settings))
    except ValidationError as error:
        raise ValueError(f"profile {settings['name']}: {first_error(error)}") from None


def _under_its_own_name(before: Profile, profile: Profile, given: Iterable[str]) -> Profile:
    """The profile named after what an override changed, so that the results of the profile that it
    was made of stay; where results go is printed. As it is where nothing was changed."""
    changed = {f: v for f in given if (v := getattr(profile, f)) != getattr(before, f)}
    limit = changed.pop("limit") if changed.get("limit") else 0
    name, title = profile.name, profile.title
    if changed:
        by_content = changed | {f: _content(changed[f]) for f in _PATHS if f in changed}
        name += f"-x{sha256_bytes(canonical_json(by_content).encode())[:8]}"
        said = [f"{f} = {_told(v)}" for f, v in changed.items() if f not in ("llm", "title")]
        title += f" (changed: {', '.join(said)})" if said else ""
    if limit:
        name += f"-{limit}"
        title += f" (a quick look: LIMIT={limit})"
    if name != before.name:
        places = (it.relative_to(ROOT) if it.is_relative_to(ROOT) else it for it in outputs(name))
        to_results, to_figures = places
        say_once(f"{title}: results go to {to_results}, figures to {to_figures}")
    return replace(profile, name=name, title=title)


def _told(value: Any) -> str:
    """A value in a title: short, and own files by their names."""
    entries = value if isinstance(value, tuple) else (value,)
    if entries and all(isinstance(entry, str) for entry in entries):
        return ", ".join(Path(entry).name if is_own(entry) else entry for entry in entries)
    return f"{value!r:.60}"


def _content(value: str | Sequence[str]) -> list[str]:
    """Names as they are, and hashes of what own files hold."""
    entries = [value] if isinstance(value, str) else value
    return [sha256_of(Path(entry)) if is_own(entry) else entry for entry in entries]


def _settings(path: Path) -> dict[str, Any]:
    """Every field but the name: from the file, or from its base where the file lacks it."""
    settings = _read(path)
    for table in (settings, settings.get("generated")):
        if isinstance(table, dict) and "methods" in table:
            try:
                table["methods"] = _by_name(table["methods"], path.parent)
            except ValueError as error:
                raise ValueError(f"profile {path.stem}: {error}") from None
    if not path.resolve().is_relative_to(_FOLDER.resolve()):
        _check_own_name(path)
    settings = _with_whole_paths(settings, path.parent)
    base = settings.pop("base", None)
    known = [field for field in FIELDS if field != "name"]
    refuse_unknown(f"{shown(path)}: a profile has no field", settings, ["base", *known])
    if base is not None:
        refuse_unknown(f"{shown(path)}: base names no built-in profile", [base], profile_names())
        behind = _settings(_FOLDER / f"{base}.toml")
        behind["title"] = f"{path.stem}: as {base}"
        if "llm" in settings:
            behind |= _by_another_writer(behind["title"], settings["llm"])
        if others := [field for field in settings if field != "llm"]:
            behind["title"] += f", but for {', '.join(others)}"
        settings = _merged(behind, settings)
    if missing := [field for field in known if field not in settings]:
        raise ValueError(
            f'{shown(path)} does not say {", ".join(missing)}; begin it with: base = "mini"'
        )
    return settings


_PATHS = ("questions", "corpora", "qrels")
"""Fields that may name files of your own."""


def _with_whole_paths(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings with the whole paths of own files, which are given from ``folder`` or from the
    project's root; ValueError for one that is in neither."""

    def whole(entry: Any) -> Any:
        if not isinstance(entry, Path) and not (isinstance(entry, str) and is_own(entry)):
            return entry
        tried = [home / Path(entry).expanduser() for home in (folder, ROOT)]
        found = next((path for path in tried if path.exists()), None)
        if found is None:
            raise ValueError(f"there is no {entry}, seen from {folder} and from {ROOT}")
        return str(found.resolve())

    located = dict(settings)
    for field in (field for field in _PATHS if field in settings):
        value = settings[field]
        is_list = isinstance(value, (list, tuple))
        located[field] = tuple(map(whole, value)) if is_list else whole(value)
    return located


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{shown(path)} is not UTF-8 ({error}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{shown(path)} is not TOML: {error}") from None


def _by_name(methods: Any, folder: Path) -> Any:
    """``methods`` as a table by name, in which every ``file`` has its whole path.

    ValueError for two of a name, and for what is neither a table nor a list.
    """
    if isinstance(methods, dict) and not any(map(_adds, methods.values())):
        return methods
    from lib.methods.own import file_of, load_method

    if isinstance(methods, list):
        found: dict[str, dict] = {}
        for place in (file_of(named, folder) for named in methods):
            name = load_method(place).name
            if name in found:
                raise ValueError(f"two methods are called {name!r}: give one another name")
            found[name] = {"file": place}
        return found
    if not isinstance(methods, dict):
        raise ValueError(
            f'methods is a list of files, ["mine.py:Mine"], or a table of settings by method, not '
            f"{methods!r}"
        )
    whole = {
        name: said | {"file": file_of(said["file"], folder)}
        for name, said in methods.items()
        if isinstance(said, dict) and "file" in said
    }
    return methods | whole


def _with_own_methods(settings: dict[str, Any]) -> dict[str, Any]:
    """A profile's fields, in which what a model really writes has the same methods of one's own."""
    generated, methods = settings["generated"], settings["methods"]
    if not isinstance(methods, dict):
        return settings
    methods = {name: _as_its_like(said, methods) for name, said in methods.items()}
    settings = settings | {"methods": methods}
    if not (isinstance(generated, dict) and "methods" in generated):
        return settings
    own = {name: said for name, said in methods.items() if _adds(said)}
    return settings | {"generated": generated | {"methods": _merged(own, generated["methods"])}}


def _as_its_like(said: Any, methods: Mapping[str, Any]) -> Any:
    """What is said of a method; with those of the one it is ``like``, if the profile adds that."""
    other = methods.get(said["like"]) if _adds(said) and "like" in said else None
    if not _adds(other):
        return said
    return other | {name: value for name, value in said.items() if name != "like"}


def _by_another_writer(named: str, llm: object) -> dict[str, Any]:
    """The title and ``generated`` that go with another ``llm`` than the base's."""
    from lib.llm.connect import writer_of

    return {"title": f"{named}, texts by {writer_of(str(llm))}", "generated": {}}


def _check_own_name(path: Path) -> None:
    """Results go to a folder of the profile's name: it must not be one that is taken.

    Capitals do not count: on some file systems they do not tell two folders apart.
    """
    name = path.stem.casefold()
    # "scale" has results of no profile, "mini-50" those of a quick look, "mini-x..." of overrides.
    if re.sub(r"(-x[0-9a-f]{8})?(-\d+)?$", "", name) in (*profile_names(), "scale"):
        raise ValueError(
            f"{shown(path)}: its results would overwrite those of {name}; rename the file"
        )


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with what ``changes`` says instead, table by table at any depth."""
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merged(base[key], value) if both else value
    return merged


def methods_of(profile: Profile, **settings) -> dict:
    """``lib.methods.METHODS`` with the profile's settings, and ``settings`` = {method: {...}}.

    The profile's own methods (``registry``) follow. H+ alone is CHR as it is set here, at lambda 0.
    Raises ValueError for a method or a setting that there is not.
    """
    from lib.methods.chr import HPlus

    known = registry(profile.methods)
    check_methods(settings, known)
    found = {}
    for name, method in known.items():
        changes = profile.methods.get(name, {}) | settings.get(name, {})
        found[name] = replace(method, **_own_settings(changes))
    found["hplus"] = HPlus.of(found["chr"])
    return {name: method for name, method in found.items() if name not in profile.skip}


def profile_table():
    """What each built-in profile runs on and needs, as a DataFrame."""
    import pandas as pd

    rows = []
    for profile in map(load_profile, profile_names()):
        llm = profile.llm.partition(":")[2] or profile.llm
        passages = ", ".join(profile.corpora)
        rows.append((profile.name, passages, profile.encoder, llm, profile.needs))
    return pd.DataFrame(rows, columns=["profile", "passages", "encoder", "llm", "needs"])
