"""Is the judge an instrument? Agreement of passes, planted items, and sets of known truth.

Everything here is read before any result. No verdict is given on judged evidence unless kappa of
*supports* is at least ``LEAST_KAPPA``, and planted errors, the counterfactuals among them, are at
most ``MOST_ERRORS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from lib.agreement import agreement_table
from lib.base.files import sha256_bytes
from lib.data.questions import Question
from lib.stats import mean_interval
from lib.studies.real.measures import ON_TOPIC
from lib.studies.real.plants import Plant

__all__ = [
    "LEAST_KAPPA",
    "MOST_ERRORS",
    "agreement",
    "is_instrument",
    "known_truth",
    "planted_errors",
    "read_alone",
    "read_again",
]

LEAST_KAPPA = 0.6
MOST_ERRORS = 0.05

_AGAIN, _ALONE = 10, 20
"""One silent item in so many is judged again, one item in so many by itself."""

Row = Mapping
Key = tuple[str, str]


def read_again(row: Row) -> bool:
    """Whether an item of the first pass is judged a second time: all that is not silent, all that
    is planted, and a tenth of the rest by the hash of its ids."""
    speaks = bool(row["supports"] or row["contradicts"]) or row["on_topic"] is None
    return speaks or row["pid"].startswith("plant:") or _drawn("again", row, _AGAIN)


def read_alone(row: Row) -> bool:
    """Whether an item is also judged by itself: a twentieth, by the hash of its ids."""
    return not row["pid"].startswith("plant:") and _drawn("alone", row, _ALONE)


def _drawn(what: str, row: Row, one_in: int) -> bool:
    return int(sha256_bytes(f"{what} {row['qid']} {row['pid']}".encode()), 16) % one_in == 0


def agreement(
    rows: Iterable[Row], questions: Mapping[str, Question], other: str = "second"
) -> pd.DataFrame:
    """Cohen's kappa and raw agreement of the first pass with another, label by label.

    Columns: check, label, value, low, high, n. *supports* and *contradicts* are yes or no for each
    item and option. Items that were silent at first stand for the ten they were drawn from. The
    interval resamples questions.
    """
    first, again = _pass(rows, "first"), _pass(rows, other)
    pairs = []
    for key in sorted(first.keys() & again.keys()):
        one, two = first[key], again[key]
        if one["on_topic"] is None or two["on_topic"] is None or key[1].startswith("plant:"):
            continue
        silent = not (one["supports"] or one["contradicts"])
        weight = _AGAIN if silent and other == "second" else 1
        pairs.append(("on_topic", key[0], weight, *(r["on_topic"] >= ON_TOPIC for r in (one, two))))
        for letter in sorted(questions[key[0]].options):
            for label in ("supports", "contradicts"):
                said = (letter in one[label], letter in two[label])
                pairs.append((label, key[0], weight, *said))
    said = pd.DataFrame(pairs, columns=["label", "group", "weight", "one", "two"])
    return agreement_table(said, f"first and {other} pass")


def _pass(rows: Iterable[Row], judge: str) -> dict[Key, Row]:
    return {(row["qid"], row["pid"]): row for row in rows if row["judge"] == judge}


def planted_errors(rows: Iterable[Row], plants: Sequence[Plant]) -> pd.DataFrame:
    """How often a planted item did not get the label it must get, by kind and over all.

    ``repeat`` and ``padding`` must support what their original does, ``words`` and ``order``
    nothing, ``counterfactual`` the option it was written for. Unjudged items count as errors.
    """
    first = _pass(rows, "first")
    found = []
    for plant in plants:
        label = first.get((plant.qid, plant.item))
        said = None
        if label is not None and label["on_topic"] is not None:
            said = set(label["supports"])
        if plant.like:
            like = first.get((plant.qid, plant.like))
            wrong = like is None or said != set(like["supports"])
        elif plant.supports:
            wrong = said is None or plant.supports not in said
        else:
            wrong = said is None or bool(said)
        found.append((plant.kind, float(wrong)))
    table = pd.DataFrame(found, columns=["kind", "wrong"])
    groups = {"all planted items": table, **dict(iter(table.groupby("kind", sort=True)))}
    made = []
    for kind, own in groups.items():
        value, low, high = mean_interval(own["wrong"].to_numpy())
        row = {"check": f"planted: {kind}", "label": "error", "value": value}
        made.append(row | {"low": low, "high": high, "n": len(own)})
    return pd.DataFrame(made)


def known_truth(
    rows: Iterable[Row],
    questions: Mapping[str, Question],
    classes: Mapping[Key, str],
) -> pd.DataFrame:
    """What the judge says of passages whose class is known, by set and class.

    ``classes`` says of (question id, passage id) what it is: "target", "mimic", "neither"
    (ddx-mini), "expert", "other" (BioASQ). Columns as ``agreement`` has them; labels: on topic,
    speaks (for or against any option), supports right, supports wrong.
    """
    found = []
    for key, row in _pass(rows, "first").items():
        if key not in classes or row["on_topic"] is None:
            continue
        question = questions[key[0]]
        said = set(row["supports"])
        outcome = {
            "on topic": row["on_topic"] >= ON_TOPIC,
            "speaks": bool(row["supports"] or row["contradicts"]),
            "supports right": question.answer in said,
            "supports wrong": bool(said - {question.answer}),
        }
        found += [
            (question.dataset, classes[key], label, float(value))
            for label, value in outcome.items()
        ]
    table = pd.DataFrame(found, columns=["dataset", "class", "label", "value"])
    made = []
    for (dataset, one, label), own in table.groupby(["dataset", "class", "label"], sort=False):
        value, low, high = mean_interval(own["value"].to_numpy())
        row = {"check": f"{dataset}: {one}", "label": label, "value": value}
        made.append(row | {"low": low, "high": high, "n": len(own)})
    return pd.DataFrame(made)


def is_instrument(quality: pd.DataFrame) -> bool:
    """Whether verdicts may be given on what was judged (see the module's head)."""
    table = quality.set_index(["check", "label"])["value"]
    kappa = table["kappa of first and second pass", "supports"]
    errors = [
        table[f"planted: {kind}", "error"] for kind in ("all planted items", "counterfactual")
    ]
    return bool(kappa >= LEAST_KAPPA and max(errors) <= MOST_ERRORS)
