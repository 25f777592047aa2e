"""Profiles: which data, corpus, encoder, LLM and sizes. Code never asks which profile it is.

A profile is the file ``<name>.toml`` beside this one, or a file of your own whose ``base`` names
the profile it changes; keyword arguments override its fields.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path

from lib.base.paths import ROOT

__all__ = ["Profile", "load_profile", "methods_of", "profile_table"]


@dataclass(frozen=True)
class Profile:
    """Everything that differs between a laptop run and a paper-scale run."""

    name: str
    title: str
    """What tables and figures of this profile are headed with."""
    questions: tuple[str, ...]
    """Names for ``load_questions``."""
    sample: int
    """Questions per set; 0 = all."""
    asked: int
    """Questions per set that an LLM is asked about; 0 = all of them."""
    corpora: tuple[str, ...]
    """Names for ``load_passages``, in index order."""
    limit: int
    """Passages per corpus and questions per set; 0 = all. For quick looks and CI."""
    encoder: str
    encoder_options: dict
    llm: str
    """A ``connect`` spec; ``replay`` = the committed recordings."""
    benchmarks: tuple[str, ...]
    """Which target/mimic benchmarks the lambda study runs on."""
    k: int
    lambdas: tuple[float, ...]
    vectors: str
    """Stored as float32 or float16."""
    methods: dict
    """Settings of retrieval methods that differ from their defaults, by method."""
    skip: tuple[str, ...]
    """Retrieval methods that are not run."""
    workers: int
    """Requests to an LLM server in flight at once."""
    answerers: tuple[dict, ...]
    """Who answers: settings for ``lib.readers.load_reader``, and ``sample`` questions per set."""
    generated: dict
    """What a model really writes: its ``llm``, the ``sample`` per set, ``methods`` settings."""
    evidence: dict
    """For the contradiction study: ``name`` of its evidence, ``nli`` model, ``answerers``."""
    backend: str
    devices: tuple[str, ...]
    """``()`` = the CPU, or every CUDA device when there is one."""
    needs: str
    """What a run needs, in a sentence, shown before it starts."""


def load_profile(name: str | None = None, **overrides) -> Profile:
    """The profile of that name (default: ``CHR_PROFILE``, else mini), with fields replaced.

    A name that ends in ``.toml`` is a file, from the project's root; what it leaves out is taken
    from its ``base``.
    Overrides that are None are ignored, so a notebook can pass its parameters as they are. A limit
    becomes part of the name, and so of where results go. Raises
    ValueError naming the profiles or fields there are.
    """
    name = name or os.environ.get("CHR_PROFILE") or "mini"
    folder = Path(__file__).parent
    path = ROOT / name if name.endswith(".toml") else folder / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.toml")))
        raise ValueError(f"no profile {name!r}; there are: {known}. Run: make figures PROFILE=mini")
    settings = tomllib.loads(path.read_text(encoding="utf-8"))
    if base := settings.pop("base", ""):
        settings = tomllib.loads((folder / f"{base}.toml").read_text(encoding="utf-8")) | settings
    profile = Profile(name=path.stem, **{k: _frozen(v) for k, v in settings.items()})
    given = {k: _frozen(v) for k, v in overrides.items() if v is not None}
    if unknown := set(given) - {f.name for f in fields(Profile)}:
        raise ValueError(f"a profile has no field {', '.join(sorted(unknown))}")
    if given.get("limit"):
        # A quick look must not overwrite the results of the whole profile.
        given["name"] = f"{profile.name}-{given['limit']}"
    return replace(profile, **given)


def methods_of(profile: Profile, **settings) -> dict:
    """``lib.methods.METHODS`` with the profile's settings, and ``settings`` = {method: {...}}."""
    from lib.methods import METHODS

    return {
        name: replace(method, **profile.methods.get(name, {}) | settings.get(name, {}))
        for name, method in METHODS.items()
        if name not in profile.skip
    }


def profile_table():
    """What each profile runs on and needs, as a DataFrame."""
    import pandas as pd

    rows = [load_profile(name) for name in ("mini", "open", "paper")]
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


def _frozen(value):
    return tuple(value) if isinstance(value, list) else value
