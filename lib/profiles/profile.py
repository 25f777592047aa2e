"""What a profile is, and the refusal of whatever it names that there is not.

A misspelt method, setting or entry would otherwise be passed over in silence, and the run would be
another one than its reader asked for. Names of corpora, question sets and encoders are not looked
up here: whoever opens one refuses what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_origin, get_type_hints

from lib.base.parameters import check_count, check_k, check_lam, check_limit, refuse_unknown


@dataclass(frozen=True)
class Profile:
    """Everything that differs between a laptop run and a paper-scale run.

    Raises ValueError, in one line, for a value that is of no use and for a name that is unknown.
    """

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
    """A quick look at so many questions of each set; 0 = all. See ``lib.limit``."""
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
    judge: str
    """Who grades mimics: a ``connect`` spec."""
    generated: dict
    """What a model really writes: its ``llm``, the ``sample`` per set, ``methods`` settings."""
    evidence: dict
    """For the contradiction study: ``name`` of its evidence, ``nli`` model, ``answerers``."""
    backend: str
    devices: tuple[str, ...]
    """``()`` = the CPU, or every CUDA device when there is one."""
    needs: str
    """What a run needs, in a sentence, shown before it starts."""

    def __post_init__(self) -> None:
        _check(f"profile {self.name}", vars(self))

    @property
    def per_set(self) -> int:
        """Questions of each set: ``sample``, or fewer with a limit; 0 = all."""
        return min(filter(None, (self.sample, self.limit)), default=0)


FIELDS = tuple(field.name for field in fields(Profile))
"""What a profile's file may say, and ``name``, which is the file's own name."""

_GENERATED = tuple(name for name in FIELDS if name not in ("name", "generated"))
_EVIDENCE = ("name", "nli", "answerers")
_EVIDENCE_ANSWERER = ("name", "llm", "every")
_KINDS = {"str": (str,), "int": (int,), "dict": (dict,), "tuple": (tuple, list)}
_SAID = {"str": "a text", "dict": "a table", "tuple": "a list"}


def check_methods(where: str, methods: Mapping[str, Any]) -> None:
    """ValueError for a method that is not registered, or a setting that a method does not have."""
    from lib.methods import METHODS

    refuse_unknown(f"{where}: no method", methods, tuple(METHODS))
    if methods.get("hplus"):
        raise ValueError(f"{where}: H+ alone is CHR's own H+. Next: set methods.chr, for both")
    if "lam" in methods.get("chr", ()):
        raise ValueError(
            f"{where}: the row chr is at the paper's lambda, 1. Next: set lam in the notebooks, "
            "for the row chr_given"
        )
    for name, settings in methods.items():
        # What it is called and whether it needs an LLM is the method's own, not a reader's.
        own = [f.name for f in fields(METHODS[name]) if f.name not in ("name", "needs_llm")]
        _check_kind(f"{where}: methods.{name}", settings, "dict")
        refuse_unknown(f"{where}: {name} has no setting", settings, own)


def _check(where: str, settings: Mapping[str, Any]) -> None:
    """Every field of ``settings``, which may lack some: of a profile, or of its ``generated``."""
    for name, value in settings.items():
        hint = get_type_hints(Profile)[name]
        _check_kind(f"{where}: {name}", value, (get_origin(hint) or hint).__name__)
    try:
        _check_numbers(settings)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    check_methods(where, settings.get("methods", {}))
    from lib.methods import METHODS

    refuse_unknown(f"{where}: skip names no method", settings.get("skip", ()), tuple(METHODS))
    _check_recorded(f"{where}: llm", settings.get("llm", "replay:"))
    if "chr" in settings.get("skip", ()):
        raise ValueError(f"{where}: chr cannot be skipped: every table compares with it")
    for answerer in settings.get("answerers", ()):
        _check_answerer(where, answerer)
    _check_evidence(where, settings.get("evidence", {}))
    if generated := settings.get("generated"):
        refuse_unknown(f"{where}: [generated] has no field", generated, _GENERATED)
        _check(f"{where}, [generated]", generated)


def _check_recorded(what: str, spec: str) -> None:
    """ValueError for a server whose replies would be kept nowhere: its cells could not be told from
    those of another model of the same name."""
    if spec.startswith("openai:"):
        raise ValueError(
            f"{what} must say where its replies are kept. "
            f'Next: llm = "record:data/recordings/live/mine.jsonl={spec}"'
        )


def _check_kind(what: str, value: Any, kind: str) -> None:
    # Numbers have checks of their own.
    if kind in _SAID and not isinstance(value, _KINDS[kind]):
        raise ValueError(f"{what} must be {_SAID[kind]}, not {value!r}")


def _check_numbers(settings: Mapping[str, Any]) -> None:
    for name in ("sample", "asked"):
        check_count(name, settings.get(name, 0), least=0)
    check_count("workers", settings.get("workers", 1), least=1)
    check_count("limit", check_limit(settings.get("limit", 0)), least=0)
    check_k(settings.get("k", 1))
    lambdas = settings.get("lambdas", (0.0,))
    if not len(lambdas):
        raise ValueError("lambdas must hold at least one number")
    for lam in lambdas:
        check_lam(lam)


def _check_answerer(where: str, answerer: Any) -> None:
    from lib.readers import READERS

    _check_kind(f"{where}: each of answerers", answerer, "dict")
    kind = answerer.get("kind")
    refuse_unknown(f"{where}: no kind of answerer", [kind], tuple(READERS))
    _check_recorded(f"{where}: llm of an answerer", str(answerer.get("llm", "")))
    # The encoder and the number of workers are the profile's, for all of its answerers.
    own = [f.name for f in fields(READERS[kind]) if f.init and not f.name.startswith("_")]
    own = [name for name in own if name not in ("encoder", "needs_llm", "workers")]
    refuse_unknown(
        f"{where}: the {kind} answerer has no setting", answerer, ["kind", "sample"] + own
    )


def _check_evidence(where: str, evidence: Mapping[str, Any]) -> None:
    refuse_unknown(f"{where}: [evidence] has no field", evidence, _EVIDENCE)
    for answerer in evidence.get("answerers", ()):
        _check_kind(f"{where}: each of evidence.answerers", answerer, "dict")
        refuse_unknown(
            f"{where}: an answerer of [evidence] has no setting", answerer, _EVIDENCE_ANSWERER
        )
        _check_recorded(f"{where}: llm of an answerer", str(answerer.get("llm", "")))
