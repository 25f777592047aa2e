"""The ledger of looks: which test questions' labels were opened, when, and for what.

``data/looks.csv`` gets a row from the code that makes a committed result from labels of test
questions. Looks from before were written by hand; ``entered`` says which, and when.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write, canonical_json, locked, sha256_bytes


def read_looks() -> pd.DataFrame:
    """The ledger, a row a look, all text but the number ``look``, oldest first."""
    table = pd.read_csv(paths.DATA / "looks.csv", dtype=str, keep_default_na=False)
    return table.astype({"look": int})


@dataclass(frozen=True)
class Look:
    """The test questions of a set whose labels were opened, and the ``arms`` measured on them.

    ``declared`` is the file of ``data`` in which tests of it were declared beforehand, or "".
    """

    test_set: str
    qids: Iterable[str]
    arms: Iterable[str]
    declared: str = ""


def look_key(study: str, look: Look) -> str:
    """The same study, questions and arms have the same key, whatever their order."""
    what = [study, look.test_set, sorted(set(look.qids)), sorted(set(look.arms))]
    return sha256_bytes(canonical_json(what).encode())[:16]


def note_look(study: str, profile: str, look: Look) -> None:
    """Add a row to the ledger, unless it has this look (``look_key``).

    Nothing is added where the result is not one of those committed: under ``CHR_OUT``, with a
    limit, or by a profile of your own.
    """
    if profile not in paths.COMMITTED or paths.results(profile) != paths.committed(profile):
        return
    key = look_key(study, look)
    with locked(paths.cache("locks") / "looks"):
        looks = read_looks()
        if key in set(looks["hash"]):
            return
        row = {
            "look": len(looks) + 1,
            "date": datetime.now(UTC).date().isoformat(),
            "study": study,
            "test_set": look.test_set,
            "questions": str(len(set(look.qids))),
            "what_was_looked_at": f"{len(set(look.arms))} arms or measures",
            "declared_beforehand": f"yes: data/{look.declared}" if look.declared else "no",
            "what_followed": "nothing yet",
            "entered": "by the code",
            "profile": profile,
            "hash": key,
        }
        table = pd.concat([looks, pd.DataFrame([row])], ignore_index=True)
        atomic_write(paths.DATA / "looks.csv", table.to_csv(index=False, lineterminator="\n"))
