"""What a profile is. Whatever it names that there is not is refused in one line.

A misspelt method, setting or entry would otherwise be passed over in silence, and the run would be
another one than its reader asked for. Names of corpora, question sets and encoders are not looked
up here: whoever opens one refuses what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
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
    """ValueError for a server whose replies would be kept nowhere: its cells could not be told from
    those of another model of the same name."""
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
