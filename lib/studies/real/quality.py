"""Is the judge an instrument? Agreement of passes, planted items, and sets of known truth.

Everything here is read before any result. No verdict is given on judged evidence unless kappa of
*supports* is at least ``LEAST_KAPPA``, and planted errors, the counterfactuals among them, are at
most ``MOST_ERRORS``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.data.judgments import HELPFUL
from lib.datasets import Question
from lib.stats import agreement_table, mean_interval
from lib.studies.real.measures import ON_TOPIC

LEAST_KAPPA = 0.6
MOST_ERRORS = 0.05

_AGAIN = 10
"""One silent item in so many was judged again."""

_FILE = DATA / "judgments" / "plants.jsonl.gz"

Row = Mapping
Key = tuple[str, str]


@dataclass(frozen=True)
class Plant:
    """One planted item. ``like`` is the passage whose label it must get, ``supports`` the option it
    must be said to support; with neither it must support nothing."""

    item: str
    kind: str
    qid: str
    text: str
    like: str = ""
    supports: str = ""


def read_plants(path: Path = _FILE) -> list[Plant]:
    """The plants that were judged, without their texts; none where there is no file."""
    return [Plant(text="", **row) for row in read_jsonl(path)] if path.exists() else []


def agreement(
    rows: Iterable[Row], questions: Mapping[str, Question], other: str = "second"
) -> pd.DataFrame:
    """Cohen's kappa and raw agreement of the first pass with another, label by label.

    Columns: check, label, value, low, high, n. *supports* and *contradicts* are yes or no for each
    item and option, *supports right* and *supports wrong* the same for the right option and the
    others. *Confirmed* is the share of the first pass's labels that the other gave too. Items that
    were silent at first stand for the ten they were drawn from. The interval resamples questions.
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
        question = questions[key[0]]
        for letter in sorted(question.options):
            side = "supports right" if letter == question.answer else "supports wrong"
            for label in ("supports", "contradicts"):
                said = (letter in one[label], letter in two[label])
                pairs.append((label, key[0], weight, *said))
                if label == "supports":
                    pairs.append((side, key[0], weight, *said))
    said = pd.DataFrame(pairs, columns=["label", "group", "weight", "one", "two"])
    passes = f"first and {other} pass"
    return pd.concat([agreement_table(said, passes), _confirmed(said, other)], ignore_index=True)


def _confirmed(said: pd.DataFrame, other: str) -> pd.DataFrame:
    """Of what the first pass said, the share that the other pass said too, label by label."""
    made = []
    for label, own in said[said["one"]].groupby("label", sort=True):
        value, low, high = mean_interval(own["two"].to_numpy())
        row = {"check": f"confirmed by the {other} pass", "label": label, "value": value}
        made.append(row | {"low": low, "high": high, "n": len(own)})
    return pd.DataFrame(made)


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


def helpful_passages(experts: Mapping[str, frozenset[str]]) -> pd.DataFrame:
    """Are BioASQ's labels complete? What a model calls helpful of what questions find.

    ``experts`` are the passages that experts gave, by question id. Columns as ``agreement`` has
    them: of the passages that experts gave, and of those that they did not.
    """
    with open(HELPFUL, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    found: dict[str, list[float]] = {"experts' passages": [], "other passages": []}
    for row in rows:
        given = row["pid"] in experts[row["qid"]]
        found["experts' passages" if given else "other passages"].append(float(row["helpful"]))
    made = []
    for which, own in found.items():
        value, low, high = mean_interval(np.array(own))
        row = {"check": f"bioasq: {which}", "label": "helpful", "value": value}
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
