"""The strict checks of what a reader may set: one refusal, in one line, before anything is run.

Python would take ``k = True`` or ``k = 2.5`` for a number and go on; the wrong results would then
overwrite those of a whole profile.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")

_MOST_NAMES = 40
"""Known names that an error lists at most, the first ones: enough for all fields of a profile."""

LARGEST_LAM = 1e6
"""float32 has seven digits: a larger lambda rounds h+ away, a far larger one overflows."""


def check_k(k: Any) -> int:
    """How many passages are retrieved: a whole number, at least 1; else ValueError."""
    return check_count("k", k, least=1)


def check_limit(limit: Any) -> int | None:
    """How many are read at most: a whole number, at least 0 (= all), or None; else ValueError."""
    return None if limit is None else check_count("limit", limit, least=0)


def check_count(name: str, value: Any, least: int) -> int:
    """A whole number (Python's or numpy's) of at least ``least``, as an int; else ValueError."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def check_lam(lam: Any) -> float:
    """The weight of the mimic, as a float: a number up to ``LARGEST_LAM``, else ValueError.

    Below zero the mimic is added in place of subtracted. That is a control, and a warning says so.
    """
    number = check_number("lam", lam)
    if abs(number) > LARGEST_LAM:
        raise ValueError(
            f"lam = {lam:g} leaves nothing of H+; it must be at most {LARGEST_LAM:,.0f}"
        )
    if number < 0:
        warnings.warn(f"lam = {lam:g} adds the mimic instead of subtracting it", stacklevel=2)
    return number


def check_number(name: str, value: Any) -> float:
    """Any finite number, as a float; else ValueError."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value!r}")
    return float(value)


def one_of(what: str, name: Any, known: Mapping[str, T]) -> T:
    """What ``known`` has under ``name``; ValueError as ``refuse_unknown`` raises it."""
    refuse_unknown(what, [name], known)
    return known[name]


def refuse_unknown(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raises ValueError naming the first of ``given`` that is not ``known``, and known names.

    ``what`` says what the names are of, and where: "mine.toml: no method".
    """
    for name in given:
        if isinstance(name, Hashable) and name in known:
            continue
        similar = get_close_matches(str(name), known, n=1)
        guess = f" (did you mean {similar[0]!r}?)" if similar else ""
        names = ", ".join(list(known)[:_MOST_NAMES]) or "none"
        if len(known) > _MOST_NAMES:
            names += f" and {len(known) - _MOST_NAMES} more"
        raise ValueError(f"{what} {name!r}{guess}; there are: {names}")


_KINDS = {"string_type": "a text", "tuple_type": "a list", "dict_type": "a table"}
"""pydantic's names of what a value has to be, as a TOML file calls it."""


def first_error(error: ValidationError) -> str:
    """The first thing that pydantic found wrong, in one line: the field, why, and the value."""
    found = error.errors()[0]
    where = ".".join(map(str, found["loc"]))
    if found["type"] == "value_error":  # of a check of ours, whose text has the value
        text = str(found["ctx"]["error"])
        return text if text.startswith(where) else f"{where}: {text}"
    kind = _KINDS.get(found["type"])
    why = f"must be {kind}" if kind else found["msg"]
    return f"{where}: {why}, not {found['input']!r}"
