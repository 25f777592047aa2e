"""Is the judge of contradiction an instrument? Agreement of passes, and pairs of known label.

Everything here is read before any result of the study is. Judged contradiction carries a result
only if kappa of *disagree* between the passes is at least ``LEAST_KAPPA`` and planted errors are at
most ``MOST_ERRORS``.
"""

from __future__ import annotations

from collections.abc import Mapping

from lib.base.files import sha256_bytes
from lib.studies.real.quality import LEAST_KAPPA, MOST_ERRORS

__all__ = ["LEAST_KAPPA", "MOST_ERRORS", "read_again", "read_alone"]

_AGAIN, _ALONE = 10, 20
"""One pair on other questions in so many is judged again, one pair in so many by itself."""


def read_again(row: Mapping) -> bool:
    """Whether a pair of the first pass is judged a second time: all that is on one question or
    unjudged, all that is planted, and a tenth of the rest by the hash of its ids."""
    return row["same"] is not False or _is_plant(row) or _drawn("again", row, _AGAIN)


def read_alone(row: Mapping) -> bool:
    """Whether a pair is also judged by itself: a twentieth, by the hash of its ids."""
    return not _is_plant(row) and _drawn("alone", row, _ALONE)


def _is_plant(row: Mapping) -> bool:
    return "plant:" in row["a"] + row["b"] or row["pool"].startswith("scifact/")


def _drawn(what: str, row: Mapping, one_in: int) -> bool:
    name = f"{what} {row['pool']} {row['a']} {row['b']}"
    return int(sha256_bytes(name.encode()), 16) % one_in == 0
