"""Is the judge of contradiction an instrument? Agreement of passes, and pairs of known label.

Everything here is read before any result of the study is. Judged contradiction carries a result
only if kappa of *disagree* between the passes is at least ``LEAST_KAPPA`` and planted errors are at
most ``MOST_ERRORS``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.data.judgments import verdicts
from lib.stats import agreement_table, mean_interval
from lib.studies.evidence.load import load_evidence

IN_POOLS = ("stranger", "order", "repeat")
"""Control pairs in pools: a text from another pool, one that tells the judge what to say, and a
text of the pool once more. ``tools.judging`` made them."""

PLANTS = DATA / "judgments" / "contradiction_plants.jsonl.gz"

_AGAIN = 10
"""One pair on other questions in so many was judged again."""


def _is_plant(row: Mapping) -> bool:
    return "plant:" in row["a"] + row["b"] or row["pool"].startswith("scifact/")


@dataclass(frozen=True)
class Plant:
    """A pair that must get a label: ``must`` is "other", "agree", "disagree", "neither" (anything
    but the two), or the id of the text of the pool that ``a`` or ``b`` is a repetition of."""

    kind: str
    pool: str
    a: str
    b: str
    must: str


def read_plants(path: Path = PLANTS) -> list[Plant]:
    """The pairs that were planted."""
    return [Plant(**row) for row in read_jsonl(path)]


def pair_quality(rows: Sequence[Mapping], plants: Sequence[Plant]) -> pd.DataFrame:
    """All that tells whether the judge is an instrument: check, label, value, low, high, n."""
    alone = pass_agreement(rows, "single")
    parts = [pass_agreement(rows), alone, planted_pairs(rows, plants), known_pairs(rows, plants)]
    return pd.concat([*parts, stances(rows)], ignore_index=True)


def pass_agreement(rows: Iterable[Mapping], other: str = "second") -> pd.DataFrame:
    """Kappa and raw agreement of the first pass with another on *same*, *agree* and *disagree*.

    Planted pairs are left out. Pairs on other questions stand for the ten they were drawn from. The
    interval resamples pools.
    """
    first, again = _pass(rows, "first"), _pass(rows, other)
    said = []
    for key in sorted(first.keys() & again.keys()):
        one, two = first[key], again[key]
        if _is_plant(one) or one["same"] is None or two["same"] is None:
            continue
        weight = _AGAIN if other == "second" and not one["same"] else 1
        said.append(("same", key[0], weight, one["same"], two["same"]))
        for stance in ("agree", "disagree"):
            said.append((stance, key[0], weight, *(r["stance"] == stance for r in (one, two))))
    table = pd.DataFrame(said, columns=["label", "group", "weight", "one", "two"])
    return agreement_table(table, f"first and {other} pass")


def _pass(rows: Iterable[Mapping], judge: str) -> dict[tuple[str, str, str], Mapping]:
    return {(row["pool"], row["a"], row["b"]): row for row in rows if row["judge"] == judge}


def planted_pairs(rows: Iterable[Mapping], plants: Sequence[Plant]) -> pd.DataFrame:
    """How often the first pass did not give a planted pair the label it must get, by kind.

    SciFact's pairs are not among them: what people said is another judge's word (``known_pairs``).
    An unjudged pair is an error.
    """
    first = _pass(rows, "first")
    errors = defaultdict(list)
    for one in plants:
        if one.kind not in (*IN_POOLS, "turned"):
            continue
        row, must = first.get((one.pool, one.a, one.b)), one.must
        if one.kind == "repeat":
            beside = one.b if one.a == "plant:repeat" else one.a
            like = first.get((one.pool, *sorted((beside, one.must))))
            must = like and _said(like)
        wrong = row is None or must is None or _said(row) != must
        errors[one.kind].append(float(wrong))
    errors["all planted pairs"] = [wrong for own in errors.values() for wrong in own]
    return pd.DataFrame([_mean(f"planted: {kind}", "error", own) for kind, own in errors.items()])


def _said(row: Mapping) -> str | None:
    """A row's label in one word; None where the pair is unjudged."""
    if row["same"] is None:
        return None
    return row["stance"] if row["same"] else "other"


def _mean(check: str, label: str, values: Sequence[float]) -> dict:
    value, low, high = mean_interval(pd.Series(values, dtype=float).to_numpy())
    row = {"check": check, "label": label, "value": value, "low": low, "high": high}
    return row | {"n": len(values)}


def known_pairs(rows: Iterable[Mapping], plants: Sequence[Plant]) -> pd.DataFrame:
    """What both passes say of SciFact's pairs, by what people said of them."""
    found, made = verdicts(rows), []
    for must in ("agree", "disagree", "neither"):
        keys = [(p.pool, p.a, p.b) for p in plants if p.kind == "scifact" and p.must == must]
        own = [found[key] for key in keys if key in found]
        for stance in ("agree", "disagree") if own else ():
            values = [float(verdict.stance == stance) for verdict in own]
            made.append(_mean(f"SciFact, people say {must}", stance, values))
    return pd.DataFrame(made)


def stances(rows: Iterable[Mapping]) -> pd.DataFrame:
    """What both passes say of evidence-mini's pairs, by the stances their writers gave them."""
    stance_of = {e.id: e.meta["stance"] for e in load_evidence("evidence-mini")}
    values = defaultdict(list)
    for (pool, a, b), verdict in verdicts(rows).items():
        sides = {stance_of.get(a), stance_of.get(b)}
        if pool.startswith("mini/") and sides <= {"for", "against"}:
            known = "opposite stances" if len(sides) == 2 else "one stance"
            for stance in ("agree", "disagree"):
                values[f"evidence-mini, {known}", stance].append(float(verdict.stance == stance))
    return pd.DataFrame([_mean(*key, own) for key, own in sorted(values.items())])
